"""Numbers with marks between digits, times in several units, and quotation marks left open."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.values import far_from_the_others
from toys import refused

START = 1_767_571_200


def column(folder, text, kind, decimal=None):
    path = folder / "x.csv"
    path.write_text(text)
    rows = TableFile.open(path, decimal).read({"x": kind})
    values = rows.numbers("x") if kind == "number" else rows.times("x")
    rows.faults.refuse()
    return values.tolist()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ('x,p\n"1,250",0.5\n3,0.25\n"2,329",0.1\n', [1250.0, 3.0, 2329.0]),
        ('x,p\n"1,250,000",1\n3,1\n', [1_250_000.0, 3.0]),
        ('x,p\n"0,5",1\n"1,250",1\n', [0.5, 1.25]),
        ("x,p\n1.250,0.5\n3.125,0.5\n", [1.25, 3.125]),
        ("x,p\n1.25,0.5\n3,0.5\n", [1.25, 3.0]),
        ("x;p\n1.250;0,5\n3;0,25\n2.329;0,1\n", [1250.0, 3.0, 2329.0]),
        ("x;p\n1.250;0,5\n3,5;0,25\n2.329,75;0,1\n", [1250.0, 3.5, 2329.75]),
        ("x;p\n1250;0.5\n3.5;0.25\n", [1250.0, 3.5]),
        ("x\tp\n1,250\t0.5\n3\t0.5\n", [1250.0, 3.0]),
        ("x;p\n1234,567;1\n", [1234.567]),
        ("x;p\n" + 2000 * "5;0,5\n" + "1.250;0,5\n", [*2000 * [5.0], 1250.0]),
    ],
)
def test_the_column_and_the_file_say_what_a_mark_is(tmp_path, text, values):
    assert column(tmp_path, text, "number") == values


@pytest.mark.parametrize("text", [
    "x;p\n1.250;1\n3;1\n",
    "x;p\n1,250;1\n3;1\n",
    'x,p\n"1,250",1\n3,1\n',
    "x,p\n1.250,0.5\n3,0.5\n",
    "x;p\n1.250;0.5\n2,125;0.5\n",
    "x;p\n" + 2000 * "5;1\n" + "1.250;1\n",
])  # fmt: skip
def test_numbers_that_can_be_read_in_two_ways_are_refused_until_the_mark_is_stated(tmp_path, text):
    with pytest.raises(UserError) as caught:
        column(tmp_path, text, "number")
    assert caught.value.code == "unclear_numbers"
    number = "1.250" if "1.250" in text else "1,250"
    one_mark = text.replace("2,125", number)
    read = {mark: column(tmp_path, one_mark, "number", mark) for mark in (".", ",")}
    decimal, grouping = (".", ",") if "." in number else (",", ".")
    assert 1.25 in read[decimal]
    assert 1250.0 in read[grouping]


def test_text_columns_of_parquet_follow_their_own_numbers(tmp_path):
    for texts, values in (
        (["1.250,5", "3"], [1250.5, 3.0]),
        (["1,250.5", "3"], [1250.5, 3.0]),
        (["0,5", "1,250"], [0.5, 1.25]),
    ):
        pq.write_table(pa.table({"x": texts}), tmp_path / "x.parquet")
        assert TableFile.open(tmp_path / "x.parquet").read({"x": "number"}).numbers("x").tolist() == values


SECONDS = [START + 3600 * i for i in range(300)]


@pytest.mark.parametrize("size", [1, 10**3, 10**6, 10**9])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_unit_of_time_is_found_by_its_range(tmp_path, size, ending):
    times = [size * second for second in SECONDS]
    if ending == "csv":
        read = column(tmp_path, "x\n" + "\n".join(map(str, times)) + "\n", "time")
    else:
        pq.write_table(pa.table({"x": times}), tmp_path / "x.parquet")
        read = TableFile.open(tmp_path / "x.parquet").read({"x": "time"}).times("x").tolist()
    assert read == pytest.approx(SECONDS, abs=1e-3)


@pytest.mark.parametrize(
    ("texts", "seconds"),
    [
        (["2026-01-05 00:00:00 UTC", "2026-01-05 01:00:00 UTC"], [START, START + 3600]),
        (["2026-01-05T00:00:00.123456789Z", "2026-01-05T01:00:00.5"], [START + 0.123456789, START + 3600.5]),
        (["2026-01-05 00:00:00.134400001", "2026-01-05 01:00:00.000000000"], [START + 0.1344, START + 3600]),
        (["20260105", "20260106"], [START, START + 86_400]),
        (["20260105", "20269999"], [20260105, 20269999]),
        (["0", "17", "240"], [0, 17, 240]),
        (["12.5", "300.25"], [12.5, 300.25]),
    ],
)
def test_dates_and_what_is_none(tmp_path, texts, seconds):
    assert column(tmp_path, "x\n" + "\n".join(texts) + "\n", "time") == pytest.approx(seconds, abs=1e-5)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_units_that_are_mixed_are_refused(tmp_path, share):
    times = [1000 * second if i < share * len(SECONDS) else second for i, second in enumerate(SECONDS)]
    with pytest.raises(UserError) as caught:
        column(tmp_path, "x\n" + "\n".join(map(str, times)) + "\n", "time")
    assert caught.value.code == "mixed_units"


def test_one_date_of_a_wrong_year_is_far_from_the_others():
    rng = np.random.default_rng(1)
    honest = START + np.sort(rng.integers(0, 33 * 86_400, 2000)).astype(float)
    assert not far_from_the_others(honest).any()
    growing = START + 400 * 86_400 * np.sort(rng.random(2000)) ** 0.2
    assert far_from_the_others(growing).mean() < 0.005
    wrong = honest.copy()
    wrong[7] -= 365 * 86_400
    assert np.flatnonzero(far_from_the_others(wrong)).tolist() == [7]


def _rows(fields):
    return "id,user,p,note\n" + "\n".join(fields) + "\n"


def test_rows_within_quotation_marks_are_found(tmp_path):
    fields = [f"{i},u{i % 7},0.5,note {i}" for i in range(400)]
    assert len(column(tmp_path, _rows(fields).replace("p", "x", 1), "number")) == 400
    fields[100] = fields[100].replace("note", '"note')
    fields[250] += '"'
    with refused("line 102") as caught:
        column(tmp_path, _rows(fields).replace("p", "x", 1), "number")
    assert caught.value.code == "not_a_table"
    several_lines = [f'{i},u{i % 7},0.5,"two\nlines, here"' for i in range(400)]
    assert len(column(tmp_path, _rows(several_lines).replace("p", "x", 1), "number")) == 400


def test_hashes_of_64_bits_are_ids(tmp_path):
    hashes = np.array([2**63, 2**64 - 1, 2**63, 5], np.uint64)
    pq.write_table(pa.table({"x": hashes}), tmp_path / "x.parquet")
    rows = TableFile.open(tmp_path / "x.parquet").read({"x": "id"})
    ids = rows.ids("x")
    assert [str(ids.ids[code]) for code in ids.codes] == [str(number) for number in hashes]
    digests = rows.digests(["x"])
    assert digests[0] == digests[2]
    assert len(set(digests.tolist())) == 3


@pytest.mark.parametrize(
    ("header", "doubted"), [("A41,B1,5.0,0", True), ("u,2026-03-01,1", True), ("segment,0,1,2", False)]
)
def test_a_first_line_of_values_is_doubted_and_numbered_columns_are_not(tmp_path, header, doubted):
    path = tmp_path / "x.csv"
    path.write_text(header + "\n" + header + "\n")
    assert bool(TableFile.open(path).how_written()) == doubted

"""Table files as people have them, and which of their columns is what."""

from __future__ import annotations

import gzip
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.own_log import blocks
from recsim_mnar.tables import text as text_tables
from recsim_mnar.tables.files import read_blocks, rows_in
from recsim_mnar.tables.parts import TableFile
from recsim_mnar.tables.roles import NAMED, OWN_SCHEMA, RECOGNISED, find_columns
from recsim_mnar.tables.rows import repeats
from toys import refused
from twins.own_schema import estimate_file

TABLE = "who;when;clicks;p\nanna;31.05.2024 17:00;1;0,25\nbö;01.06.2024 08:30;0;1,5e-1\n anna ;02.06.2024 00:00;0;,5\n"


def write(folder, lines, name="x.csv", encoding="utf-8"):
    path = folder / name
    path.write_bytes(lines.encode(encoding))
    return path


def read(path, **kinds):
    return TableFile.open(path).read(kinds)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "utf-16"])
@pytest.mark.parametrize("sign", [";", "\t", "|"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_separator_encoding_and_decimal_mark(tmp_path, encoding, sign, end):
    file = TableFile.open(write(tmp_path, TABLE.replace(";", sign).replace("\n", end), encoding=encoding))
    assert file.names == ["who", "when", "clicks", "p"]
    assert file.decimal.mark == ","
    rows = file.read({"who": "id", "when": "time", "p": "number", "clicks": "number"})
    assert rows.numbers("p").tolist() == [0.25, 0.15, 0.5]
    assert rows.numbers("clicks").tolist() == [1.0, 0.0, 0.0]
    who = rows.ids("who")
    assert who.ids[who.codes].tolist() == ["anna", "bö", "anna"]
    assert rows.times("when")[0] == (datetime(2024, 5, 31, 17) - datetime(1970, 1, 1)).total_seconds()
    assert np.diff(rows.times("when")).tolist() == [15.5 * 3600, 15.5 * 3600]
    rows.faults.refuse()


def test_compressed_and_after_blank_lines(tmp_path):
    path = tmp_path / "x.csv.gz"
    path.write_bytes(gzip.compress(("\n\n" + TABLE).encode()))
    assert read(path, p="number").numbers("p").tolist() == [0.25, 0.15, 0.5]


def _columns(n, **more):
    known = {"user": np.arange(n) // 1000, "reward": np.ones(n), "propensity": np.full(n, 0.5), "step": np.zeros(n)}
    return pa.table({**known, **more})


def _arrow(path, n=1_000_000, codec="zstd", rows=None, **more):
    table, options = _columns(n, **more), pa.ipc.IpcWriteOptions(compression=codec)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=options) as to:
        to.write_table(table, rows)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "packed.arrow"])
def test_a_file_that_is_cut_is_refused(name, tmp_path):
    texts, words = [f"{i:09}" for i in range(1000)], pa.array(["u", "v"] * 500).dictionary_encode()
    more = {"a": texts, "b": words, "c": pa.nulls(1000)}
    if name == "a.parquet":
        pq.write_table(_columns(1000, **more), tmp_path / name, row_group_size=300, use_dictionary=False)
    else:
        _arrow(tmp_path / name, 1000, "lz4" if "packed" in name else None, 300, **more)
    assert [len(block) for block in read_blocks(tmp_path / name, 300)] == [300, 300, 300, 100]
    for cut in range(1, 400, 7):  # an Arrow file's end says where all else is
        (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:-cut])
        with pytest.raises(UserError, match=r"is not a readable (Arrow|Parquet) file"):
            rows_in(tmp_path / name)


def test_commas_that_begin_late(tmp_path):
    """The beginning of the file does not show the decimal mark."""
    many = "a;b\n" + "1;0\n" * 100_000 + "1;0,5\n"
    assert read(write(tmp_path, many), b="number").numbers("b")[-1] == 0.5


def test_a_character_of_another_encoding_after_a_long_plain_beginning(tmp_path):
    path = write(tmp_path, "a;b\n" + "x;0\n" * 100_000 + "é;1\n", encoding="cp1252")
    assert read(path, a="id").ids("a").ids.tolist() == ["x", "é"]


def test_every_fault_at_once_with_its_rows(tmp_path):
    text = "who,n,when\na,1,2024-01-01\n,2,2024-01-01\nb,x,2024-01-01\nb,,soon\nc,inf,\nc,NaN,2024-01-01\n"
    rows = read(write(tmp_path, text), who="id", n="number", when="time")
    assert rows.ids("who").codes.tolist() == [0, -1, 1, 1, 2, 2]
    np.testing.assert_array_equal(rows.numbers("n"), [1, 2, np.nan, np.nan, np.nan, np.nan])
    rows.times("when")
    with pytest.raises(UserError) as caught:
        rows.faults.refuse("drop them")
    said = str(caught.value)
    assert "\n" not in said
    for part in (
        "6 faults",
        "'who' is missing in row 2",
        "'n' is not a number in row 3: x",
        "'n' is missing in 2 rows (4, 6)",
        "'n' is not a finite number in row 5: inf",
        "'when' is not a date in row 4: soon",
        "'when' is missing in row 5",
        "; drop them",
    ):
        assert part in said
    assert rows.missing.tolist() == [False, True, False, True, True, True]


IDS = {
    "7 007 8 8": None, "7 8 9 007": None, "007 8 9 7": None, "00 0 1 1": None, "007 08 9 9": 3, "007a 7a 1 2": 4,
    "7 7.0 8 8": 2, "7.0 8.0 7 8": 2, "7 7.5 7.50 8": 4,
}  # fmt: skip
"""How many users there are; None where nobody knows."""


@pytest.mark.parametrize("ids", IDS)
@pytest.mark.parametrize("rows", [2, 3, 9])
def test_one_id_is_not_quietly_two(ids, rows, tmp_path, monkeypatch):
    """At once and in blocks."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", rows)
    monkeypatch.setattr(text_tables, "_BLOCK_BYTES", 20 * rows)
    lines = [f"{user},{i % 2},.5,.25" for i, user in enumerate(ids.split())]
    path = write(tmp_path, "\n".join(["user,reward,propensity,new", *lines]) + "\n")
    for estimator in ("ips", "sg_ips"):
        if IDS[ids] is None:
            with refused(r"'user' stands with leading zeros and without in .*: write it"):
                estimate_file(path, ["new"], estimators=[estimator])
        else:
            found = estimate_file(path, ["new"], estimators=[estimator])
            assert found[0]["diagnostics"]["users"] == IDS[ids]


def test_ids_that_are_no_text(tmp_path):
    pq.write_table(pa.table({"x": [b"\xff\xfe", b"a"]}), tmp_path / "a.parquet")
    with refused("column 'x' holds binary: ids are numbers or text"):
        read(tmp_path / "a.parquet", x="id").ids("x")


def test_rows_keep_their_numbers_when_others_are_left_out(tmp_path):
    rows = read(write(tmp_path, "n,k\n1,0\n2,1\nx,0\nz,1\n"), n="number").kept(np.array([False, True, True, True]))
    rows.numbers("n")
    with refused(r"in 2 rows \(3: x, 4: z\)"):
        rows.faults.refuse()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n1\n1,2,3\n", r"2 rows have not the header's 2 fields \(row 2: 1, 3: 3\)"),
        ("a,b\n1,2\n1,0,5\n", r"1 row has not the header's 2 fields \(row 2: 3\); write one value per column"),
        ('a,b\n1,2\n1,"x\n1,2\n', "a quoted value goes on below line 3: a quotation mark may be open there"),
        ("a,b\n", "a header but no rows"),
        ("a,a\n1,2\n", "'a' appears twice"),
        ("a" * 200_000, "field larger than field limit"),
        ("a,b\n1," + "2" * 200_000 + "\n", "field larger than field limit"),
    ],
)
def test_what_is_no_table(tmp_path, text, message):
    with refused(message):
        read(write(tmp_path, text), a="number")


@pytest.mark.parametrize("text", ['TV 32" flat', "two\nlines", "a;b\n\n", 'the "best"'])
def test_quotes_within_a_text_are_only_signs(tmp_path, text):
    quoted = text if "32" in text else '"' + text.replace('"', '""') + '"'
    rows = read(write(tmp_path, f"a,b\n1,{quoted}\n2,x\n"), a="number", b="id")
    assert rows.numbers("a").tolist() == [1.0, 2.0]
    assert sorted(rows.ids("b").ids) == sorted([text.strip(), "x"])


@pytest.mark.parametrize(("yes", "no"), [("true", "False"), ("yes", "no"), ("Y", "N")])
def test_yes_and_no_are_numbers(tmp_path, yes, no):
    rows = read(write(tmp_path, f"a,b\n{yes},1\n{no},2\n1,3\nmaybe,4\n"), a="number")
    assert rows.numbers("a")[:3].tolist() == [1.0, 0.0, 1.0]
    assert [(fault.code, fault.values) for fault in rows.faults.faults] == [("not_a_number", ("maybe",))]


def test_parquet_of_odd_kinds(tmp_path):
    table = pa.table(
        {
            "d": pa.array(["0.5", "1.5"]).cast(pa.decimal128(4, 2)),
            "flag": [True, None],
            "word": pa.array(["x", "x"]).dictionary_encode(),
            "list": [[1], [2]],
            "day": pa.array([0, 1], pa.date32()),
        }
    )
    pq.write_table(table, tmp_path / "x.parquet")
    rows = read(tmp_path / "x.parquet", d="number", flag="number", word="id", list="number", day="time")
    assert rows.numbers("d").tolist() == [0.5, 1.5]
    np.testing.assert_array_equal(rows.numbers("flag"), [1.0, np.nan])
    assert rows.ids("word").codes.tolist() == [0, 0]
    assert rows.times("day").tolist() == [0.0, 86400.0]
    with refused("'list' holds list"):
        rows.numbers("list")


@pytest.mark.parametrize(
    ("dates", "first"),
    [
        (["05/31/2024", "06/01/2024"], "2024-05-31"),
        (["31/05/2024", "01/06/2024"], "2024-05-31"),
        (["2024-05-31T00:00:00Z", "2024-06-01"], "2024-05-31"),
        (["31.05.2024", "01.06.2024"], "2024-05-31"),
    ],
)
def test_dates(tmp_path, dates, first):
    rows = read(write(tmp_path, "d;a\n" + "".join(f"{date};1\n" for date in dates)), d="time")
    seconds = (datetime.fromisoformat(first) - datetime(1970, 1, 1)).total_seconds()
    assert rows.times("d").tolist() == [seconds, seconds + 86400]
    rows.faults.refuse()


def test_days_and_months_that_look_alike_are_a_fault(tmp_path):
    rows = read(write(tmp_path, "d;a\n05/06/2024;1\n05/07/2024;2\n"), d="time")
    rows.times("d")
    with refused("'d' is not a date in 2 rows"):
        rows.faults.refuse()


def test_copies(tmp_path):
    rows = read(write(tmp_path, "u,n\na,1\nb,1\na,1\na,0\na,\na,\na,1\n"), u="id", n="number")
    assert repeats(rows.digests(["u", "n"])).tolist() == [False, False, True, False, False, True, True]
    without_missing = rows.kept(np.arange(7) < 4)
    assert rows.digests(["u", "n"])[:4].tolist() == without_missing.digests(["u", "n"]).tolist()


def test_a_folder_of_parts(tmp_path):
    write(tmp_path, "a,b\n1,x\n", "p0.csv")
    write(tmp_path, "b,a\ny,2\n", "p1.csv")
    rows = read(tmp_path, a="number", b="id")
    assert rows.numbers("a").tolist() == [1.0, 2.0]
    assert rows.ids("b").codes.tolist() == [0, 1]


def found(known, **options):
    return find_columns("x.csv", known, **options)


def test_usual_names_are_recognised_and_said():
    columns = found(
        ["Impression_ID", "Visitor ID", "pscore", "clicks", "arm"],
        needed=("reward", "propensity"),
        optional=("user", "action", "time"),
    )
    assert columns.names == {"reward": "clicks", "propensity": "pscore", "user": "Visitor ID", "action": "arm"}
    assert set(columns.how.values()) == {RECOGNISED}
    assert columns.guessed
    assert columns.line() == "reward: clicks; propensity: pscore; user: Visitor ID; action: arm"


def test_our_own_names_win_over_usual_ones_and_the_user_over_all():
    known = ["reward", "clicks", "propensity", "user", "session_id", "x"]
    columns = found(known, needed=("reward", "propensity"), optional=("user",))
    assert columns.names == {"reward": "reward", "propensity": "propensity", "user": "user"}
    assert set(columns.how.values()) == {OWN_SCHEMA}
    assert not columns.guessed
    columns = found(known, named={"reward": "x", "user": "reward"}, needed=("reward",), optional=("user",))
    assert columns.names == {"reward": "x", "user": "reward"}
    assert columns.how == {"reward": NAMED, "user": NAMED}
    assert columns.line() == "reward: x (named); user: reward (named)"


def test_two_candidates_are_an_error_where_one_is_needed():
    known = ["clicks", "conversion", "pscore", "prob", "user_id", "customer_id"]
    with refused("the reward could be column 'clicks' or 'conversion'; say which with --reward"):
        found(known, needed=("reward",))
    columns = found(known, needed=("propensity",), optional=("user",), leave=("prob",))
    assert columns.names == {"propensity": "pscore"}
    assert columns.unclear == {"user": ("user_id", "customer_id")}
    assert columns.lines()[1] == (
        "no user taken: the user could be column 'user_id' or 'customer_id'; say which with --user-column"
    )


@pytest.mark.parametrize(
    ("known", "message"),
    [
        (["a", "b"], r"no column is recognised as the reward; columns: a, b; name it with --reward-column"),
        (["the_reward_x", "b"], "did you mean 'the_reward_x'"),
        (["1", "0,5"], "no header line"),
    ],
)
def test_no_candidate(known, message):
    with refused(message):
        found(known, needed=("reward",))


def test_a_named_column_that_is_not_there():
    with refused(r"no column 'klicks'; did you mean 'clicks'\? \(--reward-column\)"):
        found(["clicks"], named={"reward": "klicks"}, needed=("reward",))

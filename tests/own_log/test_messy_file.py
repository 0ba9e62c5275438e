"""The answers of doctor, estimate and plan to a file as a stranger brings it, in the first minutes."""

from __future__ import annotations

import re
import shlex

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.datasets import read_interactions
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.estimating import Question, estimate_log
from toys import read_json
from twins.commands import done, fails, run
from twins.findings import advice_of, finding, fitting_lines
from twins.pages import page_text

N, ITEMS = 12_000, 5
TARGET = ("--target", "new_model_prob", "--baseline", "today")
BOUND = ("--propensity-min", "15 %")


def table() -> pd.DataFrame:
    """Two weeks; on desktops the new policy shows what earns less, on mobiles what earns more, on tablets the same."""
    rng = np.random.default_rng(0)
    base = np.linspace(0.05, 0.6, ITEMS)
    device = rng.choice(3, N, p=[0.5, 0.35, 0.15])
    old = np.full(ITEMS, 0.15)
    old[2] = 0.4
    to_the_last = 0.1 * np.array([-1, 0, 0, 0, 1])
    new = np.stack([old + to_the_last, old - to_the_last, old])
    item = (rng.random((N, 1)) > old.cumsum()[:-1]).sum(axis=1)
    user = rng.integers(0, 4000, N)
    seconds = np.sort(rng.integers(0, 14 * 86_400, N))
    return pd.DataFrame(
        {
            "customer": [f"C{number:04d}" for number in user],
            "viewed_at": pd.Timestamp("2024-05-01") + pd.to_timedelta(seconds, "s"),
            "item_sku": [f"SKU-{number}" for number in item],
            "shown_prob": old[item],
            "clicked": (rng.random(N) < base[item]).astype(int),
            "new_model_prob": new[device, item],
            "device": np.array(["Mobile", "Desktop", "Tablet"])[device],
            "country": np.where(user % 3 == 0, "FR", np.where(rng.random(N) < 0.1, "de", "DE")),
        }
    )


@pytest.fixture
def save_messily(save):
    """Semicolons and per cent with a decimal comma."""

    def per_cent(probability):
        return f"{100 * probability:.4f} %".replace(".", ",")

    def write(frame, name="log.csv"):
        probabilities = {column: frame[column].map(per_cent) for column in ("shown_prob", "new_model_prob")}
        return save(frame.assign(**probabilities), name, sep=";")

    return write


@pytest.fixture
def frame():
    return table()


@pytest.fixture
def file(frame, save_messily):
    return save_messily(frame)


def test_doctor_asks_for_the_bound(file, capsys):
    examination = examine_file(file)
    columns = examination.columns.names
    assert (columns["action"], columns["time"]) == ("item_sku", "viewed_at")
    lines = fitting_lines(examination)
    assert "--propensity-min" not in lines["estimate"]
    assert "(the smallest in this log is 0.15: is it?)" in advice_of(examination)["estimate"].says
    out = run(capsys, "doctor", file)[1]
    assert all(line in out for line in lines.values())


@pytest.mark.parametrize(
    ("option", "segments"), [((), {"DE", "de", "FR"}), (("--fold-case",), {"DE", "FR"})], ids=["plain", "folded"]
)
def test_words_that_differ_in_capitals_are_folded_only_where_asked(file, tmp_path, capsys, option, segments):
    words = ("--by", "country", *option, "--json", tmp_path / "a.json")
    status, out, error = run(capsys, "estimate", file, *TARGET, *words)
    assert status == 0
    assert "country has DE and de, which differ only in capitals: taken as " in out + error
    records = read_json(tmp_path / "a.json")
    assert {record["segment"] for record in records if "by" in record} == segments


def line_on_segments(folder) -> str:
    """The line on segments, which stands below the title and above the next step."""
    page = page_text(folder / "report.html")
    (line,) = re.findall(r'<p class="lift but">(.*?)</p>', page)
    assert page.index("<h1>") < page.index(line) < page.index('<p class="next">')
    return line


def test_the_first_line_names_the_segments_that_lose(file, tmp_path, capsys):
    folder = tmp_path / "page"
    out = done(capsys, "estimate", file, *TARGET, *BOUND, "--by", "device", "--out", folder)
    assert "By device it is worse than today's policy in Desktop." in out.splitlines()[0]
    segments = read_json(folder / "results.json")["sentence"]["segments"]
    assert segments.pop("by") == "device"
    assert segments == {"worse": ["Desktop"], "better": ["Mobile"], "cannot_tell": ["Tablet"], "do_not_use": []}
    share = r"\([\d.]+ % \u2192 [\d.]+ %\)"
    on_page = f"By device: worse on Desktop {share}; better on Mobile {share}; not clear on Tablet\\."
    assert re.fullmatch(on_page, line_on_segments(folder))


def test_one_column_of_segments_at_a_time(file):
    with pytest.raises(UserError, match=r"--by country,device: one column at a time. Run it once per column"):
        estimate_log(file, Question(["new_model_prob"], by="country,device"))


def test_the_next_step_is_a_line_that_runs(frame, save_messily, capsys):
    frame.loc[frame.item_sku == "SKU-4", "new_model_prob"] = 0.3
    frame.loc[frame.item_sku == "SKU-0", "new_model_prob"] = 0.0
    kept = frame.item_sku.isin(["SKU-0", "SKU-4"])
    frame["new_model_prob"] = frame.new_model_prob.where(kept, frame.shown_prob)
    file = save_messily(frame.rename(columns={"clicked": "bookings"}), "my log.csv")
    named = ("--reward-column", "bookings", "--propensity-min", ".15", "--deduplicate")
    first, line, *_ = done(capsys, "estimate", file, *TARGET, *named).splitlines()
    assert first.count("Next: try it in an A/B test") == 1
    words = shlex.split(line)
    assert words[:4] == ["recsim-mnar", "plan", "ab", str(file)]
    plan = done(capsys, *words[1:])
    assert plan.startswith("lift ")
    assert "in whole weeks: " in plan.splitlines()[0]


@pytest.mark.slow
@pytest.mark.parametrize("items", [False, True])
@pytest.mark.parametrize("fault", ["top", "shuffled"])
def test_a_column_that_is_not_of_the_item_shown(frame, save_messily, fault, items):
    """Both suspects are named."""
    rng = np.random.default_rng(1)
    law = 0.9 * rng.dirichlet(np.full(ITEMS, 0.3), N) + 0.02
    shown = (rng.random((N, 1)) > law.cumsum(axis=1)[:, :-1]).sum(axis=1)
    frame["shown_prob"] = law[np.arange(N), shown]
    if fault == "top":
        frame["new_model_prob"] = law.max(axis=1)
    else:
        frame["new_model_prob"] = rng.permutation(frame.shown_prob.to_numpy())
    if items:
        frame["item_sku"] = [f"SKU-{number}" for number in shown]
        suspect = "whether new_model_prob is of the item shown"
    else:
        del frame["item_sku"]
        suspect = "either the logged probabilities or the new policy's column are not of the item shown"
    file = save_messily(frame)
    (record,) = estimate_log(file, Question(["new_model_prob"], estimators=["ips"])).records
    assert suspect in finding(record, "propensities").action


def test_interactions_with_empty_items(save, tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"customer": rng.integers(0, 60, 900), "product": rng.integers(0, 20, 900).astype(object)})
    frame["viewed_at"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(900), "h")
    frame.loc[:153, "product"] = None
    file = save(frame, "met.csv")
    line = fitting_lines(examine_file(file))["compare --interactions"]
    assert line.endswith(" --drop-missing")
    with pytest.raises(UserError, match=r"column 'product' is missing in 154 rows .*--drop-missing leaves out"):
        read_interactions(file)
    interactions = read_interactions(file, drop_missing=True)
    assert (len(interactions.log), interactions.left_out, interactions.timed) == (746, 154, True)
    assert interactions.n_users == frame[154:].customer.nunique()
    few = ("--agents", "random,popularity", "--option", "folds=1", "--out", tmp_path / "out")
    assert "154 rows of the file left out: values are missing." in done(capsys, *shlex.split(line)[1:], *few)


# ------------------------------------------------------------------------------------------- rows that cannot be read


def spoiled(frame, n_words: int):
    """The log with this many words for probabilities, and other faults."""
    frame = frame.astype(object)
    frame.loc[: n_words - 1, "shown_prob"] = "perhaps"
    frame.loc[3, "clicked"] = "inf"
    frame.loc[20, "new_model_prob"] = 1.5
    frame.loc[30, "customer"] = None
    return frame


@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_rows_that_cannot_be_read_are_left_out_and_counted(frame, save, at_once):
    frame = spoiled(frame, 10)
    file = save(frame)
    question = Question(["new_model_prob"], "today", keep_rows=at_once)
    with pytest.raises(UserError, match=r"faults: .*is not a number in 10 rows"):
        estimate_log(file, question, reading=Reading(drop_missing=True))
    answer = estimate_log(file, question, reading=Reading(drop_missing=True, drop_invalid=0.05))
    good_rows = frame.drop(index=[*range(10), 20, 30])
    good = estimate_log(save(good_rows, "good.csv"), question)
    np.testing.assert_allclose([r["value"] for r in answer.records], [r["value"] for r in good.records], rtol=1e-6)
    assert answer.records[0]["n"] == N - 12
    (line,) = [line for line in answer.lines if "cannot be read" in line]
    assert line.startswith("11 rows have values that cannot be read and are left out: ")
    assert "column 'shown_prob' is not a number in 10 rows (1: perhaps, 2: perhaps, 3: perhaps, ...)" in line
    assert "column 'new_model_prob' is outside [0, 1] in row 21: 1.5" in line
    assert "1 row has missing values and is left out (customer 1)" in answer.lines
    assert finding(answer.records[0], "rows_dropped").number == pytest.approx(12 / N)


def test_many_rows_that_cannot_be_read_need_a_number(frame, save, capsys):
    file = save(spoiled(frame, 700))
    asked = ("estimate", file, *TARGET, "--drop-missing", "--drop-invalid")
    error = fails(capsys, *asked)
    assert "699 rows of 12,000 (5.8 %) cannot be read, more than 5 %" in error
    assert "--drop-invalid 0.06" in error
    for share in ("0.06", "6%"):
        done(capsys, *asked, share)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True], ids=["blocks", "at once"])
def test_copies_are_equal_in_columns_that_are_not_read_too(frame, save, tmp_path, at_once):
    """Two slots of one page are two recommendations, though all that is read of them is alike."""
    frame = frame.assign(slot=1)
    slots = frame[:40].assign(slot=2)
    copies = frame[100:130]
    log = pd.concat([frame, slots, copies]).sample(frac=1.0, random_state=0)
    log["row_number"] = np.arange(len(log))
    path = save(log)
    question = Question(["new_model_prob"], keep_rows=at_once)
    kept = estimate_log(path, question)
    in_every_column = "30 rows repeat an earlier row in every column"
    read = "clicked, shown_prob, new_model_prob, customer, item_sku, viewed_at"
    assert any(line.startswith(f"{in_every_column}: kept") for line in kept.lines)
    assert f"40 rows repeat an earlier row in what is read ({read}) and not in the other columns: kept" in kept.lines
    assert finding(kept.records[0], "rows_repeated").number == pytest.approx(30 / len(log))
    dropped = estimate_log(path, question, reading=Reading(deduplicate=True))
    assert dropped.records[0]["n"] == N + 40
    assert f"{in_every_column}: left out" in dropped.lines
    (tmp_path / "parts").mkdir()
    save(log[: N // 2], "parts/a.csv")
    save(log[N // 2 :].drop(columns="slot"), "parts/b.csv")
    in_parts = estimate_log(tmp_path / "parts", question, reading=Reading(deduplicate=True))
    assert any(line.startswith(f"70 rows repeat an earlier row in {read}: left out") for line in in_parts.lines)
    assert finding(examine_file(path), "duplicates").message.startswith("30 rows are equal to an earlier row in every")


# ------------------------------------------------------------------------------------------------- columns of items


@pytest.mark.parametrize("capitals", [False, True])
def test_a_column_of_items_is_a_policy_and_no_segment(frame, save, capsys, capitals):
    """Doctor names it and judges it in the line to type, and not a second name of the item."""
    frame = frame.drop(columns="new_model_prob").rename(columns={"item_sku": "sku"})
    frame["new_sku"] = np.where(frame.device == "Mobile", "SKU-4", "SKU-2")
    frame["tile"] = frame.sku
    option = ""
    if capitals:
        frame["new_sku"] = frame.new_sku.str.lower()
        option = " --fold-case"
    path = save(frame)
    examination = examine_file(path)
    advice = str(finding(examination, "holds_items"))
    assert advice.startswith(f"column new_sku holds items: judge it with --target new_sku{option}, if")
    line = f"recsim-mnar estimate {path} --target new_sku{option} --baseline today"
    assert fitting_lines(examination)["estimate"] == line
    assert "guessed: new_sku is a new policy's\n" in run(capsys, "doctor", path)[1]
    assert "new_sku: the item that the policy shows." in done(capsys, *shlex.split(line)[1:])


def test_without_a_name_for_a_new_policy_all_columns_of_items_are_named(frame, save):
    frame = frame.drop(columns="new_model_prob")
    frame["first"] = np.roll(frame.item_sku, 1)
    frame["second"] = np.roll(frame.item_sku, 2)
    examination = examine_file(save(frame), Asked({"action": "item_sku"}))
    assert "judge them with --target first,second, if" in str(finding(examination, "holds_items"))

"""A file as a stranger brings it: what doctor, estimate and plan say of it in the first minutes."""

from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.datasets import read_interactions
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.doctor import examine_file
from recsim_mnar.own_log.doctor_commands import commands_for
from recsim_mnar.own_log.estimating import Question, estimate_log
from twins.commands import run, status_of
from twins.findings import codes, finding

N, ITEMS = 12_000, 5
ASKED = ("--target", "new_model_prob", "--baseline", "today")


def table(seed: int = 0) -> pd.DataFrame:
    """Two weeks; on desktops the new policy shows what earns less, on mobiles what earns more, on tablets the same."""
    rng = np.random.default_rng(seed)
    base = np.linspace(0.05, 0.6, ITEMS)
    device = rng.choice(3, N, p=[0.5, 0.35, 0.15])
    old = np.full(ITEMS, 0.15)
    old[2] = 0.4
    law = np.stack([old + 0.1 * np.array([-1, 0, 0, 0, 1]), old - 0.1 * np.array([-1, 0, 0, 0, 1]), old])
    item = (rng.random((N, 1)) > old.cumsum()[:-1]).sum(axis=1)
    user = rng.integers(0, 4000, N)
    frame = pd.DataFrame({"customer": [f"C{each:04d}" for each in user]})
    frame["viewed_at"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.sort(rng.integers(0, 14 * 86_400, N)), "s")
    frame["item_sku"] = [f"SKU-{each}" for each in item]
    frame["shown_prob"] = old[item]
    frame["clicked"] = (rng.random(N) < base[item]).astype(int)
    frame["new_model_prob"] = law[device, item]
    frame["device"] = np.array(["Mobile", "Desktop", "Tablet"])[device]
    frame["country"] = np.where(user % 3 == 0, "FR", np.where(rng.random(N) < 0.1, "de", "DE"))
    return frame


def write(frame: pd.DataFrame, path):
    """Semicolons and per cent with a decimal comma."""
    out = frame.copy()
    for name in ("shown_prob", "new_model_prob"):
        words = [f"{100 * each:.4f} %".replace(".", ",") if pd.notna(each) else "NA" for each in out[name]]
        out[name] = words
    out.to_csv(path, index=False, sep=";")
    return path


@pytest.fixture
def file(tmp_path):
    return write(table(), tmp_path / "log.csv")


def fits(found) -> dict[str, str]:
    return {fit.command: fit.line for fit in commands_for(found) if fit.fits}


def test_doctor_says_what_is_spelled_in_two_ways_and_asks_for_the_bound(file, capsys):
    found = examine_file(file)
    taken = found.columns.names
    assert (taken["action"], taken["time"], found.segments) == ("item_sku", "viewed_at", ["device", "country"])
    alike = finding(found, "spelled_alike")
    assert alike.level == "note"
    assert alike.columns == ("country",)
    assert str(alike).startswith("country has DE and de: the rarer spellings are ")
    lines = fits(found)
    assert lines["estimate --by"] == f"{lines['estimate']} --by device"
    assert "--propensity-min" not in lines["estimate"]
    (says,) = [fit.says for fit in commands_for(found) if fit.command == "estimate"]
    assert "What is the smallest probability with which today's system shows any item?" in says
    assert "(the smallest in this log is 0.15: is it?)" in says
    said = run(capsys, "doctor", file)[1]
    for line in lines.values():
        assert line in said


@pytest.mark.parametrize("fold", [False, True])
def test_words_that_differ_in_capitals_are_folded_only_where_asked(file, capsys, fold):
    flag = ("--fold-case",) if fold else ()
    out = run(capsys, "estimate", file, *ASKED, "--by", "country", *flag, "--json", file.with_name("a.json"))
    (line,) = [line for line in "".join(out[1:]).splitlines() if "differ only in capitals" in line]
    assert line.startswith("country has DE and de, which differ only in capitals: taken as ")
    found = json.loads(file.with_name("a.json").read_text())
    names = {each["segment"] for each in found if "by" in each}
    assert names == ({"DE", "FR"} if fold else {"DE", "de", "FR"})


def test_the_first_line_names_the_segments_that_lose(file, capsys):
    folder = file.with_name("page")
    status, out, _ = run(capsys, "estimate", file, *ASKED, "--by", "device", "--propensity-min", "15%", "--out", folder)
    assert status == 0
    assert "By device it is worse than today's policy in Desktop." in out.splitlines()[0]
    assert "By device: new_model_prob earns less than today's policy in Desktop; new_model_prob earns more" in out
    assert "cannot tell: Tablet." in out
    segments = json.loads((folder / "results.json").read_text())["sentence"]["segments"]
    assert segments == {
        "by": "device", "worse": ["Desktop"], "better": ["Mobile"], "cannot_tell": ["Tablet"], "do_not_use": []
    }  # fmt: skip
    share = r"\([\d.]+ % \u2192 [\d.]+ %\)"
    on_page = f"By device: worse on Desktop {share}; better on Mobile {share}; not clear on Tablet\\."
    assert re.fullmatch(on_page, of_segments(folder))


def of_segments(folder) -> str:
    """The line on segments, which stands below the title and above the next step."""
    page = (folder / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    (line,) = re.findall(r'<p class="lift but">(.*?)</p>', page)
    assert page.index("<h1>") < page.index(line) < page.index('<p class="next">')
    return line


def test_the_first_screen_says_where_no_segment_differs(tmp_path):
    path, out = write(table().assign(half=np.arange(N) % 40), tmp_path / "log.csv"), tmp_path / "out"
    assert status_of("estimate", path, *ASKED, "--by", "half", "--propensity-min", "15%", "--out", out) == 0
    assert of_segments(out) == "By half: no segment is shown to differ."


def test_one_column_of_segments_at_a_time(file):
    with pytest.raises(UserError, match=r"--by country,device: one column at a time. Run it once per column"):
        estimate_log(file, Question(["new_model_prob"], by="country,device"))


def test_the_next_step_is_a_line_that_runs(tmp_path, capsys):
    frame = table()
    frame["new_model_prob"] = np.where(
        frame.item_sku == "SKU-4", 0.3, np.where(frame.item_sku == "SKU-0", 0.0, frame.shown_prob)
    )
    file = write(frame.rename(columns={"clicked": "bookings"}), tmp_path / "my log.csv")
    named = ("--reward-column", "bookings", "--propensity-min", ".15", "--deduplicate")
    out = run(capsys, "estimate", file, *ASKED, *named)[1].splitlines()
    assert out[0].count("Next: try it in an A/B test") == 1
    words = shlex.split(out[1])
    assert words[:4] == ["recsim-mnar", "plan", "ab", str(file)]
    assert words[words.index("--baseline") + 1] == "today"
    status, said, _ = run(capsys, *words[1:])
    assert status == 0
    assert said.startswith("lift ")
    assert "in whole weeks: " in said.splitlines()[0]


def test_the_plan_says_once_how_long_users_are_watched(file, capsys):
    """By dates everybody who comes takes part; users who enter anew are watched as long as the log is."""
    by_dates = run(capsys, "plan", "ab", file, "--lift", "10%")[1]
    assert by_dates.startswith("Run ")
    assert "watch" not in by_dates
    entering = run(capsys, "plan", "ab", file, "--lift", "10%", "--users-per-day", "500")[1]
    assert entering.startswith("Let users enter for ")
    assert "and watch each for 14 days" in entering.splitlines()[0]
    alone = run(capsys, "plan", "ab", file, "--lift", "10%", "--time-column", "none")[1]
    assert alone.startswith("Take ")


@pytest.mark.slow
@pytest.mark.parametrize("items", [False, True])
@pytest.mark.parametrize("how", ["top", "shuffled"])
def test_a_column_that_is_not_of_the_item_shown(tmp_path, how, items):
    """Both suspects are named; and doctor offers no line for it."""
    frame = table()
    rng = np.random.default_rng(1)
    law = 0.9 * rng.dirichlet(np.full(ITEMS, 0.3), N) + 0.02
    shown = (rng.random((N, 1)) > law.cumsum(1)[:, :-1]).sum(1)
    frame["shown_prob"] = law[np.arange(N), shown]
    frame["item_sku"] = [f"SKU-{each}" for each in shown]
    frame["new_model_prob"] = law.max(1) if how == "top" else rng.permutation(frame.shown_prob.to_numpy())
    frame = frame if items else frame.drop(columns="item_sku")
    file = write(frame, tmp_path / "log.csv")
    (record,) = estimate_log(file, Question(["new_model_prob"], estimators=["ips"])).records
    wrong = finding(record, "propensities")
    both = "either the logged probabilities or the new policy's column are not of the item shown"
    assert ("look at new_model_prob, whose probabilities are not" if items else both) in wrong.action
    found = examine_file(file)
    assert set(fits(found)) == {"plan ab"}
    (says,) = [fit.says for fit in commands_for(found) if fit.command == "estimate"]
    assert says.startswith("shown_prob and new_model_prob cannot both be right")


@pytest.mark.parametrize(("text", "status"), [("15 %", 0), ("15%%", 2)])
def test_a_probability_may_be_written_in_per_cent(file, capsys, text, status):
    found = file.with_name("a.json")
    assert run(capsys, "estimate", file, *ASKED, "--propensity-min", text, "--json", found)[0] == status
    if status == 0:
        records = json.loads(found.read_text())
        assert not any("bound_denied" in codes(record) for record in records)


def test_interactions_with_empty_items(tmp_path, capsys):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"customer": rng.integers(0, 60, 900), "product": rng.integers(0, 20, 900).astype(object)})
    frame["viewed_at"] = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(900), "h")
    frame.loc[:153, "product"] = None
    file = tmp_path / "met.csv"
    frame.to_csv(file, index=False)
    line = fits(examine_file(file))["compare --interactions"]
    assert line.endswith(" --drop-missing")
    with pytest.raises(UserError, match=r"column 'product' is missing in 154 rows .*--drop-missing leaves out"):
        read_interactions(file)
    read = read_interactions(file, drop_missing=True)
    assert (len(read.log), read.left_out, read.timed) == (746, 154, True)
    assert read.n_users == frame[154:].customer.nunique()
    more = ("--agents", "random,popularity", "--option", "folds=1", "--out", tmp_path / "out")
    status, out, _ = run(capsys, *shlex.split(line)[1:], *more)
    assert status == 0
    assert "154 rows of the file left out: values are missing." in out


def spoiled(path, number: int):
    frame = table()
    for name in ("shown_prob", "clicked", "new_model_prob"):
        frame[name] = frame[name].astype(object)
    frame.loc[: number - 1, "shown_prob"] = "perhaps"
    frame.loc[3, "clicked"] = "inf"
    frame.loc[20, "new_model_prob"] = 1.5
    frame.loc[30, "customer"] = None
    frame.to_csv(path, index=False)
    return frame, path


@pytest.mark.parametrize("at_once", [False, True])
def test_rows_that_cannot_be_read_are_left_out_and_counted(tmp_path, at_once):
    """In blocks and at once: as if they were not there."""
    frame, file = spoiled(tmp_path / "log.csv", 10)
    question = Question(["new_model_prob"], "today", keep_rows=at_once)
    with pytest.raises(UserError, match=r"faults: .*is not a number in 10 rows"):
        estimate_log(file, question, reading=Reading(drop_missing=True))
    answer = estimate_log(file, question, reading=Reading(drop_missing=True, drop_invalid=0.05))
    frame.drop(index=[*range(10), 20, 30]).to_csv(tmp_path / "good.csv", index=False)
    good = estimate_log(tmp_path / "good.csv", question)
    assert [r["value"] for r in answer.records] == pytest.approx([r["value"] for r in good.records])
    assert answer.records[0]["n"] == N - 12
    (line,) = [line for line in answer.lines if "cannot be read" in line]
    assert line.startswith("11 rows have values that cannot be read and are left out: ")
    assert "column 'shown_prob' is not a number in 10 rows (1: perhaps, 2: perhaps, 3: perhaps, ...)" in line
    assert "column 'new_model_prob' is outside [0, 1] in row 21: 1.5" in line
    assert "1 row has missing values and is left out (customer 1)" in answer.lines
    assert finding(answer.records[0], "rows_dropped").number == pytest.approx(12 / N)


def test_many_rows_that_cannot_be_read_need_a_number(tmp_path, capsys):
    _, file = spoiled(tmp_path / "log.csv", 700)
    asked = ("estimate", file, *ASKED, "--drop-missing", "--drop-invalid")
    status, _, error = run(capsys, *asked)
    assert status == 2
    assert "699 rows of 12,000 (5.8 %) cannot be read, more than 5 %" in error
    assert "--drop-invalid 0.06" in error
    assert run(capsys, *asked, "0.06")[0] == 0
    assert run(capsys, *asked, "6%")[0] == 0


@pytest.mark.parametrize("capitals", [False, True])
def test_a_column_of_items_is_a_policy_and_no_segment(tmp_path, capsys, capitals):
    """Doctor names it, judges it in the line to type, and offers neither it nor a second name of the item by --by."""
    frame = table().drop(columns="new_model_prob")
    new = np.where(frame.device == "Mobile", "SKU-4", "SKU-2")
    frame["new_sku"] = np.char.lower(new) if capitals else new
    frame = frame.rename(columns={"item_sku": "sku"})
    frame["tile"], frame["seen_last"] = frame.sku, np.roll(frame.sku, 1)
    path = tmp_path / "log.csv"
    frame.to_csv(path, index=False)
    flags = " --fold-case" if capitals else ""
    found = examine_file(path)
    items = finding(found, "holds_items")
    assert str(items).startswith(f"column new_sku holds items: judge it with --target new_sku{flags}, if")
    assert found.segments == ["device", "country"]
    line = f"recsim-mnar estimate {path} --target new_sku{flags} --baseline today"
    assert fits(found)["estimate"] == line
    assert fits(found)["estimate --by"] == f"{line} --by device"
    assert "guessed: new_sku is the item that a new policy would show\n" in run(capsys, "doctor", path)[1]
    status, out, _ = run(capsys, *shlex.split(line)[1:])
    assert status == 0
    assert "new_sku: the item that the policy shows." in out
    named = run(capsys, "doctor", path, "--target", "new_sku")[1]
    assert "mean          of new_sku / logged probability: " in named


def test_without_a_name_for_a_new_policy_all_columns_of_items_are_named(tmp_path):
    frame = table().drop(columns="new_model_prob")
    frame["first"], frame["second"] = np.roll(frame.item_sku, 1), np.roll(frame.item_sku, 2)
    frame.to_csv(tmp_path / "log.csv", index=False)
    items = finding(examine_file(tmp_path / "log.csv"), "holds_items")
    assert str(items).startswith("columns first, second hold items: judge them with --target first,second, if")


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [False, True])
def test_copies_are_equal_in_columns_that_are_not_read_too(tmp_path, at_once):
    """Two slots of one page are two recommendations, though all that is read of them is alike."""
    frame = table().assign(slot=1, row_number=0)
    slots, copies = frame[:40].assign(slot=2), frame[100:130]
    more = pd.concat([frame, slots, copies]).sample(frac=1.0, random_state=0)
    more["row_number"] = np.arange(len(more))
    path = tmp_path / "log.csv"
    more.to_csv(path, index=False)
    question = Question(["new_model_prob"], keep_rows=at_once)
    found = estimate_log(path, question)
    kept = "30 rows repeat an earlier row in every column: kept; --deduplicate leaves them out"
    assert any(line.startswith(kept) for line in found.lines)
    read = "clicked, shown_prob, new_model_prob, customer, item_sku, viewed_at"
    alike = f"40 rows repeat an earlier row in what is read ({read}) and not in the other columns: kept"
    assert alike in found.lines
    assert finding(found.records[0], "rows_repeated").number == pytest.approx(30 / len(more))
    left = estimate_log(path, question, reading=Reading(deduplicate=True))
    assert left.records[0]["n"] == N + 40
    assert "30 rows repeat an earlier row in every column: left out" in left.lines
    parts = tmp_path / "parts"
    parts.mkdir()
    more[: N // 2].to_csv(parts / "a.csv", index=False)
    more[N // 2 :].drop(columns="slot").to_csv(parts / "b.csv", index=False)
    left = estimate_log(parts, question, reading=Reading(deduplicate=True))
    assert any(line.startswith(f"70 rows repeat an earlier row in {read}: left out") for line in left.lines)
    assert finding(examine_file(path), "duplicates").message.startswith(
        "30 rows are equal to an earlier row in every column"
    )

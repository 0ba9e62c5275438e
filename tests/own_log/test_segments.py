"""Segments: their estimates by hand, which columns are refused, and what is said of them."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.answers.records import segment_lines
from recsim_mnar.answers.weights import NOT_FIXED, TOO_MANY, Segments, SegmentTest
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Facts
from recsim_mnar.log.columns import Clusters
from recsim_mnar.own_log.estimating import Question, estimate_log
from twins.commands import run
from twins.facts import difference, estimate_value
from twins.findings import codes
from twins.own_schema import estimate_file

N, ITEMS, FLOOR = 8000, 6, 0.05


def table(seed: int = 0) -> pd.DataFrame:
    """Uneven users in no order; a country per user, a device per visit; categories of the item shown; clicks."""
    rng = np.random.default_rng(seed)
    user = rng.choice(2500, N, p=rng.dirichlet(np.full(2500, 0.5)))
    law, new = (FLOOR + (1 - ITEMS * FLOOR) * rng.dirichlet(np.full(ITEMS, alpha), 4) for alpha in (2.0, 1.0))
    state = rng.integers(0, 4, N)
    item = (rng.random((N, 1)) > law[state].cumsum(axis=1)[:, :-1]).sum(axis=1)
    country = np.array(["DE", "FR", "IT", "AT", None], object)[np.minimum(user % 17 // 2, 4)]
    frame = pd.DataFrame({"user": user, "item": item, "propensity": law[state, item], "new": new[state, item]})
    frame["clicks"] = (rng.random(N) < np.linspace(0.05, 0.4, ITEMS)[item]).astype(int)
    frame["country"], frame["device"] = country, rng.choice(["phone", "desk"], N, p=[0.9, 0.1])
    frame["category"] = np.where(item < 3, "shoes", "hats")
    frame["opened"] = np.where(frame.clicks == 1, "page", "nothing")
    frame["tag"] = frame.clicks * (rng.random(N) < 0.3)
    frame["mark"] = np.where(rng.random(N) < 0.9, frame.opened, "page")
    frame["leak"] = np.where(rng.random(N) < 0.3, frame.category, frame.device)
    frame["first_four"] = law[state, :4].sum(axis=1)
    frame["hour"] = rng.integers(0, 200, N)
    return frame


def records_of(frame: pd.DataFrame, path, by: str | None = "country", **question):
    frame.to_csv(path, index=False)
    return estimate_log(path, Question(["new"], "today", by=by, **question))


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_segments_are_what_a_groupby_gives(tmp_path, estimator):
    """Values and differences of each segment, rows without a value being one, the largest first."""
    frame = table()
    answer = records_of(frame, tmp_path / "log.csv", estimators=[estimator])
    w = frame.new / frame.propensity
    by_hand = frame.assign(w=w, x=w * frame.clicks).groupby(frame.country.fillna("-"))
    sums = by_hand[["w", "x", "clicks"]].sum().assign(n=by_hand.size())
    sums["new"] = sums.x / (sums.n if estimator == "ips" else sums.w)
    sums["propensity"] = sums.clicks / sums.n
    sums["new - propensity"] = sums.new - sums.propensity
    for record in answer.segments:
        expected = sums.loc[record["segment"] or "-"]
        assert record["value"] == pytest.approx(expected[record["policy"]], abs=1e-12)
        assert record["n"] == expected.n
    order = [record["segment"] for record in answer.segments[::3]]
    assert order == [*sums.drop("-").sort_values("n", ascending=False).index, None]
    assert len(answer.segments) == 3 * len(sums)
    alone = records_of(frame, tmp_path / "log.csv", by=None, estimators=[estimator], refute=False).records
    assert [{key: each[key] for key in each if key != "segments"} for each in answer.records] == alone


@pytest.mark.parametrize("known", [{"full_support": True, "propensity_min": FLOOR}, {}], ids=["stated", "a column"])
def test_intervals_of_segments_hold_all_at_once(tmp_path, known):
    """Each is that of the segment's rows by user, at a level that all of them share."""
    frame = table(1)
    if not known:
        frame["new_unsupported"] = np.random.default_rng(0).uniform(0, 0.02, N)
    answer = records_of(frame, tmp_path / "log.csv", level=0.9, stated=known)
    level = 1 - 0.1 / 15
    wide = [record for record in answer.segments if record["method"] != "no interval: few users"]
    assert len(wide) >= 12
    for record in wide:
        own = frame[frame.country == record["segment"] if record["segment"] else frame.country.isna()]
        columns = {"cluster": own.user, "level": level, "reward_min": 0.0, "reward_max": 1.0, **known}
        columns["estimator"] = record["estimator"]
        none, lost, logged = np.zeros(len(own)), own.get("new_unsupported"), (own.clicks, own.propensity)
        if "baseline" in record:
            columns |= {"unsupported": lost, "baseline_unsupported": none}
            found = difference(*logged, own.new, own.propensity, **columns)
        else:
            lost = lost if record["policy"] == "new" else none
            found = estimate_value(*logged, own[record["policy"]], unsupported=lost, **columns)
        assert (record["low"], record["high"]) == pytest.approx((found.low, found.high), abs=1e-12)
        assert record["verdict_level"] == found.verdict.level
        assert (record["intervals"], record["level_of_all"], record["level"]) == (15, 0.9, pytest.approx(level))


@pytest.mark.parametrize("by", ["country", "device"])
@pytest.mark.parametrize("seed", range(3))
def test_columns_that_were_fixed_before_are_taken(tmp_path, by, seed):
    """A country for good, and a device that a user changes."""
    assert records_of(table(seed), tmp_path / "log.csv", by, stated={"propensity_min": FLOOR}).segments


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("category", "where category is .* have a mean weight of .* depends on what was recommended"),
        ("leak", "where leak is (shoes|hats) .* depends on what was recommended"),
        ("opened", "where opened is page all .* rows are rewarded, so the column depends on what came of the"),
        ("tag", "where tag is 1 all .* rows are rewarded, so"),
        ("flag", "where flag is 1 none of the .* rows is rewarded, so"),
        ("mark", "where mark is (page|nothing) .* depends on what was recommended"),
        ("item", "--by item: it depends on what was recommended"),
        ("clicks", "--by clicks: it depends on what was recommended"),
        ("new", "--by new: it depends on what was recommended"),
        ("user", "it has [0-9,]* values, and at most 100 segments .* ids of users are no segments"),
        ("hour", "it has 200 values"),
    ],
)
def test_columns_that_are_no_segments_are_refused_in_a_line(tmp_path, by, why):
    """What depends on the item shown, on the click, or has too many values; the estimates are those without it."""
    frame = table()
    if by == "flag":  # most rows are rewarded
        frame["clicks"] = 1 - frame.clicks
        frame["flag"] = 1 - frame.clicks
    answer = records_of(frame, tmp_path / "log.csv", by)
    (refused,) = answer.refused
    assert re.search(why, str(refused))
    assert "\n" not in str(refused)
    assert (refused.column, refused.code) == (by, TOO_MANY if by in ("user", "hour") else NOT_FIXED)
    assert answer.segments == []
    assert answer.records == records_of(frame, tmp_path / "log.csv", None).records


def test_a_column_that_is_not_there_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match=r"no column 'contry'; did you mean 'country'\? \(--by\)"):
        records_of(table(), tmp_path / "log.csv", "contry")


@pytest.mark.parametrize("by", ["category", "item", "user"])
def test_a_refused_column_costs_the_segments_and_nothing_else(tmp_path, capsys, by):
    """Status 0 with a line, a code in the JSON; with --require it is not met."""
    path, found = tmp_path / "log.csv", tmp_path / "a.json"
    table().to_csv(path, index=False)
    asked = ("estimate", path, "--target", "new", "--propensity-min", FLOOR, "--by", by, "--quiet", "--json", found)
    status, out, _ = run(capsys, *asked, "--out", tmp_path / "out")
    assert status == 0
    (line,) = [line for line in out.splitlines() if line.startswith("No segments. ")]
    first, *others = json.loads(found.read_text())
    (refused,) = first["refused"]
    assert line == f"No segments. {refused['message']}."
    assert (refused["by"], refused["code"]) == (by, TOO_MANY if by == "user" else NOT_FIXED)
    assert not any("refused" in record or "by" in record for record in others)
    assert json.loads((tmp_path / "out" / "results.json").read_text())["refused"] == first["refused"]
    assert refused["message"].partition(":")[0] in (tmp_path / "out" / "report.html").read_text()
    status, _, error = run(capsys, *asked, "--require", "caution")
    assert status == 3
    assert f"--require caution: {refused['message']}\n" in error
    (record, *_) = json.loads(found.read_text())
    assert record["met"] is False
    assert record["reasons"] == [refused | {"contradicted": False}]


def test_without_items_the_targets_weights_refuse(tmp_path):
    """And a line says that they alone could."""
    frame = table().drop(columns="item")
    (refused,) = records_of(frame, tmp_path / "log.csv", "category").refused
    assert re.search(r"where category is .* the mean weight of new is", str(refused))
    assert any("only the targets' weights" in line for line in records_of(frame, tmp_path / "log.csv").lines)


def test_a_mean_weight_below_1_refuses_where_weights_are_bounded(tmp_path):
    """Here one large segment has the light rows."""
    frame = table().drop(columns="item")
    frame["group"] = np.where(frame.new > 1.2 * frame.propensity, np.arange(N) % 90, -1)
    (refused,) = records_of(frame, tmp_path / "log.csv", "group", stated={"propensity_min": FLOOR}).refused
    assert "where group is -1 the mean weight of new is 0" in str(refused)


def test_a_segment_may_lack_support(tmp_path):
    """Then its mean weight is below 1, which is said of it, and the column was fixed before all the same."""
    frame = table()
    few = frame.country == "AT"  # the log shows four items there
    frame.loc[few, "propensity"] /= frame.first_four
    frame = frame[~few | (frame.item < 4)]
    for record in records_of(frame, tmp_path / "log.csv").segments:
        assert ("support_missing" in codes(record)) == (record["segment"] == "AT" and "new" in record["policy"])


def test_a_few_users_who_always_click_are_a_segment(tmp_path):
    """That all their rows are rewarded may be chance."""
    frame = table()
    robot = frame.user.value_counts().index[0]
    frame.loc[frame.user == robot, ["clicks", "country"]] = [1, "robot"]
    assert (frame.country == "robot").sum() > 20
    assert "robot" in {record["segment"] for record in records_of(frame, tmp_path / "log.csv").segments}


def test_wrong_propensities_are_not_the_columns_fault(tmp_path):
    """Where the whole log is off, each segment is said to be off, and the column is not refused."""
    frame = table()
    frame["propensity"] *= np.where(frame.item == 0, 0.4, 0.9)
    answer = records_of(frame, tmp_path / "log.csv")
    assert {record["verdict_level"] for record in answer.segments if record["policy"] == "new"} == {"do_not_use"}


@pytest.mark.parametrize(
    ("rows", "unit", "question", "ends"),
    [
        (1, 1, {}, [(0, 1), (0, 1), (-1, 1)]),
        (29, 1, {}, [(0, 1), (0, 1), (-1, 1)]),
        (5, 7, {"stated": {"reward_max": 10.0}}, [(0, 10), (0, 10), (-10, 10)]),
        (5, 7, {}, [(0, np.inf), (0, np.inf), (-np.inf, np.inf)]),
    ],
    ids=["one row", "29 rows", "a stated range", "no range"],
)
def test_thin_segments_have_a_verdict_and_no_interval(tmp_path, rows, unit, question, ends):
    """Of few users: do not use, and of the interval only what rewards allow."""
    frame = table()
    frame["clicks"] *= unit
    frame.loc[frame.index[:rows], "country"] = "LI"
    thin = [r for r in records_of(frame, tmp_path / "log.csv", **question).segments if r["segment"] == "LI"]
    assert [r["n"] for r in thin] == [rows] * 3
    assert {r["verdict_level"] for r in thin} == {"do_not_use"}
    assert "few_users" in codes(thin[0])
    assert [(r["low"], r["high"]) for r in thin] == ends


def test_propensities_are_needed(tmp_path):
    """Estimated ones say nothing of whether a column was fixed."""
    frame = table().drop(columns="propensity")
    frame.to_csv(tmp_path / "log.csv", index=False)
    with pytest.raises(UserError, match="--by: segments need propensities"):
        estimate_log(tmp_path / "log.csv", Question(["new"], by="country"))


def test_the_door_of_a_programs_own_names(tmp_path):
    """Records of segments follow the others; a log of ours knows its items too."""
    frame = table().rename(columns={"clicks": "reward", "item": "action"})
    frame.to_csv(tmp_path / "log.csv", index=False)
    records = estimate_file(tmp_path / "log.csv", ["new"], by="country", estimators=["ips"])
    assert ["by" in record for record in records] == [False] + 5 * [True]
    assert not any("by" in record for record in estimate_file(tmp_path / "log.csv", ["new"], by="category"))


@pytest.mark.parametrize(
    ("ends", "verdicts", "line"),
    [
        ([(0.1, 0.2), (-0.1, 0.1)], ["trust"] * 2,
         "new earns more than today's policy in a; cannot tell: b"),
        ([(0.1, 0.2), (-0.2, -0.1)], ["caution", "trust"],
         "new earns less than today's policy in b; new looks better than today's policy in a"),
        ([(-0.1, 0.2), (0.1, 0.3)], ["trust", "do_not_use"], "cannot tell: all 2 segments"),
        ([(0.1, 0.2), (0.1, 0.3)], ["trust", "do_not_use"],
         "new earns more than today's policy in a; cannot tell: b"),
    ],
)  # fmt: skip
def test_no_segment_is_picked_silently(ends, verdicts, line):
    """Every segment is named in the line, those that lose first."""
    records = [
        {"policy": "new - p", "target": "new", "baseline": "p", "today": True, "by": "country", "segment": name,
         "low": low, "high": high, "verdict_level": verdict}
        for name, (low, high), verdict in zip("ab", ends, verdicts, strict=True)
    ]  # fmt: skip
    assert segment_lines(records) == [f"By country: {line}."]


def test_the_command_says_and_requires_segments(tmp_path, capsys):
    """Table, JSON, page; with --require the verdicts of segments count too."""
    frame = table(2)
    frame["place"] = np.where(frame.user == frame.user[0], "LI", "CH")
    frame.to_csv(tmp_path / "log.csv", index=False)
    asked = ["estimate", tmp_path / "log.csv", "--target", "new", "--propensity-min", FLOOR, "--require", "caution"]
    assert run(capsys, *asked)[0] == 0
    status, said, wrong = run(capsys, *asked, "--by", "place", "--out", tmp_path / "out", "--json", tmp_path / "a.json")
    assert status == 3
    assert wrong.startswith("--require caution: place LI, new, ")
    assert "By place: 2 segments; all 2 intervals hold at once with 95 %" in said
    records = json.loads((tmp_path / "a.json").read_text())
    assert [record.get("segment") for record in records if "by" in record] == ["CH", "LI"]
    assert "By place: 2 segments" in (tmp_path / "out" / "report.html").read_text()
    compared = run(capsys, *asked, "--by", "place", "--baseline", "today")[1]
    assert sum(line.startswith("│ CH") for line in compared.splitlines()) == 3  # both values, and the difference


def test_segments_of_few_users_are_not_refused_by_chance():
    """With a handful of users per segment a mean weight needs Student's quantile, and a heavy weight may be missing."""
    refused = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n, n_users, n_items, n_segments = 4_000, 1_000, 20, 20
        user = np.sort(rng.integers(0, n_users, n))
        shares = 1.0 / np.arange(1, n_segments + 1) ** 1.5  # the smallest segments have a few users
        segment_of_user = rng.choice(n_segments, n_users, p=shares / shares.sum())
        logging = rng.dirichlet(np.full(n_items, 0.5)) * 0.8 + 0.2 / n_items
        target = rng.dirichlet(np.full(n_items, 0.5))
        item = rng.choice(n_items, n, p=logging)
        test = SegmentTest(
            reward=(rng.random(n) < 0.1).astype(float),
            propensity=logging[item],
            users=Clusters.of(user, n),
            targets={"new": target[item]},
            missing={},
            action=item,
            facts=Facts(full_support=True),
        )
        segments = Segments.of("country", segment_of_user[user], np.arange(n_segments))
        try:
            test.refuse(segments)
        except UserError:
            refused += 1
    assert refused <= 2

"""Segments: their estimates by hand, which columns are refused, and what is said of them."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.answers.weights import NOT_FIXED, TOO_MANY, Segments, SegmentTest
from recsim_mnar.answers.words import segment_lines
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Facts
from recsim_mnar.log.columns import Clusters
from recsim_mnar.own_log.estimating import Question, estimate_log
from toys import read_json
from twins.commands import done, run
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
    countries = np.array(["DE", "FR", "IT", "AT", None], object)
    frame = pd.DataFrame({"user": user, "item": item, "propensity": law[state, item], "new": new[state, item]})
    frame["clicks"] = (rng.random(N) < np.linspace(0.05, 0.4, ITEMS)[item]).astype(int)
    frame["country"] = countries[np.minimum(user % 17 // 2, 4)]
    frame["device"] = rng.choice(["phone", "desk"], N, p=[0.9, 0.1])
    frame["category"] = np.where(item < 3, "shoes", "hats")
    frame["opened"] = np.where(frame.clicks == 1, "page", "nothing")
    frame["tag"] = frame.clicks * (rng.random(N) < 0.3)
    frame["mark"] = np.where(rng.random(N) < 0.9, frame.opened, "page")
    frame["leak"] = np.where(rng.random(N) < 0.3, frame.category, frame.device)
    frame["first_four"] = law[state, :4].sum(axis=1)
    frame["hour"] = rng.integers(0, 200, N)
    return frame


@pytest.fixture
def frame():
    return table()


@pytest.fixture
def estimate(tmp_path):
    """Estimates of a table that is written into a file, with today's policy as baseline."""

    def estimate_table(frame, by="country", **question):
        frame.to_csv(tmp_path / "log.csv", index=False)
        return estimate_log(tmp_path / "log.csv", Question(["new"], "today", by=by, **question))

    return estimate_table


@pytest.mark.parametrize("estimator", ["ips", "snips"])
def test_segments_are_what_a_groupby_gives(frame, estimate, estimator):
    """Values and differences of each segment, rows without a value being one, the largest first."""
    answer = estimate(frame, estimators=[estimator])
    weight = frame.new / frame.propensity
    rows = frame.assign(weight=weight, weighted=weight * frame.clicks, n=1)
    sums = rows.groupby(frame.country.fillna("-"))[["weight", "weighted", "clicks", "n"]].sum()
    sums["new"] = sums.weighted / sums[{"ips": "n", "snips": "weight"}[estimator]]
    sums["propensity"] = sums.clicks / sums.n
    sums["new - propensity"] = sums.new - sums.propensity
    for record in answer.segments:
        expected = sums.loc[record["segment"] or "-"]
        assert record["value"] == pytest.approx(expected[record["policy"]], abs=1e-12)
        assert record["n"] == expected.n
    order = [record["segment"] for record in answer.segments[::3]]
    assert order == [*sums.drop("-").sort_values("n", ascending=False).index, None]
    assert len(answer.segments) == 3 * len(sums)
    alone = estimate(frame, by=None, estimators=[estimator], refute=False).records
    assert [{key: record[key] for key in record if key != "segments"} for record in answer.records] == alone


@pytest.mark.parametrize("stated", [{"full_support": True, "propensity_min": FLOOR}, {}], ids=["stated", "a column"])
def test_intervals_of_segments_hold_all_at_once(estimate, stated):
    """Each is that of the segment's rows by user, at a level that all of them share."""
    frame = table(1)
    if not stated:
        frame["new_unsupported"] = np.random.default_rng(0).uniform(0, 0.02, N)
    answer = estimate(frame, level=0.9, stated=stated)
    level = 1 - 0.1 / 15
    wide = [record for record in answer.segments if record["method"] != "no interval: few users"]
    assert len(wide) >= 12
    for record in wide:
        name = record["segment"]
        rows = frame[frame.country == name if name else frame.country.isna()]
        options = {"cluster": rows.user, "level": level, "reward_min": 0.0, "reward_max": 1.0, **stated}
        options["estimator"] = record["estimator"]
        logged = (rows.clicks, rows.propensity)
        nothing = np.zeros(len(rows))
        unsupported = rows.get("new_unsupported")
        if "baseline" in record:
            support = {"unsupported": unsupported, "baseline_unsupported": nothing}
            expected = difference(*logged, rows.new, rows.propensity, **options, **support)
        elif record["policy"] == "new":
            expected = estimate_value(*logged, rows.new, unsupported=unsupported, **options)
        else:
            expected = estimate_value(*logged, rows.propensity, unsupported=nothing, **options)
        assert (record["low"], record["high"]) == pytest.approx((expected.low, expected.high), abs=1e-12)
        assert record["verdict_level"] == expected.verdict.level
        assert (record["intervals"], record["level_of_all"], record["level"]) == (15, 0.9, pytest.approx(level))


@pytest.mark.parametrize("by", ["country", "device"])
@pytest.mark.parametrize("seed", range(3))
def test_columns_that_were_fixed_before_are_taken(estimate, by, seed):
    """A country for good, and a device that a user changes."""
    assert estimate(table(seed), by, stated={"propensity_min": FLOOR}).segments


@pytest.mark.parametrize(
    ("by", "code"),
    [
        *((by, NOT_FIXED) for by in ("category", "leak", "opened", "tag", "flag", "mark", "item", "clicks", "new")),
        ("user", TOO_MANY),
        ("hour", TOO_MANY),
    ],
)
def test_columns_that_are_no_segments_are_refused_in_a_line(frame, estimate, by, code):
    """Columns that depend on the item shown or on the click, or have too many values, cost no estimates."""
    if by == "flag":  # most rows are rewarded
        frame["flag"] = frame.clicks
        frame["clicks"] = 1 - frame.clicks
    answer = estimate(frame, by)
    (refused,) = answer.refused
    assert (refused.column, refused.code) == (by, code)
    assert "\n" not in str(refused)
    assert answer.segments == []
    assert answer.records == estimate(frame, by=None).records


@pytest.mark.parametrize(("by", "code"), [("category", NOT_FIXED), ("item", NOT_FIXED), ("user", TOO_MANY)])
def test_a_refused_column_costs_the_segments_and_nothing_else(frame, save, tmp_path, capsys, by, code):
    """Status 0 with a line, a code in the JSON; with --require it is not met."""
    path = save(frame)
    asked = ("estimate", path, "--target", "new", "--propensity-min", FLOOR, "--by", by, "--quiet")
    asked += ("--json", tmp_path / "a.json")
    out = done(capsys, *asked, "--out", tmp_path / "out")
    first, *others = read_json(tmp_path / "a.json")
    (refused,) = first["refused"]
    assert (refused["by"], refused["code"]) == (by, code)
    assert f"No segments. {refused['message']}." in out.splitlines()
    assert not any("refused" in record or "by" in record for record in others)
    assert read_json(tmp_path / "out" / "results.json")["refused"] == first["refused"]
    assert refused["message"].partition(":")[0] in (tmp_path / "out" / "report.html").read_text()
    status, _, error = run(capsys, *asked, "--require", "caution")
    assert status == 3
    assert f"--require caution: {refused['message']}\n" in error
    (record, *_) = read_json(tmp_path / "a.json")
    assert record["met"] is False
    assert record["reasons"] == [refused | {"contradicted": False}]


def test_without_items_the_targets_weights_refuse(frame, estimate):
    """And a line says that they alone could."""
    frame = frame.drop(columns="item")
    (refused,) = estimate(frame, "category").refused
    assert re.search(r"where category is .* the mean weight of new is", str(refused))
    assert any("only the targets' weights" in line for line in estimate(frame).lines)


def test_a_mean_weight_below_1_refuses_where_weights_are_bounded(frame, estimate):
    """Here one large segment has the light rows."""
    frame = frame.drop(columns="item")
    frame["group"] = np.where(frame.new > 1.2 * frame.propensity, np.arange(N) % 90, -1)
    (refused,) = estimate(frame, "group", stated={"propensity_min": FLOOR}).refused
    assert "where group is -1 the mean weight of new is 0" in str(refused)


def test_a_segment_may_lack_support(frame, estimate):
    """Its mean weight is below 1 then, which a finding says; the column was fixed before all the same."""
    in_austria = frame.country == "AT"  # the log shows four items there
    frame.loc[in_austria, "propensity"] /= frame.first_four
    answer = estimate(frame[~in_austria | (frame.item < 4)])
    for record in answer.segments:
        lacks = record["segment"] == "AT" and "new" in record["policy"]
        assert ("support_missing" in codes(record)) == lacks


def test_a_few_users_who_always_click_are_a_segment(frame, estimate):
    """It may be chance that all their rows are rewarded."""
    robot = frame.user == frame.user.value_counts().index[0]
    assert robot.sum() > 20
    frame.loc[robot, ["clicks", "country"]] = [1, "robot"]
    assert "robot" in {record["segment"] for record in estimate(frame).segments}


def test_wrong_propensities_are_not_the_columns_fault(frame, estimate):
    """Each segment is said to be off where the log is, and the column is not refused."""
    frame["propensity"] *= np.where(frame.item == 0, 0.4, 0.9)
    segments = estimate(frame).segments
    assert {record["verdict_level"] for record in segments if record["policy"] == "new"} == {"do_not_use"}


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
def test_thin_segments_have_a_verdict_and_no_interval(frame, estimate, rows, unit, question, ends):
    """Segments of few users are not to be used; their limits are those of the rewards."""
    frame["clicks"] *= unit
    frame.loc[frame.index[:rows], "country"] = "LI"
    thin = [record for record in estimate(frame, **question).segments if record["segment"] == "LI"]
    assert [record["n"] for record in thin] == [rows] * 3
    assert {record["verdict_level"] for record in thin} == {"do_not_use"}
    assert "few_users" in codes(thin[0])
    assert [(record["low"], record["high"]) for record in thin] == ends


def test_segments_need_propensities(frame, save):
    """Estimated ones say nothing of whether a column was fixed."""
    path = save(frame.drop(columns="propensity"))
    with pytest.raises(UserError, match="--by: segments need propensities"):
        estimate_log(path, Question(["new"], by="country"))


def test_segments_of_a_log_with_our_names(frame, save):
    """Records of segments follow the others; the items are known, too."""
    path = save(frame.rename(columns={"clicks": "reward", "item": "action"}))
    records = estimate_file(path, ["new"], by="country", estimators=["ips"])
    assert ["by" in record for record in records] == [False] + 5 * [True]
    assert not any("by" in record for record in estimate_file(path, ["new"], by="category"))


EARNS, LOSES, OPEN = (0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1)


@pytest.mark.parametrize(
    ("ends", "verdicts", "line"),
    [
        ([EARNS, OPEN], ["trust", "trust"], "new earns more than today's policy in a; cannot tell: b"),
        (
            [EARNS, LOSES],
            ["caution", "trust"],
            "new earns less than today's policy in b; new looks better than today's policy in a",
        ),
        ([OPEN, EARNS], ["trust", "do_not_use"], "cannot tell: all 2 segments"),
        ([EARNS, EARNS], ["trust", "do_not_use"], "new earns more than today's policy in a; cannot tell: b"),
    ],
)
def test_no_segment_is_picked_silently(ends, verdicts, line):
    """Every segment is named in the line, those that lose first."""
    shared = {"policy": "new - p", "target": "new", "baseline": "p", "today": True, "by": "country"}
    records = [
        shared | {"segment": name, "low": low, "high": high, "verdict_level": verdict}
        for name, (low, high), verdict in zip("ab", ends, verdicts, strict=True)
    ]
    assert segment_lines(records) == [f"By country: {line}."]


def test_the_command_prints_and_requires_segments(save, tmp_path, capsys):
    """Table, JSON, page; with --require the verdicts of segments count, too."""
    frame = table(2)
    frame["place"] = np.where(frame.user == frame.user[0], "LI", "CH")
    path = save(frame)
    asked = ("estimate", path, "--target", "new", "--propensity-min", FLOOR, "--require", "caution")
    done(capsys, *asked)
    written = ("--by", "place", "--out", tmp_path / "out", "--json", tmp_path / "a.json")
    status, out, error = run(capsys, *asked, *written)
    assert status == 3
    assert error.startswith("--require caution: place LI, new, ")
    assert "By place: 2 segments; all 2 intervals hold at once with 95 %" in out
    records = read_json(tmp_path / "a.json")
    assert [record["segment"] for record in records if "by" in record] == ["CH", "LI"]
    assert "By place: 2 segments" in (tmp_path / "out" / "report.html").read_text()
    _, out, _ = run(capsys, *asked, "--by", "place", "--baseline", "today")
    assert sum(line.startswith("CH ") for line in out.splitlines()) == 3  # both values, and the difference


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

"""A study as an experiment table: factors on common catalogues, abstention, pairs of protocols, raw results."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose
from scipy import stats

import toys
from recsim_mnar.errors import UserError
from recsim_mnar.protocols.base import Protocol, RawResults, Trial
from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.protocols.records import Ranking, Target, judge
from recsim_mnar.studies import Design, Study, run_study
from recsim_mnar.studies.design import at_levels, design_of
from recsim_mnar.studies.paired import bounded_interval, holm, paired_difference, paired_table
from toys import refused
from twins.commands import fails, run

SIZES = {"train_users": 60, "test_users": 80, "arm_users": 60, "truth_users": 100, "folds": 2}
WORLD = {"world": "sessions", "preset": "quick", "params": {"n_items": 20, "n_flips": 5}, "options": SIZES}
AGENTS = ["random", "popularity", "user-popularity"]
FACTORS = {"logging": ["user-popularity", "random"], "clip": [2.0, 15.0]}
DESIGN = Design([WORLD], AGENTS, factors=FACTORS, catalogues=2, seed=3)


@pytest.fixture(scope="module")
def study():
    return run_study(DESIGN)


def unchanged_by(factor, study, protocols):
    """Return True if no number of these protocols differs between the factor's levels, in any catalogue."""
    frame = study.frame()
    rows = frame[frame["protocol"].isin(protocols)]
    other_factors = [name for name in study.factors if name != factor]
    values = rows.groupby([*other_factors, "catalogue", "protocol", "metric", "agent"])["value"]
    return bool(values.nunique().eq(1).all())


CELL = ["logging", "clip", "catalogue"]


def test_factors_are_crossed_and_are_columns_of_one_table(study):
    frame = study.frame()
    assert list(frame.columns[:2]) == ["logging", "clip"]
    assert len(study.results) == 2 * 2 * 2
    assert frame.groupby([*CELL, "protocol", "metric", "agent"]).size().eq(1).all()
    judged = frame[frame["picked"].notna()]
    assert judged.groupby([*CELL, "protocol", "metric"])["picked"].any().all()
    truth = frame[(frame["protocol"] == "truth") & (frame["metric"] == "ctr")].set_index([*CELL, "agent"])["value"]
    cost = 1.0 - truth / truth.groupby(CELL).transform("max")
    expected = cost.reindex(pd.MultiIndex.from_frame(judged[[*CELL, "agent"]]))
    assert_allclose(judged["cost"].astype(float), expected, atol=1e-12)


def test_a_factor_changes_nothing_that_it_cannot_touch(study):
    """Truth and A/B test do not depend on the logging policy, nor leave-one-out on the clip."""
    assert unchanged_by("logging", study, ["truth", "ab_test"])
    assert unchanged_by("clip", study, ["truth", "ab_test", "loocv"])
    assert not unchanged_by("clip", study, ["off_policy"])


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        ({"clip": 5.0}, {"options": {"clip": 5.0}}),
        ({"n_items": 30}, {"params": {"n_items": 30}}),
        ({"flips": 3}, {"params": {"n_flips": 3}}),
        ({"preset": "quick"}, {"preset": "quick"}),
        ({"svd.rank": 4}, {"specs": {"svd": "svd+rank=4"}}),
        ({"epsilon": 0.2}, {"options": {"logging": "user-popularity+epsilon=0.2"}}),
        ({"epsilon": 0.0, "logging": "svd"}, {"options": {"logging": "svd"}}),
        ({"epsilon": 0.1, "logging": "svd"}, {"options": {"logging": "svd+epsilon=0.1"}}),
    ],
)
def test_a_factor_is_a_parameter_an_option_or_an_agents_option(levels, expected):
    made = at_levels(Setup(), levels)
    assert {name: getattr(made, name) for name in expected} == expected


def test_an_agents_option_keeps_its_name():
    resolved = at_levels(Setup(preset="quick", agents=("svd", "random")), {"svd.rank": 4}).resolved()
    assert resolved.specs == {"svd": "svd+rank=4", "random": "random"}


def test_levels_and_catalogues_are_added_and_nothing_else_is_run_again(tmp_path):
    small = Design([WORLD], AGENTS, ["off_policy"], factors={"clip": [2.0]}, catalogues=2)
    wider = replace(small, factors={"clip": [2.0, 5.0]})
    out = tmp_path / "study"
    run_study(small, folder=out, save_raw=True)
    with refused("no finished study"):
        Study.read(tmp_path)
    before = toys.bytes_of(out)
    more_levels = run_study(wider, folder=out, resume=True, save_raw=True)
    assert sorted(more_levels.seconds) == ["sessions-quick,clip=5.0-000", "sessions-quick,clip=5.0-001"]
    longer = run_study(replace(wider, catalogues=3), folder=out, resume=True)
    assert sorted(longer.seconds) == ["sessions-quick,clip=2.0-002", "sessions-quick,clip=5.0-002"]
    assert Study.read(out).results == longer.results
    after = toys.bytes_of(out)
    assert [name for name in before if "/" in name and after[name] != before[name]] == []
    with refused("holds a study with the cell"):
        run_study(replace(small, factors={"clip": [5.0]}, catalogues=3), folder=out, resume=True)


SMALL_SIZE = {"n_items": 20, "n_flips": 5}
LARGE_SIZE = {"n_items": 40, "n_flips": 10}


@pytest.mark.parametrize(
    ("sizes", "labels"),
    [
        ([SMALL_SIZE, LARGE_SIZE], ["n_items=20,n_flips=5", "n_items=40,n_flips=10"]),
        ({"small": SMALL_SIZE, "large": LARGE_SIZE}, ["small", "large"]),
    ],
    ids=["without names", "with names"],
)
def test_a_level_may_set_several_things_at_once(sizes, labels):
    factors = {"size": sizes, "clip": [5, 15]}
    cells = Design([{"world": "sessions", "preset": "quick"}], factors=factors).all_cells()
    assert [cell.levels["size"] for cell in cells[::2]] == labels
    assert [cell.setup.params for cell in cells[::2]] == [SMALL_SIZE, LARGE_SIZE]
    assert [cell.setup.options for cell in cells] == [{"clip": 5}, {"clip": 15}] * 2


@pytest.mark.parametrize("name", ["value", "catalogue", "user"])
def test_a_factor_is_not_called_as_a_column_of_the_results(name):
    with refused(f"'{name}'"):
        Design([WORLD], factors={name: {"small": {"n_items": 20}}})


@pytest.mark.parametrize("wrong", [{"factors": {"size": {"small": 3}}}, {"cells": ["clip"]}])
def test_levels_and_cells_that_are_no_tables_are_refused(wrong):
    with refused(r"small|cells"):
        Design([WORLD], **wrong)


def test_the_order_of_factors_changes_no_cell(tmp_path):
    one = Design([WORLD], AGENTS, ["off_policy"], factors={"clip": [2.0], "epsilon": [0.1]}, catalogues=1)
    first = run_study(one, folder=tmp_path / "out")
    other = run_study(replace(one, factors={"epsilon": [0.1], "clip": [2.0]}), folder=tmp_path / "out", resume=True)
    assert other.seconds == {}
    assert other.frame()["value"].tolist() == first.frame()["value"].tolist()


FLAGS = ["compare", "--preset", "quick", "--set", "n_items=20", "--set", "n_flips=5",
         *(word for name, n in SIZES.items() for word in ("--option", f"{name}={n}")),
         "--agents", ",".join(AGENTS), "--protocols", "off_policy", "--seed", 3]  # fmt: skip
LEVELS = ["--logging", "svd,random", "--clip", "2.0,15.0"]


@pytest.mark.parametrize("flags", [LEVELS, ["--first-seed", 0]], ids=["levels", "seed"])
def test_flags_of_a_study_need_a_number_of_catalogues(capsys, tmp_path, flags):
    assert "needs a study" in fails(capsys, *FLAGS, *flags, "--out", tmp_path / "out")


def test_flags_with_several_levels_are_the_settings_file(capsys, tmp_path):
    out = tmp_path / "flags"
    study = ("--catalogues", 2, "--first-seed", 40, "--workers", 1, "--save-raw")
    status, text, _ = run(capsys, *FLAGS, *LEVELS, *study, "--out", out)
    assert status == 0
    assert max(map(len, text.splitlines()[:-1])) <= 80
    settings = tmp_path / "design.toml"
    params = "\n".join(f"{name} = {n}" for name, n in SIZES.items())
    settings.write_text(
        f"catalogues = 2\nseed = 3\nfirst_seed = 40\nagents = {json.dumps(AGENTS)}\nprotocols = ['off_policy']\n"
        f"[options]\n{params}\n"
        "[factors]\nlogging = ['svd', 'random']\nclip = [2.0, 15.0]\n"
        "[[worlds]]\nworld = 'sessions'\npreset = 'quick'\nparams = { n_items = 20, n_flips = 5 }\n"
    )
    seeds = {path.stem: toys.read_json(path)["seed"] for path in (out / "tasks").iterdir()}
    assert {task.label: task.seed for task in design_of(settings).tasks()} == seeds
    assert set(seeds.values()) == {40, 41}
    table = pq.read_table(out / "study.parquet").to_pandas()
    assert {"logging", "clip", "truth", "abstained", "cost"} <= set(table.columns)
    assert run(capsys, "verify", out)[0] == 0
    assert len(list((out / "raw").iterdir())) == 8


# ---------------------------------------------------------------------------------------------------------- abstention

GAIN = Target("ctr", "CTR")


def record(protocol, agent, value, half=0.001, severity=0.0, **details):
    """A record whose worst finding has this severity."""
    details["findings"] = [{"severity": severity}]
    details["verdict_level"] = "do_not_use" if severity >= 2 else "trust"
    return toys.record(protocol, agent, value, half=half, **details)


@pytest.mark.parametrize(
    ("severities", "upper_limits", "severity", "reason"),
    [
        ((0.5, 0.2, 0.1), {}, 0.5, ""),
        ((2.5, 0.2, 0.1), {}, 2.5, "too little data on its pick a"),
        ((0.5, 3.0, 0.1), {}, 0.5, ""),  # unusable, and below the pick as far as anybody knows
        ((0.5, 3.0, 4.0), {"b": 0.9, "c": 0.9}, 4.0, "too little data on b and c, which may be better"),
        ((0.5, 1.5, 0.1), {"b": 0.9}, 1.5, ""),  # a rival that may be judged is no reason
    ],
)
def test_a_protocol_abstains_where_its_pick_or_a_rival_cannot_be_judged(severities, upper_limits, severity, reason):
    truth = {"a": 0.03, "b": 0.02, "c": 0.01}
    records = [record("truth", agent, value) for agent, value in truth.items()]
    for (agent, value), worst in zip(truth.items(), severities, strict=True):
        details = {"target_high": upper_limits[agent]} if agent in upper_limits else {}
        records.append(record("p", agent, value, severity=worst, **details))
    (judgement,) = judge(records, [Ranking("p", "ctr", "p", GAIN)])
    assert (judgement.severity, judgement.reason, judgement.abstains) == (severity, reason, bool(reason))


def test_the_summary_counts_decisions_and_what_they_lose(study):
    judgements = study.judgements()
    for row in study.summary():
        of_row = [j for j in judgements if (j["levels"], j["title"]) == (row["levels"], row["title"])]
        decided = [j["cost_share"] for j in of_row if not j["abstains"]]
        assert row["decides"]["count"] == len(decided)
        assert row["cost_share"]["mean"] == pytest.approx(np.mean([j["cost_share"] for j in of_row]))
        assert row["cost_decided"]["mean"] == (pytest.approx(np.mean(decided)) if decided else None)


def test_the_best_agent_to_always_pick_is_the_cheapest_on_average(study):
    frame = study.frame()
    costs = frame[(frame["protocol"] == "ab_test") & frame["cost"].notna()]
    costs = costs[(costs["logging"] == "user-popularity") & (costs["clip"] == 2.0)]
    means = costs.astype({"cost": float}).groupby("agent")["cost"].mean()
    best = study.always()[0]
    assert best["agent"] == means.idxmin()
    assert best["cost"]["mean"] == pytest.approx(means.min())


# ---------------------------------------------------------------------------------------------------------- pairs


def test_paired_differences_are_those_of_scipy():
    x, y = np.random.default_rng(2).exponential(0.02, (2, 12))
    paired = paired_difference(np.column_stack([x, y]), 1.0, 0.95)
    assert paired["difference"] == pytest.approx((x - y).mean())
    assert paired["p_t"] == pytest.approx(stats.ttest_rel(x, y).pvalue)
    assert paired["p_wilcoxon"] == pytest.approx(stats.wilcoxon(x, y).pvalue)
    assert paired["low"] < paired["difference"] < paired["high"]


def test_few_or_equal_pairs_have_no_interval():
    few = paired_difference(np.array([(0.1, 0.2)] * 4), 1.0, 0.95)
    assert math.isnan(few["low"])
    equal = paired_difference(np.array([(0.1, 0.1)] * 6), 1.0, 0.95)
    assert math.isnan(equal["low"])
    assert (equal["p_t"], equal["p_wilcoxon"]) == (1.0, 1.0)


def test_an_interval_stays_within_its_bounds():
    low, high = bounded_interval(np.array([1.0, -1.0, 1.0, 1.0, -1.0]), 1.0, 0.95)
    assert -1.0 <= low < high <= 1.0


def test_holms_adjustment_is_the_textbooks():
    adjusted = holm(np.array([0.01, 0.04, 0.03, math.nan]))
    assert_allclose(adjusted, [0.03, 0.06, 0.06, math.nan])


def test_protocols_and_levels_are_compared_catalogue_by_catalogue(study):
    between = study.compare("leave-one-out", "clipped_ips", by="logging")
    frame = study.frame()
    picked = frame[frame["picked"] == True]  # noqa: E712  # None where nothing is judged
    cost = picked.pivot_table("cost", CELL, "metric")
    expected = (cost["hr@1"] - cost["clipped_ips"]).groupby("logging").mean()
    assert between.set_index("logging")["difference"].to_dict() == pytest.approx(expected.to_dict())
    assert between["n"].tolist() == [2, 2]  # catalogues: the cells of one are no further evidence
    levels = study.compare_levels("clip", "clipped_ips", of="tau")
    assert levels["clip"].tolist() == ["15.0 - 2.0"]
    assert levels["n"].tolist() == [2]
    gap = study.compare_levels("clip", "clipped_ips", minus="leave-one-out")
    ips, loo = (study.compare_levels("clip", name)["difference"][0] for name in ("clipped_ips", "leave-one-out"))
    assert gap["difference"][0] == pytest.approx(ips - loo)


@pytest.mark.parametrize(
    "call",
    [
        lambda study: study.compare("loo", "nothing"),
        lambda study: study.compare_levels("clap", "ab_test"),
        lambda study: study.compare("loocv", "ab_test", by="clap"),
        lambda study: study.compare("loocv", "ab_test", of="x"),
        lambda study: study.means("clipp"),
    ],
    ids=["protocol", "levels", "by", "of", "means"],
)
def test_unknown_names_are_refused(study, call):
    with pytest.raises(UserError):
        call(study)


@pytest.mark.verify
@pytest.mark.parametrize("number", [12, 24])
def test_intervals_of_paired_differences_cover(number):
    """Costs of which half are 0, and others near each other, by 1,000 studies: a hard case, of .92 at twelve."""
    rng = np.random.default_rng(number)
    covered = 0
    for _ in range(1000):
        gaps = rng.exponential(0.02, number) * (rng.random(number) < 0.5) - rng.gamma(8.0, 0.0014, number)
        low, high = bounded_interval(gaps, 1.0, 0.95)
        covered += low <= 0.01 - 0.0112 <= high
    assert covered / 1000 >= 0.9


def test_means_and_differences_are_grouped_by_several_factors(study):
    frame = study.frame().query("picked and metric in ['hr@1', 'clipped_ips']")
    by = ["logging", "clip"]
    costs = frame.groupby([*by, "metric", "catalogue"])["cost"].mean()
    expected = costs.groupby([*by, "metric"]).mean().unstack()["clipped_ips"]
    means = study.means(by, protocols=["hr@1", "clipped_ips"]).set_index([*by, "title"])["mean"].unstack()
    assert_allclose(means.loc[expected.index, "clipped IPS"], expected, atol=1e-12)
    change = expected.unstack()[15.0] - expected.unstack()[2.0]
    step = study.compare_levels("clip", "off_policy", by="logging").set_index("logging")["difference"]
    assert_allclose(step[change.index], change, atol=1e-12)
    both = study.compare_levels(["clip", "logging"], "off_policy")
    assert both[["clip", "logging"]].to_numpy().tolist() == [["15.0 - 2.0", "random - user-popularity"]]
    assert both["difference"].item() == pytest.approx(change["random"] - change["user-popularity"], abs=1e-12)


def test_pairs_in_groups_of_one_column_are_one_row_each():
    """pandas 2 names a group by one level of an index by its value, and by one column by a tuple of it."""
    pairs = pd.DataFrame({"clip": [5.0, 5.0, 15.0, 5.0], "catalogue": [0, 1, 0, 0]})
    pairs["first"], pairs["second"] = [0.5, 0.25, 1.0, 0.25], 0.125
    table = paired_table(pairs, ["clip"], 1.0, 0.95)
    assert table[["clip", "n", "difference"]].to_numpy().tolist() == [[5.0, 2, 0.1875], [15.0, 1, 0.875]]


@pytest.mark.slow
def test_setups_of_one_world_are_not_taken_for_each_other():
    """Two setups whose world, preset and levels are the same are paired each with itself."""
    other = {**WORLD, "params": {"n_items": 12, "n_flips": 3}}
    both = run_study(Design([WORLD, other], AGENTS, ["off_policy"], factors={"clip": [2.0, 15.0]}, catalogues=2))
    step = both.compare_levels("clip", "off_policy")
    costs = both.frame().query("picked and metric == 'clipped_ips'").groupby(["clip", "catalogue"])["cost"]
    assert step["n"].tolist() == [2]
    assert len(costs.size()) == 4
    expected = costs.mean().groupby("clip").mean()
    assert step["difference"].item() == pytest.approx(expected[15.0] - expected[2.0], abs=1e-12)


def test_a_table_has_a_row_per_cell_of_a_protocol(study):
    table = study.table(["clipped_ips"])
    assert all(head in str(study) for head in table.columns)
    assert len(table) == len({row["study"] for row in study.summary()})


def one_at_a_time(**more):
    cells = [{"clip": 15.0}, {"clip": 2.0}, {"clip": 15.0, "logging": "random"}]
    return run_study(Design([WORLD], AGENTS, cells=cells, catalogues=1, **more))


def test_means_of_cells_that_differ_otherwise_are_refused_and_taken_apart():
    varied = one_at_a_time(protocols=["off_policy"])
    with refused("logging"):
        varied.means("clip")
    assert set(varied.means(["clip", "logging"])["n"]) == {1}
    alike = varied.where({"logging": None})
    assert [r["cell"] for r in alike.results] == [r["cell"] for r in varied.results if "logging" not in r["levels"]]
    assert alike.means("clip")["clip"].tolist() == [15.0, 2.0]
    with refused("no factor"):
        varied.where({"loging": None})


@pytest.mark.parametrize(
    ("factor", "protocols", "n_warnings"),
    [
        ({"train_users": [60, 40]}, ["loocv", "off_policy"], 1),
        ({"size": {"few": {"train_users": 40}, "more": {"train_users": 60}}}, ["holdout"], 1),
        ({"train_users": [60, 40]}, ["loocv+fit_on=train", "off_policy"], 0),
        ({"clip": [2.0, 15.0]}, ["loocv"], 0),
        ({"n_items": [20, 40]}, ["off_policy"], 0),  # n_flips is set
    ],
)
def test_a_study_warns_of_a_factor_that_a_protocol_ignores(factor, protocols, n_warnings):
    heard = []
    run_study(Design([WORLD], AGENTS, protocols, factors=factor, catalogues=1), warn=heard.append)
    assert len(heard) == n_warnings


# ---------------------------------------------------------------------------------------------------------- raw results


class Counted(Protocol):
    """Clicks of the log on what an agent shows, with its rows kept."""

    name = "counted"  # under which its records stand
    metrics = ("clicks",)
    needs = frozenset({"test_log"})

    def judge(self, study):
        shown = study.log().bandit()
        value = shown["reward"]
        for agent in study.policies:
            study.keep_raw(self.name, "clicks", agent, user=shown["user"], value=value)
        return [toys.record(self.name, agent, float(value.mean()), "clicks") for agent in study.policies]


RAW = {
    "sessions": ({**WORLD, "protocols": ["loocv", "loocv+fit_on=train+one_view=miss", "off_policy", "ab_test",
                                         "off_policy+estimators=dr/dm", "holdout",
                                         "test_study_design:Counted"]}, AGENTS),
    "ratings": ({"world": "ratings", "preset": "quick", "params": {"n_items": 30}, "options": {"users": 100},
                 "protocols": ["naive", "ips", "snips"]}, ["random", "mf-naive-ratings"]),
    "purchases": ({"world": "purchases", "preset": "quick", "options": {"users": 100}, "protocols": ["ab_test"]},
                  ["random", "popularity"]),
}  # fmt: skip


def test_raw_results_of_all_cells_are_one_table(tmp_path):
    """Levels 0 and .5 are of one type; a level that is no number makes its factor text."""
    factors = {"epsilon": [0, 0.5], "preset": ["quick"]}
    design = Design([WORLD], AGENTS, ["ab_test"], factors=factors, catalogues=1)
    study = run_study(design, folder=tmp_path / "out", save_raw=True)
    raw = pd.read_parquet(tmp_path / "out" / "raw", filters=[("protocol", "==", "ab_test")])
    frame = study.frame().query("metric == 'ctr' and protocol == 'ab_test'").set_index(["epsilon", "agent"])
    raw["total"] = raw["value"] * raw["weight"]
    sums = raw.groupby(["epsilon", "agent"], observed=True)[["total", "weight"]].sum()
    assert frame["value"].to_dict() == pytest.approx((sums["total"] / sums["weight"]).to_dict())


def test_raw_results_of_several_lengths_are_refused():
    trial = Trial(None, {}, None, 0, raw=RawResults())
    with refused("'mine'"):
        trial.keep_raw("mine", "m", "a", user=[1, 2], value=[0.5])


def test_raw_rows_whose_mean_is_another_number_than_the_record_are_refused():
    raw = RawResults()
    trial = Trial(None, {}, None, 0, raw=raw)
    for part in ([0.0, 1.0], [1.0, 1.0]):  # several parts are one mean
        trial.keep_raw("mine", "m", "a", user=[1, 2], value=part)
    raw.check([toys.record("mine", "a", 0.75, "m")])
    with refused("'mine'"):
        raw.check([toys.record("mine", "a", 0.5, "m")])


@pytest.mark.slow
@pytest.mark.parametrize("world", RAW)
def test_every_protocol_keeps_its_rows(tmp_path, world):
    setup, agents = RAW[world]
    study = run_study(Design([setup], agents, catalogues=1), folder=tmp_path / "out", save_raw=True)
    (path,) = (tmp_path / "out" / "raw").iterdir()
    raw = pq.read_table(path).to_pandas()
    assert raw["seed"].astype("uint64").unique().tolist() == [study.results[0]["seed"]]
    renamed = {"test_study_design:Counted": "counted"}
    assert set(raw["protocol"]) == {renamed.get(name, name) for name in setup["protocols"]}

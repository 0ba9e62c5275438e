"""Files of slates in every form: the same estimates as from our own columns; each broken one is refused; commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

import recsim_mnar
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ranking_records import LOGGED, SUFFIXES
from recsim_mnar.estimators.rankings import estimate_ranking_value
from recsim_mnar.own_log.ab_plan import plan_ab
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.doctor_commands import commands_for, first_of
from toys import only, read_json, refused
from twins import rankings as plain
from twins.commands import done, run
from twins.findings import advice_of, codes, finding
from twins.json_schema import breaches

K, USERS, PER_USER = 3, 250, 4
N = USERS * PER_USER
LOGGER = plain.plackett_luce((3.0, 1.0, 2.0, 0.8, 1.2), K)
NEW = plain.plackett_luce((1.0, 2.0, 1.5, 1.0, 1.2), K)
SCHEMA = read_json(Path("docs/estimate.schema.json"))
OPTION_OF_KIND = {"marginal": "position", "conditional": "conditional", "slate": "slate", "set": "set"}
KINDS = tuple(OPTION_OF_KIND)


def probabilities_by_kind(law):
    """The probabilities of every ranking, one per position."""
    rankings = [plain.probabilities(law, tuple(ranking)) for ranking in LOGGER]
    return {kind: np.array([ranking[kind] for ranking in rankings]) for kind in KINDS}


@pytest.fixture(scope="module")
def house():
    """A log in our own columns, and the new policy's probabilities by kind: (N K,)."""
    rng = np.random.default_rng(3)
    rankings = np.array(list(LOGGER))
    law = np.array(list(LOGGER.values()))
    drawn = rng.choice(len(law), N, p=law / law.sum())
    action = rankings[drawn]
    clicks = rng.random((N, K)) < (0.2 + 0.12 * action) / (1.0 + 0.3 * np.arange(K))
    columns = {
        "user": np.repeat(np.arange(USERS), PER_USER * K),
        "slate": np.tile(np.repeat(np.arange(PER_USER), K), USERS),
        "position": np.tile(np.arange(K), N),
        "action": action.ravel(),
        "reward": clicks.ravel().astype(float),
    }
    logged = probabilities_by_kind(LOGGER)
    new = probabilities_by_kind(NEW)
    columns |= {LOGGED[kind]: logged[kind][drawn].ravel() for kind in KINDS}
    return columns, {kind: new[kind][drawn].ravel() for kind in KINDS}


def per_position(house, *kinds, generic=False):
    """A file with positions from 1; of one kind the propensity may have the generic name ``pscore``."""
    columns, new = house
    slate = columns["user"] * PER_USER + columns["slate"]
    data = {
        "visitor_id": [f"v{user:03}" for user in columns["user"]],
        "impression_id": [f"s{number:05}" for number in slate],
        "rank": columns["position"] + 1,
        "item_id": [f"i{action}" for action in columns["action"]],
        "clicks": columns["reward"].astype(int),
    }
    for kind in kinds:
        data["pscore" if generic else f"{kind}_prob"] = columns[LOGGED[kind]]
        data["new" if generic else f"new{SUFFIXES[kind]}"] = new[kind]
    return pd.DataFrame(data)


def expected_estimates(house, *kinds):
    """The estimates from our own columns."""
    columns, new = house
    others = [LOGGED[kind] for kind in KINDS if kind not in kinds]
    log = {name: values for name, values in columns.items() if name not in others}
    return estimate_ranking_value(log, {kind: new[kind] for kind in kinds})


def assert_same(records, estimates):
    keys = ["value", "low", "high", "ess"]
    of_file = {record["estimator"]: [record[key] for key in keys] for record in records if record["policy"] == "new"}
    of_columns = {name: [getattr(estimate, key) for key in keys] for name, estimate in estimates.items()}
    options = {"check_like": True, "rtol": 1e-12, "atol": 1e-12}
    pd.testing.assert_frame_equal(pd.DataFrame(of_file, keys), pd.DataFrame(of_columns, keys), **options)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "log.csv"


def answered(data, file, target="new", **asked):
    data.to_csv(file, index=False)
    return recsim_mnar.estimate_file(file, target, **asked)


def examined(data, file, **asked):
    data.to_csv(file, index=False)
    return examine_file(file, Asked(targets=("new",), **asked))


def test_one_row_per_position_in_any_order(house, file):
    data = per_position(house, *KINDS).sample(frac=1, random_state=1).sort_values("visitor_id", kind="stable")
    answer = answered(data, file)
    # The order of slates in a file only matters to what is said of a user's next slate.
    assert_same(answer.records, expected_estimates(house, *KINDS))
    assert any("one row per position: 1,000 slates of 3 items" in line for line in answer.found.lines)


@pytest.mark.parametrize("kind", KINDS)
def test_the_user_can_state_what_a_propensity_is_of(house, file, kind):
    stated = OPTION_OF_KIND[kind]
    answer = answered(per_position(house, kind, generic=True), file, propensities_of=stated)
    assert_same(answer.records, expected_estimates(house, kind))
    assert examine_file(file, Asked(propensities_of=stated)).facts["slates"]["propensities_of"] == {"pscore": kind}


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("written", ["json", "lists"])
def test_lists_of_items_are_refused(tmp_path, ending, written):
    file = tmp_path / f"log.{ending}"
    lists = [["a", "b"], ["b", "c"], None]
    if ending == "csv" or written == "json":
        lists = [json.dumps(items) for items in lists]
    data = pd.DataFrame({"items": lists, "clicks": 1, "pscore": 0.5, "new": 0.25})
    getattr(data, f"to_{ending}")(file, index=False)
    for read in (
        lambda: recsim_mnar.estimate_file(file, "new"),
        lambda: examine_file(file),
        lambda: plan_ab(file, "5%"),
    ):
        with refused("'items' holds lists: explode them: one row per position") as caught:
            read()
        assert caught.value.code == "lists_of_items"


def test_difference_from_today_is_of_the_same_weights(house, file):
    answer = answered(per_position(house, "marginal", "slate"), file, baseline="today")
    columns, new = house
    records = {(record["role"], record["estimator"]): record for record in answer.records}
    assert {role for role, _ in records} == {"target", "today", "difference"}
    for kind, name in (("marginal", "independent_ips"), ("slate", "slate_ips")):
        gain = np.mean((new[kind] / columns[LOGGED[kind]] - 1.0) * columns["reward"])
        difference = records["difference", name]
        assert difference["value"] == pytest.approx(gain, rel=1e-10)
        assert difference["low"] < gain < difference["high"]
        assert records["today", name]["value"] == pytest.approx(columns["reward"].mean(), rel=1e-12)
    assert not any(code.startswith("assumption") for code in codes(records["today", "independent_ips"]))


def test_a_deterministic_policy_names_its_items(house, file):
    columns, _ = house
    data = per_position(house, "conditional", "marginal").drop(columns=["new", "new_conditional"])
    data["new_item"] = np.tile(["i1", "i2", "i0"], N)
    answer = answered(data, file, "new_item")
    agrees = (columns["action"].reshape(N, K) == [1, 2, 0]).all(axis=1)
    expected = np.mean(agrees * columns["reward"].reshape(N, K).mean(axis=1) / columns[LOGGED["slate"]][::K])
    slate_ips = only(answer.records, estimator="slate_ips")
    assert slate_ips["value"] == pytest.approx(expected, rel=1e-10)


# -------------------------------------------------------------------------------------------------- broken files


def with_value(column, rows, value):
    """A change of a file: this value in some rows."""
    return lambda data: data.assign(**{column: data[column].mask(data.index.isin(rows), value)})


SECOND = (3, 4, 5)
"""The rows of the second slate, which begins at row 4 of the file."""
BROKEN = {
    "from 0 and from 1": (lambda data: data.assign(rank=data["rank"] - (data.index >= K * 400)), "slate_gap", 400),
    "from 4": (lambda data: data.assign(rank=data["rank"] + 3), "slate_gap", N),
    "no whole number": (with_value("rank", [4], 2.5), "slate_gap", 1),
    "gap": (lambda data: data.drop(index=[4, 10]), "slate_gap", 2),
    "sizes": (lambda data: data.drop(index=5), "slate_sizes", 1),
    "position twice": (with_value("rank", [4], 1), "slate_position_twice", 1),
    "users": (with_value("visitor_id", [4], "other"), "slate_users", 1),
    "item twice": (lambda data: with_value("item_id", [4], data.item_id[3])(data), "slate_item_twice", 1),
    "product": (with_value("conditional_prob", [4], 0.01), "slate_product", 1),
    "product of the target": (with_value("new_slate", SECOND, 0.01), "slate_target_product", 1),
    "differs within the slate": (with_value("set_prob", [4], 0.99), "slate_varies", 1),
    "above 1": (with_value("slate_prob", SECOND, 1.5), "outside", 1),
    "above the item's": (with_value("slate_prob", SECOND, 0.9), "slate_above", 1),
    "the top": (lambda data: data.assign(rank=K + 1 - data["rank"]), "slate_top", 977),
    "the target's top": (lambda data: data.assign(new=np.roll(data["new"], K)), "slate_target_top", 668),
}


@pytest.mark.parametrize(("change", "code", "n_slates"), BROKEN.values(), ids=list(BROKEN))
def test_broken_files_are_refused_in_one_line(house, file, change, code, n_slates):
    data = change(per_position(house, *KINDS))
    with refused(f": {n_slates:,} slates? of 1,000") as caught:
        answered(data, file)
    assert caught.value.code == "bad_slates"
    examination = examine_file(file, Asked(targets=("new",)))
    assert code in codes(examination)
    assert first_of(commands_for(examination)) is None


def test_a_position_that_is_no_number_is_named_with_its_rows(house, file):
    data = per_position(house, "marginal").assign(rank="top")
    with pytest.raises(UserError, match=r"'rank' is not a number in 3,000 rows \(1: top"):
        answered(data, file)
    assert "slates_not_read" in codes(examine_file(file))


def test_doctor_asks_for_positions_where_slates_may_be(house, file):
    data = per_position(house, "marginal").rename(columns={"rank": "ordering"})
    assert finding(examined(data, file), "perhaps_slates").advice.startswith("name it with --position-column")
    examination = examined(data, file, columns={"position": "ordering"})
    assert examination.facts["slates"]["slates"] == N
    assert "--position-column ordering" in first_of(commands_for(examination)).line


def test_drop_missing_leaves_out_whole_slates(house, file):
    data = with_value("clicks", [4], np.nan)(per_position(house, "marginal"))
    answer = answered(data, file, drop_missing=True)
    assert answer.records[0]["n"] == (N - 1) * K
    assert "slates that lost a row are left out: 1" in " ".join(answer.found.lines)


def test_a_position_twice_is_not_to_be_deduplicated_unless_rows_are_copies(house, file):
    data = with_value("rank", [4], 1)(per_position(house, "marginal"))
    for deduplicate in (False, True):
        with pytest.raises(UserError, match="a position stands twice") as caught:
            answered(data, file, deduplicate=deduplicate)
        assert "--deduplicate" not in str(caught.value)
    copied = pd.concat([data.drop(index=4), data.loc[[3]]])
    with pytest.raises(UserError, match=r"leave out copies \(--deduplicate\)"):
        answered(copied, file)


def test_better_is_required_of_slates_too(house, file):
    answer = answered(per_position(house, "slate", "marginal"), file, baseline="today", require="better")
    assert answer.met is False
    assert {cause["policy"] for cause in answer.causes} == {"new - propensity"}


def test_doctor_and_estimate_ask_what_propensities_are_of(house, file):
    data = per_position(house, "slate", generic=True)
    with pytest.raises(UserError, match="--propensities-of position"):
        answered(data, file)
    assert "unclear_propensities" in codes(examined(data, file))
    stated = examined(data, file, propensities_of="slate")
    assert "--propensities-of slate" in first_of(commands_for(stated)).line


# ------------------------------------------------------------------------------------------- slates or single items


def estimators_of(answer):
    return {record["estimator"] for record in answer.records}


def test_one_item_per_row_is_as_before(file):
    """A session with single items one after another, and a key of one row, are no slates."""
    rng = np.random.default_rng(0)
    n = 400
    data = pd.DataFrame(
        {
            "session_id": np.repeat(np.arange(80), 5),
            "impression_id": np.arange(n),
            "position": rng.integers(1, 4, n),
            "item_id": rng.integers(0, 4, n),
            "click": rng.integers(0, 2, n),
            "pscore": 0.25,
            "new": 0.25,
        }
    )
    assert estimators_of(answered(data, file)) == {"ips", "snips"}
    assert examine_file(file).facts["slates"] is None
    with pytest.raises(UserError, match="--assumption cascade is about slates"):
        recsim_mnar.estimate_file(file, "new", assumption="cascade")


def test_slates_can_be_read_as_single_items(house, file):
    answer = answered(per_position(house, "marginal", generic=True), file, columns={"slate": "none"})
    assert estimators_of(answer) == {"ips", "snips"}
    assert "perhaps_slates" not in codes(answer.records[0])


def question_on_slates(data, file, **asked):
    """The advice of an estimate where rows may be slates; it must not be trusted."""
    record = answered(data, file, propensity_min=0.02, **asked).records[0]
    assert record["verdict_level"] != "trust"
    return finding(record, "perhaps_slates").action


def test_slates_without_a_recognised_column_are_no_silent_single_items(house, file):
    data = per_position(house, "marginal", generic=True)
    assert question_on_slates(data.drop(columns="rank"), file).startswith("name it with --position-column NAME, or")
    several = per_position(house, "marginal", "slate", "set").drop(columns=["rank", "impression_id"])
    advice = question_on_slates(several, file, columns={"propensity": "marginal_prob"})
    assert advice.startswith("name it with --slate-column NAME, or")
    unnamed = data.rename(columns={"impression_id": "foo"})
    assert "--slate-column none, if each row is a single item" in question_on_slates(unnamed, file)
    assert examine_file(file).has("perhaps_slates")
    named = answered(unnamed, file, columns={"slate": "foo"}, propensities_of="position")
    assert_same(named.records, expected_estimates(house, "marginal"))


@pytest.mark.parametrize("option", [{"by": "item_id"}, {"refute": True}, {"estimators": ["dr"]}, {"baseline": "other"}])
def test_options_of_single_items_are_refused(house, file, option):
    with refused("slates"):
        answered(per_position(house, "marginal"), file, **option)


# --------------------------------------------------------------------------------------------------------- commands


def test_the_line_of_doctor_runs_as_it_stands(house, tmp_path, capsys):
    file = tmp_path / "log.parquet"
    per_position(house, "conditional", generic=True).rename(columns={"new": "new_pscore"}).to_parquet(file)
    out = done(capsys, "doctor", file, "--propensities-of", "conditional")
    assert "one row per position: 1,000 slates of 3 items" in out
    assert "the item, given the items above it" in out
    line = next(line for line in out.splitlines() if line.startswith("  recsim-mnar estimate"))
    out = done(capsys, *shlex.split(line)[1:], "--json", tmp_path / "out.json", "--out", tmp_path / "page")
    assert "slate_ips assumes nothing about users" in out
    assert "reward_interaction_ips assumes that a click depends on the item, its position and the items above" in out
    records = read_json(tmp_path / "out.json")
    assert breaches(records, SCHEMA, SCHEMA) == []
    assert {record["diagnostics"]["assumption"]["premise"] for record in records} == {"", "cascade"}
    assert {record["role"] for record in records} == {"target", "today", "difference"}


@pytest.mark.parametrize("columns", [{}, {"slate": "foo"}], ids=["recognised", "named"])
def test_the_plan_that_doctor_prints_counts_users_and_slates(house, save, file, capsys, columns):
    data = per_position(house, *KINDS)
    if columns:
        data = data.rename(columns={"impression_id": "foo"})
    examination = examined(data, file, columns=columns, propensities_of="position")
    line = advice_of(examination)["plan ab"].line
    out = done(capsys, *shlex.split(line)[1:])
    assert "250 users, 12 items shown in 4 slates each" in out
    assert "decisions" not in out
    plan = plan_ab(file, "5%", columns=columns)
    assert plan.slates_a_user == PER_USER
    single = per_position(house, "marginal", generic=True).drop(columns=["rank", "impression_id"])
    path = save(single, "single.csv")
    assert plan.users == plan_ab(path, "5%").users


SLATES_OF_3 = ("--set", "slate_size=3", "--set", "n_items=8", "--quiet")
EXPLORING = "user-popularity+epsilon=0.5"


def test_simulate_replay_estimate(tmp_path, capsys):
    replayed = tmp_path / "replayed.parquet"
    done(capsys, "simulate", *SLATES_OF_3, "--users", 60, "--policy", EXPLORING, "--out", tmp_path / "run")
    training = ("--users", 40, "--seed", 1, "--policy", "random", "--out", tmp_path / "train")
    done(capsys, "simulate", *SLATES_OF_3, *training)
    policies = ("--policy", "random,popularity", "--train", tmp_path / "train")
    done(capsys, "replay", tmp_path / "run", *policies, "--out", replayed, "--quiet")
    table = pq.read_table(replayed).to_pandas()
    shown = table[table.event == "bandit"]
    np.testing.assert_allclose(shown["random"], 1 / 8)
    np.testing.assert_allclose(shown["random_conditional"], 1 / (8 - shown["position"]))
    np.testing.assert_allclose(shown["random_slate"], 1 / (8 * 7 * 6))
    # popularity is no uniform policy, so its items' propensities are not those of single choices
    by_slate = shown.groupby(["user", "slate"])
    product = by_slate.popularity_conditional.prod().dropna()
    np.testing.assert_allclose(product, by_slate.popularity_slate.first().dropna(), atol=1e-8, rtol=1e-5)
    provenance = recsim_mnar.read_log(replayed).provenance
    assert provenance["fitted_on"]["policies"] == ["popularity"]  # random is fitted on nothing
    assert provenance["propensity_min"] == pytest.approx(0.5 / 8)
    columns = {name: shown[name].to_numpy() for name in shown if name not in ("event", "item")}
    for record in recsim_mnar.estimate_file(replayed, "random").records:
        (estimate,) = estimate_ranking_value(columns, "random", estimators=record["estimator"]).values()
        assert record["value"] == pytest.approx(estimate.value, rel=1e-12)


def test_slates_of_a_foreign_log_are_not_replayed(house, file, tmp_path, capsys):
    per_position(house, "marginal").to_csv(file, index=False)
    status, _, error = run(capsys, "replay", file, "--policy", "random", "--out", tmp_path / "out.parquet")
    assert status == 2
    assert "holds slates, and only a log of simulate is read with its slates" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--option", "estimators=dr"), "of single items, and these are slates"),
        (("--protocols", "off_policy+estimators=slate_ips/ips"), "of single items, and these are slates"),
        (("--option", "estimators=cascade_dr"), "needs q_logged, which a comparison does not have"),
    ],
)
def test_estimators_of_a_comparison_are_checked_before_it_simulates(tmp_path, capsys, words, message):
    asked = ("compare", "--preset", "quick", "--set", "slate_size=3", *words, "--out", tmp_path)
    status, out, error = run(capsys, *asked)
    assert status == 2
    assert message in error
    assert "simulate" not in out + error


def test_a_comparison_takes_estimators_of_slates(tmp_path, capsys):
    options = ["test_users=60", "train_users=60", "truth_users=60", "estimators=set_ips,slate_snips,slate_ips"]
    settings = ["slate_size=2", "n_items=5", "n_flips=0"]
    words = [word for option in options for word in ("--option", option)]
    words += [word for setting in settings for word in ("--set", setting)]
    words += ["--protocols", "off_policy", "--agents", "random,popularity", "--out", tmp_path / "run", "--quiet"]
    done(capsys, "compare", *words, "--json", tmp_path / "found.json")
    records = read_json(tmp_path / "found.json")["records"]
    details = {record["metric"]: record["details"] for record in records if record["protocol"] == "off_policy"}
    assert set(details) == {"set_ips", "slate_snips", "slate_ips", "dcg"}
    assert details["slate_ips"]["clip"] == 15.0
    assert details["slate_snips"].get("clip") is None


# ---------------------------------------------------------------------------------------------- answers and advice


def test_a_clip_whose_bias_is_proved_is_not_used(house, file):
    answer = answered(per_position(house, *KINDS), file, clip=1.1, estimators=["slate_ips"])
    record = answer.records[0]
    assert record["value"] < record["low"]
    assert "bias_proved" in codes(record, "do_not_use")
    assert answer.sentence.action == "raise the clip, or leave it out"


def test_a_stated_kind_that_numbers_deny_is_to_be_changed(house, file):
    # Too few slates for arithmetic to tell what propensities are of.
    answer = answered(per_position(house, "slate", generic=True)[: 400 * K], file, propensities_of="position")
    assert "propensities of item i" in answer.sentence.text
    assert answer.sentence.action == "state another --propensities-of: the numbers deny 'position'"


def clicks_after_click(answer):
    records = {record["estimator"]: record for record in answer.records}
    return pd.DataFrame({name: r["diagnostics"]["assumption"]["clicks_after_click"] for name, r in records.items()})


def test_numbered_slates_of_a_user_are_in_order_however_rows_stand(house, file):
    no_times = "no column has times: the slates of a user are taken in the order of the file"
    data = per_position(house, *KINDS)
    in_order = answered(data, file)
    shuffled = answered(data.sample(frac=1, random_state=1), file)
    assert no_times not in in_order.found.lines
    pd.testing.assert_frame_equal(clicks_after_click(in_order), clicks_after_click(shuffled), rtol=1e-9)
    data["impression_id"] = data["impression_id"].str.replace("1", "a")
    assert no_times in answered(data, file).found.lines


def test_names_of_open_bandit_pipeline_are_refused_with_those_to_write(file):
    """Two rankings of two items; the value of the second policy is known by hand once the columns are renamed."""
    rng = np.random.default_rng(1)
    zero_first = np.repeat(rng.random(400) < 0.7, 2)
    position = np.tile([0, 1], 400)
    action = np.where(zero_first, position, 1 - position)
    reward = rng.random(800) < 0.2 + 0.3 * action
    logged = np.where(zero_first, 0.7, 0.3)
    new = np.where(zero_first, 0.4, 0.6)
    columns = ["slate_id", "position", "action", "reward"]
    target_names = ["evaluation_policy_pscore", "evaluation_policy_pscore_item_position"]
    names = [*columns, "pscore", "pscore_item_position", *target_names]
    values = [np.arange(800) // 2, position, action, reward.astype(int), logged, logged, new, new]
    data = pd.DataFrame(dict(zip(names, values, strict=True)))
    for target in target_names:
        with pytest.raises(UserError) as caught:
            answered(data, file, target)
        assert caught.value.code == "unclear_propensities"
    data.columns = [*columns, "slate_pscore", "position_pscore", "new_slate", "new"]
    slate_ips = only(answered(data, file).records, estimator="slate_ips")
    by_hand = (data.new_slate / data.slate_pscore * data.reward).sum() / len(data)
    assert slate_ips["value"] == pytest.approx(by_hand)


def test_the_first_broken_slate_is_named_with_its_row(house, file):
    with pytest.raises(UserError, match=r"2 slates of 1,000, first slate s00001 \(row 4\)"):
        answered(per_position(house, *KINDS).drop(index=[4, 10]), file)

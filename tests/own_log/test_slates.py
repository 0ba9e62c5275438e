"""Files of slates in every form: the same estimates as from our own columns; each broken one in one line; commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import recsim_mnar
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ranking_records import LOGGED, SUFFIXES
from recsim_mnar.estimators.rankings import estimate_ranking_value
from recsim_mnar.own_log.ab_plan import plan_ab
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.doctor_commands import commands_for, first_of
from twins import commands
from twins import rankings as plain
from twins.findings import codes, finding
from twins.json_schema import breaches

M, K, USERS, PER_USER = 5, 3, 250, 4
N = USERS * PER_USER
LOGGER, NEW = plain.plackett_luce((3.0, 1.0, 2.0, 0.8, 1.2), K), plain.plackett_luce((1.0, 2.0, 1.5, 1.0, 1.2), K)
SCHEMA = json.loads((Path(__file__).parents[2] / "docs/estimate.schema.json").read_text())
KINDS = ("marginal", "conditional", "slate", "set")


def tables(law):
    """Of each ranking its probabilities by kind, one per position."""
    each = [plain.probabilities(law, tuple(ranking)) for ranking in LOGGER]
    return {kind: np.array([of[kind] for of in each]) for kind in KINDS}


OF_LOGGER, OF_NEW = tables(LOGGER), tables(NEW)


@pytest.fixture(scope="module")
def house():
    """A log in our own columns, and the new policy's probabilities by kind: (N K,)."""
    rng = np.random.default_rng(3)
    rankings, law = np.array(list(LOGGER)), np.array(list(LOGGER.values()))
    drawn = rng.choice(len(law), N, p=law / law.sum())
    action = rankings[drawn]
    clicks = rng.random((N, K)) < (0.2 + 0.12 * action) / (1.0 + 0.3 * np.arange(K))
    columns = {
        "user": np.repeat(np.arange(USERS), PER_USER * K), "slate": np.tile(np.repeat(np.arange(PER_USER), K), USERS),
        "position": np.tile(np.arange(K), N), "action": action.ravel(), "reward": clicks.ravel().astype(float),
    }  # fmt: skip
    columns |= {LOGGED[kind]: OF_LOGGER[kind][drawn].ravel() for kind in KINDS}
    return columns, {kind: OF_NEW[kind][drawn].ravel() for kind in KINDS}


def per_position(house, *kinds, generic=False):
    """A file of one's own, positions from 1: of one kind the propensity is called ``pscore``."""
    columns, new = house
    slate = columns["user"] * PER_USER + columns["slate"]
    data = {
        "visitor_id": [f"v{u:03}" for u in columns["user"]], "impression_id": [f"s{i:05}" for i in slate],
        "rank": columns["position"] + 1, "item_id": [f"i{a}" for a in columns["action"]],
        "clicks": columns["reward"].astype(int),
    }  # fmt: skip
    for kind in kinds:
        data["pscore" if generic else f"{kind}_prob"] = columns[LOGGED[kind]]
        data["new" if generic else f"new{SUFFIXES[kind]}"] = new[kind]
    return pd.DataFrame(data)


def per_slate(house, kind, write, *, one_number=False):
    """One row per slate; ``write`` writes a list."""
    columns, new = house

    def rows(values):
        return np.asarray(values).reshape(N, K).tolist()

    data = {
        "visitor_id": [f"v{u:03}" for u in columns["user"][::K]],
        "items": [write([f"i{a}" for a in each]) for each in rows(columns["action"])],
        "clicks": [write([int(r) for r in each]) for each in rows(columns["reward"])],
    }
    for name, values in (("pscore", columns[LOGGED[kind]]), ("new", new[kind])):
        data[name] = values[::K] if one_number else [write(each) for each in rows(values)]
    return pd.DataFrame(data)


def ours(house, *kinds, **asked):
    """The estimates from our own columns."""
    columns, new = house
    known = {name: values for name, values in columns.items() if name not in LOGGED.values()}
    known |= {LOGGED[kind]: columns[LOGGED[kind]] for kind in kinds}
    return estimate_ranking_value(known, {kind: new[kind] for kind in kinds}, **asked)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "log.csv"


def answered(data, file, target="new", **asked):
    data.to_csv(file, index=False)
    return recsim_mnar.estimate_file(file, target, **asked)


def same(records, expected):
    """The records of the new policy are these estimates, to 1e-12."""
    found = {each["estimator"]: each for each in records if each["policy"] == "new"}
    assert set(found) == set(expected)
    for name, each in expected.items():
        for key in ("value", "low", "high", "ess"):
            assert found[name][key] == pytest.approx(getattr(each, key), rel=1e-12, abs=1e-12), (name, key)


def test_one_row_per_position_in_any_order(house, file):
    data = per_position(house, *KINDS).sample(frac=1, random_state=1).sort_values("visitor_id", kind="stable")
    found = answered(data, file)
    # Slates stand as the file has them first; only what is said of a user's next slate depends on that.
    same(found.records, ours(house, *KINDS))
    assert any("one row per position: 1,000 slates of 3 items" in line for line in found.found.lines)


@pytest.mark.parametrize("kind", ["marginal", "conditional", "slate", "set"])
def test_what_a_propensity_is_of_is_stated(house, file, kind):
    """By its name, or by the user."""
    file, stated = file, {"marginal": "position"}.get(kind, kind)
    found = answered(per_position(house, kind, generic=True), file, propensities_of=stated)
    same(found.records, ours(house, kind))
    assert examine_file(file, Asked(propensities_of=stated)).facts["slates"]["propensities_of"] == {"pscore": kind}


FORMS = {
    "JSON": (json.dumps, "csv"),
    "lists of Parquet": (list, "parquet"),
}


@pytest.mark.parametrize(("write", "ending"), FORMS.values(), ids=list(FORMS))
@pytest.mark.parametrize(("kind", "one_number"), [("marginal", False), ("conditional", False), ("slate", True)])
def test_one_row_per_slate(house, tmp_path, write, ending, kind, one_number):
    file, data = tmp_path / f"log.{ending}", per_slate(house, kind, write, one_number=one_number)
    if ending == "csv":
        data.to_csv(file, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(data), file)
    stated = {"marginal": "position"}.get(kind, kind)
    found = recsim_mnar.estimate_file(file, "new", propensities_of=None if one_number else stated)
    same(found.records, ours(house, kind))
    assert any("one row per slate: 1,000 slates of 3 items" in line for line in found.found.lines)


def test_one_reward_per_slate_is_the_sum_of_its_clicks(house, file):
    columns, new = house
    data = per_slate(house, "slate", json.dumps, one_number=True)
    data["clicks"] = columns["reward"].reshape(N, K).sum(1)
    found = answered(data, file, reward_max=3.0)
    assert [each["estimator"] for each in found.records] == ["slate_ips"]
    weight = new["slate"][::K] / columns[LOGGED["slate"]][::K]
    assert found.records[0]["value"] == pytest.approx(np.mean(weight * data["clicks"]), rel=1e-12)
    assert "per slate" in found.sentence.text


def test_difference_from_today_is_of_the_same_weights(house, file):
    found = answered(per_position(house, "marginal", "slate"), file, baseline="today")
    columns, new = house
    by = {(each["role"], each["estimator"]): each for each in found.records}
    assert {role for role, _ in by} == {"target", "today", "difference"}
    for kind, name in (("marginal", "independent_ips"), ("slate", "slate_ips")):
        gain = (new[kind] / columns[LOGGED[kind]] - 1.0) * columns["reward"]
        apart = by["difference", name]
        assert apart["value"] == pytest.approx(gain.mean(), rel=1e-10)
        assert apart["low"] < gain.mean() < apart["high"]
        assert by["today", name]["value"] == pytest.approx(columns["reward"].mean(), rel=1e-12)
    assert not [f for f in by["today", "independent_ips"]["findings"] if f["code"].startswith("assumption")]


def test_a_deterministic_policy_names_its_items(house, file):
    data = per_position(house, "conditional", "marginal").drop(columns=["new", "new_conditional"])
    data["new_item"] = np.tile([f"i{a}" for a in (1, 2, 0)], N)
    found = answered(data, file, "new_item")
    columns, _ = house
    hit = (columns["action"].reshape(N, K) == [1, 2, 0]).all(1)
    expected = np.mean(hit * columns["reward"].reshape(N, K).mean(1) / columns[LOGGED["slate"]][::K])
    value = {each["estimator"]: each["value"] for each in found.records}
    assert value["slate_ips"] == pytest.approx(expected, rel=1e-10)


def broken(house, **changes):
    """The file with all probabilities, and values changed: by column, row -> value; ``drop`` leaves rows out."""
    data = per_position(house, *KINDS)
    drop = changes.pop("drop", [])
    if changes.get("item_id") == "above":
        changes["item_id"] = {4: data.loc[3, "item_id"]}
    for name, at in changes.items():
        data[name] = data[name].astype(float) if name == "rank" else data[name]
        for row, value in at.items():
            data.loc[row, name] = value
    return data.drop(index=drop)


BROKEN = {
    "from 0 and from 1": (
        {"rank": {i: i % K for i in range(K * 400, N * K)}},
        "slate_gap",
        "'rank' begins at 1, and in other slates at 0: 400 slates of 1,000, first slate s00000 (row 1): count from",
    ),
    "no product": (
        {"new_slate": dict.fromkeys((3, 4, 5), 0.01)},
        "slate_target_product",
        "the product of 'new_conditional' is not 'new_slate': 1 slate of 1,000, first slate s00001 (row 4): correct",
    ),
    "gap": ({"drop": [4, 10]}, "slate_gap", "without a gap: 2 slates of 1,000, first slate s00001 (row 4)"),
    "sizes": (
        {"drop": [5]},
        "slate_sizes",
        "slates are of 2 to 3 items, most of 3: 1 slate of 1,000, first slate s00001",
    ),
    "position twice": (
        {"rank": {4: 1}},
        "slate_position_twice",
        "stands twice in 'rank': 1 slate of 1,000, first slate s0",
    ),
    "from 4": (
        {"rank": {i: i % K + 4 for i in range(N * K)}},
        "slate_gap",
        "'rank' does not count 0, 1, 2, ... or 1, 2",
    ),
    "half": (
        {"rank": {4: 2.5}},
        "slate_gap",
        "'rank' does not count 0, 1, 2, ... or 1, 2, 3, ... without a gap: 1 slate",
    ),
    "users": ({"visitor_id": {4: "other"}}, "slate_users", "rows are of several users: 1 slate of 1,000"),
    "item twice": (
        {"item_id": "above"},
        "slate_item_twice",
        "an item stands twice: 1 slate of 1,000, first slate s00001 (ro",
    ),
    "conditional": ({"conditional_prob": {4: 0.01}}, "slate_product", "the product of 'conditional_prob' is not"),
    "differs": ({"set_prob": {4: 0.99}}, "slate_varies", "'set_prob' is of the slate's items in any order and differs"),
    "too large": (
        {"slate_prob": dict.fromkeys((3, 4, 5), 1.5)},
        "outside",
        "'slate_prob' is outside (0, 1]: 1 slate of 1,000",
    ),
    "above": ({"slate_prob": dict.fromkeys((3, 4, 5), 0.9)}, "slate_above", "'slate_prob' is above 'marginal_prob'"),
}


@pytest.mark.parametrize(("changes", "code", "said"), BROKEN.values(), ids=list(BROKEN))
def test_broken_files_are_refused_in_one_line(house, file, changes, code, said):
    with pytest.raises(UserError) as refused:
        answered(broken(house, **changes), file)
    assert refused.value.code == "bad_slates"
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    found = examine_file(file, Asked(targets=("new",)))
    assert code in codes(found)
    assert first_of(commands_for(found)) is None


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("marginal_prob", lambda p: p.where(p.index != 4, 1.2), r"'marginal_prob' is outside \(0, 1\] in row 5: 1.2"),
        ("rank", lambda r: r.map({1: "top", 2: "mid", 3: "low"}), r"'rank' is not a number in 3,000 rows \(1: top"),
    ],
)
def test_values_that_are_none_are_named_with_their_rows(house, file, name, change, said):
    data = per_position(house, "marginal")
    data[name] = change(data[name])
    with pytest.raises(UserError, match=said):
        answered(data, file)
    assert any(f"'{name}' is " in problem.message for problem in examine_file(file).problems)


def test_doctor_asks_for_positions_where_slates_may_be(house, file):
    data = per_position(house, "marginal").rename(columns={"rank": "ordering"})
    data.to_csv(file, index=False)
    found = examine_file(file)
    assert finding(found, "perhaps_slates").advice.startswith("name it with --position-column")
    named = examine_file(file, Asked(columns={"position": "ordering"}, targets=("new",)))
    assert named.facts["slates"]["slates"] == N
    assert "--position-column ordering" in first_of(commands_for(named)).line


def test_a_missing_position_is_one_of_the_missing_values(house, file):
    data = per_position(house, "marginal")
    data["rank"] = data["rank"].astype("Int64")
    data.loc[4, "rank"] = pd.NA
    data.to_csv(file, index=False)
    assert "--drop-missing" in first_of(commands_for(examine_file(file, Asked(targets=("new",))))).line


def test_lists_of_other_lengths_name_the_row(house, file):
    data = per_slate(house, "marginal", json.dumps)
    data.loc[6, "clicks"] = "[0, 1]"
    with pytest.raises(UserError, match=r"row 7 has another number of values in 'clicks' than of items in 'items'"):
        answered(data, file)


def test_drop_missing_leaves_out_whole_slates(house, file):
    data = per_position(house, "marginal")
    data["clicks"] = data["clicks"].astype("Int64")
    data.loc[4, "clicks"] = pd.NA
    found = answered(data, file, drop_missing=True)
    assert found.records[0]["n"] == (N - 1) * K
    assert "slates that lost a row are left out: 1" in " ".join(found.found.lines)


def test_better_is_required_of_slates_too(house, file):
    found = answered(per_position(house, "slate", "marginal"), file, baseline="today", require="better")
    assert found.met is False
    assert {cause["policy"] for cause in found.causes} == {"new - propensity"}


def test_what_is_not_stated_is_asked_for(house, file):
    data = per_position(house, "slate", generic=True)
    with pytest.raises(UserError, match="--propensities-of position"):
        answered(data, file)
    found = examine_file(file, Asked(targets=("new",)))
    assert "unclear_propensities" in codes(found)
    stated = examine_file(file, Asked(targets=("new",), propensities_of="slate"))
    assert "--propensities-of slate" in first_of(commands_for(stated)).line


def test_advice_can_be_followed(house, tmp_path, file, capsys):
    data = per_position(house, "marginal")
    data.to_csv(file, index=False)
    assert "Next: compare a new policy with it" in run(capsys, "estimate", file, "--target", "propensity")
    said = run(capsys, "doctor", file)
    assert f"recsim-mnar estimate {file} --target new --baseline today" in said
    assert "only --policy random works" in said
    run(capsys, "replay", file, "--policy", "random", "--out", tmp_path / "replayed.parquet", "--quiet")
    shown = pq.read_table(tmp_path / "replayed.parquet").to_pandas()
    assert (shown.groupby(["user", "slate"]).time.nunique() == 1).all()
    data.loc[4, "rank"] = 1
    data.to_csv(file, index=False)
    for asked in ({}, {"deduplicate": True}):
        with pytest.raises(UserError, match="a position stands twice") as refused:
            recsim_mnar.estimate_file(file, "new", **asked)
        assert "--deduplicate" not in str(refused.value)
    assert "'rank' begins" not in str(refused.value)
    assert "3 items" in examine_file(file).facts["slates"]["lines"][0]
    with pytest.raises(UserError, match=r"leave out copies \(--deduplicate\)"):
        answered(pd.concat([data.drop(index=4), data.loc[[3]]]), file)


def test_one_item_per_row_is_as_before(file):
    """A session with single items one after another, and a key of one row, are no slates."""
    rng = np.random.default_rng(0)
    n = 400
    data = pd.DataFrame({
        "session_id": np.repeat(np.arange(80), 5), "impression_id": np.arange(n), "position": rng.integers(1, 4, n),
        "item_id": rng.integers(0, 4, n), "click": rng.integers(0, 2, n), "pscore": 0.25, "new": 0.25,
    })  # fmt: skip
    assert {each["estimator"] for each in answered(data, file).records} == {"ips", "snips"}
    assert examine_file(file).facts["slates"] is None
    with pytest.raises(UserError, match="--assumption cascade is about slates"):
        recsim_mnar.estimate_file(file, "new", assumption="cascade")


def test_slates_can_be_read_as_single_items(house, file):
    found = answered(per_position(house, "marginal", generic=True), file, columns={"slate": "none"})
    assert {each["estimator"] for each in found.records} == {"ips", "snips"}


def test_slates_without_a_recognised_column_are_no_silent_single_items(house, file):
    data = per_position(house, "marginal", generic=True)

    def doubts(data, **asked):
        found = answered(data, file, propensity_min=0.02, **asked)
        assert found.records[0]["verdict_level"] != "trust"
        return [each["action"] for each in found.records[0]["findings"] if each["code"] == "perhaps_slates"]

    unnamed = data.rename(columns={"impression_id": "foo"})
    assert doubts(unnamed) == [
        "name it with --slate-column NAME, or state --slate-column none, if each row is a single item"
    ]
    assert examine_file(file).has("perhaps_slates")
    assert doubts(data.drop(columns="rank"))[0].startswith("name it with --position-column NAME, or")
    several = per_position(house, "marginal", "slate", "set").drop(columns=["rank", "impression_id"])
    assert doubts(several, columns={"propensity": "marginal_prob"})[0].startswith(
        "name it with --slate-column NAME, or"
    )
    single = answered(unnamed, file, columns={"slate": "none"}).records[0]
    assert "perhaps_slates" not in codes(single)
    named = recsim_mnar.estimate_file(file, "new", columns={"slate": "foo"}, propensities_of="position")
    same(named.records, ours(house, "marginal"))


@pytest.mark.parametrize("option", [{"by": "item_id"}, {"refute": True}, {"estimators": ["dr"]}, {"baseline": "other"}])
def test_what_is_of_single_items_is_refused(house, file, option):
    with pytest.raises(UserError) as refused:
        answered(per_position(house, "marginal"), file, **option)
    assert "\n" not in str(refused.value)


def run(capsys, *words, status=0):
    found, out, err = commands.run(capsys, *words)
    assert found == status, err
    return out + err


def test_from_doctor_to_estimate(house, tmp_path, capsys):
    """The line that doctor prints runs as it stands, and says what each estimator assumes."""
    file = tmp_path / "log.parquet"
    pq.write_table(
        pa.Table.from_pandas(per_slate(house, "conditional", list).rename(columns={"new": "new_pscore"})), file
    )
    said = run(capsys, "doctor", file, "--propensities-of", "conditional")
    assert "one row per slate: 1,000 slates of 3 items" in said
    assert "the item, given the items above it" in said
    line = next(line.strip() for line in said.splitlines() if line.startswith("  recsim-mnar estimate"))
    said = run(capsys, *shlex.split(line)[1:], "--json", tmp_path / "out.json", "--out", tmp_path / "page")
    assert "slate_ips assumes nothing about users" in said
    assert "reward_interaction_ips assumes that a click depends on the item, its position and the items above" in said
    records = json.loads((tmp_path / "out.json").read_text())
    assert breaches(records, SCHEMA, SCHEMA) == []
    assert {each["diagnostics"]["assumption"]["premise"] for each in records} == {"", "cascade"}
    assert {each["role"] for each in records} == {"target", "today", "difference"}


def test_a_plan_of_weights_is_of_single_items(house, file, capsys):
    per_position(house, "marginal").to_csv(file, index=False)
    said = run(capsys, "plan", "ab", file, "--lift", "5%", "--target", "new", status=2)
    assert "is a log of slates (one row per position): without --target" in said


@pytest.mark.parametrize("slate", ["impression_id", "foo"])
def test_the_test_that_doctor_plans_can_be_typed(house, tmp_path, file, capsys, slate):
    file, single = file, tmp_path / "single.csv"
    per_position(house, *KINDS).rename(columns={"impression_id": slate}).to_csv(file, index=False)
    named = {} if slate == "impression_id" else {"slate": slate}
    found = examine_file(file, Asked(targets=("new",), columns=named, propensities_of="position"))
    line = next(fit.line for fit in commands_for(found) if fit.command == "plan ab")
    said = run(capsys, *shlex.split(line)[1:])
    assert "250 users, 12 items shown in 4 slates each" in said
    assert "decisions" not in said
    per_position(house, "marginal", generic=True).drop(columns=["rank", "impression_id"]).to_csv(single, index=False)
    plan = plan_ab(file, "5%", columns=named)
    assert plan.slates_a_user == PER_USER
    assert plan.users == plan_ab(single, "5%").users


def test_simulate_replay_estimate(tmp_path, capsys):
    settings = ["--set", "slate_size=3", "--set", "n_items=8", "--quiet"]
    logging = ("--users", 60, "--policy", "user-popularity+epsilon=0.5", "--out", tmp_path / "run")
    run(capsys, "simulate", *settings, *logging)
    run(capsys, "simulate", *settings, "--users", 40, "--seed", 1, "--policy", "random", "--out", tmp_path / "train")
    run(capsys, "replay", tmp_path / "run", "--policy", "random,popularity", "--train", tmp_path / "train", "--out",
        tmp_path / "replayed.parquet", "--quiet")  # fmt: skip
    table = pq.read_table(tmp_path / "replayed.parquet").to_pandas()
    shown = table[table.event == "bandit"]
    np.testing.assert_allclose(shown["random"], 1 / 8)
    np.testing.assert_allclose(shown["random_conditional"], 1 / (8 - shown["position"]))
    np.testing.assert_allclose(shown["random_slate"], 1 / (8 * 7 * 6))
    # popularity is no uniform policy, so its items' propensities are not those of single choices
    assert np.allclose(shown.groupby(["user", "slate"]).popularity_conditional.prod().dropna(),
                       shown.groupby(["user", "slate"]).popularity_slate.first().dropna())  # fmt: skip
    made = recsim_mnar.read_log(tmp_path / "replayed.parquet").provenance
    assert made["fitted_on"]["policies"] == ["popularity"]  # random is fitted on nothing
    assert made["propensity_min"] == pytest.approx(0.5 / 8)
    said = run(capsys, "estimate", tmp_path / "replayed.parquet", "--target", "random", "--baseline", "today")
    assert "slate_ips assumes nothing about users" in said
    columns = {name: shown[name].to_numpy() for name in shown if name not in ("event", "item")}
    columns |= {"user": shown["user"].to_numpy()}
    found = recsim_mnar.estimate_file(tmp_path / "replayed.parquet", "random")
    for each in found.records:
        value = estimate_ranking_value(columns, "random", estimators=each["estimator"])[each["estimator"]].value
        assert each["value"] == pytest.approx(value, rel=1e-12)


def test_replay_of_an_own_log_of_slates(tmp_path, capsys):
    """The same probabilities as of the log that it was made of."""
    settings = ["--set", "slate_size=3", "--set", "n_items=8", "--quiet"]
    run(capsys, "simulate", *settings, "--users", 60, "--policy", "random", "--out", tmp_path / "run")
    log = recsim_mnar.read_log(tmp_path / "run")
    shown = log.is_bandit
    pd.DataFrame({
        "user_id": log["user"], "event": np.where(shown, "recommendation", "view"), "ts": log["time"],
        "request_id": np.where(shown, log["user"] * 10_000 + log["slate"], -1).astype(str),
        "position": np.where(shown, log["position"], 0), "item_id": np.where(shown, log["action"], log["item"]),
        "clicks": np.where(shown, log["reward"], 0.0), "marginal_prob": np.where(shown, log["propensity"], 1.0),
    }).to_csv(tmp_path / "own.csv", index=False)  # fmt: skip
    policy = "user-popularity+epsilon=0.5"
    for source, out in ((tmp_path / "run", "ours.parquet"), (tmp_path / "own.csv", "own.parquet")):
        run(capsys, "replay", source, "--policy", policy, "--items", 8, "--out", tmp_path / out, "--quiet")
    one, other = (pq.read_table(tmp_path / name).to_pandas() for name in ("ours.parquet", "own.parquet"))
    for name in ("slate", "position", policy, f"{policy}_conditional", f"{policy}_slate", f"{policy}_set"):
        np.testing.assert_allclose(one[name].astype(float), other[name].replace(-1, np.nan).astype(float), rtol=1e-12)


AGENT = """
from recsim_mnar.policies import ExploringTopK, registry

class Top:
    def fit(self, log, *, n_items, seed):
        return ExploringTopK(registry.learner("random").fit(log, n_items=n_items, seed=seed), 3, 0.2)
"""


def test_an_agent_that_ranks_in_its_own_way(tmp_path, capsys, monkeypatch):
    (tmp_path / "my_ranking.py").write_text(AGENT)
    monkeypatch.syspath_prepend(tmp_path)
    for size in (3, 2):
        run(capsys, "simulate", "--set", f"slate_size={size}", "--set", "n_items=8", "--quiet", "--users", 20,
            "--policy", "random" if size == 2 else "my_ranking:Top", "--out", tmp_path / f"run{size}")  # fmt: skip
    words = ("--policy", "my_ranking:Top", "--quiet", "--out")
    run(capsys, "replay", tmp_path / "run3", *words, tmp_path / "replayed.parquet")
    table = pq.read_table(tmp_path / "replayed.parquet").to_pandas()
    shown = table[table.event == "bandit"]
    np.testing.assert_allclose(shown["my_ranking:Top_slate"], shown["slate_propensity"], rtol=1e-12)
    said = run(capsys, "replay", tmp_path / "run2", *words, tmp_path / "no.parquet", status=2)
    assert "it ranks 3 items, the world shows 2" in said


# ------------------------------------------------------------------------------ answers, advice, names of estimators


def lead(found):
    """The sentence of an answer, which is two at most."""
    said, following = found.sentence.text.split(" Next: ")
    assert ". " not in said, said
    assert ". " not in following, following
    return said


def test_a_clip_whose_bias_is_proved_is_not_used(house, file):
    found = answered(per_position(house, *KINDS), file, clip=1.1, estimators=["slate_ips"])
    assert found.records[0]["value"] < found.records[0]["low"]
    assert "bias_proved" in codes(found.records[0], "do_not_use")
    assert found.sentence.action == "raise the clip, or leave it out"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--option", "estimators=dr"), "of single items, and these are slates"),
        (("--protocols", "off_policy+estimators=slate_ips/ips"), "of single items, and these are slates"),
        (("--option", "estimators=cascade_dr"), "needs q_logged, which a comparison does not have"),
    ],
)
def test_estimators_of_a_comparison_are_checked_before_it_simulates(tmp_path, capsys, words, said):
    error = run(capsys, "compare", "--preset", "quick", "--set", "slate_size=3", *words, "--out", tmp_path, status=2)
    assert said in error
    assert "simulate" not in error


def test_a_comparison_takes_estimators_of_slates(tmp_path, capsys):
    few = {"test_users": 60, "train_users": 60, "truth_users": 60, "estimators": "set_ips,slate_snips,slate_ips"}
    words = [word for name, value in few.items() for word in ("--option", f"{name}={value}")]
    words += ["--set", "slate_size=2", "--set", "n_items=5", "--set", "n_flips=0", "--protocols", "off_policy"]
    words += ["--agents", "random,popularity"]
    run(capsys, "compare", *words, "--json", tmp_path / "found.json", "--out", tmp_path / "run", "--quiet")
    records = json.loads((tmp_path / "found.json").read_text())["records"]
    found = {each["metric"]: each["details"] for each in records if each["protocol"] == "off_policy"}
    assert set(found) == {"set_ips", "slate_snips", "slate_ips", "dcg"}
    assert found["slate_ips"]["clip"] == 15.0
    assert found["slate_snips"].get("clip") is None


def test_an_assumption_is_said_once_and_no_line_twice(house, file, capsys):
    found = answered(
        per_position(house, "marginal", "slate"),
        file,
        estimators=["independent_ips"],
        full_support=True,
        weight_max=50.0,
    )
    assert len(lead(found).split()) < 40
    said = run(capsys, "estimate", file, "--target", "new", "--estimators", "independent_ips")
    assert said.count("a click depends on the item and its position") == 1
    assert [line.count("the probability of the item at its position") for line in found.found.lines].count(1) == 1


def test_what_is_stated_of_propensities_and_denied_is_what_to_change(house, file):
    # Too few slates for arithmetic to say what propensities are of.
    found = answered(per_position(house, "slate", generic=True)[: 400 * K], file, propensities_of="position")
    assert "propensities of item i" in found.sentence.text
    assert found.sentence.action == "state another --propensities-of: the numbers deny 'position'"


def test_todays_policy_is_not_to_be_compared_with_itself(house, file):
    found = answered(
        per_position(house, "marginal", generic=True),
        file,
        "pscore",
        columns={"propensity": "pscore"},
        propensities_of="position",
    )
    assert found.sentence.action == "compare a new policy with it (--target COLUMN --baseline today)"


def test_slates_of_a_user_are_in_the_order_of_their_numbers_in_whatever_order_rows_stand(house, file):
    data = per_position(house, *KINDS)
    found = []
    for seed in (None, 1):
        answer = answered(data if seed is None else data.sample(frac=1, random_state=seed), file)
        found.append({r["estimator"]: r["diagnostics"]["assumption"]["clicks_after_click"] for r in answer.records})
        assert not any("no column has times" in line for line in answer.found.lines)
    for name, limits in found[0].items():
        assert found[1][name] == pytest.approx(limits, rel=1e-9)
    data["impression_id"] = [each.replace("1", "a") for each in data["impression_id"]]
    lines = answered(data, file).found.lines
    assert "no column has times: the slates of a user are taken in the order of the file" in lines


def test_at_the_top_nothing_is_above(house, file):
    data = per_position(house, *KINDS)
    exchanged = data.assign(new=np.roll(data["new"], K))
    for wrong, names in (
        (data.assign(rank=K + 1 - data["rank"]), "'conditional_prob' is not 'marginal_prob' at the top"),
        (exchanged, "'new_conditional' is not 'new' at the top"),
    ):
        with pytest.raises(UserError, match=names):
            answered(wrong, file)


def test_names_of_open_bandit_pipeline_are_refused_with_those_to_write(file):
    """Two rankings of two items; the value of the second policy is known by hand once the columns are renamed."""
    rng = np.random.default_rng(1)
    order = rng.random(400) < 0.7
    rows = []
    for slate, first in enumerate(order):
        for place, item in enumerate((0, 1) if first else (1, 0)):
            logged, new = (0.7, 0.4) if first else (0.3, 0.6)
            rows.append((slate, place, item, int(rng.random() < 0.2 + 0.3 * item), logged, logged, new, new))
    names = "slate_id position action reward pscore pscore_item_position evaluation_policy_pscore "
    frame = pd.DataFrame(rows, columns=[*names.split(), "evaluation_policy_pscore_item_position"])
    for target in ("evaluation_policy_pscore", "evaluation_policy_pscore_item_position"):
        with pytest.raises(UserError) as caught:
            answered(frame, file, target)
        assert caught.value.code == "unclear_propensities"
    frame.columns = [*names.split()[:4], "slate_pscore", "position_pscore", "new_slate", "new"]
    records = answered(frame, file).records
    (slate_ips,) = [record for record in records if record["estimator"] == "slate_ips"]
    by_hand = (frame.new_slate / frame.slate_pscore * frame.reward).sum() / len(frame)
    assert slate_ips["value"] == pytest.approx(by_hand)

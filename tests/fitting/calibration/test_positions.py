"""Examination relative to the first place: unbiased, with intervals that cover, or declared unidentified with why."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli
from recsim_mnar.fitting import calibration
from recsim_mnar.fitting.calibration import FittedWorld, calibrate_world
from recsim_mnar.fitting.members import transitions_of
from recsim_mnar.fitting.positions import SlateFit, decisions_of, examination, slates_of
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.sources import read_to_fit
from recsim_mnar.policies import registry
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import refused, untrained

EXPONENT = 0.8


def log_of(policy, users=300, seed=1, n_items=12, **params):
    given = {"n_factors": 2, "sigma_mu_organic": 1.0, "sigma_omega": 0.03, "click_link": "logistic", "slate_size": 4}
    leaves = {"p_leave_organic": 0.03, "p_leave_bandit": 0.03, "examination": EXPONENT}
    world = SessionsWorld(SessionsParams(n_items=n_items, **{**given, **leaves, **params}))
    known = simulate(
        SessionsWorld(SessionsParams(n_items=n_items, n_factors=2, sigma_mu_organic=1.0)), uniform(n_items), 100, 7
    )
    return simulate(world, registry.learner(policy).fit(known, n_items=n_items, seed=0), users, seed)


def uniform(n_items=12):
    return untrained("random", n_items)


@pytest.fixture(scope="module")
def explored():
    return log_of("user-popularity+epsilon=0.2")


@pytest.fixture(scope="module")
def fitted(explored):
    return calibrate_world(explored, seed=1, ensemble=4)


def slates_of_users(columns, k):
    """A log of one slate of k items per user."""
    position = np.tile(np.arange(k), len(columns["action"]) // k)
    user = np.arange(len(position)) // k
    zeros = np.zeros(len(position), int)
    return Log(
        {"user": user, "step": position, "time": zeros, "event": zeros + 1, "slate": zeros, "position": position}
        | columns
    )


def shuffled(n=4000, k=3, orders=6, exponent=1.0, n_items=9):
    """Columns of slates of each user's own k items of n, in any order or (``orders``=2) with the first two swapped."""
    u = np.stack([uniforms(0, Stream.PROTOCOL, np.arange(n), i) for i in range(2 + k)])
    offset = np.floor(u[0] * (n_items // k)).astype(int) * k
    permutations = np.array([[0, 1, 2], [1, 0, 2], [0, 2, 1], [2, 0, 1], [1, 2, 0], [2, 1, 0]])
    action = offset[:, None] + permutations[np.floor(u[1] * orders).astype(int)]
    p = np.full((n, k), 1 / k) if orders == 6 else np.tile([0.5, 0.5, 1 - 1e-6], (n, 1))
    chance = 0.9 * (1 + action % k) / k * np.arange(1, k + 1.0) ** -exponent
    columns = {
        "action": action.ravel(),
        "propensity": p.ravel(),
        "reward": (chance > u[2:].T).astype(float).ravel(),
        "slate_propensity": np.full(n * k, 1 / orders),
        "set_propensity": np.ones(n * k),
    }
    return slates_of_users(columns, k)


def test_by_hand():
    """Two items, two places, the better item on top in 3 of 4 slates: each place's weighted clicks, one by one."""
    top = np.array([0, 0, 0, 1] * 100)
    action = np.stack([top, 1 - top], axis=1).ravel()
    p = np.where(action == np.tile([0, 1], 400), 0.75, 0.25)
    reward = np.tile([1, 0, 1, 1, 1, 0, 1, 1], 100).astype(float)
    found = examination(slates_of_users({"action": action, "propensity": p, "reward": reward}, 2))
    first = (3 / 0.75 + 1 / 0.25) / (3 / 0.75 + 1 / 0.25)
    second = (1 / 0.75 + 1 / 0.25) / (3 / 0.75 + 1 / 0.25)
    assert found.relative.tolist() == pytest.approx([1.0, second / first])
    assert found.plain.tolist() == [1.0, 0.5]
    assert found.exponent == pytest.approx(-math.log2(second))
    assert math.isnan(found.p_power)


def test_place_and_item_are_told_apart(explored):
    """The agent puts on top what its user likes: plain rates are far off, weighted ones are not."""
    found, truth = examination(explored), np.arange(1, 5.0) ** -EXPONENT
    assert found.identified
    assert ((found.low <= truth) & (truth <= found.high)).all()
    assert (found.plain[1:] < found.low[1:]).all()
    assert found.p_same < 1e-6
    assert found.exponent_low < EXPONENT < found.exponent_high


def test_where_places_do_not_matter_only_items_do():
    found = examination(log_of("user-popularity+epsilon=0.2", examination=0.0))
    assert (found.plain[1:] < found.low[1:]).all()
    assert found.p_same > 0.01
    assert found.exponent_low < 0.0 < found.exponent_high


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize("policy", ["random", "popularity+epsilon=0.2", "user-popularity+epsilon=0.2"])
def test_unbiased_and_covered(policy):
    """200 logs: biases within 4 standard errors, coverage of 90 % intervals within 4 of its own."""
    truth, n = np.arange(1, 5.0) ** -EXPONENT, 200
    every = [examination(log_of(policy, 250, 1000 + seed)) for seed in range(n)]
    every = [each for each in every if np.isfinite(each.relative).all()]
    assert len(every) > 0.95 * n
    n = len(every)
    for value, low, high, true in (
        *((
            np.log([each.relative[j] for each in every]), np.log([each.low[j] for each in every]),
            np.log([each.high[j] for each in every]), math.log(truth[j]),
        ) for j in (1, 2, 3)),
        (*(np.array([getattr(each, "exponent" + end) for each in every]) for end in ("", "_low", "_high")), EXPONENT),
    ):  # fmt: skip
        # The logarithm of a mean is low by half of its variance.
        bias, variance = value.mean() - true, value.var(ddof=1)
        assert abs(bias) < 4 * math.sqrt(variance / n) + variance
        covered = np.mean((low <= true) & (true <= high))
        assert covered > 0.9 - 4 * math.sqrt(0.9 * 0.1 / n)
    denied = np.mean([each.p_power < 0.05 for each in every])
    assert denied < 0.05 + 4 * math.sqrt(0.05 * 0.95 / n)


@pytest.mark.slow
@pytest.mark.verify
def test_of_cascade_users_it_is_the_mean_under_the_logger():
    """Weighted looks, which the world knows, against what clicks give: 40 logs, within four standard errors."""
    params = SessionsParams(n_items=12, n_factors=2, slate_size=4, user_model="cascade", click_link="logistic")
    world, apart = SessionsWorld(params), []
    for seed in range(40):
        log = simulate(world, uniform(), 300, seed, keep_truth=True)
        rows = slates_of(log)
        truth, found = log["click_probability"][rows].mean(axis=0), examination(log)
        apart.append(np.log(found.relative[1:] / (truth[1:] / truth[0])))
    mean, error = np.mean(apart, axis=0), np.std(apart, axis=0, ddof=1) / math.sqrt(40)
    assert (np.abs(mean) < 4 * error).all()


def test_shuffled_lists_identify_and_swapped_ones_do_not():
    found = examination(shuffled())
    assert found.identified
    assert found.exponent_low < 1.0 < found.exponent_high
    swapped = examination(shuffled(orders=2))
    assert "show about 2 of 9 items" in swapped.why
    assert np.isnan(swapped.relative).all()


def test_unidentified_in_one_sentence(explored):
    sure = examination(log_of("popularity", 60))
    assert sure.why == "given the context items do not change places: the logged propensities are 1"
    missing = explored.with_column("propensity", np.full(len(explored), np.nan))
    assert examination(missing).why == "propensities of items at their places are missing"
    few = examination(explored.select(explored["user"] < 12))
    assert "uneven" in few.why or "effective" in few.why
    assert not few.identified


def test_a_peaked_policy_is_not_taken_for_a_random_one():
    found = examination(log_of("svd+temperature=1", 150))
    assert not found.identified


def test_slates_that_are_none(explored):
    assert slates_of(explored.organic()) is None
    rows = slates_of(explored)
    assert rows.shape[1] == 4
    for name in ("slate", "position"):
        lacking = Log({k: v for k, v in explored.columns.items() if k != name})
        with refused(f"none of {name}: which rows are one decision"):
            calibrate_world(lacking)
    cut = np.ones(len(explored), bool)
    cut[rows[7, 2]] = False
    with refused(f"row {rows[7, 2]}: slates must be whole and of one size, here 4"):
        slates_of(explored.select(cut))
    with refused("slates must be whole"):
        slates_of(explored.select(np.arange(rows[-1, -1])))
    with refused("no slates"):
        examination(explored.organic())


def test_a_slate_is_one_decision(explored):
    """Counted by hand, and as a log of single items whose click is any click of the slate."""
    rows = slates_of(explored)
    decided = decisions_of(explored, rows)
    assert len(decided) == (~explored.is_bandit).sum() + len(rows)
    assert decided["reward"][decided.is_bandit].tolist() == explored["reward"][rows].max(axis=1).tolist()
    found, last = transitions_of(decided), {}
    after = np.zeros((3, 3), int)
    for user, slate, event, reward in zip(
        *(explored[name].tolist() for name in ("user", "slate", "event", "reward")), strict=True
    ):
        if event and last.get(user, (0, -1))[1] == slate:
            last[user] = (max(last[user][0], 1 + (reward > 0)), slate)
            continue
        if user in last:
            after[last[user][0], event] += 1
        last[user] = (1 + (reward > 0), slate) if event else (0, -1)
    for kind, _ in last.values():
        after[kind, 2] += 1
    assert [found.organic.tolist(), found.bandit.tolist(), found.clicked.tolist()] == after.tolist()


def test_a_world_of_slates_is_fitted(fitted, explored, tmp_path):
    params = fitted.params
    assert (params.slate_size, params.user_model, params.clicks) == (4, "position", "several")
    known = fitted.identified
    assert params.examination == known["examination"]["value"]
    assert known["examination"]["low"] < EXPONENT < known["examination"]["high"]
    assert known["examination_at_2"]["low"] < 2**-EXPONENT < known["examination_at_2"]["high"]
    assert known["clicks_per_slate"]["low"] <= known["clicks_per_slate"]["value"] <= known["clicks_per_slate"]["high"]
    assert known["p_leave_organic"]["value"] == pytest.approx(0.03, rel=0.25)
    rows = slates_of(explored)
    unclicked = (explored["reward"][rows] == 0).all(axis=1).sum()
    assert abs(known["p_bandit_to_organic"]["value"] - 0.05) < 4 * math.sqrt(0.05 * 0.95 / unclicked) + 1 / unclicked
    assert fitted.facts["recommendations"] == len(rows)
    assert "only its product with click probabilities" in fitted.not_identified["examination_level"]["why"]
    exponents = [member.examination for member in fitted.ensemble]
    assert len(set(exponents)) == 4
    again = FittedWorld.load(fitted.save(tmp_path / "w.toml").path)
    log = simulate(again.make(), uniform(), 20, 0)
    assert log["position"].max() == 3


@pytest.mark.slow
def test_click_probabilities_are_those_of_a_look(explored, fitted):
    """Clicks of the first place, and of all, by the fit as in the log."""
    rows = slates_of(explored)
    world, users = fitted.make(), len(np.unique(explored["user"]))
    rate = explored["reward"][rows].mean(axis=0)
    again = simulate(world, untrained("random", 12), users, 9)
    direct = log_of("random", users, 5)
    (first, n), (second, m) = ((clicks.mean(axis=0), len(clicks)) for clicks in (
        each["reward"][slates_of(each)] for each in (again, direct)))  # fmt: skip
    # Rows of a user are alike: twice the error of rows that are not.
    assert (np.abs(first - second) < 4 * 2 * np.sqrt(second * (1 - second) * (1 / n + 1 / m))).all()
    assert fitted.facts["click_rate_of_log"][0] == pytest.approx(rate.mean())


@pytest.mark.slow
def test_of_a_long_log_whole_slates_are_taken(explored, fitted, monkeypatch):
    """A stride over rows could take the same place of each slate."""
    monkeypatch.setattr(calibration, "_MOST_RECOMMENDATIONS", len(slates_of(explored)))
    fewer = calibrate_world(explored, seed=1, ensemble=0)
    of_all, of_some = (each.facts["click_rate_of_log"] for each in (fitted, fewer))
    assert of_some[0] != of_all[0]
    assert abs(of_some[0] - of_all[0]) < 4 * of_some[1]


def test_a_member_with_another_exponent_keeps_the_logs_clicks(explored, fitted):
    """Offsets follow the exponent: without that the members' click rates would not."""
    rates = np.array([np.arange(1, 5.0) ** -p.examination for p in fitted.ensemble]).mean(axis=1)
    clicks = np.array([fitted.make(i).click_probabilities(np.zeros((1, 2)))[0] for i in range(4)])
    of_log = clicks.mean(axis=1) * rates
    assert np.ptp(of_log) / of_log.mean() < 0.15


def test_where_it_is_not_identified_the_default_is_kept():
    found = calibrate_world(log_of("user-popularity"), ensemble=1)
    assert found.params.examination == SessionsParams.examination
    assert found.not_identified["examination"]["used"] == SessionsParams.examination
    assert "the log does not say" in found.not_identified["examination"]["why"]
    assert not any(name.startswith("examination") for name in found.identified)


def test_what_is_assumed(explored):
    found = calibrate_world(explored, ensemble=2, assume={"examination": 0.5, "clicks": "one"})
    assert [p.examination for p in (found.params, *found.ensemble)] == [0.5] * 3
    assert found.not_identified["examination"] == {
        "used": 0.5,
        "why": "exponent x of j^-x, how often place j is looked at relative to the first: assumed, as asked",
    }
    assert found.params.clicks == "one"
    rows = slates_of(explored)
    assert SlateFit.of(explored, rows, 12, {"user_model": "independent"}).exponent == 0.0
    with refused("the log's slates have 4 items: leave it out"):
        calibrate_world(explored, assume={"slate_size": 3})
    with refused("position or independent users"):
        calibrate_world(explored, assume={"user_model": "cascade"})


def test_clicks_are_one_where_no_slate_has_two():
    log = log_of("random", 60, clicks="one")
    places = SlateFit.of(log, slates_of(log), 12, {})
    assert places.clicks == "one"
    few = log.select(log["user"] < 1)  # and all its clicks but those of the first place of the first slate are gone
    few = few.with_column(
        "reward", np.where(few.is_bandit & (np.arange(len(few)) > slates_of(few)[0, 0]), 0.0, few["reward"])
    )
    assert SlateFit.of(few, slates_of(few), 12, {}).clicks is None


@pytest.mark.slow
def test_slates_of_one_item_are_no_slates(small_log):
    """The same bytes as without the columns."""
    shown = small_log.is_bandit
    number = np.where(shown, np.cumsum(shown) - 1, -1)
    with_columns = small_log.with_column("slate", number).with_column("position", np.where(shown, 0, -1))
    plain, other = (calibrate_world(log, ensemble=1, seed=1).to_dict() for log in (small_log, with_columns))
    assert plain == other
    assert not any("examination" in name for name in (*plain["identified"], *plain["not_identified"]))


def test_command(explored, tmp_path):
    explored.write(tmp_path / "log")
    done = CliRunner().invoke(
        cli, ["calibrate", str(tmp_path / "log"), "--ensemble", "1", "--out", str(tmp_path / "w.toml"), "--json", "-"]
    )
    assert done.exit_code == 0, done.output
    assert '"examination_at_2"' in done.output
    said = CliRunner().invoke(
        cli, ["calibrate", str(tmp_path / "log"), "--ensemble", "1", "--out", str(tmp_path / "v.toml")]
    )
    assert "examination_at_2" in said.output
    assert "each one decision" in said.output
    assert "examination_level" in said.output


@pytest.mark.parametrize("names", [("slate", "position"), ("slate_id", "rank")])
def test_a_table_of_ones_own_is_read_as_slates(explored, tmp_path, names):
    """By whatever names the columns of slates go; as the log itself is read."""
    columns = {
        name: explored.bandit()[name] for name in ("user", "action", "reward", "propensity", "slate", "position")
    }
    renamed = dict(zip(("slate", "position"), names, strict=True)) | {"propensity": "position_propensity"}
    table = pd.DataFrame(columns).rename(columns=renamed)
    table.to_csv(tmp_path / "own.csv", index=False)
    read = read_to_fit(tmp_path / "own.csv").log
    assert slates_of(read).shape == slates_of(explored).shape
    assert (read["reward"] == explored.bandit()["reward"]).all()
    assert examination(read).relative == pytest.approx(examination(explored).relative)


def test_one_row_per_slate_is_refused(tmp_path):
    rows = "".join(f'{u},"[""i{u % 7}"", ""i{u % 5 + 7}""]",{u % 2},.02\n' for u in range(200))
    (tmp_path / "own.csv").write_text("user,items,clicks,slate_prob\n" + rows)
    done = CliRunner().invoke(cli, ["calibrate", str(tmp_path / "own.csv"), "--out", str(tmp_path / "w.toml")])
    assert done.exit_code != 0
    assert "has one row per slate: give one row per position" in str(done.exception)

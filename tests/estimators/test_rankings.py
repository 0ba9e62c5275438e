"""Estimators of policies that rank: exact means by enumeration, plain twins, verdicts on users, and bad input."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.ranking_records import PREMISES, read_log
from recsim_mnar.estimators.rankings import (
    RANKING_ESTIMATORS,
    estimate_ranking_value,
    heavy_tail,
)
from recsim_mnar.estimators.repeats import click_facts, items_below
from recsim_mnar.estimators.verdict import for_command
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay_ranking
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins import rankings as plain
from twins.findings import codes, doubts, finding

M, K = 4, 3
LOGGERS = {
    "uniform": plain.uniform(M, K),
    "plackett-luce": plain.plackett_luce((3.0, 1.0, 2.0, 0.5), K),
    "epsilon": plain.mixed(plain.plackett_luce((9.0, 1.0, 3.0, 0.2), K), 0.3),
}
TARGET = plain.plackett_luce((0.4, 2.0, 1.0, 3.0), K)
USERS = ("independent", "position", "cascade", "crowd")
HOLDS = {
    "slate_ips": USERS,
    "set_ips": ("independent", "crowd"),
    "independent_ips": ("independent", "position"),
    "reward_interaction_ips": ("independent", "position", "cascade"),
    "cascade_dr": ("independent", "position", "cascade"),
    "pseudo_inverse": ("independent", "position"),
    "adaptive_ips": USERS,
}
BEHAVES = {"independent": "independent", "position": "independent", "cascade": "cascade", "crowd": "whole"}
HAND_MODEL = np.linspace(0.1, 0.9, K * M).reshape(K, M)


def law_of(logger):
    """A function of a context for the pseudo-inverse."""
    rankings = list(logger)
    return lambda _: (rankings, [logger[r] for r in rankings], [TARGET[r] for r in rankings])


def model_of(rankings):
    """q_logged and q_target of a fixed, wrong model of clicks by item and position."""
    logged, mean = [], []
    for ranking in rankings:
        for j, item in enumerate(ranking):
            logged.append(HAND_MODEL[j, item])
            begins = {r: p for r, p in TARGET.items() if r[:j] == tuple(ranking[:j])}
            mean.append(sum(p * HAND_MODEL[j, r[j]] for r, p in begins.items()) / sum(begins.values()))
    return np.array(logged), np.array(mean)


def expectations(user, logger, position_weights="mean"):
    """The exact mean of each estimator: every ranking and every vector of clicks, at its probability."""
    worlds = [(ranking, *each) for ranking in logger for each in plain.clicks(user, ranking)]
    rankings, vectors, chances = zip(*worlds, strict=True)
    share = np.repeat([logger[r] * p * len(worlds) for r, p in zip(rankings, chances, strict=True)], K)
    log = plain.log_of(rankings, vectors, logger, TARGET, np.arange(len(worlds)))
    log["reward"] = log["reward"] * share  # a mean over these rows is the expectation
    logged, mean = model_of(rankings)
    found = estimate_ranking_value(
        log,
        "new",
        position_weights=position_weights,
        q_logged=logged * share,
        q_target=mean * share,
        behaviour=BEHAVES[user],
        logger=law_of(logger),
    )
    return {name: each.value for name, each in found.items()}


def companions(user, logger, kind):
    """What an estimator of a kind tends to, from its definition: the target's law of a part, the log's of the rest."""
    total = 0.0
    parts = {
        "marginal": lambda r, j: (j, r[j]),
        "cumulative": lambda r, j: r[: j + 1],
        "set": lambda r, j: frozenset(r),
    }[kind]
    for j in range(K):
        clicks, logged, aimed = {}, {}, {}
        for ranking, p in logger.items():
            part = parts(ranking, j)
            logged[part] = logged.get(part, 0.0) + p
            clicks[part] = clicks.get(part, 0.0) + p * plain.mean_clicks(user, ranking)[j]
            aimed[part] = aimed.get(part, 0.0) + TARGET[ranking]
        total += sum(aimed[part] * clicks[part] / logged[part] for part in logged)
    return total / K


def linear_fit(user, logger):
    """The pseudo-inverse's mean: the log's best sum over items and positions, at the target."""
    rankings = list(logger)
    hot = np.zeros((len(rankings), K * M))
    for row, ranking in zip(hot, rankings, strict=True):
        row[[j * M + item for j, item in enumerate(ranking)]] = 1.0
    root = np.sqrt([logger[r] for r in rankings])
    means = np.array([np.mean(plain.mean_clicks(user, r)) for r in rankings])
    fitted = np.linalg.lstsq(root[:, None] * hot, root * means, rcond=None)[0]
    return float(np.array([TARGET[r] for r in rankings]) @ hot @ fitted)


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("logger", LOGGERS)
def test_means_are_exact_where_the_assumption_holds_and_as_stated_where_not(user, logger):
    law = LOGGERS[logger]
    truth = plain.value(user, TARGET, [1 / K] * K)
    tends = {"independent_ips": "marginal", "set_ips": "set"}
    tends |= dict.fromkeys(("reward_interaction_ips", "cascade_dr"), "cumulative")
    found = expectations(user, law)
    assert set(found) == set(HOLDS)
    for name, value in found.items():
        if user in HOLDS[name]:
            assert value == pytest.approx(truth, abs=1e-12), name
        elif name == "pseudo_inverse":
            assert value == pytest.approx(linear_fit(user, law), abs=1e-12)
        else:
            assert value == pytest.approx(companions(user, law, tends[name]), abs=1e-12), name
    if logger == "epsilon":  # elsewhere symmetry may hide a bias
        wrong = [name for name in found if user not in HOLDS[name]]
        assert all(abs(found[name] - truth) > 1e-4 for name in wrong if name != "pseudo_inverse"), found


@pytest.mark.parametrize("name", ["clicks", "dcg", (0.5, 0.25, 0.125)])
def test_position_weights_are_those_of_the_sum(name):
    weights = {"clicks": [1.0] * K, "dcg": [1 / math.log2(2 + j) for j in range(K)]}.get(name, name)
    truth = plain.value("cascade", TARGET, weights)
    found = expectations("cascade", LOGGERS["epsilon"], name)
    for each in ("slate_ips", "reward_interaction_ips", "cascade_dr", "adaptive_ips"):
        assert found[each] == pytest.approx(truth, abs=1e-12), each
    assert ("set_ips" in found) == (name == "clicks")


def test_the_closed_forms_of_the_pseudo_inverse_are_those_of_enumeration():
    """Uniform without repetition, of some and of all items; and positions that are filled independently."""
    for m, k in ((4, 3), (3, 3), (5, 2)):
        law, aim = plain.uniform(m, k), plain.plackett_luce(tuple(range(1, m + 1)), k)
        rankings = list(law)
        log = plain.log_of(rankings, [(1,) + (0,) * (k - 1)] * len(rankings), law, aim, np.arange(len(rankings)))
        log["reward"] = np.linspace(0.0, 1.0, len(rankings) * k)
        inclusion = [sum(p for r, p in aim.items() if item in r) for ranking in rankings for item in ranking]
        closed = estimate_ranking_value(
            log, "new", estimators="pseudo_inverse", logger="uniform", n_items=m, inclusion=inclusion
        )

        def both(_, law=law, aim=aim, rankings=rankings):
            return rankings, [law[r] for r in rankings], [aim[r] for r in rankings]

        solved = estimate_ranking_value(log, "new", estimators="pseudo_inverse", logger=both)
        assert closed["pseudo_inverse"].value == pytest.approx(solved["pseudo_inverse"].value, abs=1e-10)
    chances, aims = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]]), np.array([[0.1, 0.6, 0.3], [0.3, 0.4, 0.3]])
    shown = np.array(list(itertools.product(range(3), repeat=2)))
    logging, target = ([float(np.prod(p[[0, 1], r])) for r in shown] for p in (chances, aims))
    log = {
        "reward": np.linspace(0, 1, shown.size),
        "position": np.tile([0, 1], len(shown)),
        "action": shown.ravel(),
        "propensity": chances[[0, 1], shown].ravel(),
        "new": aims[[0, 1], shown].ravel(),
    }
    closed = estimate_ranking_value(log, "new", estimators="pseudo_inverse", logger="independent")
    solved = estimate_ranking_value(log, "new", estimators="pseudo_inverse", logger=lambda _: (shown, logging, target))
    assert closed["pseudo_inverse"].value == pytest.approx(solved["pseudo_inverse"].value, abs=1e-10)


def drawn(user, logger="epsilon", n_users=200, slates=4, seed=3):
    return plain.drawn_log(np.random.default_rng(seed), user, LOGGERS[logger], TARGET, n_users, slates)


def by_hand(log, name, behaviour=None, model=None):
    """The estimate in plain Python, slate by slate."""
    n = len(log["reward"]) // K
    above, weights = 0.0, 0.0
    for s in range(n):
        rows = range(s * K, s * K + K)
        down = 1.0
        for j, row in enumerate(rows):
            before = down
            down *= log["new_conditional"][row] / log["conditional_propensity"][row]
            of_kind = {
                "slate": log["new_slate"][row] / log["slate_propensity"][row],
                "set": log["new_set"][row] / log["set_propensity"][row],
                "independent": log["new"][row] / log["propensity"][row],
                "reward_interaction": down,
            }
            kind = name.removesuffix("_ips").removesuffix("_snips")
            if name == "cascade_dr":
                logged, mean = model
                above += down * (log["reward"][row] - logged[row]) + before * mean[row]
                continue
            if name == "adaptive_ips":
                kind = {"whole": "slate", "cascade": "reward_interaction", "independent": "independent"}[behaviour[row]]
            above += of_kind[kind] * log["reward"][row]
            weights += of_kind[kind]
            assert j < K
    return above / (weights if name.endswith("snips") else n * K)


@pytest.mark.parametrize("name", [name for name in RANKING_ESTIMATORS if name != "pseudo_inverse"])
def test_plain_twins(name):
    log = drawn("cascade")
    behaviour = np.repeat(np.resize(["independent", "cascade", "whole"], len(log["reward"]) // K), K)
    model = model_of(log["action"].reshape(-1, K).tolist())
    given = {
        "adaptive_ips": {"behaviour": behaviour},
        "cascade_dr": dict(zip(("q_logged", "q_target"), model, strict=True)),
    }
    (found,) = estimate_ranking_value(log, "new", estimators=name, **given.get(name, {})).values()
    assert found.value == pytest.approx(by_hand(log, name, behaviour, model), rel=1e-12)
    assert found.low < found.value < found.high
    assert found.estimator == name
    assert json.loads(json.dumps(found.numbers(), allow_nan=False))["slates"] == 800


def test_a_clip_cuts_weights_and_the_interval_holds_what_it_hides():
    log = drawn("position")
    plain_one = estimate_ranking_value(log, "new", estimators="slate_ips")["slate_ips"]
    cut = estimate_ranking_value(log, "new", estimators=["slate_ips", "cascade_dr"], clip=2.0, **zeros(log))
    weight = np.minimum(log["new_slate"] / log["slate_propensity"], 2.0)
    assert cut["slate_ips"].value == pytest.approx(np.mean(weight * log["reward"]), rel=1e-12)
    assert cut["slate_ips"].diagnostics.clip_part > 0.0
    assert cut["cascade_dr"].value < plain_one.value


def zeros(log):
    """A reward model that says nothing."""
    return {"q_logged": np.zeros(len(log["reward"])), "q_target": np.zeros(len(log["reward"]))}


def test_rows_in_any_order_and_organic_ones_between():
    log = drawn("cascade", n_users=150)
    expected = estimate_ranking_value(log, "new")
    order = np.random.default_rng(0).permutation(len(log["reward"]))
    mixed = {name: np.r_[values[order], values[:5]] for name, values in log.items()}
    mixed["position"] = mixed["position"].astype(np.float64)
    mixed["position"][-5:] = np.nan
    mixed["propensity"][-5:] = np.nan
    for name, each in estimate_ranking_value(mixed, "new").items():
        assert (each.value, each.low, each.high) == pytest.approx(
            (expected[name].value, expected[name].low, expected[name].high), rel=1e-9
        )
        assert each.verdict.level == expected[name].verdict.level


def test_frames_and_tables_are_columns_too():
    log = drawn("cascade", n_users=120)
    expected = estimate_ranking_value(log, "new")["slate_ips"]
    for table in (pd.DataFrame(log), pa.table(log)):
        assert estimate_ranking_value(table, "new")["slate_ips"] == expected
    arrays = {"slate": log["new_slate"], "marginal": log["new"]}
    assert estimate_ranking_value(log, arrays, estimators="slate_ips")["slate_ips"].value == expected.value
    named = {name: values for name, values in log.items() if name != "user"} | {"shopper": log["user"].astype(str)}
    by_name = estimate_ranking_value(named, "new", cluster="shopper")["slate_ips"]
    by_array = estimate_ranking_value(named, "new", cluster=log["user"])["slate_ips"]
    assert (by_name.low, by_array.low) == pytest.approx((expected.low, expected.low), rel=1e-12)


# ---------------------------------------------------------------------------------------------------------- verdicts

KNOWN = {"full_support": True, "weight_max": 40.0}


def test_the_log_contradicts_what_cascade_users_break():
    found = estimate_ranking_value(drawn("cascade", n_users=1500), "new", **KNOWN)
    assert found["slate_ips"].trusted
    assert "clicks_after_click" in doubts(found["independent_ips"])
    assert "position_effect" in doubts(found["set_ips"])
    assert "assumption_contradicted" not in doubts(found["reward_interaction_ips"])
    said = found["independent_ips"].diagnostics.assumption
    assert set(said["differences"]) == {"reward_interaction_ips", "slate_ips"}
    assert said["clicks_after_click"][2] < 0.0
    assert said["position_effect"][2] < 0.0
    order = finding(found["independent_ips"], "clicks_after_click")
    value, low, high = said["clicks_after_click"]
    assert order.number == value
    assert f"{-value:.3g} [{-high:.3g}, {-low:.3g}] less" in order.message


def test_users_of_positions_contradict_the_order_alone():
    found = estimate_ranking_value(drawn("position", n_users=1500), "new", assumption="independent", **KNOWN)
    assert found["independent_ips"].trusted
    assert found["reward_interaction_ips"].trusted
    assert {"position_effect", "assumption_unstated"} <= doubts(found["set_ips"])
    low, high = found["slate_ips"].diagnostics.assumption["clicks_after_click"][1:]
    assert low < 0.0 < high


def test_crowds_contradict_what_looks_from_the_top():
    found = estimate_ranking_value(drawn("crowd", n_users=3000), "new", **KNOWN)
    assert "assumption_contradicted" in doubts(found["reward_interaction_ips"])
    assert "assumption_contradicted" in doubts(found["independent_ips"])
    assert "assumption_contradicted" not in doubts(found["set_ips"])
    another = drawn("crowd", n_users=3000, seed=4)  # one log in twenty objects to what is true
    stated = estimate_ranking_value(another, "new", assumption="unordered", **KNOWN)
    assert not doubts(stated["set_ips"]) & {"position_effect", "assumption_contradicted", "assumption_unstated"}


def hardly_shown(n_items=30, n_slates=600):
    """A uniform log of pairs that shows the target's items at their positions, but not its pair."""
    random = np.random.default_rng(5)
    shown = random.permuted(np.tile(np.arange(n_items), (n_slates, 1)), axis=1)[:, :2]
    shown[(shown == [0, 1]).all(1)] = [0, 2]
    first, both = shown[:, 0] == 0, (shown == [0, 1]).all(1)
    return {
        "user": np.repeat(np.arange(n_slates), 2),
        "slate": np.zeros(2 * n_slates, int),
        "position": np.tile([0, 1], n_slates),
        "action": shown.ravel(),
        "reward": (random.random(2 * n_slates) < 0.8).astype(float),
        "propensity": np.full(2 * n_slates, 1 / n_items),
        "conditional_propensity": np.tile([1 / n_items, 1 / (n_items - 1)], n_slates),
        "new": (shown == [0, 1]).ravel().astype(float),
        "new_conditional": np.stack([first, both], 1).ravel().astype(float),
    }


def test_what_hardly_sees_the_target_contradicts_nothing():
    log = hardly_shown()
    found = estimate_ranking_value(log, "new", estimators="independent_ips")["independent_ips"]
    assert "assumption_contradicted" not in doubts(found)
    assert "assumption_untested" in doubts(found)
    assert found.diagnostics.assumption["differences"] == {}


def test_mass_that_the_log_never_shows_contradicts_nothing():
    log = drawn("cascade", n_users=1500) | {"new_unsupported": np.full(1500 * 4 * K, 0.2)}
    found = estimate_ranking_value(log, "new", estimators=["set_ips", "reward_interaction_ips"])
    assert found["set_ips"].diagnostics.assumption["differences"] == {}
    assert found["reward_interaction_ips"].diagnostics.assumption["items_below"] is None


def test_clicks_below_a_click_are_as_frequent_where_a_policy_knows_tastes():
    random = np.random.default_rng(8)
    laws = [plain.plackett_luce(weights, K) for weights in ((1.0, 2.0, 4.0, 8.0, 0.5), (8.0, 4.0, 1.0, 0.5, 2.0))]
    rankings = np.array(list(laws[0]))
    known = [[plain.probabilities(law, ranking) for ranking in law] for law in laws]
    conditional, at_place = (
        np.array([[x[kind] for x in of_law] for of_law in known]) for kind in ("conditional", "marginal")
    )
    found = []
    for _ in range(40):
        user = np.repeat(np.arange(300), 4)
        taste, keen = (random.integers(2, size=300)[user] for _ in range(2))
        drawn_at = np.empty(1200, int)
        for t, law in enumerate(laws):
            rows = np.flatnonzero(taste == t)
            drawn_at[rows] = random.choice(len(rankings), rows.size, p=list(law.values()))
        shown, below, marginal = rankings[drawn_at], conditional[taste, drawn_at], at_place[taste, drawn_at]
        liked = np.array([[0.1, 0.2, 0.4, 0.6, 0.05], [0.6, 0.4, 0.1, 0.05, 0.2]])[taste[:, None], shown]
        clicks = (random.random(liked.shape) < liked * np.where(keen, 1.5, 0.5)[:, None]).astype(float)
        columns = {"user": np.repeat(user, K), "position": np.tile(np.arange(K), 1200), "action": shown.ravel()}
        columns |= {"reward": clicks.ravel(), "propensity": marginal.ravel(), "conditional_propensity": below.ravel()}
        log = read_log(columns, {"marginal": marginal.ravel()}, "user")
        found.append(click_facts(log, 0.95).clicks_after_click[0])
    assert abs(np.mean(found)) < 4.0 * np.std(found, ddof=1) / np.sqrt(len(found))


def test_an_item_shown_more_often_than_stated_disproves_the_probabilities():
    log = drawn("position", n_users=1500)
    right = estimate_ranking_value(log, "new", **KNOWN)
    assert all("item_propensities" not in doubts(found) for found in right.values())
    less = np.where(np.asarray(log["action"]) == 0, 0.6, 1.0) * np.asarray(log["propensity"])
    wrong = estimate_ranking_value(log | {"propensity": less}, "new", **KNOWN)
    assert all("item_propensities" in doubts(found) and not found.trusted for found in wrong.values())
    named = np.array([f"sku {9 - action}" for action in log["action"]])
    found = estimate_ranking_value(log | {"propensity": less, "action": named}, "new")["independent_ips"]
    assert "propensities of item sku 9 " in str(found.verdict)


def test_without_power_or_statement_it_is_caution():
    small = drawn("position", n_users=120, slates=1)
    assert "assumption_untested" in doubts(estimate_ranking_value(small, "new", **KNOWN)["independent_ips"])
    large = drawn("position", n_users=2000)
    unstated = estimate_ranking_value(large, "new", **KNOWN)["independent_ips"]
    assert doubts(unstated) == {"assumption_unstated"}
    assert "assumption_unstated" in doubts(
        estimate_ranking_value(large, "new", assumption="whole", **KNOWN)["reward_interaction_ips"]
    )
    assert estimate_ranking_value(large, "new", assumption="cascade", **KNOWN)["reward_interaction_ips"].trusted
    only = {name: large[name] for name in ("user", "position", "reward", "propensity", "new")}
    assert "assumption_untested" in doubts(estimate_ranking_value(only, "new", **KNOWN)["independent_ips"])


@pytest.mark.parametrize(
    ("user", "name", "assumption", "code"),
    [
        ("cascade", "independent_ips", "independent", "clicks_after_click"),
        ("position", "set_ips", "unordered", "position_effect"),
        ("crowd", "reward_interaction_ips", "cascade", "assumption_contradicted"),
    ],
)
def test_a_statement_silences_no_objection(user, name, assumption, code):
    """Severities are those of the same log without a statement."""
    log, severities = drawn(user, n_users=3000), []
    for each in (assumption, None):
        found = estimate_ranking_value(log, "new", estimators=name, assumption=each, **KNOWN)[name]
        severities.append(finding(found, code).severity)
    assert severities[0] == severities[1] >= 1.0


def below_by_hand(log):
    """What items earn more beside the target's items below, in plain Python."""
    shown, clicks = log["action"].reshape(-1, K).tolist(), log["reward"].reshape(-1, K).tolist()
    usual = {}
    for items, rewards in zip(shown, clicks, strict=True):
        for j in range(K):
            usual.setdefault((items[j], j), []).append(rewards[j])
    total = 0.0
    weights = (log["new_conditional"] / log["conditional_propensity"]).reshape(-1, K)
    for items, rewards, weight in zip(shown, clicks, weights, strict=True):
        for j in range(K):
            others = usual[items[j], j]
            total += (rewards[j] - sum(others) / len(others)) * sum(weight[i] - 1.0 for i in range(j + 1, K))
    return total / (len(shown) * K)


def of_items_below(log):
    down = np.cumprod((log["new_conditional"] / log["conditional_propensity"]).reshape(-1, K), axis=1)
    return items_below(read_log(log, "new", "user"), down, 0.99)


@pytest.mark.parametrize("user", [*USERS[:3], pytest.param("crowd", marks=pytest.mark.slow)])
def test_items_below_matter_to_crowds_alone(user):
    """The limits hold 0 where clicks depend on what is above, whatever the log's policy; those of crowds do not."""
    logs = [drawn(user, logger, n_users=4000 if user == "crowd" else 500) for logger in LOGGERS]
    found = [of_items_below(log) for log in logs]
    assert found[0][0] == pytest.approx(below_by_hand(logs[0]), abs=1e-12)
    for _, low, high in found:
        assert (low <= 0.0 <= high) == (user != "crowd")


def test_a_false_cascade_of_crowds_is_contradicted_by_the_items_below():
    """1,500 slates, of which the difference from slate_ips says nothing."""
    logger, target = plain.uniform(6, K), plain.plackett_luce(tuple(np.exp(np.multiply(plain.ATTRACTION, 3.0))), K)
    log = plain.drawn_log(np.random.default_rng(4), "crowd", logger, target, 300, 5)
    found = estimate_ranking_value(log, "new", assumption="cascade", **KNOWN)["reward_interaction_ips"]
    (low, high) = found.diagnostics.assumption["differences"]["slate_ips"][1:]
    assert low < 0.0 < high
    assert "assumption_contradicted" in doubts(found)
    assert found.diagnostics.assumption["items_below"][2] < 0.0


def test_slates_of_one_click_have_no_heavy_tail():
    """Rewards of a slate are not independent: rows of one weight are compared slate by slate."""
    found = estimate_ranking_value(drawn("crowd", "uniform", n_users=1500), "new", assumption="unordered", **KNOWN)
    assert found["slate_ips"].trusted
    assert found["set_ips"].trusted
    assert 0.7 < finding(found["slate_ips"], "heavy_tail").number < 1.3


def test_a_heavy_tail_is_that_of_slates_whose_heaviest_earn_little():
    weight = np.repeat(np.array([[1.0]] * 90 + [[30.0]] * 10), 2, axis=1)
    reward = np.tile([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]], (25, 1))
    assert heavy_tail(np.ones((100, 2)), reward, np.ones((100, 2))) == pytest.approx(1.0, abs=1e-12)
    none = np.where(weight > 1.0, 0.0, reward)
    assert heavy_tail(weight, none, weight) > 1.5 > heavy_tail(weight, reward, weight)


def test_without_users_slates_are_independent():
    log = {name: values for name, values in drawn("position", n_users=600, slates=1).items() if name != "user"}
    found = estimate_ranking_value(log, "new", assumption="independent", **KNOWN)["independent_ips"]
    assert found.diagnostics.users == 600


def test_few_effective_slates_are_named_and_their_estimator_is_not_advised():
    found = estimate_ranking_value(drawn("position", n_users=110, slates=1), "new")
    assert found["slate_ips"].diagnostics.effective_slates < 100
    assert "effective_slates" in doubts(found["slate_ips"])
    assert found["slate_ips"].verdict.level == "do_not_use"
    said = finding(found["independent_ips"], "assumption_untested").action
    assert "use slate_ips" not in said
    assert "too small for slate_ips" in said


def test_the_logs_own_policy_contradicts_nothing_by_roundings():
    """Solved weights are 1 up to roundings of one sign, which once were a difference that excludes 0."""
    own = LOGGERS["plackett-luce"]
    rng, laws = np.random.default_rng(0), (list(own), list(own.values()), list(own.values()))
    rankings = [list(own)[i] for i in rng.choice(len(own), 400, p=list(own.values()))]
    log = plain.log_of(rankings, rng.random((400, K)) < 0.3, own, own, np.arange(400))
    found = estimate_ranking_value(log, "new", logger=lambda _: laws)["pseudo_inverse"]
    assert set(map(tuple, found.diagnostics.assumption["differences"].values())) == {(0.0, 0.0, 0.0)}
    assert "assumption_contradicted" not in codes(found)


def test_wrong_propensities_show_in_the_mean_weight_of_the_pseudo_inverse():
    log = drawn("position", "uniform", n_users=1000)
    aim = log["new"] * 1.5
    found = estimate_ranking_value(
        log | {"new": np.minimum(aim, 1.0)}, "new", estimators="pseudo_inverse", logger="independent"
    )["pseudo_inverse"]
    assert "propensities" in doubts(found)


def test_scores_of_their_own_count_negative_rewards_from_the_least():
    log = drawn("position", "uniform", n_users=150)
    given = {"estimators": ["pseudo_inverse", "slate_ips"], "logger": law_of(LOGGERS["uniform"])}
    found = estimate_ranking_value(log, "new", **given)
    less = estimate_ranking_value(log | {"reward": log["reward"] - 0.5}, "new", **given)
    for name in found:
        assert less[name].value == pytest.approx(found[name].value - 0.5, abs=1e-12)
    assert less["pseudo_inverse"].low == pytest.approx(found["pseudo_inverse"].low - 0.5, abs=1e-12)


# ---------------------------------------------------------------------------------------------- registry, own functions


@pytest.mark.parametrize("info", RANKING_ESTIMATORS.values(), ids=lambda info: info.name)
def test_a_record_says_what_it_assumes_and_what_happens_where_that_fails(info):
    assert info.title
    assert info.source
    assert info.premise in PREMISES
    assert bool(info.estimates_if_wrong) == bool(info.premise) == bool(info.weaker)
    assert all(RANKING_ESTIMATORS[other].weight != info.weight for other in info.weaker)


def test_an_own_function_gets_the_rows(tmp_path, monkeypatch):
    code = '"""Own."""\n\n\ndef halved(rows, *, share=0.5):\n    """Half of the slate weights."""\n'
    code += '    return share * rows.ratio("slate") * rows.reward\n'
    (tmp_path / "own_rankings.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    log = drawn("cascade")
    found = estimate_ranking_value(log, "new", estimators=["own_rankings:halved", "slate_ips"])
    assert found["own_rankings:halved"].value == pytest.approx(found["slate_ips"].value / 2.0, rel=1e-12)
    assert "own_estimator" in doubts(found["own_rankings:halved"])
    third = estimate_ranking_value(log, "new", estimators=["own_rankings:halved"], share=0.25)
    assert third["own_rankings:halved"].value == pytest.approx(found["slate_ips"].value / 4.0, rel=1e-12)


# ----------------------------------------------------------------------------------------------------------- bad input


def changed(**columns):
    return lambda log: log | {name: change(np.array(log[name])) for name, change in columns.items()}


def without(*names):
    return lambda log: {name: values for name, values in log.items() if name not in names}


def at_row_2(value):
    def change(values):
        values = values.astype(np.float64)
        values[2] = value
        return values

    return change


BAD = {
    "no position": (without("position"), {}, "needs the columns reward and position"),
    "a slate in pieces": (lambda log: {k: v[1:] for k, v in without("slate")(log).items()}, {}, "one row for each pos"),
    "a propensity of 0": (changed(propensity=at_row_2(0.0)), {}, "'propensity', row 2"),
    "a target above 1": (changed(new_slate=at_row_2(1.5)), {}, "'new_slate', row 2"),
    "a product that is none": (changed(slate_propensity=lambda p: p * 0.9), {}, "not the products"),
    "slates of two users": (changed(user=at_row_2(7)), {}, "a slate has rows of several users"),
    "no such target": (lambda log: log, {"target": "old"}, "no column 'old'"),
    "no such estimator": (lambda log: log, {"estimators": "slate_isp"}, "slate_ips"),
    "of single items": (lambda log: log, {"estimators": "ips"}, "is of single items, and these are slates"),
    "no columns of its kind": (without("set_propensity"), {"estimators": "set_ips"}, "'set_propensity'"),
    "no model": (lambda log: log, {"estimators": "cascade_dr"}, "needs q_logged"),
    "another assumption": (lambda log: log, {"assumption": "none"}, "assumption must be one of"),
    "other weights": (lambda log: log, {"position_weights": "ndcg"}, "position_weights must be one of"),
    "weights below 0": (lambda log: log, {"position_weights": (1.0, -1.0, 0.0)}, "must not be negative"),
    "sets by position": (lambda log: log, {"estimators": "set_ips", "position_weights": "dcg"}, "weigh alike"),
    "no such argument": (lambda log: log, {"estimators": "slate_ips", "logger": "uniform"}, "takes 'logger'"),
    "not uniform": (
        lambda log: log,
        {"estimators": "pseudo_inverse", "logger": "uniform", "n_items": 4},
        "not uniform",
    ),
    "no such logger": (lambda log: log, {"estimators": "pseudo_inverse", "logger": "greedy"}, "use slate_ips"),
    "no such behaviour": (lambda log: log, {"behaviour": "keen"}, "behaviour must be one of"),
    "a bound denied": (changed(reward=at_row_2(3.0)), {"reward_max": 1.0}, "above --reward-max"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gets_one_clear_line(case):
    change, given, words = BAD[case]
    given = dict(given)
    with pytest.raises(UserError, match=words) as error:
        estimate_ranking_value(change(drawn("cascade", n_users=5)), given.pop("target", "new"), **given)
    assert "\n" not in str(error.value)


def test_too_many_rankings_are_not_enumerated():
    log = drawn("cascade", n_users=5)
    many = np.zeros((60_000, K), np.int64), np.zeros(60_000), np.zeros(60_000)
    with pytest.raises(UserError, match="at most 50,000 rankings"):
        estimate_ranking_value(log, "new", estimators="pseudo_inverse", logger=lambda _: many)


@pytest.mark.slow
def test_intervals_of_differences_from_todays_policy_hold():
    """Of 200 logs: the true difference lies in the 95 % interval in all but a few; the value is that of the weights."""
    logger, apart = LOGGERS["plackett-luce"], np.full(K, 1.0 / K)
    truth = plain.value("independent", TARGET, apart) - plain.value("independent", logger, apart)
    generator, held = np.random.default_rng(4), {"slate_ips": 0, "independent_ips": 0, "slate_snips": 0}
    for _ in range(200):
        log = plain.drawn_log(generator, "independent", logger, TARGET, 120, 3)
        found = estimate_ranking_value(log, "new", estimators=list(held), from_today=True, full_support=True)
        for name, each in found.items():
            held[name] += each.low <= truth <= each.high
        gain = (log["new_slate"] / log["slate_propensity"] - 1.0) * log["reward"]
        assert found["slate_ips"].value == pytest.approx(np.mean(gain), rel=1e-9)
    # At 95 % fewer than 180 of 200 hold with a probability of .0012.
    assert min(held.values()) >= 180


# -------------------------------------------------------------------------------------------- advice, clips and names


def test_a_clip_says_how_many_rows_its_weights_are_worth_or_is_refused():
    log = drawn("position", n_users=600)
    clip = estimate_ranking_value(log, "new", clip=2.0)["slate_ips"]
    weight = np.minimum(log["new_slate"] / log["slate_propensity"], 2.0)
    assert clip.ess == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-9)
    assert clip.diagnostics.ess == clip.ess > estimate_ranking_value(log, "new")["slate_ips"].ess
    for name in ("slate_snips", "independent_snips"):
        with pytest.raises(UserError, match=f"'{name}' does not clip its weights"):
            estimate_ranking_value(log, "new", estimators=["slate_ips", name], clip=2.0)


def test_advice_names_arguments_and_on_the_command_line_options():
    log = {name: values for name, values in drawn("position", n_users=600).items() if name != "user"}
    found = estimate_ranking_value(log, "new")
    for estimate in found.values():
        assert "--" not in " ".join(finding.action for finding in estimate.verdict.findings)
    said = finding(found["independent_ips"], "assumption_unstated").action
    assert "assumption=" in said
    assert "--assumption" in for_command(said)


@pytest.mark.parametrize(
    ("columns", "lacks"),
    [((), ("'slate_propensity'", "'new_slate'")), (("slate_propensity",), ("'new_slate'",))],
)
def test_an_estimator_that_lacks_columns_is_advised_with_them(columns, lacks):
    names = ("user", "position", "action", "reward", "propensity", "new", *columns)
    log = drawn("position", n_users=600)
    single = {name: log[name] for name in names}
    said = finding(estimate_ranking_value(single, "new", **KNOWN)["independent_ips"], "assumption_untested").action
    assert all(name in said for name in lacks)
    assert said.count("'") == 2 * len(lacks)
    arrays = {"marginal": single.pop("new")}
    said = finding(
        estimate_ranking_value(single, arrays, called="two")["independent_ips"], "assumption_untested"
    ).action
    assert "'two_slate'" in said


def test_it_is_said_why_an_assumption_cannot_be_tested():
    log = drawn("position", n_users=110, slates=1)
    names = ("user", "position", "reward", "propensity", "new")
    nothing = {name: log[name] * 0.0 for name in ("new_slate", "new_conditional")}
    said = []
    for columns in (
        {name: log[name] for name in names},
        {name: log[name] for name in (*names, "slate_propensity")},
        log | {"new_unsupported": np.full(len(log["reward"]), 0.2)},
        log | nothing,
    ):
        found = estimate_ranking_value(columns, "new", estimators="independent_ips")["independent_ips"]
        said += [finding.message for finding in found.verdict.findings if finding.code == "assumption_untested"]
    assert len(set(said)) == 4


def test_a_log_is_read_as_its_columns_are():
    """Rows of views are left out."""
    world = SessionsWorld(SessionsParams(n_items=8, slate_size=3))
    log = simulate(world, registry.learner("random").fit(Log({}), n_items=8, seed=0), 40, 1)
    target = replay_ranking(log, registry.learner("popularity+epsilon=0.5").fit(log, n_items=8, seed=0))
    shown = log.is_bandit
    assert not shown.all()
    ours = estimate_ranking_value(log, target)
    theirs = estimate_ranking_value(
        {name: values[shown] for name, values in log.columns.items()},
        {kind: each[shown] for kind, each in target.items()},
    )
    assert {name: each.value for name, each in ours.items()} == {name: each.value for name, each in theirs.items()}
    with pytest.raises(UserError, match=r"no column 'random' of a target's probabilities: give what replay_ranking"):
        estimate_ranking_value(log, "random")

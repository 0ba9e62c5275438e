"""Estimators of policies that rank: exact means by enumeration, plain twins, verdicts on users, and bad input."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

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
from toys import refused
from twins import rankings as plain
from twins.findings import codes, doubts, finding

M = 4
K = 3
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
FACTS = {"full_support": True, "weight_max": 40.0}


def estimate(log, **options):
    """Estimates of the target called new, by name."""
    return estimate_ranking_value(log, "new", **options)


def pseudo_inverse(log, logger, **options):
    return estimate(log, estimators="pseudo_inverse", logger=logger, **options)["pseudo_inverse"]


def drawn(user, logger="epsilon", n_users=200, slates=4, seed=3):
    return plain.drawn_log(np.random.default_rng(seed), user, LOGGERS[logger], TARGET, n_users, slates)


def select(log, *names):
    return {name: log[name] for name in names}


def drop(log, *names):
    return {name: values for name, values in log.items() if name not in names}


def slate_weights(log):
    return log["new_slate"] / log["slate_propensity"]


def conditional_weights(log):
    """By slate and position, as those of any position by itself."""
    return (log["new_conditional"] / log["conditional_propensity"]).reshape(-1, K)


def law_of(logger):
    """A function of a context for the pseudo-inverse."""
    rankings = list(logger)
    return lambda _: (rankings, [logger[r] for r in rankings], [TARGET[r] for r in rankings])


def model_of(rankings):
    """q_logged and q_target of a fixed, wrong model of clicks by item and position."""
    logged = []
    mean = []
    for ranking in rankings:
        for j, item in enumerate(ranking):
            logged.append(HAND_MODEL[j, item])
            begins = {r: p for r, p in TARGET.items() if r[:j] == tuple(ranking[:j])}
            mean.append(sum(p * HAND_MODEL[j, r[j]] for r, p in begins.items()) / sum(begins.values()))
    return {"q_logged": np.array(logged), "q_target": np.array(mean)}


def expectations(user, logger, position_weights="mean"):
    """The exact mean of each estimator: every ranking and every vector of clicks, at its probability."""
    outcomes = [(ranking, *outcome) for ranking in logger for outcome in plain.clicks(user, ranking)]
    rankings, vectors, chances = zip(*outcomes, strict=True)
    share = np.repeat([logger[r] * p * len(outcomes) for r, p in zip(rankings, chances, strict=True)], K)
    log = plain.log_of(rankings, vectors, logger, TARGET, np.arange(len(outcomes)))
    log["reward"] = log["reward"] * share  # a mean over these rows is the expectation
    estimates = estimate(
        log,
        position_weights=position_weights,
        behaviour=BEHAVES[user],
        logger=law_of(logger),
        **{name: values * share for name, values in model_of(rankings).items()},
    )
    return {name: result.value for name, result in estimates.items()}


def companions(user, logger, kind):
    """The limit of an estimator of a kind, from its definition: the target's law of a part, the log's of the rest."""
    part_of = {
        "marginal": lambda r, j: (r[j],),
        "cumulative": lambda r, j: r[: j + 1],
        "set": lambda r, j: tuple(sorted(r)),
    }[kind]
    rows = [
        (j, part_of(ranking, j), p, p * plain.mean_clicks(user, ranking)[j], TARGET[ranking])
        for ranking, p in logger.items()
        for j in range(K)
    ]
    parts = pd.DataFrame(rows, columns=["position", "part", "logged", "clicks", "aimed"])
    sums = parts.groupby(["position", "part"]).sum()
    return (sums.aimed * sums.clicks / sums.logged).sum() / K


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
    kinds = {
        "independent_ips": "marginal",
        "set_ips": "set",
        "reward_interaction_ips": "cumulative",
        "cascade_dr": "cumulative",
    }
    means = expectations(user, law)
    assert set(means) == set(HOLDS)
    for name, mean in means.items():
        if user in HOLDS[name]:
            expected = truth
        elif name == "pseudo_inverse":
            expected = linear_fit(user, law)
        else:
            expected = companions(user, law, kinds[name])
            if logger == "epsilon":  # elsewhere symmetry may hide a bias
                assert abs(mean - truth) > 1e-4, name
        assert mean == pytest.approx(expected, abs=1e-12), name


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("clicks", [1.0] * K),
        ("dcg", [1 / math.log2(2 + j) for j in range(K)]),
        ((0.5, 0.25, 0.125), [0.5, 0.25, 0.125]),
    ],
)
def test_position_weights_are_those_of_the_sum(name, weights):
    truth = plain.value("cascade", TARGET, weights)
    means = expectations("cascade", LOGGERS["epsilon"], name)
    for estimator in ("slate_ips", "reward_interaction_ips", "cascade_dr", "adaptive_ips"):
        assert means[estimator] == pytest.approx(truth, abs=1e-12), estimator
    assert ("set_ips" in means) == (name == "clicks")


def check_closed_form(law, target, logger, **options):
    rankings = list(law)
    rewards = np.linspace(0.0, 1.0, len(rankings) * len(rankings[0]))
    log = plain.log_of(rankings, rewards, law, target, np.arange(len(rankings)))
    closed = pseudo_inverse(log, logger, **options)
    solved = pseudo_inverse(log, lambda _: (rankings, list(law.values()), [target[r] for r in rankings]))
    assert closed.value == pytest.approx(solved.value, abs=1e-10)


@pytest.mark.parametrize(("m", "k"), [(4, 3), (3, 3), (5, 2)])
def test_the_closed_form_of_uniform_rankings_is_that_of_enumeration(m, k):
    """Without repetition, of some and of all items."""
    law = plain.uniform(m, k)
    target = plain.plackett_luce(tuple(range(1, m + 1)), k)
    inclusion = [sum(p for r, p in target.items() if item in r) for ranking in law for item in ranking]
    check_closed_form(law, target, "uniform", n_items=m, inclusion=inclusion)


def test_the_closed_form_of_independent_positions_is_that_of_enumeration():
    logged = np.outer([0.5, 0.3, 0.2], [0.2, 0.2, 0.6])
    target = np.outer([0.1, 0.6, 0.3], [0.3, 0.4, 0.3])
    check_closed_form(dict(np.ndenumerate(logged)), dict(np.ndenumerate(target)), "independent")


def by_hand(log, name, behaviour, model):
    """The estimate in plain Python, slate by slate."""
    part = name.rsplit("_", 1)[0]
    total = 0.0
    weights = 0.0
    for start in range(0, len(log["reward"]), K):
        down = 1.0
        for row in range(start, start + K):
            before = down
            down *= log["new_conditional"][row] / log["conditional_propensity"][row]
            weight = {
                "slate": log["new_slate"][row] / log["slate_propensity"][row],
                "set": log["new_set"][row] / log["set_propensity"][row],
                "independent": log["new"][row] / log["propensity"][row],
                "reward_interaction": down,
                "cascade": down,
            }
            weight["whole"] = weight["slate"]
            weight["adaptive"] = weight[behaviour[row]]
            if name == "cascade_dr":
                total += down * (log["reward"][row] - model["q_logged"][row]) + before * model["q_target"][row]
            else:
                total += weight[part] * log["reward"][row]
            weights += weight[part]
    return total / (weights if name.endswith("snips") else len(log["reward"]))


@pytest.mark.parametrize("name", [name for name in RANKING_ESTIMATORS if name != "pseudo_inverse"])
def test_plain_twins(name):
    log = drawn("cascade")
    behaviour = np.repeat(np.resize(["independent", "cascade", "whole"], len(log["reward"]) // K), K)
    model = model_of(log["action"].reshape(-1, K).tolist())
    options = {"adaptive_ips": {"behaviour": behaviour}, "cascade_dr": model}
    (result,) = estimate(log, estimators=name, **options.get(name, {})).values()
    assert result.value == pytest.approx(by_hand(log, name, behaviour, model), rel=1e-12)
    assert result.low < result.value < result.high
    assert result.estimator == name
    assert json.loads(json.dumps(result.numbers(), allow_nan=False))["slates"] == 800


def test_a_clip_cuts_weights_and_the_interval_holds_what_it_hides():
    log = drawn("position", n_users=600)
    nothing = np.zeros(len(log["reward"]))
    model = {"q_logged": nothing, "q_target": nothing}
    unclipped = estimate(log, estimators="slate_ips")["slate_ips"]
    clipped = estimate(log, estimators=["slate_ips", "cascade_dr"], clip=2.0, **model)
    slate_ips = clipped["slate_ips"]
    weight = np.minimum(slate_weights(log), 2.0)
    assert slate_ips.value == pytest.approx(np.mean(weight * log["reward"]), rel=1e-12)
    assert slate_ips.diagnostics.clip_part > 0.0
    assert clipped["cascade_dr"].value < unclipped.value
    assert slate_ips.ess == pytest.approx(weight.sum() ** 2 / (weight**2).sum(), rel=1e-9)
    assert slate_ips.diagnostics.ess == slate_ips.ess > unclipped.ess


@pytest.mark.parametrize("name", ["slate_snips", "independent_snips"])
def test_a_ratio_does_not_clip(name):
    with refused(f"'{name}' does not clip its weights"):
        estimate(drawn("position", n_users=5), estimators=["slate_ips", name], clip=2.0)


def ends(estimates):
    return {name: (result.value, result.low, result.high) for name, result in estimates.items()}


def test_rows_in_any_order_and_organic_ones_between():
    log = drawn("cascade", n_users=150)
    order = np.random.default_rng(0).permutation(len(log["reward"]))
    mixed = {name: np.append(values[order], values[:5]) for name, values in log.items()}
    mixed["position"] = mixed["position"].astype(np.float64)
    mixed["position"][-5:] = np.nan
    mixed["propensity"][-5:] = np.nan
    expected = estimate(log)
    estimates = estimate(mixed)
    for name, values in ends(estimates).items():
        assert values == pytest.approx(ends(expected)[name], rel=1e-9), name
        assert estimates[name].verdict.level == expected[name].verdict.level


def test_frames_and_tables_are_columns_too():
    log = drawn("cascade", n_users=120)
    expected = estimate(log)["slate_ips"]
    for table in (pd.DataFrame(log), pa.table(log)):
        assert estimate(table)["slate_ips"] == expected
    arrays = {"slate": log["new_slate"], "marginal": log["new"]}
    assert estimate_ranking_value(log, arrays, estimators="slate_ips")["slate_ips"].value == expected.value
    named = drop(log, "user") | {"shopper": log["user"].astype(str)}
    for cluster in ("shopper", log["user"]):
        assert estimate(named, cluster=cluster)["slate_ips"].low == pytest.approx(expected.low, rel=1e-12)


# ---------------------------------------------------------------------------------------------------------- verdicts


def test_the_log_contradicts_what_cascade_users_break():
    estimates = estimate(drawn("cascade", n_users=1500), **FACTS)
    assert estimates["slate_ips"].trusted
    assert "position_effect" in doubts(estimates["set_ips"])
    assert "assumption_contradicted" not in doubts(estimates["reward_interaction_ips"])
    independent = estimates["independent_ips"]
    assert "clicks_after_click" in doubts(independent)
    tests = independent.diagnostics.assumption
    assert set(tests["differences"]) == {"reward_interaction_ips", "slate_ips"}
    assert tests["position_effect"][2] < 0.0
    value, low, high = tests["clicks_after_click"]
    assert high < 0.0
    order = finding(independent, "clicks_after_click")
    assert order.number == value
    assert f"{-value:.3g} [{-high:.3g}, {-low:.3g}] less" in order.message


def test_users_of_positions_contradict_the_order_alone():
    estimates = estimate(drawn("position", n_users=1500), assumption="independent", **FACTS)
    assert estimates["independent_ips"].trusted
    assert estimates["reward_interaction_ips"].trusted
    assert {"position_effect", "assumption_unstated"} <= doubts(estimates["set_ips"])
    _, low, high = estimates["slate_ips"].diagnostics.assumption["clicks_after_click"]
    assert low < 0.0 < high


def test_crowds_contradict_what_looks_from_the_top():
    estimates = estimate(drawn("crowd", n_users=3000), **FACTS)
    assert "assumption_contradicted" in doubts(estimates["reward_interaction_ips"])
    assert "assumption_contradicted" in doubts(estimates["independent_ips"])
    assert "assumption_contradicted" not in doubts(estimates["set_ips"])
    another = drawn("crowd", n_users=3000, seed=4)  # one log in twenty objects to what is true
    stated = estimate(another, assumption="unordered", **FACTS)["set_ips"]
    assert not doubts(stated) & {"position_effect", "assumption_contradicted", "assumption_unstated"}


def test_what_hardly_sees_the_target_contradicts_nothing():
    """A uniform log of pairs shows the target's items at their positions, but not its pair."""
    random = np.random.default_rng(5)
    pairs = random.permuted(np.tile(np.arange(30), (600, 1)), axis=1)[:, :2]
    pairs[(pairs == [0, 1]).all(axis=1)] = [0, 2]
    rewards = random.random((600, 2)) < 0.8
    uniform = plain.uniform(30, 2)
    target = dict.fromkeys(uniform, 0.0) | {(0, 1): 1.0}
    log = plain.log_of(pairs.tolist(), rewards, uniform, target, np.arange(600))
    marginal = drop(log, "slate_propensity", "set_propensity", "new_slate", "new_set")
    result = estimate(marginal, estimators="independent_ips")["independent_ips"]
    assert "assumption_contradicted" not in doubts(result)
    assert "assumption_untested" in doubts(result)
    assert result.diagnostics.assumption["differences"] == {}


def test_mass_that_the_log_never_shows_contradicts_nothing():
    log = drawn("cascade", n_users=1500) | {"new_unsupported": np.full(1500 * 4 * K, 0.2)}
    estimates = estimate(log, estimators=["set_ips", "reward_interaction_ips"])
    assert estimates["set_ips"].diagnostics.assumption["differences"] == {}
    assert estimates["reward_interaction_ips"].diagnostics.assumption["items_below"] is None


def test_clicks_below_a_click_are_as_frequent_where_a_policy_knows_tastes():
    random = np.random.default_rng(8)
    laws = [plain.plackett_luce(weights, K) for weights in ((1.0, 2.0, 4.0, 8.0, 0.5), (8.0, 4.0, 1.0, 0.5, 2.0))]
    likes = np.array([[0.1, 0.2, 0.4, 0.6, 0.05], [0.6, 0.4, 0.1, 0.05, 0.2]])
    rankings = np.array(list(laws[0]))
    effects = []
    for _ in range(40):
        tastes, keen = random.integers(2, size=(2, 300))
        parts = []
        for taste, law in enumerate(laws):
            user = np.repeat(np.flatnonzero(tastes == taste), 4)
            shown = rankings[random.choice(len(rankings), user.size, p=list(law.values()))]
            click = likes[taste, shown] * np.where(keen[user], 1.5, 0.5)[:, None]
            parts.append(plain.log_of(shown.tolist(), random.random(shown.shape) < click, law, law, user))
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        effects.append(click_facts(read_log(columns, "new", "user"), 0.95).clicks_after_click[0])
    assert abs(np.mean(effects)) < 4.0 * np.std(effects, ddof=1) / np.sqrt(len(effects))


def test_an_item_shown_more_often_than_stated_disproves_the_probabilities():
    log = drawn("position", n_users=1500)
    right = estimate(log, **FACTS)
    assert all("item_propensities" not in doubts(result) for result in right.values())
    less = log | {"propensity": np.where(log["action"] == 0, 0.6, 1.0) * log["propensity"]}
    wrong = estimate(less, **FACTS)
    assert all("item_propensities" in doubts(result) and not result.trusted for result in wrong.values())
    names = np.array([f"sku {9 - action}" for action in log["action"]])
    named = estimate(less | {"action": names})["independent_ips"]
    assert "propensities of item sku 9 " in str(named.verdict)


def test_without_power_or_statement_it_is_caution():
    few = estimate(drawn("position", n_users=120, slates=1), **FACTS)["independent_ips"]
    assert "assumption_untested" in doubts(few)
    log = drawn("position", n_users=2000)
    assert doubts(estimate(log, **FACTS)["independent_ips"]) == {"assumption_unstated"}
    weaker = estimate(log, assumption="whole", **FACTS)["reward_interaction_ips"]
    assert "assumption_unstated" in doubts(weaker)
    assert estimate(log, assumption="cascade", **FACTS)["reward_interaction_ips"].trusted


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
    log = drawn(user, n_users=3000)
    stated = estimate(log, estimators=name, assumption=assumption, **FACTS)[name]
    unstated = estimate(log, estimators=name, **FACTS)[name]
    assert finding(stated, code).severity == finding(unstated, code).severity >= 1.0


def below_by_hand(log):
    """The gain of items beside the target's items below, from each item's mean reward at its position."""
    reward = pd.Series(log["reward"])
    surplus = reward - reward.groupby([log["action"], log["position"]]).transform("mean")
    apart = conditional_weights(log) - 1.0
    below = apart.sum(axis=1, keepdims=True) - apart.cumsum(axis=1)
    return np.mean(surplus.to_numpy().reshape(-1, K) * below)


def of_items_below(log):
    down = np.cumprod(conditional_weights(log), axis=1)
    return items_below(read_log(log, "new", "user"), down, 0.99)


@pytest.mark.parametrize("user", [*USERS[:3], pytest.param("crowd", marks=pytest.mark.slow)])
def test_items_below_matter_to_crowds_alone(user):
    """The limits hold 0 where clicks depend on what is above, whatever the log's policy; those of crowds do not."""
    logs = [drawn(user, logger, n_users=4000 if user == "crowd" else 500) for logger in LOGGERS]
    assert of_items_below(logs[0])[0] == pytest.approx(below_by_hand(logs[0]), abs=1e-12)
    for log in logs:
        _, low, high = of_items_below(log)
        assert (low <= 0.0 <= high) == (user != "crowd")


def test_a_false_cascade_of_crowds_is_contradicted_by_the_items_below():
    """1,500 slates, of which the difference from slate_ips says nothing."""
    logger = plain.uniform(6, K)
    target = plain.plackett_luce(tuple(np.exp(np.multiply(plain.ATTRACTION, 3.0))), K)
    log = plain.drawn_log(np.random.default_rng(4), "crowd", logger, target, 300, 5)
    result = estimate(log, assumption="cascade", **FACTS)["reward_interaction_ips"]
    tests = result.diagnostics.assumption
    _, low, high = tests["differences"]["slate_ips"]
    assert low < 0.0 < high
    assert "assumption_contradicted" in doubts(result)
    assert tests["items_below"][2] < 0.0


def test_slates_of_one_click_have_no_heavy_tail():
    """Rewards of a slate are not independent: rows of one weight are compared slate by slate."""
    estimates = estimate(drawn("crowd", "uniform", n_users=1500), assumption="unordered", **FACTS)
    assert estimates["slate_ips"].trusted
    assert estimates["set_ips"].trusted
    assert 0.7 < finding(estimates["slate_ips"], "heavy_tail").number < 1.3


def test_a_heavy_tail_is_that_of_slates_whose_heaviest_earn_little():
    weight = np.repeat(np.array([[1.0]] * 90 + [[30.0]] * 10), 2, axis=1)
    reward = np.tile([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0], [1.0, 1.0]], (25, 1))
    assert heavy_tail(np.ones((100, 2)), reward, np.ones((100, 2))) == pytest.approx(1.0, abs=1e-12)
    none = np.where(weight > 1.0, 0.0, reward)
    assert heavy_tail(weight, none, weight) > 1.5 > heavy_tail(weight, reward, weight)


def test_few_effective_slates_are_named_and_their_estimator_is_not_advised():
    estimates = estimate(drawn("position", n_users=110, slates=1))
    slate_ips = estimates["slate_ips"]
    assert slate_ips.diagnostics.effective_slates < 100
    assert "effective_slates" in doubts(slate_ips)
    assert slate_ips.verdict.level == "do_not_use"
    advice = finding(estimates["independent_ips"], "assumption_untested").action
    assert "use slate_ips" not in advice
    assert "too small for slate_ips" in advice


def test_the_logs_own_policy_contradicts_nothing_by_roundings():
    """Solved weights are 1 up to roundings of one sign, which once were a difference that excludes 0."""
    logger = LOGGERS["plackett-luce"]
    rankings = list(logger)
    chances = list(logger.values())
    rng = np.random.default_rng(0)
    drawn_at = rng.choice(len(rankings), 400, p=chances)
    log = plain.log_of([rankings[i] for i in drawn_at], rng.random((400, K)) < 0.3, logger, logger, np.arange(400))
    result = estimate(log, logger=lambda _: (rankings, chances, chances))["pseudo_inverse"]
    assert set(map(tuple, result.diagnostics.assumption["differences"].values())) == {(0.0, 0.0, 0.0)}
    assert "assumption_contradicted" not in codes(result)


def test_wrong_propensities_show_in_the_mean_weight_of_the_pseudo_inverse():
    log = drawn("position", "uniform", n_users=1000)
    log["new"] = np.minimum(1.5 * log["new"], 1.0)
    assert "propensities" in doubts(pseudo_inverse(log, "independent"))


def test_scores_of_their_own_count_negative_rewards_from_the_least():
    log = drawn("position", "uniform", n_users=150)
    options = {"estimators": ["pseudo_inverse", "slate_ips"], "logger": law_of(LOGGERS["uniform"])}
    positive = estimate(log, **options)
    negative = estimate(log | {"reward": log["reward"] - 0.5}, **options)
    for name, result in positive.items():
        assert negative[name].value == pytest.approx(result.value - 0.5, abs=1e-12)
    assert negative["pseudo_inverse"].low == pytest.approx(positive["pseudo_inverse"].low - 0.5, abs=1e-12)


# ---------------------------------------------------------------------------------------------- registry, own functions


@pytest.mark.parametrize("info", RANKING_ESTIMATORS.values(), ids=lambda info: info.name)
def test_a_record_says_what_it_assumes_and_what_happens_where_that_fails(info):
    assert info.title
    assert info.source
    assert info.premise in PREMISES
    assert bool(info.estimates_if_wrong) == bool(info.premise) == bool(info.weaker)
    assert all(RANKING_ESTIMATORS[other].weight != info.weight for other in info.weaker)


HALVED = '''
"""Own."""


def halved(rows, *, share=0.5):
    """Half of the slate weights."""
    return share * rows.ratio("slate") * rows.reward
'''


def test_a_function_of_ones_own_gets_the_rows_and_its_parameter(tmp_path, monkeypatch):
    (tmp_path / "own_rankings.py").write_text(HALVED)
    monkeypatch.syspath_prepend(tmp_path)
    log = drawn("cascade")
    mean = estimate(log, estimators="slate_ips")["slate_ips"].value
    for options, share in (({}, 0.5), ({"share": 0.25}, 0.25)):
        (result,) = estimate(log, estimators=["own_rankings:halved"], **options).values()
        assert result.value == pytest.approx(share * mean, rel=1e-12)
        assert "own_estimator" in doubts(result)


# ----------------------------------------------------------------------------------------------------------- bad input


def at_row_2(name, value):
    """A log with one other value."""

    def change(log):
        values = log[name].astype(np.float64)
        values[2] = value
        return log | {name: values}

    return change


def first_row_missing(log):
    return {name: values[1:] for name, values in drop(log, "slate").items()}


BAD_LOGS = {
    "no position": (lambda log: drop(log, "position"), "needs the columns reward and position"),
    "a slate in pieces": (first_row_missing, "one row for each pos"),
    "a propensity of 0": (at_row_2("propensity", 0.0), "'propensity', row 2"),
    "a target above 1": (at_row_2("new_slate", 1.5), "'new_slate', row 2"),
    "a product that is none": (
        lambda log: log | {"slate_propensity": 0.9 * log["slate_propensity"]},
        "not the products",
    ),
    "slates of two users": (at_row_2("user", 7), "a slate has rows of several users"),
}
BAD_OPTIONS = {
    "no such estimator": ({"estimators": "slate_isp"}, "slate_ips"),
    "of single items": ({"estimators": "ips"}, "is of single items, and these are slates"),
    "no model": ({"estimators": "cascade_dr"}, "needs q_logged"),
    "another assumption": ({"assumption": "none"}, "assumption must be one of"),
    "other weights": ({"position_weights": "ndcg"}, "position_weights must be one of"),
    "weights below 0": ({"position_weights": (1.0, -1.0, 0.0)}, "must not be negative"),
    "sets by position": ({"estimators": "set_ips", "position_weights": "dcg"}, "weigh alike"),
    "no such argument": ({"estimators": "slate_ips", "logger": "uniform"}, "takes 'logger'"),
    "not uniform": ({"estimators": "pseudo_inverse", "logger": "uniform", "n_items": 4}, "not uniform"),
    "no such logger": ({"estimators": "pseudo_inverse", "logger": "greedy"}, "use slate_ips"),
    "no such behaviour": ({"behaviour": "keen"}, "behaviour must be one of"),
}


@pytest.fixture
def small_log():
    return drawn("cascade", n_users=5)


@pytest.mark.parametrize(("change", "words"), BAD_LOGS.values(), ids=BAD_LOGS)
def test_a_bad_log_gets_one_clear_line(small_log, change, words):
    with refused(words):
        estimate(change(small_log))


@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_options_get_one_clear_line(small_log, options, words):
    with refused(words):
        estimate(small_log, **options)


def test_missing_columns_and_broken_limits_get_one_clear_line(small_log):
    with refused("no column 'old'"):
        estimate_ranking_value(small_log, "old")
    with refused("'set_propensity'"):
        estimate(drop(small_log, "set_propensity"), estimators="set_ips")
    with refused("above --reward-max"):
        estimate(at_row_2("reward", 3.0)(small_log), reward_max=1.0)


def test_too_many_rankings_are_not_enumerated(small_log):
    many = np.zeros((60_000, K), np.int64), np.zeros(60_000), np.zeros(60_000)
    with refused("at most 50,000 rankings"):
        pseudo_inverse(small_log, lambda _: many)


@pytest.mark.slow
def test_intervals_of_differences_from_todays_policy_hold():
    """In 200 logs the true difference lies in the 95 % interval in all but a few; the value is that of the weights."""
    logger = LOGGERS["plackett-luce"]
    alike = np.full(K, 1.0 / K)
    truth = plain.value("independent", TARGET, alike) - plain.value("independent", logger, alike)
    generator = np.random.default_rng(4)
    held = {"slate_ips": 0, "independent_ips": 0, "slate_snips": 0}
    for _ in range(200):
        log = plain.drawn_log(generator, "independent", logger, TARGET, 120, 3)
        estimates = estimate(log, estimators=list(held), from_today=True, full_support=True)
        for name, result in estimates.items():
            held[name] += result.low <= truth <= result.high
        gain = (slate_weights(log) - 1.0) * log["reward"]
        assert estimates["slate_ips"].value == pytest.approx(np.mean(gain), rel=1e-9)
    # At 95 % fewer than 180 of 200 hold with a probability of .0012.
    assert min(held.values()) >= 180


# ------------------------------------------------------------------------------------------------------ advice, names


def test_without_users_slates_are_independent_and_advice_names_arguments():
    """On the command line advice names options instead."""
    estimates = estimate(drop(drawn("position", n_users=600), "user"))
    for result in estimates.values():
        assert result.diagnostics.users == 600 * 4
        assert "--" not in " ".join(doubt.action for doubt in result.verdict.findings)
    advice = finding(estimates["independent_ips"], "assumption_unstated").action
    assert "assumption=" in advice
    assert "--assumption" in for_command(advice)


MARGINAL = ("user", "position", "reward", "propensity", "new")


@pytest.mark.parametrize(
    ("columns", "lacks"),
    [((), ("'slate_propensity'", "'new_slate'")), (("slate_propensity",), ("'new_slate'",))],
)
def test_an_estimator_that_lacks_columns_is_advised_with_them(columns, lacks):
    log = select(drawn("position", n_users=600), *MARGINAL, "action", *columns)
    advice = finding(estimate(log, **FACTS)["independent_ips"], "assumption_untested").action
    assert all(name in advice for name in lacks)
    assert advice.count("'") == 2 * len(lacks)
    arrays = {"marginal": log.pop("new")}
    estimates = estimate_ranking_value(log, arrays, called="two")
    assert "'two_slate'" in finding(estimates["independent_ips"], "assumption_untested").action


def test_it_is_said_why_an_assumption_cannot_be_tested():
    log = drawn("position", n_users=110, slates=1)
    nothing = np.zeros(len(log["reward"]))
    logs = [
        select(log, *MARGINAL),
        select(log, *MARGINAL, "slate_propensity"),
        log | {"new_unsupported": nothing + 0.2},
        log | {"new_slate": nothing, "new_conditional": nothing},
    ]
    results = [estimate(columns, estimators="independent_ips")["independent_ips"] for columns in logs]
    assert len({finding(result, "assumption_untested").message for result in results}) == 4


def test_a_log_is_read_as_its_columns_are():
    """Rows of views are left out."""
    world = SessionsWorld(SessionsParams(n_items=8, slate_size=3))
    log = simulate(world, registry.learner("random").fit(Log({}), n_items=8, seed=0), 40, 1)
    target = replay_ranking(log, registry.learner("popularity+epsilon=0.5").fit(log, n_items=8, seed=0))
    decisions = log.is_bandit
    assert not decisions.all()
    from_columns = estimate_ranking_value(
        {name: values[decisions] for name, values in log.columns.items()},
        {kind: values[decisions] for kind, values in target.items()},
    )
    assert ends(estimate_ranking_value(log, target)) == ends(from_columns)
    with refused(r"no column 'random' of a target's probabilities: give what replay_ranking"):
        estimate_ranking_value(log, "random")

"""Bad input gets one clear line, or a clear verdict."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.estimators import ESTIMATORS, Facts
from toys import refused
from twins.facts import difference, estimate_value
from twins.findings import codes

N = 500
NOTHING = np.zeros(N)
MODEL = {"q_logged": NOTHING, "q_target": NOTHING}
ROW_4 = np.arange(N) == 4
ROW_7 = np.arange(N) == 7


def make(n=N):
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.1, 0.9, n)
    return {"reward": (rng.random(n) < 0.1) * 1.0, "propensity": propensity, "target": propensity[::-1].copy()}


def with_one(name, row, value):
    """A column of :func:`make` with one other value."""
    values = make()[name]
    values[row] = value
    return {name: values}


def of_ids(*ids):
    """A column of ids, these over and over."""
    column = np.empty(N, dtype=object)
    column[:] = list(ids) * (N // len(ids))
    return column


ONE_VALUE = [
    *(("propensity", bad, "outside") for bad in (0.0, 1.2, -0.1, np.nan, np.inf)),
    *(("target", bad, "no probability") for bad in (-0.1, 1.5, np.nan)),
    *(("reward", bad, "not a finite") for bad in (np.nan, np.inf)),
    *(("propensity", bad, "too large") for bad in (1e-200, 5e-324)),
    *(("reward", bad, "too large") for bad in (1e90, 1e200)),
]
OF_BOTH = [
    # arguments of estimate_value and of difference
    *(({"clip": clip}, "clip must be a positive number") for clip in (0, -1.0, "ten", True, np.nan)),
    ({"weight_max": -1.0}, "weight_max must be a positive number"),
    ({"propensity_min": 2.0}, r"propensity_min must be a number in \(0, 1\], got 2.0: did you mean 2 % = 0.02\?"),
    ({"full_support": "yes"}, "full_support must be True, False or None"),
    ({"facts": {"propensity_min": 0.1}}, "facts must be recsim_mnar.Facts"),
    *(({"level": level}, "level must be") for level in (1.0, 95)),
    *(({"reward_max": bad}, "reward_max must be a finite number") for bad in (np.inf, np.nan, 1e200, "x")),
    ({"reward_max": 0.5}, "'reward', row .*1 is above --reward-max 0.5; raise it"),
    ({**with_one("reward", 9, -2.0), "reward_min": 0.0}, "'reward', row 9 .*-2 is below --reward-min 0; lower it"),
    ({"reward_min": 1.0, "reward_max": 0.0}, "must be below --reward-max"),
    ({"unsupported": np.full(N, 1.5)}, "'unsupported', row 0"),
    ({"unsupported": np.zeros(N - 1)}, "499 rows"),
    ({"target": make()["target"][1:]}, "'target' has 499 rows"),
    ({"reward": [], "propensity": [], "target": [], "baseline": []}, "no rows"),
    *(({"reward": [bad] * N}, "'reward' must hold numbers") for bad in ("a", 10**400)),
    *(
        ({"reward": np.full(N, bad)}, "'reward' must hold real numbers")
        for bad in (np.datetime64("2020-01-01"), np.timedelta64(3, "s"), 1j)
    ),
    ({"reward": [np.datetime64("2020-01-01")] * N}, "'reward' must hold real numbers"),
    *(({name: np.ma.array(np.ones(N), mask=ROW_7)}, f"'{name}', row 7 .*masked") for name in ("reward", "propensity")),
    ({"cluster": np.zeros(3)}, "shape"),
    *(
        ({"cluster": ids}, "'cluster', row 4 .*missing")
        for ids in (np.where(ROW_4, np.nan, 1.0), of_ids("a", "b", "c", "d", None), of_ids("a", "b", "c", "d", ""))
    ),
    ({"cluster": np.ma.array(np.arange(N), mask=ROW_4)}, "'cluster', row 4 .*masked"),
    ({"cluster": of_ids({"id": 1})}, "'cluster' must hold ids, numbers or text; it holds dict"),
    ({"estimator": "snip"}, "did you mean 'snips'"),
    ({"estimator": ["ips"]}, "unknown estimator"),
]
OF_A_VALUE = [
    ({"interval": "bettin"}, "did you mean 'betting'"),
    ({"interval": "delta"}, "no interval 'delta'"),
    ({"estimator": "snips", "interval": "betting"}, "betting"),
    ({"estimator": "clipped_ips", "interval": "bootstrap", "replicates": 2}, "replicates"),
    *(({"estimator": name}, "needs a reward model") for name in ("dr", "dm")),
    *(({"estimator": "dr", "model": bad}, "model must be the pair") for bad in (NOTHING, (NOTHING,), 3)),
    *(
        ({"estimator": name, "model": (NOTHING, NOTHING)}, "uses no model")
        for name in ("auto", "ips", "mips", "replay")
    ),
    ({"estimator": "mips"}, "needs the group's probability under both policies"),
    ({"estimator": "ips", "tau": 1.0}, "has no parameter 'tau'"),
    ({"warnings": "hello"}, "no parameter 'warnings'; it takes: replicates, seed"),
    ({"estimator": "dros", "lam": -1.0} | MODEL, "lam must be"),
    ({"estimator": "sg_ips", "lam": 2.0}, "lam must be"),
    ({"estimator": "beta_ips", "folds": 1}, "folds must be"),
    ({"estimator": "dr"} | MODEL | {"q_logged": np.full(N, np.nan)}, "'q_logged', row 0"),
    ({"estimator": "dr"} | MODEL | {"q_logged": np.full(N, 1e300)}, "'q_logged', row 0 .*too large"),
    ({"estimator": "dm", "q_target": np.full(N, -1e300)}, "'q_target', row 0 .*too large"),
]
OF_A_DIFFERENCE = [
    (with_one("target", 5, -1.0), "'target', row 5"),
    ({"baseline": with_one("target", 5, -1.0)["target"]}, "'baseline', row 5"),
    ({"estimator": "dr"}, "difference knows"),
]


@pytest.mark.parametrize(("name", "bad", "words"), ONE_VALUE)
@pytest.mark.parametrize("cluster", [None, np.arange(N) % 9], ids=["rows", "users"])
def test_a_bad_value_is_named_with_its_row(name, bad, words, cluster):
    with refused(f"'{name}', row 137 .*{words}"):
        estimate_value(**make() | with_one(name, 137, bad), cluster=cluster)


@pytest.mark.parametrize(("arguments", "words"), [*OF_BOTH, *OF_A_VALUE])
def test_wrong_arguments_of_a_value(arguments, words):
    arguments = make() | arguments
    arguments.pop("baseline", None)
    with refused(words):
        estimate_value(**arguments)


@pytest.mark.parametrize(("arguments", "words"), [*OF_BOTH, *OF_A_DIFFERENCE])
def test_wrong_arguments_of_a_difference(arguments, words):
    data = make()
    with refused(words):
        difference(**data | {"baseline": data["target"]} | arguments)


def test_a_difference_without_rewards_is_not_to_be_used():
    data = make() | {"reward": NOTHING}
    silent = difference(**data, baseline=data["propensity"], facts=Facts(reward_max=1.0))
    assert "no_reward" in codes(silent, "do_not_use")


# mips needs probabilities of groups
PLAIN = [name for name, info in ESTIMATORS.items() if not info.requires and name != "mips"]


def model(name, n, value):
    """The columns of a reward model that an estimator needs."""
    return {column: np.full(n, value) for column in ESTIMATORS[name].needs}


@pytest.mark.parametrize("name", PLAIN)
def test_one_row_no_reward_and_no_support_get_a_verdict(name):
    one = estimate_value([1.0], [0.5], [0.2], estimator=name, **model(name, 1, 0.1))
    assert one.verdict.startswith("do not use: only 1 row,")
    data = make() | model(name, N, 0.1)
    silent = estimate_value(**data | {"reward": NOTHING}, estimator=name, facts=Facts(reward_max=1.0))
    assert "no_reward" in codes(silent, "do_not_use")
    outside = estimate_value(**data | {"target": NOTHING}, estimator=name)
    assert outside.verdict.startswith("do not use: the target takes none")
    for estimate in (one, silent, outside):
        assert np.all(np.isfinite([estimate.value, estimate.low, estimate.high, estimate.ess]))
        assert estimate.low <= estimate.value <= estimate.high


@pytest.mark.parametrize("mean", [0.2, -0.2])
def test_signed_rewards_are_not_taken_for_few(mean):
    """They are 14 standard errors from 0, so that the interval is a seventh of the value."""
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.1, 0.9, 5000)
    reward = rng.normal(mean, 1.0, 5000)
    assert estimate_value(reward, propensity, propensity, cluster=np.arange(5000)).verdict == "trust"


def test_a_mask_that_hides_nothing_is_no_fault():
    data = make()
    masked = {name: np.ma.array(values) for name, values in data.items()}
    assert estimate_value(**masked) == estimate_value(**data)


@pytest.mark.parametrize("name", ["ips", "clipped_ips", "snips"])
def test_no_reward_leaves_an_upper_end_where_the_range_is_known(name):
    data = make() | {"reward": NOTHING, "estimator": name, "clip": 2.0}
    bounded = estimate_value(**data, facts=Facts(reward_max=1.0))
    unbounded = estimate_value(**data)
    assert bounded.low == unbounded.low == 0.0
    assert 1.0 / N < bounded.high < 1.0
    assert unbounded.high == np.inf
    assert "no_reward" in codes(unbounded, "do_not_use")


@pytest.mark.parametrize("reward", [-1.0, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("name", ["snips", "replay"])
def test_a_point_is_not_trusted(reward, name):
    data = make() | {"reward": np.full(N, reward), "reward_max": abs(reward) * 2.0}
    data["target"] = data["propensity"] * (1.0 + 0.1 * np.sin(np.arange(N)))
    point = estimate_value(**data, estimator=name, cluster=np.arange(N) // 2)
    assert codes(point) & {"no_width", "no_reward"}
    assert not point.trusted


def test_weights_shrunk_to_nothing_are_not_believed():
    data = make(5000)
    data["target"] = data["propensity"]
    estimate = estimate_value(**data, estimator="ix_ips", gamma=np.inf, facts=Facts(full_support=True))
    assert estimate.value == 0.0
    assert estimate.high > data["reward"].mean()  # what the unchanged weights give
    assert estimate.verdict.level == "do_not_use"


@pytest.mark.parametrize("name", ["ips", "clipped_ips", "snips"])
def test_a_policy_against_itself_is_certain(name):
    data = make(5000)
    data["baseline"] = data["target"] = data["propensity"]
    gap = difference(**data, estimator=name, clip=2.0, facts=Facts(full_support=True))
    assert (gap.value, gap.low, gap.high, gap.verdict) == (0.0, 0.0, 0.0, "trust")


def heavy(n=4_000):
    """Weights with a tail index about 1, rewards in few rows."""
    rng = np.random.default_rng(3)
    propensity = np.clip(rng.uniform(0.0, 1.0, n), 1e-5, 1.0)
    return {"reward": (rng.random(n) < 0.2) * 1.0, "propensity": propensity, "target": np.full(n, 0.1)}


PARAMETERS = {"dros": {"lam": 0.1}, "sg_ips": {"lam": 0.9}, "sg_dr": {"lam": 0.9}, "ix_ips": {"gamma": 0.5}}


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("name", PLAIN)
def test_actions_are_possible_and_agree_with_each_other(name, clip):
    columns = heavy() | model(name, 4_000, 0.2)
    verdict = estimate_value(**columns, estimator=name, clip=clip, **PARAMETERS.get(name, {})).verdict
    actions = [finding.action for finding in verdict.findings if finding.level != "trust"]
    assert all(actions)
    assert all(finding.severity >= 0.0 for finding in verdict.findings)
    if not ESTIMATORS[name].clips:
        assert not any("the clip" in action or "a clip" in action for action in actions)
    if name in PARAMETERS:
        assert not any("clip" in action for action in actions)
    if clip is not None:
        assert not any("give a clip" in action for action in actions)


@pytest.mark.parametrize("estimator", ["ips", "clipped_ips", "snips", "beta_ips"])
@pytest.mark.parametrize("bound", [{"weight_max": 1e300}, {"propensity_min": 1e-300}])
def test_a_bound_beyond_all_weights_is_as_good_as_none(estimator, bound):
    options = {"estimator": estimator, "full_support": True, "reward_max": 1.0}
    bounded = estimate_value(**make(), **options, **bound)
    unbounded = estimate_value(**make(), **options, facts=Facts(weight_max=np.inf))
    assert (bounded.value, bounded.low, bounded.high) == (unbounded.value, unbounded.low, unbounded.high)

"""What bad input gets: one clear line, or a clear verdict."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ESTIMATORS, Facts
from twins.facts import difference, estimate_value
from twins.findings import codes


def make(n: int = 500) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.1, 0.9, n)
    return {"reward": (rng.random(n) < 0.1) * 1.0, "propensity": propensity, "target": propensity[::-1].copy()}


def with_one(name, row, value):
    """A column of :func:`make` with one other value."""
    values = make()[name]
    values[row] = value
    return {name: values}


def of_ids(*ids):
    """A column of 500 ids, these over and over."""
    column = np.empty(500, dtype=object)
    column[:] = list(ids) * (500 // len(ids))
    return column


NOTHING, MODEL = np.zeros(500), {"q_logged": np.zeros(500), "q_target": np.zeros(500)}
ROW_4, ROW_7 = np.arange(500) == 4, np.arange(500) == 7
NAMED = [
    *(("propensity", bad, "outside") for bad in (0.0, 1.2, -0.1, np.nan, np.inf)),
    *(("target", bad, "no probability") for bad in (-0.1, 1.5, np.nan)),
    *(("reward", bad, "not a finite") for bad in (np.nan, np.inf)),
    *(("propensity", bad, "too large") for bad in (1e-200, 5e-324)),
    *(("reward", bad, "too large") for bad in (1e90, 1e200)),
]
BOTH = [
    # arguments of estimate_value and of difference
    *(({"clip": clip}, "clip must be a positive number") for clip in (0, -1.0, "ten", True, np.nan)),
    ({"weight_max": -1.0}, "weight_max must be a positive number"),
    ({"propensity_min": 2.0}, r"propensity_min must be a number in \(0, 1\], got 2.0: did you mean 2 % = 0.02\?"),
    ({"full_support": "yes"}, "full_support must be True, False or None"),
    ({"facts": {"propensity_min": 0.1}}, "facts must be recsim_mnar.Facts"),
    ({"level": 1.0}, "level must be"),
    ({"level": 95}, "level must be"),
    *(({"reward_max": bad}, "reward_max must be a finite number") for bad in (np.inf, np.nan, 1e200, "x")),
    ({"reward_max": 0.5}, "'reward', row .*1 is above --reward-max 0.5; raise it"),
    ({**with_one("reward", 9, -2.0), "reward_min": 0.0}, "'reward', row 9 .*-2 is below --reward-min 0; lower it"),
    ({"reward_min": 1.0, "reward_max": 0.0}, "must be below --reward-max"),
    ({"unsupported": np.full(500, 1.5)}, "'unsupported', row 0"),
    ({"unsupported": np.full(499, 0.0)}, "499 rows"),
    ({"target": make()["target"][1:]}, "'target' has 499 rows"),
    ({"reward": [], "propensity": [], "target": [], "baseline": []}, "no rows"),
    ({"reward": ["a"] * 500}, "must hold numbers"),
    ({"reward": [10**400] * 500}, "'reward' must hold numbers"),
    *(({"reward": np.full(500, bad)}, "'reward' must hold real numbers")
      for bad in (np.datetime64("2020-01-01"), np.timedelta64(3, "s"), 1j)),
    ({"reward": [np.datetime64("2020-01-01")] * 500}, "'reward' must hold real numbers"),
    ({"reward": np.ma.array(np.ones(500), mask=ROW_7)}, "'reward', row 7 .*masked"),
    ({"propensity": np.ma.array(np.ones(500), mask=ROW_7)}, "'propensity', row 7 .*masked"),
    ({"cluster": np.zeros(3)}, "shape"),
    ({"cluster": np.where(ROW_4, np.nan, 1.0)}, "'cluster', row 4 .*missing"),
    ({"cluster": of_ids("a", "b", "c", "d", None)}, "'cluster', row 4 .*missing"),
    ({"cluster": ["a", ""] * 250}, "'cluster', row 1 .*missing"),
    ({"cluster": np.ma.array(np.arange(500), mask=ROW_4)}, "'cluster', row 4 .*masked"),
    ({"cluster": of_ids({"id": 1})}, "'cluster' must hold ids, numbers or text; it holds dict"),
    ({"estimator": "snip"}, "did you mean 'snips'"),
    ({"estimator": ["ips"]}, "unknown estimator"),
]  # fmt: skip
ONE = [
    # arguments of estimate_value alone
    ({"interval": "bettin"}, "did you mean 'betting'"),
    ({"interval": "delta"}, "no interval 'delta'"),
    ({"estimator": "snips", "interval": "betting"}, "betting"),
    ({"estimator": "clipped_ips", "interval": "bootstrap", "replicates": 2}, "replicates"),
    ({"estimator": "dr"}, "needs a reward model"),
    ({"estimator": "dm"}, "needs a reward model"),
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
    ({"estimator": "dr"} | MODEL | {"q_logged": np.full(500, np.nan)}, "'q_logged', row 0"),
    ({"estimator": "dr"} | MODEL | {"q_logged": np.full(500, 1e300)}, "'q_logged', row 0 .*too large"),
    ({"estimator": "dm", "q_target": np.full(500, -1e300)}, "'q_target', row 0 .*too large"),
]


def refused(call, arguments, words):
    """That a call is refused in one line with these words."""
    with pytest.raises(UserError, match=words) as caught:
        call(**make() | arguments)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "bad", "words"), NAMED)
@pytest.mark.parametrize("cluster", [None, np.arange(500) % 9])
def test_a_bad_value_is_named_with_its_row(name, bad, words, cluster):
    refused(estimate_value, with_one(name, 137, bad) | {"cluster": cluster}, f"'{name}', row 137 .*{words}")


@pytest.mark.parametrize(("arguments", "words"), [*BOTH, *ONE])
def test_wrong_arguments(arguments, words):
    refused(estimate_value, {name: value for name, value in arguments.items() if name != "baseline"}, words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [*BOTH, (with_one("target", 5, -1.0), "'target', row 5"), ({"baseline": with_one("target", 5, -1.0)["target"]},
     "'baseline', row 5"), ({"estimator": "dr"}, "difference knows")],
)  # fmt: skip
def test_wrong_arguments_of_a_difference(arguments, words):
    refused(difference, {"baseline": make()["target"]} | arguments, words)


def test_a_difference_without_rewards_is_not_to_be_used():
    data = make() | {"reward": NOTHING}
    silent = difference(**data, baseline=data["propensity"], facts=Facts(reward_max=1.0))
    assert "no_reward" in codes(silent, "do_not_use")


# mips needs probabilities of groups
PLAIN = [name for name, info in ESTIMATORS.items() if not info.requires and name != "mips"]


@pytest.mark.parametrize("name", PLAIN)
def test_one_row_no_reward_and_no_support_get_a_verdict(name):
    q = {"q_logged": [0.1], "q_target": [0.2]}
    one = estimate_value([1.0], [0.5], [0.2], estimator=name, **(q if ESTIMATORS[name].needs else {}))
    assert one.verdict.startswith("do not use: only 1 row,")
    data = make()
    models = {"q_logged": np.full(500, 0.1), "q_target": np.full(500, 0.1)} if ESTIMATORS[name].needs else {}
    none = (np.zeros(500), data["propensity"], data["target"])
    silent = estimate_value(*none, estimator=name, facts=Facts(reward_max=1.0), **models)
    assert "no_reward" in codes(silent, "do_not_use")
    outside = estimate_value(data["reward"], data["propensity"], np.zeros(500), estimator=name, **models)
    assert outside.verdict.startswith("do not use: the target takes none")
    for estimate in (one, silent, outside):
        assert np.all(np.isfinite([estimate.value, estimate.low, estimate.high, estimate.ess]))
        assert estimate.low <= estimate.value <= estimate.high


def test_signed_rewards_are_not_taken_for_few():
    rng = np.random.default_rng(0)
    propensity = rng.uniform(0.1, 0.9, 5000)
    for mean in (0.2, -0.2):  # 14 standard errors from 0, so that the interval is a seventh of the value
        found = estimate_value(rng.normal(mean, 1.0, 5000), propensity, propensity, cluster=np.arange(5000))
        assert found.verdict == "trust"


def test_a_mask_that_hides_nothing_is_no_fault():
    data = make()
    plain = estimate_value(**data)
    assert estimate_value(**{name: np.ma.array(values) for name, values in data.items()}) == plain


@pytest.mark.parametrize("name", ["ips", "clipped_ips", "snips"])
def test_no_reward_leaves_an_upper_end_where_the_range_is_known(name):
    data = make() | {"reward": NOTHING}
    known = estimate_value(**data, facts=Facts(reward_max=1.0), estimator=name, clip=2.0)
    open_ended = estimate_value(**data, estimator=name, clip=2.0)
    assert known.low == open_ended.low == 0.0
    assert 1.0 / 500 < known.high < 1.0
    assert open_ended.high == np.inf
    assert "no_reward" in codes(known, "do_not_use") & codes(open_ended, "do_not_use")


@pytest.mark.parametrize("reward", [-1.0, 0.3, 1.0, 7.0])
@pytest.mark.parametrize("name", ["snips", "replay"])
def test_a_point_is_not_trusted(reward, name):
    data = make() | {"reward": np.full(500, reward), "reward_max": abs(reward) * 2.0}
    data["target"] = data["propensity"] * (1.0 + 0.1 * np.sin(np.arange(500)))
    found = estimate_value(**data, estimator=name, cluster=np.arange(500) // 2)
    assert codes(found) & {"no_width", "no_reward"}
    assert not found.trusted


def test_weights_shrunk_to_nothing_are_not_believed():
    data = make(5000)
    data["target"] = data["propensity"]
    found = estimate_value(**data, estimator="ix_ips", gamma=np.inf, facts=Facts(full_support=True))
    assert found.value == 0.0
    assert found.high > data["reward"].mean()  # what the unchanged weights give
    assert found.verdict.level == "do_not_use"


def test_a_policy_against_itself_is_certain():
    data = make(5000)
    data["target"] = data["propensity"]
    for name in ("ips", "clipped_ips", "snips"):
        found = difference(**data, baseline=data["target"], estimator=name, clip=2.0, facts=Facts(full_support=True))
        assert (found.value, found.low, found.high, found.verdict) == (0.0, 0.0, 0.0, "trust")


def heavy(n: int = 4_000) -> dict[str, np.ndarray]:
    """Weights with a tail index about 1, rewards in few rows."""
    rng = np.random.default_rng(3)
    propensity = np.clip(rng.uniform(0.0, 1.0, n), 1e-5, 1.0)
    return {"reward": (rng.random(n) < 0.2) * 1.0, "propensity": propensity, "target": np.full(n, 0.1)}


@pytest.mark.parametrize("clip", [None, 1.0])
@pytest.mark.parametrize("name", PLAIN)
def test_actions_are_possible_and_agree_with_each_other(name, clip):
    data = heavy()
    given = {k: np.full(4_000, 0.2) for k in ESTIMATORS[name].needs}
    given |= {"dros": {"lam": 0.1}, "sg_ips": {"lam": 0.9}, "sg_dr": {"lam": 0.9}, "ix_ips": {"gamma": 0.5}}.get(
        name, {}
    )
    verdict = estimate_value(**data, estimator=name, clip=clip, **given).verdict
    actions = [finding.action for finding in verdict.findings if finding.level != "trust"]
    info = ESTIMATORS[name]
    assert all(actions)
    assert all(finding.severity >= 0.0 for finding in verdict.findings)
    assert any("the clip" in a or "a clip" in a for a in actions) <= info.clips
    if name in ("dros", "sg_ips", "sg_dr", "ix_ips"):
        assert not any("clip" in action for action in actions)
    if clip is not None:
        assert not any("give a clip" in action for action in actions)


@pytest.mark.parametrize("estimator", ["ips", "clipped_ips", "snips", "beta_ips"])
@pytest.mark.parametrize("stated", [{"weight_max": 1e300}, {"propensity_min": 1e-300}])
def test_a_bound_beyond_all_weights_is_as_good_as_none(estimator, stated):
    known = {"estimator": estimator, "full_support": True, "reward_max": 1.0}
    estimate = estimate_value(**make(), **known, **stated)
    without = estimate_value(**make(), **known, facts=Facts(weight_max=np.inf))
    assert (estimate.value, estimate.low, estimate.high) == (without.value, without.low, without.high)

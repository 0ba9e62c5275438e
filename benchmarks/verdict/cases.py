"""Logs of known value on which a trusted interval could miss: one function a case, one log a call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Columns = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A way to make logs, what is true of them, and what a careful user would say of them.

    Attributes:
        name: stable id; its number is that of the finding.
        draw: a Generator to the columns of one log, as `estimate_value` takes them.
        truth: the target policy's value.
        methods: name to further arguments of `estimate_value`.
        stated: arguments that state what is true of the log (support, ranges, bounds).
        oracle: whether unclipped IPS is unbiased, so that its spread over the logs is the oracle's.
    """

    name: str
    draw: Callable[[np.random.Generator], Columns]
    truth: float
    methods: dict[str, dict[str, Any]] = field(default_factory=lambda: {"default": {}})
    stated: dict[str, Any] = field(default_factory=dict)
    oracle: bool = True


def lognormal(n: int, sigma: float, rate: float, cost: float) -> Callable[[np.random.Generator], Columns]:
    """Lognormal weights of mean 1, clicks that do not depend on them, a cost that every row has."""

    def draw(rng: np.random.Generator) -> Columns:
        weight = np.minimum(np.exp(sigma * rng.standard_normal(n) - sigma**2 / 2), 1e4)
        reward = (rng.random(n) < rate) - cost
        return {"reward": reward, "propensity": np.full(n, 1e-4), "target": weight * 1e-4}

    return draw


def missing(rng: np.random.Generator) -> Columns:
    """4 % of the target's mass lies where the log never goes; there half of what is shown is clicked."""
    n = 20_000
    return {
        "reward": (rng.random(n) < 0.01).astype(float),
        "propensity": np.full(n, 0.5),
        "target": np.full(n, 0.48),
    }


def exploring(share: float, rate: float) -> Callable[[np.random.Generator], Columns]:
    """Epsilon-greedy logging (.1, 20 actions); the target puts ``share`` on one action that is only explored."""
    n, explored, greedy = 20_000, 0.1 / 20, 0.9 + 0.1 / 20

    def draw(rng: np.random.Generator) -> Columns:
        u = rng.random(n)
        action = np.where(u < greedy, 0, np.where(u < greedy + explored, 1, 2))
        return {
            "reward": (rng.random(n) < rate).astype(float),
            "propensity": np.where(action == 0, greedy, explored),
            "target": np.array([1.0 - share, share, 0.0])[action],
        }

    return draw


def two_points(rng: np.random.Generator) -> Columns:
    """A tenth of the target's mass at weight 100, two clicks expected there."""
    n = 20_000
    heavy = rng.random(n) < 0.001
    weight = np.where(heavy, 100.0, 0.9 / 0.999)
    return {
        "reward": (rng.random(n) < 0.1).astype(float),
        "propensity": np.full(n, 0.005),
        "target": weight * 0.005,
    }


def rare(rng: np.random.Generator) -> Columns:
    """Half the target's mass on an action that a third of the logs never show, and that is always rewarded."""
    n, p = 400, 1.08 / 400
    seen = rng.random(n) < p
    return {
        "reward": np.where(seen, 1.0, (rng.random(n) < 0.1).astype(float)),
        "propensity": np.where(seen, p, 1 - p),
        "target": np.full(n, 0.5),
    }


def pareto_rewards(rng: np.random.Generator) -> Columns:
    """Pareto rewards of index 1.2, on-policy."""
    n = 1000
    return {"reward": rng.random(n) ** (-1 / 1.2), "propensity": np.full(n, 0.5), "target": np.full(n, 0.5)}


def pareto_losses(rng: np.random.Generator) -> Columns:
    """The same with the other sign."""
    columns = pareto_rewards(rng)
    return columns | {"reward": -columns["reward"]}


def pareto_lengths(index: float, cap: float) -> tuple[Callable[[np.random.Generator, int], Any], np.ndarray]:
    """Whole numbers of rows with a Pareto tail, and the probability of each."""
    size = np.arange(1, int(cap) + 1)
    above = np.append(size, cap + 1.0) ** -index
    above[-1] = 0.0
    chance = above[:-1] - above[1:]
    return lambda rng, n: rng.choice(size, n, p=chance), chance


def lognormal_lengths(sd: float, cap: int = 100_000) -> tuple[Callable[[np.random.Generator, int], Any], np.ndarray]:
    from scipy.special import ndtr

    below = ndtr(np.log(np.arange(1, cap + 1) + 1.0) / sd)
    below[-1] = 1.0
    chance = np.diff(below, prepend=0.0)

    def draw(rng: np.random.Generator, n: int) -> Any:
        return np.minimum(np.maximum(np.exp(sd * rng.standard_normal(n)).astype(int), 1), cap)

    return draw, chance


def long_users(draw_lengths: Callable[[np.random.Generator, int], Any], users: int) -> Any:
    """On-policy rows; a user of L rows is rewarded with probability .9 / sqrt(L)."""

    def draw(rng: np.random.Generator) -> Columns:
        lengths = draw_lengths(rng, users)
        chance = np.repeat(0.9 / np.sqrt(lengths), lengths)
        n = chance.size
        return {
            "reward": (rng.random(n) < chance).astype(float),
            "propensity": np.full(n, 0.5),
            "target": np.full(n, 0.5),
            "cluster": np.repeat(np.arange(users), lengths),
        }

    return draw


def long_truth(chance: np.ndarray) -> float:
    size = np.arange(1, chance.size + 1)
    return float(np.sum(chance * 0.9 * np.sqrt(size)) / np.sum(chance * size))


_TABLE = np.array(  # click rate of 6 actions in 4 contexts
    [[0.6, 0.1, 0.1, 0.2, 0.1, 0.1], [0.1, 0.6, 0.1, 0.1, 0.2, 0.1], [0.1, 0.1, 0.6, 0.1, 0.1, 0.2],
     [0.2, 0.1, 0.1, 0.6, 0.1, 0.1]]
)  # fmt: skip
_PERSONAL = np.where(np.arange(6) == np.arange(4)[:, None], 0.75, 0.05)


def personal(rng: np.random.Generator) -> Columns:
    """Uniform logging, a target that takes each context's own best action; 400 users of 5 rows."""
    users, rows = 400, 5
    context = np.repeat(rng.integers(0, 4, users), rows)
    action = rng.integers(0, 6, context.size)
    return {
        "reward": (rng.random(context.size) < _TABLE[context, action]).astype(float),
        "propensity": np.full(context.size, 1 / 6),
        "target": _PERSONAL[context, action],
        "cluster": np.repeat(np.arange(users), rows),
        "context": context,
        "action": action,
    }


def few_long(users: int) -> Callable[[np.random.Generator], Columns]:
    """One user in twenty has 200 rows and is always rewarded, the others have one row and are rewarded at .1."""

    def draw(rng: np.random.Generator) -> Columns:
        long = rng.random(users) < 0.05
        lengths = np.where(long, 200, 1)
        n = int(lengths.sum())
        chance = np.repeat(np.where(long, 0.9, 0.1), lengths)
        return {
            "reward": (rng.random(n) < chance).astype(float),
            "propensity": np.full(n, 0.5),
            "target": np.full(n, 0.5),
            "cluster": np.repeat(np.arange(users), lengths),
        }

    return draw


_MODEL_TARGET = np.array([0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.2, 0.6])
_MODEL_VALUE = 0.05 + 0.1 * float(_MODEL_TARGET @ np.arange(10)) / 10


def modelled(rows: int, users: int | None) -> Callable[[np.random.Generator], Columns]:
    """Weights up to 6, clicks that users differ in, and a reward model that knows the actions a little."""

    def draw(rng: np.random.Generator) -> Columns:
        n = rows if users is None else users * 10
        effect = rng.gamma(0.5, 2.0, n if users is None else users)
        effect = np.minimum(effect if users is None else np.repeat(effect, 10), 6.5)
        action = rng.integers(0, 10, n)
        guess = 0.05 + 0.05 * action / 10
        out = {
            "reward": (rng.random(n) < (0.05 + 0.1 * action / 10) * effect / _MEAN_EFFECT).astype(float),
            "propensity": np.full(n, 0.1),
            "target": _MODEL_TARGET[action],
            "q_logged": guess,
            "q_target": np.full(n, 0.05 + 0.05 * float(_MODEL_TARGET @ np.arange(10)) / 10),
        }
        if users is not None:
            out["cluster"] = np.repeat(np.arange(users), 10)
        return out

    return draw


def _mean_capped_effect() -> float:
    """E[min(G, 6.5)] of a gamma variable of shape .5 and scale 2."""
    from scipy.special import gammainc, gammaincc

    return float(1.0 * gammainc(1.5, 3.25) + 6.5 * gammaincc(0.5, 3.25))


_MEAN_EFFECT = _mean_capped_effect()

_FAMILY = {
    "default": {},
    "snips": {"estimator": "snips"},
    "beta_ips": {"estimator": "beta_ips"},
    "delta": {"estimator": "ips", "interval": "delta"},
    "bootstrap": {"estimator": "ips", "interval": "bootstrap", "replicates": 200},
}
_GUARANTEES = {name: {"interval": name} for name in ("bernstein", "betting", "log_smoothing", "anytime")}
_DOUBLY = {name: {"estimator": name} for name in ("dr", "sndr", "switch_dr")}


def every_case() -> list[Case]:
    """The cases of off-policy estimates."""
    yes = {"full_support": True}
    unit = yes | {"reward_min": 0.0, "reward_max": 1.0}
    cases = [
        Case("01-cost-sd1", lognormal(1000, 1.0, 0.01, 0.01), 0.0, stated=yes),
        Case("01-no-cost-sd1", lognormal(1000, 1.0, 0.01, 0.0), 0.01, stated=yes),
        Case("01-cost-sd1.5", lognormal(10_000, 1.5, 0.002, 0.001), 0.001, stated=yes),
        Case("02-missing-unstated", missing, 0.0296, oracle=False),
        Case("02-missing-unstated-clip", missing, 0.0296, {"default": {"clip": 15.0}}, oracle=False),
        Case("03-exploring-half", exploring(0.5, 0.01), 0.01, _FAMILY, yes),
        Case("03-exploring-third", exploring(0.3, 0.03), 0.03, _FAMILY, yes),
        Case("04-two-points", two_points, 0.1, stated=unit),
        Case("06-rare-unbounded", rare, 0.55, _GUARANTEES, yes),
        Case("06-rare-bounded", rare, 0.55, _GUARANTEES, unit | {"weight_max": 0.5 / (1.08 / 400)}),
        Case("07-pareto-rewards", pareto_rewards, 6.0, stated=yes),
        Case("07-pareto-losses", pareto_losses, -6.0, stated=yes),
    ]
    for label, (draw, chance) in (
        ("pareto2", pareto_lengths(2.0, 100_000)),
        ("pareto1.2", pareto_lengths(1.2, 2000)),
        ("lognormal1.5", lognormal_lengths(1.5)),
    ):
        cases += [
            Case(f"10-{label}-{users}", long_users(draw, users), long_truth(chance), stated=unit)
            for users in (100, 1000)
        ]
    value = float((_PERSONAL * _TABLE).sum() / 4)
    cases.append(Case("11-mips", personal, value, {"default": {}, "mips": {"estimator": "mips"}}, unit))
    truth = (0.05 * 200 * 0.9 + 0.95 * 0.1) / (0.05 * 200 + 0.95)
    bounds = unit | {"weight_max": 1.0, "user_rows_max": 200}
    cases += [
        Case(f"12-long-users-{users}", few_long(users), truth, {"betting": {"interval": "betting"}}, bounds)
        for users in (10, 40)
    ]
    cases.append(Case("13-dr-300-rows", modelled(300, None), _MODEL_VALUE, _DOUBLY, unit))
    cases.append(Case("13-dr-60-users", modelled(0, 60), _MODEL_VALUE, _DOUBLY, unit))
    return cases

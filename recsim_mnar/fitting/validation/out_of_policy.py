"""Whether a world foresees what it was not fitted to: another policy's click rate, ratings of items drawn at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.validation.checks import Check
from recsim_mnar.fitting.validation.lives import Floats, Ints
from recsim_mnar.fitting.validation.simulated import SharesPolicy, shown_in
from recsim_mnar.log import schema
from recsim_mnar.log.rows import user_begins
from recsim_mnar.log.table import Log
from recsim_mnar.progress import counting
from recsim_mnar.rng import Stream, derive_seed, uniforms
from recsim_mnar.simulate import simulate

_ROWS = 400_000
_FIRST_USERS = 2000
_HALVES = 99


def other_policy(worlds: Sequence[Any], log: Log, other: Log, seed: int) -> Check:
    """The click rate under another policy, predicted by worlds that know the first log only.

    Args:
        worlds: the best fit first, then an ensemble that says how well it is known (it may be empty).
        log: under the policy that the worlds know; for the two baselines.
        other: under the other policy.
        seed: of the simulated users.

    Raises:
        UserError: the other log has no recommendations.
    """
    bandit = other["event"] == schema.BANDIT
    if not bandit.any():
        raise UserError("validate: the other log has no recommendations whose click rate could be predicted")
    reward, owner = other["reward"][bandit], _owners(other["user"][bandit])
    observed, error = _mean_by_user(reward, owner)
    policy = shown_in(other, worlds[0].n_items).policy
    rates = [
        _click_rate(world, policy, derive_seed(seed, f"other policy {i}"))
        for i, world in counting(list(enumerate(worlds)), "worlds")
    ]
    predicted, own_error = rates[0]
    spread = float(np.std([rate for rate, _ in rates[1:]], ddof=1)) if len(rates) > 2 else 0.0
    sd = math.sqrt(error**2 + own_error**2 + spread**2)
    baselines = _baselines(log, policy)
    halves = _half_gaps(reward, owner, derive_seed(seed, "other halves"))
    size = max(observed, 1e-300)
    return Check(
        name="another policy's click rate", kind="out of policy",
        question="what a policy earns that shows other items more often, to whoever comes",
        what="click rate under the other policy", real=observed, simulated=predicted,
        distance=abs(predicted - observed) / size, ceiling=float(np.median(halves)) / size,
        ceiling_high=float(np.quantile(halves, 0.95)) / size, visible=1.96 * sd / size, tolerance=0.10,
        p=math.erfc(abs(predicted - observed) / max(sd, 1e-300) / math.sqrt(2.0)),
        picture={"kind": "rates", "names": ["real", "simulated", *baselines],
                 "values": [observed, predicted, *baselines.values()],
                 "errors": [1.96 * error, 1.96 * math.hypot(own_error, spread), *(0.0 for _ in baselines)]},
        details={"interval_low": predicted - 1.96 * sd, "interval_high": predicted + 1.96 * sd,
                 "inside": bool(abs(predicted - observed) <= 1.96 * sd), "error_of_real": error,
                 "error_of_simulation": own_error, "spread_of_ensemble": spread, "baselines": baselines},
    )  # fmt: skip


def random_ratings(worlds: Sequence[Any], log: Log, other: Log, seed: int) -> list[Check]:
    """Ratings of items that were drawn at random, predicted by worlds that know chosen ratings only.

    Args:
        worlds: that say all ratings (``ratings_of``): the best fit first, then an ensemble.
        log: with the chosen ratings, whose distribution is the baseline.
        other: organic rows with the ratings of random items; users and items are numbered as in the log.
        seed: of the worlds' users.

    Raises:
        UserError: worlds that do not say ratings, or a log without.
    """
    if not all(hasattr(world, "ratings_of") for world in worlds):
        raise UserError(f"validate: the {worlds[0].name} world does not say what users would rate")
    rows = (other["event"] == schema.ORGANIC) & np.isfinite(other["reward"])
    if not rows.any():
        raise UserError("validate: the other log has no ratings")
    user, item, stars = other["user"][rows], other["item"][rows].astype(np.int64), other["reward"][rows]
    ids, owner = np.unique(user, return_inverse=True)
    matrices = [world.ratings_of(seed, ids) for world in worlds]
    chosen = log["reward"][(log["event"] == schema.ORGANIC) & np.isfinite(log["reward"])]
    checks = [_marginal(matrices, owner, stars, chosen, seed)]
    if all(getattr(world, "matrix", None) is not None for world in worlds):
        checks.append(_item_means(np.stack([m[owner, item] for m in matrices]), owner, item, stars, seed))
    return checks


def _marginal(matrices: Sequence[Floats], owner: Ints, stars: Floats, chosen: Floats, seed: int) -> Check:
    """How ratings of random items are distributed; tested by their mean, the ensemble's spread included."""
    scale = np.unique(np.concatenate([stars, *(np.unique(m) for m in matrices)]))
    real = _counts(owner, np.searchsorted(scale, stars), len(scale))
    foreseen = np.stack([np.mean(m[..., None] == scale, axis=(0, 1)) for m in matrices])
    predicted, observed = foreseen[0], real.sum(axis=0) / real.sum()
    mean, error = _mean_by_user(stars, owner)
    means = foreseen @ scale
    spread = float(np.std(means[1:], ddof=1)) if len(means) > 2 else 0.0
    by_user = matrices[0].mean(axis=1)
    sd = math.sqrt(error**2 + spread**2 + float(by_user.var()) / len(by_user))
    halves = _split(real, derive_seed(seed, "halves"))
    between = _half_sum(halves @ real, (~halves) @ real)
    return Check(
        name="ratings of random items", kind="out of policy",
        question="how high users would rate items that they did not choose, on the whole", what="mean rating",
        real=mean, simulated=float(means[0]), distance=float(_half_sum(predicted, observed)),
        ceiling=float(np.median(between)), ceiling_high=float(np.quantile(between, 0.95)),
        visible=float(np.quantile(between, 0.95)) / 2.0, tolerance=0.05,  # halves err by twice what all ratings do
        p=math.erfc(abs(float(means[0]) - mean) / sd / math.sqrt(2.0)),
        picture={"kind": "shares", "axis": "rating", "entries": [f"{s:g}" for s in scale], "real": observed.tolist(),
                 "simulated": predicted.tolist(), **_band(halves, real)},
        details={"interval_low": float(means[0]) - 1.96 * sd, "interval_high": float(means[0]) + 1.96 * sd,
                 "spread_of_ensemble": spread, "mean_of_chosen": float(chosen.mean()),
                 "distance_of_chosen": float(_half_sum(np.mean(chosen[:, None] == scale, axis=0), observed))},
    )  # fmt: skip


def _item_means(drawn: Floats, owner: Ints, item: Ints, stars: Floats, seed: int) -> Check:
    """How well single ratings are foreseen: squared error, beside what other users' ratings of random items foresee."""
    predicted = drawn.mean(axis=0)
    own = float(np.mean((predicted - stars) ** 2))
    half = _split(np.zeros((int(owner.max()) + 1, 1)), derive_seed(seed, "items"))[:9]
    ceilings, constants = [], []
    for flags in half:
        for known in (flags[owner], ~flags[owner]):
            foreseen = _shrunken_means(item[known], stars[known], int(item.max()) + 1)
            ceilings.append(float(np.mean((foreseen[item[~known]] - stars[~known]) ** 2)))
            constants.append(float(np.mean((stars[known].mean() - stars[~known]) ** 2)))
    ceiling, constant = float(np.median(ceilings)), float(np.median(constants))
    error = float(np.std((predicted - stars) ** 2) / math.sqrt(len(stars)))
    grade = "matches" if own <= ceiling + 1.96 * error else "close" if own <= constant else "off"
    says = (
        f"mean squared error {own:.3f}; item means of other users' random ratings {ceiling:.3f}, their mean alone "
        f"{constant:.3f}; mean absolute error {float(np.mean(np.abs(predicted - stars))):.3f}"
    )
    return Check(
        name="which random items", kind="out of policy",
        question="which users would rate which unchosen items higher", what="mean squared error, by random ratings of "
        "other users and by the world", real=ceiling, simulated=own, distance=own, ceiling=ceiling,
        ceiling_high=float(np.quantile(ceilings, 0.95)), visible=float("nan"), tolerance=0.0, p=None, grade=grade,
        says=says, details={"mse": own, "mae": float(np.mean(np.abs(predicted - stars))), "mse_of_item_means": ceiling,
                            "mse_of_the_mean": constant, "correlation": _correlation(predicted, stars)},
    )  # fmt: skip


def _shrunken_means(item: Ints, stars: Floats, n_items: int) -> Floats:
    """(n_items,) means drawn towards the mean of all, by the variances between and within items."""
    total, count = np.bincount(item, stars, minlength=n_items), np.bincount(item, minlength=n_items)
    mean = float(stars.mean())
    within = float(np.var(stars))
    means = np.divide(total, count, out=np.full(n_items, mean), where=count > 0)
    some = count > 1
    noise = within * float(np.mean(1.0 / count[some])) if some.any() else within
    between = max(float(np.var(means[some])) - noise, 1e-3 * within) if some.any() else 1e-3 * within
    weight = count / (count + within / max(between, 1e-12))
    return np.asarray(mean + weight * (means - mean))


def _correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(a, b)[0, 1]) if a.std() > 0 and b.std() > 0 else 0.0


def _counts(owner: Ints, code: Ints, n: int) -> Floats:
    found = np.zeros((int(owner.max()) + 1, n))
    np.add.at(found, (owner, code), 1.0)
    return found


def _half_sum(first: Floats, second: Floats) -> Floats:
    a, b = (x / x.sum(axis=-1, keepdims=True) for x in (first, second))
    return np.asarray(0.5 * np.abs(a - b).sum(axis=-1))


def _split(rows: Floats, seed: int) -> np.ndarray:
    """(halves, n) flags of half of the rows."""
    n = len(rows)
    draw = uniforms(seed, Stream.PROTOCOL, np.repeat(np.arange(_HALVES), n), np.tile(np.arange(n), _HALVES))
    return np.argsort(np.argsort(draw.reshape(_HALVES, n), axis=1), axis=1) < n // 2


def _band(halves: np.ndarray, real: Floats) -> dict[str, list[float]]:
    sums = halves @ real
    low, high = np.quantile(sums / sums.sum(axis=1, keepdims=True), (0.05, 0.95), axis=0)
    return {"low": low.tolist(), "high": high.tolist()}


def _owners(user: Ints) -> Ints:
    return np.cumsum(user_begins(user)) - 1


def _mean_by_user(reward: Floats, owner: Ints) -> tuple[float, float]:
    """Mean reward and its standard error, users being independent."""
    n_users = int(owner.max()) + 1
    total, count = np.bincount(owner, reward, minlength=n_users), np.bincount(owner, minlength=n_users)
    mean = float(total.sum() / count.sum())
    residual = total - mean * count
    return mean, float(np.sqrt((residual**2).sum() * n_users / max(n_users - 1, 1)) / count.sum())


def _click_rate(world: Any, policy: SharesPolicy | Any, seed: int) -> tuple[float, float]:
    """A world's click rate under a policy and its error: as many users as some 400,000 decisions take."""
    first = simulate(world, policy, _FIRST_USERS, seed)
    decisions = int(first.is_bandit.sum())
    if decisions == 0:
        raise UserError("validate: no user of the world is ever shown a recommendation")
    users = int(min(1_000_000, _FIRST_USERS * _ROWS / decisions))
    log = first if users <= _FIRST_USERS else simulate(world, policy, users, seed)
    bandit = log.is_bandit
    return _mean_by_user(log["reward"][bandit], _owners(log["user"][bandit]))


def _baselines(log: Log, policy: Any) -> dict[str, float]:
    """The same rate as in the first log; inverse propensities."""
    bandit = log.is_bandit
    if not bandit.any():
        return {}
    reward, propensity, action = (log[name][bandit] for name in ("reward", "propensity", "action"))
    weight = policy.fixed_distribution()[action] / propensity
    return {"the same rate": float(reward.mean()), "IPS": float((weight * reward).mean())}


def _half_gaps(reward: Floats, owner: Ints, seed: int) -> Floats:
    """(halves,) absolute difference of the rates of two halves of the users."""
    n_users = int(owner.max()) + 1
    total, count = np.bincount(owner, reward, minlength=n_users), np.bincount(owner, minlength=n_users)
    first = _split(np.zeros((n_users, 1)), seed)
    rates = [(flags @ total) / np.maximum(flags @ count, 1) for flags in (first, ~first)]
    return np.asarray(np.abs(rates[0] - rates[1]))

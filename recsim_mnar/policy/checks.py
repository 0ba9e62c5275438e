"""What a policy answers, held against what it promised: the one place where that is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.policy.base import Policy

Ints = NDArray[np.integer]
Floats = NDArray[np.float64]

LOOKED_AT = 8
"""Users whose whole distributions are looked at where only propensities of single actions are needed."""


def name_of(policy: Any) -> str:
    """The name under which a policy is reported; that of its class where it has none."""
    return getattr(policy, "name", type(policy).__name__)


def checked_decisions(policy: Policy, decisions: Any, *, n: int, n_items: int) -> tuple[NDArray[np.int32], Floats]:
    """Return what ``act`` gave as arrays of the log's types.

    Raises:
        UserError: not two arrays, wrong shape, an action out of range, a propensity outside (0, 1] or not a number.
    """
    name = name_of(policy)
    if not (isinstance(decisions, (tuple, list)) and len(decisions) == 2):
        raise UserError(f"policy {name!r}: act() must return (actions, propensities), got {type(decisions).__name__}")
    acted = np.asarray(decisions[0])
    try:
        given = np.asarray(decisions[1], dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"policy {name!r}: the propensities that act() returned are not numbers") from None
    if acted.shape != (n,) or given.shape != (n,):
        raise UserError(
            f"policy {name!r}: act() must return two arrays of shape ({n},), got {acted.shape} and {given.shape}"
        )
    if n and not np.issubdtype(acted.dtype, np.integer):
        raise UserError(f"policy {name!r}: act() must return integer actions, got {acted.dtype}")
    if n and (int(acted.min()) < 0 or int(acted.max()) >= n_items):
        bad = acted[(acted < 0) | (acted >= n_items)][0]
        raise UserError(f"policy {name!r}: action {bad} is out of range, the world has items 0..{n_items - 1}")
    if n and not (given.min() > 0.0 and given.max() <= 1.0):  # not a number: neither
        bad = given[~((given > 0.0) & (given <= 1.0))][0]
        raise UserError(f"policy {name!r}: propensity {bad} is outside (0, 1]; act() must return P(action | state)")
    return acted.astype(np.int32, copy=False), given


def checked_distribution(policy: Policy, distribution: Any, n_items: int, *, n: int | None = None) -> Floats:
    """A fixed distribution over items, or ``n`` rows of them, as float64.

    Raises:
        UserError: wrong shape, not numbers, negative, or sums other than 1.
    """
    name = name_of(policy)
    try:
        probability = np.asarray(distribution, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"policy {name!r}: its probabilities are not an array of numbers") from None
    shape = (n_items,) if n is None else (n, n_items)
    if probability.shape != shape:
        got = "None" if distribution is None else f"shape {probability.shape}"
        raise UserError(
            f"policy {name!r}: its probabilities must have shape {shape}, got {got}; the world has {n_items} items"
        )
    if probability.size and probability.min() < 0.0:
        raise UserError(f"policy {name!r}: its probabilities must not be negative, one is {probability.min():g}")
    sums = probability.sum(axis=-1)
    if not np.all(np.abs(sums - 1.0) < 1e-6):
        worst = np.ravel(sums)[np.argmax(np.abs(np.ravel(sums) - 1.0))]
        raise UserError(f"policy {name!r}: its probabilities must sum to 1, a sum is {worst:g}")
    return probability


def checked_propensities(policy: Policy, probabilities: Any, n: int) -> Floats:
    """What ``propensity_of`` gave for ``n`` users, as float64.

    Raises:
        UserError: wrong shape, or not in [0, 1].
    """
    try:
        given = np.asarray(probabilities, dtype=np.float64)
        good = given.shape == (n,) and bool(np.all((given >= 0.0) & (given <= 1.0 + 1e-9)))
    except (TypeError, ValueError):
        good = False
    if not good:
        raise UserError(f"policy {name_of(policy)!r}: propensity_of() must return numbers in [0, 1] of shape ({n},)")
    return np.minimum(given, 1.0)


def checked_scores(policy: Policy, scores: Any, shape: tuple[int, int]) -> Floats:
    """A copy of what ``scores`` gave, as contiguous float64.

    Raises:
        UserError: wrong shape, or not numbers.
    """
    try:
        given = np.array(scores, dtype=np.float64, order="C")
    except (TypeError, ValueError):
        raise UserError(f"policy {name_of(policy)!r}: scores() did not return numbers") from None
    if given.shape != shape:
        raise UserError(f"policy {name_of(policy)!r}: scores() must have shape {shape}, got {given.shape}")
    return given


def spot_check_probabilities(policy: Policy, users: Ints) -> None:
    """Raise UserError where the probabilities of a few of these users are none.

    For those who go on to ask ``propensity_of`` alone, which many policies know without a whole distribution.
    """
    few = users[:LOOKED_AT]
    checked_distribution(policy, policy.probabilities(few), policy.n_items, n=len(few))

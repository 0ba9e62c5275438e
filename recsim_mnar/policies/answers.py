"""Checks of a policy's return values: shapes and ranges of each, and now and then their consistency.

A policy that states other propensities than it acts by makes a log whose every estimate is wrong and looks right. The
rules here are those that a run checks; :mod:`recsim_mnar.testing` checks the same ones, and more, on fresh objects.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import refuse_first
from recsim_mnar.policies.base import Floats, Ints, Policy

LOOKED_AT = 8
"""Users whose whole distributions are checked where only propensities of single actions are needed."""

TOLERANCE = 1e-6
"""Propensities that differ by less are the same: float32 rounds, and libraries may round a batch by its shape."""

GRID = 512
"""Uniforms, evenly spaced, at which one user's actions are checked."""

_TWICE = slice(None, None, GRID // 16)
"""Of the grid, the uniforms that are given a second time."""

_DEVIATIONS = 6.0
"""Standard deviations by which a frequency on the grid may miss its probability, were the grid drawn at random."""

_CHECKED: weakref.WeakValueDictionary[int, Policy] = weakref.WeakValueDictionary()
"""Policies that went through the grid, by id."""


class Rule(NamedTuple):
    """Requirements on user code.

    Attributes:
        name: of the rule in findings.
        fix: what to do where it is broken.
        finds: yields a sentence for each breach; None where an error says what is wrong.
    """

    name: str
    fix: str
    finds: Callable[..., Iterator[str] | None]


def number(value: float) -> str:
    """Format a probability as in sentences: .167."""
    text = f"{value:.6g}"
    if text.startswith("0."):
        return text[1:]
    return text


def name_of(policy: Any) -> str:
    """Return a policy's name, or that of its class."""
    return getattr(policy, "name", type(policy).__name__)


# ------------------------------------------------------------------------------------------- every answer by itself


def checked_decisions(policy: Policy, decisions: Any, *, n: int, n_items: int) -> tuple[NDArray[np.int32], Floats]:
    """Check the return value of ``act``; return arrays of the log's types.

    Raises:
        UserError: not two arrays, wrong shape, an action out of range, a propensity outside (0, 1] or not a number.
    """
    if not (isinstance(decisions, (tuple, list)) and len(decisions) == 2):
        _refuse(policy, f"act() must return (actions, propensities), got {type(decisions).__name__}")
    acted = np.asarray(decisions[0])
    propensities = _numbers(policy, decisions[1], "the propensities that act() returned")
    if acted.shape != (n,) or propensities.shape != (n,):
        _refuse(policy, f"act() must return two arrays of shape ({n},), got {acted.shape} and {propensities.shape}")
    if n and not np.issubdtype(acted.dtype, np.integer):
        _refuse(policy, f"act() must return integer actions, got {acted.dtype}")
    refuse_first(
        (acted < 0) | (acted >= n_items),
        lambda i: (
            f"policy {name_of(policy)!r}: action {acted[i]} is out of range, the world has items 0..{n_items - 1}"
        ),
    )
    refuse_first(
        ~((propensities > 0.0) & (propensities <= 1.0)),  # NaN too
        lambda i: (
            f"policy {name_of(policy)!r}: propensity {propensities[i]} is outside (0, 1]; act() must return "
            "P(action | state)"
        ),
    )
    return acted.astype(np.int32, copy=False), propensities


def checked_distribution(policy: Policy, distribution: Any, n_items: int, *, n: int | None = None) -> Floats:
    """Check a distribution over items, or ``n`` rows of them; return it as float64.

    Raises:
        UserError: wrong shape, not numbers, negative, or sums other than 1.
    """
    probability = _numbers(policy, distribution, "its probabilities")
    shape = (n_items,) if n is None else (n, n_items)
    if probability.shape != shape:
        got = "None" if distribution is None else f"shape {probability.shape}"
        _refuse(policy, f"its probabilities must have shape {shape}, got {got}; the world has {n_items} items")
    if probability.size and probability.min() < 0.0:
        _refuse(policy, f"its probabilities must not be negative, one is {probability.min():g}")
    sums = np.ravel(probability.sum(axis=-1))
    if not np.all(np.abs(sums - 1.0) < 1e-6):
        _refuse(policy, f"its probabilities must sum to 1, a sum is {sums[np.argmax(np.abs(sums - 1.0))]:g}")
    return probability


def checked_propensities(policy: Policy, probabilities: Any, n: int) -> Floats:
    """Check the return value of ``propensity_of`` for ``n`` users; return it as float64.

    Raises:
        UserError: wrong shape, or not in [0, 1].
    """
    propensities = _numbers(policy, probabilities, "the answers of propensity_of()")
    if propensities.shape != (n,) or not np.all((propensities >= 0.0) & (propensities <= 1.0 + 1e-9)):
        _refuse(policy, f"propensity_of() must return numbers in [0, 1] of shape ({n},)")
    return np.minimum(propensities, 1.0)


def checked_scores(policy: Policy, scores: Any, shape: tuple[int, int]) -> Floats:
    """Check the return value of ``scores``; return a contiguous float64 copy.

    Raises:
        UserError: wrong shape, or not numbers.
    """
    numbers = _numbers(policy, scores, "the scores")
    if numbers.shape != shape:
        _refuse(policy, f"scores() must have shape {shape}, got {numbers.shape}")
    return np.array(numbers, order="C")


def spot_check_probabilities(policy: Policy, users: Ints) -> None:
    """Raise UserError if the probabilities of a few of these users are invalid.

    For callers that need ``propensity_of`` alone, which many policies know without a whole distribution.
    """
    few = users[:LOOKED_AT]
    checked_distribution(policy, policy.probabilities(few), policy.n_items, n=len(few))


def call_propensity_of(policy: Policy, users: Ints, actions: Ints) -> Floats:
    """Call ``propensity_of`` with read-only arrays and check its return value.

    Raises:
        UserError: no probabilities, or it writes in its arguments.
    """
    answer = call_readonly(policy, "propensity_of", policy.propensity_of, users, actions)
    return checked_propensities(policy, answer, len(users))


def call_readonly(policy: Any, method: str, call: Callable[..., Any], *arrays: NDArray[Any]) -> Any:
    """Call a method with arrays that it may read but not write.

    Raises:
        UserError: it writes in them.
    """
    for array in arrays:
        array.setflags(write=False)
    try:
        return call(*arrays)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise UserError(
            f"policy {policy.name!r}: {method}() writes in the arrays that it is handed, which others read: copy them "
            f"first ({error})"
        ) from error


def _numbers(policy: Policy, values: Any, what: str) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"policy {name_of(policy)!r}: {what} are not numbers") from None


def _refuse(policy: Policy, why: str) -> NoReturn:
    raise UserError(f"policy {name_of(policy)!r}: {why}")


# ---------------------------------------------------------------------------------------------- answers that agree


def far(one: Any, other: Any, tolerance: float) -> NDArray[np.bool_]:
    """Find where two statements differ by more than the tolerance, relative for those beyond 1."""
    one = np.asarray(one, np.float64)
    other = np.asarray(other, np.float64)
    with np.errstate(invalid="ignore"):  # infinite scores are equal to each other
        near = np.abs(one - other) <= tolerance * np.maximum(1.0, np.abs(other))
    return np.asarray(~(near | (one == other)))


def _agreement(
    who: Callable[[int], str], actions: Ints, stated: Floats, method: str, said: Floats, tolerance: float
) -> Iterator[str]:
    """Check that ``act`` and another method give actions the same probability."""
    for j in np.flatnonzero(far(stated, said, tolerance)).tolist():
        yield (f"act() states {number(stated[j])} for item {actions[j]} of {who(j)}, {method}() says {number(said[j])}")


def _repetition(who: Callable[[int], str], uniforms: Floats, first: Ints, again: Ints) -> Iterator[str]:
    """Check that the same uniform gives the same action."""
    for j in np.flatnonzero(first != again).tolist():
        yield (
            f"asked twice for {who(j)} with the uniform {number(uniforms[j])}, act() takes item {first[j]} and then "
            f"item {again[j]}"
        )


def _frequency(who: str, count: Floats, probability: Floats, excess: Callable[[Floats], Floats]) -> Iterator[str]:
    """Check that actions are as frequent as stated: nowhere is ``excess`` of the frequencies above 0."""
    n = count.sum()
    beyond = excess(count / n)
    if beyond.max() > 0.0:
        item = int(np.argmax(beyond))
        yield (
            f"act() takes item {item} for {who} in {number(count[item] / n)} of {n:,.0f} decisions, probabilities() "
            f"says {number(probability[item])}"
        )


AGREEMENT = Rule(
    "propensities_agree",
    "return the probability, over the uniform alone, of the action drawn, whatever else the call holds, and leave the "
    "state to observe() and learn()",
    _agreement,
)
REPETITION = Rule(
    "acting_changes_nothing",
    "let the uniform be its only randomness, and change the state in observe() and learn() alone",
    _repetition,
)
FREQUENCY = Rule("frequencies_follow", "draw from the distribution that is stated, by the uniform", _frequency)


class Acting:
    """Calls a policy with read-only arrays and checks its return values.

    Every answer: shape, type and range. At calls 0, 1, 4, 16, ... of an object: whether ``propensity_of`` says for a
    few of the users, without the others and after ``act``, what ``act`` stated. Once for each policy, before its first
    call: whether one user's actions at :data:`GRID` even uniforms are as frequent as ``probabilities`` says, and the
    same for the same uniform.

    Args:
        policy: that acts.
        n_items: of the world.
        original: the object that ``policy`` is a copy of, by which is known whether the grid is done.
    """

    def __init__(self, policy: Policy, n_items: int, original: Policy | None = None) -> None:
        self.policy = policy
        self.n_items = n_items
        self._original = policy if original is None else original
        self._calls = 0
        self._next = 0
        says = policy.defines("probabilities")
        self._prices = says or policy.defines("propensity_of")
        self._grid_due = says and _CHECKED.get(id(self._original)) is not self._original

    def __call__(self, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Actions (n,) and propensities (n,) of users (n,), as :func:`checked_decisions` gives them.

        Raises:
            UserError: an answer that cannot be, or one that contradicts another.
        """
        if self._grid_due and len(users):
            self._check_grid(users[:1])
            _CHECKED[id(self._original)] = self._original
            self._grid_due = False
        actions, propensities = self._act(users, uniforms)
        if self._calls == self._next:
            self._next = max(1, 4 * self._calls)
            if self._prices and len(users):
                self._check_prices(users, actions, propensities)
        self._calls += 1
        return actions, propensities

    def _act(self, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        decided = call_readonly(self.policy, "act", self.policy.act, users, uniforms)
        return checked_decisions(self.policy, decided, n=len(users), n_items=self.n_items)

    def _check_prices(self, users: Ints, actions: NDArray[np.int32], stated: Floats) -> None:
        n = len(users)
        step = max(1, n // LOOKED_AT)
        few = np.arange(self._calls % step, n, step)[: min(LOOKED_AT, (n + 1) // 2)]
        other = call_propensity_of(self.policy, users[few], actions[few])

        def who(j: int) -> str:
            return f"user {users[few[j]]}"

        self._check(AGREEMENT, who, actions[few], stated[few], "propensity_of", other, TOLERANCE)

    def _check_grid(self, user: Ints) -> None:
        """Check one user's actions on the grid, before the first decision and any ``learn``."""
        probabilities = call_readonly(self.policy, "probabilities", self.policy.probabilities, user)
        probability = checked_distribution(self.policy, probabilities, self.n_items, n=1)[0]
        uniforms = (np.arange(GRID) + 0.5) / GRID
        who = f"user {user[0]}"
        actions, stated = self._at(user, uniforms)
        again, _ = self._at(user, uniforms[_TWICE])
        self._check(REPETITION, lambda j: who, uniforms[_TWICE], actions[_TWICE], again)
        self._check(AGREEMENT, lambda j: who, actions, stated, "probabilities", probability[actions], TOLERANCE)
        room = _DEVIATIONS * np.sqrt(probability * (1.0 - probability) / GRID) + LOOKED_AT / GRID
        count = np.bincount(actions, minlength=self.n_items)
        self._check(FREQUENCY, who, count, probability, lambda frequency: np.abs(frequency - probability) - room)

    def _at(self, user: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Return one user's decisions at several uniforms, in one call if the policy allows it."""
        if self.policy.batches_decisions:
            return self._act(np.repeat(user, len(uniforms)), uniforms)
        answers = [self._act(user.copy(), uniforms[j : j + 1].copy()) for j in range(len(uniforms))]
        return np.concatenate([a for a, _ in answers]), np.concatenate([p for _, p in answers])

    def _check(self, rule: Rule, *answers: Any) -> None:
        for why in rule.finds(*answers) or ():
            _refuse(self.policy, f"{why}: {rule.fix}")

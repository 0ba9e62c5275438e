"""Checks of a policy's return values: shape and range at every call, consistency between methods at some calls.

A policy whose stated propensities differ from those it acts by produces a log from which every estimate is wrong
without looking so. This module has the rules that are checked during a run; :mod:`recsim_mnar.testing` checks the same
rules, and more, on fresh objects.
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

N_SPOT_CHECKED = 8
"""Number of users whose whole distributions are checked if only the propensities of single actions are needed."""

TOLERANCE = 1e-6
"""Differences between propensities up to this size are taken for rounding: a policy may compute in float32, and a
library's rounding may depend on the shape of the batch."""

GRID = 512
"""Number of evenly spaced uniforms at which one user's actions are compared with the stated probabilities."""

_EDGE_POINTS = 8
"""Number of points of the grid that may fall on the wrong side of the edges between actions."""

_TWICE = slice(None, None, GRID // 16)
"""Selects the 16 uniforms of the grid that are used a second time, to see whether acting changes the policy."""

_DEVIATIONS = 6.0
"""Largest deviation of a frequency on the grid from its probability, in standard deviations of a random sample of this
size. An even grid deviates less than a random sample, so a correct policy passes."""

_CHECKED: weakref.WeakValueDictionary[int, Policy] = weakref.WeakValueDictionary()
"""Policies that have passed the check on the grid, by id."""


class Rule(NamedTuple):
    """Requirement that a user's policy must meet.

    Attributes:
        name: name of the rule in findings.
        fix: advice on how to repair a policy that breaks the rule.
        finds: check, a function that yields a sentence per breach; it returns None if breaches raise an error instead.
    """

    name: str
    fix: str
    finds: Callable[..., Iterator[str] | None]


def number(value: float) -> str:
    """Format a probability for a sentence, without the leading zero: .167."""
    text = f"{value:.6g}"
    if text.startswith("0."):
        return text[1:]
    return text


def name_of(policy: Any) -> str:
    """Return a policy's name, or the name of its class if it has none."""
    return getattr(policy, "name", type(policy).__name__)


# ------------------------------------------------------------------------------------- checks of single return values


def checked_decisions(policy: Policy, decisions: Any, *, n: int, n_items: int) -> tuple[NDArray[np.int32], Floats]:
    """Check the return value of ``act`` for ``n`` users.

    Returns:
        actions: (n,) int32.
        propensities: (n,) float64.

    Raises:
        UserError: not two arrays, wrong shape, an action out of range, a propensity outside (0, 1] or not a number.
    """
    if not (isinstance(decisions, (tuple, list)) and len(decisions) == 2):
        _refuse(policy, f"act() must return (actions, propensities), got {type(decisions).__name__}")
    acted = np.asarray(decisions[0])
    propensities = _as_floats(policy, decisions[1], "the propensities that act() returned")
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
    """Check probabilities over items that a policy returned, and return them as float64.

    Args:
        policy: policy that returned them, for messages.
        distribution: return value of the policy's method.
        n_items: number of items.
        n: number of users, for (n, n_items) probabilities; None for one distribution (n_items,).

    Raises:
        UserError: wrong shape, not numbers, a negative probability, or a sum other than 1.
    """
    probability = _as_floats(policy, distribution, "its probabilities")
    shape: tuple[int, ...] = (n_items,)
    if n is not None:
        shape = (n, n_items)
    if probability.shape != shape:
        got = f"shape {probability.shape}"
        if distribution is None:  # NumPy made NaN of it
            got = "None"
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
    propensities = _as_floats(policy, probabilities, "the answers of propensity_of()")
    if propensities.shape != (n,) or not np.all((propensities >= 0.0) & (propensities <= 1.0 + 1e-9)):
        _refuse(policy, f"propensity_of() must return numbers in [0, 1] of shape ({n},)")
    return np.minimum(propensities, 1.0)  # rounding may lead just beyond 1


def checked_scores(policy: Policy, scores: Any, shape: tuple[int, int]) -> Floats:
    """Check the return value of ``scores``; return a contiguous float64 copy.

    Raises:
        UserError: wrong shape, or not numbers.
    """
    numbers = _as_floats(policy, scores, "the scores")
    if numbers.shape != shape:
        _refuse(policy, f"scores() must have shape {shape}, got {numbers.shape}")
    return np.array(numbers, order="C")


def spot_check_probabilities(policy: Policy, users: Ints) -> None:
    """Raise UserError if the distributions of the first :data:`N_SPOT_CHECKED` users are invalid.

    For callers that use ``propensity_of`` only, for which many policies need not compute a whole distribution.
    """
    few = users[:N_SPOT_CHECKED]
    checked_distribution(policy, policy.probabilities(few), policy.n_items, n=len(few))


def call_propensity_of(policy: Policy, users: Ints, actions: Ints) -> Floats:
    """Return the policy's probabilities (n,) of ``actions`` for ``users``, checked.

    Raises:
        UserError: ``propensity_of`` returns something else than n probabilities, or writes to its arguments.
    """
    answer = call_readonly(policy, "propensity_of", policy.propensity_of, users, actions)
    return checked_propensities(policy, answer, len(users))


def call_readonly(policy: Any, method: str, call: Callable[..., Any], *arrays: NDArray[Any]) -> Any:
    """Call a user's method with arrays made read-only, and return its return value.

    The caller shares the arrays with other policies, so a method that modifies them would corrupt the run.

    Args:
        policy: object whose name errors state.
        method: name of the method, for errors.
        call: the method.
        *arrays: its arguments; they stay read-only.

    Raises:
        UserError: the method writes to one of the arrays.
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


def _as_floats(policy: Policy, values: Any, what: str) -> Floats:
    """Return values as a float64 array; UserError with ``what`` as the subject if they are not numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"policy {name_of(policy)!r}: {what} are not numbers") from None


def _refuse(policy: Policy, why: str) -> NoReturn:
    """Raise UserError about a policy."""
    raise UserError(f"policy {name_of(policy)!r}: {why}")


# --------------------------------------------------------------------------- consistency of methods with each other


def far(values: Any, reference: Any, tolerance: float) -> NDArray[np.bool_]:
    """Return a mask of the values that differ from the reference by more than a tolerance.

    The tolerance is absolute up to a reference of size 1 and relative beyond. Equal infinities do not differ.
    """
    values = np.asarray(values, np.float64)
    reference = np.asarray(reference, np.float64)
    with np.errstate(invalid="ignore"):  # infinity minus infinity is NaN, which is not near
        near = np.abs(values - reference) <= tolerance * np.maximum(1.0, np.abs(reference))
    return np.asarray(~(near | (values == reference)))


def _find_contradictions(
    who: Callable[[int], str], actions: Ints, stated: Floats, method: str, recomputed: Floats, tolerance: float
) -> Iterator[str]:
    """Yield a sentence for each action to which ``act`` and another method give different probabilities.

    Args:
        who: words for the user of decision j.
        actions: (n,) actions taken.
        stated: (n,) propensities that ``act`` returned.
        method: name of the other method.
        recomputed: (n,) probabilities of the same actions by the other method.
        tolerance: largest difference that is taken for rounding.
    """
    for j in np.flatnonzero(far(stated, recomputed, tolerance)).tolist():
        yield (
            f"act() states {number(stated[j])} for item {actions[j]} of {who(j)}, {method}() says "
            f"{number(recomputed[j])}"
        )


def _find_changed_actions(who: Callable[[int], str], uniforms: Floats, first: Ints, second: Ints) -> Iterator[str]:
    """Yield a sentence for each decision that two calls with the same state and uniform take differently.

    Args:
        who: words for the user of decision j.
        uniforms: (n,) uniforms passed to both calls.
        first: (n,) actions of the first call.
        second: (n,) actions of the second call.
    """
    for j in np.flatnonzero(first != second).tolist():
        yield (
            f"asked twice for {who(j)} with the uniform {number(uniforms[j])}, act() takes item {first[j]} and then "
            f"item {second[j]}"
        )


def _find_wrong_frequency(
    who: str, count: Floats, probability: Floats, excess: Callable[[Floats], Floats]
) -> Iterator[str]:
    """Yield a sentence for the action whose frequency deviates most from its stated probability, if any does.

    Args:
        who: words for the user.
        count: (n_items,) number of times each action was taken.
        probability: (n_items,) stated probability of each action.
        excess: function from frequencies (n_items,) to the part of each deviation beyond what is allowed, above 0 if
            the frequency is wrong.
    """
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
    _find_contradictions,
)
REPETITION = Rule(
    "acting_changes_nothing",
    "let the uniform be its only randomness, and change the state in observe() and learn() alone",
    _find_changed_actions,
)
FREQUENCY = Rule(
    "frequencies_follow", "draw from the distribution that is stated, by the uniform", _find_wrong_frequency
)


class Acting:
    """Calls ``act`` of a policy with read-only arrays and checks what it returns.

    Three checks are made. At every call: shape, type and range. At calls 0, 1, 4, 16, ... of an object: whether
    ``propensity_of``, called for a few of the users only and after ``act``, confirms the stated propensities. Once per
    policy, before its first call: whether one user's actions at :data:`GRID` evenly spaced uniforms are as frequent as
    ``probabilities`` says, and whether equal uniforms give equal actions.

    Args:
        policy: policy to call.
        n_items: number of items of the world.
        original: object of which ``policy`` is a copy, None if it is no copy; the check on the grid is made once for
            an original and all its copies.
    """

    def __init__(self, policy: Policy, n_items: int, original: Policy | None = None) -> None:
        self.policy = policy
        self.n_items = n_items
        self._original = policy
        if original is not None:
            self._original = original
        self._calls = 0
        self._next_propensity_check = 0
        has_probabilities = policy.defines("probabilities")
        self._has_propensities = has_probabilities or policy.defines("propensity_of")
        # The identity test guards against an id that was reused for another object.
        self._grid_due = has_probabilities and _CHECKED.get(id(self._original)) is not self._original

    def __call__(self, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Return actions (n,) int32 and propensities (n,) of users (n,), with one uniform (n,) each.

        Raises:
            UserError: an invalid return value, or one that contradicts another method of the policy.
        """
        if self._grid_due and len(users):
            self._check_grid(users[:1])
            _CHECKED[id(self._original)] = self._original
            self._grid_due = False
        actions, propensities = self._act(users, uniforms)
        if self._calls == self._next_propensity_check:
            self._next_propensity_check = max(1, 4 * self._calls)  # rarer and rarer, as each costs as much as a call
            if self._has_propensities and len(users):
                self._check_propensities(users, actions, propensities)
        self._calls += 1
        return actions, propensities

    def _act(self, users: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Call ``act``; return checked actions (n,) and propensities (n,)."""
        decided = call_readonly(self.policy, "act", self.policy.act, users, uniforms)
        return checked_decisions(self.policy, decided, n=len(users), n_items=self.n_items)

    def _check_propensities(self, users: Ints, actions: NDArray[np.int32], stated: Floats) -> None:
        """Raise UserError if ``propensity_of`` contradicts ``act`` for a few of the users.

        At most half of the users are passed, so that a policy whose propensities depend on who else is in the call is
        noticed. The call's number shifts the selection, so that different calls check different users.
        """
        n = len(users)
        step = max(1, n // N_SPOT_CHECKED)
        few = np.arange(self._calls % step, n, step)[: min(N_SPOT_CHECKED, (n + 1) // 2)]
        recomputed = call_propensity_of(self.policy, users[few], actions[few])

        def who(j: int) -> str:
            return f"user {users[few[j]]}"

        self._check(AGREEMENT, who, actions[few], stated[few], "propensity_of", recomputed, TOLERANCE)

    def _check_grid(self, user: Ints) -> None:
        """Raise UserError if one user's actions on the grid contradict ``probabilities``.

        This is done before the first decision and before any ``learn``. ``user`` is an array with one id.
        """
        probabilities = call_readonly(self.policy, "probabilities", self.policy.probabilities, user)
        probability = checked_distribution(self.policy, probabilities, self.n_items, n=1)[0]
        uniforms = (np.arange(GRID) + 0.5) / GRID
        who = f"user {user[0]}"
        actions, stated = self._act_at(user, uniforms)
        repeated, _ = self._act_at(user, uniforms[_TWICE])
        self._check(REPETITION, lambda j: who, uniforms[_TWICE], actions[_TWICE], repeated)
        self._check(AGREEMENT, lambda j: who, actions, stated, "probabilities", probability[actions], TOLERANCE)
        # The second term allows for edges between actions, however small the probability.
        allowed = _DEVIATIONS * np.sqrt(probability * (1.0 - probability) / GRID) + _EDGE_POINTS / GRID
        count = np.bincount(actions, minlength=self.n_items)
        self._check(FREQUENCY, who, count, probability, lambda frequency: np.abs(frequency - probability) - allowed)

    def _act_at(self, user: Ints, uniforms: Floats) -> tuple[NDArray[np.int32], Floats]:
        """Call ``act`` for one user at several uniforms (n,), in one call if the policy allows it.

        Returns:
            actions: (n,) int32.
            propensities: (n,) float64.
        """
        if self.policy.batches_decisions:
            return self._act(np.repeat(user, len(uniforms)), uniforms)
        # Copies: `_act` makes its arrays read-only.
        decisions = [self._act(user.copy(), uniforms[j : j + 1].copy()) for j in range(len(uniforms))]
        actions, propensities = zip(*decisions, strict=True)
        return np.concatenate(actions), np.concatenate(propensities)

    def _check(self, rule: Rule, *arguments: Any) -> None:
        """Raise UserError with the first breach that a rule finds in its arguments."""
        breaches = rule.finds(*arguments) or ()
        for breach in breaches:
            _refuse(self.policy, f"{breach}: {rule.fix}")

"""SampledPolicy: a policy with exact propensities for objects that can only draw actions.

Thompson sampling, a library's ``predict()``, a simulation: such agents give an action, never its probability. Here one
draws a number of actions for a decision, and the uniform that is handed in picks one of them. The probability over that
uniform is count / draws: exact for the policy that acts, whatever the distribution behind the draws. It approximates
that distribution, with standard error sqrt(p (1 - p) / draws). An action that was not drawn has probability 0, and so
is missing support where the log is used for another policy.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import flag, refuse_first, whole_number
from recsim_mnar.policies.base import Floats, Ints, Learns, Policy
from recsim_mnar.policies.door import EVENTS, AdaptedPolicy, PolicyWrapper, binds, declared_learning
from recsim_mnar.rng import Stream, blocks, check_seed


class SampledPolicy(PolicyWrapper):
    """Policy with exact propensities that wraps a function or object which can only draw actions.

    New actions are drawn for a user after every event that may change the distribution: after the user's own events,
    and after every call of ``learn`` if the policy learns from all users. Until then the same draws serve all decisions
    for that user.

    Args:
        sample: function ``sample(user, generator, draws)`` that returns (draws,) actions, or an object with such a
            method. If the object has ``reset``, ``observe``, ``observe_ratings``, ``learn`` or ``forget``, these are
            called like the methods of :class:`Policy`. ``generator`` is a
            ``numpy.random.Generator`` whose stream is addressed by seed, user and the number of the user's events so
            far, so that a replay draws the same actions.
        n_items: number of items; actions are 0 .. n_items - 1.
        draws: number of actions drawn for each distribution.
        seed: seed of the generators.
        own_generator: True if the object draws by a generator of its own and is called as ``sample(user, draws)``. Its
            draws cannot be repeated, so the policy is not ``replayable`` and ``replay`` refuses it.
        name: name of the policy; None for the object's ``name`` or its function's or class's name.
        learns: value of :attr:`Policy.learns`; None for the object's own declaration and, without one, ``all users`` if
            the object has ``learn``, else ``nothing``.
    """

    def __init__(
        self,
        sample: Any,
        n_items: int,
        draws: int = 1000,
        *,
        seed: int = 0,
        own_generator: bool = False,
        name: str | None = None,
        learns: Learns | None = None,
    ) -> None:
        self.n_items = whole_number(n_items, "n_items", 1)
        self.draws = whole_number(draws, "draws", 1)
        self.seed = check_seed(seed)
        self.own_generator = flag(own_generator, "own_generator")
        draw = getattr(sample, "sample", sample)
        if inspect.isclass(sample) or not callable(draw):
            raise UserError(f"sample must be a function, or an object with a method sample(), got {sample!r}")
        arguments = ["user", "draws"] if own_generator else ["user", "generator", "draws"]
        if not binds(draw, arguments, {}):
            raise UserError(
                f"define sample({', '.join(arguments)}), which gives draws actions; {draw!r} takes other arguments"
            )
        default_name = getattr(sample, "name", None) or getattr(sample, "__name__", type(sample).__name__)
        self.name = str(name or default_name)
        declared = learns or declared_learning(sample)
        self._learns: Learns = declared or "nothing"
        if not declared and callable(getattr(sample, "learn", None)):
            self._learns = "all users"
        self.inner: AdaptedPolicy = AdaptedPolicy(sample, f"policy {self.name!r}", EVENTS, self.n_items)
        self._events: dict[int, int] = {}  # events of each user so far, part of the generator's address
        self._counts: dict[int, NDArray[np.int64]] = {}  # how often each action was drawn, by user, until an event
        # True once two draws from equal generators have agreed; not checked if `sample` has a generator of its own.
        self._determinism_checked = self.own_generator

    @property
    def learns(self) -> Learns:  # type: ignore[override]  # said by an argument, or by the object
        """Implement :class:`Policy`."""
        return self._learns

    @property
    def batches_decisions(self) -> bool:  # type: ignore[override]  # where nothing is learned
        """Implement :class:`Policy`."""
        return self._learns == "nothing"

    @property
    def replayable(self) -> bool:  # type: ignore[override]  # said by an argument
        """Implement :class:`Policy`."""
        return not self.own_generator

    def defines(self, method: str) -> bool:
        """Return True for ``learn`` if the wrapped object learns; other methods as in :meth:`Policy.defines`."""
        if method == "learn":
            return self.learns != "nothing"
        return Policy.defines(self, method)

    scores = Policy.scores

    def changes(self, event: str, users: Ints) -> None:
        """Drop the draws of users with a new event, and count the event; implements :meth:`PolicyWrapper.changes`."""
        for user in np.asarray(users).tolist():
            self._counts.pop(user, None)
            if event == "forget":
                self._events.pop(user, None)
            elif event.startswith("reset"):
                self._events[user] = 0
            else:
                self._events[user] = self._events.get(user, 0) + 1
        if event == "learn" and self.learns == "all users":
            self._counts.clear()

    # ----------------------------------------------------------------------------------------------------- what it does

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """Implement :meth:`Policy.act`: the uniform selects one of the drawn actions, sorted by action."""
        draw_index = (np.asarray(uniforms) * self.draws).astype(np.int64)  # number of the draw that is selected
        actions = np.empty(len(users), np.int32)
        for j, user in enumerate(users.tolist()):
            actions[j] = np.searchsorted(np.cumsum(self._cached_counts(user)), draw_index[j], side="right")
        return actions, self.propensity_of(users, actions)

    def probabilities(self, users: Ints) -> Floats:
        """Implement :meth:`Policy.probabilities`: count / draws."""
        return np.stack([self._cached_counts(user) for user in users.tolist()]).astype(np.float64) / self.draws

    def propensity_of(self, users: Ints, actions: Ints) -> Floats:
        """Implement :meth:`Policy.propensity_of`."""
        pairs = zip(users.tolist(), np.asarray(actions).tolist(), strict=True)
        return np.array([self._cached_counts(user)[action] for user, action in pairs], np.float64) / self.draws

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`Policy.describe`."""
        settings = {"draws": self.draws, "seed": self.seed, "replayable": self.replayable}
        return {**self.inner.describe(), **settings, "name": self.name}

    def fresh(self) -> Policy:
        """Implement :meth:`Policy.fresh`: a copy without users."""
        twin = copy.copy(self)  # shares the result of the check of determinism
        twin._events = {}
        twin._counts = {}
        twin.inner = self.inner.fresh()
        return twin

    # ---------------------------------------------------------------------------------------------------------- inside

    def _cached_counts(self, user: int) -> NDArray[np.int64]:
        """Return how often each action was drawn for a user in the present state, (n_items,).

        The draws are made if there are none since the user's last event, and cached.

        The first call draws twice, to check that ``sample`` depends on its generator and the user's state only.

        Raises:
            UserError: the two draws differ, or an invalid return value of ``sample``.
        """
        counts = self._counts.get(user)
        if counts is None:
            counts = self._counts[user] = self._draw_counts(user)
            if not self._determinism_checked:
                self._determinism_checked = True
                if (self._draw_counts(user) != counts).any():
                    raise UserError(
                        f"policy {self.name!r}: sample() draws other actions from the same generator: draw from the "
                        "one that it is handed, and leave the state alone; or say own_generator=True, and its log is "
                        "not replayable"
                    )
        return counts

    def _draw_counts(self, user: int) -> NDArray[np.int64]:
        """Call ``sample`` for a user, and return how often it drew each action, (n_items,).

        Raises:
            UserError: ``sample`` does not return (draws,) valid actions.
        """
        sample = getattr(self.inner.own, "sample", self.inner.own)
        if self.own_generator:
            sampled = sample(user, self.draws)
        else:
            # The four words at the address of user and event are the key of a generator for this distribution.
            words = blocks(self.seed, Stream.SAMPLE, [user], [self._events.get(user, 0)])[0]
            generator = np.random.Generator(np.random.Philox(key=words.view(np.uint64)))
            sampled = sample(user, generator, self.draws)
        actions = np.asarray(sampled)
        if actions.shape != (self.draws,) or actions.dtype.kind not in "iu":
            raise UserError(
                f"policy {self.name!r}: sample() must return {self.draws} integers, got {actions.dtype} of "
                f"{actions.shape}"
            )
        refuse_first(
            (actions < 0) | (actions >= self.n_items),
            lambda i: f"policy {self.name!r}: sample() drew {actions[i]}, actions are 0..{self.n_items - 1}",
        )
        return np.bincount(actions, minlength=self.n_items)

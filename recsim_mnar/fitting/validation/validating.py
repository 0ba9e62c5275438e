"""validate_world: a world held against a log, check by check, each beside what chance does to the same users."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.fitting.validation.checks import CHECKS, Check, Groups, Validation, graded, telling_apart
from recsim_mnar.fitting.validation.lives import Lives
from recsim_mnar.fitting.validation.logging_policy import Shown, shown_in
from recsim_mnar.fitting.validation.statistics import TABLE, Material, Row
from recsim_mnar.log.columns import Ints
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Policy
from recsim_mnar.policies.registry import uniform_policy
from recsim_mnar.progress import counting
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms
from recsim_mnar.runs.receipts import arrays_digest
from recsim_mnar.runs.stages import stage, work
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.named import names_catalogue
from recsim_mnar.worlds.base import DecisionWorld

KINDS = ("statistics", "classifier")
LEAST_USERS, MOST_USERS, _MOST_ROWS = 20, 4000, 500_000
"""Real users, and rows, that are looked at: with three times as many simulated rows some 1.5 GB."""
_SIMULATED = 3
"""Simulated users for each held-out one: their own error then adds a third, not as much again."""
FITTED_USERS, FITTED_CLICKS = 1000, 5000
"""Held-out users, and their clicks, that are looked at where the policy is fitted: more would find its error."""
_SAME = 0.2
"""p from which a statistic of users who are shown other items is taken not to hang on what they are shown."""
_NEVER = (
    "what another policy would earn, and what recommendations do in the long run",
    "items and users of a kind that the log does not hold",
)


def validate_world(
    world: Any,
    log: Log,
    seed: int = 0,
    checks: Sequence[str] | None = None,
    *,
    logging: Any = None,
    n_items: int | None = None,
    same_items: bool | None = None,
    as_it_is: bool = False,
    most_users: int = MOST_USERS,
    report: Callable[[str], None] = lambda stage: None,
) -> Validation:
    """Hold a world against a log. Within :func:`recsim_mnar.runs.stages.resumable` it can be taken up.

    Args:
        world: a :class:`~recsim_mnar.worlds.base.DecisionWorld` with its parameters; a fitted world (what has
            ``make(i)`` and ``ensemble``), which is fitted anew on half of the users and held against the other half; or
            a function that makes either of a log, which is asked for the same.
        log: real users, ordered by (user, step).
        seed: of simulated users and of all divisions.
        checks: of :data:`KINDS`; all where None.
        logging: the policy that made the log, or its name (an agent's, or the file of a saved policy); what the
            provenance names where None. Simulated users are shown what it would show them if its replayed propensities
            are those of the log, else what a policy fitted on the log would.
        n_items: how many items there are; as the world says, or the log's largest, where None.
        same_items: whether item numbers mean the same in world and log; where None: for a fitted world, and for a log
            whose provenance names this world's catalogue.
        as_it_is: hold a fitted world itself against all users, those included that it was fitted on.
        most_users: real users looked at; a random choice where there are more.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: too few users, an unknown check, a log and a world that do not go together.
    """
    seed, kinds = check_seed(seed), tuple(checks or KINDS)
    for name in kinds:
        if name not in KINDS:
            raise UserError(f"unknown checks {name!r}; {nearest(name, KINDS)}")

    def of() -> dict[str, Any]:
        return {
            "world": _identity(world), "log": log.digest(optional=True), "checks": kinds, "n_items": n_items,
            "logging": logging.describe() if isinstance(logging, Policy) else str(logging),
            "same_items": same_items, "as_it_is": as_it_is, "most_users": most_users, "seed": seed,
        }  # fmt: skip

    with work("validate", of):
        case = _case(world, _some_users(log, most_users, seed), seed, n_items, same_items, as_it_is, logging, report)
        not_checked = [*_NEVER, *(f"{kind}: not asked for" for kind in KINDS if kind not in kinds)]
        return Validation(graded(_by_users(case, kinds, not_checked, report)), not_checked, case.notes, case.facts())


def _identity(world: Any) -> Any:
    """What says which world this is, JSON types; a function says nothing, and is refused."""
    if hasattr(world, "digest"):
        return world.digest()
    if not hasattr(world, "describe"):
        raise UserError("resumable() goes with a world or a fitted world: what a function makes cannot be known again")
    catalogue: Any = getattr(world, "catalogue", None)
    return [world.describe(), arrays_digest(catalogue.arrays()) if hasattr(catalogue, "arrays") else None]


def _drawn(log: Log, seed: int) -> Ints:
    """The users of a log in a drawn order."""
    users = log.users()
    return users[np.argsort(uniforms(seed, Stream.PROTOCOL, users, 0), kind="stable")]


def _some_users(log: Log, most: int, seed: int) -> tuple[Log, Log, Log]:
    """At most so many real users and :data:`_MOST_ROWS` rows, and two random halves of them."""
    users = _drawn(log, derive_seed(seed, "users"))
    if len(users) < LEAST_USERS:
        needs = f"validate needs at least {LEAST_USERS} users to divide the log by user"
        raise UserError(f"{needs}, it has {len(users)}: log more, or name a column of users")
    users = users[: max(LEAST_USERS, min(most, int(_MOST_ROWS * len(users) / len(log))))]
    whole, first, second = (log.select(np.isin(log["user"], some)) for some in (users, users[::2], users[1::2]))
    return whole, first, second


def _fewer(held: Log, seed: int) -> Log:
    """At most :data:`FITTED_USERS` users, and some :data:`FITTED_CLICKS` clicks."""
    users, clicks = _drawn(held, derive_seed(seed, "fewer")), float(held["reward"][held.is_bandit].sum())
    most = max(LEAST_USERS, int(min(FITTED_USERS, FITTED_CLICKS * len(users) / max(clicks, 1.0))))
    return held if len(users) <= most else held.select(np.isin(held["user"], users[:most]))


@dataclass(frozen=True)
class _Case:
    """A world, and the users it is held against: ``known`` those that it was fitted on, ``held`` the others, or all."""

    world: Any
    known: Log | None
    held: Log
    shown: Shown
    seed: int
    n_items: int
    same_items: bool
    notes: list[str]

    def simulated(self, n_users: int, policy: Policy) -> list[Lives]:
        """At least so many users, in parts numbered as the log's: a world may take a user's number for a date."""
        users = self.held.users()
        span = int(users[-1] - users[0]) + 1
        first, size = (int(users[0]), span) if span <= n_users else (0, n_users)
        logs = [simulate(self.world, policy, size, derive_seed(self.seed, f"users {i}"), first_user=first)
                for i in range(-(-n_users // size))]  # fmt: skip
        shows = self.held.is_bandit.any()
        return [Lives.of(log if shows else log.organic(), self.n_items) for log in logs]

    def facts(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "world": self.world.describe(), "users_held_out": len(self.held.users()),
            "users_fitted_on": 0 if self.known is None else len(self.known.users()),
            "n_items": self.n_items, "same_items": self.same_items, "seed": self.seed,
            "logging_policy": {"known": self.shown.known, **self.shown.details},
        }  # fmt: skip


def _case(
    world: Any, users: tuple[Log, Log, Log], seed: int, n_items: int | None, same_items: bool | None, as_it_is: bool,
    logging: Any, report: Callable[[str], None],
) -> _Case:  # fmt: skip
    log, first, second = users
    fits = callable(world) or hasattr(world, "ensemble")
    anew = fits and not (as_it_is and hasattr(world, "ensemble"))
    notes = []
    if anew:
        report("fitting on half of the users")
        world = _fit(world, first, n_items, seed, report)
        n, others = len(first.users()), len(second.users())
        notes.append(f"the world was fitted anew on {n:,} users and is held against {others:,} others")
    elif fits:
        notes.append("the world may have been fitted on these very users: its figures are then of fit, not held out")
    made = world.make() if hasattr(world, "ensemble") else world
    largest = max(int(log["item"].max(initial=-1)), int(log["action"].max(initial=-1)))
    same = same_items
    if same is None:  # a fit has items of its own
        itself = getattr(world, "catalogues", ()) is not None or getattr(made, "matrix", None) is not None
        same = itself if fits else names_catalogue(log.provenance, made)
    _refuse(made, largest, n_items, same)
    if not same:
        notes.append("the world's items are not the log's: only what does not name items is compared")
    report("the policy that made the log")
    shown = shown_in(made, log, (first, second), logging, same_items=same, seed=derive_seed(seed, "logging policy"))
    notes += [shown.says] * bool(shown.says)
    held = second if anew else log
    held = _fewer(held, seed) if shown.details["how"] == "fitted" else held
    size = max(n_items or 0, largest + 1, made.n_items)
    return _Case(made, first if anew else None, held, shown, seed, size, same, notes)


def _refuse(made: Any, largest: int, n_items: int | None, same: bool) -> None:
    """Raise UserError for a world and a log, whose largest item is known, that do not go together."""
    if not isinstance(made, DecisionWorld):
        wanted = "one whose users are recommended one item at a time (sessions, ratings, features)"
        raise UserError(f"validate: the {made.name} world is not {wanted}")
    if n_items is not None and n_items <= largest:
        raise UserError(f"n_items is {n_items}, but the log has item {largest}")
    if same and made.n_items <= largest:  # its numbers could not mean the same
        found = f"the log has item {largest}, the world {made.n_items} items"
        raise UserError(f"validate: {found}: set n_items, or fit the world to this log")


def _fit(world: Any, log: Log, n_items: int | None, seed: int, report: Callable[[str], None]) -> Any:
    """The world that is made of a log by what the user brings, or by calibration as the fitted world was made."""
    if callable(world):
        return world(log)
    from recsim_mnar.fitting.calibration import calibrate_world

    n_items, seed = n_items or world.make().n_items, derive_seed(seed, "fit")
    return calibrate_world(log, world.world, seed, n_items=n_items, ensemble=0, report=report)


def _by_users(case: _Case, kinds: Sequence[str], not_checked: list[str], report: Callable[[str], None]) -> list[Check]:
    """What exchanging users tells: the statistics, and the classifier."""
    report("simulating users")
    real = [Lives.of(each, case.n_items) for each in (case.known, case.held) if each is not None]
    known, held = sum(part.n_users for part in real[:-1]), real[-1].n_users
    simulated = case.simulated(_SIMULATED * held, case.shown.policy)
    n_simulated = sum(part.n_users for part in simulated)
    allowance = 1.0 + (1.0 / known) / (1.0 / held + 1.0 / n_simulated) if known else 1.0
    material = Material.of([*real, *simulated], same_items=case.same_items, clock=not Lives.joined(real).ticks)
    groups = Groups(known, held, n_simulated, derive_seed(case.seed, "groups"), allowance)
    columns = {row: row.columns(material) for row in TABLE}
    rows = TABLE if case.shown.known else _whatever_is_shown(case, simulated)
    found: list[Check] = []
    report("statistics")
    for row in counting(TABLE, "checks") if "statistics" in kinds else ():
        checks = stage(row.name.replace(" ", "-"), functools.partial(row.check, columns[row], groups), CHECKS)
        found += checks if row in rows else [dataclasses.replace(c, p=None, says=case.shown.says) for c in checks]
    if "classifier" in kinds:
        report("classifier")
        of = [each for row in rows if (each := columns[row]) is not None]
        checks = stage("classifier", lambda: telling_apart(of, groups), CHECKS)
        found += checks
    not_checked += _unseen(case, material)
    return found


def _whatever_is_shown(case: _Case, simulated: list[Lives]) -> list[Row]:
    """Rows of the table that do not hang on what is shown: the same users, shown random items, are much the same."""
    n = simulated[0].n_users
    others = case.simulated(n, uniform_policy(case.world.n_items))[:1]
    material = Material.of([simulated[0], *others], same_items=case.same_items, clock=False)
    groups = Groups(0, n, n, derive_seed(case.seed, "shown"), draws=199)
    checks = [(row, row.check(row.columns(material), groups)) for row in TABLE if not row.shown]
    return [row for row, found in checks if all(check.p is not None and check.p > _SAME for check in found)]


def _unseen(case: _Case, material: Material) -> list[str]:
    """Questions for which the log holds nothing."""
    lives = material.lives
    found = {
        "when things happen: the log's times only count a user's rows": not material.clock,
        "which items are popular, and which the same users meet: the world's items are others": not case.same_items,
        "clicks: the log has no recommendations that were clicked": not (lives.decisions.reward > 0).any(),
        "what users browse: the log has no views": not (~lives.shown).any(),
    }
    return [question for question, lacks in found.items() if lacks]

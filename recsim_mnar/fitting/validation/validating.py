"""validate_world: a world held against a log, check by check, each beside what two halves of the log show."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.fitting.validation import ranking
from recsim_mnar.fitting.validation.checks import CANNOT_SAY, CHECKS, CLOSE, MATCHES, OFF, Check, graded
from recsim_mnar.fitting.validation.classifier import telling_apart
from recsim_mnar.fitting.validation.lives import Lives
from recsim_mnar.fitting.validation.material import Material, prepared
from recsim_mnar.fitting.validation.out_of_policy import other_policy, random_ratings
from recsim_mnar.fitting.validation.simulated import shown_in, simulated_log
from recsim_mnar.fitting.validation.statistics import Statistic, statistics
from recsim_mnar.fitting.validation.two_groups import Groups, gap_of
from recsim_mnar.log import schema
from recsim_mnar.log.receipts import arrays_digest
from recsim_mnar.log.table import Log
from recsim_mnar.resuming import in_json, stage, work
from recsim_mnar.rng import Stream, check_seed, derive_seed, uniforms

KINDS = ("statistics", "classifier", "ranking", "out_of_policy")
MOST_USERS = 4000
"""Real users that are looked at."""
LEAST_USERS = 20
_RANKED = 1000
_GAP = in_json(dict[str, Any], dict[str, Any])
_MEMBERS = 20
_SIMULATED = 3
"""Simulated users for each held-out one: their own error then adds a third, not as much again."""
_MOST_ROWS = 500_000
"""Real rows that are looked at: with three times as many simulated ones some 1.5 GB."""
_NEVER = (
    "what recommendations do to what users browse later, and in the long run",
    "items and users of a kind that the log does not hold",
)


@dataclass(frozen=True)
class Validation:
    """A world held against a log.

    Attributes:
        checks: graded.
        not_checked: questions that no check bears on, each with the reason.
        notes: what must be known to read the figures.
        facts: users, items, seed; JSON types.
    """

    checks: list[Check]
    not_checked: list[str]
    notes: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def valid_for(self) -> list[str]:
        """Questions whose checks the world passes: not told from the log's own halves, or by little."""
        return [c.question for c in self.checks if c.grade in (MATCHES, CLOSE)]

    @property
    def not_valid_for(self) -> list[str]:
        """Questions whose checks it fails."""
        return [c.question for c in self.checks if c.grade == OFF]

    @property
    def cannot_say(self) -> list[str]:
        """Questions whose checks had too little to see a difference by."""
        return [c.question for c in self.checks if c.grade == CANNOT_SAY]

    def check(self, name: str) -> Check:
        """A check by its name.

        Raises:
            UserError: there is none.
        """
        by_name = {check.name: check for check in self.checks}
        if name not in by_name:
            raise UserError(f"no check {name!r}; {nearest(name, by_name)}")
        return by_name[name]

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "valid_for": self.valid_for, "not_valid_for": self.not_valid_for, "cannot_say": self.cannot_say,
            "not_checked": self.not_checked, "notes": self.notes, "facts": self.facts,
            "checks": [check.to_dict() for check in self.checks],
        }  # fmt: skip


def validate_world(
    world: Any,
    log: Log,
    seed: int = 0,
    checks: Sequence[str] | None = None,
    *,
    other_log: Log | None = None,
    agents: Sequence[str] | None = None,
    n_items: int | None = None,
    same_items: bool | None = None,
    as_it_is: bool = False,
    most_users: int = MOST_USERS,
    report: Callable[[str], None] = lambda stage: None,
) -> Validation:
    """Hold a world against a log.

    Within :func:`recsim_mnar.resuming.resumable` a run that is interrupted can be taken up.

    Args:
        world: a :class:`~recsim_mnar.worlds.base.DecisionWorld` with its parameters; a fitted world (what has
            ``make(i)`` and ``ensemble``), which is fitted anew on half of the users and held against the other half; or
            a function that makes either of a log, which is asked for the same.
        log: real users, ordered by (user, step).
        seed: of simulated users and of all divisions.
        checks: of :data:`KINDS`; all that the log has something for where None.
        other_log: under another policy, or with ratings of random items: what the world is to predict. Users (of
            ratings) and items are numbered as in ``log``.
        agents: whose ranking is compared, by name; a handful where None.
        n_items: how many items there are; as the world says, or the log's largest, where None.
        same_items: whether item numbers mean the same in world and log; where None: for a fitted world, and for a log
            whose provenance names this world's catalogue.
        as_it_is: hold a fitted world itself against all users, those included that it was fitted on.
        most_users: real users looked at; a random choice where there are more.
        report: called with a line whenever a stage begins.

    Returns:
        the checks with their grades, and which questions the world is valid for, not valid for, or was not held
        against.

    Raises:
        UserError: too few users, an unknown check, a log and a world that do not go together.
    """
    seed = check_seed(seed)
    kinds = _kinds(checks)

    def of() -> dict[str, Any]:
        other = None if other_log is None else other_log.digest(optional=True)
        return {
            "world": _identity(world), "log": log.digest(optional=True), "other_log": other, "checks": kinds,
            "agents": agents, "n_items": n_items, "same_items": same_items, "as_it_is": as_it_is,
            "most_users": most_users, "seed": seed,
        }  # fmt: skip

    with work("validate", of):
        case = _case(world, log, seed, n_items, same_items, as_it_is, most_users,
                     other_log is not None, report)  # fmt: skip
        found: list[Check] = []
        not_checked = [*_NEVER]
        if {"statistics", "classifier"} & set(kinds):
            found += _by_users(case, kinds, not_checked, report)
        if "ranking" in kinds:
            found += _by_ranking(case, agents, not_checked, report)
        if "out_of_policy" in kinds:
            found += _out_of_policy(case, other_log, not_checked, report)
        not_checked += [f"{kind.replace('_', ' ')}: not asked for" for kind in KINDS if kind not in kinds]
        return Validation(graded(found), not_checked, case.notes, case.facts())


def _identity(world: Any) -> Any:
    """What says which world this is, JSON types.

    Raises:
        UserError: it is a function.
    """
    if hasattr(world, "digest"):
        return world.digest()
    if not hasattr(world, "describe"):
        raise UserError("resumable() goes with a world or a fitted world: what a function makes cannot be known again")
    catalogue: Any = getattr(world, "catalogue", None)
    return [world.describe(), arrays_digest(catalogue.arrays()) if hasattr(catalogue, "arrays") else None]


@dataclass(frozen=True)
class _Case:
    """A world, and the users it is held against.

    Attributes:
        worlds: the best fit, then the ensemble.
        log: all of it.
        known, held: logs of the users that the world was fitted on (none for a world that was not) and of the others.
        halves: two halves of the real users, the second held out.
        seed: of everything.
        n_items: of both sides.
        same_items: whether their numbers mean the same.
        notes: for a person.
    """

    worlds: list[Any]
    log: Log
    known: Log | None
    held: Log
    halves: tuple[Log, Log]
    seed: int
    n_items: int
    same_items: bool
    notes: list[str]

    @property
    def shows(self) -> bool:
        """Whether the log has recommendations."""
        return bool((self.log["event"] == schema.BANDIT).any())

    def simulated(self, n_users: int, label: str) -> Log:
        """Users of the best fit, shown what the log's were shown."""
        shown = shown_in(self.log, self.worlds[0].n_items) if self.same_items else shown_in(
            self.log.organic(), self.worlds[0].n_items)  # fmt: skip
        if shown.says and shown.says not in self.notes:
            self.notes.append(shown.says)
        return simulated_log(
            self.worlds[0], shown.policy, n_users, derive_seed(self.seed, label), recommendations=self.shows
        )

    def facts(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "world": self.worlds[0].describe(), "users_held_out": len(self.held.users()),
            "users_fitted_on": 0 if self.known is None else len(self.known.users()),
            "n_items": self.n_items, "same_items": self.same_items, "seed": self.seed,
            "ensemble": len(self.worlds) - 1,
        }  # fmt: skip


def _kinds(checks: Sequence[str] | None) -> tuple[str, ...]:
    for name in checks or ():
        if name not in KINDS:
            raise UserError(f"unknown checks {name!r}; {nearest(name, KINDS)}")
    return KINDS if checks is None else tuple(checks)


def _case(
    world: Any, log: Log, seed: int, n_items: int | None, same_items: bool | None, as_it_is: bool, most_users: int,
    foresees: bool, report: Callable[[str], None],
) -> _Case:  # fmt: skip
    users = _chosen_users(log, most_users, seed)
    first, second = (log.select(np.isin(log["user"], half)) for half in (users[::2], users[1::2]))
    fits = callable(world) or hasattr(world, "ensemble")
    notes: list[str] = []
    members = len(getattr(world, "ensemble", ())) if foresees else 0
    if fits and not (as_it_is and hasattr(world, "ensemble")):
        report("fitting on half of the users")
        world = _fit(world, n_items, members, seed, report)(first)
        worlds = _worlds(world)
        notes.append(
            f"the world was fitted anew on {len(users[::2]):,} users and is held against {len(users[1::2]):,} others"
        )
        known: Log | None = first
        held = second
    else:
        worlds, known, held = _worlds(world), None, log.select(np.isin(log["user"], users))
        if fits:
            notes.append(
                "the world may have been fitted on these very users: its figures are then of fit, not held out"
            )
    size = _n_items(log, worlds[0], n_items)
    same = _same_items(world, worlds[0], log, fits) if same_items is None else same_items
    if same and worlds[0].n_items < _largest(log) + 1:  # its numbers could not mean the same
        raise UserError(
            f"validate: the log has item {_largest(log)}, the world {worlds[0].n_items} items: set n_items, or fit the "
            "world to this log"
        )
    if not same:
        notes.append("the world's items are not the log's: only what does not name items is compared")
    return _Case(worlds, log, known, held, (first, second), seed, size, same, notes)


def _chosen_users(log: Log, most: int, seed: int) -> NDArray[np.int64]:
    """Real users in random order, at most so many and so many rows."""
    users = log.users()
    if len(users) < LEAST_USERS:
        raise UserError(
            f"validate needs at least {LEAST_USERS} users to divide the log by user, it has {len(users)}: log more, or "
            "name a column of users"
        )
    rows_a_user = len(log) / len(users)
    most = max(LEAST_USERS, min(most, int(_MOST_ROWS / rows_a_user)))
    order = np.argsort(uniforms(derive_seed(seed, "users"), Stream.PROTOCOL, users, 0), kind="stable")
    return np.asarray(users[order[:most]])


def _fit(
    world: Any, n_items: int | None, members: int, seed: int, report: Callable[[str], None]
) -> Callable[[Log], Any]:
    """What makes a world of a log: what the user brings, or calibration as the fitted world was made."""
    if callable(world):
        return world
    from recsim_mnar.fitting.calibration import calibrate_world

    return lambda log: calibrate_world(
        log, world.world, derive_seed(seed, "fit"), n_items=n_items or world.make().n_items,
        ensemble=min(members, _MEMBERS), report=report,
    )  # fmt: skip


def _worlds(world: Any) -> list[Any]:
    """The best fit and the ensemble of a fitted world; a plain world alone."""
    if not hasattr(world, "ensemble"):
        return [world]
    return [world.make(), *(world.make(i) for i in range(len(world.ensemble)))]


def _largest(log: Log) -> int:
    return max(int(log["item"].max(initial=-1)), int(log["action"].max(initial=-1)))


def _n_items(log: Log, world: Any, given: int | None) -> int:
    largest = _largest(log)
    if given is not None and given <= largest:
        raise UserError(f"n_items is {given}, but the log has item {largest}")
    return max(given or 0, largest + 1, world.n_items)


def _same_items(given: Any, world: Any, log: Log, fitted: bool) -> bool:
    """Whether a fit has items of its own, or a log's provenance names the catalogue of the world."""
    if fitted:
        return getattr(given, "catalogues", ()) is not None or getattr(world, "matrix", None) is not None
    told = log.provenance.get("world")
    if not isinstance(told, dict) or told.get("name") != world.name:
        return False
    own, params = world.params.to_dict(), told.get("params", {})
    return all(own.get(name) == params.get(name) for name in ("n_items", "catalogue_seed", "n_factors"))


def _by_users(case: _Case, kinds: Sequence[str], not_checked: list[str], report: Callable[[str], None]) -> list[Check]:
    """What permutations of users tell: the statistics, and the classifier."""
    report("simulating users")
    parts = [Lives.of(each, case.n_items) for each in ([] if case.known is None else [case.known]) + [case.held]]
    held = parts[-1].n_users
    simulated = Lives.of(case.simulated(_SIMULATED * held, "users"), case.n_items)
    known = parts[0].n_users if len(parts) > 1 else 0
    allowance = 1.0 if not known else 1.0 + (1.0 / known) / (1.0 / held + 1.0 / simulated.n_users)
    real = Lives.joined(parts)
    clock = not real.ticks
    material = prepared(Lives.joined([real, simulated]), same_items=case.same_items, clock=clock)
    groups = Groups(known, held, simulated.n_users, derive_seed(case.seed, "groups"), allowance)
    found: list[Check] = []
    if "statistics" in kinds:
        report("hold simulated users against real ones")
        for i, statistic in enumerate(statistics(material)):
            gap = stage(f"statistic-{i}", functools.partial(_gap, statistic, groups), _GAP)
            found.append(Check(name=statistic.name, kind="statistic", question=statistic.question, what=statistic.what,
                               tolerance=statistic.tolerance, **gap))  # fmt: skip
        _unseen_questions(case, material.lives, clock, not_checked)
    if "classifier" in kinds:
        report("classifier")
        told: list[Check] = stage("classifier", lambda: _told_apart(material, groups), CHECKS)
        found += told
    return found


def _gap(statistic: Statistic, groups: Groups) -> dict[str, Any]:
    return dataclasses.asdict(gap_of(statistic, groups))


def _told_apart(material: Material, groups: Groups) -> list[Check]:
    told = telling_apart(material, groups)
    return [] if told is None else [told]


def _unseen_questions(case: _Case, lives: Lives, clock: bool, not_checked: list[str]) -> None:
    if not clock:
        not_checked.append("when things happen: the log's times only count a user's rows")
    if not case.same_items:
        not_checked.append("which items are popular, and which the same users meet: the world's items are others")
    if not lives.decisions.rows(lives.decisions.reward > 0).owner.size:
        not_checked.append("clicks: the log has no recommendations that were clicked")
    if not (~lives.shown).any():
        not_checked.append("what users browse: the log has no views")


def _by_ranking(
    case: _Case, agents: Sequence[str] | None, not_checked: list[str], report: Callable[[str], None]
) -> list[Check]:
    """Agents ranked on a half of the log and on as many simulated users."""
    first, second = (_some_users(half, _RANKED) for half in case.halves)
    if not (second["event"] == schema.ORGANIC).any():
        not_checked.append("which agent ranks best by leave-one-out: the log has no views")
        return []
    simulated = case.simulated(len(second.users()), "ranking")
    unseen = not _repeats(case.log)
    names = tuple(agents) if agents is not None else ranking.UNSEEN if unseen else ranking.AGENTS
    report("ranking of agents")
    try:
        return [ranking.agreement(first, second, simulated, names, case.n_items, unseen=unseen,
                                  seed=derive_seed(case.seed, "agents"))]  # fmt: skip
    except UserError as error:
        if agents is not None:
            raise
        not_checked.append(f"which agent ranks best by leave-one-out: {error}")
        return []


def _of_random_items(case: _Case, other: Log, seed: int, not_checked: list[str]) -> list[Check]:
    found = stage("random-ratings", lambda: random_ratings(case.worlds, case.log, other, seed), CHECKS)
    if len(found) == 1:
        not_checked.append(
            "which users would rate which items how: the world's items and users are drawn, not the log's"
        )
    return found


def _repeats(log: Log) -> bool:
    from recsim_mnar.log.views import Views

    return Views.of(log).repeat()


def _some_users(log: Log, most: int) -> Log:
    users = log.users()
    return log if len(users) <= most else log.select(np.isin(log["user"], users[:most]))


def _out_of_policy(
    case: _Case, other: Log | None, not_checked: list[str], report: Callable[[str], None]
) -> list[Check]:
    if other is None:
        not_checked.append("what another policy would earn: no log under another policy was given")
        return []
    report("predicting the other log")
    seed = derive_seed(case.seed, "other log")
    if _largest(other) >= case.worlds[0].n_items:
        raise UserError(
            f"validate: the other log has item {_largest(other)}, the world {case.worlds[0].n_items} items: number the "
            "items of both logs alike"
        )
    ratings = (other["event"] == schema.ORGANIC) & np.isfinite(other["reward"])
    if ratings.any():
        return _of_random_items(case, other, seed, not_checked)
    return stage("other-policy", lambda: [other_policy(case.worlds, case.log, other, seed)], CHECKS)

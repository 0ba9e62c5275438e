"""Comparison of a world with a log, check by check, each with its distribution by chance."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.fitting.checks import Check, Groups, Validation, classifier_check, graded
from recsim_mnar.fitting.statistics import TABLE, Population, StatisticCheck, UserRows, traits_of
from recsim_mnar.kernels.checks import of_type, whole_number
from recsim_mnar.log.table import Log, stated_items
from recsim_mnar.policies.answers import TOLERANCE
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.door import as_policy
from recsim_mnar.policies.registry import learner, uniform_policy
from recsim_mnar.policies.softening import MixturePolicy
from recsim_mnar.policies.storage import Stored
from recsim_mnar.progress import counting
from recsim_mnar.replays.probabilities import gives_propensities, replay, replay_rounds, rounds_of
from recsim_mnar.rng import Stream, check_seed, derive_seed, policy_uniforms, uniforms
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.run_folder import logging_policy, names_catalogue, runs_nothing
from recsim_mnar.worlds.base import DecisionWorld, as_world

_EM_STEPS = 60
"""EM steps for the weights of a mixture."""


def likeliest_weights(probabilities: Floats) -> Floats:
    """Fit the weights of a mixture of policies by EM.

    Args:
        probabilities: (n, M) probability of each logged action under each policy.

    Returns:
        (M,) weights of the largest likelihood, with sum 1.
    """
    weights = np.full(probabilities.shape[1], 1.0 / probabilities.shape[1])
    for _ in range(_EM_STEPS):
        joint = probabilities * weights
        weights = (joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300)).mean(axis=0)
    return weights / weights.sum()


MOST_DEVIATIONS = 6.0
"""Standard deviations by which the chi square of items' counts may exceed that of uniform recommendations."""
RECOMMENDERS_OF_OWN_VIEWS = ("random", "user-popularity", "user-popularity-greedy")
"""Recommenders that are always part of a fitted mixture: they read a user's own views only."""
RECOMMENDERS_OF_ITEMS = ("popularity", "item-knn", "user-knn", "svd")
"""Recommenders that are part of a fitted mixture if the world's items are the log's."""
LARGEST_ERROR = 0.1
"""Largest error of a fitted policy in a trait of its recommendations, in standard deviations."""
LARGEST_ERROR_OF_REPEATS = 0.3
"""Largest error in the number of earlier recommendations of the item, on which no statistic depends."""
_REPEATS = "shown before"
_LEAST_WEIGHT = 0.01
"""Smallest weight with which a recommender stays in the mixture."""


class LoggingPolicy(NamedTuple):
    """The policy that made a log, or a stand-in for it, which recommends to simulated users.

    Attributes:
        policy: the policy.
        known: True if it recommends (nearly) what the log's policy did.
        says: sentence on the policy; may be empty.
        details: how the policy was chosen; JSON types.
    """

    policy: Policy
    known: bool
    says: str
    details: Mapping[str, Any]


def choose_logging_policy(
    world: Any, log: Log, halves: tuple[Log, Log], logging: Any, *, same_items: bool, seed: int
) -> LoggingPolicy:
    """Choose the policy that recommends to simulated users, as close as possible to the one that made the log.

    It is uniform if the log's is, else the named policy if it reproduces the logged propensities, else one fitted to
    the log.

    Args:
        world: the world in which users are simulated.
        log: all users' rows.
        halves: two halves of the users: a policy is fitted on the first and tested on the second.
        logging: a policy, its name or its file; None for the policy in the log's provenance.
        same_items: True if item numbers mean the same in world and log; otherwise a named policy cannot be used.
        seed: seed of the fitted policy.
    """
    if _is_uniform(log, stated_items(log.provenance, 0) or world.n_items):
        return LoggingPolicy(uniform_policy(world.n_items), known=True, says="", details={"how": "uniform"})
    name = ""
    policy = None
    if same_items:  # otherwise the named policy would recommend other items than it did
        name, policy = _named_policy(world, log, logging)
    if policy is not None and policy.n_items == world.n_items and gives_propensities(log, policy):
        return LoggingPolicy(policy, known=True, says="", details={"how": "replayed", "policy": name})
    fitted = _fitted_mixture(world, log, halves, same_items=same_items, seed=seed)
    if policy is None:
        return fitted
    problem = f"{name}, replayed, does not give the logged propensities: it did not make this log; "
    return fitted._replace(says=problem + fitted.says)


def _is_uniform(log: Log, n_items: int) -> bool:
    """Return whether recommendations are uniform, judged by both propensities and actions.

    Propensities alone do not show it: the reader of a file may have filled in uniform ones.
    """
    rows = log.is_bandit
    expected = rows.sum() / n_items
    squares = ((np.bincount(log["action"][rows], minlength=n_items) - expected) ** 2).sum()
    # Under uniform recommendations the chi square has about the mean n_items and the variance 2 n_items.
    excess = squares / max(expected, 1e-300) - n_items
    uniform = np.all(np.abs(log["propensity"][rows] * n_items - 1.0) < TOLERANCE)
    return bool(uniform and excess <= MOST_DEVIATIONS * np.sqrt(2.0 * n_items))


def _named_policy(world: Any, log: Log, logging: Any) -> tuple[str, Policy | None]:
    """Find the policy that the caller, or else the log's provenance, names as the one that made the log.

    Args:
        world: the world in which users are simulated.
        log: a log.
        logging: a policy, its name or its file; None for the policy in the provenance.

    Returns:
        name: name of the policy; "" if none is named.
        policy: the policy; None if none is named, or if it cannot be rebuilt.
    """
    if logging is not None and not isinstance(logging, str):
        return str(getattr(logging, "name", "the policy")), as_policy(logging)
    if logging is not None and logging.endswith(".npz"):
        return logging, as_policy(Stored.load(logging))
    if "training" in log.provenance:
        policy = logging_policy(log.provenance, name=logging, world=world)
        return str(logging or getattr(policy, "name", "")), policy
    name = logging or ""
    stated = log.provenance.get("policy")
    if not name and isinstance(stated, dict):
        name = str(stated.get("name"))
    if name and (logging or runs_nothing(name)):
        with contextlib.suppress(UserError):  # a policy that learns from a log cannot be rebuilt without that log
            return name, learner(name).fit(Log({}), n_items=world.n_items, seed=0)
    return name, None


def _fitted_mixture(world: Any, log: Log, halves: tuple[Log, Log], *, same_items: bool, seed: int) -> LoggingPolicy:
    """Fit a mixture of recommenders to the logged actions, and test how similar its recommendations are.

    Weights are fitted on the first half of the users. On the second half the policy's recommendations are compared
    with the logged ones, trait by trait.

    Returns:
        The mixture; ``known`` says whether every trait is close enough.
    """
    n_items = max(world.n_items, log.highest_item + 1)
    components = _mixture_components(halves[0], n_items, same_items, seed)

    def logged_probabilities(half: Log) -> Floats:
        return np.stack([replay(half, component)[half.is_bandit] for component in components], axis=1)

    weights = likeliest_weights(logged_probabilities(halves[0]))
    test_probabilities = logged_probabilities(halves[1])
    kept = np.flatnonzero(weights >= _LEAST_WEIGHT)
    weights = weights[kept] / weights[kept].sum()
    policy = MixturePolicy([components[i] for i in kept], weights, "fitted")
    errors = _errors_of_traits(halves[1], policy, same_items, seed)
    limits = {**dict.fromkeys(errors, LARGEST_ERROR), _REPEATS: LARGEST_ERROR_OF_REPEATS}
    worst = max(errors, key=lambda trait: errors[trait] / limits[trait])
    details = {
        "how": "fitted",
        "weights": dict(zip([part.name for part in policy.policies], weights.tolist(), strict=True)),
        "misses": errors,
        "log_score": float(np.log(np.maximum(test_probabilities[:, kept] @ weights, 1e-300)).mean()),
    }
    if n_items != world.n_items:
        # Item numbers differ, so all components read users' own views only and can be fitted for the world's items.
        components = _mixture_components(halves[0], world.n_items, same_items, seed)
        policy = MixturePolicy([components[i] for i in kept], weights, "fitted")
    is_alike = errors[worst] <= limits[worst]
    if is_alike:
        says = "simulated users are shown what a policy fitted on the log shows"
    else:
        why = f"it misses by {errors[worst]:.2f} standard deviations of {worst!r}; name the policy that made the log"
        says = f"no policy that was fitted shows what the log shows: {why}"
    return LoggingPolicy(policy, is_alike, says, details)


def _mixture_components(log: Log, n_items: int, same_items: bool, seed: int) -> list[Policy]:
    """Fit the recommenders of a mixture to a log; one that cannot be fitted to it is left out."""
    names: tuple[str, ...] = RECOMMENDERS_OF_OWN_VIEWS
    if same_items:
        names = (*RECOMMENDERS_OF_OWN_VIEWS, *RECOMMENDERS_OF_ITEMS)
    components = []
    for name in names:
        with contextlib.suppress(UserError):
            components.append(as_policy(learner(name).fit(log, n_items=n_items, seed=derive_seed(seed, name))))
    return components


def _errors_of_traits(log: Log, policy: Policy, same_items: bool, seed: int) -> dict[str, float]:
    """Compare a policy's recommendations with the logged ones, each drawn in the state of the logged one.

    Returns:
        By trait of recommendations, the absolute difference of the two means in standard deviations of the log's.
    """
    drawn = log["action"].copy()
    acting = policy.fresh()
    for decided in replay_rounds(log, [acting], rounds_of(log, one_by_one=not policy.batches_decisions)):
        users = log["user"][decided]
        drawn[decided] = acting.act(users, policy_uniforms(derive_seed(seed, "drawn"), users, decided))[0]

    def traits(side: Log) -> dict[str, Floats]:
        rows = UserRows.of(side, policy.n_items)
        earlier = np.log1p(rows.earlier(rows.shown)[rows.shown])
        return {**traits_of(Population.of([rows], same_items=same_items)), _REPEATS: earlier}

    real = traits(log)
    redrawn = traits(Log({**log.columns, "action": drawn}))
    return {name: float(abs(real[name].mean() - redrawn[name].mean()) / max(real[name].std(), 1e-300)) for name in real}


LEAST_USERS = 20
"""Smallest number of real users."""
MOST_USERS = 4000
"""Default of the largest number of real users in use."""
_MOST_ROWS = 500_000
"""Largest number of their rows: with three times as many simulated rows they need some 1.5 GB."""
_SIMULATED_PER_USER = 3
"""Simulated users per held-out user: their sampling error adds a third to the variance of a difference."""
# Where the logging policy is fitted, checks of many users would find the errors of that policy.
FITTED_USERS = 1000
"""Largest number of held-out users in that case."""
FITTED_CLICKS = 5000
"""Largest number of their clicks, about."""
_INDEPENDENT = 0.2
"""p-value from which a statistic counts as independent of recommendations, in a test of users with other ones."""
_NEVER = (
    "what another policy would earn, and what recommendations do in the long run",
    "items and users of a kind that the log does not hold",
    "when things happen, and how much users do in one go",
)


def validate_world(
    world: Any,
    log: Log,
    seed: int = 0,
    *,
    logging: Any = None,
    n_items: int | None = None,
    same_items: bool | None = None,
    most_users: int = MOST_USERS,
    report: Callable[[str], None] = lambda stage: None,
) -> Validation:
    """Compare the users of a simulated world with those of a log.

    Args:
        world: a :class:`~recsim_mnar.worlds.base.DecisionWorld` with its parameters; a fitted world (with ``make(i)``
            and ``ensemble``), which is fitted anew on half of the users and compared with the others; or a function
            from a log to either, which is called with the same half.
        log: rows of real users, ordered by (user, step).
        seed: seed of simulated users and of all divisions.
        logging: the policy that made the log, the name of an agent, or the file of a saved policy; None for the policy
            in the log's provenance. Simulated users get its recommendations if its replayed propensities are those of
            the log, and otherwise those of a policy fitted on the log.
        n_items: number of items; None for the larger one of the world's and the log's.
        same_items: whether item numbers mean the same in world and log; None for True if the world is fitted, or if
            the log's provenance names this world's catalogue.
        most_users: largest number of real users in use, chosen at random.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: the log has too few users, or log and world cannot be compared.
    """
    of_type(log, "log", Log, "a Log (read_log reads one)")
    seed = check_seed(seed)
    check_logging(logging)
    whole_number(most_users, "most_users", LEAST_USERS)
    if isinstance(world, type) or not (callable(world) or hasattr(world, "ensemble")):
        as_world(world)

    case = _prepare_case(
        world,
        _sample_and_halve(log, most_users, seed),
        seed=seed,
        n_items=n_items,
        same_items=same_items,
        logging=logging,
        report=report,
    )
    checks, without_data = _run_checks(case, report)
    return Validation(graded(checks), [*_NEVER, *without_data], case.notes, case.facts())


def check_logging(logging: Any) -> None:
    """Raise UserError for an unknown name of the policy that made the log."""
    if isinstance(logging, str) and not logging.endswith(".npz"):
        learner(logging)


def _shuffled_users(log: Log, seed: int) -> Ints:
    """Return the users of a log in a random order."""
    users = log.users()
    return users[np.argsort(uniforms(seed, Stream.PROTOCOL, users, 0), kind="stable")]


def _sample_and_halve(log: Log, most: int, seed: int) -> tuple[Log, Log, Log]:
    """Choose users at random, within limits, and divide them into two random halves.

    Args:
        log: rows of all users.
        most: largest number of users; they have at most about :data:`_MOST_ROWS` rows.
        seed: seed of the choice.

    Returns:
        rows of all chosen users, of the first half, and of the second.

    Raises:
        UserError: the log has fewer than :data:`LEAST_USERS` users.
    """
    users = _shuffled_users(log, derive_seed(seed, "users"))
    if len(users) < LEAST_USERS:
        needs = f"validate needs at least {LEAST_USERS} users to divide the log by user"
        raise UserError(f"{needs}, it has {len(users)}: log more, or name a column of users")
    with_most_rows = int(_MOST_ROWS * len(users) / len(log))  # users who have about _MOST_ROWS rows
    users = users[: max(LEAST_USERS, min(most, with_most_rows))]

    def rows_of(part: Ints) -> Log:
        return log.select(np.isin(log["user"], part))

    return rows_of(users), rows_of(users[::2]), rows_of(users[1::2])


def _limited_users(held_out: Log, seed: int) -> Log:
    """Draw at most :data:`FITTED_USERS` users at random who have, about, at most :data:`FITTED_CLICKS` clicks."""
    users = _shuffled_users(held_out, derive_seed(seed, "fewer"))
    clicks = float(held_out["reward"][held_out.is_bandit].sum())
    most = max(LEAST_USERS, int(min(FITTED_USERS, FITTED_CLICKS * len(users) / max(clicks, 1.0))))
    if len(users) <= most:
        return held_out
    return held_out.select(np.isin(held_out["user"], users[:most]))


@dataclass(frozen=True)
class _Case:
    """A world and the real users with whom it is compared.

    Attributes:
        world: the world.
        fitted_on: rows of the users on whom the world was fitted for this comparison; None if it was not.
        held_out: rows of the users with whom simulated ones are compared.
        logging: policy that recommends to simulated users.
        seed: seed of the simulation and of all divisions.
        n_items: number of items that world and log have together.
        same_items: True if item numbers mean the same in world and log.
        notes: sentences that a reader of the checks must know.
    """

    world: Any
    fitted_on: Log | None
    held_out: Log
    logging: LoggingPolicy
    seed: int
    n_items: int
    same_items: bool
    notes: list[str]

    def simulated(self, n_users: int, policy: Policy) -> list[UserRows]:
        """Simulate at least ``n_users`` users.

        They get the numbers of the held-out users, in several simulations, unless these are spread too widely: a world
        may use a user's number as a date.

        Args:
            n_users: least number of users.
            policy: policy that recommends to them.

        Returns:
            The rows of each simulation; without recommendations if the log has none.
        """
        users = self.held_out.users()
        span = int(users[-1] - users[0]) + 1
        first = 0
        size = n_users
        if span <= n_users:
            first = int(users[0])
            size = span
        logs = [
            simulate(self.world, policy, size, derive_seed(self.seed, f"users {i}"), first_user=first)
            for i in range(-(-n_users // size))  # rounded up
        ]
        if not self.held_out.is_bandit.any():
            logs = [log.organic() for log in logs]
        return [UserRows.of(log, self.n_items) for log in logs]

    def facts(self) -> Mapping[str, Any]:
        """Return the settings of the comparison as JSON types."""
        return {
            "world": self.world.describe(),
            "users_held_out": len(self.held_out.users()),
            "users_fitted_on": 0 if self.fitted_on is None else len(self.fitted_on.users()),
            "n_items": self.n_items,
            "same_items": self.same_items,
            "seed": self.seed,
            "logging_policy": {"known": self.logging.known, **self.logging.details},
        }


def _prepare_case(
    world: Any,
    users: tuple[Log, Log, Log],
    *,
    seed: int,
    n_items: int | None,
    same_items: bool | None,
    logging: Any,
    report: Callable[[str], None],
) -> _Case:
    """Fit the world anew if it is a fitted one, and choose the policy for simulated users.

    Args:
        world: a world, a fitted world, or a function from a log to either.
        users: rows of all chosen users, of the first half, and of the second.
        seed: seed of all that is random.
        n_items: number of items that the caller states, or None.
        same_items: whether item numbers mean the same in world and log; None to find out.
        logging: policy that the caller names, or None.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: log and world cannot be compared.
    """
    log, first, second = users
    fits = callable(world) or hasattr(world, "ensemble")
    notes = []
    if fits:
        report("fitting on half of the users")
        world = _refit_world(world, first, n_items, seed, report)
        n = len(first.users())
        n_others = len(second.users())
        notes.append(f"the world was fitted anew on {n:,} users and is compared with {n_others:,} others")
    if hasattr(world, "ensemble"):
        made_world = as_world(world.make())
    else:
        made_world = as_world(world)
    largest = log.highest_item
    same = same_items
    if same is None:
        same = fits or names_catalogue(log.provenance, made_world)  # a world that was fitted has the log's items
    _refuse_mismatch(made_world, largest, n_items, same)
    if not same:
        notes.append("the world's items are not the log's: only what does not name items is compared")
    report("the policy that made the log")
    policy_seed = derive_seed(seed, "logging policy")
    logger = choose_logging_policy(made_world, log, (first, second), logging, same_items=same, seed=policy_seed)
    if logger.says:
        notes.append(logger.says)
    held_out = second if fits else log
    if logger.details["how"] == "fitted":
        held_out = _limited_users(held_out, seed)
    fitted_on = first if fits else None
    n_items = max(n_items or 0, largest + 1, made_world.n_items)
    return _Case(made_world, fitted_on, held_out, logger, seed=seed, n_items=n_items, same_items=same, notes=notes)


def _refuse_mismatch(made_world: Any, largest: int, n_items: int | None, same: bool) -> None:
    """Raise UserError if the world cannot be compared with the log.

    Args:
        made_world: the world.
        largest: largest item number in the log.
        n_items: number of items that the caller states, or None.
        same: True if item numbers mean the same in world and log.
    """
    if not isinstance(made_world, DecisionWorld):
        supported = "one whose users are recommended one item at a time (sessions, ratings, features)"
        raise UserError(f"validate: the {made_world.name} world is not {supported}")
    if n_items is not None and n_items <= largest:
        raise UserError(f"n_items is {n_items}, but the log has item {largest}")
    if same and made_world.n_items <= largest:  # the world does not have all items of the log
        raise UserError(
            f"validate: the log has item {largest}, the world {made_world.n_items} items: set n_items, or fit the "
            "world to this log"
        )


def _refit_world(world: Any, log: Log, n_items: int | None, seed: int, report: Callable[[str], None]) -> Any:
    """Fit a world to a log: call the caller's function, or calibrate a sessions world."""
    if callable(world):
        return world(log)
    if world.catalogues is None:
        raise UserError(f"calibrate did not fit this {world.world} world: compare the log with its make()")
    from recsim_mnar.fitting.calibration import calibrate_world

    n_items = n_items or world.make().n_items
    seed = derive_seed(seed, "fit")
    return calibrate_world(log, seed, n_items=n_items, ensemble=0, report=report)


def _run_checks(case: _Case, report: Callable[[str], None]) -> tuple[list[Check], list[str]]:
    """Run the checks of all statistics and of the classifier by permutation tests, with users as units.

    Args:
        case: the world and the users.
        report: called with a line whenever a stage begins.

    Returns:
        checks: the checks, not yet graded.
        questions: questions on which the log has no data.
    """
    report("simulating users")
    held_out = UserRows.of(case.held_out, case.n_items)
    real = [held_out]
    n_fitted_on = 0
    if case.fitted_on is not None:
        real.insert(0, UserRows.of(case.fitted_on, case.n_items))
        n_fitted_on = real[0].n_users
    simulated = case.simulated(_SIMULATED_PER_USER * held_out.n_users, case.logging.policy)
    n_simulated = sum(part.n_users for part in simulated)
    # A fitted world has the sampling error of the users it was fitted on, in addition to that of the compared ones.
    allowance = 1.0
    if n_fitted_on:
        allowance += (1.0 / n_fitted_on) / (1.0 / held_out.n_users + 1.0 / n_simulated)
    population = Population.of([*real, *simulated], same_items=case.same_items)
    groups = Groups(n_fitted_on, held_out.n_users, n_simulated, derive_seed(case.seed, "groups"), allowance)
    statistics = {row: row.compute(population) for row in TABLE}
    # Under another policy than the log's, only statistics that do not depend on recommendations can be tested.
    testable = TABLE if case.logging.known else _independent_rows(case, simulated)
    result: list[Check] = []
    report("statistics")
    for row in counting(TABLE, "checks"):
        checks = row.check(statistics[row], groups)
        if row not in testable:
            checks = [dataclasses.replace(check, p=None, says=case.logging.says) for check in checks]
        result += checks
    report("classifier")
    testable_statistics = [statistics[row] for row in testable]
    result += classifier_check([part for part in testable_statistics if part is not None], groups)
    return result, _questions_without_data(case, population)


def _independent_rows(case: _Case, simulated: list[UserRows]) -> list[StatisticCheck]:
    """Return the statistics that do not depend on which items were recommended.

    For these a permutation test finds no difference between simulated users under the stand-in for the logging policy
    and as many under random recommendations. Statistics of the recommendations themselves are left out without a test.

    Args:
        case: the world and the users.
        simulated: rows of users under the stand-in for the logging policy, by simulation.
    """
    n = simulated[0].n_users
    (randomly_served,) = case.simulated(n, uniform_policy(case.world.n_items))  # n users fit into one simulation
    population = Population.of([simulated[0], randomly_served], same_items=case.same_items)
    # 199 divisions: the p-value is compared with 0.2 only, which needs less precision than the checks.
    groups = Groups(0, n, n, derive_seed(case.seed, "shown"), draws=199)
    rows = []
    for row in TABLE:
        if not row.of_recommendations:
            checks = row.check(row.compute(population), groups)
            # A statistic without data yields no check and counts as independent.
            if all(check.p is not None and check.p > _INDEPENDENT for check in checks):
                rows.append(row)
    return rows


def _questions_without_data(case: _Case, population: Population) -> list[str]:
    """Return the questions on which the log has no data, each with the reason."""
    rows = population.rows
    questions = []
    if not case.same_items:
        questions.append("which items are popular, and which the same users meet: the world's items are others")
    if not (rows.decisions.reward > 0).any():
        questions.append("clicks: the log has no recommendations that were clicked")
    if rows.shown.all():
        questions.append("what users browse: the log has no views")
    return questions

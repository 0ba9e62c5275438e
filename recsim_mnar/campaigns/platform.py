"""Campaigns on a platform under its own recommender or another one: their log, and tasks."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.campaigns.model import PLATFORM, PlatformWorld, check_weights, values_at_lists
from recsim_mnar.campaigns.profiles import Floats, Ints, Profiles
from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.answers import name_of
from recsim_mnar.policies.base import Learner, Policy
from recsim_mnar.policies.door import as_policy, fitted, is_softened, role_of
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.runs.receipts import INDEX, digest_of
from recsim_mnar.simulation.executor import carrying, run_in_order
from recsim_mnar.simulation.items import world_provenance
from recsim_mnar.simulation.run_folder import DEPLOYED, DEPLOYED_NAMES, Request, Written
from recsim_mnar.tables.files import rows_in, write_table
from recsim_mnar.tasks.running import Earned, Runner, learner_of
from recsim_mnar.worlds.base import as_world

if TYPE_CHECKING:
    from recsim_mnar.campaigns.world import Campaign, Platform

Items = NDArray[np.int32]


ListsAndPropensities = tuple[Items, Floats]
"""Lists (n, k) of items, and the propensities (n, k) of their items."""

_SCORES_AT_A_TIME = 1 << 22
"""Largest number of entries of the table (users, items) of scores that is in memory at a time."""


def platform_log(platform: Platform) -> Log:
    """Return the platform's log up to its present day, with its provenance."""
    run_config = {
        **world_provenance(platform.world),
        "seed": platform.seed,
        "day": platform.day,
        "campaign_days": [campaign.day for campaign in platform.campaigns],
    }
    return Log(platform.log_columns(), run_config)


def platform_observation(platform: Platform) -> NDArray[np.float32]:
    """Return the observation (n_items + 1,): the share of users who hold each item, and that of campaigns done."""
    shares = platform.holders() / max(len(platform.present()), 1)
    return np.append(shares, len(platform.campaigns) / platform.world.params.n_campaigns).astype(np.float32)


def additions_log(platform: Platform) -> Log:
    """Return the items that users hold on the present day as organic rows: a training log for recommenders."""
    return Profiles.of(platform_log(platform), platform.day, platform.world.n_items).to_log()


def score_users(policy: Policy, log: Log, users: Ints) -> Floats:
    """Return the scores (n, n_items) of a policy for users of the log on which it was fitted."""
    policy = as_policy(policy)
    rows = log.select(np.isin(log["user"], users))
    # Users without a row, in worlds whose users start without items, are reset but have nothing to observe.
    policy.reset_training_users(users, users)
    policy.observe(rows["user"], rows["item"])
    scores = np.asarray(policy.scores(users), np.float64)
    policy.forget(users)
    return scores


def recommended_lists(
    platform: Platform, learner: Learner, *, k: int | None = None, seed: int = 0
) -> ListsAndPropensities:
    """Return lists of the k best items that each present user does not hold.

    Args:
        platform: platform on the day of the lists.
        learner: recommender, which is fitted on the items that users hold on that day.
        k: length of the lists; None for the world's ``list_length``.
        seed: seed of the fit.
    """
    lists, propensities, _users = _lists_by_scores(
        platform, learner, seed=seed, make_lists=lambda scores, users: platform.best_lists(scores, users, k)
    )
    return lists, propensities


def _lists_by_scores(
    platform: Platform, learner: Learner, *, seed: int, make_lists: Callable[[Floats, Ints], Any]
) -> tuple[Items, Floats, Ints]:
    """Make lists for all present users from the scores of a recommender fitted on the present day.

    Args:
        platform: the platform.
        learner: the recommender.
        seed: seed of the fit.
        make_lists: ``make_lists(scores, users)`` returns lists and propensities of users (n,) from scores (n, n_items).

    Returns:
        (U, k) lists.
        (U, k) propensities.
        (U,) users.
    """
    log = additions_log(platform)
    users = platform.present()
    n_items = platform.world.n_items
    policy = fitted(learner, log, n_items=n_items, seed=seed)
    parts = [make_lists(score_users(policy, log, part), part) for part in _chunks(users, n_items)]
    lists, propensities = zip(*parts, strict=True)
    return np.concatenate(lists), np.concatenate(propensities), users


def true_quality(platform: Platform, learner: Learner, *, k: int | None = None, seed: int = 0) -> float:
    """Return the true expected share of accepted items in a recommender's lists of k for all present users."""
    lists, _propensities = recommended_lists(platform, learner, k=k, seed=seed)
    return platform.quality(lists)


def run_campaign(
    platform: Platform,
    recommender: Learner | None = None,
    *,
    weights: Floats | None = None,
    sharpness: float | None = 1.0,
    seed: int = 0,
) -> Campaign:
    """Run a campaign on a platform's present day.

    Without a recommender, lists are drawn by the weights alone, and the campaign is not personalised. With one, fitted
    on the items that users hold on that day, they are drawn by weight_i (score_ui / max_i score_ui) ** sharpness, which
    combines the platform's preferences with the recommender's. With ``sharpness=None``, users get the recommender's
    best items, except those of weight 0.

    Args:
        platform: platform on the day of the campaign.
        recommender: learner whose scores, with a sharpness, are not negative; -inf is never. None for no recommender.
        weights: (n_items,) weights of items; None for the world's ``deployed_weights``.
        sharpness: exponent of the recommender's relative scores; None for its best items.
        seed: seed of the recommender's fit.

    Raises:
        UserError: no user is present, or the scores cannot be used as weights.
    """
    if weights is None:
        weights = platform.world.deployed_weights
    weights = np.asarray(weights, np.float64)
    if recommender is None:
        lists, propensities = platform.draw_lists(weights)
        return platform.recommend(lists, propensities)

    def make_lists(scores: Floats, users: Ints) -> Any:
        """Return lists and propensities for users (n,) with these scores (n, n_items)."""
        if sharpness is None:
            return platform.best_lists(np.where(weights > 0, scores, -np.inf), users)
        scores = np.where(np.isneginf(scores), 0.0, scores)  # -inf means never, as weight 0 does
        if not (scores >= 0).all():
            raise UserError(f"recommender {recommender.name!r} has negative scores: run it with sharpness=None")
        largest = scores.max(axis=1, keepdims=True)
        relative = np.divide(scores, largest, out=np.ones_like(scores), where=largest > 0)
        return platform.draw_lists(weights * relative**sharpness, users)

    lists, propensities, users = _lists_by_scores(platform, recommender, seed=seed, make_lists=make_lists)
    return platform.recommend(lists, propensities, users)


def run_campaigns(
    world: PlatformWorld,
    seed: int,
    *,
    recommender: Learner | None = None,
    sharpness: float | None = 1.0,
    days: Sequence[float] | None = None,
    until: float | None = None,
) -> Platform:
    """Open a platform, run its campaigns, and return it on its last day.

    Args:
        world: world of platforms.
        seed: seed of the platform.
        recommender: recommender of the campaigns; None for the platform's own weights.
        sharpness: exponent of the recommender's relative scores; None for its best items.
        days: days of the campaigns; None for the world's.
        until: last day; None for the world's ``n_days``.
    """
    platform = open_checked_platform(world, seed)
    if days is None:
        days = world.campaign_days()
    for number, day in enumerate(days):
        platform.advance(day)
        run_campaign(platform, recommender, sharpness=sharpness, seed=derive_seed(seed, f"campaign/{number}"))
    if until is None:
        until = world.params.n_days
    platform.advance(until)
    return platform


def open_checked_platform(world: PlatformWorld, seed: int, further_attributes: Sequence[str] = ()) -> Platform:
    """Open a platform on its first day, check that campaigns can be run on it, and return it.

    Args:
        world: world of platforms, which may be a user's own.
        seed: seed of the platform's users.
        further_attributes: attributes that the platform must have besides those of :data:`PLATFORM`.

    Raises:
        UserError: the world's parameters have no ``n_days``, or the platform lacks an attribute.
    """
    advice = "derive from recsim_mnar.campaigns.CampaignsWorld, or define it"
    if not hasattr(as_world(world).params, "n_days"):
        raise UserError(
            f"the parameters of the {world.name} world have no n_days, the length of a platform in days: {advice}"
        )
    platform: Platform = world.open_platform(check_seed(seed))
    lacking = [name for name in (*PLATFORM, *further_attributes) if not hasattr(platform, name)]
    if lacking:
        raise UserError(f"the platform of the {world.name} world has no {', '.join(lacking)}: {advice}")
    return platform


def check_acceptance(world: PlatformWorld, seed: int) -> None:
    """Raise UserError unless the world's platforms define the true probabilities of acceptance.

    A platform is opened for this check, which costs little, before one is simulated for long.
    """
    open_checked_platform(world, seed, further_attributes=("acceptance",))


def simulated(world: PlatformWorld, request: Request) -> Written:
    """Run a platform's campaigns with its own recommender or the requested one, and write its log.

    A platform is simulated as a whole, so ``resume`` is ignored. With ``keep_truth``, ``truth.parquet`` holds (user,
    step, acceptance_probability) of each recommendation, and ``catalogue.npz`` the true parameters of items and users.

    Raises:
        UserError: the folder is not empty.
    """
    recommender = None
    name = DEPLOYED
    if request.policy not in DEPLOYED_NAMES:
        recommender = registry.learner(request.policy)
        name = recommender.name
    sized = world.with_users(request.n_users)
    with RunFolder.fill(request.out) as into:
        if request.keep_truth:
            check_acceptance(sized, request.seed)
        platform = run_campaigns(sized, request.seed, recommender=recommender, sharpness=None)
        log = platform_log(platform)
        log.provenance["recommender"] = name
        into.begin(digest_of({"provenance": log.provenance}))
        if request.keep_truth:
            _write_truth(into, platform, log)
        log.write(request.out / "log")
        into.record(f"log/{INDEX}")
    return Written(request.n_users, len(log))


def _write_truth(into: RunFolder, platform: Platform, log: Log) -> None:
    """Write the acceptance probability of each recommendation in a log, and the parameters of items and users."""
    import pyarrow as pa

    decision_rows = np.flatnonzero(log.is_bandit)
    probability = np.empty(len(decision_rows))
    for campaign in platform.campaigns:
        rows = decision_rows[log["campaign"][decision_rows] == campaign.number]
        for part in _chunks(rows, platform.world.n_items):
            acceptance = platform.acceptance(log["user"][part], campaign.number)
            places = np.searchsorted(decision_rows, part)
            probability[places] = acceptance[np.arange(len(part)), log["action"][part]]
    columns = {
        "user": log["user"][decision_rows],
        "step": log["step"][decision_rows],
        "acceptance_probability": probability,
    }
    with into.recording("truth.parquet", rows=rows_in) as path:
        write_table(pa.table(columns), path)
    truth = platform.world.platform_truth(platform)
    if truth:
        with into.recording("catalogue.npz") as path, replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **truth)  # type: ignore[arg-type]  # arrays by name


def _chunks(users_or_rows: Ints, n_items: int) -> list[Ints]:
    """Split users or rows into chunks, each with at most :data:`_SCORES_AT_A_TIME` pairs (user or row, item).

    Results do not depend on the size of a chunk.
    """
    size = max(1, _SCORES_AT_A_TIME // n_items)
    return [users_or_rows[i : i + size] for i in range(0, len(users_or_rows), size)]


# ------------------------------------------------------------------------------------------------------------ in tasks


class Platforms(Runner):
    """Runner on whole platforms: a step is a campaign, and a value is the accepted recommendations per user."""

    world: PlatformWorld
    unit_noun = "platform"
    step_noun = "campaign"
    reward_noun = "acceptances"
    reference_units = 2_000
    log_description = "what the users of a platform hold on the day of each campaign"
    references: ClassVar = {
        "oracle": lambda world: ListMaker("oracle", _by_truth),
        "deployed": lambda world: ListMaker("deployed", functools.partial(_by_weights, world.deployed_weights)),
    }

    def log(self) -> Log:
        """Implement :meth:`Runner.log`: the log of one platform under its own recommender."""
        return platform_log(run_campaigns(self.world, derive_seed(self.task.seed, "task/log")))

    def random_policy(self) -> Any:
        """Implement :meth:`Runner.random_policy`."""
        return ListMaker("random", functools.partial(_by_weights, np.ones(self.world.n_items)))

    def policy_from_agent(self, agent: Any) -> Any:
        """Implement :meth:`Runner.policy_from_agent`: for a function of the environment's observation, or a learner."""
        if isinstance(agent, ListMaker):
            return agent
        if callable(agent) and not isinstance(agent, type) and role_of(agent) is None:
            name = str(getattr(agent, "__name__", name_of(agent)))
            return ListMaker(name, functools.partial(_by_observation, agent))
        learner = learner_of(agent)
        if is_softened(learner):
            raise UserError(f"agent {learner.name!r}: lists are made by rank, softening would change nothing; omit it")
        return ListMaker(learner.name, functools.partial(_by_learner, learner))

    def run(self, policy: Any, n: int, seed: int, executor: Executor | None = None) -> Earned:
        """Implement :meth:`Runner.run`, on the n platforms that an environment opens from ``reset(seed=seed)`` on."""
        job = carrying(_run_platform, self.world, policy, self.task.horizon, in_python=True)
        # The environment's seeds: the first platform has the seed itself, further ones derived seeds.
        seeds = [seed, *(derive_seed(seed, f"platform/{number}") for number in range(1, n))]
        results = run_in_order([functools.partial(job, platform_seed) for platform_seed in seeds], executor)
        rewards, decisions, digests = zip(*results, strict=True)
        return Earned(np.array(rewards), np.array(decisions), hashlib.sha256(b"".join(digests)).hexdigest())


@dataclass(frozen=True)
class ListMaker:
    """Recommender that makes the lists of a campaign.

    Attributes:
        name: name in results.
        make: ``make(platform)`` returns lists for all present users, and the propensities of their items.
    """

    name: str
    make: Callable[[Any], ListsAndPropensities]


def _run_platform(world: PlatformWorld, policy: ListMaker, horizon: int, seed: int) -> tuple[float, float, bytes]:
    """Run the first ``horizon`` campaigns of a platform.

    Returns:
        Expected number of accepted recommendations per user.
        Number of recommendations per user.
        Digest of the lists and propensities.
    """
    platform = open_checked_platform(world, seed, further_attributes=("acceptance",))
    digest = hashlib.sha256()
    n_accepted = 0.0  # expected number
    n_shown = 0
    for number, day in enumerate(world.campaign_days()[:horizon]):
        platform.advance(day)
        campaign = platform.recommend(*policy.make(platform))
        is_shown = campaign.lists >= 0
        acceptance = values_at_lists(platform.acceptance(campaign.users, number), campaign.lists)
        n_accepted += float(acceptance[is_shown].sum())
        n_shown += int(is_shown.sum())
        # Little-endian types, so that the digest is the same on every machine.
        digest.update(campaign.lists.astype("<i4").tobytes())
        digest.update(campaign.propensities.astype("<f8").tobytes())
    return n_accepted / world.params.n_users, n_shown / world.params.n_users, digest.digest()


def _by_weights(weights: Floats, platform: Any) -> ListsAndPropensities:
    """Draw lists for all present users by the weights (n_items,) of items."""
    return platform.draw_lists(weights)


def _by_observation(agent: Callable[[Any], Any], platform: Any) -> ListsAndPropensities:
    """Draw lists by the weights that an agent, a function, returns for the platform's observation."""
    weights = np.asarray(agent(platform_observation(platform)), np.float64)
    if weights.shape != (platform.world.n_items,):
        raise UserError(
            f"agent {name_of(agent)!r}: a function of the observation must give weights of shape "
            f"({platform.world.n_items},), got {weights.shape}"
        )
    check_weights(weights)
    return _by_weights(weights, platform)


def _by_learner(learner: Learner, platform: Any) -> ListsAndPropensities:
    """Return lists of the best items by a learner, fitted on the items that users hold on that day."""
    return recommended_lists(platform, learner, seed=derive_seed(platform.seed, f"campaign/{len(platform.campaigns)}"))


def _by_truth(platform: Any) -> ListsAndPropensities:
    """Return lists of the items that each user is most likely to accept."""
    users = platform.present()
    return platform.best_lists(platform.acceptance(users, len(platform.campaigns)), users)

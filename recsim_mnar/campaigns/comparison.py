"""The comparison of the campaigns world: leave-one-out by several schemes, and the truth on the platform."""

from __future__ import annotations

import time
from dataclasses import dataclass

from recsim_mnar.campaigns.model import PlatformWorld, values_at_lists
from recsim_mnar.campaigns.platform import (
    additions_log,
    check_acceptance,
    platform_log,
    recommended_lists,
    run_campaigns,
)
from recsim_mnar.campaigns.profiles import Floats, Profiles
from recsim_mnar.campaigns.weighing import SCHEMES, AfterCampaigns, Hits
from recsim_mnar.campaigns.world import Platform
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import level_of, number_in
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner
from recsim_mnar.policies.door import fitted
from recsim_mnar.protocols.base import Experiment, Trial
from recsim_mnar.protocols.records import Record, Target, truth_of_users
from recsim_mnar.simulation.run_folder import DEPLOYED_NAMES
from recsim_mnar.worlds.params import Params

_REQUIRED_PARAMS = ("n_users", "n_days", "list_length", "n_campaigns", "reference_day")


@dataclass(frozen=True)
class CampaignsSettings(Params):
    """Options of a comparison in the campaigns world.

    Attributes:
        recommender: agent that personalises the campaigns; "deployed" for the platform's weights, equal for all users.
        sharpness: exponent of the recommender's relative scores in the draw of lists.
        length: number of items in an agent's list; 0 for the campaigns' own ``list_length``.
        reference_day: reference time t0 of the weights; 0 for the world's own, before any campaign.
        level: coverage of all intervals.
    """

    recommender: str = "naive-cf"
    sharpness: float = 1.0
    length: int = 0
    reference_day: int = 0
    level: float = 0.95

    def check(self) -> None:
        """Raise UserError if an option is out of range."""
        for name in ("length", "reference_day", "sharpness"):
            number_in(getattr(self, name), name)
        level_of(self.level)


def accepted_shares(platform: Platform, learner: Learner, k: int) -> Floats:
    """Return the true expected share (U,) of a recommender's list of k that each present user accepts.

    The mean is :func:`recsim_mnar.campaigns.platform.true_quality`.
    """
    lists, _ = recommended_lists(platform, learner, k=k)
    return values_at_lists(platform.acceptance(platform.present()), lists).mean(axis=1)


class CampaignsExperiment(Experiment):
    """Comparison of agents on one platform, on its last day, after its campaigns.

    Every protocol is a leave-one-out on the items that users hold then, unweighted or weighted. The truth of an agent
    is the share of its recommendations that present users would accept, by the platform's acceptance probabilities.
    """

    settings_type = CampaignsSettings
    preset = "affinity"
    agents = ("random", "popularity", "cosine-cf", "naive-cf", "item-knn", "user-knn")
    protocols = ("unweighted", "weights")
    own_protocols = SCHEMES
    provides = frozenset({"train_log", "test_log", "platform"})
    log_holds = frozenset()

    def targets(self, settings: CampaignsSettings) -> tuple[Target, ...]:
        """Implement :meth:`Experiment.targets`."""
        return (Target("accepted", "accepted share"),)

    def further_agents(self, settings: CampaignsSettings) -> list[str]:
        """Implement :meth:`Experiment.further_agents`."""
        if settings.recommender in DEPLOYED_NAMES:
            return []
        return [settings.recommender]

    def prepare(self, trial: Trial) -> None:
        """Implement :meth:`Experiment.prepare`: run the platform, fit the agents, and build the profiles."""
        world = trial.world
        settings = trial.settings
        assert isinstance(world, PlatformWorld)
        params = world.params
        lacking = [name for name in _REQUIRED_PARAMS if not hasattr(params, name)]
        if lacking:
            raise UserError(
                f"the {world.name} world cannot be compared in as the campaigns world is: its parameters lack "
                f"{', '.join(lacking)}. Define them, or name a comparison of its own in its class's compared_by"
            )
        k = settings.length or params.list_length  # length 0 stands for the world's
        if k > world.n_items:
            raise UserError(f"lists of {k} items cannot be made of {world.n_items} items")
        recommender = None
        if settings.recommender not in DEPLOYED_NAMES:
            recommender = registry.learner(settings.recommender)
        trial.report(f"{params.n_users:,} users on a platform, {params.n_campaigns} campaigns")
        trial.test_seed = trial.seed_of("users")
        check_acceptance(world, trial.test_seed)
        platform = run_campaigns(world, trial.test_seed, recommender=recommender, sharpness=settings.sharpness)
        trial.test_log = log = platform_log(platform)
        trial.train_log = additions = additions_log(platform)
        for name, learner in trial.learners.items():
            trial.policies[name] = fitted(learner, additions, n_items=world.n_items, seed=0)
        reference_day = float(settings.reference_day or params.reference_day)  # 0 stands for the world's
        reference = Profiles.of(log, reference_day, world.n_items)
        trial.data = AfterCampaigns(platform, reference, Hits(trial.learners, k))

    def truth(self, trial: Trial) -> list[Record]:
        """Implement :meth:`Experiment.truth`: the expected share of accepted items in each agent's lists."""
        trial.report("truth on the platform")
        data: AfterCampaigns = trial.data
        began = time.perf_counter()
        shares = {
            name: accepted_shares(data.platform, learner, data.hits.k) for name, learner in trial.learners.items()
        }
        return truth_of_users(trial.world.name, "accepted", shares, trial.level, began=began)

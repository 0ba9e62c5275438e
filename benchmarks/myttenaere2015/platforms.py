"""What all parts share: platforms and algorithms, intervals over platforms, Kendall's tau, and their text."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from _study import student
from schemes import scheme_of
from scipy import stats

from recsim_mnar.agents.baselines import ConstantList, MostRecommended, times_recommended
from recsim_mnar.campaigns.model import PlatformWorld
from recsim_mnar.campaigns.platform import platform_log, run_campaigns
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import hit_probabilities
from recsim_mnar.campaigns.world import Platform
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import Learner, registry
from recsim_mnar.worlds import make_world

K = 5


def by_kind(
    platform_of: Callable[..., dict[str, Any]], settings: dict[str, Any], kinds: dict[str, Any]
) -> dict[str, Callable[[], dict[str, Any]]]:
    """Jobs of a part: one platform per kind of campaign and number."""
    return {
        f"{kind}-{number:03d}": functools.partial(platform_of, settings, kinds, kind, number)
        for kind in settings["kinds"]
        for number in range(settings["platforms"])
    }


def world_of(preset: str, seed: int, settings: Sequence[str] = ()) -> Any:
    """A campaigns world whose catalogue has this seed."""
    return make_world("campaigns", preset, [*settings, f"catalogue_seed={seed}"])


@dataclass(frozen=True)
class Campaigns:
    """How a platform's campaigns recommend.

    Attributes:
        recommender: by which lists are drawn, next to the deployed weights; None: the same weights for everybody.
        sharpness: see :func:`recsim_mnar.campaigns.platform.run_campaign`.
    """

    recommender: Learner | None = None
    sharpness: float = 1.0

    def platform(
        self, world: PlatformWorld, seed: int, *, days: Sequence[float] | None = None, until: float | None = None
    ) -> Platform:
        """A platform after campaigns on these days (the world's own where None; ``[]``: none), on day ``until``."""
        return run_campaigns(
            world, seed, recommender=self.recommender, sharpness=self.sharpness, days=days, until=until
        )

    def log_with_random_campaign(self, world: PlatformWorld, seed: int, *, day: float, share: float) -> Log:
        """The log of the same platform, where a share of users gets one more campaign, of uniformly random items.

        Args:
            world: the model.
            seed: of users and campaigns.
            day: of the random campaign, after the others.
            share: of the users present, the first ones.

        Raises:
            UserError: the day is before a campaign or after the last day, or no user would get it.
        """
        days = [float(d) for d in world.campaign_days()]
        last = world.params.n_days
        if not max(days, default=0.0) <= day <= last:
            raise UserError(f"random_day must be in {max(days, default=0.0):g}..{last}, got {day:g}")
        platform = self.platform(world, seed, days=days, until=day)
        users = platform.present()
        users = users[: round(share * len(users))]
        if len(users) == 0:
            raise UserError(f"random_share {share:g} leaves no user to recommend to")
        platform.recommend(*platform.draw_lists(np.ones(world.n_items), users), users)
        platform.advance(last)
        return platform_log(platform)


def campaigns_of(kind: dict[str, Any]) -> Campaigns:
    """Campaigns of a kind that the settings name."""
    recommender = registry.learner(kind["recommender"]) if kind["recommender"] else None
    return Campaigns(recommender, kind["sharpness"])


def lived(world: Any, seed: int, kind: dict[str, Any], days: list[float] | None = None) -> Any:
    """A platform on its last day, with campaigns of this kind (``days=[]``: none)."""
    return campaigns_of(kind).platform(world, seed, days=days)


def constant_lists(log: Log, reference: Profiles) -> dict[str, Learner]:
    """g1, the most recommended items, and g2, the most frequent at t0 among those never recommended."""
    policy = MostRecommended(K).fit(log, n_items=reference.n_items)
    g1 = np.flatnonzero(np.isfinite(policy.item_scores))  # type: ignore[attr-defined]
    held = np.where(times_recommended(log, reference.n_items) > 0, -1, reference.n_holders())
    g2 = np.argsort(-held, kind="stable")[:K]
    return {"g1": ConstantList(g1.tolist()), "g2": ConstantList(g2.tolist())}


def four(log: Log, reference: Profiles) -> dict[str, Learner]:
    """The paper's algorithms: both constant lists and both collaborative filterings."""
    return constant_lists(log, reference) | {name: registry.learner(name) for name in CFS}


def scores_by_scheme(
    log: Log, time: float, reference: Profiles, schemes: Sequence[str], agents: Mapping[str, Learner], k: int
) -> dict[str, dict[str, float]]:
    """Every recommender's leave-one-out score at a time, by every scheme: ``found[scheme][agent]``.

    Args:
        log: of a platform.
        time: of the score.
        reference: profiles at the reference time.
        schemes: specs.
        agents: by name.
        k: length of the list.
    """
    now = Profiles.of(log, time, reference.n_items)
    cache: dict[tuple[bytes, str], Any] = {}
    found: dict[str, dict[str, float]] = {}
    for spec in schemes:
        weighing = scheme_of(spec).weigh(now, reference)
        found[spec] = {}
        for name, learner in agents.items():
            key = (weighing.profiles.fingerprint(), name)  # a scheme may judge a part of the pairs
            if key not in cache:
                cache[key] = hit_probabilities(weighing.profiles, learner, k)
            found[spec][name] = float(weighing.probabilities @ cache[key])
    return found


NAMES = {"g1": "g1", "g2": "g2", "cosine-cf": "cosine CF", "naive-cf": "naive CF"}
CFS = ("cosine-cf", "naive-cf")

Interval = list[float]
"""Mean over platforms and the two ends of its 95 % interval."""


def interval(values: Iterable[float], least: float = -math.inf, most: float = math.inf) -> Interval:
    """Mean over platforms and its 95 % interval (Student's t), cut to what the quantity can be."""
    x = np.array([v for v in values if v is not None and math.isfinite(v)], float)
    mean, low, high = student(x) if len(x) else (math.nan, least, most)
    return [float(mean), max(float(low), least), min(float(high), most)]


def tau(scores: dict[str, float], truth: dict[str, float]) -> float:
    """Kendall's tau-b of the rankings of the same algorithms."""
    names = list(truth)
    return float(stats.kendalltau([scores[n] for n in names], [truth[n] for n in names]).statistic)


def percent(row: Any) -> str:
    """An interval of a relative change; of one platform its value alone."""
    if row[1] is None or not math.isfinite(row[1]):
        return f"{row[0]:+.1%}"
    return f"{row[0]:+.1%} [{row[1]:+.1%}, {row[2]:+.1%}]"


def plain(row: Any, form: str = ".2f") -> str:
    """An interval in the form of a number; a dash where there is none."""
    if row is None:
        return "-"
    if None in row or not all(map(math.isfinite, row)):
        return f"{row[0]:{form}}"
    return f"{row[0]:{form}} [{row[1]:{form}}, {row[2]:{form}}]"

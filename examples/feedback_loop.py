"""A recommender that is retrained on what its own campaigns made people add: its score climbs, its worth does not.

    python examples/feedback_loop.py [AGENT]

Before each campaign the agent (by default cosine-cf) is fitted on what users hold, scored by classical leave-one-out on
the same data, and judged by the truth: the expected share of its recommendations that are accepted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from recsim_mnar import UserError, make_world
from recsim_mnar.campaigns.platform import platform_log, recommended_lists
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import hit_probabilities
from recsim_mnar.policies import registry
from recsim_mnar.policies.base import Learner
from recsim_mnar.rng import derive_seed


@dataclass(frozen=True)
class Round:
    """One turn of the feedback loop.

    Attributes:
        day: of the campaign.
        accepted: share of its recommendations that were accepted.
        quality: true quality of the recommender then (``Platform.quality``).
        loo: its classical leave-one-out hit rate on the platform's own data then; NaN where it has no exhaustive form.
        items_shown: distinct items that the campaign recommended.
        gini: of how often each item that exists was recommended; 0 all alike, towards 1 few items.
    """

    day: float
    accepted: float
    quality: float
    loo: float
    items_shown: int
    gini: float


def feedback_loop(
    world: Any,
    learner: Learner,
    *,
    rounds: int,
    every: float,
    first: float | None = None,
    seed: int = 0,
    with_loo: bool = True,
) -> tuple[Any, list[Round]]:
    """A recommender retrained before each campaign on data that its own campaigns have made.

    Args:
        world: a campaigns world.
        learner: shows its best items to everybody in every campaign.
        rounds: campaigns.
        every: days between them.
        first: day of the first; the world's first campaign by default.
        seed: of the users and the training.
        with_loo: score it by leave-one-out before each campaign.

    Returns:
        The platform after the last campaign's interval, and what each round was like.
    """
    if rounds < 1 or not every > 0:
        raise UserError(
            f"a feedback loop needs at least one round, some days apart; got {rounds} rounds every {every:g}"
        )
    platform = world.open_platform(seed)
    rows = []
    for number in range(rounds):
        platform.advance((world.params.first_campaign if first is None else first) + number * every)
        training = derive_seed(seed, f"feedback/{number}")
        lists, probabilities = recommended_lists(platform, learner, seed=training)
        loo = np.nan
        if with_loo:
            profiles = Profiles.of(platform_log(platform), platform.day, world.n_items)
            hit = hit_probabilities(profiles, learner, world.params.list_length)
            loo = float(np.repeat(1.0 / profiles.lengths(), profiles.lengths()) @ hit / profiles.n_users)
        quality = platform.quality(lists)
        shown = np.bincount(lists[lists >= 0], minlength=world.n_items)[platform.born()]
        campaign = platform.recommend(lists, probabilities)
        rows.append(
            Round(
                platform.day, float(campaign.accepted.sum() / max(shown.sum(), 1)), quality, loo,
                int((shown > 0).sum()), gini(shown),
            )
        )  # fmt: skip
    platform.advance(platform.day + every)
    return platform, rows


def gini(counts: Any) -> float:
    """Gini coefficient of counts: 0 where all are equal, (n - 1) / n where one has everything; NaN without any."""
    x = np.sort(np.asarray(counts, np.float64))
    if len(x) == 0 or x.sum() == 0:
        return float("nan")
    return float((2 * np.arange(1, len(x) + 1) - len(x) - 1) @ x / (len(x) * x.sum()))


def main(agent: str = "cosine-cf") -> list[Round]:
    world = make_world("campaigns", "affinity", ["n_users=2000", "fatigue=1"])
    _, rounds = feedback_loop(world, registry.learner(agent), rounds=8, every=20, first=300, seed=1)
    print(f"{agent}, {world.params.n_users:,} users, {world.n_items} items")
    print(
        f"{'day':>5s}{'leave-one-out hr@5':>20s}{'true quality':>14s}{'accepted':>10s}{'items shown':>13s}{'gini':>7s}"
    )
    for r in rounds:
        print(f"{r.day:5g}{r.loo:20.3f}{r.quality:14.3f}{r.accepted:10.3f}{r.items_shown:13d}{r.gini:7.2f}")
    return rounds


if __name__ == "__main__":
    try:
        main(*sys.argv[1:2])
    except UserError as error:
        sys.exit(str(error))

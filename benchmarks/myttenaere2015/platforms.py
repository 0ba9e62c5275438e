"""What both halves of the benchmark measure on one platform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from recsim_mnar.agents.constant_lists import ConstantList, MostRecommended, times_recommended
from recsim_mnar.log import Log
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policy import Learner, registry
from recsim_mnar.protocols.temporal.item_weights import fit_item_weights
from recsim_mnar.protocols.temporal.platforms import Campaigns, scores_by_scheme
from recsim_mnar.protocols.temporal.weighted_leave_one_out import hit_probabilities, score
from recsim_mnar.protocols.temporal.weighting_schemes import make_scheme
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulate.platform import platform_log, true_quality
from recsim_mnar.worlds import make_world

K = 5


def world_of(preset: str, seed: int, settings: Sequence[str] = ()) -> Any:
    return make_world("campaigns", preset, [*settings, f"catalogue_seed={seed}"])


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


# ---------------------------------------------------------------------------------------------------------- the figures


def figures_of(settings: dict[str, Any], kinds: dict[str, Any], kind: str, seed: int) -> dict[str, Any]:
    """Everything that Figures 3 to 7 need of one platform."""
    world = world_of(settings["preset"], seed)
    platform = lived(world, seed, kinds[kind])
    log = platform_log(platform)
    t0, last = world.params.reference_day, world.params.n_days
    reference = Profiles.of(log, t0, world.n_items)
    p0 = reference.item_probabilities()
    agents = constant_lists(log, reference)
    agents |= {name: registry.learner(name) for name in ("cosine-cf", "naive-cf")}
    top = np.argsort(-times_recommended(log, world.n_items), kind="stable")[:K]
    days = list(range(t0, last + 1, settings["step"]))
    curves: dict[str, dict[str, list[float]]] = {name: {str(p): [] for p in settings["p"]} for name in agents}
    kl: dict[str, list[float]] = {str(p): [] for p in settings["p"]}
    drawn: dict[str, list[list[float]]] = {"g1": [], "g2": []}
    probabilities = []
    for day in days:
        now = Profiles.of(log, day, world.n_items)
        probabilities.append(now.item_probabilities()[top].tolist())
        hits = {name: hit_probabilities(now, learner, K) for name, learner in agents.items()}
        for p in settings["p"]:
            fit = fit_item_weights(now, p0, p)
            kl[str(p)].append(fit.divergence)
            share = fit.weights[now.items]
            share /= np.repeat(np.add.reduceat(share, now.starts[:-1]), now.lengths())
            for name in agents:
                curves[name][str(p)].append(float(share @ hits[name] / now.n_users))
        weighing = make_scheme("unweighted").weigh(now, reference)
        for name, rows in drawn.items():
            sampled = score(weighing, hits[name], samples=settings["samples"], seed=derive_seed(seed, f"day/{day}"))
            rows.append(list(sampled[:3]))
    final = Profiles.of(log, last, world.n_items)
    return {
        "kind": kind,
        "seed": seed,
        "pairs": {"reference": reference.n_pairs, "last": final.n_pairs, "campaigns": int((final.causes >= 0).sum())},
        "users_with_one_item": int((reference.lengths() == 1).sum()),
        "days": days,
        "items_per_user": np.bincount(final.lengths()).tolist(),
        "most_recommended": top.tolist(),
        "item_probabilities": probabilities,
        "curves": curves,
        "kl": kl,
        "drawn": drawn,
    }


def control_of(settings: dict[str, Any], kinds: dict[str, Any], kind: str, seed: int) -> dict[str, Any]:
    """Classical scores on the same platform without any campaign; g1 and g2 are those of this kind of campaign."""
    world = world_of(settings["preset"], seed)
    t0, last = world.params.reference_day, world.params.n_days
    reference = Profiles.of(platform_log(lived(world, seed, kinds[kind])), t0, world.n_items)
    agents = constant_lists(platform_log(lived(world, seed, kinds[kind])), reference)
    agents |= {name: registry.learner(name) for name in ("cosine-cf", "naive-cf")}
    log = platform_log(lived(world, seed, kinds[kind], days=[]))
    curves: dict[str, list[float]] = {name: [] for name in agents}
    for day in range(t0, last + 1, settings["step"]):
        now = Profiles.of(log, day, world.n_items)
        weighing = make_scheme("unweighted").weigh(now, reference)
        for name, learner in agents.items():
            curves[name].append(float(weighing.probabilities @ hit_probabilities(now, learner, K)))
    return {"kind": kind, "seed": seed, "curves": curves}


# ------------------------------------------------------------------------------------------------------------ the study


def study_of(settings: dict[str, Any], kinds: dict[str, Any], kind: str, number: int) -> dict[str, Any]:
    """Scores by every scheme, with and without campaigns, and the true quality of every algorithm, on one platform."""
    world, seed = world_of(settings["preset"], number, settings["set"]), 1000 + number
    t0, campaigns = world.params.reference_day, campaigns_of(kinds[kind])
    days = [float(day) for day in world.campaign_days()]
    log = platform_log(campaigns.platform(world, seed))
    without = platform_log(campaigns.platform(world, seed, days=[]))
    reference = Profiles.of(log, t0, world.n_items)
    agents = constant_lists(log, reference) | {name: registry.learner(name) for name in settings["agents"]}
    random_log = campaigns.log_with_random_campaign(
        world, seed, day=settings["random_day"], share=settings["random_share"]
    )
    schemes = settings["schemes"]
    rows: list[dict[str, Any]] = []
    for t in settings["times"]:
        platform = campaigns.platform(world, seed, days=[day for day in days if day < t], until=t)
        truth = {name: true_quality(platform, learner, k=K) for name, learner in agents.items()}
        scores = {"with": scores_by_scheme(log, t, reference, schemes, agents, K)}
        # Before the first campaign the two platforms are one.
        same = t <= days[0]
        scores["without"] = scores["with"] if same else scores_by_scheme(without, t, reference, schemes, agents, K)
        if t == world.params.n_days:
            phase = f"random-phase+campaign={len(days)}"
            found = scores_by_scheme(random_log, t, reference, [phase], agents, K)
            scores["with"]["random-phase"] = found[phase]
        rows.append({"time": t, "truth": truth, "scores": scores})
    return {"kind": kind, "platform": number, "rows": rows}

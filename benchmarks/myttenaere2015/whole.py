"""The whole platform of the paper's second description, 34,448 users and 35,741 items, and a search at its shape.

The constant lists and both collaborative filterings from day 300 to day 500, by the classical score and with weights;
and settings drawn from a region stated in settings.toml, to find where Figure 5 holds and what Figure 7 then shows.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np
from analysis import interval
from platforms import K, constant_lists, lived, world_of

from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policy import registry
from recsim_mnar.protocols.temporal.weighted_leave_one_out import hit_probabilities, score
from recsim_mnar.protocols.temporal.weighting_schemes import make_scheme
from recsim_mnar.rng import Stream, uniforms
from recsim_mnar.simulate.platform import platform_log

CFS = ("cosine-cf", "naive-cf")

Case = dict[str, Any]


def measured(preset: str, seed: int, case: Case, p: list[int]) -> dict[str, Any]:
    """Scores on the reference day and the last, with half the width of their sampling interval over users.

    Args:
        preset: of the world.
        seed: of catalogue and users.
        case: ``set``, ``recommender`` and ``sharpness``.
        p: numbers of weights.
    """
    began = time.process_time()
    world = world_of(preset, seed, case["set"])
    log = platform_log(lived(world, seed, case))
    params = world.params
    reference, now = (Profiles.of(log, day, world.n_items) for day in (params.reference_day, params.n_days))
    agents = constant_lists(log, reference) | {name: registry.learner(name) for name in CFS}
    first = make_scheme("unweighted").weigh(reference, reference)
    weighings = {str(q): make_scheme(f"weights+p={q}" if q else "unweighted").weigh(now, reference) for q in (0, *p)}
    scores: dict[str, Any] = {}
    for name, learner in agents.items():
        before, hits = (hit_probabilities(profiles, learner, K) for profiles in (reference, now))
        found = {q: score(weighing, hits) for q, weighing in weighings.items()}
        scores[name] = {
            "before": float(first.probabilities @ before),
            **{q: [float(value), float(high - low) / 2] for q, (value, low, high, _) in found.items()},
        }
    return {
        "users": now.n_users, "items": world.n_items, "pairs": now.n_pairs, "mean_items": now.n_pairs / now.n_users,
        "items_held": int((now.n_holders() > 0).sum()), "scores": scores,
        "seconds": round(time.process_time() - began, 1),
        "memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }  # fmt: skip


def changes(ones: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By algorithm and p: relative change since the reference day over platforms, and its sampling half width."""
    out: dict[str, dict[str, Any]] = {}
    for name, row in ones[0]["scores"].items():
        out[name] = {}
        for q in (key for key in row if key != "before"):
            pairs = [(one["scores"][name][q], one["scores"][name]["before"]) for one in ones]
            change = interval(value[0] / before - 1 for value, before in pairs)
            out[name][q] = change | {"sampling": float(np.mean([value[1] / before for value, before in pairs]))}
    return out


def figure5(found: dict[str, Any], bounds: dict[str, list[float]]) -> bool:
    """Do the constant lists move as published: g1 up, g2 down, each within the bounds of the settings?"""
    return all(low <= found[name]["0"]["mean"] <= high for name, (low, high) in bounds.items())


def figure7(row: dict[str, Any]) -> dict[str, bool]:
    """Figure 7's findings for one recommender, each beyond the sampling interval of the score.

    The classical score falls; weights bring back a part, and no more than that (no change of sign); more weights bring
    back more.
    """
    ps = sorted(row, key=int)
    means, half = [row[q]["mean"] for q in ps], [row[q]["sampling"] for q in ps]
    return {
        "falls": means[0] < -half[0],
        "weights bring it nearer to 0": all(abs(m) < abs(means[0]) - h for m, h in zip(means[1:], half[1:], strict=True)),
        "no change of sign": all(m < h for m, h in zip(means, half, strict=True)),
        "more weights bring it nearer": all(
            abs(b) < abs(a) - h for a, b, h in zip(means[1:], means[2:], half[2:], strict=True)
        ),
    }  # fmt: skip


def holds(found: dict[str, Any]) -> dict[str, bool]:
    """For each recommender, whether all of Figure 7's findings hold."""
    return {name: all(figure7(found[name]).values()) for name in CFS}


# ---------------------------------------------------------------------------------------------------------- the search


def drawn_case(search: dict[str, Any], number: int, scale: int) -> Case:
    """Setting ``number`` of the region, at ``1 / scale`` of the whole platform's users and items.

    The favoured items' share of the weight is drawn, not their factor, and ranks are shares of the catalogue, so that
    one setting means the same at every scale.
    """
    region = search["region"]
    draws = iter(
        uniforms(search["seed"], Stream.PROTOCOL, np.full(len(region) + 1, number), np.arange(len(region) + 1))
    )
    values: Case = {}
    for name, spec in region.items():
        u = float(next(draws))
        if isinstance(spec[0], str):
            values[name] = spec[min(int(u * len(spec)), len(spec) - 1)]
        else:
            low, high = spec[:2]
            values[name] = low * (high / low) ** u if spec[-1] == "log" else low + (high - low) * u
            values[name] = round(values[name]) if spec[-1] == "whole" else float(f"{values[name]:.4g}")
    return values | {"number": number, "scale": scale}


def settings_of(values: Case, search: dict[str, Any], organic: float) -> Case:
    """The world's settings of a drawn case, with so many items added alone per user."""
    users, items = (n // values["scale"] for n in (search["users"], search["items"]))
    given = {name: values[name] for name in search["direct"]}
    given |= {
        "n_users": users, "n_items": items, "n_never": items // 7, "organic_items": organic,
        "never_from": max(round(values["never_rank"] * items), 2 * values["n_focus"]), "focus_boost": 1.0,
    }  # fmt: skip
    world = world_of("viadeo", 0, [f"{name}={value:g}" for name, value in given.items()])
    weights = world.deployed_weights
    focus = np.isin(np.argsort(np.argsort(-world.log_popularity)), 2 * np.arange(values["n_focus"]) + 1)
    share = values["focus_share"]
    given["focus_boost"] = share / (1 - share) * float(weights[~focus].sum() / weights[focus].sum())
    return {
        "set": [f"{name}={value:.9g}" for name, value in given.items()],
        "recommender": values["recommender"], "sharpness": values["sharpness"] if values["recommender"] else 0.0,
    }  # fmt: skip


def tried(search: dict[str, Any], number: int, p: list[int]) -> dict[str, Any]:
    """One drawn setting at the search's scale: items added alone such that profiles have the published mean size."""
    values, organic = drawn_case(search, number, search["scale"]), search["organic"]
    for _ in range(2):
        case = settings_of(values, search, organic)
        world = world_of("viadeo", 0, case["set"])
        held = lived(world, 0, case).holders().sum() / world.params.n_users
        organic += (search["mean_items"] - float(held)) / (1 - np.exp(-world.params.n_days / world.params.fading))
        if organic < search["least_organic"]:
            return {"values": values, "refused": "no room for items added alone"}
    case = settings_of(values, search, float(organic))
    found = measured("viadeo", 0, case, p)
    return {"values": values, "organic": float(organic), "changes": changes([found]), "mean_items": found["mean_items"]}

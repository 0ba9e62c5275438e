"""The study that the paper could not make: leave-one-out by every scheme, against the truth."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from platforms import (
    NAMES,
    Interval,
    K,
    by_kind,
    campaigns_of,
    constant_lists,
    interval,
    percent,
    plain,
    scores_by_scheme,
    tau,
    world_of,
)

from recsim_mnar.campaigns.platform import platform_log, true_quality
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.policies import registry

SHOWN = ("g1", "cosine-cf", "naive-cf")


def platform_of(settings: dict[str, Any], kinds: dict[str, Any], kind: str, number: int) -> dict[str, Any]:
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
    return {"rows": rows}


jobs = functools.partial(by_kind, platform_of)


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """By kind of campaign and scheme: tau at every time, and on the last day the cost of the choice and the bias."""
    out: dict[str, Any] = {}
    for kind in settings["kinds"]:
        ones = [one for key, one in found.items() if key.rsplit("-", 1)[0] == kind]
        last = [one["rows"][-1] for one in ones]
        taus = {s: np.array([tau(r["scores"]["with"][s], r["truth"]) for r in last]) for s in last[0]["scores"]["with"]}
        out[kind] = {
            "platforms": len(ones),
            "schemes": {scheme: _judged(last, scheme) for scheme in taus},
            # Differences within platforms: what platforms have in common cancels.
            "gain": {scheme: interval(values - taus["unweighted"]) for scheme, values in taus.items()},
            "tau": {
                str(t): {s: _taus([one["rows"][j] for one in ones], s) for s in settings["schemes"]}
                for j, t in enumerate(settings["times"])
            },
            "truth": {name: interval(row["truth"][name] for row in last) for name in last[0]["truth"]},
        }  # fmt: skip
    return out


def _taus(rows: list[dict[str, Any]], scheme: str) -> Interval:
    return interval((tau(row["scores"]["with"][scheme], row["truth"]) for row in rows), -1.0, 1.0)


def _judged(rows: list[dict[str, Any]], scheme: str) -> dict[str, Any]:
    costs, best, bias = [], [], []
    relative: dict[str, list[float]] = {name: [] for name in NAMES}
    for row in rows:
        truth, scores = row["truth"], row["scores"]["with"][scheme]
        pick, top = max(scores, key=lambda n: scores[n]), max(truth, key=lambda n: truth[n])
        best.append(float(pick == top))
        costs.append(1 - truth[pick] / truth[top])
        clean = row["scores"]["without"].get(scheme)
        if clean is not None:
            bias.append(float(np.mean([abs(scores[n] - clean[n]) for n in scores])))
            for name, values in relative.items():
                values.append(scores[name] / clean[name] - 1)
    return {
        "tau": _taus(rows, scheme),
        "cost": interval(costs, 0.0, 1.0),
        "picks_best": interval(best, 0.0, 1.0),
        "bias": interval(bias, 0.0) if bias else None,
        "relative_bias": {name: interval(values) for name, values in relative.items()} if bias else None,
    }


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The tables of the study."""
    lines = []
    for kind, row in found.items():
        lines += [
            f"## Protocols against the truth, campaigns: {kind}", "",
            f"Preset {settings['preset']} {' '.join(settings['set'])}, {row['platforms']} platforms, day "
            f"{settings['times'][-1]}; truth: expected share of accepted recommendations. Bias: mean over "
            "algorithms of the distance from the same score on the same platform without any campaign; last "
            "columns: that distance, relative and with its sign.", "",
            "| protocol | Kendall's tau | gain over unweighted | picks the best | cost of choice "
            "| bias | g1 | cosine CF | naive CF |", "|---" * 9 + "|",
        ]  # fmt: skip
        for scheme, one in sorted(row["schemes"].items(), key=lambda item: -item[1]["tau"][0]):
            relative = one["relative_bias"]
            ours = " | ".join("-" if relative is None else percent(relative[name]) for name in SHOWN)
            lines.append(
                f"| {scheme} | {plain(one['tau'])} | {plain(row['gain'][scheme], '+.3f')} "
                f"| {one['picks_best'][0]:.0%} | {plain(one['cost'], '.1%')} | {plain(one['bias'], '.3f')} | {ours} |"
            )
        times = list(row["tau"])
        lines += ["", "Kendall's tau over time:", "", "| protocol | " + " | ".join(f"day {t}" for t in times) + " |"]
        lines.append("|---" * (len(times) + 1) + "|")
        for scheme in settings["schemes"]:
            lines.append(f"| {scheme} | " + " | ".join(plain(row["tau"][t][scheme]) for t in times) + " |")
        ranked = sorted(row["truth"].items(), key=lambda item: -item[1][0])
        text = ", ".join(f"{name} {plain(value, '.3f')}" for name, value in ranked)
        lines += ["", f"True quality on day {settings['times'][-1]}: {text}.", ""]
    return lines

"""The paper's future work, the structural bias: remaining where the log says what campaigns caused, and where not.

Cases of settings.toml: own rates smooth and nearly all additions after a campaign caused by it; own rates smooth and as
many own as caused ones; and the assumption broken, own rates that move with the campaign. In each the last day's scores
by scheme against the same platform without campaigns, and estimated against true numbers of caused additions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from platforms import CFS, K, campaigns_of, constant_lists, interval, percent, plain, scores_by_scheme, tau, world_of
from schemes import caused_additions

from recsim_mnar.campaigns.platform import platform_log, true_quality
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.policies import registry

SCHEMES = ("unweighted", "weights", "structure", "alone", "alone+learn=1")


def jobs(settings: dict[str, Any], kinds: dict[str, Any]) -> dict[str, Callable[[], dict[str, Any]]]:
    """One platform per case, kind of campaign and number."""
    return {
        f"{case}-{kind}-{number:03d}": functools.partial(platform_of, settings, spec, kinds[kind], number)
        for case, spec in settings["cases"].items()
        for kind in settings["kinds"]
        for number in range(settings["platforms"])
    }


def platform_of(settings: dict[str, Any], case: dict[str, Any], kind: dict[str, Any], number: int) -> dict[str, Any]:
    """Scores by scheme with and without campaigns, true quality, and what campaigns caused, on one platform."""
    world, seed = world_of(settings["preset"], number, [*settings["set"], *case["set"]]), 1000 + number
    campaigns, days, last = campaigns_of(kind), world.campaign_days(), world.params.n_days
    platform = campaigns.platform(world, seed)
    log, without = platform_log(platform), platform_log(campaigns.platform(world, seed, days=[]))
    reference, now = (Profiles.of(log, day, world.n_items) for day in (world.params.reference_day, last))
    agents = constant_lists(log, reference) | {name: registry.learner(name) for name in settings["agents"]}
    estimated = f"alone-estimated+days={'/'.join(map(str, days))}+window={case['window']}"
    named = {scheme: scheme for scheme in SCHEMES} | {
        "alone-estimated": estimated, "alone-estimated+learn=1": estimated + "+learn=1"
    }  # fmt: skip
    scores = scores_by_scheme(log, last, reference, list(named.values()), agents, K)
    clean = scores_by_scheme(without, last, reference, SCHEMES, agents, K)
    return {
        "truth": {name: true_quality(platform, learner, k=K) for name, learner in agents.items()},
        "scores": {
            name: {"with": scores[spec], "without": clean[name.replace("-estimated", "")]}
            for name, spec in named.items()
        },
        "counts": _counts(world, now, case["window"]),
    }  # fmt: skip


def _counts(world: Any, now: Profiles, window: int) -> dict[str, float]:
    """Estimated over true additions of all campaigns, and items whose number is within 1.96 standard errors."""
    days = world.campaign_days()
    found = caused_additions(now, days, window=window)
    true = np.stack([np.bincount(now.items[now.causes == c], minlength=now.n_items) for c in range(len(days))])
    off = np.abs(found.expected - true) / np.maximum(found.deviation, 1e-12)
    after = np.zeros(now.n_pairs, bool)
    for day in days:
        after |= (now.added >= day) & (now.added < day + window)
    out = {
        "estimated / true": float(found.expected.sum() / true.sum()), "within": float((off < 1.96).mean()),
        "caused share of the window": float((now.causes[after] >= 0).mean()),
    }  # fmt: skip
    moved = world.promoted_items  # in the time of the first campaign
    return out | (
        {"of moved items": float(found.expected[0, moved].sum() / true[0, moved].sum())} if len(moved) else {}
    )


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """By case and kind of campaign, what its platforms show together."""
    out = {}
    for case in settings["cases"]:
        for kind in settings["kinds"]:
            out[f"{case}/{kind}"] = _together([one for key, one in found.items() if key.startswith(f"{case}-{kind}-")])
    return out


def _together(ones: list[dict[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {"schemes": {}, "platforms": len(ones)}
    taus, biases = ({scheme: [of(one, scheme) for one in ones] for scheme in ones[0]["scores"]} for of in (_tau, _bias))
    compared = ("tau", taus, "unweighted"), ("tau", taus, "weights"), ("bias", biases, "weights")
    for scheme in ones[0]["scores"]:
        both = [(one["scores"][scheme]["with"], one["scores"][scheme]["without"]) for one in ones]
        out["schemes"][scheme] = {
            "tau": interval(taus[scheme], -1.0, 1.0),
            "bias": interval(biases[scheme], 0.0),
            **{name: interval(w[name] / o[name] - 1 for w, o in both) for name in CFS},
            # Differences within platforms: what platforms have in common cancels.
            **{
                f"{name} less {other}": [round(v, 5) for v in interval(np.subtract(values[scheme], values[other]))]
                for name, values, other in compared
                if scheme not in ("unweighted", other)
            },
        }
    out["counts"] = {name: interval((one["counts"][name] for one in ones), 0.0) for name in ones[0]["counts"]}
    return out


def _tau(one: dict[str, Any], scheme: str) -> float:
    return tau(one["scores"][scheme]["with"], one["truth"])


def _bias(one: dict[str, Any], scheme: str) -> float:
    """Mean over algorithms of the distance from the score without campaigns."""
    both = one["scores"][scheme]
    return float(np.mean([abs(both["with"][name] - both["without"][name]) for name in both["with"]]))


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The tables."""
    lines = [
        "## The structural bias (the paper's future work)", "",
        "On the last day; bias: mean over algorithms of the distance from the same score on the same platform without "
        "campaigns; differences are within platforms. `alone`: the log says what campaigns caused (the oracle); "
        "`alone-estimated`: it does not. `+learn=1`: recommenders learn from what users added alone, too.", "",
    ]  # fmt: skip
    for key, row in found.items():
        case, kind = key.split("/")
        counts = row["counts"]
        moved = counts.get("of moved items")
        lines += [
            f"### {settings['cases'][case]['words']}; campaigns: {kind}", "",
            f"{row['platforms']} platforms; caused share of the additions in the window "
            f"{plain(counts['caused share of the window'])}; estimated over true number of caused additions "
            f"{plain(counts['estimated / true'], '.3f')}; items whose true number is within 1.96 standard errors "
            f"{plain(counts['within'])}"
            + (f"; of the promoted items alone, estimated over true {plain(moved)}." if moved else "."),
            "",
            "| scheme | Kendall's tau | less unweighted | less item weights | bias | less item weights | cosine CF "
            "| naive CF |", "|---" * 8 + "|",
        ]  # fmt: skip
        for scheme, one in row["schemes"].items():
            less = [plain(one.get(f"tau less {other}"), "+.2f") for other in SCHEMES[:2]]
            bias = plain(one["bias"], ".4f"), plain(one.get("bias less weights"), "+.4f")
            cells = [plain(one["tau"]), *less, *bias, *(percent(one[name]) for name in CFS)]
            lines.append(f"| {scheme} | {' | '.join(cells)} |")
        lines.append("")
    return lines

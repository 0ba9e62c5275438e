"""The study over catalogues in numbers, from its records alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from recsim_mnar.studies import Study
from recsim_mnar.studies.paired import mean
from recsim_mnar.worlds import make_world

REFITTED = "loocv"
"""Leave-one-out refitted in each fold; the settings' first protocol is leave-one-out as the paper's notebook has it."""

SUPPORTED = 0.5
"""Mean weight from which an agent counts as supported by the log; 1 is full support."""

RANGES: dict[str, tuple[float, float | None]] = {"hr": (0.0, 1.0), "ctr": (0.0, 1.0), "clipped_ips": (0.0, None)}
"""What a metric's values can be; metrics are named by what stands before the "@"."""


def over_catalogues(
    values: Iterable[float], least: float | None = None, largest: float | None = None
) -> dict[str, float]:
    """Mean, its 95 % interval, and the 95 % range over catalogues, within what is possible.

    The range is that of the beta law (with ``least`` alone: the gamma law) of the same mean and variance, of the normal
    law where nothing bounds the values.
    """
    x = np.array(list(values), float)
    found = mean(x, least=least)
    ends = (-math.inf, math.inf) if len(x) < 2 else law_range(found["mean"], float(x.std(ddof=1)), least, largest)
    low, high = (-math.inf, math.inf) if len(x) < 2 else (found["low"], found["high"])
    return {"mean": found["mean"], "low": low, "high": high, "range_low": ends[0], "range_high": ends[1]}


def law_range(centre: float, sd: float, least: float | None, largest: float | None) -> tuple[float, float]:
    """Quantiles .025 and .975 of the law of a mean and standard deviation that lives between ``least`` and
    ``largest``."""
    above = centre - least if least is not None else 0.0
    if least is None or sd == 0.0 or above <= 0.0:
        return centre - 1.96 * sd, centre + 1.96 * sd
    if largest is None:
        law = stats.gamma(above**2 / sd**2, scale=sd**2 / above)
        return least + float(law.ppf(0.025)), least + float(law.ppf(0.975))
    width = largest - least
    share_above = above / width
    trials = max(share_above * (1.0 - share_above) / (sd / width) ** 2 - 1.0, 1e-3)
    law = stats.beta(share_above * trials, (1.0 - share_above) * trials)
    return least + width * float(law.ppf(0.025)), least + width * float(law.ppf(0.975))


def share(hits: Sequence[bool], method: str = "wilson") -> dict[str, float]:
    """A proportion of independent cases and its interval, Wilson's or the "exact" one."""
    interval = stats.binomtest(int(sum(hits)), len(hits)).proportion_ci(method=method)
    return {"share": float(np.mean(hits)), "low": float(interval.low), "high": float(interval.high), "n": len(hits)}


LIKE_WITH_LIKE = (("clipped IPS", "leave-one-out"), ("upper bounds", "leave-one-out, upper bounds"))
"""Rankings that are compared: values with values, upper bounds with upper bounds."""


def less(ours: str, theirs: str) -> str:
    """Name of the difference of two rankings' taus."""
    return f"tau of {ours} less that of {theirs}"


Cells = dict[tuple[str, str, str], dict[str, Any]]


def paper_interval(clipped: dict[str, Any], ips: dict[str, Any]) -> list[float]:
    """The interval of the authors' notebook (cell 7): Student's t at .99875, rows taken as independent.

    Args:
        clipped: the estimate's record.
        ips: the same agent's record of IPS: n is Kish's, of the weights before clipping, cut to a whole number.
    """
    n = max(int(ips["details"]["kish"]), 2)
    half = stats.t.ppf(0.99875, n - 1) * clipped["details"]["row_sd"] / math.sqrt(n)
    return [clipped["value"] - half, clipped["value"] + half]


def analyse(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """Figures, judgements and observations over catalogues.

    Args:
        study: run by ``run.py``.
        settings: ``protocols``, and ``sets``, the agents of each set of methods, the first as the paper describes them.
    """
    catalogues = [{(r["agent"], r["protocol"], r["metric"]): r for r in one["records"]} for one in study.results]
    agents = list(dict.fromkeys(agent for agent, _, _ in catalogues[0]))
    by_paper = settings["protocols"][0]
    counts = [events(one) for one in study.results]
    return {
        "catalogues": len(catalogues),
        "figures": {agent: figures(catalogues, agent, by_paper) for agent in agents},
        "refitted": {agent: refitted(catalogues, agent, by_paper) for agent in agents},
        "coverage": {agent: coverage(catalogues, agent) for agent in agents},
        "protocols": {row["protocol"]: row for row in study.summary()},
        "counts": {kind: over_catalogues(c[kind] for c in counts) for kind in ("organic", "bandit")},
        "observations": {name: observations(catalogues, own, by_paper) for name, own in settings["sets"].items()},
    }


def figures(catalogues: list[Cells], agent: str, by_paper: str) -> dict[str, dict[str, float]]:
    """One agent's figures: HR@1 by both definitions, clipped IPS, the A/B CTR and the true one."""
    keys = {
        "hr@1": (by_paper, "hr@1"),
        "hr@1 refitted": (REFITTED, "hr@1"),
        "clipped_ips": ("off_policy", "clipped_ips"),
        "ctr": ("ab_test", "ctr"),
        "true ctr": ("truth", "ctr"),
    }
    return {
        name: over_catalogues((cells[agent, *key]["value"] for cells in catalogues), *RANGES[key[1].split("@")[0]])
        for name, key in keys.items()
    }


def refitted(catalogues: list[Cells], agent: str, by_paper: str) -> dict[str, Any]:
    """What refitting on the judged users changes of one agent's HR@1, as a share: of means, and without one-view users.

    Users with one view are misses in the paper's definition and left out in the refitted one. The judged logs differ
    too: under the uniform policy there, under User-popularity here.
    """
    theirs, ours = ([cells[agent, name, "hr@1"] for cells in catalogues] for name in (by_paper, REFITTED))
    means = [float(np.mean([r["value"] for r in rows])) for rows in (theirs, ours)]
    two_views = [r["value"] * r["n"] / (r["n"] - r["details"]["users_missed"]) for r in theirs]
    return {
        "in all": means[1] / max(means[0], 1e-12) - 1.0,
        "one-view users left out of both": ratio_of_means([r["value"] for r in ours], two_views),
    }


def ratio_of_means(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """The ratio of two means over the same catalogues less 1, with its 95 % interval by the delta method."""
    x, y = np.array(above, float), np.array(below, float)
    centre = max(float(y.mean()), 1e-12)
    ratio = float(x.mean()) / centre
    half = math.inf
    if len(x) > 1:
        half = float(stats.t.ppf(0.975, len(x) - 1) * (x - ratio * y).std(ddof=1) / math.sqrt(len(x)) / centre)
    return {"mean": ratio - 1.0, "low": ratio - 1.0 - half, "high": ratio - 1.0 + half}


def coverage(catalogues: list[Cells], agent: str) -> dict[str, Any]:
    """How often one agent's intervals of clipped IPS hold its A/B CTR, their width over it, and the mean weight."""
    found: dict[str, Any] = {}
    for name, of in (("paper", _theirs), ("ours", _ours)):
        rows = [(*of(cells, agent), cells[agent, "ab_test", "ctr"]["value"]) for cells in catalogues]
        found[name] = share([low <= ctr <= high for low, high, ctr in rows])
        found[f"{name}, the true CTR"] = share(
            [
                low <= cells[agent, "truth", "ctr"]["value"] <= high
                for (low, high, _), cells in zip(rows, catalogues, strict=True)
            ]
        )
        found[f"{name} width"] = over_catalogues([(high - low) / ctr for low, high, ctr in rows], 0.0)
    weights = [cells[agent, "off_policy", "clipped_ips"]["details"]["mean_weight"] for cells in catalogues]
    return {**found, "mean_weight": over_catalogues(weights, 0.0)}


def _theirs(cells: Cells, agent: str) -> list[float]:
    return paper_interval(cells[agent, "off_policy", "clipped_ips"], cells[agent, "off_policy", "ips"])


def _ours(cells: Cells, agent: str) -> list[float]:
    """Limits of the agent's own value: they allow for what clipping may hide and the log does not show."""
    details = cells[agent, "off_policy", "clipped_ips"]["details"]
    return [details["target_low"], details["target_high"]]


def observations(catalogues: list[Cells], agents: list[str], by_paper: str) -> dict[str, Any]:
    """The paper's three observations of one set of methods, each as something that a catalogue can contradict."""
    neighbours = next(agent for agent in agents if agent.startswith("item-knn"))
    found: dict[str, list[Any]] = {}
    for cells in catalogues:
        ctr = {a: cells[a, "ab_test", "ctr"]["value"] for a in agents}
        true = {a: cells[a, "truth", "ctr"]["value"] for a in agents}
        clipped = {a: cells[a, "off_policy", "clipped_ips"] for a in agents}
        rankings = {
            "leave-one-out": {a: cells[a, by_paper, "hr@1"]["value"] for a in agents},
            "leave-one-out, upper bounds": {a: cells[a, by_paper, "hr@1"]["high"] for a in agents},
            "leave-one-out, refitted": {a: cells[a, REFITTED, "hr@1"]["value"] for a in agents},
            "clipped IPS": {a: r["value"] for a, r in clipped.items()},
            "upper bounds": {a: _theirs(cells, a)[1] for a in agents},
            "upper bounds, ours": {a: r["details"]["sampling_high"] for a, r in clipped.items()},
        }
        for name, values in rankings.items():
            found.setdefault(f"same ranking {name}", []).append(ranking(values) == ranking(ctr))
            found.setdefault(f"tau {name}", []).append(tau(values, ctr))
        found.setdefault("true ranking upper bounds", []).append(ranking(rankings["upper bounds"]) == ranking(true))
        found.setdefault("true ranking A/B test", []).append(ranking(ctr) == ranking(true))
        found.setdefault("tau truth", []).append(tau(true, ctr))
        for name in ("leave-one-out", "leave-one-out, refitted"):
            hits = rankings[name]
            chance = max(hits["random"], 1e-12)  # where ties go to the lowest index Random can miss everything
            found.setdefault(f"ratio {name}", []).append(hits[neighbours] / chance * ctr["random"] / ctr[neighbours])
        rates = [rankings["leave-one-out"][a] / ctr[a] for a in agents]
        found.setdefault("value least", []).append(min(rates))
        found.setdefault("value largest", []).append(max(rates))
        found.setdefault("random missed", []).append(bool(clipped["random"]["value"] < 0.5 * ctr["random"]))
        for name, of in (("paper", _theirs), ("ours", _ours)):
            ends = {a: of(cells, a) for a in agents}
            for what, value in (("holds", ctr), ("holds the true CTR", true)):
                held = [ends[a][0] <= value[a] <= ends[a][1] for a in agents]
                found.setdefault(f"{what} {name}", []).append(float(np.mean(held)))
    of_truth = zip(found["tau truth"], found["tau leave-one-out"], strict=True)
    differences = {
        less(ours, theirs): [a - b for a, b in zip(found[f"tau {ours}"], found[f"tau {theirs}"], strict=True)]
        for ours, theirs in LIKE_WITH_LIKE
    }
    limits = {"tau": (-1.0, 1.0), "ratio": (0.0, None), "holds": (0.0, 1.0), "value": (0.0, None)}
    spread = np.quantile(found.pop("ratio leave-one-out"), [0.5, 0.0, 1.0])
    return {
        "agents": agents,
        "ratio leave-one-out": {"median": float(spread[0]), "least": float(spread[1]), "largest": float(spread[2])},
        **{
            name: share(values) if isinstance(values[0], bool) else over_catalogues(values, *limits[name.split()[0]])
            for name, values in found.items()
        },
        "tau of truth less that of leave-one-out": over_catalogues(truth - loo for truth, loo in of_truth),
        **{name: over_catalogues(values) for name, values in differences.items()},
    }


def tau(values: dict[str, float], others: dict[str, float]) -> float:
    """Kendall's tau of two rankings of the same agents, in the same order."""
    return float(stats.kendalltau(list(values.values()), list(others.values())).statistic)


def ranking(values: dict[str, float]) -> list[str]:
    """Agents by descending value."""
    return sorted(values, key=lambda agent: -values[agent])


def events(result: dict[str, Any]) -> dict[str, float]:
    """Events a user of a catalogue's test log over the analytic expectation."""
    log, config = result["log"], result["run_config"]
    params = config["world"]["params"]
    world: Any = make_world("sessions", config["preset"], params)
    organic, bandit = world.expected_events(log["rewards"] / log["bandit"])
    n_users = config["settings"]["test_users"]
    return {"organic": log["organic"] / n_users / organic, "bandit": log["bandit"] / n_users / bandit}

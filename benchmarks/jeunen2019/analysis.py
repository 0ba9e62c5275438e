"""What the catalogues say together, beside the published figures: read from a study's records alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from recsim_mnar.studies import Study
from recsim_mnar.studies.result import mean
from recsim_mnar.worlds import make_world

HERE = Path(__file__).parent


RANGES: dict[str, tuple[float, float | None]] = {
    **dict.fromkeys(("hr", "mrr", "ctr", "ctr_exact", "value_on_log", "snips"), (0.0, 1.0)),
    **dict.fromkeys(("ips", "clipped_ips"), (0.0, None)),
}
"""What a metric's values can be; metrics are named by what stands before the "@"."""


def over_catalogues(
    values: Iterable[float], least: float | None = None, largest: float | None = None
) -> dict[str, float]:
    """Mean, its 95 % interval, and the 95 % range over catalogues, within what is possible.

    The range is that of the beta law (with ``least`` alone: the gamma law) of the same mean and variance, of the normal
    law where nothing bounds the values.
    """
    x = np.array(list(values), float)
    found = mean(x, least=least, largest=largest)
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


def share(hits: Sequence[bool]) -> dict[str, float]:
    """A proportion and its Wilson interval."""
    interval = stats.binomtest(int(sum(hits)), len(hits)).proportion_ci(method="wilson")
    return {"share": float(np.mean(hits)), "low": float(interval.low), "high": float(interval.high), "n": len(hits)}


def analyse(study: Study, settings: dict[str, Any]) -> dict[str, Any]:
    """Figures, judgements and claims over catalogues."""
    found = study.results
    agents = list(settings["agents"])
    tables: dict[tuple[str, str, str], list[float]] = {}
    for one in found:
        for r in one["records"]:
            tables.setdefault((r["agent"], r["protocol"], r["metric"]), []).append(r["value"])
            exact = r["details"].get("value_on_log")
            if exact is not None and r["metric"] == "clipped_ips":
                tables.setdefault((r["agent"], "truth", "value_on_log"), []).append(exact)
    counts = [events(one) for one in found]
    return {
        "catalogues": len(found),
        "figures": {
            " ".join(key): over_catalogues(values, *RANGES.get(key[2].split("@")[0], (None, None)))
            for key, values in tables.items()
        },
        "protocols": {row["protocol"]: row for row in study.summary()},
        "counts": {kind: over_catalogues(c[kind] for c in counts) for kind in ("organic", "bandit")},
        "claims": claims(found, agents),
        "claims_notebook": claims(found, settings["notebook_agents"]),
    }


def events(result: dict[str, Any]) -> dict[str, float]:
    """Events a user of a catalogue's test log over the analytic expectation."""
    log, config = result["log"], result["run_config"]
    params = config["world"]["params"]
    world: Any = make_world("sessions", config["preset"], params)
    organic, bandit = world.expected_events(log["rewards"] / log["bandit"])
    n_users = config["settings"]["test_users"]
    return {"organic": log["organic"] / n_users / organic, "bandit": log["bandit"] / n_users / bandit}


def claims(found: list[dict[str, Any]], agents: list[str]) -> dict[str, Any]:
    """The paper's three observations, each as something that a catalogue can contradict."""
    neighbours = next(agent for agent in agents if agent.startswith("item-knn"))
    by_agent = [{(r["agent"], r["protocol"], r["metric"]): r for r in one["records"]} for one in found]

    def ranking(cells: dict[Any, Any], protocol: str, metric: str, field: str = "value") -> list[str]:
        return sorted(agents, key=lambda agent: -cells[agent, protocol, metric][field])

    other_order, ratio, random_missed, covered = [], [], [], []
    bounds: dict[str, tuple[list[bool], list[float]]] = {"the paper's interval": ([], []), "ours": ([], [])}
    covered_paper = []
    for cells in by_agent:
        loo, ab = ranking(cells, "loocv", "hr@1"), ranking(cells, "ab_test", "ctr")
        other_order.append(loo != ab)
        hr = [cells[a, "loocv", "hr@1"]["value"] for a in (neighbours, "random")]
        ctr = [cells[a, "ab_test", "ctr"]["value"] for a in (neighbours, "random")]
        ratio.append((hr[0] / max(hr[1], 1e-6)) / (ctr[0] / ctr[1]))
        online = [cells[a, "ab_test", "ctr"]["value"] for a in agents]
        estimates = [cells[a, "off_policy", "clipped_ips"] for a in agents]
        theirs = [paper_interval(r) for r in estimates]
        for name, upper in (
            ("the paper's interval", [high for _, high in theirs]),
            ("ours", [r["details"]["sampling_high"] for r in estimates]),
        ):
            order = [agents[i] for i in np.argsort(-np.array(upper), kind="stable")]
            bounds[name][0].append(order == ab)
            bounds[name][1].append(float(stats.kendalltau(upper, online).statistic))
        covered += [r["low"] <= value <= r["high"] for r, value in zip(estimates, online, strict=True)]
        covered_paper += [low <= value <= high for (low, high), value in zip(theirs, online, strict=True)]
        estimate = cells["random", "off_policy", "clipped_ips"]["value"]
        random_missed.append(estimate < 0.5 * cells["random", "ab_test", "ctr"]["value"])
    upper_claims: dict[str, Any] = {}
    for name, (same, tau) in bounds.items():
        upper_claims[f"2 ranking by the upper bound of clipped IPS ({name}) is the A/B ranking"] = share(same)
        upper_claims[f"2 Kendall's tau of that ranking with the A/B ranking ({name})"] = over_catalogues(tau, -1.0, 1.0)
    return {
        "1 leave-one-out ranks otherwise than the A/B test": share(other_order),
        "1 ratio item-knn to random, leave-one-out over A/B test": over_catalogues(ratio),
        **upper_claims,
        "2 the paper's interval of clipped IPS holds the A/B CTR": share(covered_paper),
        "2 ours, what clipping may hide included, holds it": share(covered),
        "3 clipped IPS of Random is less than half its A/B CTR": share(random_missed),
    }


def paper_interval(record: dict[str, Any]) -> tuple[float, float]:
    """As the authors' notebook has it: Student's t at .99875 on Kish's effective n, rows taken as independent."""
    kish = max(record["details"]["kish"], 2.0)
    half = stats.t.ppf(0.99875, kish - 1) * record["details"]["row_sd"] / math.sqrt(kish)
    return record["value"] - half, record["value"] + half


def markdown(analysis: dict[str, Any], published: dict[str, Any], settings: dict[str, Any]) -> str:
    """The analysis for a person."""
    phantom = published["phantom_row"]
    lines = [
        "# Jeunen, Rohde & Vasile 2019, over catalogues",
        "",
        f"Means over {analysis['catalogues']} catalogues [95 % range over catalogues]; published figures from one,",
        f"CTRs multiplied by {phantom} for RecoGym's phantom row. Made by `python benchmarks/jeunen2019/run.py`.",
        "",
        "| agent | HR@1 | published | clipped IPS | published | A/B CTR | published | difference | true CTR |",
        "|---|---|---|---|---|---|---|---|---|",
    ]

    def cell(agent: str, protocol: str, metric: str) -> str:
        got = analysis["figures"].get(f"{agent} {protocol} {metric}")
        return f"{got['mean']:.5f} [{got['range_low']:.5f}, {got['range_high']:.5f}]" if got else "-"

    for agent in [*settings["agents"], *settings["references"]]:
        theirs = published["agents"].get(agent, {})
        ctr = theirs.get("ctr")
        got = analysis["figures"][f"{agent} ab_test ctr"]["mean"]
        lines.append(
            f"| {agent} | {cell(agent, 'loocv', 'hr@1')} | {_shown(theirs.get('hr@1'))} "
            f"| {cell(agent, 'off_policy', 'clipped_ips')} | {_shown(theirs.get('clipped_ips'))} "
            f"| {cell(agent, 'ab_test', 'ctr')} | {_shown(ctr and ctr * phantom)} "
            f"| {f'{got / (ctr * phantom) - 1:+.1%}' if ctr else '-'} | {cell(agent, 'truth', 'ctr')} |"
        )
    lines += ["", "## Which protocol picks the best agent, and what does its choice cost?", ""]
    lines += [
        "| protocol | picks the best | picks one that cannot be told from it | cost, share of the best CTR "
        "| Kendall's tau | by upper bound | its tau |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for protocol, row in analysis["protocols"].items():
        best, alike, upper = row["best"], row["indistinguishable"], row["best_by_upper_bound"]
        lines.append(
            f"| {protocol} | {best['share']:.0%} [{best['low']:.0%}, {best['high']:.0%}] "
            f"| {alike['share']:.0%} [{alike['low']:.0%}, {alike['high']:.0%}] "
            f"| {_interval(row['cost_share'], '.2%')} | {_interval(row['kendall_tau'], '.2f')} "
            f"| {upper['share']:.0%} [{upper['low']:.0%}, {upper['high']:.0%}] "
            f"| {_interval(row['tau_by_upper_bound'], '.2f')} |"
        )
    lines += [
        "",
        "## The paper's three observations",
        "",
        "| claim | methods as the paper describes them | as its notebook has them |",
    ]
    lines += ["|---|---|---|"]
    for claim, row in analysis["claims"].items():
        lines.append(f"| {claim} | {_claim(row)} | {_claim(analysis['claims_notebook'][claim])} |")
    lines += ["", "## Event counts over the analytic expectation", ""]
    lines += [f"- {kind}: {_interval(row, '.4f')}" for kind, row in analysis["counts"].items()]
    lines += ["", (HERE / "differences.md").read_text().rstrip(), ""]
    return "\n".join(lines)


def _claim(row: dict[str, float]) -> str:
    if "share" in row:
        return f"{row['share']:.0%} [{row['low']:.0%}, {row['high']:.0%}] of {row['n']}"
    return _interval(row, ".3g")


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"


def _interval(row: dict[str, float], form: str) -> str:
    return f"{row['mean']:{form}} [{row['low']:{form}}, {row['high']:{form}}]"

"""Tables of the study, from its records alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from _study import table

from recsim_mnar.studies import Study
from recsim_mnar.studies.result import mean

LEVEL = 0.95


def runs_of(study: Study) -> dict[str, list[dict[str, Any]]]:
    """By preset, a catalogue an entry: judgements, and each agent's value by every metric."""
    found: dict[str, list[dict[str, Any]]] = {}
    for result in study.results:
        judged = [
            {
                "metric": j["title"],
                "pick": j["pick"],
                "best": j["best"],
                "tau": j["kendall_tau"],
                "cost": j["cost_share"],
                "outcome": j["outcome"],
            }
            for j in result["judgements"]
        ]
        values: dict[str, dict[str, float]] = {}
        for r in result["records"]:
            values.setdefault(r["agent"], {})[f"{r['protocol']} {r['metric']}"] = r["value"]
        references = {r["agent"] for r in result["records"] if r["details"].get("reference")}
        run = {"judgements": judged, "values": values, "agents": [name for name in values if name not in references]}
        found.setdefault(result["run_config"]["preset"], []).append(run)
    return found


def interval(values: list[float], least: float, largest: float | None = None) -> str:
    """Mean and its interval over catalogues, within what is possible."""
    found = mean(values, LEVEL, least=least, largest=largest)
    return f"{found['mean']:.2f} [{found['low']:.2f}, {found['high']:.2f}]"


def tables(found: dict[str, list[dict]]) -> str:
    """Markdown: what each metric picks, and the agents' mean true uplift."""
    picked = [
        choice(preset, [run["judgements"][k] for run in runs])
        for preset, runs in found.items()
        for k in range(len(runs[0]["judgements"]))
    ]
    agents = list(next(iter(found.values()))[0]["values"])
    uplift = [
        [agent, *(f"{np.mean([run['values'][agent]['truth cp@10'] for run in runs]):.4f}" for runs in found.values())]
        for agent in agents
    ]
    errors = [
        [
            metric,
            *(f"{np.mean([error(v, metric) for run in runs for v in agents_of(run)]):+.4f}" for runs in found.values()),
        ]
        for metric in ("uplift uplift@10", "uplift uplift_snips@10", "uplift uplift_ips@10", "ab_test uplift@10")
    ]
    head = [
        "preset", "metric", "picks the best agent", "what its choice costs, share of the best uplift",
        "Kendall's tau with the truth", "picks",
    ]  # fmt: skip
    return "\n".join([
        *table(head, picked),
        "",
        "Mean true uplift of the lists, purchases caused an item and period (CP@10):",
        "",
        *table(["", *found], uplift),
        "",
        "Mean of the metric less true uplift, over agents and catalogues:",
        "",
        *table(["", *found], errors),
    ])  # fmt: skip


def choice(preset: str, own: list[dict[str, Any]]) -> list[str]:
    """What one metric picks over the catalogues of a preset."""
    picks = [j["pick"] for j in own]
    counts = ", ".join(f"{p} {picks.count(p)}" for p in sorted(set(picks), key=lambda p: (-picks.count(p), p)))
    right = sum(j["pick"] == j["best"] for j in own)
    cost, tau = interval([j["cost"] for j in own], 0.0), interval([j["tau"] for j in own], -1.0, 1.0)
    return [preset, own[0]["metric"], f"{right} of {len(own)}", cost, tau, counts]


def agents_of(run: dict) -> list[dict[str, float]]:
    """Each agent's values; without the references, which are no agents."""
    return [run["values"][agent] for agent in run["agents"]]


def error(values: dict[str, float], metric: str) -> float:
    """Of one agent on one catalogue."""
    return values[metric] - values["truth cp@10"]

"""Which metric picks the agent with the largest true uplift, over catalogues: see README.md."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import columns_of, interval, into_marks, parser_of, resumed, table, write_results

from recsim_mnar.studies import Study
from recsim_mnar.studies.design import design_of
from recsim_mnar.studies.paired import mean

HERE = Path(__file__).resolve().parent
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
    cost = interval(mean([j["cost"] for j in own], LEVEL, least=0.0), ".2f")
    tau = interval(mean([j["tau"] for j in own], LEVEL, least=-1.0, largest=1.0), ".2f")
    return [preset, own[0]["metric"], f"{right} of {len(own)}", cost, tau, counts]


def agents_of(run: dict) -> list[dict[str, float]]:
    """Each agent's values; without the references, which are no agents."""
    return [run["values"][agent] for agent in run["agents"]]


def error(values: dict[str, float], metric: str) -> float:
    """Of one agent on one catalogue."""
    return values[metric] - values["truth cp@10"]


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("presets", nargs="*", help="all of settings.toml unless named")
    parser.add_argument("--catalogues", type=int, default=None)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--study", type=Path, default=Path("runs/uplift_metrics"), help="catalogues' records")
    parser.add_argument("--out", type=Path, default=HERE, help="where results go")
    options = parser.parse_args()
    design = design_of(HERE / "settings.toml")
    chosen = [w for w in design.worlds if not options.presets or w["preset"] in options.presets]
    design = replace(design, worlds=chosen, catalogues=options.catalogues or design.catalogues)
    found = runs_of(resumed(design, options.study, options.workers))
    text = tables(found)
    print(text)
    count = len(next(iter(found.values())))
    title = f"`python benchmarks/uplift_metrics/run.py`, {count} catalogues, {LEVEL:.0%} intervals over catalogues."
    into_marks(options.out / "results.md", "metrics", [title, "", text])
    judged = {preset: columns_of([j for run in runs for j in run["judgements"]]) for preset, runs in found.items()}
    write_results(options.out / "results.json", judged, 6)


if __name__ == "__main__":
    main()

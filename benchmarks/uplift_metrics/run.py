"""Which metric picks the agent with the largest true uplift: `python benchmarks/uplift_metrics/run.py`.

`recsim-mnar compare --world purchases` over catalogues, each with users of its own. A finished catalogue is kept under
`results/`, so that an interrupted study goes on where it was; the tables go to `results.md` and `results.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
from scipy.special import stdtrit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import settings as s  # noqa: E402

from recsim_mnar.policy import registry  # noqa: E402
from recsim_mnar.protocols.uplift import protocol as uplift  # noqa: E402
from recsim_mnar.simulate import workers  # noqa: E402
from recsim_mnar.worlds import make_world  # noqa: E402


def one_catalogue(preset: str, number: int, executor) -> dict:
    """Judgements of one catalogue, and each agent's value by every metric."""
    sizes = uplift.SETTINGS[preset]
    found = uplift.compare_uplift(
        make_world("purchases", preset, [f"catalogue_seed={number}"]),
        {name: registry.learner(uplift.spec_of(name, sizes)) for name in s.AGENTS},
        settings=sizes,
        seed=number,
        executor=executor,
    )
    judged = [
        {"metric": j.title, "pick": j.pick, "best": j.best, "tau": j.kendall_tau, "cost": j.cost / j.best_uplift}
        for j in found.judgements
    ]
    values: dict[str, dict[str, float]] = {}
    for r in found.records:
        values.setdefault(r.agent, {})[f"{r.protocol} {r.metric}"] = r.value
    return {"judgements": judged, "values": values}


def kept(folder: Path, preset: str, number: int, executor) -> dict:
    """The same, from its file where it is there."""
    path = folder / f"{preset}-{number:02d}.json"
    if not path.exists():
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(one_catalogue(preset, number, executor), indent=1) + "\n")
        os.replace(partial, path)
    return json.loads(path.read_text())


def interval(values: list[float]) -> str:
    """Mean and Student's interval over catalogues."""
    x = np.array(values)
    half = stdtrit(len(x) - 1, 0.5 + s.LEVEL / 2) * x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else np.nan
    return f"{x.mean():.2f} [{x.mean() - half:.2f}, {x.mean() + half:.2f}]"


def tables(found: dict[str, list[dict]]) -> str:
    """Markdown: what each metric picks, and the agents' mean true uplift."""
    lines = [
        "| preset | metric | picks the best agent | what its choice costs, share of the best uplift | "
        "Kendall's tau with the truth | picks |",
        "|---|---|---|---|---|---|",
    ]
    for preset, runs in found.items():
        for row in range(len(runs[0]["judgements"])):
            own = [run["judgements"][row] for run in runs]
            picks = [j["pick"] for j in own]
            counts = ", ".join(f"{p} {picks.count(p)}" for p in sorted(set(picks), key=lambda p: (-picks.count(p), p)))
            right = sum(j["pick"] == j["best"] for j in own)
            cost, tau = interval([j["cost"] for j in own]), interval([j["tau"] for j in own])
            lines.append(f"| {preset} | {own[0]['metric']} | {right} of {len(own)} | {cost} | {tau} | {counts} |")
    lines += ["", "Mean true uplift of the lists, purchases caused an item and period (CP@10):", ""]
    agents = list(next(iter(found.values()))[0]["values"])
    lines += ["| | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for agent in agents:
        cells = [f"{np.mean([run['values'][agent]['truth cp@10'] for run in runs]):.4f}" for runs in found.values()]
        lines.append(f"| {agent} | " + " | ".join(cells) + " |")
    lines += ["", "Mean of the metric less true uplift, over agents and catalogues:", ""]
    lines += ["| | " + " | ".join(found) + " |", "|---|" + "---|" * len(found)]
    for metric in ("uplift uplift@10", "uplift uplift_snips@10", "uplift uplift_ips@10", "ab_test uplift@10"):
        cells = [
            f"{np.mean([error(v, metric) for run in runs for v in agents_of(run)]):+.4f}" for runs in found.values()
        ]
        lines.append(f"| {metric} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def agents_of(run: dict) -> list[dict[str, float]]:
    """Each agent's values; without the references, which are no agents."""
    return [run["values"][agent] for agent in s.AGENTS]


def error(values: dict[str, float], metric: str) -> float:
    """Of one agent on one catalogue."""
    return values[metric] - values["truth cp@10"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("presets", nargs="*", default=list(s.PRESETS))
    parser.add_argument("--catalogues", type=int, default=s.CATALOGUES)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=HERE, help="where results go")
    given = parser.parse_args()
    folder = given.out / "results"
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[dict]] = {}
    with workers(given.workers) as executor:
        for preset in given.presets:
            found[preset] = [kept(folder, preset, number, executor) for number in range(given.catalogues)]
    text = tables(found)
    print(text)
    (given.out / "results.md").write_text(
        f"`python benchmarks/uplift_metrics/run.py`, {given.catalogues} catalogues, {s.LEVEL:.0%} intervals over "
        f"catalogues.\n\n{text}\n"
    )
    summary = {preset: [run["judgements"] for run in runs] for preset, runs in found.items()}
    (given.out / "results.json").write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Uplift-based optimisation of a neural network, judged by A/B tests: see README.md.

    python benchmarks/uplift_metrics/neural.py [PRESET ...] [--catalogues 8] [--quick]

"We expect that applying our uplift-based optimizations to neural network models would further enhance the uplift"
(Sato et al. 2019, section 6).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import into_marks, settings_of, table
from pointwise import ULOMLP, PointwiseLearner

from recsim_mnar.agents.purchases.learners import RMF
from recsim_mnar.studies import Design, Study, run_study
from recsim_mnar.studies.result import mean

HERE = Path(__file__).resolve().parent
LEVEL = 0.95
QUICK = {"presets": ["quick"], "catalogues": 2, "samples": 100_000}
PAIRS = (
    ("ulo-mlp", "mlp"), ("ulrmf", "rmf"), ("ulbpr", "bpr"), ("ulo-mlp", "ulrmf"), ("ulo-mlp", "ulbpr"), ("mlp", "rmf")
)  # fmt: skip


class PurchasesMLP(PointwiseLearner):
    """The network of ulo-mlp on RMF's samples: what is purchased, recommended or not."""

    def __init__(self, **arguments: Any) -> None:
        network = ULOMLP(**arguments)
        super().__init__(network.model, RMF(), samples=network.samples, batch=network.batch, name="mlp")


def values_of(study: Study, agents: dict[str, str]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """By preset, by ``"ab"`` and ``"truth"``, by agent: one value per catalogue; ``"half"``: A/B half widths."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for result in study.results:
        own = found.setdefault(result["run_config"]["preset"], {"ab": {}, "truth": {}, "half": {}})
        records = {(r["agent"], r["protocol"], r["metric"].partition("@")[0]): r for r in result["records"]}
        for agent, spec in {**agents, "oracle": "oracle"}.items():
            tested, truth = records[spec, "ab_test", "uplift"], records[spec, "truth", "cp"]
            own["ab"].setdefault(agent, []).append(tested["value"])
            own["half"].setdefault(agent, []).append((tested["high"] - tested["low"]) / 2)
            own["truth"].setdefault(agent, []).append(truth["value"])
    return found


def interval(values: list[float], signed: bool = False) -> str:
    """Mean over catalogues and its Student interval."""
    found = mean(values, LEVEL)
    sign = "+" if signed else ""
    if found["low"] is None:
        return f"{found['mean']:{sign}.4f}"
    return f"{found['mean']:{sign}.4f} [{found['low']:{sign}.4f}, {found['high']:{sign}.4f}]"


def table_of(found: dict[str, dict[str, dict[str, list[float]]]]) -> str:
    """Markdown: uplift by A/B per agent and preset, the truth, and paired differences."""
    rows = [
        [agent, *(f"{interval(own['ab'][agent])}; truth {np.mean(own['truth'][agent]):.4f}" for own in found.values())]
        for agent in next(iter(found.values()))["ab"]
    ]
    halves = [f"{np.mean(list(own['half'].values())):.4f}" for own in found.values()]
    rows.append(["half width of one A/B test, mean", *halves])
    for a, b in PAIRS:
        cells = []
        for own in found.values():
            gains = [x - y for x, y in zip(own["ab"][a], own["ab"][b], strict=True)]
            cells.append(f"{interval(gains, signed=True)}; above in {sum(g > 0 for g in gains)} of {len(gains)}")
        rows.append([f"{a} less {b}", *cells])
    return "\n".join(table(["uplift@10 by A/B", *found], rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="*", help="those of settings.toml unless named")
    parser.add_argument("--catalogues", type=int, default=None)
    parser.add_argument("--quick", action="store_true", help="two small catalogues, a tenth of the samples; no file")
    parser.add_argument("--study", type=Path, default=Path("runs/uplift_neural"), help="catalogues' records")
    parser.add_argument("--out", type=Path, default=HERE, help="where the table goes")
    options = parser.parse_args()
    given = settings_of(HERE)["neural"] | (QUICK if options.quick else {})
    agents = {agent: spec.format(samples=given["samples"]) for agent, spec in given["agents"].items()}
    count = options.catalogues or given["catalogues"]
    folder = None if options.quick else options.study
    study = run_study(
        Design(
            worlds=[{"world": "purchases", "preset": preset} for preset in options.presets or given["presets"]],
            agents=list(agents.values()),
            protocols=["ab_test"],
            catalogues=count,
            first_seed=given["first_seed"],
        ),
        folder=folder,
        resume=folder is not None and folder.exists(),
        report=lambda line: print(line, flush=True),
    )
    text = table_of(values_of(study, agents))
    print(text)
    if not options.quick:
        title = (
            f"`python benchmarks/uplift_metrics/neural.py`, {count} catalogues, means and {LEVEL:.0%} intervals over "
            f"catalogues; differences are paired by catalogue."
        )
        into_marks(options.out / "results.md", "neural", ["## A neural network", "", title, "", text])


if __name__ == "__main__":
    main()

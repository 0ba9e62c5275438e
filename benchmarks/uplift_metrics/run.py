"""Which metric picks the agent with the largest true uplift, over catalogues: see README.md."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import columns_of, into_marks, parser_of, resumed, write_results
from analysis import LEVEL, runs_of, tables

from recsim_mnar.studies.design import design_of

HERE = Path(__file__).resolve().parent


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

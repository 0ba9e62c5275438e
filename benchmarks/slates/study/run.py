"""Which protocol picks the best agent where lists are shown: `python benchmarks/slates/study/run.py [arm ...]`.

Each catalogue of an arm is kept under `--study` and not run again. `results.json`, the table in `README.md` and
`picture.svg` are made of the arms that are complete.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "shared"))

from _study import read, settings_of, write_results

from recsim_mnar.studies import Study, run_study

HERE = Path(__file__).resolve().parent


def found_in(study: Study) -> dict[str, Any]:
    """What is kept of an arm: every judgement by ranking and catalogue, and the true values."""
    rankings: dict[str, dict[str, list[Any]]] = {}
    for each in study.judgements():
        own = rankings.setdefault(each["title"], {name: [] for name in ("pick", "outcome", "cost", "shown")})
        own["pick"].append(" = ".join([each["pick"], *each["tied_with"]]))
        own["outcome"].append(each["outcome"])
        own["cost"].append(each["cost_share"])
        own["shown"].append(each["shown"])
    truth: dict[str, list[float]] = {}
    for row in study.rows():
        if (row["protocol"], row["metric"]) == ("truth", "ctr"):
            truth.setdefault(row["agent"], []).append(row["value"])
    return {"catalogues": len(study.results), "rankings": rankings, "truth": truth}


def main() -> None:
    """Run the arms that are asked for, and write what all complete ones show."""
    given = settings_of(HERE)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arms", nargs="*", help=f"of {', '.join(given['arms'])}; all where none is named")
    parser.add_argument("--catalogues", type=int, default=given["catalogues"], help="fewer: printed and not kept")
    parser.add_argument("--study", type=Path, default=Path("runs/slates-study"), help="what is done already")
    options = parser.parse_args()
    results = read(HERE / "results.json")
    for name in options.arms or given["arms"]:
        study = run_study(
            [given["arms"][name]],
            given["agents"],
            seeds=options.catalogues,
            seed=given["seed"],
            folder=options.study / name,
            resume=(options.study / name).exists(),
            report=lambda line: print(line, flush=True),
        )
        print(*study.sentences(), sep="\n")
        results[name] = found_in(study)
        if options.catalogues == given["catalogues"]:
            write_results(HERE / "results.json", results, 6)


if __name__ == "__main__":
    main()

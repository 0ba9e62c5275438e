"""Which protocol picks the best agent where lists are shown: `python benchmarks/slates/study/run.py [arm ...]`.

Each catalogue of an arm is kept under `--study` and not run again. `results.json`, the tables in `README.md` and
`picture.png` are made of the arms that are complete.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[2] / "shared"))

from _study import into_marks, parser_of, read, resumed, settings_of, write_results
from analysis import constants, figure, pairs, rows_of, sentence

from recsim_mnar.rng import derive_seed
from recsim_mnar.studies import Design, Study

HERE = Path(__file__).resolve().parent
PAGE = HERE.parents[2] / "docs" / "questions" / "lists.md"


def found_in(study: Study) -> dict[str, Any]:
    """What is kept of an arm: every judgement by ranking and catalogue, and the true values."""
    rankings: dict[str, dict[str, list[Any]]] = {}
    for each in study.judgements():
        own = rankings.setdefault(
            each["title"], {name: [] for name in ("pick", "outcome", "cost", "unusable", "barred")}
        )
        own["pick"].append(" = ".join([each["pick"], *each["tied_with"]]))
        own["outcome"].append(each["outcome"])
        own["cost"].append(each["cost_share"])
        own["unusable"].append(each["pick"] in each["unusable"])
        own["barred"].append(each["best"] in each["unusable"])
    truth: dict[str, list[float]] = {}
    for row in study.rows():
        if (row["protocol"], row["metric"]) == ("truth", "ctr"):
            truth.setdefault(row["agent"], []).append(row["value"])
    return {"catalogues": len(study.results), "rankings": rankings, "truth": truth}


class _Arm(Design):
    """A design with the seeds of July, which were those of the setup's label."""

    def seed_of(self, catalogue: int) -> int:
        """See :meth:`Design.seed_of`."""
        return derive_seed(self.seed, f"study/sessions-quick/{catalogue}")


def lines_of(results: dict[str, Any]) -> list[str]:
    """What stands in the README of the arms that are there."""
    lines = ["", f"**{sentence(results['lists'])}**"] if "lists" in results else []
    for name, arm in results.items():
        lines += ["", f"## `{name}`", "", *rows_of(arm), "", *constants(arm), "", *pairs(arm)]
    return lines


def answer(arm: dict[str, Any]) -> list[str]:
    """What the page of the documentation begins with."""
    return ["", f"**{sentence(arm)}**", "", *rows_of(arm, brief=True), ""]


def main() -> None:
    """Run the arms that are asked for, and write what all complete ones show."""
    given = settings_of(HERE)
    parser = parser_of(
        __doc__, quick="one catalogue of each arm, printed and not kept", study="runs/slates-study", workers=True
    )
    parser.add_argument("arms", nargs="*", help=f"of {', '.join(given['arms'])}; all where none is named")
    parser.add_argument("--catalogues", type=int, default=given["catalogues"], help="fewer: printed and not kept")
    options = parser.parse_args()
    catalogues = 1 if options.quick else options.catalogues
    results = read(HERE / "results.json")
    for name in options.arms or given["arms"]:
        folder = options.study / (f"{name}-quick" if options.quick else name)
        arm = _Arm([given["arms"][name]], given["agents"], catalogues=catalogues, seed=given["seed"])
        study = resumed(arm, folder, options.workers)
        print(*study.sentences(), sep="\n")
        results[name] = found_in(study)
        if catalogues == given["catalogues"]:
            results = {arm: results[arm] for arm in given["arms"] if arm in results}
            write_results(HERE / "results.json", results, 6)
            into_marks(HERE / "README.md", "tables", lines_of(results))
            into_marks(PAGE, "answer", answer(results["lists"]))
            figure(results, HERE / "picture.png")


if __name__ == "__main__":
    main()

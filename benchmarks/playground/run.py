"""The grid behind the site's playground: which protocol picks the best recommender where; see README.md."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import interval, parser_of, resumed, settings_of, table, write_results

from recsim_mnar.protocols.records import BEST, INDISTINGUISHABLE
from recsim_mnar.studies import Design, Study
from recsim_mnar.studies.paired import share

HERE = Path(__file__).resolve().parent
QUICK = {"catalogues": 2, "sliders": {"epsilon": [0.0, 1.0], "users": [200], "n_flips": [0, 100]}}


def points_of(sliders: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of the sliders' positions, those of the last slider next to each other."""
    return [dict(zip(sliders, values, strict=True)) for values in itertools.product(*sliders.values())]


def logging_of(epsilon: float) -> str:
    """The agent that made the log."""
    return f"user-popularity+epsilon={epsilon:g}" if epsilon else "user-popularity"


def design_of(points: list[dict[str, Any]], given: dict[str, Any]) -> Design:
    """Every point of the grid as a cell."""
    world = {name: given[name] for name in ("preset", "params", "protocols")}
    cells = [
        {"logging": logging_of(one["epsilon"]), "test_users": one["users"], "n_flips": one["n_flips"]} for one in points
    ]
    return Design(
        worlds=[{"world": "sessions", **world}],
        cells=cells,
        catalogues=given["catalogues"],
        first_seed=given["first_seed"],
    )


def command_of(point: dict[str, Any], given: dict[str, Any]) -> str:
    """What makes a point's numbers anew."""
    params = [f"--set {name}={value:g}" for name, value in (given["params"] | {"n_flips": point["n_flips"]}).items()]
    return " ".join([
        f"recsim-mnar compare --preset {given['preset']}", *params, f"--logging {logging_of(point['epsilon'])}",
        f"--option test_users={point['users']} --protocols {','.join(given['protocols'])}",
        f"--catalogues {given['catalogues']} --first-seed {given['first_seed']}",
    ])  # fmt: skip


def found_of(study: Study) -> list[dict[str, Any]]:
    """Per point and protocol: how often its pick was best, tied with it or not to be used, and its mean cost."""
    judgements = study.judgements()
    found: dict[str, dict[str, Any]] = {}
    for row in study.summary():
        own = [j for j in judgements if (j["study"], j["title"]) == (row["study"], row["title"])]
        right = share([j["outcome"] in (BEST, INDISTINGUISHABLE) for j in own])
        found.setdefault(row["study"], {})[row["title"]] = {
            "best": row[BEST]["count"],
            "tied": row[INDISTINGUISHABLE]["count"],
            "unusable": row["unusable"]["count"],
            "right": [right[name] for name in ("share", "low", "high")],
            "cost": [row["cost_share"][name] for name in ("mean", "low", "high")],
            "picks": row["picks"],
        }
    return list(found.values())


def results_of(points: list[dict[str, Any]], study: Study, given: dict[str, Any]) -> dict[str, Any]:
    """What results.json holds: the grid, and per point what each protocol did and the command that makes it anew."""
    rows, made = zip(points, found_of(study), strict=True), study.results[0]["run_config"]
    return {
        "agents": list(made["agents"]),
        "n_items": made["world"]["params"]["n_items"],
        **{name: made["settings"][name] for name in ("train_users", "arm_users", "truth_users")},
        "catalogues": given["catalogues"],
        "sliders": given["sliders"],
        "points": [{**point, "command": command_of(point, given), "protocols": own} for point, own in rows],
    }


def lines_of(results: dict[str, Any]) -> list[str]:
    """The table for a person: one row per point, one column per protocol."""
    titles = [*results["points"][0]["protocols"]]
    rows = [
        [f"{point['epsilon']:.0%}", point["users"], point["n_flips"]]
        + [_cell(point["protocols"][title]) for title in titles]
        for point in results["points"]
    ]
    return table(["exploration", "users", "pairs swapped", *titles], rows)


def _cell(own: dict[str, Any]) -> str:
    cost = dict(zip(("mean", "low", "high"), own["cost"], strict=True))
    return f"{own['best']} + {own['tied']}; {interval(cost, '.1%')}"


def main() -> None:
    parser = parser_of(
        __doc__, quick="four points and two catalogues, printed only", study="runs/playground", workers=True
    )
    parser.add_argument("--catalogues", type=int, default=None, help="so many of the catalogues first")
    options = parser.parse_args()
    given = settings_of(HERE, QUICK if options.quick else None)
    given["catalogues"] = options.catalogues or given["catalogues"]
    points = points_of(given["sliders"])
    folder = options.study / ("quick" if options.quick else "full")
    study = resumed(design_of(points, given), folder, options.workers)
    results = results_of(points, study, given)
    print("Best + tied with it, of catalogues; mean cost of the pick in per cent of the best.")
    print(*lines_of(results), sep="\n")
    if not options.quick:
        write_results(HERE / "results.json", results, 4)


if __name__ == "__main__":
    main()

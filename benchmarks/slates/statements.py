"""How often `cascade`, stated of users of whom it is true or false, is trusted and contradicted.

`python benchmarks/slates/statements.py` writes statements.json and the README's table; `--quick` is ten logs, printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import parser_of, read, settings_of, write_results, write_text
from worlds import Setting, World

from recsim_mnar.estimators.rankings import estimate_ranking_value

HERE = Path(__file__).parent
NAME = "reward_interaction_ips"
START, END = "<!-- statements: statements.py writes them -->", "<!-- end of statements -->"
HEAD = (
    "| users | log | slates | bias, % | trusted | of these cover | contradicted | by the items below "
    "| by the difference |"
)


def judged(setting: Setting, users: int, logs: int, facts: dict[str, Any]) -> dict[str, Any]:
    """What the verdict on reward-interaction IPS says of the logs of one setting, with `cascade` stated."""
    world = World(setting)
    most = {kind: float(np.max(t / p)) for kind, (p, t) in world.probabilities.items()}
    counts = dict.fromkeys(("trusted", "covers", "contradicted", "below", "difference"), 0)
    for log in world.logs(range(logs), users, facts["slates"], facts["statements"]["seed"]):
        columns, target, _ = world.columns(log)
        stated = {"assumption": "cascade", "full_support": True, "weight_max": most}
        found = estimate_ranking_value(columns, target, estimators=NAME, level=facts["level"], **stated)[NAME]
        said = found.diagnostics.assumption
        below, difference = said["items_below"], said["differences"].get("slate_ips", [0.0, 0.0, 0.0])
        counts["trusted"] += found.trusted
        counts["covers"] += found.trusted and found.low <= world.truth <= found.high
        counts["contradicted"] += any(
            each.code == "assumption_contradicted" and each.severity >= 1.0 for each in found.verdict.findings
        )
        counts["below"] += not below[1] <= 0.0 <= below[2]
        counts["difference"] += not difference[1] <= 0.0 <= difference[2]
    bias = world.tends_to(NAME) / world.truth - 1.0
    return {"slates": users * facts["slates"], "logs": logs, "bias": bias, **counts}


def table(results: dict[str, Any]) -> str:
    """The README's table."""
    lines = [HEAD, "|---|---|" + "---:|" * 7]
    for name, each in results.items():
        users, pair, _ = name.split(" ")
        shares = [each[key] / each["logs"] for key in ("trusted", "contradicted", "below", "difference")]
        cover = f"{each['covers'] / each['trusted']:.3f}" if each["trusted"] else "-"
        cells = [users, pair, f"{each['slates']:,}", f"{100.0 * each['bias']:+.1f}", f"{shares[0]:.3f}", cover]
        lines.append(f"| {' | '.join([*cells, *(f'{share:.3f}' for share in shares[1:])])} |")
    return "\n".join(lines)


def written(readme: str, results: dict[str, Any]) -> str:
    """The README with the table between its marks."""
    head, rest = readme.split(START)
    return f"{head}{START}\n\n{table(results)}\n\n{END}{rest.split(END)[1]}"


def main() -> None:
    """Judge what is missing in statements.json."""
    facts = settings_of(HERE)
    parser = parser_of(__doc__, quick="ten logs, printed and not kept")
    quick, asked = parser.parse_args().quick, facts["statements"]
    pairs = {pair["name"]: pair for pair in facts["pairs"]}
    results = {} if quick else read(HERE / "statements.json").get("settings", {})
    for kind in asked["users"]:
        for name in asked["pairs"]:
            pair = pairs[name]
            setting = Setting(kind, name, pair["logger"], pair["n_items"], pair["slate_size"])
            for users, logs in asked["sizes"].items():
                key = f"{setting.name} {users}"
                if key not in results:
                    results[key] = judged(setting, int(users), 10 if quick else logs, facts)
                if not quick:
                    write_results(HERE / "statements.json", {"settings": results})
    print(table(results))
    if not quick:
        write_text(HERE / "README.md", written((HERE / "README.md").read_text(), results))


if __name__ == "__main__":
    main()

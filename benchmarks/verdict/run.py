"""Average effects and list metrics on fifteen worlds of recommendations and purchases: see README.md.

python benchmarks/verdict/run.py [--quick]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import uplift_worlds

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import exact_limits, into_marks, read, table, write_results

HERE = Path(__file__).resolve().parent
HEADS = ("estimate", "logs", "trusted", "coverage given trust", "coverage", "lowest coverage", "reasons")


def lines(found: list[dict[str, Any]]) -> list[str]:
    """The table: by estimate how often it is trusted and right, over all worlds."""
    rows = []
    for row in found:
        trusted, logs = row["trusted"], row["logs"]
        low, high = exact_limits(row["right_given_trust"], trusted)
        covers = f"{row['right_given_trust'] / max(trusted, 1):.3f} [{low:.3f}, {high:.3f}]"
        lowest = f"{row['lowest']:.2f} ({row['where']})"
        shares = (f"{trusted / logs:.3f}", covers, f"{row['right'] / logs:.3f}", lowest)
        rows.append((row["estimate"], str(logs), *shares, row["reasons"]))
    return table(HEADS, rows)


def main(arguments: list[str] | None = None) -> None:
    """Judge a hundred logs of each world, and keep the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two logs of each world, nothing is written")
    quick = parser.parse_args(arguments).quick
    found = uplift_worlds.judge_all(2 if quick else 100)
    print("\n".join(lines(found)))
    if not quick:
        write_results(HERE / "results.json", read(HERE / "results.json") | {"uplift": found})
        into_marks(HERE / "README.md", "uplift", lines(found))


if __name__ == "__main__":
    main()

"""From a shop's file to a verdict in two commands, for many shops: is the truth inside, is what was dropped counted?

    python benchmarks/own_log/run.py [--seeds 20] [--rows 200000] [--variants plain,two-loggers] [--quick]

Each shop is made by ``shop.py``. The first command is typed as a new user would type it and names every fault; the
second leaves out what the first one named. Writes ``results.json`` next to this file (not with ``--quick``).
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import shop

HERE = Path(__file__).parent
FIRST = ["estimate", "shop.csv", "--target-file", "new.csv", "--on", "impression"]
SECOND = [*FIRST, "--drop-missing", "--deduplicate", "--json", "estimates.json"]
CONTEXT = ["--context-columns", "segment,device"]


def command(folder: Path, arguments: list[str]) -> subprocess.CompletedProcess[str]:
    """The command line, in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "recsim_mnar", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )


def counted(text: str, rule: str) -> int:
    """The number in front of some words; 0 where they are not said."""
    found = re.search(r"([0-9,]+) rows " + rule, text)
    return int(found.group(1).replace(",", "")) if found else 0


def one(folder: Path, seed: int, rows: int, variant: str) -> list[dict[str, object]]:
    """The estimates of one shop next to its truth."""
    shop.write(folder, seed, rows, variant)
    truth = json.loads((folder / "truth.json").read_text())
    first = command(folder, FIRST)
    second = command(folder, SECOND + (CONTEXT if variant == "no-propensities" else []))
    if second.returncode != 0:
        raise SystemExit(f"{variant}, seed {seed}: {second.stderr}")
    said = {
        "first_status": first.returncode,
        "dropped": counted(second.stdout, "have missing values and are left out"),
        "repeated": counted(second.stdout, "repeat an earlier row"),
    }
    records = json.loads((folder / "estimates.json").read_text())
    return [
        {
            **{key: record[key] for key in ("estimator", "value", "low", "high", "verdict_level")},
            **said,
            "findings": [each["code"] for each in record["findings"] if each["level"] != "trust"],
            "variant": variant,
            "seed": seed,
            "truth": truth["value"],
            "inside": bool(record["low"] <= truth["value"] <= record["high"]),
            "dropped_truly": truth["incomplete"],
            "repeated_truly": truth["repeated"],
        }
        for record in records
    ]


def main() -> None:
    """Run the shops asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--variants", default=",".join(shop.VARIANTS))
    parser.add_argument("--quick", action="store_true", help="one small shop of each kind, nothing written")
    given = parser.parse_args()
    if given.quick:
        given.seeds, given.rows = 1, 20_000
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for variant in given.variants.split(","):
            for seed in range(given.seeds):
                rows += one(Path(scratch), seed, given.rows, variant)
            mine = [row for row in rows if row["variant"] == variant]
            for name in dict.fromkeys(str(row["estimator"]) for row in mine):
                of = [row for row in mine if row["estimator"] == name]
                levels = {
                    level: sum(row["verdict_level"] == level for row in of)
                    for level in ("trust", "caution", "do_not_use")
                }
                inside = sum(bool(row["inside"]) for row in of)
                print(f"{variant}, {name}: truth inside {inside} of {len(of)}; verdicts {levels}", flush=True)
            counted_right = sum(
                row["repeated"] == row["repeated_truly"]
                and (row["dropped"] == row["dropped_truly"] or variant == "other-user-name")
                for row in mine
            )
            print(f"{variant}: what was dropped is counted right in {counted_right} of {len(mine)}", flush=True)
            if not given.quick:
                (HERE / "results.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()

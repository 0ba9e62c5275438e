"""The paper's claims on each log whose results are kept, PASS or short; reads ``results/`` and fits nothing.

python benchmarks/sato2019/claims.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import findings

from recsim_mnar.estimators.uplift import EMPTY

HERE = Path(__file__).resolve().parent


def of_log(result: dict[str, Any]) -> dict[str, bool]:
    """The checks that these results can answer: results made before a way of counting have no such columns."""
    lengths = [str(n) for n in result["lengths"]]
    counted = "uplift_zero" in result["rows"]["rmf"]["estimates"][lengths[0]]
    out = {text: bool(ok) for text, ok in result["checks"].items() if "cells" not in text or counted}
    out |= findings.headline(result["rows"], lengths, EMPTY if counted else EMPTY[:1])
    out |= findings.headline_chosen_so(result["rows"], lengths) if counted else {}
    return out | findings.tendencies(result)


def main() -> int:
    lines = ["# The claims of Sato et al. 2019, log by log", ""]
    for name in ("dunnhumby", "tafeng"):
        path = HERE / "results" / f"{name}.json"
        if not path.exists():
            lines += [f"{name}: not run", ""]
            continue
        found = of_log(json.loads(path.read_text()))
        lines += [f"## {name}", "", "```", *(f"{'PASS ' if ok else 'short'} {text}" for text, ok in found.items())]
        lines += ["```", "", f"{sum(found.values())} of {len(found)} checks pass.", ""]
    text = "\n".join(lines)
    (HERE / "results" / "claims.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

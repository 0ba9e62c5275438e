"""What the front page quotes: agents of the authors' code and as the paper describes them, in the same 24 catalogues.

python benchmarks/jeunen2019/both.py   # writes the part "both" of results.json, and results.md
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tables import keep, parser_of, resumed

from recsim_mnar import Design, Study

PRESETS = ["jeunen2019", "jeunen2019-text"]
LOGGING = "user-popularity"
DESIGN = Design(worlds=["sessions"], factors={"preset": PRESETS}, catalogues=24, first_seed=1000)


def found_in(study: Study) -> dict[str, Any]:
    """By preset: every protocol's summary, and where clipped IPS loses what it loses."""
    found: dict[str, Any] = {}
    for preset in PRESETS:
        summary = {row["protocol"]: row for row in study.summary() if row["levels"]["preset"] == preset}
        judged = [j for j in study.judgements() if j["levels"]["preset"] == preset and j["metric"] == "clipped_ips"]
        found[preset] = {"summary": summary, "clipped_ips": losses_of(judged)}
    return found


def losses_of(judgements: list[dict[str, Any]]) -> dict[str, Any]:
    """Split the mean loss by whether the pick made the log."""
    losses = np.array([j["cost_share"] for j in judgements])
    picks_logger = np.array([j["pick"] == LOGGING for j in judgements])
    return {
        "picks the logging policy": int(picks_logger.sum()),
        "share of the loss there": float(losses[picks_logger].sum() / max(losses.sum(), 1e-300)),
        "mean loss elsewhere": float(losses[~picks_logger].mean()),
        "abstains": sum(j["abstains"] for j in judgements),
    }


def main() -> None:
    options = parser_of(__doc__, study="runs/jeunen2019-both", workers=True).parse_args()
    study = resumed(DESIGN, options.study, options.workers)
    keep("both", found_in(study))
    for sentence in study.sentences():
        print(sentence)


if __name__ == "__main__":
    main()

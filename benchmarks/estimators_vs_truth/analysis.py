"""What the logs say of each agent and estimator: rows, a table, a figure."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from _study import save_picture, table


def summarise(logs: list[dict], settings: dict) -> list[dict]:
    """One row an agent and estimator."""
    rows = []
    for agent in settings["agents"]:
        truth = np.array([log[agent]["truth"] for log in logs])
        for estimator in settings["estimators"]:
            value, low, high, inner_low, inner_high = np.array([log[agent]["estimates"][estimator] for log in logs]).T
            error = value - truth
            rows.append(
                {
                    "agent": agent,
                    "estimator": estimator,
                    "truth": float(truth.mean()),
                    "bias": float(error.mean()),
                    "bias_se": float(error.std(ddof=1) / np.sqrt(len(logs))),
                    "rmse": float(np.sqrt(np.mean(error**2))),
                    "coverage": float(np.mean((low <= truth) & (truth <= high))),
                    "sampling_coverage": float(np.mean((inner_low <= truth) & (truth <= inner_high))),
                    "width": float(np.mean(high - low)),
                    "sampling_width": float(np.mean(inner_high - inner_low)),
                    "ess": float(np.mean([log[agent]["ess"] for log in logs])),
                    "logs": len(logs),
                }
            )
    return rows


def report(rows: list[dict], settings: dict) -> str:
    """Markdown: an agent a block."""
    lines = [
        "# Estimators against the truth, sessions world",
        "",
        f"{rows[0]['logs']} logs of {settings['users']} users, {settings['n_items']} items, logged by "
        f"{settings['logging']}; truth: the agent's mean click probability in the log's states.",
        "",
        "All in thousandths of a click a recommendation; coverage of the nominal 95 % interval, in brackets that of",
        "its sampling part alone (they differ where weights are clipped or shrunk).",
        "",
    ]
    for agent in settings["agents"]:
        own = [r for r in rows if r["agent"] == agent]
        cells = [
            [
                r["estimator"], f"{r['bias'] * 1e3:+.2f}", f"{1.96 * r['bias_se'] * 1e3:.2f}", f"{r['rmse'] * 1e3:.2f}",
                f"{r['coverage']:.3f} ({r['sampling_coverage']:.3f})",
                f"{r['width'] * 1e3:.2f} ({r['sampling_width'] * 1e3:.2f})",
            ]
            for r in own
        ]  # fmt: skip
        lines += [f"## {agent}: truth {own[0]['truth'] * 1e3:.2f}, effective sample {own[0]['ess']:,.0f}", ""]
        lines += [*table(["estimator", "bias", "+-", "RMSE", "coverage", "width"], cells), ""]
    return "\n".join(lines)


def figure(rows: list[dict], settings: dict, path: Path) -> None:
    """RMSE over the truth, and coverage, an agent a colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5), sharey=True)
    place = np.arange(len(settings["estimators"]))[::-1]
    for i, agent in enumerate(settings["agents"]):
        own = [r for r in rows if r["agent"] == agent]
        shift = place + 0.3 - 0.12 * i
        left.plot([r["rmse"] / r["truth"] for r in own], shift, "o", label=agent, markersize=4)
        right.plot([r["coverage"] for r in own], shift, "o", markersize=4)
    left.set_yticks(place, list(settings["estimators"]))
    left.set_xscale("log")
    left.set_xlabel("RMSE / truth")
    right.axvline(settings["level"], color="grey", linewidth=1)
    right.set_xlabel("coverage of the nominal 95 % interval")
    left.legend(fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    fig.tight_layout()
    save_picture(fig, path)

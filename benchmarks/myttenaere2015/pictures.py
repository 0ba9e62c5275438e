"""Figures 3 to 7 as pictures, one file a figure and kind of campaign."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

NAMES = {"g1": "g1", "g2": "g2", "cosine-cf": "cosine CF", "naive-cf": "naive CF"}


def draw(found: list[dict[str, Any]], settings: dict[str, Any], campaign_days: list[int], out: Path) -> list[Path]:
    """Write the pictures; returns their paths."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    written = []

    def save(figure: Any, name: str) -> None:
        figure.tight_layout()
        figure.savefig(out / name, dpi=90, metadata={"Software": None})
        plt.close(figure)
        written.append(out / name)

    def mark(axes: Any) -> None:
        for day in campaign_days:
            axes.axvline(day, color="0.7", linewidth=0.8)
        axes.set_xlabel("t (days)")

    for kind in settings["kinds"]:
        ones = [one for one in found if one["kind"] == kind]
        one, days = ones[0], ones[0]["days"]
        figure, axes = plt.subplots(figsize=(5, 3.2))
        table = np.array(one["item_probabilities"])
        for place, item in enumerate(one["most_recommended"]):
            axes.plot(days, table[:, place], label=f"item {item}")
        axes.set_ylabel("$P_t(i)$")
        axes.set_title("Figure 3: the five most recommended items", fontsize=9)
        mark(axes)
        save(figure, f"figure3-{kind}.png")

        figure, axes = plt.subplots(figsize=(5, 3.2))
        for other in ones:
            count = np.array(other["items_per_user"])
            size = np.flatnonzero(count)
            axes.loglog(size, count[size], ".", markersize=3)
        axes.set_xlabel("items of a user")
        axes.set_ylabel("users")
        axes.set_title("Figure 4: items per user", fontsize=9)
        save(figure, f"figure4-{kind}.png")

        figure, panels = plt.subplots(1, 2, figsize=(8, 3.2))
        for axes, name in zip(panels, ("g1", "g2"), strict=True):
            value, low, high = np.array(one["drawn"][name]).T
            axes.errorbar(days, value, [value - low, high - value], fmt=".-", linewidth=0.8, capsize=2)
            axes.set_title(f"Figure 5: classical score of {name}, {settings['samples']:,} pairs", fontsize=9)
            mark(axes)
        save(figure, f"figure5-{kind}.png")

        for number, names in ((6, ("g1", "g2")), (7, ("cosine-cf", "naive-cf"))):
            figure, panels = plt.subplots(1, 2, figsize=(8, 3.2))
            for axes, name in zip(panels, names, strict=True):
                for p in settings["p"]:
                    curves = np.array([other["curves"][name][str(p)] for other in ones])
                    mean = curves.mean(axis=0)
                    half = stats.t.ppf(0.975, len(curves) - 1) * stats.sem(curves) if len(curves) > 1 else 0.0 * mean
                    (line,) = axes.plot(days, mean, label=f"p = {p}", linewidth=1)
                    axes.fill_between(days, mean - half, mean + half, color=line.get_color(), alpha=0.12)
                axes.set_title(f"Figure {number}: {NAMES[name]}, mean of {len(ones)} platforms and 95 %", fontsize=9)
                mark(axes)
            panels[1].legend(fontsize=7)
            save(figure, f"figure{number}-{kind}.png")
    return written

"""The picture of a log: learning curves, alpha, accuracy and uplift."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from _study import save_picture
from tables import name_of


def draw(part: str, result: dict[str, Any], out: Path) -> None:
    """PART.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = draw_log(result, pyplot)
    figure.tight_layout()
    save_picture(figure, out / f"{part}.png")
    pyplot.close(figure)


def draw_log(result: dict[str, Any], pyplot: Any) -> Any:
    figure, axes = pyplot.subplots(1, 3, figsize=(13, 3.8))
    n = result["lengths"][0]
    for k, (method, curve) in enumerate(result["curves"].items()):
        axes[0].plot([u / 1e6 for u, _ in curve], [v for _, v in curve], f"C{k}.-", label=name_of(method))
    axes[0].set(xlabel="million updates", ylabel=f"Uplift@{n}, validation", title="Figure 2 (a): learning curves")
    for k, (method, pairs) in enumerate(result["alphas"].items()):
        axes[1].plot([a for a, _ in pairs], [v for _, v in pairs], f"C{k + 2}o-", label=name_of(method))
    axes[1].set(xlabel="alpha", ylabel=f"Uplift@{n}, validation", title="Figure 3: dependence on alpha")
    for k, (method, row) in enumerate(result["rows"].items()):
        of = row["estimates"][str(n)]
        axes[2].errorbar(
            of["precision"][0], of["uplift_snips"][0], of["uplift_snips"][1], fmt="o", color=f"C{k}", ms=4, lw=0.8
        )
        axes[2].annotate(
            name_of(method), (of["precision"][0], of["uplift_snips"][0]), fontsize=7, xytext=(3, 3),
            textcoords="offset points",
        )  # fmt: skip
    axes[2].set(xlabel=f"Precision@{n}", ylabel=f"UpliftSNIPS@{n}", title="accuracy and uplift, test")
    for axis in axes[:2]:
        axis.legend(frameon=False)
    return figure

"""Pictures of the study, one per part that has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from _study import save_picture
from tables import LABELS, WORLDS, name_of, plural


def draw(part: str, result: dict[str, Any], out: Path) -> None:
    """The part's pictures."""
    if part not in PICTURES:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = PICTURES[part](result, pyplot)
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


def draw_semisynthetic(result: dict[str, Any], pyplot: Any) -> Any:
    worlds = result["worlds"]
    figure, axes = pyplot.subplots(1, len(worlds), figsize=(4.4 * len(worlds), 4), squeeze=False)
    for axis, (name, found) in zip(axes[0], worlds.items(), strict=True):
        methods = [m for m in LABELS if m in found["rows"] and m != "oracle"]
        means = [found["rows"][m]["mean"][0] for m in methods]
        highs = [found["rows"][m].get("high", found["rows"][m]["mean"])[0] for m in methods]
        half = np.array(highs) - means
        axis.barh(range(len(methods)), means, xerr=half, color="C0", height=0.6, label="here")
        told = result["published"]["semisynthetic"][name]
        at = [k for k, m in enumerate(methods) if m in told]
        axis.plot([told[methods[k]][0] for k in at], at, "kD", ms=5, label="published")
        axis.set_yticks(range(len(methods)), [LABELS[m] for m in methods])
        axis.invert_yaxis()
        axis.axvline(0, color="0.5", lw=0.8)
        axis.set(title=WORLDS[name], xlabel=found["metrics"][0])
    axes[0][0].legend(frameon=False, loc="upper right")
    return figure


def draw_readings(result: dict[str, Any], pyplot: Any) -> Any:
    """Propensities of the five readings by rank and over users, three methods in each, learning as published."""
    worlds = {n: w for n, w in result["worlds"].items() if "trained" in w}
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8))
    told = {m: v[0] for m, v in result["published"]["semisynthetic"]["dunnhumby-personalised"].items()}
    laws: dict[str, list[str]] = {}
    for name in worlds:
        laws.setdefault(name.split(",")[0], []).append(name)
    for k, (how, names) in enumerate(laws.items()):
        style = {"color": f"C{k}", "ls": "--" if how.startswith("scaled") else "-"}
        law = next(worlds[n]["propensities"] for n in names if "propensities" in worlds[n])
        ranks, bands = law["ranks"], law["quantiles"]
        periods = plural(" and ".join(str(worlds[n]["periods"]) for n in names) + " periods")
        axes[0, 0].plot(ranks, bands["0.5"], label=f"{title_of(how)} (logs of {periods})", **style)
        axes[0, 0].fill_between(ranks, bands["0.1"], bands["0.9"], color=f"C{k}", alpha=0.15, lw=0)
        own = worlds[names[0]]["world"]["recommendations per user"]
        axes[0, 1].plot(np.linspace(0, 1, len(own)), own, label=title_of(how), **style)
    axes[0, 0].set(xscale="log", yscale="log", ylim=(1e-6, 2), xlabel="place in the user's own order of propensities",
                   ylabel="propensity", title="median user; 10 to 90 % of users shaded")  # fmt: skip
    axes[0, 1].set(yscale="log", xlabel="share of users", ylabel="recommendations", title="recommendations per user")
    _draw_methods(axes[1, 0], worlds, told, result["metrics"][0])
    _draw_learning(axes[1, 1], worlds, told, result["metrics"][0])
    for axis in axes.ravel():
        axis.legend(frameon=False, fontsize=7)
    return figure


def _draw_methods(axis: Any, worlds: dict[str, Any], told: dict[str, Any], metric: str) -> None:
    """The study's own search in each reading, and learners trained as published; published values as dotted lines."""
    for k, method in enumerate(("bpr", "ulbpr", "dlce")):
        rows, at = [w["rows"][method] for w in worlds.values()], np.arange(len(worlds)) + 0.27 * (k - 1)
        values = np.array([row["mean"][0] for row in rows])
        half = np.array([row.get("high", row["mean"])[0] for row in rows]) - values
        axis.bar(at, values, 0.25, yerr=half, color=f"C{k + 3}", label=f"{name_of(method)}, own search")
        trained = [w["trained"][method]["row"]["mean"][0] for w in worlds.values()]
        axis.plot(at, trained, "kD", ms=4, label="trained with the published settings" if k == 2 else None)
        if told.get(method) is not None:
            axis.axhline(told[method], color=f"C{k + 3}", ls=":", lw=1)
    axis.set_xticks(
        range(len(worlds)),
        [plural(name).replace("as published", "simulator's ranks").replace(", ", ",\n") for name in worlds],
        fontsize=6,
    )
    axis.set(ylabel=metric, title="three methods, DLCE with the true propensities; dotted: published")


def _draw_learning(axis: Any, worlds: dict[str, Any], told: dict[str, Any], metric: str) -> None:
    """Learners trained as published in the world as published."""
    last = next((name for name in worlds if name.startswith("as published")), list(worlds)[-1])
    colours = {"bpr": "C3", "ulbpr": "C4", "dlce": "C5"}
    for method, trained in worlds[last].get("trained", {}).items():
        x, y = zip(*[(u / trained["asked"], v) for u, v in trained["curve"]], strict=True)
        colour = colours.get(method, "C6")
        axis.plot(x, y, ".-", color=colour, label=f"{name_of(method)}, share of {trained['asked'] / 1e6:g} M updates")
        if told.get(method) is not None:
            axis.axhline(told[method], color=colour, ls=":", lw=1)
    axis.set(
        xlabel="share of the published updates", ylabel=metric,
        title=f"{title_of(last.split(',')[0])}:\nlearning with the published settings; dotted: published",
    )  # fmt: skip
    axis.set_ylim(0, 1.6 * axis.get_ylim()[1])  # the legend above the curves


def title_of(how: str) -> str:
    """What a reading of the propensities is, for those who have not read the page."""
    return "ranks as the published simulator computes them" if how == "as published" else f"ranks by user, {how}"


def draw_density(result: dict[str, Any], pyplot: Any) -> Any:
    figure, axes = pyplot.subplots(1, len(result["logs"]), figsize=(5 * len(result["logs"]), 3.8), squeeze=False)
    for axis, (name, log) in zip(axes[0], result["logs"].items(), strict=True):
        points = list(log["points"].values())
        items = [p["items"] for p in points]
        for k, method in enumerate(("bpr", "ulbpr")):
            value, low, high = np.array([p[method]["uplift"] for p in points]).T
            colour = f"C{2 * k + 1}"
            axis.errorbar(
                items, value, [value - low, high - value], fmt=f"{colour}o-", label=name_of(method), capsize=2
            )
        axis.set(xlabel="items", ylabel=f"Uplift@{log['n']}, test", title=f"Figure 2 (b): density of items, {name}")
        axis.legend(frameon=False)
    return figure


PICTURES = {
    "dunnhumby": draw_log, "category": draw_log, "tafeng": draw_log, "readings": draw_readings,
    "semisynthetic": draw_semisynthetic, "density": draw_density,
}  # fmt: skip

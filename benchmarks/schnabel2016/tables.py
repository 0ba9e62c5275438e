"""Markdown and pictures of the semi-synthetic parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from _study import check_lines, save_picture

LABELS = {"ips": "IPS", "snips": "SNIPS", "naive": "Naive"}
COLOURS = {"IPS": "C0", "SNIPS": "C1", "Naive": "C3", "MF-IPS": "C0", "MF-Naive": "C3", "MF-IPS-NB": "C2"}


def grid(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdicts(result: dict[str, Any]) -> str:
    """Each check, PASS or short."""
    checks = result["checks"]
    return "\n".join([*check_lines(checks), f"\n{sum(checks.values())} of {len(checks)} checks pass."])


def heading(title: str, result: dict[str, Any]) -> str:
    shape, form = result["shape"], result["completion"]
    since = " since it resumed" if result.get("resumed") else ""
    return (
        f"## {title}\n\n{result['settings']['data']}: {shape[0]} x {shape[1]}, completed with d = {form['rank']}, "
        f"lambda = {form['penalty']:g}, {form['biases']} offsets. {result['seconds']:.0f} CPU s{since}.\n"
    )


def interval(band: dict[str, list[float]], k: int, digits: int = 4) -> str:
    return f"{band['mean'][k]:.{digits}f} [{band['low'][k]:.{digits}f}, {band['high'][k]:.{digits}f}]"


def table1(result: dict[str, Any]) -> str:
    rows = []
    for name, metrics in result["rows"].items():
        for metric, ours in metrics.items():
            told = result["published"][name][metric]
            digits = 3 if metric == "mae" else 2
            rows.append([name, metric, f"{ours['true']:.{digits}f} ({told['true']:.{digits}f})"])
            for e in LABELS:
                a, b = ours[e], told[e]
                rows[-1].append(f"{a[0]:.{digits}f}+-{a[1]:.{digits}f} ({b[0]:.{digits}f}+-{b[1]:.{digits}f})")
    head = ["predictions", "metric", "True (published)", *LABELS.values()]
    text = f"Mean +- standard deviation over {result['draws']} draws of O; the published figures in brackets.\n"
    parts = [heading("Table 1", result), text, grid(head, rows), "", completions(result), "", before(result), ""]
    return "\n".join([*parts, verdicts(result)])


def before(result: dict[str, Any]) -> str:
    """Section 6.2: the completed matrix "gives unrealistically high ratings to almost all movies"."""
    found = result["before_reranking"]
    rows = [[name, *(f"{v:.3f}" for v in row)] for name, row in found.items()]
    high = {name: sum(row[2:5]) for name, row in found.items()}
    text = (
        f"{high['all cells, completed']:.1%} of the completed cells are 3 or more; "
        f"{high['all cells, re-ranked']:.1%} after re-ranking."
    )
    return "\n".join([grid(["ratings", *map(str, range(1, 6)), "mean"], rows), "", text])


def completions(result: dict[str, Any]) -> str:
    names = list(result["rows"])
    told = result["published"]
    rows = [
        ["published", "", *(f"{told[n]['dcg@50']['true']:.2f} / {told[n]['dcg@50']['naive'][0]:.2f}" for n in names)]
    ]
    for found in result["completions"]:
        cells = [f"{found['dcg@50'][n]['true']:.2f} / {found['dcg@50'][n]['naive']:.2f}" for n in names]
        rows.append([found["completion"], str(found["users_with_under_50_ones"]), *cells])
    fits = result["fits"]
    text = (
        "DCG@50, true / Naive (its expectation), under other completions of the same ratings "
        f"({fits['converged']} of {fits['made']} fits converged):\n"
    )
    return text + "\n" + grid(["completion", "users with < 50 ones", *names], rows)


def _errors(result: dict[str, Any], title: str, axis: str, points: list[str]) -> str:
    parts = [heading(title, result)]
    for metric in ("mse", "dcg@50"):
        rows = [
            [
                x, *(interval(result[f"{metric}/{e}"]["rmse"], k, 4 if metric == "mse" else 2) for e in LABELS),
                interval(result[f"{metric}/snips to ips"], k, 2),
            ]
            for k, x in enumerate(points)
        ]  # fmt: skip
        text = f"RMSE of the estimated {metric}, average of the five matrices, {result['trials']} trials [95 % band]"
        parts += [text, "", grid([axis, *LABELS.values(), "SNIPS / IPS"], rows), ""]
    return "\n".join([*parts, verdicts(result)])


def figure2(result: dict[str, Any]) -> str:
    return _errors(result, "Figure 2: how severe selection harms evaluation", "alpha",
                   [f"{a:g}" for a in result["alphas"]])  # fmt: skip


def figure10(result: dict[str, Any]) -> str:
    sizes = [*map(str, result["sizes"]), "known propensities"]
    return _errors(result, "Figure 10: evaluation with estimated propensities", "MCAR ratings", sizes)


def figure6(result: dict[str, Any]) -> str:
    fits, choosing = result["fits"], result["choosing"]
    known = ["MF-IPS", "MF-Naive"]
    right = [
        [str(n), interval(result["right"], k), penalties(result, f"sample {n}", "MF-IPS-NB")]
        for k, n in enumerate(result["sizes"])
    ]
    redrawn = [[n, interval(result["redrawn"][n], 0), penalties(result, "redrawn", n)] for n in known]
    by_ips = interval(result["by_ips_score"]["MF-Naive"], 0), penalties(result, "by the IPS score", "MF-Naive")
    redrawn.append(["MF-Naive, lambda by the IPS score with the known propensities (first draw)", *by_ips])
    ends = [
        [key, name, f"{gap:.1e}", f"{p['mse'][name][0]:.4f}", f"{p['mse_at_the_end'][name]:.4f}"]
        for key, p in result["points"].items() for name, gap in p["gap"].items()
    ]  # fmt: skip
    grids = [
        [key, name, ", ".join(f"{v}: {score:.4f}" for v, score in choice["scores"].items()), f"{choice['penalty']:g}"]
        for key, p in result["points"].items() if key != "redrawn" for name, choice in p["chosen"][0].items()
    ]  # fmt: skip
    return "\n".join(
        [
            heading("Figure 6: how severe selection, and propensities badly estimated, harm learning", result),
            f"Fits: {fits['made']}, of which {fits['converged']} converged; while lambda was chosen "
            f"{choosing['made']}, of which {choosing['converged']} converged.\n",
            f"Mean squared error over all cells, {result['trials']} draws [95 % t interval]; MF-IPS against MF-Naive "
            "by a paired t-test over draws.\n",
            _learnt(result, known, "left", "paired", "alpha"),
            f"\nMean absolute error over all cells, of models trained for it, {result['mae_trials']} draws:\n",
            _learnt(result, known, "mae", "paired_mae", "mae"),
            "\nMean absolute error of the models trained for MSE:\n",
            grid(["alpha", *known], [
                [f"{a:g}", *(interval(result["left_mae"][n], k) for n in known)]
                for k, a in enumerate(result["alphas"])
            ]),
            f"\nalpha = {result['alpha']:g}, propensities from ever smaller MCAR samples, {result['right_trials']} "
            "draws:\n",
            grid(["MCAR ratings", "MF-IPS-NB", "lambda"], right),
            f"\nalpha = {result['alpha']:g}, lambda chosen otherwise (MSE): on each of {result['redrawn_trials']} "
            "draws, or by another score:\n",
            grid(["method", "MSE", "lambdas chosen"], redrawn),
            "\nHeld-out score of each lambda on the first draw (4 folds):\n",
            grid(["point", "method", "lambda: score", "chosen"], grids),
            "\nHow far the first draw's fits were from their minimum: the objective above that of the same fit taken "
            "on to a hundredth of the tolerance, as a share, and the MSE of both:\n",
            grid(["point", "method", "objective above", "MSE", "MSE at the end"], ends),
            "",
            verdicts(result),
        ]
    )  # fmt: skip


def penalties(result: dict[str, Any], key: str, name: str) -> str:
    """The lambdas chosen for a method at a point."""
    return ", ".join(f"{v:g}" for v in sorted({c[name]["penalty"] for c in result["points"][key]["chosen"]}))


def _learnt(result: dict[str, Any], methods: list[str], curve: str, tests: str, key: str) -> str:
    """Errors, MF-Naive's ratio to MF-IPS with its paired test, and lambdas, one row per alpha."""
    rows = []
    for k, alpha in enumerate(result["alphas"]):
        test = result[tests][k]
        rows.append([
            f"{alpha:g}", *(interval(result[curve][n], k) for n in methods), f"{test['ratio']:.2f}",
            f"{test['t']:.1f} ({test['p']:.0e})", *(penalties(result, f"{key} {alpha:g}", n) for n in methods),
        ])  # fmt: skip
    return grid(["alpha", *methods, "MF-Naive / MF-IPS", "t (p)", *(f"lambda, {n}" for n in methods)], rows)


TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "table1": table1, "figure2": figure2, "figure6": figure6, "figure10": figure10,
}  # fmt: skip


def draw(part: str, result: dict[str, Any], path: Path) -> None:
    """The part's picture, where it is a figure."""
    if part not in PICTURES:
        return
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    PICTURES[part](axes, result)
    save_picture(figure, path)
    plt.close(figure)


def _draw_figure2(axes: Any, result: dict[str, Any]) -> None:
    for axis, metric in zip(axes, ("mse", "dcg@50"), strict=True):
        for e, label in LABELS.items():
            dashed = {"ls": "--", "marker": "s"} if e == "naive" else {}
            _curve(axis, result["alphas"], result[f"{metric}/{e}"]["rmse"], label, **dashed)
        _severity(axis, result["alphas"])
        axis.set(yscale="log", ylabel=f"RMSE of the estimated {metric.upper()}", title=f"{metric.upper()}")
        axis.legend()


def _draw_figure10(axes: Any, result: dict[str, Any]) -> None:
    sizes = result["sizes"]
    for axis, metric in zip(axes, ("mse", "dcg@50"), strict=True):
        curves = {e: result[f"{metric}/{e}"]["rmse"] for e in LABELS}
        for e, style in (("ips", {}), ("snips", {"ls": "--", "marker": "x"})):
            _curve(axis, sizes, curves[e], f"{LABELS[e]}-NB (estimated)", COLOURS[LABELS[e]], **style)
            axis.axhline(curves[e]["mean"][-1], color=COLOURS[LABELS[e]], ls=":", label=f"{LABELS[e]}, known")
        axis.axhline(curves["naive"]["mean"][-1], color=COLOURS["Naive"], ls="--", label="Naive")
        axis.set(xscale="log", yscale="log", xlabel="MCAR ratings behind the estimated propensities")
        axis.set(ylabel=f"RMSE of the estimated {metric.upper()}", title=metric.upper())
        axis.legend(fontsize="small", loc="upper right", bbox_to_anchor=(1.0, 0.93))


def _draw_figure6(axes: Any, result: dict[str, Any]) -> None:
    k = result["alphas"].index(result["alpha"])
    for name, style in (("MF-IPS", {}), ("MF-Naive", {"ls": "--", "marker": "s"})):
        _curve(axes[0], result["alphas"], result["left"][name], name, **style)
    _severity(axes[0], result["alphas"])
    _curve(axes[1], result["sizes"], result["right"], "MF-IPS-NB (estimated)", COLOURS["MF-IPS-NB"])
    for name, label, ls in (("MF-Naive", "MF-Naive", "--"), ("MF-IPS", "MF-IPS, known", ":")):
        band, colour = result["left"][name], COLOURS[name]
        axes[1].axhline(band["mean"][k], color=colour, ls=ls, label=label)
        axes[1].axhspan(band["low"][k], band["high"][k], color=colour, alpha=0.2)
    axes[1].set(xscale="log", xlabel="MCAR ratings behind the estimated propensities")
    for axis, text in zip(axes, ("propensities known", f"alpha = {result['alpha']:g}"), strict=True):
        axis.set(ylabel="test MSE over all cells", title=text, yscale="log" if axis is axes[0] else "linear")
        axis.legend()
    axes[1].set_ylim(bottom=0)


PICTURES: dict[str, Callable[[Any, dict[str, Any]], None]] = {
    "figure2": _draw_figure2, "figure6": _draw_figure6, "figure10": _draw_figure10,
}  # fmt: skip


def _severity(axis: Any, alphas: list[float]) -> None:
    """Alpha on a log axis, from random (left) to severe (right), each value named."""
    axis.set(xscale="log", xlabel="alpha (1: at random; to the right: only 4 and 5 revealed)")
    axis.set_xticks(alphas, [f"{a:g}" for a in alphas])
    axis.minorticks_off()
    axis.invert_xaxis()


def _curve(axis: Any, x: list[float], band: dict[str, Any], name: str, colour: str = "", **style: Any) -> None:
    """A curve and its band; the band may hold further points, of other cases."""
    n = len(x)
    (line,) = axis.plot(x, band["mean"][:n], label=name, color=colour or COLOURS[name], **{"marker": "o", **style})
    axis.fill_between(x, band["low"][:n], band["high"][:n], color=line.get_color(), alpha=0.25)

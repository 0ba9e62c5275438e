"""Markdown and pictures of the semi-synthetic parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from _study import save_picture
from learning import BOTH, is_constant
from parts import table, verdicts

LABELS = {"ips": "IPS", "snips": "SNIPS", "naive": "Naive"}
COLOURS = ("C0", "C1", "C3")


def grid(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join(table(head, rows))


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
            reported = result["published"][name][metric]
            digits = 3 if metric == "mae" else 2
            rows.append([name, metric, f"{ours['true']:.{digits}f} ({reported['true']:.{digits}f})"])
            for e in LABELS:
                a, b = ours[e], reported[e]
                rows[-1].append(f"{a[0]:.{digits}f}+-{a[1]:.{digits}f} ({b[0]:.{digits}f}+-{b[1]:.{digits}f})")
    head = ["predictions", "metric", "True (published)", *LABELS.values()]
    text = f"Mean +- standard deviation over {result['draws']} draws of O; the published figures in brackets.\n"
    parts = [heading("Table 1", result), text, grid(head, rows), "", completions(result), "", before(result), ""]
    return "\n".join([*parts, "\n".join(verdicts(result["checks"]))])


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
    paper = result["published"]
    rows = [
        [
            "published",
            "",
            *(f"{paper[n]['dcg@50']['true']:.2f} / {paper[n]['dcg@50']['naive'][0]:.2f}" for n in names),
        ]
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
    return "\n".join([*parts, "\n".join(verdicts(result["checks"]))])


def figure2(result: dict[str, Any]) -> str:
    return _errors(result, "Figure 2: how severe selection harms evaluation", "alpha",
                   [f"{a:g}" for a in result["alphas"]])  # fmt: skip


def figure10(result: dict[str, Any]) -> str:
    sizes = [*map(str, result["sizes"]), "known propensities"]
    return _errors(result, "Figure 10: evaluation with estimated propensities", "MCAR ratings", sizes)


def figure6(result: dict[str, Any]) -> str:
    known = list(BOTH)
    right = [
        [str(n), interval(result["right"], k), penalties(result, f"sample {n}", "MF-IPS-NB")]
        for k, n in enumerate(result["sizes"])
    ]
    redrawn = [[n, interval(result["redrawn"][n], 0), penalties(result, "redrawn", n)] for n in known]
    return "\n".join(
        [
            heading("Figure 6: how severe selection, and propensities badly estimated, harm learning", result),
            "MF-Naive's lambda is by a score that weights held-out ratings alike; by the paper's it is in the next "
            "section. A model whose lambda stands in for infinity is one constant number, and is marked so.\n",
            counted(result),
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
            f"\nalpha = {result['alpha']:g}, lambda chosen on each of {result['redrawn_trials']} draws (MSE):\n",
            grid(["method", "MSE", "lambdas chosen"], redrawn),
            *chosen_and_ended(result),
            "\n".join(verdicts(result["checks"])),
        ]
    )  # fmt: skip


def figure6_by_ips(result: dict[str, Any]) -> str:
    parts = [
        heading("Figure 6, left, with every lambda by the IPS score", result),
        'Lambda is chosen "using the IPS estimator" for MF-Naive as well, as section 6.1 says of all experiments. A '
        "model whose lambda stands in for infinity is one constant number, and is marked so.\n",
        counted(result),
    ]
    for loss in ("mse", "mae"):
        if loss not in result:
            continue
        found, error = result[loss], {"mse": "squared", "mae": "absolute"}[loss]
        rows = [
            [
                f"{alpha:g}", *(interval(found["curves"][name], k) for name in BOTH),
                f"{test['ratio']:.2f} [{test['low']:.2f}, {test['high']:.2f}]", f"{test['t']:.1f} ({test['p']:.0e})",
                *(reached(result, found["keys"][k], name) for name in BOTH),
            ]
            for k, (alpha, test) in enumerate(zip(found["alphas"], found["paired"], strict=True))
        ]  # fmt: skip
        head = ["alpha", *BOTH, "MF-Naive / MF-IPS", "t (p)", *(f"{name}: lambda, predictions" for name in BOTH)]
        text = f"Mean {error} error over all cells, of models trained for it, {found['trials']} draws [95 % interval]:"
        parts += [text, "", grid(head, rows), ""]
    return "\n".join([*parts, *chosen_and_ended(result), "\n".join(verdicts(result["checks"]))])


def reached(result: dict[str, Any], key: str, name: str) -> str:
    """The lambda chosen at a point, and over what the first draw's predictions reach."""
    low, high = result["range"][key][name]
    return f"{lambda_of(result, key, name)}; {low:.2f} to {high:.2f}"


def lambda_of(result: dict[str, Any], key: str, name: str) -> str:
    """The lambda chosen at a point, and whether it stands in for infinity."""
    choice = result["points"][key]["chosen"][0][name]
    return f"{choice['penalty']:g}{': one constant' if is_constant(choice) else ''}"


def counted(result: dict[str, Any]) -> str:
    """How many fits were made and how many of them converged."""
    fits, choosing = result["fits"], result["choosing"]
    return (
        f"Fits: {fits['made']}, of which {fits['converged']} converged; while lambda was chosen "
        f"{choosing['made']}, of which {choosing['converged']} converged.\n"
    )


def chosen_and_ended(result: dict[str, Any]) -> list[str]:
    """The scores behind each lambda, and how far the first draw's fits were from their minimum."""
    once = {key: p for key, p in result["points"].items() if p["gap"]}
    grids = [
        [key, name, ", ".join(f"{v}: {score:.4f}" for v, score in choice["scores"].items()), f"{choice['penalty']:g}"]
        for key, p in once.items()
        for name, choice in p["chosen"][0].items()
    ]
    ends = [
        [key, name, f"{gap:.1e}", f"{p['mse'][name][0]:.4f}", f"{p['mse_at_the_end'][name]:.4f}"]
        for key, p in once.items()
        for name, gap in p["gap"].items()
    ]
    return [
        "\nHeld-out score of each lambda on the first draw (4 folds):\n",
        grid(["point", "method", "lambda: score", "chosen"], grids),
        "\nHow far the first draw's fits were from their minimum: the objective above that of the same fit taken "
        "on to a hundredth of the tolerance, as a share, and the MSE of both:\n",
        grid(["point", "method", "objective above", "MSE", "MSE at the end"], ends),
        "",
    ]


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
            f"{test['t']:.1f} ({test['p']:.0e})", *(lambda_of(result, f"{key} {alpha:g}", n) for n in methods),
        ])  # fmt: skip
    return grid(["alpha", *methods, "MF-Naive / MF-IPS", "t (p)", *(f"lambda, {n}" for n in methods)], rows)


TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "table1": table1, "figure2": figure2, "figure6": figure6, "figure6_by_ips": figure6_by_ips, "figure10": figure10,
}  # fmt: skip


def draw(result: dict[str, Any], path: Path) -> None:
    """The picture of Figure 2."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
    for axis, metric in zip(axes, ("mse", "dcg@50"), strict=True):
        for (e, label), colour in zip(LABELS.items(), COLOURS, strict=True):
            band, style = (
                result[f"{metric}/{e}"]["rmse"],
                {"ls": "--", "marker": "s"} if e == "naive" else {"marker": "o"},
            )
            axis.plot(result["alphas"], band["mean"], label=label, color=colour, **style)
            axis.fill_between(result["alphas"], band["low"], band["high"], color=colour, alpha=0.25)
        axis.set(xscale="log", xlabel="alpha (1: at random; to the right: only 4 and 5 revealed)")
        axis.set_xticks(result["alphas"], [f"{a:g}" for a in result["alphas"]])
        axis.minorticks_off()
        axis.invert_xaxis()
        axis.set(yscale="log", ylabel=f"RMSE of the estimated {metric.upper()}", title=f"{metric.upper()}")
        axis.legend()
    save_picture(figure, path)
    plt.close(figure)

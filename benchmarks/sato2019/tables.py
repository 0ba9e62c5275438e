"""Markdown and pictures of the study."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from learn import OF_THE_PAPER

LABELS = {
    "random": "Random", "popularity": "Popularity", "rmf": "RMF", "bpr": "BPR",
    "rmf-accuracy": "RMF (tuned on precision)", "bpr-accuracy": "BPR (tuned on precision)", "recresp": "RecResp",
    "cause": "CausE", "cause-prod": "CausE-Prod", "ulrmf": "ULRMF", "ulbpr": "ULBPR", "dlce": "DLCE (true e)",
    "cubn": "CUBN", "cibn": "CIBN", "oracle": "Oracle",
}  # fmt: skip
ALL = "uplift_snips_zero"
HALF = "uplift_snips_half"
OTHER = "uplift_snips_user"
WORLDS = {
    "dunnhumby-original": "Dunnhumby, original",
    "dunnhumby-personalised": "Dunnhumby, personalised",
    "ml100k": "ML-100K",
}


def grid(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def verdicts(checks: dict[str, bool]) -> str:
    """Each check, PASS or short."""
    lines = [f"{'PASS ' if ok else 'short'} {text}" for text, ok in checks.items()]
    return "\n".join(["```", *lines, "```", f"\n{sum(checks.values())} of {len(checks)} checks pass."])


def cell(row: dict[str, list[float]], k: int, digits: int) -> str:
    value = f"{row['mean'][k]:.{digits}f}"
    return value + (f" ±{row['high'][k] - row['mean'][k]:.{digits}f}" if "high" in row else "")


def semisynthetic(result: dict[str, Any]) -> str:
    parts = ["# Semi-synthetic worlds", ""]
    told = result["published"]["semisynthetic"]
    for name, found in result["worlds"].items():
        world, metrics = found["world"], found["metrics"]
        parts += [
            f"## {WORLDS[name]}", "",
            f"{world['users']} users, {world['items']} items, training logs of {world['periods']} periods; mean Y "
            f"{world['mean Y']:.4f}, mean Z {world['mean Z']:.4f}, mean tau {world['mean tau']:.4f} "
            f"({world['mean tau of what is bought']:.4f} over what is bought). Mean over seeds of the log "
            "and the training, ± half of the 95 % interval.", "",
        ]  # fmt: skip
        rows = []
        for method in LABELS:
            if method not in found["rows"]:
                continue
            row = found["rows"][method]
            known = told[name].get(method)
            published = "" if known is None else " / ".join("-" if v is None else f"{v:g}" for v in known)
            values = [cell(row, k, 4 if k < 2 else 3) for k in range(len(metrics))]
            rows.append([LABELS[method], *values, published])
        parts += [grid(["method", *metrics, "published (PropCare)"], rows), "", chosen(found["chosen"]), ""]
    return "\n".join([*parts, verdicts(result["checks"])])


def chosen(picks: dict[str, Any]) -> str:
    rows = []
    for method, pick in picks.items():
        settings = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in pick["settings"].items())
        updates = "" if pick["updates"] is None else f"{pick['updates']:,}"
        rows.append([name_of(method), settings, updates, str(pick["fits"]), f"{pick['seconds']:.0f}"])
    return grid(["chosen", "settings", "updates", "fits tried", "CPU s"], rows)


def illustration(result: dict[str, Any]) -> str:
    head = ["list", "total uplift", "precision", "precision of the recommended", "Uplift@10"]
    rows = [
        [name, f"{r['total']:g}", *(f"{r[m]:.1f}" for m in ("precision", "precision_recommended", "uplift"))]
        for name, r in result["rows"].items()
    ]
    return "\n".join(["# Table 1: four lists of ten", "", grid(head, rows), "", verdicts(result["checks"])])


def equations(result: dict[str, Any]) -> str:
    names = ("NR-NP", "TU", "TU in NR-NP", "TU given NR-NP", "TU given R-P")
    rows = [[world, *(f"{row[name]:.4f}" for name in names)] for world, row in result["worlds"].items()]
    head = ["world", "share of NR-NP", "of TU", "of TU and NR-NP", "of TU in NR-NP", "of TU in R-P"]
    return "\n".join(["# Equations 7 and 8: shares of the items", "", grid(head, rows), "", verdicts(result["checks"])])


def statistics(result: dict[str, Any]) -> str:
    names = list(result["logs"])
    keys = list(result["logs"][names[0]]["sizes"])

    def number(value: float) -> str:
        return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"

    rows = [[key, *(number(result["logs"][n]["sizes"][key]) for n in names)] for key in keys]
    notes = [f"- {n}: {note}" for n in names for note in result["logs"][n]["notes"]]
    return "\n".join(["# Table 3: the logs after the paper's filters", "", grid(["", *names], rows), "", *notes])


TITLES = {"uplift": "Uplift", "uplift_snips": "UpliftSNIPS", "uplift_ips": "IPS form", "precision": "Precision"}


def log(result: dict[str, Any]) -> str:
    rows, lengths = result["rows"], [str(n) for n in result["lengths"]]
    parts = ["# Table 4: the comparison on the test periods", ""]
    parts.append(
        "Mean over trainings, ± half of the 95 % interval by user. Largest of the paper's seven methods in bold. "
        "Nothing here is the truth: a random list causes what the average item does, and what Random scores is the "
        "size of the confounding."
    )
    for metric, title in TITLES.items():
        best = {n: max(rows[m]["estimates"][n][metric][0] for m in OF_THE_PAPER if m in rows) for n in lengths}
        lines = []
        for method, row in rows.items():
            cells = []
            for n in lengths:
                value, half = row["estimates"][n][metric]
                text = f"{value:.4f} ±{half:.4f}"
                cells.append(f"**{text}**" if value == best[n] and method in OF_THE_PAPER else text)
            lines.append([name_of(method), *cells])
        parts += ["", grid([f"{title}@N", *(f"N = {n}" for n in lengths)], lines)]
    n = lengths[0]
    left = []
    for m, row in rows.items():
        of = [row["estimates"][k] for k in lengths]
        cells = [f"{o[ALL]:.4f} / {o[HALF]:.4f}" for o in of]
        left.append([name_of(m), *(left_out(o) for o in of), *cells])
    parts += [
        "",
        "User-periods without an Uplift: no recommended item in the list, or no other (the paper assumes that there "
        "are both, and does not say what else). Beside them UpliftSNIPS@N where they count 0 / where the half that is "
        "empty counts 0 and the other stays.",
        "",
    ]
    head = ["method", *(f"left out, N = {k}" for k in lengths), *(f"0 / half, N = {k}" for k in lengths)]
    parts += [grid(head, left)]
    if OTHER in rows["random"]["estimates"][lengths[0]]:
        lines = [[name_of(m), *(f"{row['estimates'][k][OTHER]:.4f}" for k in lengths)] for m, row in rows.items()]
        parts += ["", "UpliftSNIPS@N with propensities from the user's own numbers instead of the item's:", ""]
        parts += [grid(["method", *(f"N = {k}" for k in lengths)], lines)]
    lines = [[k, f"{a:.3f}", f"{b:.3f}"] for k, (a, b) in result["calibration"].items()]
    parts += [
        "",
        "The estimated propensities on the test periods: with the true ones both means are 1.",
        "",
    ]
    parts += [grid(["cells", "mean Z/e", "mean (1 - Z)/(1 - e)"], lines)]
    for by, deciles in result["deciles"].items():
        parts += ["", f"By decile of e ({by}): mean e, share recommended, mean Z/e.", ""]
        parts += [grid([str(k + 1) for k in range(10)], [[f"{d[j]:.3f}" for d in deciles] for j in range(3)])]
    parts += ["", f"# Table 5: observed classes of the {n} listed items, test periods", ""]
    head = ["method", *result["classes"], "R-P + R-NP", "popularity", "distinct items"]
    lines = [
        [
            name_of(m), *(f"{c:.4f}" for c in r["classes"]), f"{r['classes'][0] + r['classes'][1]:.4f}",
            f"{r['popularity']:.2f}", f"{r['distinct']:.0f}",
        ]
        for m, r in rows.items()
    ]  # fmt: skip
    parts += [grid(head, lines), "", "Popularity: mean purchases of the listed items, in those of the mean item."]
    parts += ["", f"# Table 6: often recommended items (share of lists of {n}; rank by purchases)", ""]
    often = {m: rows[m]["often"] for m in ("rmf", "ulrmf", "bpr", "ulbpr")}
    lines = [[f"{v[k][0].lower()} ({v[k][1]:.2f}; {v[k][2]})" for v in often.values()] for k in range(10)]
    parts += [grid([name_of(m) for m in often], lines)]
    parts += ["", "# Figure 3: alpha, Uplift@N on the validation periods", ""]
    alphas = result["alphas"]
    head = ["alpha", *(f"{a:g}" for a, _ in alphas["ulrmf"])]
    parts += [grid(head, [[name_of(m), *(f"{v:.4f}" for _, v in pairs)] for m, pairs in alphas.items()])]
    picks = {**result["chosen"], **result["chosen_otherwise"]}
    parts += ["", "# Chosen on the validation periods", "", chosen(picks), "", verdicts(result["checks"])]
    return "\n".join(parts)


def left_out(of: dict[str, Any]) -> str:
    """Share of user-periods without an estimate, and periods in which nobody has one."""
    empty = of["periods_without"]
    return f"{100 * of['left_out']:.1f} %" + (f" ({empty:g} periods wholly)" if empty else "")


def density(result: dict[str, Any]) -> str:
    parts = ["# Figure 2 (b): density of items", ""]
    for name, log in result["logs"].items():
        head = ["items", *(f"{name_of(m)} {t}@{log['n']}" for t in ("Uplift", "UpliftSNIPS") for m in ("bpr", "ulbpr"))]
        rows = [[least, *pair_cells(point, str(point["items"]))] for least, point in log["points"].items()]
        parts += [f"## {name}", "", grid(["periods bought", *head], rows), ""]
    return "\n".join([*parts, verdicts(result["checks"])])


def pair_cells(point: dict[str, Any], first: str) -> list[str]:
    """Uplift@N of BPR and ULBPR with half of the interval by user, and UpliftSNIPS@N."""
    cells = [f"{v:.4f} ±{(h - low) / 2:.4f}" for m in ("bpr", "ulbpr") for v, low, h in [point[m]["uplift"]]]
    return [first, *cells, *(f"{point[m]['uplift_snips'][0]:.4f}" for m in ("bpr", "ulbpr"))]


def product(result: dict[str, Any]) -> str:
    told = result["published"]["product_level"]
    head = ["training", *(f"{m} {t}@10" for t in ("Uplift", "UpliftSNIPS") for m in ("BPR", "ULBPR"))]
    rows = [pair_cells(point, seed) for seed, point in result["trainings"].items()]
    rows.append(["published", f"{told['bpr']:.4f}", f"{told['ulbpr']:.4f}", "", ""])
    return "\n".join(
        [
            "# Dunnhumby, an item being a product", "",
            f"{result['users']:,} users, {result['items']:,} items; published: {told['items']:,} items.", "",
            grid(head, rows), "", chosen(result["chosen"]), "", verdicts(result["checks"]),
        ]
    )  # fmt: skip


def name_of(method: str) -> str:
    first, _, rest = method.partition(", ")
    return LABELS[first].split(" (")[0] + (f", {rest}" if rest else "")


TEXTS = {
    "illustration": illustration, "equations": equations, "statistics": statistics, "semisynthetic": semisynthetic,
    "dunnhumby": log, "tafeng": log, "density": density, "product": product,
}  # fmt: skip


def draw(part: str, result: dict[str, Any], out: Path) -> None:
    """The part's pictures."""
    if part not in PICTURES:
        return
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure = PICTURES[part](result, pyplot)
    figure.tight_layout()
    figure.savefig(out / f"{part}.png", dpi=110)
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
    "dunnhumby": draw_log, "tafeng": draw_log, "semisynthetic": draw_semisynthetic, "density": draw_density,
}  # fmt: skip

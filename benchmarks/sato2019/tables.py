"""What the study writes: Markdown of each part's tables, results.json and the picture of a log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from _study import read, rounded, save_picture, table, verdicts, write_text
from analysis import OURS, checks, grid_edges, product_checks
from argument import checks as equation_checks
from learn import NEIGHBOURS, OF_THE_PAPER

from recsim_mnar.purchases.uplift import EMPTY

LABELS = {
    "random": "Random", "popularity": "Popularity", "rmf": "RMF", "bpr": "BPR",
    "rmf-accuracy": "RMF (tuned on precision)", "bpr-accuracy": "BPR (tuned on precision)", "recresp": "RecResp",
    "cause": "CausE", "cause-prod": "CausE-Prod", "ulrmf": "ULRMF", "ulbpr": "ULBPR", "dlce": "DLCE (true e)",
    "cubn": "CUBN", "cibn": "CIBN", "oracle": "Oracle",
}  # fmt: skip
ITEMS = {"dunnhumby": "sub-categories", "category": "categories"}  # what an item of Dunnhumby is
COUNTING = {"leave_out": "left out", "zero": "count 0", "half": "an empty half counts 0"}
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
    return "\n".join(table(head, rows))


def cell(row: dict[str, list[float]], k: int, digits: int) -> str:
    value = f"{row['mean'][k]:.{digits}f}"
    return value + (f" ±{row['high'][k] - row['mean'][k]:.{digits}f}" if "high" in row else "")


def semisynthetic(result: dict[str, Any]) -> str:
    parts = ["# Semi-synthetic worlds", ""]
    reported = result["published"]["semisynthetic"]
    for name, found in result["worlds"].items():
        world, metrics = found["world"], found["metrics"]
        parts += [
            f"## {WORLDS[name]}", "",
            f"{world['users']} users, {world['items']} items, "
            + plural(f"training logs of {world['periods']} periods; mean Y ") +
            f"{world['mean Y']:.4f}, mean Z {world['mean Z']:.4f}, mean tau {world['mean tau']:.4f} "
            f"({world['mean tau of what is bought']:.4f} over what is bought). Mean over seeds of the log "
            "and the training, ± half of the 95 % interval.", "",
        ]  # fmt: skip
        rows = []
        for method in LABELS:
            if method not in found["rows"]:
                continue
            row = found["rows"][method]
            known = reported[name].get(method)
            published = "" if known is None else " / ".join("-" if v is None else f"{v:g}" for v in known)
            values = [cell(row, k, 4 if k < 2 else 3) for k in range(len(metrics))]
            rows.append([LABELS[method], *values, published])
        parts += [grid(["method", *metrics, "published (PropCare)"], rows), ""]
        parts += [chosen(found["chosen"], result["settings"]), ""]
    return "\n".join([*parts, *verdicts(result["checks"])])


def chosen(picks: dict[str, Any], settings: dict[str, Any]) -> str:
    """What was chosen, and which settings stand at the edge of what was searched."""
    rows = []
    for method, pick in picks.items():
        text = ", ".join(f"{k} {v:g}" if isinstance(v, float) else f"{k} {v}" for k, v in pick["settings"].items())
        updates = "" if pick["updates"] is None else f"{pick['updates']:,}"
        learner = pick.get("method", method).removesuffix("-accuracy")
        rows.append([name_of(method), text, updates, str(pick["fits"]), edges_of(pick, learner, settings)])
    return grid(["chosen", "settings", "updates", "fits tried", "at the edge of the search"], rows)


def edges_of(pick: dict[str, Any], learner: str, settings: dict[str, Any]) -> str:
    """What of a choice stands at the edge of what was searched, or a dash."""
    shared = {} if learner in NEIGHBOURS else settings["stages"]
    updates = settings["training"]["updates"]
    return ", ".join(grid_edges(pick, {**shared, **settings["own"].get(learner, {})}, updates)) or "-"


def illustration(result: dict[str, Any]) -> str:
    head = ["list", "total uplift", "precision", "precision of the recommended", "Uplift@10"]
    rows = [
        [name, f"{r['total']:g}", *(f"{r[m]:.1f}" for m in ("precision", "precision_recommended", "uplift"))]
        for name, r in result["rows"].items()
    ]
    title = "# Table 1: four lists of ten, made here with the properties that the paper names"
    return "\n".join([title, "", grid(head, rows), "", *verdicts(result["checks"])])


def equations(result: dict[str, Any]) -> str:
    names = ("NR-NP", "TU", "TD", "TU in NR-NP", "TU given NR-NP", "TU given R-P")
    rows = [
        [f"{world}, {coupling}", effect, *(f"{row[name]:.4f}" for name in names)]
        for world, couplings in result["worlds"].items()
        for coupling, effects in couplings.items()
        for effect, row in effects.items()
    ]
    head = ["world, coupling", "effect", "NR-NP", "TU", "TD", "TU and NR-NP", "of TU in NR-NP", "of TU in R-P"]
    note = (
        "Equation 8 is judged where it fails without any effect, P(Y^T) := P(Y^C). Equation 7 says that something is "
        "small: it holds where nothing is caused, as it should."
    )
    return "\n".join(
        [
            "# Equations 7 and 8: shares of the items",
            "",
            grid(head, rows),
            "",
            note,
            "",
            *verdicts(equation_checks(result["worlds"])),
        ]
    )


def no_effect(result: dict[str, Any]) -> str:
    lines = [
        "# The checks of a log where recommendations cause nothing",
        "",
        f"Of {result['logs']} made-up logs those that pass: with an effect, and without, P(Y^T) := P(Y^C).",
    ]
    for deployment, rows in result["claims"].items():
        cells = [[claim, f"{there}", f"{nothing}"] for claim, there, nothing in rows]
        lines += ["", f"Deployed recommender: {deployment}.", "", grid(["check", "with an effect", "without"], cells)]
    return "\n".join(lines)


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
        "are both, and does not say what else). Next to them UpliftSNIPS@N where they count 0 / where the half that is "
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
    parts += ["", "# Chosen on the validation periods", "", chosen(picks, result["settings"]), ""]
    parts += [fits_of(result), "", *verdicts(checks(result))]
    return "\n".join(parts)


def fits_of(result: dict[str, Any]) -> str:
    """How many fits a log took, and which of them did not go through."""
    if "search_fits" not in result:
        return ""
    text = f"{result['search_fits']} fits in the search and its curves, {result['test_fits']} in the test; "
    return text + f"{result['diverged']} of the search diverged, {result['early']} are best at their first look."


def cells(result: dict[str, Any], empty: str) -> str:
    """The six cells as differences of ULRMF and ULBPR from the best other, with intervals over users and trainings."""
    rows = []
    for key, cell in result["cells"].items():
        metric, counting, n = key.split("/")
        if counting != empty:
            continue

        def value(m: str, cell: Any = cell, n: str = n) -> str:
            return f"{cell['means'][m]:.4f} ({100 * result['rows'][m]['estimates'][n]['left_out']:.0f} %)"

        ours = [f"{value(m)}, {cell[m][0]:+.4f} [{cell[m][1]:+.4f}, {cell[m][2]:+.4f}]" for m in OURS]
        other = f"{name_of(cell['other'])} {value(cell['other'])}"
        rows.append([f"{TITLES[metric]}@{n}", other, *ours, standing(cell)])
    head = ["cell", "best other (left out)", *(f"{name_of(m)} (left out), difference" for m in OURS), "ULRMF or ULBPR"]
    return grid(head, rows)


def standing(cell: dict[str, Any]) -> str:
    """Where the better of ULRMF and ULBPR stands: above, or behind, says that an interval excludes 0."""
    if any(cell[m][1] > 0 for m in OURS):
        return "above"
    if max(cell["means"], key=lambda m: cell["means"][m]) in OURS:
        return "best"
    return "behind" if all(cell[m][2] < 0 for m in OURS) else "not best"


def counted(result: dict[str, Any], empty: str) -> tuple[int, int, int]:
    """Cells, those in which ULRMF or ULBPR is the best, and those in which an interval of one is above 0."""
    found = [cell for key, cell in result["cells"].items() if key.split("/")[1] == empty]
    best = sum(max(cell["means"], key=lambda m: cell["means"][m]) in OURS for cell in found)
    return len(found), best, sum(any(cell[m][1] > 0 for m in OURS) for cell in found)


def items(results: dict[str, Any]) -> str:
    """Dunnhumby under both readings of "item", next to each other."""
    lines = ["# Dunnhumby: what an item is", ""]
    head = ["item", "items", "trainings", "users without an estimate", "best of 6 cells", "by more than the interval"]
    rows = []
    for name, what in ITEMS.items():
        if name not in results:
            continue
        of = results[name]
        for empty in EMPTY:
            n, best, above = counted(of, empty)
            trainings = str(of["rows"]["ulbpr"]["trainings"])
            rows.append([what, str(of["items"]), trainings, COUNTING[empty], f"{best} of {n}", f"{above} of {n}"])
    lines += [grid(head, rows), ""]
    lines += [
        "By more than the interval: of ULRMF or of ULBPR, which are two chances in each cell, for which no interval is "
        "corrected. The best other is chosen by the same values. Lists left out differ between methods, so that two "
        "methods are not judged on quite the same users. The test periods are taken as given.",
        "",
    ]
    for name, what in ITEMS.items():
        if name in results:
            lines += [f"{what.capitalize()}, users without an estimate left out:", ""]
            lines += [cells(results[name], "leave_out"), ""]
    return "\n".join(lines)


def left_out(of: dict[str, Any]) -> str:
    """Share of user-periods without an estimate, and periods in which no user has one, mean over trainings."""
    empty = of["periods_without"]
    more = f" (periods in which no user has one: {empty:g}, mean over trainings)" if empty else ""
    return f"{100 * of['left_out']:.1f} %{more}"


def density(result: dict[str, Any]) -> str:
    parts = ["# Figure 2 (b): density of items", ""]
    for name, log in result["logs"].items():
        head = ["items", *(f"{name_of(m)} {t}@{log['n']}" for t in ("Uplift", "UpliftSNIPS") for m in ("bpr", "ulbpr"))]
        rows = [[least, *pair_cells(point, str(point["items"]))] for least, point in log["points"].items()]
        parts += [f"## {name}", "", grid(["periods bought", *head], rows), ""]
    return "\n".join([*parts, *verdicts(result["checks"])])


def pair_cells(point: dict[str, Any], first: str) -> list[str]:
    """Uplift@N of BPR and ULBPR with half of the interval by user, and UpliftSNIPS@N."""
    cells = [f"{v:.4f} ±{(h - low) / 2:.4f}" for m in ("bpr", "ulbpr") for v, low, h in [point[m]["uplift"]]]
    return [first, *cells, *(f"{point[m]['uplift_snips'][0]:.4f}" for m in ("bpr", "ulbpr"))]


def product(result: dict[str, Any]) -> str:
    reported = result["published"]["product_level"]
    head = ["training", *(f"{m} {t}@10" for t in ("Uplift", "UpliftSNIPS") for m in ("BPR", "ULBPR"))]
    rows = [pair_cells(point, seed) for seed, point in result["trainings"].items()]
    rows.append(["published", f"{reported['bpr']:.4f}", f"{reported['ulbpr']:.4f}", "", ""])
    return "\n".join(
        [
            "# Dunnhumby, an item being a product", "",
            f"{result['users']:,} users, {result['items']:,} items; published: {reported['items']:,} items.", "",
            grid(head, rows), "", *verdicts(product_checks(result["trainings"])),
        ]
    )  # fmt: skip


def name_of(method: str) -> str:
    first, _, rest = method.partition(", ")
    return LABELS[first].removesuffix(" (true e)") + (f", {rest}" if rest else "")


def plural(name: str) -> str:
    """The name of a reading as text: one period is no periods."""
    return name.replace(" 1 periods", " 1 period")


TEXTS = {
    "illustration": illustration, "equations": equations, "statistics": statistics, "semisynthetic": semisynthetic,
    "dunnhumby": log, "category": log, "tafeng": log, "density": density, "product": product,
    "no-effect": no_effect,
}  # fmt: skip


DIGITS = 4  # significant, of what is kept


def kept_results(out: Path) -> dict[str, Any]:
    """The summary of each part that was run."""
    return {part: unpacked(result) for part, result in read(out / "results.json").items()}


def write_results(out: Path, results: dict[str, Any]) -> None:
    """All summaries, under a temporary name that is then renamed."""
    short = {k: rounded(packed(v), DIGITS) for k, v in results.items()}
    parts = [f"{json.dumps(k)}: {json.dumps(v, allow_nan=False, separators=(',', ':'))}" for k, v in short.items()]
    write_text(out / "results.json", "{\n" + ",\n".join(parts) + "\n}\n")


def packed(result: dict[str, Any]) -> dict[str, Any]:
    """A log's estimates by method and length as lists, their names once."""
    if "lengths" not in result:
        return result
    rows = result["rows"]
    columns = list(next(iter(next(iter(rows.values()))["estimates"].values())))
    short = {
        m: {**row, "estimates": {n: [of[k] for k in columns] for n, of in row["estimates"].items()}}
        for m, row in rows.items()
    }
    return {**result, "columns": columns, "rows": short}


def unpacked(result: dict[str, Any]) -> dict[str, Any]:
    """What :func:`packed` was given."""
    if "columns" not in result:
        return result
    columns = result["columns"]
    rows = {
        m: {**row, "estimates": {n: dict(zip(columns, of, strict=True)) for n, of in row["estimates"].items()}}
        for m, row in result["rows"].items()
    }
    return {**{k: v for k, v in result.items() if k != "columns"}, "rows": rows}


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

"""The paper's findings asked of one log: what must hold, with the figures in the text; differences with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from learn import OF_THE_PAPER
from logs import METRICS

from recsim_mnar.estimators.uplift import EMPTY

NEAR = 0.95  # of its best: where a learning curve is taken to have converged
COUNTS = {"zero": "a user without an estimate counts 0", "half": "an empty half counts 0 and the other stays"}


def converged(curve: list[Any]) -> int:
    """Updates after which the running mean of three looks first comes to NEAR of its highest value."""
    values = np.array([value for _, value in curve])
    smooth = np.convolve(values, np.ones(3) / 3, "valid") if len(values) >= 3 else values
    first = int(np.argmax(smooth >= NEAR * smooth.max()))
    return int(curve[min(first + (1 if len(values) >= 3 else 0), len(curve) - 1)][0])


def checks(result: dict[str, Any]) -> dict[str, bool]:
    """What the paper found, asked of this log; figures in the text."""
    rows, lengths, out = result["rows"], [str(n) for n in result["lengths"]], {}

    def of(metric: str, n: str) -> list[tuple[float, str]]:
        return sorted(((rows[m]["estimates"][n][metric][0], m) for m in OF_THE_PAPER), reverse=True)

    middle, first = of("precision", lengths[1]), of("uplift_snips", lengths[0])
    text = ", ".join(f"{m} {v:.4f}" for v, m in middle[:3])
    out[f"rmf and bpr are the best in Precision@{lengths[1]}: {text}"] = {m for _, m in middle[:2]} == {"rmf", "bpr"}
    text = ", ".join(f"{m} {v:.4f}" for v, m in first[:3])
    out[f"ulrmf or ulbpr is the best in UpliftSNIPS@{lengths[0]}: {text}"] = first[0][1] in ("ulrmf", "ulbpr")
    for empty in EMPTY[1:]:
        key = f"uplift_snips_{empty}"
        every = sorted(((rows[m]["estimates"][lengths[0]][key], m) for m in OF_THE_PAPER), reverse=True)
        text = ", ".join(f"{m} {v:.4f}" for v, m in every[:3])
        out[f"the same where {COUNTS[empty]}: {text}"] = every[0][1] in ("ulrmf", "ulbpr")
    out |= headlines(rows, lengths) | tendencies(result)
    for method, than in (("ulrmf", "rmf"), ("ulbpr", "bpr")):
        ours, theirs = rows[method], rows[than]
        for k, name in ((2, "NR-P"), (1, "R-NP")):
            a, b = ours["classes"][k], theirs["classes"][k]
            out[f"{method} recommends fewer {name} items than {than}: {a:.4f} < {b:.4f}"] = a < b
        a, b = ours["popularity"], theirs["popularity"]
        out[f"{method} recommends less popular items than {than}: {a:.2f} < {b:.2f} times the mean item"] = a < b
        a, b = converged(result["curves"][method]), converged(result["curves"][than])
        out[f"{method} converges in fewer updates than {than}: {a:,} < {b:,}"] = a < b
        best = max(result["alphas"][method], key=lambda pair: pair[1])
        out[f"the best alpha of {method} on validation is below 1: {best[0]:g}"] = best[0] < 1
    return out


OURS = ("ulrmf", "ulbpr")


def headline(rows: dict[str, Any], lengths: list[str], empty: str = "leave_out") -> int:
    """In how many cells of Uplift@N and UpliftSNIPS@N ULRMF or ULBPR is the best of the paper's methods."""
    best = 0
    for metric in METRICS[:2]:
        for n in lengths:
            value = {}
            for m in OF_THE_PAPER:
                of = rows[m]["estimates"][n]
                value[m] = of[metric][0] if empty == "leave_out" else of[f"{metric}_{empty}"]
            best += max(value, key=lambda m: value[m]) in OURS
    return best


def headlines(rows: dict[str, Any], lengths: list[str]) -> dict[str, bool]:
    """The paper's main claim, best "for most cases": 4 of 6 cells; under every counting, also with models chosen so."""
    out, n_cells = {}, 2 * len(lengths)
    for empty in EMPTY:
        how = "left out" if empty == "leave_out" else COUNTS[empty]
        text = f"ulrmf or ulbpr best in at least 4 of {n_cells} cells, users without an estimate: {how}"
        best = headline(rows, lengths, empty)
        out[f"{text}: {best}"] = best >= 4 * n_cells / 6
        chosen_so = {m: rows[f"{m}, by {empty}"] for m in OF_THE_PAPER if f"{m}, by {empty}" in rows}
        if chosen_so:
            best = headline({**rows, **chosen_so}, lengths, empty)
            out[f"{text}: {best}; {', '.join(chosen_so)} chosen so"] = best >= 4 * n_cells / 6
    return out


def training_parts(values: Any, user: Any, period: Any) -> tuple[Any, Any]:
    """Mean over users, then over periods, of each training, and what each user adds to its error (delta method).

    Args:
        values: (K, R) uplift of each user-period under each of K trainings; NaN without an estimate.
        user: (R,) of each row.
        period: (R,) of each row.

    Returns:
        (K,) means, and (K, U) influences. A period without any estimate counts for nothing.
    """
    there = ~np.isnan(values)
    known = np.where(there, values, 0.0)
    at = np.unique(period, return_inverse=True)[1]
    means, influences = [], []
    for flags, row in zip(there, known, strict=True):
        counts = np.bincount(at, flags, at.max() + 1)
        own = np.bincount(at, row, at.max() + 1) / np.maximum(counts, 1)
        some = np.flatnonzero(counts)
        share = np.where(flags, (row - own[at]) / np.maximum(counts, 1)[at], 0.0) / max(len(some), 1)
        means.append(own[some].mean() if len(some) else 0.0)
        influences.append(np.bincount(user, share, user.max() + 1))
    return np.array(means), np.array(influences)


def paired_difference(first: tuple[Any, Any], second: tuple[Any, Any], level: float = 0.95) -> list[float]:
    """Difference of two methods' means over trainings, and its interval over users and trainings.

    Both are judged on the same users, whose influences are subtracted; the trainings of the two are independent. The
    variances add up, and Student's quantile has Satterthwaite's degrees of freedom.

    Args:
        first: means and influences of :func:`training_parts`.
        second: the same of the other method.
        level: nominal coverage.

    Returns:
        [difference, low, high].
    """
    from scipy.stats import t

    influence = first[1].mean(axis=0) - second[1].mean(axis=0)
    n_users = np.count_nonzero((first[1] != 0).any(axis=0) | (second[1] != 0).any(axis=0))
    parts = [(float((influence**2).sum()) * n_users / max(n_users - 1, 1), n_users - 1)]
    several = [means for means in (first[0], second[0]) if len(means) > 1]
    parts += [(float(means.var(ddof=1)) / len(means), len(means) - 1) for means in several]
    variance = sum(v for v, _ in parts)
    spread = sum(v**2 / max(k, 1) for v, k in parts)
    degrees = variance**2 / spread if spread > 0 else np.inf
    half = float(t.ppf((1 + level) / 2, degrees)) * variance**0.5
    value = float(first[0].mean() - second[0].mean())
    return [value, value - half, value + half]


def cells_of(values: dict[str, Any], user: Any, period: Any) -> dict[str, Any]:
    """One cell: means of the best of the others and of ULRMF and ULBPR, and these two less the former.

    The best other is chosen by the very values that are compared, which favours it.
    """
    parts = {m: training_parts(v, user, period) for m, v in values.items()}
    means = {m: float(p[0].mean()) for m, p in parts.items()}
    other = max((m for m in means if m not in OURS), key=lambda m: means[m])
    shown = {m: means[m] for m in (other, *OURS)}
    return {"means": shown, "other": other, **{m: paired_difference(parts[m], parts[other]) for m in OURS}}


def grid_edges(pick: dict[str, Any], grids: dict[str, list[Any]], updates: int | None = None) -> list[str]:
    """Settings chosen at the end of what was searched, and a best look that is the last of all ``updates``.

    The ends of alpha, 0 and 1, are its range and no edge.
    """
    settings, out = pick["settings"], []
    for name, values in grids.items():
        numbers = [v for v in values if isinstance(v, int | float)]
        if name == "alpha" or len(numbers) < 2 or name not in settings:
            continue
        if settings[name] in (min(numbers), max(numbers)):
            out.append(f"{name} {settings[name]:g}")
    if updates is not None and pick["updates"] is not None and pick["updates"] >= updates:
        out.append("all updates")
    return out


def tendencies(result: dict[str, Any]) -> dict[str, bool]:
    """Section 5.3's further remarks."""
    from scipy.stats import kendalltau

    rows, curve, out = result["rows"], result["curves"], {}
    step = {m: float(np.abs(np.diff([v for _, v in curve[m]])).mean()) for m in ("ulrmf", "ulbpr")}
    text = f"mean step of its learning curve {step['ulbpr']:.4f} < {step['ulrmf']:.4f}"
    out[f"ulbpr is steadier than ulrmf: {text}"] = step["ulbpr"] < step["ulrmf"]
    for m in ("ulrmf", "ulbpr"):
        values = [v for _, v in curve[m]]
        test = kendalltau(np.arange(len(values)), values)
        at = int(np.argmax(values)) + 1
        text = (
            f"Kendall's tau with updates {test.statistic:+.2f}, p = {test.pvalue:.2f}; best look {at} of {len(values)}"
        )
        out[f"Uplift@N of {m} rises with training: {text}"] = test.statistic > 0 and test.pvalue < 0.05 and at > 1
    for method, than in (("ulrmf", "rmf"), ("ulbpr", "bpr")):
        a, b = (sum(rows[m]["classes"][:2]) for m in (method, than))
        out[f"R-P + R-NP of {method} not higher than of {than}: {a:.4f} <= {b:.4f}"] = a <= b
    for n in (str(k) for k in result["lengths"]):
        pairs = np.array([[rows[m]["estimates"][n][metric][0] for metric in METRICS[:2]] for m in OF_THE_PAPER])
        tau = float(kendalltau(pairs[:, 0], pairs[:, 1]).statistic)
        out[f"Uplift@{n} and UpliftSNIPS@{n} order the seven methods alike: tau {tau:.2f} >= .5"] = tau >= 0.5
    return out

"""The paper's findings asked of one log: what must hold, with the figures in the text; differences with intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
from learn import OF_THE_PAPER
from logs import METRICS

from recsim_mnar.purchases.uplift import EMPTY

NEAR = 0.95  # of its best: where a learning curve is taken to have converged
MOST = 2 / 3  # of the cells, for the paper's "for most cases" and "for the most part"
COUNTS = {
    "leave_out": "users without an estimate left out",
    "zero": "a user without an estimate counts 0",
    "half": "an empty half counts 0 and the other stays",
}


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
    out |= headlines(rows, lengths) | accuracy_below(rows, lengths) | tendencies(result) | variances(rows, lengths)
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
ACCURATE = ("rmf", "bpr")


def value_of(row: dict[str, Any], metric: str, n: str, empty: str) -> float:
    """A method's Uplift@N or UpliftSNIPS@N under a counting of users without an estimate."""
    of = row["estimates"][n]
    return float(of[metric][0] if empty == "leave_out" else of[f"{metric}_{empty}"])


def headline(rows: dict[str, Any], lengths: list[str], empty: str = "leave_out") -> int:
    """In how many cells of Uplift@N and UpliftSNIPS@N ULRMF or ULBPR is the best of the paper's methods."""
    best = 0
    for metric in METRICS[:2]:
        for n in lengths:
            value = {m: value_of(rows[m], metric, n, empty) for m in OF_THE_PAPER}
            best += max(value, key=lambda m: value[m]) in OURS
    return best


def headlines(rows: dict[str, Any], lengths: list[str]) -> dict[str, bool]:
    """The paper's main claim, best "for most cases": MOST of the cells, under every counting, also chosen by it.

    The paper's cases are those of its Table 4, 18 of three logs; here the cells of one log.
    """
    out, n_cells = {}, 2 * len(lengths)
    for empty in EMPTY:
        text = f"ulrmf or ulbpr best in at least {MOST * n_cells:g} of {n_cells} cells, {COUNTS[empty]}"
        best = headline(rows, lengths, empty)
        out[f"{text}: {best}"] = best >= MOST * n_cells
        chosen_so = {m: rows[f"{m}, by {empty}"] for m in OF_THE_PAPER if f"{m}, by {empty}" in rows}
        if chosen_so:
            best = headline({**rows, **chosen_so}, lengths, empty)
            out[f"{text}: {best}; {', '.join(chosen_so)} chosen so"] = best >= MOST * n_cells
    return out


def above_accuracy(rows: dict[str, Any], lengths: list[str], empty: str = "leave_out") -> dict[str, int]:
    """At each N, how many cells (Uplift or UpliftSNIPS of each of the five others) are above both RMF and BPR."""
    found = {}
    for n in lengths:
        above = 0
        for metric in METRICS[:2]:
            value = {m: value_of(rows[m], metric, n, empty) for m in OF_THE_PAPER}
            least = max(value[m] for m in ACCURATE)
            above += sum(value[m] > least for m in OF_THE_PAPER if m not in ACCURATE)
        found[n] = above
    return found


def accuracy_below(rows: dict[str, Any], lengths: list[str]) -> dict[str, bool]:
    """RMF and BPR "for the most part ... perform worse in the uplift metrics than other methods" (section 5.2)."""
    out, each = {}, 2 * (len(OF_THE_PAPER) - len(ACCURATE))
    for empty in EMPTY:
        found = above_accuracy(rows, lengths, empty)
        total, cells = sum(found.values()), each * len(lengths)
        listed = ", ".join(f"{k} of {each} at N = {n}" for n, k in found.items())
        text = f"the five others above rmf and bpr in at least {MOST * cells:g} of {cells} cells, {COUNTS[empty]}"
        out[f"{text}: {total} ({listed})"] = total >= MOST * cells
    return out


def variances(rows: dict[str, Any], lengths: list[str]) -> dict[str, bool]:
    """IPS "is prone to suffer from high variance" and SNIPS remedies it: intervals at the first N."""
    half = {m: [rows[m]["estimates"][lengths[0]][k][1] for k in METRICS[1:3]] for m in OF_THE_PAPER}
    wider = [m for m, (snips, ips) in half.items() if snips >= ips]
    text = f"UpliftSNIPS@{lengths[0]} has a narrower interval than the IPS form for all seven methods"
    listed = f"; wider: {', '.join(f'{m} {half[m][0]:.4f} to {half[m][1]:.4f}' for m in wider)}" if wider else ""
    return {f"{text}: {len(half) - len(wider)} of {len(half)}{listed}": not wider}


def product_checks(trainings: dict[str, Any]) -> dict[str, bool]:
    """ULBPR above BPR in Uplift@10 where an item is a product: the order, and by more than the interval.

    All trainings are judged on the same users, so that their mean has the error of one of them over users. Differences
    by user are not kept: the variances of the two methods add up, as if they were judged on different users.
    """
    values = {m: np.array([of[m]["uplift"] for of in trainings.values()]) for m in ("bpr", "ulbpr")}
    mean = {m: float(v[:, 0].mean()) for m, v in values.items()}
    half = float(np.sqrt(sum(((v[:, 2] - v[:, 1]) / 2).mean() ** 2 for v in values.values())))
    difference = mean["ulbpr"] - mean["bpr"]
    text = f"product level: ulbpr {mean['ulbpr']:.4f} above bpr {mean['bpr']:.4f} in Uplift@10"
    more = f"{text} by more than the interval over users: {difference:+.4f} ±{half:.4f}, {len(trainings)} trainings"
    return {text: difference > 0, more: difference > half}


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

    The influences of a user are subtracted; one whose list has no estimate under a method is judged under the other
    alone, with an influence of 0 where it has none. The trainings of the two are independent, and the test periods are
    taken as given. The variances add up, and Student's quantile has Satterthwaite's degrees of freedom.

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

    The best other is chosen by the very values that are compared, which favours it. That either of ULRMF and ULBPR may
    be above it favours these two: no interval is corrected for the two chances.
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

"""The paper's findings asked of one log: what must hold, with the figures in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from learn import OF_THE_PAPER
from window import METRICS

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
    out |= headline(rows, lengths) | headline_chosen_so(rows, lengths) | tendencies(result)
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


def headline(rows: dict[str, Any], lengths: list[str], counted: Sequence[str] = EMPTY) -> dict[str, bool]:
    """The paper's main claim: ULRMF or ULBPR best in Uplift@N and UpliftSNIPS@N "for most cases": 4 of 6 cells."""
    out = {}
    for empty in counted:
        cells = []
        for metric in METRICS[:2]:
            for n in lengths:
                value = {}
                for m in OF_THE_PAPER:
                    of = rows[m]["estimates"][n]
                    value[m] = of[metric][0] if empty == "leave_out" else of[f"{metric}_{empty}"]
                cells.append(max(value, key=lambda m: value[m]))
        best = sum(m in ("ulrmf", "ulbpr") for m in cells)
        how = "left out" if empty == "leave_out" else COUNTS[empty]
        out[f"ulrmf or ulbpr best in at least 4 of {len(cells)} cells, users without an estimate: {how}: {best}"] = (
            best >= 4 * len(cells) / 6
        )
    return out


def headline_chosen_so(rows: dict[str, Any], lengths: list[str]) -> dict[str, bool]:
    """The same where models were chosen by the counting that judges them, as far as there are such models."""
    out = {}
    for empty in EMPTY[1:]:
        of = {m: rows[f"{m}, by {empty}"] for m in OF_THE_PAPER if f"{m}, by {empty}" in rows}
        if of:
            told = headline({**rows, **of}, lengths, (empty,))
            out |= {f"{text}; {', '.join(of)} chosen so": ok for text, ok in told.items()}
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

"""What an entry's answers are worth: false blocks, false passes, coverage and the interval score."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.stats import binomtest

USABLE, WIDE, MISS, BLOCKS = 0.1, 0.5, 40.0, 0.1


def usable(estimates: np.ndarray, truth: float) -> bool:
    """Whether the better of the columns, ips and snips, has an rmse below .1 of the value."""
    return bool(np.sqrt(((estimates - truth) ** 2).mean(0)).min() < USABLE * abs(truth))


def judged(truth: np.ndarray, fit: np.ndarray, answers: np.ndarray, threshold: float) -> dict[str, np.ndarray]:
    """Per log whether it is accepted, a false block, one without a proof, a false pass, and the interval score.

    The score is a share of the value.

    Args:
        truth: (n,) values of the target.
        fit: (n,) whether the log's setting is usable.
        answers: (n, 4) value, low, high and score; ends that are no numbers are none, and nothing is then accepted.
            A fifth column says where the log is proved wrong.
        threshold: from which score on an entry accepts.
    """
    low = np.where(np.isnan(answers[:, 1]), -np.inf, answers[:, 1])
    high = np.where(np.isnan(answers[:, 2]), np.inf, answers[:, 2])
    accepted = (answers[:, 3] >= threshold) & np.isfinite(answers[:, :3]).all(1)
    miss = np.maximum(np.maximum(low - truth, truth - high), 0.0)
    wide = high - low > WIDE * np.abs(truth)
    score = (high - low + MISS * miss) / np.abs(truth)
    block = fit & (~accepted | wide)
    unproved = block & ~(answers[:, 4:] != 0).any(1)
    return {"accepted": accepted, "block": block, "unproved": unproved, "pass": accepted & (miss > 0), "score": score}


def wilson(hits: int, of: int) -> list[float]:
    """A share and its 95 % interval by Wilson."""
    if not of:
        return [math.nan, 0.0, 1.0]
    low, high = binomtest(int(hits), int(of)).proportion_ci(method="wilson")
    return [hits / of, float(low), float(high)]


def set_threshold(truth: np.ndarray, fit: np.ndarray, answers: np.ndarray, share: float = BLOCKS) -> float | None:
    """The highest score from which on at most a share of usable logs is blocked; None where no threshold does that."""
    for threshold in np.unique(answers[:, 3])[::-1]:
        if judged(truth, fit, answers, threshold)["block"].sum() <= share * fit.sum():
            return float(threshold)
    return None


def figures(truth: np.ndarray, fit: np.ndarray, answers: np.ndarray, threshold: float) -> dict[str, Any]:
    """An entry's figures on some logs, with Wilson's intervals."""
    on = judged(truth, fit, answers, threshold)
    right = int(on["accepted"].sum() - on["pass"].sum())
    return {
        "logs": len(truth),
        "accepted": wilson(on["accepted"].sum(), len(truth)),
        "false_block": wilson(on["block"].sum(), fit.sum()),
        "unproved_block": wilson(on["unproved"].sum(), fit.sum()),
        "false_pass": wilson(on["pass"].sum(), len(truth)),
        "covered_given_accept": wilson(right, on["accepted"].sum()),
        "interval_score": float(on["score"].mean()),
        "interval_score_usable": float(on["score"][fit].mean()) if fit.any() else math.nan,
    }


def compared(one: np.ndarray, other: np.ndarray, entries: int) -> str:
    """Which of two errs less often on the same logs: McNemar's exact test at .05 over the number of other entries."""
    first, second = int((one & ~other).sum()), int((other & ~one).sum())
    if not first + second or binomtest(first, first + second).pvalue * entries >= 0.05:
        return "tie"
    return "worse" if first > second else "better"

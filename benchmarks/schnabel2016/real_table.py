"""Table 2 as numbers, checks and Markdown."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from parts import table, verdicts

from recsim_mnar.datasets.rating_studies import RatingStudy
from recsim_mnar.log.ratings import Ratings

if TYPE_CHECKING:
    from selection import Candidate

PUBLISHED = {
    "coat": {
        "MF-IPS": {"mae": 0.860, "mse": 1.093}, "MF-Naive": {"mae": 0.920, "mse": 1.202},
        "HL-MNAR": {"mae": 0.884, "mse": 1.214}, "HL-MAR": {"mae": 0.892, "mse": 1.220},
    },
    "yahoo": {
        "MF-IPS": {"mae": 0.810, "mse": 0.989}, "MF-Naive": {"mae": 1.154, "mse": 1.891},
        "HL-MNAR": {"mae": 1.177, "mse": 2.175}, "HL-MAR": {"mae": 1.179, "mse": 2.166},
    },
}  # fmt: skip
CTP = "Best published on Yahoo! R3 when the paper appeared, CTP-v: MSE 1.115, MAE 0.770 (quoted by the paper)."
POWERS = {"mse": 2, "mae": 1}
NAIVE_BY_IPS = "MF-Naive, lambda by the IPS score"
OTHER_PROPENSITIES = ("MF-IPS, logistic regression", "MF-IPS, naive Bayes")


@dataclass
class Rows:
    """A method's predictions: of models chosen for MSE, and for MAE.

    Attributes:
        made: by loss, matrices of all starts.
        chosen: by loss, the candidate.
        test: ratings on which it is judged.
    """

    made: dict[str, list[np.ndarray]]
    chosen: dict[str, Candidate]
    test: Ratings
    extra: dict[str, Any] = field(default_factory=dict)


def judged(
    data: RatingStudy, rows: dict[str, Rows], chosen: dict[str, Any], seconds: dict[str, float], notes: list[str],
    n_workers: int,
) -> dict[str, Any]:  # fmt: skip
    """Every row's errors on its test ratings, and the paired tests."""
    n_items = data.train.n_items
    trained = data.train.users * n_items + data.train.items
    out = {name: _row(row, ~np.isin(row.test.users * n_items + row.test.items, trained)) for name, row in rows.items()}
    tests = {
        f"{other}, {metric}": _paired(rows["MF-IPS"], rows[other], metric)
        for other in ("MF-Naive", NAIVE_BY_IPS)
        if other in rows and len(rows["MF-IPS"].test) == len(rows[other].test)
        for metric in POWERS
    }  # fmt: skip
    notes = [
        *notes, "Brackets: 95 % intervals over test ratings; errors are averaged over the starts first.",
        *([CTP] if data.name == "yahoo" else []),
    ]  # fmt: skip
    parts = ", ".join(f"{name} {value:.0f} s" for name, value in seconds.items())
    notes.append(f"Cross-validation on {n_workers} processes: {parts}.")
    return {"rows": out, "chosen": chosen, "tests": tests, "notes": notes, "seconds": seconds}


def _errors(row: Rows, metric: str) -> np.ndarray:
    """|error|^power of each start and test rating, (starts, n), of the models chosen for this metric."""
    made = row.made.get(metric, row.made["mse"])
    test: Ratings = row.test
    return np.array([np.abs(test.at(matrix) - test.values) ** POWERS[metric] for matrix in made])


def _row(row: Rows, fresh: np.ndarray) -> dict[str, Any]:
    out: dict[str, Any] = {"chosen": {loss: _text(c) for loss, c in row.chosen.items()}, **row.extra}
    for metric in POWERS:
        errors = _errors(row, metric)
        each = errors.mean(axis=1)
        half = 1.96 * float(errors.mean(axis=0).std(ddof=1)) / errors.shape[1] ** 0.5
        out[metric] = {
            "mean": float(each.mean()), "low": float(each.mean()) - half, "high": float(each.mean()) + half,
            "sd": float(each.std(ddof=1)) if len(each) > 1 else 0.0, "starts": len(each),
            "without_overlap": float(errors[:, fresh].mean()), "n": errors.shape[1],
        }  # fmt: skip
        if metric in row.chosen and "score" in row.chosen[metric]:
            out[metric]["cross_validated"] = row.chosen[metric]["score"]
    return out


def _paired(a: Rows, b: Rows, metric: str) -> dict[str, float]:
    """Paired t-test over test ratings, errors averaged over starts."""
    from scipy.stats import ttest_rel

    found = ttest_rel(_errors(a, metric).mean(axis=0), _errors(b, metric).mean(axis=0))
    return {"t": float(found.statistic), "p": float(found.pvalue)}


def _text(candidate: dict[str, Any]) -> str:
    form = candidate["form"]
    return f"d = {form['rank']}, lambda = {form['penalty']:g}, {form['biases']}"


def check_coat(found: dict[str, Any]) -> dict[str, bool]:
    """The bars."""
    rows = found["rows"]
    naive, ips, mae = rows["MF-Naive"]["mse"]["mean"], rows["MF-IPS"]["mse"]["mean"], rows["MF-IPS"]["mae"]["mean"]
    checks = {
        f"MF-Naive MSE {naive:.4f} is 1.20 +- .015": abs(naive - 1.20) <= 0.015,
        f"MF-IPS MSE {ips:.4f} <= 1.100": ips <= 1.100,
        f"MF-IPS trained for MAE, MAE {mae:.4f} <= .868": mae <= 0.868,
    }
    for metric, test in found["tests"].items():
        text = f"paired t-test of MF-IPS against {metric}: t = {test['t']:.2f}, p = {test['p']:.1e} < .001"
        checks[text] = test["p"] < 0.001 and test["t"] < 0
    checks |= check_convergence(found)
    return {text: bool(ok) for text, ok in checks.items()}


def check_convergence(found: dict[str, Any]) -> dict[str, bool]:
    """Whether every fit behind a row converged; those of cross-validation are counted too."""
    rows = {name: row["fits"] for name, row in found["rows"].items() if "fits" in row}
    made, converged = (sum(fits[key] for fits in rows.values()) for key in ("made", "converged"))
    return {f"{converged} of {made} final fits converged": converged == made}


def check_yahoo(found: dict[str, Any]) -> dict[str, bool]:
    """What the paper says of Yahoo! R3: MF-IPS first in both metrics, its MSE below CTP-v's, significantly."""
    rows = found["rows"]
    out = {}
    for metric in POWERS:
        ours = rows["MF-IPS"][metric]["mean"]
        others = {name: rows[name][metric]["mean"] for name in PUBLISHED["yahoo"] if name in rows and name != "MF-IPS"}
        text = ", ".join(f"{name} {value:.3f}" for name, value in others.items())
        out[f"yahoo: MF-IPS first in {metric.upper()}: {ours:.3f}; {text}"] = ours < min(others.values())
    mse = rows["MF-IPS"]["mse"]["mean"]
    out[f"yahoo: MF-IPS MSE {mse:.3f} below CTP-v's 1.115"] = mse < 1.115
    for name, test in found["tests"].items():
        out[f"yahoo: paired t-test of MF-IPS against {name}: p = {test['p']:.1e} < .001"] = (
            test["p"] < 0.001 and test["t"] < 0
        )
    return {text: bool(ok) for text, ok in out.items()}


HEAD = ["", "MSE", "without overlap", "published", "MAE", "without overlap", "published", "cross-validated MSE, MAE"]


def markdown(result: dict[str, Any]) -> str:
    """The table, its notes and checks."""
    lines = ["## Table 2", ""]
    for name, found in result["data"].items():
        rows = [_cells(name, method, row) for method, row in found["rows"].items()]
        lines += [f"### {name}", "", *table([*HEAD, "chosen"], rows), "", *(f"- {note}" for note in found["notes"]), ""]
    return "\n".join([*lines, *(verdicts(result["checks"]) if result["checks"] else [])])


def _cells(name: str, method: str, row: dict[str, Any]) -> list[str]:
    # The paper learns Coat's propensities: its row is next to each of ours.
    paper = "MF-IPS" if method in OTHER_PROPENSITIES else "MF-Naive" if method == NAIVE_BY_IPS else method
    reported = PUBLISHED[name].get(paper, {})
    fits = row.get("fits", {"made": 0, "converged": 0})
    short = fits["made"] - fits["converged"]
    released = ", released propensities" if name == "coat" and method == "MF-IPS" else ""
    cells = [method + released + (f" (**{short} of {fits['made']} fits not converged**)" if short else "")]
    for metric in POWERS:
        x = row[metric]
        cells += [f"{x['mean']:.4f} [{x['low']:.3f}, {x['high']:.3f}]", f"{x['without_overlap']:.4f}"]
        cells.append(f"{reported[metric]:.3f}" if reported else "")
    scores = [f"{row[m]['cross_validated']:.4f}" for m in POWERS if "cross_validated" in row[m]]
    return [*cells, ", ".join(scores), "; ".join(f"{loss}: {text}" for loss, text in row["chosen"].items())]

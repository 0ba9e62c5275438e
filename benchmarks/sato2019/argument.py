"""The paper's argument: Table 1 (accuracy and uplift disagree), and equations 7 and 8 (which class holds true uplifts).

Table 1 has four lists of ten, the more of which is bought the less they cause (section 2.1). The paper draws its lists
in a figure whose numbers are not in the text at hand. These are made here and have the properties that the text names:
precision and total uplift have opposite trends, precision among the recommended is the same for all, and the metric of
equation 4 follows the total uplift. That half of each list was recommended is our choice.

Equation 7 takes P(TU | NR-NP) for small, because NR-NP is nearly the whole catalogue and few items are TU; equation 8
takes P(TU | R-P) for larger. Given the probabilities of a world both are expectations, here over all cells. They hang
on how Y^T and Y^C of a cell go together, which no log shows and the paper does not say: drawn apart (``independent``)
or by one uniform (``shared``). Each is judged in the same world without any effect too, P(Y^T) := P(Y^C).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
from semi import WORLDS, need, users_of, world_of

from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.uplift import evaluate_lists
from recsim_mnar.purchases.world import COUPLINGS, PRESETS, Floats, Outcomes, PurchasesWorld

# Of each list the hidden classes of the five items that were recommended, and of the five that were not.
LISTS = {
    "A": ("TU TU TU FD FD", "TU TU TU FD FD"),
    "B": ("TU TU FU FD FD", "TU TU FU FD FD"),
    "C": ("TU FU FU FD FD", "TU FU FU FD FD"),
    "D": ("TU FU FU TD FD", "TU FU FU TD FD"),
}
METRICS = ("precision", "precision_recommended", "uplift")
N_USERS = 2_000  # of the presets, whose users are drawn
SMALL = 0.1  # P(TU | NR-NP) at most, for "much less than 1"


def table1() -> dict[str, Any]:
    rows = {name: row(*(half.split() for half in halves)) for name, halves in LISTS.items()}
    order = {key: [r[key] for r in rows.values()] for key in ("total", *METRICS)}
    checks = {
        "total uplift falls and precision rises from A to D": falls(order["total"]) and falls(order["precision"][::-1]),
        "precision of the recommended is the same for all": len(set(order["precision_recommended"])) == 1,
        "Uplift@10 ranks as total uplift": falls(order["uplift"]),
    }
    return {"rows": rows, "checks": checks}


def row(shown: list[str], hidden: list[str]) -> dict[str, float]:
    """Total uplift of a list, and its estimates from the log."""
    bought = np.array([kind in ("TU", "FU") for kind in shown] + [kind in ("FU", "TD") for kind in hidden])
    recommended = np.arange(len(bought)) < len(shown)
    there = np.flatnonzero(recommended | bought)
    n = len(bought)
    cells = Exposures(0 * there, there, 0 * there, recommended[there], bought[there], 1, n, 1)
    estimates = evaluate_lists(cells, np.arange(n)[None], metrics=METRICS)
    caused = sum((kind == "TU") - (kind == "TD") for kind in [*shown, *hidden])
    return {"total": caused, **{metric: estimates[metric].value for metric in METRICS}}


def falls(values: list[float]) -> bool:
    return all(a > b for a, b in itertools.pairwise(values))


def equations(world: PurchasesWorld, n_users: int, seed: int = 0) -> dict[str, dict[str, dict[str, float]]]:
    """Shares of both equations under each coupling, in the world as it is and in the same without any effect."""
    users = np.arange(n_users)
    truth, e = world.outcomes_of(seed, users), world.deployed_propensities(seed, users)
    nothing = Outcomes(truth.control, truth.control)
    return {
        coupling: {"as it is": shares(truth, e, coupling), "no effect": shares(nothing, e, coupling)}
        for coupling in COUPLINGS
    }


def shares(truth: Outcomes, e: Floats, coupling: str) -> dict[str, float]:
    """Of all cells the shares of NR-NP, TU and TD; of two observed classes the share of TU.

    Args:
        truth: probabilities of both potential outcomes.
        e: propensities.
        coupling: of the two outcomes of a cell.
    """
    if coupling == "shared":
        tu, td = np.maximum(truth.uplift, 0.0), np.maximum(-truth.uplift, 0.0)
    else:
        tu, td = truth.treated * (1.0 - truth.control), truth.control * (1.0 - truth.treated)
    rest = (1.0 - e) * (1.0 - truth.control)  # neither recommended nor bought
    return {
        "NR-NP": float(rest.mean()),
        "TU": float(tu.mean()),
        "TD": float(td.mean()),
        "TU in NR-NP": float(((1.0 - e) * tu).mean()),
        "TU given NR-NP": float(((1.0 - e) * tu).sum() / rest.sum()),
        "TU given R-P": float((e * tu).sum() / (e * truth.treated).sum()),
    }


def of_worlds(files: dict[str, Path | None], worlds: list[str], cache: Path, *, quick: bool) -> dict[str, Any]:
    """Both equations in the presets, and in the semi-synthetic worlds whose data is given or which are in the cache."""
    found = {f"preset {name}": equations(PurchasesWorld(params), N_USERS) for name, (params, _) in PRESETS.items()}
    for name in worlds if not quick else ():
        key = "ml100k" if name == "ml100k" else "dunnhumby"
        if (cache / f"{name}.npz").exists() or files[key] is not None:
            world = world_of(name, files, cache, quick)
            found[name] = equations(world, users_of(world))
    if not quick and worlds != list(WORLDS) and not set(worlds) <= set(found):
        need(files, worlds)
    return {"worlds": found}


def checks(found: dict[str, dict[str, dict[str, dict[str, float]]]]) -> dict[str, bool]:
    """Both equations in each world under each coupling; equation 8 where it does not hold without any effect."""
    out = {}
    for name, couplings in found.items():
        for coupling, rows in couplings.items():
            row, where = rows["as it is"], f"{name}, {coupling}"
            few = row["TU given NR-NP"]
            out[f"{where}: equation 7: P(TU | NR-NP) = {few:.4f} <= {SMALL:g}"] = few <= SMALL
            if not equation_8(rows["no effect"]):
                text = f"P(TU | R-P) = {row['TU given R-P']:.4f} > P(TU | NR-NP) = {few:.4f}"
                out[f"{where}: equation 8: {text}"] = equation_8(row)
    return out


def equation_8(row: dict[str, float]) -> bool:
    """Whether what was recommended and bought is a true uplift more often than what was neither."""
    return row["TU given R-P"] > row["TU given NR-NP"]

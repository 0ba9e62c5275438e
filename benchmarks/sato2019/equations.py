"""Equations 7 and 8: how likely an item of an observed class is a true uplift, in worlds whose truth is known.

Equation 7 takes P(TU | NR-NP) for small, because NR-NP is nearly the whole catalogue and few items are TU; equation 8
takes P(TU | R-P) for larger. Given the probabilities of a world both are expectations, here over all cells.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from semi import WORLDS, need, users_of, world_of

from recsim_mnar.worlds.purchases import PRESETS, PurchasesWorld

N_USERS = 2_000  # of the presets, whose users are drawn
SMALL = 0.1  # P(TU | NR-NP) at most, for "much less than 1"
NEAR = 0.75  # |NR-NP| / |I| at least, for "close to the total number of items"


def equations(world: PurchasesWorld, n_users: int, seed: int = 0) -> dict[str, float]:
    """The shares of both equations: of NR-NP and of TU among all cells, and P(TU | class) of the two classes."""
    users = np.arange(n_users)
    truth, e = world.outcomes_of(seed, users), world.deployed_propensities(seed, users)
    treated, control = truth.treated, truth.control
    tu = treated * (1.0 - control)
    rest = (1.0 - e) * (1.0 - control)  # neither recommended nor bought
    return {
        "NR-NP": float(rest.mean()),
        "TU": float(tu.mean()),
        "TU in NR-NP": float(((1.0 - e) * tu).mean()),
        "TU given NR-NP": float(((1.0 - e) * tu).sum() / rest.sum()),
        "TU given R-P": float((e * tu).sum() / (e * treated).sum()),
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
    return {"worlds": found, "checks": checks(found)}


def checks(found: dict[str, dict[str, float]]) -> dict[str, bool]:
    """Both equations in each world, with the figures in the text."""
    out = {}
    for name, row in found.items():
        rest, few, more = row["NR-NP"], row["TU given NR-NP"], row["TU given R-P"]
        out[f"{name}: NR-NP is {rest:.3f} of the items (>= {NEAR:g})"] = rest >= NEAR
        out[f"{name}: equation 7: P(TU | NR-NP) = {few:.4f} <= {SMALL:g}"] = few <= SMALL
        text = f"{row['TU in NR-NP']:.4f} < |TU| / |I| = {row['TU']:.4f}"
        out[f"{name}: equation 7: |TU and NR-NP| / |I| = {text}"] = row["TU in NR-NP"] < row["TU"]
        out[f"{name}: equation 8: P(TU | R-P) = {more:.4f} > P(TU | NR-NP) = {few:.4f}"] = more > few
    return out

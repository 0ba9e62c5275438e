"""calibrate_world: a log in, a world like it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.fitting.calibration.fitted import FittedWorld
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.resuming import work
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.registry import entry_of

WORLDS = ("sessions", "ratings")
MEMBERS = 20


def calibrate_world(
    log: Log | Ratings | str | Path,
    world: str = "sessions",
    seed: int = 0,
    *,
    n_items: int | None = None,
    ensemble: int = MEMBERS,
    assume: Mapping[str, Any] | None = None,
    report: Callable[[str], None] = lambda stage: None,
) -> FittedWorld:
    """Fit a world to a log, and say what the log identifies; :func:`recsim_mnar.resuming.resumable` takes it up.

    Args:
        log: views and recommendations (a :class:`~recsim_mnar.log.table.Log`, of either kind or both), revealed
            ratings for the ratings world, or the path of a file or folder, read by
            :func:`recsim_mnar.fitting.calibration.reading.read_to_fit`.
        world: ``sessions`` or ``ratings``.
        seed: of the ensemble and of simulations.
        n_items: how many items there are; where None as many as the log's provenance or its largest number says.
        ensemble: worlds beside the best fit.
        assume: parameters of the world that are set, not fitted.
        report: called with a line whenever a stage begins.

    Raises:
        UserError: a log that no world can be fitted to: too few rows or users, no views and no recommendations.
    """
    check_seed(seed)
    if world not in WORLDS:
        raise UserError(f"calibrate fits the worlds {' and '.join(WORLDS)}, got {world!r}; {nearest(world, WORLDS)}")
    if isinstance(ensemble, bool) or not 0 <= ensemble <= 1000:
        raise UserError(f"ensemble must be a number of worlds from 0 to 1,000, got {ensemble}")
    assume = dict(assume or {})
    kind: Any = entry_of(world).world_class()
    kind.params_class.from_dict(assume)
    if isinstance(log, (str, Path)):
        from recsim_mnar.fitting.calibration.reading import read_to_fit

        read = read_to_fit(log, world)
        log, n_items = read.log, n_items or read.n_items
    asked = {"world": world, "seed": seed, "ensemble": ensemble, "assume": assume}
    if isinstance(log, Ratings) or kind.rates:
        from recsim_mnar.fitting.calibration.ratings import fit_ratings, ratings_of

        if not kind.rates:
            raise UserError('revealed ratings are fitted by the ratings world: world="ratings"')
        ratings = log if isinstance(log, Ratings) else ratings_of(log, n_items)
        with work("calibrate", lambda: {**asked, "n_items": ratings.n_items, "log": ratings.digest()}):
            return fit_ratings(ratings, n_members=ensemble, seed=seed, assume=assume, report=report)
    from recsim_mnar.fitting.calibration.sessions import fit_sessions

    events, n_items = log, _n_items(log) if n_items is None else n_items
    events.validate(n_items)
    with work("calibrate", lambda: {**asked, "n_items": n_items, "log": events.digest(optional=True)}):
        return fit_sessions(events, n_items=n_items, n_members=ensemble, seed=seed, assume=assume, report=report)


def _n_items(log: Log) -> int:
    """Of the log's world where it says, else the largest number and one."""
    told = log.provenance.get("world")
    known = told.get("params", {}).get("n_items") if isinstance(told, dict) else None
    if isinstance(known, int) and known > 0:
        return known
    largest = [int(np.max(log[name], initial=-1)) for name in ("item", "action")]
    if max(largest) < 0:
        raise UserError("the log has neither views nor recommendations: there is nothing to fit a world to")
    return max(largest) + 1

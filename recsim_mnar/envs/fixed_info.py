"""``info`` of a fixed size, for what stores it in arrays: a fixed number of places for the events in it."""

from __future__ import annotations

from typing import Any

import numpy as np

_PADS = {"views": -1, "bought": -1, "view_times": 0.0, "ratings": 0.0, "observation_propensities": 0.0}
"""What stands in places without an event."""


def fixed(info: dict[str, Any], keys: tuple[str, ...], size: int) -> dict[str, Any]:
    """An environment's ``info`` with the last ``size`` events in arrays of that length, oldest first.

    Places beyond them hold -1 (items) or 0; ``n_views`` says how many events there were, which may be more than
    ``size``, and ``n_skipped`` how many users left without a decision before this one.

    Args:
        info: as the environment makes it.
        keys: of the events, each a tuple.
        size: of the arrays.
    """
    out = {key: value for key, value in info.items() if key not in keys and key != "skipped"}
    for key in keys:
        events = info.get(key) or ()
        array = np.full(size, _PADS[key], np.int64 if isinstance(_PADS[key], int) else np.float64)
        last = events[-size:]
        array[: len(last)] = last
        out[key] = array
    out["n_views"] = len(info.get("views") or ())
    out["n_skipped"] = len(info.get("skipped") or ())
    return out


def fixed_lanes(infos: dict[str, Any], keys: tuple[str, ...], size: int, n_lanes: int) -> dict[str, Any]:
    """The same of a vector environment: arrays (n_lanes, size), set for every lane that ``user`` is set for."""
    if "final_info" in infos:
        infos = {**infos, "final_info": fixed_lanes(infos["final_info"], keys, size, n_lanes)}
    changed = {*keys, "skipped"}
    out = {key: value for key, value in infos.items() if key.removeprefix("_") not in changed}
    told = infos["_user"]
    for key in keys:
        kind = np.int64 if isinstance(_PADS[key], int) else np.float64
        array = np.full((n_lanes, size), _PADS[key], kind)
        for lane in np.flatnonzero(infos.get(f"_{key}", np.zeros(n_lanes, np.bool_))).tolist():
            last = infos[key][lane][-size:]
            array[lane, : len(last)] = last
        out[key], out[f"_{key}"] = array, told.copy()
    for name, key in (("n_views", "views"), ("n_skipped", "skipped")):
        there = infos.get(f"_{key}", np.zeros(n_lanes, np.bool_))
        counts = [len(infos[key][lane]) if there[lane] else 0 for lane in range(n_lanes)]
        out[name], out[f"_{name}"] = np.array(counts, np.int64), told.copy()
    return out

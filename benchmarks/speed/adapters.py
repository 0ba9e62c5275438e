"""Rows of the programs beside this one that print tables of their own: run as children, read from their JSON."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from floors import machine
from table import Row

HERE = Path(__file__).resolve().parent


def told(name: str, arguments: list[str], option: str) -> Any:
    """What the program of this name writes to the file given by ``option``.

    Raises:
        RuntimeError: it failed, or wrote nothing.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        command = [sys.executable, str(HERE / f"{name}.py"), *arguments, option, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0 or not path.exists():
            raise RuntimeError(f"{name}.py wrote no JSON: {done.stderr.strip().splitlines()[-1:]}")
        return json.loads(path.read_text())[name]


def factorization(quick: bool) -> list[Row]:
    """A weighted fit to the same squared loss, beside scipy's L-BFGS-B; and the two peers' own fits."""
    sizes = told("factorization", ["--quick"] if quick else [], "--out")
    found = []
    for size, result in sizes.items():
        fits = result["fits"]
        fastest = min((name for name in fits if name.startswith("own")), key=lambda name: fits[name]["seconds"])
        ours = fits[fastest]
        least_sweeps = min(fit["evaluations"] for fit in fits.values())
        found.append(
            Row(f"MF-IPS fit, {size} size, d = 20: {fastest}", "scipy L-BFGS-B, same kernel", ours["seconds"],
                fits["scipy L-BFGS-B"]["seconds"], "CPU s", 5,
                floor=least_sweeps * result["evaluation"]["kernel"],
                floor_is="the fewest passes over the ratings that any of the solvers needed, each as fast as a loss")
        )  # fmt: skip
        for peer in ("surprise", "cornac"):
            other = result.get(peer)
            seconds = min(fit["seconds"] for fit in other["fits"].values()) if other else ours["seconds"]
            found.append(
                Row(f"the same ratings, to {peer}'s squared error", peer, seconds,
                    other["seconds"] if other else None, "CPU s", None)
            )  # fmt: skip
    return found


def bpr(quick: bool) -> list[Row]:
    """An update of BPR and of ULBPR beside implicit's BPR."""
    if importlib.util.find_spec("recsim_mnar.agents.purchases.bpr") is None or not (HERE / "bpr.py").exists():
        return []
    small = ["--users", "2000", "--items", "500", "--interactions", "40000", "--updates", "100000", "--turns", "1"]
    result = told("bpr", small if quick else [], "--json")
    theirs, factors = result["implicit_ns_an_update"], result["factors"]
    floor = 1e9 * (3 * 2 * 4 * factors / machine().read + 2 * machine().draw)
    return [
        Row(f"{name.split()[0].upper()} update, d = {factors}, SGD", "implicit's BPR",
            result["ns_an_update"][name], theirs, "ns", 1, floor=floor,
            floor_is="three rows read and written at the bandwidth of memory, and two draws")
        for name in ("bpr sgd", "ulbpr sgd")
    ]  # fmt: skip

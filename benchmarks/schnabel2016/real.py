"""Table 2: Coat and Yahoo! R3 (``run.py table2``).

All is chosen by cross-validation on the training file alone and written to ``work/table2.NAME.chosen.json`` before the
test file is read. Naive Bayes propensities need ratings of random items: 5 % of the test set, as in the paper, which
are then left out of that row's test. HL is fitted by ``hl.py``.
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import parts
import real_table
from fits import FitCount
from logistic_propensities import PENALTIES, logistic
from selection import Candidate, Problem, Workers, apart

from recsim_mnar import rng
from recsim_mnar.datasets.rating_studies import RatingStudy, load_coat, load_yahoo_r3
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import ratings as propensity
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig
from recsim_mnar.runs.files import write_json

LOADERS = {"coat": load_coat, "yahoo": load_yahoo_r3}


@dataclass(frozen=True)
class Settings:
    """What is tried; ranks, penalties and folds are the paper's."""

    seed: int = 2016
    folds: int = 4
    starts: int = 10
    ranks: tuple[int, ...] = (5, 10, 20, 40)
    penalties: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    biases: tuple[str, ...] = ("regularised", "free")
    max_iterations: int = 5000
    mcar_share: float = 0.05
    logistic_penalties: tuple[float, ...] = PENALTIES


QUICK = Settings(
    folds=2, starts=2, ranks=(2,), penalties=(1e-3, 1e-2), biases=("regularised",), max_iterations=300,
    logistic_penalties=(30.0,),
)  # fmt: skip


def main(coat: Path | None, yahoo: Path | None, out: Path | None, quick: bool = False, workers: int = 2) -> bool:
    """Make the table; whether all that must hold does.

    Raises:
        UserError: neither folder is given, or a file is missing.
    """
    if coat is None and yahoo is None:
        raise UserError("table2 needs --coat DIR or --yahoo DIR")
    settings = QUICK if quick else Settings()
    out = parts.folder(out, quick)
    result: dict[str, Any] = {"settings": asdict(settings), "data": {}, "checks": {}}
    for name, folder in (("coat", coat), ("yahoo", yahoo)):
        if folder is not None:
            result["data"][name] = study(name, folder, settings, out, workers)
    if coat is not None:
        result["checks"] = real_table.check_coat(result["data"]["coat"])
    if yahoo is not None:
        result["checks"] |= real_table.check_yahoo(result["data"]["yahoo"])
    result = parts.as_kept(result)
    text = real_table.markdown(result)
    parts.write(out, "table2", result, text)
    print(text + "\n")
    return all(result["checks"].values())


def study(name: str, folder: Path, settings: Settings, out: Path, n_workers: int) -> dict[str, Any]:
    """Everything of one data set."""
    blind = LOADERS[name](folder, with_test=False)
    began = time.perf_counter()
    p, notes = known_propensities(blind, settings)
    problem = Problem(blind.train, p, settings.folds, settings.seed, settings.max_iterations)
    path, run_config = out / "work" / f"table2.{name}.chosen.json", of_what(problem, settings)
    method = "MF-IPS, naive Bayes" if p else "MF-IPS"
    with Workers(problem, n_workers) as workers:
        if path.exists() and (kept := json.loads(path.read_text())).get("of") == run_config:
            chosen, seconds = kept["chosen"], kept["seconds"]
            print(f"kept: {path}")
        else:
            chosen, seconds = choose(workers, settings)
            seconds["all"] = time.perf_counter() - began
            seconds["processor time of all fits"] = workers.cpu
            write_json(path, {"of": run_config, "chosen": chosen, "seconds": seconds})
        # From here on the test file is read.
        data = LOADERS[name](folder)
        rows = {method: fitted(workers, found, data.test, settings.starts) for method, found in chosen.items()}
    sample, rest = split_test(data.test, settings.mcar_share, settings.seed)
    bayes = propensity.naive_bayes(data.train, sample.values).of(data.train.values)
    with Workers(replace(problem, propensities={"naive Bayes": bayes}), n_workers) as workers:
        began = time.perf_counter()
        found = factorisations(workers, "naive Bayes", settings)
        seconds["naive Bayes"] = time.perf_counter() - began
        rows[method] = fitted(workers, found, rest, settings.starts)
        if not p:
            rows["MF-Naive"] = replace(rows["MF-Naive"], test=rest)
    notes.append(
        f"Naive Bayes propensities: {len(sample)} ratings of the test set are the MCAR sample, left out of "
        + ("that row's test." if p else "the test.")
    )
    every = [c for each in ({**chosen, method: found}).values() for c in each.values()]
    tried = sum(c["tried"] for c in every) * settings.folds
    failed = sum(c["fits_not_converged"] for c in every)
    notes.append(f"Fits of cross-validation: {tried}, of which {tried - failed} converged.")
    notes.append(f"{int(data.overlap().sum())} of {len(data.test)} test cells are in the training file too.")
    return real_table.judged(data, rows, {**chosen, method: found}, seconds, notes, n_workers)


def of_what(problem: Problem, settings: Settings) -> dict[str, Any]:
    """What a choice depends on, so that one made before is not taken for another's."""
    train = problem.train
    arrays = [train.users, train.items, train.values, *problem.propensities.values()]
    digest = hashlib.blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays), digest_size=16).hexdigest()
    return {"settings": json.loads(json.dumps(asdict(settings))), "training_data": digest}


def known_propensities(data: RatingStudy, settings: Settings) -> tuple[dict[str, np.ndarray], list[str]]:
    """Propensities of the revealed ratings that need no test ratings: released ones first, then our own."""
    found: dict[str, np.ndarray] = {}
    notes = []
    if data.propensities is not None:
        found["released"] = data.train.at(data.propensities)
        notes.append("MF-IPS: the propensities released with the data.")
    if data.user_features is not None and data.item_features is not None:
        fit = apart(
            logistic, data.train, data.user_features, data.item_features,
            penalties=settings.logistic_penalties, seed=settings.seed,
        )  # fmt: skip
        found["logistic"] = data.train.at(fit.matrix)
        notes.append(f"Own logistic propensities: penalty {fit.penalty:g} by held-out log-likelihood.")
    return found, notes


def choose(workers: Workers, settings: Settings) -> tuple[dict[str, dict[str, Candidate]], dict[str, float]]:
    """All that is chosen on the training file: by method and loss; and the seconds it took."""
    names = list(workers.problem.propensities)
    chosen = {}
    seconds = {}
    began = time.perf_counter()
    chosen["MF-Naive"] = factorisations(workers, "none", settings)
    if names:  # as section 6.1 has it; above, held-out ratings weigh alike
        chosen[real_table.NAIVE_BY_IPS] = factorisations(workers, "none", settings, scored_by=names[0])
    for name in names:
        method = "MF-IPS" if name == names[0] else f"MF-IPS, {name} regression"
        chosen[method] = factorisations(workers, name, settings)
    seconds["factorisation"] = time.perf_counter() - began
    print(f"factorisations chosen: {seconds['factorisation']:.0f} s", flush=True)
    return chosen, seconds


def factorisations(
    workers: Workers, propensities: str, settings: Settings, *, scored_by: str | None = None
) -> dict[str, Candidate]:
    """The best factorisation for each loss, over the paper's grid; scored by these propensities or by others."""
    how = {"propensities": propensities, "scored_by": scored_by or propensities}
    found = {}
    for loss in ("mse", "mae"):
        forms = [
            FactorizationConfig(rank=rank, penalty=penalty, biases=biases, loss=loss)
            for penalty in settings.penalties for rank in settings.ranks for biases in settings.biases
        ]  # fmt: skip
        found[loss] = workers.best([{**how, "form": form.to_dict()} for form in forms])
    return found


def fitted(workers: Workers, chosen: dict[str, Candidate], test: Ratings, starts: int) -> real_table.Rows:
    """Models of all starts."""
    made = {}
    workers.final = FitCount()
    for loss, candidate in chosen.items():
        made[loss] = workers.fits([{**candidate, "start": s} for s in range(starts)])
    return real_table.Rows(made, chosen, test, {"fits": workers.final.to_dict()})


def split_test(test: Ratings, share: float, seed: int) -> tuple[Ratings, Ratings]:
    """A random share of the test ratings, and the rest."""
    chosen = rng.uniforms(seed, rng.Stream.PROTOCOL, np.arange(len(test)), 5) < share
    return test.select(chosen), test.select(~chosen)

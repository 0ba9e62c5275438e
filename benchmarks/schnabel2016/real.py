"""Table 2: Coat and Yahoo! R3 (``run.py table2``).

All but HL is chosen by cross-validation on the training file alone and written to ``work/table2.NAME.chosen.json``
before the test file is read. Naive Bayes propensities need ratings of random items: 5 % of the test set, as in the
paper, which are then left out of that row's test. HL's setting is the best on the test set, as in the paper.
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
from product_kernel import Sides
from selection import Candidate, Problem, Workers, apart, fit_hl

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
    joint_penalties: tuple[float, ...] = (5e-4, 7e-4, 1e-3, 1.5e-3, 2e-3)
    anchors: tuple[float, ...] = (1.0, 10.0, 100.0)
    correction_penalties: tuple[float, ...] = (1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2)
    clips: tuple[float, ...] = (0.0, 0.02, 0.05)
    side_factors: tuple[float, ...] = (4.0, 2.0)
    logistic_penalties: tuple[float, ...] = PENALTIES
    hl_ranks: tuple[int, ...] = (5, 10, 20, 40)
    hl_spreads: tuple[float, ...] = (0.1,)
    hl_iterations: int = 2000  # at most; a fit ends where its bound stops rising


QUICK = Settings(
    folds=2, starts=2, ranks=(2,), penalties=(1e-3, 1e-2), biases=("regularised",), max_iterations=300,
    joint_penalties=(2e-3,), anchors=(10.0,), correction_penalties=(4e-3,), clips=(0.05,), side_factors=(),
    logistic_penalties=(30.0,), hl_ranks=(2,), hl_spreads=(0.5,), hl_iterations=3,
)  # fmt: skip


def main(
    coat: Path | None, yahoo: Path | None, out: Path | None, quick: bool = False, workers: int = 2, hl: bool = True
) -> bool:
    """Make the table; whether all that must hold does.

    Raises:
        UserError: neither folder is given, or a file is missing.
    """
    if coat is None and yahoo is None:
        raise UserError("table2 needs --coat DIR or --yahoo DIR")
    settings = QUICK if quick else Settings()
    settings = settings if hl else replace(settings, hl_ranks=())
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
    sides = None
    if blind.user_features is not None and blind.item_features is not None:
        sides = Sides.of(blind.user_features, blind.item_features)
    problem = Problem(blind.train, p, sides, settings.folds, settings.seed, settings.max_iterations)
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
        if settings.hl_ranks:
            kept = out / "work" / f"table2.{name}.hl"
            rows.update(hl_rows(workers, data.train, rest if not p else data.test, settings, kept))
    notes.append(
        f"Naive Bayes propensities: {len(sample)} ratings of the test set are the MCAR sample, left out of "
        + ("that row's test." if p else "the test.")
    )
    every = [c for each in ({**chosen, method: found}).values() for c in each.values()]
    tried = sum(c["tried"] for c in every) * settings.folds
    failed = sum(c["fits_not_converged"] for c in every)
    joint = chosen["MF-DR-JL"]["mse"]["fits_not_converged"] if "MF-DR-JL" in chosen else 0
    notes.append(
        f"Fits of cross-validation: {tried}, of which {tried - failed} converged; of those that did not {joint} are of "
        "joint learning, which is given 10 rounds while its form is chosen."
    )
    notes.append(f"{int(data.overlap().sum())} of {len(data.test)} test cells are in the training file too.")
    return real_table.judged(data, rows, {**chosen, method: found}, seconds, notes, n_workers)


def of_what(problem: Problem, settings: Settings) -> dict[str, Any]:
    """What a choice depends on, so that one made before is not taken for another's; HL is not chosen by it."""
    train = problem.train
    arrays = [train.users, train.items, train.values, *problem.propensities.values()]
    if problem.sides is not None:
        arrays += [problem.sides.user_features, problem.sides.item_features]
    digest = hashlib.blake2b(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays), digest_size=16).hexdigest()
    own = {name: value for name, value in asdict(settings).items() if not name.startswith("hl_")}
    return {"settings": json.loads(json.dumps(own)), "training_data": digest}


def known_propensities(data: RatingStudy, settings: Settings) -> tuple[dict[str, np.ndarray], list[str]]:
    """Propensities of the revealed ratings that need no test ratings: released ones first, then our own."""
    found: dict[str, np.ndarray] = {}
    notes = []
    if data.propensities is not None:
        found["released"] = data.train.at(data.propensities)
        notes.append("MF-IPS and all with side information: the propensities released with the data.")
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
    if names:
        began = time.perf_counter()
        found = workers.best(joint_candidates(names[0], chosen["MF-IPS"]["mse"]["form"], settings))
        chosen["MF-DR-JL"] = {"mse": found}
        seconds["joint learning"] = time.perf_counter() - began
    if names and workers.problem.sides is not None:
        began = time.perf_counter()
        chosen["Side information"] = with_sides(workers, names[0], settings)
        side = chosen["Side information"]["mse"]["form"]
        candidates = [
            {"kind": "side_dr", "propensities": names[0], "side": side, "clip": clip,
             "form": FactorizationConfig(rank=max(settings.ranks), penalty=penalty).to_dict()}
            for clip in settings.clips for penalty in settings.correction_penalties
        ]  # fmt: skip
        chosen["Side information, doubly robust"] = {"mse": workers.best(candidates)}
        seconds["side information"] = time.perf_counter() - began
        print(f"side information chosen: {seconds['side information']:.0f} s", flush=True)
    return chosen, seconds


def factorisations(
    workers: Workers, propensities: str, settings: Settings, *, scored_by: str | None = None
) -> dict[str, Candidate]:
    """The best factorisation for each loss, over the paper's grid; scored by these propensities or by others."""
    how = {"kind": "mf", "propensities": propensities, "scored_by": scored_by or propensities}
    found = {}
    for loss in ("mse", "mae"):
        forms = [
            FactorizationConfig(rank=rank, penalty=penalty, biases=biases, loss=loss)
            for penalty in settings.penalties for rank in settings.ranks for biases in settings.biases
        ]  # fmt: skip
        found[loss] = workers.best([{**how, "form": form.to_dict()} for form in forms])
    return found


def joint_candidates(name: str, form: dict[str, Any], settings: Settings) -> list[Candidate]:
    """Joint learning that begins at the chosen MF-IPS."""
    return [
        {"kind": "joint", "propensities": name, "form": {**form, "penalty": penalty}, "imputation": form,
         "anchor": anchor, "clip": clip}
        for penalty in settings.joint_penalties for anchor in settings.anchors for clip in settings.clips
    ]  # fmt: skip


def with_sides(workers: Workers, name: str, settings: Settings) -> dict[str, Candidate]:
    """The best variances for each loss, by pattern search from equal ones; for MAE from those for MSE."""
    sides = workers.problem.sides
    assert sides is not None  # the caller asked
    places: list[tuple[str, int | None]] = [("scale", None), ("user_offset", None), ("item_offset", None)]
    places += [("user_own", None), ("item_own", None)]
    places += [("item_category", j) for j in range(len(sides.item_groups))]
    places += [("user_category", j) for j in range(len(sides.user_groups))]
    places += [("user_browsing", None), ("item_audience", None), ("weighting", None)]
    start = {"kind": "side", "propensities": name, "form": sides.form().to_dict()}
    mse = workers.search(start, places, settings.side_factors)
    start = {"kind": "side", "propensities": name, "form": {**mse["form"], "loss": "mae"}}
    few: list[tuple[str, int | None]] = [("scale", None), ("weighting", None), ("user_offset", None)]
    return {"mse": mse, "mae": workers.search(start, few, settings.side_factors[-1:])}


def fitted(workers: Workers, chosen: dict[str, Candidate], test: Ratings, starts: int) -> real_table.Rows:
    """Models of all starts; ridge regression has one solution, whatever the start."""
    made = {}
    workers.final = FitCount()
    for loss, candidate in chosen.items():
        n = 1 if candidate["kind"] == "side" else starts
        made[loss] = workers.fits([{**candidate, "start": s} for s in range(n)])
    return real_table.Rows(made, chosen, test, {"fits": workers.final.to_dict()})


def split_test(test: Ratings, share: float, seed: int) -> tuple[Ratings, Ratings]:
    """A random share of the test ratings, and the rest."""
    chosen = rng.uniforms(seed, rng.Stream.PROTOCOL, np.arange(len(test)), 5) < share
    return test.select(chosen), test.select(~chosen)


def hl_rows(
    workers: Workers, train: Ratings, test: Ratings, settings: Settings, kept: Path
) -> dict[str, real_table.Rows]:
    """HL-MAR and HL-MNAR, each with the setting that is best on the test set for each metric, as in the paper.

    Predictions are means for MSE and medians for MAE. Every fit is kept under ``kept``.
    """
    rows = {}
    for name, missing in (("HL-MAR", False), ("HL-MNAR", True)):
        tried = [
            {"rank": rank, "missing": missing, "response_spread": spread, "iterations": settings.hl_iterations}
            for rank in settings.hl_ranks
            for spread in (settings.hl_spreads if missing else settings.hl_spreads[:1])
        ]  # fmt: skip
        fits = list(workers.pool.map(kept_hl, [(train, setting, settings.seed, kept) for setting in tried]))
        made, chosen = {}, {}
        for metric, of in (("mse", 0), ("mae", 1)):
            errors = [np.abs(test.at(fit[of]) - test.values) ** real_table.POWERS[metric] for fit in fits]
            best = int(np.argmin([error.mean() for error in errors]))
            made[metric] = [fits[best][of]]
            chosen[metric] = {
                "kind": "hl", "form": tried[best], "picked": "on the test set",
                "by_rank": [[t["rank"], float(e.mean())] for t, e in zip(tried, errors, strict=True)],
            }  # fmt: skip
        never_falls = all(np.diff(fit[2]).min(initial=0.0) >= -1e-9 * abs(fit[2][-1]) for fit in fits)
        extra = {"bound_never_falls": bool(never_falls), "converged": [fit[3] for fit in fits]}
        rows[name] = real_table.Rows(made, chosen, test, extra)
    return rows


def kept_hl(job: tuple[Ratings, dict[str, Any], int, Path]) -> tuple[np.ndarray, np.ndarray, list[float], bool]:
    """A fit of HL, made once: kept with what it depends on.

    A fit that converged is the same under any bound on iterations that it did not reach; one that did not converge
    stands for its own bound alone.
    """
    train, setting, seed, folder = job
    form = {name: value for name, value in setting.items() if name != "iterations"}
    of = repr((form, seed, hashlib.blake2b(train.values.tobytes() + train.items.tobytes()).hexdigest()))
    path = folder / f"{'mnar' if setting['missing'] else 'mar'}-{setting['rank']}-{setting['response_spread']:g}.npz"
    if path.exists():
        with np.load(path) as before:
            n, ended = len(before["bounds"]) - 1, bool(before["converged"])
            if str(before["of"]) == of and (n <= setting["iterations"] if ended else n == setting["iterations"]):
                return before["means"], before["medians"], before["bounds"].tolist(), ended
    means, medians, bounds, converged = fit_hl((train, setting, seed))
    folder.mkdir(parents=True, exist_ok=True)
    with (path.parent / f"{path.name}.part").open("wb") as file:
        np.savez_compressed(
            file, of=of, means=means.astype(np.float32), medians=medians.astype(np.int8), bounds=bounds,
            converged=converged,
        )  # fmt: skip
    (path.parent / f"{path.name}.part").replace(path)
    return means, medians, bounds, converged

"""Learners by name, and the staged search over their settings, each fit of which is kept."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from later_learners import CIBN, CUBN, DLCE

from recsim_mnar.agents.purchases.learners import BPR, RMF, ULBPR, ULRMF, CausE, CausEProd, RecResp
from recsim_mnar.agents.purchases.training import Observed, Trainer
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import top_items
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.runs.files import write_json

FACTOR_LEARNERS = {k.name: k for k in (RMF, BPR, RecResp, CausE, CausEProd, ULRMF, ULBPR, DLCE)}
ACCURACY = {"rmf-accuracy": "rmf", "bpr-accuracy": "bpr"}  # the same learners, tuned on precision
NEIGHBOURS = {k.name: k for k in (CUBN, CIBN)}
OF_THE_PAPER = ("rmf", "bpr", "recresp", "cause", "cause-prod", "ulrmf", "ulbpr")
METHODS = (*OF_THE_PAPER, "dlce", "cubn", "cibn")
CELLS = 50_000_000  # scores at a time
PURCHASES_ONLY = ("rmf", "bpr", "dlce")  # what was recommended in vain is to these an item like any other

Candidate = dict[str, Any]
Scores = Any  # (U, I)


@dataclass(frozen=True)
class Data:
    """What is learnt from.

    Attributes:
        exposures: the log, with propensities.
        periods: of the training.
    """

    exposures: Exposures
    periods: Any

    @cached_property
    def observed(self) -> Observed:
        return Observed.of(self.exposures.classes(self.periods))

    @cached_property
    def purchases(self) -> Observed:
        return Observed.of(self.bought.classes(self.periods))

    @cached_property
    def bought(self) -> Exposures:
        """The rows that were purchased alone."""
        x = self.exposures
        kept = {n: getattr(x, n)[x.purchased] for n in ("user", "item", "time", "recommended", "purchased")}
        sizes = {n: getattr(x, n) for n in ("n_users", "n_items", "n_periods")}
        return Exposures(**kept, **sizes, propensities=x.propensities)

    def popularity(self) -> Any:
        """(I,) purchases in the training periods."""
        x = self.exposures
        rows = x.purchased & np.isin(x.time, np.asarray(self.periods))
        return np.bincount(x.item[rows], minlength=x.n_items).astype(np.float64)


@dataclass
class Fit:
    """A fitted candidate.

    Attributes:
        scores: (U, I) by which it ranks; with ``listed`` (U, listed) items instead, best first.
        updates: samples taken by the model that is kept; None where nothing is sampled.
        curve: (updates, metric) of each look.
        stopped: why training ended.
    """

    scores: Scores
    updates: int | None = None
    curve: list[Any] = field(default_factory=list)
    stopped: str = "done"


def fit(
    method: str, candidate: Candidate, data: Data, training: dict[str, Any], *,
    seed: int, updates: int | None = None, validate: Callable[[Scores], float] | None = None,
    factors: int | None = None, listed: int | None = None,
) -> Fit:  # fmt: skip
    """Fit one candidate.

    Args:
        method: one of :data:`METHODS`.
        candidate: its settings.
        data: what it learns from.
        training: ``[training]`` of the settings.
        seed: of the training.
        updates: samples in all; with ``validate`` at most so many.
        validate: metric of scores by which the best of the looks is kept.
        factors: instead of ``training["factors"]``.
        listed: so many items a user are kept, and handed to ``validate``, instead of all scores: for catalogues whose
            scores do not fit into memory.
    """
    users = np.arange(data.exposures.n_users)
    if method in NEIGHBOURS:
        policy = NEIGHBOURS[method](**candidate).fit_exposures(data.exposures, periods=data.periods)
        return Fit(policy._scores_of(users))
    bought = method in PURCHASES_ONLY
    observed, exposures = (data.purchases, data.bought) if bought else (data.observed, data.exposures)
    n = updates or training["updates"]
    learner = FACTOR_LEARNERS[method](
        **candidate, updates=n, factors=factors or training["factors"], batch=training["batch"]
    )
    trainer = Trainer(learner.plan(observed), learner.loss(observed, exposures), learner.settings, seed)
    looks = {}
    if validate is not None:
        looks = {"validate": lambda m: validate(ranked(m, users, listed)), "patience": training["patience"]}
    done = train(trainer, n, max(n // training["checks"], 1), **looks)
    return Fit(ranked(done.model, users, listed), done.updates, done.curve, done.stopped)


@dataclass(frozen=True)
class Training:
    """Result of a training.

    Attributes:
        model: the best model by the validation metric; without one, the last.
        updates: samples that the model took.
        curve: (updates, metric) of each look; the metric is None without validation.
        stopped: why training ended: ``"done"``, ``"no better"`` or where it diverged.
    """

    model: Any
    updates: int
    curve: list[tuple[int, float | None]]
    stopped: str


def train(
    trainer: Trainer,
    updates: int,
    check_every: int,
    *,
    validate: Callable[[Any], float] | None = None,
    patience: int | None = None,
) -> Training:
    """Train, look at the model every ``check_every`` updates, and keep the best one.

    Args:
        trainer: advanced in place.
        updates: samples in all.
        check_every: samples between two looks.
        validate: the metric of a model, larger being better.
        patience: looks in a row without a better metric after which training ends; None: never.

    Raises:
        UserError: it diverged before any look.
    """
    curve: list[tuple[int, float | None]] = []
    best, top, worse, stopped = None, -np.inf, 0, "done"
    while trainer.updates < updates:
        bad = trainer.advance(min(check_every, updates - trainer.updates))
        if bad is not None:
            stopped = f"training diverged at update {bad} with learning rate {trainer.settings.rate:g}"
            break
        metric = None if validate is None else float(validate(trainer.model))
        curve.append((trainer.updates, metric))
        if best is None or metric is None or metric > top:
            best, top, worse = (trainer.model.copy(), trainer.updates), -np.inf if metric is None else metric, 0
        else:
            worse += 1
            if patience is not None and worse >= patience:
                stopped = "no better"
                break
    if best is None:
        raise UserError(f"{stopped}: no earlier model was kept; lower the rate")
    return Training(*best, curve, stopped)


def ranked(model: Any, users: Any, listed: int | None) -> Any:
    """Scores of all items, or the ``listed`` best of each user, a bounded number of users at a time."""
    if listed is None:
        return model.scores(users)
    step = max(1, CELLS // model.n_items)
    scorer = model.scorer()
    parts = [top_items(scorer.of(users[k : k + step]), listed) for k in range(0, len(users), step)]
    return np.concatenate(parts)


class Search:
    """A staged search whose fits are kept in a file, so that it can be taken up again.

    Args:
        data: what the candidates learn from.
        validate: metric of scores, larger being better.
        settings: of the study.
        path: of the file.
        identity: whatever the fits depend on; a file of another is not read.
        listed: see :func:`fit`.
    """

    def __init__(
        self, data: Data, validate: Callable[[Scores], float], settings: dict[str, Any], path: Path, identity: Any,
        *, listed: int | None = None,
    ) -> None:  # fmt: skip
        self.data, self.validate, self.settings, self.path = data, validate, settings, path
        self.listed = listed
        self.identity = json.loads(json.dumps(identity))
        kept = json.loads(path.read_text()) if path.exists() else {}
        self.fits: dict[str, Any] = kept["fits"] if kept.get("identity") == self.identity else {}

    def choose(self, method: str) -> dict[str, Any]:
        """The best candidate: ``settings``, ``score``, ``updates``, and what was tried."""
        start: Candidate = {} if method in NEIGHBOURS else dict(self.settings["start"])
        stages = {} if method in NEIGHBOURS else dict(self.settings["stages"])
        own = self.settings["own"].get(method, {})
        now: Candidate = {**start, **{name: values[0] for name, values in own.items()}}
        for name, values in {**stages, **own}.items():
            found = [(self.score(method, {**now, name: value}), value) for value in values]
            now = {**now, name: max(found, key=lambda pair: pair[0])[1]}
        for name in self.settings.get("again", ()):
            if own and name in stages:
                now = {**now, name: max((self.score(method, {**now, name: v}), v) for v in stages[name])[1]}
        tried = {key: fit for key, fit in self.fits.items() if key.startswith(f"{method} ")}
        key, best = max(tried.items(), key=lambda pair: pair[1]["score"])
        settings = json.loads(key.removeprefix(f"{method} "))
        return {"settings": settings, "score": best["score"], "updates": best["updates"], "fits": len(tried)}

    def score(self, method: str, candidate: Candidate) -> float:
        """The validation metric of a candidate: kept, or found and kept."""
        key = _key(method, candidate)
        if key not in self.fits:
            self.fits[key] = self._found(method, candidate)
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self.path, {"identity": self.identity, "fits": self.fits})
        return float(self.fits[key]["score"])

    def curve(self, method: str, candidate: Candidate) -> list[Any]:
        """(updates, metric) of each look at a candidate that was fitted."""
        return list(self.fits[_key(method, candidate)]["curve"])

    def _found(self, method: str, candidate: Candidate) -> dict[str, Any]:
        began = time.process_time()
        training = self.settings["training"]
        note = {}
        try:
            done = fit(
                method, candidate, self.data, training, seed=self.settings["seed"], validate=self.validate,
                factors=training["search_factors"], listed=self.listed,
            )  # fmt: skip
            looks = [value for _, value in done.curve]
            value, updates, curve = (max(looks) if looks else self.validate(done.scores)), done.updates, done.curve
            if done.stopped not in ("done", "no better"):
                note = {"stopped": done.stopped}
        except UserError as error:  # a rate at which training diverges at once is a finding, not the end of a search
            if "diverged" not in str(error):
                raise
            value, updates, curve, note = -1.0, None, [], {"stopped": str(error)}
        seconds = round(time.process_time() - began, 2)
        return {"score": value, "updates": updates, "curve": curve, "seconds": seconds, **note}


def _key(method: str, candidate: Candidate) -> str:
    return f"{method} {json.dumps(candidate, sort_keys=True)}"


def kept(path: Path, identity: Any, names: Any, make: Callable[[Any], Any]) -> dict[str, Any]:
    """What ``make`` finds for each name, kept in a file as it is found."""
    identity = json.loads(json.dumps(identity))
    there = json.loads(path.read_text()) if path.exists() else {}
    found = there["found"] if there.get("identity") == identity else {}
    for name in names:
        if name not in found:
            found[name] = make(name)
            write_json(path, {"identity": identity, "found": found})
    return found

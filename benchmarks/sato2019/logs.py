"""Purchase logs: where they come from, and the periods of an evaluation laid out so that many lists are judged."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from dunnhumby import load_dunnhumby
from exposure_propensities import dense, recent, shares
from learn import Data
from purchase_history import PurchaseHistory
from semi import SOURCES, log_of
from tafeng import load_tafeng

from recsim_mnar.errors import UserError
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.uplift import EMPTY, evaluate_lists, halves
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld

LOGS = {"dunnhumby": "dunnhumby", "category": "dunnhumby", "tafeng": "tafeng"}  # log: whose data
LEVELS = {"dunnhumby": "subcategory", "category": "category"}  # what an item of Dunnhumby is

METRICS = ("uplift", "uplift_snips", "uplift_ips", "precision")
TAKEN = tuple(f"{metric}_{empty}" for metric in METRICS[:2] for empty in EMPTY[1:])
OTHER = "uplift_snips_user"  # UpliftSNIPS under the other reading of the paper's propensities
CLIP = 1e-3  # smallest propensity divided by


@dataclass(frozen=True)
class RealLog:
    """A log of purchases and recommendations.

    Attributes:
        name: of :data:`LOGS`.
        exposures: without propensities.
        present: (U, P) who was there.
        items: (I,) names.
        n_test: periods of each evaluation.
    """

    name: str
    exposures: Exposures
    present: Any
    items: Any
    n_test: int

    def at_least(self, periods: int) -> RealLog:
        """The items alone that were bought in so many periods."""
        x = self.exposures
        pairs = np.unique(x.item[x.purchased].astype(np.int64) * x.n_periods + x.time[x.purchased])
        keep = np.bincount(pairs // x.n_periods, minlength=x.n_items) >= periods
        rows, new = keep[x.item], np.cumsum(keep) - 1
        flags = {n: getattr(x, n)[rows] for n in ("user", "time", "recommended", "purchased")}
        part = Exposures(
            item=new[x.item[rows]], **flags, n_users=x.n_users, n_items=int(keep.sum()), n_periods=x.n_periods
        )
        return RealLog(self.name, part, self.present, np.asarray(self.items)[keep], self.n_test)


class Window:
    """The periods of an evaluation, laid out by (user, period) of those present, so that many lists are judged quickly.

    Args:
        log: the log.
        periods: evaluated.
        propensity_of: (users, items, periods) -> P(recommended).
        other: the same under another reading, shown next to it.
    """

    def __init__(self, log: RealLog, periods: Any, propensity_of: Any, other: Any = None) -> None:
        x = log.exposures
        self.periods = np.asarray(periods)
        self.user, at = np.nonzero(log.present[:, self.periods])
        self.period = self.periods[at]
        self._row = np.full((x.n_users, x.n_periods), -1)
        self._row[self.user, self.period] = np.arange(len(self.user))
        self.shown, self.bought = np.zeros((2, len(self.user), x.n_items), bool)
        self.e = np.zeros((len(self.user), x.n_items), np.float32)
        self.other = None if other is None else np.zeros_like(self.e)
        items = np.arange(x.n_items)
        for t in self.periods:
            rows = np.flatnonzero(self.period == t)
            shown, bought = dense(x, int(t))
            self.shown[rows], self.bought[rows] = shown[self.user[rows]], bought[self.user[rows]]
            cells = np.broadcast_arrays(self.user[rows][:, None], items, t)
            self.e[rows] = propensity_of(*cells)
            if self.other is not None:
                self.other[rows] = other(*cells)
        self.present = log.present
        kept = x.between(int(self.periods[0]), int(self.periods[-1]) + 1)
        self.exposures = kept.with_propensities(self._propensity)

    def _propensity(self, users: Any, items: Any, periods: Any) -> Any:
        return self.e[self._row[users, periods], items].astype(np.float64)

    def uplift(self, scores: Any, n: int, empty: str = "leave_out") -> float:
        """Uplift@n as evaluate_lists has it, ties broken as they fall; 0 where no user has an estimate."""
        top = np.argpartition(-scores, n - 1, axis=1)[:, :n]
        return self.mean_of_halves(top, None, empty)

    def halves(self, lists: Any, e: Any, empty: str) -> Any:
        """Uplift of each user-period, with weights 1/e and 1/(1 - e) where ``e`` is given; NaN without an estimate."""
        own = lists[self.user]
        z, y = (np.take_along_axis(table, own, axis=1) for table in (self.shown, self.bought))
        weight = np.ones(own.shape)
        if e is not None:
            p = np.take_along_axis(e, own, axis=1).astype(np.float64)
            weight = 1.0 / np.maximum(np.where(z, p, 1.0 - p), CLIP)
        return halves(z, y, weight, empty)

    def mean_of_halves(self, lists: Any, e: Any, empty: str) -> float:
        """Mean over users in each period, then over periods; 0 where no user has an estimate."""
        estimates = self.halves(lists, e, empty)
        there = ~np.isnan(estimates)
        if not there.any():
            return 0.0
        return float(np.mean([estimates[there & (self.period == t)].mean() for t in np.unique(self.period[there])]))

    def estimates(self, lists: Any) -> dict[str, Any]:
        """Every metric of (U, N) lists with its interval by user, and the share of user-periods without an estimate.

        A period in which no user has an Uplift@N is left out of the two that need one, and counted.
        """
        own = np.take_along_axis(self.shown, lists[self.user], axis=1)
        there = own.any(axis=1) & ~own.all(axis=1)
        some = [t for t in self.periods if there[self.period == t].any()]
        out = {}
        for metrics, periods in ((METRICS[:2], some), (METRICS[2:], self.periods)):
            estimates = evaluate_lists(
                self.exposures, lists, metrics=metrics, periods=periods, present=self.present, clip=CLIP
            )
            out |= {name: [float(x) for x in (e.value, e.low, e.high)] for name, e in estimates.items()}
        missing = {"left_out": float(1.0 - there.mean()), "periods_without": len(self.periods) - len(some)}
        e = {METRICS[0]: None, METRICS[1]: self.e}
        taken = {f"{m}_{empty}": self.mean_of_halves(lists, e[m], empty) for m in METRICS[:2] for empty in EMPTY[1:]}
        if self.other is not None:
            taken[OTHER] = self.mean_of_halves(lists, self.other, "leave_out")
        return {**out, **missing, **taken}

    def calibration(self, items: Any, table: Any = None) -> list[float]:
        """Means of Z/e and (1 - Z)/(1 - e) over some items: 1 where the propensities are right."""
        table = self.e if table is None else table
        z, e = self.shown[:, items], np.clip(table[:, items].astype(np.float64), CLIP, 1.0 - CLIP)
        return [float((z / e).mean()), float((~z / (1.0 - e)).mean())]

    def deciles(self, table: Any = None) -> list[list[float]]:
        """By decile of e: its mean, the share recommended, and the mean of Z/e."""
        e, z = (self.e if table is None else table).ravel(), self.shown.ravel()
        parts = np.array_split(np.argsort(e, kind="stable"), 10)
        return [
            [float(x.mean()) for x in (e[p], z[p], z[p] / np.maximum(e[p].astype(np.float64), CLIP))] for p in parts
        ]

    def classes(self, lists: Any) -> list[float]:
        """Share of each observed class among the listed items of those present (Table 5)."""
        own = lists[self.user]
        z, y = (np.take_along_axis(flags, own, axis=1) for flags in (self.shown, self.bought))
        return [float(x.mean()) for x in (z & y, z & ~y, ~z & y, ~z & ~y)]


def phases(n_periods: int, n_test: int) -> dict[str, tuple[Any, Any]]:
    """Training and evaluation periods of validation and test (section 5.1), from 0.

    Raises:
        UserError: too few periods.
    """
    if n_periods <= 2 * n_test + 1:
        raise UserError(f"{n_periods} periods are too few for two evaluations of {n_test}")
    return {
        "validation": (np.arange(n_periods - 2 * n_test), np.arange(n_periods - 2 * n_test, n_periods - n_test)),
        "test": (np.arange(n_test, n_periods - n_test), np.arange(n_periods - n_test, n_periods)),
    }


def phase(log: RealLog, which: str) -> tuple[Data, Window]:
    """What is learnt from, with propensities of the training periods, and what is judged by."""
    train, judged = phases(log.exposures.n_periods, log.n_test)[which]
    of = propensities_of(log, train)
    functions = [_function(one) for one in of]
    return Data(log.exposures.with_propensities(of[0]), train), Window(log, judged, *functions)


def propensities_of(log: RealLog, train: Any) -> list[Any]:
    """The paper's model of P(recommended), fitted on the training periods; where it has two readings, both."""
    x = log.exposures
    if LOGS[log.name] == "dunnhumby":
        return [recent(x, train, by=by, present=log.present) for by in ("item", "user")]
    return [shares(x, train, present=log.present)]


def _function(of: Any) -> Any:
    return of if callable(of) else lambda users, items, periods: of[0, items, 0]


def judged(exposures: Exposures, lists: Any, periods: Any, present: Any) -> dict[str, Any]:
    """Uplift@N, UpliftSNIPS@N and precision of (U, N) lists, without laying out all cells.

    A period in which no user has an Uplift@N is left out of the two that need one, and counted; ``nan`` where no
    period has one.
    """
    there = []
    for t in periods:
        users = np.flatnonzero(present[:, t])
        own = exposures.flags(users[:, None], lists[users], t)[0]
        there.append(own.any(axis=1) & ~own.all(axis=1))
    some = [t for t, flags in zip(periods, there, strict=True) if flags.any()]
    out: dict[str, Any] = {name: [float("nan")] * 3 for name in METRICS[:2]}
    for metrics, chosen in ((METRICS[:2], some), (METRICS[3:], list(periods))):
        if chosen:
            estimates = evaluate_lists(exposures, lists, metrics=metrics, periods=chosen, present=present, clip=CLIP)
            out |= {name: [float(x) for x in (e.value, e.low, e.high)] for name, e in estimates.items()}
    return {**out, "left_out": 1.0 - float(np.concatenate(there).mean()), "periods_without": len(periods) - len(some)}


def history_of(name: str, files: dict[str, Path | None], **options: Any) -> PurchaseHistory:
    """A log after the paper's filters.

    Raises:
        UserError: its data is not given.
    """
    source = LOGS[name]
    path = files[source]
    if path is None:
        raise UserError(f"{name} needs --{source}: {SOURCES[source]}")
    if source == "dunnhumby":
        return load_dunnhumby(path, **{"level": LEVELS[name], **options})
    return load_tafeng(path, **options)


def log_from(history: PurchaseHistory, name: str, n_test: int) -> RealLog:
    """A log of a history."""
    return RealLog(name, history.exposures(), history.present, np.asarray(history.items).astype(str), n_test)


def made_up(name: str, n_test: int, *, n_users: int = 80, n_items: int = 60, n_periods: int = 12) -> RealLog:
    """A log of a synthetic world, for --quick and the tests."""
    params = PurchasesParams(n_items=n_items, n_periods=n_periods, slate_size=15, base=-2.5, effect=0.75)
    exposures = log_of(PurchasesWorld(params), n_users, n_periods, 7).with_propensities(None)
    present = np.zeros((n_users, n_periods), bool)
    present[exposures.user, exposures.time] = True
    return RealLog(name, exposures, present, np.arange(n_items).astype(str), n_test)


def statistics(files: dict[str, Path | None], quick: bool) -> dict[str, Any]:
    """Table 3: sizes of the logs that are given."""
    found = {}
    for name, source in LOGS.items():
        if files[source] is not None:
            history = history_of(name, files)
            found[name] = {"sizes": history.statistics(), "notes": list(history.notes)}
    if not found and not quick:
        history_of("dunnhumby", files)  # says what is missing
    return {"logs": found} if found else {}

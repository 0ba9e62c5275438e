"""plan_logging: which mixture of today's policy and the candidates to log under, for an interval of a given width."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.kernels.checks import level_of, number_in, texts_of, whole_number
from recsim_mnar.log.columns import Floats
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.plan.pilot import FEW_USERS, Amount, Pilot, factor_range, share_or_number
from recsim_mnar.own_log.plan.pricing import ESTIMATORS, Design, Priced, Pricing, Problem, cheapest, least_largest
from recsim_mnar.policies.mixture import write_mixture

_ROUNDS = 8
_LOGGER = "the logging policy"
_NOTHING = 1e-4
"""Weights below it are left out of a mixture."""


@dataclass(frozen=True)
class TargetPlan:
    """A mixture's forecast for one target.

    Attributes:
        name: of the target.
        value: its mean reward, from the pilot.
        half_width: of its interval.
        share: of the value.
        low, high: between which the half width is, at the plan's level, by what the pilot leaves open.
        moment: E_x sum_a pi_t^2 q / pi_0.
        design_effect: how many times as large the variance is as that of independent rows.
        missing: mass of the target that the pilot never shows; it was priced at the pilot's mean squared reward.
    """

    name: str
    value: float
    half_width: float
    share: float
    low: float
    high: float
    moment: float
    design_effect: float
    missing: float


@dataclass(frozen=True)
class LoggingPlan:
    """A policy to log under.

    Attributes:
        weights: of the policies in the mixture, by name, the deployed one first.
        rows: decisions to log.
        cost: share of them whose action is not the deployed policy's choice.
        exploring: that many decisions.
        targets: what the log will say of each.
        gap: most by which another mixture of these policies could be better, as a share.
        uniform: the epsilon with which uniform exploration gives intervals as narrow, and its cost; None where the
            number of actions is not known, or no epsilon does.
        estimator: that the intervals are of.
        level: of the intervals.
        notes: what to know of the plan.
        reading: what was taken from a file, where that had to be recognised.
    """

    weights: dict[str, float]
    rows: int
    cost: float
    exploring: int
    targets: tuple[TargetPlan, ...]
    gap: float
    uniform: dict[str, float] | None
    estimator: str
    level: float
    notes: tuple[str, ...] = ()
    reading: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"targets": [asdict(target) for target in self.targets], "notes": list(self.notes)}

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture as a policy that `recsim-mnar simulate --policy FILE.json` runs.

        Raises:
            UserError: the name does not end in ``.json``.
        """
        write_mixture(path, self.weights)


def plan_logging(
    log: Any,
    targets: Sequence[str],
    *,
    width: Any = None,
    rows: int | None = None,
    cost: Any = None,
    deployed: str | None = None,
    estimator: str = "ips",
    level: float = 0.95,
    actions: int | None = None,
    columns: Mapping[str, str | None] | Reading | None = None,
) -> LoggingPlan:
    """Plan what to log under, so that candidate policies can be estimated afterwards.

    Two of ``width``, ``rows`` and ``cost`` are given (rows are the log's where only one is): a width and rows give the
    mixture that costs least, a cost and rows the one whose intervals are narrowest (the widest of them, each as a
    share of its value), a width and a cost the fewest rows.

    Args:
        log: a pilot: a file or folder, a :class:`recsim_mnar.log.Log`, or columns by name; it must have shown, now and
            then, what the targets do.
        targets: columns, each a candidate's probability of the logged action; the mixture is of these.
        width: half width of every target's interval: ``"10%"`` of its value, or an amount in the reward's unit.
        rows: decisions to log.
        cost: share of decisions, at most, whose action is not the deployed policy's choice: ``"2%"`` or 0.02.
        deployed: column of the deployed policy; None for the policy that logged the pilot.
        estimator: ``ips`` or ``snips``: whose interval is planned.
        level: of the interval.
        actions: how many there are, to compare with uniform exploration.
        columns: column by role (reward, propensity, user, time), those left out are recognised; or a whole ``Reading``.

    Raises:
        UserError: settings that say too much or too little, a target that is not in the log or that no row shows, a
            width that no mixture reaches.
    """
    level = level_of(level)
    if estimator not in ESTIMATORS:
        raise UserError(f"no plan for the estimator {estimator!r}; {nearest(str(estimator), ESTIMATORS)}")
    names = list(dict.fromkeys(texts_of(targets, "targets")))
    if not names:
        raise UserError("no target: name the columns of the policies that the log is to say something of")
    if width is None and cost is None:
        raise UserError("name a width (10%), or a cost that is allowed (2%)")
    if width is not None and rows is not None and cost is not None:
        raise UserError("width, rows and cost cannot all be given: any two determine the third")
    wanted = None if width is None else Amount.of(width, "width")
    if wanted is not None and wanted.size < 0.0:
        raise UserError(f"width must be positive, got {width!r}")
    budget = None if cost is None else _budget(cost)
    read = names if deployed is None or deployed in names else [*names, deployed]
    pilot = Pilot.of(log, read, columns=columns)
    pricing = Pricing.of(pilot, names, deployed, estimator, level)
    number = len(pilot) if rows is None else whole_number(rows, "rows", least=2)
    maker = _Maker(pricing, pricing.problem())
    if budget is None:
        assert wanted is not None
        design = maker.cheapest(maker.half_widths(wanted), number)
    else:
        design = maker.narrowest(budget)
        if wanted is not None:
            number = maker.fewest_rows(design, maker.half_widths(wanted))
    return maker.plan(design, number, actions)


def _budget(cost: Any) -> float:
    share, _ = share_or_number(cost)
    if math.isnan(share):
        raise UserError(f"cost must be a share of the decisions (2% or 0.02), got {cost!r}")
    return number_in(share, "cost", 0.0, 1.0, ends="(]")


@dataclass(frozen=True)
class _Maker:
    """Makes plans of a pricing."""

    pricing: Pricing
    problem: Problem

    def half_widths(self, wanted: Amount) -> Floats:
        """(T,) in the reward's unit."""
        return np.array([wanted.of_value(target.value, f"width of {target.name}") for target in self.pricing.targets])

    def share(self, design: Design) -> Floats:
        """(n,) the mixture's probability of the pilot's actions."""
        return self.pricing.shares @ design.weights

    def forecast(self, design: Design, rows: float) -> Floats:
        """(T,) half widths."""
        share, moments = self.share(design), self.problem.moments(design.weights)
        pairs = zip(self.pricing.targets, moments, strict=True)
        return np.array([self.pricing.forecast(target, float(moment), share, rows) for target, moment in pairs])

    def cheapest(self, half_widths: Floats, rows: float) -> Design:
        """The mixture of least cost, its limits corrected until the forecast of the interval itself fits."""
        aim, last = half_widths.copy(), None
        for _ in range(_ROUNDS):
            limits = self.pricing.limits(aim, rows)
            design = cheapest(self.problem, limits) if (limits > 0.0).all() else None
            if design is None:
                raise self._unreachable(half_widths, rows)
            found = self.forecast(design, rows)
            last = design
            worst = float(np.max(found / half_widths))
            if (design.objective <= 0.0 and worst <= 1.0) or abs(worst - 1.0) < 1e-3:
                break
            # Of a target that another one's part shows well enough the forecast is narrower than asked: it is let be.
            aim = np.where(
                found >= half_widths * 0.999,
                aim * half_widths / found,
                np.minimum(aim * half_widths / found, half_widths),
            )
        assert last is not None
        return last

    def _unreachable(self, half_widths: Floats, rows: float) -> UserError:
        """The error that names the number of rows needed."""
        scale = self.pricing.limits(half_widths, 1.0) + np.array(
            [self.pricing.between(t) for t in self.pricing.targets]
        )
        design = least_largest(self.problem, scale, 1.0)
        needed = self.fewest_rows(design, half_widths)
        return UserError(
            f"from {round(rows):,} rows no mixture of these policies gives intervals so narrow; from about {needed:,} "
            "rows one that only explores does: name more rows or a larger width"
        )

    def narrowest(self, budget: float) -> Design:
        """The mixture within a cost whose widest interval, as a share of its value, is narrowest."""
        values = np.array([abs(target.value) for target in self.pricing.targets])
        if (values <= 0.0).any():
            raise UserError("a target's value is 0, so a relative width is undefined. Leave that target out")
        return least_largest(self.problem, values**2, budget)

    def fewest_rows(self, design: Design, half_widths: Floats) -> int:
        """Rows from which all intervals are narrow enough."""
        from scipy.optimize import brentq

        def excess(log_rows: float) -> float:
            return math.log(float(np.max(self.forecast(design, math.exp(log_rows)) / half_widths)))

        low, high = math.log(2.0), math.log(1e12)
        if excess(high) > 0.0:
            raise UserError("no number of rows gives intervals so narrow: name a larger width")
        if excess(low) <= 0.0:
            return 2
        return math.ceil(math.exp(float(brentq(excess, low, high, xtol=1e-4))))

    def plan(self, design: Design, rows: int, actions: int | None) -> LoggingPlan:
        """The plan for a person."""
        design = self._without_crumbs(design)
        weights = design.weights
        moments, widths, share = self.problem.moments(design.weights), self.forecast(design, rows), self.share(design)
        planned = tuple(
            self._target(target, float(moment), float(half), share)
            for target, moment, half in zip(self.pricing.targets, moments, widths, strict=True)
        )
        cost = float(self.pricing.costs @ weights)
        return LoggingPlan(
            weights={name: float(w) for name, w in zip(self._names(), weights, strict=True) if w > 0.0},
            rows=rows,
            cost=cost,
            exploring=math.ceil(cost * rows),
            targets=planned,
            gap=max(design.gap, 0.0),
            uniform=None if actions is None else self._uniform(moments, whole_number(actions, "actions", least=2)),
            estimator=self.pricing.estimator,
            level=self.pricing.level,
            notes=self._notes(planned),
            reading=self.pricing.pilot.lines,
        )

    def _without_crumbs(self, design: Design) -> Design:
        """The mixture without the policies that hardly ever decide, where that does no harm."""
        weights = np.where(design.weights < _NOTHING, 0.0, design.weights)
        weights /= weights.sum()
        before, after = self.problem.moments(design.weights), self.problem.moments(weights)
        return replace(design, weights=weights) if (after <= before * (1.0 + 10.0 * _NOTHING)).all() else design

    def _names(self) -> list[str]:
        """Names of the policies; the logging policy by its own name if the log gives it."""
        first, *others = self.pricing.names
        said = self.pricing.pilot.provenance.get("policy", {})
        known = said.get("name") if isinstance(said, dict) else None
        return [known or first if first == _LOGGER else first, *others]

    def _target(self, target: Priced, moment: float, half: float, share: Floats) -> TargetPlan:
        low, high = factor_range(self.pricing.uncertainty(target, share) / 2.0, self.pricing.level)
        alone = max(moment - (target.value**2 if self.pricing.estimator == "ips" else 0.0), 1e-300)
        return TargetPlan(
            target.name, target.value, half, half / abs(target.value) if target.value else math.inf, half * low,
            half * high, moment, 1.0 + target.covariance / alone, target.missing,
        )  # fmt: skip

    def _uniform(self, moments: Floats, actions: int) -> dict[str, float] | None:
        """The least epsilon of uniform exploration that leaves no target with a larger second moment, and its cost."""
        from scipy.optimize import brentq

        today = self.pricing.shares[:, 0]
        terms = [(target, float(moment)) for target, moment in zip(self.pricing.targets, moments, strict=True)]

        def excess(epsilon: float) -> float:
            share = (1.0 - epsilon) * today + epsilon / actions
            return max(
                math.log(
                    (float(np.mean(target.terms / share)) + target.missing * target.reward * actions / epsilon) / moment
                )
                for target, moment in terms
            )

        if excess(1.0) > 0.0:
            return None
        epsilon = float(brentq(excess, 1e-9, 1.0)) if excess(1e-9) > 0.0 else 0.0
        pilot = self.pricing.pilot
        overlap = float(np.mean(np.minimum(today, 1.0 / actions) / pilot.propensity)) / float(
            np.mean(today / pilot.propensity)
        )
        return {"actions": actions, "epsilon": epsilon, "cost": epsilon * max(1.0 - overlap, 0.0)}

    def _notes(self, planned: Sequence[TargetPlan]) -> tuple[str, ...]:
        pilot, found = self.pricing.pilot, []
        unit = "users" if pilot.clusters is not None else "rows"
        if pilot.users < FEW_USERS:
            found.append(f"only {pilot.users} {unit} in the pilot: the plan is a guess; it needs at least {FEW_USERS}")
        if pilot.clusters is None:
            found.append("no column of users: rows are taken to be independent")
        if self._names()[0] == self.pricing.names[0] == _LOGGER:
            found.append(
                f"the log does not name its policy: where the plan says {_LOGGER!r}, its file needs an agent's name"
            )
        for target in planned:
            if target.missing > 0.0:
                found.append(
                    f"{target.name}: the pilot never shows {100 * target.missing:.2g} % of what it does; that is "
                    "priced at the pilot's mean reward"
                )
            if target.high > 1.3 * target.half_width:
                found.append(
                    f"{target.name}: the pilot knows its width only to a factor of "
                    f"{target.high / target.half_width:.2g}"
                )
        return tuple(found)

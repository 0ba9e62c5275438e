"""plan_estimate: how many rows until fresh logs are trusted, and what no number of rows turns.

Fresh logs are logs such as a pilot's users would make again, of any size, as `estimate` judges them. The pilot's
users are dealt into parts. A fresh log of m times its rows meets each part a Poisson number of times of mean m (a
bootstrap by user, for other sizes): its moments are sums over parts, whatever its size, and the same function judges
them. Draws are addressed by part and log and used at every size, so that a log grows where m does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.estimators.off_policy.from_moments import AUTO, estimate_from_moments
from recsim_mnar.estimators.off_policy.limits import STRICT, support_of
from recsim_mnar.estimators.off_policy.moments import Moments, Shards
from recsim_mnar.estimators.off_policy.records import UNSUPPORTED
from recsim_mnar.estimators.off_policy.scores import check_name, known_to_differ
from recsim_mnar.estimators.off_policy.stated import Stated, check_clip
from recsim_mnar.estimators.verdict import LEVELS, Estimate
from recsim_mnar.kernels.checks import level_of, number_in, text_of, whole_number
from recsim_mnar.log.columns import Clusters, Floats
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.plan.pilot import Pilot, two_sided
from recsim_mnar.rng import Stream, derive_seed, uniforms

PARTS = 400
"""A variance over so many has a relative error of 7 %."""
LOGS = 64
"""Fresh logs of a size: a half of them is known to 6 points."""
AGAIN = 100
"""Pilots that are drawn from the pilot, for what it leaves open."""
LEAST, MOST = 1.0 / 16.0, 1024.0
"""Sizes that are looked at, in times the pilot's rows."""
_STEPS = 7
"""Fourfold steps between the two."""
_TILTS = 12
_FEW = 30
"""Parts below which the mean weight is no control."""


@functools.cache
def _seed() -> int:
    return derive_seed(0, "plan/estimate")


def dealt(rows: int, clusters: Clusters | None) -> list[NDArray[np.int64]]:
    """Rows of each part: users (rows without users) in a random order that depends on nothing but their number."""
    codes, number = (np.arange(rows), rows) if clusters is None else clusters.dense()
    order = np.argsort(uniforms(_seed(), Stream.SAMPLE, np.arange(number), 0), kind="stable")
    part = np.empty(number, np.int64)
    part[order] = np.arange(number) % PARTS
    by_part = np.argsort(part[codes], kind="stable")
    edges = np.cumsum(np.bincount(part[codes], minlength=min(number, PARTS)))
    return np.split(by_part, edges[:-1])


@dataclass(frozen=True)
class FreshLogs:
    """Fresh logs of a pilot.

    Attributes:
        shards: moments of the pilot's parts.
        judge: from moments to an estimate with its verdict.
        off: (parts,) by how much the weights sum to more than there are rows. The mean weight must be 1, so users are
            weighted so that it is; None where that it is not is no chance.
    """

    shards: Shards
    judge: Callable[[Moments], Estimate]
    off: Floats | None

    def logs(self, factor: float) -> list[Estimate]:
        """:data:`LOGS` fresh logs of so many times the rows."""
        met = poisson(factor, self._uniforms(0, LOGS))
        rates = self.rates(np.ones(met.shape[1]))
        return [self.judge(self.shards.met(_of_mean(times * rates, factor))) for times in met if times.any()]

    def expected(self, factor: float, rates: Floats) -> Estimate:
        """A log of so many times the rows in which nothing is chance, and parts are met in proportion to ``rates``."""
        return self.judge(self.shards.met(_of_mean(rates, factor)))

    def pilots(self) -> Floats:
        """(AGAIN, parts) how often pilots like this one meet each part."""
        return poisson(1.0, self._uniforms(LOGS, AGAIN))

    def _uniforms(self, first: int, number: int) -> Floats:
        return _table(first, number, len(self.shards.parts))

    def rates(self, pilot: Floats) -> Floats:
        """(parts,) how often a pilot met each part, tilted by exp(-t off) so that the mean weight is 1.

        The t is found by Newton's steps on a convex function, none of which changes a part's rate more than e times.
        """
        off = self.off
        if off is None or len(pilot) < _FEW or not (off[pilot > 0.0].min() < 0.0 < off[pilot > 0.0].max()):
            return pilot
        rates, bound = pilot, 1.0 / float(np.abs(off).max())
        for _ in range(_TILTS):
            mean = np.average(off, weights=rates)
            spread = np.average((off - mean) ** 2, weights=rates)
            rates = rates * np.exp(-off * np.clip(mean / spread, -bound, bound))
        return rates


@functools.lru_cache(maxsize=4)
def _table(first: int, number: int, parts: int) -> Floats:
    users, logs = np.meshgrid(np.arange(parts), first + np.arange(number))
    return uniforms(_seed(), Stream.BOOTSTRAP, users.ravel(), logs.ravel()).reshape(number, parts)


def _of_mean(times: Floats, mean: float) -> Floats:
    return times * (mean / times.mean())


def poisson(mean: float, uniform: Floats) -> Floats:
    """Poisson numbers of a mean by inversion: they rise with it for the same uniforms."""
    from scipy.special import pdtr

    most = math.ceil(mean + 12.0 * math.sqrt(mean) + 12.0)
    return np.searchsorted(pdtr(np.arange(most), mean), uniform, side="right").astype(np.float64)


def from_then_on(holds: Callable[[float], bool]) -> float:
    """The size from which on something holds, to 2 %; inf where it does not at :data:`MOST`, else at least LEAST."""
    sizes = LEAST * (MOST / LEAST) ** (np.arange(_STEPS + 1) / _STEPS)
    held = _STEPS + 1
    while held > 0 and holds(float(sizes[held - 1])):
        held -= 1
    if held in (0, _STEPS + 1):
        return LEAST if held == 0 else math.inf
    low, high = float(sizes[held - 1]), float(sizes[held])
    while high / low > 1.02:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


OPEN = 10.0
"""Ends of the range of rows that are further apart than this factor: the pilot does not say."""

TAILS = 0.5
"""Share of the level's tails at which the resampled pilots are cut. At 1 the range held the true size for 34 of the 42
pilots that it was developed on: percentiles of resampled pilots are short where few users carry the heavy weights."""


@dataclass(frozen=True)
class Turn:
    """A finding of the verdict, and the effect of more rows on it.

    Attributes:
        code: of the finding.
        level: it gives the verdict today; "trust" for one that only fresh logs have.
        message: of the finding, today or in a fresh log.
        clears: rows from which on the wanted share of fresh logs goes without it; None where no number of rows does.
        action: what to do, of the finding.
    """

    code: str
    level: str
    message: str
    clears: int | None
    action: str


@dataclass(frozen=True)
class EstimatePlan:
    """Effect of more rows on the verdict on a target.

    Attributes:
        target: its column.
        estimator: whose estimate is judged.
        rows: of the log.
        users: of the log; rows where there are no users.
        value: today's estimate.
        half_width: of its interval today.
        level: of the interval.
        verdict: today's level.
        trusted: the share of fresh logs that the rows are planned for.
        caution: rows from which on this share of fresh logs has a verdict of caution or better; None where no number
            of rows suffices, or this pilot does not say.
        trust: rows from which on this share is trusted, likewise.
        trust_range: rows between which ``trust`` is, at ``level``, by what the pilot leaves open; None for an end
            that it does not know.
        says: whether the pilot says how many rows trust takes, or that none suffice; where it does not, its range is
            wider than a factor of :data:`OPEN`.
        turns: finding by finding, what never turns first.
        ahead: where a number of rows was asked about, of fresh logs of that size: ``rows``, median ``half_width``, the
            ``verdict`` (level) that half of them reach, and the share ``trusted``.
        reading: what was taken from a file, where that had to be recognised.
    """

    target: str
    estimator: str
    rows: int
    users: int
    value: float
    half_width: float
    level: float
    verdict: str
    trusted: float
    caution: int | None
    trust: int | None
    trust_range: tuple[int | None, int | None]
    says: bool
    turns: tuple[Turn, ...]
    ahead: dict[str, Any] | None = None
    reading: tuple[str, ...] = ()

    @property
    def never(self) -> tuple[str, ...]:
        """Codes of the findings that no number of rows turns."""
        return tuple(turn.code for turn in self.turns if turn.clears is None)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self) | {"never": list(self.never)}


def plan_estimate(
    log: Any,
    target: str,
    *,
    trusted: float = 0.5,
    rows: int | None = None,
    estimator: str = AUTO,
    clip: float | None = None,
    level: float = 0.95,
    unsupported: str | None = None,
    columns: Mapping[str, str | None] | Reading | None = None,
    **stated: Any,
) -> EstimatePlan:
    """Say how many rows a log needs until its verdict on a target is trust, and what no number of rows mends.

    Fresh logs of any size are made of the pilot's users (:mod:`recsim_mnar.own_log.plan.turning`) and judged as
    `estimate` judges them; planned are the rows from which on a share of them is trusted.

    Args:
        log: a file or folder, a :class:`recsim_mnar.log.Log`, or columns by name.
        target: column of the target policy's probability of the logged action.
        trusted: share of fresh logs that are to be trusted.
        rows: adds the width and the verdicts of fresh logs of so many rows.
        estimator: "ips", "clipped_ips" or "snips"; "auto" for the one that leads, as
            :func:`recsim_mnar.estimators.estimate_value`.
        clip: weights of ``clipped_ips`` are cut there; None for no clipping.
        level: of the interval, and of the range of rows.
        unsupported: column of the target's mass where the logging probability is 0; None for the one named as the
            target with ``_unsupported`` behind it, where there is one.
        columns: column by role (reward, propensity, user, time), those left out are recognised; or a whole ``Reading``.
        **stated: full_support, reward_min, reward_max, weight_max and propensity_min, as
            :func:`recsim_mnar.estimators.estimate_value`.

    Raises:
        UserError: no such column, an estimator that is not a function of moments, or values that are no data.
    """
    level, share = level_of(level), number_in(trusted, "trusted", 0.05, 0.95)
    check_clip(clip)
    info = check_name("ips" if estimator == AUTO else estimator)
    if not info.from_moments:
        raise UserError(f"no plan for the estimator {estimator!r}; {nearest(estimator, known_to_differ())}")
    allowed = ("full_support", "reward_min", "reward_max", "weight_max", "propensity_min")
    unknown = sorted(set(stated) - set(allowed))
    if unknown:
        raise UserError(f"plan_estimate has no parameter {unknown[0]!r}; it takes: {', '.join(allowed)}")
    known, target = Stated(**stated), text_of(target, "target")
    asked = None if rows is None else whole_number(rows, "rows", least=1)
    pilot = Pilot.of(
        log, [target], optional={target: target + UNSUPPORTED if unsupported is None else unsupported}, columns=columns
    )
    if unsupported is not None and not pilot.missing:
        raise UserError(f"{pilot.name} has no column {unsupported!r} of missing mass: name another, or leave it away")

    def judge(moments: Moments) -> Estimate:
        return estimate_from_moments(moments, estimator, level=level, stated=known)

    whole, shards = _moments(pilot, target, clip if info.clips else None, known)
    outlook = _Outlook(FreshLogs(shards, judge, _off(shards, known)), judge(whole), share)
    trust = outlook.rows_for("trust")
    low, high = outlook.left_open(trust)
    n = whole.rows
    return EstimatePlan(
        target, outlook.today.estimator, n, whole.users, outlook.today.value, _half(outlook.today), level,
        outlook.today.verdict.level, share, _rows(outlook.rows_for("caution"), n),
        _rows(trust, n) if high <= OPEN * low else None, (_rows(low, n), _rows(high, n)),
        high <= OPEN * low, outlook.turns(n),
        None if asked is None else outlook.ahead(asked, n), pilot.lines,
    )  # fmt: skip


def _moments(pilot: Pilot, target: str, clip: float | None, known: Stated) -> tuple[Moments, Shards]:
    """The pilot's moments, and those of its parts."""
    propensity, policy, clusters = pilot.propensity, pilot.policies[target], pilot.clusters

    def gather(rows: Any, least: float | None) -> Moments:
        moments = Moments.of(
            pilot.reward[rows], propensity[rows], policy[rows], clip=clip,
            cluster=None if clusters is None else clusters.codes[rows], names=("reward", "propensity", target),
            reward_min=least, reward_max=known.reward_max,
            unsupported=pilot.missing[target][rows] if pilot.missing else None,
        )  # fmt: skip
        moments.denied = known.denied(policy[rows], propensity[rows])
        return moments

    whole = gather(slice(None), known.reward_min)
    return whole, Shards([gather(rows, whole.shift) for rows in dealt(len(pilot), clusters)])


def _off(shards: Shards, known: Stated) -> Any:
    """By how much each part's weights sum to more than its rows; None where that is no chance."""
    found = support_of(shards.whole, known, STRICT)
    if shards.whole.supported == 0 or found.proved or found.excess > 0.0:
        return None
    return np.array([part.sum("w") - part.rows + (part.missing or 0.0) for part in shards.parts])


@dataclass(frozen=True)
class _Outlook:
    """Results of fresh logs.

    Attributes:
        fresh: logs of any size.
        today: the estimate of the pilot itself.
        share: of fresh logs that is wanted.
    """

    fresh: FreshLogs
    today: Estimate
    share: float

    @functools.cached_property
    def logs(self) -> Callable[[float], list[Estimate]]:
        """Fresh logs of a size, made once."""
        return functools.cache(self.fresh.logs)

    def without(self, factor: float, code: str | None, level: str = "trust") -> float:
        """Share of fresh logs that a finding, or all of them together, leave at a level or better."""
        worst = LEVELS.index(level)
        return float(np.mean([LEVELS.index(_level(log, code)) <= worst for log in self.logs(factor)]))

    def rows_for(self, level: str, code: str | None = None, share: float | None = None) -> float:
        """Times the rows from which on a share of fresh logs has a level, by one finding or by all."""
        wanted = self.share if share is None else share
        return from_then_on(lambda factor: self.without(factor, code, level) >= wanted)

    def left_open(self, planned: float) -> tuple[float, float]:
        """Factors between which the planned one is.

        The turn of logs without chance varies between pilots. Where a share of fresh logs turns is a factor from it
        that is the same for all pilots, and known as well as the share is counted.
        """
        fresh = self.fresh

        def turn(pilot: Any) -> float:
            rates = fresh.rates(pilot)
            return from_then_on(lambda factor: fresh.expected(factor, rates).verdict.level == "trust")

        pilots = fresh.pilots()
        own = turn(np.ones(pilots.shape[1]))
        tail = (1.0 - self.today.level) * TAILS / 2.0
        low, high = np.quantile([turn(pilot) for pilot in pilots], [tail, 1.0 - tail], method="nearest")
        if math.isinf(planned) or math.isinf(own):
            return float(low), float(high) if math.isinf(planned) and math.isinf(own) else math.inf
        below, above = self.counted()
        return planned / _both(own / low, planned / below), planned * _both(high / own, above / planned)

    def counted(self) -> tuple[float, float]:
        """Factors between which the share is met, as it is counted on so many logs and no more."""
        reach = two_sided(self.today.level) * math.sqrt(self.share * (1.0 - self.share) / LOGS)
        shares = max(self.share - reach, self.share / 2.0), min(self.share + reach, (1.0 + self.share) / 2.0)
        below, above = (self.rows_for("trust", share=share) for share in shares)
        return below, above

    def ahead(self, rows: int, today: int) -> dict[str, Any]:
        """Fresh logs of a number of rows."""
        logs = self.logs(rows / today)
        reached = [level for level in LEVELS if self.without(rows / today, None, level) >= 0.5]
        half = float(np.median([_half(log) for log in logs]))
        return {"rows": rows, "half_width": half, "verdict": reached[0], "trusted": self.without(rows / today, None)}

    def turns(self, rows: int) -> tuple[Turn, ...]:
        """Every finding that speaks against the pilot, or that stays in the way of fresh logs of any size."""
        met = {code: log for log in (*self.logs(MOST), self.today) for code in _against(log)}
        found = []
        for code, log in met.items():
            factor = self.rows_for("trust", code)
            if _level(self.today, code) == "trust" and factor < math.inf:
                continue
            said = max((each for each in log.verdict.findings if each.code == code), key=lambda each: each.severity)
            found.append(Turn(code, _level(self.today, code), said.message, _rows(factor, rows), said.action))
        return tuple(sorted(found, key=lambda turn: (turn.clears is not None, -(turn.clears or 0))))


def _both(one: float, other: float) -> float:
    """The factor that two independent ones of 1 and more give together; of less than 1 (by a rounding) as of 1."""
    return math.exp(math.hypot(*(math.log(max(each, 1.0)) for each in (one, other))))


def _half(estimate: Estimate) -> float:
    return (estimate.high - estimate.low) / 2.0


def _against(estimate: Estimate) -> list[str]:
    return [finding.code for finding in estimate.verdict.findings if finding.level != "trust"]


def _level(estimate: Estimate, code: str | None) -> str:
    """The level that a finding alone, or all together, give."""
    if code is None:
        return estimate.verdict.level
    return max((f.level for f in estimate.verdict.findings if f.code == code), key=LEVELS.index, default="trust")


def _rows(factor: float, rows: int) -> int | None:
    """So many times the rows; None where no number of rows suffices."""
    return None if math.isinf(factor) else math.ceil(factor * rows)

"""Whether planned A/B tests have the power that was planned, in settings that were drawn before there was a plan.

    python benchmarks/plan/run.py [--quick]

Each setting's result is written as it is done, under ``runs/`` next to this file, and not done again; their summary
is printed and goes into ``results.json``.
"""

from __future__ import annotations

import functools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import numpy as np
from _study import once, packed, parser_of, rounded, write_results
from numpy.typing import NDArray
from scipy.special import ndtri

from recsim_mnar import plan_ab

HERE = Path(__file__).parent
SETTINGS = 20
Result = dict[str, Any]
Floats = NDArray[np.float64]

DEVELOPMENT, HELD_OUT = 1_000_000, 0
HIGHEST = 0.8
"""Largest rate of a user: the largest lift leaves it below 1, so that every arm has the lift that its setting names."""


@dataclass(frozen=True)
class Experiment:
    """One A/B test.

    Attributes:
        number: what it was drawn from.
        kind: of rewards: "click", or "dwell" (gamma, of shape 2).
        mean: reward of an average user's row.
        rows: mean number of rows a user has.
        lengths: how users differ in it: "same", "poisson" or "geometric".
        spread: standard deviation of users' inclination on the log scale.
        lift: relative.
        power: wanted.
        users: of the pilot.
    """

    number: int
    kind: str
    mean: float
    rows: float
    lengths: str
    spread: float
    lift: float
    power: float
    users: int


def draw(number: int) -> Experiment:
    """The experiment of a number."""
    rng = np.random.default_rng([20262, number])
    return Experiment(
        number=number,
        kind=str(rng.choice(["click", "click", "dwell"])),
        mean=float(np.exp(rng.uniform(np.log(0.03), np.log(0.3)))),
        rows=float(rng.uniform(2.0, 10.0)),
        lengths=str(rng.choice(["same", "poisson", "geometric"])),
        spread=float(rng.choice([0.0, 0.4, 0.8])),
        lift=float(rng.uniform(0.05, 0.25)),
        power=float(rng.choice([0.7, 0.8, 0.9])),
        users=int(rng.integers(100_000, 200_000)),
    )


def totals(experiment: Experiment, users: int, lift: float, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """(users,) sums of rewards and (users,) numbers of rows under a relative lift."""
    rows = np.full(users, round(experiment.rows))
    if experiment.lengths == "poisson":
        rows = 1 + rng.poisson(experiment.rows - 1.0, users)
    elif experiment.lengths == "geometric":
        rows = rng.geometric(1.0 / experiment.rows, users)
    rate = np.full(users, experiment.mean)
    if experiment.spread:
        rate *= np.exp(experiment.spread * rng.standard_normal(users) - experiment.spread**2 / 2.0)
    rate = np.minimum(rate, HIGHEST) * (1.0 + lift)
    if experiment.kind == "dwell":
        return rng.gamma(2.0 * rows) * 0.5 * rate, rows.astype(np.float64)
    return rng.binomial(rows, rate).astype(np.float64), rows.astype(np.float64)


def power_of(number: int, repeats: int) -> Result:
    """One A/B test: plan from a pilot, then run it again and again."""
    setting = draw(number)
    rng = np.random.default_rng([20264, number])
    sums, rows = totals(setting, setting.users, 0.0, rng)
    plan = plan_ab(pilot_of(setting, sums, rows, rng), f"{100 * setting.lift}%", power=setting.power)
    found, wide = 0, []
    for _ in range(repeats):
        arms = [arm_of(*totals(setting, plan.users, lift, rng)) for lift in (0.0, setting.lift)]
        difference, error = arms[1][0] - arms[0][0], float(np.hypot(arms[0][1], arms[1][1]))
        found += difference > float(ndtri(0.975)) * error
        wide.append(float(ndtri(0.975)) * error)
    return {
        "number": number, "kind": setting.kind, "mean": setting.mean, "rows": setting.rows, "lengths": setting.lengths,
        "spread": setting.spread, "lift": setting.lift, "users": plan.users, "planned": setting.power,
        "real": found / repeats, "width_ratio": float(np.median(wide)) / plan.half_width, "repeats": repeats,
    }  # fmt: skip


def arm_of(sums: Floats, rows: Floats) -> tuple[float, float]:
    """Mean reward of an arm's decisions and its standard error by user: what an A/B test's interval is made of."""
    value = sums.sum() / rows.sum()
    residual = sums - value * rows
    return float(value), float(np.sqrt(residual @ residual * len(rows) / (len(rows) - 1.0)) / rows.sum())


def pilot_of(setting: Experiment, sums: Floats, rows: Floats, rng: np.random.Generator) -> dict[str, Any]:
    """Rows with these totals: clicks among a user's rows, dwell spread over them by chance."""
    user = np.repeat(np.arange(len(rows)), rows.astype(np.int64))
    place = np.arange(len(user)) - np.repeat(np.cumsum(rows) - rows, rows.astype(np.int64))
    if setting.kind == "click":
        return {"user": user, "reward": (place < sums[user]).astype(np.float64)}
    part = rng.gamma(2.0, 0.5, len(user))
    return {"user": user, "reward": part * (sums / np.bincount(user, part))[user]}


def made(number: int, tests: int) -> Result:
    """One setting's result, with the seconds that it took."""
    began = time.process_time()
    result = power_of(number, tests)
    result["cpu_seconds"] = round(time.process_time() - began, 2)
    print(f"{number}: power {result['real']:.3f} for {result['planned']}", flush=True)
    return result


def summary(found: list[Result]) -> Result:
    """What is claimed."""
    off = np.array([each["real"] - each["planned"] for each in found])
    power = {
        "settings": len(off),
        "within_3_points": float(np.mean(np.abs(off) <= 0.03)),
        "largest_miss": float(np.abs(off).max()),
    }
    return {"power": power}


def main() -> None:
    """Run what is asked for."""
    quick = parser_of(__doc__, quick="two settings that plans were developed on, few repeats").parse_args().quick
    begin = DEVELOPMENT if quick else HELD_OUT
    number, tests = (2, 200) if quick else (SETTINGS, 2000)
    out = HERE / "runs" / ("quick" if quick else "held-out")
    if quick:
        for old in out.glob("*.json"):
            old.unlink()
    found = [
        once(out / f"power-{each}.json", functools.partial(made, each, tests)) for each in range(begin, begin + number)
    ]
    figures = summary(found)
    print(packed(rounded(figures)))
    if not quick:
        write_results(HERE / "results.json", figures)


if __name__ == "__main__":
    main()

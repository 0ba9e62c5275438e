"""Whether plans come true: widths in held-out settings, cost of exploration, power of A/B tests, rows until trust.

    python benchmarks/plan/run.py [widths] [exploration] [power] [estimate] [--quick] [--first N] [--settings N]
        [--development]

Each setting's result is written as it is done, under ``runs/`` next to this file, and not done again; their summary
is printed and goes into ``results.json``.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import experiments
import generator
import numpy as np
import trusted_rows
from _study import once, packed, read, rounded, write_results
from generator import Rows, Setting
from scipy.special import ndtri

from recsim_mnar import plan_ab, plan_estimate, plan_logging
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value

HERE = Path(__file__).parent
MOST_ROWS = 150_000
CLOSE = 0.15
Result = dict[str, Any]


def columns(rows: Rows) -> dict[str, Any]:
    """A log as plans read it; the deployed policy is p0, the candidates p1, p2, ..."""
    policies = {f"p{place}": rows.policies[:, place] for place in range(rows.policies.shape[1])}
    return {"user": rows.user, "propensity": rows.propensity, "reward": rows.reward, **policies}


def half_width(rows: Rows, candidate: int) -> float:
    """Of the interval that `estimate` gives by default for one policy."""
    target = rows.policies[:, candidate]
    found = estimate_value(rows.reward, rows.propensity, target, cluster=rows.user, estimator="ips")
    return (found.high - found.low) / 2.0


def medians(setting: Setting, logging: Any, users: int, rng: np.random.Generator, repeats: int) -> Any:
    """(M,) median half widths of the candidates' intervals over repeated logs."""
    widths = []
    for _ in range(repeats):
        rows = generator.simulate(setting, logging, users, rng)
        widths.append([half_width(rows, place) for place in range(1, rows.policies.shape[1])])
    return np.median(widths, axis=0)


def widths_of(number: int, repeats: int, *, scarce: bool = False, exploration: bool = False) -> Result:
    """One setting: plan from a pilot, then log again and again as planned.

    The plan is for the setting's width from as many rows as its growth says; where no mixture gives that, from half as
    many rows more, again and again, and from the most rows on for a quarter more width.
    """
    setting = generator.draw(number, scarce=scarce)
    rng = np.random.default_rng([20263, number, scarce])
    pilot = generator.simulate(setting, setting.pilot, setting.users, rng)
    log, names = columns(pilot), [f"p{place}" for place in range(1, len(setting.policies))]
    rows, width, actions = int(len(pilot.user) * setting.growth), setting.width, setting.n_items
    while True:
        try:
            plan = plan_logging(log, names, deployed="p0", width=f"{100 * width}%", rows=rows, actions=actions)
            break
        except UserError as error:
            if "no mixture" not in str(error):
                raise
            rows, width = (int(1.5 * rows), width) if 1.5 * rows <= MOST_ROWS else (MOST_ROWS, 1.25 * width)
    users = round(rows * setting.users / len(pilot.user))
    weights = np.array([plan.weights.get(f"p{place}", 0.0) for place in range(len(setting.policies))])
    mixture = np.minimum(np.tensordot(weights, setting.policies, axes=1), 1.0)  # a sum may pass 1 by a rounding
    real = medians(setting, mixture, users, rng, repeats)
    planned = np.array([target.half_width for target in plan.targets])
    widest = int(np.argmax([target.share for target in plan.targets]))
    worst = plan.targets[widest]
    result = setting.describe() | {
        "rows": rows, "planned": worst.half_width, "real": float(real[widest]), "share": worst.share, "cost": plan.cost,
        "ratio": float(real[widest] / planned[widest]), "ratios": [float(each) for each in real / planned],
        "within_range": bool(worst.low <= real[widest] <= worst.high), "gap": plan.gap,
        "range": worst.high / worst.half_width,
    }  # fmt: skip
    grown = plan_estimate(log, "p1", estimator="ips", rows=rows)
    assert grown.ahead is not None
    again = [half_width(generator.simulate(setting, setting.pilot, users, rng), 1) for _ in range(repeats)]
    result["growth_ratio"] = float(np.median(again)) / grown.ahead["half_width"]
    if exploration:
        result["uniform"] = against_uniform(setting, real, exact_epsilon(setting, mixture), users, rng, repeats)
        result["uniform"]["ratio"] = real_cost(setting, mixture) / result["uniform"]["cost"]
    return result


def real_cost(setting: Setting, logging: Any) -> float:
    """Share of decisions that differ from the deployed policy's, exactly: contexts are equally frequent."""
    return float(1.0 - np.minimum(logging, setting.policies[0]).sum(axis=1).mean())


def exact_epsilon(setting: Setting, mixture: Any) -> float:
    """The least epsilon at which no candidate's E[w^2 r^2] exceeds that under the mixture: where the search begins."""
    wanted, low, high = generator.weighted_squares(setting, mixture), 1e-6, 1.0
    while high / low > 1.001:
        middle = float(np.sqrt(low * high))
        enough = (generator.weighted_squares(setting, generator.uniform_epsilon(setting, middle)) <= wanted).all()
        low, high = (low, middle) if enough else (middle, high)
    return high


def against_uniform(
    setting: Setting, real: Any, first: float, users: int, rng: np.random.Generator, repeats: int
) -> Result:
    """The least epsilon of uniform exploration whose real intervals are no wider than the mixture's, to 2 %.

    Widths fall as one over the root of the exploring rows, which is how the next epsilon is tried. Where even all rows
    exploring are too few the cost is that of all.
    """
    epsilon, worst = first, np.inf
    for _ in range(4):
        found = medians(setting, generator.uniform_epsilon(setting, epsilon), users, rng, repeats)
        worst = float(np.max(found / real))
        if abs(worst - 1.0) < 0.02 or (epsilon >= 1.0 and worst > 1.0):
            break
        epsilon = min(max(epsilon * worst**2, 1e-4), 1.0)
    cost = real_cost(setting, generator.uniform_epsilon(setting, epsilon))
    return {"epsilon": epsilon, "cost": cost, "wider": worst}


def power_of(number: int, repeats: int) -> Result:
    """One A/B test: plan from a pilot, then run it again and again."""
    setting = experiments.draw(number)
    rng = np.random.default_rng([20264, number])
    sums, rows = experiments.totals(setting, setting.users, 0.0, rng)
    plan = plan_ab(pilot_of(setting, sums, rows, rng), f"{100 * setting.lift}%", power=setting.power)
    found, wide = 0, []
    for _ in range(repeats):
        arms = [arm_of(*experiments.totals(setting, plan.users, lift, rng)) for lift in (0.0, setting.lift)]
        difference, error = arms[1][0] - arms[0][0], float(np.hypot(arms[0][1], arms[1][1]))
        found += difference > float(ndtri(0.975)) * error
        wide.append(float(ndtri(0.975)) * error)
    return {
        "number": number, "kind": setting.kind, "mean": setting.mean, "rows": setting.rows, "lengths": setting.lengths,
        "spread": setting.spread, "lift": setting.lift, "users": plan.users, "planned": setting.power,
        "real": found / repeats, "width_ratio": float(np.median(wide)) / plan.half_width, "repeats": repeats,
    }  # fmt: skip


def arm_of(sums: Any, rows: Any) -> tuple[float, float]:
    """Mean reward of an arm's decisions and its standard error by user: what an A/B test's interval is made of."""
    value = sums.sum() / rows.sum()
    residual = sums - value * rows
    return float(value), float(np.sqrt(residual @ residual * len(rows) / (len(rows) - 1.0)) / rows.sum())


def pilot_of(setting: Any, sums: Any, rows: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Rows with these totals: clicks among a user's rows, dwell spread over them by chance."""
    user = np.repeat(np.arange(len(rows)), rows.astype(np.int64))
    place = np.arange(len(user)) - np.repeat(np.cumsum(rows) - rows, rows.astype(np.int64))
    if setting.kind == "click":
        return {"user": user, "reward": (place < sums[user]).astype(np.float64)}
    part = rng.gamma(2.0, 0.5, len(user))
    return {"user": user, "reward": part * (sums / np.bincount(user, part))[user]}


def steps(part: str, numbers: list[int], make: Callable[[int], Result], out: Path) -> list[Result]:
    """Make, or read, one result a setting."""

    def made(number: int) -> Result:
        began = time.process_time()
        result = make(number)
        result["cpu_seconds"] = round(time.process_time() - began, 2)
        print(f"{part} {number}: {_said(result)}", flush=True)
        return result

    return [once(out / f"{part}-{number}.json", functools.partial(made, number)) for number in numbers]


def _said(result: Result) -> str:
    if "shares" in result:
        return trusted_rows.said(result)
    if "width_ratio" in result:
        return f"power {result['real']:.3f} for {result['planned']}"
    more = f", cost {result['uniform']['ratio']:.2f} of uniform" if "uniform" in result else ""
    return f"real / planned {result['ratio']:.2f}{more}"


def summary(parts: dict[str, list[Result]]) -> Result:
    """What is claimed."""
    out: Result = {}
    for part in ("widths", "scarce"):
        found = parts.get(part)
        if found:
            ratio, grown = (np.array([each[name] for each in found]) for name in ("ratio", "growth_ratio"))
            every = np.concatenate([each["ratios"] for each in found])
            out[part] = {
                "settings": len(found),
                "within_15_percent": float(np.mean(np.abs(ratio - 1.0) <= CLOSE)),
                "within_15_percent_every_candidate": float(np.mean(np.abs(every - 1.0) <= CLOSE)),
                "within_15_percent_same_policy": float(np.mean(np.abs(grown - 1.0) <= CLOSE)),
                "median_ratio": float(np.median(ratio)),
                "in_own_range": float(np.mean([each["within_range"] for each in found])),
                "by_kind": {
                    kind: float(np.mean([abs(e["ratio"] - 1.0) <= CLOSE for e in found if e["kind"] == kind]))
                    for kind in sorted({each["kind"] for each in found})
                },
            }
    if parts.get("exploration"):
        ratio = np.array([each["uniform"]["ratio"] for each in parts["exploration"]])
        out["exploration"] = {
            "settings": len(ratio),
            "median_cost_ratio": float(np.median(ratio)),
            "at_most_70_percent": float(np.mean(ratio <= 0.7)),
            "largest": float(ratio.max()),
        }
    if parts.get("estimate"):
        out["estimate"] = {found["name"]: trusted_rows.summary(found) for found in parts["estimate"]}
    if parts.get("power"):
        off = np.array([each["real"] - each["planned"] for each in parts["power"]])
        out["power"] = {
            "settings": len(off),
            "within_3_points": float(np.mean(np.abs(off) <= 0.03)),
            "largest_miss": float(np.abs(off).max()),
        }
    return out


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=["widths", "scarce", "exploration", "power", "estimate"])
    parser.add_argument("--quick", action="store_true", help="two settings of development, few repeats")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--settings", type=int, default=None)
    parser.add_argument("--development", action="store_true", help="the settings that plans were developed on")
    options = parser.parse_args()
    begin = (generator.DEVELOPMENT if options.development or options.quick else generator.HELD_OUT) + options.first
    sizes = {"widths": 200, "scarce": 40, "exploration": 20, "power": 20, "estimate": len(trusted_rows.SETTINGS)}
    repeats, tests = (4, 200) if options.quick else (20, 2000)
    makers = {
        "widths": lambda number: widths_of(number, repeats),
        "scarce": lambda number: widths_of(number, repeats, scarce=True),
        "exploration": lambda number: widths_of(number, max(repeats // 2, 4), exploration=True),
        "power": lambda number: power_of(number, tests),
        "estimate": lambda number: trusted_rows.judged(
            number - begin, quick=options.quick, development=options.development
        ),
    }
    out = HERE / "runs" / ("quick" if options.quick else "development" if options.development else "held-out")
    if options.quick:
        for old in out.glob("*.json"):
            old.unlink()
    found = {}
    for part in options.parts:
        number = min(2 if options.quick else options.settings or sizes[part], sizes[part])
        found[part] = steps(part, list(range(begin, begin + number)), makers[part], out)
    figures = summary(found)
    print(packed(rounded(figures)))
    if not (options.quick or options.development or options.settings or options.first):
        path = HERE / "results.json"
        write_results(path, read(path) | figures)


if __name__ == "__main__":
    main()

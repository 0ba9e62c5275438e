"""What agents truly earn, what an A/B test of so many users would pick, and what following advice costs."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import exact_limits, read, student, table, write_results, write_text

__all__ = ["Truth", "cost_of_testing", "page", "read", "summary", "write_results", "write_text"]

SEASONS = 10
"""A season has this many times the users of an A/B test of all agents at the log's size: what a test or a log with
exploration costs its users is spread over it."""
TIE = 0.01
"""Agents whose values differ by no more than this share of the best are a tie."""
STRATEGIES = ("advice", "ab_test", "loocv", "off_policy")


class Truth:
    """Arms of a world's agents: per user decisions, rewards, and exact expected rewards.

    Args:
        arms: ``AGENT/decisions``, ``AGENT/rewards`` and ``AGENT/means``, (users,) each; the logger's name is "".
    """

    def __init__(self, arms: Mapping[str, Any]) -> None:
        self.arms = arms

    def value(self, agent: str) -> float:
        """Expected reward per decision."""
        return float(self.arms[f"{agent}/means"].sum() / self.arms[f"{agent}/decisions"].sum())

    def error(self, agent: str) -> float:
        """Standard error of :meth:`value`, by user."""
        means, decisions = self.arms[f"{agent}/means"], self.arms[f"{agent}/decisions"]
        deviations = means - self.value(agent) * decisions
        return float(np.sqrt((deviations**2).sum()) / decisions.sum())

    def decisions(self, agent: str) -> float:
        """Decisions per user."""
        return float(self.arms[f"{agent}/decisions"].mean())

    def best(self, agents: list[str]) -> str:
        """The agent that earns most."""
        return max(agents, key=self.value)

    def cost(self, agents: list[str], pick: str | None) -> float:
        """Share of the best agent's value that a pick costs; without a pick, that of a random one."""
        most = self.value(self.best(agents))
        if pick is None:
            return float(np.mean([1.0 - self.value(a) / most for a in agents]))
        return 1.0 - self.value(pick) / most

    def level_with_best(self, agents: list[str], pick: str) -> bool:
        """Whether a pick is the best or a tie: within a hundredth of it, or two standard errors of what is known."""
        best = self.best(agents)
        gap = self.value(best) - self.value(pick)
        return gap <= max(TIE * self.value(best), 2.0 * float(np.hypot(self.error(best), self.error(pick))))

    def tested(self, agents: list[str], users: int, seed: int) -> str:
        """What an A/B test of so many users per arm picks; users are drawn from the arms."""
        generator = np.random.default_rng(seed)
        rates = {}
        for name in agents:
            rewards, decisions = self.arms[f"{name}/rewards"], self.arms[f"{name}/decisions"]
            # More users than the arm has are drawn again: the rate then keeps the arm's own error.
            which = generator.integers(0, len(rewards), users)
            rates[name] = rewards[which].sum() / max(decisions[which].sum(), 1.0)
        return max(rates, key=lambda name: rates[name])


def cost_of_testing(row: Mapping[str, Any], known: Truth, agents: list[str], users: int) -> dict[str, Any]:
    """Costs of each strategy on one log, as shares of the best agent's value over a season."""
    most = known.value(known.best(agents))
    mean_loss = float(np.mean([1.0 - known.value(a) / most for a in agents]))
    season = SEASONS * len(agents) * users
    done = row["followed"]
    costs = {name: known.cost(agents, row[name]) for name in ("loocv", "off_policy")}
    share = 1.0 / SEASONS
    costs["ab_test"] = share * mean_loss + (1.0 - share) * known.cost(agents, row["ab_test"])
    tested = min(len(agents) * done["arm_users"] / season, 1.0)
    explored = min(done["explored"] / season, 1.0 - tested)
    paid = tested * mean_loss
    if done["explored"]:
        uniform = known.value("random") if "random" in agents else float(np.mean([known.value(a) for a in agents]))
        shown = (1.0 - done["epsilon"]) * known.value("") + done["epsilon"] * uniform
        paid += explored * max(1.0 - shown / most, 0.0)
    costs["advice"] = paid + (1.0 - tested - explored) * known.cost(agents, done["pick"])
    picks = {name: known.cost(agents, row[name]) for name in ("loocv", "off_policy", "ab_test")}
    picks["advice"] = known.cost(agents, done["pick"])
    said = row["advice"]
    second = sorted((known.value(a) for a in agents), reverse=True)[1]
    right = said["answer"] == "log" and known.level_with_best(agents, said["pick"])
    lost = None if said["answer"] != "log" else known.cost(agents, said["pick"])
    slack = None if lost is None else 2.0 * float(np.hypot(known.error(known.best(agents)), known.error(said["pick"])))
    holds = None if lost is None or slack is None else bool(lost <= said["cost"]["high"] + slack / most)
    return {
        "costs": costs,
        "picks": picks,
        "right": right,
        "holds": holds,
        "excess": 0.0 if lost is None else max(lost - said["cost"]["high"], 0.0),
        "covers_all": all((a["covered"] or 0.0) > 0.999 for a in said["agents"]),
        "clear": _clear(row, known, agents),
        "best": known.best(agents),
        "gap": 1.0 - second / most,
        "tested_users": len(agents) * done["arm_users"],
        "always_users": len(agents) * users,
    }


def _clear(row: Mapping[str, Any], known: Truth, agents: list[str]) -> bool:
    """Whether the true gaps of the best from all others are beyond four standard errors of the log's differences."""
    best, widths = known.best(agents), {}
    pairs = row["advice"]["pairs"]
    z = float(-t.ppf(0.025 / max(len(pairs), 1), 1e6))
    for pair in pairs:
        if best in (pair["first"], pair["second"]):
            other = pair["second"] if pair["first"] == best else pair["first"]
            widths[other] = (pair["high"] - pair["low"]) / 2.0 / z
    others = [a for a in agents if a != best]
    return all(a in widths and known.value(best) - known.value(a) > 4.0 * widths[a] for a in others)


def _paired(rows: list[dict[str, Any]], first: str, second: str, which: str = "costs") -> dict[str, Any]:
    """Mean of a difference over worlds, each world's logs averaged, with Student's limits over worlds."""
    by_world: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_world[row["world"]].append(row[which][first] - row[which][second])
    mean, low, high = student([np.mean(v) for v in by_world.values()])
    return {"mean": mean, "low": low, "high": high, "worlds": len(by_world)}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """All that results.md says."""
    decided = [r for r in rows if r["advice"]["answer"] == "log"]
    able = [r for r in rows if r["covers_all"] and r["clear"]]
    families = sorted({r["family"] for r in rows})
    hits = {name: sum(r[name] for r in decided) for name in ("right", "holds")}
    return {
        "logs": len(rows),
        "worlds": len({r["world"] for r in rows}),
        "answers": {a: sum(r["advice"]["answer"] == a for r in rows) for a in ("log", "ab_test", "cannot_tell")},
        "decided": len(decided),
        **{name: [k, *exact_limits(k, max(len(decided), 1))] for name, k in hits.items()},
        "worst_excess": max((r["excess"] for r in decided), default=0.0),
        "limit_median": float(np.median([r["advice"]["cost"]["high"] for r in decided])) if decided else None,
        "power": [sum(r["advice"]["answer"] == "log" for r in able), len(able)],
        "less_always_ab": _paired(rows, "advice", "ab_test"),
        "costs": {name: float(np.mean([r["costs"][name] for r in rows])) for name in STRATEGIES},
        "picks": {name: float(np.mean([r["picks"][name] for r in rows])) for name in STRATEGIES},
        "users": [int(np.median([r["tested_users"] for r in rows])), int(np.median([r["always_users"] for r in rows]))],
        "seconds": [float(np.median([r["seconds"] for r in rows])), max(r["seconds"] for r in rows)],
        "families": {f: _family([r for r in rows if r["family"] == f]) for f in families},
    }


def _family(rows: list[dict[str, Any]]) -> dict[str, Any]:
    decided = [r for r in rows if r["advice"]["answer"] == "log"]
    mean = {name: float(np.mean([r["costs"][name] for r in rows])) for name in STRATEGIES}
    return {
        "worlds": len({r["world"] for r in rows}),
        "logs": len(rows),
        "log": len(decided),
        "right": sum(r["right"] for r in decided),
        "ab_test": sum(r["advice"]["answer"] == "ab_test" for r in rows),
        "cannot_tell": sum(r["advice"]["answer"] == "cannot_tell" for r in rows),
        "less_always_ab": mean["advice"] - mean["ab_test"],
        "costs": mean,
    }


def _share(of: int, count: int, low: float, high: float) -> str:
    return f"{count} of {of}, {count / of:.3f} [{low:.3f}, {high:.3f}]" if of else "none"


def markdown(found: Mapping[str, Any], title: str) -> str:
    """A section of the page of results."""
    n, paired, limit = found["decided"], found["less_always_ab"], found["limit_median"]
    worst = max(found["families"].items(), key=lambda item: item[1]["less_always_ab"])
    limits = "[{low:+.4f}, {high:+.4f}], {worlds} worlds".format(**paired)
    rows = [
        ("the log decides, the pick is the best or a tie: .95 of at least 60", _share(n, *found["right"])),
        ("the stated upper limit of its cost holds: .95", _share(n, *found["holds"])),
        ("no pick costs .10 beyond its limit", f"{found['worst_excess']:.4f}"),
        ("the limit's median below .05", "-" if limit is None else f"{limit:.4f}"),
        ("cost of following less always A/B, upper limit at most .01", f"{paired['mean']:+.4f} {limits}"),
        ("no family above .03", f"{worst[0]} {worst[1]['less_always_ab']:+.4f}"),
        ("power, all covered and gaps beyond four standard errors: .7", "{} of {}".format(*found["power"])),
        ("users tested per log, median: advice, always A/B", "{:,}, {:,}".format(*found["users"])),
        ("CPU seconds of a call, median and most", "{:.1f}, {:.1f}".format(*found["seconds"])),
    ]
    answers = ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in found["answers"].items())
    families = [
        [name, *(f[key] for key in ("worlds", "logs", "log", "right", "ab_test", "cannot_tell")),
         f"{f['less_always_ab']:+.4f}", f"{f['costs']['loocv']:.4f}", f"{f['costs']['off_policy']:.4f}"]
        for name, f in found["families"].items()
    ]  # fmt: skip
    head = ["family", "worlds", "logs", "log decides", "right", "A/B test", "cannot tell", "less always A/B"]
    by = [(name, f"{found['costs'][name]:.4f}", f"{found['picks'][name]:.4f}") for name in STRATEGIES]
    lines = [f"## {title}", "", f"{found['worlds']} hidden worlds, {found['logs']} logs: {answers}.", ""]
    lines += [*table(["bar", "figure"], rows), ""]
    lines += [*table(["choosing by", "mean cost, tests and exploration paid", "of the pick alone"], by), ""]
    return "\n".join([*lines, *table([*head, "leave-one-out", "IPS"], families), ""])


TITLES = {
    "judged": "Judged once", "seen": "The same rules on worlds that had been seen", "tried": "Worlds to try rules on",
}  # fmt: skip


def page(kept: Mapping[str, Any]) -> str:
    """results.md."""
    return "# Results\n\n" + "\n".join(markdown(kept[name], TITLES[name]) for name in TITLES if name in kept)

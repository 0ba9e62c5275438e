"""Learning while acting, held to what it promises: `python benchmarks/online/run.py [step ...] [--quick]`.

Steps: learning, coverage. What a step found is kept under runs/, and the step `tables` makes results.json and
results.md of it. Coverage is resumed where it stopped.
"""

from __future__ import annotations

import json
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import parser_of, read, table, write_results, write_text

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Facts, estimate_value
from recsim_mnar.policies import EpsilonMixture, Policy, registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.rng import derive_seed
from recsim_mnar.simulation import simulate
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"
P = 10
SETTINGS = tomllib.loads((HERE / "settings.toml").read_text())
ESTIMATORS = ("ips", "clipped_ips", "snips")


def world(**params: Any) -> SessionsWorld:
    """Sessions of ten items."""
    return SessionsWorld(SessionsParams(n_items=P, **params))


def equal_rows(log: Any, policy: Any) -> dict[str, int]:
    """Decisions of a log, and how many of them are replayed with the propensity that is logged."""
    shown = log.is_bandit
    same = replay(log, policy)[shown] == log["propensity"][shown]
    return {"decisions": int(shown.sum()), "equal": int(same.sum())}


def learning(quick: bool) -> list[dict[str, Any]]:
    """One object, all its rows, replay equal on every row."""
    s = SETTINGS["learning"]
    users = 300 if quick else s["users"]
    found = []
    began, cpu = time.perf_counter(), time.process_time()
    run = simulate_online(world(), Greedy(P), users, SETTINGS["seed"], lanes=s["lanes"])
    spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    rounds = len(run.curve.rewards)
    learned = int(run.policy.shown.sum())  # type: ignore[attr-defined]
    found.append({"by": "simulate_online", "users": users, "lanes": s["lanes"], "rows": len(run.log), "rounds": rounds}
                 | {"learned": learned, **spent, **equal_rows(run.log, Greedy(P))})  # fmt: skip
    part = run.log.select(run.log["user"] < users // 2)
    for what, call in (
        ("replay of half of its users", lambda: replay(part, Greedy(P))),
        ("replay by the object that has learned", lambda: replay(run.log, run.policy)),
        ("simulate", lambda: simulate(world(), Greedy(P), 10, 1)),
    ):
        found.append({"by": what, "refused": refusal(call)})
    return found


def refusal(call: Callable[[], Any]) -> str | None:
    """The line with which something is refused; None where it is not."""
    try:
        call()
    except UserError as error:
        return str(error)
    return None


def coverage_log(number: int, lanes: int, frozen: bool, users: int) -> list[dict[str, Any]]:
    """Estimates from one log, next to the true value of the target in the states of that log."""
    here = world()
    seed = derive_seed(SETTINGS["seed"], f"coverage/{number}")
    policy = Greedy(P, frozen=frozen)
    log = simulate(here, policy, users, seed) if frozen else simulate_online(here, policy, users, seed, lanes=lanes).log
    uniform = registry.learner("random").fit(log, n_items=P, seed=0)
    leaning = Greedy(P, 0.1, frozen=True)
    leaning.earned[3] = 1.0  # nine tenths item 3
    targets = {"uniform": uniform, "nine tenths one item": leaning, "a tenth of it": EpsilonMixture(leaning, 0.9)}
    truth = value_on_log(here, log, targets, seed)
    shown = log.is_bandit
    given = {"reward": log["reward"][shown], "propensity": log["propensity"][shown], "cluster": log["user"][shown]}
    found = []
    for name, target in targets.items():
        column = replay(log, target)[shown]
        for estimator in ESTIMATORS:
            facts = Facts(full_support=True, reward_min=0.0, reward_max=1.0)
            e = estimate_value(target=column, estimator=estimator, clip=15.0, facts=facts, **given)
            found.append({"target": name, "estimator": estimator, "value": e.value, "low": e.low, "high": e.high}
                         | {"truth": truth[name]})  # fmt: skip
    return found


def coverage(quick: bool) -> list[dict[str, Any]]:
    """Logs of a learner, with one lane and many, and of the same policy that never learns."""
    s = SETTINGS["coverage"]
    logs, users = (4, 40) if quick else (s["logs"], s["users"])
    everything = []
    for frozen, lanes in [(True, 0), *((False, lanes) for lanes in s["lanes"])]:
        path = RUNS / f"coverage-{'frozen' if frozen else lanes}.jsonl"
        done = [] if quick or not path.exists() else [json.loads(line) for line in path.read_text().splitlines()]
        for number in range(len(done), logs):
            rows = coverage_log(number, lanes, frozen, users)
            done.append(rows)
            if not quick:
                with path.open("a") as file:
                    file.write(json.dumps(rows) + "\n")
        everything.append({"learns": not frozen, "lanes": lanes, "users": users, "logs": done[:logs]})
    return everything


STEPS = {"learning": learning, "coverage": coverage}


def covered_shares() -> list[dict[str, Any]]:
    """Share of logs whose interval holds the truth, by who logged, target and estimator."""
    found = []
    for path in sorted(RUNS.glob("coverage-*.jsonl")):
        who = path.stem.removeprefix("coverage-")
        logs = [json.loads(line) for line in path.read_text().splitlines()]
        for k, row in enumerate(logs[0]):
            rows = [log[k] for log in logs]
            low, high, truth, value = (np.array([r[key] for r in rows]) for key in ("low", "high", "truth", "value"))
            covered = float(np.mean((low <= truth) & (truth <= high)))
            found.append(
                {
                    "logged by": "frozen" if who == "frozen" else f"learner, {who} lanes",
                    "target": row["target"],
                    "estimator": row["estimator"],
                    "logs": len(logs),
                    "covered": covered,
                    "standard_error": float(np.sqrt(covered * (1.0 - covered) / len(logs))),
                    "relative_bias": float((value - truth).mean() / truth.mean()),
                    "relative_width": float(np.mean((high - low) / 2.0 / truth)),
                }
            )
    return found


def lines(head: list[str], rows: list[list[Any]]) -> str:
    """A table in Markdown; the bars of a cell are no columns."""
    return "\n".join(table(head, [[str(cell).replace("|", "/") for cell in row] for row in rows]))


def report(found: dict[str, Any]) -> str:
    """Markdown of all steps."""
    runs = [r for r in found["learning"] if "rows" in r]
    parts = [
        "# Learning while acting: results",
        "## One object, all its rows",
        lines(
            ["by", "users", "lanes", "rows", "rounds", "decisions", "replayed equal"],
            [[r[key] for key in ("by", "users", "lanes", "rows", "rounds", "decisions", "equal")] for r in runs],
        ),
        lines(["asked", "refused with"], [[r["by"], r["refused"]] for r in found["learning"] if "refused" in r]),
        "## Coverage of 95 % intervals",
        lines(
            ["logged by", "target", "estimator", "logs", "covered", "relative bias", "half width / value"],
            [
                [
                    *(r[key] for key in ("logged by", "target", "estimator", "logs")),
                    f"{r['covered']:.3f} ± {r['standard_error']:.3f}",
                    f"{r['relative_bias']:+.3f}",
                    f"{r['relative_width']:.2f}",
                ]
                for r in found["coverage"]
            ],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def write_tables() -> None:
    """Write results.json and results.md of what is kept."""
    path = HERE / "results.json"
    found = read(path) | {"learning": read(RUNS / "learning.json") or [], "coverage": covered_shares()}
    write_results(path, found, 6)
    write_text(HERE / "results.md", report(found))


def main() -> None:
    """Run the steps that are named."""
    parser = parser_of(__doc__, quick="a small slice, printed and not kept")
    parser.add_argument("steps", nargs="*", help=", ".join((*STEPS, "tables")))
    options = parser.parse_args()
    RUNS.mkdir(exist_ok=True)
    for name in options.steps or STEPS:
        if name == "tables":
            write_tables()
            continue
        began = time.process_time()
        found = STEPS[name](options.quick)
        print(f"{name}: {time.process_time() - began:.0f} CPU s")
        if options.quick:
            print(json.dumps(found)[:2000])
        else:
            (RUNS / f"{name}.json").write_text(json.dumps(found))


class Greedy(Policy):
    """Epsilon-greedy on the mean reward of all users so far; learns from all of them."""

    name = "epsilon-greedy"

    def __init__(self, n_items: int, epsilon: float = 0.2, *, frozen: bool = False) -> None:
        self.n_items, self.epsilon = n_items, epsilon
        self.learns = "nothing" if frozen else "all users"
        self.shown, self.earned = np.zeros(n_items), np.zeros(n_items)

    def distribution(self) -> Any:
        """(n_items,) the same for every user."""
        best = int(np.argmax((self.earned + 1.0) / (self.shown + 50.0)))
        return self.epsilon / self.n_items + (1.0 - self.epsilon) * np.eye(self.n_items)[best]

    def probabilities(self, users: Any) -> Any:
        """See :meth:`Policy.probabilities`."""
        return np.tile(self.distribution(), (len(users), 1))

    def propensity_of(self, users: Any, actions: Any) -> Any:
        """See :meth:`Policy.propensity_of`."""
        return self.distribution()[actions]

    def act(self, users: Any, uniforms: Any) -> Any:
        """See :meth:`Policy.act`."""
        edges = np.cumsum(self.distribution())
        actions = np.minimum(np.searchsorted(edges, uniforms, side="right"), self.n_items - 1)
        return actions, self.propensity_of(users, actions)

    def learn(self, users: Any, actions: Any, rewards: Any, propensities: Any) -> None:
        """See :meth:`Policy.learn`."""
        np.add.at(self.shown, actions, 1.0)
        np.add.at(self.earned, actions, rewards)


if __name__ == "__main__":
    main()

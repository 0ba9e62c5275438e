"""Is advice right where it speaks, and what does following it cost?

    python benchmarks/advice/run.py truth [--worlds FILE ...] [--only NAME ...]     # what every agent earns; resumes
    python benchmarks/advice/run.py judge [--logs 4] [--worlds FILE ...]            # advice on logs of each; resumes
    python benchmarks/advice/run.py table                                           # results.json and results.md
    python benchmarks/advice/run.py --quick                                         # one world, small; nothing is kept

A hidden world makes a log under its logging policy. ``advise`` reads that log and nothing else. What the agents,
fitted on a log of the world, truly earn is known from arms of their own.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import sys
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from analysis import Truth, cost_of_testing, page, read, summary, write_results, write_text

from recsim_mnar.estimators import estimate_value
from recsim_mnar.fitting.advice import advise_on
from recsim_mnar.fitting.advice.advising import Question
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.mixture import MixturePolicy
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.protocols.records import plain
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.rng import derive_seed
from recsim_mnar.runs.files import write_json
from recsim_mnar.simulation import simulate

HERE = Path(__file__).parent
RUNS = HERE.parents[1] / "runs" / "advice"
ARM_USERS = 12_000
"""Users of each agent's arm: its truth, and the users from whom an A/B test's are drawn."""
TRAIN_USERS = 1000
"""Users under the uniform policy on whom a logging policy that learns is fitted."""
CLIP = 15.0


def hidden_worlds(files: list[str]) -> list[Any]:
    """The worlds of modules that define ``WORLDS``."""
    found = []
    for file in files:
        spec = importlib.util.spec_from_file_location(Path(file).stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        found += module.WORLDS
    return found


def seed_of(name: str, what: str) -> int:
    """Of one use of a world."""
    return derive_seed(zlib.crc32(name.encode()), what) >> 1


def logger_of(hidden: Any, world: Any) -> Any:
    """The policy that makes the world's logs; one that learns has learned from other users."""
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, TRAIN_USERS, seed_of(hidden.name, "train"))
    return registry.learner(hidden.logging).fit(train, n_items=world.n_items, seed=0)


def log_of(hidden: Any, world: Any, logger: Any, number: int, users: int | None = None) -> Log:
    """A log of the world, as its owner has it: nothing in it says how it was made."""
    made = simulate(world, logger, users or hidden.users, seed_of(hidden.name, f"log {number}"))
    return Log(made.columns, {})


def fitted_agents(hidden: Any, world: Any, log: Log) -> dict[str, Any]:
    """The agents as they would be deployed, by name."""
    return {name: registry.learner(name).fit(log, n_items=world.n_items, seed=0) for name in hidden.agents}


def truth(hidden: Any, number: int, arm_users: int = ARM_USERS) -> dict[str, Any]:
    """Per user decisions, rewards and exact expected rewards: arms of agents fitted on a log, and of its logger."""
    world = hidden.make()
    logger = logger_of(hidden, world)
    arms: dict[str, Any] = {}
    policies = fitted_agents(hidden, world, log_of(hidden, world, logger, number)) | {"": logger}
    for name, policy in policies.items():
        arm = run_arm(world, policy, arm_users, seed_of(hidden.name, f"arm {name} {number}"))
        arms |= {f"{name}/decisions": arm.decisions, f"{name}/rewards": arm.rewards, f"{name}/means": arm.means}
    return arms


def judge(hidden: Any, number: int, known: Truth) -> dict[str, Any]:
    """Advice on one log, what follows from it, and what fixed protocols pick on the same log."""
    world = hidden.make()
    logger = logger_of(hidden, world)
    log = log_of(hidden, world, logger, number)
    began = time.process_time()
    question = Question(agents=hidden.agents, logging=logger, seed=number, n_items=world.n_items)
    advice = plain(advise_on(log, question).to_dict())
    seconds = time.process_time() - began
    found = {
        "world": hidden.name,
        "family": hidden.family,
        "inside": hidden.inside,
        "logging": hidden.logging,
        "number": number,
        "seconds": seconds,
        "advice": {name: advice[name] for name in KEPT},
        "loocv": _leave_one_out(hidden, world, log, number),
        "off_policy": _clipped(hidden, world, log),
    }
    users, agents = hidden.users, list(hidden.agents)
    found["ab_test"] = known.tested(agents, users, seed_of(hidden.name, f"test {number}"))
    found["followed"] = _followed(hidden, world, logger, advice, number, known)
    return found


KEPT = ("answer", "pick", "tied", "cost", "ab_test", "exploration", "why", "agents", "pairs", "protocols", "models",
        "checks")  # fmt: skip


def _followed(
    hidden: Any, world: Any, logger: Any, advice: dict[str, Any], number: int, known: Truth
) -> dict[str, Any]:
    """Where a team ends that follows the advice: its pick, and users it tested or explored on, by what they saw."""
    if advice["answer"] == "log":
        return {"pick": advice["pick"], "arm_users": 0, "explored": 0, "epsilon": None}
    if advice["exploration"]:  # the log cannot tell, or an arm cannot have the users that a test needs
        epsilon, rows = float(advice["exploration"]["epsilon"]), int(advice["exploration"]["rows"])
        uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
        mixture = MixturePolicy([logger, uniform], [1.0 - epsilon, epsilon]) if epsilon < 1.0 else uniform
        rows_a_user = known.decisions("")
        users = int(min(max(rows / rows_a_user, 50), 20_000))
        again = log_of(hidden, world, mixture, number + 1000, users)
        question = Question(agents=hidden.agents, logging=mixture, seed=number, n_items=world.n_items)
        second = plain(advise_on(again, question).to_dict())
        if second["ab_test"]:
            second["ab_test"]["users"] = min(second["ab_test"]["users"], hidden.users)
        done = _followed_once(hidden, second, number, known)
        return done | {"explored": users, "epsilon": epsilon, "second": second["answer"]}
    return _followed_once(hidden, advice, number, known)


def _followed_once(hidden: Any, advice: dict[str, Any], number: int, known: Truth) -> dict[str, Any]:
    if advice["answer"] == "log":
        return {"pick": advice["pick"], "arm_users": 0, "explored": 0, "epsilon": None}
    users = int(advice["ab_test"]["users"]) if advice["ab_test"] else hidden.users
    seed = seed_of(hidden.name, f"advised test {number}")
    pick = known.tested(list(hidden.agents), users, seed)
    return {"pick": pick, "arm_users": users, "explored": 0, "epsilon": None}


def _leave_one_out(hidden: Any, world: Any, log: Log, number: int) -> str | None:
    learners = {name: registry.learner(name) for name in hidden.agents}
    records = leave_one_out(log, learners, n_items=world.n_items, folds=2, seed=number, ks=(1,))
    scores = {r.agent: r.value for r in records if r.metric == "hr@1"}
    return max(scores, key=lambda name: scores[name]) if scores else None


def _clipped(hidden: Any, world: Any, log: Log) -> str:
    """The pick of IPS clipped at 15, fitted on one half of the users, judged on the other."""
    even = log["user"] % 2 == 0
    policies, rest = fitted_agents(hidden, world, log.select(even)), log.select(~even)
    shown = rest.is_bandit
    reward, propensity, user = (rest[name][shown] for name in ("reward", "propensity", "user"))
    values = {
        name: estimate_value(
            reward, propensity, replay(rest, policy)[shown], estimator="clipped_ips", clip=CLIP, cluster=user
        ).value
        for name, policy in policies.items()
    }
    return max(values, key=lambda name: values[name])


def _path(name: str, what: str) -> Path:
    return RUNS / name / what


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=["truth", "judge", "table"])
    parser.add_argument("--worlds", nargs="+", default=[str(HERE / "seen.py")])
    parser.add_argument("--only", nargs="+", default=None)
    parser.add_argument("--logs", type=int, default=4)
    parser.add_argument("--quick", action="store_true", help="one world, small, nothing kept")
    given = parser.parse_args()
    worlds = [w for w in hidden_worlds(given.worlds) if given.only is None or w.name in given.only]
    if given.quick:
        hidden = dataclasses.replace(worlds[0], users=300)
        known = Truth(truth(hidden, 0, 300))
        print(json.dumps(plain(judge(hidden, 0, known)), indent=1)[:2000])
    elif given.part == "truth":
        for hidden in worlds:
            for number in range(given.logs):
                _made_true(hidden, number)
    elif given.part == "judge":
        for hidden in worlds:
            _judged(hidden, given.logs)
    else:
        _tabled(worlds)


def _made_true(hidden: Any, number: int) -> Truth:
    path = _path(hidden.name, f"truth-{number}.npz")
    if not path.exists():
        began = time.process_time()
        arms = truth(hidden, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part.npz")
        np.savez_compressed(part, **arms)
        part.rename(path)
        print(f"{hidden.name} {number}: truth, {time.process_time() - began:.0f} CPU s", flush=True)
    with np.load(path) as arrays:
        return Truth(dict(arrays))


def _judged(hidden: Any, logs: int) -> None:
    for number in range(logs):
        path = _path(hidden.name, f"log-{number}.json")
        if path.exists():
            continue
        found = plain(judge(hidden, number, _made_true(hidden, number)))
        write_json(path, found)
        said = found["advice"]["pick"] or found["followed"]
        print(f"{hidden.name} {number}: {found['advice']['answer']} {said}, {found['seconds']:.1f} CPU s", flush=True)


def _tabled(worlds: list[Any]) -> None:
    kept = read(HERE / "results.json") | {"tried": summary(_rows(worlds))}
    write_results(HERE / "results.json", kept, 6)
    write_text(HERE / "results.md", page(kept))
    print(page(kept))


def _rows(worlds: list[Any]) -> list[dict[str, Any]]:
    rows = []
    for hidden in worlds:
        for path in sorted(_path(hidden.name, "").glob("log-*.json")):
            row = json.loads(path.read_text())
            known = _made_true(hidden, row["number"])
            rows.append(row | cost_of_testing(row, known, list(hidden.agents), hidden.users))
    return rows


if __name__ == "__main__":
    main()

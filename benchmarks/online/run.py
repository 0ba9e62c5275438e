"""Learning while acting, held to what it promises: `python benchmarks/online/run.py [step ...] [--quick]`.

Steps: learning, odd, checks, coverage. What a step found is kept under runs/, and `analysis.py` makes results.json and
results.md of it. Coverage is resumed where it stopped.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.policies import Policy

HERE = Path(__file__).resolve().parent
RUNS = HERE / "runs"
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tests")]


from recsim_mnar.envs import WorldEnv, WorldVectorEnv  # noqa: E402
from recsim_mnar.envs.recording import record, record_vector  # noqa: E402
from recsim_mnar.errors import UserError  # noqa: E402
from recsim_mnar.estimators import Facts, estimate_value  # noqa: E402
from recsim_mnar.policies import EpsilonMixture, SampledPolicy, registry  # noqa: E402
from recsim_mnar.policies.answers import Acting  # noqa: E402
from recsim_mnar.replays.probabilities import replay  # noqa: E402
from recsim_mnar.replays.truth import value_on_log  # noqa: E402
from recsim_mnar.rng import derive_seed  # noqa: E402
from recsim_mnar.simulation import simulate  # noqa: E402
from recsim_mnar.simulation.items import simulate_online  # noqa: E402
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld  # noqa: E402

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
    """One object, all its rows, replay equal on every row: simulation and both recorders."""
    s = SETTINGS["learning"]
    users, recorded = (300, 40) if quick else (s["users"], s["recorded_users"])
    found = []
    began, cpu = time.perf_counter(), time.process_time()
    run = simulate_online(world(), Greedy(P), users, SETTINGS["seed"], lanes=s["lanes"])
    spent = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - cpu}
    rounds = len(run.curve.rewards)
    learned = int(run.policy.shown.sum())  # type: ignore[attr-defined]
    found.append({"by": "simulate_online", "users": users, "lanes": s["lanes"], "rows": len(run.log), "rounds": rounds}
                 | {"learned": learned, **spent, **equal_rows(run.log, Greedy(P))})  # fmt: skip
    for name, log, lanes in (
        ("record", record(WorldEnv(world()), Greedy(P), recorded, SETTINGS["seed"]), 1),
        (
            "record_vector",
            record_vector(WorldVectorEnv(world(), s["recorded_lanes"]), Greedy(P), recorded, SETTINGS["seed"]),
            s["recorded_lanes"],
        ),
    ):
        found.append(
            {"by": name, "users": recorded, "lanes": lanes, "rows": len(log), **equal_rows(log, Greedy(P))}
            | {"rounds": log.provenance["online"]["rounds"]}
        )
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


def odd(quick: bool) -> list[dict[str, Any]]:
    """Who is refused, in which words, by simulate and by simulate_online; and who is not."""
    from twins import odd_policies as these

    s, small = SETTINGS["odd"], SessionsWorld(SessionsParams(n_items=these.P, p_leave_bandit=0.1))
    users = 40 if quick else s["users"]
    rows: list[dict[str, Any]] = []
    kinds = [("odd", each.kind) for each in these.PLANTED if each.refused]
    kinds += [("right", kind) for kind in these.SOUND]
    made: list[tuple[str, str, str, Callable[[], Any]]] = [
        (sort, kind.__name__, (kind.__doc__ or "").strip(), kind) for sort, kind in kinds
    ]
    if mabwiser_thompson(2) is not None:
        made.append(("odd", "mabwiser, bare", "propensities by counting predictions", lambda: MabwiserBare(these.P)))
        made.append(
            (
                "right",
                "mabwiser, SampledPolicy",
                "own_generator=True",
                lambda: SampledPolicy(MabwiserSampler(these.P), these.P, s["draws"], own_generator=True),
            )
        )
    for sort, name, words, make in made:
        row: dict[str, Any] = {"sort": sort, "policy": name, "what": words}
        policy = make()
        for face, call in (
            ("simulate", lambda policy=policy: simulate(small, policy, users, SETTINGS["seed"])),
            (
                "simulate_online",
                lambda policy=policy: simulate_online(small, policy, users, SETTINGS["seed"], lanes=s["lanes"]).log,
            ),
        ):
            try:
                log = call()
                marked = log.provenance["policy"].get("replayable") is False
                row[face] = "accepted, marked not replayable" if marked else "accepted"
            except UserError as error:
                row[face] = f"refused: {error}"
        if isinstance(policy, SampledPolicy):
            row["cost"] = str(policy.cost)
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


class Unchecked(Acting):
    """What acting costs without any question."""

    def __call__(self, users: Any, uniforms: Any) -> Any:
        """Ask, and look at shapes and ranges only."""
        return self._act(users, uniforms)


def checks(quick: bool) -> list[dict[str, Any]]:
    """Seconds of a run with and without the questions that policies are asked, alternately."""
    import recsim_mnar.simulation.items as items
    import recsim_mnar.simulation.items as online

    s = SETTINGS["checks"]
    users, repeats = (200, 2) if quick else (s["users"], s["repeats"])
    agent = registry.learner("user-popularity+epsilon=0.1")
    policy = agent.fit(simulate(world(), registry.learner("random").fit(None, n_items=P), 50, 1), n_items=P, seed=0)  # type: ignore[arg-type]
    found = []
    for name, call in (
        ("simulate, user-popularity+epsilon=0.1", lambda: simulate(world(), policy, users, 1)),
        (
            "simulate_online, epsilon-greedy",
            lambda: simulate_online(world(), Greedy(P), users, 1, lanes=s["lanes"]),
        ),
    ):
        seconds: dict[type[Acting], list[float]] = {Acting: [], Unchecked: []}
        call()
        for _ in range(repeats):
            for kind, kept in seconds.items():
                items.Acting = online.Acting = kind  # type: ignore[misc]
                began = time.process_time()
                call()
                kept.append(time.process_time() - began)
        items.Acting = online.Acting = Acting  # type: ignore[misc]
        with_, without = (statistics.median(seconds[kind]) for kind in (Acting, Unchecked))
        ratios = sorted(a / b - 1.0 for a, b in zip(*seconds.values(), strict=True))
        found.append({"run": name, "users": users, "checked": with_, "unchecked": without}
                     | {"share": statistics.median(ratios), "shares": ratios})  # fmt: skip
    return found


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


STEPS = {"learning": learning, "odd": odd, "checks": checks, "coverage": coverage}


def main() -> None:
    """Run the steps that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", help=", ".join(STEPS))
    parser.add_argument("--quick", action="store_true", help="a small slice, printed and not kept")
    options = parser.parse_args()
    RUNS.mkdir(exist_ok=True)
    for name in options.steps or STEPS:
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


def mabwiser_thompson(n_items: int) -> Any:
    """A fitted Thompson sampler of mabwiser; None where that is not installed."""
    try:
        from mabwiser.mab import MAB, LearningPolicy
    except ImportError:
        return None
    mab = MAB(list(range(n_items)), LearningPolicy.ThompsonSampling(), seed=1)
    mab.fit(list(range(n_items)) * 2, [0] * n_items + [1] * n_items)
    return mab


class MabwiserBare:
    """mabwiser as its users would write it first: act by ``predict``, propensities from a hundred more predictions."""

    name = "mabwiser Thompson sampling, propensities by counting further predictions"

    def __init__(self, n_items: int) -> None:
        self.n_items, self.mab = n_items, mabwiser_thompson(n_items)

    def probabilities(self, users: Any) -> Any:
        """Frequencies of a hundred predictions a user."""
        drawn = [np.bincount([self.mab.predict() for _ in range(100)], minlength=self.n_items) for _ in users]
        return (np.array(drawn) + 1e-3) / (100 + 1e-3 * self.n_items)

    def act(self, users: Any, uniforms: Any) -> Any:
        """The library draws by its own generator."""
        actions = np.array([self.mab.predict() for _ in users])
        return actions, self.probabilities(users)[np.arange(len(users)), actions]

    def learn(self, users: Any, actions: Any, rewards: Any) -> None:
        """Hand on what came of the actions."""
        self.mab.partial_fit(actions.tolist(), rewards.tolist())


class MabwiserSampler:
    """mabwiser for :class:`recsim_mnar.policies.SampledPolicy`."""

    name = "mabwiser Thompson sampling"

    def __init__(self, n_items: int) -> None:
        self.mab = mabwiser_thompson(n_items)

    def sample(self, user: int, draws: int) -> Any:
        """So many predictions."""
        return np.array([self.mab.predict() for _ in range(draws)])

    def learn(self, users: Any, actions: Any, rewards: Any) -> None:
        """Hand on what came of the actions."""
        self.mab.partial_fit(actions.tolist(), rewards.tolist())


if __name__ == "__main__":
    main()

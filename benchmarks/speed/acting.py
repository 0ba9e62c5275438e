"""Cost of an event where an agent that learned acts, beside uniform logging: 2,000 items, one worker, in turn.

python benchmarks/speed/acting.py [--agents item-knn svd user-knn] [--users N] [--rounds N]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from floors import machine
from table import HEADER, Row, cpu_seconds, least, line

from recsim_mnar.log import Log
from recsim_mnar.policy import registry
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

AGENTS = ("item-knn", "svd", "user-knn")
BARS = {"item-knn": 4, "svd": 4}
BYTES_AN_EVENT = 8 + 4 + 8 + 1 + 4 + 4 + 8 + 8


def policies(world: Any, agents: Sequence[str], train_users: int) -> dict[str, Any]:
    """Uniform logging, and agents fitted on its log."""
    found = {"random": registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)}
    train = simulate(world, found["random"], train_users, seed=11)
    for name in agents:
        found[name] = registry.learner(name).fit(train, n_items=world.n_items, seed=0)
    return found


def costs(world: Any, acting: dict[str, Any], users: int, rounds: int) -> dict[str, float]:
    """Least CPU seconds an event of each policy."""
    seconds: dict[str, list[float]] = {name: [] for name in acting}
    for policy in acting.values():
        simulate(world, policy, 50, seed=1)
    for seed in range(rounds):
        for name, policy in acting.items():
            spent, log = cpu_seconds(lambda p=policy, s=seed: simulate(world, p, users, seed=2 + s))
            seconds[name].append(spent / len(log))
    return least(seconds)


def rows(quick: bool, agents: Sequence[str] = AGENTS, users: int = 4000, rounds: int = 7) -> list[Row]:
    """A row an agent."""
    users, rounds = (500, 2) if quick else (users, rounds)
    world = make_world("sessions", "jeunen2019", [])
    cost = costs(world, policies(world, agents, 2000), users, rounds)
    floor = BYTES_AN_EVENT / machine().write + machine().draw
    return [
        Row(
            f"simulate, {name} acting, {world.n_items:,} items", "uniform logging", 1e9 * cost[name],
            1e9 * cost["random"], "ns an event", BARS.get(name), at_least=False, floor=1e9 * floor,
            floor_is="a row of the log written, and the policy's draw",
        )
        for name in agents
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", nargs="+", default=list(AGENTS))
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=7)
    a = parser.parse_args()
    print(HEADER)
    for row in rows(False, a.agents, a.users, a.rounds):
        print(line(row))


if __name__ == "__main__":
    main()

"""Exhaustive leave-one-out beside ten folds of refitting, on training data of the 2019 study: 2,000 users, 2,000 items.

python benchmarks/speed/leave_one_out.py [--rounds N]
"""

from __future__ import annotations

import argparse

from floors import machine
from table import HEADER, Row, in_turn, least, line

from recsim_mnar.log import Log
from recsim_mnar.policy import registry
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

AGENTS = ("popularity", "item-knn", "user-knn")


def rows(quick: bool, rounds: int = 7) -> list[Row]:
    """A row an agent."""
    world = make_world("sessions", "jeunen2019", [])
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    log = simulate(world, uniform, 300 if quick else 2000, seed=77)
    views = int((log["event"] == 0).sum())
    found = []
    for name in AGENTS:
        learner = {name: registry.learner(name)}
        seconds = least(
            in_turn(
                {
                    "folds": lambda a=learner: leave_one_out(log, a, n_items=world.n_items),
                    "all": lambda a=learner: leave_one_out(log, a, n_items=world.n_items, exhaustive=True),
                },
                1 if quick else rounds,
            )
        )
        read = 13 * len(log) / machine().read  # user, event, item
        draws = views * machine().draw
        found.append(
            Row(
                f"leave-one-out of {name}, exhaustive, {views:,} views", "ten folds, refitted", seconds["all"],
                seconds["folds"], "CPU s", 1.0, floor=read + draws,
                floor_is="reading the log once, and a draw a view for ties",
            )
        )  # fmt: skip
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    print(HEADER)
    for row in rows(False, parser.parse_args().rounds):
        print(line(row))


if __name__ == "__main__":
    main()

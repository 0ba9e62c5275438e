"""Planted faults, and which refuters find them: python benchmarks/verdict/refuters.py [--quick]

A log is right, or has one fault. Per fault the table gives the share of logs in which each refuter found something.
Writes "refuters" of results.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import read, write_results

from recsim_mnar.estimators.refuters import refute

RESULTS = Path(__file__).parent / "results.json"
KEPT = ("item_propensities", "earlier_rewards", "tastes", "halves", "refit")

Columns = dict[str, Any]


class World:
    """Users with tastes and activities of their own, contexts, a logging and a new policy, as a setting draws them."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng
        self.items = int(rng.choice([5, 10, 20]))
        self.users = int(rng.choice([600, 1200, 2400]))
        self.rows = int(rng.choice([10, 20, 30]))
        self.kind = str(rng.choice(["uniform", "epsilon", "softmax"]))
        self.money = bool(rng.random() < 0.3)
        rate = float(rng.choice([0.05, 0.15, 0.3]))
        self.scores = rng.standard_normal((4, self.items))
        self.rate = np.minimum(rate * np.exp(0.6 * rng.standard_normal((2, 4, self.items))), 0.9)
        self.logging = self.policy(self.scores)
        self.new = softmax(0.7 * np.log(self.logging) + 0.7 * rng.standard_normal((4, self.items)))

    def policy(self, scores: np.ndarray) -> np.ndarray:
        if self.kind == "uniform":
            return np.full(scores.shape, 1.0 / self.items)
        if self.kind == "softmax":
            return softmax(scores)
        best = scores == scores.max(axis=-1, keepdims=True)
        return 0.3 / self.items + 0.7 * best

    def draw(self, actual: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None) -> Columns:
        """A log; ``actual`` gives the probabilities that choose, of contexts and users (n,), in place of the logged."""
        rng, n = self.rng, self.users * self.rows
        user = np.repeat(np.arange(self.users), self.rows)
        taste, active = rng.integers(0, 2, self.users)[user], np.exp(0.7 * rng.standard_normal(self.users))[user]
        x = rng.integers(0, 4, n)
        chances = self.logging[x] if actual is None else actual(x, taste)
        action = (np.cumsum(chances, axis=1) > rng.random((n, 1)) * chances.sum(axis=1, keepdims=True)).argmax(axis=1)
        earned = np.minimum(self.rate[taste, x] * active[:, None], 0.95)
        reward = (rng.random(n) < earned[np.arange(n), action]).astype(float)
        if self.money:
            reward *= np.exp(0.8 * rng.standard_normal(n))
        columns = {"reward": reward, "propensity": self.logging[x, action], "target": self.new[x, action]}
        return columns | {"cluster": user, "action": action, "context": x.astype(str)}


def softmax(scores: np.ndarray) -> np.ndarray:
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def right(world: World) -> Columns:
    return world.draw()


def items_changed(world: World) -> Columns:
    odds = np.exp(0.5 * world.rng.standard_normal(world.items))
    return world.draw(lambda x, taste: scaled(world.logging[x] * odds))


def scaled(weights: np.ndarray) -> np.ndarray:
    return weights / weights.sum(axis=1, keepdims=True)


def changed_by_context(world: World) -> Columns:
    z = 0.7 * world.rng.standard_normal((4, world.items))
    return world.draw(lambda x, taste: scaled(world.logging[x] * np.exp(z - z.mean(axis=0))[x]))


def taste_left_out(world: World) -> Columns:
    """The logging policy follows tastes; the propensities in the log are its means over tastes."""
    liked = world.rate / world.rate.mean(axis=0)
    by_taste = scaled((world.logging * liked**2).reshape(8, -1)).reshape(2, 4, -1)
    world.logging = by_taste.mean(axis=0)
    return world.draw(lambda x, taste: by_taste[taste, x])


def users_unstated(world: World) -> Columns:
    return world.draw() | {"cluster": None}


def sessions_for_users(world: World) -> Columns:
    columns = world.draw()
    return columns | {"cluster": np.arange(len(columns["reward"])) // 5}


def rows_thrice(world: World) -> Columns:
    return {name: np.repeat(values, 3) for name, values in world.draw().items()} | {"cluster": None}


def rewards_fall(world: World) -> Columns:
    columns = world.draw()
    late = np.arange(len(columns["reward"])) > len(columns["reward"]) // 2
    columns["reward"] = columns["reward"] * ~(late & (world.rng.random(late.size) < 0.5))
    return columns


def new_version(world: World) -> Columns:
    """From the middle of the log on another version chooses, with the old one's propensities written down."""
    other = softmax(np.log(world.logging) + 0.7 * world.rng.standard_normal((4, world.items)))
    late = np.arange(world.users * world.rows) > world.users * world.rows // 2
    return world.draw(lambda x, taste: np.where(late[:, None], other[x], world.logging[x]))


def unclicked_lost(world: World) -> Columns:
    columns = world.draw()
    kept = (columns["reward"] > 0.0) | (world.rng.random(len(columns["reward"])) < 0.1)
    return {name: values[kept] for name, values in columns.items()}


def rewards_early(world: World) -> Columns:
    """Every reward stands in the row before its own."""
    columns = world.draw()
    return columns | {"reward": np.append(columns["reward"][1:], 0.0)}


def learned_here(world: World) -> Columns:
    """The new policy takes the best item of each context and group of users, by this log's means."""
    columns = world.draw()
    cell = (columns["context"].astype(int) * 50 + columns["cluster"] % 50) * world.items

    def fit(reward: np.ndarray) -> np.ndarray:
        n_cells = 200 * world.items
        counts = np.bincount(cell + columns["action"], minlength=n_cells)
        means = np.bincount(cell + columns["action"], reward, n_cells) / np.maximum(counts, 1)
        best = means.reshape(200, -1).argmax(axis=1)
        return np.where(best[cell // world.items] == columns["action"], 1.0, 0.0)

    return columns | {"target": fit(columns["reward"]), "refit": fit}


def learned_here_unknown(world: World) -> Columns:
    columns = learned_here(world)
    columns.pop("refit")
    return columns


def one_robot(world: World) -> Columns:
    """A user with 3 % of the rows, who takes everything."""
    columns = world.draw()
    robot = columns["cluster"] < max(round(0.03 * world.users), 1)
    columns["cluster"] = np.where(robot, 0, columns["cluster"])
    columns["reward"] = np.where(robot, np.maximum(columns["reward"], 1.0), columns["reward"])
    return columns


def copies_apart(world: World) -> Columns:
    return {name: np.tile(values, 3) for name, values in world.draw().items()} | {"cluster": None}


def confounded(world: World) -> Columns:
    """Something that changes from row to row, and is in no column, moves choice and reward: half of the rows are good,
    in which rewards double and items that the new policy likes are chosen more; in the others less."""
    good = np.arange(world.users * world.rows) * 7919 % 1009 < 505
    more = world.new / world.logging
    gain = np.minimum(0.5 * (more - 1.0), 0.9)
    mean = np.sum(world.logging * gain, axis=1, keepdims=True)
    tilt = np.clip(gain - mean, -0.9, 0.9)
    columns = world.draw(lambda x, taste: world.logging[x] * (1.0 + np.where(good[:, None], 1.0, -1.0) * tilt[x]))
    lost = ~good & (world.rng.random(good.size) < 0.7)
    columns["reward"] = columns["reward"] * ~lost
    return columns


FAULTS: dict[str, Callable[[World], Columns]] = {
    each.__name__: each
    for each in (
        items_changed, changed_by_context, taste_left_out, users_unstated, sessions_for_users, rows_thrice,
        rewards_fall, new_version, unclicked_lost, rewards_early, learned_here, copies_apart,
    )
}  # fmt: skip
UNSEEN = {each.__name__: each for each in (learned_here_unknown, confounded, one_robot)}


def judged(kind: str, make: Callable[[World], Columns], number: int) -> dict[str, bool]:
    """One log: what each refuter found."""
    world = World(np.random.default_rng([27, number, sum(map(ord, kind))]))
    columns = make(world)
    found = refute(**columns)
    refuted = {finding.code: finding.severity >= 1.0 for finding in found}
    return {name: refuted.get(name, False) for name in KEPT} | {"any": any(refuted.values())}


def share(values: list[bool]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def main() -> None:
    quick = "--quick" in sys.argv
    counts = {"right": 4 if quick else 500} | dict.fromkeys((*FAULTS, *UNSEEN), 1 if quick else 100)
    table = {}
    names = (*KEPT, "any")
    print("fault".ljust(22), *(name[:12].rjust(13) for name in names))
    for kind, make in {"right": right, **FAULTS, **UNSEEN}.items():
        logs = [judged(kind, make, number) for number in range(counts[kind])]
        table[kind] = {name: share([log[name] for log in logs if name in log]) for name in names}
        cells = ("-" if value is None else value for value in table[kind].values())
        print(kind.ljust(22), *(f"{cell:>13}" for cell in cells), flush=True)
    seen = [kind for kind in FAULTS if table[kind]["any"] >= 0.8]
    print(f"\nfound in four fifths of the logs: {len(seen)} of {len(FAULTS)} kinds that a refuter can see")
    if not quick:
        kept = read(RESULTS)
        result = {"logs": counts, "shares": table, "unseen_in_principle": list(UNSEEN), "found": seen}
        write_results(RESULTS, kept | {"refuters": kept.get("refuters", {}) | result})


if __name__ == "__main__":
    main()

"""Planted faults, and which refuters find them: python benchmarks/verdict/refuters.py [--quick] [--splits]

A log is right, or has one fault. Per fault the table gives the share of logs in which each refuter found something, and
the share that the verdict trusts. Three further candidates were tried and are not part of the package: what they find
stands in the table too. ``--splits`` asks instead how far another assignment of users to the folds of dr's reward model
moves its value, half a minute. Writes "refuters" of results.json.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import analysis
import numpy as np

from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.off_policy.refuters import permuted, refute
from recsim_mnar.estimators.off_policy.reward_model import cross_fitted_rewards
from recsim_mnar.log.columns import Clusters, user_sums

HERE = Path(__file__).parent
KEPT = ("item_propensities", "earlier_rewards", "tastes", "neighbours", "halves", "refit")
TRIED = ("aa_halves", "permuted_lead", "permuted_spread", "heaviest_user")
TRIED_ON = 20
"""Logs of each kind that the candidates are run on."""

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
        self.earned = np.minimum(self.rate[taste, x] * active[:, None], 0.95)
        reward = (rng.random(n) < self.earned[np.arange(n), action]).astype(float)
        if self.money:
            reward *= np.exp(0.8 * rng.standard_normal(n))
            self.earned *= np.exp(0.32)
        self.truth = float(np.mean(np.sum(self.new[x] * self.earned, axis=1)))
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
    world.truth *= 0.5  # what the policy will earn from now on
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

    target = fit(columns["reward"])
    best = np.full(200, -1)
    best[cell[target > 0.0] // world.items] = columns["action"][target > 0.0]
    world.truth = float(np.mean(world.earned[np.arange(cell.size), best[cell // world.items]]))
    return columns | {"target": target, "refit": fit}


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
    world.truth = float(
        np.mean(np.sum(world.new[columns["context"].astype(int)] * world.earned, axis=1) * np.where(good, 1.0, 0.3))
    )
    return columns


FAULTS: dict[str, Callable[[World], Columns]] = {
    each.__name__: each
    for each in (
        items_changed, changed_by_context, taste_left_out, users_unstated, sessions_for_users, rows_thrice,
        rewards_fall, new_version, unclicked_lost, rewards_early, learned_here, copies_apart,
    )
}  # fmt: skip
UNSEEN = {each.__name__: each for each in (learned_here_unknown, confounded, one_robot)}


def tried(columns: Columns, half_width: float) -> dict[str, bool]:
    """What the candidates that were not kept find."""
    r, w = columns["reward"], columns["target"] / columns["propensity"]
    clusters = Clusters.of(columns["cluster"], r.size)
    value = float(w @ r) / float(w.sum())
    d, size = user_sums(w * (r - value), clusters), user_sums(w, clusters)
    rng = np.random.default_rng(r.size)
    half = rng.permutation(d.size) < d.size // 2
    between = d[half].sum() / size[half].sum() - d[~half].sum() / size[~half].sum()
    error = np.sqrt(np.sum((d[half] / size[half].sum()) ** 2) + np.sum((d[~half] / size[~half].sum()) ** 2))
    shift = np.max(np.abs(d / (size.sum() - size)))
    found = {"aa_halves": abs(between) > 3.0 * error, "heaviest_user": shift > half_width}
    codes = np.zeros(r.size, np.int64) if clusters is None else clusters.dense()[0]
    ordered = np.argsort(codes, kind="stable")
    leads = []
    for number in range(99):
        shuffled = np.empty_like(r)
        shuffled[ordered] = r[np.lexsort((permuted(np.arange(r.size, dtype=float), 0, number), codes))]
        leads.append(float(np.mean((w - 1.0) * shuffled)))
    spread = np.std(leads)
    own = user_sums((w - 1.0) * r - np.mean((w - 1.0) * r), clusters)
    interval = 1.96 * np.sqrt(float(own @ own)) / r.size
    found["permuted_lead"] = abs(np.mean(leads)) > 3.0 * interval / 1.96
    found["permuted_spread"] = 1.96 * spread > 1.5 * interval
    return {name: bool(value) for name, value in found.items()}


def few_users(world: World) -> Columns:
    world.users = 60
    return world.draw()


def heavy_in_one_fold(world: World) -> Columns:
    """Half of the rows are of ten users, all in one fold, who earn a third as much."""
    columns, n = world.draw(), world.users * world.rows
    heavy = np.arange(n) < n // 2
    columns["cluster"] = np.where(heavy, np.arange(n) % 10 * 3, columns["cluster"] - world.users // 2)
    columns["reward"] = columns["reward"] * ~(heavy & (world.rng.random(n) < 2.0 / 3.0))
    world.truth *= 2.0 / 3.0
    return columns


class Nearest:
    """A reward model of 30 rows, those that come first: another fold, another model."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        self.X, self.y = X[:30], y[:30]

    def predict(self, X: np.ndarray) -> np.ndarray:
        apart = np.sum(self.X**2, axis=1) - 2.0 * (X @ self.X.T)
        return self.y[apart.argmin(axis=1)] * 3.0


def splits(kind: str, number: int) -> dict[str, float]:
    """One log: how far dr's value moves with another split, over its half width; what else is known of the estimate."""
    world = World(np.random.default_rng([27, number, sum(map(ord, kind))]))
    columns = {"few_users": few_users, "heavy_in_one_fold": heavy_in_one_fold}.get(kind, right)(world)
    context = columns["context"].astype(int)
    names = world.rng.permutation(int(columns["cluster"].max()) + 1)
    found = []
    for users in (columns["cluster"], names[columns["cluster"]]):
        fitted = cross_fitted_rewards(
            columns["reward"], columns["action"], lambda rows: world.new[context[rows]], n_actions=world.items,
            context=np.eye(4)[context], cluster=users, model=Nearest() if kind == "unstable_model" else None,
        )  # fmt: skip
        found.append(estimate_value(
            *(columns[name] for name in ("reward", "propensity", "target")), estimator="dr", cluster=columns["cluster"],
            q_logged=fitted[0], q_target=fitted[1], propensity_min=float(columns["propensity"].min()),
            reward_max=float(columns["reward"].max()),
        ))  # fmt: skip
    first, second = found
    return {"move": abs(second.value - first.value) / ((first.high - first.low) / 2.0),
            "trusted": first.verdict.level == "trust", "wrong": not first.low <= world.truth <= first.high}  # fmt: skip


def all_splits(quick: bool) -> None:
    table = {}
    for kind in ("right", "few_users", "heavy_in_one_fold", "unstable_model"):
        logs = [splits(kind, number) for number in range(3 if quick else 200)]
        moves = np.array([log["move"] for log in logs])
        row = {"median": float(np.median(moves)), "largest": float(np.max(moves))}
        row |= {f"above_{limit:g}": float(np.mean(moves > limit)) for limit in (0.25, 0.5, 1.0)}
        row |= {name: float(np.mean([log[name] for log in logs])) for name in ("trusted", "wrong")}
        caught = [log["move"] > 0.25 for log in logs if log["wrong"] and log["trusted"]]
        table[kind] = {name: round(value, 4) for name, value in row.items()}
        table[kind] |= {"wrong_and_trusted": len(caught), "of_these_above_0.25": sum(caught)}
        print(kind.ljust(20), table[kind], flush=True)
    if not quick:
        kept = analysis.load()
        analysis.save(kept | {"refuters": kept.get("refuters", {}) | {"splits": table}})


def judged(kind: str, make: Callable[[World], Columns], number: int) -> dict[str, bool]:
    """One log: what each refuter found, and whether the verdict trusts."""
    world = World(np.random.default_rng([27, number, sum(map(ord, kind))]))
    columns = make(world)
    estimate = estimate_value(
        *(columns[name] for name in ("reward", "propensity", "target")),
        estimator="snips", cluster=columns["cluster"], propensity_min=float(columns["propensity"].min()),
    )  # fmt: skip
    found = refute(**columns, complete=True)
    refuted = {finding.code: finding.severity >= 1.0 for finding in found}
    result = {name: refuted.get(name, False) for name in KEPT} | {"any": any(refuted.values())}
    if number < TRIED_ON:
        result |= tried(columns, (estimate.high - estimate.low) / 2.0)
    result |= {"trusted": estimate.verdict.level == "trust"}
    return result | {"wrong": not estimate.low <= world.truth <= estimate.high}


def share(values: list[bool]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def main() -> None:
    quick = "--quick" in sys.argv
    if quick or "--splits" in sys.argv:
        all_splits(quick)
    if "--splits" in sys.argv:
        return
    counts = {"right": 4 if quick else 500} | dict.fromkeys((*FAULTS, *UNSEEN), 1 if quick else 100)
    table = {}
    names = (*KEPT, "any", "trusted", "wrong", "found_if_wrong", *TRIED)
    print("fault".ljust(22), *(name[:12].rjust(13) for name in names))
    for kind, make in {"right": right, **FAULTS, **UNSEEN}.items():
        logs = [judged(kind, make, number) for number in range(counts[kind])]
        table[kind] = {name: share([log[name] for log in logs if name in log]) for name in names}
        table[kind]["found_if_wrong"] = share([log["any"] for log in logs if log["wrong"]])
        print(
            kind.ljust(22),
            *(f"{'-' if table[kind][name] is None else table[kind][name]:>13}" for name in names),
            flush=True,
        )
    seen = [kind for kind in FAULTS if table[kind]["any"] >= 0.8]
    print(f"\nfound in four fifths of the logs: {len(seen)} of {len(FAULTS)} kinds that a refuter can see")
    if not quick:
        result = {"logs": counts, "shares": table, "unseen_in_principle": list(UNSEEN), "found": seen}
        kept = analysis.load()
        analysis.save(kept | {"refuters": result | {"splits": kept.get("refuters", {}).get("splits")}})


if __name__ == "__main__":
    main()

"""Users, policies and exact values of the unseen settings, in plain NumPy: nothing of the package is used here."""

from __future__ import annotations

import itertools
import math
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ENUMERATED = 100_000


def frozen() -> dict[str, Any]:
    """The settings as frozen, defaults filled in."""
    read = tomllib.loads((HERE / "settings.toml").read_text())
    return {
        "judge": read["judge"],
        "settings": {name: {"name": name, **read["defaults"], **one} for name, one in read["settings"].items()},
    }


# Laws of rankings: ``conditional(used)`` gives each item's probability at the next place, the rest follows.


class Law:
    """A ranking policy for one taste whose next place depends on which items stand above."""

    def __init__(self, n: int, k: int) -> None:
        self.n, self.k = n, k

    def conditional(self, used: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def draw(self, rng: np.random.Generator, m: int) -> np.ndarray:
        used, ranks = np.zeros((m, self.n), bool), np.zeros((m, self.k), int)
        for j in range(self.k):
            chance = self.conditional(used).cumsum(1)
            ranks[:, j] = (chance < rng.random((m, 1)) * chance[:, -1:]).sum(1)
            used[np.arange(m), ranks[:, j]] = True
        return ranks

    def each(self, ranks: np.ndarray) -> np.ndarray:
        """(m, k, n): probability of every item at each place, given the items above."""
        used, out = np.zeros((len(ranks), self.n), bool), []
        for j in range(self.k):
            out.append(self.conditional(used))
            used[np.arange(len(ranks)), ranks[:, j]] = True
        return np.stack(out, 1)

    def prefix(self, ranks: np.ndarray) -> np.ndarray:
        """(m, k): probability of the items down to each place, in order."""
        return np.take_along_axis(self.each(ranks), ranks[:, :, None], 2)[:, :, 0].cumprod(1)

    def sets(self, ranks: np.ndarray) -> np.ndarray:
        """(m,): probability of the same items in any order, by subsets."""
        m, rows = len(ranks), np.arange(len(ranks))
        reach = np.zeros((1 << self.k, m))
        reach[0] = 1
        for mask in range((1 << self.k) - 1):
            used = np.zeros((m, self.n), bool)
            for j in range(self.k):
                if mask >> j & 1:
                    used[rows, ranks[:, j]] = True
            chance = self.conditional(used)
            for j in range(self.k):
                if not mask >> j & 1:
                    reach[mask | 1 << j] += reach[mask] * chance[rows, ranks[:, j]]
        return reach[-1]

    def table(self) -> np.ndarray:
        """(n, k): probability of each item at each place."""
        ranks = rankings(self.n, self.k)
        slate, out = self.prefix(ranks)[:, -1], np.zeros((self.n, self.k))
        for j in range(self.k):
            out[:, j] = np.bincount(ranks[:, j], slate, self.n)
        return out


class PlackettLuce(Law):
    """Items left by weight; ``first`` always stands at the top where given."""

    def __init__(self, weights: np.ndarray, k: int, first: int | None = None) -> None:
        super().__init__(len(weights), k)
        self.weights, self.first = weights / weights.sum(), first

    def conditional(self, used: np.ndarray) -> np.ndarray:
        left = np.where(used, 0.0, self.weights)
        chance = left / left.sum(1, keepdims=True)
        if self.first is not None:
            chance[~used.any(1)] = np.eye(self.n)[self.first]
        return chance

    def sets(self, ranks: np.ndarray) -> np.ndarray:
        if self.first is not None:
            return super().sets(ranks)
        weight = self.weights[ranks].T
        reach, gone = np.zeros((1 << self.k, len(ranks))), np.zeros((1 << self.k, len(ranks)))
        reach[0] = 1
        for mask in range(1 << self.k):
            for j in range(self.k):
                if not mask >> j & 1:
                    gone[mask | 1 << j] = gone[mask] + weight[j]
                    reach[mask | 1 << j] += reach[mask] * weight[j] / (1 - gone[mask])
        return reach[-1]

    def table(self) -> np.ndarray:
        if self.first is not None or math.perm(self.n, self.k) <= ENUMERATED:
            return super().table()
        # Item i arrives at an exponential time of rate w_i: its place is one more than the others that came before.
        step = 0.02
        time = np.exp(np.arange(-40, 12, step))
        came = 1 - np.exp(-np.outer(self.weights, time))
        out = np.zeros((self.n, self.k))
        for i in range(self.n):
            count = np.zeros((self.k, len(time)))
            count[0] = 1
            for other in range(self.n):
                if other != i:
                    count[1:] = count[1:] * (1 - came[other]) + count[:-1] * came[other]
                    count[0] *= 1 - came[other]
            out[i] = (count * self.weights[i] * np.exp(-self.weights[i] * time) * time).sum(1) * step
        return out


class Placewise(Law):
    """The best item left, or with probability epsilon at each place any item left; with 0 a fixed ranking."""

    def __init__(self, order: np.ndarray, k: int, epsilon: float = 0.0) -> None:
        super().__init__(len(order), k)
        self.order, self.epsilon = order, epsilon

    def conditional(self, used: np.ndarray) -> np.ndarray:
        best = self.order[(~used[:, self.order]).argmax(1)]
        chance = np.where(used, 0.0, self.epsilon) / (~used).sum(1, keepdims=True)
        chance[np.arange(len(used)), best] += 1 - self.epsilon
        return chance

    def table(self) -> np.ndarray:
        if self.epsilon == 0:
            return (np.arange(self.n)[:, None] == self.order[: self.k]).astype(float)
        return super().table()


class Mixed(Law):
    """With probability epsilon the one law, else the other."""

    def __init__(self, epsilon: float, one: Law, other: Law) -> None:
        super().__init__(one.n, one.k)
        self.epsilon, self.one, self.other = epsilon, one, other

    def draw(self, rng: np.random.Generator, m: int) -> np.ndarray:
        return np.where(rng.random((m, 1)) < self.epsilon, self.one.draw(rng, m), self.other.draw(rng, m))

    def prefix(self, ranks: np.ndarray) -> np.ndarray:
        return self.epsilon * self.one.prefix(ranks) + (1 - self.epsilon) * self.other.prefix(ranks)

    def sets(self, ranks: np.ndarray) -> np.ndarray:
        return self.epsilon * self.one.sets(ranks) + (1 - self.epsilon) * self.other.sets(ranks)

    def table(self) -> np.ndarray:
        return self.epsilon * self.one.table() + (1 - self.epsilon) * self.other.table()


def rankings(n: int, k: int) -> np.ndarray:
    """All rankings, (n! / (n - k)!, k)."""
    return np.array(list(itertools.permutations(range(n), k)))


# Users: ``draw`` clicks and ``means`` of each place, given what attracts: (m, k) each.


class Users:
    """Look at everything; click what attracts."""

    holds = frozenset({"independent", "cascade", "unordered", "additive"})

    def __init__(self, k: int, **params: Any) -> None:
        self.k, self.params = k, params

    def seen(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        return attract

    def draw(self, rng: np.random.Generator, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        return rng.random(attract.shape) < self.seen(ranks, attract)

    def means(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        return self.seen(ranks, attract)


class Position(Users):
    """Look at place j = 1, 2, ... with probability j^-examination."""

    holds = frozenset({"independent", "cascade", "additive"})

    def seen(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        return attract * np.arange(1, self.k + 1) ** -float(self.params["examination"])


class ItemPosition(Position):
    """Even items lose further down, odd ones gain: known pictures need no look, deep finds are wanted."""

    def seen(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        exponent = np.where(ranks % 2 == 0, -1.0, 0.4)
        return np.minimum(attract * np.arange(1, self.k + 1) ** exponent, 0.95)


class Crowd(Users):
    """Look at everything, click one of the items that attract, at random."""

    holds = frozenset({"unordered"})

    def draw(self, rng: np.random.Generator, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        wanted = rng.random(attract.shape) < attract
        lot = np.where(wanted, rng.random(attract.shape), -1.0)
        return wanted & (lot == lot.max(1, keepdims=True))

    def means(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        out = np.zeros_like(attract)
        for wanted in itertools.product((0, 1), repeat=self.k):
            if sum(wanted):
                chance = np.where(wanted, attract, 1 - attract).prod(1)
                out += chance[:, None] * np.array(wanted) / sum(wanted)
        return out


class Cascade(Users):
    """From the top; goes on after a place with one probability, after a click with another."""

    holds = frozenset({"cascade"})

    def draw(self, rng: np.random.Generator, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        looks, out = np.ones(len(ranks), bool), np.zeros(attract.shape, bool)
        for j in range(self.k):
            out[:, j] = looks & (rng.random(len(ranks)) < attract[:, j])
            looks &= rng.random(len(ranks)) < np.where(out[:, j], self.params["after_click"], self.params["goes_on"])
        return out

    def means(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        goes = attract * self.params["after_click"] + (1 - attract) * self.params["goes_on"]
        return attract * np.concatenate([np.ones((len(ranks), 1)), goes[:, :-1].cumprod(1)], 1)


class Bottom(Cascade):
    """The same from the bottom."""

    holds = frozenset()

    def draw(self, rng: np.random.Generator, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        return super().draw(rng, ranks[:, ::-1], attract[:, ::-1])[:, ::-1]

    def means(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        return super().means(ranks[:, ::-1], attract[:, ::-1])[:, ::-1]


class Diversity(Users):
    """Are bored by an item of the same kind (number modulo 2) as a neighbour: above, or on both sides."""

    def __init__(self, k: int, **params: Any) -> None:
        super().__init__(k, **params)
        self.holds = frozenset() if params["both"] else frozenset({"cascade"})

    def seen(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        same = (ranks[:, 1:] % 2 == ranks[:, :-1] % 2).astype(float)
        none = np.zeros((len(ranks), 1))
        above, below = np.concatenate([none, same], 1), np.concatenate([same, none], 1)
        like = np.maximum(above, below) if self.params["both"] else above
        return attract * (1 - self.params["strength"] * like)


class Satiation(Users):
    """What attracts is multiplied by a factor of the number of clicks above; the last one for more."""

    holds = frozenset({"cascade"})

    def factor(self, clicks: np.ndarray) -> np.ndarray:
        factors = np.array(self.params["factors"])
        return factors[np.minimum(clicks, len(factors) - 1)]

    def draw(self, rng: np.random.Generator, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        out = np.zeros(attract.shape, bool)
        for j in range(self.k):
            out[:, j] = rng.random(len(ranks)) < np.minimum(attract[:, j] * self.factor(out.sum(1)), 0.95)
        return out

    def means(self, ranks: np.ndarray, attract: np.ndarray) -> np.ndarray:
        out = np.zeros_like(attract)
        count = np.zeros((len(ranks), self.k + 1))
        count[:, 0] = 1
        factor = self.factor(np.arange(self.k + 1))
        for j in range(self.k):
            click = np.minimum(attract[:, [j]] * factor, 0.95)
            out[:, j] = (count * click).sum(1)
            count = count * (1 - click) + np.concatenate([np.zeros((len(ranks), 1)), (count * click)[:, :-1]], 1)
        return out


MODELS = {
    "independent": Users,
    "position": Position,
    "tired": Position,
    "item_position": ItemPosition,
    "crowd": Crowd,
    "cascade": Cascade,
    "bottom": Bottom,
    "diversity": Diversity,
    "satiation": Satiation,
}


def users_of(k: int, kind: str, **params: Any) -> Users:
    return MODELS[kind](k, **params)


class Setting:
    """One frozen setting: its laws by taste, its users, its truth."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.n, self.k, self.name = spec, spec["n"], spec["k"], spec["name"]
        rng = np.random.default_rng([777, spec["seed"]])
        self.tastes = spec["tastes"]
        raw = np.exp(spec["spread"] * rng.normal(size=(self.tastes, self.n)))
        self.attract = np.minimum(spec["rate"] * raw / raw.mean(), 0.9)
        self.logs = [self._law(spec["log"], taste, rng) for taste in range(self.tastes)]
        self.targets = [self._law(spec["target"], taste, rng) for taste in range(self.tastes)]
        model = dict(spec["model"])
        self.behaviours = model.pop("behaviours", None)
        self.kinds = (
            [users_of(self.k, **one) for one in model["of"]]
            if model["kind"] == "kinds"
            else [users_of(self.k, **model)]
        )
        self.holds = frozenset.intersection(*(kind.holds for kind in self.kinds))
        self.tired = model.get("factor", 1.0)
        place = np.arange(self.k)
        self.factor = {"mean": np.full(self.k, 1 / self.k), "dcg": 1 / np.log2(2 + place)}[spec["weights"]]
        if spec["weights"] != "mean":
            self.holds -= {"unordered"}
        low, high = spec.get("grades", (1, 1))
        self.grade = np.random.default_rng([778, spec["seed"]]).integers(low, high + 1, self.n)
        if high > low:
            self.grade[0] = high
        self.log_tables = [law.table() for law in self.logs]
        self.target_tables = [law.table() for law in self.targets]

    def _law(self, spec: dict[str, Any], taste: int, rng: np.random.Generator) -> Law:
        score = np.log(self.attract[taste]) + spec.get("noise", 0.0) * rng.normal(size=self.n)
        score = (-1 if spec.get("reverse") else 1) * score / self.spec["spread"]
        order, uniform = np.argsort(-score), PlackettLuce(np.ones(self.n), self.k)
        if spec["kind"] == "uniform":
            return uniform
        if spec["kind"] == "pl":
            return PlackettLuce(np.exp(score / spec["temperature"]), self.k)
        if spec["kind"] == "first":
            return PlackettLuce(np.exp(score / spec["temperature"]), self.k, first=int(order[0]))
        if spec["kind"] == "best":
            return Placewise(order, self.k)
        if spec["kind"] == "placewise":
            return Placewise(order, self.k, spec["epsilon"])
        return Mixed(spec["epsilon"], uniform, Placewise(order, self.k))

    # The exact value.

    def mean_reward(self, taste: int, keen: float, kind: Users, tired: float = 1.0) -> float:
        """Value of the target for one kind of user."""
        law = self.targets[taste]
        attract = np.minimum(self.attract[taste] * keen * tired, 0.95)
        if isinstance(law, Placewise) and law.epsilon == 0:
            ranks, chance = law.order[None, : self.k], np.ones(1)
        elif math.perm(self.n, self.k) <= ENUMERATED:
            ranks = rankings(self.n, self.k)
            chance = law.prefix(ranks)[:, -1]
        elif "independent" in kind.holds:  # a place's clicks depend on its item alone: all items at every place
            ranks = np.repeat(np.arange(self.n)[:, None], self.k, 1)
            means = kind.means(ranks, attract[ranks]) * self.grade[ranks]
            return float((self.target_tables[taste] * means * self.factor).sum())
        else:
            raise ValueError(f"{self.name}: no exact value")
        means = kind.means(ranks, attract[ranks]) * self.grade[ranks]
        return float(chance @ (means @ self.factor))

    def truth(self) -> float:
        """Value of the target per slate of a user drawn at random, by slates."""
        keen, slates = self.spec["keen"], self.spec.get("keen_slates", [1] * len(self.spec["keen"]))
        values = [
            [self.mean_reward(taste, factor, kind) for taste in range(self.tastes) for kind in self.kinds]
            for factor in keen
        ]
        return float(np.average([np.mean(one) for one in values], weights=slates))

    def weight_bounds(self) -> dict[str, float]:
        """Largest ratio of target and log by kind, infinite where the target shows what the log cannot."""
        out = {"marginal": 0.0, "cumulative": 0.0, "slate": 0.0, "set": 0.0}
        for taste in range(self.tastes):
            log, target = self.stated_law(taste), self.targets[taste]
            out["marginal"] = max(out["marginal"], ratio(self.target_tables[taste], log.table()))
            if isinstance(target, Placewise) and target.epsilon == 0:
                ranks = target.order[None, : self.k]
            elif math.perm(self.n, self.k) <= ENUMERATED:
                ranks = rankings(self.n, self.k)
            else:
                bound = step_bound(log, target)
                out.update({kind: max(out[kind], bound) for kind in ("cumulative", "slate", "set")})
                continue
            down = ratio(target.prefix(ranks), log.prefix(ranks))
            out["cumulative"] = max(out["cumulative"], down)
            out["slate"] = max(out["slate"], ratio(target.prefix(ranks)[:, -1], log.prefix(ranks)[:, -1]))
            out["set"] = max(out["set"], ratio(target.sets(ranks), log.sets(ranks)))
        if "digits" in self.spec.get("stated", {}):  # rounding moves each factor by 5 % at most
            places = {"marginal": 1, "set": 1, "cumulative": self.k, "slate": self.k}
            return {kind: value * 1.0527 ** places[kind] for kind, value in out.items()}
        return out

    def stated_law(self, taste: int) -> Law:
        """The log's law as the log states it, but for rounding."""
        law = self.logs[taste]
        if "item" not in self.spec.get("stated", {}):
            return law
        weights = law.weights.copy()  # type: ignore[attr-defined]
        weights[0] *= self.spec["stated"]["item"]
        return PlackettLuce(weights, self.k)

    # Logs.

    def sample(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Columns of one log, one row per place, and ``truth``: the value on it."""
        spec, users = self.spec, self.spec["users"]
        keen = rng.integers(len(spec["keen"]), size=users)
        if "tail" in spec:
            count = np.minimum(np.floor(rng.random(users) ** (-1 / spec["tail"])), spec["cap"]).astype(int)
        else:
            count = np.full(users, spec["slates"])
        count = count * np.array(spec.get("keen_slates", [1] * len(spec["keen"])))[keen]
        user = np.repeat(np.arange(users), count)
        number = np.arange(len(user)) - np.repeat(count.cumsum() - count, count)
        taste = rng.integers(self.tastes, size=users)[user]
        which = rng.integers(len(self.kinds), size=users)[user]
        m = len(user)
        ranks = np.zeros((m, self.k), int)
        probability = {kind: np.zeros((m, self.k)) for kind in ("marginal", "conditional", "slate", "set")}
        target = {kind: np.zeros((m, self.k)) for kind in probability}
        each, unsupported = np.zeros((m, self.k, self.n)), np.zeros((m, self.k))
        for t in range(self.tastes):
            rows = np.flatnonzero(taste == t)
            ranks[rows] = self.logs[t].draw(rng, len(rows))
            for into, law, table in (
                (probability, self.logs[t], self.log_tables[t]),
                (target, self.targets[t], self.target_tables[t]),
            ):
                shown = ranks[rows]
                down = law.prefix(shown)
                before = np.concatenate([np.ones((len(rows), 1)), down[:, :-1]], 1)
                into["marginal"][rows] = table[shown, np.arange(self.k)]
                into["conditional"][rows] = np.divide(down, before, out=np.zeros_like(down), where=before > 0)
                into["slate"][rows] = down[:, -1:]
                into["set"][rows] = law.sets(shown)[:, None]
            each[rows] = self.targets[t].each(ranks[rows])
            unsupported[rows] = np.where(self.log_tables[t] > 0, 0.0, self.target_tables[t]).sum(0)
        factor = np.array(spec["keen"])[keen[user]]
        attract = np.minimum(self.attract[taste[:, None], ranks] * factor[:, None], 0.95)
        clicks, truth = np.zeros((m, self.k), bool), self.exact
        if self.tired == 1:
            for w, kind in enumerate(self.kinds):
                rows = which == w
                clicks[rows] = kind.draw(rng, ranks[rows], attract[rows])
        else:
            state = np.zeros(users, bool)
            tired = np.zeros(m, bool)
            for d in range(number.max() + 1):
                rows = np.flatnonzero(number == d)
                tired[rows] = state[user[rows]]
                scale = np.where(tired[rows], self.tired, 1.0)[:, None]
                clicks[rows] = self.kinds[0].draw(rng, ranks[rows], attract[rows] * scale)
                state[user[rows]] = clicks[rows].any(1)
            truth = float(self.by_state[taste, keen[user], tired.astype(int)].mean())
        flat: dict[str, Any] = {
            "user": np.repeat(user, self.k),
            "slate": np.repeat(number, self.k),
            "position": np.tile(np.arange(self.k), m),
            "action": ranks.ravel(),
            "reward": (clicks * self.grade[ranks]).ravel().astype(float),
            "taste": np.repeat(taste, self.k),
            "which": np.repeat(which, self.k),
            "each": each.reshape(-1, self.n),
            "unsupported": unsupported.ravel(),
            "inclusion": np.stack([table.sum(1) for table in self.target_tables])[taste[:, None], ranks].ravel(),
            "truth": truth,
        }
        flat |= {f"log_{kind}": values.ravel() for kind, values in self.stated(probability, ranks, taste).items()}
        return flat | {f"target_{kind}": values.ravel() for kind, values in target.items()}

    def stated(self, probability: dict[str, np.ndarray], ranks: np.ndarray, taste: np.ndarray) -> dict[str, np.ndarray]:
        """The log's probabilities as it states them: rounded, or wrong for item 0."""
        how = self.spec.get("stated", {})
        if "digits" in how:
            conditional = significant(probability["conditional"], how["digits"])
            return {
                "marginal": significant(probability["marginal"], how["digits"]),
                "conditional": conditional,
                "slate": np.repeat(conditional.prod(1)[:, None], self.k, 1),
                "set": significant(probability["set"], how["digits"]),
            }
        if "item" in how:
            out = {kind: np.zeros_like(values) for kind, values in probability.items()}
            for t in range(self.tastes):
                law = self.stated_law(t)
                rows, table = np.flatnonzero(taste == t), law.table()
                shown = ranks[rows]
                down = law.prefix(shown)
                out["marginal"][rows] = table[shown, np.arange(self.k)]
                out["conditional"][rows] = down / np.concatenate([np.ones((len(rows), 1)), down[:, :-1]], 1)
                out["slate"][rows], out["set"][rows] = down[:, -1:], law.sets(shown)[:, None]
            return out
        return probability

    @property
    def exact(self) -> float:
        if not hasattr(self, "_exact"):
            self._exact = self.truth()
        return self._exact

    @property
    def by_state(self) -> np.ndarray:
        if not hasattr(self, "_by_state"):
            self._by_state = np.array(
                [
                    [
                        [self.mean_reward(t, factor, self.kinds[0], tired) for tired in (1.0, self.tired)]
                        for factor in self.spec["keen"]
                    ]
                    for t in range(self.tastes)
                ]
            )
        return self._by_state


def significant(values: np.ndarray, digits: int) -> np.ndarray:
    """Values rounded to so many significant digits."""
    scale = 10.0 ** (digits - 1 - np.floor(np.log10(values)))
    return np.round(values * scale) / scale


def ratio(target: np.ndarray, log: np.ndarray) -> float:
    """Largest target / log where the target is above 0."""
    shown = target > 0
    if (log[shown] == 0).any():
        return math.inf
    return float((target[shown] / log[shown]).max())


def step_bound(log: Law, target: Law) -> float:
    """Bound of a slate's ratio for two Plackett-Luce laws: the product over places of the largest ratio possible."""
    ahead = np.sort(log.weights)  # type: ignore[attr-defined]
    best = np.sort(target.weights)[::-1]  # type: ignore[attr-defined]
    top = (target.weights / log.weights).max()  # type: ignore[attr-defined]
    left = [(1 - ahead[:j].sum()) / (1 - best[:j].sum()) for j in range(log.k)]
    return float(np.prod([top * one for one in left]))

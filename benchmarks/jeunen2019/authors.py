"""The paper as its authors ran it: their logs, agents, seeds and intervals; each published figure next to ours.

    python benchmarks/jeunen2019/authors.py [--out DIR] [--quick]

The notebook draws everything from numpy's legacy stream, ``RandomState(42)``, from which ``july.py`` re-creates its
environment: 41,830 and 157,221 rows of training, as the notebook prints. Logs are kept in ``--out``, so that an
interrupted run is taken up.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from _select_kernel import select
from analysis import paper_interval
from july import Choose, July, Score, best, lived, random_agent, uniform, user_popularity
from scipy import stats
from tables import HERE, beside, keep, parser_of, row_limits

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import ratio_interval
from recsim_mnar.log import Log
from recsim_mnar.log.views import Views, view_counts
from recsim_mnar.policies import Policy, registry
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.protocols.ranks import ranks_of
from recsim_mnar.runs.files import write_json

SIZES = {"train": 2000, "uniform": 5000, "user-popularity": 5000}
QUICK = {"train": 60, "uniform": 60, "user-popularity": 60}
FOLDS = 10

OURS = {
    "random": "random",
    "popularity": "constant+item=0",
    "user-popularity": "user-popularity",
    "svd": "svd",
    "user-knn": "user-knn",
    "item-knn": "item-knn+include_self=true",
}
"""This package's agents that come nearest to the notebook's."""


def logs_of(env: July, sizes: dict[str, int], out: Path) -> dict[str, Log]:
    """The three logs in the notebook's order, each kept with the stream as it was left."""
    n_items, found = len(env.item_offsets), {}
    for name, n_users in sizes.items():
        path = out / f"{name}.npz"
        if not path.exists():
            print(f"{name}: {n_users:,} users", flush=True)
            log = lived(env, n_users, user_popularity() if name == "user-popularity" else uniform(n_items))
            _, keys, *place = env.draws.get_state(legacy=True)
            columns = {column: log[column] for column in log.columns}
            kept(path, {**columns, "stream_keys": keys, "stream_place": np.array(place, float)})
        with np.load(path) as held:
            place, gauss, cached = held["stream_place"]
            env.draws.set_state(("MT19937", held["stream_keys"], int(place), int(gauss), float(cached)))
            found[name] = Log({column: held[column] for column in held.files if not column.startswith("stream")})
    return found


def kept(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".partial").open("wb") as file:
        np.savez_compressed(file, **arrays)
    path.with_suffix(".partial").rename(path)


class Best(Policy):
    """Shows the item of the largest score, of equal ones the first.

    Args:
        score: (n_items,) scores from a user's views, in their order.
        n_items: number of items.
        name: the name under which results are reported.
    """

    def __init__(self, score: Score, n_items: int, name: str) -> None:
        self.score, self.n_items, self.name = score, n_items, name
        self.views: dict[int, list[int]] = {}
        self.found: dict[int, int] = {}

    def reset(self, users: Any) -> None:
        self.views.update({int(user): [] for user in users})
        self.forget_found(users)

    def observe(self, users: Any, items: Any) -> None:
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.views[user].append(item)
        self.forget_found(users)

    def forget_found(self, users: Any) -> None:
        for user in set(users.tolist()):
            self.found.pop(user, None)

    def fresh(self) -> Policy:
        return Best(self.score, self.n_items, self.name)

    def scores(self, users: Any) -> Any:
        return np.stack([self.score(self.views[user]) for user in users.tolist()])

    def items_of(self, users: Any) -> Any:
        for user in users.tolist():
            if user not in self.found:
                self.found[user] = int(np.argmax(self.score(self.views[user])))
        return np.array([self.found[user] for user in users.tolist()])

    def act(self, users: Any, uniforms: Any) -> Any:
        return self.items_of(users), np.ones(len(users))

    def probabilities(self, users: Any) -> Any:
        return np.eye(self.n_items)[self.items_of(users)]

    def propensity_of(self, users: Any, actions: Any) -> Any:
        return (self.items_of(users) == actions).astype(float)


def scores_of_ours(policy: Policy) -> Score:
    """One of our agents as a function of a user's views."""
    user = np.zeros(1, np.int64)

    def score(views: list[int]) -> Any:
        policy.reset(user)
        policy.observe(np.zeros(len(views), np.int64), np.array(views, np.int32))
        return policy.scores(user)[0]

    return score


def unit_rows(counts: Any) -> Any:
    """Rows of length 1, in float64 as the notebook's library rounds them."""
    rows = counts.tocsr().astype(float)
    length = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    rows.data /= np.repeat(np.maximum(length, 1e-300), np.diff(rows.indptr))
    return rows


def smallest(values: Any, k: int) -> Any:
    """(k,) positions of the smallest values.

    numpy's ``argpartition`` takes other ones of equal values where the processor has AVX, which the numpy of July 2019
    did not use. The notebook's figures hang on it, so its selection is made here, whatever the processor has.
    """
    left, place = values.copy(), np.arange(len(values))
    if not select(left, place, k):
        raise UserError(f"{k} of {len(values)} distances: selecting them takes medians of medians. Name other sizes.")
    return place[:k]


def item_scores(counts: Any, neighbours: int = 500, dense: bool = False) -> Score:
    """The notebook's item-kNN: an item among its own neighbours; symmetric similarities tie but for their rounding.

    ``dense`` multiplies dense rows instead of sparse ones, which rounds in another order.
    """
    rows = unit_rows(counts.T)
    cosine = rows.toarray() @ rows.toarray().T if dense else (rows @ rows.T).toarray()
    distance = np.clip(1.0 - cosine, 0.0, 2.0)
    nearest = np.stack([smallest(row, min(neighbours, len(row))) for row in distance])
    similarity = np.zeros_like(distance)
    np.put_along_axis(similarity, nearest, 1.0 - np.take_along_axis(distance, nearest, axis=1), axis=1)

    def score(views: list[int]) -> Any:
        items, times = np.unique(np.asarray(views, np.int64), return_counts=True)
        return (times[:, None] * similarity[items]).sum(axis=0)  # item by item: a matrix product rounds by machine

    return score


def user_scores(counts: Any, neighbours: int = 20, order: Any = None) -> Score:
    """The notebook's user-kNN: the nearest users' counts, each times its cosine *distance*, not the similarity.

    Where fewer users share a view, the others are all at distance 1, and which of them are taken is numpy's.
    ``order`` takes them in this order of users instead.
    """
    rows, table = unit_rows(counts), counts.toarray().astype(float)
    k = min(neighbours, len(table))

    def score(views: list[int]) -> Any:
        own = np.bincount(views, minlength=table.shape[1]) if views else np.zeros(table.shape[1])
        distance = np.clip(1.0 - rows @ (own / max(np.sqrt(own @ own), 1e-300)), 0.0, 2.0)
        if order is None:
            nearest = smallest(distance, k)
        else:
            nearest = order[np.argsort(distance[order].round(12), kind="stable")[:k]]
        return (distance[nearest][:, None] * table[nearest]).sum(axis=0)

    return score


class LevelWinner:
    """Scores by which the first, or the last, of all items within 1e-9 of the best wins.

    Args:
        score: (n_items,) scores from a user's views.
        last: the last wins.
    """

    def __init__(self, score: Score, last: bool) -> None:
        self.score, self.last, self.states, self.tied = score, last, 0, 0

    def __call__(self, views: list[int]) -> Any:
        values = self.score(views)
        level = np.flatnonzero(values > values.max() - 1e-9)
        self.states, self.tied = self.states + 1, self.tied + int(len(level) > 1)
        return np.arange(len(values)) == level[-1 if self.last else 0]


def agents_of(train: Log, n_items: int) -> dict[str, tuple[Policy, Choose]]:
    """What the notebook ran under the paper's names: as a policy on a log, and in the environment.

    Its Popularity is never trained and always shows item 0.
    """
    counts = view_counts(train, n_items)[0]
    ours = {name: registry.learner(spec).fit(train, n_items=n_items) for name, spec in OURS.items()}
    scores = {"svd": scores_of_ours(ours["svd"]), "user-knn": user_scores(counts), "item-knn": item_scores(counts)}
    return {
        "random": (ours["random"], random_agent(n_items)),
        "popularity": (ours["popularity"], lambda views, draws: (0, 1.0)),
        "user-popularity": (ours["user-popularity"], user_popularity()),
        **{name: (Best(score, n_items, name), best(score)) for name, score in scores.items()},
    }


def arms_of(env: July, agents: dict[str, tuple[Policy, Choose]], n_users: int, out: Path) -> dict[str, Any]:
    """The notebook's A/B test: every arm takes up the stream where the third log left it."""
    left, found = env.draws.get_state(legacy=True), {}
    for name, (_, choose) in agents.items():
        path = out / f"arm-{name}.json"
        if not path.exists():
            print(f"A/B test, {name}: {n_users:,} users", flush=True)
            env.draws.set_state(left)
            log = lived(env, n_users, choose)
            shown = log.is_bandit
            clicks, rows = (np.bincount(log["user"][shown], w) for w in (log["reward"][shown], None))
            by_user = ratio_interval(clicks, rows, 0.95)
            write_json(path, {"clicks": int(clicks.sum()), "shown": int(rows.sum()), "by_user": by_user})
        one = json.loads(path.read_text())
        law = stats.beta(one["clicks"] + 1, one["shown"] - one["clicks"] + 1)
        found[name] = {**one, "ctr": [float(law.ppf(q)) for q in (0.5, 0.025, 0.975)]}
    return found


def hit_rate(log: Log, policy: Policy) -> dict[str, Any]:
    """HR@1 as cell 5 has it, in expectation over which view is held out; and the deviation of ten draws per user.

    An agent acts on no views where a user has one. The last user is never judged: a new user's row sets a trial off.
    """
    views = Views.of(log)
    owner, users, length = views.owners(), len(views.users), np.diff(views.starts)
    kept = np.flatnonzero(length[owner] >= 2)
    above, _ = ranks_of(policy.name, policy, views, owner[kept], kept, False, ties="lowest", own_rows=False)
    hits = np.bincount(owner[kept], above == 0, users)
    one = np.flatnonzero(length == 1)
    if len(one):
        policy.reset(views.users[one])
        hits[one] = policy.scores(views.users[one]).argmax(axis=1) == views.items[views.starts[one]]
    by_user = (hits / length)[:-1]
    trials = FOLDS * len(by_user)
    return {
        "hr@1": [float(by_user.mean()), *row_limits(float(by_user.mean()), trials)],
        "sd": float(np.sqrt((by_user * (1.0 - by_user)).sum() / FOLDS) / len(by_user)),
        "trials": trials,
        "one_view": len(one),
        "one_view_hits": int(hits[one].sum()),
        "hr@1_one_view_missed": float((by_user.sum() - hits[one][one < users - 1].sum()) / len(by_user)),
    }


def off_policy_of(log: Log, policy: Policy) -> dict[str, list[float]]:
    """IPS and clipped IPS, each with the notebook's interval."""
    found = {r.metric: r.to_dict() for r in off_policy(log, {"one": policy}, estimators=("clipped_ips", "ips"))}
    return {metric: [r["value"], *paper_interval(r, found["ips"])] for metric, r in found.items()}


def tables(env: July, logs: dict[str, Log], out: Path, n_arm: int) -> dict[str, Any]:
    """Everything that the notebook prints, from the same logs."""
    n_items = len(env.item_offsets)
    agents = agents_of(logs["train"], n_items)
    found: dict[str, Any] = {"rows": {name: rows_of(log) for name, log in logs.items()}, "agents": {}}
    arms = arms_of(env, agents, n_arm, out)
    for name, (policy, _) in agents.items():
        print(f"{name}: clipped IPS and leave-one-out", flush=True)
        found["agents"][name] = {
            **hit_rate(logs["uniform"], policy),
            **off_policy_of(logs["user-popularity"], policy),
            **arms[name],
        }
    more, ties = other_readings(logs["train"], n_items)
    for name, policy in more.items():
        print(f"{name}: clipped IPS", flush=True)
        found["agents"][name] = off_policy_of(logs["user-popularity"], policy)
    found["ties"] = {"states": ties.states, "tied": ties.tied}
    return found


def other_readings(train: Log, n_items: int) -> tuple[dict[str, Policy], LevelWinner]:
    """The neighbours where ties fall otherwise, this package's own, and what counts the states with a tie."""
    counts = view_counts(train, n_items)[0]
    users, items = np.arange(counts.shape[0]), item_scores(counts)
    lowest = LevelWinner(items, last=False)
    scores = {
        "user-knn, lowest index": user_scores(counts, order=users),
        "user-knn, highest index": user_scores(counts, order=users[::-1]),
        "item-knn, lowest index": lowest,
        "item-knn, highest index": LevelWinner(items, last=True),
        "item-knn, dense product": item_scores(counts, dense=True),
    }
    found: dict[str, Policy] = {name: Best(score, n_items, name) for name, score in scores.items()}
    for name in ("user-knn", "item-knn"):
        found[f"our {name}"] = registry.learner(OURS[name]).fit(train, n_items=n_items)
    return found, lowest


def rows_of(log: Log) -> dict[str, Any]:
    """Rows of a log, and the deviation of their number by the users' own."""
    n_users = len(np.unique(log["user"]))
    found: dict[str, Any] = {"users": n_users}
    for kind, of_kind in (("organic", ~log.is_bandit), ("bandit", log.is_bandit)):
        by_user = np.bincount(log["user"][of_kind], minlength=n_users)
        found |= {kind: int(of_kind.sum()), f"{kind}_sd": float(by_user.std(ddof=1) * np.sqrt(n_users))}
    return found


def main() -> None:
    quick = "few users and items; nothing is kept next to the study"
    options = parser_of(__doc__, quick=quick, out="runs/jeunen2019-authors, of logs and arms").parse_args()
    n_items, sizes = (300, QUICK) if options.quick else (2000, SIZES)
    out = options.out or Path(f"runs/jeunen2019-authors{'-quick' if options.quick else ''}")
    env = July(n_items)
    found = tables(env, logs_of(env, sizes, out), out, sizes["uniform"])
    folder = out if options.quick else HERE
    keep("authors", found, folder, quick=options.quick)
    if options.quick:
        print("A slice of few users and items, next to what was published of the full size.\n")
    print("\n".join(beside(found)))
    print(f"Every claim, and the tables behind it: {folder / 'results.md'}")


if __name__ == "__main__":
    main()

"""Logs as companies' tools write them, made up with a truth that is known: nothing here comes from the package.

    python tools.py FOLDER [--format growthbook] [--seed 0] [--decisions 10000] [--damage swapped]

writes ``growthbook.csv`` and ``growthbook-metrics.csv`` (or those of eppo or statsig), ``vw.dsjson`` or
``open-bandit.csv``, and
``truth.json``: what each policy is worth that ``recsim-mnar estimate`` asks about without a target.

A visitor has a country; a variation is clicked with the probability base[country, variation], in every week alike. The
bandit learns for six versions: equal weights first, then a softmax of the rates seen, by country but for Statsig, over
a floor of .04. Visitors come back, and are logged again with the weights of that day, with the variation of the first.
"""

from __future__ import annotations

import argparse
import csv
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

FORMATS = ("growthbook", "vw", "eppo", "statsig", "open-bandit")
COUNTRIES = np.array([0.5, 0.3, 0.2])
K, VERSIONS, FLOOR = 4, 6, 0.04
LACKING = 0.3
"""Share of VW's decisions in which the last action cannot be shown."""
START = datetime(2026, 3, 2, tzinfo=UTC)
DAMAGES = {
    "swapped": "two actions' probabilities, one for the other",
    "later": "of the next version: of the exposure, not of the assignment",
    "sharpened": "squared and scaled to sum to 1",
    "first-version": "of the first version throughout",
}


class Log:
    """Decisions of a bandit that learns."""

    def __init__(self, seed: int, n: int, by_country: bool, lacking: float = 0.0) -> None:
        draw = np.random.Generator(np.random.PCG64([20260302, seed]))
        self.draw, self.n = draw, n
        self.base = 0.03 + 0.25 * draw.beta(1.5, 4.0, (len(COUNTRIES), K))
        self.country = draw.choice(len(COUNTRIES), n, p=COUNTRIES)
        self.version = np.arange(n) * VERSIONS // n
        self.there = np.ones((n, K), bool)
        self.there[:, -1] = draw.random(n) >= lacking
        self.weights = np.zeros((VERSIONS, len(COUNTRIES), K))
        self.p, self.action = np.zeros((n, K)), np.zeros(n, np.int64)
        self.reward = np.zeros(n)
        for version in range(VERSIONS):
            self._learn(version, by_country)
            rows = np.flatnonzero(self.version == version)
            self.p[rows] = self.of(self.weights, rows, self.version[rows], self.country[rows])
            u = draw.random(len(rows))
            self.action[rows] = np.minimum((u[:, None] > np.cumsum(self.p[rows], axis=1)).sum(axis=1), K - 1)
            self.reward[rows] = draw.random(len(rows)) < self.base[self.country[rows], self.action[rows]]

    def of(self, weights, rows, version, country):
        """Probabilities of the actions that are there, (m, K)."""
        p = weights[version, country] * self.there[rows]
        return p / p.sum(axis=1, keepdims=True)

    def _learn(self, version: int, by_country: bool) -> None:
        if version == 0:
            self.weights[0] = 1.0 / K
            return
        before = self.version < version
        for country in range(len(COUNTRIES)):
            mine = before & (self.country == country) if by_country else before
            tries = np.bincount(self.action[mine], minlength=K) + 5.0
            rate = (np.bincount(self.action[mine], self.reward[mine], K) + 0.5) / tries
            raised = np.exp(25.0 * (rate - rate.max()))
            self.weights[version, country] = (1.0 - K * FLOOR) * (raised / raised.sum()) + FLOOR

    def damaged(self, damage: str | None):
        """Probabilities (n, K) as the log has them, and those of the action shown (n,)."""
        rows, version, country = np.arange(self.n), self.version, self.country
        p = self.p.copy()
        if damage == "swapped":
            p[:, [0, 1]] = p[:, [1, 0]]
        elif damage == "later":
            p = self.of(self.weights, rows, np.minimum(version + 1, VERSIONS - 1), country)
        elif damage == "sharpened":
            p = p**2 / (p**2).sum(axis=1, keepdims=True)
        elif damage == "first-version":
            p = self.of(self.weights, rows, 0 * version, country)
        return p, p[rows, self.action]

    def truth(self) -> dict[str, float]:
        """Value of each policy that can be asked about without a target."""
        found = {f"always_{k}": float(COUNTRIES @ self.base[:, k]) for k in range(K)}
        share = self.there[:, -1].mean()
        each, fewer = self.base.mean(axis=1), self.base[:, :-1].mean(axis=1)
        found["uniform"] = float(COUNTRIES @ (share * each + (1 - share) * fewer))
        found["first_action"] = found["always_0"]
        return found

    def times(self):
        """Second of each decision, six weeks in all."""
        return np.sort(self.draw.random(self.n)) * 86400 * 7 * VERSIONS


def stamp(second: float) -> str:
    """A time as a warehouse writes it."""
    return (START + timedelta(seconds=float(second))).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def write_vw(folder: Path, seed: int, n: int, damage: str | None) -> Log:
    """DSJSON, with decisions that were deferred, outcomes without a decision, and drops at the busiest time."""
    log = Log(seed, n, True, LACKING)
    p, shown = log.damaged(damage)
    times = log.times()
    busy = (np.arange(n) // 500) % 4 == 0
    lost = log.draw.random(n) < np.where(busy, 0.5, 0.0)
    with (folder / "vw.dsjson").open("w") as out:
        for i in np.flatnonzero(~lost):
            there = np.flatnonzero(log.there[i])
            chosen = int(log.action[i])
            order = [chosen, *(int(k) for k in there if k != chosen)]
            event = {
                "_label_cost": -float(log.reward[i]), "_label_probability": round(float(shown[i]), 8),
                "_label_Action": chosen + 1, "_labelIndex": chosen,
                "o": [{"v": 1.0, "EventId": f"e{i}"}] * int(log.reward[i]), "Timestamp": stamp(times[i]),
                "Version": "1", "EventId": f"e{i}", "a": [k + 1 for k in order],
                "c": {"User": {"id": f"u{i}", "country": int(log.country[i])},
                      "_multi": [{"_tag": f"story-{k}"} for k in there]},
                "p": [round(float(p[i, k]), 8) for k in order], "VWState": {"m": f"model-{log.version[i]}"},
            }  # fmt: skip
            if busy[i]:
                event["pdrop"] = 0.5
            out.write(json.dumps(event) + "\n")
            if i % 50 == 0:
                out.write(json.dumps({"RewardValue": 1.0, "EventId": f"other{i}"}) + "\n")
                out.write(json.dumps({**event, "EventId": f"deferred{i}", "_skipLearn": True}) + "\n")
    return log


def write_rows(path: Path, rows: list[dict[str, object]]) -> None:
    """Rows as CSV, in the order of their times."""
    with path.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def write_metrics(folder: Path, name: str, user: str, log: Log, times) -> None:
    """A row per click, and rows of people who were in no experiment."""
    rows = [{user: f"u{i}", "timestamp": stamp(times[i] + 600)} for i in np.flatnonzero(log.reward)]
    rows += [{user: f"x{i}", "timestamp": stamp(60 * i)} for i in range(100)]
    rows += [{user: f"u{i}", "timestamp": stamp(times[i] - 600)} for i in range(0, log.n, 20)]  # before they came in
    write_rows(folder / f"{name}-metrics.csv", rows)


def write_growthbook(folder: Path, seed: int, n: int, damage: str | None) -> Log:
    """Exposures with the weights of the day of each; three in ten visitors come back, once or twice."""
    log = Log(seed, n, True)
    p, _ = log.damaged(damage)
    times, rows = log.times(), []
    back = log.draw.choice([0, 1, 2], n, p=[0.7, 0.2, 0.1])
    for i in range(n):
        for visit in range(int(back[i]) + 1):
            week = min(int(log.version[i]) + visit, VERSIONS - 1)
            weights = p[i] if visit == 0 else log.weights[week, log.country[i]]
            rows.append((times[i] + visit * 86400 * 7, {
                "user_id": f"u{i}", "timestamp": stamp(times[i] + visit * 86400 * 7), "experiment_id": "home-hero",
                "variation_id": int(log.action[i]), "country": f"C{log.country[i]}", "leaf_id": int(log.country[i]),
                "bandit_version": week, "variation_weights": json.dumps([round(float(w), 6) for w in weights]),
            }))  # fmt: skip
    rows.sort(key=lambda row: row[0])
    write_rows(folder / "growthbook.csv", [row for _, row in rows])
    write_metrics(folder, "growthbook", "user_id", log, times)
    return log


def write_eppo(folder: Path, seed: int, n: int, damage: str | None) -> Log:
    """Bandit actions with the probability of the action alone, one in four logged twice."""
    log = Log(seed, n, True)
    _, shown = log.damaged(damage)
    times, rows = log.times(), []
    for i in range(n):
        row = {
            "timestamp": stamp(times[i]), "key": "hero-bandit", "subject": f"u{i}", "action": str(log.action[i]),
            "action_probability": round(float(shown[i]), 8), "model_version": f"m{log.version[i]}",
            "subject_categorical_attributes": json.dumps({"country": f"C{log.country[i]}"}),
        }  # fmt: skip
        rows.append((times[i], row))
        if i % 4 == 0:
            rows.append((times[i] + 5, {**row, "timestamp": stamp(times[i] + 5)}))
    rows.sort(key=lambda row: row[0])
    write_rows(folder / "eppo.csv", [row for _, row in rows])
    write_metrics(folder, "eppo", "subject", log, times)
    return log


def write_statsig(folder: Path, seed: int, n: int, damage: str | None) -> Log:
    """First exposures with the size of the unit's group in percent."""
    log = Log(seed, n, False)
    p, shown = log.damaged(damage)
    times = log.times()
    size = shown if damage == "greedy" else p[np.arange(n), log.action]
    rows = [
        {
            "company_id": 1, "unit_id": f"u{i}", "exposure_type": "get_experiment", "name": "hero",
            "experiment_group": str(log.action[i]), "first_exposure_utc": stamp(times[i]),
            "percent": round(100.0 * float(size[i]), 5), "rollout": int(log.version[i]),
        }
        for i in range(n)
    ]  # fmt: skip
    write_rows(folder / "statsig.csv", rows)
    write_metrics(folder, "statsig", "unit_id", log, times)
    return log


def write_open_bandit(folder: Path, seed: int, n: int, damage: str | None) -> Log:
    """One recommendation per row, with the names of the Open Bandit Dataset."""
    log = Log(seed, n, True)
    _, shown = log.damaged(damage)
    times = log.times()
    rows = [
        {
            "timestamp": stamp(times[i]), "item_id": int(log.action[i]), "position": 1, "click": int(log.reward[i]),
            "propensity_score": round(float(shown[i]), 8), "user_feature_0": f"C{log.country[i]}",
        }
        for i in range(n)
    ]  # fmt: skip
    write_rows(folder / "open-bandit.csv", rows)
    return log


WRITERS = {
    "growthbook": write_growthbook,
    "vw": write_vw,
    "eppo": write_eppo,
    "statsig": write_statsig,
    "open-bandit": write_open_bandit,
}


def make(folder: Path, format_: str, seed: int = 0, n: int = 10_000, damage: str | None = None) -> Log:
    """Write one log and its truth."""
    folder.mkdir(parents=True, exist_ok=True)
    log = WRITERS[format_](folder, seed, n, damage)
    (folder / "truth.json").write_text(json.dumps(log.truth()))
    return log


def log_of(folder: Path, format_: str) -> tuple[Path, Path | None]:
    """The file to ask about, and its metrics."""
    if format_ in ("vw", "open-bandit"):
        return folder / {"vw": "vw.dsjson"}.get(format_, "open-bandit.csv"), None
    return folder / f"{format_}.csv", folder / f"{format_}-metrics.csv"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--format", default="growthbook", choices=FORMATS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--damage", choices=list(DAMAGES))
    given = parser.parse_args()
    make(given.folder, given.format, given.seed, given.decisions, given.damage)
    print(", ".join(str(path) for path in log_of(given.folder, given.format) if path))

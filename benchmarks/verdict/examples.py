"""The examples that changed the verdict's rules, judged before and after: `python benchmarks/verdict/examples.py`.

Every example is a log of known value and a command that a user typed. `--before PYTHON` types the same commands in
another environment, with an older version of the package; its figures are kept until it is given again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

HERE = Path(__file__).parent
LOGS = 12


@dataclass(frozen=True)
class Example:
    """A kind of log, the options that a user typed, and the true value of what is asked about.

    Attributes:
        draw: a log from a generator.
        options: options of ``estimate``.
        truth: value of the policy, or difference of the two, in an A/B test.
        role: ``target``, ``today`` or ``difference``: the record that is judged.
    """

    draw: Callable[[np.random.Generator], pd.DataFrame]
    options: str
    truth: float
    role: str = "target"


LOGGED = np.array([0.002, 0.028, 0.07, 0.1, 0.2, 0.6])
NEW = np.array([0.02, 0.08, 0.3, 0.3, 0.2, 0.1])
CLICKED = np.array([0.01, 0.01, 0.012, 0.014, 0.016, 0.02])


def rows(rng: np.random.Generator, n: int, logged: np.ndarray, new: np.ndarray, clicked: np.ndarray) -> pd.DataFrame:
    """Draw independent decisions, ten per user in the mean."""
    action = rng.choice(len(logged), n, p=logged)
    return pd.DataFrame(
        {
            "user": rng.integers(n // 10, size=n),
            "action": action,
            "propensity": logged[action],
            "new": new[action],
            "click": (rng.random(n) < clicked[action]).astype(int),
        }
    )


def rare_item(rng: np.random.Generator) -> pd.DataFrame:
    return rows(rng, 20_000, LOGGED, NEW, CLICKED)


ITEM_CLICKS = np.linspace(0.07, 0.1, 10)


def tiring_users(rng: np.random.Generator, users: int = 4_000, length: int = 20) -> pd.DataFrame:
    """A uniform log in which an item seen before, at any distance, earns half; the new policy shows the best item."""
    action = rng.integers(10, size=(users, length))
    seen = np.zeros(action.shape, bool)
    for step in range(1, length):
        seen[:, step] = (action[:, :step] == action[:, [step]]).any(axis=1)
    chance = ITEM_CLICKS[action] * np.where(seen, 0.5, 1.0)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(users), length),
            "time": np.tile(np.arange(length), users) * 3600 + rng.integers(0, 1800, users * length),
            "action": action.ravel(),
            "propensity": 0.1,
            "new": (action == 9).ravel().astype(float),
            "click": (rng.random((users, length)) < chance).ravel().astype(int),
        }
    )


def value_of_uniform(length: int = 20) -> float:
    """Mean reward of the uniform policy among tiring users, in closed form."""
    seen = 1 - 0.9 ** np.arange(length)
    return float(ITEM_CLICKS.mean() * (1 - 0.5 * seen).mean())


VALUE_OF_BEST = float(ITEM_CLICKS[-1]) * (1 + 0.5 * 19) / 20


THINNED_NEW = np.array([0.05, 0.1, 0.2, 0.3, 0.35])


def thinned_rows(rng: np.random.Generator) -> pd.DataFrame:
    """A log of which one in ten rows without a click is kept, with weight 10."""
    log = rows(rng, 60_000, np.full(5, 0.2), THINNED_NEW, CLICKED[1:])
    kept = (log["click"] == 1) | (rng.random(len(log)) < 0.1)
    return log.assign(sample_weight=np.where(log["click"] == 1, 1, 10))[kept]


def dated_revenue(rng: np.random.Generator) -> pd.DataFrame:
    """A daily export: dates without hours, few banners, so that honest rows without reward are equal."""
    logged = np.array([0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    log = rows(rng, 40_000, logged, logged[::-1], np.full(6, 0.1))
    user = rng.integers(2_000, size=len(log))
    day = rng.integers(20, size=len(log))
    revenue = log.pop("click") * np.round(rng.gamma(4, 4, len(log)), 2)
    dates = pd.Timestamp("2025-10-01") + pd.to_timedelta(day, unit="D")
    return log.assign(user=user, date=dates.strftime("%Y-%m-%d"), reward=revenue)


def random_bucket(rng: np.random.Generator) -> pd.DataFrame:
    """Random traffic on twelve items, of which the new policy shows the best; today's own rows are not in the file."""
    even = np.full(12, 1 / 12)
    return rows(rng, 12_000, even, np.eye(12)[11], np.linspace(0.01, 0.05, 12))


def told_target(share: float) -> Callable[[np.random.Generator], pd.DataFrame]:
    """A target of weight 1 that knows this share of the clicks."""

    def draw(rng: np.random.Generator) -> pd.DataFrame:
        even = np.full(12, 1 / 12)
        log = rows(rng, 60_000, even, np.full(12, 1 / 12), np.linspace(0.01, 0.03, 12))
        told = (log["click"] == 1) & (rng.random(len(log)) < share)
        return log.assign(new=np.where(told, 1.0, log["new"]))

    return draw


def slates(rng: np.random.Generator, users: int = 800, items: int = 30, places: int = 6) -> pd.DataFrame:
    """Slates whose clicks depend on the item alone: with probability .3 a random ranking, else the first six items.

    The new policy is today's with the items in reverse.
    """
    n = users * 4
    explored = rng.random(n) < 0.3
    shown = np.array([rng.permutation(items)[:places] for _ in range(n)])
    shown[~explored] = np.arange(places)
    place = np.arange(places)
    propensity = 0.3 / items + 0.7 * (shown == place)
    new = 0.3 / items + 0.7 * (shown == items - 1 - place)
    return pd.DataFrame(
        {
            "user": np.repeat(np.arange(n) // 4, places),
            "slate": np.repeat(np.arange(n), places),
            "position": np.tile(place, n),
            "action": shown.ravel(),
            "propensity": propensity.ravel(),
            "new": new.ravel(),
            "click": (rng.random(shown.shape) < SLATE_CLICKS[shown]).ravel().astype(int),
        }
    )


SLATE_CLICKS = np.linspace(0.02, 0.05, 30)
SLATE_GAIN = 0.7 * float((SLATE_CLICKS[-1:-7:-1] - SLATE_CLICKS[:6]).mean())

RARE = float(NEW @ CLICKED)
CLICKS = " --reward-min 0 --reward-max 1"
TWELFTH = "--baseline today --propensity-min .083" + CLICKS
DATES = "--baseline today --propensity-min .1 --reward-min 0 --reward-max 500"
ITEMS = "--propensities-of position --assumption independent --baseline today --propensity-min .01" + CLICKS
EXAMPLES = {
    "nothing stated": Example(rare_item, "", RARE),
    "the true least propensity, .002, stated": Example(rare_item, "--propensity-min .002", RARE),
    "users who tire; the best item is worse": Example(
        tiring_users,
        "--baseline today --propensity-min .1" + CLICKS,
        VALUE_OF_BEST - value_of_uniform(),
        "difference",
    ),
    "one in ten rows without a click kept": Example(
        thinned_rows, "--propensity-min .2" + CLICKS, float(THINNED_NEW @ CLICKED[1:])
    ),
    "dates without hours": Example(dated_revenue, DATES, 1.6, "today"),
    "dates without hours, --deduplicate": Example(dated_revenue, DATES + " --deduplicate", 1.6, "today"),
    "rows drawn at random": Example(random_bucket, TWELFTH, 0.02, "difference"),
    "a target that saw the reward": Example(told_target(1), TWELFTH, 0.0, "difference"),
    "a target that saw one click in ten": Example(told_target(0.1), TWELFTH, 0.0, "difference"),
    "six places, .3 explored": Example(slates, ITEMS, SLATE_GAIN, "difference"),
}
# Examples in which what the sentence says has changed, besides the numbers.
SAID = ("rows drawn at random", "a target that saw the reward", "six places, .3 explored")


def ask(python: str, log: pd.DataFrame, options: str, folder: Path) -> list[dict[str, Any]]:
    """Type the command, and return the records that it writes; none where it refuses the file."""
    log.to_csv(folder / "log.csv", index=False)
    words = ["estimate", "log.csv", "--target", "new", *options.split(), "--json", "answer.json", "--quiet"]
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    done = subprocess.run(
        [python, "-m", "recsim_mnar", *words], cwd=folder, capture_output=True, text=True, timeout=600
    )
    if done.returncode == 2:
        return []
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(answer.read_text())


def judge(python: str, name: str, logs: int) -> dict[str, Any]:
    """Counts over the logs of one example, and the median value and limits."""
    example = EXAMPLES[name]
    sentences, leading = [], []
    for number in range(logs):
        rng = np.random.default_rng([2026, sorted(EXAMPLES).index(name), number])
        with tempfile.TemporaryDirectory() as folder:
            records = ask(python, example.draw(rng), example.options, Path(folder))
        if records:
            sentences.append(records[0]["sentence"])
            leading += [r for r in records if r["role"] == example.role and r["leads"]]
    levels = [record["verdict_level"].replace("_", " ") for record in leading]
    trusted = [record for record, level in zip(leading, levels, strict=True) if level == "trust"]
    return {
        "logs": logs,
        "trusted": len(trusted),
        "trusted and wrong": sum(not r["low"] <= example.truth <= r["high"] for r in trusted),
        "holds": sum(r["low"] <= example.truth <= r["high"] for r in leading),
        "do not use": levels.count("do not use"),
        "better": sum(sentence["answer"] == "better" for sentence in sentences),
        "first sentence": sentences[0]["text"] if sentences else "",
        "median": [median(r[key] for r in leading) for key in ("value", "low", "high")] if leading else [],
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    """Both versions side by side, a row per example."""
    lines = [
        "| example | truth | version | value (interval), median | trusted | of these wrong | do not use | better |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, example in EXAMPLES.items():
        for version, counts in results[name].items():
            value, low, high = counts["median"]
            cells = [
                f"{counts[key]}/{counts['logs']}" for key in ("trusted", "trusted and wrong", "do not use", "better")
            ]
            interval = f"{value:.3g} ({low:.3g} to {high:.3g})"
            lines.append(" | ".join([f"| {name}", f"{example.truth:.3g}", version, interval, *cells]) + " |")
    lines.append("")
    for name in SAID:
        lines += [f"- **{name}**, {version}: {results[name][version]['first sentence']}" for version in results[name]]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="examples to judge again; all where none is named")
    parser.add_argument("--before", metavar="PYTHON", help="interpreter of an environment with an older version")
    parser.add_argument("--quick", action="store_true", help="two logs of each, printed and not kept")
    options = parser.parse_args(arguments)
    kept = HERE / "examples.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    versions = {"before": options.before, "now": sys.executable}
    for name in options.names or EXAMPLES:
        results.setdefault(name, {})
        for version, python in versions.items():
            if python is not None:
                results[name][version] = judge(python, name, 2 if options.quick else LOGS)
        print(name, results[name], flush=True)
    if not options.quick:
        kept.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()

"""Segments of `estimate --by`, on logs of known truth.

    python benchmarks/own_log/segments.py            # writes segments.json; what stands there is not run again
    python benchmarks/own_log/segments.py --quick    # a few logs of each kind, nothing written

``coverage``: 20 segments of which the largest has 66 times the users of the least; users have 1 to hundreds of rows. A
log counts as covered if every interval holds its truth: of the target, of today's policy and of their difference, in
all segments. ``refusal``: how often a column is refused that was fixed before the recommendation, and one that depends
on it, by how much and in logs of three sizes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.answers.records import estimate_columns
from recsim_mnar.answers.weights import Segments, SegmentTest
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Facts
from recsim_mnar.log.columns import Clusters, LogColumns

RESULTS = Path(__file__).resolve().parent / "segments.json"
STATES, SEGMENTS = 6, 20
SHARES = 1.0 / np.arange(1, SEGMENTS + 1) ** 1.4
SHARES /= SHARES.sum()
Log = dict[str, Any]


@dataclass(frozen=True)
class Setting:
    """A world.

    Attributes:
        name: of the setting.
        rows, users, items: its size.
        rate: of clicks, about.
        apart: share of the target that is not the policy that logged: the larger, the heavier are weights.
        by_row: whether segments are those of visits and not of users.
        uneven: a user clicks 1 - uneven to 1 + uneven times as often as the mean.
    """

    name: str
    rows: int = 20_000
    users: int = 4_000
    items: int = 20
    rate: float = 0.1
    apart: float = 0.5
    by_row: bool = False
    uneven: float = 0.6


COVERAGE = (
    Setting("short log", rows=4_000, users=1_000),
    Setting("country of a user"),
    Setting("heavy weights", apart=0.9),
    Setting("device of a visit", by_row=True),
    Setting("clicks of 1 %", rate=0.01),
    Setting("most rows rewarded", rate=0.55, uneven=0.2),
)
SIZES = tuple(
    Setting(f"{rows:,} rows, {items} items", rows, rows // 5, items) for rows in (2_000, 10_000, 50_000)
    for items in (20, 500)
)  # fmt: skip


def world(setting: Setting, draw: np.random.Generator) -> Log:
    """Policies and rates of clicks, by state and segment: the target does more in some segments, less in others."""
    base = draw.dirichlet(np.ones(setting.items), STATES)
    other = draw.dirichlet(np.full(setting.items, 0.5), STATES)
    old = 0.2 / setting.items + 0.8 * base
    rate = setting.rate * draw.uniform(0.5, 1.5, (SEGMENTS, setting.items))
    return {"old": old, "new": (1 - setting.apart) * old + setting.apart * other, "rate": rate}


def truths(found: Log) -> dict[str, np.ndarray]:
    """(segments,) values per decision."""
    values = {name: np.mean(found["rate"] @ found[name].T, axis=1) for name in ("new", "old")}
    return {"new": values["new"], "old": values["old"], "new - old": values["new"] - values["old"]}


def log_of(setting: Setting, found: Log, draw: np.random.Generator) -> Log:
    """Rows of a log: few users have most of them, and some click more often than others."""
    users = setting.users
    user = np.sort(draw.choice(users, setting.rows, p=draw.dirichlet(np.full(users, 0.4))))
    own = draw.choice(SEGMENTS, users, p=SHARES)
    factor = draw.uniform(1.0 - setting.uneven, 1.0 + setting.uneven, users)
    segment = draw.choice(SEGMENTS, setting.rows, p=SHARES) if setting.by_row else own[user]
    state = draw.integers(0, STATES, setting.rows)
    steps = found["old"].cumsum(axis=1)[state]
    item = np.minimum((draw.random((setting.rows, 1)) > steps).sum(axis=1), setting.items - 1)
    clicks = (draw.random(setting.rows) < found["rate"][segment, item] * factor[user]).astype(float)
    p, new = found["old"][state, item], found["new"][state, item]
    return {"user": user, "segment": segment, "item": item, "clicks": clicks, "p": p, "new": new}


def segments_of(codes: np.ndarray) -> Segments:
    """A column of numbers as segments."""
    return Segments.of("column", codes.astype(np.int64), np.arange(int(codes.max()) + 1))


def covered(setting: Setting, number: int) -> dict[str, Any]:
    """Whether all intervals of a log hold their truths, and how many do not."""
    draw = np.random.Generator(np.random.PCG64([number, 31, 9]))
    found = world(setting, draw)
    log = log_of(setting, found, draw)
    true = truths(found)
    columns = LogColumns(
        log["clicks"], log["p"], Clusters.of(log["user"], setting.rows), {"new": log["new"], "old": log["p"]},
        range(setting.rows),
    )  # fmt: skip
    least = 0.2 / setting.items
    try:
        records = estimate_columns(
            columns, ["new"], baseline="old", segments=segments_of(log["segment"]), action=log["item"],
            facts=Facts(full_support=True, propensity_min=least, reward_min=0.0, reward_max=1.0),
        )  # fmt: skip
    except UserError:
        return {"refused": True}
    every = [record for record in records if "by" in record]
    own = [record for record in every if not record["method"].startswith("no interval")]
    missed = [r for r in own if not r["low"] <= true[r["policy"]][int(r["segment"])] <= r["high"]]
    claims = [
        r for r in own if "baseline" in r and r["verdict_level"] != "do_not_use" and not r["low"] <= 0 <= r["high"]
    ]
    wrong = [r for r in claims if (r["low"] > 0) != (true["new - old"][int(r["segment"])] > 0)]
    counts = {"intervals": own, "missed": missed, "claims": claims, "wrong_claims": wrong}
    sizes = {name: len(which) for name, which in counts.items()}
    return {"refused": False, "covered": not missed, **sizes}


def coverage(setting: Setting, logs: int) -> dict[str, Any]:
    """A row of the table of coverage."""
    start, rows = time.process_time(), [covered(setting, number) for number in range(logs)]
    kept = [row for row in rows if not row["refused"]]
    total = {
        name: int(sum(row[name] for row in kept))
        for name in ("covered", "intervals", "missed", "claims", "wrong_claims")
    }
    shown = {"logs": logs, "refused": logs - len(kept), "coverage": total["covered"] / len(kept)} | total
    return shown | {"cpu_seconds": time.process_time() - start}


def earlier(values: np.ndarray, user: np.ndarray) -> np.ndarray:
    """(n,) sum of a user's values in earlier rows."""
    total = np.cumsum(values) - values
    first = np.flatnonzero(np.concatenate([[True], user[1:] != user[:-1]]))
    return total - np.repeat(total[first], np.diff([*first, user.size]))


def mixed(share: float, of: Callable[[Log], np.ndarray]) -> Callable[[Log, np.random.Generator], np.ndarray]:
    """A column that depends on the recommendation in a share of the rows, and is that of another row in the others."""

    def column(log: Log, draw: np.random.Generator) -> np.ndarray:
        values = of(log)
        return np.where(draw.random(values.size) < share, values, draw.permutation(values))

    return column


FIXED: dict[str, Callable[[Log, np.random.Generator], np.ndarray]] = {
    "country of the user": lambda log, draw: log["segment"],
    "device of the visit": lambda log, draw: draw.choice(3, log["user"].size, p=[0.6, 0.39, 0.01]),
    "100 values": lambda log, draw: draw.integers(0, 100, log["user"].size),
    "visits so far": lambda log, draw: np.minimum(earlier(np.ones(log["user"].size), log["user"]), 9),
    "clicked before": lambda log, draw: np.minimum(earlier(log["clicks"], log["user"]), 1),
}
CATEGORIES = 5
DEPENDS: dict[str, Callable[[Log, np.random.Generator], np.ndarray]] = {
    **{f"category of the item, in {100 * share:g} % of rows": mixed(share, lambda log: log["item"] % CATEGORIES)
       for share in (1.0, 0.5, 0.2, 0.1)},
    "one item of all": lambda log, draw: log["item"] == 0,
    "half of the items": lambda log, draw: log["item"] % 2,
    "clicked": lambda log, draw: log["clicks"],
    "bought, half of the clicks": lambda log, draw: log["clicks"] * (draw.random(log["user"].size) < 0.5),
    "user clicked at all": lambda log, draw: np.bincount(log["user"], log["clicks"])[log["user"]] > 0,
}  # fmt: skip


def refused(setting: Setting, logs: int) -> dict[str, Any]:
    """Shares of logs in which each column is refused: with the items shown, and by the target's weights alone."""
    start, counts = time.process_time(), {name: [0, 0] for name in (*FIXED, *DEPENDS)}
    for number in range(logs):
        draw = np.random.Generator(np.random.PCG64([number, 31, 8]))
        log = log_of(setting, world(setting, draw), draw)
        users = Clusters.of(log["user"], setting.rows)
        stated = Facts(full_support=True, reward_min=0.0, reward_max=1.0, propensity_min=0.2 / setting.items)
        for name, make in (FIXED | DEPENDS).items():
            segments = segments_of(make(log, draw))
            for place, action in enumerate((log["item"], None)):
                try:
                    test = SegmentTest(log["clicks"], log["p"], users, {"new": log["new"]}, {}, action, stated)
                    test.refuse(segments)
                except UserError:
                    counts[name][place] += 1
    shares = {name: [count / logs for count in both] for name, both in counts.items()}
    return {"logs": logs, "refused": shares, "cpu_seconds": time.process_time() - start}


def table(results: dict[str, Any]) -> str:
    """Both parts as Markdown."""
    heads = (
        "20 segments",
        "logs",
        "refused",
        "all intervals hold",
        "intervals that miss",
        "signs claimed, wrong",
    )
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    lines += [
        f"| {name} | {r['logs']} | {r['refused']} | {r['coverage']:.3f} | {r['missed']} of {r['intervals']:,} | "
        f"{r['claims']:,}, {r['wrong_claims']} |"
        for name, r in results["coverage"].items()
    ]
    sizes = list(results["refusal"])
    lines += [
        "",
        "| refused, with the items shown / without | " + " | ".join(sizes) + " |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name in (*FIXED, *DEPENDS):
        shares = (results["refusal"][size]["refused"][name] for size in sizes)
        kind = "fixed" if name in FIXED else "depends"
        lines.append(f"| {kind}: {name} | " + " | ".join(f"{a:.3f} / {b:.3f}" for a, b in shares) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what does not stand in the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three logs of two settings, nothing written")
    quick = parser.parse_args().quick
    results: dict[str, Any] = {"coverage": {}, "refusal": {}}
    if RESULTS.exists() and not quick:
        results = json.loads(RESULTS.read_text())
    parts = (("coverage", COVERAGE, coverage, 500), ("refusal", SIZES, refused, 200))
    for part, settings, run, logs in parts:
        for setting in settings[:2] if quick else settings:
            if setting.name not in results[part]:
                results[part][setting.name] = {"setting": asdict(setting)} | run(setting, 3 if quick else logs)
                print(f"{part}, {setting.name}: {results[part][setting.name]['cpu_seconds']:.0f} s", flush=True)
                if not quick:
                    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(table(results))


if __name__ == "__main__":
    main()

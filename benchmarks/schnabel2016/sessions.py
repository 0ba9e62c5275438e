"""MF-IPS at work in the sessions world, where organic views mislead.

    python benchmarks/schnabel2016/sessions.py [--quick] [--out DIR] [--workers N]

100 items, every pair flipped, popular items viewed far more often (n_flips = 50, sigma_mu_organic = 3). Two parts:

- against: MF-IPS trained on the log of 20,000 users under uniform logging, five logs in each of three catalogues,
  beside the best constant item (known to the truth only) and the agents that learn from views alone. CTR from clicks
  and from the exact click probabilities of what was shown, 95 % intervals over users; and from the clicks of the five
  logs' arms together.
- curve: CTR of MF-IPS and MF-Naive against the number of training users, two logs in each catalogue, the log uniform or
  skewed towards what the user has viewed most; mean over catalogues and logs of the ratio to the best constant item's,
  95 % t-intervals.

Each run is kept under DIR/work/sessions/, so an interrupted study resumes. Writes its part of results.json and
results.md, and sessions.png.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
from pathlib import Path
from typing import Any

import numpy as np
import parts
from _study import save_picture

from recsim_mnar import rng
from recsim_mnar.estimators.intervals.limits import ratio_interval
from recsim_mnar.log import Log
from recsim_mnar.policies import Policy, registry
from recsim_mnar.protocols.ab_test import run_arm
from recsim_mnar.runs.files import write_json
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

SETTINGS = ("n_items=100", "n_flips=50", "sigma_mu_organic=3")
N_ITEMS = 100
ORGANIC = ("popularity", "user-popularity", "user-popularity-greedy", "svd", "item-knn", "user-knn")
CATALOGUES, LOGS, CURVE_LOGS = (0, 1, 2), (0, 1, 2, 3, 4), 2
TRAIN_USERS, ARM_USERS, ORGANIC_USERS, CURVE_USERS = 20_000, 40_000, 4_000, 10_000
CURVE = (500, 1000, 2000, 5000, 10_000, 20_000)
LOGGING = {"uniform": "random", "skewed": "user-popularity+epsilon=0.2"}
LEARNERS = ("mf-ips", "mf-naive")


def world_of(catalogue: int) -> Any:
    return make_world("sessions", "recogym-v1", (*SETTINGS, f"catalogue_seed={catalogue}"))


def train_log(world: Any, log: int, logging: str, n_users: int) -> Log:
    """Training users of a log; a logging policy that learns does so on the views of other users."""
    views = Log({})
    if logging != "random":
        views = simulate(world, registry.learner("random").fit(views, n_items=N_ITEMS), 1000, 1_000 + log)
    policy = registry.learner(logging).fit(views, n_items=N_ITEMS)
    return simulate(world, policy, n_users, rng.derive_seed(log, "train"))


def ctr(world: Any, policy: Policy, n_users: int, seed: int) -> dict[str, Any]:
    """CTR from clicks and from exact click probabilities, with 95 % intervals over users."""
    arm = run_arm(world, policy, n_users, seed)
    value, low, high = ratio_interval(arm.rewards, arm.decisions, 0.95)
    exact, exact_low, exact_high = ratio_interval(arm.means, arm.decisions, 0.95)
    return {
        "users": n_users, "decisions": int(arm.decisions.sum()),
        "ctr": value, "low": low, "high": high, "exact": exact, "exact_low": exact_low, "exact_high": exact_high,
    }  # fmt: skip


def best_constant(world: Any) -> int:
    """The item with the largest long-run CTR, of the three with the largest mean click probability of new users."""
    omega = rng.normals(0, rng.Stream.PROTOCOL, 0, (20_000, world.params.n_factors))
    three = np.argsort(-world.click_probabilities(omega).mean(axis=0))[:3]
    exact = {
        int(i): ctr(world, registry.learner(f"constant+item={i}").fit(Log({}), n_items=N_ITEMS), 20_000, 5)["exact"]
        for i in three
    }
    return max(exact, key=lambda i: exact[i])


def against(catalogue: int, log: int, scale: float) -> dict[str, Any]:
    """One training log: every agent's arm, each with users of its own."""
    world = world_of(catalogue)
    train = train_log(world, log, "random", int(TRAIN_USERS * min(1.0, 4 * scale)))
    item = best_constant(world)
    rows: dict[str, Any] = {}
    # What learns from views alone differs little from log to log, and stays far behind: one log a catalogue.
    names = ["mf-ips", f"constant+item={item}", *(ORGANIC if log == LOGS[0] else ())]
    for name in names:
        policy = registry.learner(name).fit(train, n_items=N_ITEMS, seed=log)
        users = int((ORGANIC_USERS if name in ORGANIC else ARM_USERS) * scale)
        kind = "best constant item" if name.startswith("constant") else name
        rows[kind] = ctr(world, policy, users, rng.derive_seed(log, f"ab_test/{kind}"))
        rows[kind]["policy"] = policy.describe()
    return rows


def curve(catalogue: int, log: int, logging: str, scale: float) -> dict[str, Any]:
    """CTR of both learners against the number of training users, on the same evaluated users."""
    world = world_of(catalogue)
    sizes = sorted({max(int(n * scale), 60) for n in CURVE})
    whole = train_log(world, log, LOGGING[logging], max(sizes))
    seed, users = rng.derive_seed(log, "curve"), int(CURVE_USERS * scale)
    item = best_constant(world)
    constant = registry.learner(f"constant+item={item}").fit(Log({}), n_items=N_ITEMS)
    out: dict[str, Any] = {"best constant item": ctr(world, constant, users, seed)["exact"]}
    for n in sizes:
        train = whole.select(whole["user"] < n)
        for name in LEARNERS:
            if name == "mf-naive" and logging == "uniform":
                continue  # all weights are 1: the same policy
            policy = registry.learner(name).fit(train, n_items=N_ITEMS, seed=log)
            out[f"{name}/{n}"] = ctr(world, policy, users, seed)["exact"]
    return out


def job(part: str, catalogue: int, log: int, scale: float, folder: Path) -> tuple[str, dict[str, Any]]:
    """A run, from disk where it is there already."""
    name = f"{part}-{catalogue}-{log}"
    path = folder / f"{name}.json"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        kind, _, logging = part.partition("-")
        found = against(catalogue, log, scale) if kind == "against" else curve(catalogue, log, logging, scale)
        write_json(path, found)
    return name, json.loads(path.read_text())


def pooled(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """CTR and 95 % interval of arms with different users taken together."""
    weight = np.array([r["decisions"] for r in rows], float)
    weight /= weight.sum()
    value = float(weight @ [r["ctr"] for r in rows])
    half = float(np.sqrt((weight**2) @ [((r["high"] - r["low"]) / 2) ** 2 for r in rows]))
    return value, value - half, value + half


def t_interval(values: np.ndarray) -> tuple[float, float, float]:
    from scipy.stats import t

    mean = float(values.mean())
    if len(values) < 2:
        return mean, mean, mean
    half = float(t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def summary(runs: dict[str, dict[str, Any]], catalogues: tuple[int, ...], logs: tuple[int, ...]) -> dict[str, Any]:
    """Everything that is printed."""
    tables: dict[str, Any] = {}
    for c in catalogues:
        of = [runs[f"against-{c}-{g}"] for g in logs]
        pool = {name: pooled([r[name] for r in of]) for name in ("mf-ips", "best constant item")}
        tables[str(c)] = {
            "logs": of,
            "pooled": pool,
            "exact_disjoint": [r["mf-ips"]["exact_low"] > r["best constant item"]["exact_high"] for r in of],
            "clicks_disjoint": [r["mf-ips"]["low"] > r["best constant item"]["high"] for r in of],
            "pooled_disjoint": pool["mf-ips"][1] > pool["best constant item"][2],
            "organic_beaten": all(
                min(r["mf-ips"][low] for r in of) > of[0][name][high]
                for name in ORGANIC
                for low, high in (("low", "high"), ("exact_low", "exact_high"))
            ),
        }
    curves: dict[str, Any] = {}
    for logging in LOGGING:
        of = [runs[f"curve-{logging}-{c}-{g}"] for c in catalogues for g in logs[:CURVE_LOGS]]
        for key in of[0]:
            if "/" in key:
                ratios = np.array([r[key] / r["best constant item"] for r in of])
                curves[f"{logging}/{key}"] = {"ratio": t_interval(ratios), "runs": len(ratios)}
        if logging == "skewed":
            for n in sorted({key.split("/")[1] for key in of[0] if "/" in key}, key=int):
                gain = np.array([(r[f"mf-ips/{n}"] - r[f"mf-naive/{n}"]) / r["best constant item"] for r in of])
                curves[f"skewed/mf-ips less mf-naive/{n}"] = {"ratio": t_interval(gain), "runs": len(gain)}
    return {"against": tables, "curve": curves}


def markdown(found: dict[str, Any]) -> str:
    """The tables."""
    lines = ["## MF-IPS where organic views mislead", ""]
    lines += [f"`{' '.join(SETTINGS)}`; made by `python benchmarks/schnabel2016/sessions.py`.", ""]
    for c, table in found["against"].items():
        lines += [f"### Catalogue {c}", "", "| agent | log | users | CTR from clicks [95 %] | exact CTR [95 %] |"]
        lines += ["|---|---|---|---|---|"]
        for g, rows in enumerate(table["logs"]):
            for name, r in rows.items():
                lines.append(
                    f"| {name} | {g} | {r['users']:,} | {r['ctr']:.5f} [{r['low']:.5f}, {r['high']:.5f}] "
                    f"| {r['exact']:.5f} [{r['exact_low']:.5f}, {r['exact_high']:.5f}] |"
                )
        for name, (value, low, high) in table["pooled"].items():
            lines.append(f"| {name}, all logs' arms | | | {value:.5f} [{low:.5f}, {high:.5f}] | |")
        n = len(table["logs"])
        lines += ["", "MF-IPS above the best constant item, intervals disjoint: exact CTR on "
                  f"{sum(table['exact_disjoint'])} of {n} logs, clicks on "
                  f"{sum(table['clicks_disjoint'])} of {n}, clicks of all arms together: "
                  f"{'yes' if table['pooled_disjoint'] else 'no'}. Above every agent that learns from views alone: "
                  f"{'yes' if table['organic_beaten'] else 'no'}.", ""]  # fmt: skip
    lines += ["### CTR against the number of training users", ""]
    lines += ["Exact CTR as a ratio to the best constant item's: mean over catalogues and logs, 95 % t-interval.", ""]
    lines += ["| logging | agent | training users | ratio | runs |", "|---|---|---|---|---|"]
    for key, entry in found["curve"].items():
        logging, name, n = key.split("/")
        value, low, high = entry["ratio"]
        lines.append(f"| {logging} | {name} | {int(n):,} | {value:.4f} [{low:.4f}, {high:.4f}] | {entry['runs']} |")
    return "\n".join(lines) + "\n"


def figure(found: dict[str, Any], path: Path) -> None:
    """CTR against training users."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axis = plt.subplots(figsize=(6.4, 4.2), constrained_layout=True)
    styles = {"uniform/mf-ips": ("MF-IPS, uniform logging", "C0", "o"), "skewed/mf-ips": ("MF-IPS, skewed", "C1", "s"),
              "skewed/mf-naive": ("MF-Naive, skewed", "C3", "^")}  # fmt: skip
    for start, (label, color, marker) in styles.items():
        points = [
            (int(k.rsplit("/", 1)[1]), v["ratio"]) for k, v in found["curve"].items() if k.startswith(start + "/")
        ]
        n, values = [p[0] for p in points], np.array([p[1] for p in points])
        axis.plot(n, values[:, 0], color=color, marker=marker, label=label)
        axis.fill_between(n, values[:, 1], values[:, 2], color=color, alpha=0.2, linewidth=0)
    tables = found["against"].values()
    constant = [t["pooled"]["best constant item"][0] for t in tables]
    for style, name in zip((":", "-.", "--"), ("popularity", "svd", "user-knn"), strict=True):
        ratio = np.mean([t["logs"][0][name]["exact"] / c for t, c in zip(tables, constant, strict=True)])
        axis.axhline(ratio, color="grey", linestyle=style, linewidth=1, label=name)
    axis.axhline(1.0, color="black", linewidth=1, label="best constant item")
    axis.set(xscale="log", xlabel="training users", ylabel="CTR / CTR of the best constant item")
    axis.legend(fontsize=8, ncols=2)
    save_picture(fig, path)
    plt.close(fig)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="default: this folder; a --quick run writes nothing")
    parser.add_argument("--quick", action="store_true", help="one catalogue, one log, a fiftieth of the users")
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    import tempfile

    with tempfile.TemporaryDirectory() as spare:
        out = parts.folder(arguments.out or (Path(spare) if arguments.quick else None), arguments.quick)
        catalogues, logs = ((0,), (0,)) if arguments.quick else (CATALOGUES, LOGS)
        scale = 0.02 if arguments.quick else 1.0
        kinds = ("against", *(f"curve-{logging}" for logging in LOGGING))
        jobs = [
            (part, c, g, scale, out / "work" / "sessions")
            for g in logs
            for part in kinds
            for c in catalogues
            if part == "against" or g < CURVE_LOGS
        ]
        runs: dict[str, Any] = {}
        if arguments.workers > 1:
            with concurrent.futures.ProcessPoolExecutor(arguments.workers) as pool:
                for name, found in pool.map(job, *zip(*jobs, strict=True)):
                    runs[name] = found
                    print(name, flush=True)
        else:
            for arguments_of_job in jobs:
                name, found = job(*arguments_of_job)
                runs[name] = found
                print(name, flush=True)
        found = summary(runs, catalogues, logs)
        text = markdown(found)
        parts.write(out, "sessions", found, text)
        figure(found, out / "sessions.png")
        print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

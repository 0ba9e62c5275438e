"""Regret of bandits in worlds of known mean rewards: see README.md."""

from __future__ import annotations

import functools
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import once, parser_of, save_picture, settings_of, student, table, word, write_results, write_text

from recsim_mnar import rng
from recsim_mnar.log import Log
from recsim_mnar.policies import Policy, registry
from recsim_mnar.simulation.items import simulate_online
from recsim_mnar.worlds.features import FeatureWorld

HERE = Path(__file__).resolve().parent
LOW, HIGH = 0.05, 0.5
MUST = ("lin-ucb", "lin-thompson", "logistic-thompson")
QUICK = {"seeds": 2, "users": 100, "points": 5, "policies": ["lin-epsilon-greedy", "lin-ucb", "lin-thompson", "ucb1"]}


def world_of(given: dict[str, Any], reward: str) -> FeatureWorld:
    """A world whose mean rewards, linear in the features or their logits, go from .05 to .5."""
    x = rng.normals(1, rng.Stream.USER, 0, (given["rows"], given["n_features"]))
    z = rng.normals(1, rng.Stream.CATALOGUE, 0, (given["n_items"], given["n_features"]))
    score = np.einsum("ud,id->ui", x, z)
    ends = np.array([LOW, HIGH])
    low, high = np.log(ends / (1.0 - ends)) if reward == "logistic" else ends
    share = (score - score.min()) / (score.max() - score.min())
    means = low + (high - low) * share
    if reward == "logistic":
        means = 1.0 / (1.0 + np.exp(-means))
    return FeatureWorld(x, z, reward=np.clip(means, LOW, HIGH), length=given["length"])


def policy_of(name: str, world: FeatureWorld) -> Policy:
    """A bandit by its name, on the world's user features where it has a context."""
    kind = type(registry.learner(name).fit(Log({}), n_items=world.n_items))
    contextual = name not in ("epsilon-greedy", "ucb1")
    return kind(world.n_items, **({"features": world.user_features} if contextual else {}))


def regret_of(given: dict[str, Any], reward: str, name: str, seed: int) -> dict[str, Any]:
    """Cumulative regret at evenly spaced numbers of interactions, in the order in which they were made."""
    world, began = world_of(given, reward), time.perf_counter()
    run = simulate_online(world, policy_of(name, world), given["users"], seed, lanes=given["lanes"])
    rows = run.log.bandit()
    order = np.argsort(rows["round"], kind="stable")
    here = world.rows_of(rows["user"][order])
    lost = world.means[here].max(axis=1) - world.means[here, rows["action"][order]]
    at = np.linspace(0, len(lost), given["points"] + 1).astype(int)[1:]
    seconds = time.perf_counter() - began
    return {"interactions": at.tolist(), "regret": np.cumsum(lost)[at - 1].tolist(), "seconds": round(seconds, 1)}


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Regret at the end and in the last tenth, one value per seed, and the mean curve with its 95 % band."""
    curves = np.array([run["regret"] for run in runs])
    tenth = round(0.9 * curves.shape[1]) - 1
    return {
        "interactions": runs[0]["interactions"],
        "regret": curves[:, -1],
        "last_tenth": curves[:, -1] - curves[:, tenth],
        "seconds": [run["seconds"] for run in runs],
        "curve": dict(zip(("mean", "low", "high"), student(curves), strict=True)),
    }


def in_words(values: Any) -> str:
    mean, low, high = student(values)
    return f"{mean:,.0f} [{low:,.0f}, {high:,.0f}]"


def tables(found: dict[str, Any], given: dict[str, Any]) -> str:
    """Markdown: regret at the end, paired with the rival by seed, and the checks."""
    rival, checks, rows = given["paired_with"], [], []
    for reward, by_policy in found.items():
        ends = {name: np.asarray(row["regret"]) for name, row in by_policy.items()}
        base = ends[rival]
        for name in sorted(ends, key=lambda one: ends[one].mean()):
            row = by_policy[name]
            paired = "" if name == rival else in_words(ends[name] - base)
            below = "" if name == rival else f"{int((ends[name] < base).sum())} of {len(base)}"
            seconds = f"{np.median(row['seconds']):.0f}"
            rows.append([reward, name, in_words(ends[name]), in_words(row["last_tenth"]), paired, below, seconds])
            for other in (rival, "epsilon-greedy") if name in MUST else ():
                if other in ends:
                    passed = student(ends[name] - ends[other])[2] < 0
                    checks.append(f"- {word(passed)}: {name} below {other} at the end, {reward} rewards, paired")
    n = found[given["rewards"][0]][rival]["interactions"][-1]
    head = ["rewards", "policy", "regret", "of it in the last tenth", f"less {rival}'s, paired", "below it in"]
    return "\n".join([
        f"Regret after {n:,} interactions, {given['seeds']} seeds, {given['lanes']} lanes; 95 % intervals over seeds.",
        "",
        *table([*head, "seconds"], rows),
        "",
        *checks,
    ])  # fmt: skip


def figure(found: dict[str, Any], path: Path) -> None:
    """Mean regret with 95 % bands, a panel for each kind of reward; ``epsilon-greedy`` leaves it at the top."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    drawn, panels = plt.subplots(1, len(found), figsize=(5 * len(found), 3.6), squeeze=False, layout="constrained")
    for panel, (reward, by_policy) in zip(panels[0], found.items(), strict=True):
        for name, row in by_policy.items():
            at, curve = np.array(row["interactions"]) / 1000, row["curve"]
            (line,) = panel.plot(at, curve["mean"], label=name)
            panel.fill_between(at, curve["low"], curve["high"], color=line.get_color(), alpha=0.25, linewidth=0)
        top = max(max(row["regret"]) for name, row in by_policy.items() if name != "epsilon-greedy")
        panel.set(title=f"{reward} rewards", xlabel="interactions, thousands", ylabel="regret", ylim=(0, 1.2 * top))
    panels[0][0].legend(fontsize="small")
    save_picture(drawn, path)


def main() -> None:
    parser = parser_of(__doc__, quick="a small slice, its results printed only", study="runs/regret")
    parser.add_argument("--seeds", type=int, default=None, help="so many of the seeds first")
    options = parser.parse_args()
    given = settings_of(HERE, QUICK if options.quick else None)
    given["seeds"] = options.seeds or given["seeds"]
    folder = options.study / ("quick" if options.quick else "full")
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for seed in range(given["seeds"]):
        for reward in given["rewards"]:
            for name in given["policies"]:
                make = functools.partial(regret_of, given, reward, name, seed)
                runs.setdefault((reward, name), []).append(once(folder / f"{reward}-{name}-{seed}.json", make))
        print(f"seed {seed} done", flush=True)
    found = {reward: {name: summary(runs[reward, name]) for name in given["policies"]} for reward in given["rewards"]}
    text = tables(found, given)
    print(text)
    if not options.quick:
        write_text(HERE / "results.md", f"`python benchmarks/regret/run.py`\n\n{text}\n\n![regret](results.png)\n")
        figure(found, HERE / "results.png")
        write_results(HERE / "results.json", found, 6)


if __name__ == "__main__":
    main()

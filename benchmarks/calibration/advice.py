"""Is advice right in worlds of families that calibration does not know, and what does following it cost?

    python benchmarks/calibration/advice.py run [--worlds 50] [--quick]
    python benchmarks/calibration/advice.py table

A hidden world makes a log of 300 users; ``advise`` reads the log and nothing else; then every protocol chooses in the
hidden world itself, on logs and arms of the same size. Sizes are quick: 300 users, ensembles of eight.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hidden import FAMILIES, hidden_world
from run import write_table

from recsim_mnar.fitting.advice import advise_on
from recsim_mnar.fitting.advice.advising import Question
from recsim_mnar.log.files import write_json
from recsim_mnar.log.table import Log
from recsim_mnar.policy import registry
from recsim_mnar.protocols.compare import compare, experiment_of
from recsim_mnar.simulate import simulate

HERE = Path(__file__).parent
AGENTS = ("random", "popularity", "user-popularity", "item-knn")
LOGGING = "user-popularity"
FIXED = {"loocv": "hr@1", "off_policy": "clipped_ips", "ab_test": "ctr"}


def one(number: int, users: int, members: int) -> dict[str, Any]:
    """Advice on a hidden world's log, and what each choice costs in the world."""
    family, world = hidden_world(number)
    uniform = registry.learner("random").fit(Log({}), n_items=world.n_items, seed=0)
    train = simulate(world, uniform, users, 5_000 + number)
    logger = registry.learner(LOGGING).fit(train, n_items=world.n_items, seed=0)
    log = simulate(world, logger, users, 9_000 + number)
    log = Log(log.columns, {"world": {"params": {"n_items": world.n_items}}})
    question = Question(
        agents=AGENTS, ensemble=members, users=users, exploring=(), logging=LOGGING, seed=number, validate=False
    )
    with tempfile.TemporaryDirectory() as folder:
        advice = advise_on(log, question, folder)
    sizes = {
        "train_users": users,
        "test_users": users,
        "arm_users": users,
        "truth_users": 8 * users,
        "logging": LOGGING,
    }
    settings = experiment_of(world).settings(None, sizes)
    found = compare(world, {name: registry.learner(name) for name in AGENTS}, settings=settings, seed=20_000 + number)
    truth = [
        {"protocol": j.protocol, "metric": j.metric, "outcome": j.outcome, "cost": j.cost_share}
        for j in found.judgements
    ]
    advised = advice.advised
    return {
        "number": number,
        "family": family,
        "advised": None if advised is None else [advised.protocol, advised.metric],
        "predicted": [
            {"protocol": r.protocol, "metric": r.metric, "best": r.best["count"], "n": r.n, "cost": r.cost["mean"]}
            for r in advice.ranked
        ],
        "truth": truth,
        "best_predicted": advice.best_agents,
        "best": found.judgements[0].best,
    }


def table() -> dict[str, Any]:
    """Calibration of "best in x of n", and costs of following advice and of fixed choices."""
    found = [json.loads(path.read_text()) for path in sorted((HERE / "advice").glob("*.json"))]
    bins: dict[str, list[int]] = {f"{low:.2f}-{low + 0.25:.2f}": [0, 0] for low in (0.0, 0.25, 0.5, 0.75)}
    costs: dict[str, list[float]] = {"advice": [], **{name: [] for name in FIXED}}
    bests = []
    for each in found:
        truth = {(t["protocol"], t["metric"]): t for t in each["truth"]}
        for p in each["predicted"]:
            share = p["best"] / p["n"]
            own = bins[list(bins)[min(int(share * 4), 3)]]
            own[0] += truth[p["protocol"], p["metric"]]["outcome"] == "best"
            own[1] += 1
        if each["advised"] is not None:
            costs["advice"].append(truth[tuple(each["advised"])]["cost"])
        for protocol, metric in FIXED.items():
            costs[protocol].append(truth[protocol, metric]["cost"])
        bests.append(max(each["best_predicted"], key=each["best_predicted"].get) == each["best"])
    return {
        "worlds": {family: sum(e["family"] == family for e in found) for family in FAMILIES},
        "calibration": {name: {"right": right, "of": of} for name, (right, of) in bins.items()},
        "mean_cost": {name: round(float(np.mean(values)), 4) for name, values in costs.items()},
        "se_cost": {name: round(float(np.std(v, ddof=1) / np.sqrt(len(v))), 4) for name, v in costs.items()},
        "best_agent_foretold": [sum(bests), len(bests)],
    }


def markdown(found: dict[str, Any]) -> str:
    """The table of README.md."""
    n = sum(found["worlds"].values())
    right, of = found["best_agent_foretold"]
    lines = [
        f"{n} hidden worlds. The agent that is best in most of the ensemble is the best in {right} of {of}.",
        "",
        '| "picks the best in" a share of the ensemble | so it is in the hidden world |',
        "|---|---|",
        *(f"| {name} | {told['right']} of {told['of']} |" for name, told in found["calibration"].items()),
        "",
        "| choosing by | mean cost, share of the best agent's value | standard error |",
        "|---|---|---|",
        *(f"| {name} | {cost} | {found['se_cost'][name]} |" for name, cost in found["mean_cost"].items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["run", "table"])
    parser.add_argument("--worlds", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="one world of 100 users, nothing kept")
    given = parser.parse_args()
    if given.part == "table":
        whole = json.loads((HERE / "results.json").read_text()) if (HERE / "results.json").exists() else {}
        whole["advice"] = table()
        write_json(HERE / "results.json", whole)
        write_table("advice", markdown(whole["advice"]))
        print(markdown(whole["advice"]))
        return
    if given.quick:
        print(json.dumps(one(1, 100, 2), indent=1))
        return
    (HERE / "advice").mkdir(exist_ok=True)
    for number in range(given.worlds):
        path = HERE / "advice" / f"{number:03d}.json"
        if not path.exists():
            write_json(path, one(number, 300, 8))


if __name__ == "__main__":
    main()

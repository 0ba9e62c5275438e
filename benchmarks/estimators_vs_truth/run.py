"""Bias, error and coverage of every estimator against the truth: `python benchmarks/estimators_vs_truth/run.py`.

Logs of the sessions world under one logging policy; six agents as targets; the truth is each agent's mean click
probability in the states of that log (`value_on_log`). Every fifty logs are a step that is kept under `results/`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import settings as s

from recsim_mnar.estimators import ESTIMATORS, cross_fitted_rewards, estimate_value
from recsim_mnar.policy import registry
from recsim_mnar.replay import replay_batches
from recsim_mnar.simulate import simulate
from recsim_mnar.truth import value_on_log
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

HERE = Path(__file__).resolve().parent

STEP = 50
RESULTS = HERE / "results"


def probabilities(log, policy) -> np.ndarray:
    """(bandit rows, n_items): the policy's probability of every item at each decision of the log."""
    policy = policy.fresh()
    user, item = log["user"], log["item"]
    policy.reset(np.unique(user))
    out = np.full((len(log), policy.n_items), np.nan)
    for views, decisions in replay_batches(log, 0, len(log), one_by_one=False):
        if len(views):
            policy.observe(user[views], item[views])
        if len(decisions):
            out[decisions] = policy.probabilities(user[decisions])
    return out[log.is_bandit]


class Study:
    """The world, the fitted agents and the logging policy."""

    def __init__(self) -> None:
        self.world = SessionsWorld(SessionsParams(n_items=s.N_ITEMS))
        uniform = registry.learner("random").fit(None, n_items=s.N_ITEMS)
        train = simulate(self.world, uniform, s.TRAIN_USERS, seed=s.TRAIN_SEED)
        self.agents = {name: registry.learner(name).fit(train, n_items=s.N_ITEMS) for name in s.AGENTS}
        self.logging = registry.learner(s.LOGGING).fit(train, n_items=s.N_ITEMS)
        views = np.bincount(train["item"][~train.is_bandit], minlength=s.N_ITEMS)
        self.group = np.argsort(np.argsort(-views)) * s.N_GROUPS // s.N_ITEMS

    def one_log(self, number: int) -> dict:
        """Truth and estimates of every agent on one log."""
        seed = s.FIRST_SEED + number
        log = simulate(self.world, self.logging, s.USERS, seed=seed)
        truth = value_on_log(self.world, log, self.agents, seed)
        shown = log.is_bandit
        columns = {
            "reward": log["reward"][shown],
            "propensity": log["propensity"][shown],
            "cluster": log["user"][shown],
        }
        action = log["action"][shown].astype(np.int64)
        out = {}
        own = probabilities(log, self.logging)
        one_hot = (self.group[:, None] == np.arange(self.group.max() + 1)).astype(np.float64)
        for name, policy in self.agents.items():
            every = probabilities(log, policy)
            target = np.minimum(every[np.arange(action.size), action], 1.0)
            q_logged, q_target = cross_fitted_rewards(
                columns["reward"], action, every, n_actions=s.N_ITEMS, cluster=columns["cluster"]
            )
            found = {}
            for estimator, parameters in s.ESTIMATORS.items():
                more = {}
                if estimator == "mips":
                    both = [
                        np.minimum(p @ one_hot, 1.0)[np.arange(action.size), self.group[action]] for p in (every, own)
                    ]
                    more = {"group_target": both[0], "group_propensity": both[1]}
                if ESTIMATORS[estimator].needs:
                    more |= {"q_logged": q_logged, "q_target": q_target}
                e = estimate_value(**columns, target=target, estimator=estimator, level=s.LEVEL, **parameters, **more)
                facts = e.diagnostics
                found[estimator] = [e.value, e.low, e.high, facts["sampling_low"], facts["sampling_high"]]
            out[name] = {"truth": truth[name], "ess": e.ess, "estimates": found}
        return out


def summarise(logs: list[dict]) -> list[dict]:
    """One row an agent and estimator."""
    rows = []
    for agent in s.AGENTS:
        truth = np.array([log[agent]["truth"] for log in logs])
        for estimator in s.ESTIMATORS:
            value, low, high, inner_low, inner_high = np.array([log[agent]["estimates"][estimator] for log in logs]).T
            error = value - truth
            rows.append(
                {
                    "agent": agent,
                    "estimator": estimator,
                    "truth": float(truth.mean()),
                    "bias": float(error.mean()),
                    "bias_se": float(error.std(ddof=1) / np.sqrt(len(logs))),
                    "rmse": float(np.sqrt(np.mean(error**2))),
                    "coverage": float(np.mean((low <= truth) & (truth <= high))),
                    "sampling_coverage": float(np.mean((inner_low <= truth) & (truth <= inner_high))),
                    "width": float(np.mean(high - low)),
                    "sampling_width": float(np.mean(inner_high - inner_low)),
                    "ess": float(np.mean([log[agent]["ess"] for log in logs])),
                    "logs": len(logs),
                }
            )
    return rows


def table(rows: list[dict]) -> str:
    """Markdown: an agent a block."""
    lines = [
        "# Estimators against the truth, sessions world",
        "",
        f"{rows[0]['logs']} logs of {s.USERS} users, {s.N_ITEMS} items, logged by {s.LOGGING}; truth: the agent's mean "
        "click probability in the log's states.",
        "",
        "All in thousandths of a click a recommendation; coverage of the nominal 95 % interval, in brackets that of",
        "its sampling part alone (they differ where weights are clipped or shrunk).",
        "",
    ]
    for agent in s.AGENTS:
        own = [r for r in rows if r["agent"] == agent]
        lines += [
            f"## {agent}: truth {own[0]['truth'] * 1e3:.2f}, effective sample {own[0]['ess']:,.0f}",
            "",
            "| estimator | bias | +- | RMSE | coverage | width |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {r['estimator']} | {r['bias'] * 1e3:+.2f} | {1.96 * r['bias_se'] * 1e3:.2f} | {r['rmse'] * 1e3:.2f} | "
            f"{r['coverage']:.3f} ({r['sampling_coverage']:.3f}) | "
            f"{r['width'] * 1e3:.2f} ({r['sampling_width'] * 1e3:.2f}) |"
            for r in own
        ]
        lines.append("")
    return "\n".join(lines)


def figure(rows: list[dict], path: Path) -> None:
    """RMSE over the truth, and coverage, an agent a colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5), sharey=True)
    place = np.arange(len(s.ESTIMATORS))[::-1]
    for i, agent in enumerate(s.AGENTS):
        own = [r for r in rows if r["agent"] == agent]
        shift = place + 0.3 - 0.12 * i
        left.plot([r["rmse"] / r["truth"] for r in own], shift, "o", label=agent, markersize=4)
        right.plot([r["coverage"] for r in own], shift, "o", markersize=4)
    left.set_yticks(place, list(s.ESTIMATORS))
    left.set_xscale("log")
    left.set_xlabel("RMSE / truth")
    right.axvline(s.LEVEL, color="grey", linewidth=1)
    right.set_xlabel("coverage of the nominal 95 % interval")
    left.legend(fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    fig.tight_layout()
    fig.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=s.LOGS)
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    study, logs = None, []
    for first in range(0, arguments.logs, STEP):
        path = RESULTS / f"logs-{first:04d}.json"
        if not path.exists():
            study = study or Study()
            path.write_text(json.dumps([study.one_log(first + i) for i in range(STEP)]) + "\n")
        logs += json.loads(path.read_text())
        print(f"{len(logs)} logs", flush=True)
    rows = summarise(logs[: arguments.logs])
    (HERE / "results.json").write_text(json.dumps(rows, indent=1) + "\n")
    (HERE / "results.md").write_text(table(rows) + "\n")
    figure(rows, HERE / "results.png")
    print(table(rows))


if __name__ == "__main__":
    main()

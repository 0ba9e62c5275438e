"""Bias, error and coverage of every estimator against the truth: `python benchmarks/estimators_vs_truth/run.py`.

Logs of the sessions world under one logging policy; six agents as targets; the truth is each agent's mean click
probability in the states of that log (`value_on_log`). Every fifty logs are a step that is kept under --study.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import columns_of, once, parser_of, save_picture, settings_of, table, write_results, write_text

from recsim_mnar.estimators import ESTIMATORS, cross_fitted_rewards, estimate_value
from recsim_mnar.export import distributions
from recsim_mnar.policies import registry
from recsim_mnar.replays.truth import value_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld

HERE = Path(__file__).resolve().parent
SETTINGS = settings_of(HERE)
STEP = 50


class Study:
    """The world, the fitted agents and the logging policy."""

    def __init__(self) -> None:
        self.world = SessionsWorld(SessionsParams(n_items=SETTINGS["n_items"]))
        uniform = registry.learner("random").fit(None, n_items=SETTINGS["n_items"])
        train = simulate(self.world, uniform, SETTINGS["train_users"], seed=SETTINGS["train_seed"])
        self.agents = {
            name: registry.learner(name).fit(train, n_items=SETTINGS["n_items"]) for name in SETTINGS["agents"]
        }
        self.logging = registry.learner(SETTINGS["logging"]).fit(train, n_items=SETTINGS["n_items"])
        views = np.bincount(train["item"][~train.is_bandit], minlength=SETTINGS["n_items"])
        self.group = np.argsort(np.argsort(-views)) * SETTINGS["n_groups"] // SETTINGS["n_items"]

    def one_log(self, number: int) -> dict:
        """Truth and estimates of every agent on one log."""
        seed = SETTINGS["first_seed"] + number
        log = simulate(self.world, self.logging, SETTINGS["users"], seed=seed)
        truth = value_on_log(self.world, log, self.agents, seed)
        shown = log.is_bandit
        columns = {
            "reward": log["reward"][shown],
            "propensity": log["propensity"][shown],
            "cluster": log["user"][shown],
        }
        action = log["action"][shown].astype(np.int64)
        out = {}
        own = distributions(log, self.logging)
        one_hot = (self.group[:, None] == np.arange(self.group.max() + 1)).astype(np.float64)
        for name, policy in self.agents.items():
            every = distributions(log, policy)
            target = np.minimum(every[np.arange(action.size), action], 1.0)
            q_logged, q_target = cross_fitted_rewards(
                columns["reward"], action, every, n_actions=SETTINGS["n_items"], cluster=columns["cluster"]
            )
            found = {}
            for estimator, parameters in SETTINGS["estimators"].items():
                more = {}
                if estimator == "mips":
                    both = [
                        np.minimum(p @ one_hot, 1.0)[np.arange(action.size), self.group[action]] for p in (every, own)
                    ]
                    more = {"group_target": both[0], "group_propensity": both[1]}
                if ESTIMATORS[estimator].needs:
                    more |= {"model": (q_logged, q_target)}
                e = estimate_value(
                    **columns, target=target, estimator=estimator, level=SETTINGS["level"], **parameters, **more
                )
                facts = e.diagnostics
                found[estimator] = [e.value, e.low, e.high, facts.sampling_low, facts.sampling_high]
            out[name] = {"truth": truth[name], "ess": e.ess, "estimates": found}
        return out


def summarise(logs: list[dict], settings: dict) -> list[dict]:
    """One row an agent and estimator."""
    rows = []
    for agent in settings["agents"]:
        truth = np.array([log[agent]["truth"] for log in logs])
        for estimator in settings["estimators"]:
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


def report(rows: list[dict], settings: dict) -> str:
    """Markdown: an agent a block."""
    lines = [
        "# Estimators against the truth, sessions world",
        "",
        f"{rows[0]['logs']} logs of {settings['users']} users, {settings['n_items']} items, logged by "
        f"{settings['logging']}; truth: the agent's mean click probability in the log's states.",
        "",
        "All in thousandths of a click a recommendation; coverage of the nominal 95 % interval, in brackets that of",
        "its sampling part alone (they differ where weights are clipped or shrunk).",
        "",
    ]
    for agent in settings["agents"]:
        own = [r for r in rows if r["agent"] == agent]
        cells = [
            [
                r["estimator"], f"{r['bias'] * 1e3:+.2f}", f"{1.96 * r['bias_se'] * 1e3:.2f}", f"{r['rmse'] * 1e3:.2f}",
                f"{r['coverage']:.3f} ({r['sampling_coverage']:.3f})",
                f"{r['width'] * 1e3:.2f} ({r['sampling_width'] * 1e3:.2f})",
            ]
            for r in own
        ]  # fmt: skip
        lines += [f"## {agent}: truth {own[0]['truth'] * 1e3:.2f}, effective sample {own[0]['ess']:,.0f}", ""]
        lines += [*table(["estimator", "bias", "+-", "RMSE", "coverage", "width"], cells), ""]
    return "\n".join(lines)


def figure(rows: list[dict], settings: dict, path: Path) -> None:
    """RMSE over the truth, and coverage, an agent a colour."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5), sharey=True)
    place = np.arange(len(settings["estimators"]))[::-1]
    for i, agent in enumerate(settings["agents"]):
        own = [r for r in rows if r["agent"] == agent]
        shift = place + 0.3 - 0.12 * i
        left.plot([r["rmse"] / r["truth"] for r in own], shift, "o", label=agent, markersize=4)
        right.plot([r["coverage"] for r in own], shift, "o", markersize=4)
    left.set_yticks(place, list(settings["estimators"]))
    left.set_xscale("log")
    left.set_xlabel("RMSE / truth")
    right.axvline(settings["level"], color="grey", linewidth=1)
    right.set_xlabel("coverage of the nominal 95 % interval")
    left.legend(fontsize=8)
    for axis in (left, right):
        axis.grid(alpha=0.3)
    fig.tight_layout()
    save_picture(fig, path)


def main() -> None:
    parser = parser_of(__doc__, study="runs/estimators_vs_truth")
    parser.add_argument("--logs", type=int, default=SETTINGS["logs"])
    arguments = parser.parse_args()
    study, logs = None, []
    for first in range(0, arguments.logs, STEP):
        count = min(STEP, arguments.logs - first)

        def step(first: int = first, count: int = count) -> list[dict]:
            nonlocal study
            study = study or Study()
            return [study.one_log(first + i) for i in range(count)]

        logs += once(arguments.study / f"logs-{first:04d}-{count}.json", step)
        print(f"{len(logs)} logs", flush=True)
    rows = summarise(logs, SETTINGS)
    print(report(rows, SETTINGS))
    if arguments.logs == SETTINGS["logs"]:
        write_results(HERE / "results.json", columns_of(rows))
        write_text(HERE / "results.md", report(rows, SETTINGS) + "\n")
        figure(rows, SETTINGS, HERE / "results.png")


if __name__ == "__main__":
    main()

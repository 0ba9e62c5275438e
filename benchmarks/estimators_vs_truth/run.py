"""Bias, error and coverage of every estimator against the truth: `python benchmarks/estimators_vs_truth/run.py`.

Logs of the sessions world under one logging policy; six agents as targets; the truth is each agent's mean click
probability in the states of that log (`value_on_log`). Every fifty logs are a step that is kept under --study.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import columns_of, once, parser_of, settings_of, write_results, write_text
from analysis import figure, report, summarise

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

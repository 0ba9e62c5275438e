"""Figures of RecoGym 0.1.3 itself, for test_recogym.py to compare with; run with the Python of make_peers.sh.

    bash benchmarks/speed/make_peers.sh
    benchmarks/speed/.venvs/recogym/bin/python tests/verification/recogym_reference.py

Each configuration is simulated on many catalogues (``random_seed`` = seed, seed + 1000, ...). Users are drawn after
``reset_random_seed(epoch)``, with an epoch for each policy: with RecoGym's own epoch 0 the first user repeats the
catalogue's first draws. The normal clock gets a seed of its own for the same reason.

The configurations, and what the figures are, stand in ``recogym_reference.json``: each is simulated anew and replaced.

A figure is a function of sums pooled over catalogues with the same number of users on each, most often a ratio of two
sums. Its standard error is the jackknife's over catalogues, so it contains the spread between catalogues, users and
clicks.
"""

import argparse
import json
import platform
import re
import runpy
import time
from importlib.metadata import version
from pathlib import Path

# Before numpy: it asks for one thread.
_SHIM = runpy.run_path(str(Path(__file__).resolve().parents[2] / "benchmarks" / "speed" / "recogym_shim.py"))
make_env = _SHIM["make_env"]
_SHIM["load_recogym"]()

import numpy as np  # noqa: E402
from recogym import Configuration, NormalTimeGenerator  # noqa: E402
from recogym.agents import OrganicUserEventCounterAgent, organic_user_count_args  # noqa: E402
from recogym.envs.reco_env_v1 import ff  # noqa: E402
from recogym_figures import figures_of, jackknife, sums_of  # noqa: E402
from scipy.stats import rankdata  # noqa: E402

EPOCHS = {"uniform": 1, "user-views": 3}
OMEGAS = 4000

REFERENCE = Path(__file__).with_suffix(".json")


class ClickProbabilities:
    """Adds up the true click probabilities of what an environment recommends."""

    def __init__(self, env):
        self.env = env
        self.total = 0.0
        self._draw_click, env.draw_click = env.draw_click, self.draw_click

    def draw_click(self, action):
        click = self._draw_click(action)
        self.total += ff(self.env.cached_state_seed[action])
        return click

    def remove(self):
        self.env.draw_click = self._draw_click


def new_env(settings, seed):
    """An environment with one catalogue; ``time_generator`` "normal" stands for an instance of RecoGym's class."""
    settings = {**settings, "random_seed": seed}
    if settings.get("time_generator") == "normal":
        settings["time_generator"] = NormalTimeGenerator(Configuration({**settings, "random_seed": seed + 500}))
    return make_env(settings)


def log_sums(log, n_users):
    """Sums over one log, the row after leaving apart."""
    columns = [log[name].to_numpy(dtype=kind) for name, kind in (("u", np.int64), ("c", np.float64), ("t", np.float64))]
    columns += [(log["z"] == "bandit").to_numpy(dtype=bool), log["v"].fillna(0).to_numpy(dtype=np.int64)]
    phantom = np.append(columns[0][1:] != columns[0][:-1], True)
    assert phantom.sum() == n_users
    assert columns[3][phantom].all()
    assert not columns[1][phantom].any()
    user, click, clock, bandit, view = (column[~phantom] for column in columns)
    return sums_of(n_users, user, bandit, view, click, clock)


def catalogue_sums(env, seed):
    """Facts of one catalogue; expectations are over the initial interests."""
    n_items, n_factors = env.Gamma.shape
    omega = np.random.RandomState(seed + 900).normal(0, env.config.sigma_omega_initial, (n_factors, OMEGAS))
    share = np.zeros(n_items)
    click = np.zeros(n_items)
    for part in np.array_split(omega, max(1, n_items * OMEGAS // 1_000_000), axis=1):
        logits = env.Gamma @ part + env.mu_organic
        weights = np.exp(logits - logits.max(axis=0))
        share += (weights / weights.sum(axis=0)).sum(axis=1) / OMEGAS
        click += ff(env.beta @ part + env.mu_bandit).sum(axis=1) / OMEGAS
    return {
        "catalogues": 1,
        "pearson_log_view_share_click": np.corrcoef(np.log(share), click)[0, 1],
        "spearman_view_share_click": np.corrcoef(rankdata(share), rankdata(click))[0, 1],
        "mean_click_probability_of_all": click.mean(),
        "click_probability_sd_over_items": click.std(),
    }


def catalogue_figures(s):
    return {name: value / s["catalogues"] for name, value in s.items() if name != "catalogues"}


def with_errors(rows, figures):
    """Each figure of the pooled sums with its standard error, rounded."""
    found = zip(*(values.items() for values in jackknife(rows, figures)), strict=True)
    return {name: {"value": float(f"{value:.6g}"), "se": float(f"{error:.3g}")} for (name, value), (_, error) in found}


def simulate(env, policy, n_users, seed):
    """Log sums of one policy on one catalogue."""
    agent = None
    if policy == "user-views":
        settings = {"num_products": env.config.num_products, "random_seed": seed + 700}
        agent = OrganicUserEventCounterAgent(Configuration({**organic_user_count_args, **settings}))
    env.reset_random_seed(EPOCHS[policy])
    clicks = ClickProbabilities(env)
    log = env.generate_logs(n_users, agent=agent)
    clicks.remove()
    return log_sums(log, n_users) | {"probability": clicks.total}


def run(configuration):
    start = time.process_time()
    rows = {policy: [] for policy in EPOCHS}
    catalogues = []
    for j in range(configuration["catalogues"]):
        seed = configuration["seed"] + 1000 * j
        env = new_env(configuration["recogym"], seed)
        catalogues.append(catalogue_sums(env, seed))
        for policy, n_users in configuration["users_per_catalogue"].items():
            rows[policy].append(simulate(env, policy, n_users, seed))
    return {
        **configuration,
        "catalogue": with_errors(catalogues, catalogue_figures),
        "policies": {policy: with_errors(rows[policy], figures_of) for policy in EPOCHS},
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def write(path, results):
    result = {
        **json.loads(REFERENCE.read_text()),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("recogym", "gym", "numpy", "scipy", "pandas", "numba")},
        "configurations": results,
    }
    text = json.dumps(result, indent=1)
    text = re.sub(r'\{\s+("value": \S+)\s+("se": \S+)\s+\}', r"{\1 \2}", text)  # a figure a line
    path.write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=REFERENCE)
    parser.add_argument("--only", nargs="+", help="names of configurations to run; the others stay as they are")
    options = parser.parse_args()
    results = json.loads(REFERENCE.read_text())["configurations"]
    for place, configuration in enumerate(results):
        if options.only and configuration["name"] not in options.only:
            continue
        results[place] = run(configuration)
        print(f"{configuration['name']}: {results[place]['cpu_seconds']} CPU s", flush=True)
        write(options.json, results)


if __name__ == "__main__":
    main()

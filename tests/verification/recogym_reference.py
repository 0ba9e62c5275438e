"""Figures of RecoGym 0.1.3 itself, for test_recogym.py to compare with; run with the Python of make_peers.sh.

    bash benchmarks/speed/make_peers.sh
    benchmarks/speed/.venvs/recogym/bin/python tests/verification/recogym_reference.py

Each configuration is simulated on many catalogues (``random_seed`` = seed, seed + 1000, ...). Users are drawn after
``reset_random_seed(epoch)``, epoch 1 for the first policy, 2 for the second and so on: with RecoGym's own epoch 0 the
first user repeats the catalogue's first draws. The normal clock gets a seed of its own for the same reason.

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
from recogym.agents import Agent, OrganicUserEventCounterAgent, organic_user_count_args  # noqa: E402
from recogym.envs.reco_env_v1 import ff  # noqa: E402
from recogym_figures import figures_of, jackknife, sums_of  # noqa: E402
from scipy.stats import rankdata  # noqa: E402

POLICIES = ("uniform", "popularity", "user-views")
OMEGAS = 4000
STATES = ("organic", "bandit", "stop")
TRANSITIONS = tuple((old, new) for old in (0, 1) for new in (0, 1, 2))

REFERENCE = Path(__file__).with_suffix(".json")


class Constant(Agent):
    """Always the same item."""

    def __init__(self, item):
        super().__init__(Configuration({}))
        self.item = item

    def act(self, observation, reward, done):
        return {**super().act(observation, reward, done), "a": self.item, "ps": 1.0, "ps-a": ()}


class Recorder:
    """Looks over an environment's shoulder: true click probabilities, drift, interests at leaving."""

    def __init__(self, env):
        self.env = env
        self.click_probability = 0.0
        self.transitions = np.zeros((3, 3))
        self.drift = np.zeros((3, 3))
        self.leaving = 0.0
        self.under_way = False
        self._draw_click, self._update_state, self._reset = env.draw_click, env.update_state, env.reset
        env.draw_click, env.update_state, env.reset = self.draw_click, self.update_state, self.reset

    def draw_click(self, action):
        click = self._draw_click(action)
        self.click_probability += ff(self.env.cached_state_seed[action])
        return click

    def update_state(self):
        before, old = self.env.omega, self.env.state
        self._update_state()
        change = self.env.omega - before
        self.transitions[old, self.env.state] += 1
        self.drift[old, self.env.state] += float((change * change).mean())

    def reset(self, user_id=0):
        self.finish()
        self._reset(user_id)
        self.under_way = True

    def finish(self):
        """Count the interests of the user who was under way."""
        if self.under_way:
            self.leaving += float((self.env.omega**2).mean())
        self.under_way = False

    def remove(self):
        env = self.env
        self.finish()
        env.draw_click, env.update_state, env.reset = self._draw_click, self._update_state, self._reset


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


def log_figures(s):
    """Figures from (a pool of) log sums and what the recorder saw."""
    return {
        **figures_of(s),
        "organic_sessions_per_user": s["organic_sessions"] / s["users"],
        "ctr_with_phantom_rows": s["clicks"] / (s["decisions"] + s["users"]),
        "omega_mean_square_at_leaving": s["leaving"] / s["users"],
        **{
            f"drift_mean_square {STATES[old]}->{STATES[new]}": s[f"drift{old}{new}"] / s[f"transitions{old}{new}"]
            for old, new in TRANSITIONS
        },
    }


def catalogue_sums(env, seed):
    """Facts of one catalogue and its most viewed item; expectations are over the initial interests."""
    n_items, n_factors = env.Gamma.shape
    # number_of_flips pairs of different items; an item paired with itself keeps its offset.
    swaps = np.sum(env.mu_bandit != env.mu_organic) / 2
    omega = np.random.RandomState(seed + 900).normal(0, env.config.sigma_omega_initial, (n_factors, OMEGAS))
    share = np.zeros(n_items)
    click = np.zeros(n_items)
    for part in np.array_split(omega, max(1, n_items * OMEGAS // 1_000_000), axis=1):
        logits = env.Gamma @ part + env.mu_organic
        weights = np.exp(logits - logits.max(axis=0))
        share += (weights / weights.sum(axis=0)).sum(axis=1) / OMEGAS
        click += ff(env.beta @ part + env.mu_bandit).sum(axis=1) / OMEGAS
    sums = {
        "catalogues": 1,
        "real_swaps": swaps,
        "pearson_log_view_share_click": np.corrcoef(np.log(share), click)[0, 1],
        "spearman_view_share_click": np.corrcoef(rankdata(share), rankdata(click))[0, 1],
        "mean_click_probability_of_all": click.mean(),
        "click_probability_sd_over_items": click.std(),
    }
    return sums, int(share.argmax())


def catalogue_figures(s):
    return {name: value / s["catalogues"] for name, value in s.items() if name != "catalogues"}


def with_errors(rows, figures):
    """Each figure of the pooled sums with its standard error, rounded."""
    found = zip(*(values.items() for values in jackknife(rows, figures)), strict=True)
    return {name: {"value": float(f"{value:.6g}"), "se": float(f"{error:.3g}")} for (name, value), (_, error) in found}


def simulate(env, policy, n_users, popular, seed):
    """Log sums of one policy on one catalogue."""
    if policy == "uniform":
        agent = None
    elif policy == "popularity":
        agent = Constant(popular)
    else:
        settings = {"num_products": env.config.num_products, "random_seed": seed + 700}
        agent = OrganicUserEventCounterAgent(Configuration({**organic_user_count_args, **settings}))
    env.reset_random_seed(1 + POLICIES.index(policy))
    recorder = Recorder(env)
    log = env.generate_logs(n_users, agent=agent)
    recorder.remove()
    sums = log_sums(log, n_users) | {"probability": recorder.click_probability, "leaving": recorder.leaving}
    for old, new in TRANSITIONS:
        sums[f"transitions{old}{new}"] = recorder.transitions[old, new]
        sums[f"drift{old}{new}"] = recorder.drift[old, new]
    return sums


def run(configuration):
    start = time.process_time()
    rows = {policy: [] for policy in POLICIES}
    catalogues = []
    for j in range(configuration["catalogues"]):
        seed = configuration["seed"] + 1000 * j
        env = new_env(configuration["recogym"], seed)
        sums, popular = catalogue_sums(env, seed)
        catalogues.append(sums)
        for policy, n_users in configuration["users_per_catalogue"].items():
            rows[policy].append(simulate(env, policy, n_users, popular, seed))
    return {
        **configuration,
        "catalogue": with_errors(catalogues, catalogue_figures),
        "policies": {policy: with_errors(rows[policy], log_figures) for policy in POLICIES},
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
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of catalogues, for a trial")
    options = parser.parse_args()
    results = json.loads(REFERENCE.read_text())["configurations"]
    for place, configuration in enumerate(results):
        if options.only and configuration["name"] not in options.only:
            continue
        catalogues = max(2, round(configuration["catalogues"] * options.scale))
        results[place] = run({**configuration, "catalogues": catalogues})
        uniform = results[place]["policies"]["uniform"]
        print(
            f"{configuration['name']}: {uniform['organic_events_per_user']['value']:.2f} organic and "
            f"{uniform['bandit_events_per_user']['value']:.2f} bandit events a user, CTR {uniform['ctr']['value']:.5f} "
            f"(se {uniform['ctr']['se']:.5f}); {results[place]['cpu_seconds']} CPU s",
            flush=True,
        )
        write(options.json, results)


if __name__ == "__main__":
    main()

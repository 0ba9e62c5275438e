"""Figures of RecoGym 0.1.3 itself, for test_recogym.py to compare with; run with the Python of make_peers.sh.

    bash benchmarks/speed/make_peers.sh
    benchmarks/speed/.venvs/recogym/bin/python tests/verification/recogym_reference.py

Each configuration is simulated on many catalogues (``random_seed`` = seed, seed + 1000, ...). Users are drawn after
``reset_random_seed(epoch)``, epoch 1 for the first policy, 2 for the second and so on: with RecoGym's own epoch 0 the
first user repeats the catalogue's first draws. The normal clock gets a seed of its own for the same reason.

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
recogym = _SHIM["load_recogym"]()

import numpy as np  # noqa: E402
from recogym import Configuration, NormalTimeGenerator  # noqa: E402
from recogym.agents import Agent, OrganicUserEventCounterAgent, organic_user_count_args  # noqa: E402
from recogym.envs.reco_env_v1 import ff  # noqa: E402
from scipy.stats import rankdata  # noqa: E402

POLICIES = ("uniform", "popularity", "user-views")
OMEGAS = 4000
STATES = ("organic", "bandit", "stop")

CONFIGURATIONS = [
    {"name": "p10", "catalogues": 240, "users": 40, "seed": 1000000, "environment": {"num_products": 10}},
    {
        "name": "p10-flips3",
        "catalogues": 240,
        "users": 40,
        "seed": 2000000,
        "environment": {"num_products": 10, "number_of_flips": 3},
    },
    {"name": "p100", "catalogues": 80, "users": 120, "seed": 3000000, "environment": {"num_products": 100}},
    {
        "name": "p100-flips50",
        "catalogues": 80,
        "users": 120,
        "seed": 4000000,
        "environment": {"num_products": 100, "number_of_flips": 50},
    },
    {
        "name": "p100-flips50-mu.1",
        "catalogues": 80,
        "users": 120,
        "seed": 5000000,
        "environment": {"num_products": 100, "number_of_flips": 50, "sigma_mu_organic": 0.1},
    },
    {
        "name": "p100-flips50-normalised",
        "catalogues": 80,
        "users": 120,
        "seed": 6000000,
        "environment": {"num_products": 100, "number_of_flips": 50, "sigma_mu_organic": 1, "normalize_beta": True},
    },
    {
        "name": "p50-restless-normal-clock",
        "catalogues": 120,
        "users": 80,
        "seed": 7000000,
        "environment": {
            "num_products": 50,
            "sigma_mu_organic": 0.5,
            "sigma_omega": 0.3,
            "change_omega_for_bandits": True,
            "time_generator": "normal",
        },
    },
    {
        "name": "p200-k20-flips100",
        "catalogues": 48,
        "users": 200,
        "seed": 8000000,
        "environment": {
            "num_products": 200,
            "K": 20,
            "number_of_flips": 100,
            "sigma_mu_organic": 1,
            "sigma_omega_initial": 0.5,
            "sigma_omega": 0.2,
        },
    },
    {
        "name": "p1000-flips500-still-other-table",
        "catalogues": 32,
        "users": 500,
        "seed": 9000000,
        "environment": {
            "num_products": 1000,
            "number_of_flips": 500,
            "sigma_mu_organic": 1,
            "sigma_omega": 0,
            "prob_organic_to_bandit": 0.4,
            "prob_bandit_to_organic": 0.1,
            "prob_leave_organic": 0.02,
            "prob_leave_bandit": 0.02,
            "time_generator": "normal",
            "normal_time_mu": 1,
            "normal_time_sigma": 0.5,
        },
    },
    {
        "name": "p2000-paper",
        "catalogues": 18,
        "users": 300,
        "seed": 10000000,
        "environment": {"num_products": 2000, "number_of_flips": 1000, "sigma_mu_organic": 0.1, "sigma_omega": 0.05},
    },
]
"""Simulated on ``catalogues`` catalogues, ``random_seed`` = seed, seed + 1000, ..., with ``users`` users on each."""

WHAT = {
    "organic_events_per_user": "views of a user",
    "bandit_events_per_user": "recommendations that a user saw: without RecoGym's last row of each user",
    "organic_sessions_per_user": "runs of views without a recommendation between them, per user",
    "organic_session_length": "events of an organic session, on average",
    "bandit_session_length": "events of a bandit session, on average",
    "share_users_without_bandit": "share of users who left before any recommendation",
    "ctr": "clicks / bandit events",
    "ctr_with_phantom_rows": "clicks / bandit rows of RecoGym's log as is, with its row after each user has left",
    "mean_click_probability": "true click probability of the items recommended, averaged over bandit events",
    "time_step_mean": "time between consecutive events of a user, mean",
    "time_step_sd": "the same, standard deviation",
    "distinct_items_per_view": "distinct items among a user's views / views, both summed over users",
    "repeat_view_share": "share of consecutive views of one organic session that show the same item",
    "omega_mean_square_at_leaving": "mean square of a user's interests when the user leaves, per factor",
    "drift_mean_square": "mean square change of the interests, per factor, after an event in the first state where the "
    "second was drawn (before a click forces organic)",
    "real_swaps": "pairs of different items swapped: RecoGym also pairs items with themselves when F is near P/2",
    "pearson_log_view_share_click": "correlation over items of log(expected view share) and mean click probability, "
    f"both averaged over {OMEGAS} interests from the initial distribution; mean over catalogues",
    "spearman_view_share_click": "the same with ranks",
    "mean_click_probability_of_all": "click probability averaged over the same interests and all items",
    "click_probability_sd_over_items": "standard deviation over items of the click probability averaged over interests",
}


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
    user = log["u"].to_numpy(dtype=np.int64)
    bandit = (log["z"] == "bandit").to_numpy(dtype=bool)
    click = log["c"].to_numpy(dtype=np.float64)
    phantom = np.append(user[1:] != user[:-1], True)
    assert phantom.sum() == n_users
    assert bandit[phantom].all()
    assert not click[phantom].any()
    user, bandit, click = user[~phantom], bandit[~phantom], click[~phantom]
    clock = log["t"].to_numpy(dtype=np.float64)[~phantom]
    view = log["v"].fillna(0).to_numpy(dtype=np.int64)[~phantom]
    same_user = user[1:] == user[:-1]
    starts = np.append(True, ~same_user | (bandit[1:] != bandit[:-1]))
    step = np.diff(clock)[same_user]
    both_views = same_user & ~bandit[1:] & ~bandit[:-1]
    return {
        "users": n_users,
        "organic": np.sum(~bandit),
        "bandit": np.sum(bandit),
        "organic_sessions": np.sum(starts & ~bandit),
        "bandit_sessions": np.sum(starts & bandit),
        "users_without_bandit": n_users - len(np.unique(user[bandit])),
        "clicks": np.sum(click[bandit]),
        "steps": len(step),
        "step": np.sum(step),
        "step_square": np.sum(step**2),
        "distinct": len(np.unique(user[~bandit] * 65536 + view[~bandit])),
        "view_pairs": np.sum(both_views),
        "repeats": np.sum(both_views & (view[1:] == view[:-1])),
    }


def log_figures(s):
    """Figures from (a pool of) log sums and what the recorder saw."""
    mean = s["step"] / s["steps"]
    figures = {
        "organic_events_per_user": s["organic"] / s["users"],
        "bandit_events_per_user": s["bandit"] / s["users"],
        "organic_sessions_per_user": s["organic_sessions"] / s["users"],
        "organic_session_length": s["organic"] / s["organic_sessions"],
        "bandit_session_length": s["bandit"] / s["bandit_sessions"],
        "share_users_without_bandit": s["users_without_bandit"] / s["users"],
        "ctr": s["clicks"] / s["bandit"],
        "ctr_with_phantom_rows": s["clicks"] / (s["bandit"] + s["users"]),
        "mean_click_probability": s["click_probability"] / s["bandit"],
        "time_step_mean": mean,
        "time_step_sd": np.sqrt(max(s["step_square"] / s["steps"] - mean**2, 0.0)),
        "distinct_items_per_view": s["distinct"] / s["organic"],
        "repeat_view_share": s["repeats"] / s["view_pairs"],
        "omega_mean_square_at_leaving": s["leaving"] / s["users"],
    }
    for old in (0, 1):
        for new in (0, 1, 2):
            name = f"drift_mean_square {STATES[old]}->{STATES[new]}"
            figures[name] = s[f"drift{old}{new}"] / s[f"transitions{old}{new}"]
    return figures


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


def jackknife(rows, figures_of):
    """Each figure of the pooled sums with its delete-one standard error over ``rows``, one dictionary a catalogue."""
    names = list(rows[0])
    table = np.array([[float(row[name]) for name in names] for row in rows])
    total = table.sum(axis=0)
    whole = figures_of(dict(zip(names, total, strict=True)))
    n = len(rows)
    parts = [figures_of(dict(zip(names, total - row, strict=True))) for row in table]
    result = {}
    for name, value in whole.items():
        leave_one_out = np.array([part[name] for part in parts])
        error = np.sqrt((n - 1) / n * np.sum((leave_one_out - leave_one_out.mean()) ** 2))
        result[name] = {"value": float(f"{value:.6g}"), "se": float(f"{error:.3g}")}
    return result


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
    sums = log_sums(log, n_users)
    sums["click_probability"] = recorder.click_probability
    sums["leaving"] = recorder.leaving
    for old in (0, 1):
        for new in (0, 1, 2):
            sums[f"transitions{old}{new}"] = recorder.transitions[old, new]
            sums[f"drift{old}{new}"] = recorder.drift[old, new]
    return sums


def run(configuration):
    start = time.process_time()
    rows = {policy: [] for policy in POLICIES}
    catalogues = []
    # Users of the two further policies matter for their click-through rate alone: a third as many.
    n_users = {policy: configuration["users"] // (1 if policy == "uniform" else 3) for policy in POLICIES}
    for j in range(configuration["catalogues"]):
        seed = configuration["seed"] + 1000 * j
        env = new_env(configuration["environment"], seed)
        sums, popular = catalogue_sums(env, seed)
        catalogues.append(sums)
        for policy in POLICIES:
            rows[policy].append(simulate(env, policy, n_users[policy], popular, seed))
    settings = {**recogym.env_1_args, **configuration["environment"]}
    del settings["random_seed"]  # one a catalogue
    return {
        "name": configuration["name"],
        "recogym": settings,
        "seed": configuration["seed"],
        "catalogues": configuration["catalogues"],
        "users_per_catalogue": n_users,
        "catalogue": jackknife(catalogues, catalogue_figures),
        "policies": {policy: jackknife(rows[policy], log_figures) for policy in POLICIES},
        "cpu_seconds": round(time.process_time() - start, 1),
    }


def write(path, results):
    result = {
        "simulator": "RecoGym 0.1.3, reco-gym-v1",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in ("recogym", "gym", "numpy", "scipy", "pandas", "numba")},
        "standard_errors": "jackknife over catalogues of figures pooled over catalogues",
        "popularity_policy": "always the item of the largest expected view share",
        "user_views_policy": "OrganicUserEventCounterAgent: an item in proportion to the user's own views",
        "what": WHAT,
        "configurations": results,
    }
    text = json.dumps(result, indent=1)
    text = re.sub(r'\{\s+("value": \S+)\s+("se": \S+)\s+\}', r"{\1 \2}", text)  # a figure a line
    path.write_text(text + "\n")


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=here / "recogym_reference.json")
    parser.add_argument(
        "--only", nargs="+", help="names of configurations to run; the others are left out of the result"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the number of catalogues, for a trial")
    options = parser.parse_args()
    configurations = [dict(c) for c in CONFIGURATIONS if not options.only or c["name"] in options.only]
    results = []
    for configuration in configurations:
        configuration["catalogues"] = max(2, round(configuration["catalogues"] * options.scale))
        results.append(run(configuration))
        uniform = results[-1]["policies"]["uniform"]
        print(
            f"{configuration['name']}: {uniform['organic_events_per_user']['value']:.2f} organic and "
            f"{uniform['bandit_events_per_user']['value']:.2f} bandit events a user, CTR {uniform['ctr']['value']:.5f} "
            f"(se {uniform['ctr']['se']:.5f}); {results[-1]['cpu_seconds']} CPU s",
            flush=True,
        )
        write(options.json, results)


if __name__ == "__main__":
    main()

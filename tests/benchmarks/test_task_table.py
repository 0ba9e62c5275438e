"""The table of the frozen tasks: interquartile means, intervals over users and seeds, ties."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest
from scipy.stats import trim_mean
from study_modules import bring, study_module

from recsim_mnar import evaluate, simulate, task
from recsim_mnar.replays.probabilities import replay_ranking
from recsim_mnar.tasks import tasks

with bring("tasks", "making", "table", "run") as _found:
    making, table, run = (_found[name] for name in ("making", "table", "run"))
SETTINGS = study_module("shared", "_study").settings_of(run.HERE)
NAME, USERS, SLATES = "cold-100-v1", 500, "sessions-slates-10-v1"
HERE = run.HERE


@pytest.fixture(scope="module")
def cells():
    """Of three agents, the third with five seeds that differ much."""
    found = {name: evaluate(name, NAME, n_users=USERS) for name in ("random", "user-popularity", "popularity")}
    made = {}
    for name, one in found.items():
        cpu = {"train": 6.0, "evaluate": 3.0}
        given = {**one.to_dict(), "agent": name, "seed": 0, "cpu_seconds": cpu, "earned": one.earned.tolist()}
        made[name] = [given]
    room = task(NAME).best.value - task(NAME).random.value
    first = made.pop("popularity")[0]
    for seed, more in enumerate((0.0, 0.1, 0.2, 0.3, 1.4)):
        moved = [each + more * room for each in first["earned"]]
        made.setdefault("seeded", []).append(
            {**first, "agent": "seeded", "seed": seed, "score": first["score"] + more, "earned": moved}
        )
    return made


@pytest.mark.parametrize("n", [1, 4, 5, 10])
def test_interquartile_means_are_those_of_rliable(n):
    values = np.random.default_rng(n).normal(size=(3, n))
    assert table.interquartile(values) == pytest.approx([trim_mean(row, 0.25) for row in values])


def test_ties_are_of_pairs(cells):
    """Two agents that earn nearly the same of each user are apart by less than the width of either's interval."""
    best = cells["user-popularity"][0]
    less = [each - 1e-4 for each in best["earned"]]
    noise = np.random.default_rng(0).normal(0, 0.01, USERS)
    noisy = (np.array(best["earned"]) + noise - noise.mean()).tolist()
    behind = {**best, "agent": "behind", "earned": less, "score": best["score"] - 1e-4}
    even = {**best, "agent": "even", "earned": noisy, "score": best["score"] - 1e-6}
    found = table.results([*cells["random"], best, behind, even])["tasks"][NAME]
    assert found["user-popularity"]["best"]
    assert (found["behind"]["best"], found["even"]["best"], found["random"]["best"]) == (False, True, False)
    assert found["even"]["tied_with"] == ["behind", "user-popularity"]
    assert found["user-popularity"]["tied_with"] == ["even"]
    assert "random" not in found["user-popularity"]["tied_with"]
    assert found["random"]["ahead_of_best"][2] < 0


def test_the_page_shows_what_was_recorded():
    found = json.loads((HERE / "results.json").read_text())
    _, shown, _ = (HERE / "README.md").read_text().split("<!-- scores -->")
    assert shown.strip().splitlines() == table.lines(found)


def test_the_recorded_table_is_of_every_frozen_task():
    found = json.loads((HERE / "results.json").read_text())
    assert list(found["tasks"]) == SETTINGS["tasks"]
    assert sorted(found["tasks"]) == tasks()
    assert found["digests"] == {name: task(name).digest for name in SETTINGS["tasks"]}
    for name, agents in found["tasks"].items():
        assert sorted(agents) == sorted(found["agents"])
        wanted = Counter(cell.agent for cell in run.cells(SETTINGS, [name]))
        for agent, one in agents.items():
            assert one["seeds"] in (0, wanted[agent])
            assert one["seeds"] or one["refused"] != "not run"
            assert not one["seeds"] or one["mean"] == pytest.approx(np.mean(one["scores"]))


@pytest.mark.slow
def test_a_cell_of_seed_0_is_what_evaluate_finds():
    given = {**SETTINGS, "users": 60}
    for name in ("poem", "svd"):
        found = run.scored(run.Cell(NAME, name, 0), given)
        assert found["behaviour"] == evaluate(name, NAME, n_users=60).behaviour
    assert run.scored(run.Cell(NAME, "poem", 1), given)["behaviour"] != found["behaviour"]
    for name, agent, why in (
        ("ratings-100-v1", "planner", "sessions worlds"),
        ("from-log-100-v1", "lin-ucb", "from the log alone"),
        ("uplift-200-v1", "ppo-tuned", "one item at a time"),
        (SLATES, "dqn-tuned", "an action is a ranking"),
    ):
        assert why in run.scored(run.Cell(name, agent, 0), given)["refused"]


@pytest.mark.slow
def test_a_frozen_bandit_ranks_as_it_was_left():
    """On slates the bandit within is frozen, and ranks by its probabilities at that time."""
    frozen = making.bandit("lin-ucb", task(SLATES), 0, users=20, lanes=4)
    state = {name: values.copy() for name, values in frozen.inner.state.items()}
    log = simulate(task(SLATES).make_world(), frozen, 10, 7)
    shown = log.is_bandit
    again = replay_ranking(log, frozen)
    for name in ("marginal", "conditional", "slate"):
        column = {"marginal": "propensity"}.get(name, f"{name}_propensity")
        assert np.array_equal(again[name][shown], log[column][shown])
    assert all(np.array_equal(values, frozen.inner.state[name]) for name, values in state.items())
    top = shown & (log["position"] == 0)
    np.testing.assert_allclose(log["propensity"][top], log["conditional_propensity"][top], rtol=1e-9)


@pytest.mark.parametrize("deterministic", [True, False])
def test_a_model_of_rankings_ranks_what_its_heads_leave(deterministic):
    """Each place by its head, without the items above; by a plain loop over the library's own distributions."""
    pytest.importorskip("stable_baselines3")
    setting = {**making.DEFAULTS, "lanes": 4, "n_steps": 8, "scaled": True, "deterministic": deterministic}
    model = making.trained("a2c", task(SLATES), setting, steps=64, seed=1)
    policy = making.as_policy(model, setting)
    users = np.arange(3)
    policy.reset(users)
    policy.observe(np.array([0, 0, 2]), np.array([7, 9, 7]))
    uniforms = np.random.default_rng(0).random((3, 11))
    rankings = policy.rank(users, uniforms)
    counts = np.zeros((3, 100), np.float32)
    np.add.at(counts, (np.array([0, 0, 2]), np.array([7, 9, 7])), 1)
    observed, _ = model.policy.obs_to_tensor(counts)
    heads = model.policy.get_distribution(observed).distribution
    stated = policy.propensities_of(users, rankings)
    for user in users:
        above = []
        for place, head in enumerate(heads):
            chances = head.probs[user].detach().numpy().astype(np.float64)
            chances[above] = 0.0
            chances /= chances.sum()
            item = rankings[user, place]
            if deterministic:
                assert item == chances.argmax()
            else:
                assert item == np.searchsorted(np.cumsum(chances), uniforms[user, place + 1], side="right")
                assert stated.conditional[user, place] == pytest.approx(chances[item], rel=1e-6)
            above.append(item)
    if deterministic:
        assert (stated.slate == 1.0).all()
    assert evaluate(policy, SLATES, n_users=20).agent == "a2c"

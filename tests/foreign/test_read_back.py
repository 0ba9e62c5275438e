"""Exported logs read by the libraries themselves, where they are installed: what they hold is what was logged."""

from __future__ import annotations

import os
import warnings

import numpy as np
import pytest

from recsim_mnar.export import (
    Decisions,
    action_dist,
    from_arrays,
    from_minari,
    from_obp,
    to_d3rlpy,
    to_minari,
    to_obp,
    to_vw,
)

P = 6


@pytest.fixture(scope="module")
def made() -> Decisions:
    """Some users' decisions, by counts; plain arrays, so that no simulator is needed next to the library."""
    generator = np.random.default_rng(4)
    user = np.repeat(np.arange(30) * 3, generator.integers(1, 9, 30))
    n = len(user)
    step = np.concatenate([np.sort(generator.permutation(40)[: (user == u).sum()]) for u in np.unique(user)])
    propensity = generator.uniform(0.05, 1.0, n)
    reward = (generator.random(n) < 0.4).astype(float)
    context = generator.integers(0, 4, (n, P))
    final = generator.integers(0, 4, (30, P))
    return from_arrays(P, context, generator.integers(0, P, n), reward, propensity, user=user, step=step, final=final)


def same(one: Decisions, other: Decisions, rtol: float = 0.0, but: tuple[str, ...] = ()) -> None:
    for name in ("context", "action", "reward", "user", "step", "last", "final", "propensity"):
        if name not in but:
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=rtol, err_msg=name)


def test_obp(made):
    """obp's IPS of a target is the sum by hand, and its pi_b is read as the logging policy."""
    pytest.importorskip("obp")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from obp.ope import InverseProbabilityWeighting, OffPolicyEvaluation
    generator = np.random.default_rng(1)
    target = generator.dirichlet(np.ones(P), len(made))
    feedback = to_obp(made, logging=generator.dirichlet(np.ones(P), len(made)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ope = OffPolicyEvaluation(bandit_feedback=feedback, ope_estimators=[InverseProbabilityWeighting()])
        value = ope.estimate_policy_values(action_dist=action_dist(target))["ipw"]
    rows = np.arange(len(made))
    assert value == pytest.approx(np.mean(target[rows, made.action] * made.reward / made.propensity), rel=1e-12)
    same(from_obp(feedback), made, but=("final",))


def test_obp_makes_feedback_that_comes_in():
    pytest.importorskip("obp")
    from obp.dataset import SyntheticBanditDataset

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given = SyntheticBanditDataset(n_actions=5, dim_context=3, random_state=1).obtain_batch_bandit_feedback(200)
    back = from_obp(given)
    np.testing.assert_array_equal(back.action, given["action"])
    np.testing.assert_array_equal(back.propensity, given["pscore"])
    back.log().validate(5)


def test_minari(made, tmp_path, monkeypatch):
    """Written to a folder that was asked for, and nothing to the home folder."""
    minari = pytest.importorskip("minari")
    gym = pytest.importorskip("gymnasium")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "here"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        minari.create_dataset_from_buffers(
            "recsim-mnar/made-v0",
            [EpisodeBuffer(**episode) for episode in to_minari(made)],
            observation_space=gym.spaces.Box(0, 1e6, (P,), np.float32),
            action_space=gym.spaces.Discrete(P),
        )
        dataset = minari.load_dataset("recsim-mnar/made-v0")
    assert dataset.total_episodes == 30
    assert dataset.total_steps == len(made)
    same(from_minari(dataset, P), made)
    assert os.listdir(tmp_path) == ["here"]


def test_d3rlpy(made):
    d3rlpy = pytest.importorskip("d3rlpy")
    dataset = d3rlpy.dataset.MDPDataset(**to_d3rlpy(made))
    assert len(dataset.episodes) == 30
    assert dataset.dataset_info.action_size == P
    assert dataset.dataset_info.action_space.name == "DISCRETE"
    assert all(episode.terminated for episode in dataset.episodes)
    np.testing.assert_array_equal(np.concatenate([e.observations for e in dataset.episodes]), made.context)
    np.testing.assert_array_equal(np.concatenate([e.actions for e in dataset.episodes])[:, 0], made.action)
    np.testing.assert_array_equal(np.concatenate([e.rewards for e in dataset.episodes])[:, 0], made.reward)
    model = d3rlpy.algos.DiscreteBCConfig(batch_size=16).create(device="cpu:0")
    model.fit(dataset, n_steps=20, n_steps_per_epoch=20, show_progress=False, logger_adapter=_nowhere(d3rlpy))
    assert set(model.predict(made.context)) <= set(range(P))


def _nowhere(d3rlpy):
    return d3rlpy.logging.NoopAdapterFactory()


def test_vowpal_wabbit(made, tmp_path):
    pytest.importorskip("vowpalwabbit")
    from vowpalwabbit import Workspace

    lines = to_vw(made, tmp_path / "log.vw")
    reader = Workspace(f"--cb {P} --quiet")
    for row, line in enumerate(lines):
        example = reader.example(line)
        assert example.get_cbandits_class(0) == made.action[row] + 1
        assert example.get_cbandits_cost(0) == -made.reward[row]
        assert example.get_cbandits_probability(0) == pytest.approx(made.propensity[row], rel=1e-6)
        assert example.get_tag() == f"{made.user[row]}_{made.step[row]}"
        weights = sorted(weight for _, weight in example.iter_features())
        assert weights == sorted([*made.context[row][made.context[row] > 0].tolist(), 1.0])  # and a constant
        reader.finish_example(example)
    trained = Workspace(f"--cb_explore {P} -d {tmp_path / 'log.vw'} --quiet")
    trained.run_parser()
    assert trained.get_weighted_examples() == len(made)

"""The worlds of the slates study against laws written out, and its logs against its exact means."""

import numpy as np
import pytest

from twins import rankings as plain


@pytest.fixture
def worlds(modules_of):
    return modules_of("slates", "worlds")["worlds"]


@pytest.mark.parametrize("logger", ["uniform", "softmax", "epsilon", "topk"])
def test_probabilities_are_those_of_all_rankings(worlds, logger):
    world = worlds.World(worlds.Setting("position", "x", logger, 4, 3))
    rankings = [tuple(ranking) for ranking in world.rankings.tolist()]
    for taste in (0, 1):
        for place, law in enumerate((world.logging, world.target)):
            assert law[taste].sum() == pytest.approx(1.0, abs=1e-12)
            by_name = dict(zip(rankings, law[taste].tolist(), strict=True))
            for row, ranking in enumerate(rankings):
                for kind, expected in plain.probabilities(by_name, ranking).items():
                    assert world.probabilities[kind][place][taste, row] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("users", ["position", "cascade", "independent", "crowd", "bottom"])
def test_logs_click_as_the_means_say_and_values_have_their_exact_means(worlds, users):
    world = worlds.World(worlds.Setting(users, "x", "softmax", 4, 3))
    (log,) = world.logs(range(1), 20_000, 4, seed=1)
    expected = np.einsum("tr,trk->k", world.logging, world.means) / 2
    means = log["clicks"].mean((1,))
    error = means.std(0) / np.sqrt(len(means))
    assert np.all(np.abs(means.mean(0) - expected) < 4.5 * error)
    if users in ("cascade", "bottom"):
        assert np.argmax(expected) == (0 if users == "cascade" else 2)
    values = [world.values(each) for each in world.logs(range(200), 100, 3, seed=2)]
    for name in world.weights:
        sample = np.array([each[name] for each in values])
        assert abs(sample.mean() - world.tends_to(name)) < 4.5 * sample.std() / np.sqrt(len(sample)), name

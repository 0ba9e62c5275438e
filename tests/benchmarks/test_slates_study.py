"""Studies of slates: worlds against laws written out, logs against exact means, pages against what was found."""

import json
import tomllib

import numpy as np
import pytest
from study_modules import BENCHMARKS

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


# --------------------------------------------------------------------------------------------------- the study of lists


HERE = BENCHMARKS / "slates"
FOLDER = HERE / "study"
if not (FOLDER / "results.json").exists():
    pytest.skip("the benchmarks are not next to the tests", allow_module_level=True)
FOUND = json.loads((FOLDER / "results.json").read_text())
SETTINGS = tomllib.loads((FOLDER / "settings.toml").read_text())
README, PAGE = (FOLDER / "README.md").read_text(), (BENCHMARKS.parent / "docs" / "questions" / "lists.md").read_text()


@pytest.fixture
def study(modules_of):
    return modules_of("slates/study", "run", "analysis")


def between(mark, text):
    """What stands between the two marks of a text."""
    return text.split(f"<!-- {mark} -->\n")[1]


def test_sentences_and_tables_are_those_of_the_results(study):
    assert between("tables", README) == "\n".join(study["run"].lines_of(FOUND)) + "\n"
    assert between("answer", PAGE) == "\n".join(study["run"].answer(FOUND["lists"])) + "\n"


def test_results_are_of_all_catalogues_and_agents():
    for arm in FOUND.values():
        assert (arm["catalogues"], list(arm["truth"])) == (SETTINGS["catalogues"], SETTINGS["agents"])


# ----------------------------------------------------------------------------------------------------- false statements


@pytest.fixture
def modules(modules_of):
    return modules_of("slates", "worlds", "statements")


@pytest.fixture
def results():
    return json.loads((HERE / "statements.json").read_text())["settings"]


def test_the_readme_has_the_table_of_the_results(modules, results):
    readme = (HERE / "README.md").read_text()
    assert modules["statements"].written(readme, results) == readme


def test_what_is_true_is_rarely_contradicted_and_what_is_false_is_not_trusted_where_logs_can_show_it(results):
    true = [each for name, each in results.items() if name.startswith("cascade")]
    assert sum(each["below"] for each in true) <= 0.012 * sum(each["logs"] for each in true)
    for users in ("crowd", "bottom"):
        for pair in ("uniform", "softmax"):
            large = results[f"{users} {pair} 1200"]
            assert large["contradicted"] >= 0.9 * large["logs"]
            assert large["trusted"] <= 0.1 * large["logs"]

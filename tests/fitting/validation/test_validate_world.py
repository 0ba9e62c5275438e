"""validate_world, its command and its page."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recsim_mnar import make_world
from recsim_mnar.cli import cli
from recsim_mnar.fitting.validation import validate_world
from recsim_mnar.log.ratings import Ratings, log_of_ratings
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.ratings.world import RatingsWorld
from toys import refused, untrained

SETTINGS = {"n_items": 40, "sigma_mu_organic": 0.5, "p_leave_organic": 0.03}


def world(**params):
    return make_world("sessions", "recogym-v1", {**SETTINGS, **params})


def log_of(made, n_users=300, seed=1):
    return simulate(made, untrained("random", made.n_items), n_users, seed)


@pytest.fixture(scope="module")
def log():
    return log_of(world())


@pytest.fixture(scope="module")
def right(log):
    return validate_world(world(), log)


def test_the_right_world_matches_its_log(right):
    assert right.not_valid_for == []
    assert {"popular items", "drift", "clicks by interest", "leaving", "classifier"} <= {c.name for c in right.checks}
    assert len(right.valid_for) + len(right.cannot_say) == len(right.checks)
    assert any("how much users do" in line for line in right.not_checked)
    assert right.facts["logging_policy"] == {"known": True, "how": "uniform"}
    assert len(right.check("classifier").picture["features"]) == 5


def test_the_result_is_json_and_the_same_twice(log, right):
    again = validate_world(world(), log)
    assert json.dumps(right.to_dict(), sort_keys=True) == json.dumps(again.to_dict(), sort_keys=True)


def test_users_who_are_all_alike_are_found(log):
    found = validate_world(world(sigma_omega_initial=0.0, sigma_omega=0.0), log)
    off = [check.name for check in found.checks if check.grade == "off"]
    assert {"drift", "co-occurrence"} <= set(off)


def test_items_that_are_others_are_not_compared_by_number(log):
    found = validate_world(world(catalogue_seed=5), log)
    names = {check.name for check in found.checks}
    assert "popular items" in names  # as a curve by rank
    assert "co-occurrence" not in names
    assert any("items are others" in line for line in found.not_checked)


def test_what_fits_is_held_against_users_it_has_not_seen(log):
    asked = []

    def fit(part):
        asked.append(part)
        return world()

    found = validate_world(fit, log)
    assert len(asked) == 1
    assert len(asked[0].users()) == found.facts["users_fitted_on"] == 150
    assert found.facts["users_held_out"] == 150
    assert "compared with 150 others" in found.notes[0]


def test_ratings_are_held_against_a_world_of_ratings():
    rng = np.random.default_rng(2)
    matrix = np.clip(np.round(2.5 + rng.normal(0, 1, 30)[None] + rng.normal(0, 0.7, (80, 30))), 1, 5)
    made = RatingsWorld.from_matrix(matrix, alpha=0.25, density=0.2)
    rated = log_of(made, 80, 3).organic()
    found = validate_world(made, rated, same_items=True)
    assert found.check("ratings given").grade == "matches"
    users, items = np.arange(80).repeat(6), rng.integers(0, 30, 480)
    random = log_of_ratings(Ratings(users, items, matrix[users, items], 80, 30))
    assert random["reward"].tolist() == matrix[users, items].tolist()
    other = validate_world(made, random, same_items=True)
    assert other.check("ratings given").grade == "off"  # it reveals the liked ones


@pytest.mark.parametrize(
    ("asked", "said"), [({"logging": "nobody"}, "unknown agent 'nobody'"), ({"n_items": 3}, "n_items is 3")]
)
def test_mistakes_are_named(log, asked, said):
    with refused(said):
        validate_world(world(), log, **asked)


def test_few_users_are_refused_and_platforms_too(log):
    with refused("at least 20 users"):
        validate_world(world(), log_of(world(), 10))
    with refused("campaigns world"):
        validate_world(make_world("campaigns"), log, n_items=None, same_items=False)


def test_the_command(tmp_path, capsys, log):
    log.write(tmp_path / "log")
    arguments = ["validate", "sessions", str(tmp_path / "log")]
    for name, value in SETTINGS.items():
        arguments += ["--set", f"{name}={value}"]
    cli.main([*arguments, "--out", str(tmp_path / "page.html"), "--json", str(tmp_path / "found.json")],
             standalone_mode=False)  # fmt: skip
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[:-1])) <= 80
    assert "valid for these questions:" in lines
    assert "not checked for those:" in lines
    page = (tmp_path / "page.html").read_text()
    assert page.count('role="img"') == 1
    assert "<script" not in page
    assert "What gives simulated users away" in page
    assert json.loads((tmp_path / "found.json").read_text())["valid_for"]


def test_the_command_names_a_wrong_page(tmp_path, log):
    log.write(tmp_path / "log")
    with refused(r"ends in \.html"):
        cli.main(
            ["validate", "sessions", str(tmp_path / "log"), "--out", str(tmp_path / "page")], standalone_mode=False
        )

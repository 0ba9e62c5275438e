"""Under which policy simulated users live: replayed where it is named, fitted where it is not, or neither."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar import make_world
from recsim_mnar.cli import cli
from recsim_mnar.fitting import validation
from recsim_mnar.fitting.validation import validate_world
from recsim_mnar.log.table import Log
from recsim_mnar.policies.registry import learner
from recsim_mnar.simulation import simulate
from toys import Drawing, untrained

N_ITEMS, N_USERS = 40, 300


def world(**params):
    return make_world("sessions", "recogym-v1", {"n_items": N_ITEMS, "p_leave_organic": 0.03, **params})


class LastViewed(Drawing):
    """Half the time the item viewed last, else any."""

    def __init__(self, n_items=N_ITEMS):
        self.n_items, self.last, self.name = n_items, {}, "mine"

    def reset(self, users):
        self.last.update(dict.fromkeys(users.tolist(), 0))

    def observe(self, users, items):
        self.last.update(zip(users.tolist(), items.tolist(), strict=True))

    def probabilities(self, users):
        return 0.5 / self.n_items + 0.5 * np.eye(self.n_items)[self.favourites(users)]

    def favourites(self, users):
        return [self.last[user] for user in users.tolist()]


class OneEach(LastViewed):
    """One and the same item for each user, half the time."""

    def favourites(self, users):
        return users % self.n_items


def unnamed(policy):
    return Log(simulate(world(), policy, N_USERS, 1).columns, {})


def held(log, **options):
    return validate_world(world(), log, same_items=True, **options)


def how(found):
    return found.facts["logging_policy"]["how"], found.facts["logging_policy"]["known"]


@pytest.fixture(scope="module")
def named(tmp_path_factory):
    """What the command writes of an agent that was fitted."""
    out = tmp_path_factory.mktemp("named") / "run"
    settings = ["--set", f"n_items={N_ITEMS}", "--set", "p_leave_organic=0.03"]
    cli.main(["simulate", "--world", "sessions", "--preset", "recogym-v1", *settings, "--policy",
              "item-knn+epsilon=0.2", "--users", str(N_USERS), "--train-users", "100", "--out", str(out)],
             standalone_mode=False)  # fmt: skip
    return Log.read(out / "log")


def test_a_policy_that_provenance_names_is_fitted_on_its_own_log_again(named):
    found = held(named)
    assert how(found) == ("replayed", True)
    assert found.not_valid_for == []


@pytest.mark.slow
def test_another_fit_of_the_named_policy_is_not_taken_for_it(named):
    provenance = {**named.provenance, "training": {**named.provenance["training"], "n_users": 50}}
    found = held(Log(named.columns, provenance))
    assert how(found)[0] == "fitted"
    assert any("does not give the logged propensities" in note for note in found.notes)


def test_a_name_an_object_and_a_file_say_the_same(tmp_path):
    fitted = learner("item-knn").fit(simulate(world(), LastViewed(), 50, 8), n_items=N_ITEMS, seed=0)
    log = unnamed(fitted)
    fitted.save(tmp_path / "agent.npz")
    assert how(held(log, logging=fitted)) == how(held(log, logging=str(tmp_path / "agent.npz"))) == ("replayed", True)
    log = unnamed(untrained("user-popularity+epsilon=0.2", N_ITEMS))
    assert how(held(log, logging="user-popularity+epsilon=0.2")) == ("replayed", True)


def test_propensities_that_only_claim_to_be_uniform_are_not_believed():
    log = unnamed(untrained("user-popularity", N_ITEMS))
    claimed = Log({**log.columns, "propensity": np.where(log.is_bandit, 1.0 / N_ITEMS, np.nan)}, {})
    assert how(held(claimed)) == ("fitted", True)
    assert how(held(unnamed(untrained("random", N_ITEMS)))) == ("uniform", True)


@pytest.mark.slow
def test_a_fitted_policy_is_not_asked_for_more_than_it_is_worth(monkeypatch):
    log = unnamed(untrained("user-popularity+epsilon=0.2", N_ITEMS))
    monkeypatch.setattr(validation, "FITTED_USERS", 100)
    assert held(log).facts["users_held_out"] == 100
    assert held(log, logging="user-popularity+epsilon=0.2").facts["users_held_out"] == N_USERS
    monkeypatch.setattr(validation, "FITTED_CLICKS", 30)
    clicks = log["reward"][log.is_bandit].sum()
    assert held(log).facts["users_held_out"] == int(30 * N_USERS / clicks)


@pytest.mark.slow
def test_what_cannot_be_shown_again_is_not_held_against_the_world():
    found = held(unnamed(OneEach()))
    assert how(found) == ("fitted", False)
    assert "shown before" in found.notes[-1]
    assert found.not_valid_for == []
    for name in ("clicks by place", "clicks by interest", "leaving"):
        check = found.check(name)
        assert (check.p, check.grade) == (None, "cannot say")
        assert "no policy that was fitted shows what the log shows" in check.says
    assert found.check("popular items").p is not None


@pytest.mark.slow
def test_views_are_still_compared_where_the_policy_is_not_known():
    wrong = world(sigma_omega_initial=0.0, sigma_omega=0.0)
    found = validate_world(wrong, unnamed(OneEach()), same_items=True)
    assert "co-occurrence" in {check.name for check in found.checks if check.differs}


class Calendar(type(world())):
    """A sessions world in which popularity depends on the user's number."""

    def trajectories(self, seed, first_user, n_users, distribution, *, keep_truth=False):
        columns = super().trajectories(seed, first_user, n_users, distribution, keep_truth=keep_truth)
        late = (columns["user"] >= N_USERS // 2) & (columns["item"] >= 0)
        columns["item"][late] = self.n_items - 1 - columns["item"][late]
        return columns


def test_simulated_users_are_numbered_as_the_log_s():
    """The later half of the users alone: with other numbers they would be simulated as the first."""
    made = Calendar(world(sigma_mu_organic=1.5).params)
    random = untrained("random", N_ITEMS)
    log = simulate(made, random, N_USERS // 2, 1, first_user=N_USERS // 2)
    grades = []
    for shift in (0, N_USERS // 2):
        renumbered = Log({**log.columns, "user": log["user"] - shift}, log.provenance)
        found = validate_world(made, renumbered, same_items=True)
        grades.append(found.check("popular items").grade)
    assert grades == ["matches", "off"]

"""Worlds of slates and platforms of one's own: simulated, compared, or refused in a line that says what they lack."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from test_cli import fails

from recsim_mnar import rng
from recsim_mnar.campaigns import CampaignsWorld
from recsim_mnar.campaigns.platform import open_checked_platform, platform_log, run_campaigns
from recsim_mnar.envs import world_env
from recsim_mnar.log import Log
from recsim_mnar.protocols.comparison import experiment_of
from recsim_mnar.purchases.comparison import PurchasesExperiment
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import ExposureWorld, Outcomes, Params, PlatformWorld, SlateParams, as_world, make_world
from toys import refused
from twins.commands import done


@dataclass(frozen=True)
class ShopParams(SlateParams):
    n_items: int = 12
    slate_size: int = 3
    n_periods: int = 3
    lift: float = 0.3


class Shop(ExposureWorld):
    """Item i is bought by itself with probability i / 40 and a little by user; a recommendation adds ``lift``."""

    name, params_class = "shop", ShopParams

    def __init__(self, params):
        self.params, self.n_items = params, params.n_items

    def outcomes_of(self, seed, users):
        users = np.asarray(users, np.int64)
        own = rng.uniforms(seed, rng.Stream.USER, users, 0)
        control = np.arange(self.n_items) / 40 + 0.1 * own[:, None]
        return Outcomes(control, control + self.params.lift)


class PopularShop(Shop):
    name = "popular-shop"

    def deployed_propensities(self, seed, users):
        return np.tile(np.linspace(0.1, 0.4, self.n_items), (len(np.atleast_1d(users)), 1))


class ComparedOtherwise(Shop):
    name, compared_by = "compared-otherwise", f"{__name__}:TwoAgents"


class TwoAgents(PurchasesExperiment):
    agents = ("random", "popularity")


SHOP = ["--world", f"{__name__}:Shop", "--set", "lift=0.4"]


def test_users_of_an_own_shop_are_simulated_and_buy_as_it_says(tmp_path, capsys):
    """With 1,500 users 3 x 3 recommendations each, shares are within five standard errors of the probabilities."""
    for policy, out in (("deployed", "one"), ("popularity", "two")):
        done(
            capsys, "simulate", *SHOP, "--policy", policy, "--users", 1500, "--train-users", 50, "--seed", 4, "--truth",
            "--out", tmp_path / out,
        )  # fmt: skip
        log = Log.read(tmp_path / out / "log")
        world = make_world(f"{__name__}:Shop", settings=["lift=0.4"])
        treated = world.outcomes_of(4, np.arange(1500)).treated
        shown = log.is_bandit
        user, item, reward = log["user"][shown], log["action"][shown], log["reward"][shown]
        p = treated[user, item]
        assert abs(float(reward.mean() - p.mean())) < 5 * np.sqrt(np.mean(p * (1 - p)) / len(p))
        exposures = Exposures.read(tmp_path / out)
        assert (exposures.n_users, exposures.n_items, exposures.n_periods) == (1500, 12, 3)
        with np.load(tmp_path / out / "outcomes.npz") as truth:
            assert np.allclose(truth["treated"], treated, atol=1e-6)
    assert log.provenance["world"] == {"name": "shop", "params": world.params.to_dict()}


def test_its_log_does_not_depend_on_who_is_simulated_beside_whom():
    world = Shop(ShopParams())
    whole = simulate(world, DeployedPolicy(world), 40, 7)
    some = simulate(world, DeployedPolicy(world), 10, 7, first_user=20)
    rows = (whole["user"] >= 20) & (whole["user"] < 30)
    for name in ("user", "item", "action", "reward", "propensity"):
        np.testing.assert_array_equal(whole[name][rows], some[name])
    assert np.allclose(whole["propensity"][whole.is_bandit], 3 / 12)  # uniform unless the world says otherwise
    popular = PopularShop(ShopParams())
    e = simulate(popular, DeployedPolicy(popular), 40, 7)
    assert np.allclose(e["propensity"][e.is_bandit], np.linspace(0.1, 0.4, 12)[e["action"][e.is_bandit]])


def test_an_own_shop_is_compared_in_and_has_environments(tmp_path, capsys):
    out = done(
        capsys, "compare", *SHOP, "--agents", "random,popularity,item-knn", "--option", "users=300", "--option",
        "test_periods=3", "--option", "length=3", "--out", tmp_path / "compare",
    )  # fmt: skip
    assert "uplift" in out
    records = json.loads((tmp_path / "compare" / "results.json").read_text())["records"]
    truth = {r["agent"]: r["value"] for r in records if r["protocol"] == "truth" and r["metric"] == "cp@3"}
    assert {"random", "popularity", "item-knn"} <= set(truth)
    assert all(value == pytest.approx(0.4, abs=1e-9) for value in truth.values())  # the lift is everybody's
    ips = next(r for r in records if (r["protocol"], r["agent"], r["metric"]) == ("uplift", "random", "uplift_ips@3"))
    half = (ips["high"] - ips["low"]) / 2
    assert abs(ips["value"] - 0.4) < 5 / 1.96 * half
    env = world_env(f"{__name__}:Shop")
    env.reset(seed=1)
    env.step(np.arange(3))


def test_an_own_class_may_name_how_it_is_compared_in():
    world = ComparedOtherwise(ShopParams())
    assert isinstance(experiment_of(world), TwoAgents)
    assert not isinstance(experiment_of(Shop), TwoAgents)


@dataclass(frozen=True)
class NoPeriods(Params):
    n_items: int = 5


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        (lambda n: (np.zeros((n, 12)), np.zeros((n, 12))), r"its control is of shape \(\)"),
        (lambda n: Outcomes(np.zeros((n, 12)), np.zeros((n, 11))), r"its treated is of shape \(5, 11\)"),
        (lambda n: Outcomes(np.zeros((n, 12)), np.full((n, 12), 1.5)), "its treated is 1.5 somewhere"),
    ],
)
def test_outcomes_that_are_none_are_said_in_a_line(outcomes, words):
    wrong = type("Wrong", (Shop,), {"outcomes_of": lambda self, seed, users: outcomes(len(users))})(ShopParams())
    with refused(words):
        simulate(wrong, DeployedPolicy(wrong), 5, 1)


def test_a_shop_without_rules_for_slates_is_said_in_a_line():
    with refused(r"its parameters lack n_periods, slate_size.*SlateParams"):
        as_world(Shop(NoPeriods()))


class Town(CampaignsWorld):
    """A platform whose own campaigns show every item alike."""

    name = "town"
    deployed_weights = property(lambda self: np.ones(self.n_items))


class OwnPlatform(PlatformWorld):
    """A platform that derives from nothing else, and forwards to one that is there."""

    name = "own-platform"

    def __init__(self, params):
        self.params, self.n_items = params, params.n_items
        self._town = Town(make_world("campaigns", "quick", [f"n_items={params.n_items}", "n_users=80"]).params)

    def open_platform(self, seed):
        return self._town.open_platform(seed)

    def with_users(self, n_users):
        return self


@dataclass(frozen=True)
class DaysParams(Params):
    n_items: int = 60
    n_days: int = 40


class Days(OwnPlatform):
    name, params_class = "days", DaysParams


class Unlived(Days):
    name = "unlived"

    def open_platform(self, seed):
        return SimpleNamespace(day=0.0, advance=lambda day: None)


class Endless(OwnPlatform):
    name, params_class = "endless", NoPeriods


@pytest.mark.slow
def test_an_own_platform_is_simulated_and_compared_in(tmp_path, capsys):
    preset = ["--preset", "quick"]
    town = ["--world", f"{__name__}:Town", *preset]
    done(capsys, "simulate", *town, "--policy", "deployed", "--users", 150, "--truth", "--out", tmp_path / "log")
    log = Log.read(tmp_path / "log" / "log")
    assert log.provenance["world"]["name"] == "town"
    world = make_world(f"{__name__}:Town", "quick").with_users(150)
    assert type(world) is Town
    assert log.digest() == platform_log(run_campaigns(world, 0, sharpness=None)).digest()
    out = done(
        capsys, "compare", *town, "--set", "n_users=150", "--agents", "random,popularity", "--protocols",
        "unweighted,weights", "--out", tmp_path / "compare",
    )  # fmt: skip
    assert "accepted" in out


def test_a_platform_of_another_kind_is_simulated_and_says_why_it_cannot_be_compared_in(tmp_path, capsys):
    spec = f"{__name__}:Days"
    done(capsys, "simulate", "--world", spec, "--policy", "deployed", "--users", 80, "--out", tmp_path / "a")
    assert len(Log.read(tmp_path / "a" / "log")) > 0
    line = fails(capsys, "compare", "--world", spec, "--agents", "random,popularity", "--out", tmp_path / "b")
    assert "its parameters lack n_users, list_length, n_campaigns, reference_day" in line
    assert "compared_by" in line
    with refused("the platform of the unlived world has no world, seed, campaigns, present"):
        open_checked_platform(Unlived(DaysParams()), 1)
    with refused("parameters of the endless world have no n_days"):
        open_checked_platform(Endless(NoPeriods(n_items=60)), 1)

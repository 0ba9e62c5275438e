"""A world fitted to a log: what it recovers, what it says, what it refuses, and that its file is a world."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli
from recsim_mnar.fitting.calibration import FittedWorld, calibrate_world
from recsim_mnar.fitting.members import interval, transition_probabilities, transitions_of
from recsim_mnar.fitting.viewing import fit_views
from recsim_mnar.log.table import Log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from recsim_mnar.worlds.sessions.invariants import functionals, gini
from toys import refused, untrained
from twins.cases import quick_first

PARAMS = SessionsParams(n_items=20, n_factors=2, sigma_mu_organic=1.0, sigma_omega=0.05, n_flips=4)


@pytest.fixture(scope="module")
def log():
    uniform = untrained("random", 20)
    return simulate(SessionsWorld(PARAMS), uniform, 500, 3)


@pytest.fixture(scope="module")
def fitted(log):
    return calibrate_world(log, seed=1, ensemble=4)


def test_what_is_identified_is_near_the_truth(fitted):
    """Within five spreads of the ensemble: four draws make no interval."""
    truth = functionals(SessionsWorld(PARAMS))
    draws = [functionals(fitted.make(i)) for i in range(4)]
    for name in ("popularity_entropy", "popularity_gini", "personal_bits", "views_per_user", "click_rate"):
        spread = np.std([each[name] for each in draws], ddof=1)
        assert abs(fitted.identified[name]["value"] - truth[name]) < 5 * spread + 0.02 * abs(truth[name]), name


@pytest.mark.slow
def test_intervals_do_not_hang_on_how_many_worlds_are_asked_for(log, fitted):
    """And the best fit is within each of them."""
    for few in (0, 4, 20):
        found = calibrate_world(log, seed=1, ensemble=few)
        assert found.identified == fitted.identified
        assert len(found.ensemble) == few
    assert all(known["low"] <= known["value"] <= known["high"] for known in fitted.identified.values())
    assert fitted.identified["click_rate"]["low"] < fitted.identified["click_rate"]["high"]


def test_an_interval_of_twenty_draws_holds_nine_of_ten():
    """Of 4,000 truths that are drawn as the draws are, within four standard errors; of five draws it held .67."""
    normal = np.random.default_rng(0).normal(size=(4000, 21))
    found = [interval(float(np.median(row[1:])), row[1:].tolist()) for row in normal]
    held = np.mean([each["low"] <= row[0] <= each["high"] for each, row in zip(found, normal, strict=True)])
    assert abs(held - 0.9) < 4 * np.sqrt(0.9 * 0.1 / 4000)


@pytest.mark.parametrize(
    ("preset", "settings"),
    quick_first(
        [
            ("quick", ()),
            ("recogym-v1", ("n_items=100", "n_flips=50")),
            ("quick", ("n_items=40", "n_flips=20")),
            ("recogym-v1", ()),
            ("jeunen2019", ()),
        ]
    ),
)
def test_worlds_of_strong_tastes_and_many_items_are_fitted(preset, settings):
    """500 users: how much a view is personal is found to two fifths, even where no factor stands out from its error."""
    world = make_world("sessions", preset, settings)
    uniform = untrained("random", world.n_items)
    found = calibrate_world(simulate(world, uniform, 500, 0), ensemble=0)
    truth = functionals(world)["personal_bits"]
    assert found.facts["factors"] > 0
    assert found.identified["personal_bits"]["value"] == pytest.approx(truth, rel=0.4)


def test_transitions_are_counted_by_hand(log):
    found = transitions_of(log)
    after = {0: [0, 0, 0], 1: [0, 0, 0], 2: [0, 0, 0]}
    for i in range(len(log)):
        kind = 0 if log["event"][i] == 0 else 2 if log["reward"][i] > 0 else 1
        last = i + 1 == len(log) or log["user"][i + 1] != log["user"][i]
        after[kind][2 if last else int(log["event"][i + 1])] += 1
    assert [found.organic.tolist(), found.bandit.tolist(), found.clicked.tolist()] == list(after.values())
    assert found.clicked[1:].tolist() == [0, 0]


@pytest.mark.verify
def test_drawn_transitions_have_the_posteriors_moments(log):
    """Dirichlet: a mean of 400 draws is within four standard errors."""
    found = transitions_of(log)
    alpha = found.organic + 0.5
    draws = np.array([transition_probabilities(found, 5, i)["p_leave_organic"] for i in range(400)])
    mean = alpha[2] / alpha.sum()
    sd = np.sqrt(mean * (1 - mean) / (alpha.sum() + 1))
    assert abs(draws.mean() - mean) < 4 * sd / 20
    assert draws.std() == pytest.approx(sd, rel=4 / np.sqrt(2 * 400))


@pytest.mark.slow
def test_a_fitted_world_is_a_world(fitted, tmp_path):
    saved = fitted.save(tmp_path / "w.toml")
    again = FittedWorld.load(tmp_path / "w.toml")
    for ours, theirs in (
        (fitted.make(), again.make()),
        (fitted.make(2), again.make(2)),
        (fitted.make(3), make_world(f"{saved.path}#4")),
    ):
        a, b = ours.trajectories(7, 0, 5, None), theirs.trajectories(7, 0, 5, None)
        assert all(np.array_equal(a[name], b[name], equal_nan=True) for name in a)
    text = (tmp_path / "w.toml").read_text()
    assert "personal_bits" in text
    for command in (
        ["simulate", "--world", str(tmp_path / "w.toml"), "--policy", "random", "--users", "3", "--out"],
        ["compare", "--world", f"{tmp_path / 'w.toml'}#1", "--agents", "random,popularity", "--option",
         "train_users=20", "--option", "test_users=20", "--option", "arm_users=20", "--option", "truth_users=40",
         "--protocols", "ab_test", "--out"],
    ):  # fmt: skip
        done = CliRunner().invoke(cli, [*command, str(tmp_path / command[0])])
        assert done.exit_code == 0, done.output


def test_a_changed_array_file_is_refused(fitted, tmp_path):
    fitted.save(tmp_path / "w.toml")
    with (tmp_path / "w.npz").open("ab") as file:
        file.write(b"x")
    with refused("not the file of arrays that was written with it"):
        make_world(str(tmp_path / "w.toml"))
    (tmp_path / "w.npz").unlink()
    with refused("are missing"):
        make_world(str(tmp_path / "w.toml"))


@pytest.mark.parametrize(
    ("name", "said"),
    [("none.toml", "does not exist"), ("w.toml#9", "no member 9"), ("bad.toml", "is not a TOML file"),
     ("other.toml", "needs world"), ("nested.toml", "is a file too")],
)  # fmt: skip
def test_world_files_that_are_none(fitted, tmp_path, name, said):
    fitted.save(tmp_path / "w.toml")
    (tmp_path / "bad.toml").write_text("world = ")
    (tmp_path / "other.toml").write_text("x = 1")
    (tmp_path / "nested.toml").write_text('world = "a.toml"\n[params]\n')
    (tmp_path / "a.toml").write_text('world = "sessions"\n[params]\n')
    with refused(said):
        make_world(str(tmp_path / name))
    if name == "none.toml":
        with refused("omit the preset"):
            make_world(str(tmp_path / "w.toml"), "quick")


def test_users_who_are_alike_are_said_to_be(log):
    organic = log.organic()
    order = np.argsort(np.random.default_rng(0).random(len(organic)))
    shuffled = Log({**organic.columns, "item": organic["item"][order]}, log.provenance)
    found = calibrate_world(shuffled, ensemble=2)
    assert found.facts["factors"] == 0
    assert "shuffled" in found.not_identified["differences"]["why"]
    assert "drift_per_event" in found.not_identified


def test_refusals(log):
    with refused("at least 100"):
        calibrate_world(log.select(np.arange(10)))
    one = Log({**log.columns, "user": np.zeros(len(log), int), "step": np.arange(len(log))})
    with refused("1 user, a world is fitted to at least 20"):
        calibrate_world(one)
    with refused("revealed ratings, which are no views"):
        calibrate_world(log.with_column("reward", np.where(log.is_bandit, log["reward"], 4.0)))
    with refused("unknown parameter"):
        calibrate_world(log, assume={"p_typo": 1})


@pytest.mark.parametrize("columns", [("slate", "position"), ("slate",), ("position",)])
def test_slates_are_refused_and_their_first_items_fitted(columns):
    log = simulate(
        make_world("sessions", "quick", ["n_items=12", "n_flips=6", "slate_size=3"]), untrained("random", 12), 60, 1
    )
    slates = Log({name: log[name] for name in log.columns if name in columns or name not in ("slate", "position")})
    with refused("keep the first item of each slate"):
        calibrate_world(slates)
    found = calibrate_world(log.select(log["position"] <= 0), ensemble=0)
    assert found.facts["recommendations"] == (log["position"] == 0).sum()
    assert found.params.slate_size == 1


@pytest.mark.slow
def test_items_that_are_met_once_make_a_world_without_repeats():
    once = SessionsWorld(SessionsParams(n_items=40, n_factors=2, no_repeats=True, sigma_mu_organic=1.0))
    columns = once.trajectories(1, 0, 300, None)
    found = calibrate_world(Log(columns).organic(), ensemble=2, n_items=40)
    assert found.params.no_repeats
    assert "click_rate" in found.not_identified
    user, item = (found.make().trajectories(2, 0, 50, None)[name] for name in ("user", "item"))
    seen = user[item >= 0].astype(np.int64) * 40 + item[item >= 0]
    assert len(np.unique(seen)) == len(seen)


def test_a_bandit_log_without_users(tmp_path):
    rng = np.random.default_rng(1)
    item = rng.integers(0, 5, 3000)
    click = (rng.random(3000) < np.array([0.02, 0.05, 0.1, 0.2, 0.3])[item]).astype(int)
    lines = [f"{i},{c},0.2" for i, c in zip(item, click, strict=True)]
    (tmp_path / "log.csv").write_text("item_id,click,propensity_score\n" + "\n".join(lines))
    out = tmp_path / "w.toml"
    done = CliRunner().invoke(
        cli, ["calibrate", str(tmp_path / "log.csv"), "--out", str(out), "--ensemble", "3", "--json", "-"]
    )
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert "views" in result["not_identified"]
    rates = make_world(str(out)).reward_means(np.zeros((1, 1)))[0]
    np.testing.assert_allclose(rates, [np.mean(click[item == i]) for i in range(5)], atol=0.03)


def test_factors_are_found_up_to_rotation():
    """The spaces that true and fitted factors span have canonical correlations near one."""
    world = SessionsWorld(SessionsParams(n_items=30, n_factors=2, sigma_mu_organic=0.5, p_leave_organic=0.05))
    columns = world.trajectories(1, 0, 800, None)
    mine = columns["event"] == 0
    counts = np.zeros((800, 30), np.float32)
    np.add.at(counts, (columns["user"][mine], columns["item"][mine]), 1.0)
    fit = fit_views(counts, 2, no_repeats=False, seed=0, iterations=10)
    spans = [np.linalg.qr(f - f.mean(axis=0))[0] for f in (fit.factors, world.catalogue.item_factors)]
    assert np.linalg.svd(spans[0].T @ spans[1])[1].min() > 0.97


def test_gini():
    assert gini(np.full(4, 0.25)) == pytest.approx(0.0)
    assert gini(np.array([0.0, 0.0, 0.0, 1.0])) == pytest.approx(0.75)


@pytest.mark.parametrize("ending", ["toml", "npz"])
def test_a_world_that_is_there_is_not_replaced(tmp_path, ending):
    (tmp_path / f"w.{ending}").write_text("kept")
    (tmp_path / "log.csv").write_text("user,item\n")
    done = CliRunner().invoke(cli, ["calibrate", str(tmp_path / "log.csv"), "--out", str(tmp_path / "w.toml")])
    assert done.exit_code == 2 or done.exception
    assert f"w.{ending} exists: name another file, or remove it first" in done.output + str(done.exception)
    assert (tmp_path / f"w.{ending}").read_text() == "kept"

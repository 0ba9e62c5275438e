import numpy as np
import pytest
from study_modules import study_module

from recsim_mnar.kernels.lbfgs import NotConverged
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.models.factorization import FactorizationConfig, Factors, factorise
from twins import joint_learning as twin

joint = study_module("schnabel2016", "joint_learning")


def world(seed, n_users=30, n_items=25):
    """A full matrix, propensities that prefer high ratings, and one draw."""
    g = np.random.default_rng(seed)
    truth = np.clip(np.round(3 + g.normal(size=(n_users, 2)) @ g.normal(size=(2, n_items))), 1, 5)
    p = np.array([0.08, 0.1, 0.2, 0.4, 0.6])[truth.astype(int) - 1]
    return truth, p, Ratings.from_dense(truth, g.random(p.shape) < p), g


def test_the_risk_is_the_plain_twins():
    truth, p, ratings, g = world(0, 6, 5)
    prediction, imputation = g.normal(3, 1, truth.shape), g.normal(3, 1, truth.shape)
    expected = twin.doubly_robust_risk(ratings, ratings.at(p), prediction, imputation)
    assert joint.risk(ratings, p, prediction, imputation) == pytest.approx(expected, abs=1e-12)


@pytest.mark.verify
def test_the_risk_is_right_where_either_model_is():
    """Over draws of what is revealed: right propensities or right imputed errors, and neither."""
    truth, p, _, g = world(1)
    prediction = np.clip(truth + g.normal(0.3, 1, truth.shape), 1, 5)
    wrong_p, wrong_g = np.full(p.shape, float(p.mean())), np.full(truth.shape, 3.0)
    risk = float(((truth - prediction) ** 2).mean())
    found = {"propensities": [], "errors": [], "neither": []}
    for _ in range(400):
        ratings = Ratings.from_dense(truth, g.random(p.shape) < p)
        found["propensities"].append(joint.risk(ratings, p, prediction, wrong_g))
        found["errors"].append(joint.risk(ratings, wrong_p, prediction, truth))
        found["neither"].append(joint.risk(ratings, wrong_p, prediction, wrong_g))
    away = {name: np.mean(x) - risk for name, x in found.items()}
    error = {name: np.std(x, ddof=1) / np.sqrt(len(x)) for name, x in found.items()}
    assert abs(away["propensities"]) < 4 * error["propensities"]
    assert abs(away["errors"]) < 4 * error["errors"] + 1e-12  # exact in every draw
    assert abs(away["neither"]) > 20 * error["neither"]


def test_pseudo_ratings_have_the_risks_minimum():
    """Differences of the risk are those of the mean squared distance from the pseudo ratings."""
    truth, p, ratings, g = world(2)
    imputation = g.normal(3, 1, truth.shape)
    targets = joint.pseudo_ratings(ratings, p, imputation)
    gaps = [
        joint.risk(ratings, p, prediction, imputation) - ((prediction - targets) ** 2).mean()
        for prediction in g.normal(3, 1, (3, *truth.shape))
    ]
    assert np.ptp(gaps) < 1e-9


@pytest.mark.parametrize("biases", ["regularised", "free"])
def test_the_prediction_step_is_the_factorisation_of_the_whole_matrix(biases):
    """Against the solver of scattered ratings, every cell being one, to a stationary point of the same objective."""
    g = np.random.default_rng(3)
    targets = g.normal(3, 1, (12, 9))
    form = FactorizationConfig(rank=2, penalty=4e-3, biases=biases)
    start = Factors(g.normal(size=(12, 2)), g.normal(size=(9, 2)), np.zeros(12), np.zeros(9), 3.0)
    fit = joint.fit_prediction(targets, form, start, max_sweeps=3000, tolerance=1e-14)
    every = Ratings.from_dense(targets, np.ones(targets.shape))
    best = min(
        factorise(every, None, form, seed=s, max_iterations=3000, value_tolerance=1e-14, warn=False).value
        for s in range(3)
    )
    m = fit.factors
    value = ((m.matrix() - targets) ** 2).mean() + form.penalty * ((m.v**2).sum() + (m.w**2).sum())
    value += (form.penalty if biases == "regularised" else 0.0) * ((m.a**2).sum() + (m.b**2).sum())
    assert value == pytest.approx(best, rel=1e-6)


def test_the_imputation_step_is_the_plain_twins():
    truth, p, ratings, g = world(4, 7, 6)
    d = 3
    parts = [g.normal(size=s) for s in ((7, d), (6, d), 7, 6)]
    model, centre = Factors(*parts, 2.5), Factors(*(0.5 * part for part in parts), 2.0)
    prediction = g.normal(3, 1, truth.shape)
    objective = joint.ImputationObjective(ratings, ratings.at(p), prediction, centre, 0.3)
    x = objective.vector(model)
    gradient, spare = np.empty_like(x), np.empty_like(x)
    middle = (centre.v, centre.w, centre.a, centre.b, np.array(centre.c))
    expected = twin.imputation_loss(
        ratings, ratings.at(p), prediction, model.v, model.w, model.a, model.b, model.c, middle, 0.3
    )
    assert objective(x, gradient) == pytest.approx(expected, rel=1e-12)
    for _ in range(3):
        move = g.normal(size=x.size)
        slope = (objective(x + 1e-6 * move, spare) - objective(x - 1e-6 * move, spare)) / 2e-6
        assert slope == pytest.approx(gradient @ move, rel=1e-5)


def test_joint_learning_beats_the_naive_factorisation_of_missing_not_at_random():
    error = {"naive": [], "joint": []}
    for seed in range(8):
        truth, p, ratings, _ = world(10 + seed, 60, 50)
        form = FactorizationConfig(rank=2, penalty=2e-3)
        fit = joint.learn(ratings, p, form, clip=0.05, warn=False)
        error["joint"].append(((fit.prediction - truth) ** 2).mean())
        error["naive"].append(((factorise(ratings, None, form).factors.matrix() - truth) ** 2).mean())
    gain = np.array(error["naive"]) - np.array(error["joint"])
    assert gain.mean() > 2 * gain.std(ddof=1) / np.sqrt(len(gain))


def test_the_imputation_is_learnt_from_ratings_of_any_unit():
    """In 64ths of a star the imputation's loss and its gradient are below 1e-6 before anything is learnt."""
    _, p, ratings, _ = world(8)
    small = Ratings(ratings.users, ratings.items, ratings.values / 64, *ratings.shape)
    form = FactorizationConfig(rank=2, penalty=1e-3, biases="free")
    start = factorise(small, 1 / joint._scaled(small, p, 0.0), form, seed=joint.rng.derive_seed(0, "imputation"),
                      max_iterations=3000, value_tolerance=1e-5).factors.matrix()  # fmt: skip
    learnt = joint.learn(small, p, form, anchor=1e-9, rounds=1, warn=False).imputation
    assert np.abs(learnt - start).max() > 0.01 * start.std()


def test_a_large_penalty_corrects_nothing_but_the_mean():
    truth, p, ratings, g = world(5)
    imputation = g.normal(3, 1, truth.shape)
    moved = joint.correct(ratings, p, imputation, FactorizationConfig(rank=2, penalty=1e6)) - imputation
    weights = 1 / ratings.at(p)
    mean = weights @ (ratings.values - ratings.at(imputation)) / weights.sum()
    assert np.abs(moved - mean).max() < 1e-3


def test_a_round_whose_fits_have_not_converged_settles_nothing(monkeypatch):
    """Predictions may move as they like here: what is left to ask is whether the round's fits converged."""
    _, p, ratings, _ = world(7)
    form = FactorizationConfig(rank=2, penalty=1e-2)

    def learnt(**more):
        return joint.learn(ratings, p, form, rounds=1, tolerance=np.inf, warn=False, **more).converged

    assert learnt(anchor=1e3)
    assert not learnt(anchor=1e-9)  # 30 iterations do not minimise it
    fitted = joint.fit_prediction
    monkeypatch.setattr(joint, "fit_prediction", lambda *a, **more: fitted(*a, **{**more, "max_sweeps": 1}))
    assert not learnt(anchor=1e3)
    with pytest.warns(NotConverged, match="the correction did not converge"):
        joint.correct(ratings, p, np.full(p.shape, 3.0), form)

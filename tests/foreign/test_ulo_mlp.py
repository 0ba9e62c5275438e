"""ulo-mlp, where scikit-learn is installed: the contract, a known uplift learnt, the same bytes again."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.agents.purchases.learners import RMF
from recsim_mnar.agents.purchases.pointwise import ULOMLP, PointwiseLearner, one_hot
from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.testing import PolicyContract
from twins.purchases_log import exposures, purchase_log, small_exposures, small_world


def test_without_scikit_learn_a_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.neural_network", None)
    with pytest.raises(UserError, match=r"^agent 'ulo-mlp': ulo-mlp needs scikit-learn: pip install|^ulo-mlp needs"):
        registry.learner("ulo-mlp")


sklearn = pytest.importorskip("sklearn")


class TestULOMLP(PolicyContract):
    tolerance = 0.0

    def make_policy(self):
        log = purchase_log(small_exposures(n_items=40))
        return registry.learner("ulo-mlp+samples=2000+hidden=4+step=100").fit(log, n_items=40, seed=3)


@pytest.mark.verify
def test_a_known_uplift_is_learnt():
    """CP@10 above a random list's, and above the same network's on RMF's samples: paired t over users at .001."""
    control, treated = small_world(250, 80, 7)
    uplift, log = treated - control, exposures(control, treated, np.full(control.shape, 0.15), 8, 8)
    network = ULOMLP(samples=600_000, hidden=64, rate=0.003)
    users, precision = np.arange(250), {}
    for learner in (network, PointwiseLearner(network.model, RMF(), samples=600_000, batch=50_000)):
        policy = learner.fit_exposures(log, seed=1)
        policy.reset(users)
        top = np.argsort(-policy.scores(users), axis=1, kind="stable")[:, :10]
        precision[learner.rule.name] = np.take_along_axis(uplift, top, axis=1).mean(axis=1)
    for other in (precision["rmf"], uplift.mean(axis=1)):
        assert stats.ttest_rel(precision["ulrmf"], other, alternative="greater").pvalue < 1e-3


def test_the_seed_decides():
    learner = ULOMLP(samples=2050, hidden=4, step=100)
    assert learner.samples == 2100  # whole steps: scikit-learn warns of a shorter one
    a, b, c = (learner.fit_exposures(small_exposures(), seed=seed).fitted()[0]["scores"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("ulo-mlp+hidden=0", "hidden must be a whole number of at least 1"),
        ("ulo-mlp+step=2.5", "step must be a whole number"),
        ("ulo-mlp+rate=0", "rate must be a number above 0"),
        ("ulo-mlp+penalty=-1", "penalty must be a number from 0"),
        ("ulo-mlp+samples=0", "samples must be a whole number of at least 1"),
        ("ulo-mlp+alpha=2", r"alpha must be in \[0, 1\]"),
        ("ulo-mlp+factors=16", "no parameter 'factors'"),
    ],
)
def test_values_are_checked(spec, message):
    with pytest.raises(UserError, match=message):
        registry.learner(spec)


def test_a_log_without_recommendation_flags():
    views = Log({"user": [0, 0], "step": [0, 1], "time": [0, 0], "event": [0, 0], "item": [0, 1]})
    with pytest.raises(UserError, match=r"^ulo-mlp learns from what was recommended .* no recommendation flags"):
        registry.learner("ulo-mlp").fit(views, n_items=3)


def test_weighted_examples_in_a_pipeline_of_scikit_learn():
    """A pipeline's fit has no sample_weight of its own, so it gets the samples one by one; as the weighted fit."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    model, users = LogisticRegression(solver="newton-cg", tol=1e-8), np.arange(30)
    scores = []
    for given in (model, make_pipeline("passthrough", model)):
        learner = PointwiseLearner(given, samples=20_000, features=lambda *cells: one_hot(30, 12)(*cells).astype(float))
        policy = learner.fit_exposures(small_exposures(), seed=1)
        policy.reset(users)
        scores.append(policy.scores(users))
    np.testing.assert_allclose(*scores, atol=1e-6)


def models_without_probabilities():
    from sklearn.linear_model import LinearRegression, RidgeClassifier, SGDClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    linear = SGDClassifier(), LinearSVC(), RidgeClassifier(), make_pipeline("passthrough", LinearSVC())
    return [(model, "decision_function") for model in linear] + [(LinearRegression(), "predict")]


@pytest.mark.parametrize("number", range(5))
def test_models_without_probabilities_rank_by_their_own_numbers(number):
    """Of each item, for everyone: those of scikit-learn's own fit to the same samples; a classifier's are no labels."""
    model, way = models_without_probabilities()[number]
    learner = PointwiseLearner(model, samples=5000)
    log, users = small_exposures(), np.arange(30)
    features, policy = one_hot(30, 12), learner.fit_exposures(log, seed=1)
    policy.reset(users)
    scores = policy.scores(users)
    fitted = learner._fitted(learner.plan(log), features, 1)
    cells = features(np.repeat(users, 12), np.tile(np.arange(12), 30))
    np.testing.assert_allclose(scores.ravel(), getattr(fitted, way)(cells), rtol=1e-6, atol=1e-6)
    assert all(len(np.unique(row)) == 12 for row in scores)


def test_classifiers_of_labels_alone_are_refused_and_a_stack_is_not():
    """A stack of classifiers has no method of prediction before its fit."""
    from sklearn.ensemble import StackingClassifier, VotingClassifier
    from sklearn.linear_model import LogisticRegression

    parts, log = [("one", LogisticRegression())], small_exposures()
    with pytest.raises(UserError, match=r"^ulrmf VotingClassifier: VotingClassifier predicts only labels"):
        PointwiseLearner(VotingClassifier(parts), samples=2000).fit_exposures(log)
    policy = PointwiseLearner(StackingClassifier(parts, cv=2), samples=2000).fit_exposures(log)
    assert len(np.unique(policy.fitted()[0]["scores"])) > 100

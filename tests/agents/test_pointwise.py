"""Any model on ULRMF's samples: whose samples they are, what a model makes of them, and what it never sees."""

from __future__ import annotations

import copy
import functools
import re
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.agents.purchases.learners import RMF, ULBPR, ULRMF, RecResp
from recsim_mnar.agents.purchases.pointwise import PointwiseLearner, ScoreTablePolicy, one_hot
from recsim_mnar.agents.purchases.training import NR_NP, NR_P, R_NP, R_P
from recsim_mnar.errors import UserError
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.protocols.uplift import purchases_as_views, trained
from recsim_mnar.rng import derive_seed
from twins.contracts import KnownUsersContract
from twins.exposures import until
from twins.purchases_log import purchase_log, small_exposures
from twins.training import classes_of, draw, usable_rows

N_USERS, N_ITEMS = 9, 8
RULE = {"alpha": 0.3, "gamma_p": 0.4, "gamma_r": 0.6}


class Logistic:
    """Weighted logistic regression by Newton's method: the twin of what libraries offer."""

    def __init__(self, ridge=1e-9, random_state=None):
        self.ridge, self.random_state = ridge, random_state

    def get_params(self):
        return {"ridge": self.ridge, "random_state": self.random_state}

    def set_params(self, random_state):
        self.random_state = random_state
        return self

    def fit(self, x, y, sample_weight):
        x, w = np.asarray(x.todense()), sample_weight / sample_weight.sum()
        self.beta = np.zeros(x.shape[1])
        for _ in range(50):
            p = 1 / (1 + np.exp(-x @ self.beta))
            slope = x.T @ (w * (p - y)) + self.ridge * self.beta
            bend = (x.T * (w * p * (1 - p))) @ x + self.ridge * np.eye(len(slope))
            self.beta -= np.linalg.solve(bend, slope)
        assert np.abs(slope).max() < 1e-12
        return self

    def predict_proba(self, x):
        p = 1 / (1 + np.exp(-(x @ self.beta)))
        return np.stack([1 - p, p], axis=1)


class Unweighted(Logistic):
    def fit(self, x, y):
        return super().fit(x, y, np.ones(len(y)))


class Recorder:
    """Keeps what it is given, and predicts the item's number."""

    def partial_fit(self, x, y, classes=None):
        if not hasattr(self, "given"):
            self.given = []
        self.given.append((x, y, classes))

    def fit(self, x, y):
        raise AssertionError("not asked for")

    def predict(self, x):
        return x[:, 1].astype(float)


class Broken(Recorder):
    def predict(self, x):
        return np.full(len(x), np.nan)


def ids(users, items):
    return np.stack([users, items], axis=1)


def cells(users, items):
    """One feature per (user, item): a model of these has a free value for each cell."""
    return one_hot(1, N_USERS * N_ITEMS)(np.zeros(len(users), int), users * N_ITEMS + items)[:, 1:]


@pytest.fixture(scope="module")
def log():
    return small_exposures(n_users=N_USERS, n_items=N_ITEMS, n_periods=2, seed=5)


def scores_of(model, log, rule=None, samples=5000, seed=3, **settings):
    """(users, items) scores of all users of the log."""
    learner = PointwiseLearner(model, rule or ULRMF(), samples=samples, **settings)
    policy, users = learner.fit_exposures(log, seed=seed), np.arange(N_USERS)
    policy.reset(users)
    return policy.scores(users).astype(float)


def expected_shares(plan):
    """Exact probability of a sample of each (user, item, label): the strata, rows and items, one by one."""
    out = np.zeros((N_USERS, N_ITEMS, 2))
    total = sum(s.probability for s in plan.strata)
    for stratum in plan.strata:
        groups = usable_rows(plan, stratum)
        for group in groups:
            for row, _ in group:
                sets = classes_of(plan.observed, row)
                items = [i for mask in (1, 2, 4, 8) if stratum.first & mask for i in sets[mask]]
                share = stratum.probability / total / len(groups) / len(group) / len(items)
                out[plan.observed.user[row], items, stratum.label] += share
    return out


def test_the_samples_are_the_twins_with_the_papers_labels(log):
    """R-P positive, R-NP and NR-P negative; NR-NP either; merged without losing one."""
    learner = PointwiseLearner(Logistic(), ULRMF(**RULE), samples=700)
    plan = learner.plan(log)
    wanted: Counter = Counter()
    met = set()
    for number in range(700):
        user, item, _, k, part = draw(plan, derive_seed(4, "samples"), number)
        label = {R_P: 1, R_NP: 0, NR_P: 0, NR_NP: int(k == 3)}[part]
        wanted[user, item, label] += 1
        met.add((part, label))
    assert len(met) == 5
    users, items, labels, weights = learner.examples(plan, 4)
    assert dict(zip(zip(users, items, labels, strict=True), weights, strict=True)) == wanted


def test_the_samples_are_those_that_ulrmf_trains_on(log):
    rule = ULRMF(**RULE, factors=4, batch=100, updates=300)
    trainer = rule.trainer(log, seed=7)
    learner = PointwiseLearner(Logistic(), rule, samples=300)
    whole = [np.concatenate(c) for c in zip(*learner.draws(learner.plan(log), 7, 64), strict=True)]
    for first in (0, 100, 200):
        trainer.advance(100)
        users, items, _, strata = trainer._drawn[:4]
        own = (users, items, trainer.plan.labels()[strata])
        for mine, theirs in zip(whole, own, strict=True):
            np.testing.assert_array_equal(mine[first : first + 100], theirs)


@pytest.mark.verify
def test_shares_of_the_classes(log):
    """gamma_P gamma_R of R-P, and so on; alpha of NR-NP positive: chi-square of 400,000 samples."""
    n, (a, p, r) = 400_000, RULE.values()
    learner = PointwiseLearner(Logistic(), ULRMF(**RULE), samples=n)
    plan = learner.plan(log)
    _, _, _, strata, parts, _ = plan.draw(derive_seed(1, "samples"), 0, n)
    labels = plan.labels()[strata]
    wanted = {
        (R_P, 1): p * r, (R_NP, 0): (1 - p) * r, (NR_P, 0): p * (1 - r),
        (NR_NP, 1): (1 - p) * (1 - r) * a, (NR_NP, 0): (1 - p) * (1 - r) * (1 - a),
    }  # fmt: skip
    seen = Counter(zip(parts.tolist(), labels.tolist(), strict=True))
    assert seen.keys() == wanted.keys()
    counts = np.array([seen[key] for key in wanted])
    assert stats.chisquare(counts, n * np.array(list(wanted.values()))).pvalue > 1e-6


@pytest.mark.verify
@pytest.mark.parametrize(("rule", "n_mixed"), [(ULRMF(**RULE), 50), (RMF(gamma_p=0.4), 5)], ids=["ulrmf", "rmf"])
def test_a_saturated_logistic_regression_learns_what_the_labels_imply(log, rule, n_mixed):
    """With a value per cell, P(1) is the cell's share of positive samples: exact by enumeration, to sampling error."""
    n = 400_000
    shares = expected_shares(PointwiseLearner(Logistic(), rule).plan(log))
    assert shares.sum() == pytest.approx(1.0)
    total = shares.sum(axis=2)
    implied = np.divide(shares[:, :, 1], total, out=np.full(total.shape, np.nan), where=total > 0)
    error = scores_of(Logistic(), log, rule, n, 2, features=cells) - implied
    some = total > 0
    deviation = np.sqrt(implied * (1 - implied) / (n * np.where(some, total, 1)))
    mixed = some & (deviation > 0)
    assert mixed.sum() >= n_mixed  # of 72 cells, some are never drawn and some have one label
    assert np.abs(error[mixed] / deviation[mixed]).max() < stats.norm.isf(1e-6 / mixed.sum())
    # A cell of one label has no finite logit: the ridge of 1e-9 keeps its prediction within 1e-3 of the label.
    assert np.abs(error[some & ~mixed]).max(initial=0) < 1e-3


def test_a_model_without_weights_gets_each_sample_as_often_as_it_was_drawn(log):
    np.testing.assert_allclose(scores_of(Logistic(), log), scores_of(Unweighted(), log), atol=1e-6)
    own = scores_of(Logistic(), log, features=one_hot(N_USERS, N_ITEMS))  # the features unless others are given
    np.testing.assert_array_equal(scores_of(Logistic(), log), own)


def test_batches_are_the_samples_in_order(log):
    """The last one shorter; the learner's own model stays unfitted."""
    model = Recorder()
    learner = PointwiseLearner(model, samples=250, batch=100, features=ids)
    fitted = learner._fitted(learner.plan(log), ids, 6)
    assert not hasattr(model, "given")
    assert [len(x) for x, _, _ in fitted.given] == [100, 100, 50]
    ((users, items, labels),) = learner.draws(learner.plan(log), 6, 250)
    np.testing.assert_array_equal(np.concatenate([x for x, _, _ in fitted.given]), ids(users, items))
    np.testing.assert_array_equal(np.concatenate([y for _, y, _ in fitted.given]), labels)
    assert all(classes.tolist() == [0, 1] for _, _, classes in fitted.given)


def test_the_seed_reaches_the_samples_and_the_model(log):
    learner = PointwiseLearner(Logistic(), samples=2000)
    a, b, c = (learner.fit_exposures(log, seed=seed)._table for seed in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)
    model = learner._fitted(learner.plan(log), one_hot(N_USERS, N_ITEMS), 2**32 + 5)
    assert model.random_state == 5
    assert learner.model.random_state is None


def test_features_are_asked_for_cells():
    users, items = np.array([2, 0]), np.array([1, 3])
    x = one_hot(3, 4)(users, items).toarray()
    assert x.tolist() == [[0, 0, 1, 0, 1, 0, 0], [1, 0, 0, 0, 0, 0, 1]]
    learner = PointwiseLearner(Recorder(), samples=50, batch=50, features=ids)
    policy = learner.fit_exposures(small_exposures(n_users=4, n_items=5), seed=0)
    policy.reset(np.array([0, 3, 10**9]))
    assert policy.scores(np.array([0, 3, 10**9])).tolist() == [[0, 1, 2, 3, 4]] * 3


def test_strangers_get_the_mean_row(log):
    policy = PointwiseLearner(Logistic(), samples=3000).fit_exposures(log, seed=0)
    everybody = np.append(np.arange(N_USERS), 10**9)
    policy.reset(everybody)
    scores = policy.scores(everybody).astype(float)
    np.testing.assert_allclose(scores[-1], scores[:-1].mean(axis=0), atol=1e-7)


@pytest.mark.slow
def test_nothing_but_the_log_is_seen(monkeypatch):
    """No truth of the world, no propensity, no provenance, and no period after those that are learnt from."""
    from recsim_mnar.policies.slates import DeployedPolicy
    from recsim_mnar.simulation import simulate
    from recsim_mnar.simulation.items import exposures_of
    from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld

    world = PurchasesWorld(PurchasesParams(n_items=30, n_periods=4, slate_size=5))
    deployed = DeployedPolicy(world)
    whole = exposures_of(world, deployed, simulate(world, deployed, 40, 3), 40, 3)
    past = until(whole, 3)
    for name in ("outcomes_of", "potential_outcomes", "deployed_propensities", "_ranks"):
        monkeypatch.setattr(PurchasesWorld, name, None)
    learner = PointwiseLearner(Logistic(), samples=4000, name="mine")
    first = trained("mine", learner, past, purchases_as_views(past), 1)
    assert first.details["learns_from"] == "exposures"
    columns = {name: getattr(past, name) for name in ("user", "item", "time", "recommended", "purchased")}
    bare = Exposures(**columns, n_users=40, n_items=30, n_periods=3)
    np.testing.assert_array_equal(first.scores, trained("mine", learner, bare, purchases_as_views(bare), 1).scores)
    seed = derive_seed(1, "fit")
    table = learner.fit_exposures(whole, periods=range(3), seed=seed)._table
    np.testing.assert_array_equal(first.scores, table[:-1])
    assert not np.array_equal(table, learner.fit_exposures(whole, seed=seed)._table)


class Margin(Logistic):
    """A classifier without probabilities."""

    predict_proba = property()

    def decision_function(self, x):
        return x @ self.beta

    def predict(self, x):
        return (self.decision_function(x) > 0).astype(int)


def test_a_classifier_without_probabilities_ranks_by_its_decision_function(log):
    """The logit of what the same model with probabilities says; not its labels."""
    p, margin = scores_of(Logistic(), log), scores_of(Margin(), log)
    np.testing.assert_allclose(np.log(p / (1 - p)), margin, rtol=1e-5, atol=1e-5)


def model_of(**methods):
    """An object of a class Mine with these methods."""
    return type("Mine", (), methods)()


def never_fitted(*_):
    raise AssertionError("refused before the fit")


def answers(way, answer, **more):
    """A model that answers ``way``, a method's name, with ``answer(number of cells)``."""
    return model_of(fit=lambda self, x, y: None, **{way: lambda self, x: answer(len(x))}, **more)


WRONG_CALLS = [
    ({"model": None}, "ulrmf NoneType: NoneType has no fit"),
    ({"model": Recorder}, "ulrmf type: the model is a class, Recorder. Give an object"),
    ({"model": model_of(predict=None)}, "ulrmf Mine: Mine has no fit"),
    ({"model": Logistic(), "batch": 9}, "ulrmf Logistic: Logistic has no partial_fit"),
    ({"model": model_of(fit=never_fitted)}, "ulrmf Mine: Mine has no predict"),
    ({"rule": "ulrmf"}, "PointwiseLearner: the rule is 'ulrmf'. Give an object"),
    ({"rule": ULRMF, "name": "mine"}, "mine: the rule is <class"),
    ({"rule": 0}, "PointwiseLearner: the rule is 0"),
    ({"features": "ids"}, "ulrmf Recorder: features is a str. Give a function of"),
    ({"features": np.ones((2, 2))}, "ulrmf Recorder: features is a ndarray. Give a function of"),
    ({"samples": 0}, "ulrmf Recorder: samples must be a whole number of at least 1"),
    ({"batch": 1.5}, "ulrmf Recorder: batch must be a whole number of at least 1"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_CALLS)
def test_what_cannot_work_is_refused_when_the_learner_is_made(arguments, message):
    with pytest.raises(UserError, match="^" + re.escape(message)) as caught:
        PointwiseLearner(**{"model": Recorder(), **arguments})
    assert "\n" not in str(caught.value)


UNFITTED = model_of(fit=never_fitted, predict=None)
NOTHING = Exposures([0], [0], [0], [True], [False], n_users=1, n_items=1, n_periods=1)
WRONG_FITS = [
    ((UNFITTED,), {"features": lambda u, i: np.zeros((1, 2))}, "features has shape (1, 2) for"),
    ((UNFITTED,), {"features": lambda u, i: 3.0}, "features has shape () for"),
    ((answers("predict", np.ones, classes_=[0, 1]),), {}, "Mine predicts only labels, which cannot rank items"),
    ((answers("predict", lambda n: np.arange(n) % 2),), {}, "Mine predicts only labels, which"),
    ((answers("predict", np.ones, classes_=None),), {}, "Mine predicts only labels, which cannot rank"),
    ((answers("predict", lambda n: np.arange(n) > 3),), {}, "Mine predicts only labels, which cannot rank"),
    ((answers("predict", lambda n: np.ones(n - 1)),), {}, "predict gives float64 of shape (71,) for 72 cells"),
    ((answers("predict", lambda n: np.full(n, "yes")),), {}, "predict gives <U3 of shape (72,)"),
    ((answers("predict_proba", lambda n: np.ones((n, 1))),), {}, "predict_proba gives float64 of shape"),
    ((answers("decision_function", lambda n: np.ones((n, 2))),), {}, "decision_function gives float64"),
    ((Broken(),), {"batch": 10}, "the model's predictions are not finite"),
    ((Logistic(), ULBPR()), {}, "the samples of ulbpr are not single items with labels 0 and 1"),
    ((Logistic(), RecResp()), {}, "the samples of recresp are not"),
    ((Logistic(), ULRMF(gamma_p=1.0, gamma_r=1.0)), {}, "the samples of ulrmf are not"),
    ((Logistic(),), {"exposures": NOTHING}, "nothing is purchased"),
]


@pytest.mark.parametrize(("made_of", "given", "message"), WRONG_FITS)
def test_what_a_fit_finds_wrong_is_said_in_a_line(log, made_of, given, message):
    learner = PointwiseLearner(
        *made_of, samples=50, batch=given.get("batch"), features=given.get("features", ids), name="mine"
    )
    with pytest.raises(UserError, match="^mine: " + re.escape(message)) as caught:
        learner.fit_exposures(given.get("exposures", log))
    assert "\n" not in str(caught.value)


def test_a_classifier_of_ones_own_ranks_by_its_probabilities_without_classes(log):
    model = answers("predict_proba", lambda n: np.stack([1 - np.arange(n) / n, np.arange(n) / n], axis=1))
    table = PointwiseLearner(model, samples=50, features=ids).fit_exposures(log)._table
    np.testing.assert_allclose(table[:-1].ravel() * table[:-1].size, np.arange(N_USERS * N_ITEMS), rtol=1e-6)


@pytest.mark.parametrize("classes", [{}, {"classes_": []}, {"classes_": None}], ids=["none", "empty", "None"])
def test_a_regressor_may_answer_in_a_column(log, classes):
    model = answers("predict", lambda n: np.arange(n)[:, None], **classes)
    table = PointwiseLearner(model, samples=50, features=ids).fit_exposures(log)._table
    np.testing.assert_array_equal(table[:-1], np.arange(N_USERS * N_ITEMS).reshape(N_USERS, N_ITEMS))


@functools.cache
def fitted_table():
    learner = PointwiseLearner(Logistic(), samples=2000, name="mine")
    return learner.fit(purchase_log(small_exposures()), n_items=12, seed=3)


class TestScoreTable(KnownUsersContract):
    tolerance = 0.0

    def make_policy(self):
        return copy.deepcopy(fitted_table())

    def check_loaded(self, again, users):
        assert isinstance(again, ScoreTablePolicy)


class TestScoreTableOfKnownUsers(TestScoreTable):
    first_user = 0

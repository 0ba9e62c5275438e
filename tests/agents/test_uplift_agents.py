"""The learners of purchases as agents: what they learn, for whom they rank, what they refuse."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.agents.purchases.factor_policy import FactorModel, FactorModelConfig, FactorPolicy, fold_in_rows
from recsim_mnar.agents.purchases.learners import BPR, RMF, ULBPR, ULRMF, CausE, CausEProd, RecResp
from recsim_mnar.policies import registry
from twins.logs import log_of
from twins.purchases_log import exposures, logistic, purchase_log, small_exposures, small_world

N_USERS, N_ITEMS, N_PERIODS, TOP = 250, 80, 8, 10
QUICK = {"factors": 16, "rate": 5e-3, "batch": 500, "penalty": 1e-4, "updates": 600_000}
UPLIFT = (
    ULRMF(**QUICK),
    ULBPR(**QUICK),
    RecResp(**QUICK),
    CausE(**QUICK),
    CausEProd(**QUICK),
)


def causal_precision(policy, uplift, k=TOP):
    """(n_users,) mean true uplift of each user's top k."""
    users = np.arange(len(uplift))
    policy.reset(users)
    top = np.argsort(-policy.scores(users), axis=1, kind="stable")[:, :k]
    return np.take_along_axis(uplift, top, axis=1).mean(axis=1)


@pytest.fixture(scope="module")
def world():
    control, treated = small_world(N_USERS, N_ITEMS, 7)
    return treated - control, exposures(control, treated, np.full(control.shape, 0.15), N_PERIODS, 8)


@pytest.fixture(scope="module")
def of_bpr(world):
    return causal_precision(BPR(**QUICK).fit_exposures(world[1], seed=1), world[0])


@pytest.mark.verify
@pytest.mark.parametrize("learner", UPLIFT, ids=lambda learner: learner.name)
def test_a_known_uplift_is_learnt(learner, world, of_bpr):
    """CP@10 above BPR's and above a random list's, by a paired t test over users at .001."""
    uplift, log = world
    mine = causal_precision(learner.fit_exposures(log, seed=1), uplift)
    for other in (of_bpr, uplift.mean(axis=1)):
        assert stats.ttest_rel(mine, other, alternative="greater").pvalue < 1e-3


@pytest.mark.slow
@pytest.mark.verify
@pytest.mark.parametrize("learner", [BPR(**QUICK), RMF(**QUICK)], ids=["bpr", "rmf"])
def test_purchases_are_learnt(learner, world):
    """The accuracy learners' top 10 is bought more than a random list: same test, on the purchases of a new period."""
    control, treated = small_world(N_USERS, N_ITEMS, 7)
    bought = 0.85 * control + 0.15 * treated
    mine = causal_precision(learner.fit_exposures(world[1], seed=1), bought)
    assert stats.ttest_rel(mine, bought.mean(axis=1), alternative="greater").pvalue < 1e-6
    assert mine.mean() > 2 * bought.mean()


def some_model(form, n_users=7, n_items=5, factors=6):
    g = np.random.default_rng(1)
    model = FactorModel.start((n_users, n_items), factors, form, scale=1.0, seed=0)
    for table in (model.users, model.items):
        table[:, : model.factors + 2] = g.normal(size=(len(table), model.factors + 2))
        table[:, factors : model.factors] = 0
    return model


@pytest.mark.parametrize(
    "form",
    [
        FactorModelConfig(),
        FactorModelConfig(response=True),
        FactorModelConfig(apart_items=True),
        FactorModelConfig(True, True, True),
    ],
)
def test_scores_are_the_formula(form):
    model = some_model(form)
    d, n = model.factors, 7
    tables = []
    for table, apart, size in ((model.users, form.apart_users, 7), (model.items, form.apart_items, 5)):
        tables.append((table[:size].astype(float), table[size if apart else 0 :][:size].astype(float)))

    def x(shown):
        p, q = tables[0][shown], tables[1][shown]
        z = shown * form.response
        own = p[:, d] + z * p[:, d + 1]
        return p[:, :d] @ q[:, :d].T + own[:, None] + q[:, d] + z * q[:, d + 1]

    expected = logistic(x(1)) - logistic(x(0)) if form.ranks_by_difference else x(0)
    np.testing.assert_allclose(model.scores(np.arange(n)), expected, atol=3e-6)
    policy = FactorPolicy.of(model, "mine", {})
    users = np.array([3, 10**9, 0])
    policy.reset(users)
    scores = policy.scores(users)
    np.testing.assert_array_equal(scores[[0, 2]], model.scores(np.array([3, 0])))
    assert np.isfinite(scores[1]).all()
    if not form.ranks_by_difference:
        np.testing.assert_allclose(scores[1], expected.mean(axis=0), atol=3e-6)


def test_folding_in_guesses_the_factors_of_training_users():
    """Where users' factors are a linear map of the mean of what they viewed, the map is found."""
    from scipy import sparse

    g = np.random.default_rng(2)
    model = FactorModel.start((400, 30), 4, FactorModelConfig(), scale=1.0, seed=3)
    model.items[:, 4:8] = 0
    views = sparse.csr_array(g.poisson(0.3, (400, 30)))
    n = np.asarray(views.sum(axis=1)).ravel()
    mean = (views @ model.items[:, :4]) / np.maximum(n, 1)[:, None]
    model.users[:, :4] = 0.5 + mean @ g.normal(size=(4, 4))
    rows, intercept = fold_in_rows(model, views)
    guess = (views @ rows) / np.maximum(n, 1)[:, None] + intercept
    spread = model.users[:, :4].std()
    assert np.abs(guess - model.users[:, :8])[n > 0].max() < 0.02 * spread


@pytest.mark.slow
def test_bpr_ranks_new_users_by_their_views():
    """Users of two tastes: a new user's views decide which half of the items comes first."""
    g = np.random.default_rng(4)
    user = np.repeat(np.arange(200), 8)
    item = 20 * (user % 2) + g.integers(0, 20, len(user))
    log = log_of(user, item=item)
    new = np.arange(1000, 1040)
    views = 20 * (new[:, None] % 2) + g.integers(0, 20, (40, 4))
    for spec in ("bpr", "rmf"):
        learner = registry.learner(f"{spec}+updates=50000+factors=8+rate=0.005+batch=200")
        policy = learner.fit(log, n_items=40, seed=0)
        policy.reset(new)
        policy.observe(np.repeat(new, 4), views.ravel())
        best = np.argsort(-policy.scores(new), axis=1)[:, :20]
        own = (best // 20 == new[:, None] % 2).mean(axis=1)
        assert own.mean() > 0.8  # .5 without learning, with a standard error below .02


def test_a_log_of_purchases_is_its_exposures():
    log = purchase_log(small_exposures())
    learner = ULBPR(updates=500, factors=4, batch=100)
    a = learner.fit(log, n_items=12, seed=2)
    b = learner.fit_exposures(small_exposures(), seed=2)
    np.testing.assert_array_equal(a.model.users, b.model.users)

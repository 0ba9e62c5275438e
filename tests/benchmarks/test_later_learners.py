"""CUBN and CIBN against their definition, DLCE's weights."""

import numpy as np
import pytest
from study_modules import study_module

from twins.purchases_log import small_exposures
from twins.training import neighbour_uplift

later = study_module("sato2019", "later_learners")
CIBN, CUBN, DLCE = later.CIBN, later.CUBN, later.DLCE
CERTAIN = small_exposures().with_propensities(np.ones((1, 1, 1)))


def tallies(exposures):
    """Per (user, item): recommended periods, purchases in them, other purchases; periods with a purchase per user."""
    periods, users, items = np.indices((exposures.n_periods, exposures.n_users, exposures.n_items))
    shown, bought = exposures.flags(users, items, periods)
    active = bought.any(axis=2)
    shown = shown & active[:, :, None]
    return shown.sum(0), (shown & bought).sum(0), (bought & ~shown).sum(0), active.sum(0)


def cosines(x):
    norms = np.sqrt((x**2).sum(axis=1))
    return (x @ x.T) / np.maximum(np.outer(norms, norms), 1e-30)


@pytest.mark.parametrize("kind", [CUBN, CIBN])
@pytest.mark.parametrize("similar_by", ["purchases", "treatment"])
@pytest.mark.parametrize("neighbours", [3, 100])
def test_scores_are_the_definition(kind, similar_by, neighbours):
    exposures = small_exposures()
    shown, sold, alone, periods = tallies(exposures)
    similar = (sold + alone if similar_by == "purchases" else shown).astype(float)
    similarity = cosines(similar if kind is CUBN else similar.T)
    learner = kind(neighbours=neighbours, similar_by=similar_by, shrinkage_treated=0.7, shrinkage_control=2.0)
    policy = learner.fit_exposures(exposures)
    users = np.arange(exposures.n_users)
    policy.reset(users)
    scores = policy.scores(users)
    for u in (0, 7, 29):
        for i in range(exposures.n_items):
            own = similarity[u if kind is CUBN else i]
            near = [v for v in np.argsort(-np.round(own, 12), kind="stable") if own[v] > 0][:neighbours]
            if kind is CUBN:
                args = (u, i, near, own[near], shown, sold, alone, periods)
            else:
                n = np.full(exposures.n_items, periods[u])
                args = (i, u, near, own[near], shown.T, sold.T, alone.T, n)
            assert scores[u, i] == pytest.approx(neighbour_uplift(*args, (0.7, 2.0)), abs=1e-6)


def test_dlce_weights_by_clipped_propensities():
    trainer = DLCE(chi=0.25).trainer(CERTAIN)
    _, _, part = later.item_columns(trainer.plan.observed)
    weights = trainer.loss.signed[part != 4]
    assert np.abs(weights).mean() == pytest.approx(1.0, rel=1e-6)
    assert np.unique(np.round(weights / weights.max(), 6)).size == 2
    assert np.abs(weights).max() / np.abs(weights).min() == pytest.approx(4.0, rel=1e-6)

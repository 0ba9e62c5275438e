"""Training of factor models: gradients, optimisers, and where they diverge."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.agents.purchases import _training_kernel as kernel
from recsim_mnar.agents.purchases.factor_policy import FactorModel, FactorModelConfig
from recsim_mnar.agents.purchases.learners import BPR, RMF, ULBPR, ULRMF, CausE, CausEProd, RecResp
from recsim_mnar.agents.purchases.training import DISTANCES, Observed, Trainer
from toys import refused
from twins import training as twin
from twins.cases import quick_first
from twins.purchases_log import small_exposures

FACTORS = 5
N = 25
PENALTIES = (np.float32(0.03), np.float32(0.07))
FORMS = (
    (FactorModelConfig(), "l2"),
    (FactorModelConfig(response=True), "l2"),
    (FactorModelConfig(apart_users=True, apart_items=True), "l1"),
    (FactorModelConfig(apart_users=True, apart_items=True), "l2"),
    (FactorModelConfig(apart_items=True), "l2"),
    (FactorModelConfig(apart_items=True), "cosine"),
)


def some_model(form, seed=0):
    """Tables with every free place filled, responses only where the form has them."""
    g = np.random.default_rng(seed)
    model = FactorModel.start((6, 9), FACTORS, form, scale=0.5, seed=seed)
    for table in (model.users, model.items):
        table[:, :FACTORS] = g.normal(size=(len(table), FACTORS)) * 0.6
        table[:, model.factors] = g.normal(size=len(table))
        if form.response:
            table[:, model.factors + 1] = g.normal(size=len(table))
    return model


def gathering(model, n):
    arrays = []
    for table in (model.users, model.items):
        arrays += [
            np.full(len(table), -1, np.int32),
            np.zeros(2 * n, np.int64),
            np.ones((2 * n, table.shape[1]), np.float32),
        ]
    return tuple(arrays)


def spread(gathered, counts, model):
    """What was gathered, as dense tables, and the rows that were touched."""
    out, touched = [], []
    for t, table in enumerate((model.users, model.items)):
        rows, gradient = gathered[3 * t + 1][: counts[t]], gathered[3 * t + 2][: counts[t]]
        dense = np.zeros(table.shape)
        dense[rows] = gradient
        assert len(set(rows.tolist())) == len(rows)
        out.append(dense)
        touched.append(set(rows.tolist()))
    return out, touched


def drawn_samples(seed=3, n=N):
    g = np.random.default_rng(seed)
    users, ones, others = g.integers(0, 6, n), g.integers(0, 9, n), g.integers(0, 9, n)
    parts = 2 ** g.integers(0, 4, n)
    kinds = (np.int32, np.int32, np.int32, np.int32, np.int32, np.int64)
    arrays = (users, ones, others, np.zeros(n), parts, np.arange(n))
    room = (np.zeros(0, np.int32), np.zeros((0, 4), np.uint32), np.zeros(0, np.int64))  # of who draws
    return *(array.astype(kind) for array, kind in zip(arrays, kinds, strict=True)), *room


def check_against_slopes(loss, model, dense, touched):
    tables = [model.users.astype(np.float64), model.items.astype(np.float64)]
    rows = [(t, row) for t in (0, 1) for row in touched[t]]
    for (t, row), expected in twin.slopes(loss, tables, rows).items():
        # float32 sums of up to N terms, each rounded to 6e-8 of its size
        np.testing.assert_allclose(dense[t][row], expected, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_gradient_of_pairs(weighted):
    model, drawn = some_model(FactorModelConfig()), drawn_samples()
    signed = np.random.default_rng(8).normal(size=N).astype(np.float32) if weighted else np.zeros(0, np.float32)
    gathered = gathering(model, N)
    n_u, n_i, bad = kernel.pair_gradients(
        model.users, model.items, model.factors, drawn, signed, N, PENALTIES, gathered
    )
    assert bad == -1
    dense, touched = spread(gathered, (n_u, n_i), model)
    weights = signed if weighted else np.ones(N)
    samples = list(zip(*drawn[:3], weights.astype(float), strict=True))
    assert touched == [set(drawn[0].tolist()), {*drawn[1].tolist(), *drawn[2].tolist()}]
    check_against_slopes(
        lambda users, items: twin.pair_loss(users, items, model.factors, samples, PENALTIES), model, dense, touched
    )


@pytest.mark.parametrize(
    ("form", "distance", "label"),
    quick_first([*((*form, -1) for form in FORMS), (FactorModelConfig(), "l2", 0), (FactorModelConfig(), "l2", 1)], 4),
)
def test_gradient_of_points(form, distance, label):
    model, drawn = some_model(form), drawn_samples()
    between = 0.2 if form.apart_items else 0.0
    gathered = gathering(model, N)
    code = (np.array([label]), int(form.response), 6 * form.apart_users, 9 * form.apart_items, DISTANCES[distance])
    n_u, n_i, bad = kernel.point_gradients(
        model.users, model.items, model.factors, drawn, N, code, PENALTIES, np.float32(between), gathered
    )
    assert bad == -1
    dense, touched = spread(gathered, (n_u, n_i), model)
    shown = np.isin(drawn[4], (2, 4)).astype(int)
    labels = np.isin(drawn[4], (1, 2)).astype(int) if label < 0 else np.full(N, label)
    samples = list(zip(drawn[0], drawn[1], shown, labels, strict=True))

    def loss(users, items):
        return twin.point_loss(users, items, model.factors, samples, form, PENALTIES, between, distance)

    check_against_slopes(loss, model, dense, touched)


def twin_gradients(trainer, samples, tables):
    """Gradients of a batch's mean pair loss, by central differences."""
    d, penalties = trainer.model.factors, (trainer.settings.penalty, trainer.settings.bias_penalty)

    def loss(users, items):
        return twin.pair_loss(users, items, d, samples, penalties) / len(samples)

    rows = {(0, int(u)) for u, _, _, _ in samples} | {(1, int(x)) for _, i, j, _ in samples for x in (i, j)}
    return twin.slopes(loss, tables, sorted(rows))


def test_steps_of_a_batch_are_the_twins():
    exposures = small_exposures(8, 6)
    learner = ULBPR(factors=3, batch=8, rate=0.05, penalty=0.01, bias_penalty=0.2)
    trainer = learner.trainer(exposures, seed=2)
    tables = [trainer.model.users.astype(float), trainer.model.items.astype(float)]
    adams = [twin.Adam(table.shape, 0.05) for table in tables]
    for batch in range(6):
        users, ones, others, *_ = trainer.plan.draw(trainer._draw_seed, 8 * batch, 8)
        samples = list(zip(users, ones, others, np.ones(8), strict=True))
        for (t, row), gradient in twin_gradients(trainer, samples, tables).items():
            adams[t].step(tables[t], row, gradient)
    assert trainer.advance(48) is None
    # Adam divides a gradient by its own size: where it nearly vanishes, rounding decides; such places are few.
    for mine, expected in zip((trainer.model.users, trainer.model.items), tables, strict=True):
        off = np.abs(mine - expected) > 2e-5
        assert off.mean() < 0.02
        np.testing.assert_allclose(mine[~off], expected[~off], atol=2e-5)


LEARNERS = [
    BPR(factors=6, batch=50, rate=0.01),
    BPR(factors=6, batch=1, rate=0.01),
    RMF(factors=6, batch=50, rate=0.01),
    ULRMF(factors=6, batch=50, rate=0.01),
    ULBPR(factors=6, batch=50, rate=0.01),
    RecResp(factors=6, batch=50, rate=0.01),
    CausE(factors=6, batch=50, rate=0.01, distance="l1"),
    CausEProd(factors=6, batch=50, rate=0.01, distance="cosine"),
]


def same(a, b):
    return a.users.tobytes() == b.users.tobytes() and a.items.tobytes() == b.items.tobytes()


@pytest.mark.parametrize("learner", LEARNERS, ids=lambda x: f"{x.name}-{x.batch}")
def test_in_one_go_and_in_steps_give_the_same_bytes(learner):
    exposures = small_exposures()
    whole, steps = learner.trainer(exposures, seed=5), learner.trainer(exposures, seed=5)
    whole.advance(4000)
    for advanced in (1000, 2000, 4000):
        steps.advance(advanced - steps.updates)
        assert steps.updates == advanced
    assert same(steps.model, whole.model)
    other = learner.trainer(exposures, seed=6)
    other.advance(4000)
    assert not same(other.model, whole.model)


def test_trainings_side_by_side_do_not_disturb_each_other():
    from concurrent.futures import ThreadPoolExecutor

    exposures = small_exposures()
    learners = [ULBPR(factors=6, batch=50, rate=0.01, updates=20_000) for _ in range(4)]
    alone = [learner.trainer(exposures, seed=k).run(20_000) for k, learner in enumerate(learners)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda k: learners[k].trainer(exposures, seed=k).run(20_000), range(4)))
    assert all(same(a, b) for a, b in zip(alone, together, strict=True))


@pytest.mark.parametrize("batch", [1, 50])
def test_divergence_stops_with_one_line(batch):
    learner = BPR(factors=4, batch=batch, rate=100.0, updates=50_000)
    with refused(r"bpr: training diverged at update \d+ with learning rate 100: lower the rate") as e:
        learner.fit_exposures(small_exposures())
    assert "\n" not in str(e.value)


def test_start_is_addressed_by_user_and_item():
    observed = Observed.of(small_exposures().classes())
    learner = BPR(factors=6)
    trainer = Trainer(learner.plan(observed), learner.loss(observed), learner.settings, 9)
    again = FactorModel.start((3, 4), 6, FactorModelConfig(), scale=learner.settings.scale / np.sqrt(6), seed=9)
    np.testing.assert_array_equal(trainer.model.users[:3], again.users)
    np.testing.assert_array_equal(trainer.model.items[:4], again.items)
    assert trainer.model.users[:, 6:].any() == np.False_

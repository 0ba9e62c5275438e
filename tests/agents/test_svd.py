from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from recsim_mnar.agents.factors.svd import SVD, right_singular_vectors
from recsim_mnar.log.views import view_counts
from twins.cases import quick_first
from twins.logs import random_log


def captured(matrix, vectors):
    return np.square(matrix @ vectors.T.astype(np.float64)).sum()


@pytest.mark.parametrize(("shape", "rank"), [((300, 200), 12), ((150, 400), 30), ((40, 500), 8), ((500, 40), 60)])
def test_against_the_whole_decomposition(shape, rank):
    generator = np.random.default_rng(sum(shape))
    matrix = generator.poisson(0.08 * generator.random(shape[1]) / generator.random((shape[0], 1)) ** 0.5)
    vectors = right_singular_vectors(sparse.csr_array(matrix), rank)
    _, values, expected = np.linalg.svd(matrix.astype(float), full_matrices=False)
    kept = min(rank, np.linalg.matrix_rank(matrix))
    assert vectors.shape == (kept, shape[1])
    assert vectors.dtype == np.float32
    assert captured(matrix, vectors) == pytest.approx(np.square(values[:kept]).sum(), rel=1e-6)
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(kept), atol=2e-6)
    overlap = np.abs(np.einsum("ij,ij->i", vectors, expected[:kept]))
    gaps = np.minimum(-np.diff(values, append=0.0), -np.diff(values, prepend=np.inf))[:kept] / values[0]
    assert np.all(overlap[gaps > 1e-3] > 1 - 1e-5)


def test_signs_and_draws_are_settled():
    matrix = sparse.csr_array(np.random.default_rng(0).poisson(0.1, (200, 120)))
    first = right_singular_vectors(matrix, 5, seed=1)
    np.testing.assert_array_equal(first, right_singular_vectors(matrix, 5, seed=1))
    np.testing.assert_allclose(first, right_singular_vectors(matrix, 5, seed=2), atol=1e-4)
    assert np.all(first[np.arange(5), np.abs(first).argmax(axis=1)] > 0)


@pytest.mark.parametrize("kind", ["one view each", "identity", "low rank", "one cell"])
def test_repeated_and_missing_values(kind):
    generator = np.random.default_rng(3)
    matrix = np.zeros((300, 200), int)
    if kind == "one view each":
        matrix[np.arange(300), generator.integers(0, 40, 300)] = 1
    elif kind == "identity":
        matrix[np.arange(200), np.arange(200)] = 1
    elif kind == "low rank":
        matrix += np.outer(generator.integers(0, 2, 300), generator.integers(0, 2, 200))
        matrix += np.outer(generator.integers(0, 2, 300), generator.integers(0, 2, 200))
    else:
        matrix[3, 4] = 2
    vectors = right_singular_vectors(sparse.csr_array(matrix), 30)
    values = np.linalg.svd(matrix, compute_uv=False)
    assert len(vectors) == min(30, np.linalg.matrix_rank(matrix))
    assert captured(matrix, vectors) == pytest.approx(np.square(values[:30]).sum(), rel=1e-6)


def test_scores_project_the_counts():
    log = random_log(5, 90, 70, 12)
    policy = SVD(rank=6).fit(log, n_items=70)
    vectors = right_singular_vectors(view_counts(log, 70)[0], 6)
    views = np.array([1, 1, 8, 30])
    policy.reset(np.array([0]))
    policy.observe(np.zeros(4, int), views)
    counts = np.bincount(views, minlength=70)
    np.testing.assert_allclose(policy.scores(np.array([0]))[0], counts @ vectors.T @ vectors, atol=1e-5)


@pytest.mark.parametrize("tolerance", quick_first([0.05, 1e-4]))
def test_captured_energy_falls_short_by_the_square_of_the_tolerance(tolerance):
    counts, _ = view_counts(random_log(3, 300, 203, 40, power=2.0), 203)
    found = right_singular_vectors(counts, 20, tolerance=tolerance)
    dense = counts.toarray().astype(float)
    exact = np.linalg.svd(dense, full_matrices=False)[2][:20]
    lost = 1.0 - np.square(dense @ found.T).sum() / np.square(dense @ exact.T).sum()
    assert lost < 2 * tolerance**2 + 1e-6  # and what float32 rounds
    assert np.all(found[np.arange(20), np.abs(found).argmax(axis=1)] > 0)

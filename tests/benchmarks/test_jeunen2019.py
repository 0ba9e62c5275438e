"""The benchmark of Jeunen et al. 2019: the authors' stream of draws, their interval, their agents, and the page."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse, stats

from recsim_mnar.policy import registry
from recsim_mnar.protocols.leave_one_out import leave_one_out
from recsim_mnar.protocols.off_policy import off_policy

FOLDER = Path(__file__).parents[2] / "benchmarks" / "jeunen2019"


@pytest.fixture
def study(monkeypatch):
    """The modules of the benchmark's folder, forgotten afterwards: other benchmarks have modules of these names."""
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("analysis", "tables", "july", "authors", "claims", "run")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


def test_the_first_rows_are_those_that_the_notebook_prints(study):
    """Cell 2 of the notebook: its first user's seven views and thirteen recommendations, none clicked."""
    july = study["july"]
    log = july.lived(july.July(2000), 1, july.uniform(2000))
    assert log["item"][:7].tolist() == [445, 567, 1196, 285, 1116, 1658, 199]
    shown = [1367, 1086, 1698, 1513, 134, 1056, 1751, 725, 612, 1028, 870, 1881, 1598]
    assert log["action"][7:20].tolist() == shown
    assert log["reward"][7:20].tolist() == [0.0] * 13
    assert log["propensity"][7:20].tolist() == [0.0005] * 13


class Scripted:
    """An environment whose sessions, clicks and states are given; it draws nothing."""

    draws = None

    def __init__(self, sessions, clicks, states):
        self.sessions, self.clicks, self.states = list(sessions), list(clicks), list(states)

    def begin(self, user):
        self.state = 0

    def browse(self):
        if self.state != 0:
            return []
        session, self.state = self.sessions.pop(0)
        return session

    def click(self, item):
        return self.clicks.pop(0)

    def move(self):
        self.state = self.states.pop(0)


@pytest.mark.parametrize(
    ("sessions", "clicks", "states", "rows"),
    [
        # Leaves after a recommendation: that row is the last, and there is none after it.
        ([([5], 1)], [False, False], [1, 2], "vrr"),
        # Leaves while browsing again: the second session is not logged.
        ([([5], 1), ([6, 6], 2)], [False], [0], "vr"),
        # The same after a click, which brings the user back whatever was drawn: the last row holds the click.
        ([([5], 1), ([6], 2)], [True], [2], "vR"),
        # Leaves while browsing at first: the session is logged, and one recommendation follows.
        ([([5, 7], 2)], [False], [2], "vvr"),
        # A click on that recommendation brings the user back.
        ([([5], 2), ([6], 1)], [True, False], [2, 2], "vRvr"),
    ],
)
def test_what_july_logs_of_a_user(study, sessions, clicks, states, rows):
    log = study["july"].lived(Scripted(sessions, clicks, states), 1, lambda views, draws: (0, 1.0))
    kinds = np.where(log.is_bandit, np.where(log["reward"] == 1, "R", "r"), "v")
    assert "".join(kinds) == rows
    assert log["step"].tolist() == list(range(len(rows)))


def test_partners_are_a_walk_down_all_inner_products(study):
    """The plain walk over sorted pairs, an item with itself among them at 0."""
    factors = np.random.default_rng(1).normal(size=(13, 2))
    partner = study["july"].flipped(factors)
    pairs = sorted(
        ((0.0 if i == j else factors[i] @ factors[j], i, j) for i in range(13) for j in range(i + 1)), reverse=True
    )
    expected, left = list(range(13)), 6
    used: set[int] = set()
    for _, i, j in pairs:
        if left and not used & {i, j}:
            expected[i], expected[j] = j, i
            used |= {i, j}
            left -= 1
    assert partner.tolist() == expected


@pytest.fixture
def logs(study):
    """Training and test logs of the authors' environment with 40 items."""
    july = study["july"]
    env = july.July(40)
    return [july.lived(env, n, choose) for n, choose in ((50, july.uniform(40)), (60, july.user_popularity()))]


def test_the_papers_interval_takes_the_unclipped_weights(study, logs):
    """Cell 7 of the notebook by hand, on a log where clipping binds."""
    train, log = logs
    policy = registry.learner("svd").fit(train, n_items=40)
    found = {
        r.metric: r.to_dict() for r in off_policy(log, {"svd": policy}, estimators=("clipped_ips", "ips"), clip=3.0)
    }
    low, high = study["analysis"].paper_interval(found["clipped_ips"], found["ips"])
    shown = log.is_bandit
    target, reward = np.zeros(shown.sum()), log["reward"][shown]
    place, user = 0, -1
    for row in range(len(log)):
        if log["user"][row] != user:
            user = log["user"][row]
            policy.reset(np.array([user]))
        if shown[row]:
            target[place] = policy.probabilities(np.array([user]))[0, log["action"][row]]
            place += 1
        else:
            policy.observe(np.array([user]), log["item"][row : row + 1])
    weight = target / log["propensity"][shown]
    assert weight.max() > 3.0
    n = int(len(weight) * weight.mean() ** 2 / (weight**2).mean())
    capped = reward * np.minimum(weight, 3.0)
    half = stats.t.ppf(1 - 0.00125, n - 1) * capped.std() / np.sqrt(n)
    assert (low, high) == pytest.approx((capped.mean() - half, capped.mean() + half), rel=1e-9)


def plain_user_scores(counts, views, k):
    """The nearest users by cosine distance, ties by index, each times its distance."""
    own = np.bincount(views, minlength=counts.shape[1])
    lengths = np.linalg.norm(counts, axis=1) * np.linalg.norm(own)
    distance = 1.0 - counts @ own / lengths
    nearest = sorted(range(len(counts)), key=lambda u: (round(distance[u], 12), u))[:k]
    return sum(distance[u] * counts[u] for u in nearest)


def test_the_notebooks_neighbours_by_their_definition(study):
    generator = np.random.default_rng(5)
    counts = (generator.random((12, 9)) < 0.3) * generator.integers(1, 4, (12, 9))
    counts[:, 8] += counts.sum(axis=1) == 0
    views = [1, 4, 1, 7]
    matrix = sparse.csr_array(counts)
    by_user = study["authors"].user_scores(matrix, 4, order=np.arange(12))(views)
    assert by_user == pytest.approx(plain_user_scores(counts, views, 4))
    lengths = np.maximum(np.linalg.norm(counts, axis=0), 1e-300)
    cosine = counts.T @ counts / lengths / lengths[:, None]
    expected = np.zeros(9)
    for item in views:
        for other in np.argsort(-cosine[item])[:5]:
            expected[other] += cosine[item, other]
    assert study["authors"].item_scores(matrix, 5)(views) == pytest.approx(expected)


def test_best_shows_the_first_of_equal_items(study):
    policy = study["authors"].Best(lambda views: np.bincount(views, minlength=4), 4, "counts")
    users = np.array([3, 8])
    policy.reset(users)
    policy.observe(np.array([3, 3, 8]), np.array([2, 1, 3]))
    assert policy.act(users, np.zeros(2))[0].tolist() == [1, 3]
    policy.observe(np.array([3]), np.array([2]))
    assert policy.propensity_of(users, np.array([2, 0])).tolist() == [1.0, 0.0]


def test_expected_hit_rate_is_exhaustive_leave_one_out(study, logs):
    train, log = logs
    learner = registry.learner("user-popularity")
    found = study["authors"].hit_rate(log, learner.fit(train, n_items=40))
    (record, *_) = leave_one_out(
        log, {"one": learner}, n_items=40, exhaustive=True, train=train, one_view="miss", ties="lowest"
    )
    assert found["hr@1"] == pytest.approx(record.value, abs=1e-12)
    assert found["one_view"] == pytest.approx(record.details["users_missed"] / record.n)


def test_logs_are_taken_up_where_the_stream_was_left(study, tmp_path):
    july, authors = study["july"], study["authors"]
    sizes = {"train": 5, "uniform": 4, "user-popularity": 3}
    whole = authors.logs_of(july.July(30), sizes, tmp_path)
    (tmp_path / "user-popularity.npz").unlink()
    again = authors.logs_of(july.July(30), sizes, tmp_path)
    for name, log in whole.items():
        for column in log.columns:
            np.testing.assert_array_equal(log[column], again[name][column])


def test_a_kept_part_leaves_the_others_and_makes_the_page(study, tmp_path):
    tables = study["tables"]
    results = json.loads((FOLDER / "results.json").read_text())
    for section, found in results.items():
        tables.keep(section, found, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert (tmp_path / "results.md").read_text() == (FOLDER / "results.md").read_text()


def test_a_wrong_digit_is_short(study):
    tables = study["tables"]
    published = json.loads((FOLDER / "published.json").read_text())
    authors = json.loads((FOLDER / "results.json").read_text())["authors"]

    def verdict():
        rows = {row.quantity: row.holds for row in tables.notebook(authors, published)}
        return rows["clipped IPS of svd"], rows["A/B CTR of svd"]

    assert verdict() == (True, True)
    authors["agents"]["svd"]["clipped_ips"][0] += 2e-6
    assert verdict() == (False, True)
    authors["agents"]["svd"]["ctr"][1] += 3e-6
    assert verdict() == (False, False)

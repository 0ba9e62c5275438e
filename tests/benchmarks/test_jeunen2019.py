"""The benchmark of Jeunen et al. 2019: the authors' stream of draws, their interval, their selection, and the page."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from recsim_mnar.policies import registry
from recsim_mnar.protocols.off_policy import off_policy
from recsim_mnar.replays.probabilities import replay

FOLDER = Path(__file__).parents[2] / "benchmarks" / "jeunen2019"


@pytest.fixture
def study(modules_of):
    return modules_of("jeunen2019", "analysis", "tables", "july", "authors", "claims", "run")


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
    weight = replay(log, policy)[shown] / log["propensity"][shown]
    assert weight.max() > 3.0
    n = int(len(weight) * weight.mean() ** 2 / (weight**2).mean())
    capped = log["reward"][shown] * np.minimum(weight, 3.0)
    half = stats.t.ppf(1 - 0.00125, n - 1) * capped.std() / np.sqrt(n)
    assert (low, high) == pytest.approx((capped.mean() - half, capped.mean() + half), rel=1e-9)


SCALAR = """
import sys
import numpy as np
for line in sys.stdin:
    k, *values = line.split()
    print(*np.argpartition(np.array(values, float), int(k) - 1)[: int(k)])
"""


def test_of_equal_distances_those_are_taken_that_numpy_takes_without_vector_instructions(study):
    """On any machine; with AVX ``argpartition`` takes others, and user-kNN's digits are not the notebook's."""
    generator, cases = np.random.default_rng(2), []
    for n in (6, 9, 30, 200, 2000):
        for share in (0.0, 0.5, 0.98):
            values = np.where(generator.random(n) < share, 1.0, generator.integers(0, 40, n) / 40)
            cases += [(k, values) for k in (1, 3, 5, n // 4 + 1, n - 1)]
    core = "numpy._core" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core"
    multiarray = importlib.import_module(f"{core}._multiarray_umath")
    enabled = [name for name in multiarray.__cpu_dispatch__ if multiarray.__cpu_features__[name]]
    lines = "\n".join(" ".join([str(k), *map(repr, values.tolist())]) for k, values in cases)
    ran = subprocess.run(
        [sys.executable, "-c", SCALAR], input=lines, capture_output=True, text=True, check=True,
        env={**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(enabled)},
    )  # fmt: skip
    for (k, values), line in zip(cases, ran.stdout.splitlines(), strict=True):
        assert study["authors"].smallest(values, k).tolist() == [int(place) for place in line.split()]


def test_all_that_the_notebooks_seeds_settle_agrees_to_the_printed_digit(study):
    """Its 24 rows but Random's A/B test and the draws of Figure 1; the page as committed."""
    published = json.loads((FOLDER / "published.json").read_text())
    results = json.loads((FOLDER / "results.json").read_text())
    rows = list(study["tables"].notebook(results["authors"], published))
    assert all(row.holds for row in rows)
    open_ones = [row.quantity for row in rows if not row.ours.startswith(row.published)]
    assert open_ones == [*(f"HR@1 of {name}" for name in published["agents"]), "A/B CTR of random"]
    quantities = [row.quantity for row in study["tables"].claims(results, published)]
    assert len(set(quantities)) == len(quantities)


def test_a_kept_part_leaves_the_others_and_makes_the_page(study, tmp_path):
    tables = study["tables"]
    results = json.loads((FOLDER / "results.json").read_text())
    for section, found in results.items():
        tables.keep(section, found, tmp_path)
    assert json.loads((tmp_path / "results.json").read_text()) == results
    assert (tmp_path / "results.md").read_text() == (FOLDER / "results.md").read_text()

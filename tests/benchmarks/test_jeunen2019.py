"""The benchmark of Jeunen et al. 2019: the authors' stream of draws, their interval, their agents, and the page."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse, stats

from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.off_policy import off_policy

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


def test_expected_hit_rate_is_cell_five_by_hand(study, logs):
    """An agent acts on what is left of a user's views, if it is nothing; the last user is never judged."""
    train, log = logs
    july = study["july"]
    short = july.lived(Scripted([([i], 1) for i in (0, 3, 0)], [False] * 3, [2] * 3), 3, lambda views, draws: (0, 1.0))
    short = short.with_column("user", short["user"] + 100)
    log = Log.concat([log, short])  # three users of one view, two of item 0, which ties go to; the last is not judged
    policy = registry.learner("user-popularity").fit(train, n_items=40)
    expected = []
    for user in log.users()[:-1]:
        views = log["item"][(log["user"] == user) & ~log.is_bandit]
        hits = []
        for held in range(len(views)):
            rest = np.bincount(np.delete(views, held), minlength=40)
            hits.append(np.argmax(rest) == views[held])
        expected.append(np.mean(hits))
    found = study["authors"].hit_rate(log, policy)
    rate = np.mean(expected)
    half = 1.96 * np.sqrt(rate * (1 - rate) / (10 * len(expected)))
    assert found["hr@1"] == pytest.approx([rate, rate - half, rate + half], abs=1e-12)
    assert found["trials"] == 10 * len(expected)
    assert found["hr@1_one_view_missed"] < found["hr@1"][0]


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


def test_the_selection_in_plain_python(study):
    """The compiled kernel's own source, run by Python; the front holds the k smallest."""
    select = sys.modules["_select_kernel"].select
    values = np.random.default_rng(3).integers(0, 7, 60).astype(float)
    left, place = values.copy(), np.arange(60)
    assert select.py_func(left, place, 20)
    assert place[:20].tolist() == study["authors"].smallest(values, 20).tolist()
    assert sorted(values[place[:20]]) == sorted(values)[:20]
    np.testing.assert_array_equal(left, values[place])


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


def test_a_change_of_means_and_its_interval(study):
    """Twice as much in every catalogue is +100 % without error; the limits are the paired ones to first order."""
    change = study["analysis"].ratio_of_means
    assert change([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]) == pytest.approx({"mean": 1.0, "low": 1.0, "high": 1.0})
    generator = np.random.default_rng(7)
    x = generator.normal(10, 0.1, 50)
    y = x * (1 + 0.02) + generator.normal(0, 0.01, 50)
    found, by_hand = change(y, x), stats.ttest_1samp(y / x - 1, 0).confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx(tuple(by_hand), abs=2e-5)


def test_coverage_counts_catalogues_not_cells(study, monkeypatch):
    """The agents of a catalogue are not independent cases: the interval is that of one share per catalogue."""
    analysis = study["analysis"]
    agents = ["random", "item-knn"]
    cells = {}
    for agent, high in zip(agents, (0.5, 2.0), strict=True):
        limits = {"target_low": 0.0, "target_high": high, "sampling_high": high}
        row = {"value": 1.0, "low": 0.0, "high": high, "details": {"row_sd": 0.0, "kish": 10.0, **limits}}
        for protocol, metric in (("ab_test", "ctr"), ("truth", "ctr"), ("off_policy", "clipped_ips")):
            cells[agent, protocol, metric] = {**row, "value": 1.0}
        cells[agent, "off_policy", "clipped_ips"]["value"] = high
        for protocol in ("paper", "loocv"):
            cells[agent, protocol, "hr@1"] = {**row, "value": high}
    cells["item-knn", "ab_test", "ctr"]["value"], cells["item-knn", "truth", "ctr"]["value"] = 1.5, 1.2
    monkeypatch.setattr(analysis, "_theirs", lambda cells, agent: analysis._ours(cells, agent))
    found = analysis.observations([cells] * 6, agents, "paper")
    assert (found["holds ours"]["mean"], found["holds the true CTR ours"]["mean"]) == (0.5, 0.5)
    assert found["holds ours"] == analysis.over_catalogues([0.5] * 6, 0.0, 1.0)
    assert found["ratio leave-one-out"]["median"] == pytest.approx(2.0 / 0.5 / 1.5)


def test_observation_1_does_not_hold_for_the_truth_itself(study):
    """Near equals make the true CTRs differ from an A/B test; leave-one-out must differ by more."""
    analysis, tables = study["analysis"], study["tables"]
    agents = ["random", "item-knn", "svd"]

    def catalogue(hits):
        cells = {}
        for agent, ctr, true, hit in zip(agents, (0.1, 0.3, 0.2), (0.1, 0.2, 0.3), hits, strict=True):
            row = {
                "value": true,
                "low": 0.0,
                "high": 1.0,
                "details": {"row_sd": 0.0, "kish": 10.0, "sampling_high": true, "target_low": 0.0, "target_high": 1.0},
            }
            keys = (("truth", "ctr"), ("off_policy", "clipped_ips"), ("off_policy", "ips"))
            cells |= {(agent, *key): row for key in keys}
            cells[agent, "ab_test", "ctr"] = {**row, "value": ctr}
            cells |= {(agent, protocol, "hr@1"): {**row, "value": hit, "high": hit} for protocol in ("paper", "loocv")}
        return cells

    as_the_truth, reversed_ = (
        analysis.observations([catalogue(hits)] * 6, agents, "paper") for hits in ((0.1, 0.2, 0.3), (0.3, 0.2, 0.1))
    )
    assert as_the_truth["same ranking leave-one-out"]["share"] == 0  # the check of old: another ranking, PASS
    assert as_the_truth["tau truth"]["mean"] == pytest.approx(1 / 3)
    assert tables.observation_1_ranking(as_the_truth, "").holds is False
    assert tables.observation_1_ranking(reversed_, "").holds is True


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
    authors["agents"]["svd"]["ctr"][1] += 1e-6
    assert verdict() == (False, False)


def test_values_are_compared_with_values_and_upper_bounds_with_upper_bounds(study, monkeypatch):
    """Leave-one-out is right by its values and wrong by its bounds, clipped IPS the other way round."""
    analysis = study["analysis"]
    agents, right, wrong = ["random", "item-knn", "svd"], [1.0, 2.0, 3.0], [3.0, 2.0, 1.0]
    cells = {}
    for k, agent in enumerate(agents):
        limits = {"target_low": 0.0, "target_high": right[k], "sampling_high": right[k]}
        clipped = {"value": wrong[k], "details": limits}
        hits = {"value": right[k], "high": wrong[k]}
        cells |= {(agent, protocol, "ctr"): {"value": right[k]} for protocol in ("ab_test", "truth")}
        cells |= {(agent, protocol, "hr@1"): hits for protocol in ("paper", "loocv")}
        cells[agent, "off_policy", "clipped_ips"] = clipped
    monkeypatch.setattr(analysis, "_theirs", lambda cells, agent: analysis._ours(cells, agent))
    found = analysis.observations([cells] * 3, agents, "paper")
    taus = {ours: found[analysis.less(ours, theirs)]["mean"] for ours, theirs in analysis.LIKE_WITH_LIKE}
    assert taus == {"clipped IPS": -2.0, "upper bounds": 2.0}


def test_an_estimate_that_ranks_no_better_is_not_called_better(study):
    """By values clipped IPS is above leave-one-out in none of the three sets; by upper bounds in two of them."""
    results = json.loads((FOLDER / "results.json").read_text())
    published = json.loads((FOLDER / "published.json").read_text())
    tables = study["tables"]
    found = {row.quantity: row.holds for row in tables.observations(results["catalogues"], published)}
    for label, holds in (("values", (False, False, False)), ("upper bounds", (True, True, False))):
        sets = (tables.TRAINED, tables.NOTEBOOK, tables.DESCRIBED)
        assert tuple(found[f"abstract, {label} (methods: {name})"] for name in sets) == holds
    rows = [results["catalogues"]["observations"][name] for name in (tables.TRAINED, tables.NOTEBOOK, tables.DESCRIBED)]
    assert [round(row["tau clipped IPS"]["mean"], 2) for row in rows] == [0.80, 0.74, 0.51]
    assert [round(row["tau leave-one-out"]["mean"], 2) for row in rows] == [0.78, 0.74, 0.67]


def test_the_nominal_level_is_judged_by_the_true_rate(study):
    """Of A/B rates, which have an error too, 93 of 96 would contradict 99.75 %; of the true rates 95 do not."""
    tables = study["tables"]
    results = json.loads((FOLDER / "results.json").read_text())
    published = json.loads((FOLDER / "published.json").read_text())
    rows = {
        row.quantity.split(" (")[0]: row
        for row in tables.observations(results["catalogues"], published)
        if row.quantity.startswith("observation 2, coverage, agents")
    }
    held, missed = rows["observation 2, coverage, agents that the log supports"], list(rows.values())[1]
    assert (held.holds, missed.holds) == (True, False)
    assert "95 of 96" in held.ours
    assert held.remark != missed.remark
    assert stats.binomtest(93, 96, tables.NOMINAL, alternative="less").pvalue < 0.05
    assert stats.binomtest(95, 96, tables.NOMINAL, alternative="less").pvalue == pytest.approx(0.21, abs=0.01)


def test_our_interval_allows_for_what_clipping_hides(study, logs):
    """Of a log that hardly shows what an agent would: the record's own limits are of the sampling part alone."""
    train, log = logs
    policy = registry.learner("popularity").fit(train, n_items=40)
    (record,) = off_policy(log, {"popularity": policy}, estimators=("clipped_ips",), clip=3.0)
    low, high = study["analysis"]._ours({("popularity", "off_policy", "clipped_ips"): record.to_dict()}, "popularity")
    assert low <= record.value
    assert high > 2 * record.high


def test_clipped_ips_with_each_largest_weight_is_that_of_an_estimate_of_its_own(study, logs, monkeypatch):
    """Of one replay, what each M says is the estimate with that M; none is IPS."""
    claims, (train, log) = study["claims"], logs
    monkeypatch.setattr(claims, "policies_on_log", lambda *_: None)
    policies = {"svd": registry.learner("svd").fit(train, n_items=40)}
    asked = SimpleNamespace(
        log=lambda: log, world=None, policies=policies, logging_policy=None, test_seed=0,
        settings=SimpleNamespace(clip=15.0),
    )  # fmt: skip
    judged = claims.EveryClip()
    (own,) = judged.judge(asked)
    assert own.value == judged.found["15"]["svd"][0]
    for clip in claims.CLIPS:
        (alone,) = off_policy(log, policies, estimators=("clipped_ips",), clip=clip)
        assert judged.found[f"{clip:g}"]["svd"][0] == alone.value
    (ips,) = off_policy(log, policies, estimators=("ips",))
    assert judged.found[claims.NO_CLIP]["svd"][0] == ips.value
    values = [judged.found[f"{clip:g}"]["svd"][0] for clip in claims.CLIPS]
    assert values == sorted(values)
    assert values[0] < values[-1] <= ips.value


def test_a_largest_weight_is_right_where_all_agents_are_near_their_true_rate(study, monkeypatch):
    """An agent with half its rate at M = 1 and the whole of it at 15; one that the log never shows has none at any."""
    claims, tables = study["claims"], study["tables"]
    clips = {
        "1": {"seen": [0.005, 0.0, 0.02], "unseen": [0.0001, 0.0, 0.01]},
        "15": {"seen": [0.0095, 0.0, 0.02], "unseen": [0.0002, 0.0, 0.01]},
    }
    one = {"clips": clips, "ctr": {"seen": 0.01, "unseen": 0.009}, "true": {"seen": 0.01, "unseen": 0.01}}
    monkeypatch.setattr(claims, "CLIPS", (1.0, 15.0))
    clips["infinity"] = clips["15"]
    found = claims.by_clip([one] * 3, {tables.DESCRIBED: ["seen", "unseen"]})
    assert found["agents"]["15"]["seen"]["mean"] == pytest.approx(0.95)
    assert found["tau"]["15"][tables.DESCRIBED]["values"]["mean"] == 1.0
    assert [clip for clip, each in found["agents"].items() if tables.near_the_truth(each, ["seen"])] == [
        "15",
        "infinity",
    ]
    assert not any(tables.near_the_truth(each, ["seen", "unseen"]) for each in found["agents"].values())

"""Studies: the same bytes for any number of workers, killed and resumed, and with parts that others wrote."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_study_design import AGENTS, FLAGS, WORLD

from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.rng import derive_seed
from recsim_mnar.runs.folder import differences
from recsim_mnar.runs.receipts import Index
from recsim_mnar.studies import Design, Study, run_study
from recsim_mnar.studies.paired import mean, share
from toys import bytes_of, judgement_of_run, refused
from twins.cases import quick_first
from twins.commands import fails

COMMAND = [str(word) for word in FLAGS]


def tiny(seed=0, tie=0.0, **where):
    """A study of three catalogues."""
    return run_study(Design([WORLD], AGENTS, ["loocv", "off_policy"], catalogues=3, seed=seed, tie=tie), **where)


@pytest.fixture(scope="module")
def study():
    return tiny()


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (3, 7), (24, 24)])
def test_the_interval_of_a_share_is_wilsons(successes, n):
    interval = share([True] * successes + [False] * (n - successes))
    expected = stats.binomtest(successes, n).proportion_ci(method="wilson")
    assert (interval["low"], interval["high"]) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_a_mean_is_students_and_leaves_out_what_is_missing():
    values = [0.1, 0.4, 0.2, 0.7, 0.3]
    expected = stats.ttest_1samp(values, 0).confidence_interval()
    interval = mean([*values, None, math.nan])
    assert (interval["low"], interval["high"]) == pytest.approx((expected.low, expected.high))
    assert interval["n"] == 5
    assert mean([None])["mean"] is None
    assert mean([0.5] * 4)["low"] is None  # fewer than five catalogues say nothing of others


def test_means_of_what_is_bounded_stay_within_their_bounds():
    correlations = [1.0, 1.0, 1.0, 0.9, 0.3]
    assert mean(correlations)["high"] > 1.0
    interval = mean(correlations, least=-1.0, largest=1.0)
    assert -1.0 < interval["low"] < interval["mean"] < interval["high"] <= 1.0


def test_a_mean_of_nothing_but_its_bound_has_the_exact_poisson_limit():
    """Twenty costs of 0 say what no event in twenty says."""
    interval = mean([0.0] * 20, least=0.0)
    assert (interval["low"], interval["high"]) == (0.0, pytest.approx(-math.log(0.025) / 20))
    assert 0.6 < mean([0.9, 1.0, 0.0, 0.0, 1.0], least=0.0, largest=1.0)["high"] < 1.0


def test_no_interval_of_losses_widens_when_a_loss_disappears():
    # Without a loss, the upper end is that of one unseen loss of the largest size among 25.
    perfect = mean([0.0] * 24, least=0.0, largest=0.2)
    assert (perfect["low"], perfect["high"]) == (0.0, pytest.approx(0.2 * (1.0 - 0.025 ** (1 / 24)), rel=1e-6))
    assert mean([0.0] * 23 + [1e-6], least=0.0, largest=0.2)["high"] >= perfect["high"]
    assert mean([0.2] * 24, least=0.0, largest=0.2)["low"] == pytest.approx(0.2 * 0.025 ** (1 / 24), rel=1e-5)
    rng = np.random.default_rng(4)
    for number in (5, 12, 24):
        losses = 0.2 * rng.beta(0.2, 2.0, number) * (rng.random(number) < 0.6)
        while np.any(losses > 0.0):
            before = mean(losses, least=0.0, largest=0.2)
            assert before["low"] <= before["mean"] <= before["high"] <= 0.2
            losses[np.argmax(losses)] = 0.0
            after = mean(losses, least=0.0, largest=0.2)
            assert after["low"] <= before["low"]
            assert after["high"] <= before["high"] + 1e-9


def test_interval_of_losses_is_of_the_random_weights_that_it_names():
    """200,000 draws: a quantile of level .025 has a standard error of .0004 in its level."""
    rng = np.random.default_rng(5)
    losses = [0.0, 0.0, 0.0, 0.02, 0.003, 0.08, 0.0]
    weights = rng.dirichlet(np.ones(8), 200_000)
    found = mean(losses, least=0.0, largest=0.2)
    assert np.mean(weights @ [*losses, 0.0] <= found["low"]) == pytest.approx(0.025, abs=0.0015)
    assert np.mean(weights @ [*losses, 0.2] >= found["high"]) == pytest.approx(0.025, abs=0.0015)


def wrong_picks(draws, chance, sizes):
    """Losses of picks that are wrong with a chance, and then lose what ``sizes`` draws, at most .2."""
    return np.where(draws.random(len(sizes)) < chance, np.minimum(sizes, 0.2), 0.0)


LOSSES = {
    "two sizes": lambda draws, n: wrong_picks(draws, 0.15, np.where(draws.random(n) < 0.75, 0.003, 0.08)),
    "lognormal": lambda draws, n: wrong_picks(draws, 0.1, 0.01 * np.exp(draws.normal(size=n))),
    "heavy lognormal": lambda draws, n: wrong_picks(draws, 0.1, 0.01 * np.exp(1.5 * draws.normal(size=n))),
    "rare": lambda draws, n: wrong_picks(draws, 0.05, np.full(n, 0.1)),
    "largest": lambda draws, n: wrong_picks(draws, 0.9, np.full(n, 0.2)),
    "uniform": lambda draws, n: wrong_picks(draws, 0.5, 0.1 * draws.random(n)),
    "always": lambda draws, n: wrong_picks(draws, 1.0, 0.011 + 0.003 * draws.normal(size=n).clip(-3, 3)),
}


@pytest.mark.verify
@pytest.mark.parametrize(
    ("family", "number"), quick_first([(family, number) for number in (24, 12, 5) for family in LOSSES], 2)
)
def test_intervals_of_losses_cover_whatever_their_distribution(family, number):
    """400 samples: at .95 a share of .917 is three standard errors below."""
    rng = np.random.default_rng(number)
    expected = LOSSES[family](rng, 1_000_000).mean()
    covered = 0
    for _ in range(400):
        found = mean(LOSSES[family](rng, number), least=0.0, largest=0.2)
        covered += found["low"] <= expected <= found["high"]
    assert covered / 400 >= 0.917


@pytest.mark.verify
@pytest.mark.parametrize("number", quick_first([12, 24]))
def test_intervals_of_costs_and_correlations_cover(number):
    """800 samples: at .95 a share of .927 is three standard errors below; a dozen skewed values take another .02."""
    rng = np.random.default_rng(number)
    covered_costs = 0
    covered_taus = 0
    for _ in range(800):
        costs = mean(rng.exponential(1.0, number) * (rng.random(number) < 0.5), least=0.0)
        taus = mean(2.0 * rng.beta(8, 2, number) - 1.0, least=-1.0, largest=1.0)
        covered_costs += costs["low"] <= 0.5 <= costs["high"]
        covered_taus += taus["low"] <= 0.6 <= taus["high"]
    assert min(covered_costs, covered_taus) / 800 >= 0.907


def test_all_cells_share_their_catalogues():
    tasks = Design([Setup(preset="quick"), Setup(world="ratings")], catalogues=2, seed=7).tasks()
    assert [t.label for t in tasks] == ["sessions-quick-000", "sessions-quick-001", "ratings-000", "ratings-001"]
    assert [t.seed for t in tasks] == [derive_seed(7, f"study/{c}") for c in (0, 1, 0, 1)]
    assert [t.catalogue for t in tasks] == [0, 1, 0, 1]


def test_labels_tell_setups_of_one_world_apart():
    tasks = Design([Setup(), Setup(tie=0.1)], catalogues=1).tasks()
    assert [t.label for t in tasks] == ["sessions-1-000", "sessions-2-000"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished study of three catalogues."""
    folder = tmp_path_factory.mktemp("studies") / "study"
    tiny(folder=folder)
    return folder


@pytest.fixture
def folder(finished, tmp_path):
    """A copy of the finished study, to be damaged."""
    return shutil.copytree(finished, tmp_path / "study")


def test_a_study_in_a_folder_is_taken_up(folder, study):
    before = bytes_of(folder)
    (folder / "tasks" / "sessions-quick-001.json").unlink()
    again = tiny(folder=folder, resume=True)
    assert list(again.seconds) == ["sessions-quick-001"]
    assert again.rows() == study.rows()
    assert bytes_of(folder) == before


def test_a_folder_of_another_study_is_refused(folder):
    with refused("--resume takes up"):
        tiny(folder=folder)
    with refused(r"differs in seed \(0 there, 5 here\)"):
        tiny(folder=folder, resume=True, seed=5)
    shorter = Design([WORLD], AGENTS, ["loocv", "off_policy"], catalogues=2)
    with refused("holds a study of 3 catalogues, of which 2 are asked for"):
        run_study(shorter, folder=folder, resume=True)
    with refused("differs in first_seed"):
        run_study(replace(shorter, catalogues=3, first_seed=1), folder=folder, resume=True)


def test_differences_are_named_by_their_place():
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": None}) == ["a[1].b (2 there, 3 here)"]


DAMAGES = {
    "a task is cut off": lambda out, task: task.write_bytes(task.read_bytes()[:100]),
    "a task is another": lambda out, task: shutil.copy(task, out / "tasks" / "sessions-quick-002.json"),
    "the table is cut off": lambda out, task: (out / "study.json").write_text('{"cells'),
}


def test_a_study_makes_again_what_is_damaged_and_no_more(folder):
    before = bytes_of(folder)
    tasks = [f"tasks/sessions-quick-00{i}.json" for i in range(3)]
    assert sorted(Index.read(folder).receipts) == ["study.json", "study.parquet", *tasks]
    for name, damage in DAMAGES.items():
        damage(folder, folder / tasks[1])
        again = tiny(folder=folder, resume=True)
        assert len(again.seconds) <= 1, name
        assert bytes_of(folder) == before, name


@pytest.mark.slow
def test_any_number_of_workers_and_a_killed_study_give_the_same_bytes(tmp_path):
    command = [sys.executable, "-m", "recsim_mnar", *COMMAND, "--catalogues", "4"]
    subprocess.run([*command, "--workers", "1", "--out", str(tmp_path / "one")], check=True, capture_output=True)
    subprocess.run([*command, "--workers", "2", "--out", str(tmp_path / "two")], check=True, capture_output=True)
    broken = tmp_path / "broken"
    command += ["--workers", "1", "--out", str(broken)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while process.poll() is None and not any(name.startswith("tasks/") for name in Index.of(broken).receipts):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (broken / "results.json").exists()
    assert 1 <= len(list((broken / "tasks").glob("*.json"))) < 4
    resumed = subprocess.run([*command, "--resume"], check=True, capture_output=True, text=True)
    assert "already existed" in resumed.stderr
    one, two, taken_up = (results_of(tmp_path / name) for name in ("one", "two", "broken"))
    assert two == one
    assert taken_up == one
    assert len(one) == 8
    assert b"mean loss" in one["report.html"]


RESULTS = ("results.json", "summary.json", "report.html", "study.json")


def results_of(folder):
    """Return the results of a study in a folder, and those of its tasks."""
    files = bytes_of(folder)
    return {name: files[name] for name in files if name in RESULTS or name.startswith("tasks/")}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="children are read from /proc")
def test_workers_end_with_the_process_that_started_them(tmp_path):
    command = [sys.executable, "-m", "recsim_mnar", *COMMAND, "--catalogues", "4", "--workers", "2"]
    process = subprocess.Popen([*command, "--out", str(tmp_path / "out")], stderr=subprocess.DEVNULL)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    workers = []
    while process.poll() is None and len(workers) < 2:
        commands = {pid: Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children.read_text().split()}
        workers = [pid for pid, line in commands.items() if b"spawn_main" in line]
        time.sleep(0.05)
    time.sleep(2.0)  # they have begun to work
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + 60.0
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert workers
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--catalogues", 0], "at least one catalogue"),
        (["--resume"], "give --catalogues too"),
        (["--clip", 5, "--option", "clip=15"], "--clip and --option clip are one setting"),
    ],
    ids=["no catalogue", "resume", "clip twice"],
)
def test_wrong_flags_of_a_study_are_one_line(capsys, tmp_path, arguments, words):
    assert words in fails(capsys, *COMMAND, *arguments, "--out", tmp_path / "out")


def test_a_study_to_take_up_has_a_folder(capsys):
    assert "name the study's folder" in fails(capsys, *COMMAND, "--catalogues", 2, "--resume")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "name at least one world"),
        ("catalogue = 3\n[[worlds]]\nworld='sessions'", "did you mean 'catalogues'"),
        ("agents='svd'\n[[worlds]]\nworld='sessions'", "agents must be a list"),
        ("[[worlds]]\nworld='sessions'\nagents='svd'", "agents must be a list"),
        ("catalogues='3'\n[[worlds]]\nworld='sessions'", "at least one catalogue, got '3'"),
        ("[factors]\nclipp=[1, 2]\n[[worlds]]\nworld='sessions'", "did you mean 'clip'"),
        ("[factors]\nclip=[]\n[[worlds]]\nworld='sessions'", "factor clip has no level"),
        ("[factors]\nclip=[5, 5]\n[[worlds]]\nworld='sessions'", "factor clip has a level twice"),
    ],
)
def test_wrong_settings_files_are_one_line(capsys, tmp_path, text, words):
    (tmp_path / "settings.toml").write_text(text)
    assert words in fails(capsys, "study", tmp_path / "settings.toml", "--out", tmp_path / "out")


OUTSIDE = '''
import numpy as np
from dataclasses import dataclass
from recsim_mnar.policies import Policy
from recsim_mnar.protocols.base import Protocol
from recsim_mnar.protocols.records import Record
from recsim_mnar.worlds import DecisionWorld
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.lanes import PlainLanes


@dataclass(frozen=True)
class CoinParams(Params):
    n_items: int = 4
    catalogue_seed: int = 0


class CoinLanes(PlainLanes):
    """Everybody views an item, is shown two, and item i pays with probability (i + 1) / 5."""
    state = property(lambda self: np.zeros((len(self.user), 1)))
    def browse(self, which):
        return np.ones(len(which), np.int64), self.user[which] % 4
    def answer(self, which, actions):
        return (self.uniforms(which) < (actions + 1) / 5).astype(float), self.n_decisions[which] < 2
    def expected(self, which, actions):
        return (actions + 1) / 5


class Coins(DecisionWorld):
    """Coins with different odds."""
    name, truth_column, params_class = "coins", "expected_reward", CoinParams
    def __init__(self, params):
        self.params, self.n_items = params, params.n_items
    def open_lanes(self, n_lanes, *, keep_truth=False):
        return CoinLanes(n_lanes, truth_column=self.truth_column if keep_truth else None)
    def reward_means(self, state):
        return np.tile((np.arange(4) + 1) / 5, (len(state), 1))


class Last(Policy):
    """Always the last item."""
    def __init__(self, n_items):
        self.n_items = n_items
    def act(self, users, uniforms):
        return np.full(len(users), self.n_items - 1), np.ones(len(users))
    def probabilities(self, users):
        return np.tile(np.arange(self.n_items) == self.n_items - 1, (len(users), 1)).astype(float)


class Alphabet(Protocol):
    """The agent whose name comes last."""
    metrics = ("place",)
    def judge(self, study):
        return [Record(world=study.world.name, protocol=self.name, agent=name, metric="place", value=float(place),
                       low=0.0, high=9.0, level=study.level, n=1, seconds=0.0)
                for place, name in enumerate(sorted(study.learners))]


def halved(rows):
    """Weights halved: half of what IPS gives."""
    return 0.5 * rows.weight * rows.reward
'''


@pytest.mark.slow
def test_a_package_outside_stands_beside_what_is_built_in(tmp_path):
    """Agent, estimator, protocol and world, in one ``compare --catalogues 3`` and its report, in all processes."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    sizes = COMMAND[COMMAND.index("--option") : COMMAND.index("--agents")]
    protocols = "off_policy+estimators=clipped_ips/ips/outside:halved,ab_test,outside:Alphabet"
    command = [sys.executable, "-m", "recsim_mnar", "compare", "--world", "outside:Coins", *sizes,
               "--agents", "random,popularity,outside:Last", "--protocols", protocols,
               "--catalogues", "3", "--workers", "2", "--out", "out"]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "outside:Alphabet" in done.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())["summary"]
    (alphabet,) = [row for row in summary if row["protocol"] == "outside:Alphabet"]
    assert alphabet["catalogues"] == 3
    assert alphabet["picks"] == {"random": 3}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("outside:Alphabet") >= 3
    assert "outside:Last" in page
    assert "outside:halved" in page
    records = json.loads((tmp_path / "out" / "results.json").read_text())["records"]
    ips, halved = ([r["value"] for r in records if r["metric"] == name] for name in ("ips", "outside:halved"))
    np.testing.assert_allclose(halved, 0.5 * np.array(ips), rtol=1e-12)
    assert all(r["details"]["verdict_level"] != "trust" for r in records if r["metric"] == "outside:halved")
    truth = {r["agent"]: r["value"] for r in records if r["protocol"] == "truth"}
    assert set(truth) == {"random", "popularity", "outside:Last"}
    assert truth["outside:Last"] == pytest.approx(0.8)
    assert truth["random"] == pytest.approx(0.5, abs=0.05)


def test_a_study_needs_no_truth_share_where_the_best_is_zero():
    judgement = judgement_of_run("costs", None) | {"best_truth": 0.0}
    study = Study({}, [{"cell": "w", "levels": {}, "catalogue": 0, "judgements": [judgement], "records": []}])
    (row,) = study.summary()
    assert row["cost_share"]["mean"] is None
    assert study.sentences() == ["A/B test picks the best agent in 0 of 1 catalogues, a worse one in 1."]
    judgement["unusable"] = ["a"]
    assert study.summary()[0]["unusable"]["count"] == 1

"""Studies: the same bytes for any number of workers, killed and resumed, and with parts that others wrote."""

import json
import math
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from test_cli import fails, run

from recsim_mnar.errors import UserError
from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.rng import derive_seed
from recsim_mnar.runs import receipts
from recsim_mnar.runs.folder import RunFolder, differences
from recsim_mnar.runs.receipts import Index, made_with
from recsim_mnar.studies import Design, Study, run_study
from recsim_mnar.studies.design import design_of, setup_of
from recsim_mnar.studies.paired import mean, share
from toys import judgement_of_run
from twins.cases import quick_first

SMALL = {"n_items": 20, "n_flips": 5}
SIZES = {"train_users": 60, "test_users": 60, "arm_users": 60, "truth_users": 100, "folds": 2}
WORLD = {"world": "sessions", "preset": "quick", "params": SMALL, "options": SIZES}
AGENTS = ["random", "popularity", "user-popularity"]


def tiny(**more):
    how = {name: more.pop(name) for name in ("folder", "resume") if name in more}
    return run_study(Design([WORLD], AGENTS, ["loocv", "off_policy"], catalogues=3, **more), **how)


@pytest.fixture(scope="module")
def study():
    return tiny()


def test_a_study_is_one_tidy_table(study):
    frame = study.frame()
    assert len(frame) == len(study.rows()) == sum(len(r["records"]) for r in study.results)
    fields = {"preset", "catalogue", "seed", "world", "protocol", "agent", "metric", "value", "low", "high", "truth"}
    fields |= {"picked", "cost", "abstained", "reason", "seconds"}
    assert fields <= set(frame.columns)
    assert frame[frame["protocol"] == "truth"].groupby("agent")["value"].nunique().eq(3).all()  # three catalogues


def test_the_summary_counts_the_judgements(study):
    rows = {row["protocol"]: row for row in study.summary()}
    assert set(rows) == {"loocv", "off_policy"}
    for name, row in rows.items():
        own = [j for j in study.judgements() if j["protocol"] == name]
        assert len(own) == row["catalogues"] == 3
        for outcome in ("best", "indistinguishable", "costs"):
            assert row[outcome]["count"] == sum(j["outcome"] == outcome for j in own)
        assert sum(row[outcome]["count"] for outcome in ("best", "indistinguishable", "costs")) == len(own)
        assert row["cost_share"]["mean"] == pytest.approx(np.mean([j["cost_share"] for j in own]))
        assert sum(row["picks"].values()) == 3
    assert any("of 3 catalogues" in sentence for sentence in study.sentences())


def test_shares_and_means_have_their_intervals():
    for k, n in ((0, 5), (3, 7), (24, 24)):
        found, expected = share([True] * k + [False] * (n - k)), stats.binomtest(k, n).proportion_ci(method="wilson")
        assert (found["low"], found["high"]) == (pytest.approx(expected.low), pytest.approx(expected.high))
    x = [0.1, 0.4, 0.2, 0.7, 0.3]
    expected = stats.ttest_1samp(x, 0).confidence_interval()
    found = mean([*x, None, math.nan])
    assert (found["low"], found["high"], found["n"]) == (pytest.approx(expected.low), pytest.approx(expected.high), 5)
    assert mean([None])["mean"] is None
    assert mean([0.5] * 4)["low"] is None  # fewer than five catalogues say nothing of others


def test_means_of_what_is_bounded_stay_within_their_bounds():
    costs = [0.0] * 17 + [0.001, 0.002, 0.03]
    assert mean(costs)["low"] < 0.0
    found = mean(costs, least=0.0)
    assert 0.0 < found["low"] < found["mean"] < found["high"]
    # Twenty costs of 0 say what no event in twenty says: the exact Poisson limit.
    none = mean([0.0] * 20, least=0.0)
    assert (none["low"], none["high"]) == (0.0, pytest.approx(-math.log(0.025) / 20))
    taus = mean([1.0, 1.0, 1.0, 0.9, 0.3], least=-1.0, largest=1.0)
    assert mean([1.0, 1.0, 1.0, 0.9, 0.3])["high"] > 1.0
    assert 0.6 < mean([0.9, 1.0, 0.0, 0.0, 1.0], least=0.0, largest=1.0)["high"] < 1.0
    assert -1.0 < taus["low"] < taus["mean"] < taus["high"] <= 1.0


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
    covered = np.zeros(2)
    for _ in range(800):
        costs = rng.exponential(1.0, number) * (rng.random(number) < 0.5)
        taus = 2.0 * rng.beta(8, 2, number) - 1.0
        for k, (found, truth) in enumerate(((mean(costs, least=0.0), 0.5), (mean(taus, least=-1.0, largest=1.0), 0.6))):
            covered[k] += found["low"] <= truth <= found["high"]
    assert np.all(covered / 800 >= 0.907)


def test_all_cells_share_their_catalogues():
    tasks = Design([Setup(preset="quick"), Setup(world="ratings")], catalogues=2, seed=7).tasks()
    assert [t.label for t in tasks] == ["sessions-quick-000", "sessions-quick-001", "ratings-000", "ratings-001"]
    assert [t.seed for t in tasks] == [derive_seed(7, f"study/{c}") for c in (0, 1, 0, 1)]
    assert [t.catalogue for t in tasks] == [0, 1, 0, 1]
    assert [t.seed for t in Design(catalogues=2, first_seed=1000).tasks()] == [1000, 1001]
    twice = Design([Setup(), Setup(tie=0.1)], catalogues=1).tasks()
    assert [t.label for t in twice] == ["sessions-1-000", "sessions-2-000"]
    # More catalogues change none of the first.
    assert Design(catalogues=5).tasks()[:3] == Design(catalogues=3).tasks()


def test_a_study_in_a_folder_is_taken_up_and_refuses_another(tmp_path, study):
    out = tmp_path / "study"
    first = tiny(folder=out)
    assert first.rows() == study.rows()
    task = out / "tasks" / "sessions-quick-001.json"
    before = {path.name: path.read_bytes() for path in (out / "tasks").iterdir()}
    task.unlink()
    again = tiny(folder=out, resume=True)
    assert list(again.seconds) == ["sessions-quick-001"]
    assert {path.name: path.read_bytes() for path in (out / "tasks").iterdir()} == before
    with pytest.raises(UserError, match="--resume takes up"):
        tiny(folder=out)
    with pytest.raises(UserError, match=r"differs in seed \(0 there, 5 here\)"):
        tiny(folder=out, resume=True, seed=5)
    with pytest.raises(UserError, match=r"tie \(0.0 there, 0.2 here\)"):
        tiny(folder=out, resume=True, tie=0.2)
    design = Design([WORLD], AGENTS, ["loocv", "off_policy"], catalogues=4)
    with pytest.raises(UserError, match="holds a study of 3 catalogues, of which 2 are asked for"):
        run_study(replace(design, catalogues=2), folder=out, resume=True)
    with pytest.raises(UserError, match="differs in first_seed"):
        run_study(replace(design, first_seed=1), folder=out, resume=True)
    more = run_study(design, folder=out, resume=True)
    assert list(more.seconds) == ["sessions-quick-003"]
    assert [r["seed"] for r in more.results] == [t.seed for t in design.tasks()]
    assert {path.name: path.read_bytes() for path in (out / "tasks").iterdir()}.items() >= before.items()
    assert differences({"a": [1, {"b": 2}]}, {"a": [1, {"b": 3}], "c": None}) == ["a[1].b (2 there, 3 here)"]


def test_a_study_keeps_what_is_whole_and_refuses_what_was_made_otherwise(tmp_path, monkeypatch):
    design = Design([WORLD], AGENTS[:2], ["off_policy"], catalogues=3)
    out = tmp_path / "study"
    run_study(design, folder=out)
    wanted = {path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "run.json"}
    tasks = [f"tasks/sessions-quick-00{i}.json" for i in range(3)]
    assert sorted(Index.read(out).receipts) == ["study.json", "study.parquet", *tasks]
    task = out / "tasks" / "sessions-quick-001.json"
    for damage in (
        lambda: task.write_bytes(wanted[task][:100]),
        lambda: task.write_bytes(wanted[task].replace(b"1", b"2", 1)),
        lambda: (out / "tasks" / "sessions-quick-002.json").write_bytes(wanted[task]),
        lambda: (out / "study.json").write_text('{"cells'),
        lambda: (out / "tasks" / ".sessions-quick-001.json.0123456789abcdef.tmp").write_text("of a killed run"),
    ):
        damage()
        again = run_study(design, folder=out, resume=True)
        assert len(again.seconds) <= 1
        assert {
            path: path.read_bytes() for path in out.rglob("*") if path.is_file() and path.name != "run.json"
        } == wanted
    monkeypatch.setattr(receipts, "made_with", lambda: {**made_with(), "scipy": "0.1"})
    with pytest.raises(UserError, match=rf"other versions: scipy \({made_with()['scipy']} there, 0.1 here\)"):
        run_study(design, folder=out, resume=True)
    monkeypatch.undo()
    with RunFolder.fill(out, resume=True), ThreadPoolExecutor(1) as other:
        refused = other.submit(run_study, design, folder=out, resume=True).exception()
    assert f"{out} is being written by another process" in str(refused)
    (out / "index.json").unlink()
    (out / "study.json").write_text("[1]")
    with pytest.raises(UserError, match=r"study.json is missing or damaged"):
        run_study(design, folder=out, resume=True)


COMMAND = ["compare", "--preset", "quick", "--set", "n_items=20", "--set", "n_flips=5",
           *(part for name, n in SIZES.items() for part in ("--option", f"{name}={n}")),
           "--agents", ",".join(AGENTS), "--protocols", "loocv,off_policy"]  # fmt: skip
SAME = ("results.json", "summary.json", "report.html", "study.json")


def bytes_of(folder):
    files = [folder / name for name in SAME] + sorted((folder / "tasks").iterdir())
    return {file.name: file.read_bytes() for file in files}


@pytest.mark.slow
def test_any_number_of_workers_and_a_killed_study_give_the_same_bytes(tmp_path):
    command = [sys.executable, "-m", "recsim_mnar", *COMMAND, "--catalogues", "4"]
    subprocess.run([*command, "--workers", "1", "--out", str(tmp_path / "one")], check=True, capture_output=True)
    subprocess.run([*command, "--workers", "2", "--out", str(tmp_path / "two")], check=True, capture_output=True)
    broken = tmp_path / "broken"
    process = subprocess.Popen([*command, "--workers", "1", "--out", str(broken)], stderr=subprocess.PIPE)
    while process.poll() is None and not any(name.startswith("tasks/") for name in Index.of(broken).receipts):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (broken / "results.json").exists()
    assert 1 <= len(list((broken / "tasks").glob("*.json"))) < 4
    done = subprocess.run(
        [*command, "--workers", "1", "--resume", "--out", str(broken)], check=True, capture_output=True, text=True
    )
    assert "already existed" in done.stderr
    one = bytes_of(tmp_path / "one")
    assert len(one) == 8
    assert bytes_of(tmp_path / "two") == one
    assert bytes_of(broken) == one
    assert b"mean loss" in one["report.html"]


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


def test_wrong_studies_are_one_line(capsys, tmp_path):
    assert "at least one catalogue" in fails(capsys, *COMMAND, "--catalogues", 0, "--out", tmp_path / "a")
    assert "give --catalogues too" in fails(capsys, *COMMAND, "--resume", "--out", tmp_path / "a")
    assert "name the study's folder" in fails(capsys, *COMMAND, "--catalogues", 2, "--resume")
    assert "--clip and --option clip are one setting" in fails(capsys, *COMMAND, "--clip", 5, "--option", "clip=15")
    settings = tmp_path / "s.toml"
    for text, words in (
        ("", "name at least one world"),
        ("catalogue = 3\n[[worlds]]\nworld='sessions'", "did you mean 'catalogues'"),
        ("[[worlds]]\nworlds='sessions'", "unknown key 'worlds'"),
        ("[[worlds]]\nworld='session'", "did you mean 'sessions'"),
        ("agents='svd'\n[[worlds]]\nworld='sessions'\nagents='svd'", "agents must be a list"),
        ("catalogues='3'\n[[worlds]]\nworld='sessions'", "at least one catalogue, got '3'"),
        ("[factors]\nclipp=[1, 2]\n[[worlds]]\nworld='sessions'", "did you mean 'clip'"),
        ("[factors]\nclip=[]\n[[worlds]]\nworld='sessions'", "factor clip has no level"),
        ("[factors]\nclip=[5, 5]\n[[worlds]]\nworld='sessions'", "factor clip has a level twice"),
    ):
        settings.write_text(text)
        assert words in fails(capsys, "study", settings, "--out", tmp_path / "b")
    with pytest.raises(UserError, match="unknown key 'agnets'"):
        setup_of({"world": "sessions", "agnets": []})


def test_a_settings_file_says_what_the_flags_say(capsys, tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text(
        "catalogues = 2\nfirst_seed = 40\nagents = ['random', 'popularity']\nprotocols = ['off_policy']\n"
        "[options]\nestimators = 'snips,clipped_ips'\ntrain_users = 60\ntest_users = 60\ntruth_users = 100\n"
        "[[worlds]]\nworld = 'sessions'\npreset = 'quick'\nparams = { n_items = 20, n_flips = 5 }\n"
        "[analysis]\nanything = 1\n"
    )
    assert [t.seed for t in design_of(settings).tasks()] == [40, 41]
    out = tmp_path / "out"
    assert run(capsys, "study", settings, "--workers", 1, "--out", out)[0] == 0
    rows = json.loads((out / "results.json").read_text())["records"]
    assert {r["seed"] for r in rows} == {40, 41}
    assert {r["metric"] for r in rows if r["protocol"] == "off_policy"} == {"snips", "clipped_ips"}


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
@pytest.mark.parametrize("world", ["sessions", "outside:Coins"])
def test_a_package_outside_stands_beside_what_is_built_in(tmp_path, world):
    """Agent, estimator, protocol and world, in one ``compare --catalogues 3`` and its report, in all processes."""
    (tmp_path / "outside.py").write_text(OUTSIDE)
    sizes = COMMAND[COMMAND.index("--option") : COMMAND.index("--agents")]
    of_world = ["--preset", "quick", "--set", "n_items=20", "--set", "n_flips=5"] if world == "sessions" else []
    names = [
        "--agents",
        "random,popularity,outside:Last",
        "--protocols",
        "off_policy+estimators=clipped_ips/ips/outside:halved,ab_test,outside:Alphabet",
    ]
    command = [sys.executable, "-m", "recsim_mnar", "compare", "--world", world, *of_world, *sizes, *names]
    command += ["--catalogues", "3", "--workers", "2", "--out", "out"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env={**os.environ})
    assert "outside:Alphabet" in done.stdout
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())["summary"]
    (own,) = [row for row in summary if row["protocol"] == "outside:Alphabet"]
    assert own["catalogues"] == 3
    assert own["picks"] == {"random": 3}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("outside:Alphabet") >= 3
    assert "outside:Last" in page
    assert "outside:halved" in page
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["records"]
    judged = {metric: [r["value"] for r in rows if r["metric"] == metric] for metric in ("ips", "outside:halved")}
    assert judged["outside:halved"] == pytest.approx([0.5 * value for value in judged["ips"]], rel=1e-12)
    assert all(r["details"]["verdict_level"] != "trust" for r in rows if r["metric"] == "outside:halved")
    truth = {r["agent"]: r["value"] for r in rows if r["protocol"] == "truth"}
    assert set(truth) == {"random", "popularity", "outside:Last"}
    if world != "sessions":
        assert truth["outside:Last"] == pytest.approx(0.8)
        assert truth["random"] == pytest.approx(0.5, abs=0.05)


def test_a_study_needs_no_truth_share_where_the_best_is_zero():
    judgement = judgement_of_run("costs", None) | {"best_truth": 0.0}
    found = Study({}, [{"cell": "w", "levels": {}, "catalogue": 0, "judgements": [judgement], "records": []}])
    (row,) = found.summary()
    assert row["cost_share"]["mean"] is None
    assert found.sentences() == ["A/B test picks the best agent in 0 of 1 catalogues, a worse one in 1."]
    judgement["unusable"] = ["a"]
    assert found.summary()[0]["unusable"]["count"] == 1

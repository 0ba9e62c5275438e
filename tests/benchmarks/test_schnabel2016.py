"""The benchmark of Schnabel et al. 2016 runs, resumes, and judges what it should."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from recsim_mnar.worlds.ratings import MARGINALS, alpha_propensities, rerank

FOLDER = Path(__file__).parents[2] / "benchmarks" / "schnabel2016"


@pytest.fixture
def study(monkeypatch):
    """The modules of the benchmark's folder, forgotten afterwards: other benchmarks have modules of these names."""
    monkeypatch.syspath_prepend(str(FOLDER))
    names = ("run", "tables", "semi_synthetic", "learning", "completed")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


def test_a_quick_part_prints_its_checks_and_writes_its_files(study, tmp_path, capsys):
    assert study["run"].main(["figure2", "--quick", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "made-up ratings" in text
    assert "PASS  alpha = 1: SNIPS is Naive to rounding" in text
    assert (tmp_path / "figure2.md").read_text().strip() == text.strip()
    found = json.loads((tmp_path / "figure2.json").read_text())
    assert found["shape"] == [200, 300]
    assert len(found["mse/ips"]["rmse"]["mean"]) == len(found["alphas"]) == 2
    assert (tmp_path / "figure2.png").stat().st_size > 10_000


def test_what_is_missing_gets_one_line(study, capsys, tmp_path):
    for given, text in (
        (["table1"], "needs --ml100k"),
        (["table2"], "needs --coat"),
        (["all", "--ml100k", "nowhere"], "needs --coat"),
        (["table1", "--ml100k", str(tmp_path / "none"), "--out", str(tmp_path)], "does not exist"),
    ):
        assert study["run"].main(given) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1


def test_table2_is_handed_its_folders(study, tmp_path, monkeypatch):
    handed = []

    def main(*arguments):
        handed.append(arguments)
        return None if len(handed) == 1 else False

    monkeypatch.setitem(sys.modules, "real", SimpleNamespace(main=main))
    given = ["table2", "--coat", "c", "--out", str(tmp_path)]
    assert study["run"].main(given) == 0
    assert study["run"].main([*given, "--yahoo", "y"]) == 1
    assert handed == [(Path("c"), None, tmp_path, False), (Path("c"), Path("y"), tmp_path, False)]


def test_the_predictions_are_the_papers(study):
    truth = np.random.default_rng(0).choice([1.0, 2, 3, 4, 5], (80, 60), p=[0.5, 0.25, 0.15, 0.06, 0.04])
    found = study["semi_synthetic"].prediction_matrices(truth, 3)
    fives = int((truth == 5).sum())
    for name, star in (("REC_ONES", 1), ("REC_FOURS", 4)):
        changed = found[name] != truth
        assert changed.sum() == fives
        assert set(truth[changed]) == {star}
        assert set(found[name][changed]) == {5}
    assert np.array_equal(found["ROTATE"][truth == 1], np.full((truth == 1).sum(), 5))
    assert np.array_equal(found["ROTATE"][truth > 1], truth[truth > 1] - 1)
    assert set(found["COARSENED"].ravel()) == {3, 4}
    scaled = ((found["SKEWED"] - truth) / ((6 - truth) / 2))[truth == 3]  # 3 is two standard deviations from each clip
    assert abs(scaled.mean()) < 5 / np.sqrt(len(scaled))
    assert found["SKEWED"].min() >= 0
    assert found["SKEWED"].max() <= 6


def test_the_jackknife_band_of_one_matrix_is_that_of_its_mean_square(study):
    errors = np.random.default_rng(0).normal(size=(1, 400, 1))
    band = study["semi_synthetic"].rmse_band(errors)
    assert band["mean"][0] == pytest.approx(np.sqrt((errors**2).mean()))
    # Delta method: sd of sqrt(mean square) = sd of the mean square / (2 rmse).
    se = (errors**2).std(ddof=1) / np.sqrt(400) / (2 * band["mean"][0])
    assert (band["high"][0] - band["low"][0]) / 2 == pytest.approx(1.966 * se, rel=0.02)


def test_naive_dcg_of_rotate_is_the_published_where_everyone_dislikes_fifty_items(study):
    """With 50 ones in each row ROTATE recommends only those: the published 12.90 and 1.38 follow from sums alone."""
    semi = study["semi_synthetic"]
    shares = np.array(MARGINALS)
    row = np.repeat([1.0, 2, 3, 4, 5], np.rint(shares * 500).astype(int))
    truth = np.array([np.random.default_rng(u).permutation(row) for u in range(20)])

    some = SimpleNamespace(settings={"alpha": 0.25, "density": 0.05}, seed=1)
    found = semi._dcg_of("all alike", semi.FactorizationConfig(), truth, some)
    assert found["users_with_under_50_ones"] == 0
    assert found["dcg@50"]["ROTATE"]["true"] == pytest.approx(12.90, abs=0.005)
    assert found["dcg@50"]["ROTATE"]["naive"] == pytest.approx(1.38, abs=0.02)


def test_the_marginals_are_what_the_paper_prints(study):
    """True MAEs of Table 1 that follow from the marginals alone, and the shares revealed at alpha = .25."""
    truth = rerank(np.random.default_rng(0).normal(size=(943, 1682)))
    found = study["semi_synthetic"].prediction_matrices(truth, 3)
    told = json.loads((FOLDER / "published.json").read_text())["table1"]
    for name in ("REC_ONES", "REC_FOURS", "ROTATE", "COARSENED"):
        assert np.abs(found[name] - truth).mean() == pytest.approx(told[name]["mae"]["true"], abs=0.0006)
    p = alpha_propensities(truth, 0.25)
    shares = [p[truth == r].sum() / p.sum() for r in range(1, 6)]
    assert np.round(shares, 2).tolist() == told["revealed_shares"]


def test_the_completed_matrix_before_it_is_reranked(study, tmp_path, capsys):
    """Users rate what they like, so the completion is higher than the marginals that it is re-ranked to."""
    g = np.random.default_rng(2)
    rows = [(u, i, 3 + (u + i) % 3) for u in range(1, 31) for i in range(1, 21) if g.random() < 0.6]
    (tmp_path / "u.data").write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in rows))
    assert study["completed"].main(["--ml100k", str(tmp_path), "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "% of the completed cells are 3 or more; 23.2% after re-ranking." in text
    rated = next(line for line in text.splitlines() if line.startswith("| what users rated"))
    assert rated.endswith(f"{np.mean([r for _, _, r in rows]):.3f} |")
    assert study["completed"].main(["--ml100k", str(tmp_path / "none"), "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_figure6_takes_up_its_finished_points(study, tmp_path, monkeypatch):
    learning = study["learning"]
    made = []
    chosen = learning.choose
    monkeypatch.setattr(learning, "choose", lambda *a: made.append(1) or chosen(*a))
    read = study["run"].settings_of
    small = {"shape": [120, 150], "mcar_samples": [100], "penalties": [1e-3], "rank": 2, "alphas": [1.0, 0.25]}
    monkeypatch.setattr(study["run"], "settings_of", lambda arguments, part="": {**read(arguments, part), **small})
    arguments = ["figure6", "--quick", "--out", str(tmp_path)]
    assert study["run"].main(arguments) == 0
    # two methods at two alphas, one at one sample; two on each of two draws; two trained for MAE
    assert len(made) == 2 * 2 + 1 + 2 * 2 + 2
    points = json.loads((tmp_path / "figure6.json").read_text())["points"]

    few = {"redrawn_trials": 2, "mae_alphas": [0.25], "mae_trials": 2}
    kept = SimpleNamespace(settings={**small, **few, "alpha": 0.25, "figure6_trials": 2})
    del points["sample 100"]
    with pytest.raises(AttributeError):  # the missing point is drawn, the others are not: ``kept`` cannot draw
        learning.fill(kept, points, lambda: None)
    assert len(made) == 11

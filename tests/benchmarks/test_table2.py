"""benchmarks/schnabel2016/real.py on made-up files of the real formats."""

import json

import numpy as np
import pytest
from study_modules import bring

from toys import refused

METHODS = {"MF-Naive", "MF-IPS"}


@pytest.fixture(scope="module")
def real():
    with bring("schnabel2016", "real", "selection", "hl") as found:
        yield found["real"]


def made_up(g, n_users, n_items):
    """Ratings of every cell, and features on which they and their being revealed depend."""
    x = np.eye(2)[g.integers(2, size=n_users)]
    z = np.concatenate([np.eye(3)[g.integers(3, size=n_items)], np.eye(2)[g.integers(2, size=n_items)]], axis=1)
    taste = x @ g.normal(size=(2, 5)) @ z.T + 0.5 * g.normal(size=(n_users, n_items))
    ratings = np.clip(np.round(2.5 + taste), 1, 5)
    p = np.clip(0.1 * ratings, 0.1, 0.5)
    return x, z, ratings, p


def make_coat(folder, *, n_users=24, n_items=20, seed=0):
    """A folder of Coat's format."""
    g = np.random.default_rng(seed)
    x, z, ratings, p = made_up(g, n_users, n_items)
    (folder / "user_item_features").mkdir(parents=True)
    np.savetxt(folder / "train.ascii", np.where(g.random(p.shape) < p, ratings, 0), fmt="%d")
    np.savetxt(folder / "test.ascii", np.where(g.random(p.shape) < 0.4, ratings, 0), fmt="%d")
    np.savetxt(folder / "propensities.ascii", p)
    np.savetxt(folder / "user_item_features" / "user_features.ascii", x, fmt="%d")
    np.savetxt(folder / "user_item_features" / "item_features.ascii", z, fmt="%d")
    return folder


def make_yahoo(folder, *, n_users=24, n_items=20, seed=1):
    """A folder of Yahoo! R3's format; only the first half of the users is in the test file."""
    g = np.random.default_rng(seed)
    _, _, ratings, p = made_up(g, n_users, n_items)
    folder.mkdir(parents=True)
    random = (g.random(p.shape) < 0.5) & (np.arange(n_users) < n_users // 2)[:, None]
    for name, observed in (("train", g.random(p.shape) < p), ("test", random)):
        users, items = np.nonzero(observed)
        table = np.stack([users + 1, items + 1, ratings[users, items]], axis=1)
        np.savetxt(folder / f"ydata-ymusic-rating-study-v1_0-{name}.txt", table, fmt="%d", delimiter="\t")
    return folder


@pytest.mark.slow
def test_both_studies_have_their_rows(real, tmp_path, capsys, monkeypatch):
    coat, yahoo = make_coat(tmp_path / "coat"), make_yahoo(tmp_path / "yahoo")
    real.main(coat, yahoo, tmp_path / "out", quick=True, workers=1)
    found = json.loads((tmp_path / "out" / "results.json").read_text())["table2"]["data"]
    others = {*real.real_table.OTHER_PROPENSITIES, real.real_table.NAIVE_BY_IPS}
    assert set(found["coat"]["rows"]) == METHODS | others
    assert set(found["yahoo"]["rows"]) == METHODS
    for row in [*found["coat"]["rows"].values(), *found["yahoo"]["rows"].values()]:
        assert 0 < row["mse"]["mean"] < 16
    assert "### yahoo" in capsys.readouterr().out
    import hl

    monkeypatch.setattr(hl, "ITERATIONS", 3)
    assert hl.main(["--coat", str(coat), "--out", str(tmp_path / "out"), "--mar-ranks", "2", "--mnar-ranks", "2"]) == 0
    found = json.loads((tmp_path / "out" / "results.json").read_text())["hl"]
    assert [row["model"] for row in found["rows"]] == ["HL-MAR", "HL-MNAR"]
    assert len(found["checks"]) == 2 + 2 * 4  # of MF-Naive, and of both models


@pytest.mark.slow
def test_any_number_of_processes_chooses_the_same(real, tmp_path):
    data = real.load_coat(make_coat(tmp_path / "coat"))
    problem = real.Problem(data.train, {"released": data.train.at(data.propensities)}, 2, 7, 20)
    forms = [real.FactorizationConfig(rank=2, penalty=penalty).to_dict() for penalty in (1e-3, 1e-2)]
    candidates = [{"propensities": "released", "form": form} for form in forms]
    found = []
    for n in (1, 2):
        with real.Workers(problem, n) as workers:
            found.append((workers.scores(candidates), [m.tobytes() for m in workers.fits(candidates)]))
    assert found[0] == found[1]


@pytest.mark.slow
def test_what_is_chosen_does_not_depend_on_the_test_file(real, tmp_path):
    """Chosen before the test file is read: without the file the choice is written, and then it is missed."""
    coat = make_coat(tmp_path / "coat")
    (coat / "test.ascii").unlink()
    with refused(r"test\.ascii"):
        real.main(coat, None, tmp_path / "out", quick=True, workers=1)
    chosen = json.loads((tmp_path / "out" / "work" / "table2.coat.chosen.json").read_text())["chosen"]
    assert {"MF-Naive", "MF-IPS", "MF-IPS, logistic regression"} < set(chosen)
    naive = chosen[real.real_table.NAIVE_BY_IPS]["mse"]
    assert (naive["propensities"], naive["scored_by"]) == ("none", "released")


def test_held_out_ratings_count_by_the_propensities_that_score_and_not_by_those_of_the_fit(real, tmp_path):
    """A plain twin of the score of section 6.1, for MF-Naive's fits; scored by its own propensities it differs."""
    import selection

    data = real.load_coat(make_coat(tmp_path / "coat"))
    train, k = data.train, 2
    released = train.at(data.propensities)
    problem = real.Problem(train, {"released": released}, k, 7, 300)
    form = real.FactorizationConfig(rank=1, penalty=1e-2)
    fold_of = selection.split_folds(len(train), k, problem.seed)
    twin = []
    for fold in range(k):
        kept, held = train.select(fold_of != fold), train.select(fold_of == fold)
        alike = np.full(len(kept), train.density * (k - 1) / k)
        fit = selection.factorise(kept, 1.0 / alike, form, seed=problem.seed, max_iterations=300, value_tolerance=1e-5)
        errors = (fit.factors.at(held.users, held.items) - held.values) ** 2
        twin.append(sum(errors / (released[fold_of == fold] / k)) / (train.n_users * train.n_items))
    candidate = {"propensities": "none", "form": form.to_dict()}
    selection._begin(problem)

    def scores(**more):
        return [selection._score(({**candidate, **more}, fold))[0] for fold in range(k)]

    assert scores(scored_by="released") == pytest.approx(twin, rel=1e-9)
    assert scores() == scores(scored_by="none")
    assert scores() != pytest.approx(twin, rel=0.01)

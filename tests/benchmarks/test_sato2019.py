"""The benchmark of Sato et al. 2019: what is chosen, judged and kept, on tiny synthetic worlds."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.policies import DeployedPolicy
from recsim_mnar.purchases.uplift import evaluate_lists, top_items
from recsim_mnar.purchases.world import PurchasesParams, PurchasesWorld
from recsim_mnar.simulation import simulate
from toys import refused
from twins.purchases_log import propensity_matrix

N_USERS, N_ITEMS = 30, 20


def test_the_four_lists_are_ranked_in_opposite_order(sato):
    found = sato["argument"].table1()
    assert all(found["checks"].values())
    assert [r["total"] for r in found["rows"].values()] == [6, 4, 2, 0]
    assert not sato["argument"].falls([2, 2, 1])


def test_periods_are_split_as_in_the_paper(sato):
    # 93 weeks, 8 in an evaluation; the paper counts from 1: 1..77 and 78..85, then 9..85 and 86..93.
    parts = sato["logs"].phases(93, 8)
    ends = {name: [(int(p[0]) + 1, int(p[-1]) + 1) for p in pair] for name, pair in parts.items()}
    assert ends == {"validation": [(1, 77), (78, 85)], "test": [(9, 85), (86, 93)]}
    with refused("too few"):
        sato["logs"].phases(5, 2)


def test_the_benchmarks_logs_are_those_of_simulate(sato):
    world = PurchasesWorld(PurchasesParams(n_items=N_ITEMS, n_periods=3, slate_size=5))
    ours = sato["semi"].log_of(world, N_USERS, 3, 5)
    theirs = Exposures.from_log(
        simulate(world, DeployedPolicy(world), N_USERS, 5), n_users=N_USERS, n_items=N_ITEMS, n_periods=3
    )
    for name in ("user", "item", "time", "recommended", "purchased"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    np.testing.assert_allclose(propensity_matrix(ours), world.deployed_propensities(5, np.arange(N_USERS)), rtol=1e-6)


def test_a_window_judges_as_the_package_does(sato, log, drawn_scores):
    logs = sato["logs"]
    data, window = logs.phase(log, "test")
    scores = drawn_scores()
    lists = top_items(scores, 4)
    result = evaluate_lists(
        data.exposures, lists, metrics=logs.METRICS, periods=window.periods, present=log.present, clip=1e-3
    )
    ours = window.estimates(lists)
    for metric, estimate in result.items():
        # the window keeps propensities in single precision
        np.testing.assert_allclose(ours[metric], [estimate.value, estimate.low, estimate.high], rtol=1e-5)
    assert window.uplift(scores, 4) == pytest.approx(result["uplift"].value, rel=1e-12)
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


def test_propensities_are_of_the_training_periods(sato, log):
    x = log.exposures
    data, window = sato["logs"].phase(log, "test")
    kept = x.time < window.periods[0]
    cut = Exposures(
        x.user[kept], x.item[kept], x.time[kept], x.recommended[kept], x.purchased[kept], N_USERS, N_ITEMS, x.n_periods
    )
    again, _ = sato["logs"].phase(replace(log, exposures=cut), "test")
    np.testing.assert_array_equal(data.exposures.propensities, again.exposures.propensities)
    np.testing.assert_array_equal(data.popularity(), again.popularity())


def test_nothing_of_the_test_periods_enters_the_choice(sato, log, settings, tmp_path):
    x = log.exposures
    other = Exposures(
        x.user, x.item, x.time, np.where(x.time >= 5, ~x.purchased | ~x.recommended, x.recommended),
        np.where(x.time >= 5, True, x.purchased), N_USERS, N_ITEMS, x.n_periods,
    )  # fmt: skip
    picks = [
        sato["real"].validation(replace(log, exposures=e), settings, tmp_path / str(k))
        for k, e in enumerate((x, other))
    ]
    assert picks[0] == picks[1]
    assert (tmp_path / "0" / "tafeng.chosen.json").exists()


def test_the_committed_tables_are_those_of_the_committed_summary(sato, tmp_path):
    run = sato["run"]
    shutil.copy(run.HERE / "results.json", tmp_path / "results.json")
    assert run.main(["claims", "--out", str(tmp_path)]) == 0
    assert (tmp_path / "results.md").read_text() == (run.HERE / "results.md").read_text()


@pytest.mark.slow
def test_a_quick_log_writes_its_files(sato, capsys, tmp_path):
    assert sato["run"].main(["tafeng", "--quick", "--out", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    for part in ("Table 4", "Table 5", "Table 6", "Figure 3", "Random", "CausE-Prod"):
        assert part in text
    found = sato["tables"].kept_results(tmp_path)["tafeng"]
    assert np.sum(found["rows"]["ulbpr"]["classes"]) == pytest.approx(1.0)
    assert (tmp_path / "tafeng.png").stat().st_size > 10_000
    assert sato["run"].main(["claims", "--out", str(tmp_path)]) == 0
    result = capsys.readouterr().out
    assert "## category\n\nnot run" in result
    assert "checks pass" in result
    assert "# Table 4" in (tmp_path / "results.md").read_text()

"""The study of verdicts: its exact limits and pools, that it resumes, and that its families' values are exact."""

from __future__ import annotations

import importlib
import itertools
import sys
from dataclasses import replace

import numpy as np
import pytest
from study_modules import BENCHMARKS, bring

FOLDER = BENCHMARKS / "verdict"
NAMES = ("interface", "generator", "worlds", "families", "analysis", "run", "average_effect", "uplift_worlds")


@pytest.fixture(scope="module")
def study():
    with bring("verdict", *NAMES) as found:
        yield found


def summary(trusted, right, *, logs=400, honest=True, **more):
    own = {"family": f"f{trusted}", "mode": "facts", "quantity": "value", "honest": honest, "production": False}
    own |= {"logs": logs, "trusted": trusted, "right_given_trust": right, "right": right, "width": 1.0}
    return (
        own
        | {"rmse_ratio": 1.0, "clipped_ratio": 1.0, "relative_rmse": 0.05, "estimators": "ips", "reasons": ""}
        | {"said": []}
        | more
    )


def test_pools_take_honest_families_by_how_often_they_are_trusted(study):
    found = [summary(40, 30), summary(80, 79), summary(200, 190), summary(300, 299), summary(0, 0)]
    found += [summary(20, 0, honest=False), summary(60, 0, mode="plain"), summary(60, 0, quantity="difference")]
    pools = [p for p in study["analysis"].pools(found) if p["mode"] == "facts" and p["quantity"] == "value"]
    assert [(p["families"], p["trusted"], p["right"]) for p in pools] == [(2, 120, 109), (1, 200, 190), (1, 300, 299)]
    # P(at most 109 of 120 at .95): some .03, so that only the family of 30 in 40 is ruled out.
    bars = {c["bar"]: c for c in study["analysis"].checks(found[:5])}
    family, pool = (next(c for bar, c in bars.items() if bar.startswith(start)) for start in ("no honest", "no pool"))
    assert not family["passed"]
    assert [text.split()[0] for text in family["broken"]] == ["f40"]
    assert pool["passed"]


def test_bars_of_production_name_what_breaks_them(study):
    found = [summary(390, 390, production=True), summary(300, 299, production=True, rmse_ratio=1.6)]
    found += [summary(10, 10, production=True, relative_rmse=0.2, width=3.0)]
    bars = {c["bar"]: c for c in study["analysis"].checks(found)}
    trusted = next(c for bar, c in bars.items() if "at least .80" in bar)
    assert (trusted["passed"], trusted["broken"]) == (False, ["f300 .750"])
    worst = next(c for bar, c in bars.items() if bar.startswith("production with facts, value"))
    assert (worst["passed"], worst["figure"]) == (False, "median 1.00, worst 1.60")


def test_a_summary_counts_what_was_trusted_and_right(study):
    family = study["families"].named("p13-bucket-k10")
    truth, rows = family.value, []
    for gap, level in ((0.001, 0), (-0.001, 0), (0.03, 0), (0.03, 1)):
        one = {"estimate": truth + gap, "low": truth + gap - 0.01, "high": truth + gap + 0.01, "level": level}
        one |= {"codes": "wide_interval" if level else "", "estimator": "ips", "clipped": truth - 0.02, "truth": truth}
        rows.append({f"value.{key}": x for key, x in (one | {"ips": truth + gap, "snips": truth + 2 * gap}).items()})
    found = study["analysis"].summary(family, "facts", "value", rows)
    assert (found["trusted"], found["right_given_trust"], found["right"]) == (3, 2, 2)
    rmse = float(np.sqrt((2 * 0.001**2 + 2 * 0.03**2) / 4))
    assert found["width"] == pytest.approx(0.02 / (3.92 * rmse), rel=1e-3)
    assert found["rmse_ratio"] == pytest.approx(1.0, rel=1e-3)
    assert found["clipped_ratio"] == pytest.approx(0.02 / rmse, rel=1e-3)
    assert found["reasons"] == "wide_interval .250"


def test_first_sentences_are_counted_by_what_they_claim(study):
    """One that must not be used claims nothing; what is doubtful is not among what is trusted."""
    family = study["families"].named("p13-bucket-k10")
    one = dict.fromkeys(("estimate", "low", "high", "truth", "ips", "snips", "clipped"), 0.1)
    one |= {"level": 0, "codes": "", "estimator": "ips"}
    rows = [
        {f"{quantity}.{key}": x for quantity in ("value", "difference") for key, x in one.items()}
        | {"sentence.answer": answer, "sentence.sure": sure, "sentence.false": false, "sentence.sign": sign}
        for answer, sure, false, sign in (
            ("better", "trust", 0, 0), ("better", "trust", 1, 1), ("worse", "trust", 1, 0),
            ("cannot_tell", "caution", 1, 0), ("looks_worse", "caution", 1, 1), ("do_not_use", "do_not_use", 0, 0),
        )
    ]  # fmt: skip
    assert study["analysis"].summary(family, "facts", "difference", rows)["said"] == [3, 2, 5, 4, 2, 1, 1, 1]


def test_results_are_read_as_they_were_written(study, tmp_path, monkeypatch):
    analysis = study["analysis"]
    monkeypatch.setattr(analysis, "HERE", tmp_path)
    found = [summary(40, 40), summary(80, 79, width=None), summary(20, 0, honest=False)]
    found[0]["said"] = [40, 1, 50, 2, 30, 0, 10, 1]
    kept = {"judged": {"rules": "b", "families": found}, "uplift": study["uplift_worlds"].judge_all(2)}
    analysis.save(kept)
    assert analysis.load() == kept
    text = (tmp_path / "results.md").read_text()
    assert "| f40 | 400 | .100 | 1 [.912, 1] |" in text
    assert "| f80 | 400 | .200 | .988 [.932, 1.000] | .003 | - |" in text
    assert "| f20 | facts | value | 400 | .050 | 0 [0, .168] |" in text


def test_resuming_gives_the_same_rows_as_one_run(study, tmp_path):
    run, paths, name = study["run"], [FOLDER / "families.py"], "drawn-014-lognormal-lognormal"
    run.judge(paths, [name], tmp_path / "one", 40)
    for logs in (7, 40):
        run.judge(paths, [name], tmp_path / "two", logs)
    family = run.every_family(tuple(paths))
    family = next(each for each in family if each.name == name)
    for mode in run.MODES:
        one, two = (run.read(tmp_path / folder, family, mode) for folder in ("one", "two"))
        assert len(one) == 40
        assert one == two
    assert run.read(tmp_path / "two", replace(family, facts={"reward_min": 0.0}), "facts") == []


def test_drawing_on_stops_at_the_trusted_logs_that_are_wanted(study, tmp_path):
    run, name = study["run"], "drawn-061-pareto-binary"
    run.judge([FOLDER / "families.py"], [name], tmp_path, 25, until=60, most=100)
    family = next(each for each in run.every_family((FOLDER / "families.py",)) if each.name == name)
    rows = run.read(tmp_path, family, "facts")
    trusted = min(sum(row[f"{quantity}.level"] == 0 for row in rows) for quantity in run.QUANTITIES)
    assert 25 < len(rows) <= 100
    assert trusted >= 60 or len(rows) == 100


def test_a_wrong_name_is_one_line(study, capsys):
    assert study["run"].main(["judge", "--only", "nobody"]) == 2
    assert capsys.readouterr().err.startswith("error: no family 'nobody': --only takes p01")


def test_a_name_is_a_familys_own(study, tmp_path):
    """Two files may have families of one name, one file may not."""
    copy = tmp_path / "mine.py"
    copy.write_text((FOLDER / "families.py").read_text())
    found = study["run"].every_family((FOLDER / "families.py", copy))
    names = [family.name for family in found]
    assert len(set(names)) == len(names) == 2 * len(study["families"].FAMILIES)
    assert {"rare-20k", "mine.rare-20k"} <= set(names)
    copy.write_text(copy.read_text() + "\nFAMILIES += FAMILIES[:1]\n")
    study["run"].every_family.cache_clear()
    with pytest.raises(study["run"].UserError, match="two families have the name"):
        study["run"].every_family((copy,))


def test_families_of_another_file_bring_their_own_modules(study, tmp_path):
    """A module next to the file comes before the study's of the same name, which stays what it was."""
    (tmp_path / "worlds.py").write_text("VALUE = 0.5\n")
    (tmp_path / "mine.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from interface import Family\n"
        "from worlds import VALUE\n"
        "@dataclass(frozen=True)\n"
        "class Own:\n"
        "    number: int = 1\n"
        "FAMILIES = [Family('mine', True, False, lambda seed: None, VALUE, VALUE)]\n"
    )
    before = sys.modules["worlds"]
    found = study["run"].every_family((FOLDER / "families.py", tmp_path / "mine.py"))
    assert [family.value for family in found if family.name == "mine"] == [0.5]
    assert sys.modules["worlds"] is before
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(study["run"].UserError, match="does not define FAMILIES"):
        study["run"].every_family((tmp_path / "empty.py",))


def value_by_enumeration(world, policy):
    """Sum over every context, action, user effect and length of chance times mean reward, over mean length."""
    lengths = importlib.import_module("generator").length_chances(world.lengths)
    total = rows = 0.0
    for size, chance in enumerate(lengths, start=1):
        rows += chance * size
        for c, a, effect in itertools.product(range(len(policy)), range(policy.shape[1]), world.effects()):
            share = chance * size * policy[c, a] / len(policy) / world.effects().size
            total += share * world.mean[c, a] * effect * world.of_length()[size - 1]
    return total / rows


def test_values_agree_with_an_enumeration(study):
    """One world in which users differ and long ones earn less, and one with prices."""
    worlds = study["worlds"]
    rng = np.random.default_rng(0)
    mean, logging, target = rng.random((3, 3, 4))
    logging, target = (table / table.sum(axis=1, keepdims=True) for table in (logging, target))
    world = worlds.World(
        "one", mean / 10, logging, target, logging, 50, ("geometric", 3.0), effect=1.0, length_power=-0.5
    )
    assert world.value(target) == pytest.approx(value_by_enumeration(world, target), rel=1e-9)
    prices = np.array([1.0, 5.0, 20.0, 90.0])
    shop = worlds.World("two", mean * prices / 50, logging, target, logging, 20_000, rewards=worlds.bought(prices))
    log = shop.log(0)
    own = log.target / log.propensity * log.reward
    assert set(np.unique(log.reward)) <= {0.0, *prices}
    assert abs(own.mean() - value_by_enumeration(shop, target)) < 4.0 * own.std() / np.sqrt(own.size)


@pytest.mark.parametrize("name", ["p10-greedy.2-k50", "endless-users", "carry-over-500"])
def test_logs_have_the_values_of_their_family(study, name):
    """Twenty logs; of the log with carry-over the value is what logs of the target itself bring."""
    family = study["families"].named(name)
    if name.startswith("carry"):
        world = study["worlds"].World("other", np.array([[0.08, 0.1, 0.12, 0.14, 0.3]]), *(
            np.array([[0.05, 0.05, 0.05, 0.05, 0.8]]),) * 3, 500, ("fixed", 20.0),
            rewards=study["families"]._clicks_less_when_repeated)  # fmt: skip
        sums = np.array([(log.reward.sum(), log.reward.size) for log in map(world.log, range(20))])
    else:
        logs = [family.draw(seed) for seed in range(20)]
        sums = np.array([((log.target / log.propensity * log.reward).sum(), log.reward.size) for log in logs])
    gaps = sums[:, 0] - family.value * sums[:, 1]
    assert abs(gaps.sum()) < 4.0 * np.sqrt(gaps @ gaps)


def test_the_same_seed_gives_the_same_log_and_users_stand_together(study):
    for name in ("p05-greedy.1-k20", "drawn-f21-softmax-gamma", "trained-on-log"):
        family = study["families"].named(name)
        one, two = family.draw(3), family.draw(3)
        assert all(np.array_equal(getattr(one, key), getattr(two, key)) for key in ("reward", "target", "user"))
        assert np.all(np.diff(one.user) >= 0)
        assert one.target.max() <= 1.0
        assert one.propensity.min() >= family.facts.get("propensity_min", 0.0) * (1 - 1e-9)

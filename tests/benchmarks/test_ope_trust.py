"""OPE-trust: the frozen version, exact values and the scorer."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from study_modules import bring, refused

from recsim_mnar.rng import derive_seed

NAMES = ("worlds", "families", "halves", "scoring", "entries", "tables", "run", "worlds_v2", "families_v2", "halves_v2")


@pytest.fixture(scope="module")
def study():
    with bring("ope_trust", *NAMES) as found:
        yield found


def test_the_families_are_as_they_were_frozen(study):
    halves = study["halves"]
    assert halves.changed() == []
    assert len(halves.settings()["families"]) >= 32
    assert set(halves.settings()["families"]) == set(study["families"].FAMILIES)


def test_facts_are_true_and_tables_are_laws(study):
    for setting in study["halves"].all_settings():
        world = setting.world()
        for law in (world.logger, world.target):
            assert np.allclose(law.sum(1), 1.0), setting
            assert law.min() >= 0.0, setting
        assert 0.0 <= world.chance.min() <= world.chance.max() <= world.engaged, setting
        log, facts = world.log(7, 2000), world.facts
        assert facts.reward_min <= log.reward.min() <= log.reward.max() <= facts.reward_max, setting
        assert 0 < log.propensity.min() <= log.propensity.max() <= 1, setting
        used = (world.people.law()[:, None] * world.target) > 0
        assert world.learns or facts.full_support == bool((world.logger[used] > 0).all()), setting


@pytest.mark.verify
def test_values_are_what_the_target_earns_when_it_acts(study):
    """Monte Carlo of every family: the target in the logger's place, errors by the groups that respond together."""
    for family in study["families"].FAMILIES:
        world = study["halves"].Setting(family, "public", 0).world()
        acting = replace(world, logger=world.target, written=None, doubled=(0.0, 0.0), learns=0.0)
        log = acting.log(11, 200_000)
        groups = log.user // world.group
        rows = np.bincount(groups)
        off = np.bincount(groups, log.reward) - world.value * rows
        assert abs(off.sum()) < 4.5 * np.sqrt((off**2).sum()), family


def test_the_logger_acts_with_its_written_propensities(study):
    """Families without a defect of propensities: weights average 1."""
    wrong = {"rounded_propensities", "raised_propensities", "stale_propensities", "forgotten_filter", "new_items"}
    for family in set(study["families"].FAMILIES) - wrong - {"blocked_contexts", "cold_softmax", "retries"}:
        world = study["halves"].Setting(family, "public", 0).world()
        log = world.log(13, 20_000)
        rows, off = np.bincount(log.user), np.bincount(log.user, log.target / log.propensity - 1)
        assert abs(off.sum()) < 4.5 * np.sqrt((off**2).sum()), (family, len(rows))


# ---------------------------------------------------------------------------------------------------------- the scorer


def test_the_scorer_by_hand(study):
    """Four logs of value 1: right, missed by .05, too wide, and one of an unusable setting that is blocked."""
    scoring = study["scoring"]
    answers = np.array([[1, 0.9, 1.1, 2], [1, 1.05, 1.2, 2], [1, 0.6, 1.2, 2], [0.5, 0.4, 0.6, 1]])
    truth, fit = np.ones(4), np.array([True, True, True, False])
    on = scoring.judged(truth, fit, answers, 2.0)
    assert on["accepted"].tolist() == [True, True, True, False]
    assert on["block"].tolist() == [False, False, True, False]
    assert on["pass"].tolist() == [False, True, False, False]
    assert on["score"] == pytest.approx([0.2, 0.15 + 40 * 0.05, 0.6, 0.2 + 40 * 0.4])
    found = scoring.figures(truth, fit, answers, 2.0)
    assert [found[k][0] for k in ("accepted", "false_block", "false_pass", "covered_given_accept")] == pytest.approx(
        [3 / 4, 1 / 3, 1 / 4, 2 / 3]
    )
    z, n, p = 1.959964, 4, 1 / 4
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    ends = [(middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)]
    assert found["false_pass"][1:] == pytest.approx(ends)
    assert found["interval_score"] == pytest.approx((0.2 + 2.15 + 0.6 + 16.2) / 4)
    assert found["interval_score_usable"] == pytest.approx((0.2 + 2.15 + 0.6) / 3)


# ------------------------------------------------------------------------------------------------------------- entries


def test_an_own_entry_runs_beside_the_others_and_only_it_is_made_again(study, monkeypatch, tmp_path, capsys):
    run, halves = study["run"], study["halves"]
    some = [halves.Setting(family, half, 0) for family in ("stars", "two_arms") for half in halves.HALVES]
    monkeypatch.setattr(halves, "all_settings", lambda _: some)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_gate.py").write_text(
        "def gate(log, facts):\n    value = (log.target / log.propensity * log.reward).mean()\n"
        "    return value, 0.8 * value, 1.2 * value, 1.0\n"
    )
    run.main(["--quick", "--entry", "my_gate:gate", "--out", str(tmp_path / "out")])
    first = capsys.readouterr().out
    assert "| `my_gate:gate` |" in first
    assert not list(tmp_path.rglob("my_gate*.json"))
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    run.main(["--quick", "--entry", "my_gate:gate", "--out", str(tmp_path / "out")])
    assert capsys.readouterr().out == first
    assert kept == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.json")}
    refused(lambda: run.main(["--quick", "--entry", "my_gate:none"]), "--entry my_gate:none")


def test_the_page_has_every_entry_and_every_family(study):
    folder = study["halves"].HERE
    found = json.loads((folder / "results.json").read_text())
    assert set(found["entries"]) == set(study["entries"].ENTRIES)
    assert set(found["families"]) == set(study["families"].FAMILIES)
    logs = study["halves"].settings()["logs"]
    for entry in found["entries"].values():
        assert entry["both"]["logs"] == 2 * entry["hidden"]["logs"] == 2 * 3 * logs * len(found["families"])
        assert sum(entry["families"].values()) == len(found["families"])
    for page, names in (("README.md", found["entries"]), ("results.md", [*found["entries"], *found["families"]])):
        text = (folder / page).read_text()
        assert [name for name in names if f"\n| `{name}` |" not in text] == []


# ---------------------------------------------------------------------------------------------------------- version 2


def first_settings(study):
    """One setting of each family of v2, with its world."""
    halves = study["halves_v2"]
    return [(family, halves.Setting(family, "public", 0).world()) for family in study["families_v2"].FAMILIES]


def off_by(groups, off):
    """A sum of independent groups over its standard error; 0 where every row is 0."""
    sums = np.bincount(groups, off)
    return abs(sums.sum()) / max(np.sqrt((sums**2).sum()), 1e-9)


def test_v2_is_as_it_was_frozen(study, monkeypatch, tmp_path):
    halves = study["halves_v2"]
    assert halves.changed() == []
    before = halves.Setting("guest", "hidden", 0).parameters
    other = tmp_path / "v3.toml"
    other.write_bytes(halves.FROZEN.read_bytes() + b"# another version\n")
    monkeypatch.setattr(halves, "FROZEN", other)
    halves.seed_of.cache_clear()
    assert halves.Setting("guest", "hidden", 0).parameters != before
    halves.seed_of.cache_clear()
    other.write_text(other.read_text().replace('"families_v2.py" = "', '"families_v2.py" = "0'))
    assert halves.changed() == ["families_v2.py"]
    refused(halves.check_frozen, "families_v2.py")


def test_v2_has_thirty_honest_families_and_ten_others(study):
    families, ranges = study["families_v2"], study["halves_v2"].settings()["families"]
    assert (len(families.HONEST), len(families.DISHONEST)) == (30, 10)
    assert set(ranges) == set(families.FAMILIES)
    assert all(1000 <= low < high <= 50_000 for low, high in (found["rows"] for found in ranges.values()))
    assert not set(families.FAMILIES) & set(study["families"].FAMILIES)


def test_v2_statements_are_true_of_honest_logs(study):
    for family, world in first_settings(study):
        for law in (world.logger, world.target, world.baseline):
            assert np.allclose(law.sum(1), 1.0), family
            assert law.min() >= 0.0, family
        assert 0.0 <= world.chance.min() <= world.chance.max() <= 0.95, family
        log, facts = world.log(7), world.facts
        assert facts.full_support
        assert facts.reward_min <= log.reward.min() <= log.reward.max() <= facts.reward_max, family
        assert (np.diff(log.time) >= 0).all(), family
        assert log.weight.min() >= 1.0, family
        assert world.written is None or family in {"pooled_systems", "swapped_model", "hidden_gap"}
        wanted = (log.target > 0) | (log.baseline > 0)
        assert family == "told_target" or log.propensity[wanted].min() >= facts.propensity_min * (1 - 1e-9), family


def test_v2_honest_loggers_act_with_their_written_propensities(study):
    """Weights average 1 and the logger earns its value, by users; of one id that many share, by rows."""
    honest = study["families_v2"].HONEST
    for family, world in first_settings(study):
        log = world.log(13)
        groups = np.arange(len(log.user)) if world.visits.alone else log.user
        if family in honest:
            for policy in (log.target, log.baseline):
                assert off_by(groups, log.weight * (policy / log.propensity - 1)) < 4.5, family
        if not (world.learner or any(world.doubled) or not world.told or family == "shocked_days"):
            assert off_by(groups, log.weight * (log.reward - world.value(world.logger))) < 4.5, family


@pytest.mark.slow
@pytest.mark.verify
def test_v2_values_are_what_policies_earn_when_they_act(study):
    """Monte Carlo of both policies under their own states, by users, and by days where these are good or bad."""
    honest_log = {"written": None, "learner": None, "leak": 0.0, "doubled": (0.0, 0.0), "told": True}
    for family, world in first_settings(study):
        days = 20_000 if family == "shocked_days" else world.visits.days
        for number, policy in enumerate((world.target, world.baseline)):
            visits = replace(world.visits, rows=200_000, days=days)
            acting = replace(world, logger=policy, visits=visits, **honest_log)
            log = acting.log(derive_seed(17 + number, family))
            groups = (log.time // 24).astype(int) if family == "shocked_days" else log.user
            groups = np.arange(len(log.user)) if world.visits.alone else groups
            assert off_by(groups, log.weight * (log.reward - acting.value(policy))) < 4.5, family


@pytest.mark.slow
@pytest.mark.verify
def test_v2_dishonest_logs_mislead(study):
    """In one of three settings at least, ips misses the truth by far more than its error of twenty logs says."""
    halves = study["halves_v2"]
    for family in set(study["families_v2"].DISHONEST) - {"shocked_days"}:
        far = []
        for setting in halves.all_settings(("public",), [family]):
            world = setting.world()
            logs = [setting.log(world, number) for number in range(20)]
            found = np.array([float((log.target / log.propensity * log.reward).mean()) for log in logs])
            far.append(abs(found.mean() - world.value(world.target)) / (found.std(ddof=1) / math.sqrt(20)))
        assert max(far) > 6, family
    world = halves.Setting("shocked_days", "public", 0).world()
    logs = [world.log(seed) for seed in range(30)]
    spread = np.std([log.reward.mean() for log in logs])
    assert spread > 3 * logs[0].reward.std() / math.sqrt(len(logs[0].reward))


def test_v2_effects_are_those_of_a_plain_loop(study):
    worlds = study["worlds_v2"]
    draws = study["worlds"].Draws(3)
    rows = worlds.Rows(*((draws.uniform(name, 400) * 20).astype(int) for name in ("user", "state")), np.arange(400.0))
    action = (draws.uniform("action", 400) * 6).astype(int)
    world = study["halves_v2"].Setting("tired_for_good", "public", 0).world()
    bait = np.arange(6) < 2
    effects = (worlds.Tired(0.5, ever=True), worlds.Tired(0.5, ever=False), worlds.Baited(0.5, bait))
    ever, last, baited = (effect.on_rows(draws, rows, action, world) for effect in effects)
    lives = {user: [] for user in range(20)}
    for row, (user, item) in enumerate(zip(rows.user, action, strict=True)):
        life = lives[user]
        assert ever[row] == (0.5 if item in life else 1.0)
        assert last[row] == (0.5 if life and life[-1] == item else 1.0)
        assert baited[row] == 0.5 ** sum(bait[i] for i in life)
        life.append(item)


def test_v2_logs_come_with_what_is_true_of_them(study):
    halves = study["halves_v2"]
    one, again = (list(halves.v2_logs("public", ["guest", "told_target"], logs=2)) for _ in range(2))
    assert [(case.family, case.honest, case.index) for case in one[:3]] == [
        ("guest", True, 0),
        ("guest", True, 1),
        ("guest", True, 0),
    ]
    assert len(one) == 2 * 3 * 2
    assert not one[-1].honest
    for case, same in zip(one, again, strict=True):
        assert case.difference == case.value - case.baseline
        assert np.array_equal(case.log.reward, same.log.reward)
    assert not np.array_equal(one[0].log.action[:500], one[1].log.action[:500])

"""OPE-trust: the frozen version, exact values and the scorer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from study_modules import bring

NAMES = ("worlds", "families", "halves")


@pytest.fixture(scope="module")
def study():
    with bring("ope_trust", *NAMES) as found:
        yield found


def test_the_families_are_as_they_were_frozen(study):
    halves = study["halves"]
    assert halves.changed() == []
    assert len(halves.settings()["families"]) >= 32
    assert set(halves.settings()["families"]) == set(study["families"].FAMILIES)


def test_the_hidden_seed_follows_from_the_frozen_file(study, monkeypatch, tmp_path):
    halves = study["halves"]
    settings = list(halves.all_settings())
    assert len(settings) == len({s.name for s in settings}) == 2 * 3 * len(halves.settings()["families"])
    before = halves.Setting("shop_window", "hidden", 0).parameters
    other = tmp_path / "v2.toml"
    other.write_bytes(halves.FROZEN.read_bytes() + b"# another version\n")
    monkeypatch.setattr(halves, "FROZEN", other)
    halves.seed_of.cache_clear()
    assert halves.Setting("shop_window", "hidden", 0).parameters != before
    halves.seed_of.cache_clear()


def test_a_log_is_a_function_of_its_address(study):
    setting = study["halves"].Setting("loyal_users", "public", 1)
    one, two, other = (setting.log(setting.world(), number) for number in (0, 0, 1))
    assert np.array_equal(one.reward, two.reward)
    assert np.array_equal(one.propensity, two.propensity)
    assert not np.array_equal(one.action[:500], other.action[:500])


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

"""The study of refuters and uplift: planted faults, and that a quick run writes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from study_modules import BENCHMARKS, bring

FOLDER = BENCHMARKS / "verdict"


@pytest.fixture(scope="module")
def study():
    with bring("verdict", "run", "refuters", "items", "uplift_worlds", "average_effect") as found:
        yield found


def test_a_quick_run_writes_nothing(study, capsys):
    before = {path: path.stat().st_mtime_ns for path in FOLDER.glob("*.*")}
    study["run"].main(["--quick"])
    table = capsys.readouterr().out.splitlines()
    assert len(table) == 2 + len(study["uplift_worlds"].LISTS) + len(study["average_effect"].EFFECTS)
    assert {path: path.stat().st_mtime_ns for path in FOLDER.glob("*.*")} == before


def test_a_planted_fault_is_found_and_a_right_log_is_not(study):
    refuters = study["refuters"]
    assert [refuters.judged("right", refuters.right, number)["any"] for number in range(3)] == [False] * 3
    found = [refuters.judged("items_changed", refuters.items_changed, number) for number in range(3)]
    assert all(each["item_propensities"] for each in found)


def test_the_effect_of_a_world_is_what_its_logs_show(study):
    """Without recommendations a hundred logs buy at the base rate, with them at that and the effect."""
    (world, *_) = study["uplift_worlds"].draw_uplift()
    shown, bought, _ = (np.stack(each) for each in zip(*(world.log(number) for number in range(100)), strict=True))
    for flags, rate in ((shown, world.base + world.effect), (~shown, world.base)):
        hits, of = (bought & flags).sum((0, 1, 3)), flags.sum((0, 1, 3))
        assert np.all(np.abs(hits - of * rate) < 4.5 * np.sqrt(of * rate + 1))

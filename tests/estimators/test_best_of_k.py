"""The best of k policies is judged at the level of all of them together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.answers.records import level_of_best
from recsim_mnar.answers.sentence import sentence_of
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import Facts
from recsim_mnar.own_log.estimating import Question, estimate_log
from twins.commands import status_of
from twins.facts import estimate_value

K = 20


def test_level_of_best():
    assert level_of_best(0.95, 1) == 0.95
    assert level_of_best(0.95, 100) == pytest.approx(0.9995)
    with pytest.raises(UserError, match="k must be"):
        level_of_best(0.95, 0)
    with pytest.raises(UserError, match="level must be"):
        level_of_best(95.0, 2)


@pytest.mark.slow
@pytest.mark.verify
def test_the_winner_of_equal_policies_is_held_at_the_level_of_the_best_only():
    """Items earn the same, so luck alone picks: of 20 intervals at .95 one misses in most logs, the winner's."""
    held = {0.95: 0, level_of_best(0.95, K): 0}
    facts = Facts(propensity_min=1.0 / K, full_support=True)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        action = rng.integers(0, K, 8000)
        reward = (rng.random(8000) < 0.2).astype(float)
        best = int(np.argmax(np.bincount(action, reward, minlength=K)))
        log = (reward, np.full(8000, 1.0 / K), (action == best).astype(float))
        for level in held:
            estimate = estimate_value(*log, level=level, estimator="ips", facts=facts)
            held[level] += estimate.low <= 0.2 <= estimate.high
    alone, together = held.values()
    assert alone < 0.85 * 150
    assert together >= 0.95 * 150 - 3.0 * np.sqrt(0.95 * 0.05 * 150)


@pytest.fixture
def four(tmp_path):
    """80 rewards: half an interval is about 1.96 / sqrt(80) = .22 of the value at .95, and .28 at 1 - .05 / 4, where
    .25 is asked for. With 50 rewards it is .28 at .95."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"user": np.arange(1280), "reward": (np.arange(1280) % 16 == 0) * 1.0, "propensity": 0.5})
    for name in "abcd":
        frame[name] = rng.uniform(0.45, 0.55, 1280)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.iloc[:800].to_csv(tmp_path / "few.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(("targets", "status", "named"), [("a", 0, []), ("a,b,c,d", 3, ["c"])])
def test_a_gate_judges_several_targets_at_the_level_of_the_best(targets, status, named, four, capsys):
    assert status_of("estimate", four / "log.csv", "--target", targets, "--require", "trust") == status
    below = [line for line in capsys.readouterr().err.splitlines() if line.startswith("--require trust: ")]
    assert [line.split(": ")[1].split(",")[0] for line in below] == named


def test_a_caution_that_only_the_level_of_the_best_makes_says_so(four):
    why = "(the best of 4 is judged at 98.75 %; at 95 %, as in its row, the verdict is trust)"
    for targets, explained in (("abcd", True), ("a", False)):
        answer = estimate_log(four / "log.csv", Question(targets=list(targets)))
        assert {record["verdict_level"] for record in answer.records if record["leads"]} == {"trust"}
        assert (why in sentence_of(answer.records).text) == explained
    # Where the row itself is cautious there is nothing to explain.
    text = sentence_of(estimate_log(four / "few.csv", Question(targets=list("abcd"))).records).text
    assert ", but: " in text
    assert "as in its row" not in text

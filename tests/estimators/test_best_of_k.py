"""What is said of the best of k policies: at the level of all of them together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.off_policy.sentence import sentence_of
from recsim_mnar.estimators.off_policy.stated import level_of_best
from recsim_mnar.own_log.estimating import Question, estimate_log
from twins.commands import status_of

K = 20


def test_level_of_best():
    assert level_of_best(0.95, 1) == 0.95
    assert level_of_best(0.95, 100) == pytest.approx(0.9995)
    with pytest.raises(UserError, match="k must be"):
        level_of_best(0.95, 0)
    with pytest.raises(UserError, match="level must be"):
        level_of_best(95.0, 2)


def test_the_winner_of_equal_policies_is_held_at_the_level_of_the_best_only():
    """Items earn the same, so luck alone picks: of 20 intervals at .95 one misses in most logs, the winner's."""
    held = {0.95: 0, level_of_best(0.95, K): 0}
    for seed in range(150):
        rng = np.random.default_rng(seed)
        action, reward = rng.integers(0, K, 8000), (rng.random(8000) < 0.2).astype(float)
        best = int(np.argmax(np.bincount(action, reward, minlength=K)))
        for level in held:
            found = estimate_value(
                reward, np.full(8000, 1.0 / K), (action == best).astype(float), level=level, estimator="ips",
                propensity_min=1.0 / K, full_support=True,
            )  # fmt: skip
            held[level] += found.low <= 0.2 <= found.high
    own, together = held.values()
    assert own < 0.85 * 150
    assert together >= 0.95 * 150 - 3.0 * np.sqrt(0.95 * 0.05 * 150)


@pytest.fixture
def four(tmp_path):
    """Rows of four policies: each is narrow enough to be trusted at .95; the best of them, at 1 - .05 / 4, is not."""
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"user": np.arange(400), "reward": (np.arange(400) % 16 == 0) * 1.0, "propensity": 0.5})
    for name in "abcd":
        frame[name] = rng.uniform(0.3, 0.7, 400)
    frame.to_csv(tmp_path / "log.csv", index=False)
    frame.iloc[:250].to_csv(tmp_path / "few.csv", index=False)
    return tmp_path


@pytest.mark.parametrize(("targets", "status", "named"), [("a", 0, []), ("a,b,c,d", 3, ["b"])])
def test_a_gate_judges_several_targets_at_the_level_of_the_best(targets, status, named, four, capsys):
    stated = ["--propensity-min", "0.5", "--weight-max", "1.4"]
    assert status_of("estimate", four / "log.csv", "--target", targets, *stated, "--require", "trust") == status
    below = [line for line in capsys.readouterr().err.splitlines() if line.startswith("--require trust: ")]
    assert [line.split(": ")[1].split(",")[0] for line in below] == named
    assert all("% of the log's mean reward to either side" in line for line in below)


def test_a_caution_that_only_the_level_of_the_best_makes_says_so(four):
    why = "(the best of 4 is judged at 98.75 %; at 95 %, as in its row, the verdict is trust)"
    stated = {"propensity_min": 0.5, "weight_max": 1.4}
    for targets, said in (("abcd", True), ("a", False)):
        answer = estimate_log(four / "log.csv", Question(targets=list(targets), stated=stated))
        assert {record["verdict_level"] for record in answer.records if record["leads"]} == {"trust"}
        assert (why in sentence_of(answer.records).text) is said
    # Where the row itself is cautious there is nothing to explain.
    text = sentence_of(estimate_log(four / "few.csv", Question(targets=list("abcd"), stated=stated)).records).text
    assert ", but: " in text
    assert "as in its row" not in text

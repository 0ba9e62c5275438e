"""What is said of the best of k policies: at the level of all of them together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar import cli, estimate_value
from recsim_mnar.cli import logs
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.inputs import level_of_best

K = 20


def test_level_of_best():
    assert level_of_best(0.95, 1) == 0.95
    assert level_of_best(0.95, 100) == pytest.approx(0.9995)
    with pytest.raises(UserError, match="k must be"):
        level_of_best(0.95, 0)
    with pytest.raises(UserError, match="level must lie"):
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


@pytest.mark.parametrize(("targets", "levels"), [("a", [0.9]), ("a,b,c,d", [0.9, 0.975])])
def test_a_gate_judges_several_targets_at_the_level_of_the_best(targets, levels, tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"user": np.arange(500), "reward": rng.integers(0, 2, 500), "propensity": 0.5})
    for name in "abcd":
        frame[name] = rng.random(500)
    frame.to_csv(tmp_path / "log.csv", index=False)
    asked, estimates = [], logs._estimates

    def spy(log, options, limit, gather):
        asked.append(options["level"])
        return estimates(log, options, limit, gather)

    monkeypatch.setattr(logs, "_estimates", spy)
    with pytest.raises(SystemExit):
        cli.main(["estimate", str(tmp_path / "log.csv"), "--target", targets, "--level", "0.9", "--require", "caution"])
    assert asked == pytest.approx(levels)
    capsys.readouterr()

"""The oracle: it shows what earns most in each user's hidden state, wherever states are known."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from recsim_mnar.envs import WorldEnv
from recsim_mnar.errors import UserError
from recsim_mnar.policies import registry
from recsim_mnar.protocols.decisions import truth
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.oracle import Oracle
from recsim_mnar.worlds import make_world
from twins.commands import run

WORLD = make_world("sessions", n_items=12, n_flips=4, sigma_mu_organic=1.0)


def test_it_shows_what_an_environment_says_is_best():
    """The same lives in an environment, where the expected rewards of each decision are looked up."""
    log = simulate(WORLD, Oracle(WORLD), 6, 3, keep_truth=True).bandit()
    env = WorldEnv(WORLD)
    env.reset(seed=3)
    best = []
    for user in log.users().tolist():
        env.reset(seed=3, options={"user": user})
        ended = False
        while not ended:
            means = env.reward_means()
            best.append((user, means.argmax(), means.max()))
            _, _, ended, _, _ = env.step(int(means.argmax()))
    logged = np.column_stack([log[name] for name in ("user", "action", "click_probability")])
    assert_array_equal(logged, best)


@pytest.mark.slow
@pytest.mark.verify
def test_nobody_who_sees_observations_earns_more():
    """On the same users, by truth; by occasions and by plain lives the same number."""
    policies = {"oracle": Oracle(WORLD), "random": registry.uniform_policy(12)}
    log = simulate(WORLD, policies["random"], 400, 1)
    policies["svd"] = registry.learner("svd").fit(log, n_items=12, seed=1)
    by_occasions = {r.agent: r for r in truth(WORLD, policies, 4000, 1)}
    assert by_occasions["oracle"].low > max(by_occasions["svd"].high, by_occasions["random"].high)
    drifting = make_world("sessions", **{**WORLD.params.to_dict(), "drift_in_bandit": True, "sigma_omega": 1e-9})
    still = make_world("sessions", **{**WORLD.params.to_dict(), "sigma_omega": 1e-9})
    plain, runs = (simulate(each, Oracle(each), 300, 2, keep_truth=True) for each in (drifting, still))
    assert_array_equal(plain["action"], runs["action"])


def test_it_is_a_reference_and_no_agent(capsys, tmp_path):
    small = ["--set", "n_items=12", "--set", "n_flips=4", "--option", "train_users=40", "--option", "test_users=40"]
    small += ["--option", "arm_users=40", "--option", "truth_users=60", "--agents", "random,popularity"]
    status, out, err = run(capsys, "compare", *small, "--references", "oracle", "--out", tmp_path / "run")
    assert status == 0, err
    assert "oracle" in out
    status, _, err = run(capsys, "compare", *small[:-1], "oracle,random", "--out", tmp_path / "other")
    assert status == 2
    assert "oracle knows the truth and cannot be picked: name it with --references" in err
    records, summary = (json.loads((tmp_path / "run" / f"{name}.json").read_text()) for name in ("results", "summary"))
    (own,) = [r for r in records["records"] if r["agent"] == "oracle"]
    assert own["protocol"] == "truth"
    assert own["details"]["reference"]
    others = [r["value"] for r in records["records"] if r["protocol"] == "truth" and r["agent"] != "oracle"]
    assert own["value"] > max(others)
    assert "oracle" not in {judgement["best"] for judgement in summary["judgements"]}


def test_a_log_holds_no_states():
    log = simulate(WORLD, registry.uniform_policy(12), 5, 3)
    with pytest.raises(UserError, match="'oracle' is not replayable"):
        replay(log, Oracle(WORLD))
    with pytest.raises(UserError, match="an oracle asks for one item at a time"):
        Oracle(make_world("purchases", "quick"))

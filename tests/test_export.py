"""Logs as other libraries' arrays: what is exported is what was logged, by plain twins, and it comes back the same."""

import ast
import dataclasses
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import recsim_mnar.export
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.export import (
    action_dist,
    decisions,
    distributions,
    from_arrays,
    from_minari,
    from_obp,
    from_rllib,
    from_vw,
    to_d3rlpy,
    to_minari,
    to_obp,
    to_rllib,
    to_vw,
)
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from twins import histories
from twins.policies import OrderReader

P = 9
FIELDS = ("context", "action", "reward", "propensity", "user", "step", "last", "truncated", "final")


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1, p_leave_organic=0.1))


@pytest.fixture(scope="module")
def log(world):
    policy = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=P, seed=0)
    log = simulate(world, policy, n_users=60, seed=3)
    assert 0 < log.is_bandit.sum() < len(log)
    assert len(np.unique(log["user"][log.is_bandit])) < len(log.users()), "some user must have no decision"
    return log


@pytest.fixture(scope="module")
def made(log):
    return decisions(log, P)


def same(one, other, *, but=()):
    for name in FIELDS:
        if name not in but:
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("observation", ["counts", "decayed=0.7", "last=3", "shown=0.7"])
def test_contexts_are_those_of_a_plain_twin(log, observation):
    given, kind = decisions(log, P, context=observation), observation.partition("=")[0]
    rows, ends = histories.contexts(log, P, kind, decay=0.7, last=3)
    np.testing.assert_array_equal(given.context, np.array(rows))
    some = dict.fromkeys(log["user"][log.is_bandit].tolist())
    np.testing.assert_array_equal(given.final, np.array([ends[user] for user in some]))
    assert given.context.dtype == np.float32


def test_the_page_of_exports_says_what_decisions_can_be_asked(made):
    page = Path(__file__).parents[1] / "docs" / "export.md"
    if not page.exists():
        pytest.skip("the documentation is not next to the tests")
    for name in vars(type(made)):
        if not name.startswith("_") and callable(getattr(made, name)):
            assert f"`{name}()`" in page.read_text()


def test_decisions_are_the_bandit_rows(log, made):
    shown = log.is_bandit
    for name in ("action", "reward", "propensity", "user", "step"):
        np.testing.assert_array_equal(getattr(made, name), log[name][shown])
    ends = {user: row for row, user in enumerate(log["user"][shown].tolist())}
    assert np.flatnonzero(made.last).tolist() == sorted(ends.values())
    following = made.next_context()
    for rows, final in zip(made.episodes(), made.final, strict=True):
        np.testing.assert_array_equal(following[rows.stop - 1], final)
        np.testing.assert_array_equal(following[rows][:-1], made.context[rows][1:])


def test_distributions_are_what_replay_says_of_any_policy(log, made):
    reader = OrderReader(P)
    whole = distributions(log, reader)
    np.testing.assert_allclose(whole.sum(axis=1), 1.0, atol=1e-12)
    np.testing.assert_array_equal(whole[np.arange(len(made)), made.action], replay(log, reader)[log.is_bandit])


def test_learners_have_no_distributions_over_a_log_taken_apart(log):
    class Learning(OrderReader):
        name = "learning"

        def learn(self, users, actions, rewards, propensities):
            pass

    with pytest.raises(UserError, match="learns from all users"):
        distributions(log, Learning(P))


# ------------------------------------------------------------------------------------------------------- formats


def test_obp_and_back(log, made):
    policy = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=P, seed=0)
    feedback = to_obp(made, logging=distributions(log, policy))
    assert feedback["n_rounds"] == len(made)
    assert feedback["pi_b"].shape == (len(made), P, 1)
    rounds = np.arange(len(made))
    np.testing.assert_allclose(feedback["pi_b"][rounds, feedback["action"], 0], feedback["pscore"])
    same(from_obp(feedback), made, but=("final",))
    assert action_dist(np.eye(3)).shape == (3, 3, 1)


def test_obp_feedback_of_others_comes_in(made):
    given = {key: to_obp(made)[key] for key in ("n_actions", "action", "reward", "pscore", "context")}
    back = from_obp({**given, "position": None})
    assert back.user.tolist() == list(range(len(made)))
    assert back.last.all()
    with pytest.raises(UserError, match="several positions"):
        from_obp({**given, "position": np.arange(len(made)) % 2})
    with pytest.raises(UserError, match="no 'pscore'"):
        from_obp({**given, "pscore": None})


def test_a_limit_that_ended_decisions_is_said_and_comes_back(made):
    """Where the user stayed, the episode is truncated and not terminated: d3rlpy's timeout."""
    cut = made.last & (made.user % 3 == 0)
    assert 0 < cut.sum() < made.last.sum()
    limited = dataclasses.replace(made, truncated=cut)
    arrays = to_d3rlpy(limited)
    np.testing.assert_array_equal(arrays["timeouts"], cut)
    np.testing.assert_array_equal(arrays["terminals"] + arrays["timeouts"], made.last)
    episodes = [SimpleNamespace(**one) for one in to_minari(limited)]
    space = SimpleNamespace(n=P)
    back = from_minari(SimpleNamespace(iterate_episodes=lambda: iter(episodes), action_space=space))
    same(back, limited)
    assert back.n_items == P
    same(from_rllib(to_rllib(limited), P), limited, but=("propensity",))


def test_minari_and_back(made):
    episodes = to_minari(made)
    assert [len(e["actions"]) + 1 for e in episodes] == [len(e["observations"]) for e in episodes]
    assert all(len(values) == len(e["observations"]) for e in episodes for values in e["infos"].values())
    assert all(e["terminations"].tolist() == [False] * (len(e["actions"]) - 1) + [True] for e in episodes)
    stated = [e["infos"]["propensity"] for e in episodes]
    np.testing.assert_array_equal(np.concatenate([of_actions[:-1] for of_actions in stated]), made.propensity)
    assert np.isnan([of_actions[-1] for of_actions in stated]).all()
    assert {int(e["infos"]["step"][-1]) for e in episodes} == {-1}
    dataset = SimpleNamespace(iterate_episodes=lambda: iter([SimpleNamespace(**e) for e in episodes]))
    same(from_minari(dataset, P), made)
    bare = SimpleNamespace(iterate_episodes=lambda: iter([SimpleNamespace(**{**episodes[0], "infos": {}})]))
    with pytest.raises(UserError, match="no infos"):
        from_minari(bare, P)


def test_d3rlpy_holds_everything_but_propensities(made):
    arrays = to_d3rlpy(made)
    assert arrays["action_size"] == P
    assert arrays["actions"].shape == arrays["rewards"].shape == (len(made), 1)
    np.testing.assert_array_equal(arrays["actions"][:, 0], made.action)
    assert arrays["terminals"].sum() == len(made.episodes())


@pytest.mark.parametrize("kind", ["counts", "shown"])
def test_vowpal_wabbit_and_back(log, tmp_path, kind):
    made = decisions(log, P, context=kind)
    lines = to_vw(made, tmp_path / "log.vw")
    assert len(lines) == len(made)
    label, tag, _, *features = lines[0].split()
    first = (int(made.action[0]) + 1, 0.0 - float(made.reward[0]), float(made.propensity[0]))
    assert label == ":".join(map(repr, first))
    assert tag == f"'{made.user[0]}_{made.step[0]}"
    assert len(features) == np.count_nonzero(made.context[0])
    same(from_vw(tmp_path / "log.vw", P, width=made.context.shape[1]), made, but=("final",))


def test_vowpal_wabbit_lines_of_others_come_in():
    back = from_vw(["2:-1:0.25 | f0 f3:2.5", "1:0:0.5 |"], n_items=4)
    assert back.action.tolist() == [1, 0]
    assert back.reward.tolist() == [1.0, 0.0]
    assert back.context.tolist() == [[1, 0, 0, 2.5], [0, 0, 0, 0]]
    assert back.user.tolist() == [0, 1]
    for bad, said in (
        (["1:0 | f0"], "line 1: not action:cost:propensity"),
        (["7:0:0.5 | f0"], "actions must be in 0..3"),
        (["1:0:0 | f0"], "row 0: propensity must be"),
        (["1:0:0.5 '7_0 | f0", "1:0:0.5 | f0"], "1 of 2 examples have a tag .'user_step.: give every"),
        ([], "no examples"),
    ):
        with pytest.raises(UserError, match=said):
            from_vw(bad, n_items=4)


def test_rllib_and_back(made):
    table = to_rllib(made)
    back = from_rllib(table, P)
    same(back, made, but=("propensity",))
    np.testing.assert_allclose(back.propensity, made.propensity, rtol=1e-14)
    row = table.slice(5, 1).to_pylist()[0]
    assert row["obs"] == made.context[5].tolist()
    assert math.exp(row["action_logp"]) == pytest.approx(made.propensity[5])
    starts = np.flatnonzero(table.column("t").to_numpy() == 0)
    assert starts.tolist() == [rows.start for rows in made.episodes()]
    with pytest.raises(UserError, match="no column 'action_logp'"):
        from_rllib(table.drop_columns(["action_logp"]), P)


def test_what_comes_back_is_a_log_that_estimators_read(log, made):
    target = registry.learner("user-popularity-greedy").fit(Log({}), n_items=P, seed=0)
    aimed = replay(log, target)[log.is_bandit]
    back = from_vw(to_vw(made), P).log().validate(P)
    shown = log.bandit()
    direct = estimate_value(shown["reward"], shown["propensity"], aimed, cluster=shown["user"])
    through = estimate_value(back["reward"], back["propensity"], aimed, cluster=back["user"])
    assert (through.value, through.low, through.high) == (direct.value, direct.low, direct.high)


# ---------------------------------------------------------------------------------------------------- what is refused


def test_mistakes_are_said(log, made):
    for call, said in (
        (lambda: decisions(log, 3), "the log has item"),
        (lambda: decisions(log.bandit(), 3), "the log has action"),
        (lambda: decisions(log.organic(), P), "no bandit rows"),
        (lambda: decisions(log, P, context="last=0"), "observation's length"),
        (lambda: decisions(log, P, context="decayed=2"), "decay"),
        (lambda: to_obp(made, logging=np.ones((2, P))), "logging must have shape"),
        (lambda: from_arrays(3, np.zeros((2, 1)), [0, 1], [0.0], [1.0, 1.0]), "one length"),
    ):
        with pytest.raises(UserError, match=said):
            call()


def test_a_slate_is_one_decision():
    world = SessionsWorld(SessionsParams(n_items=P, slate_size=3, click_link="logistic"))
    log = simulate(world, registry.uniform_policy(P), n_users=30, seed=3)
    made, shown = decisions(log, P), log.bandit()
    assert made.action.shape == made.propensity.shape == (len(shown) // 3, 3)
    assert (made.action.ravel() == shown["action"]).all()
    assert made.reward.tolist() == shown["reward"].reshape(-1, 3).sum(axis=1).tolist()
    assert made.reward.max() > 1
    assert made.step.tolist() == shown["step"][::3].tolist()
    assert (made.context == decisions(log.with_column("position", np.zeros(len(log), int)), P).context[::3]).all()
    assert made.last.sum() == len(shown.users())
    for call in (lambda: to_obp(made), made.log, lambda: to_vw(made)):
        with pytest.raises(UserError, match="are slates, no single items"):
            call()
    with pytest.raises(UserError, match="distributions are of single items, and the log has slates"):
        distributions(log, registry.uniform_policy(P))
    with pytest.raises(UserError, match="slates must be whole and of one size"):
        decisions(log.select(np.delete(np.arange(len(log)), np.flatnonzero(log.is_bandit)[1])), P)


def test_no_foreign_library_is_imported():
    ours = {"recsim_mnar", "numpy", "pyarrow", "__future__"} | set(sys.stdlib_module_names)
    for path in Path(recsim_mnar.export.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= ours, path

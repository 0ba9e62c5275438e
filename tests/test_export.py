"""Logs as other libraries' arrays: what is exported is what was logged, by plain twins, and it comes back the same."""

import ast
import dataclasses
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

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
    from_vw,
    to_d3rlpy,
    to_minari,
    to_obp,
    to_vw,
)
from recsim_mnar.policies import registry
from recsim_mnar.replays.probabilities import replay
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld
from toys import untrained
from twins import histories
from twins.policies import OrderReader

P = 9
FIELDS = ("context", "action", "reward", "propensity", "user", "step", "last", "truncated", "final")


@pytest.fixture(scope="module")
def world():
    return SessionsWorld(SessionsParams(n_items=P, p_leave_bandit=0.1, p_leave_organic=0.1))


@pytest.fixture(scope="module")
def log(world):
    policy = untrained("user-popularity+epsilon=0.3", P)
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
            assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("observation", ["counts", "decayed=0.7", "last=3", "shown=0.7"])
def test_contexts_are_those_of_a_plain_twin(log, observation):
    exported = decisions(log, P, context=observation)
    rows, ends = histories.contexts(log, P, observation.partition("=")[0], decay=0.7, last=3)
    assert_array_equal(exported.context, rows)
    assert_array_equal(exported.final, [ends[user] for user in log.bandit().users()])
    assert exported.context.dtype == np.float32


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
        assert_array_equal(getattr(made, name), log[name][shown])
    ends = {user: row for row, user in enumerate(log["user"][shown].tolist())}
    assert np.flatnonzero(made.last).tolist() == sorted(ends.values())
    following = made.next_context()
    for rows, final in zip(made.episodes(), made.final, strict=True):
        assert_array_equal(following[rows.stop - 1], final)
        assert_array_equal(following[rows][:-1], made.context[rows][1:])


def test_distributions_are_what_replay_says_of_any_policy(log, made):
    reader = OrderReader(P)
    whole = distributions(log, reader)
    assert_allclose(whole.sum(axis=1), 1.0, atol=1e-12)
    assert_array_equal(whole[np.arange(len(made)), made.action], replay(log, reader)[log.is_bandit])


def test_learners_have_no_distributions_over_a_log_taken_apart(log):
    class Learning(OrderReader):
        name = "learning"

        def learn(self, users, actions, rewards, propensities):
            pass

    with pytest.raises(UserError, match="learns from all users"):
        distributions(log, Learning(P))


# ------------------------------------------------------------------------------------------------------- formats


def test_obp_and_back(log, made):
    policy = untrained("user-popularity+epsilon=0.3", P)
    feedback = to_obp(made, logging=distributions(log, policy))
    assert feedback["n_rounds"] == len(made)
    assert feedback["pi_b"].shape == (len(made), P, 1)
    rounds = np.arange(len(made))
    assert_allclose(feedback["pi_b"][rounds, feedback["action"], 0], feedback["pscore"])
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
    """The episode of a user who stayed is truncated and not terminated: d3rlpy's timeout."""
    cut = made.last & (made.user % 3 == 0)
    assert 0 < cut.sum() < made.last.sum()
    limited = dataclasses.replace(made, truncated=cut)
    arrays = to_d3rlpy(limited)
    assert_array_equal(arrays["timeouts"], cut)
    assert_array_equal(arrays["terminals"] + arrays["timeouts"], made.last)
    back = from_minari(dataset_of(to_minari(limited), action_space=SimpleNamespace(n=P)))
    same(back, limited)
    assert back.n_items == P


def test_minari_and_back(made):
    episodes = to_minari(made)
    for episode in episodes:
        n = len(episode["actions"])
        assert len(episode["observations"]) == n + 1
        assert {len(values) for values in episode["infos"].values()} == {n + 1}
        assert episode["terminations"].tolist() == [False] * (n - 1) + [True]
        assert np.isnan(episode["infos"]["propensity"][-1])
        assert episode["infos"]["step"][-1] == -1
    propensities = np.concatenate([episode["infos"]["propensity"][:-1] for episode in episodes])
    assert_array_equal(propensities, made.propensity)
    same(from_minari(dataset_of(episodes), P), made)
    with pytest.raises(UserError, match="no infos"):
        from_minari(dataset_of([{**episodes[0], "infos": {}}]), P)


def dataset_of(episodes, **more):
    """A dataset of Minari with these episodes."""
    made = [SimpleNamespace(**episode) for episode in episodes]
    return SimpleNamespace(iterate_episodes=lambda: iter(made), **more)


def test_d3rlpy_holds_everything_but_propensities(made):
    arrays = to_d3rlpy(made)
    assert arrays["action_size"] == P
    assert arrays["actions"].shape == arrays["rewards"].shape == (len(made), 1)
    assert_array_equal(arrays["actions"][:, 0], made.action)
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
    assert_array_equal(back.action, [1, 0])
    assert_array_equal(back.reward, [1.0, 0.0])
    assert_array_equal(back.context, [[1, 0, 0, 2.5], [0, 0, 0, 0]])
    assert_array_equal(back.user, [0, 1])


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["1:0 | f0"], "line 1: not action:cost:propensity"),
        (["7:0:0.5 | f0"], "actions must be in 0..3"),
        (["1:0:0 | f0"], "row 0: propensity must be"),
        (["1:0:0.5 '7_0 | f0", "1:0:0.5 | f0"], "1 of 2 examples have a tag .'user_step.: give every"),
        ([], "no examples"),
    ],
)
def test_wrong_lines_of_vowpal_wabbit_are_refused(lines, words):
    with pytest.raises(UserError, match=words):
        from_vw(lines, n_items=4)


def test_what_comes_back_is_a_log_that_estimators_read(log, made):
    target = untrained("user-popularity-greedy", P)
    target_probability = replay(log, target)[log.is_bandit]
    estimates = [
        estimate_value(rows["reward"], rows["propensity"], target_probability, cluster=rows["user"])
        for rows in (log.bandit(), from_vw(to_vw(made), P).log().validate(P))
    ]
    direct, through = ((estimate.value, estimate.low, estimate.high) for estimate in estimates)
    assert through == direct


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda log, made: decisions(log, 3), "the log has item"),
        (lambda log, made: decisions(log.bandit(), 3), "the log has action"),
        (lambda log, made: decisions(log.organic(), P), "no bandit rows"),
        (lambda log, made: decisions(log, P, context="last=0"), "observation's length"),
        (lambda log, made: decisions(log, P, context="decayed=2"), "decay"),
        (lambda log, made: to_obp(made, logging=np.ones((2, P))), "logging must have shape"),
        (lambda log, made: from_arrays(3, np.zeros((2, 1)), [0, 1], [0.0], [1.0, 1.0]), "one length"),
    ],
)
def test_wrong_calls_are_refused(log, made, call, words):
    with pytest.raises(UserError, match=words):
        call(log, made)


@pytest.fixture(scope="module")
def slates():
    """A log of slates of three."""
    world = SessionsWorld(SessionsParams(n_items=P, slate_size=3, click_link="logistic"))
    return simulate(world, registry.uniform_policy(P), n_users=30, seed=3)


def test_a_slate_is_one_decision(slates):
    made, shown = decisions(slates, P), slates.bandit()
    assert made.action.shape == made.propensity.shape == (len(shown) // 3, 3)
    assert_array_equal(made.action.ravel(), shown["action"])
    assert_array_equal(made.reward, shown["reward"].reshape(-1, 3).sum(axis=1))
    assert made.reward.max() > 1
    assert_array_equal(made.step, shown["step"][::3])
    items = decisions(slates.with_column("position", np.zeros(len(slates), int)), P)
    assert_array_equal(made.context, items.context[::3])
    assert made.last.sum() == len(shown.users())


def test_formats_of_single_items_refuse_slates(slates):
    made = decisions(slates, P)
    for export in (to_obp, to_vw, type(made).log):
        with pytest.raises(UserError, match="are slates, no single items"):
            export(made)
    with pytest.raises(UserError, match="distributions are of single items, and the log has slates"):
        distributions(slates, registry.uniform_policy(P))
    second_place = np.flatnonzero(slates.is_bandit)[1]
    with pytest.raises(UserError, match="slates must be whole and of one size"):
        decisions(slates.select(np.delete(np.arange(len(slates)), second_place)), P)


def test_no_foreign_library_is_imported():
    ours = {"recsim_mnar", "numpy", "pyarrow", "__future__"} | set(sys.stdlib_module_names)
    for path in Path(recsim_mnar.export.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= ours, path

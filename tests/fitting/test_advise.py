"""advise decides only what a log shows: worlds with known truth, plain twins, planted effects, the command."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from scipy.stats import binom

from recsim_mnar.cli import cli
from recsim_mnar.errors import UserError
from recsim_mnar.estimators.intervals import poisson_reach, small_sample_factor
from recsim_mnar.estimators.off_policy.row_order import earlier_choices, earlier_showings, lasting, moved_by, repeating
from recsim_mnar.fitting.advice import Question, advise_on
from recsim_mnar.fitting.advice.advising import histories
from recsim_mnar.fitting.advice.deciding import (
    WARNED,
    Compared,
    Logger,
    agents_of,
    agreement,
    decide,
    effects_of_the_past,
    logger_of,
    order_checks,
    permuted_clicks,
    shown_of,
    turned,
)
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.plan.experiment import users_an_arm
from recsim_mnar.own_log.sources import read_to_fit
from recsim_mnar.policies import registry
from recsim_mnar.policies.softening import EpsilonMixture
from twins.pages import unlinked

N_ITEMS, VIEWS = 8, 5
AGENTS = ("random", "popularity", "user-popularity", "user-popularity-greedy")


def lives(seed, chance, *, users=1500, logging="random", decisions=8, tires=1.0, leaves=None, trust=0.0,
          bores=1.0):  # fmt: skip
    """A log of users who view five items, six in ten times their favourite, and are shown others then.

    Args:
        seed: of the world's generator.
        chance: click probability by the share of the user's views that an item has (n, N_ITEMS).
        users: how many.
        logging: "random", "user-popularity", or the latter with a share of uniform choice.
        decisions: most of a user.
        tires: share of its probability that a click keeps where the item was shown just before.
        leaves: probability of leaving, by whether the item shown was viewed.
        trust: what an item that was viewed adds to the factor of all later clicks, and another takes away.
        bores: share of its probability that a click keeps per showing of the item before, but for the one just before.
    """
    rng = np.random.default_rng(seed)
    favourite = rng.integers(N_ITEMS, size=users)
    views = np.where(rng.random((users, VIEWS)) < 0.6, favourite[:, None], rng.integers(N_ITEMS, size=(users, VIEWS)))
    counts = np.apply_along_axis(np.bincount, 1, views, minlength=N_ITEMS)
    name, _, epsilon = logging.partition("+epsilon=")
    own = np.full(counts.shape, 1.0 / N_ITEMS) if name == "random" else counts / VIEWS
    p = (1.0 - float(epsilon or 0.0)) * own + float(epsilon or 0.0) / N_ITEMS
    rates = chance(counts / VIEWS)
    rows = {name: [] for name in ("user", "step", "event", "item", "action", "propensity", "reward")}
    here, before, trusted = np.ones(users, bool), np.full(users, -1), np.ones(users)
    showings = np.zeros(counts.shape)
    for step in range(VIEWS):
        add(rows, np.arange(users), step, 0, item=views[:, step])
    for step in range(decisions):
        who = np.flatnonzero(here)
        action = (np.cumsum(p[who], axis=1) <= rng.random(len(who))[:, None] * p[who].sum(axis=1)[:, None]).sum(axis=1)
        kept = np.where(action == before[who], tires, 1.0)
        kept *= bores ** (showings[who, action] - (action == before[who]))
        reward = (rng.random(len(who)) < kept * trusted[who] * rates[who, action]) * 1.0
        add(rows, who, VIEWS + step, 1, action=action, propensity=p[who, action], reward=reward)
        before[who] = action
        showings[who, action] += 1
        trusted[who] = np.clip(trusted[who] + np.where(counts[who, action] > 0, trust, -trust), 0.2, 1.8)
        if leaves is not None:
            here[who] &= rng.random(len(who)) >= np.where(counts[who, action] > 0, leaves[0], leaves[1])
    columns = {key: np.concatenate(parts) for key, parts in rows.items()}
    order = np.lexsort((columns["step"], columns["user"]))
    columns = {key: values[order] for key, values in columns.items()}
    truth = {
        "random": float(rates.mean()),
        "user-popularity": float(np.mean(np.sum(rates * counts / VIEWS, axis=1))),
        "user-popularity-greedy": float(np.mean(rates[np.arange(users), counts.argmax(axis=1)])),
    }
    return Log({**columns, "time": columns["step"] * 1.0}), truth


def add(rows, users, step, event, item=-1, action=-1, propensity=np.nan, reward=np.nan):
    values = {"user": users, "step": step, "event": event, "item": item, "action": action, "propensity": propensity,
              "reward": reward}  # fmt: skip
    for name, value in values.items():
        rows[name].append(np.broadcast_to(value, users.shape))


def clicks_go_with_views(share):
    return 0.03 + 0.4 * share


def viewed_is_not_clicked(share):
    return np.where(share > 0, 0.02, 0.15)


def coin(share):
    return np.full(share.shape, 0.10)


def asked(log, logging="random", agents=AGENTS, **more):
    return advise_on(log, Question(agents=agents, logging=logging, n_items=N_ITEMS, **more))


def grades(found):
    return {each["check"]: each["grade"] for each in found.checks}


# ------------------------------------------------------------------------------------------------------- known truths


def test_a_uniform_log_decides_for_what_is_best():
    for seed in range(3):
        log, truth = lives(seed, clicks_go_with_views, users=3000)
        found = asked(log)
        assert found.answer == "log"
        best = max(truth.values())
        assert 1.0 - truth[found.pick] / best <= found.cost["high"] <= 0.05
        assert all(row["covered_low"] == 1.0 and row["known"] == "replayed" for row in found.agents)
        assert all(row["low"] <= truth.get(row["agent"], row["value"]) <= row["high"] for row in found.agents)
        assert found.exploration is None
        assert found.ab_test is None


@pytest.mark.parametrize("chance", [clicks_go_with_views, viewed_is_not_clicked, coin])
def test_a_personalised_log_without_exploration_never_decides(chance):
    for seed in range(2):
        log, _ = lives(seed, chance, logging="user-popularity")
        for logging in ("user-popularity", None):
            found = asked(log, logging)
            assert found.answer != "log"
            unseen = [row for row in found.pairs if {"random", "popularity"} & {row["first"], row["second"]}]
            assert not any(row["decided"] for row in unseen)
            assert not any(row["advised"] for row in found.protocols)


def test_where_what_was_viewed_is_not_clicked_the_worst_is_not_picked():
    for seed in range(3):
        for logging in ("random", "user-popularity+epsilon=0.3"):
            log, _ = lives(seed, viewed_is_not_clicked, logging=logging)
            found = asked(log, logging)
            assert found.pick in (None, "random", "popularity")
            loo = found.protocols[0]
            assert loo["pick"].startswith("user-popularity")
            assert not loo["advised"]


def quick(log, agents=("random", "user-popularity", "user-popularity-greedy")):
    """The recommendations of a log under a uniform logger and agents that are what they are without a fit."""
    policies = {name: registry.learner(name).fit(Log({}), n_items=N_ITEMS, seed=0) for name in agents}
    return shown_of(log, policies, Logger(None, 1.0 / N_ITEMS, "least propensity"), N_ITEMS, 0, None)


def known(log, logging):
    return logger_of(log, logging, N_ITEMS, 0, None)


def compared(log, agents, logging):
    return Compared(shown_of(log, agents_of(agents), known(log, logging), N_ITEMS, 0, None))


def follows(log, agent, within, level):
    """What an agent's decision adds to the rewards of the next few."""
    shown = quick(log)
    return lasting(shown.user, shown.reward, shown.targets[agent] / shown.propensity, within, level)


def test_simultaneous_intervals_hold_and_a_coin_has_no_best():
    """100 small logs each: .95 or more within binomial error; one best agent where there is none in at most .05."""
    held, best, cost = 0, 0, 0
    for seed in range(100):
        log, truth = lives(seed, clicks_go_with_views, users=80, decisions=4)
        compared = Compared(quick(log))
        held += all(p["low"] <= truth[p["first"]] - truth[p["second"]] <= p["high"] for p in compared.pairs())
        decision = decide(compared)
        cost += 1.0 - truth[decision.pick] / max(truth.values()) <= decision.high
        log, _ = lives(1000 + seed, coin, users=80, decisions=4)
        best += decide(Compared(quick(log))).above <= 0.0
    assert held >= binom.ppf(0.001, 100, 0.95)
    assert cost >= binom.ppf(0.001, 100, 0.95)
    assert best <= binom.ppf(0.999, 100, 0.05)


def test_a_coin_is_never_said_to_have_one_best():
    """The whole answer on 20 logs; chance lets one in twenty pass at most."""
    single = 0
    for seed in range(20):
        log, _ = lives(seed, coin, users=250)
        found = asked(log, agents=("random", "user-popularity", "user-popularity-greedy"))
        single += found.answer == "log" and not found.tied
    assert single <= binom.ppf(0.99, 20, 0.05)


# ----------------------------------------------------------------------------------------------------- planted effects


@pytest.mark.parametrize(
    ("plant", "check"),
    [({"tires": 0.3}, "carry_over"), ({"trust": 0.1}, "carry_over"), ({"bores": 0.8}, "carry_over"),
     ({"leaves": (0.30, 0.05), "decisions": 16}, "staying")],
)  # fmt: skip
def test_planted_effects_of_what_was_shown_before_withdraw_the_decision(plant, check):
    calm, _ = lives(5, clicks_go_with_views, decisions=16)
    assert grades(asked(calm))[check] == "clear"
    log, _ = lives(5, clicks_go_with_views, **{"decisions": 16, **plant})
    found = asked(log)
    assert grades(found)[check] == "off"
    assert found.answer == "ab_test"
    assert found.pick is None
    assert any("does not decide" in line for line in found.why)


def test_what_lasts_over_many_decisions_is_found_where_one_shows_nothing():
    log, _ = lives(5, clicks_go_with_views, decisions=16, trust=0.1)
    (_, low, _), (_, next_low, next_high) = (follows(log, "user-popularity-greedy", n, 0.998) for n in (15, 1))
    assert low > 0.0
    assert next_low < 0.0 < next_high


def test_tiring_that_cannot_be_excluded_is_part_of_the_cost():
    log, _ = lives(0, clicks_go_with_views, users=600)
    every = Compared(quick(log))
    _, (loss, again) = order_checks(every)
    assert 0.0 < loss < 1.0
    calm, pick = decide(every), decide(every).pick
    values = {name: every.value(name, 0.95)[0] for name in every.agents}
    lost = [every.beyond(b, pick) + loss * max(values[pick] - again[b] * values[b], 0.0) for b in values if b != pick]
    found = decide(every, (loss, again))
    assert found.above == pytest.approx(max(lost))
    assert found.high >= calm.high
    assert decide(every, (1.0, {})).high == 1.0


def test_where_tiring_may_turn_the_decision_nobody_can_say():
    log, _ = lives(10, clicks_go_with_views, users=1000)
    found = asked(log)
    assert decide(Compared(quick(log))).high <= 0.05
    assert found.answer == "ab_test"
    assert grades(found)["carry_over"] == "cannot say"
    assert "tire" in found.why[0]


def test_how_often_agents_repeat_themselves_at_least():
    log, _ = lives(0, coin, users=3000)
    shown = quick(log)

    def least(agent, level):
        return repeating(shown.user, shown.action, shown.targets[agent] / shown.propensity, level)

    assert 0.8 < least("user-popularity-greedy", 0.95) <= 1.0
    assert 0.1 < least("random", 0.95) < 1.0 / N_ITEMS
    assert least("random", 0.5) > least("random", 0.95)


def own_past(shown, agent, within, level):
    """What an agent's earlier decisions add to what it earns."""
    weight = shown.targets[agent] / shown.propensity
    return moved_by(shown.user, shown.reward, weight, earlier_choices(shown.user, weight, within), level)


def item_past(shown, within, level):
    """What earlier showings of an item add to what it earns under uniform choice."""
    earlier = earlier_showings(shown.user, shown.action, shown.propensity, within)
    return moved_by(shown.user, shown.reward, np.ones(shown.user.size), earlier, level)


def test_boredom_with_what_was_shown_is_found_with_its_sign():
    log, _ = lives(5, clicks_go_with_views, decisions=16, bores=0.8)
    shown = quick(log)
    assert item_past(shown, 15, 0.998)[2] < 0.0
    assert own_past(shown, "user-popularity-greedy", 15, 0.9)[2] < 0.0


def test_every_way_in_which_the_past_may_count_is_looked_at():
    """For each agent, and where all items are shown for items too; the level is that of all together."""
    shown = quick(lives(5, clicks_go_with_views, decisions=16)[0])
    weights = {name: target / shown.propensity for name, target in shown.targets.items()}
    found = list(effects_of_the_past(shown, weights))
    kinds = [
        sum(word in said for said, _ in found) for word in ("the next 3 ", "the next 15 ", " showed in ", "an item ")
    ]
    assert kinds == [3, 3, 3, 4]
    level = 1.0 - (1.0 - WARNED) / len(found)
    assert found[0][1] == lasting(shown.user, shown.reward, weights["random"], 3, level)
    unknown = replace(shown, logger=Logger(None, None, "mean weight"))
    assert not any("an item " in said for said, _ in effects_of_the_past(unknown, weights))


def test_without_effects_the_past_counts_as_rarely_as_said():
    """For what follows a decision, for an agent's own past and for an item's; 40 logs of each."""
    found = np.zeros(2)
    for seed in range(40):
        log, _ = lives(seed, clicks_go_with_views, users=300)
        later = [follows(log, "user-popularity-greedy", within, 0.95) for within in (3, 15)]
        past = [own_past(quick(log), "user-popularity", 15, 0.95), item_past(quick(log), 60, 0.95)]
        found += [sum(low > 0.0 or high < 0.0 for _, low, high in effects) for effects in (later, past)]
    assert found.max() <= binom.ppf(0.999, 80, 0.05)


# --------------------------------------------------------------------------------------------------------- plain twins


def test_the_control_moves_every_reward_to_another_row_of_its_user():
    log, _ = lives(0, clicks_go_with_views, users=50, leaves=(0.5, 0.5))
    shown = quick(log)
    marks = np.arange(shown.user.size) * 1.0
    for number in range(3):
        moved = turned(shown.user, marks, 7, number)
        for user in np.unique(shown.user):
            own = np.flatnonzero(shown.user == user)
            found = moved[own].astype(int).tolist()
            by = found[0] - own[0]
            assert found == [own[(i + by) % len(own)] for i in range(len(own))]
            assert by > 0 or len(own) == 1
    assert not np.array_equal(turned(shown.user, marks, 7, 0), turned(shown.user, marks, 7, 1))


def test_the_control_withdraws_where_rewards_of_other_rows_follow_the_weights():
    """Users who click all or nothing, and weights that know it: what no policy that sees the past alone could do."""
    log, _ = lives(3, clicks_go_with_views)
    rows = log.is_bandit
    shown = quick(log)
    avid = np.isin(shown.user, np.unique(shown.user)[::2])
    result = {name: np.where(avid, 1.0, 0.0) if name == "user-popularity" else x for name, x in shown.targets.items()}
    reward = np.where(avid, 0.4, 0.02) > np.random.default_rng(0).random(rows.sum())
    found = permuted_clicks(replace(shown, targets=result, reward=reward * 1.0), (0.0, 1.0), 0)
    assert found["grade"] == "off"
    assert permuted_clicks(shown, (0.0, 1.0), 0)["grade"] == "clear"


def test_coverage_is_the_mass_on_what_the_logging_policy_shows():
    log, _ = lives(1, coin, users=60, logging="user-popularity")
    logging = registry.learner("user-popularity").fit(Log({}), n_items=N_ITEMS, seed=0)
    found = compared(log, ["random", "user-popularity-greedy"], logging)
    counts = histories(log, np.flatnonzero(log.is_bandit), N_ITEMS)
    plain = [sum(1.0 / N_ITEMS for k in range(N_ITEMS) if row[k] > 0) for row in counts]
    share, low, high = found.covered("random", 0.95)
    assert share == pytest.approx(np.mean(plain))
    assert low < share < high < 1.0
    assert found.covered("user-popularity-greedy", 0.95) == (1.0, 1.0, 1.0)
    value, least, most = found.value("random", 0.95)
    assert most - value >= 1.0 - share
    assert least <= value


def test_without_the_logging_policy_what_the_mean_weight_leaves_open_is_reckoned_with():
    log, _ = lives(1, clicks_go_with_views, users=400)
    named, unknown = (compared(log, ["random", "user-popularity"], logging) for logging in ("random", None))
    a, b = (each.difference("user-popularity", "random", 0.95) for each in (named, unknown))
    assert b[1] < a[1]
    assert b[2] > a[2]
    assert unknown.covered("user-popularity", 0.95)[1] < 1.0


def test_histories_count_the_views_before_a_decision():
    log, _ = lives(2, coin, users=30, leaves=(0.3, 0.3))
    rows = np.flatnonzero(log.is_bandit)[::3]
    found = histories(log, rows, N_ITEMS)
    for row, counts in zip(rows, found, strict=True):
        own = (log["user"] == log["user"][row]) & ~log.is_bandit & (np.arange(len(log)) < row)
        assert counts.tolist() == np.bincount(log["item"][own], minlength=N_ITEMS).tolist()


def test_mixtures_are_judged_as_if_they_were_replayed():
    """A plain twin mixes the agents' probabilities row by row, and takes limits of each difference by user."""
    log, truth = lives(4, clicks_go_with_views)
    shown = quick(log)
    every = Compared(shown)
    base = {**shown.targets, "uniform": np.full(shown.user.size, 1.0 / N_ITEMS)}
    names, n = list(shown.targets), shown.user.size
    other = {"random": 0.3, "user-popularity": 0.2, "user-popularity-greedy": 0.25}
    for scores in (truth, {**truth, "random": 1.0}, other):
        hits = {**scores, "uniform": 1.0 / N_ITEMS}
        pairs = [(base[a], hits[a], base[b], hits[b]) for a, b in itertools.combinations(names, 2)]
        for a, b in itertools.combinations(base, 2):
            for q in (0.25, 0.5, 0.75):
                mixed, hit = (1.0 - q) * base[a] + q * base[b], (1.0 - q) * hits[a] + q * hits[b]
                pairs += [(mixed, hit, base[c], hits[c]) for c in names if c not in (a, b)]
        decided = agree = against = 0
        for target, hit, against_it, its_hit in pairs:
            gain = (target - against_it) / shown.propensity * shown.reward
            apart = gain - gain.mean()
            sums = np.array([apart[shown.user == user].sum() for user in np.unique(shown.user)])
            level = 1.0 - 0.05 / len(pairs)
            variance = float(np.sum(sums**2)) / n**2 * small_sample_factor(sums.size, level)
            reach = poisson_reach(variance, 2 * N_ITEMS / n, level)
            if abs(gain.mean()) > reach:
                decided += 1
                agree += np.sign(gain.mean()) * (hit - its_hit) > 1e-12
                against += np.sign(gain.mean()) * (hit - its_hit) < -1e-12
        assert agreement(every, scores) == (decided, agree, against)
        assert decided >= 10
    assert against > 0


def test_agents_are_judged_on_users_that_they_were_not_fitted_on():
    """A learner that remembers which users it has seen meets none of them."""

    class Remembering:
        name = "remembering"

        def fit(self, log, *, n_items, seed=0):
            seen = set(log["user"].tolist())
            policy = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)

            class Asked(type(policy)):
                def reset(self, users):
                    assert not seen & set(users.tolist())
                    super().reset(users)

            policy.__class__ = Asked
            return policy

    log, _ = lives(0, coin, users=100)
    targets = compared(log, [Remembering(), "random"], "random").shown.targets
    assert np.array_equal(targets["remembering"], targets["random"])


# ------------------------------------------------------------------------------------------------- users and questions


@pytest.mark.parametrize("arms", [2, 4])
def test_so_many_users_pick_an_arm_that_costs_little(arms):
    """The indifference zone: the best arm leads by the tolerance, and is picked with probability .95."""
    log, _ = lives(0, coin, users=3000)
    totals = quick(log).totals
    users = users_an_arm(totals, totals.value, arms, 0.05, 0.95)
    error = np.sqrt(totals.variance / users) / totals.length
    draws = np.random.default_rng(1).normal(size=(20_000, arms)) * error
    draws[:, 0] += 0.05 * totals.value
    right = np.mean(draws.argmax(axis=1) == 0)
    assert right == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 20_000))


def test_a_logging_policy_is_believed_only_as_far_as_propensities_bear_it_out():
    log, _ = lives(0, coin, users=60, logging="user-popularity+epsilon=0.4")
    found = known(log, "user-popularity+epsilon=0.4")
    assert (found.known, found.least) == ("replayed", pytest.approx(0.05))
    policy = registry.learner("user-popularity+epsilon=0.3").fit(Log({}), n_items=N_ITEMS, seed=0)
    assert isinstance(policy, EpsilonMixture)
    assert known(log, policy).known == "least propensity"
    assert known(log, "popularity").known == "mean weight"
    with pytest.raises(UserError, match="takes no action with less than"):
        known(log, "user-popularity+epsilon=0.9")


def test_a_simulated_log_says_itself_what_made_it(tmp_path):
    """Policy and number of items, as `simulate` writes them; a log runs no code that was not named."""
    words = ["--world", "sessions", "--preset", "quick", "--set", "n_items=30", "--set", "n_flips=5", "--users", "25"]
    words += ["--policy", "item-knn+epsilon=0.2", "--train-users", "50", "--out", str(tmp_path / "made")]
    done = CliRunner().invoke(cli, ["simulate", *words])
    assert done.exit_code == 0, done.output
    log = Log.read(tmp_path / "made" / "log")
    assert advise_on(log, Question(agents=("random", "popularity"))).facts["logging"] == "replayed"
    few = log.select(log["user"] == log["user"][0])
    assert max(few["item"].max(), few["action"].max()) < 29
    assert logger_of(few, None, 30, 0, None).policy.n_items == few.n_items == 30
    for provenance in ({}, {**log.provenance, "policy": {"name": "nowhere.to_be_found:Policy"}}):
        assert logger_of(Log(log.columns, provenance), None, 30, 0, None).known == "mean weight"
    with pytest.raises(UserError, match="the file is damaged"):
        advise_on(Log({**log.columns, "item": np.where(log["item"] == 3, 77, log["item"])}, log.provenance), Question())


def with_columns(log, **columns):
    return Log({**log.columns, **columns})


def test_absurd_logs_get_one_line_each():
    log, _ = lives(0, coin, users=40)
    shown = log.is_bandit
    cases = {
        "no recommendation": log.organic(),
        "earned 1": with_columns(log, reward=np.where(shown, 1.0, np.nan)),
        "earned 0": with_columns(log, reward=np.where(shown, 0.0, np.nan)),
        "not 0 or 1": with_columns(log, reward=np.where(shown, 3.5 * log["reward"] - 1.0, np.nan)),
        "one item only": with_columns(log, action=np.where(shown, 3, -1)),
        "Time runs backwards": with_columns(log, time=-log["time"]),
        "holds ratings": Ratings(np.array([0, 1]), np.array([0, 1]), np.array([1.0, 2.0]), n_users=2, n_items=2),
    }
    for said, each in cases.items():
        found = asked(each, None)
        assert (found.answer, found.pick, len(found.why)) == ("cannot_tell", None, 1)
        assert said in found.why[0]
        assert found.exploration["epsilon"] == 0.1
        json.dumps(found.to_dict())
    assert asked(cases["not 0 or 1"], rewards=(-1.0, 2.5)).agents
    with pytest.raises(UserError, match="rewards are in"):
        asked(cases["not 0 or 1"], rewards=(0.0, 1.0))


def test_without_propensities_the_log_never_decides():
    log, _ = lives(0, clicks_go_with_views)
    found = asked(with_columns(log, propensity=np.full(len(log), np.nan)))
    assert (found.answer, found.pick, found.pairs) == ("ab_test", None, [])
    assert all((row["covered_low"], row["covered_high"]) == (0.0, 1.0) for row in found.agents)


def test_a_file_without_propensities_is_not_taken_for_a_uniform_one(tmp_path):
    rng = np.random.default_rng(0)
    action = rng.integers(5, size=3000)
    rows = zip(action, (rng.random(3000) < 0.05 + 0.05 * action) * 1, strict=True)
    (tmp_path / "bandit.csv").write_text("action,reward\n" + "".join(f"{a},{r}\n" for a, r in rows))
    log = read_to_fit(tmp_path / "bandit.csv", columns={"action": "action", "reward": "reward"}).log
    assert not np.isnan(log["propensity"]).any()
    found = advise_on(log, Question(agents=("random", "constant+item=4"), logging="random"))
    assert (found.answer, found.facts["logging"]) == ("ab_test", "no propensities")


def test_too_few_clicks_tell_not_even_the_size_of_a_test():
    log, _ = lives(0, lambda share: np.full(share.shape, 0.004), users=100)
    assert 0 < np.nansum(log["reward"]) < 10
    found = asked(log)
    assert found.answer == "cannot_tell"
    assert found.exploration["rows"] > log.is_bandit.sum()
    unseen, _ = lives(0, coin, users=100, logging="user-popularity")
    found = asked(unseen, "user-popularity")
    assert found.exploration["rows"] == unseen.is_bandit.sum()
    assert "may be needed" in found.exploration["line"]


def test_a_platform_with_fewer_users_than_the_test_needs_learns_what_to_log():
    log, _ = lives(0, coin, users=300)
    found = asked(log, users=50)
    assert found.answer == "ab_test"
    assert found.ab_test["users"] > 50
    assert any("more than the 50 users" in line for line in found.why)
    assert found.exploration is not None


@pytest.mark.parametrize(
    ("agents", "scale", "said"),
    [(["random"], 1.0, "name at least two"), (["random", "random"], 1.0, "named twice"),
     (AGENTS, 10.0, "propensity must be in")],
)  # fmt: skip
def test_refusals(agents, scale, said):
    log, _ = lives(0, coin, users=40)
    with pytest.raises(UserError, match=said):
        asked(with_columns(log, propensity=log["propensity"] * scale), agents=agents)


KEYS = {"answer", "pick", "tied", "cost", "ab_test", "exploration", "why", "agents", "pairs", "protocols", "models",
        "checks", "facts", "doctor", "sentences"}  # fmt: skip


def test_from_a_log_to_the_page(tmp_path):
    log, _ = lives(0, clicks_go_with_views, users=400)
    log.write(tmp_path / "log")
    words = ["advise", str(tmp_path / "log"), "--agents", "random,user-popularity", "--logging", "random", "--workers",
             "1", "--out", str(tmp_path / "run")]  # fmt: skip
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "run" / "advice.json").read_text())
    assert set(found) == KEYS
    assert done.output.index("the log shows 100.0% of it") < done.output.index(found["sentences"][0])
    assert found["sentences"][0] in unlinked(tmp_path / "run" / "report.html")
    assert CliRunner().invoke(cli, words).exit_code != 0
    again = CliRunner().invoke(cli, [*words[:-1], str(tmp_path / "again")])
    assert again.exit_code == 0
    assert json.loads((tmp_path / "again" / "advice.json").read_text()) == found


def test_slates_are_refused():
    log = lives(3, coin, users=30)[0]
    place = np.where(log.is_bandit, np.cumsum(log.is_bandit) % 2, -1)
    with pytest.raises(UserError, match="the log has slates of 2 items, and advise judges agents that show one"):
        asked(log.with_column("position", place))

"""advise: what a study over an ensemble says, and the command from a log to the page."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from recsim_mnar.cli import cli
from recsim_mnar.errors import UserError
from recsim_mnar.fitting.advice import Advice, advise_on
from recsim_mnar.fitting.advice.advising import Question
from recsim_mnar.fitting.advice.findings import best_agents, ranked_of, users_needed
from recsim_mnar.log.table import Log
from recsim_mnar.policy import registry
from recsim_mnar.simulate import simulate
from recsim_mnar.worlds.sessions import SessionsParams, SessionsWorld


def judgement(protocol, pick, best, cost):
    title = {"loocv": "leave-one-out", "ab_test": "the A/B test"}[protocol]
    outcome = "best" if pick == best else "costs"
    return {"protocol": protocol, "metric": "m", "title": title, "outcome": outcome, "cost_share": cost,
            "pick": pick, "best": best}  # fmt: skip


def result(picks, best="b"):
    costs = {"a": 0.1, "b": 0.0}
    return {
        "judgements": [judgement(p, pick, best, costs[pick]) for p, pick in picks.items()],
        "records": [
            *({"protocol": "truth", "agent": a, "value": v} for a, v in (("a", 0.010), ("b", 0.012))),
            *({"protocol": "ab_test", "agent": a, "value": 0.01, "low": 0.008, "high": 0.012} for a in "ab"),
        ],
    }


RESULTS = [result({"loocv": "b", "ab_test": "a"}), result({"loocv": "b", "ab_test": "b"})]


def advice(**more):
    base = {"ranked": ranked_of(RESULTS, "random"), "exploring": [], "best_agents": best_agents(RESULTS),
            "arm_users": 100, "users_needed": users_needed(RESULTS, 100), "n_worlds": 2, "facts": {},
            "identified": {}, "not_identified": {}}  # fmt: skip
    return Advice(**{**base, **more})


def test_counts_and_costs():
    found = advice()
    assert [(r.protocol, r.best["count"], r.cost["mean"]) for r in found.ranked] == [
        ("loocv", 2, 0.0),
        ("ab_test", 1, 0.05),
    ]
    assert found.advised.protocol == "loocv"
    assert found.best_agents == {"b": 2}
    # 2 arms of variance 100 (.002 / 1.96)^2, a gap of .002, quantiles 1.96 + .842.
    assert found.users_needed == pytest.approx(100 * 2 * (0.002 / 1.96) ** 2 * (2.8016 / 0.002) ** 2, abs=1.5)
    assert any("So choose by leave-one-out" in line for line in found.sentences())


def test_where_the_ranking_of_agents_is_off_nothing_is_advised():
    validation = {"checks": [{"kind": "ranking", "grade": "off"}], "valid_for": [], "not_valid_for": ["q"],
                  "cannot_say": [], "not_checked": []}  # fmt: skip
    found = advice(validation=validation)
    assert found.sentences()[0].startswith("Do not choose by these figures")
    assert not any(line.startswith("So choose") for line in found.sentences())
    assert found.trust()["not for"] == ["q"]


def test_an_unvalidated_world_says_so():
    assert "was not held against the log" in advice().trust()["not checked"][0]


def test_refusals(tmp_path):
    with pytest.raises(UserError, match="name at least two"):
        advise_on(Log({}), Question(agents=["random"]), tmp_path)
    with pytest.raises(UserError, match="one world is an anecdote"):
        advise_on(Log({}), Question(ensemble=1), tmp_path)


def test_from_a_log_to_the_page_and_taken_up_again(tmp_path):
    uniform = registry.learner("random").fit(Log({}), n_items=12, seed=0)
    log = simulate(SessionsWorld(SessionsParams(n_items=12, n_factors=2)), uniform, 120, 3)
    log.write(tmp_path / "log")
    words = ["advise", str(tmp_path / "log"), "--agents", "random,popularity", "--ensemble", "2", "--users", "40",
             "--exploring", "none", "--no-validate", "--workers", "1", "--out", str(tmp_path / "run")]  # fmt: skip
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    first = json.loads((tmp_path / "run" / "advice.json").read_text())
    assert "In 2 worlds like yours" in done.output
    assert "in worlds like yours" in (tmp_path / "run" / "report.html").read_text()
    assert CliRunner().invoke(cli, words).exit_code != 0
    again = CliRunner().invoke(cli, [*words, "--resume"])
    assert again.exit_code == 0, again.output
    assert "were there already" in again.output or "was there already" in again.output
    assert json.loads((tmp_path / "run" / "advice.json").read_text()) == first


def test_what_few_worlds_cost_is_said_in_words():
    few = advice()
    assert few.ranked[1].too_few
    assert "costs 5.0% of the best value in 2 worlds (too few to say what it costs on average" in few.sentences()[2]
    assert all(r.cost["high"] <= 1.0 for r in few.ranked)
    many = advice(ranked=ranked_of(RESULTS * 50, "random"))
    assert not many.ranked[1].too_few
    assert "costs 5.0% [4.0%, 6.1%] of the best value" in many.sentences()[2]


def test_a_log_without_recommendations_says_what_clicks_rest_on():
    found = advice(not_identified={"click_rate": {"why": "the log has no recommendations"}})
    assert found.sentences()[0].startswith("The log has no recommendations")

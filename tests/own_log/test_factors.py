"""Propensities that are wrong by a factor: the next step names the fault, and no other log is told so."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.answers.sentence import sentence_of
from recsim_mnar.own_log.estimating import Question, estimate_log
from twins.findings import findings

N, ITEMS, EPSILON = 20_000, 8, 0.4


def table(kind: str) -> pd.DataFrame:
    """Epsilon-greedy by device, or all items equally often; the new policy is nearly sure of an item by device."""
    rng = np.random.default_rng(3)
    phone = rng.random(N) < 0.6
    greedy = np.where(phone, 2, 4)
    epsilon = 1.0
    if kind in ("right", "epsilon", "target", "few"):
        epsilon = EPSILON
    shown = np.where(rng.random(N) < epsilon, rng.integers(0, ITEMS, N), greedy)
    p = np.where(shown == greedy, 1.0 - epsilon + epsilon / ITEMS, epsilon / ITEMS)
    frame = pd.DataFrame({"user": rng.integers(0, 4000, N), "item": [f"SKU-{number}" for number in shown], "p": p})
    frame["click"] = (rng.random(N) < np.linspace(0.03, 0.25, ITEMS)[shown]).astype(int)
    frame["new"] = np.where(shown == np.where(phone, 6, 1), 0.9, 0.1 / (ITEMS - 1))
    if kind == "epsilon":
        frame["p"] = np.where(shown == greedy, p, epsilon)
    elif kind == "group":
        frame["p"] = 4.0 * p
    elif kind == "twice":
        frame["p"] = p / ITEMS
    elif kind == "target":
        frame["new"] = np.minimum(3.0 * frame.new, 1.0)
    elif kind == "few":
        frame = frame[shown == greedy]
    return frame


SAID = {
    "epsilon": r"p looks like epsilon where it must be epsilon / number of items: its smallest value, 0\.4, is in "
    r"[67],\d+ rows\. .* with 0\.4 / 8 = 0\.05 in these rows it is [78]\.\d+, as it must be of 8 items",
    "group": r"is 0\.25 for each of the 8 items, and 1 if .*: then p is 4 times too large \(the probability of a group",
    "twice": r"is 8 for each of the 8 items, .* some 8 times too small \(divided by the number of items twice\?\)",
    "target": r"is 1 for each of the 8 items, as of right probabilities, but also of each item",
}


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("kind", ["right", "few", *SAID])
def test_the_next_step_names_the_factor(tmp_path, kind, at_once):
    path = tmp_path / "log.csv"
    table(kind).to_csv(path, index=False)
    question = Question(["new"], "today", estimators=["ips"], keep_rows=at_once)
    target, today, _ = estimate_log(path, question).records
    proved = ("support_missing", "support_denied", "propensities")
    actions = {finding.action for finding in findings(target) if finding.code in proved}
    if kind in SAID:
        (action,) = actions
        assert re.search(SAID[kind], action)
    elif kind == "few":  # a policy of one item per device: no factor, but no exploration
        assert actions == {"log with exploration where the target acts"}
    else:
        assert actions == set()
    assert not any("times too" in finding.action for finding in findings(today))


def test_the_first_sentence_ends_with_it(tmp_path):
    path = tmp_path / "log.csv"
    table("epsilon").to_csv(path, index=False)
    sentence = sentence_of(estimate_log(path, Question(["new"], "today")).records)
    assert sentence.answer == "not_covered"
    assert "Next: p looks like epsilon" in sentence.text

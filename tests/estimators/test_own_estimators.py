"""Estimators that others write: interval, diagnostics and verdict come with them."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest

from recsim_mnar.estimators import ESTIMATORS, Facts
from recsim_mnar.estimators.scores import check_name, known_estimators
from toys import refused
from twins.commands import status_of
from twins.facts import estimate_value
from twins.findings import codes

OWN = '''
"""Somebody else's estimators."""
import numpy as np
from recsim_mnar.estimators.scores import Scores


def cut(rows, *, at=10.0):
    """Weights cut by hand."""
    return np.minimum(rows.weight, at) * rows.reward


def ratio(rows):
    return Scores(numerator=rows.weight * rows.reward, denominator=rows.weight)


def short(rows):
    return np.zeros(3)


def broken(rows):
    raise KeyError("x")


def nothing(rows):
    return np.where(np.arange(rows.reward.size) == 7, np.nan, 0.0)


def words(rows):
    return ["a"] * rows.reward.size


def needs(rows, *, depth):
    return rows.weight * rows.reward * depth


def many(rows, more):
    return more


number = 3
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "own_estimators.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("own_estimators", None)


def a_log(n=4000):
    g = np.random.default_rng(3)
    propensity = g.uniform(0.05, 0.5, n)
    target = np.clip(propensity * g.uniform(0, 2, n), 0, 1)
    return (g.random(n) < 0.1).astype(float), propensity, target


def test_every_estimator_has_one_record():
    assert all(name == info.name and callable(info.scores) and info.title and info.source
               for name, info in ESTIMATORS.items())  # fmt: skip
    assert known_estimators().keys() == ESTIMATORS.keys()


def test_an_own_estimator_has_value_interval_and_verdict(own):
    log = a_log()
    facts = Facts(full_support=True, weight_max=20.0)
    mine = estimate_value(*log, estimator="own_estimators:cut", at=1.5, facts=facts)
    theirs = estimate_value(*log, estimator="clipped_ips", clip=1.5, facts=facts)
    assert mine.value == pytest.approx(theirs.value, rel=1e-12)
    assert mine.low < mine.value < mine.high
    assert mine.verdict.level == "caution"
    assert "own_estimator" in codes(mine)
    assert check_name("own_estimators:cut").title == "Weights cut by hand."


def test_scores_of_a_ratio_are_taken_as_they_are(own):
    log = a_log()
    facts = Facts(full_support=True)
    mine = estimate_value(*log, estimator="own_estimators:ratio", facts=facts)
    theirs = estimate_value(*log, estimator="snips", facts=facts)
    assert mine.value == pytest.approx(theirs.value, rel=1e-12)
    assert (mine.low, mine.high) == pytest.approx((theirs.low, theirs.high), rel=1e-6)


@pytest.mark.parametrize(
    ("name", "parameters", "words"),
    [
        ("own_estimators:short", {}, "column 'scores of own_estimators:short' has 3 rows and 'reward' has 4000"),
        ("own_estimators:broken", {}, "estimator 'own_estimators:broken' raised KeyError: 'x'"),
        ("own_estimators:nothing", {}, r"row 7 \(counted from 0\): nan is not a finite number"),
        ("own_estimators:words", {}, "column 'scores of own_estimators:words' must hold numbers"),
        ("own_estimators:needs", {}, "needs the parameter 'depth'"),
        ("own_estimators:many", {}, r"define many\(rows, \*, ...\)"),
        ("own_estimators:number", {}, "must be a function of the rows, got 3"),
        ("own_estimators:cut", {"to": 3}, "has no parameter 'to'; it takes: at"),
        ("own_estimators:nobody", {}, "own_estimators has no 'nobody'"),
        ("no_such_module_here:f", {}, "module 'no_such_module_here' cannot be imported"),
        ("clipped_isp", {}, "did you mean 'clipped_ips'"),
    ],
)
def test_a_name_that_is_no_estimator_is_refused_in_one_line(own, name, parameters, words):
    with refused(words):
        estimate_value(*a_log(), estimator=name, **parameters)


def test_the_command_line_takes_one(own, monkeypatch, capsys):
    reward, propensity, target = a_log(500)
    rows = np.column_stack([propensity, reward, target])
    np.savetxt(own / "log.csv", rows, delimiter=",", header="propensity,reward,mine", comments="")
    monkeypatch.chdir(own)
    words = "estimate", "log.csv", "--target", "mine", "--estimators", "own_estimators:cut,ips", "--json", "out.json"
    assert status_of(*words) == 0
    records = json.loads((own / "out.json").read_text())
    assert [record["estimator"] for record in records] == ["own_estimators:cut", "ips"]
    assert "own_estimators:cut" in capsys.readouterr().out

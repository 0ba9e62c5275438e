"""Columns recognised or asked about, values in per cent and missing ones, targets row by row, and pooled events."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.tables.roles import GUESSED, RECOGNISED, find_columns
from twins.commands import fails, run
from twins.findings import advice_of, fitting_lines

N = 400
RNG = np.random.default_rng(5)
ACTION = RNG.choice(4, N, p=[0.55, 0.15, 0.15, 0.15])
PROPENSITY = np.where(ACTION == 0, 0.55, 0.15)
CLICK = RNG.integers(0, 2, N)


def write(path, separator=",", **columns):
    pd.DataFrame(columns).to_csv(path, index=False, sep=separator)
    return path


def log(path, propensity="shown_prob", reward="clicked", values=PROPENSITY, separator=",", **more):
    columns = {"uid": [f"u{i // 4}" for i in range(N)], "sku": ACTION, reward: CLICK, propensity: values}
    return write(path, separator, **columns, **more)


TAKEN = [
    "shown_prob",
    "showProbability",
    "p",
    "prob",
    "p_shown",
    "served_pct",
    "prob_of_display",
    "action_propensity",
    "exposure-prob",
]
ASKED_ABOUT = ["discount_pct", "score_prob", "click_prob", "policy_prob", "x7", "score"]


@pytest.mark.parametrize("name", [*TAKEN, *ASKED_ABOUT])
def test_a_column_of_probabilities_is_taken_or_asked_about(tmp_path, name):
    path = log(tmp_path / "log.csv", name)
    examination = examine_file(path)
    assert examination.kind == "bandit log"
    assert (examination.columns.get("propensity") == name) is (name in TAKEN)
    assert (examination.columns.unclear.get("propensity") == (name,)) is (name in ASKED_ABOUT)
    assert not any("would be estimated" in fit.says for fit in advice_of(examination).values())
    assert examine_file(path, Asked({"propensity": name})).columns["propensity"] == name


def test_every_command_asks_about_a_propensity_that_is_not_clear(tmp_path):
    path = log(tmp_path / "log.csv", "score_prob")
    with pytest.raises(UserError, match="the propensity could be column 'score_prob'; say which with --propensity"):
        BanditLog.open(path).read()
    without = BanditLog.open(path, reading=Reading({"propensity": "none"}), required_roles=["action"])
    assert without.read().propensity is None


@pytest.mark.parametrize(
    ("name", "kind"), [("shown_prob", "bandit log"), ("x7", "table"), ("discount", "interactions")]
)
def test_without_a_reward_a_log_with_probabilities_is_not_interactions(tmp_path, name, kind):
    values = PROPENSITY
    if name == "discount":
        values = np.where(ACTION > 1, 0.2, 0.0)
    assert examine_file(log(tmp_path / "log.csv", name, reward="note", values=values)).kind == kind


@pytest.mark.parametrize(
    ("values", "separator"),
    [
        ([f"{100 * p:.2f}%".replace(".", ",") for p in PROPENSITY], ";"),
        ([f"{100 * p:g} %" for p in PROPENSITY], ","),
    ],
)
def test_per_cent_signs_are_read(tmp_path, values, separator):
    rows = BanditLog.open(log(tmp_path / "log.csv", values=values, separator=separator)).read()
    np.testing.assert_allclose(rows.propensity, PROPENSITY)


@pytest.mark.parametrize("word", ["n/a", "NA", "-", "null", ""])
def test_missing_values_by_their_words(tmp_path, word):
    path = log(tmp_path / "log.csv", values=[*PROPENSITY[:7], word, *PROPENSITY[8:]])
    with pytest.raises(UserError, match=r"in row 8; .*\(empty, NA, N/A, NaN, null, none, \\N and - count as missing"):
        BanditLog.open(path).read()
    assert len(BanditLog.open(path, reading=Reading(drop_missing=True)).read()) == N - 1


@pytest.mark.slow
def test_a_target_file_of_one_column_is_read_row_by_row(tmp_path):
    target = np.full(N, 0.25)
    path = log(tmp_path / "log.csv")
    second = write(tmp_path / "second.csv", new=target)
    in_one_file = estimate_log(log(tmp_path / "both.csv", new=target), Question(["new"]))
    answer = estimate_log(path, Question(target_file=second))
    assert [record["value"] for record in answer.records] == [record["value"] for record in in_one_file.records]
    assert "targets by row: new, the probability of each row's logged action" in answer.lines


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"new": np.full(N - 1, 0.25)}, "has 399 rows and .* 400: without a key they must be the same rows"),
        ({"sku": [0, 1], "new": [0.1, 0.2]}, "it has column 'sku' of the log: .* add --on sku"),
    ],
    ids=["other rows", "a key"],
)
def test_a_target_file_of_other_rows_needs_a_key(tmp_path, columns, message):
    second = write(tmp_path / "second.csv", **columns)
    with pytest.raises(UserError, match=message):
        estimate_log(log(tmp_path / "log.csv"), Question(target_file=second))


def test_keys_of_rows_that_are_left_out_are_in_the_log(tmp_path):
    """Three keys of rows that miss a value, one of no row; the policy has the name of its column."""
    keys = np.arange(N)
    path = log(tmp_path / "log.csv", row=keys, values=["-"] * 3 + [*PROPENSITY[3:]])
    second = write(tmp_path / "second.csv", row=[*keys, 9999], new=np.full(N + 1, 0.25))
    answer = estimate_log(path, Question(target_file=second, on="row"), reading=Reading(drop_missing=True))
    assert "1 keys of second.csv are not in the log" in answer.lines
    assert {record["policy"] for record in answer.records} == {"new"}


def test_pooled_events_are_counted_and_chosen(tmp_path):
    events = np.where(ACTION == 0, "purchase", "view")
    path = write(tmp_path / "f.csv", user_id=np.arange(N) % 40, item_id=ACTION, event=events)
    counts = pd.Series(events).value_counts().to_dict()
    assert read_interactions(path).events == counts
    assert examine_file(path).facts["events"] == counts
    bought = read_interactions(path, events=["purchase"])
    assert bought.events == {"purchase": counts["purchase"]}
    assert (len(bought.log), bought.n_items) == (counts["purchase"], 1)
    for event, message in (("views", "did you mean 'view'"), ("buy", "no row of column 'event' is 'buy'")):
        with pytest.raises(UserError, match=message):
            read_interactions(path, events=[event])


def unclear_rewards(path, reward="bought", other="revenue", propensity="shown_prob"):
    """A log of which one or both of two columns could be the reward."""
    row = np.arange(60)
    bought = np.where(row % 3, "no", "yes")
    columns = {"customer": row // 4, reward: bought, other: row % 7, propensity: 0.2 + 0.2 * (row % 3)}
    return write(path, **columns, new_prob=0.3)


@pytest.mark.parametrize(("reward", "other"), [("bought", "revenue"), ("took_it", "sum")], ids=["two names", "none"])
def test_doctor_guesses_the_line_where_the_reward_is_not_clear(tmp_path, capsys, reward, other):
    path = unclear_rewards(tmp_path / "log.csv", reward, other)
    assert "estimate" not in fitting_lines(examine_file(path))
    status, out, _ = run(capsys, "doctor", path)
    assert status == 3
    line = f"--target new_prob --baseline today --reward-column {reward}\n      guessed: {reward} is the reward\n"
    assert line in out


def test_all_that_a_line_lacks_is_said_at_once(tmp_path, capsys):
    error = fails(capsys, "estimate", unclear_rewards(tmp_path / "log.csv"))
    assert "--target (by their names new_prob)" in error
    assert "could be column 'bought' or 'revenue'" in error
    strange = unclear_rewards(tmp_path / "other.csv", "took_it", "sum", "w")
    with pytest.raises(UserError) as caught:
        BanditLog.open(strange, ["new_prob"], required_roles=["propensity"])
    message = str(caught.value)
    assert "no column is recognised as the reward" in message
    assert "no column is recognised as the propensity" in message
    assert message.count("columns: ") == 1


UNDERSTOOD = {
    ("item", RECOGNISED): ["item_sku", "productSku"],
    ("action", RECOGNISED): ["sku"],
    ("time", RECOGNISED): ["viewed_at", "created", "requestedAt", "event_timestamp"],
    ("user", GUESSED): ["CustomerNo", "customer_number", "cust_no", "MemberNr", "client-key"],
    ("action", GUESSED): ["SKU shown", "product_shown", "OfferCode"],
    ("item", GUESSED): ["Item shown", "artikel-no"],
}


@pytest.mark.parametrize(
    ("role", "how", "name"), [(*role_and_how, name) for role_and_how, names in UNDERSTOOD.items() for name in names]
)
def test_names_are_understood_by_their_words_and_endings(role, how, name):
    columns = find_columns("f", ["x", name], optional=[role])
    assert (columns[role], columns.how[role]) == (name, how)


@pytest.mark.parametrize(
    "name",
    ["flat", "format", "skus_left", "at", "cat", "is_member", "client_country", "sku_price", "shown", "product name"],
)
def test_other_words_and_endings_are_none(name):
    assert find_columns("f", ["x", name], optional=["user", "action", "item", "time"]).names == {}


def test_a_usual_name_goes_before_an_ending():
    assert find_columns("f", ["viewed_at", "timestamp"], optional=["time"])["time"] == "timestamp"


def test_a_reward_that_is_not_recognised_is_looked_for_by_doctor_among_named_columns(tmp_path):
    """The index that pandas writes has no name, and is no candidate."""
    path = tmp_path / "log.csv"
    path.write_text(",user,item,propensity,Umsatz,new\n0,u1,a,0.5,1.5,0.5\n1,u2,b,0.5,0,0.5\n")
    for target, code in (("new", "unclear_column"), ("newest", "no_such_column")):
        with pytest.raises(UserError) as caught:
            estimate_log(path, Question([target]))
        assert caught.value.code == code
        assert ": ," not in str(caught.value)
        assert ("recsim-mnar doctor" in str(caught.value)) == (code == "unclear_column")

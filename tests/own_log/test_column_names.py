"""Columns recognised or asked about, values in per cent and missing ones, targets row by row, and pooled events."""

from __future__ import annotations

import numpy as np
import pytest

from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.errors import UserError
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor import Asked, examine_file
from recsim_mnar.own_log.doctor_commands import commands_for
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.tables.roles import GUESSED, RECOGNISED, find_columns
from twins.commands import run

N = 400
RNG = np.random.default_rng(5)
ACTION = RNG.choice(4, N, p=[0.55, 0.15, 0.15, 0.15])
PROPENSITY = np.where(ACTION == 0, 0.55, 0.15)
CLICK = RNG.integers(0, 2, N)


def write(path, separator=",", **columns):
    lines = [separator.join(columns)] + [separator.join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return path


def log(path, propensity="shown_prob", reward="clicked", values=PROPENSITY, separator=",", **more):
    users = [f"u{i // 4}" for i in range(N)]
    return write(path, separator, **{"uid": users, "sku": ACTION, reward: CLICK, propensity: values, **more})


@pytest.mark.parametrize(
    ("name", "taken"),
    [
        ("shown_prob", True), ("showProbability", True), ("p", True), ("prob", True), ("p_shown", True),
        ("served_pct", True), ("discount_pct", False),
        ("prob_of_display", True), ("action_propensity", True), ("exposure-prob", True),
        ("score_prob", False), ("click_prob", False), ("policy_prob", False), ("x7", False), ("score", False),
    ],
)  # fmt: skip
def test_a_column_of_probabilities_is_taken_or_asked_about(tmp_path, name, taken):
    path = log(tmp_path / "log.csv", name)
    found = examine_file(path)
    assert found.kind == "bandit log"
    assert (found.columns.get("propensity") == name) is taken
    assert (found.columns.unclear.get("propensity") == (name,)) is not taken
    estimated = [fit for fit in commands_for(found) if "would be estimated" in fit.says]
    assert estimated == []
    said = examine_file(path, Asked({"propensity": name}))
    assert said.columns["propensity"] == name
    if name.endswith("_prob") and not taken:  # asked about by its name, by every command that reads a bandit log
        with pytest.raises(UserError, match=f"the propensity could be column '{name}'; say which with --propensity"):
            BanditLog.open(path).read()
        assert (
            BanditLog.open(path, reading=Reading({"propensity": "none"}), required_roles=["action"]).read().propensity
            is None
        )


def test_without_a_reward_a_log_with_probabilities_is_not_interactions(tmp_path):
    for name, kind in (("shown_prob", "bandit log"), ("x7", "table"), ("discount", "interactions")):
        values = PROPENSITY if name != "discount" else np.where(ACTION > 1, 0.2, 0.0)
        found = examine_file(log(tmp_path / "log.csv", name, reward="note", values=values))
        assert found.kind == kind, name


@pytest.mark.parametrize(
    ("values", "separator"),
    [
        ([f"{100 * p:.2f}%".replace(".", ",") for p in PROPENSITY], ";"),
        ([f"{100 * p:g} %" for p in PROPENSITY], ","),
    ],
)
def test_per_cent_signs_are_read_and_said(tmp_path, values, separator):
    found = BanditLog.open(log(tmp_path / "log.csv", values=values, separator=separator)).read()
    assert found.propensity == pytest.approx(PROPENSITY)
    assert "shown_prob: 400 values with % are divided by 100" in found.lines


@pytest.mark.parametrize("word", ["n/a", "NA", "-", "null", ""])
def test_missing_values_by_their_words(tmp_path, word):
    path = log(tmp_path / "log.csv", values=[word if i == 7 else p for i, p in enumerate(PROPENSITY)])
    with pytest.raises(
        UserError, match=r"in row 8; .*\(empty, NA, N/A, NaN, null, none, \\N and - count as missing; .*\)"
    ):
        BanditLog.open(path).read()
    assert len(BanditLog.open(path, reading=Reading(drop_missing=True)).read()) == N - 1


@pytest.mark.slow
def test_a_target_file_of_one_column_is_read_row_by_row(tmp_path):
    target = np.where(ACTION == 0, 0.25, 0.25)
    both, alone = log(tmp_path / "both.csv", new=target), log(tmp_path / "log.csv")
    second = write(tmp_path / "second.csv", new=target)
    wanted = estimate_log(both, Question(["new"])).records
    answer = estimate_log(alone, Question(target_file=second))
    assert [each["value"] for each in answer.records] == [each["value"] for each in wanted]
    assert "targets by row: new, the probability of each row's logged action" in answer.lines
    found = examine_file(alone, Asked(target_file=second))
    assert found.facts["mean_weight"][-1]["policy"] == "new"
    (fit,) = [fit for fit in commands_for(found) if fit.command == "estimate"]
    assert fit.line == f"recsim-mnar estimate {alone} --target-file {second} --baseline today"
    with pytest.raises(UserError, match=r"has 399 rows and .* 400: without a key they must be the same rows"):
        estimate_log(alone, Question(target_file=write(tmp_path / "less.csv", new=target[1:])))
    with pytest.raises(UserError, match=r"it has column 'sku' of the log: .* add --on sku"):
        estimate_log(alone, Question(target_file=write(tmp_path / "key.csv", sku=[0, 1], new=[0.1, 0.2])))


def test_keys_of_rows_that_are_left_out_are_in_the_log(tmp_path):
    """By a key and one column, its name the policy's; three keys of rows that miss a value, one of no row."""
    keys = np.arange(N)
    path = log(tmp_path / "log.csv", row=keys, values=[p if i > 2 else "-" for i, p in enumerate(PROPENSITY)])
    second = write(tmp_path / "second.csv", row=[*keys, 9999], new=np.full(N + 1, 0.25))
    answer = estimate_log(path, Question(target_file=second, on="row"), reading=Reading(drop_missing=True))
    assert "3 keys of second.csv belong to rows of the log that are left out" in answer.lines
    assert "1 keys of second.csv are not in the log" in answer.lines
    assert {each["policy"] for each in answer.records} == {"new"}


def test_pooled_events_are_counted_and_chosen(tmp_path):
    events = np.where(ACTION == 0, "purchase", "view")
    path = write(tmp_path / "f.csv", user_id=np.arange(N) % 40, item_id=ACTION, event=events)
    counts = {"purchase": int(np.sum(ACTION == 0)), "view": int(np.sum(ACTION > 0))}
    assert read_interactions(path).events == counts
    bought = read_interactions(path, events=["purchase"])
    assert (len(bought.log), bought.n_items, bought.events) == (counts["purchase"], 1, {"purchase": counts["purchase"]})
    assert examine_file(path).facts["events"] == counts
    for wanted, says in ((["views"], "did you mean 'view'"), (["buy"], "no row of column 'event' is 'buy'")):
        with pytest.raises(UserError, match=says):
            read_interactions(path, events=wanted)


def messy(path, reward="bought", propensity="shown_prob", other="revenue"):
    lines = [f"customer,{reward},{other},{propensity},new_prob"]
    lines += [f"c{row // 4},{('yes', 'no', 'no')[row % 3]},{row % 7},{0.2 + 0.2 * (row % 3)},0.3" for row in range(60)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_doctor_guesses_the_line_where_the_reward_is_not_clear(tmp_path, capsys):
    for name, other in (("bought", "revenue"), ("took_it", "sum")):  # two usual names, and none
        found = examine_file(messy(tmp_path / "log.csv", name, other=other))
        (fit,) = [fit for fit in commands_for(found) if fit.command == "estimate"]
        assert not fit.fits
        status, said, _ = run(capsys, "doctor", tmp_path / "log.csv")
        assert status == 3
        assert (
            f"--target new_prob --baseline today --reward-column {name}\n      guessed: {name} is the reward\n" in said
        )


def test_all_that_a_line_lacks_is_said_at_once(tmp_path, capsys):
    path = messy(tmp_path / "log.csv")
    status, _, said = run(capsys, "estimate", path)
    assert status == 2
    assert "--target (by their names new_prob)" in said
    assert "could be column 'bought' or 'revenue'" in said
    strange = messy(tmp_path / "other.csv", "took_it", "w", "sum")
    with pytest.raises(UserError) as refused:
        BanditLog.open(strange, ["new_prob"], required_roles=["propensity"])
    assert "no column is recognised as the reward" in str(refused.value)
    assert "no column is recognised as the propensity" in str(refused.value)
    assert str(refused.value).count("columns: ") == 1


@pytest.mark.parametrize(
    ("role", "name", "how"),
    [
        *((role, name, RECOGNISED) for role, name in (
            ("item", "item_sku"), ("item", "productSku"), ("action", "sku"), ("time", "viewed_at"), ("time", "created"),
            ("time", "requestedAt"), ("time", "event_timestamp"),
        )),
        *((role, name, GUESSED) for role, name in (
            ("user", "CustomerNo"), ("user", "customer_number"), ("user", "cust_no"), ("user", "MemberNr"),
            ("user", "client-key"), ("action", "SKU shown"), ("action", "product_shown"), ("item", "Item shown"),
            ("item", "artikel-no"), ("action", "OfferCode"),
        )),
    ],
)  # fmt: skip
def test_names_are_understood_by_their_words_and_endings(role, name, how):
    found = find_columns("f", ["x", name], optional=[role])
    assert (found[role], found.how[role]) == (name, how)


@pytest.mark.parametrize(
    "name",
    ["flat", "format", "skus_left", "at", "cat", "is_member", "client_country", "sku_price", "shown", "product name"],
)
def test_other_words_and_endings_are_none(name):
    assert find_columns("f", ["x", name], optional=["user", "action", "item", "time"]).names == {}


@pytest.mark.parametrize(("role", "names"), [("user", ("CustomerNo", "MemberNr")), ("time", ("viewed_at", "sent_at"))])
def test_two_that_could_be_are_asked_about(role, names):
    assert find_columns("f", names, optional=[role]).unclear == {role: names}


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

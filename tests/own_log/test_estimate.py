"""Estimates of foreign logs: the columns that are recognised, what is reported, and the numbers of the arrays."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.cross_fitted import cross_fitted_rewards, estimate_without_propensities
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.estimating import Question, estimate_log, is_own_schema
from recsim_mnar.own_log.gate import unmet
from recsim_mnar.tables.parts import TableFile
from toys import only, read_json, refused
from twins.commands import done, fails
from twins.findings import codes
from twins.own_schema import estimate_file

write_shop = runpy.run_path("benchmarks/own_log/shop.py")["write"]

N = 3000
ARMS = ["red", "green", "blue"]
OUR_NAMES = {"visitor": "user", "pscore": "propensity", "clicks": "reward"}
NAMED_ACTION = {"columns": {"action": "arm"}}


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    law = 0.2 + 0.4 * rng.dirichlet(np.ones(3), N)
    shown = (rng.random((N, 1)) > law.cumsum(axis=1)[:, :2]).sum(axis=1)
    frame = pd.DataFrame(
        {
            "visitor": [f"v{u}" for u in rng.integers(0, 300, N)],
            "row_key": rng.permutation(np.arange(10_000, 10_000 + N)),
            "arm": np.array(ARMS)[shown],
            "pscore": law[np.arange(N), shown],
            "clicks": (rng.random(N) < 0.2).astype(int),
        }
    )
    frame["new"] = frame.pscore * rng.uniform(0.5, 1.5, N)
    return frame


@pytest.fixture
def frame():
    return table()


@pytest.fixture
def without_target(frame):
    return frame.drop(columns="new")


def estimated(path, targets=("new",), reading=None, **question):
    return estimate_log(path, Question(list(targets), **question), reading=Reading(**(reading or {})))


@pytest.fixture
def estimate_table(save):
    """Estimates of a table that is written into a file."""
    return lambda frame, *arguments, **question: estimated(save(frame), *arguments, **question)


@pytest.fixture
def estimate_by_command(capsys, tmp_path):
    """Output and records of `estimate`, which must succeed."""

    def estimate(*arguments):
        out = done(capsys, "estimate", *arguments, "--json", tmp_path / "found.json")
        return out, read_json(tmp_path / "found.json")

    return estimate


def of_columns(frame, **options):
    """The estimate by the arrays of such a table."""
    return estimate_value(frame.clicks, frame.pscore, frame.new, cluster=frame.visitor, **options)


def numbers(record):
    return [record[key] for key in ("value", "low", "high", "n", "ess", "method")]


def assert_same(record, estimate):
    assert numbers(record) == numbers(vars(estimate))


@pytest.mark.parametrize("form", ["commas", "semicolons", "parquet"])
def test_the_numbers_are_those_of_the_columns(frame, save, tmp_path, form):
    if form == "parquet":
        path = tmp_path / "log.parquet"
        frame.to_parquet(path)
    elif form == "semicolons":
        path = save(frame, sep=";", decimal=",")
    else:
        path = save(frame)
    answer = estimated(path, baseline="pscore", estimators=("ips", "clipped_ips"), clip=2.0)
    for record, name in zip(answer.records[:2], ("ips", "clipped_ips"), strict=True):
        assert_same(record, of_columns(frame, estimator=name, clip=2.0))
    assert [record["policy"] for record in answer.records] == ["new"] * 2 + ["pscore"] * 2 + ["new - pscore"] * 2
    assert "taken: reward: clicks; propensity: pscore; user: visitor; action: arm" in "\n".join(answer.lines)


def test_a_log_with_our_names_gives_the_same_records_either_way(frame, save):
    frame = frame.rename(columns=OUR_NAMES)
    frame["event"] = np.where(np.arange(N) % 3 == 0, "organic", "bandit")
    organic = frame.event == "organic"
    frame.loc[organic, ["reward", "propensity", "new"]] = np.nan
    frame["step"] = 0
    path = save(frame)
    assert is_own_schema(TableFile.open(path))
    answer = estimated(path, estimators=("ips",), keep_rows=True)
    assert answer.records == estimate_file(path, ["new"], estimators=("ips",))
    assert answer.log.counts["organic_rows"] == organic.sum()
    assert not is_own_schema(TableFile.open(save(frame.drop(columns="step"), "foreign.csv")))


# ------------------------------------------------------------------------------------------------- files of targets


def by_action(frame, key="row_key"):
    """A policy's probability of each arm, in a row per key."""
    keys = frame[key].drop_duplicates().to_numpy()
    law = np.random.default_rng(3).dirichlet(np.ones(3), len(keys)).round(6)
    law[:, 2] = 1.0 - law[:, :2].sum(axis=1)
    return pd.DataFrame(law, columns=ARMS).assign(**{key: keys})


def test_a_file_of_policies_is_found_by_its_key(frame, without_target, save):
    shuffled = frame[["row_key", "new"]].sample(frac=1.0, random_state=1)
    targets = save(shuffled, "targets.csv", sep=";", decimal=",")
    answer = estimated(save(without_target), target_file=targets, on="row_key", estimators=("ips",))
    assert answer.records == estimated(save(frame, "both.csv"), estimators=("ips",)).records


@pytest.mark.parametrize("key", ["row_key", "visitor"])
@pytest.mark.parametrize("prefix", ["", "p_"])
def test_a_file_of_actions_is_looked_up_by_the_logged_action(without_target, save, key, prefix):
    law = by_action(without_target, key)
    rows = without_target.merge(law, on=key)
    probability = [row[row.arm] for _, row in rows.iterrows()]
    targets = save(law.rename(columns={arm: prefix + arm for arm in ARMS}), "new-one.csv")
    answer = estimated(save(without_target), (), target_file=targets, on=key, estimators=("snips",))
    assert [record["policy"] for record in answer.records] == ["new-one"]
    np.testing.assert_allclose(answer.log.policies["new-one"], probability)
    with_target = without_target.assign(new=answer.log.policies["new-one"])
    assert_same(answer.records[0], of_columns(with_target, estimator="snips"))


def test_a_reward_model_is_fitted_across_users(frame, without_target, save):
    log = without_target.assign(age=np.linspace(18, 80, N))
    law = by_action(log)
    asked = {"on": "row_key", "fit_reward_model": True, "estimators": ("dr",)}
    answer = estimated(save(log), (), {"context": ["age"]}, target_file=save(law, "new.csv"), **asked)
    rows = log.merge(law, on="row_key")[ARMS].to_numpy()
    action = pd.Categorical(log.arm, ARMS).codes
    model = cross_fitted_rewards(
        log.clicks,
        action,
        rows,
        n_actions=3,
        context=((log.age - log.age.mean()) / log.age.std(ddof=0)).to_numpy(),
        cluster=pd.factorize(log.visitor, sort=True)[0],
    )
    with_target = log.assign(new=rows[np.arange(N), action])
    expected = of_columns(with_target, estimator="dr", model=(model[0], model[1]))
    assert answer.records[0]["value"] == pytest.approx(expected.value, rel=1e-9)
    assert answer.records[0]["high"] == pytest.approx(expected.high, rel=1e-6)
    with pytest.raises(UserError, match="needs new's probability of every action"):
        estimated(save(frame), fit_reward_model=True, estimators=("dr",))


def test_todays_policy_as_baseline_needs_no_reward_model(without_target, save):
    targets = save(by_action(without_target), "new.csv")
    asked = {"on": "row_key", "fit_reward_model": True, "baseline": "propensity", "estimators": ("dr", "ips")}
    answer = estimated(save(without_target), (), target_file=targets, **asked)
    pairs = [(record["policy"], record["estimator"]) for record in answer.records]
    assert pairs == [("new", "dr"), ("new", "ips"), ("propensity", "ips"), ("new - propensity", "ips")]
    assert answer.records[2]["value"] == pytest.approx(without_target.clicks.mean())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.assign(red=t.red + 0.5), "the probabilities do not sum to 1 in 3,000 rows \\(1: 1.5"),
        (lambda t: t.assign(green=-t.green), "'green' is outside \\[0, 1\\] in 3,000 rows"),
        (lambda t: pd.concat([t, t[:2].assign(red=t.green, green=t.red)]), "'row_key' repeats an earlier .* in 2 rows"),
        (lambda t: t[5:], "5 of 3,000 rows have no targets .*--drop-missing"),
        (lambda t: t.assign(row_key=t.row_key + 10**6), "no row_key of .* is in .*for instance '10000' and '1010000'"),
        (lambda t: t.rename(columns={"red": "a", "green": "b", "blue": "c"}), "neither policies .* nor logged actions"),
        (lambda t: t.rename(columns={"row_key": "key"}), "no column 'row_key'; did you mean 'key'\\? \\(--on\\)"),
    ],
    ids=["sums", "negative", "keys twice", "keys missing", "other keys", "other actions", "no key"],
)
def test_faults_of_a_file_of_actions_are_named(without_target, save, change, message):
    targets = save(change(by_action(without_target)), "targets.csv")
    with refused(message):
        estimated(save(without_target), (), target_file=targets, on="row_key")


def test_a_key_that_stands_in_several_rows_of_the_log_is_refused(frame, without_target, save):
    targets = save(frame.drop_duplicates("visitor")[["visitor", "new"]], "targets.csv")
    with pytest.raises(UserError, match=r"'visitor' stands in an earlier row of the log too in 2,7\d\d rows"):
        estimated(save(without_target), target_file=targets, on="visitor")


def test_rows_without_a_target_are_dropped_and_counted(frame, without_target, save):
    targets = save(frame[["row_key", "new"]][:-10], "targets.csv")
    asked = {"target_file": targets, "on": "row_key", "estimators": ("ips",)}
    answer = estimated(save(without_target), reading={"drop_missing": True}, **asked)
    assert len(answer.log) == N - 10
    assert answer.log.counts["dropped_without_target"] == 10


def test_an_action_that_is_no_candidate_has_probability_zero(without_target, save):
    law = by_action(without_target)
    law["green"] += law.pop("blue")
    targets = save(law.assign(black=0.0), "new.csv")
    answer = estimated(save(without_target), (), target_file=targets, on="row_key")
    np.testing.assert_array_equal(answer.log.policies["new"][without_target.arm == "blue"], 0.0)
    assert any("1 logged actions are not candidates, so their probability is 0: blue" in line for line in answer.lines)
    assert any("1 candidate actions were never logged (black)" in line for line in answer.lines)


# ------------------------------------------------------------------------------------- what a log has and has not


def test_the_price_of_each_action_changes_no_answer_where_the_range_is_clear(frame, save, estimate_by_command):
    frame["price"] = frame.arm.map({"red": 3.0, "green": 2.0, "blue": 1.0})
    frame["clicks"] = frame.clicks * frame.price
    asked = (save(frame), "--target", "new", "--baseline", "today", "--propensity-min", "0.2")
    _, plain = estimate_by_command(*asked)
    _, priced = estimate_by_command(*asked, "--reward-limit-column", "price")
    assert [numbers(record) for record in priced] == [numbers(record) for record in plain]
    ours = save(frame.rename(columns=OUR_NAMES).assign(price=3.0), "ours.csv")
    estimate_by_command(ours, "--target", "new", "--reward-limit-column", "price")


def test_without_propensities_they_are_estimated_and_the_verdict_says_so(frame, save):
    log = frame.drop(columns="pscore").assign(place=np.arange(N) % 4)
    path = save(log)
    answer = estimated(path, reading={"context": ["place"]}, estimators=("snips",))
    assert answer.log.propensity is None
    expected = estimate_without_propensities(
        log.clicks,
        log.arm,
        log.new,
        context=log.place,
        estimator="snips",
        cluster=pd.factorize(log.visitor, sort=True)[0],  # folds are every fifth user
    )
    assert answer.records[0]["value"] == pytest.approx(expected.value)
    assert "propensities_estimated" in codes(answer.records[0])
    assert any("each action's share of the rows within place (4 values)" in line for line in answer.lines)
    with pytest.raises(UserError, match="--baseline today"):
        estimated(path, baseline="new")


def test_all_faults_come_at_once_and_rows_that_are_left_out_are_counted(frame, save):
    frame = frame.assign(timestamp=1_700_000_000 + 10 * np.arange(N))
    frame = pd.concat([frame, frame[:30]], ignore_index=True)
    frame.loc[5:9, "clicks"] = np.nan
    frame.loc[8:11, "pscore"] = np.nan
    frame.loc[100, "visitor"] = ""
    path = save(frame)
    with pytest.raises(UserError) as caught:
        estimated(path)
    message = str(caught.value)
    assert "'clicks' is missing in 5 rows (6, 7, 8, ...)" in message
    assert "'pscore' is missing in 4 rows (9, 10, 11, ...)" in message
    assert "'visitor' is missing in row 101" in message
    assert "23 rows repeat an earlier row" in message  # seven of the thirty were changed above
    answer = estimated(path, reading={"drop_missing": True, "deduplicate": True}, estimators=("ips",))
    unique = frame.drop_duplicates()
    complete = unique[unique.visitor != ""].dropna()
    assert len(answer.log) == len(complete)
    assert answer.log.counts["dropped_duplicates"] == 23
    assert answer.log.counts["dropped_missing"] == len(unique) - len(complete)
    assert_same(answer.records[0], of_columns(complete, estimator="ips"))
    assert "rows_dropped" in codes(answer.records[0])


def test_views_beside_recommendations_are_left_aside(frame, save, estimate_table):
    views = frame[:500].assign(event_type="view", pscore=np.nan, clicks=np.nan, new=np.nan)
    both = pd.concat([views, frame.assign(event_type="recommendation")])
    answer = estimate_table(both, estimators=("ips",), keep_rows=True)
    assert_same(answer.records[0], of_columns(frame, estimator="ips"))
    assert "500 rows are views (event_type)" in answer.lines
    assert answer.log.row_numbers[0] == 501
    other = estimate_table(frame.assign(event_type="buy"))
    assert "column event_type holds buy: all rows count as recommendations" in other.lines


@pytest.mark.parametrize("name", ["new", "new - v2", "new - today"])
def test_loggers_that_deny_a_policy_are_found_whatever_its_name(tmp_path, name):
    """Mean weights of .9 and 1.1 by logger, of values and of differences."""
    rng = np.random.default_rng(1)
    n = 40_000
    first = np.arange(n) % 2 == 0
    taken = rng.random(n) < 0.5
    frame = pd.DataFrame(
        {
            "reward": (rng.random(n) < 0.1).astype(float),
            "propensity": 0.5,
            "logging_policy": np.where(first, "a", "b"),
            name: np.where(taken, 0.3, 0.7) * np.where(first, 0.9, 1.1),
        }
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    answer = estimated(tmp_path / "log.csv", [name], baseline="today", estimators=["ips"])
    for role in ("target", "difference"):
        record = only(answer.records, role=role, target=name)
        assert [found["code"] for found in record["findings"]].count("logger_propensities") == 2
        assert record["verdict_level"] != "trust"


# ----------------------------------------------------------------------------------------------------- shops' files


def test_from_a_shops_file_to_a_verdict_in_two_commands(capsys, monkeypatch, tmp_path):
    write_shop(tmp_path, 1, 20_000, "plain")
    monkeypatch.chdir(tmp_path)
    asked = ("estimate", "shop.csv", "--target-file", "new.csv", "--on", "impression")
    error = fails(capsys, *asked)
    for name in ("clicks", "pscore", "customer_id"):
        assert f"column '{name}' is missing in" in error
    out = done(capsys, *asked, "--drop-missing", "--deduplicate", "--json", "records.json")
    truth = read_json(Path("truth.json"))
    assert "200 rows repeat an earlier row" in out
    assert f"{truth['incomplete']} rows have missing values and are left out" in out
    for record in read_json(Path("records.json")):
        half = 0.68 * (record["high"] - record["low"]) / 2  # 99.9 %: the interval of 95 %, once more as wide again
        assert record["low"] - half <= truth["value"] <= record["high"] + half
        assert record["verdict_level"] == "trust"


# ------------------------------------------------------------------------------------- options, baselines, answers


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--on", "visitor"], "--on needs --target-file"),
        (["--context-columns", "arms"], "no column 'arms'; did you mean 'arm'"),
        (["--estimators", "clipped_ips"], "no clip is given. Add --clip C"),
    ],
)
def test_options_that_fit_no_file_are_refused(capsys, frame, save, options, message):
    assert message in fails(capsys, "estimate", save(frame), "--target", "new", *options)


@pytest.mark.parametrize(
    ("options", "names", "clip"),
    [
        ([], ["ips", "snips"], None),
        (["--clip", "1.2"], ["ips", "snips", "clipped_ips"], 1.2),
        (["--clip", "none"], ["ips", "snips"], None),
        (["--clip", "none", "--estimators", "clipped_ips"], ["clipped_ips"], None),
    ],
    ids=["nothing", "a number", "none", "none by name"],
)
def test_weights_are_clipped_only_where_a_clip_is_named(frame, save, estimate_by_command, options, names, clip):
    _, records = estimate_by_command(save(frame), "--target", "new", *options)
    assert [record["estimator"] for record in records] == names
    assert records[-1]["diagnostics"].get("clip") == clip


@pytest.mark.parametrize("ours", [True, False])
def test_today_is_the_policy_that_logged(frame, save, estimate_by_command, ours):
    log = frame.assign(user=np.arange(N) // 10, event="bandit", action=0, step=np.arange(N) % 10)
    log = log.drop(columns=["visitor", "row_key", "arm"])
    names = ["propensity"]
    if ours:
        log = log.rename(columns=OUR_NAMES)
    else:
        names.append("pscore")
    path = save(log)
    assert is_own_schema(TableFile.open(path)) == ours
    asked = (path, "--target", "new", "--baseline")
    out, records = estimate_by_command(*asked, "today")
    assert "new - today's policy" in out
    assert [record["today"] for record in records] == [False, False, True, True, True, True]
    assert {record["policy"] for record in records} == {"new", "propensity", "new - propensity"}
    assert records[2]["value"] == pytest.approx(frame.clicks.mean())
    by_name = [estimate_by_command(*asked, name)[1] for name in names]
    assert by_name[0] == records
    assert by_name[-1][0]["sentence"]["text"] == records[0]["sentence"]["text"]
    # A column that is called so is a policy like any other.
    answer = estimated(save(log.assign(today=log.new)), baseline="today")
    assert "the same policy" in only(answer.records, role="difference", leads=True)["method"]


def test_the_answer_begins_with_the_sentence_and_other_estimators_are_folded(frame, save, tmp_path, capsys):
    asked = ("estimate", save(frame), "--target", "new")
    page = tmp_path / "page"
    out = done(capsys, *asked, "--baseline", "today", "--full-support", "--out", page)
    results = read_json(page / "results.json")
    assert list(results)[:3] == ["schema", "package", "sentence"]
    assert out.startswith(results["sentence"]["text"])
    assert " ips" not in out
    html = (page / "report.html").read_text()
    assert html.index('class="lift"') < html.index("<details") < html.index("<table")
    assert "snips" in done(capsys, *asked, "--estimators", "ips,snips", "--quiet")


def test_several_policies_are_held_to_a_corrected_level(frame, save, estimate_by_command):
    """The sentence names the best, and --require judges it, at 1 - .05 / 3; rows keep their level."""
    path = save(frame.assign(b=frame.pscore * 0.9, c=frame.pscore * 1.1))
    _, records = estimate_by_command(path, "--target", "new,b,c", "--baseline", "today")
    sentence = records[0]["sentence"]
    assert sentence["level"] == pytest.approx(1 - 0.05 / 3)
    (best,) = [record for record in records if "best_of" in record]
    limits = best["best_of"]
    assert best["policy"] == f"{sentence['policy']} - propensity"
    assert {record["level"] for record in records} == {0.95}
    assert limits["low"] < best["low"] < best["high"] < limits["high"]
    corrected = estimated(path, ["new", "b", "c"], baseline="propensity", level=1 - 0.05 / 3).records
    same = only(corrected, policy=best["policy"], estimator=best["estimator"])
    assert (same["low"], same["high"]) == (limits["low"], limits["high"])


def test_require_judges_the_leading_estimate():
    """A clip that is proved to be biased is no reason to refuse an estimate without one; a best of several may be."""
    fine = {"policy": "new", "estimator": "ips", "leads": True, "verdict_level": "trust", "verdict": "trust"}
    fine |= {"diagnostics": {}, "findings": []}
    wide = {"code": "wide_interval", "level": "caution", "message": "wide"}
    worse = {"verdict_level": "caution", "verdict": "caution: wide", "findings": [wide]}
    assert unmet("trust", [fine, fine | worse | {"leads": False}]) == []
    for records in ([fine | worse], [fine | {"best_of": worse}]):
        assert [cause.line for cause in unmet("trust", records)] == ["--require trust: new, ips: caution: wide"]
        assert unmet("caution", records) == []


# --------------------------------------------------------------------------------------- policies that name items


@pytest.mark.parametrize("numbered", [False, True])
def test_the_items_of_a_deterministic_policy_are_probabilities_of_0_or_1(frame, save, tmp_path, numbered):
    frame["new_item"] = np.random.default_rng(1).permutation(frame.arm)
    if numbered:
        numbers_of_arms = {"red": 7, "green": 2, "blue": 31}
        frame = frame.replace({"arm": numbers_of_arms, "new_item": numbers_of_arms})
    frame["new"] = (frame.arm == frame.new_item).astype(float)
    path = save(frame)
    by_probability = estimated(path, ["new"], NAMED_ACTION)
    by_item = estimated(path, ["new_item"], NAMED_ACTION)
    assert numbers(by_item.records[0]) == numbers(by_probability.records[0])
    assert any(line.startswith("new_item: the item that the policy shows") for line in by_item.lines)
    (tmp_path / "parts").mkdir()
    save(frame[:1000], "parts/0.csv")
    save(frame[1000:], "parts/1.csv")
    in_parts = estimated(tmp_path / "parts", ["new_item"], NAMED_ACTION).records[0]
    assert in_parts["value"] == pytest.approx(by_item.records[0]["value"], rel=1e-12)


def test_numbers_are_items_only_where_the_name_says_so_and_0_and_1_are_asked_about(frame, estimate_table):
    """Taken for probabilities, the numbers of two items give a mean weight of 1 and a wrong value in silence."""
    frame["arm"] = frame.arm.map({"red": 0, "green": 1, "blue": 2})
    frame["new"] = np.random.default_rng(1).permutation(frame.arm)
    frame["new_item"] = (frame.arm == 2).astype(int)
    for name in ("new", "new_item"):
        with pytest.raises(UserError, match=f"'{name}' could hold items or probabilities"):
            estimate_table(frame, [name], NAMED_ACTION)
    frame["new"] = frame.new_item
    answer = estimate_table(frame, ["new"], NAMED_ACTION)
    record = only(answer.records, leads=True)
    assert record["value"] == pytest.approx(of_columns(frame).value, rel=1e-12)


def test_items_that_differ_in_capitals_are_asked_about_and_folded(frame, estimate_table):
    """Blanks around them do not count; the option that the error names answers the question."""
    frame["new_item"] = np.random.default_rng(1).permutation(frame.arm)
    frame["loud_item"] = frame.new_item.str.upper() + " "
    folding = NAMED_ACTION | {"fold_case": True}
    with pytest.raises(UserError, match="are those of 'arm', but for capitals: add --fold-case to take them as the"):
        estimate_table(frame, ["loud_item"], NAMED_ACTION)
    plain = estimate_table(frame, ["new_item"], NAMED_ACTION)
    folded = estimate_table(frame, ["loud_item"], folding)
    assert [record["value"] for record in folded.records] == [record["value"] for record in plain.records]
    assert any(line.endswith("is 1 where both are the same but for capitals") for line in folded.lines)
    frame.loc[0, "loud_item"] = "MAUVE"  # of items that were never shown a name is left as it is
    assert estimate_table(frame, ["loud_item"], folding).records[0]["n"] == N

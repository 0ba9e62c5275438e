"""Estimates of logs of one's own: what is recognised, what is said, and that the numbers are those of the arrays."""

from __future__ import annotations

import importlib.util
import json
import re
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
from twins.commands import run
from twins.findings import codes, finding
from twins.own_schema import estimate_file

_SPEC = importlib.util.spec_from_file_location("shop", Path("benchmarks/own_log/shop.py"))
assert _SPEC is not None
assert _SPEC.loader is not None
shop = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(shop)

N = 3000


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    law = 0.2 + 0.4 * rng.dirichlet(np.ones(3), N)
    shown = (rng.random((N, 1)) > law.cumsum(axis=1)[:, :2]).sum(axis=1)
    frame = pd.DataFrame(
        {
            "visitor": [f"v{u}" for u in rng.integers(0, 300, N)],
            "row_key": rng.permutation(np.arange(10_000, 10_000 + N)),
            "arm": np.array(["red", "green", "blue"])[shown],
            "pscore": law[np.arange(N), shown],
            "clicks": (rng.random(N) < 0.2).astype(int),
        }
    )
    frame["new"] = frame.pscore * rng.uniform(0.5, 1.5, N)
    return frame


def write(frame, path, **options):
    frame.to_csv(path, index=False, **options)
    return path


def asked(path, targets=("new",), reading=None, **question):
    return estimate_log(path, Question(list(targets), **question), reading=Reading(**(reading or {})))


def of_columns(frame, **more):
    """What the columns of such a table give as arrays."""
    return estimate_value(frame.clicks, frame.pscore, frame.new, cluster=frame.visitor, **more)


def same(record, estimate):
    for key in ("value", "low", "high", "n", "ess", "method"):
        assert record[key] == getattr(estimate, key), key


@pytest.mark.parametrize("kind", ["commas", "semicolons", "parquet"])
def test_the_numbers_are_those_of_the_columns(tmp_path, kind):
    frame = table()
    if kind == "parquet":
        frame.to_parquet(path := tmp_path / "log.parquet")
    else:
        mark = {"sep": ";", "decimal": ","} if kind == "semicolons" else {}
        path = write(frame, tmp_path / "log.csv", **mark)
    answer = asked(path, baseline="pscore", estimators=("ips", "clipped_ips"), clip=2.0)
    for record, name in zip(answer.records[:2], ("ips", "clipped_ips"), strict=True):
        same(record, of_columns(frame, estimator=name, clip=2.0))
    assert [r["policy"] for r in answer.records] == ["new"] * 2 + ["pscore"] * 2 + ["new - pscore"] * 2
    assert "taken: reward: clicks; propensity: pscore; user: visitor; action: arm" in "\n".join(answer.lines)


def test_a_log_with_our_names_gives_the_same_records_either_way(tmp_path):
    frame = table().rename(columns={"visitor": "user", "pscore": "propensity", "clicks": "reward"})
    frame["event"] = np.where(np.arange(N) % 3 == 0, "organic", "bandit")
    frame.loc[frame.event == "organic", ["reward", "propensity", "new"]] = np.nan
    frame["step"] = 0
    path = write(frame, tmp_path / "log.csv")
    assert is_own_schema(TableFile.open(path))
    answer = asked(path, estimators=("ips",), keep_rows=True)
    assert answer.records == estimate_file(path, ["new"], estimators=("ips",))
    assert answer.log.counts["organic_rows"] == (frame.event == "organic").sum()
    assert not is_own_schema(TableFile.open(write(frame.drop(columns="step"), tmp_path / "foreign.csv")))


def test_a_file_of_policies_is_found_by_its_key(tmp_path):
    frame = table()
    log = write(frame.drop(columns="new"), tmp_path / "log.csv")
    mixed = frame[["row_key", "new"]].sample(frac=1.0, random_state=1)
    targets = write(mixed, tmp_path / "t.csv", sep=";", decimal=",")
    answer = asked(log, target_file=targets, on="row_key", estimators=("ips",))
    whole = asked(write(frame, tmp_path / "whole.csv"), estimators=("ips",))
    assert answer.records == whole.records


def by_action(frame, seed=3, key="row_key"):
    keys = frame[key].drop_duplicates()
    law = np.random.default_rng(seed).dirichlet(np.ones(3), len(keys)).round(6)
    law[:, 2] = 1.0 - law[:, :2].sum(axis=1)
    return pd.DataFrame({key: keys.to_numpy(), "red": law[:, 0], "green": law[:, 1], "blue": law[:, 2]})


@pytest.mark.parametrize("key", ["row_key", "visitor"])
@pytest.mark.parametrize("prefix", ["", "p_"])
def test_a_file_of_actions_is_looked_up_by_the_logged_action(tmp_path, key, prefix):
    frame = table().drop(columns="new")
    law = by_action(frame, key=key)
    wanted = frame.merge(law, on=key)
    probability = np.array([row[row.arm] for _, row in wanted.iterrows()])
    targets = write(law.rename(columns={c: prefix + c for c in ("red", "green", "blue")}), tmp_path / "new-one.csv")
    answer = asked(write(frame, tmp_path / "log.csv"), (), target_file=targets, on=key, estimators=("snips",))
    assert [r["policy"] for r in answer.records] == ["new-one"]
    np.testing.assert_allclose(answer.log.policies["new-one"], probability)
    same(answer.records[0], of_columns(frame.assign(new=answer.log.policies["new-one"]), estimator="snips"))


def test_each_actions_price_is_read_from_a_column_that_is_named(capsys, tmp_path):
    frame = table()
    frame["price"] = frame.arm.map({"red": 3.0, "green": 2.0, "blue": 1.0})
    frame["clicks"] = frame.clicks * frame.price
    path, found = write(frame, tmp_path / "log.csv"), tmp_path / "found.json"
    command = ("estimate", path, "--target", "new", "--baseline", "today", "--propensity-min", "0.2", "--json", found)
    answers = []
    for more in ((), ("--reward-limit-column", "price")):
        assert run(capsys, *command, *more)[0] == 0
        answers.append([(each["value"], each["low"], each["high"]) for each in json.loads(found.read_text())])
    assert answers[0] == answers[1]
    status, _, err = run(capsys, *command, "--reward-limit-column", "prize")
    assert status == 2
    assert "no column 'prize'; did you mean 'price'" in err
    # A log of ours, with the column named, is still read as one.
    ours = frame.rename(columns={"visitor": "user", "pscore": "propensity", "clicks": "reward"})
    ours["price"] = 3.0
    path = write(ours, tmp_path / "ours.csv")
    command = ("estimate", path, "--target", "new", "--json", found, "--reward-limit-column", "price")
    assert run(capsys, *command)[0] == 0


def test_a_reward_model_is_fitted_across_users(tmp_path):
    frame = table().drop(columns="new").assign(age=np.linspace(18, 80, N))
    targets = write(law := by_action(frame), tmp_path / "new.csv")
    answer = asked(
        write(frame, tmp_path / "log.csv"), (), {"context": ["age"]}, target_file=targets, on="row_key",
        fit_reward_model=True, estimators=("dr",),
    )  # fmt: skip
    names = ["red", "green", "blue"]
    rows = frame.merge(law, on="row_key")[names].to_numpy()
    action = frame.arm.map({name: i for i, name in enumerate(names)}).to_numpy()
    q = cross_fitted_rewards(
        frame.clicks, action, rows, n_actions=3,
        context=((frame.age - frame.age.mean()) / frame.age.std(ddof=0)).to_numpy(),
        cluster=pd.factorize(frame.visitor, sort=True)[0],
    )  # fmt: skip
    wanted = estimate_value(
        frame.clicks, frame.pscore, rows[np.arange(N), action], estimator="dr", model=(q[0], q[1]),
        cluster=frame.visitor,
    )  # fmt: skip
    assert answer.records[0]["value"] == pytest.approx(wanted.value, rel=1e-9)
    assert answer.records[0]["high"] == pytest.approx(wanted.high, rel=1e-6)
    with pytest.raises(UserError, match="needs new's probability of every action"):
        asked(write(table(), tmp_path / "log.csv"), fit_reward_model=True, estimators=("dr",))


def test_without_propensities_they_are_estimated_and_the_verdict_says_so(tmp_path):
    frame = table().drop(columns="pscore").assign(place=np.arange(N) % 4)
    path = write(frame, tmp_path / "log.csv")
    answer = asked(path, reading={"context": ["place"]}, estimators=("snips",))
    assert answer.log.propensity is None
    wanted = estimate_without_propensities(
        frame.clicks, frame.arm, frame.new, context=frame.place, estimator="snips",
        cluster=pd.factorize(frame.visitor, sort=True)[0],  # folds are every fifth user
    )  # fmt: skip
    assert answer.records[0]["value"] == pytest.approx(wanted.value)
    assert "propensities_estimated" in codes(answer.records[0])
    assert any("each action's share of the rows within place (4 values)" in line for line in answer.lines)
    with pytest.raises(UserError, match="--baseline today"):
        asked(path, baseline="new")


def test_a_user_column_that_is_not_clear_is_asked_for(tmp_path):
    with pytest.raises(UserError, match="the user could be column 'visitor' or 'user_id'; say which with --user"):
        asked(write(table().assign(user_id=1), tmp_path / "log.csv"))


def test_all_faults_come_at_once_and_what_is_left_out_is_counted(tmp_path):
    frame = table()
    frame = frame.assign(when=1_700_000_000 + 10 * np.arange(len(frame)))
    frame = pd.concat([frame, frame[:30]], ignore_index=True)
    frame.loc[5:9, "clicks"] = np.nan
    frame.loc[8:11, "pscore"] = np.nan
    frame.loc[100, "visitor"] = ""
    path = write(frame.rename(columns={"when": "timestamp"}), tmp_path / "log.csv")
    with pytest.raises(UserError) as caught:
        asked(path)
    said = str(caught.value)
    assert "'clicks' is missing in 5 rows (6, 7, 8, ...)" in said
    assert "'pscore' is missing in 4 rows (9, 10, 11, ...)" in said
    assert "'visitor' is missing in row 101" in said
    assert "23 rows repeat an earlier row" in said  # seven of the thirty were changed above
    kept = asked(path, reading={"drop_missing": True, "deduplicate": True}, estimators=("ips",))
    wanted = frame.drop_duplicates()
    wanted = wanted[wanted.visitor != ""].dropna()
    assert len(kept.log) == len(wanted)
    assert kept.log.counts["dropped_duplicates"] == 23
    assert kept.log.counts["dropped_missing"] == len(frame) - 23 - len(wanted)
    same(kept.records[0], of_columns(wanted, estimator="ips"))
    assert "rows_dropped" in codes(kept.records[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.assign(red=t.red + 0.5), "the probabilities do not sum to 1 in 3,000 rows \\(1: 1.5"),
        (lambda t: t.assign(green=-t.green), "'green' is outside \\[0, 1\\] in 3,000 rows"),
        (lambda t: pd.concat([t, t[:2].assign(red=t.green, green=t.red)]), "'row_key' repeats an earlier .* in 2 rows"),
        (lambda t: t[5:], "5 of 3,000 rows have no targets .*--drop-missing"),
        (lambda t: t.assign(row_key=t.row_key + 10**6), "no row_key of .* is in .*for instance '10000' and '1010000'"),
        (lambda t: t.rename(columns={"red": "a", "green": "b", "blue": "c"}), "neither policies .* nor logged actions"),
        (lambda t: t.rename(columns={"row_key": "key"}), "no column 'row_key'; did you mean 'key'\\? \\(--on\\)"),
    ],
)
def test_what_is_wrong_with_a_file_of_actions(tmp_path, change, words):
    frame = table().drop(columns="new")
    log = write(frame, tmp_path / "log.csv")
    targets = write(change(by_action(frame)), tmp_path / "t.csv")
    with pytest.raises(UserError, match=words) as caught:
        asked(log, (), target_file=targets, on="row_key")
    assert "\n" not in str(caught.value)


def test_keys_that_are_no_rows_are_counted(tmp_path):
    frame = table()
    log = write(frame.drop(columns="new"), tmp_path / "log.csv")
    one_each = frame.drop_duplicates("visitor")[["visitor", "new"]]
    with pytest.raises(UserError, match=r"'visitor' stands in an earlier row of the log too in 2,7\d\d rows"):
        asked(log, target_file=write(one_each, tmp_path / "t.csv"), on="visitor")
    short = write(frame[["row_key", "new"]][:-10], tmp_path / "short.csv")
    left = asked(log, reading={"drop_missing": True}, target_file=short, on="row_key", estimators=("ips",))
    assert len(left.log) == N - 10
    assert left.log.counts["dropped_without_target"] == 10


def test_an_action_that_is_no_candidate_has_probability_nothing(tmp_path):
    frame = table().drop(columns="new")
    law = by_action(frame)
    law["green"] += law.pop("blue")
    targets = write(law.assign(black=0.0), tmp_path / "new.csv")
    answer = asked(write(frame, tmp_path / "log.csv"), (), target_file=targets, on="row_key")
    assert np.all(answer.log.policies["new"][frame.arm == "blue"] == 0.0)
    assert any("1 logged actions are not candidates, so their probability is 0: blue" in line for line in answer.lines)
    assert any("1 candidate actions were never logged (black)" in line for line in answer.lines)


SHOP = ("--target-file", "new.csv", "--on", "impression")


def in_shop(capsys, monkeypatch, folder, variant, *more, rows=20_000):
    shop.write(folder, 1, rows, variant)
    monkeypatch.chdir(folder)
    first = run(capsys, "estimate", "shop.csv", *SHOP)
    clean = run(capsys, "estimate", "shop.csv", *SHOP, "--drop-missing", "--deduplicate", "--json", "e.json", *more)
    assert clean[0] == 0, clean
    return json.loads((folder / "truth.json").read_text()), first, clean[1], json.loads((folder / "e.json").read_text())


def test_from_a_shops_file_to_a_verdict_in_two_commands(capsys, monkeypatch, tmp_path):
    truth, first, said, records = in_shop(capsys, monkeypatch, tmp_path, "plain")
    assert first[0] == 2
    for name in ("clicks", "pscore", "customer_id"):
        assert f"column '{name}' is missing in" in first[2]
    assert "200 rows repeat an earlier row (--deduplicate)" in first[2]
    assert "taken: reward: clicks; propensity: pscore; user: customer_id; action: product_id; time: served_at" in said
    assert "200 rows repeat an earlier row" in said
    assert f"{truth['incomplete']} rows have missing values and are left out" in said
    for record in records:
        # 99.9 % of shops: the interval of 95 %, once more as wide again.
        half = 0.68 * (record["high"] - record["low"]) / 2
        assert record["low"] - half <= truth["value"] <= record["high"] + half
        assert record["verdict_level"] == "trust"


def test_the_shop_without_propensities(capsys, monkeypatch, tmp_path):
    context = "--context-columns", "segment,device"
    truth, _, said, records = in_shop(capsys, monkeypatch, tmp_path, "no-propensities", *context)
    assert "each action's share of the rows within segment (4 values), device (3 values)" in said
    for record in records:
        assert "the propensities are estimated" in record["verdict"]
        half = 0.68 * (record["high"] - record["low"]) / 2
        assert record["low"] - half <= truth["value"] <= record["high"] + half


@pytest.mark.slow
def test_the_shop_with_two_loggers(capsys, monkeypatch, tmp_path):
    _, _, said, records = in_shop(capsys, monkeypatch, tmp_path, "two-loggers")
    assert "logger: logging_policy" in said
    assert "2 loggers (column logging_policy) are pooled" in said
    assert "logger_propensities" not in codes(records[0])
    _, _, said, records = in_shop(capsys, monkeypatch, tmp_path, "wrong-logger")
    assert "among the rows of logger v2 the mean weight is" in finding(records[0], "logger_propensities").message
    assert "the propensities of" in records[0]["verdict"]  # item by item they are proved wrong


@pytest.mark.slow
def test_the_shop_with_users_under_another_name(capsys, monkeypatch, tmp_path):
    _, _, said, records = in_shop(capsys, monkeypatch, tmp_path, "other-user-name")
    assert "no user column is recognised" in said
    assert "perhaps haushalt" in said
    assert not records[0]["diagnostics"]["clustered"]
    _, _, said, records = in_shop(capsys, monkeypatch, tmp_path, "other-user-name", "--user-column", "haushalt")
    assert "user: haushalt (named)" in said
    assert records[0]["diagnostics"]["clustered"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the target policies' columns with --target, or give --target-file FILE --on KEY"),
        (["--target", "new", "--on", "visitor"], "--on needs --target-file"),
        (["--target", "new", "--reward-column", "klicks"], "no column 'klicks'; did you mean 'clicks'"),
        (["--target", "new", "--context-columns", "arms"], "no column 'arms'; did you mean 'arm'.*--context-columns"),
    ],
)
def test_stumbles_of_a_new_user(capsys, tmp_path, arguments, words):
    status, _, err = run(capsys, "estimate", write(table(), tmp_path / "log.csv"), *arguments)
    assert status == 2
    assert len(err.strip().splitlines()) == 1
    assert re.search(words, err)


def test_a_clip_is_asked_for(capsys, tmp_path):
    log, found = write(table(), tmp_path / "log.csv"), tmp_path / "found.json"
    asked_for = ("estimate", log, "--target", "new", "--json", found)
    for more, names in (
        ((), ["ips", "snips"]),
        (("--clip", "1.2"), ["ips", "snips", "clipped_ips"]),
        (("--clip", "none"), ["ips", "snips"]),
        (("--clip", "none", "--estimators", "clipped_ips"), ["clipped_ips"]),
    ):
        assert run(capsys, *asked_for, *more)[0] == 0
        records = json.loads(found.read_text())
        assert [record["estimator"] for record in records] == names
        assert records[-1]["diagnostics"].get("clip") == (1.2 if "1.2" in more else None)
    status, _, err = run(capsys, *asked_for, "--estimators", "clipped_ips")
    assert (status, len(err.splitlines())) == (2, 1)
    assert "--estimators clipped_ips: no clip is given. Add --clip C" in err


@pytest.mark.parametrize("ours", [True, False])
def test_today_is_the_policy_that_logged(capsys, tmp_path, ours):
    frame = table().assign(user=np.arange(N) // 10, event="bandit", action=0, step=np.arange(N) % 10)
    frame = frame.drop(columns=["visitor", "row_key", "arm"])
    if ours:
        frame = frame.rename(columns={"pscore": "propensity", "clicks": "reward"})
    log = write(frame, tmp_path / "log.csv")
    assert is_own_schema(TableFile.open(log)) == ours
    found = []
    for name in ("today", "propensity", *([] if ours else ["pscore"])):
        done = run(capsys, "estimate", log, "--target", "new", "--baseline", name, "--json", tmp_path / "found.json")
        assert done[0] == 0, done
        assert "new - today's policy" in done[1]
        found.append(json.loads((tmp_path / "found.json").read_text()))
    assert found[0] == found[1]
    assert [r["today"] for r in found[0]] == [False, False, True, True, True, True]
    assert {r["policy"] for r in found[0]} == {"new", "propensity", "new - propensity"}
    assert found[0][2]["value"] == pytest.approx(table().clicks.mean())
    if not ours:
        assert found[2][0]["sentence"]["text"] == found[0][0]["sentence"]["text"]
    # A column of that name is a policy like any other.
    other = write(frame.assign(today=frame.new), tmp_path / "other.csv")
    (same,) = (r for r in asked(other, baseline="today").records if "baseline" in r and r["leads"])
    assert "the same policy" in same["method"]


def test_today_by_its_own_column_where_rows_are_left_out(tmp_path):
    """Its support is full by definition, also after rows were taken away."""
    frame = table()
    frame.loc[5, "clicks"] = np.nan
    log = write(frame, tmp_path / "log.csv")
    answer = asked(log, baseline="pscore", estimators=("ips",), reading={"drop_missing": True})
    assert answer.records[1]["policy"] == "pscore"
    assert answer.records[1]["today"]


def test_the_answer_begins_with_the_sentence_and_others_are_folded(capsys, tmp_path):
    log, out = write(table(), tmp_path / "log.csv"), tmp_path / "page"
    status, text, _ = run(
        capsys, "estimate", log, "--target", "new", "--baseline", "today", "--full-support", "--out", out
    )
    results = json.loads((out / "results.json").read_text())
    said = results["sentence"]
    assert status == 0
    assert list(results)[:3] == ["schema", "package", "sentence"]
    assert text.startswith(said["text"])
    assert " ips" not in text
    page = (out / "report.html").read_text()
    order = ('class="lift"', "<details", "<table")
    assert sorted(order, key=page.index) == list(order)
    both = run(capsys, "estimate", log, "--target", "new", "--all-estimators", "--json", tmp_path / "f.json")[1]
    assert "snips" in both
    first = json.loads((tmp_path / "f.json").read_text())[0]
    assert next(iter(first)) == "sentence"
    assert first["sentence"]["baseline"] is None
    named = run(capsys, "estimate", log, "--target", "new", "--estimators", "ips,snips", "--quiet")[1]
    assert "snips" in named  # what is asked for is shown


def test_several_policies_are_held_to_a_corrected_level(capsys, tmp_path):
    """The sentence names the best, and --require judges it, at 1 - .05 / 3; rows keep their level."""
    frame = table()
    frame = frame.assign(b=frame.pscore * 0.9, c=frame.pscore * 1.1)
    log, found = write(frame, tmp_path / "log.csv"), tmp_path / "found.json"
    run(capsys, "estimate", log, "--target", "new,b,c", "--baseline", "today", "--json", found)
    records = json.loads(found.read_text())
    assert records[0]["sentence"]["level"] == pytest.approx(1 - 0.05 / 3)
    (best,) = [record for record in records if "best_of" in record]
    assert best["policy"] == f"{records[0]['sentence']['policy']} - propensity"
    assert {record["level"] for record in records} == {0.95}
    assert best["best_of"]["low"] < best["low"] < best["high"] < best["best_of"]["high"]
    again = estimate_log(log, Question(["new", "b", "c"], "propensity", level=1 - 0.05 / 3)).records
    (wide,) = [r for r in again if r["policy"] == best["policy"] and r["estimator"] == best["estimator"]]
    assert (wide["low"], wide["high"]) == (best["best_of"]["low"], best["best_of"]["high"])


def test_require_judges_what_leads():
    """A clip that is proved to be biased is no reason to refuse an estimate without one; a best of several may be."""
    fine = {"policy": "new", "estimator": "ips", "leads": True, "verdict_level": "trust", "verdict": "trust"}
    fine |= {"diagnostics": {}, "findings": []}
    worse = {"verdict_level": "caution", "verdict": "caution: wide"}
    worse["findings"] = [{"code": "wide_interval", "level": "caution", "message": "wide"}]
    assert unmet("trust", [fine, fine | worse | {"leads": False}]) == []
    for records in ([fine | worse], [fine | {"best_of": worse}]):
        assert [each.line for each in unmet("trust", records)] == ["--require trust: new, ips: caution: wide"]
        assert unmet("caution", records) == []


@pytest.mark.parametrize(("name", "said"), [("session_id", True), ("cookie", True), ("customer_id", False)])
def test_what_is_perhaps_no_person_is_said(capsys, tmp_path, name, said):
    log = write(table().rename(columns={"visitor": name}), tmp_path / "log.csv")
    text = run(capsys, "estimate", log, "--target", "new")[1]
    assert (f"{name} is taken for the user: if one person has several of them" in text) == said
    assert "is taken for the user" not in run(capsys, "estimate", log, "--target", "new", "--user-column", name)[1]


def test_views_beside_recommendations_are_left_aside(tmp_path):
    frame = table()
    views = frame[:500].assign(kind="view", pscore=np.nan, clicks=np.nan, new=np.nan)
    frame = frame.assign(kind="recommendation")
    both = pd.concat([views, frame]).rename(columns={"kind": "event_type"})
    answer = asked(write(both, tmp_path / "log.csv"), estimators=("ips",), keep_rows=True)
    same(answer.records[0], of_columns(frame, estimator="ips"))
    assert "500 rows are views (event_type)" in answer.lines
    assert answer.log.row_numbers[0] == 501
    other = write(frame.rename(columns={"kind": "event_type"}).assign(event_type="buy"), tmp_path / "other.csv")
    assert "column event_type holds buy: all rows count as recommendations" in asked(other).lines


def test_todays_policy_as_baseline_needs_no_reward_model(tmp_path):
    frame = table().drop(columns="new")
    targets = write(by_action(frame), tmp_path / "new.csv")
    answer = asked(
        write(frame, tmp_path / "log.csv"), (), target_file=targets, on="row_key", fit_reward_model=True,
        baseline="propensity", estimators=("dr", "ips"),
    )  # fmt: skip
    made = [(record["policy"], record["estimator"]) for record in answer.records]
    assert made == [("new", "dr"), ("new", "ips"), ("propensity", "ips"), ("new - propensity", "ips")]
    assert answer.records[2]["value"] == pytest.approx(frame.clicks.mean())


@pytest.mark.parametrize("numbered", [False, True])
def test_a_column_of_items_that_a_policy_shows_is_its_probability_of_0_or_1(tmp_path, numbered):
    frame = table()
    frame["new_item"] = np.random.default_rng(1).permutation(frame.arm)
    if numbered:
        for column in ("arm", "new_item"):
            frame[column] = frame[column].map({"red": 7, "green": 2, "blue": 31})
    frame["new"] = (frame.arm == frame.new_item).astype(float)
    path = write(frame, tmp_path / "log.csv")
    found = {name: asked(path, [name], {"columns": {"action": "arm"}}) for name in ("new", "new_item")}
    one, other = (each.records[0] for each in found.values())
    assert [one[key] for key in ("value", "low", "high", "ess")] == [
        other[key] for key in ("value", "low", "high", "ess")
    ]
    assert any(line.startswith("new_item: the item that the policy shows") for line in found["new_item"].lines)
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, rows in enumerate((frame[:1000], frame[1000:])):
        write(rows, parts / f"{number}.csv")
    again = asked(parts, ["new_item"], {"columns": {"action": "arm"}}).records[0]
    assert again["value"] == pytest.approx(other["value"], rel=1e-12)


def test_numbers_are_items_only_where_the_name_says_so_and_0_and_1_are_asked_about(tmp_path):
    """Taken for probabilities, the numbers of two items give a mean weight of 1 and a wrong value in silence."""
    frame = table()
    frame["arm"] = frame.arm.map({"red": 0, "green": 1, "blue": 2})
    frame["new"] = np.random.default_rng(1).permutation(frame.arm)
    path = write(frame, tmp_path / "log.csv")
    with pytest.raises(UserError, match="'new' could hold items or probabilities"):
        asked(path, ["new"], {"columns": {"action": "arm"}})
    frame["new_item"] = (frame.arm == 2).astype(int)
    two = write(frame, tmp_path / "two.csv")
    with pytest.raises(UserError, match="'new_item' could hold items or probabilities"):
        asked(two, ["new_item"], {"columns": {"action": "arm"}})
    frame["new"] = frame.new_item
    records = asked(write(frame, tmp_path / "named.csv"), ["new"], {"columns": {"action": "arm"}}).records
    (record,) = [each for each in records if each["leads"]]
    assert record["value"] == pytest.approx(of_columns(frame).value, rel=1e-12)


def test_items_that_differ_in_capitals_are_asked_about_and_folded(tmp_path):
    """Blanks around them do not count; what is asked about is answered by the option that the error names."""
    frame = table()
    shown = np.random.default_rng(1).permutation(frame.arm)
    frame["new_item"], frame["new"] = shown, (frame.arm == shown).astype(float)
    frame["loud_item"] = frame.new_item.str.upper() + " "
    path = write(frame, tmp_path / "log.csv")
    arm = {"columns": {"action": "arm"}}
    with pytest.raises(UserError, match="are those of 'arm', but for capitals: add --fold-case to take them as the"):
        asked(path, ["loud_item"], arm)
    plain = asked(path, ["new_item"], arm).records
    folded = asked(path, ["loud_item"], arm | {"fold_case": True})
    assert [record["value"] for record in folded.records] == [record["value"] for record in plain]
    assert any(line.endswith("is 1 where both are the same but for capitals") for line in folded.lines)
    frame.loc[0, "loud_item"] = "MAUVE"  # of items that were never shown a name is left as it is
    assert asked(write(frame, path), ["loud_item"], arm | {"fold_case": True}).records[0]["n"] == len(frame)


@pytest.mark.parametrize("name", ["new", "new - v2", "new - today"])
def test_what_a_log_knows_of_a_policy_does_not_hang_on_its_name(tmp_path, name):
    """Mean weights of .9 and 1.1 by logger: found for values and differences, whatever the column is called."""
    rng, n = np.random.default_rng(1), 40_000
    logger, taken = np.arange(n) % 2, rng.random(n) < 0.5
    frame = pd.DataFrame(
        {
            "reward": (rng.random(n) < 0.1).astype(float),
            "propensity": 0.5,
            "logging_policy": np.where(logger == 0, "a", "b"),
            name: np.where(taken, 0.3, 0.7) * np.where(logger == 0, 0.9, 1.1),
        }
    )
    frame.to_csv(tmp_path / "log.csv", index=False)
    answer = estimate_log(tmp_path / "log.csv", Question(targets=[name], baseline="today", estimators=["ips"]))
    found = {record["role"]: record for record in answer.records}
    assert [found[role]["target"] for role in ("target", "difference")] == [name, name]
    for role in ("target", "difference"):
        assert [each["code"] for each in found[role]["findings"]].count("logger_propensities") == 2
        assert found[role]["verdict_level"] != "trust"

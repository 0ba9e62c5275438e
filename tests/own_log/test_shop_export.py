"""A shop's export as people write it: one line to paste, guesses, segments that lose, and limits of rewards."""

from __future__ import annotations

import shlex

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor import examine_file
from recsim_mnar.tables.values import POINT, text_times
from toys import only, read_json
from twins.commands import done, fails, run
from twins.findings import finding
from twins.pages import page_text

N, ITEMS, EPSILON = 24_000, 12, 0.6


def comma(value):
    return f"{value:.6g}".replace(".", ",")


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """Semicolons, per cent, decimal commas, Yes and yes, DE and de, copies; the new policy loses on tablets."""
    rng = np.random.default_rng(3)
    user = rng.integers(0, N // 6, N)
    device = np.array(["mobile", "desktop", "tablet"])[rng.choice(3, N, p=[0.5, 0.3, 0.2])]
    land = np.array(["DE", "AT", "de"])[rng.choice(3, N, p=[0.75, 0.2, 0.05])]
    today = user * 7 % ITEMS
    new = (user * 5 + 3) % ITEMS
    item = np.where(rng.random(N) < EPSILON, rng.integers(0, ITEMS, N), today)
    shown = np.where(item == today, 1 - EPSILON + EPSILON / ITEMS, EPSILON / ITEMS)
    would = np.where(item == new, 0.9 + 0.1 / ITEMS, 0.1 / ITEMS)
    rate_on_tablets = np.where(item == new, 0.02, 0.3)
    rate = np.where(device == "tablet", rate_on_tablets, np.where(item == new, 0.4, 0.1))
    bought = rng.random(N) < rate
    row = np.arange(N)
    words = np.where(bought, np.where(row % 9, "Yes", "yes"), np.where(row % 9, "No", "no"))
    minutes = pd.Timestamp("2026-03-01") + pd.to_timedelta(100 * row, "s")
    columns = {
        "ordered": np.where(row % 500 == 7, "", words),
        "ranker_v2_prob": map(comma, would),
        "prob_shown": [f"{comma(100 * share)} %" for share in shown],
        "CustomerNo": [f"C{number:05}" for number in user],
        "SKU shown": [f"SKU-{number}" for number in item],
        "Brand": [f"brand{number % 3}" for number in item],
        "DeviceType": device,
        "Land": land,
        "viewed": minutes.strftime("%d.%m.%Y %H:%M:%S"),
        "basket_eur": [comma(round(20 * rng.gamma(2.0), 2) if yes else 0) for yes in bought],
    }
    frame = pd.DataFrame(columns)
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    pd.concat([frame, frame[99:149]]).to_csv(path, sep=";", index=False)
    return path


def test_doctor_begins_with_one_line_that_needs_no_editing(export, tmp_path, capsys):
    status, out, _ = run(capsys, "doctor", export, "--json", tmp_path / "found.json")
    assert status == 3
    lines = out.splitlines()
    place = lines.index("Type this:")
    assert place <= 2
    line = lines[place + 1].strip()
    words = shlex.split(line)
    assert words[:3] == ["recsim-mnar", "estimate", str(export)]
    options = {
        "--reward-column": "ordered",
        "--user-column": "CustomerNo",
        "--action-column": "SKU shown",
        "--target": "ranker_v2_prob",
        "--baseline": "today",
    }
    assert {name: words[words.index(name) + 1] for name in options} == options
    assert {"--drop-missing", "--deduplicate"} <= set(words)
    guessed = "ordered is the reward, CustomerNo the users, SKU shown the item shown, ranker_v2_prob a new policy's"
    assert lines[place + 2].strip() == f"guessed: {guessed}"
    examination = read_json(tmp_path / "found.json")
    assert examination["type_this"]["line"] == line
    assert examination["unclear"]["reward"] == ["ordered"]
    assert "50 rows repeat an earlier row" in done(capsys, *words[1:])


def test_copies_are_found_where_no_time_is_read(export, tmp_path, capsys):
    """Without its times many rows are equal in what estimate reads; 50 are in a column that differs in all others."""
    path = tmp_path / "moments.csv"
    path.write_text(export.read_text().replace(";viewed;", ";moment;", 1))
    _, out, _ = run(capsys, "doctor", path)
    (line,) = [line for line in out.splitlines() if line.startswith("  recsim-mnar estimate")]
    assert "--deduplicate" in line
    out = done(capsys, *shlex.split(line)[1:])
    assert "50 rows repeat an earlier row in every column: left out" in out


def test_the_page_and_the_table_say_how_much_is_lost_on_tablets(export, tmp_path, capsys):
    words = ("--reward-column", "ordered", "--drop-missing", "--deduplicate", "--propensity-min", "0.05")
    asked = ("--target", "ranker_v2_prob", "--baseline", "today", "--by", "DeviceType", "--out", tmp_path / "out")
    out = done(capsys, "estimate", export, *asked, *words)
    results = read_json(tmp_path / "out" / "results.json")
    sentence = results["sentence"]
    assert (sentence["answer"], sentence["segments"]["worse"]) == ("better", ["tablet"])
    tablet = only(results["records"], segment="tablet", role="difference")
    today = tablet["diagnostics"]["value_baseline"]
    new = tablet["diagnostics"]["value_target"]
    share = f"{100 * tablet['value'] / today:.2g} %"
    page = page_text(tmp_path / "out" / "report.html")
    assert f"worse on tablet ({100 * today:#.3g} % \u2192 {100 * new:#.3g} %); better on " in page
    assert f">{share}</td>" in page
    title = page.partition("<h1>")[2].partition("</h1>")[0]
    assert "other than tablet&#39;s, or look there first" in title
    (row,) = [line for line in out.splitlines() if "tablet" in line and " - " in line]
    assert share in row
    assert f"--lift {sentence['change_percent']:.3g}%,{sentence['low_percent']:.3g}% " in out


def test_a_segment_without_a_known_item_names_the_likely_column(export, tmp_path, capsys):
    path = tmp_path / "tile.csv"
    path.write_text(export.read_text().replace("SKU shown", "sku on tile", 1))
    words = ["--target", "ranker_v2_prob", "--reward-column", "ordered", "--drop-missing", "--by", "DeviceType"]
    _, out, _ = run(capsys, "estimate", path, *words)
    assert "no column holds the item shown (perhaps sku on tile: --action-column)" in out


def test_several_lifts_are_answered_in_a_line_each(export, tmp_path, capsys):
    words = ["plan", "ab", export, "--reward-column", "ordered", "--drop-missing"]
    out = done(capsys, *words, "--lift", "20%,10%", "--json", tmp_path / "plan.json")
    first, second, *_ = out.splitlines()
    assert first.startswith("lift 20%: Run ")
    assert second.startswith("lift 10%: Run ")
    assert "in whole weeks" in second
    of_20, of_10 = read_json(tmp_path / "plan.json")
    assert of_10["users"] > 3 * of_20["users"]
    assert "a number with a decimal point" in fails(capsys, *words, "--lift", "7,66%")


def test_views_with_german_names_are_recognised(tmp_path):
    path = tmp_path / "views.csv"
    rows = [f"k{i % 20};a{i * 7 % 13};01.03.2026 10:{10 + i % 50}:00" for i in range(200)]
    path.write_text("\n".join(["kunde;artikel;zeit", *rows, *rows[:4]]) + "\n")
    examination = examine_file(path)
    assert examination.kind == "interactions"
    assert examination.columns.names == {"user": "kunde", "item": "artikel", "time": "zeit"}
    assert "compare counts them as further views" in finding(examination, "duplicates").advice
    assert read_interactions(path).timed


def test_members_are_users_where_their_values_recur(tmp_path, capsys):
    path = tmp_path / "log.csv"
    rows = [f"m{i % 40},{i % 2},0.5,{i % 3 % 2}" for i in range(400)]
    path.write_text("\n".join(["member_hash,arm,pscore,click", *rows]) + "\n")
    assert "user" not in BanditLog.open(path).columns
    assert examine_file(path).guesses == {"user": "member_hash"}
    _, out, _ = run(capsys, "doctor", path)
    assert "--user-column member_hash" in out
    assert "guessed: member_hash is the users" in out


def test_dates_with_dots_and_some_hours_are_read():
    values, _, bad, _ = text_times(pa.array(["01.03.2026 10:00:01", "1.3.2026", "31.04.2026"]), POINT)
    assert values[:2].tolist() == [1772359201.0, 1772323200.0]
    assert bad.tolist() == [False, False, True]

"""A shop's export as people write it: one line to paste, guesses, segments that lose, and limits of rewards."""

from __future__ import annotations

import json
import shlex
from datetime import datetime, timedelta

import numpy as np
import pytest

from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.own_log.bandit_log import BanditLog
from recsim_mnar.own_log.doctor import examine_file
from recsim_mnar.tables.values import POINT, text_times
from twins.commands import run, status_of
from twins.findings import finding

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
    today, new = user * 7 % ITEMS, (user * 5 + 3) % ITEMS
    item = np.where(rng.random(N) < EPSILON, rng.integers(0, ITEMS, N), today)
    shown = np.where(item == today, 1 - EPSILON + EPSILON / ITEMS, EPSILON / ITEMS)
    would = np.where(item == new, 0.9 + 0.1 / ITEMS, 0.1 / ITEMS)
    tablet = device == "tablet"
    rate = np.where(tablet, np.where(item == new, 0.02, 0.3), np.where(item == new, 0.4, 0.1))
    bought = rng.random(N) < rate
    lines = ["ordered;ranker_v2_prob;prob_shown;CustomerNo;SKU shown;Brand;DeviceType;Land;viewed;basket_eur"]
    for i in range(N):
        yes = ("Yes", "yes")[i % 9 == 0] if bought[i] else ("No", "no")[i % 9 == 0]
        when = datetime(2026, 3, 1) + timedelta(seconds=100 * i)
        lines.append(
            f"{'' if i % 500 == 7 else yes};{comma(would[i])};{comma(100 * shown[i])} %;C{user[i]:05};SKU-{item[i]};"
            f"brand{item[i] % 3};{device[i]};{land[i]};{when:%d.%m.%Y %H:%M:%S};"
            f"{comma(round(20 * rng.gamma(2.0), 2) if bought[i] else 0)}"
        )
    lines += lines[100:150]
    path = tmp_path_factory.mktemp("shop") / "shop.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_doctor_begins_with_one_line_that_needs_no_editing(export, tmp_path, capsys):
    code, out, _ = run(capsys, "doctor", export, "--json", tmp_path / "found.json")
    lines, found = out.splitlines(), json.loads((tmp_path / "found.json").read_text())
    assert code == 3
    place = lines.index("Type this:")
    assert place <= 2
    words = shlex.split(lines[place + 1])
    assert words[:3] == ["recsim-mnar", "estimate", str(export)]
    options = {"--reward-column": "ordered", "--user-column": "CustomerNo", "--action-column": "SKU shown",
               "--target": "ranker_v2_prob", "--baseline": "today"}  # fmt: skip
    assert {name: words[words.index(name) + 1] for name in options} == options
    assert {"--drop-missing", "--deduplicate"} <= set(words)
    guessed = "guessed: ordered is the reward, CustomerNo the users, SKU shown the item shown, ranker_v2_prob a new"
    assert lines[place + 2].strip().startswith(guessed)
    assert found["type_this"]["line"] == lines[place + 1].strip()
    assert found["unclear"]["reward"] == ["ordered"]
    (by,) = [line for line in lines if line.strip().startswith("the same by")]
    assert [name in by for name in ("DeviceType", "Land", "Brand", "SKU")] == [True, True, False, False]
    code, out, _ = run(capsys, *words[1:])
    assert code == 0
    assert "50 rows repeat an earlier row" in out


def test_copies_are_found_where_no_time_is_read(export, tmp_path, capsys):
    """Without its times many rows are equal in what estimate reads; 50 are in a column that differs in all others."""
    path = tmp_path / "moments.csv"
    path.write_text(export.read_text().replace(";viewed;", ";moment;", 1))
    _, out, _ = run(capsys, "doctor", path)
    (line,) = [line for line in out.splitlines() if line.startswith("  recsim-mnar estimate") and "--by" not in line]
    assert "--deduplicate" in line
    _, out, _ = run(capsys, *shlex.split(line)[1:])
    assert "50 rows repeat an earlier row in every column: left out" in out


def test_the_first_screen_says_where_the_policy_loses(export, tmp_path, capsys):
    words = shlex.split(
        "--target ranker_v2_prob --baseline today --reward-column ordered --drop-missing --deduplicate "
        "--propensity-min 0.05 --by DeviceType"
    )
    code, out, _ = run(capsys, "estimate", export, *words, "--out", tmp_path / "out")
    assert code == 0
    sentence = json.loads((tmp_path / "out" / "results.json").read_text())["sentence"]
    assert sentence["answer"] == "better"
    assert sentence["segments"]["worse"] == ["tablet"]
    records = json.loads((tmp_path / "out" / "results.json").read_text())["records"]
    (tablet,) = [r for r in records if r.get("segment") == "tablet" and "baseline" in r]
    base, new = (tablet["diagnostics"][f"value_{name}"] for name in ("baseline", "target"))
    share = f"{100 * tablet['value'] / base:.2g} %"
    page = (tmp_path / "out" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    worse = f"By DeviceType: worse on tablet ({100 * base:#.3g} % \u2192 {100 * new:#.3g} %); better on "
    assert page.index("<h1>") < page.index(worse) < page.index('<p class="next">')
    title = page[page.index("<h1>") : page.index("</h1>")]
    assert "other than tablet&#39;s, or look there first" in title
    assert f"points ({share})".replace("-", "\N{MINUS SIGN}") in page
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
    words = ["plan", "ab", export, "--reward-column", "ordered", "--drop-missing", "--json", tmp_path / "plan.json"]
    code, out, _ = run(capsys, *words, "--lift", "20%,10%")
    assert code == 0
    first, second, *_ = out.splitlines()
    assert first.startswith("lift 20%: Run ")
    assert second.startswith("lift 10%: Run ")
    assert "in whole weeks" in second
    plans = json.loads((tmp_path / "plan.json").read_text())
    assert plans[1]["users"] > 3 * plans[0]["users"]
    code, _, err = run(capsys, *words[:-2], "--lift", "7,66%")
    assert code == 2
    assert "a number with a decimal point" in err


def test_views_with_german_names_are_recognised(tmp_path):
    path = tmp_path / "views.csv"
    rows = [f"k{i % 20};a{i * 7 % 13};01.03.2026 10:{10 + i % 50}:00" for i in range(200)]
    path.write_text("\n".join(["kunde;artikel;zeit", *rows, *rows[:4]]) + "\n")
    found = examine_file(path)
    assert found.kind == "interactions"
    assert found.columns.names == {"user": "kunde", "item": "artikel", "time": "zeit"}
    assert "compare counts them as further views" in finding(found, "duplicates").advice
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


def test_dates_with_dots_are_read_as_before():
    import pyarrow as pa

    values, _, bad, _ = text_times(pa.array(["01.03.2026 10:00:01", "1.3.2026", "31.04.2026"]), POINT)
    assert values[:2].tolist() == [1772359201.0, 1772323200.0]
    assert bad.tolist() == [False, False, True]


def test_a_hit_among_few_items_is_no_feat(tmp_path):
    path = tmp_path / "views.csv"
    rng = np.random.default_rng(0)
    rows = [f"k{i % 30};a{rng.integers(12)};2026-03-{1 + i // 30:02}" for i in range(300)]
    path.write_text("\n".join(["kunde;artikel;zeit", *rows]) + "\n")
    words = ("--agents", "random,popularity", "--option", "folds=2", "--out", tmp_path / "out")
    assert status_of("compare", "--interactions", path, *words) == 0
    notes = " ".join(json.loads((tmp_path / "out" / "summary.json").read_text())["notes"])
    assert "A list of 10 holds 83 % of the 12 items, so HR@10 is large for everybody (0.83 at random)" in notes

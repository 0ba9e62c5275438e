"""Contents of a report: charts and tables of few and of many agents, the finding, data to take along."""

import dataclasses
import re
import shlex
from pathlib import Path

import pytest

from recsim_mnar.protocols.comparison import Comparison, Setup
from recsim_mnar.protocols.leave_one_out import LeaveOneOut
from recsim_mnar.protocols.records import Ranking, Target, judge
from recsim_mnar.protocols.scoreboard import scoreboard
from recsim_mnar.report.charts import PER_CENT, PLAIN, Dot, axis_of, colours_of, dots, room_for
from recsim_mnar.report.page import figures_of, write_page
from recsim_mnar.report.study_page import _write_page as write_study_page
from recsim_mnar.report.study_page import figures_of as study_figures
from recsim_mnar.report.study_page import of_study, study_lines
from recsim_mnar.report.template import (
    grid,
    of_comparison,
)
from recsim_mnar.studies.result import COLUMNS, Study
from toys import judgement_of_run, record

ROOT = Path(__file__).resolve().parents[1]
RATES = [("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]


def comparison_of(keys, n_agents, **details):
    records = [
        record(protocol, f"agent-{i:02}", 0.1 + 0.01 * i, metric, 0.03, **details)
        for protocol, metric in keys
        for i in range(n_agents)
    ]
    loo = LeaveOneOut()
    headings = {key: loo.heading(key[1]) for key in keys if key[0] == "loocv"}
    return Comparison(records, columns=list(keys), headings=headings)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 0.021, (0.0, 0.01, 0.02)),
        (0.3, 0.3, (0.2, 0.3, 0.4)),
        (0, 7.6, (0, 2, 4, 6)),
    ],
)
def test_ticks_are_round_and_within_the_axis(low, high, ticks):
    assert axis_of(low, high).ticks == pytest.approx(ticks)


@pytest.mark.parametrize(
    ("rows", "low", "high"),
    [
        ([Dot("cost", 0.001, 0.0, 0.03), Dot("other", 0.02)], 0.0, 0.03045),  # no axis below 0 for a cost
        ([Dot("value", 1.0, 0.9, 1.1), Dot("wide", 1.2, 1.1, 90.0)], 0.89, 1.31),  # the wide one is cut
        ([Dot("loss", -0.3, -0.4, -0.2)], -0.415, -0.185),
    ],
)
def test_the_axis_holds_the_dots_and_no_more_than_half_their_spread_besides(rows, low, high):
    axis = room_for(rows)
    assert (axis.low, axis.high) == pytest.approx((low, high), abs=1e-9)


def test_an_interval_that_runs_out_ends_in_an_arrow_and_what_is_not_to_be_used_is_hollow():
    rows = [Dot("a", 1.0, 0.9, 1.1), Dot("b", 1.2, 1.1, 90.0, hollow=True)]
    first, second = dots(rows, PLAIN).split('<div class="row ')[1:]
    assert "arrow" not in first
    assert "hollow" not in first
    assert second.count('class="arrow" d="M-6') == 1
    assert "hollow" in second


def test_numbers_of_a_chart_have_one_number_of_decimals():
    text = dots([Dot("a", 0.217), Dot("b", 0.00521), Dot("c", -0.1)], PER_CENT)
    assert re.findall(r'class="value">([^<]*)<', text) == ["21.7 %", "0.5 %", "\N{MINUS SIGN}10.0 %"]


def test_what_clipping_may_hide_stands_in_the_page(tmp_path):
    details = {"verdict": "trust", "ess": 5.0, "share_supported": 1.0, "clip_part": 0.9375, "value_on_log": 0.1}
    details |= {"target_low": 0.0139, "target_high": 0.2499}
    write_page(tmp_path / "page.html", comparison_of(RATES, 2, **details), {})
    page = (tmp_path / "page.html").read_text()
    assert "clipping may hide up to" in page
    assert page.count(">.93750</td>") == 2
    assert page.count(".01390 to .24990") == 2


def test_every_metric_has_a_heading_and_none_is_shown_twice():
    keys = [("loocv", metric) for metric in ("hr@1", "mrr@1", "hr@10", "mrr@10")]
    assert grid(comparison_of(keys, 1)).heads == ["HR@1", "HR@10", "MRR@10"]


CTR = Target("ctr", "CTR")


def comparison(estimates, truth, half=0.001, **details):
    records = [record("ab_test", a, v, half=0.001, users=100, **details) for a, v in estimates.items()]
    records += [record("truth", a, v, half=half) for a, v in truth.items()]
    judgements = judge(records, [Ranking("ab_test", "ctr", "A/B test", CTR)])
    keys = [("ab_test", "ctr"), ("truth", "ctr")]
    return Comparison(records, judgements, columns=keys, truth_estimates=frozenset(keys[:1]))


TRUTH = {"one": 0.10, "two": 0.09, "three": 0.05}


@pytest.mark.parametrize("n_agents", [2, 12])
def test_the_first_chart_has_a_panel_per_protocol_a_row_per_agent_and_one_colour_per_agent(n_agents):
    result = comparison_of(RATES, n_agents)
    chart = figures_of(result, scoreboard(result))[0]
    assert chart.body.count('class="panel"') == 2
    for i in range(n_agents):
        colours = re.findall(rf'<div class="row (\w+)"><span class="name">agent-{i:02}<', chart.body)
        assert len(colours) == 2
        assert len(set(colours)) == 1


def test_the_first_chart_has_the_truth_as_a_tick_where_a_protocol_estimates_it_and_hollow_dots():
    estimated = comparison(TRUTH, TRUTH, verdict_level="do_not_use")
    (chart,) = figures_of(estimated, scoreboard(estimated))
    assert chart.body.count('class="known"') == chart.body.count('class="dot hollow"') == 3
    assert not chart.folded
    other = dataclasses.replace(estimated, truth_estimates=frozenset())
    (chart,) = figures_of(other, scoreboard(other))
    assert 'class="known"' not in chart.body


def test_the_finding_of_a_comparison_is_its_headline_and_there_is_none_without_a_judgement():
    right, wrong = comparison(TRUTH, TRUTH), comparison({"one": 0.1, "two": 0.2}, TRUTH)
    assert (of_comparison(right).kind, of_comparison(wrong).kind) == ("good", "bad")
    assert of_comparison(wrong).decision == scoreboard(wrong).headline()
    assert of_comparison(comparison(TRUTH, {})) is None


RUNS = [("best", 0.0), ("indistinguishable", 0.001), ("costs", 0.02, "a"), ("costs", 0.01), ("costs", 0.01)]
SHARES = ("best pick", "tie", "enough data")


@pytest.fixture
def study():
    """Five catalogues: one picked right, one tied, three wrong, of which one is unusable."""
    records = [record("ab_test", "a", 0.1, half=0.001, users=500).to_dict()]
    config = {"world": {"name": "sessions"}, "preset": "quick"}
    results = [
        {"cell": "w", "levels": {}, "catalogue": i, "seed": i, "judgements": [judgement_of_run(*run)],
         "records": records, "run_config": config}
        for i, run in enumerate(RUNS)
    ]  # fmt: skip
    return Study({}, results)


def test_a_studys_summary_and_finding_count_outcomes(study):
    (row,) = study.summary()
    counts = {name: row[name]["count"] for name in ("best", "indistinguishable", "costs", "unusable")}
    assert counts == {"best": 1, "indistinguishable": 1, "costs": 3, "unusable": 1}
    assert row["users_per_arm"] == 500
    assert row["cost_share"]["mean"] == pytest.approx(0.0082)
    assert "2 of 5" in of_study(study).decision
    assert "0.82 %" in of_study(study).decision


def test_a_studys_chart_shows_costs(study):
    (costs,) = study_figures(study)
    assert costs.body.count('class="cloud"') == 4
    assert costs.body.count('class="cloud hollow"') == 1


def test_a_study_has_one_meaning_of_best_and_tie_on_the_terminal_and_on_the_page(study, tmp_path):
    write_study_page(tmp_path / "page.html", study)
    cells = dict(re.findall(r'data-head="([^"]*)"><span>([^<]*?) ?<', (tmp_path / "page.html").read_text()))
    assert [cells[head] for head in SHARES] == ["20%", "20%", "4 of 5"]
    (line,) = (line for line in study_lines(study, 200) if line.startswith("A/B test"))
    assert re.findall(r"(\d+) of 5", line) == ["4"]
    assert re.findall(r"([\d.]+)% \[", line) == ["20", "20", "0.82"]
    assert max(map(len, study_lines(study))) <= 80


def test_table_of_a_study_has_shares_and_losses_with_intervals(study):
    shares = study.table().iloc[0]
    heads = ("best pick", "tie", "mean loss", "mean loss there")
    assert [shares[head].partition(" [")[0] for head in heads] == ["20%", "20%", "0.82%", "0.52%"]
    assert all(shares[head].endswith("]") for head in heads[:3])


def test_of_few_catalogues_a_table_counts_instead_of_stating_shares(study):
    """A share of so few has an interval that says nothing."""
    (row,) = Study({}, study.results[:4]).summary()
    cells = {head: cell(row) for head, cell in COLUMNS.items()}
    assert [cells[head] for head in SHARES] == ["1 of 4", "1 of 4", "3 of 4"]


def test_a_known_recommender_has_one_colour_on_all_pages():
    assert colours_of(["mine", "svd", "random"]) == {"mine": "a1", "svd": "a0", "random": "a8"}
    assert colours_of(["random", "user-knn"])["random"] == "a8"


def test_the_words_of_pages_are_in_the_sites_glossary():
    site = (ROOT / "docs" / "glossary.md").read_text().lower()
    text = (ROOT / "recsim_mnar" / "report" / "words.html").read_text()
    names = re.findall(r"<dt[^>]*>(.*?)</dt>", text)
    assert names
    assert [name for name in names if name.lower() not in site] == []


def test_charts_have_names_take_the_pages_inks_and_only_links_lead_somewhere(tmp_path):
    write_page(tmp_path / "page.html", comparison(TRUTH, TRUTH), {})
    page = (tmp_path / "page.html").read_text()
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(names)
    assert page.count('role="img"') == 1
    assert re.findall(r'(?:fill|stroke|color)="#', page.split("</style>")[1]) == []


def test_the_command_for_more_is_one_that_the_shell_reads_back():
    setup = Setup(world="ratings", preset="quick", params={"n_items": 50}, agents=("random", "own:A b"),
                  options={"users": 10}, tie=0.01)  # fmt: skip
    assert shlex.split(setup.command(20)) == [
        "recsim-mnar", "compare", "--world", "ratings", "--preset", "quick", "--agents", "random,own:A b",
        "--set", "n_items=50", "--option", "users=10", "--tie", "0.01", "--catalogues", "20",
    ]  # fmt: skip

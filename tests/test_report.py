"""What stands in a report: charts and tables of few and of many agents, the finding, data to take along."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import json
import math
import re
import shlex
from pathlib import Path

import pytest

from recsim_mnar.protocols.ab_test import ABTest
from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison, Setup
from recsim_mnar.protocols.leave_one_out.protocol import LeaveOneOut
from recsim_mnar.protocols.off_policy import OF_RANKINGS, OffPolicy
from recsim_mnar.protocols.records import Ranking, Record, Target, judge, plain
from recsim_mnar.report.charts import PER_CENT, PLAIN, Dot, axis_of, colours_of, dots, log_axis, room_for
from recsim_mnar.report.figures import figures_of
from recsim_mnar.report.finding import methods_of, of_comparison, state
from recsim_mnar.report.naming import both, in_plain, method_named, spoken
from recsim_mnar.report.page import write_page
from recsim_mnar.report.study_finding import judged_of, of_study, screen_of
from recsim_mnar.report.study_page import COLUMNS, cells_of
from recsim_mnar.report.study_page import _write_page as write_study_page
from recsim_mnar.report.study_page import figures_of as study_figures
from recsim_mnar.report.tables import comparison_table, grid
from recsim_mnar.report.template import MOST_BYTES, anchor, downloads_of, explained, together, unbroken, words
from recsim_mnar.studies.result import Study

ROOT = Path(__file__).resolve().parents[1]
UPLIFT = [("uplift", "uplift@10"), ("uplift", "uplift_snips@10"), ("uplift", "uplift_ips@10"), ("ab_test", "uplift@10"),
          ("truth", "cp@10")]  # fmt: skip
RATES = [("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]


def comparison_of(keys, n_agents, **details):
    records = [
        Record(world="a world", protocol=key[0], agent=f"agent-{i:02}", metric=key[1], value=0.1 + 0.01 * i, low=0.09,
               high=0.13 + 0.01 * i, level=0.95, n=100, seconds=1.0, details=details)
        for key in keys
        for i in range(n_agents)
    ]  # fmt: skip
    loo = LeaveOneOut()
    headings = {key: loo.heading(key[1]) for key in keys if key[0] == "loocv"}
    return Comparison(records, columns=list(keys), headings=headings)


@pytest.mark.parametrize("n_agents", [1, 2, 3, 12])
@pytest.mark.parametrize("keys", [UPLIFT, RATES])
def test_a_chart_has_a_row_per_agent_in_each_panel_and_one_colour_per_agent(n_agents, keys):
    found = comparison_of(keys, n_agents)
    found.pictures = [Picture("title", "caption", "label", tuple(keys))]
    (chart,) = figures_of(found)
    assert chart.body.count('class="panel"') == len(keys)
    for i in range(n_agents):
        rows = re.findall(rf'<div class="row (\w+)"><span class="name">agent-{i:02}<', chart.body)
        assert len(rows) == len(keys)
        assert len(set(rows)) == 1


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.0, 0.021, (0.0, 0.01, 0.02)),
        (-0.5, 0.1, (-0.4, -0.2, 0.0)),
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
    found = room_for(rows)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


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
    axis = log_axis(10.0, 1e6)
    assert [PLAIN.tick(tick, axis) for tick in axis.ticks] == ["10", "100", "1k", "10k", "100k", "1M"]


def test_what_clipping_may_hide_stands_in_the_page(tmp_path):
    details = {"verdict": "trust", "ess": 5.0, "share_supported": 1.0, "clip_part": 0.9375, "value_on_log": 0.1}
    write_page(tmp_path / "page.html", comparison_of(RATES, 2, **details), {})
    page = (tmp_path / "page.html").read_text()
    assert "clipping may hide up to" in page
    assert page.count(">.93750</td>") == 2


def test_every_metric_has_a_heading_and_none_is_shown_twice():
    keys = [("loocv", metric) for metric in ("hr@1", "mrr@1", "hr@10", "mrr@10")]
    assert grid(comparison_of(keys, 1), full=True).heads == ["HR@1", "HR@10", "MRR@10"]


CTR = Target("ctr", "CTR")


def record(protocol, agent, metric, value, half=0.001, **details):
    return Record(world="sessions", protocol=protocol, agent=agent, metric=metric, value=value, low=value - half,
                  high=value + half, level=0.95, n=100, seconds=0.5, details=details)  # fmt: skip


def comparison(estimates, truth, half=0.001):
    records = [record("ab_test", a, "ctr", v, users=100) for a, v in estimates.items()]
    records += [record("truth", a, "ctr", v, half) for a, v in truth.items()]
    judgements = judge(records, [Ranking("ab_test", "ctr", "the A/B test", CTR)])
    return Comparison(records, judgements, columns=[("ab_test", "ctr"), ("truth", "ctr")])


TRUTH = {"one": 0.10, "two": 0.09, "three": 0.05}


@pytest.mark.parametrize(
    ("estimates", "details", "expected"),
    [
        ({"one": 0.2, "two": 0.1}, {}, "Best"),
        ({"one": 0.1, "two": 0.2}, {}, "Costs 10.0%"),
        ({"one": 0.1, "two": 0.2}, {"half": 0.009}, "Too close for it"),  # what it costs, .01, is within its own noise
        ({"one": 0.1, "two": 0.2}, {"half": 0.007}, "Costs 10.0%"),
        ({"one": 0.2, "two": 0.1}, {"verdict_level": "do_not_use"}, "Do not use"),
        ({"one": 0.2, "two": 0.1}, {"covers": "covers 3 %"}, "Do not use"),
        ({"one": 0.2, "two": 0.1}, {"verdict_level": "caution"}, "Best"),
        ({"one": 0.1, "two": 0.2}, {"verdict_level": "do_not_use", "half": 0.009}, "Do not use"),
    ],
)
def test_what_the_page_forbids_is_never_best_and_a_cost_within_the_noise_is_a_tie(estimates, details, expected):
    more = {"half": 0.001, **details}
    half = more.pop("half")
    records = [record("ab_test", a, "ctr", v, half, users=100, **more) for a, v in estimates.items()]
    records += [record("truth", a, "ctr", v) for a, v in TRUTH.items()]
    (judgement,) = judge(records, [Ranking("ab_test", "ctr", "the A/B test", CTR)])
    assert state(judgement) == expected
    assert ("nothing lost" in judgement.sentence()) == (expected == "Best")
    found = of_comparison(Comparison(records, [judgement]))
    (method,) = methods_of(Comparison(records, [judgement]))
    assert method.rely == {"Best": "yes", "Too close for it": "only to drop the worst"}.get(expected, "no")
    assert ("records hold too little of" in method.why or "is unreliable" in method.why) == (expected == "Do not use")
    assert found.decision.startswith("The A/B test found the best") == (expected == "Best")


def test_a_column_whose_first_must_not_be_used_has_no_best_one():
    estimates = {"one": ("trust", 0.1), "two": ("do_not_use", 0.3), "three": ("caution", 0.2)}
    records = [record("off_policy", a, "ips", v, verdict_level=level) for a, (level, v) in estimates.items()]
    (best,) = grid(Comparison(records)).best
    assert math.isnan(best)  # the column's first must not be used, so that it picks nobody
    assert grid(Comparison(records[::2])).best == [0.2]


@pytest.mark.parametrize(("value", "code", "marked"), [
    (0.004, "bias_proved", True), (0.03, "bias_proved", True), (0.01, "bias_proved", False), (0.004, "few", False)
])  # fmt: skip
def test_a_value_outside_its_own_interval_is_marked_with_a_line_that_says_why(tmp_path, value, code, marked):
    """In the terminal and in the page; the truth's values are not."""
    from rich.console import Console

    own = {"findings": [{"code": code}], "ess": 5.0}
    clipped = dataclasses.replace(record("off_policy", "one", "clipped_ips", value, **own), low=0.008, high=0.02)
    found = Comparison([clipped, record("truth", "one", "ctr", 0.01)], columns=[RATES[0], RATES[2]])
    console = Console(file=io.StringIO(), width=120)
    console.print(comparison_table(found))
    printed = console.file.getvalue()
    write_page(tmp_path / "page.html", found, {})
    page = (tmp_path / "page.html").read_text()
    shown = f"{value:.5f}".removeprefix("0")
    assert (f"{shown}* [.00800, .02000]" in printed) == marked
    assert (f'{shown}* <span class="interval">' in page) == marked
    why = "* Outside its interval, which is of the true value: what the clip cuts away is more than chance explains."
    for text in (printed, re.sub("<[^>]*>", "", page)):
        assert (why in " ".join(text.split())) == marked


def test_as_many_agents_as_there_are_colours_differ():
    assert list(colours_of("abcdefghij").values()) == [*(f"a{i}" for i in range(9)), "a0"]


@pytest.mark.parametrize(
    ("half", "lift", "sure"),
    [
        (
            0.001,
            "The next, two, gets 10 % fewer clicks than the best, one (95 % interval 8.6 to 11 %).",
            "",
        ),
        (
            0.05,
            "The next, two, gets 10 % fewer clicks than the best, one (95 % interval \N{MINUS SIGN}61 to +81 %).",
            "itself cannot tell which is better.",
        ),
    ],
)
def test_the_first_screen_says_what_to_do_by_how_much_and_how_sure(half, lift, sure):
    found = of_comparison(comparison(TRUTH, TRUTH, half))
    assert found.decision == "The A/B test found the best of three recommenders here."
    assert found.lift == lift
    assert sure in found.next


def test_a_best_pick_that_the_data_could_not_show_is_luck_and_the_page_says_how_many_users_it_takes():
    """The gap is .01, and the test's interval of the difference as wide: it would see it in half of all tests."""
    records = [record("ab_test", a, "ctr", v, 0.0071, users=100) for a, v in {"one": 0.2, "two": 0.1}.items()]
    records += [record("truth", a, "ctr", v) for a, v in TRUTH.items()]
    found = Comparison(records, judge(records, [Ranking("ab_test", "ctr", "the A/B test", CTR)]))
    (judgement,) = found.judgements
    assert (judgement.close, state(judgement)) == (("two",), "Best, by luck")
    assert judgement.sentence().endswith("nothing lost. Luck helped: its data are too few to tell one from two.")
    finding = of_comparison(found)
    assert finding.decision == "Only the A/B test can be relied on in this simulated shop, and only to drop the worst."
    assert (
        finding.lift
        == "No method had the data to tell which of one and two is best, so a right pick was luck; a wrong one among "
        "them costs at most about 10 % of the clicks."
    )
    assert finding.next == ""
    (method,) = methods_of(found)
    assert (method.picks, method.cost, method.rely) == ("one", "nothing, by luck", "only to drop the worst")
    needed = 100 * 2 * (0.0071 * 2.801585 / 1.959964 / 0.01) ** 2
    assert needed > 200
    (size,) = re.findall(
        r"^safely drops three; luck: 100 users per variant cannot tell one from two; that takes (\d+) per variant, to "
        r"gain 10 %$",
        method.why,
    )
    assert int(size) == math.ceil(needed / 10) * 10
    assert f"{size} users" in figures_of(found)[1].body


SHARES = ("picks the best", "tied", "picks a worse one", "must not be used", "best by upper bound")


def judgement_of_run(outcome, shown, cost):
    return {"protocol": "ab_test", "metric": "ctr", "target": "CTR", "title": "the A/B test", "outcome": outcome,
            "shown": shown, "cost_share": cost, "kendall_tau": 1.0, "pick_by_upper_bound": "a", "best": "a",
            "tau_by_upper_bound": 1.0, "pick": "a"}  # fmt: skip


def test_a_study_has_one_meaning_of_best_and_tie_and_says_the_size_of_its_ab_test(tmp_path):
    """What a test of one run is too small to see is a cost all the same, and so is one whose estimate is barred."""
    runs = [("best", "best", 0.0), ("indistinguishable", "indistinguishable", 0.001), ("costs", "unusable", 0.02)]
    runs += [("costs", "indistinguishable", 0.01)] * 2
    own = record("ab_test", "a", "ctr", 0.1, users=500).to_dict()
    study = Study({}, [{"label": f"w-{i:03}", "catalogue": i, "seed": i, "judgements": [judgement_of_run(*run)],
                        "records": [own]} for i, run in enumerate(runs)])  # fmt: skip
    (row,) = study.summary()
    assert [row[name]["count"] for name in ("best", "indistinguishable", "costs", "unusable")] == [1, 1, 3, 1]
    assert row["users_per_arm"] == 500
    (sentence,) = study.sentences()
    assert sentence.startswith(
        "The A/B test (500 users per variant) picks the best recommender in 1 of 5 catalogues, a tie with it in 1, a "
        "worse one in 3. On average its picks cost 0.82% ["
    )
    assert sentence.endswith("of the CTR. In 1 of 5 its estimate must not be used.")
    finding = of_study(study)
    assert finding.decision == "The A/B test chose best."
    (screen,) = screen_of(study)
    assert (screen.right, screen.shops, screen.kept, screen.most) == (2, 5, 5, 0.02)
    assert screen.lost["mean"] == pytest.approx(0.0082)
    costs, outcomes = study_figures(study)
    assert re.findall(r'part (\w+)" style="flex:([\d.]+)', outcomes.body) == [
        ("good", "0.2000"), ("tie", "0.2000"), ("bad", "0.6000")
    ]  # fmt: skip
    assert costs.body.count('class="cloud"') == 4
    assert costs.body.count('class="cloud hollow"') == 1
    assert "<small>500 users per variant</small> <small>too little data in 1 of 5</small>" in costs.body
    write_study_page(tmp_path / "page.html", study)
    cells = dict(re.findall(r'data-head="([^"]*)"><span>([^<]*?) ?<', (tmp_path / "page.html").read_text()))
    assert [cells[head] for head in ("picks the best", "tied", "picks a worse one")] == ["20%", "20%", "60%"]
    assert "best or tied: 2 of 5" in outcomes.body
    few = Study({}, study.results[:4])  # a share of so few catalogues has an interval that says nothing
    cells = dict(zip(COLUMNS, cells_of(*few.summary()), strict=True))
    assert [cells[head] for head in SHARES] == ["1 of 4", "1 of 4", "2 of 4", "1 of 4", "4 of 4"]


@pytest.mark.parametrize(("n", "clear"), [(8, True), (5, False)])
def test_a_study_compares_methods_catalogue_by_catalogue(n, clear):
    """Costs vary more between catalogues than between two methods: eight losses of eight are clear, five are not."""
    own = record("ab_test", "a", "ctr", 0.1, users=500).to_dict()
    runs = []
    for i in range(n):
        least = {**judgement_of_run("costs", "costs", 0.01 * i), "protocol": "loocv", "title": "leave-one-out"}
        runs.append({"label": f"w-{i:03}", "catalogue": i, "seed": i, "records": [own],
                     "judgements": [judgement_of_run("costs", "costs", 0.01 * i + 0.001), least]})  # fmt: skip
    decision = of_study(Study({}, runs)).decision
    assert decision == (
        "The hidden-view test chose best, better than an A/B test of 500 users per variant."
        if clear
        else "The hidden-view test looks best; 5 simulated shops cannot prove it."
    )


def test_a_study_has_one_mark_for_a_pick_that_must_not_be_used_and_for_a_best_one_that_could_not_be_judged():
    overlooked = judgement_of_run("costs", "costs", 0.07) | {"pick": "b", "unusable": ["a"]}
    own = record("ab_test", "a", "ctr", 0.1, users=500).to_dict()
    runs = [judgement_of_run("costs", "unusable", 0.01), overlooked, judgement_of_run("best", "best", 0.0)]
    study = Study({}, [{"label": f"w-{i:03}", "catalogue": i, "seed": i, "judgements": [run], "records": [own]}
                       for i, run in enumerate(runs)])  # fmt: skip
    costs = study_figures(study)[0]
    assert costs.body.count('class="cloud hollow"') == 2
    assert costs.body.count('class="cloud"') == 1
    assert "too little data in 2 of 3" in costs.body
    assert "say too little of this pick or of a better one" in costs.caption


def test_a_study_marks_a_pick_where_any_better_one_could_not_be_judged():
    """The best can be judged; the second, better than the pick as well, cannot."""
    own = [record("truth", a, "ctr", v).to_dict() for a, v in TRUTH.items()]
    pick = judgement_of_run("costs", "costs", 0.5) | {"best": "one", "best_truth": 0.1, "pick": "three"}
    pick |= {"pick_truth": 0.05, "unranked": ["two"]}
    blind = pick | {"pick": "two", "pick_truth": 0.09, "unranked": ["three"], "cost_share": 0.1}
    study = Study({}, [{"label": f"w-{i:03}", "catalogue": i, "seed": i, "judgements": [run], "records": own}
                       for i, run in enumerate((pick, blind))])  # fmt: skip
    assert [j["warned"] for (judged,) in [judged_of(study).values()] for j in judged] == [True, False]


def test_methods_within_chance_of_each_other_choose_equally_well_and_a_worse_one_is_named():
    """A tie of two, .1 % apart either way, and a third whose picks lose 5 % more in every other shop."""
    own = record("ab_test", "a", "ctr", 0.1, users=500).to_dict()
    runs = []
    for i in range(24):
        costs = {"ab_test": 0.001 * (i % 2), "loocv": 0.001 * (i % 2 == 0), "off_policy": 0.05 * (i % 2)}
        titles = dict(zip(costs, ("the A/B test", "leave-one-out", "clipped IPS"), strict=True))
        judged = [judgement_of_run("costs", "costs", cost) | {"protocol": name, "title": titles[name]}
                  for name, cost in costs.items()]  # fmt: skip
        runs.append({"label": f"w-{i:03}", "catalogue": i, "seed": i, "records": [own], "judgements": judged})
    found = of_study(Study({}, runs))
    assert found.decision == (
        "An A/B test of 500 users per variant and the hidden-view test chose about equally well. The estimate from old "
        "records did worse."
    )
    assert found.next == "Next: decide by an A/B test in your own shop."  # of no ranking anything is known


@pytest.mark.parametrize(
    ("third", "advice"),
    [
        (0.3, "shorten your list by the hidden-view test, then decide by"),
        (0.01, "decide by an A/B test in your own shop; other tests dropped"),
    ],
)
def test_a_list_is_shortened_by_a_test_that_keeps_the_best_in_every_shop(third, advice):
    """Truths a > b > c > d; leave-one-out picks b, and has a third, or last. Always a would lose nothing."""
    truths = {"a": 0.4, "b": 0.3999, "c": 0.2, "d": 0.1}
    records = [record("truth", name, "ctr", value).to_dict() for name, value in truths.items()]
    ranks = {"a": third, "b": 0.5, "c": 0.4, "d": 0.02}
    records += [record("loocv", name, "hr@1", value).to_dict() for name, value in ranks.items()]
    records += [record("ab_test", name, "ctr", value, users=500).to_dict() for name, value in truths.items()]
    pick = {"best": "a", "best_truth": 0.4}
    runs = []
    for i in range(24):
        tested = judgement_of_run("best", "best", 0.0) | pick | {"pick": "a", "pick_truth": 0.4}
        left = judgement_of_run("costs", "costs", 0.00025) | pick | {"pick": "b", "pick_truth": 0.3999}
        left |= {"protocol": "loocv", "metric": "hr@1", "title": "leave-one-out"}
        runs.append({"label": f"w-{i:03}", "catalogue": i, "seed": i, "records": records, "judgements": [tested, left]})
    study = Study({}, runs)
    rows = {row.name: row for row in screen_of(study)}
    assert rows["Hidden-view test"].kept == (24 if third == 0.3 else 0)
    assert (rows["Always a"].right, rows["Always a"].most) == (24, 0.0)
    found = of_study(study)
    assert advice in found.next
    assert "Always a would have done as well, at most 0 % behind the best" in found.lift


def test_known_recommenders_have_plain_names_and_others_their_own():
    assert spoken("svd") == "\N{LEFT DOUBLE QUOTATION MARK}taste patterns\N{RIGHT DOUBLE QUOTATION MARK}"
    assert (spoken("mine"), both("user-knn"), both("random")) == ("mine", "similar users (user-knn)", "random")
    dot = in_plain(Dot("svd", 1.0, note="more"))
    assert (dot.name, dot.note) == ("taste patterns", "svd: finds patterns shared by users\nmore")


def test_what_a_method_ruled_out_wrongly_is_said_and_the_narrowest_right_one_leads():
    """SNIPS keeps the best two; IPS none out; leave-one-out, which picks the worst by far, rules out the second."""
    records = [record("truth", a, "ctr", v) for a, v in TRUTH.items()]
    records += [record("ips", a, "ctr", v, 0.05) for a, v in TRUTH.items()]
    records += [record("snips", a, "ctr", v, 0.01) for a, v in TRUTH.items()]
    records += [record("loocv", a, "hr@1", v, 0.05) for a, v in {"one": 0.5, "two": 0.1, "three": 0.49}.items()]
    rankings = [Ranking(name, "ctr", title, CTR) for name, title in {"ips": "IPS", "snips": "SNIPS"}.items()]
    judged = judge(records, [*rankings, Ranking("loocv", "hr@1", "leave-one-out", CTR)])
    found = of_comparison(Comparison(records, judged))
    assert found.decision == "Only SNIPS can be relied on in this simulated shop, and only to drop the worst."
    assert (
        found.lift
        == "No method had the data to tell which of one and two is best, so a right pick was luck; a wrong one among "
        "them costs at most about 10 % of the clicks."
    )
    assert found.next == ""
    assert methods_of(Comparison(records, judged))[-1].why.endswith(
        "; wrongly drops two, which is truly better than three"
    )


def test_a_note_has_a_line_each_the_ends_of_an_interval_are_labelled_and_short_labels_stand_under_their_lines():
    body = dots([Dot("a", 0.2, 0.15, 0.25, note="one\ntwo", labelled=True)], PER_CENT, axis_of(0.0, 0.3))
    assert re.findall(r"<small>(.*?)</small>", body) == ["one", "two"]
    assert re.findall(r'y="19" text-anchor="middle">([^<]*)<', body) == ["15.0 %", "25.0 %"]
    assert 'x="0.00%" y="12" text-anchor="middle">0 %<' in body
    assert len(axis_of(0.0, 0.084, 6).ticks) == 5


def test_dots_at_one_place_do_not_hide_each_other_and_what_is_far_off_is_an_arrow():
    body = dots([Dot("a", 0.1, cloud=[(0.1, False)] * 4), Dot("far", -5.0, -5.1, -4.9)], PLAIN, axis_of(0.0, 0.2))
    first, second = body.split('<div class="row ')[1:]
    assert len(set(re.findall(r'class="cloud" cy="(-?\d+)"', first))) == 4
    assert "circle" not in second
    assert second.count('class="arrow"') == 1


def test_a_known_recommender_has_one_colour_on_all_pages():
    assert colours_of(["mine", "svd", "random"]) == {"mine": "a1", "svd": "a0", "random": "a8"}
    assert colours_of(["random", "user-knn"])["random"] == "a8"


def test_no_line_ends_within_a_number():
    assert unbroken("95 % of [.1, .25], [3%, 56%] and a, b") == (
        "95\N{NO-BREAK SPACE}% of [.1,\N{NO-BREAK SPACE}.25], [3%,\N{NO-BREAK SPACE}56%] and a, b"
    )


def test_a_recommenders_name_is_explained_where_a_table_has_it_and_not_in_other_text():
    known = {"random": "any item", "log": "a table"}
    text = "<main><p>random, at random</p>{}<dl>\n</dl></main>"
    assert "<a" not in explained(text.format(""), known)
    found = explained(text.format('<th scope="row">random</th>'), known)
    assert re.findall(r">([^<]*)</a>", found) == ["random"]
    assert "at random" in found


def test_without_truth_there_is_no_finding_and_no_chart_of_it():
    found = comparison(TRUTH, {})
    assert of_comparison(found) is None
    assert figures_of(found) == []


def test_the_charts_of_a_judged_comparison():
    charts = figures_of(comparison(TRUTH, TRUTH))
    assert [chart.title for chart in charts] == [
        "The truth, which no method saw: how many fewer clicks than one",
        "How many users an A/B test needs",
    ]
    assert [chart.folded for chart in charts] == [False, True]


def test_users_that_an_ab_test_needs_are_those_of_the_normal_approximation():
    """(1.96 + 0.8416)^2 times both variances over the gap squared; each is 100 users times (.001 / 1.96)^2."""
    body = figures_of(comparison(TRUTH, TRUTH))[1].body
    needed = (1.959964 + 0.841621) ** 2 * 2 * 100 * (0.001 / 1.959964) ** 2
    users = {"two": needed / 0.01**2, "three": needed / 0.05**2}
    shown = dict(re.findall(r'class="name">(\w+)<.*?class="value">([\d,]+) users', body))
    assert {name: int(text) for name, text in shown.items()} == {"two": 5, "three": 1}
    assert users["two"] == pytest.approx(4.09, abs=0.01)
    assert users["three"] == pytest.approx(0.16, abs=0.01)


def test_a_word_is_explained_once_in_each_part_and_never_in_a_chart_or_a_command():
    page = '<title>clip</title><main><p>The clip, a clip.</p><h2>clip</h2><pre>clip</pre><div role="img">'
    page += "<div>clip</div></div><p>clips</p><dl>\n"
    known = {"clip": "the largest weight", "log": "a table"}
    glossary = "".join(f'<dt id="{anchor(name)}">{name}</dt><dd>{text}</dd>\n' for name, text in known.items())
    found = explained(f"{page}{glossary}</dl></main>", known)
    link = '<a class="term" href="#word-clip" title="the largest weight">clip</a>'
    assert found.startswith(f"<title>clip</title><main><p>The {link}, a clip.</p><h2>{link}</h2><pre>clip</pre>")
    assert found.count("<a ") == 2
    assert "a table" not in found


def test_the_words_of_pages_are_in_the_sites_glossary():
    site = (ROOT / "docs" / "glossary.md").read_text().lower()
    assert [name for name in words() if name.lower() not in site] == []
    text = (ROOT / "recsim_mnar" / "report" / "words.html").read_text()
    assert re.findall(r'<dt id="([^"]*)">', text) == [anchor(name) for name in words()]


def test_charts_have_names_take_the_pages_inks_and_only_links_lead_somewhere(tmp_path):
    write_page(tmp_path / "page.html", comparison(TRUTH, TRUTH), {})
    page = (tmp_path / "page.html").read_text()
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(names)
    assert page.count('role="img"') == 2
    assert re.findall(r'(?:fill|stroke|color)="#', page.split("</style>")[1]) == []


def test_the_numbers_can_be_taken_from_the_page(tmp_path):
    found = comparison(TRUTH, TRUTH)
    write_page(tmp_path / "page.html", found, {})
    page = (tmp_path / "page.html").read_text()
    files = {
        name: base64.b64decode(data) for name, data in re.findall(r'download="([^"]+)" href="data:[^,]+,([^"]+)"', page)
    }
    rows = list(csv.DictReader(io.StringIO(files["results.csv"].decode())))
    assert [float(row["value"]) for row in rows] == [r.value for r in found.records]
    assert [row["agent"] for row in json.loads(files["results.json"])] == [r.agent for r in found.records]


def test_what_would_make_the_page_heavy_is_left_out():
    rows = [{"name": "x" * 1000}] * (MOST_BYTES // 1000)
    assert downloads_of("rows", rows) == []
    assert [file.name for file in downloads_of("rows", rows[:10])] == ["rows.csv", "rows.json"]
    assert downloads_of("rows", []) == []
    large = downloads_of("large", [{"name": "x" * (MOST_BYTES - 30_000)}])
    small = downloads_of("small", rows[:10])
    assert together(large, large, small, small) == [*large, *small, *small]
    assert sum(len(file.href) for file in together(large, large, small)) < 2_000_000


def test_the_command_for_more_is_one_that_the_shell_reads_back():
    setup = Setup(
        world="ratings",
        preset="quick",
        params={"n_items": 50},
        agents=("random", "own:A b"),
        options={"users": 10},
        tie=0.01,
    )
    words = shlex.split(setup.command(20))
    assert words == ["recsim-mnar", "compare", "--world", "ratings", "--preset", "quick", "--agents", "random,own:A b",
                     "--set", "n_items=50", "--option", "users=10", "--tie", "0.01", "--catalogues", "20"]  # fmt: skip


def test_what_judges_lists_has_plain_names_and_headings_of_its_own():
    off, ab = OffPolicy(), ABTest()
    for metric in OF_RANKINGS:
        known = method_named(off.title(metric))
        assert known is not None
        assert known.plain.endswith("estimate")
        assert known.about.startswith("from old records")
    assert [off.title(name) for name in ("reward_interaction_snips", "cascade_dr", "pseudo_inverse")] == [
        "reward-interaction SNIPS", "cascade DR", "pseudo-inverse",
    ]  # fmt: skip
    assert {off.heading("dcg"), ab.heading("dcg")} == {"clipped IPS, DCG", "A/B DCG"}
    about = {name: method_named(f"leave-one-out ({name}@5)").about for name in ("HR", "MRR", "NDCG")}
    assert len(set(about.values())) == 3
    assert all("5" in each for each in about.values())
    assert method_named("leave-one-out (HR@1)").about == method_named("leave-one-out").about


def test_a_comparison_of_lists_says_what_its_numbers_are_of(tmp_path):
    sizes = {"train_users": 60, "test_users": 60, "arm_users": 60, "truth_users": 60, "clip": 7.0}
    setup = Setup(preset="quick", params={"n_items": 12, "n_flips": 0, "slate_size": 3}, options=sizes,
                  agents=("popularity", "user-popularity"), protocols=("off_policy", "ab_test"))  # fmt: skip
    resolved = setup.resolved()
    found = resolved.run(1)
    write_page(tmp_path / "page.html", found, plain(resolved.run_config(1)))
    made = (tmp_path / "page.html").read_text()
    assert "independent_ips,reward_interaction_ips,slate_ips" in made
    assert "clipped_ips,ips,snips" not in made
    for heading in ("independent IPS", "reward-interaction IPS", "slate IPS"):
        assert f'aria-label="Verdicts, {heading}"' in made
    (note,) = (note for note in found.notes if note.startswith("Users see lists of 3"))
    assert "are cut at 7 (--clip)" in note
    titles = [chart.title for chart in figures_of(found)]
    assert "Independent IPS next to the A/B test" in titles
    assert len(set(found.headings.values())) == len(found.headings)

"""What stands in a report: figures and tables of few and of many agents, the finding, data to take along."""

from __future__ import annotations

import base64
import csv
import io
import json
import re
import shlex

import pytest

from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison, Setup
from recsim_mnar.protocols.leave_one_out.protocol import LeaveOneOut
from recsim_mnar.protocols.records import Ranking, Record, Target, judge
from recsim_mnar.report import figures
from recsim_mnar.report.judged_figures import judged_figures
from recsim_mnar.report.page import write_page
from recsim_mnar.report.tables import grid, headline_of, shade, state
from recsim_mnar.report.template import MOST_BYTES, downloads_of, inside_page, together

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
def test_a_figure_has_room_for_its_legend(monkeypatch, n_agents, keys):
    drawn = []
    whole = figures.svg_of
    monkeypatch.setattr(figures, "svg_of", lambda figure: drawn.append(figure) or whole(figure))
    picture = Picture("title", "caption", "label", tuple(keys))
    assert figures.draw(comparison_of(keys, n_agents), picture).startswith("<svg")
    (figure,) = drawn
    figure.draw_without_rendering()
    (axes,), (legend,) = figure.axes, figure.legends
    inside, whole_box = legend.get_window_extent(), figure.bbox
    assert len(legend.get_texts()) == len(keys)
    assert inside.x0 >= 0
    assert inside.x1 <= whole_box.x1
    assert inside.y1 <= whole_box.y1
    assert inside.y0 >= axes.get_window_extent().y1
    assert axes.get_position().width > 0.7
    assert axes.get_position().height > 0.5


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
    ("picked", "said", "words"),
    [("one", "Best", "the A/B test picks it"), ("two", "Costs 10.0%", "two, which costs 10.0%")],
)
def test_the_finding_names_the_best_and_the_cost(picked, said, words):
    found = comparison({**dict.fromkeys(TRUTH, 0.01), picked: 0.2}, TRUTH)
    assert "one has the best true CTR, 0.1" in headline_of(found).sentence
    assert words in headline_of(found).sentence
    assert state(found.judgements[0]) == said


def test_how_sure_it_is_hangs_on_the_interval_of_the_difference():
    sure = headline_of(comparison(TRUTH, TRUTH, half=0.001)).sure
    assert "differ by 10 %, known to within 1.4 %" in sure
    assert "certain on this catalogue" in sure
    unsure = comparison(TRUTH, TRUTH, half=0.05)
    assert "either of the two may be" in headline_of(unsure).sure
    picked = comparison({"one": 0.0, "two": 0.2, "three": 0.0}, TRUTH, half=0.05)
    assert state(picked.judgements[0]) == "Tied with the best"


def test_without_truth_there_is_no_finding_and_no_figure_of_it():
    found = comparison(TRUTH, {})
    assert headline_of(found) is None
    assert judged_figures(found) == []


def test_a_dearer_choice_is_coloured_deeper():
    shades = [
        shade(comparison({"one": 0.0, "two": 1.0, "three": 0.0}, {**TRUTH, "two": 0.1 * (1 - cost)}).judgements[0])
        for cost in (0.02, 0.05, 0.10, 0.50)
    ]
    assert shades == sorted(shades)
    assert shades[0] < shades[1] < shades[2] == shades[3] <= 32


def test_the_figures_of_a_judged_comparison():
    titles = [figure.title for figure in judged_figures(comparison(TRUTH, TRUTH))]
    assert titles == [
        "Estimate against truth",
        "Each protocol's ranking next to the true one",
        "How far each agent is from one",
        "How many users an A/B test needs",
    ]


def test_pictures_on_a_page_share_no_names_and_take_its_ink(tmp_path):
    write_page(tmp_path / "page.html", comparison(TRUTH, TRUTH), {})
    page = (tmp_path / "page.html").read_text()
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names)) > 4
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', page)) <= {(n, "") for n in names} | {
        ("", n) for n in names
    }
    assert "#1f2937" not in page.split("</style>")[1]
    assert page.count('role="img"') == page.count("<svg ") == 4


def test_the_name_of_a_picture_is_text():
    assert 'aria-label="&quot;&lt;b&gt;"' in inside_page("<svg width='1'></svg>", place=0, label='"<b>')


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

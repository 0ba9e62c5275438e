"""The report's figures and tables, from records of few and of many agents."""

from __future__ import annotations

import pytest

from recsim_mnar.protocols.base import Picture
from recsim_mnar.protocols.comparison import Comparison
from recsim_mnar.protocols.leave_one_out.protocol import LeaveOneOut
from recsim_mnar.protocols.records import Record
from recsim_mnar.report import figures
from recsim_mnar.report.page import write_page
from recsim_mnar.report.tables import grid

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


def test_every_metric_has_a_heading_and_none_is_told_twice():
    keys = [("loocv", metric) for metric in ("hr@1", "mrr@1", "hr@10", "mrr@10")]
    assert grid(comparison_of(keys, 1), full=True).heads == ["HR@1", "HR@10", "MRR@10"]

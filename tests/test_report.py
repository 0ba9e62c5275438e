"""The report's figures and tables, from records of few and of many agents."""

from __future__ import annotations

import pytest

from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.protocols.records import Record
from recsim_mnar.report import figures
from recsim_mnar.report.page import write_page
from recsim_mnar.report.tables import grid

UPLIFT = [("uplift", "uplift@10"), ("uplift", "uplift_snips@10"), ("uplift", "uplift_ips@10"), ("ab_test", "uplift@10"),
          ("truth", "cp@10")]  # fmt: skip
RATES = [("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]


def comparison_of(keys, n_agents, **details):
    records = [
        Record("a world", *key[:1], f"agent-{i:02}", key[1], 0.1 + 0.01 * i, 0.09, 0.13 + 0.01 * i, 0.95, 100, 1.0,
               details)
        for key in keys
        for i in range(n_agents)
    ]  # fmt: skip
    return Comparison(records, columns=[key for key in keys if keys is UPLIFT])


@pytest.mark.parametrize("n_agents", [1, 2, 3, 12])
@pytest.mark.parametrize(("draw", "keys"), [(figures.uplift_figure, UPLIFT), (figures.rates_figure, RATES)])
def test_a_figure_has_room_for_its_legend(monkeypatch, n_agents, draw, keys):
    drawn = []
    whole = figures._svg
    monkeypatch.setattr(figures, "_svg", lambda figure: drawn.append(figure) or whole(figure))
    assert draw(comparison_of(keys, n_agents)).startswith("<svg")
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
    assert page.count("<td>.93750</td>") == 2


def test_every_metric_has_a_heading_and_none_is_told_twice():
    keys = [("loocv", metric) for metric in ("hr@1", "mrr@1", "hr@10", "mrr@10")]
    assert grid(comparison_of(keys, 1), full=True).heads == ["HR@1", "HR@10", "MRR@10"]

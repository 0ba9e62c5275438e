"""The line that a page draws is the interval that its sentence says."""

from __future__ import annotations

import re

import numpy as np
import pytest

import recsim_mnar
from toys import drawn_rows
from twins.commands import done
from twins.pages import page_text

SYSTEM = np.array([0.05, 0.05, 0.1, 0.1, 0.7])
LAWS = {
    "first": np.array([0.1, 0.1, 0.2, 0.2, 0.4]),
    "second": np.full(5, 0.2),
    "third": np.array([0.02, 0.03, 0.05, 0.3, 0.6]),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    clicks = np.array([0.02, 0.03, 0.04, 0.05, 0.15])
    path = tmp_path_factory.mktemp("drawn") / "log.csv"
    drawn_rows(np.random.default_rng(5), np.full(120, 11), SYSTEM, clicks, **LAWS).to_csv(path, index=False)
    return path


def number_of(text: str) -> float:
    """A number as a page writes it."""
    return float(text.replace("\N{MINUS SIGN}", "-").replace(",", ""))


@pytest.mark.parametrize(
    ("targets", "baseline"),
    [("third", "today"), ("first,second,third", "today"), ("first", "second"), ("first,third", "second")],
    ids=["one", "the best of three", "another baseline", "the best, another baseline"],
)
def test_the_line_is_the_interval_of_the_sentence(file, tmp_path, capsys, targets, baseline):
    asked = ("--target", targets, "--baseline", baseline, "--out", tmp_path / "out")
    done(capsys, "estimate", file, *asked)
    sentence = recsim_mnar.estimate_file(file, targets.split(","), baseline=baseline).sentence
    page = page_text(tmp_path / "out" / "report.html")
    chart = page.partition('<div class="dots">')[2].partition("</figure>")[0]
    scale = chart.partition('class="track scale"')[2]
    ticks = re.findall(r'x="([0-9.]+)%"[^>]*>([^<]+) %<', scale)
    places = [float(place) for place, _ in ticks]
    slope, start = np.polyfit(places, [number_of(text) for _, text in ticks], 1)
    rows = re.split(r'<div class="row', chart)[1:]
    (row,) = [row for row in rows if f">{sentence.policy}" in row.partition("</span>")[0]]
    whisker = re.search(r'class="whisker" x1="([0-9.]+)%" x2="([0-9.]+)%"', row)
    dot = re.search(r'class="dot[^"]*" cx="([0-9.]+)%"', row)
    drawn = start + slope * np.array([dot[1], *whisker.groups()], float)
    stated = [sentence.change_percent, sentence.low_percent, sentence.high_percent]
    np.testing.assert_allclose(drawn, stated, atol=0.3, rtol=1e-6)
    value = re.search(r'class="value">([^<]+) %<', row)[1]
    assert number_of(value) == pytest.approx(sentence.change_percent, abs=0.51)

"""The line that a page draws is the interval that its sentence says."""

from __future__ import annotations

import re

import numpy as np
import pytest

import recsim_mnar
from toys import drawn_rows
from twins.commands import run

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
    code, _, _ = run(capsys, "estimate", file, "--target", targets, "--baseline", baseline, "--out", tmp_path / "out")
    assert code == 0
    said = recsim_mnar.estimate_file(file, targets.split(","), baseline=baseline).sentence
    page = (tmp_path / "out" / "report.html").read_text().replace("\N{NO-BREAK SPACE}", " ")
    chart = page.partition('<div class="dots">')[2].partition("</figure>")[0]
    rows, scale = re.split(r'<div class="row', chart)[1:], chart.partition('class="track scale"')[2]
    ticks = re.findall(r'x="([0-9.]+)%"[^>]*>([^<]+) %<', scale)
    places, numbers = ([number_of(each) for each in column] for column in zip(*ticks, strict=True))
    slope, start = np.polyfit(places, numbers, 1)
    (row,) = [each for each in rows if f">{said.policy}" in each.partition("</span>")[0]]
    ends = re.search(r'class="whisker" x1="([0-9.]+)%" x2="([0-9.]+)%"', row).groups()
    dot = re.search(r'class="dot[^"]*" cx="([0-9.]+)%"', row)[1]
    drawn = [start + slope * float(each) for each in (dot, *ends)]
    assert drawn == pytest.approx([said.change_percent, said.low_percent, said.high_percent], abs=0.3)
    shown = re.search(r'class="value">([^<]+) %<', row)[1]
    assert number_of(shown) == pytest.approx(said.change_percent, abs=0.51)

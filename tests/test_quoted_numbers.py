"""Numbers of the pages that a committed result has: a comment behind each names it, and the two agree.

    .80<!-- jeunen2019: summary > protocol=loocv > kendall_tau > mean -->

names ``benchmarks/jeunen2019/results.json`` and the keys on the way to the value; of a list a place, or ``key=value``
of the one element that has it. A number followed by ``%`` is a hundred times its value.
"""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]
_NUMBER = r"(?P<number>[-\u2212]?(?:\d[\d,]*(?:\.\d+)?|\.\d+))(?P<unit>(?: ?%)?)"
MARK = re.compile(rf"{_NUMBER}\**<!-- (?P<study>[\w/-]+): (?P<keys>.+?) -->")
ANY_MARK = re.compile(r"<!-- [\w/-]+: [^>]+ > ")
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="no pages beside the tests of a wheel")


class Quoted(NamedTuple):
    """A number of a page, and the result it is of."""

    number: str
    unit: str
    study: str
    keys: tuple[str, ...]


def quoted(text: str) -> list[Quoted]:
    """Numbers with a mark, in the order of a text."""
    marks = [match.groupdict() for match in MARK.finditer(text)]
    return [Quoted(m["number"], m["unit"].strip(), m["study"], tuple(m["keys"].split(" > "))) for m in marks]


@functools.cache
def results_of(study: str) -> Any:
    return json.loads((ROOT / "benchmarks" / study / "results.json").read_text())


def value_of(results: Any, keys: tuple[str, ...]) -> float:
    """The value at the end of the keys."""
    for key in keys:
        if isinstance(results, list) and "=" in key:
            name, _, wanted = key.partition("=")
            (results,) = [one for one in results if str(one[name]) == wanted]
        elif isinstance(results, list):
            results = results[int(key)]
        else:
            results = results[key]
    return float(results)


def agrees(one: Quoted, value: float) -> bool:
    """Whether a value, rounded as the page rounds it, is the page's number."""
    text = one.number.replace(",", "").replace("\u2212", "-")
    decimals = len(text.partition(".")[2])
    scaled = value * (100.0 if one.unit == "%" else 1.0)
    return abs(float(text) - scaled) <= 0.5 * 10.0**-decimals * (1.0 + 1e-6)


@pytest.mark.parametrize("page", [p for p in PAGES if quoted(p.read_text())], ids=lambda p: str(p.relative_to(ROOT)))
def test_quoted_numbers_are_those_of_the_results(page):
    text = page.read_text()
    marked = quoted(text)
    assert len(marked) == len(ANY_MARK.findall(text))  # each mark stands behind a number
    found = [(one, value_of(results_of(one.study), one.keys)) for one in marked]
    assert [(one, value) for one, value in found if not agrees(one, value)] == []


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        (".80<!-- a: b > c -->", 0.798, True),
        (".80<!-- a: b > c -->", 0.794, False),
        ("70.1 %<!-- a: b > c -->", 0.70083, True),
        ("66 %<!-- a: b > c -->", 0.701, False),
        ("**5,000**<!-- a: b > c -->", 5000, True),
        ("-1.2<!-- a: b > c -->", 1.2, False),
    ],
)
def test_a_stale_number_is_found(text, value, same):
    (one,) = quoted(text)
    assert one.keys == ("b", "c")
    assert agrees(one, value_of({"b": {"c": value}}, one.keys)) == same


def test_elements_of_lists_are_named():
    results = [{"protocol": "loocv", "shares": [0.5, 0.25]}, {"protocol": "ab_test", "shares": [1.0]}]
    assert value_of(results, ("protocol=loocv", "shares", "1")) == 0.25

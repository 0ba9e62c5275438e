"""Numbers of the pages that a committed result has: a comment behind each names it, and the two agree.

    .80<!-- jeunen2019: summary > protocol=loocv > kendall_tau > mean -->

names ``benchmarks/jeunen2019/results.json`` and the keys on the way to the value; of a list a place, or ``key=value``
of the one element that has it. A number followed by ``%`` is a hundred times its value, one
followed by ``MB`` a millionth.

    .946<!-- coverage: least of settings > * > methods > 0 > 1 -->

names several values: ``*`` stands for any letters of a key, and in a table of columns ``column=value`` keeps the rows
that have it. ``least``, ``largest``, ``mean``, ``median``, ``sum`` or ``number`` says what of them is on the page.
"""

from __future__ import annotations

import functools
import json
import math
import re
import statistics
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "benchmarks").rglob("*.md"))]
_NUMBER = r"(?P<number>[-\u2212]?(?:\d[\d,]*(?:\.\d+)?|\.\d+))(?P<unit>(?: ?%| MB)?)"
MARK = re.compile(rf"{_NUMBER}\**<!-- (?P<study>[\w/-]+): (?P<keys>.+?) -->")
SCALES = {"": 1.0, "%": 100.0, "MB": 1e-6}
ANY_MARK = re.compile(r"<!-- (?P<study>[\w/-]+): (?P<keys>.+?) -->")
pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="no pages beside the tests of a wheel")


# Numbers of a page that has no room for marks, or in code, which would show them: the words round each, and its mark.
BESIDE = [
    ("README.md", "| 0 %<!-- jeunen2019: both > jeunen2019 > summary > loocv > best > share --> [0, 14]"),
    ("README.md", "[0, 14] | 1.1 %<!-- jeunen2019: both > jeunen2019 > summary > loocv > cost_share > mean --> |"),
    ("README.md", "| 88 %<!-- jeunen2019: both > jeunen2019 > summary > off_policy > best > share --> [69, 96]"),
    (
        "README.md",
        "[69, 96] | 0.09 %<!-- jeunen2019: both > jeunen2019 > summary > off_policy > cost_share > mean --> |",
    ),
    ("README.md", "| 75 %<!-- jeunen2019: both > jeunen2019 > summary > ab_test > best > share --> [55, 88]"),
    ("README.md", "[55, 88] | 0.26 %<!-- jeunen2019: both > jeunen2019 > summary > ab_test > cost_share > mean --> |"),
    ("README.md", "| 71 %<!-- jeunen2019: catalogues > protocols > loocv > best > share --> [51, 85]"),
    ("README.md", "[51, 85] | 0.24 %<!-- jeunen2019: catalogues > protocols > loocv > cost_share > mean --> |"),
    ("README.md", "| 50 %<!-- jeunen2019: catalogues > protocols > off_policy > best > share --> [31, 69]"),
    ("README.md", "[31, 69] | 2.9 %<!-- jeunen2019: catalogues > protocols > off_policy > cost_share > mean --> |"),
    ("README.md", "| 67 %<!-- jeunen2019: catalogues > protocols > ab_test > best > share --> [47, 82]"),
    ("README.md", "[47, 82] | 0.22 %<!-- jeunen2019: catalogues > protocols > ab_test > cost_share > mean --> |"),
    ("README.md", "jeunen2019-text) in 71 %<!-- jeunen2019: catalogues > protocols > loocv > best > share -->."),
    ("README.md", "score 0.451<!-- tasks: tasks > flipped-100-v1 > user-popularity-greedy > mean --> (95 %"),
    ("README.md", "clicks per user 1.193<!-- tasks: tasks > flipped-100-v1 > user-popularity-greedy > value -->"),
    ("docs/rl.md", "greedy: score 0.451<!-- tasks: tasks > flipped-100-v1 > user-popularity-greedy > mean -->;"),
    ("docs/rl.md", "item-knn: score 0.496<!-- tasks: tasks > flipped-100-v1 > item-knn > mean -->;"),
    ("docs/worlds/purchases.md", "loses 29 %<!-- uplift_metrics: quick > cost > 0 --> of the uplift"),
    ("docs/rl.md", "planner: score 0.966<!-- tasks: tasks > flipped-100-v1 > planner > mean -->;"),
]


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


def is_a_mark(study: str, keys: str) -> bool:
    """Return False for a comment that is a title of rows that a program writes into the page."""
    return " > " in keys or (ROOT / "benchmarks" / study / "results.json").is_file()


@functools.cache
def results_of(study: str) -> Any:
    return json.loads((ROOT / "benchmarks" / study / "results.json").read_text())


SUMMARIES: dict[str, Callable[[list[float]], float]] = {
    "least": min,
    "largest": max,
    "mean": statistics.fmean,
    "median": statistics.median,
    "sum": math.fsum,
    "number": len,
}


def elements(results: Any, key: str) -> Iterator[Any]:
    """Yield the value that a key names, or with a star those of all keys that look like it."""
    name, _, wanted = key.partition("=")
    if "*" in key:
        named = results.items() if isinstance(results, dict) else ((str(n), one) for n, one in enumerate(results))
        yield from (one for place, one in named if fnmatchcase(place, key))
    elif isinstance(results, dict) and key in results:
        yield results[key]
    elif isinstance(results, dict):
        rows = [row for row, one in enumerate(results[name]) if str(one) == wanted]
        yield {column: [values[row] for row in rows] for column, values in results.items()}
    elif wanted:
        (found,) = [one for one in results if str(one[name]) == wanted]
        yield found
    else:
        yield results[int(key)]


def value_of(results: Any, keys: tuple[str, ...]) -> float:
    """The value at the end of the keys, or what is asked of the values there."""
    summary, _, first = keys[0].partition(" of ")
    if summary not in SUMMARIES:
        summary, first = "", keys[0]
    found = [results]
    for key in (first, *keys[1:]):
        found = [one for above in found for one in elements(above, key)]
    if summary:
        values = [one for above in found for one in (above if isinstance(above, list) else [above])]
        return SUMMARIES[summary]([float(value) for value in values])
    (value,) = found
    return float(value)


def agrees(one: Quoted, value: float) -> bool:
    """Return True if a value, rounded as the page rounds it, is the page's number."""
    text = one.number.replace(",", "").replace("\u2212", "-")
    decimals = len(text.partition(".")[2])
    return abs(float(text) - value * SCALES[one.unit]) <= 0.5 * 10.0**-decimals * (1.0 + 1e-6)


@pytest.mark.parametrize("page", [p for p in PAGES if quoted(p.read_text())], ids=lambda p: str(p.relative_to(ROOT)))
def test_quoted_numbers_are_those_of_the_results(page):
    text = page.read_text()
    marked = quoted(text)
    assert len(marked) == sum(is_a_mark(*found) for found in ANY_MARK.findall(text))  # each stands behind a number
    found = [(one, value_of(results_of(one.study), one.keys)) for one in marked]
    assert [(one, value) for one, value in found if not agrees(one, value)] == []


@pytest.mark.parametrize(("page", "marked"), BESIDE, ids=lambda text: text[:20])
def test_numbers_without_room_for_a_mark_are_those_of_the_results(page, marked):
    assert (ROOT / page).read_text().count(ANY_MARK.sub("", marked)) == 1
    (one,) = quoted(marked)
    assert agrees(one, value_of(results_of(one.study), one.keys))


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        (".80<!-- a: b > c -->", 0.794, False),
        ("**5,000**<!-- a: b > c -->", 5000, True),
        ("569 MB<!-- a: b > c -->", 569446400, True),
        ("-1.2<!-- a: b > c -->", 1.2, False),
    ],
)
def test_a_stale_number_is_found(text, value, same):
    (one,) = quoted(text)
    assert one.keys == ("b", "c")
    assert agrees(one, value_of({"b": {"c": value}}, one.keys)) == same


def test_values_of_several_keys_are_put_together():
    results = {
        "kills of study": {"same": 3, "shares": [0.5, 0.25]},
        "kills of replay": {"same": 4, "shares": [1.0]},
        "table": {"metric": ["tau", "cost", "tau"], "value": [0.1, 5.0, 0.3]},
    }
    assert value_of(results, ("kills of study", "shares", "1")) == 0.25
    assert value_of([{"protocol": "loocv", "x": 3}, {"protocol": "ab_test"}], ("protocol=loocv", "x")) == 3
    assert value_of(results, ("sum of kills of *", "same")) == 7
    assert value_of(results, ("least of kills of *", "shares")) == 0.25
    assert value_of(results, ("largest of kills of *", "shares", "0")) == 1.0
    assert value_of(results, ("mean of table", "metric=tau", "value")) == pytest.approx(0.2)
    assert value_of(results, ("number of table", "metric=tau", "value")) == 2
    with pytest.raises(ValueError, match="unpack"):  # several values, and nothing says what of them
        value_of(results, ("kills of *", "same"))

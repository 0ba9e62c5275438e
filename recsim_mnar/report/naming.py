"""Plain names of recommenders and methods on pages; the field's names stand beside them in small print."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from recsim_mnar.protocols.records import listed
from recsim_mnar.report.charts import Dot

_HALF = 16
MOST_NAMES = 3
"""Named in a sentence of the first screen."""


class Named(NamedTuple):
    """What a page calls something.

    Attributes:
        plain: for readers who do not know the field's name.
        about: what it does, in half a sentence.
    """

    plain: str
    about: str


RECOMMENDERS = {
    "svd": Named("taste patterns", "finds patterns shared by users"),
    "user-knn": Named("similar users", "shows what similar users viewed"),
    "item-knn": Named("viewed together", "shows what goes with the user's views"),
    "user-popularity": Named("own views", "shows what the user viewed, again"),
    "popularity": Named("most viewed", "shows what everybody views"),
    "random": Named("random", "shows any item by chance"),
}
METHODS = {
    "leave-one-out": Named("the hidden-view test", "hides one view of a user and sees who names it"),
    "clipped IPS": Named("the estimate from old records", "computed from what the old system showed"),
    "the A/B test": Named("the A/B test", "shows each recommender to users of its own"),
    "predicting later views": Named("the later-views test", "hides all views after a date and sees who names them"),
}


def brief(name: str) -> str:
    """A name as the first screen has room for it."""
    return name if len(name) <= 2 * _HALF else f"{name[:_HALF]}\N{HORIZONTAL ELLIPSIS}{name[-_HALF:]}"


def spoken(name: str) -> str:
    """A recommender in a sentence: its plain name in quotation marks, or its own name."""
    known = RECOMMENDERS.get(name)
    if known is None:
        return brief(name)
    return f"\N{LEFT DOUBLE QUOTATION MARK}{known.plain}\N{RIGHT DOUBLE QUOTATION MARK}"


def spoken_all(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Recommenders in a sentence."""
    return listed([spoken(name) for name in names], most)


def plain(name: str) -> str:
    """A recommender's plain name, or its own."""
    return RECOMMENDERS[name].plain if name in RECOMMENDERS else brief(name)


def both(name: str) -> str:
    """A recommender by its plain name, the field's in brackets."""
    known = RECOMMENDERS.get(name)
    return brief(name) if known is None or known.plain == name else f"{known.plain} ({name})"


def method_named(title: str) -> Named | None:
    """What a method's title stands for; of one with several metrics the metric follows: leave-one-out (HR@5)."""
    bare, bracket, metric = title.partition(" (") if "@" in title else (title, "", "")
    known = METHODS.get(bare)
    return known._replace(plain=known.plain + bracket + metric) if known else None


def method(title: str) -> str:
    """A method in a sentence."""
    return (method_named(title) or Named(title, "")).plain


def about(name: str, known: Named | None) -> str:
    """What stands in small print below a plain name: the field's name, where it is another one, and what it does."""
    if known is None:
        return ""
    return known.about if known.plain.removeprefix("the ") == name.removeprefix("the ") else f"{name}: {known.about}"


def in_plain(dot: Dot) -> Dot:
    """A recommender's row of a chart under its plain name."""
    known = RECOMMENDERS.get(dot.name)
    if known is None:
        return dot
    return replace(dot, name=known.plain, note="\n".join(filter(None, (about(dot.name, known), dot.note))))

"""The pages of ``simulate`` and ``validate``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from recsim_mnar.fitting.validation import Validation
from recsim_mnar.own_log.in_numbers import LogNumbers
from recsim_mnar.protocols.ab_test import Popularity, popularity
from recsim_mnar.report.charts import (
    PLAIN,
    Chart,
    Dot,
    dots,
)
from recsim_mnar.report.page import popularity_figure, unfolded
from recsim_mnar.report.template import Finding, of_validation, write_from

_ORGANIC_NAMES = {
    "ratings": "ratings revealed",
    "campaigns": "items added on their own",
    "purchases": "purchases on their own",
}
"""Names of organic events by world; in other worlds they are views."""
_REWARDED_WORDS = {"sessions": "clicked", "purchases": "bought", "campaigns": "accepted"}
"""Participle for a reward of 1 by world; in other worlds "rewarded"."""


def write_log_page(path: Path, numbers: LogNumbers, commands: Sequence[tuple[str, str]]) -> None:
    """Write the page of a simulated log under a temporary name, then rename it.

    Args:
        path: path of the page.
        numbers: numbers of the log.
        commands: suggested next commands, each with its purpose.
    """
    rows = popularity_rows(numbers)
    n_simulated = numbers.provenance.get("n_users")  # some of these users may have no event in the log
    if not isinstance(n_simulated, int):
        n_simulated = numbers.users
    write_from(
        "log.html",
        path,
        numbers.provenance,
        _finding(numbers),
        unfolded([popularity_figure(rows, "log")]),
        lead=_lead_line(numbers),
        found=numbers,
        left=n_simulated - numbers.users,
        slates=_slates_in_words(numbers),
        n_items=_world_number(numbers, "n_items"),
        kinds=_event_names(numbers),
        most_viewed={row["what"]: row for row in rows if row["first_rank"] == 1},
        is_dated=bool(np.isfinite(numbers.days).all()),
        commands=commands,
    )


def summary_of(numbers: LogNumbers) -> Mapping[str, object]:
    """Return the numbers of a log's page as JSON types."""
    return {
        "rows": numbers.rows,
        "users": numbers.users,
        "views": numbers.n_views,
        "recommendations": numbers.n_shown,
        "rewards": numbers.rewards,
        "popularity": popularity_rows(numbers),
        "lengths": _length_rows(numbers),
    }


def popularity_rows(numbers: LogNumbers) -> list[Popularity]:
    """Return the rows of :func:`recsim_mnar.protocols.ab_test.popularity`; [] without views or recommendations."""
    if not (numbers.n_views and numbers.n_shown):
        return []
    n_items = max(len(numbers.views), len(numbers.shown), _world_number(numbers, "n_items"))
    views, recommendations = (np.pad(counts, (0, n_items - len(counts))) for counts in (numbers.views, numbers.shown))
    return popularity(views, {_policy_name(numbers): recommendations})


def _reward_sentence(numbers: LogNumbers) -> str:
    """Describe the mean reward with its interval; as a share in per cent if rewards are 0 or 1."""
    if numbers.rewards is None:
        return "Nothing was recommended."
    level = f"{100 * numbers.rewards['level']:g} % interval"
    slates = _slates_in_words(numbers)
    recommended = f"{numbers.n_shown:,} " + (f"items in {slates}" if slates else "recommendations")
    ends = [numbers.rewards[name] for name in ("value", "low", "high")]
    if not numbers.binary:
        value, low, high = (f"{end:.4g}" for end in ends)
        return f"The mean reward of {recommended} is {value} ({level} {low} to {high})."
    value, low, high = (f"{100 * end:.3g} %" for end in ends)
    rewarded = _REWARDED_WORDS.get(_world_name(numbers), "rewarded")
    return f"Of {recommended} {value} were {rewarded} ({level} {low} to {high})."


def _event_names(numbers: LogNumbers) -> dict[str, str]:
    """Return the name on the page of each kind of event, ``organic`` and ``bandit``."""
    return {"organic": _ORGANIC_NAMES.get(_world_name(numbers), "views"), "bandit": "recommendations"}


def _world_name(numbers: LogNumbers) -> str:
    """Return the name of the log's world; "a" if it is not recorded."""
    world = numbers.provenance.get("world") or {}
    if isinstance(world, dict):
        world = world.get("name", "a")
    return str(world)


def _slates_in_words(numbers: LogNumbers) -> str:
    """Describe the number of slates and their size; "" if users see one item at a time."""
    size = _world_number(numbers, "slate_size")
    if "user_model" not in _world_parameters(numbers) or size < 2:
        return ""
    return f"{numbers.n_shown // size:,} slates of {size}"


def _world_parameters(numbers: LogNumbers) -> Mapping[str, object]:
    """Return the parameters of the world that the log's provenance records; empty without any."""
    world = numbers.provenance.get("world")
    params = world.get("params") if isinstance(world, dict) else None
    if isinstance(params, dict):
        return params
    return {}


def _world_number(numbers: LogNumbers, name: str) -> int:
    """Return an integer parameter of the log's world; 0 if it is not recorded."""
    number = _world_parameters(numbers).get(name)
    if isinstance(number, int):
        return number
    return 0


def _policy_name(numbers: LogNumbers) -> str:
    """Return the name of the logging policy."""
    policy = numbers.provenance.get("policy")
    if isinstance(policy, dict):
        return str(policy["name"])
    return str(policy or numbers.provenance.get("recommender") or "policy")


def _lead_line(numbers: LogNumbers) -> str:
    """Return the line below the title of the page: users, world, policy and seed."""
    seed = numbers.provenance.get("seed")
    lead = f"{numbers.users:,} users of the {_world_name(numbers)} world under {_policy_name(numbers)}"
    if seed is not None:
        lead += f", seed {seed}"
    return f"{lead}."


def _length_rows(numbers: LogNumbers) -> list[Mapping[str, object]]:
    """Return one row per kind and number of events of a user, with the share of users with at least as many."""
    return [
        {"of": "user", "kind": kind, "length": length, "share_at_least": share}
        for kind, users in numbers.by_user.items()
        for length, share in zip(np.flatnonzero(users).tolist(), _at_least(users)[users > 0].tolist(), strict=True)
    ]


def _at_least(users: np.ndarray) -> np.ndarray:
    """Return the share of users (most + 1,) with at least 0, 1, ... events, of users (most + 1,) by their number."""
    return np.asarray(users[::-1].cumsum()[::-1] / max(users.sum(), 1))


def _finding(numbers: LogNumbers) -> Finding:
    """Summarise a simulated log for the first screen of its page."""
    slates = _slates_in_words(numbers)
    recommended = f"{numbers.n_shown:,} recommendations"
    if slates:
        recommended = f"{slates} items"
    decision = f"The log is ready: {numbers.users:,} users, {recommended}."
    sure = "Certain, because it was simulated. Next: run the commands below, from top to bottom."
    return Finding(decision, _reward_sentence(numbers), sure, "good")


_CLASSES = {"matches": "trust", "close": "trust", "cannot say": "caution", "off": "do_not_use"}
"""CSS class by grade of a check."""
WIDTH = 80
"""Width of lines for the terminal, in characters."""


def table_lines(validation: Validation) -> Iterator[str]:
    """Yield a line per check, of at most :data:`WIDTH` columns."""
    yield f"{'check':<29}{'grade':<11}{'real':>10}{'simulated':>10}{'apart':>7}{'chance':>7}{'p':>6}"
    for check in validation.checks:
        p = ""
        if check.p_adjusted is not None:
            p = f"{check.p_adjusted:.3f}".removeprefix("0")
        yield (
            f"{check.name[:28]:<29}{check.grade:<11}{check.real:>10.4g}{check.simulated:>10.4g}"
            f"{check.distance:>7.3f}{check.chance:>7.3f}{p:>6}"
        )


LEGEND = (
    "real, simulated: the number of the check's name on either side. apart: how far the two sides differ, 0 is not at "
    "all. chance: how far the same users differ where they are divided at random. p: how often chance makes as much, "
    "corrected for all checks. matches: like real users; close: slightly different; off: different; "
    "cannot say: too few users, or it is unknown what they were shown."
)
"""Explanation of the table."""


def legend_lines() -> list[str]:
    """Return the explanation of columns and grades, wrapped to :data:`WIDTH` columns."""
    return textwrap.wrap(LEGEND, WIDTH)


def sentence_lines(validation: Validation) -> Iterator[str]:
    """Yield lines on the questions for which the world is valid or not, wrapped to :data:`WIDTH` columns."""
    for _, head, questions in answers(validation):
        if questions:
            yield f"{head}:"
            for question in questions:
                yield from textwrap.wrap(question, WIDTH, initial_indent="  - ", subsequent_indent="    ")
    for note in validation.notes:
        yield from textwrap.wrap(f"note: {note}", WIDTH, subsequent_indent="  ")


def answers(validation: Validation) -> list[tuple[str, str, list[str]]]:
    """Return the four lists of questions, each with its CSS class and heading."""
    return [
        ("best", "valid for these questions", validation.valid_for),
        ("costs", "not valid for these", validation.not_valid_for),
        ("indistinguishable", "cannot say for these: see the check", validation.cannot_say),
        ("", "not checked for those", validation.not_checked),
    ]


def write_validation(path: Path, validation: Validation, made_by: Mapping[str, object]) -> None:
    """Write the page of a validation under a temporary name, then rename it.

    Args:
        path: path of the page.
        validation: the validation.
        made_by: options of the command for the foot of the page; JSON types.
    """
    write_from(
        "validation.html",
        path,
        made_by,
        of_validation(validation),
        [_distance_chart(validation)],
        answers=answers(validation),
        checks=validation.checks,
        classes=_CLASSES,
        notes=validation.notes,
        facts=validation.facts,
        features=next((c.picture["features"] for c in validation.checks if c.kind == "classifier"), []),
    )


_GRADES = {"matches": "good", "close": "good", "cannot say": "tie", "off": "bad"}


def _distance_chart(validation: Validation) -> Chart:
    """Draw the distance of simulated from real users in each check, and the range that chance explains."""
    checks = sorted(validation.checks, key=lambda check: check.distance)
    rows = [Dot(c.name, c.distance, 0.0, c.visible, _GRADES[c.grade], words=c.grade) for c in checks]
    caption = (
        "How far the simulated users are from the real ones in each check; the whisker is what chance does to real "
        "users in 95 % of all divisions."
    )
    return Chart("Where the world is like the log, and where not", dots(rows, PLAIN), caption, folded=False)

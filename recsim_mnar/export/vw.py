"""Vowpal Wabbit: a log as contextual bandit examples (``--cb``, ``--cb_explore``), and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, from_arrays
from recsim_mnar.runs.files import replacing


def to_vw(decisions: Decisions, path: str | os.PathLike[str] | None = None) -> list[str]:
    """One line a decision: ``action:cost:propensity 'user_step | feature:value ...``.

    Actions are 1 .. n_items, as Vowpal Wabbit counts, the cost is minus the reward, features are ``f0`` ... for the
    columns of the context, zeros left out. Numbers have as many digits as bring them back exactly.

    Args:
        decisions: of a log.
        path: also written there, under a temporary name first.
    """
    lines = [
        f"{action + 1}:{cost!r}:{propensity!r} '{user}_{step} | {features}"
        for action, cost, propensity, user, step, features in zip(
            decisions.action.tolist(),
            (0.0 - decisions.reward).tolist(),
            decisions.propensity.tolist(),
            decisions.user.tolist(),
            decisions.step.tolist(),
            feature_texts(decisions.context),
            strict=True,
        )
    ]
    if path is not None:
        with replacing(Path(path)) as temporary:
            Path(temporary).write_text("\n".join(lines) + "\n")
    return lines


def feature_texts(context: NDArray[np.floating[Any]]) -> Iterator[str]:
    """Each row of a context (n, c) as ``f0:1.0 f7:2.0``, zeros left out."""
    for row in context:
        held = np.flatnonzero(row)
        yield " ".join(f"f{place}:{value!r}" for place, value in zip(held.tolist(), row[held].tolist(), strict=True))


def from_vw(lines: Iterable[str] | str | os.PathLike[str], n_items: int, width: int | None = None) -> Decisions:
    """Decisions of contextual bandit examples: those of :func:`to_vw`, or others in the same format.

    Args:
        lines: the examples, or a file of them. A line without a tag ``'user_step`` is a user's own.
        n_items: actions are 1 .. n_items in the lines.
        width: columns of the context; as many as the features that occur where None.

    Returns:
        Decisions whose ``final`` repeats the last context of each user, which the format does not hold otherwise.

    Raises:
        UserError: a line that is no such example.
    """
    source = "line"
    if isinstance(lines, (str, os.PathLike)):
        source = f"{os.fspath(lines)}: line"
        lines = Path(lines).read_text().splitlines()
    parsed = [_parsed(text, f"{source} {number}") for number, text in enumerate(lines, start=1) if text.strip()]
    if not parsed:
        raise UserError("there are no examples")
    top = max((place for *_, features in parsed for place in features), default=-1)
    columns = top + 1 if width is None else width
    if top >= columns:
        raise UserError(f"the examples have a feature f{top}, but width = {columns}")
    context = np.zeros((len(parsed), columns), np.float32)
    for row, (*_, features) in enumerate(parsed):
        for place, value in features.items():
            context[row, place] = value
    tags = [tag for _, _, _, tag, _ in parsed]
    tagged = all(tag is not None for tag in tags)
    users, steps = (np.array(values) for values in zip(*(tag or (0, 0) for tag in tags), strict=True))
    action, reward, propensity = (np.array([example[k] for example in parsed]) for k in range(3))
    return from_arrays(
        n_items, context, action, reward, propensity, user=users if tagged else None, step=steps if tagged else None
    )


def _parsed(text: str, where: str) -> tuple[int, float, float, tuple[int, int] | None, dict[int, float]]:
    try:
        head, _, tail = text.partition("|")
        label, *rest = head.split()
        action, cost, propensity = label.split(":")
        tag = None
        if rest and rest[0].startswith("'"):
            user, _, step = rest[0][1:].rpartition("_")
            tag = (int(user), int(step))
        features = {}
        for feature in tail.split():
            name, _, value = feature.partition(":")
            features[int(name.removeprefix("f"))] = float(value or 1)
        return int(action) - 1, 0.0 - float(cost), float(propensity), tag, features
    except ValueError:
        raise UserError(
            f"{where}: not action:cost:propensity 'user_step | f0:value ..., got {text.strip()[:60]!r}"
        ) from None

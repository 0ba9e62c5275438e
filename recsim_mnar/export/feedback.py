"""Logs as bandit feedback: Open Bandit Pipeline's ``BanditFeedback``, Vowpal Wabbit's examples, and back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, checked, from_arrays
from recsim_mnar.kernels.checks import of_type, table_by_name, whole_number
from recsim_mnar.runs.files import path_of, replacing

_NEEDED = ("n_actions", "action", "reward", "pscore")


def to_obp(decisions: Decisions, logging: NDArray[np.floating[Any]] | None = None) -> dict[str, Any]:
    """Arguments of ``obp.ope.OffPolicyEvaluation(bandit_feedback=...)``.

    Args:
        decisions: of a log.
        logging: (d, n_items) distributions of the logging policy, where its ``pi_b`` is wanted.

    Returns:
        ``n_rounds``, ``n_actions``, ``context`` (d, c), ``action_context`` (n_items, n_items), the items' own
        one-hot rows, ``action``, ``position`` (zeros: one slot), ``reward``, ``expected_reward`` (None: a log does not
        know it), ``pi_b`` (d, n_items, 1) or None, and ``pscore``. Besides these, ``user`` and ``step``, which obp does
        not read.

    Raises:
        UserError: ``logging`` of another shape.
    """
    n = len(checked(decisions))
    pi_b = None
    if logging is not None:
        pi_b = np.asarray(logging, np.float64)
        if pi_b.shape != (n, decisions.n_items):
            raise UserError(f"logging must have shape {(n, decisions.n_items)}, got {pi_b.shape}")
        pi_b = pi_b[:, :, None]
    return {
        "n_rounds": n,
        "n_actions": decisions.n_items,
        "context": decisions.context,
        "action_context": np.eye(decisions.n_items),
        "action": decisions.action,
        "position": np.zeros(n, np.int64),
        "reward": decisions.reward,
        "expected_reward": None,
        "pi_b": pi_b,
        "pscore": decisions.propensity,
        "user": decisions.user,
        "step": decisions.step,
    }


def action_dist(distributions: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """Distributions (d, n_items) of a target policy as obp's ``action_dist``, (d, n_items, 1)."""
    return np.asarray(distributions, np.float64)[:, :, None]


def from_obp(feedback: Mapping[str, Any]) -> Decisions:
    """Decisions of a ``BanditFeedback``, one of obp's own included; each round is a user's own where no user is said.

    Raises:
        UserError: a key that is missing, several positions, or values that are none.
    """
    for key in _NEEDED:
        if table_by_name(feedback, "feedback").get(key) is None:
            raise UserError(f"the feedback has no {key!r}: obp's BanditFeedback has {', '.join(_NEEDED)}")
    position = feedback.get("position")
    if position is not None and len(np.unique(position)) > 1:
        raise UserError("the feedback has several positions: select the rows of one, its pscore is of a position")
    context = feedback.get("context")
    return from_arrays(
        feedback["n_actions"],
        np.zeros((len(feedback["action"]), 0)) if context is None else context,
        feedback["action"],
        feedback["reward"],
        feedback["pscore"],
        user=feedback.get("user"),
        step=feedback.get("step"),
    )


def to_vw(decisions: Decisions, path: str | os.PathLike[str] | None = None) -> list[str]:
    """One line per decision: ``action:cost:propensity 'user_step | feature:value ...``.

    Actions are 1 .. n_items, as Vowpal Wabbit counts, the cost is minus the reward, features are ``f0`` ... for the
    columns of the context, zeros left out. Numbers have as many digits as bring them back exactly.

    Args:
        decisions: of a log.
        path: also written there, under a temporary name first.
    """
    lines = [
        f"{action + 1}:{cost!r}:{propensity!r} '{user}_{step} | {features}"
        for action, cost, propensity, user, step, features in zip(
            checked(decisions).action.tolist(),
            (0.0 - decisions.reward).tolist(),
            decisions.propensity.tolist(),
            decisions.user.tolist(),
            decisions.step.tolist(),
            feature_texts(decisions.context),
            strict=True,
        )
    ]
    if path is not None:
        with replacing(path) as temporary:
            temporary.write_text("\n".join(lines) + "\n")
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
    source, n_items = "line", whole_number(n_items, "n_items", 1)
    if isinstance(lines, (str, os.PathLike)):
        source = f"{os.fspath(lines)}: line"
        path = path_of(lines)
        if not path.is_file():
            raise UserError(f"{path} does not exist: name a file of examples")
        lines = path.read_text().splitlines()
    of_type(lines, "lines", Iterable, "lines of text, or the path of a file")
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

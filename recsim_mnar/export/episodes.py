"""Logs as episodes (d3rlpy, Minari) and as feedback (Open Bandit Pipeline, Vowpal Wabbit), and back.

Minari: ``create_dataset_from_buffers(id, [EpisodeBuffer(**episode) for episode in to_minari(...)], ...)`` writes to the
folder in the environment variable ``MINARI_DATASETS_PATH``, by default in the home folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import (
    Decisions,
    from_arrays,
    require_decisions,
    require_single_items,
)
from recsim_mnar.kernels.checks import of_type, table_by_name, whole_number
from recsim_mnar.log.contexts import feature_texts
from recsim_mnar.runs.files import path_of, replacing

_NEEDED = ("n_actions", "action", "reward", "pscore")
"""Keys of obp's feedback without which there are no decisions."""


def to_obp(decisions: Decisions, logging: NDArray[np.floating[Any]] | None = None) -> dict[str, Any]:
    """Return decisions as ``bandit_feedback`` for ``obp.ope.OffPolicyEvaluation``.

    Args:
        decisions: decisions of a log.
        logging: (d, n_items) probabilities of all items under the logging policy, for ``pi_b``; ``pi_b`` is None
            without them.

    Returns:
        a dictionary with ``n_rounds``, ``n_actions``, ``context`` (d, c), ``action_context`` (n_items, n_items; one-hot
        rows, as items have no features), ``action`` (d,), ``position`` (d,; zeros: a page has one slot), ``reward``
        (d,), ``expected_reward`` (None: a log does not have it), ``pi_b`` (d, n_items, 1) or None, and ``pscore`` (d,).
        Besides these, ``user`` and ``step``, which obp does not read.

    Raises:
        UserError: ``logging`` of another shape.
    """
    n = len(require_single_items(decisions))
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
    """Return a target policy's probabilities (d, n_items) as obp's ``action_dist``, (d, n_items, 1)."""
    return np.asarray(distributions, np.float64)[:, :, None]


def from_obp(feedback: Mapping[str, Any]) -> Decisions:
    """Convert obp's ``BanditFeedback`` to decisions; without the key ``user`` each round is of a different user.

    Raises:
        UserError: a missing key, several positions, or invalid values.
    """
    for key in _NEEDED:
        if table_by_name(feedback, "feedback").get(key) is None:
            raise UserError(f"the feedback has no {key!r}: obp's BanditFeedback has {', '.join(_NEEDED)}")
    position = feedback.get("position")
    if position is not None and len(np.unique(position)) > 1:
        raise UserError("the feedback has several positions: select the rows of one, its pscore is of a position")
    context = feedback.get("context")
    if context is None:
        context = np.zeros((len(feedback["action"]), 0))
    return from_arrays(
        feedback["n_actions"],
        context,
        feedback["action"],
        feedback["reward"],
        feedback["pscore"],
        user=feedback.get("user"),
        step=feedback.get("step"),
    )


def to_vw(decisions: Decisions, path: str | os.PathLike[str] | None = None) -> list[str]:
    """Return decisions as examples of Vowpal Wabbit, ``action:cost:propensity 'user_step | feature:value ...``.

    Actions are 1 .. n_items, as in Vowpal Wabbit, the cost is minus the reward, and features are ``f0`` ... for the
    columns of the context, those that are 0 left out. Numbers have enough digits to be read back exactly.

    Args:
        decisions: decisions of a log.
        path: path of a file into which the lines are written, too, under a temporary name first; None for no file.

    Returns:
        one line per decision.
    """
    lines = [
        f"{action + 1}:{cost!r}:{propensity!r} '{user}_{step} | {features}"
        for action, cost, propensity, user, step, features in zip(
            require_single_items(decisions).action.tolist(),
            (0.0 - decisions.reward).tolist(),  # not -reward, which is written as -0.0 where the reward is 0
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


def from_vw(lines: Iterable[str] | str | os.PathLike[str], n_items: int, width: int | None = None) -> Decisions:
    """Read decisions from contextual bandit examples: those of :func:`to_vw`, or others in the same format.

    Args:
        lines: the examples, or the path of their file. Either all lines have a tag ``'user_step``, or none has one and
            each line is of a different user.
        n_items: number of items; actions are 1 .. n_items in the lines.
        width: number of columns of the context; if None, the largest number of a feature plus 1.

    Returns:
        decisions whose ``final`` repeats each user's last context, because the format has none after the last decision.

    Raises:
        UserError: a line that is no such example, or tags in some of the lines only.
    """
    source = "line"
    n_items = whole_number(n_items, "n_items", 1)
    if isinstance(lines, (str, os.PathLike)):
        source = f"{os.fspath(lines)}: line"
        path = path_of(lines)
        if not path.is_file():
            raise UserError(f"{path} does not exist: name a file of examples")
        lines = path.read_text().splitlines()
    of_type(lines, "lines", Iterable, "lines of text, or the path of a file")
    parsed = [_parse_example(text, f"{source} {number}") for number, text in enumerate(lines, start=1) if text.strip()]
    if not parsed:
        raise UserError("there are no examples")
    largest_feature = max((column for example in parsed for column in example.features), default=-1)
    if width is None:
        width = largest_feature + 1
    if largest_feature >= width:
        raise UserError(f"the examples have a feature f{largest_feature}, but width = {width}")
    context = np.zeros((len(parsed), width), np.float32)
    for row, example in enumerate(parsed):
        for column, value in example.features.items():
            context[row, column] = value
    tags = [example.user_and_step for example in parsed if example.user_and_step is not None]
    if 0 < len(tags) < len(parsed):
        raise UserError(f"{len(tags)} of {len(parsed)} examples have a tag ('user_step): give every line one, or none")
    user = None  # without tags each line is of a different user
    step = None
    if tags:
        user, step = np.array(tags).T
    return from_arrays(
        n_items,
        context,
        [example.action for example in parsed],
        [example.reward for example in parsed],
        [example.propensity for example in parsed],
        user=user,
        step=step,
    )


class _Example(NamedTuple):
    """A contextual bandit example of Vowpal Wabbit.

    Attributes:
        action: recommended item, from 0.
        reward: negative of the line's cost.
        propensity: probability of the action.
        user_and_step: user and step in the line's tag; None without a tag.
        features: values of the features by column number.
    """

    action: int
    reward: float
    propensity: float
    user_and_step: tuple[int, int] | None
    features: dict[int, float]


def _parse_example(text: str, where: str) -> _Example:
    """Parse a line ``action:cost:propensity 'user_step | f0:value ...``.

    Args:
        text: the line; the tag ``'user_step`` may be missing.
        where: name of the line for the message.

    Raises:
        UserError: a line of another form.
    """
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
            features[int(name.removeprefix("f"))] = float(value or 1)  # VW's value of a feature that has only a name
        reward = 0.0 - float(cost)  # not -cost, which is -0.0 where the cost is 0
        return _Example(int(action) - 1, reward, float(propensity), tag, features)
    except ValueError:
        raise UserError(
            f"{where}: not action:cost:propensity 'user_step | f0:value ..., got {text.strip()[:60]!r}"
        ) from None


def to_d3rlpy(decisions: Decisions) -> dict[str, Any]:
    """Return decisions as arguments of ``d3rlpy.dataset.MDPDataset``, each user an episode, with discrete actions.

    Returns:
        a dictionary with ``observations`` (d, c) float32, ``actions`` (d, 1) int32, ``rewards`` (d, 1), ``terminals``
        (d,) and ``timeouts`` (d,) float32, and ``action_size``, the number of items.
    """
    return {
        "observations": require_single_items(decisions).context,
        "actions": decisions.action.astype(np.int32)[:, None],
        "rewards": decisions.reward.astype(np.float32)[:, None],
        "terminals": (decisions.last & ~decisions.truncated).astype(np.float32),
        "timeouts": decisions.truncated.astype(np.float32),
        "action_size": decisions.n_items,
    }


def to_minari(decisions: Decisions) -> list[dict[str, Any]]:
    """Return decisions as arguments of ``minari.data_collector.EpisodeBuffer``, one dictionary per user.

    An episode of T decisions has ``observations`` (T + 1, c), the last one after the last decision; ``actions``,
    ``rewards``, ``terminations`` and ``truncations``, (T,) each, one of the last two True at the end; and ``infos``,
    (T + 1,) each, as Minari asks for one info per observation: ``user``, and ``propensity`` and ``step`` of the
    decision made at the observation, NaN and -1 at the last one. For slates and weights, ``actions`` and ``propensity``
    have one entry per item.
    """
    episodes = []
    # Propensity of the decision that is not made at an episode's last observation.
    no_propensity = np.full((1, *require_decisions(decisions).action.shape[1:]), np.nan)
    for number, rows in enumerate(decisions.episodes()):
        length = rows.stop - rows.start
        truncated = decisions.truncated[rows]
        episodes.append(
            {
                "id": number,
                "observations": np.concatenate([decisions.context[rows], decisions.final[number : number + 1]]),
                "actions": decisions.action[rows],
                "rewards": decisions.reward[rows],
                "terminations": decisions.last[rows] & ~truncated,
                "truncations": truncated,
                "infos": {
                    "propensity": np.concatenate([decisions.propensity[rows], no_propensity]),
                    "step": np.append(decisions.step[rows], -1),
                    "user": np.full(length + 1, decisions.user[rows.start]),
                },
            }
        )
    return episodes


def from_minari(dataset: Any, n_items: int | None = None) -> Decisions:
    """Read decisions from a ``MinariDataset`` that was written with :func:`to_minari`.

    Args:
        dataset: Minari's data set, or any object with ``iterate_episodes()``.
        n_items: number of items; actions are 0 .. n_items - 1. If None, the size of the data set's action space.

    Raises:
        UserError: an episode without propensities, or no episode; or actions that are no single items.
    """
    if not hasattr(dataset, "iterate_episodes"):
        raise UserError(f"dataset must be a MinariDataset, got {dataset!r:.80}")
    if len(getattr(getattr(dataset, "action_space", None), "shape", ())) > 0:
        raise UserError("actions of this data set are no single items: read its episodes with iterate_episodes()")
    episodes = list(dataset.iterate_episodes())
    if not episodes:
        raise UserError("the dataset has no episodes")
    for episode in episodes:
        if not episode.infos or "propensity" not in episode.infos:
            raise UserError(f"episode {episode.id} has no infos['propensity']: without it no estimator can be used")
    observed = [np.asarray(episode.observations) for episode in episodes]
    infos = {  # [:-1]: at an episode's last observation no decision was made
        key: np.concatenate([np.asarray(episode.infos[key])[:-1] for episode in episodes])
        for key in ("propensity", "step", "user")
    }
    if n_items is None:
        n_items = dataset.action_space.n
    return from_arrays(
        n_items,
        np.concatenate([rows[:-1] for rows in observed]),
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        infos["propensity"],
        user=infos["user"],
        step=infos["step"],
        final=np.stack([rows[-1] for rows in observed]),
        truncated=np.concatenate([episode.truncations for episode in episodes]),
    )

"""Logs as episodes (d3rlpy, Minari, RLlib) and as feedback (Open Bandit Pipeline, Vowpal Wabbit), and back.

Minari: ``create_dataset_from_buffers(id, [EpisodeBuffer(**episode) for episode in to_minari(...)], ...)`` writes to the
folder in the environment variable ``MINARI_DATASETS_PATH``, by default in the home folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, checked, from_arrays, last_of_each, of_any_action
from recsim_mnar.kernels.checks import of_type, table_by_name, whole_number
from recsim_mnar.log.contexts import feature_texts
from recsim_mnar.log.rows import steps_within
from recsim_mnar.runs.files import path_of, replacing

if TYPE_CHECKING:
    import pyarrow as pa


_NEEDED = ("n_actions", "action", "reward", "pscore")


def to_obp(decisions: Decisions, logging: NDArray[np.floating[Any]] | None = None) -> dict[str, Any]:
    """Return ``bandit_feedback`` for ``obp.ope.OffPolicyEvaluation``.

    Args:
        decisions: decisions of a log.
        logging: (d, n_items) distributions of the logging policy, for ``pi_b``.

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
    """Read decisions from a ``BanditFeedback``; without users each round is a different user.

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
    """Return one line per decision: ``action:cost:propensity 'user_step | feature:value ...``.

    Actions are 1 .. n_items, as in Vowpal Wabbit, the cost is minus the reward, and features are ``f0`` ... for the
    columns of the context without zeros. Numbers have enough digits to be read back exactly.

    Args:
        decisions: decisions of a log.
        path: path of a file to write, under a temporary name first.
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


def from_vw(lines: Iterable[str] | str | os.PathLike[str], n_items: int, width: int | None = None) -> Decisions:
    """Read decisions from contextual bandit examples: those of :func:`to_vw`, or others in the same format.

    Args:
        lines: the examples, or the path of their file. Each line without a tag ``'user_step`` is a different user.
        n_items: actions are 1 .. n_items in the lines.
        width: number of columns of the context; if None as many as there are features.

    Returns:
        decisions whose ``final`` repeats the last context of each user, because the format has no other.

    Raises:
        UserError: a line that is no such example.
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
    parsed = [_parsed(text, f"{source} {number}") for number, text in enumerate(lines, start=1) if text.strip()]
    if not parsed:
        raise UserError("there are no examples")
    largest = max((column for *_, features in parsed for column in features), default=-1)
    if width is None:
        width = largest + 1
    if largest >= width:
        raise UserError(f"the examples have a feature f{largest}, but width = {width}")
    context = np.zeros((len(parsed), width), np.float32)
    for row, (*_, features) in enumerate(parsed):
        for column, value in features.items():
            context[row, column] = value
    action, reward, propensity, tags, _ = zip(*parsed, strict=True)
    user = None
    step = None
    if None not in tags:
        user, step = np.array(tags).T
    return from_arrays(n_items, context, action, reward, propensity, user=user, step=step)


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


_COLUMNS = ("eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds", "action_logp")


def to_d3rlpy(decisions: Decisions) -> dict[str, Any]:
    """Return arguments of ``d3rlpy.dataset.MDPDataset``: episodes are users, actions are discrete.

    Returns:
        ``observations`` (d, c) float32, ``actions`` (d, 1) int32, ``rewards`` (d, 1), ``terminals`` (d,) and
        ``timeouts`` (d,) float32, and ``action_size``, the number of items.
    """
    return {
        "observations": checked(decisions).context,
        "actions": decisions.action.astype(np.int32)[:, None],
        "rewards": decisions.reward.astype(np.float32)[:, None],
        "terminals": (decisions.last & ~decisions.truncated).astype(np.float32),
        "timeouts": decisions.truncated.astype(np.float32),
        "action_size": decisions.n_items,
    }


def to_minari(decisions: Decisions) -> list[dict[str, Any]]:
    """Return arguments of ``minari.data_collector.EpisodeBuffer``, one dictionary per user.

    An episode of T decisions has ``observations`` (T + 1, c), the last one at the user's end, ``actions``, ``rewards``,
    ``terminations`` and ``truncations`` (one of them True at the end), (T,) each, and ``infos`` of fixed size, (T + 1,)
    each: ``propensity`` and ``step`` of the decision that the observation is followed by (NaN and -1 at the end) and
    ``user``. Of slates and weights ``actions`` and ``propensity`` have one entry per item.
    """
    episodes = []
    unknown = np.full((1, *of_any_action(decisions).action.shape[1:]), np.nan)
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
                    "propensity": np.concatenate([decisions.propensity[rows], unknown]),
                    "step": np.append(decisions.step[rows], -1),
                    "user": np.full(length + 1, decisions.user[rows.start]),
                },
            }
        )
    return episodes


def from_minari(dataset: Any, n_items: int | None = None) -> Decisions:
    """Read decisions from a ``MinariDataset`` that was written with :func:`to_minari`.

    Args:
        dataset: data set with ``iterate_episodes()``.
        n_items: actions are 0 .. n_items - 1; as many as its space of actions has where None.

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
    infos = {
        key: np.concatenate([np.asarray(episode.infos[key])[:-1] for episode in episodes])
        for key in ("propensity", "step", "user")
    }
    return from_arrays(
        dataset.action_space.n if n_items is None else n_items,
        np.concatenate([rows[:-1] for rows in observed]),
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        infos["propensity"],
        user=infos["user"],
        step=infos["step"],
        final=np.stack([rows[-1] for rows in observed]),
        truncated=np.concatenate([episode.truncations for episode in episodes]),
    )


def to_rllib(decisions: Decisions) -> pa.Table:
    """Return a pyarrow Table with the columns of RLlib's offline schema, one row per decision.

    ``eps_id`` is the user, ``t`` the number of the decision, ``obs`` and ``new_obs`` lists of c floats, and
    ``action_logp`` the logarithm of the propensity. ``step``, the position in the user's life, stands next to them.
    ``pyarrow.parquet.write_table(to_rllib(...), file)`` writes what ``AlgorithmConfig.offline_data(input_=[file])``
    reads.
    """
    import pyarrow as pa

    return pa.table(
        {
            "eps_id": pa.array(checked(decisions).user.astype(str)),
            "t": steps_within(decisions.user),
            "obs": _lists(decisions.context),
            "actions": decisions.action,
            "rewards": decisions.reward,
            "new_obs": _lists(decisions.next_context()),
            "terminateds": decisions.last & ~decisions.truncated,
            "truncateds": decisions.truncated,
            "action_logp": np.log(decisions.propensity),
            "step": decisions.step,
        }
    )


def from_rllib(table: Any, n_items: int) -> Decisions:
    """Read decisions from a table of :func:`to_rllib`, or one with the same columns.

    Args:
        table: a pyarrow Table.
        n_items: actions are 0 .. n_items - 1.

    Returns:
        Decisions whose propensities are exp(action_logp): as they were, but for the last bits.

    Raises:
        UserError: a column is missing, or values that are none.
    """
    if not hasattr(table, "column_names"):
        raise UserError(f"table must be a pyarrow Table, got {table!r:.80}")
    for name in _COLUMNS:
        if name not in table.column_names:
            raise UserError(f"the table has no column {name!r}: a table of RLlib's single steps has it")
    user = _users(table.column("eps_id").to_pylist())
    ends = last_of_each(user)
    context, following = (_rows(table.column(name)) for name in ("obs", "new_obs"))
    return from_arrays(
        n_items,
        context,
        table.column("actions").to_numpy(),
        table.column("rewards").to_numpy(),
        np.minimum(np.exp(table.column("action_logp").to_numpy()), 1.0),
        user=user,
        step=table.column("step").to_numpy() if "step" in table.column_names else None,
        final=following[ends],
        truncated=table.column("truncateds").to_numpy(),
    )


def _lists(rows: NDArray[np.float32]) -> Any:
    import pyarrow as pa

    edges = np.arange(len(rows) + 1, dtype=np.int32) * rows.shape[1]
    if rows.size > np.iinfo(np.int32).max:
        raise UserError("too many numbers for one table: export the log in parts (Log.split)")
    return pa.ListArray.from_arrays(edges, np.ascontiguousarray(rows).reshape(-1))


def _rows(column: Any) -> NDArray[np.float32]:
    values = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return np.asarray(values, np.float32).reshape(len(column), -1)


def _users(names: list[str]) -> NDArray[np.int64]:
    """Return integer ids of episodes; ids that are no numbers are numbered."""
    try:
        return np.array([int(name) for name in names], np.int64)
    except ValueError:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([numbers[name] for name in names], np.int64)

"""Logs as episodes of reinforcement learning, one per user: d3rlpy, Minari and RLlib, and back.

Minari: ``create_dataset_from_buffers(id, [EpisodeBuffer(**episode) for episode in to_minari(...)], ...)`` writes where
the environment variable ``MINARI_DATASETS_PATH`` says, else under the home folder. Nothing here writes anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, checked, from_arrays, of_any_action
from recsim_mnar.log.rows import steps_within

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("eps_id", "t", "obs", "actions", "rewards", "new_obs", "terminateds", "truncateds", "action_logp")


def to_d3rlpy(decisions: Decisions) -> dict[str, Any]:
    """Arguments of ``d3rlpy.dataset.MDPDataset``: an episode is a user, discrete actions.

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
    """Arguments of ``minari.data_collector.EpisodeBuffer``, a dictionary for each user.

    An episode of T decisions has ``observations`` (T + 1, c), the last one at the user's end, ``actions``, ``rewards``,
    ``terminations`` and ``truncations`` (one of them True at the end), (T,) each, and ``infos`` of fixed size, (T + 1,)
    each: ``propensity`` and ``step`` of the decision that the observation is followed by (NaN and -1 at the end) and
    ``user``. Of slates and weights ``actions`` and ``propensity`` have one entry per item.
    """
    episodes = []
    unknown = np.full((1, *of_any_action(decisions).action.shape[1:]), np.nan)
    for number, rows in enumerate(decisions.episodes()):
        length, truncated = rows.stop - rows.start, decisions.truncated[rows]
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
    """Decisions of a ``MinariDataset`` that was written from :func:`to_minari`.

    Args:
        dataset: with ``iterate_episodes()``.
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
    known = {
        key: np.concatenate([np.asarray(episode.infos[key])[:-1] for episode in episodes])
        for key in ("propensity", "step", "user")
    }
    return from_arrays(
        dataset.action_space.n if n_items is None else n_items,
        np.concatenate([rows[:-1] for rows in observed]),
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        known["propensity"],
        user=known["user"],
        step=known["step"],
        final=np.stack([rows[-1] for rows in observed]),
        truncated=np.concatenate([episode.truncations for episode in episodes]),
    )


def to_rllib(decisions: Decisions) -> pa.Table:
    """A pyarrow Table with the columns of RLlib's offline schema, one row per decision.

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
    """Decisions of a table of :func:`to_rllib`, or one with the same columns.

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
    ends = np.append(user[1:] != user[:-1], True)
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
    whole = column.combine_chunks()
    return np.asarray(whole.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(len(column), -1)


def _users(names: list[str]) -> NDArray[np.int64]:
    """Ids of episodes; those of RLlib's own, which are no numbers, are counted."""
    try:
        return np.array([int(name) for name in names], np.int64)
    except ValueError:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        return np.array([numbers[name] for name in names], np.int64)

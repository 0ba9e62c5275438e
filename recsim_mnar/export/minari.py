"""Minari: a log as episodes, a user each, and back.

``minari.create_dataset_from_buffers(id, [EpisodeBuffer(**episode) for episode in to_minari(...)], ...)`` writes where
the environment variable ``MINARI_DATASETS_PATH`` says, else under the home folder. Nothing here writes anything.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.export.arrays import Decisions, from_arrays


def to_minari(decisions: Decisions) -> list[dict[str, Any]]:
    """Arguments of ``minari.data_collector.EpisodeBuffer``, a dictionary for each user.

    An episode of T decisions has ``observations`` (T + 1, c), the last one at the user's end, ``actions``, ``rewards``,
    ``terminations`` (True at the end) and ``truncations``, (T,) each, and ``infos`` of fixed size, (T + 1,) each:
    ``propensity`` and ``step`` of the decision that the observation is followed by (NaN and -1 at the end) and
    ``user``.
    """
    episodes = []
    for number, rows in enumerate(decisions.episodes()):
        length = rows.stop - rows.start
        episodes.append(
            {
                "id": number,
                "observations": np.concatenate([decisions.context[rows], decisions.final[number : number + 1]]),
                "actions": decisions.action[rows],
                "rewards": decisions.reward[rows],
                "terminations": decisions.last[rows],
                "truncations": np.zeros(length, np.bool_),
                "infos": {
                    "propensity": np.append(decisions.propensity[rows], np.nan),
                    "step": np.append(decisions.step[rows], -1),
                    "user": np.full(length + 1, decisions.user[rows.start]),
                },
            }
        )
    return episodes


def from_minari(dataset: Any, n_items: int) -> Decisions:
    """Decisions of a ``MinariDataset`` that was written from :func:`to_minari`.

    Args:
        dataset: with ``iterate_episodes()``.
        n_items: actions are 0 .. n_items - 1.

    Raises:
        UserError: an episode without propensities, or no episode.
    """
    episodes = list(dataset.iterate_episodes())
    if not episodes:
        raise UserError("the dataset has no episodes")
    for episode in episodes:
        if not episode.infos or "propensity" not in episode.infos:
            raise UserError(f"episode {episode.id} has no infos['propensity']: without it no estimator can be used")
    observed = [np.asarray(episode.observations) for episode in episodes]
    told = {
        key: np.concatenate([np.asarray(episode.infos[key])[:-1] for episode in episodes])
        for key in ("propensity", "step", "user")
    }
    return from_arrays(
        n_items,
        np.concatenate([rows[:-1] for rows in observed]),
        np.concatenate([episode.actions for episode in episodes]),
        np.concatenate([episode.rewards for episode in episodes]),
        told["propensity"],
        user=told["user"],
        step=told["step"],
        final=np.stack([rows[-1] for rows in observed]),
    )

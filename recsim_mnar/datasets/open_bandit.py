"""The Open Bandit Dataset (Saito et al. 2021): a fashion site's logs of a uniform and of a Thompson-sampling policy.

The small version (10,000 rows a file) ships in the PyPI package obp 0.4.1: `pip download --no-deps obp==0.4.1` and
unzip, or install it; the full version has the same layout. Nothing is downloaded here.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.runs.files import path_of

POLICIES = ("random", "bts")
CAMPAIGNS = ("all", "men", "women")
N_POSITIONS = 3
_COLUMNS = ("timestamp", "item_id", "position", "click", "propensity_score")
_FEATURES = ("user_feature_0", "user_feature_1", "user_feature_2", "user_feature_3")


@dataclass(frozen=True)
class OpenBanditLog:
    """One file of the dataset: one recommendation per row, ordered by time.

    Attributes:
        policy: the logging policy, "random" (uniform over items) or "bts" (Bernoulli Thompson sampling).
        campaign: "all", "men" or "women".
        time: (n,) seconds since 1970.
        action: (n,) item shown, 0 .. n_actions - 1.
        position: (n,) place on the page, 0 (left), 1 or 2.
        reward: (n,) 1 for a click.
        propensity: (n,) probability with which the logging policy showed the item at that position.
        context: (n, 4) codes of the user's features.
        n_actions: number of items of the campaign.
    """

    policy: str
    campaign: str
    time: NDArray[np.float64]
    action: NDArray[np.int64]
    position: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    context: NDArray[np.int64]
    n_actions: int

    def __len__(self) -> int:
        return self.reward.size

    def uniform(self) -> NDArray[np.float64]:
        """Return the uniform policy's probability of each logged action, (n,)."""
        return np.full(len(self), 1.0 / self.n_actions)

    def shares(self, prior: float = 1.0) -> NDArray[np.float64]:
        """Return how often each item was shown at each position as a share, (positions, n_actions).

        This estimates the logging policy, averaged over time.

        Args:
            prior: count added to each item's, so that none has probability 0.
        """
        cell = self.position * self.n_actions + self.action  # one number per (position, action)
        counts = np.bincount(cell, minlength=N_POSITIONS * self.n_actions).reshape(N_POSITIONS, self.n_actions) + prior
        return counts / counts.sum(axis=1, keepdims=True)

    def under(self, shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probability (n,) of each logged action under (positions, n_actions) probabilities."""
        return shares[self.position, self.action]

    def columns(self, **targets: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
        """Return the columns that `recsim-mnar estimate` reads, by name.

        Args:
            **targets: (n,) probability of each logged action under a target policy, by the policy's name.
        """
        return {
            "time": self.time,
            "action": self.action,
            "position": self.position,
            "propensity": self.propensity,
            "reward": self.reward,
            **targets,
        }


def load_open_bandit(
    folder: str | Path | None = None, *, policy: str = "bts", campaign: str = "women"
) -> OpenBanditLog:
    """Read one file of the dataset.

    Args:
        folder: folder with ``random/`` and ``bts/`` (``obp/dataset/obd`` of the unzipped package, or a parent of it).
            If None, the folder in an installed obp is read, and obp is not imported.
        policy: the logging policy, "random" or "bts".
        campaign: "all", "men" or "women".

    Raises:
        UserError: no such folder, policy, campaign or column.
    """
    import pandas as pd

    for name, value, known_names in (("policy", policy, POLICIES), ("campaign", campaign, CAMPAIGNS)):
        if value not in known_names:
            raise UserError(f"open_bandit: no {name} {value!r}; {nearest(str(value), known_names)}")
    path = _root(folder) / policy / campaign / f"{campaign}.csv"
    if not path.is_file():
        raise UserError(f"open_bandit: no file {str(path)!r}; give the folder that holds random/ and bts/")
    header = pd.read_csv(path, nrows=0).columns
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise UserError(f"open_bandit: {path.name} has no column {missing[0]!r}; it is not the Open Bandit Dataset")
    features = [name for name in _FEATURES if name in header]
    table = pd.read_csv(path, usecols=[*_COLUMNS, *features]).sort_values("timestamp", kind="stable")
    items = path.with_name("item_context.csv")  # one row per item
    if items.is_file():
        n_actions = len(pd.read_csv(items))
    else:
        n_actions = int(table["item_id"].max()) + 1
    timestamps = pd.to_datetime(table["timestamp"], format="ISO8601", utc=True)
    context = np.zeros((len(table), 0), np.int64)
    if features:
        context = np.stack([pd.factorize(table[name], sort=True)[0] for name in features], axis=1)
    return OpenBanditLog(
        policy=policy,
        campaign=campaign,
        time=timestamps.astype("int64").to_numpy() / _units_per_second(timestamps),
        action=table["item_id"].to_numpy(np.int64),
        position=table["position"].to_numpy(np.int64) - 1,  # from 1 in the file
        reward=table["click"].to_numpy(np.float64),
        propensity=table["propensity_score"].to_numpy(np.float64),
        context=context,
        n_actions=n_actions,
    )


def _units_per_second(timestamps: Any) -> float:
    """Return the number of units per second of a pandas column of times; the unit depends on pandas' version."""
    return {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[timestamps.dt.unit]


def _root(folder: str | Path | None) -> Path:
    """Return the folder that holds ``random/`` and ``bts/``: the one named, or one below it in obp's layout.

    Args:
        folder: the folder that the user named; None for that of an installed obp.

    Raises:
        UserError: obp is not installed, or none of the folders holds the data.
    """
    if folder is None:
        spec = importlib.util.find_spec("obp")
        if spec is None or not spec.submodule_search_locations:
            raise UserError(
                "open_bandit: obp is not installed; `pip download --no-deps obp==0.4.1`, unzip, give the folder"
            )
        folder = next(iter(spec.submodule_search_locations))
    folder_named = path_of(folder)
    for root in (
        folder_named,
        folder_named / "obd",
        folder_named / "dataset" / "obd",
        folder_named / "obp" / "dataset" / "obd",
    ):
        if (root / "bts").is_dir() or (root / "random").is_dir():
            return root
    raise UserError(f"open_bandit: {str(folder_named)!r} holds no folders random/ and bts/; give the one that does")

"""Fifteen worlds of recommendations and purchases, drawn before any rule was run on them, with their exact effects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

SEED = 20262
SETTINGS = 15


@dataclass(frozen=True)
class UpliftSetting:
    """Items of a base rate and an effect; propensities that may go with the base rate.

    Attributes:
        name: stable id.
        users, items, listed: sizes; lists hold the first ``listed`` items.
        base, effect: (items,) purchase probability without, and what a recommendation adds.
        propensity: (items,).
        varying: whether propensities differ.
        seed: of the logs.
    """

    name: str
    users: int
    items: int
    listed: int
    base: np.ndarray
    effect: np.ndarray
    propensity: np.ndarray
    varying: bool
    seed: int

    @property
    def value(self) -> float:
        """The average effect."""
        return float(self.effect.mean())

    @property
    def list_value(self) -> float:
        """The effect of the listed items."""
        return float(self.effect[: self.listed].mean())

    def log(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Flags shown and bought, and propensities, (users, items, 1) each."""
        rng = np.random.default_rng([self.seed, number])
        shape = (self.users, self.items)
        shown = rng.random(shape) < self.propensity
        bought = rng.random(shape) < self.base + self.effect * shown
        table = np.broadcast_to(self.propensity[None, :, None], (1, self.items, 1))
        return shown[:, :, None], bought[:, :, None], table

    def lists(self) -> Any:
        return np.tile(np.arange(self.listed), (self.users, 1))


def draw_uplift(seed: int = SEED) -> list[UpliftSetting]:
    """The settings, the same for the same seed."""
    rng = np.random.default_rng(seed)
    out = []
    for number in range(SETTINGS):
        users = int(np.exp(rng.uniform(np.log(20), np.log(2000))))
        items = int(rng.choice([8, 15, 30]))
        base = rng.choice([0.01, 0.05, 0.2], items)
        effect = base * rng.choice([0.0, 0.5, 1.0], items)
        varying = bool(rng.random() < 0.6)
        least = float(rng.choice([0.02, 0.1, 0.3]))
        propensity = np.full(items, least)
        if varying:
            propensity = np.clip(least + 2.0 * base * rng.random(), 0.01, 0.9)
        varying = bool(np.ptp(propensity) > 0)
        out.append(
            UpliftSetting(
                f"{number:02d}-u{users}-i{items}", users, items, items // 2, base, effect, propensity, varying,
                int(rng.integers(2**31)),
            )
        )  # fmt: skip
    return out

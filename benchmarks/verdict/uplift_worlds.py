"""Fifteen worlds of recommendations and purchases, drawn before any rule was run on them, with their exact effects."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from average_effect import EFFECTS, average_effect

from recsim_mnar.errors import UserError
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.purchases.uplift import evaluate_lists

SEED = 20262
SETTINGS = 15
LISTS = ("uplift", "uplift_snips", "uplift_ips", "uplift_pooled")


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


def judge_all(logs: int) -> list[dict[str, Any]]:
    """Every estimate over logs of all settings, with the setting in which it covers least."""
    by_setting = {setting.name: _judged(setting, logs) for setting in draw_uplift()}
    return [_pooled(name, by_setting) for name in (*(f"effect_{name}" for name in EFFECTS), *LISTS)]


def _judged(setting: UpliftSetting, logs: int) -> dict[str, list[tuple[bool, bool, str]]]:
    """(trusted, right, reasons) of each log, by estimate."""
    found: dict[str, list[tuple[bool, bool, str]]] = {}
    for number in range(logs):
        shown, bought, table = setting.log(number)
        u, i, t = np.nonzero(shown | bought)
        exposures = Exposures(u, i, t, shown[u, i, t], bought[u, i, t], *shown.shape, propensities=table)
        estimates = {f"effect_{name}": (average_effect(exposures, name), setting.value) for name in EFFECTS}
        try:
            lists = evaluate_lists(exposures, setting.lists(), metrics=list(LISTS))
        except UserError:  # no user has a recommended and an unrecommended item
            lists = {}
        estimates |= {name: (estimate, setting.list_value) for name, estimate in lists.items()}
        for name, (estimate, truth) in estimates.items():
            right = bool(estimate.low - 1e-12 <= truth <= estimate.high + 1e-12)
            codes = ",".join(sorted({f.code for f in estimate.verdict.findings if f.level != "trust"}))
            found.setdefault(name, []).append((estimate.trusted, right, codes))
    return found


def _pooled(name: str, by_setting: dict[str, dict[str, list[tuple[bool, bool, str]]]]) -> dict[str, Any]:
    own = {setting: rows[name] for setting, rows in by_setting.items() if rows.get(name)}
    rows = [row for each in own.values() for row in each]
    shares = {setting: sum(right for _, right, _ in each) / len(each) for setting, each in own.items()}
    where = min(shares, key=lambda setting: shares[setting])
    reasons = Counter(code for _, _, codes in rows for code in codes.split(",") if code)
    return {
        "estimate": name,
        "logs": len(rows),
        "trusted": sum(trusted for trusted, _, _ in rows),
        "right_given_trust": sum(trusted and right for trusted, right, _ in rows),
        "right": sum(right for _, right, _ in rows),
        "lowest": shares[where],
        "where": where,
        "reasons": "; ".join(f"{code} {count / len(rows):.2f}" for code, count in reasons.most_common(4)),
    }

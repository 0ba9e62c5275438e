"""How the slates of a world are made: the parameters that every world of slates has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.params import Params

LAWS = ("power", "log")


@dataclass(frozen=True)
class SlateParams(Params):
    """What a world of slates of one's own has for parameters; derive, and add others with defaults.

    Attributes:
        n_items: number of items I.
        n_periods: periods that a user lives.
        slate_size: items recommended to a user in a period, N (expected number where ``slates`` is ``independent``).
        rank_decay: weight of rank r from 1: ``power`` r^-exponent, ``log`` 1 / log2(1 + r).
        exponent: of the power law.
        smallest_propensity: no item is recommended with a smaller probability; above 0.
        largest_propensity: nor with a larger one; below 1.
        slates: each item is drawn by itself (``independent``), or slates of exactly N items (``fixed``).
        catalogue_seed: of the items.
    """

    n_items: int = 50
    n_periods: int = 4
    slate_size: int = 5
    rank_decay: str = "power"
    exponent: float = 0.5
    smallest_propensity: float = 1e-3
    largest_propensity: float = 0.9
    slates: str = "independent"
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        check_slates(self)


RULES = tuple(name for name in SlateParams.__dataclass_fields__ if name != "catalogue_seed")
"""Parameters that a world of slates must have."""


def check_slates(p: Any) -> None:
    """Raise UserError naming the parameter by which slates cannot be made; ``p`` has those of :class:`SlateParams`."""
    for name in ("n_items", "n_periods", "slate_size"):
        if getattr(p, name) < 1:
            raise UserError(f"{name} must be at least 1, got {getattr(p, name)}")
    if p.slate_size > p.n_items:
        raise UserError(f"slate_size = {p.slate_size} is larger than the number of items, n_items = {p.n_items}")
    if p.n_items * p.n_periods >= 2**32:
        raise UserError("n_items times n_periods must be below 2**32: lower one of them")
    if p.exponent < 0:
        raise UserError(f"exponent must not be negative, got {p.exponent:g}")
    for name, known in (("rank_decay", LAWS), ("slates", ("independent", "fixed"))):
        if getattr(p, name) not in known:
            raise UserError(f"{name} must be one of {', '.join(known)}, got {getattr(p, name)!r}")
    low, high = p.smallest_propensity, p.largest_propensity
    if not 0 < low <= high < 1:
        raise UserError(
            f"smallest_propensity and largest_propensity must satisfy 0 < smallest <= largest < 1, got {low:g} and "
            f"{high:g}: uplift needs a probability of both to be shown and not to be shown"
        )
    if not low * p.n_items <= p.slate_size <= high * p.n_items:
        raise UserError(
            f"slate_size = {p.slate_size} of {p.n_items} items cannot be reached with propensities in "
            f"[{low:g}, {high:g}]: change slate_size or the bounds"
        )
    check_seed(getattr(p, "catalogue_seed", 0), "catalogue_seed")

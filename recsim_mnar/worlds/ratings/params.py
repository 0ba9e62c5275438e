"""Parameters of the ratings world and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_mnar.errors import UserError
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.ratings.observation import MARGINALS, STARS

OBSERVATIONS = ("alpha", "popularity", "uniform")


@dataclass(frozen=True)
class RatingsParams(Params):
    """Parameters of the ratings world.

    Attributes:
        n_items: number of items I; that of the file where there is one.
        n_factors: rank of the tastes behind the ratings; 0 for items' offsets and noise alone.
        sigma_item: standard deviation of the items' offsets, a user's taste having 1.
        sigma_noise: standard deviation of what neither taste nor item explains.
        marginals: shares of ratings 1 to 5 among all entries, with commas; by default those of randomly chosen songs
            (Marlin & Zemel 2009).
        ratings_file: instead of the three sigmas' model, a file of ratings, completed and re-ranked to ``marginals``
            (section 6.2), or an ``.npy`` or ``.npz`` file of a full matrix, taken as it is. An ``.npz`` file that
            holds ``observation_propensities`` too brings its own: ``alpha``, ``density`` and ``observation`` are then
            not read.
        alpha: severity of selection: a rating r < 4 is revealed alpha^(4 - r) times as often as 4 or 5 (``alpha``).
        density: expected share of ratings revealed.
        observation: ``alpha`` (by the rating), ``popularity`` (by the item: 1/rank of its offset or mean), or
            ``uniform``.
        n_decisions: recommendations a user answers.
        repeat_pays: whether an item that the user has rated already, revealed or recommended before, earns its rating
            again when it is recommended; otherwise it earns 0.
        catalogue_seed: of the items, and of the completion of a file.
    """

    n_items: int = 100
    n_factors: int = 5
    sigma_item: float = 0.5
    sigma_noise: float = 0.5
    marginals: str = ",".join(f"{share:g}" for share in MARGINALS)
    ratings_file: str = ""
    alpha: float = 0.25
    density: float = 0.05
    observation: str = "alpha"
    n_decisions: int = 10
    repeat_pays: bool = True
    catalogue_seed: int = 0

    @property
    def shares(self) -> tuple[float, ...]:
        """``marginals`` as numbers."""
        return tuple(float(part) for part in self.marginals.split(","))

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        for name, least in (("n_items", 1), ("n_factors", 0), ("n_decisions", 1)):
            if getattr(self, name) < least:
                raise UserError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.n_items > 10_000_000:
            raise UserError(f"n_items must be at most 10,000,000, got {self.n_items}")
        for name in ("sigma_item", "sigma_noise"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name):g}")
        for name in ("alpha", "density"):
            if not 0 < getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in (0, 1], got {getattr(self, name):g}")
        if self.observation not in OBSERVATIONS:
            raise UserError(f"observation must be one of {', '.join(OBSERVATIONS)}, got {self.observation!r}")
        check_seed(self.catalogue_seed, "catalogue_seed")
        try:
            shares = self.shares
        except ValueError:
            shares = ()
        if len(shares) != len(STARS) or not (min(shares) >= 0 and abs(sum(shares) - 1) < 1e-6):
            raise UserError(f"marginals must be five shares with commas that sum to 1, got {self.marginals!r}")


PRESETS: dict[str, tuple[RatingsParams, str]] = {
    "schnabel2016": (
        RatingsParams(n_items=500, n_decisions=20),
        "the 2016 observation model at alpha = .25, 500 items of low rank",
    ),
    "mcar": (RatingsParams(alpha=1.0), "100 items, ratings revealed uniformly at random"),
    "quick": (RatingsParams(), "100 items, alpha = .25"),
}

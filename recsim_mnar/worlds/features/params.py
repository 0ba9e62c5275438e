"""Parameters of the features world and its presets."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_mnar.errors import UserError
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.params import Params

REWARDS = ("logistic", "linear", "means")
LENGTHS = ("fixed", "geometric")


@dataclass(frozen=True)
class FeatureParams(Params):
    """Parameters of the features world.

    Attributes:
        file: an ``.npz`` file with ``user_features`` (U, d) and ``item_features`` (I, k), and ``weights`` (d, k) or
            ``means`` (U, I), as ``reward`` needs; without a file both matrices are drawn.
        n_users: rows of user features that are drawn; that of the file where there is one.
        n_items: rows of item features that are drawn; that of the file where there is one.
        n_features: columns of both that are drawn.
        reward: mean reward of item i for a user of features x: ``logistic`` 1 / (1 + exp(-(offset + x W z_i))),
            ``linear`` offset + x W z_i, ``means`` as given. Without weights W is the identity, divided by the root of
            ``n_features`` where features are drawn.
        offset: see ``reward``.
        noise: standard deviation of normal noise on rewards; 0: rewards are 0 or 1, drawn with the mean as their
            probability.
        length: recommendations that a user answers, or their mean.
        lengths: ``fixed``, or ``geometric``: a user leaves after each with probability 1 / length.
        catalogue_seed: of the features that are drawn.
    """

    file: str = ""
    n_users: int = 200
    n_items: int = 20
    n_features: int = 4
    reward: str = "logistic"
    offset: float = 0.0
    noise: float = 0.0
    length: float = 10.0
    lengths: str = "fixed"
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        for name in ("n_users", "n_items", "n_features", "length"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name):g}")
        if self.n_items > 10_000_000:
            raise UserError(f"n_items must be at most 10,000,000, got {self.n_items}")
        if self.noise < 0:
            raise UserError(f"noise must not be negative, got {self.noise:g}")
        for name, known in (("reward", REWARDS), ("lengths", LENGTHS)):
            if getattr(self, name) not in known:
                raise UserError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.lengths == "fixed" and self.length != int(self.length):
            raise UserError(f"length must be a whole number where lengths = fixed, got {self.length:g}")
        check_seed(self.catalogue_seed, "catalogue_seed")


PRESETS: dict[str, tuple[FeatureParams, str]] = {
    "quick": (FeatureParams(), "200 users and 20 items of 4 drawn features, 10 recommendations each"),
    "clicks": (FeatureParams(offset=-3.0), "the same, some 5 % of the recommendations clicked"),
}

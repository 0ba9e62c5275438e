"""The worlds, by name; each module is one generative model."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from recsim_mnar.errors import UserError, nearest

if TYPE_CHECKING:
    from recsim_mnar.worlds.base import World


@dataclass(frozen=True)
class Entry:
    """Where a world is defined.

    Attributes:
        module: holds the class and ``PRESETS``.
        kind: the class's name.
        default: the preset where none is named.
        summary: one line for a person.
    """

    module: str
    kind: str
    default: str
    summary: str

    def load(self) -> Any:
        """The module."""
        return importlib.import_module(self.module)

    def presets(self) -> dict[str, str]:
        """Name and one-line description of each preset."""
        return {name: text for name, (_, text) in self.load().PRESETS.items()}


WORLDS: dict[str, Entry] = {
    "sessions": Entry(
        "recsim_mnar.worlds.sessions.world",
        "SessionsWorld",
        "recogym-v1",
        "people browse, are shown recommendations, click and leave (RecoGym v1; Jeunen et al. 2019)",
    ),
    "ratings": Entry(
        "recsim_mnar.worlds.ratings.world",
        "RatingsWorld",
        "quick",
        "people reveal ratings, not at random, and rate what is recommended (Schnabel et al. 2016)",
    ),
    "campaigns": Entry(
        "recsim_mnar.worlds.campaigns.world",
        "CampaignsWorld",
        "viadeo",
        "users collect items on a platform that recommends some in campaigns (de Myttenaere et al. 2015)",
    ),
    "purchases": Entry(
        "recsim_mnar.worlds.purchases.world",
        "PurchasesWorld",
        "personalised",
        "users buy in periods, recommended or not; both potential outcomes are known (Sato et al. 2019)",
    ),
}


def make_world(name: str, preset: str | None = None, settings: Sequence[str] | Mapping[str, Any] = ()) -> World:
    """A world from its name, a preset's name (its default where None) and settings.

    Args:
        name: of the world.
        preset: its name; the world's default where None.
        settings: parameters that differ: ``name=value`` texts, as the command line has them, or keywords and values.

    Raises:
        UserError: an unknown name, with the nearest known one, or a setting that breaks a rule.
    """
    if name not in WORLDS:
        raise UserError(f"unknown world {name!r}; {nearest(name, WORLDS)}")
    entry = WORLDS[name]
    module = entry.load()
    preset = preset or entry.default
    if preset not in module.PRESETS:
        raise UserError(f"unknown preset {preset!r} of the {name} world; {nearest(preset, module.PRESETS)}")
    params = module.PRESETS[preset][0]
    changed = params.with_keywords(settings) if isinstance(settings, Mapping) else params.with_settings(settings)
    world: World = getattr(module, entry.kind)(changed)
    return world

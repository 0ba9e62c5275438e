"""The worlds by name: where each is defined, how it is simulated, and how recommenders are compared in it."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import UserError, described, nearest
from recsim_mnar.plugins import announced, imported, unknown
from recsim_mnar.worlds.base import DecisionWorld, ExposureWorld, PlatformWorld, World
from recsim_mnar.worlds.checks import as_world
from recsim_mnar.worlds.world_file import is_world_file, read_world_file

GROUP = "recsim_mnar.worlds"
"""Entry-point group in which a package announces its worlds: ``name = package.module:Class``."""

SIMULATED_BY: dict[type[World], str] = {
    DecisionWorld: "recsim_mnar.simulation.named:decisions",
    ExposureWorld: "recsim_mnar.simulation.named:slates",
    PlatformWorld: "recsim_mnar.simulation.named:platform",
}
"""What the command ``simulate`` calls, by the class that a world derives from."""

COMPARED_BY: dict[type[World], str] = {
    DecisionWorld: "recsim_mnar.protocols.decisions:DecisionExperiment",
    ExposureWorld: "recsim_mnar.protocols.uplift.comparison:PurchasesExperiment",
    PlatformWorld: "recsim_mnar.protocols.temporal.comparison:CampaignsExperiment",
}
"""What ``compare`` makes a comparison with, by the class that a world derives from; empty: there is none."""


@dataclass(frozen=True)
class Entry:
    """A world by name.

    Attributes:
        name: as on the command line.
        module: holds the class.
        kind: the class's name.
        default: the preset where none is named; empty where the class has none.
        summary: one line for a person.
        simulated_by: ``package.module:function`` that writes a log into a folder, see
            :mod:`recsim_mnar.simulation.named`; empty: as its class says, or the class that it derives from
            (:data:`SIMULATED_BY`).
        compared_by: ``package.module:Class`` that compares recommenders in this world; empty: likewise
            (:data:`COMPARED_BY`).
    """

    name: str
    module: str
    kind: str
    default: str
    summary: str
    simulated_by: str = ""
    compared_by: str = ""

    def world_class(self) -> type[World]:
        """The class."""
        return _checked_class(self.name, imported("world", f"{self.module}:{self.kind}", base=World))

    def presets(self) -> dict[str, str]:
        """Name and one-line description of each preset."""
        return {name: text for name, (_, text) in self.world_class().presets.items()}

    def simulator(self) -> Any:
        """The function that :attr:`simulated_by` names."""
        kind = self.world_class()
        return imported("simulation", self.simulated_by or kind.simulated_by or _of_class(SIMULATED_BY, kind))


WORLDS: dict[str, Entry] = {
    entry.name: entry
    for entry in (
        Entry(
            "sessions",
            "recsim_mnar.worlds.sessions.world",
            "SessionsWorld",
            "recogym-v1",
            "people browse, are shown recommendations, click and leave (RecoGym v1; Jeunen et al. 2019)",
        ),
        Entry(
            "ratings",
            "recsim_mnar.worlds.ratings.world",
            "RatingsWorld",
            "quick",
            "people reveal ratings, not at random, and rate what is recommended (Schnabel et al. 2016)",
            compared_by="recsim_mnar.protocols.ratings.comparison:RatingsExperiment",
        ),
        Entry(
            "campaigns",
            "recsim_mnar.worlds.campaigns.world",
            "CampaignsWorld",
            "viadeo",
            "users collect items on a platform that recommends some in campaigns (de Myttenaere et al. 2015)",
        ),
        Entry(
            "purchases",
            "recsim_mnar.worlds.purchases.world",
            "PurchasesWorld",
            "personalised",
            "users buy in periods, recommended or not; both potential outcomes are known (Sato et al. 2019)",
        ),
        Entry(
            "features",
            "recsim_mnar.worlds.features.world",
            "FeatureWorld",
            "quick",
            "users and items are rows of feature matrices, your own or drawn; rewards are clicks or numbers",
        ),
    )
}
"""The package's own worlds; :func:`worlds` adds those that other packages announce."""


def worlds() -> dict[str, Entry]:
    """Every world that has a name: the package's own, and those announced in the entry-point group :data:`GROUP`.

    A package that cannot be imported is named when its world is asked for, not here.
    """
    others = {name: _announced_entry(name, point.value) for name, point in announced(GROUP).items()}
    return {**others, **WORLDS}


def listed() -> list[tuple[str, str]]:
    """Name and one-line description of every world, by name; of one that cannot be imported, why."""
    return sorted((name, entry.summary or _told_by_class(entry)) for name, entry in worlds().items())


def listed_presets() -> list[tuple[str, str]]:
    """``world preset`` and a line for each preset of the worlds that can be imported."""
    out = []
    for world, entry in worlds().items():
        try:
            out += [(f"{world} {name}", text) for name, text in entry.presets().items()]
        except UserError:  # `worlds` says why
            continue
    return out


def entry_of(name: str) -> Entry:
    """The entry of a name, of ``package.module:Class``, or of the world that a file describes (``WORLD.toml``).

    Raises:
        UserError: an unknown name, with the nearest known one, or a class that is no world.
    """
    if is_world_file(name):
        return dataclasses.replace(entry_of(read_world_file(name).world), default="")
    if ":" in name:
        module, _, kind = name.partition(":")
        cls = _checked_class(name, imported("world", name, base=World))
        return Entry(name, module, kind, next(iter(cls.presets), ""), _summary(cls))
    known = worlds()
    if name not in known:
        raise UserError(unknown("world", name, known, "Class"))
    entry = known[name]
    if entry.summary:
        return entry
    cls = entry.world_class()
    return Entry(name, entry.module, entry.kind, next(iter(cls.presets), ""), _summary(cls))


def comparison_of(kind: type[World]) -> Any:
    """The class that compares recommenders in worlds of a class: its own, of its entry, or by what it derives from."""
    places = {(base.__module__, base.__name__) for base in kind.__mro__}
    named = [e.compared_by for e in worlds().values() if e.compared_by and (e.module, e.kind) in places]
    return imported("comparison", kind.compared_by or (named[0] if named else _of_class(COMPARED_BY, kind)))


def make_world(name: str, preset: str | None = None, settings: Sequence[str] | Mapping[str, Any] = ()) -> World:
    """A world from its name, a preset's name (its default where None) and settings.

    Args:
        name: of the world, ``package.module:Class`` for one of your own, or a file, ``WORLD.toml`` (``WORLD.toml#3``:
            the third of its ensemble).
        preset: its name; the world's default where None.
        settings: parameters that differ: ``name=value`` texts, as the command line has them, or keywords and values.

    Raises:
        UserError: an unknown name, with the nearest known one, a setting that breaks a rule, or a class that is no
            world, with what it lacks.
    """
    if is_world_file(name):
        return _world_of_file(name, preset, settings)
    entry = entry_of(name)
    kind = entry.world_class()
    if preset is None and entry.default:
        preset = entry.default
    if preset is None:
        params = _without_preset(entry.name, kind)
    elif preset in kind.presets:
        params = kind.presets[preset][0]
    elif kind.presets:
        others = [known for known, other in worlds().items() if preset in other.presets()]
        of = f" (it is of the {' and '.join(others)} world)" if others else ""
        raise UserError(f"unknown preset {preset!r} of the {entry.name} world{of}; {nearest(preset, kind.presets)}")
    else:
        raise UserError(f"unknown preset {preset!r}: the {entry.name} world has none")
    if settings and not params.to_dict():
        first = next(iter(settings))
        raise UserError(
            f"the {entry.name} world takes no parameters, {first!r} is none of them: give the class params_class, a "
            "dataclass derived from recsim_mnar.worlds.params.Params"
        )
    changed = params.with_keywords(settings) if isinstance(settings, Mapping) else params.with_settings(settings)
    try:
        made = kind(changed) if kind.params_class is not World.params_class else kind()  # type: ignore[call-arg]
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:  # from inside, not of the call
            raise
        raise UserError(
            f"world {entry.name!r} cannot be made: its __init__ must take its parameters and nothing else "
            f"({described(error)})"
        ) from error
    return as_world(made)


def _world_of_file(name: str, preset: str | None, settings: Sequence[str] | Mapping[str, Any]) -> World:
    """The world that a file describes, with settings on top."""
    if preset is not None:
        raise UserError(f"preset {preset}: {name} has its parameters already; omit the preset")
    found = read_world_file(name)
    if is_world_file(found.world):
        raise UserError(f"world file {found.path}: its world is a file too; write the world's name")
    kind: Any = entry_of(found.world).world_class()
    params = kind.params_class.from_dict(found.params)
    changed = params.with_keywords(settings) if isinstance(settings, Mapping) else params.with_settings(settings)
    return as_world(kind(changed))


def _without_preset(name: str, kind: type[World]) -> Any:
    try:
        return kind.params_class()
    except TypeError as error:
        raise UserError(f"world {name!r}: every parameter of its params_class needs a default ({error})") from None


def _announced_entry(name: str, value: str) -> Entry:
    module, _, kind = value.partition(":")
    return Entry(name, module, kind, "", "")


def _told_by_class(entry: Entry) -> str:
    try:
        return _summary(entry.world_class())
    except UserError as error:
        return str(error)


def _summary(kind: type[World]) -> str:
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def _of_class(table: dict[type[World], str], kind: type[World]) -> str:
    return next(place for base, place in table.items() if issubclass(kind, base))


def _checked_class(name: str, kind: Any) -> type[World]:
    """The class, or a UserError that says why it is no world that can be made."""
    if not (inspect.isclass(kind) and issubclass(kind, (DecisionWorld, ExposureWorld, PlatformWorld))):
        raise UserError(
            f"world {name!r} must be a class derived from recsim_mnar.worlds.DecisionWorld (or ExposureWorld, "
            f"PlatformWorld), got {kind!r}"
        )
    if inspect.isabstract(kind):
        missing = ", ".join(sorted(kind.__abstractmethods__))
        raise UserError(f"world {name!r} lacks {missing}: define it, as docs/worlds.md shows")
    return kind

"""Registry of the worlds: named ones, classes, and files.

A world may also stand in a file, made by ``calibrate`` or by hand: TOML with ``world``, a table ``params``, and where
there are arrays a table ``arrays`` with the file's name (in the same folder) and its SHA-256. An ensemble is a list of
tables ``ensemble`` of the parameters that differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError, described, nearest
from recsim_mnar.kernels.checks import of_type, table_by_name, text_of
from recsim_mnar.plugins import announced, imported, unknown
from recsim_mnar.runs.files import path_of, read_toml
from recsim_mnar.worlds.base import World, as_world
from recsim_mnar.worlds.params import Params

SUFFIX = ".toml"
_MEMBER = re.compile(r"^(?P<path>.*\.toml)#(?P<member>\d+)$", re.IGNORECASE)


@dataclass(frozen=True)
class WorldFile:
    """Contents of a world's file.

    Attributes:
        path: of the file.
        world: a world's name.
        params: of the world, that differ from its defaults.
        content: all of the file.
    """

    path: Path
    world: str
    params: dict[str, Any]
    content: dict[str, Any]


def is_world_file(name: str) -> bool:
    """Return whether a name is that of a world's file, ``WORLD.toml`` or ``WORLD.toml#3``."""
    return name.lower().endswith(SUFFIX) or _MEMBER.match(name) is not None


def read_world_file(name: str) -> WorldFile:
    """Read the world that a file describes; ``#i`` selects the ensemble's i-th, from 1.

    Raises:
        UserError: no such file, no such member, an array file that is missing or not the one that was written.
    """
    match = _MEMBER.match(name)
    member = 0
    if match:
        name = match["path"]
        member = int(match["member"])
    path = path_of(name)
    content = read_toml(path)
    world = content.get("world")
    params = content.get("params")
    ensemble = content.get("ensemble", [])
    if not isinstance(world, str) or not isinstance(params, dict) or not isinstance(ensemble, list):
        raise UserError(f'world file {path} needs world = "sessions" or another name, and a table [params]')
    params = dict(params)
    if member:
        if member > len(ensemble):
            raise UserError(f"world file {path} has an ensemble of {len(ensemble)}: there is no member {member}")
        table_by_name(ensemble[member - 1], f"world file {path}: member {member}")
        params.update(ensemble[member - 1])
    arrays = content.get("arrays")
    if arrays is not None:
        table_by_name(arrays, f"world file {path}: arrays")
        for key in ("file", "sha256", "parameter"):
            text_of(arrays.get(key), f"world file {path}: {key} of its arrays")
        file = path.parent / Path(arrays["file"]).name
        if not file.is_file():
            raise UserError(f"world file {path}: its arrays {file} are missing; they belong next to it")
        if hashlib.sha256(file.read_bytes()).hexdigest() != arrays["sha256"]:
            raise UserError(f"world file {path}: {file} is not the file of arrays that was written with it (SHA-256)")
        params[arrays["parameter"]] = str(file)
    return WorldFile(path, world, params, content)


GROUP = "recsim_mnar.worlds"
"""Entry-point group in which a package announces its worlds: ``name = package.module:Class``."""


@dataclass(frozen=True)
class Entry:
    """A world by name.

    Attributes:
        name: as on the command line.
        module: holds the class.
        kind: the class's name.
        default: the preset where none is named; empty where the class has none.
        summary: one line for a person.
    """

    name: str
    module: str
    kind: str
    default: str = ""
    summary: str = ""

    def world_class(self) -> type[World]:
        """Import the class.

        Raises:
            UserError: no world can be made of it.
        """
        kind = imported("world", f"{self.module}:{self.kind}", base=World)
        if not (inspect.isclass(kind) and issubclass(kind, World) and kind.simulated_by):
            raise UserError(
                f"world {self.name!r} must be a class derived from recsim_mnar.worlds.DecisionWorld (or ExposureWorld, "
                f"PlatformWorld), got {kind!r}"
            )
        if inspect.isabstract(kind):
            missing = ", ".join(sorted(kind.__abstractmethods__))
            raise UserError(f"world {self.name!r} lacks {missing}: define it, as docs/worlds.md shows")
        return kind

    def presets(self) -> dict[str, str]:
        """Name and one-line description of each preset."""
        return {name: text for name, (_, text) in self.world_class().presets.items()}

    def simulator(self) -> Any:
        """The function that its class names in ``simulated_by``."""
        return imported("simulation", self.world_class().simulated_by)


_OURS = (
    Entry(
        "sessions", "recsim_mnar.worlds.sessions.world", "SessionsWorld", "recogym-v1",
        "people browse, are shown recommendations, click and leave (RecoGym v1; Jeunen et al. 2019)",
    ),
    Entry(
        "ratings", "recsim_mnar.worlds.ratings.world", "RatingsWorld", "quick",
        "people reveal ratings, not at random, and rate what is recommended (Schnabel et al. 2016)",
    ),
    Entry(
        "features", "recsim_mnar.worlds.features", "FeatureWorld", "quick",
        "users and items are rows of feature matrices, your own or drawn; rewards are clicks or numbers",
    ),
)  # fmt: skip
_PACKAGE = __name__.partition(".")[0]


def _announced(ours: bool) -> dict[str, Entry]:
    """Return the worlds of the entry-point group, of this package or of others."""
    entries = {}
    for name, point in announced(GROUP).items():
        module, _, kind = point.value.partition(":")
        if module.startswith(f"{_PACKAGE}.") == ours:
            entries[name] = Entry(name, module, kind)
    return entries


WORLDS: dict[str, Entry] = {entry.name: entry for entry in _OURS} | _announced(ours=True)
"""The package's own worlds; :func:`worlds` adds those that other packages announce."""


def worlds() -> dict[str, Entry]:
    """Return every named world, those of the entry-point group :data:`GROUP` included.

    A package that cannot be imported is named when its world is asked for, not here.
    """
    return {**_announced(ours=False), **WORLDS}


def of_a_world(name: str) -> Any:
    """Return the public object of this name in a world's folder; None if there is none."""
    for entry in _announced(ours=True).values():
        package = importlib.import_module(entry.module.rpartition(".")[0])
        if name in package.__all__:
            return getattr(package, name)
    return None


def listed() -> list[tuple[str, str]]:
    """Return the name and description of every world, or why it cannot be imported."""
    rows = []
    for name, entry in worlds().items():
        try:
            summary = entry.summary or _summary(entry.world_class())
        except UserError as error:
            summary = str(error)
        rows.append((name, summary))
    return sorted(rows)


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
    if is_world_file(text_of(name, "world's name")):
        stored = read_world_file(name)
        if is_world_file(stored.world):
            raise UserError(f"world file {stored.path}: its world is a file too; write the world's name")
        return dataclasses.replace(entry_of(stored.world), default="")
    module, colon, kind = name.partition(":")
    entries = worlds()
    if colon:
        entry = Entry(name, module, kind)
    elif name in entries:
        entry = entries[name]
    else:
        raise UserError(unknown("world", name, entries, "Class"))
    if entry.summary:
        return entry
    cls = entry.world_class()
    return dataclasses.replace(entry, default=next(iter(cls.presets), ""), summary=_summary(cls))


def make_world(
    name: str, preset: str | None = None, settings: Sequence[str] | Mapping[str, Any] = (), **params: Any
) -> World:
    """Make a world from its name, a preset and settings.

    Args:
        name: of the world, ``package.module:Class`` for one of your own, or a file, ``WORLD.toml`` (``WORLD.toml#3``:
            the third of its ensemble).
        preset: its name; the world's default where None.
        settings: parameters that differ: ``name=value`` texts, as the command line has them, or keywords and values.
        **params: parameters that differ, as ``gym.make`` takes them: ``make_world("sessions", n_items=10)``.

    Raises:
        UserError: an unknown name, with the nearest known one, a setting that breaks a rule, or a class that is no
            world, with what it lacks.
    """
    of_type(preset, "preset", (str, type(None)), "a text, or None")
    if not isinstance(settings, Mapping):
        for setting in of_type(settings, "settings", (list, tuple), "a dict, or a list of name=value"):
            text_of(setting, "a setting")
    if params and settings:
        raise UserError("give a world's parameters as keywords or as settings, not both")
    changes = params or settings
    entry = entry_of(name)
    kind: Any = entry.world_class()
    if is_world_file(name):
        if preset is not None:
            raise UserError(f"preset {preset}: {name} has its parameters already; omit the preset")
        usual = kind.params_class.from_dict(read_world_file(name).params)
    else:
        usual = _params_of_preset(entry, kind, preset)
    if changes and not usual.to_dict():
        first = next(iter(changes))
        raise UserError(
            f"the {entry.name} world takes no parameters, {first!r} is none of them: give the class params_class, a "
            "dataclass derived from recsim_mnar.worlds.params.Params"
        )
    if isinstance(changes, Mapping):
        changed = usual.with_keywords(changes)
    else:
        changed = usual.with_settings(changes)
    try:
        if kind.params_class is not World.params_class:
            made = kind(changed)
        else:
            made = kind()
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:  # from inside, not of the call
            raise
        raise UserError(
            f"world {entry.name!r} cannot be made: its __init__ must take its parameters and nothing else "
            f"({described(error)})"
        ) from error
    return as_world(made)


def _params_of_preset(entry: Entry, kind: type[World], preset: str | None) -> Params:
    """Return the parameters of a preset, the default one if None."""
    if preset is None:
        preset = entry.default or None
    if preset is not None and preset in kind.presets:
        return kind.presets[preset][0]
    if preset is None:
        try:
            return kind.params_class()
        except TypeError as error:
            raise UserError(
                f"world {entry.name!r}: every parameter of its params_class needs a default ({error})"
            ) from None
    if not kind.presets:
        raise UserError(f"unknown preset {preset!r}: the {entry.name} world has none")
    other_worlds = [name for name, other in worlds().items() if preset in other.presets()]
    hint = ""
    if other_worlds:
        hint = f" (it is of the {' and '.join(other_worlds)} world)"
    raise UserError(f"unknown preset {preset!r} of the {entry.name} world{hint}; {nearest(preset, kind.presets)}")


def _summary(kind: type[World]) -> str:
    return kind.summary or (inspect.getdoc(kind) or "").partition("\n")[0]

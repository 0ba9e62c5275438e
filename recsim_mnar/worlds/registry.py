"""Registry of worlds, which are specified by a name, a class or a world file.

A world file is written by ``calibrate`` or by hand. It is a TOML document with the world's name ``world`` and a table
``params``. If the world needs arrays, a table ``arrays`` states the name of an array file in the same folder, its
SHA-256 and the parameter that takes its path. A list of tables ``ensemble`` defines further members by the parameters
in which they differ.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
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
"""Name of a member of a world file's ensemble, ``WORLD.toml#3``."""


@dataclass(frozen=True)
class WorldFile:
    """Contents of a world file.

    Attributes:
        path: path of the file.
        world: name of the world.
        params: parameters that differ from the world's defaults, those of the chosen ensemble member included.
        content: whole content of the file.
    """

    path: Path
    world: str
    params: dict[str, Any]
    content: dict[str, Any]


def is_world_file(name: str) -> bool:
    """Return True if a world's name stands for a world file: ``WORLD.toml`` or ``WORLD.toml#3``."""
    return name.lower().endswith(SUFFIX) or _MEMBER.match(name) is not None


def read_world_file(name: str) -> WorldFile:
    """Read a world file.

    Args:
        name: path of the file; ``path#i`` for member i = 1, 2, ... of its ensemble.

    Raises:
        UserError: the file, the member or the array file is missing, or has the wrong content.
    """
    match = _MEMBER.match(name)
    member = 0  # no member
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
        parameter, file = _array_file(path, arrays)
        params[parameter] = str(file)
    return WorldFile(path, world, params, content)


def _array_file(path: Path, arrays: Any) -> tuple[str, Path]:
    """Find the array file of a world file and verify its digest.

    Args:
        path: path of the world file.
        arrays: its table ``arrays``.

    Returns:
        parameter: name of the world's parameter that takes the path.
        file: path of the array file, next to the world file.

    Raises:
        UserError: an invalid table, or an array file that is missing or has another digest.
    """
    table_by_name(arrays, f"world file {path}: arrays")
    for key in ("file", "sha256", "parameter"):
        text_of(arrays.get(key), f"world file {path}: {key} of its arrays")
    file = path.parent / Path(arrays["file"]).name
    if not file.is_file():
        raise UserError(f"world file {path}: its arrays {file} are missing; they belong next to it")
    if hashlib.sha256(file.read_bytes()).hexdigest() != arrays["sha256"]:
        raise UserError(f"world file {path}: {file} is not the file of arrays that was written with it (SHA-256)")
    return arrays["parameter"], file


GROUP = "recsim_mnar.worlds"
"""Entry-point group in which a package announces its worlds: ``name = package.module:Class``."""


@dataclass(frozen=True)
class Entry:
    """Registered world.

    Attributes:
        name: name of the world on the command line.
        module: name of the module that defines the class.
        kind: name of the class.
        default: name of the default preset; empty if the class has none.
        summary: description of one line; empty if it must be read from the class.
    """

    name: str
    module: str
    kind: str
    default: str = ""
    summary: str = ""

    def world_class(self) -> type[World]:
        """Import and return the class.

        Raises:
            UserError: it cannot be imported, is no kind of world, or is abstract.
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
        """Return the one-line description of each preset, by name."""
        return {name: text for name, (_, text) in self.world_class().presets.items()}

    def simulator(self) -> Any:
        """Import and return the function that the class names in ``simulated_by``."""
        return imported("simulation", self.world_class().simulated_by)


_OWN_WORLDS = (
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


def _announced_worlds(ours: bool) -> dict[str, Entry]:
    """Return the worlds that entry points announce, by name: this package's if ``ours``, else other packages'."""
    entries = {}
    for name, point in announced(GROUP).items():
        module, _, kind = point.value.partition(":")
        if module.startswith(f"{_PACKAGE}.") == ours:
            entries[name] = Entry(name, module, kind)
    return entries


WORLDS: dict[str, Entry] = {entry.name: entry for entry in _OWN_WORLDS} | _announced_worlds(ours=True)
"""The package's own worlds; :func:`worlds` adds those that other packages announce."""


def worlds() -> dict[str, Entry]:
    """Return all worlds by name: this package's, and those that other packages announce as entry points.

    Nothing is imported, so a package that cannot be imported raises an error only when its world is used.
    """
    return {**_announced_worlds(ours=False), **WORLDS}


def of_a_world(name: str) -> Any:
    """Return an object that the package of one of this package's announced worlds exports; None if none exports it.

    Args:
        name: name of the object, in ``__all__`` of that package.
    """
    for entry in _announced_worlds(ours=True).values():
        package = importlib.import_module(entry.module.rpartition(".")[0])
        if name in package.__all__:
            return getattr(package, name)
    return None


def listed() -> list[tuple[str, str]]:
    """Return (name, description) of every world, sorted; the error message replaces a description that fails."""
    rows = []
    for name, entry in worlds().items():
        try:
            summary = entry.summary or _summary(entry.world_class())
        except UserError as error:
            summary = str(error)
        rows.append((name, summary))
    return sorted(rows)


def listed_presets() -> list[tuple[str, str]]:
    """Return (``<world> <preset>``, description) of every preset of the worlds that can be imported."""
    out = []
    for world, entry in worlds().items():
        try:
            out += [(f"{world} {name}", text) for name, text in entry.presets().items()]
        except UserError:  # `listed` shows the reason
            continue
    return out


def entry_of(name: str) -> Entry:
    """Return the registry entry of a world, with its default preset and summary.

    Args:
        name: name of a world, ``package.module:Class``, or path of a world file; the parameters in a file replace the
            default preset.

    Raises:
        UserError: an unknown name (the message suggests the nearest), or a class that is no world.
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
        name: name of the world, ``package.module:Class`` for a class of your own, or path of a world file
            (``WORLD.toml``; ``WORLD.toml#3`` is the third member of its ensemble).
        preset: name of a preset; None for the world's default.
        settings: parameters to change, as ``name=value`` texts or as a mapping from names to values.
        **params: parameters to change, as keywords: ``make_world("sessions", n_items=10)``.

    Raises:
        UserError: an unknown name (the message suggests the nearest), a setting that breaks a rule, or a class that is
            no world (the message says what it lacks).
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
    base_params = _base_params(name, preset)
    if changes and not base_params.to_dict():
        first = next(iter(changes))
        raise UserError(
            f"the {entry.name} world takes no parameters, {first!r} is none of them: give the class params_class, a "
            "dataclass derived from recsim_mnar.worlds.params.Params"
        )
    if isinstance(changes, Mapping):
        changed = base_params.with_keywords(changes)
    else:
        changed = base_params.with_settings(changes)
    try:
        if kind.params_class is not World.params_class:
            made = kind(changed)
        else:
            made = kind()
    except TypeError as error:
        # A deeper frame in the traceback means that __init__ itself raised the error; only a failed call is explained.
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise
        raise UserError(
            f"world {entry.name!r} cannot be made: its __init__ must take its parameters and nothing else "
            f"({described(error)})"
        ) from error
    return as_world(made)


def _base_params(name: str, preset: str | None) -> Params:
    """Return the parameters before any are set: those of a world file, or of a preset.

    Raises:
        UserError: a world file with a preset, or an error of :func:`_params_of_preset`.
    """
    entry = entry_of(name)
    kind = entry.world_class()
    if not is_world_file(name):
        return _params_of_preset(entry, kind, preset)
    if preset is not None:
        raise UserError(f"preset {preset}: {name} has its parameters already; omit the preset")
    stored: Params = kind.params_class.from_dict(read_world_file(name).params)
    return stored


def left_behind(world: World, name: str, preset: str | None, settings: Iterable[str]) -> list[str]:
    """Describe counts of items that a changed ``n_items`` left behind, in sentences (:meth:`Params.left_behind`).

    Args:
        world: world that :func:`make_world` made.
        name: its name.
        preset: name of its preset; None for the world's default.
        settings: changed parameters, as names or ``name=value`` texts.
    """
    names = {setting.partition("=")[0].strip() for setting in settings}
    if "n_items" not in names:
        return []
    return world.params.left_behind(_base_params(name, preset), names)


def _params_of_preset(entry: Entry, kind: type[World], preset: str | None) -> Params:
    """Return the parameters of a preset; if ``preset`` is None, those of the default preset or of the class.

    Raises:
        UserError: an unknown preset (the message suggests the nearest), or a parameter without a default.
    """
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
    """Return the one-line description of a class of worlds."""
    return kind.summary or (inspect.getdoc(kind) or "").partition("\n")[0]

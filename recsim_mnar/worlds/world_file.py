"""A world in a file: its name, its parameters and where its arrays lie; made by ``calibrate`` or by hand.

A TOML file with ``world``, a table ``params``, and where there are arrays a table ``arrays`` with the file's name
(beside this one) and its SHA-256. An ensemble is a list of tables ``ensemble`` of the parameters that differ.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recsim_mnar.errors import UserError

SUFFIX = ".toml"
_MEMBER = re.compile(r"^(?P<path>.*\.toml)#(?P<member>\d+)$", re.IGNORECASE)


@dataclass(frozen=True)
class WorldFile:
    """What a file says.

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
    """Whether what is given as a world's name is a file's, ``WORLD.toml`` or ``WORLD.toml#3``."""
    return name.lower().endswith(SUFFIX) or _MEMBER.match(name) is not None


def read_world_file(name: str) -> WorldFile:
    """The world that a file describes; with ``#i`` behind it the ensemble's i-th, from 1.

    Raises:
        UserError: no such file, no such member, an array file that is missing or not the one that was written.
    """
    found = _MEMBER.match(name)
    path, member = (Path(found["path"]), int(found["member"])) if found else (Path(name), 0)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"world file {path} does not exist") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"world file {path} cannot be read: {str(error).splitlines()[0]}") from None
    world, params, ensemble = content.get("world"), content.get("params"), content.get("ensemble", [])
    if not isinstance(world, str) or not isinstance(params, dict) or not isinstance(ensemble, list):
        raise UserError(f'world file {path} needs world = "sessions" or another name, and a table [params]')
    params = dict(params)
    if member:
        if member > len(ensemble):
            raise UserError(f"world file {path} has an ensemble of {len(ensemble)}: there is no member {member}")
        params.update(ensemble[member - 1])
    return WorldFile(path, world, {**params, **_array_params(path, content)}, content)


def _array_params(path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """The parameter that names the file of arrays, where there is one; its digest is looked at."""
    arrays = content.get("arrays")
    if arrays is None:
        return {}
    file = path.parent / Path(str(arrays.get("file", ""))).name
    if not file.is_file():
        raise UserError(f"world file {path}: its arrays {file} are missing; they belong beside it")
    if hashlib.sha256(file.read_bytes()).hexdigest() != arrays.get("sha256"):
        raise UserError(f"world file {path}: {file} is not the file of arrays that was written with it (SHA-256)")
    return {str(arrays["parameter"]): str(file)}

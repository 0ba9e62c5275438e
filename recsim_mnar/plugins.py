"""What others bring: objects named ``package.module:name``, and those that installed packages announce."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from recsim_mnar.errors import UserError, described, nearest


@functools.cache
def announced(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group by name, as installed packages announce them."""
    return {point.name: point for point in entry_points(group=group)}


def imported(
    what: str, spec: str, *, base: type[Any] | None = None, wanted: Callable[[Any], bool] | None = None
) -> Any:
    """What ``package.module:name`` names.

    Args:
        what: word for messages, such as ``world``.
        spec: its place.
        base: class whose subclasses are proposed where the module has no such name.
        wanted: says of a class whether it is proposed, where that is no question of what it derives from.

    Raises:
        UserError: it is written otherwise, the module cannot be imported, or has nothing of that name.
    """
    path, _, attribute = spec.partition(":")
    if not (path and attribute) or path.startswith("."):
        raise UserError(f"{what} {spec!r}: write it as package.module:name")
    try:
        module = importlib.import_module(path)
    except ImportError as error:
        raise UserError(f"{what} {spec!r}: module {path!r} cannot be imported: {error}") from error
    except SyntaxError as error:
        raise UserError(f"{what} {spec!r}: {error.filename}, line {error.lineno}: {error.msg}") from error
    except UserError:
        raise
    except (Exception, SystemExit) as error:  # a module's own code may raise anything
        raise UserError(f"{what} {spec!r}: importing {path!r} raised {described(error)}") from error
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            classes = {n: v for n, v in vars(module).items() if isinstance(v, type)}
            known = [n for n, v in classes.items() if (base and issubclass(v, base)) or (wanted and wanted(v))]
            raise UserError(
                f"{what} {spec!r}: {path} has no {attribute!r}" + (f"; {nearest(attribute, known)}" if known else "")
            )
        found = getattr(found, part)
    return found

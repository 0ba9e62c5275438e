"""Fitted policies on disk: one ``.npz`` of arrays and a JSON text, without pickle."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.runs.files import path_of, replacing

_META = "__meta__"
"""Name of the array in the ``.npz`` file that holds class, name and parameters as a JSON text."""

_FORMAT = 1
"""Version of the file format."""

Arrays = dict[str, NDArray[Any]]


class Stored:
    """Base of policies that are saved to disk and rebuilt from their fitted arrays and parameters.

    The constructor of a subclass must take ``n_items``, ``name``, each fitted array by its name and, if ``fitted``
    returns any parameters, ``parameters``.
    """

    n_items: int
    name: str

    def fitted(self) -> tuple[Arrays, Mapping[str, Any]]:
        """Return the state to save.

        Returns:
            arrays: fitted arrays by name.
            parameters: parameters of JSON types by name.
        """
        return {}, {}

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: Arrays, parameters: Mapping[str, Any]) -> Self:
        """Return the policy rebuilt from the arrays and parameters that :meth:`fitted` returned, without any user."""
        extra: dict[str, Any] = {"parameters": parameters} if parameters else {}
        return cls(n_items=n_items, name=name, **arrays, **extra)  # type: ignore[call-arg]

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`recsim_mnar.policies.Policy.describe`."""
        return {"name": self.name, **self.fitted()[1]}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted policy, without its users' states, as an ``.npz`` file.

        The file is written under a temporary name and then renamed, so an interrupted call leaves no damaged file.

        Raises:
            UserError: a fitted array holds Python objects.
        """
        arrays, parameters = self.fitted()
        # NumPy would pickle arrays of objects; `savez` has the argument `allow_pickle` only from version 2.2 on.
        for name, values in arrays.items():
            if np.asarray(values).dtype.hasobject:
                raise UserError(f"policy {self.name!r} cannot be saved: its array {name!r} holds Python objects")
        kind = type(self)
        meta = {
            "format": _FORMAT,
            "class": f"{kind.__module__}:{kind.__qualname__}",
            "n_items": self.n_items,
            "name": self.name,
            "parameters": parameters,
        }
        with replacing(path) as temporary, open(temporary, "wb") as file:
            arrays = {_META: np.array(json.dumps(meta, sort_keys=True)), **arrays}
            np.savez(file, **arrays)  # type: ignore[arg-type]  # arrays by name

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read the policy that :meth:`save` wrote, without any user.

        Raises:
            UserError: no such file, not a saved policy, or one of another class.
        """
        path = path_of(path)
        if not path.exists():
            raise UserError(f"{path} does not exist")
        try:
            arrays = read_arrays(path)
            meta = json.loads(str(arrays.pop(_META)))
            kind_name, n_items, name, parameters = (meta[key] for key in ("class", "n_items", "name", "parameters"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # TypeError: JSON, but not an object
            raise UserError(
                f"{path} is not a saved policy: it must be an .npz file written by save() ({error})"
            ) from None
        if meta.get("format") != _FORMAT:
            raise UserError(f"{path} has format {meta.get('format')}, this version reads format {_FORMAT}")
        kind = _class_named(str(kind_name))
        if not (isinstance(kind, type) and issubclass(kind, cls)):
            hint = "" if kind is not None else ", which is not known here: import its module first"
            raise UserError(f"{path} holds a {kind_name}, not a {cls.__name__}{hint}")
        return kind.refitted(int(n_items), str(name), arrays, parameters)


def _class_named(stored: str) -> Any:
    """Return the class that a file names as ``module:Class``; None if there is no such class.

    Only modules of this package are imported, so that a file cannot run code of its choice; any other module must be
    loaded already.
    """
    module, _, name = stored.partition(":")
    try:
        if module.startswith("recsim_mnar."):
            importlib.import_module(module)
    except ImportError:
        return None
    return getattr(sys.modules.get(module), name, None)

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
_FORMAT = 1

_AGENTS = "recsim_mnar.agents"

MOVED = {
    f"{_AGENTS}.{old}": f"{_AGENTS}.{folder}.{old}"
    for folder, modules in {
        "factors": ("mf", "mf_ratings", "svd"),
        "neighbours": ("knn", "profile_cf"),
        "purchases": ("factor_policy",),
    }.items()
    for old in modules
} | {
    f"{_AGENTS}.lists": f"{_AGENTS}.baselines",
    f"{_AGENTS}.off_policy.policy": f"{_AGENTS}.off_policy.learners",
    f"{_AGENTS}.bandits.counting": f"{_AGENTS}.bandits.linear",
}
"""Modules of agents by the names that files written by version 0.1.0 know them by."""


Arrays = dict[str, NDArray[Any]]


class Stored:
    """Base of policies that are rebuilt from their fitted arrays and parameters.

    Its constructor takes ``n_items``, ``name``, each of the arrays by name, and ``parameters`` where it has any.
    """

    n_items: int
    name: str

    def fitted(self) -> tuple[Arrays, Mapping[str, Any]]:
        """Fitted arrays by name, and parameters of JSON types."""
        return {}, {}

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: Arrays, parameters: Mapping[str, Any]) -> Self:
        """Return the policy that :meth:`fitted` describes, without any user."""
        extra: dict[str, Any] = {"parameters": parameters} if parameters else {}
        return cls(n_items=n_items, name=name, **arrays, **extra)  # type: ignore[call-arg]

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`recsim_mnar.policies.Policy.describe`."""
        return {"name": self.name, **self.fitted()[1]}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted policy, not its users' states, as an ``.npz`` file (a temporary name, then renamed)."""
        arrays, parameters = self.fitted()
        # NumPy would pickle them; its own `allow_pickle` is an argument of `savez` from version 2.2 on only.
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
        except (ValueError, KeyError, TypeError, RecursionError) as error:  # TypeError: JSON, and no table
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
    """Return the class of a stored ``module:Class``, moved ones included; None if there is none.

    A file runs no code: a module that is not this package's must be loaded already.
    """
    module, _, name = stored.partition(":")
    module = MOVED.get(module, module)
    try:
        if module.startswith("recsim_mnar."):
            importlib.import_module(module)
    except ImportError:
        return None
    return getattr(sys.modules.get(module), name, None)

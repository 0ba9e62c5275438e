"""A world fitted to a log: its best fit, an ensemble, what the log says of them and what it does not."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.receipts import arrays_digest, digest_of
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.registry import SUFFIX, entry_of, make_world, read_world_file
from recsim_mnar.worlds.sessions.catalogue import Catalogue

FORMAT = 1


@dataclass(frozen=True)
class FittedWorld:
    """A world fitted to a log.

    Attributes:
        world: its name.
        params: of the best fit.
        ensemble: parameters of each member.
        identified: by name what the log says: ``value``, ``low`` and ``high`` (90 %), ``why``, a sentence.
        not_identified: by name what it does not: ``used``, ``low`` and ``high`` of the ensemble's range, ``why``.
        facts: statistics of the log.
        method: sentences on how the fit and the ensemble were made.
        catalogues: of the best fit and of each member, where the world has its items from them.
        path: of the file that it was read from or written to; None before.
    """

    world: str
    params: Params
    ensemble: Sequence[Params]
    identified: dict[str, dict[str, Any]]
    not_identified: dict[str, dict[str, Any]]
    facts: dict[str, Any]
    method: list[str] = field(default_factory=list)
    catalogues: list[Catalogue] | None = None
    path: Path | None = None

    def make(self, i: int | None = None) -> Any:
        """The world: of the best fit, or of the ensemble's member ``i``, from 0; UserError where there is none."""
        if i is not None and not 0 <= i < len(self.ensemble):
            raise UserError(f"the ensemble has {len(self.ensemble)} worlds, from 0: there is no number {i}")
        params: Any = self.params if i is None else self.ensemble[i]
        kind: Any = entry_of(self.world).world_class()
        more = {} if self.catalogues is None else {"catalogue": self.catalogues[0 if i is None else i + 1]}
        return kind(params, **more)

    def to_dict(self) -> dict[str, Any]:
        """All but arrays, JSON types."""
        best = self.params.to_dict()
        return {
            "format": FORMAT,
            "world": self.world,
            "params": best,
            "identified": self.identified,
            "not_identified": self.not_identified,
            "facts": self.facts,
            "method": self.method,
            "ensemble": [{k: v for k, v in p.to_dict().items() if v != best[k]} for p in self.ensemble],
        }

    def digest(self) -> str:
        """Sha256 of all it holds."""
        return digest_of({**self.to_dict(), "arrays": arrays_digest(self._arrays())})

    def save(self, path: str | Path) -> FittedWorld:
        """Write ``WORLD.toml`` and, where there are arrays, ``WORLD.npz``; returns the world of that file."""
        import tomli_w

        path = Path(path)
        if path.suffix.lower() != SUFFIX:
            raise UserError(f"{path}: a world's file ends in {SUFFIX}")
        content = self.to_dict()
        for params in (content["params"], *content["ensemble"]):
            params.pop("catalogue_file", None)
            params.pop("catalogue_member", None)
        if self.catalogues is not None:
            arrays = path.with_suffix(".npz")
            with replacing(arrays) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, **self._arrays())
            digest = hashlib.sha256(arrays.read_bytes()).hexdigest()
            content["arrays"] = {"file": arrays.name, "sha256": digest, "parameter": "catalogue_file"}
            for i, member in enumerate(content["ensemble"]):
                member["catalogue_member"] = i + 1
        with replacing(path) as temporary:
            temporary.write_text(tomli_w.dumps(content), encoding="utf-8")
        return dataclasses.replace(self, path=path)

    def _arrays(self) -> dict[str, Any]:
        arrays = ((i, *array) for i, each in enumerate(self.catalogues or []) for array in each.arrays().items())
        return {f"{name}_{i}" if i else name: values for i, name, values in arrays}

    @classmethod
    def load(cls, path: str | Path) -> FittedWorld:
        """Read what :meth:`save` wrote; UserError where there is no such file."""
        best, found = make_world(str(path)), read_world_file(str(path))
        told: Mapping[str, Any] = found.content
        members: list[Any] = [make_world(f"{path}#{i + 1}") for i in range(len(told.get("ensemble", [])))]
        catalogues = [w.catalogue for w in (best, *members)] if "arrays" in told else None
        known, unknown, facts = (told.get(name, {}) for name in ("identified", "not_identified", "facts"))
        params, method = [w.params for w in members], told.get("method", [])
        return cls(found.world, best.params, params, known, unknown, facts, method, catalogues, Path(path))

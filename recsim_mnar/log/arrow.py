"""Columns of a log as pyarrow tables, and their metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.tables.arrow import metadata_in
from recsim_mnar.tables.files import is_text
from recsim_mnar.tables.parts import Parts

META_KEY = b"recsim_mnar"
"""In the metadata of a file: how its log was made."""


def metadata_of(provenance: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Schema metadata with the provenance of a log."""
    meta = json.dumps({"schema_version": schema.SCHEMA_VERSION, **provenance}, sort_keys=True)
    return {META_KEY: meta.encode()}


def arrow_of(columns: Mapping[str, NDArray[Any]], metadata: Mapping[bytes, bytes]) -> Any:
    """A pyarrow Table of columns as a Log holds them: the schema's types, and nulls.

    Under a null stands what stands for it in memory, and no number is copied.
    """
    import pyarrow as pa

    arrays = []
    for name, values in columns.items():
        column = schema.BY_NAME.get(name) or schema.OPTIONAL.get(name)
        if name == "event":
            array = pa.DictionaryArray.from_arrays(pa.array(values), pa.array(schema.EVENTS))
        elif column is not None and column.null is not None:
            null = np.isnan(values) if column.dtype.kind == "f" else values == column.null
            array = pa.array(values, mask=null)
        else:
            array = pa.array(values)
        arrays.append(array)
    return pa.table(arrays, names=list(columns)).replace_schema_metadata(dict(metadata))


def event_codes(values: Any, source: str, first_row: int = 1) -> NDArray[Any]:
    """Codes of events from their names; messages number rows from ``first_row``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array(schema.EVENTS)
    named = pa.types.is_dictionary(values.type) and pa.types.is_string(values.type.value_type)
    if named and not values.null_count:  # a look at each name instead of at each row
        codes = []
        for chunk in values.chunks:
            known = pc.index_in(chunk.dictionary.cast(pa.string()), value_set=names)
            if known.null_count:
                break
            codes.append(np.asarray(known, np.int8)[np.asarray(chunk.indices)])
        else:
            return np.concatenate([np.zeros(0, np.int8), *codes])
    try:
        text = values.cast(pa.string())
    except pa.ArrowException:
        raise UserError(f"{source}: column 'event' ({values.type}) must hold organic or bandit") from None
    found = pc.index_in(text, value_set=names)
    if found.null_count:
        row = int(np.flatnonzero(found.is_null().to_numpy())[0])
        raise UserError(f"{source}: row {row + first_row}: event must be organic or bandit, got {text[row].as_py()!r}")
    codes_of_all: NDArray[Any] = found.to_numpy()
    return codes_of_all


def parsed_provenance(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    """The provenance in the metadata of a Parquet file's schema; empty where there is none."""
    return parsed_metadata(metadata, META_KEY)


def parsed_metadata(metadata: Mapping[bytes, bytes] | None, key: bytes) -> dict[str, Any]:
    """A table of JSON in the metadata of a Parquet file's schema; empty where there is none.

    Raises:
        UserError: something else stands there, or what another version of the schema wrote.
    """
    meta = (metadata or {}).get(key)
    try:
        found = json.loads(meta) if meta else {}
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UserError(f"the metadata {key.decode()!r} is no table of JSON: the file was changed; write it anew")
    version = found.pop("schema_version", schema.SCHEMA_VERSION)
    if type(version) is not int or version != schema.SCHEMA_VERSION:
        raise UserError(
            f"schema version {json.dumps(version)[:20]}: this package reads version {schema.SCHEMA_VERSION}. Read the "
            "file with the package that wrote it, or write it anew"
        )
    return found


def provenance_of(path: str | os.PathLike[str] | Parts) -> dict[str, Any]:
    """How a log was made, as its file, or the first of its parts, says; empty where it says nothing, as text tables do.

    Raises:
        UserError: no such file, or one that cannot be read.
    """
    part = (path if isinstance(path, Parts) else Parts.of(path)).first
    if is_text(part):
        return {}
    try:
        return parsed_provenance(metadata_in(part))
    except UserError as error:
        raise UserError(f"{part.name}: {error}") from None

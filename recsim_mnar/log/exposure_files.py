"""The files of exposures: a table of their cells, and a table of propensities."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.log import schema
from recsim_mnar.log.arrow import parsed_metadata
from recsim_mnar.runs.files import check_utf8, replacing
from recsim_mnar.runs.folder import RunFolder
from recsim_mnar.tables.arrow import read_table
from recsim_mnar.tables.files import is_text, write_table
from recsim_mnar.tables.parts import Parts
from recsim_mnar.tables.text import typed_table

FILE, TABLE_FILE = "exposures.parquet", "propensities.npz"
_META_KEY = b"recsim_mnar_exposures"


def write(
    folder: Path, columns: Mapping[str, NDArray[Any]], known: Mapping[str, Any], propensities: NDArray[Any] | None
) -> None:
    """Write the columns with what else is ``known`` of them (JSON types), and the propensities where there are any."""
    import pyarrow as pa

    table = pa.table(dict(columns))
    run_config = {**known, "schema_version": schema.SCHEMA_VERSION}
    table = table.replace_schema_metadata({_META_KEY: json.dumps(run_config)})
    with RunFolder.fill(folder, keep_others=True) as into:
        if propensities is not None:
            with into.recording(TABLE_FILE) as to, replacing(to) as temporary, temporary.open("wb") as file:
                np.savez(file, propensities=propensities)
        with into.recording(FILE, rows=table.num_rows) as to:
            write_table(table, to)


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The columns of a folder that :func:`write` filled or of a Parquet or CSV file, and what is known of them.

    Raises:
        UserError: nothing there, nothing readable, or not what was written.
    """
    check_utf8(path)
    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{file} does not exist: name a folder that holds {FILE}, or a Parquet or CSV file")
    parts = Parts.of(file)
    table = typed_table(file) if is_text(file) else read_table(parts.first, held=parts.index is not None)
    known = parsed_metadata(table.schema.metadata, _META_KEY)
    propensities = file.with_name(TABLE_FILE)
    if known and propensities.is_file():
        known["propensities"] = read_arrays(parts.held(propensities), ("propensities",))["propensities"]
    return {name: table.column(name).to_numpy() for name in table.column_names}, known

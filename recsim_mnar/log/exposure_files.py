"""The files in which exposures lie: a table of their cells, and a table of propensities beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log import schema
from recsim_mnar.log.files import replacing, write_table

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
    if propensities is not None:
        with replacing(folder / TABLE_FILE) as temporary, temporary.open("wb") as file:
            np.savez(file, propensities=propensities)
    write_table(table, folder / FILE)


def read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The columns of a folder that :func:`write` filled or of a Parquet or CSV file, and what is known of them.

    Raises:
        UserError: nothing there, or nothing readable.
    """
    import pyarrow as pa
    import pyarrow.csv as pacsv
    import pyarrow.parquet as pq

    file = path / FILE if path.is_dir() else path
    if not file.is_file():
        raise UserError(f"{file} does not exist: name a folder that holds {FILE}, or a Parquet or CSV file")
    try:
        table = pacsv.read_csv(file) if file.suffix.lower() == ".csv" else pq.read_table(file)
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{file} is not a readable table: {str(error).splitlines()[0]}") from None
    meta = (table.schema.metadata or {}).get(_META_KEY)
    known: dict[str, Any] = json.loads(meta) if meta else {}
    known.pop("schema_version", None)
    beside = file.with_name(TABLE_FILE)
    if meta and beside.is_file():
        with np.load(beside, allow_pickle=False) as stored:
            known["propensities"] = stored["propensities"]
    return {name: table.column(name).to_numpy() for name in table.column_names}, known

"""Xing: job seekers and job postings of the RecSys Challenge 2017, with impressions as recommendations.

Nothing is shipped and nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from exposure_propensities import Matches
from numpy.typing import NDArray
from purchase_history import PurchaseHistory, at_least, history_of, need_file

from recsim_mnar.errors import UserError

SOURCE = (
    "Xing gave the files of the RecSys Challenge 2017 (interactions.csv, users.csv, items.csv, tabs between) to its "
    "participants at www.recsyschallenge.com/2017 under the challenge's licence; they are not published any more"
)
IMPRESSION, POSITIVE = 0, (1, 2, 3)
"""Interaction types: shown; click, bookmark, and reply or application, which count as purchases."""

ATTRIBUTES = ("discipline_id", "career_level", "industry_id", "country", "region")
"""Attributes that users and postings share, beside the titles; as in the challenge's own baseline."""

_DAY = 86_400


def load_xing(folder: str | Path, *, min_periods: int = 13, min_visits: int = 3) -> PurchaseHistory:
    """Positive interactions and impressions by day.

    Args:
        folder: with ``interactions.csv`` (user_id, item_id, interaction_type, created_at; tabs between).
        min_periods: days on which an item was clicked, bookmarked or applied to, at least.
        min_visits: days on which a user was shown or did something, at least.

    Raises:
        UserError: a missing file or column, or nothing left.
    """
    path = Path(folder) / "interactions.csv"
    names = ("user_id", "item_id", "interaction_type", "created_at")
    parts: list[NDArray[np.int64]] = []
    for batch in _batches(path, names):
        kind, day = batch["interaction_type"], batch["created_at"] // _DAY
        code = np.where(kind == IMPRESSION, 1, np.where(np.isin(kind, POSITIVE), 2, 0))
        rows = np.stack([batch["user_id"], batch["item_id"], day, code])[:, code > 0]
        parts.append(np.unique(rows, axis=1))
    if not parts:
        raise UserError(f"{path} has no rows")
    rows = np.unique(np.concatenate(parts, axis=1), axis=1)
    days, day = np.unique(rows[2], return_inverse=True)
    users, user = np.unique(rows[0], return_inverse=True)
    items, item = np.unique(rows[1], return_inverse=True)
    bought, shown = rows[3] == 2, rows[3] == 1
    if not shown.any():
        raise UserError(
            f"{path} has no interaction_type {IMPRESSION} (an impression): the files of the 2016 challenge keep "
            "impressions apart and are not read; this loader reads those of 2017"
        )
    kept_users = at_least(user, day, len(users)) >= min_visits
    kept_items = at_least(item[bought], day[bought], len(items)) >= min_periods
    kept_items &= np.isin(np.arange(len(items)), item[shown])
    if not (kept_users.any() and kept_items.any()):
        raise UserError(f"{path}: nothing is left after the filters: is this the whole file?")
    new_user, new_item = np.cumsum(kept_users) - 1, np.cumsum(kept_items) - 1
    present = np.zeros((int(kept_users.sum()), len(days)), bool)
    present[new_user[user[kept_users[user]]], day[kept_users[user]]] = True
    keep = kept_users[user] & kept_items[item]
    columns: dict[str, NDArray[Any]] = {}
    for prefix, flags in (("", keep & bought), ("r_", keep & shown)):
        columns |= {
            f"{prefix}user": new_user[user[flags]],
            f"{prefix}item": new_item[item[flags]],
            f"{prefix}period": day[flags],
        }
    return history_of("xing", columns, present, (users[kept_users], items[kept_items], days))


def load_matches(folder: str | Path, history: PurchaseHistory) -> Matches:
    """What users and postings have in common, for :func:`recsim_mnar.estimators.propensities.exposure.matching`.

    Args:
        folder: with ``users.csv`` (id, jobroles, ...) and ``items.csv`` (id, title, ...), tabs between.
        history: whose users and items, in whose order.

    Raises:
        UserError: a missing file or column, or a user or an item without a row.
    """
    codes = []
    tokens = []
    for file, title, wanted in (("users.csv", "jobroles", history.users), ("items.csv", "title", history.items)):
        table = _table(Path(folder) / file, ("id", title, *ATTRIBUTES))
        order = np.argsort(table["id"], kind="stable")
        place = np.minimum(np.searchsorted(table["id"][order], wanted), len(order) - 1)
        row = order[place]
        unknown = table["id"][row] != wanted
        if unknown.any():
            raise UserError(f"{Path(folder) / file} has no row with id {wanted[unknown][0]}")
        codes.append(np.stack([np.asarray(table[name], str)[row] for name in ATTRIBUTES], axis=1))
        tokens.append([frozenset(t for t in str(text).split(",") if t) for text in np.asarray(table[title], str)[row]])
    return Matches(codes[0], codes[1], tokens[0], tokens[1])


def _batches(path: Path, names: tuple[str, ...]) -> Iterator[dict[str, NDArray[np.int64]]]:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    need_file(path, SOURCE)
    header = _header(path, names)
    # ids are whole numbers in every release of the files; types differ between its parts if they are inferred
    options = pacsv.ConvertOptions(
        include_columns=[header[name] for name in names], column_types={header[name]: pa.int64() for name in names}
    )
    try:
        with pacsv.open_csv(
            path, parse_options=pacsv.ParseOptions(delimiter="\t"), convert_options=options,
            read_options=pacsv.ReadOptions(block_size=1 << 24),
        ) as reader:  # fmt: skip
            for batch in reader:
                empty = [name for name in names if batch[header[name]].null_count]
                if empty:
                    raise UserError(f"{path}: column {empty[0]!r} has rows without a value")
                yield {name: batch[header[name]].to_numpy() for name in names}
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is not a readable table: {str(error).splitlines()[0]}") from None


def _table(path: Path, names: tuple[str, ...]) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    need_file(path, SOURCE)
    header = _header(path, names)
    try:
        table = pacsv.read_csv(
            path,
            parse_options=pacsv.ParseOptions(delimiter="\t", quote_char=False),
            convert_options=pacsv.ConvertOptions(include_columns=list(header.values()), strings_can_be_null=False),
        )
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is not a readable table: {str(error).splitlines()[0]}") from None
    if len(table) == 0:
        raise UserError(f"{path} has no rows")
    ids = table[header["id"]]
    if not pa.types.is_integer(ids.type) or ids.null_count:
        raise UserError(f"{path}: column 'id' must hold whole numbers without gaps, it holds {ids.type}")
    return {name: table[header[name]].to_numpy() for name in names}


def _header(path: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Column of each name; the challenge's files write a table's name and a dot before it."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            given = file.readline().rstrip("\r\n").split("\t")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a readable table: its first line is not UTF-8 ({error.reason})") from None
    short = {column.rpartition(".")[2]: column for column in given}
    if not "".join(given):
        raise UserError(f"{path} is empty")
    for name in names:
        if name not in short:
            raise UserError(f"{path} has no column {name!r}; it has {', '.join(short)}")
    return {name: short[name] for name in names}

"""Rating data: ML-100K, Coat and Yahoo R3, read from where the user put them.

Nothing is shipped and nothing is downloaded. A missing file is named exactly, with where its owner publishes it and
under which terms.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.log.ratings import Floats, Ratings
from recsim_mnar.runs.files import path_of

STARS = (1.0, 2.0, 3.0, 4.0, 5.0)

ML100K_SOURCE = (
    "GroupLens publishes ML-100K (ml-100k/u.data) at grouplens.org/datasets/movielens/100k for research, "
    "redistribution not allowed; RecBole's copy is recbole/dataset_example/ml-100k/ml-100k.inter in the PyPI package "
    "recbole"
)
COAT_SOURCE = (
    "Schnabel et al. 2016 publish Coat (train.ascii, test.ascii, user_item_features/) at "
    "www.cs.cornell.edu/~schnabts/mnar under CC BY-NC 4.0"
)
YAHOO_SOURCE = (
    "Yahoo Webscope gives R3 (ydata-ymusic-rating-study-v1_0-train.txt, -test.txt) at webscope.sandbox.yahoo.com to "
    "academic researchers under its own licence"
)


@dataclass(frozen=True)
class RatingStudy:
    """Self-selected ratings, and ratings of items drawn at random, by the same users.

    Attributes:
        name: name of the data.
        train: ratings of items that users chose (missing not at random).
        test: ratings of items drawn uniformly (missing completely at random).
        propensities: (U, I) published probabilities that a rating is in ``train``; None if none are published.
        user_features: (U, p) features; None if there are none.
        item_features: (I, q) features; None if there are none.
    """

    name: str
    train: Ratings
    test: Ratings
    propensities: Floats | None = None
    user_features: Floats | None = None
    item_features: Floats | None = None

    def overlap(self) -> NDArray[np.bool_]:
        """Mark the test ratings of a (user, item) cell that is also in the training data, (n_test,) bool."""
        n_items = self.train.n_items
        test_cell = self.test.users * n_items + self.test.items
        return np.isin(test_cell, self.train.users * n_items + self.train.items)


def load_ml100k(path: str | Path) -> Ratings:
    """Read ML-100K from GroupLens's ``u.data`` or RecBole's ``ml-100k.inter``, or a folder with one of them.

    Users and items are numbered 0 .. 942 and 0 .. 1681, in the files' order of ids.

    Raises:
        UserError: no such file, or one that is not of either format.
    """
    path = path_of(path)
    if path.is_dir():
        candidates = [path / name for name in ("u.data", "ml-100k.inter", "ml-100k/u.data")]
        path = next((candidate for candidate in candidates if candidate.is_file()), candidates[0])
    _need(path, ML100K_SOURCE)
    # RecBole names and types its columns in a first line, GroupLens does not.
    with open(path, encoding="latin-1") as file:
        first = file.readline()
    if "::" in first or ("," in first and "\t" not in first):
        raise UserError(
            f"{path} is not ML-100K's u.data, which has tabs between its columns, but looks like a later MovieLens "
            "release: give u.data, or read a table with commas with read_ratings"
        )
    users, items, values = _triples(path, skip=int("rating" in first))
    return _on_scale(path, lambda: Ratings(users - 1, items - 1, values, int(users.max()), int(items.max())))


def read_ratings(path: str | Path) -> Ratings:
    """Read ratings 1 to 5 from a table: CSV, TSV, RecBole's ``.inter``, or GroupLens's ``u.data`` without names.

    In a table with names the columns are those whose names begin with user, item (or movie) and rating; in one without
    names they are the first three. Users and items are numbered in the order of their ids.

    Raises:
        UserError: no such file, no such column, or a rating outside 1..5.
    """
    path = path_of(path)
    _need(path, "A file of ratings has the columns user, item and rating, with commas or tabs.")
    with open(path, encoding="latin-1") as file:
        first = file.readline()
    delimiter = ","
    if "\t" in first:
        delimiter = "\t"
    # RecBole's names end with their type, as in user_id:token.
    names = [name.split(":")[0].strip(' "\r\n').lower() for name in first.split(delimiter)]
    has_names = any(name.startswith("rating") for name in names)
    columns = [0, 1, 2]
    if has_names:
        for place, beginnings in enumerate((("user",), ("item", "movie"), ("rating",))):
            candidates = [k for k, name in enumerate(names) if name.startswith(beginnings)]
            if not candidates:
                raise UserError(f"{path} has no column {beginnings[0]!r}, only {', '.join(names)}")
            columns[place] = candidates[0]
    table = _table(
        path, dtype=str, delimiter=delimiter, usecols=columns, skiprows=int(has_names), comments=None, quotechar='"'
    )
    values = _stars(path, table[:, 2])
    users, n_users = _numbered(table[:, 0])
    items, n_items = _numbered(table[:, 1])
    return _on_scale(path, lambda: Ratings(users, items, values, n_users, n_items))


def _table(path: Path, **form: Any) -> NDArray[Any]:
    """Read a text table as a matrix with ``numpy.loadtxt``.

    Args:
        path: path of the file.
        **form: arguments of ``numpy.loadtxt``: type, delimiter, columns.

    Raises:
        UserError: not a table of this form, or one without rows.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a table without rows is refused below
            table = np.loadtxt(path, ndmin=2, encoding="latin-1", **form)
    except (ValueError, IndexError) as error:
        raise UserError(
            f"{path}: not a table of user, item, rating: {str(error).splitlines()[0]}; write the three columns with "
            "commas or tabs between"
        ) from None
    if len(table) == 0:
        raise UserError(f"{path} has no ratings")
    return table


def _stars(path: Path, texts: NDArray[Any]) -> Floats:
    """Convert ratings in text, (n,), to numbers.

    Args:
        path: path of the file, for messages.
        texts: (n,) ratings as the file has them.

    Raises:
        UserError: a rating that is no number, or none of 1 to 5; the first such row is named.
    """
    import pandas as pd

    values: Floats = pd.to_numeric(pd.Series(texts), errors="coerce").to_numpy(np.float64)
    unread = np.flatnonzero(np.isnan(values))
    if unread.size:
        row = int(unread[0])
        raise UserError(f"{path}: row {row + 1}: the rating {str(texts[row])!r} is not a number: write 1 to 5")
    outside = np.flatnonzero(~np.isin(values, STARS))
    if outside.size:
        row = int(outside[0])
        more = ""
        if outside.size > 1:
            more = f" ({outside.size:,} such rows)"
        stars = ", ".join(f"{star:g}" for star in STARS)
        raise UserError(f"{path}: row {row + 1}: the rating {values[row]:g} is not one of {stars}{more}")
    return values


def _numbered(ids: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    """Number ids 0, 1, ... in ascending order: numerical if all are integers, else alphabetical.

    Returns:
        numbers: (n,) number of each id.
        n_distinct: number of different ids.
    """
    with contextlib.suppress(ValueError):
        ids = ids.astype(np.int64)
    distinct, numbers = np.unique(ids, return_inverse=True)
    return numbers, len(distinct)


def load_coat(folder: str | Path, *, with_test: bool = True) -> RatingStudy:
    """Read the Coat study: 290 people, 300 coats, 24 chosen and 16 random ratings each.

    Args:
        folder: folder with ``train.ascii``, ``test.ascii`` and optionally ``propensities.ascii`` and
            ``user_item_features/``.
        with_test: read the test file; otherwise ``test`` is empty.

    Raises:
        UserError: a missing file, a matrix of the wrong shape, a rating outside 1..5.
    """
    folder = path_of(folder)
    train = _matrix(folder / "train.ascii")
    if not train.any():
        raise UserError(f"{folder / 'train.ascii'} has no ratings: every entry is 0")
    shape = (train.shape[0], train.shape[1])
    test = np.zeros(shape)
    if with_test:
        test = _matrix(folder / "test.ascii", shape)
    published = folder / "propensities.ascii"
    propensities = None
    if published.is_file():
        propensities = _matrix(published, shape)
        if not np.all((propensities > 0) & (propensities <= 1)):
            raise UserError(f"{published}: propensities must be above 0 and at most 1")
    features = folder / "user_item_features"
    return RatingStudy(
        "coat",
        _on_scale(folder / "train.ascii", lambda: Ratings.from_dense(train)),
        _on_scale(folder / "test.ascii", lambda: Ratings.from_dense(test)),
        propensities,
        _features(features / "user_features.ascii", shape[0]),
        _features(features / "item_features.ascii", shape[1]),
    )


def load_yahoo_r3(folder: str | Path, *, with_test: bool = True) -> RatingStudy:
    """Read Yahoo! R3: 311,704 self-selected ratings of 15,400 users and ten random songs of each of the first 5,400.

    Args:
        folder: folder with ``ydata-ymusic-rating-study-v1_0-train.txt`` and ``-test.txt``: user, song and rating from
            1, with tabs between.
        with_test: read the test file; otherwise ``test`` is empty.

    Raises:
        UserError: a missing file, or a line that is not three whole numbers, or a rating outside 1..5.
    """
    parts: list[tuple[Path, NDArray[np.int64], NDArray[np.int64], Floats]] = []  # path, users, items, ratings
    for name in ("train", "test"):
        path = path_of(folder) / f"ydata-ymusic-rating-study-v1_0-{name}.txt"
        _need(path, YAHOO_SOURCE)
        triples = (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        if name == "train" or with_test:
            triples = _triples(path)
        parts.append((path, *triples))
    n_users = max(int(users.max(initial=0)) for _, users, _, _ in parts)
    n_items = max(int(items.max(initial=0)) for _, _, items, _ in parts)
    train, test = (
        _on_scale(path, partial(Ratings, users - 1, items - 1, values, n_users, n_items))
        for path, users, items, values in parts
    )
    return RatingStudy("yahoo-r3", train, test)


def _on_scale(path: Path, make: Callable[[], Ratings]) -> Ratings:
    """Return the ratings that ``make`` builds, checked to be 1 to 5 stars.

    Args:
        path: path of the file, which errors name.
        make: function that builds the ratings; its errors, which know no file, get the path in front.
    """
    try:
        return make().check_scale(STARS)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _need(path: Path, source: str) -> None:
    """Raise UserError if there is no such file; the message ends with a sentence on where to get it."""
    if not path.is_file():
        raise UserError(f"{path} does not exist. {source}")


def _triples(path: Path, skip: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Read the first three columns of a table of numbers without quotes.

    Args:
        path: path of the file.
        skip: number of header lines.

    Returns:
        users: (n,) user ids, from 1.
        items: (n,) item ids, from 1.
        values: (n,) ratings.

    Raises:
        UserError: no such table, or a user or item that is no whole number from 1.
    """
    table = _table(path, skiprows=skip, usecols=(0, 1, 2))
    ids = table[:, :2]
    bad = np.flatnonzero(~((ids == np.floor(ids)) & (ids >= 1) & (ids < 2**31)).all(axis=1))
    if len(bad):
        raise UserError(f"{path}: row {bad[0] + skip}: user and item must be whole numbers from 1")
    return table[:, 0].astype(np.int64), table[:, 1].astype(np.int64), table[:, 2]


def _features(path: Path, n: int) -> Floats | None:
    """Read the features of ``n`` users or items, (n, p) finite numbers; None if there is no such file."""
    if not path.is_file():
        return None
    matrix = _matrix(path, (n, None))
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise UserError(f"{path}: row {bad[0]} holds a value that is not a finite number")
    return matrix


def _matrix(path: Path, shape: tuple[int, int | None] | None = None) -> Floats:
    """Read a matrix of numbers with spaces between.

    Args:
        path: path of the file.
        shape: expected number of rows and columns; None for any, also for the columns alone.

    Raises:
        UserError: no such file, no matrix of numbers, or one of another shape.
    """
    _need(path, COAT_SOURCE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an empty matrix is refused below
            matrix = np.loadtxt(path, ndmin=2)
    except ValueError as error:
        raise UserError(f"{path} is not a matrix of numbers: {str(error).splitlines()[0]}") from None
    if matrix.size == 0:
        raise UserError(f"{path} is empty")
    if shape is not None and (matrix.shape[0] != shape[0] or (shape[1] is not None and matrix.shape[1] != shape[1])):
        raise UserError(f"{path} has shape {matrix.shape}, expected {shape[0]} x {shape[1] or 'features'}")
    return matrix

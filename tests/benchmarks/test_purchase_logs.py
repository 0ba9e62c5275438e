"""Loaders of purchase logs on made-up files of the same formats, and filters by hand."""

import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from study_modules import study_module

load_dunnhumby = study_module("sato2019", "dunnhumby").load_dunnhumby
load_tafeng = study_module("sato2019", "tafeng").load_tafeng

WEEKS = np.arange(1, 11)


def write_journey(folder, transactions, promotions, products):
    """Rows (household, store, product, week), (product, store, week, mailer) and (product, category, type)."""
    columns = {
        "transactions": (("household_id", "store_id", "product_id", "week"), transactions),
        "promotions": (("product_id", "store_id", "week", "mailer_location"), promotions),
        "products": (("product_id", "product_category", "product_type"), products),
    }
    for name, (names, rows) in columns.items():
        table = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
        pq.write_table(pa.table(table), folder / f"{name}.parquet")


@pytest.fixture
def journey(tmp_path):
    """Store 7 is open every week, store 8 in week 1 only; products 11 and 12 are soup, 13 is tea, 14 is rare."""
    products = [
        (11, "SOUP", "CANNED"),
        (12, "SOUP", "FRESH"),
        (13, "TEA", "BLACK"),
        (14, "RARE", "X"),
        (15, None, None),
    ]
    transactions = [(100, 7, 11, w) for w in WEEKS] + [(200, 7, 13, w) for w in WEEKS]
    transactions += [(300, 7, 11, 1), (100, 8, 13, 1), (100, 7, 14, 2), (200, 7, 12, 3), (100, 7, 15, 4)]
    transactions += [(400, 7, 13, w) for w in (2, 4, 6, 8, 10)]
    promotions = [(12, 7, w, "A") for w in (1, 2, 3)] + [(13, 7, w, "0") for w in WEEKS]
    promotions += [(13, 7, 5, "D"), (14, 7, 2, "A"), (13, 8, 1, "A"), (11, 9, 1, "A"), (99, 7, 1, "A")]
    # a mailer in every week, as in the data, that shows what is rarely bought
    promotions += [(14, 7, w, "C") for w in WEEKS]
    write_journey(tmp_path, transactions, promotions, products)
    return tmp_path


def test_dunnhumby_keeps_what_the_paper_keeps(journey):
    history = load_dunnhumby(journey, level="category")
    assert history.users.tolist() == [100, 200, 400]  # 300 visits in one week only
    assert history.items.tolist() == ["SOUP", "TEA"]  # RARE is bought in one week
    dense = np.stack([matrix.toarray() for matrix in history.cells], axis=2)
    recommended, purchased = dense & 1, dense >> 1
    assert np.array_equal(purchased[0, 0], np.ones(10))
    assert np.array_equal(purchased[0, 1], np.zeros(10))  # store 8 is left out
    assert np.array_equal(purchased[1, 0], WEEKS == 3)
    assert np.array_equal(recommended[0, 0], WEEKS <= 3)  # whoever visits store 7 in weeks 1..3
    assert np.array_equal(recommended[0, 1], WEEKS == 5)
    assert recommended[2].sum() == 1  # user 400 visits in even weeks
    assert history.present.sum(axis=1).tolist() == [10, 10, 5]
    assert "10 weeks of mailers" in history.notes[0]
    exposures = history.exposures()
    assert (exposures.n_users, exposures.n_items, exposures.n_periods) == (3, 2, 10)
    flags = exposures.flags(np.arange(3)[:, None], np.arange(2), 2)
    assert np.array_equal(flags, np.stack([recommended, purchased])[:, :, :, 2] > 0)
    counts = history.counts()
    assert np.array_equal(counts.treated_purchases, (dense == 3).sum(axis=2))
    assert np.array_equal(counts.treatments, recommended.sum(axis=2))
    statistics = history.statistics()
    assert statistics["purchases"] == purchased.sum() == statistics["R-P"] + statistics["NR-P"]
    assert statistics["recommendations"] == recommended.sum()
    assert statistics["recommendations a user-period"] == recommended.sum() / history.present.sum()


def test_tafeng_recommends_what_is_cheap(tmp_path):
    days = [f"11/{d}/2000" for d in range(1, 11)]
    rows = ["TRANSACTION_DT,CUSTOMER_ID,AGE_GROUP,PIN_CODE,PRODUCT_SUBCLASS,PRODUCT_ID,AMOUNT,ASSET,SALES_PRICE"]
    for k, day in enumerate(days):
        price = 85 if k in (2, 3) else 100
        rows.append(f"{day},1,A,B,10,1001,2,0,{2 * price}")
        if k % 2 == 0:
            rows.append(f"{day},2,A,B,20,2001,1,0,50")
    rows.append(f"{days[0]},3,A,B,10,1001,1,0,100")
    file = tmp_path / "ta_feng_all_months_merged.csv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8-sig")
    with zipfile.ZipFile(tmp_path / "ta_feng.csv.zip", "w") as archive:
        archive.write(file, file.name)
    for path in (tmp_path, file):
        history = load_tafeng(path, min_periods=5, min_visits=5)
        assert history.users.tolist() == [1, 2]
        assert history.items.tolist() == [10]  # 20 is never cheap
        dense = np.stack([matrix.toarray() for matrix in history.cells], axis=2)
        assert np.flatnonzero(dense[0, 0] & 1).tolist() == [2, 3]
        assert np.flatnonzero(dense[1, 0] & 1).tolist() == [2]  # user 2 shops on even days only
        assert (dense[0, 0] & 2).all()
        assert not (dense[1, 0] & 2).any()

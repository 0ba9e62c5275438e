import numpy as np
import pytest

from recsim_mnar.purchases.exposures import Exposures
from toys import refused
from twins.logs import log_of
from twins.purchases_log import propensity_matrix


def grid(seed=0, shape=(4, 5, 6)):
    """Flags of every cell, (U, I, P), of a small world."""
    draw = np.random.default_rng(seed)
    return draw.random(shape) < 0.3, draw.random(shape) < 0.4


def of_grid(z, y, **more):
    u, i, t = np.nonzero(z | y)
    shuffled = np.random.default_rng(1).permutation(len(u))
    u, i, t = u[shuffled], i[shuffled], t[shuffled]
    return Exposures(u, i, t, z[u, i, t], y[u, i, t], *z.shape, **more)


def test_what_goes_in_as_a_grid_comes_out_as_one():
    z, y = grid()
    exposures = of_grid(z, y)
    u, i, t = np.indices(z.shape)
    flags = exposures.flags(u, i, t)
    np.testing.assert_array_equal(flags[0], z)
    np.testing.assert_array_equal(flags[1], y)


def test_classes_are_the_sets_of_every_user_in_every_period():
    z, y = grid(2)
    exposures = of_grid(z, y)
    periods = [3, 1]
    classes = exposures.classes(periods)
    for sets, mask in ((classes.rp, z & y), (classes.rnp, z & ~y), (classes.nrp, ~z & y)):
        rows = mask[:, :, periods].transpose(2, 0, 1).reshape(-1, z.shape[1])
        for row, flags in enumerate(rows):
            np.testing.assert_array_equal(sets.of(row), np.flatnonzero(flags))
    active = {k * 4 + user for k, period in enumerate(periods) for user in exposures.active_users(period)}
    assert set(classes.active()) == active


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 5, 1), (1, 5, 6), (4, 5, 6)])
def test_a_table_of_propensities_is_looked_up_as_it_broadcasts(shape):
    table = np.random.default_rng(3).random(shape).astype(np.float32)
    expected = np.broadcast_to(table, (4, 5, 6))
    exposures = of_grid(*grid(), propensities=table)
    np.testing.assert_array_equal(exposures.propensity_of(*np.indices(expected.shape)), expected)
    np.testing.assert_array_equal(propensity_matrix(exposures, 2), expected[:, :, 2])
    by_function = exposures.with_propensities(lambda u, i, t: expected[u, i, t])
    np.testing.assert_array_equal(by_function.propensity, exposures.propensity)


def test_files_hold_everything(tmp_path):
    exposures = of_grid(*grid(), propensities=np.full((4, 5, 1), 0.25), provenance={"seed": 7})
    exposures.write(tmp_path / "run")
    back = Exposures.read(tmp_path / "run")
    for name in ("user", "item", "time", "recommended", "purchased", "propensity"):
        np.testing.assert_array_equal(getattr(back, name), getattr(exposures, name))
        assert getattr(back, name).dtype == getattr(exposures, name).dtype
    assert back.provenance == {"seed": 7}
    assert (back.n_users, back.n_items, back.n_periods) == (4, 5, 6)
    np.testing.assert_array_equal(back.propensities, exposures.propensities)


def test_a_file_of_ones_own_needs_five_columns(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("user,item,time,recommended,purchased\n0,1,0,1,0\n1,0,2,0,1\n1,1,2,0,0\n")
    exposures = Exposures.read(file)
    assert (len(exposures), exposures.n_users, exposures.n_items, exposures.n_periods) == (2, 2, 2, 3)
    file.write_text("user,item,time,purchased\n0,1,0,0\n")
    with refused("no column 'recommended'"):
        Exposures.read(file)


def test_a_log_tells_its_exposures():
    reward, time = [np.nan, 1.0, 0.0, np.nan], [0.0, 0.0, 1.0, 1.0]
    log = log_of([0, 0, 0, 1], [3, -1, -1, 2], [-1, 1, 3, -1], 0.5, reward, time)
    exposures = Exposures.from_log(log, n_items=5)
    assert exposures.time.tolist() == [0, 0, 1, 1]
    assert exposures.item.tolist() == [1, 3, 3, 2]
    assert exposures.recommended.tolist() == [True, False, True, False]
    assert exposures.purchased.tolist() == [True, True, False, True]


def exposures_of(user=(0, 1), item=(0, 1), time=(0, 0), recommended=(1, 0), purchased=(0, 1), sizes=(2, 2, 1), **more):
    return Exposures(user, item, time, recommended, purchased, *sizes, **more)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"user": (0, 2)}, "user 2 is out of range 0..1"),
        ({"item": (0, 1.5)}, "item must be a whole number, got 1.5"),
        ({"purchased": (0, 2)}, "purchased must be true or false"),
        ({"recommended": (0, 0)}, "row 0 is neither recommended nor purchased"),
        ({"user": (0, 0), "item": (1, 1)}, "user 0, item 1, period 0 has two rows"),
        ({"user": (0,)}, "of one length"),
        ({"user": ("a", "b")}, "must hold numbers"),
        ({"propensities": np.full((2, 2, 1), np.nan)}, "a propensity is nan"),
        ({"propensities": np.full((2, 2), 0.5)}, "do not broadcast to users x items x periods"),
        ({"propensities": np.full((2, 2, 1), 1.5)}, "a propensity is 1.5, outside"),
    ],
)
def test_bad_exposures_are_refused_in_one_line(wrong, message):
    with refused(message):
        exposures_of(**wrong)


def test_what_learning_needs_is_asked_for_in_one_line(tmp_path):
    with refused("with recommendation flags"):
        exposures_of(recommended=(0, 0), purchased=(1, 1)).validate()
    with refused("period 1 has no purchase"):
        exposures_of(sizes=(2, 2, 2)).validate()
    with refused("no propensities"):
        exposures_of().need_propensities()
    with refused("no period 1"):
        exposures_of().rows_of(1)
    with refused("a function cannot be written"):
        exposures_of(propensities=lambda u, i, t: np.full(len(u), 0.5)).write(tmp_path)
    with refused("does not exist"):
        Exposures.read(tmp_path / "nowhere")


def test_metadata_that_say_something_else_are_refused_in_one_line(tmp_path):
    import pyarrow.parquet as pq

    z, y = grid()
    of_grid(z, y).write(tmp_path / "made")
    table = pq.read_table(tmp_path / "made" / "exposures.parquet")
    damaged = {k: v.replace(b"n_users", b"n_usejs") for k, v in table.schema.metadata.items()}
    pq.write_table(table.replace_schema_metadata(damaged), tmp_path / "own.parquet")
    with refused(r"own\.parquet: its metadata have 'n_usejs'"):
        Exposures.read(tmp_path / "own.parquet")

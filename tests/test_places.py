"""Where the blocks of a log are: what a worker reads by path is what one process reads on its way."""

import numpy as np
import pytest

from recsim_mnar.log.blocks import LogBlocks, read_place
from recsim_mnar.log.table import write_part
from recsim_mnar.tables.files import write_table
from twins.logs import log_of


def rows_of(first, n_users):
    row = np.arange(3 * n_users)
    return log_of(first + row // 3, action=row % 5, propensity=0.2, reward=row % 2)


def parts_of(folder, ending, users=(0, 20, 40), size=10):
    """Parts of 20 users, in row groups of ``size``."""
    folder.mkdir()
    for i, first in enumerate(users):
        rows = [rows_of(k, size).columns for k in range(first, first + 20, size)]
        write_part(folder / f"p{i}.{ending}", rows, {})
    return LogBlocks.open(folder)


@pytest.mark.parametrize("size", [10, 20])
@pytest.mark.parametrize("ending", ["parquet", "arrow"])
def test_a_block_is_read_where_it_lies(tmp_path, ending, size):
    blocks = parts_of(tmp_path / "log", ending, size=size)
    places = blocks.places(10)
    assert [(place.file.name, place.n_rows, place.number) for place in places[:3]] == [
        (f"p0.{ending}", 30, 0),
        (f"p0.{ending}", 30, 30),
        (f"p1.{ending}", 30, 60),
    ]
    assert all(place.file.is_absolute() for place in places)
    for place, block in zip(places, blocks.blocks(10), strict=True):
        assert read_place(place).digest() == block.digest()


def test_blocks_that_lie_in_two_parts_or_among_many_rows_are_read_on_the_way(tmp_path):
    assert parts_of(tmp_path / "in-two", "parquet").places(15) is None
    write_table(rows_of(0, 100).to_arrow(), tmp_path / "one-group.parquet")
    assert LogBlocks.open(tmp_path / "one-group.parquet").places(10) is None


def test_users_out_of_order_are_named_as_on_the_way(tmp_path):
    from recsim_mnar.errors import UserError

    blocks = parts_of(tmp_path / "log", "parquet", users=(0, 40, 20))
    said = []
    for read in (lambda: list(blocks.blocks(10)), lambda: [read_place(place) for place in blocks.places(10)]):
        with pytest.raises(UserError) as raised:
            read()
        said.append(str(raised.value))
    assert said[0] == said[1]

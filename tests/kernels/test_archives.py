"""Arrays from files of unknown make: bombs, code, false headers."""

from __future__ import annotations

import io
import pickle
import resource
import zipfile

import numpy as np
import pytest

from recsim_mnar.kernels import archives
from recsim_mnar.kernels.archives import read_arrays
from recsim_mnar.policies.storage import Stored
from toys import refused

ARRAYS = {
    "a": np.arange(12.0).reshape(3, 4),
    "text": np.array("words"),
    "none": np.empty((0, 3), np.int32),
    "fortran": np.asfortranarray(np.arange(6, dtype=np.int8).reshape(2, 3)),
    "flags": np.array([True, False]),
}


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_arrays_come_back(tmp_path, save):
    save(tmp_path / "a.npz", **ARRAYS)
    found = read_arrays(tmp_path / "a.npz")
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert np.array_equal(found[name], array)
        assert found[name].dtype == array.dtype
        assert found[name].flags.writeable
    assert read_arrays(tmp_path / "a.npz", ("text",)).keys() == {"text"}
    with refused("holds no array 'b'"):
        read_arrays(tmp_path / "a.npz", ("b",))
    with pytest.raises(FileNotFoundError):
        read_arrays(tmp_path / "b.npz")


def test_a_bomb_is_not_unpacked(tmp_path):
    """400 MB of zeros in .4 MB: refused by what the archive says of itself, before a byte is unpacked."""
    with (
        zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w") as file,
    ):
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (50_000_000,)})
        for _ in range(400):
            file.write(bytes(1_000_000))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with refused(r"would unpack from .* to 400,000,\d+ bytes"):
        read_arrays(tmp_path / "bomb.npz")
    with refused("would unpack"):
        Stored.load(tmp_path / "bomb.npz")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_header_that_asks_for_more_than_there_is_is_refused(tmp_path):
    for shape in ((-1,), (3,)):
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive, archive.open("a.npy", "w") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
            file.write(bytes(16))
        with refused(r"a.npz is no .npz file of arrays, or damaged"):
            read_arrays(tmp_path / "a.npz")


def test_no_code_is_run(tmp_path):
    ran = []

    class Evil:
        def __reduce__(self):
            return (ran.append, (1,))

    held = io.BytesIO()
    np.lib.format.write_array(held, np.array([Evil()], object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", held.getvalue())
    with refused("damaged"):
        read_arrays(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(pickle.dumps(1))
    with refused("damaged"):
        read_arrays(tmp_path / "b.npz")
    assert not ran


def test_any_changed_byte_of_the_values_is_noticed(tmp_path):
    """By the archive's own checksum, which NumPy's reader looks at only where it reads to the end."""
    np.savez(tmp_path / "a.npz", a=np.arange(1000.0))
    whole = (tmp_path / "a.npz").read_bytes()
    start = whole.index(np.arange(1000.0).tobytes())
    for at in range(start, start + 8000, 701):
        changed = bytearray(whole)
        changed[at] ^= 16
        (tmp_path / "a.npz").write_bytes(changed)
        with refused("damaged"):
            read_arrays(tmp_path / "a.npz")


def test_the_limits_let_our_own_files_through(tmp_path):
    """A table that numpy.savez wrote is as large as it is, whatever that is."""
    np.savez(tmp_path / "a.npz", a=np.zeros(1000))
    before = archives.LARGEST
    archives.LARGEST = 100
    try:
        assert len(read_arrays(tmp_path / "a.npz")["a"]) == 1000
    finally:
        archives.LARGEST = before


def test_a_header_that_is_no_python_is_refused(tmp_path):
    header = b"{'descr': '<f8', 'shape': (3,\n  "
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(24))
    with refused("damaged"):
        read_arrays(tmp_path / "a.npz")

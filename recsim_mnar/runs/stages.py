"""Stages of long work, whose values are kept in a folder until the whole is done.

``with resumable(folder): ...`` keeps them, and with ``resume`` takes up those that an interrupted run left. The work
names itself (:func:`work`) and its stages (:func:`stage`); outside such a block a stage is simply made. A stage's value
is the same bits whether it was made now, was kept, or nothing is kept at all.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.errors import UserError
from recsim_mnar.runs.files import path_of, refuse_link, replacing, sweep
from recsim_mnar.runs.folder import RunFolder, holder_of, refuse_differences
from recsim_mnar.runs.receipts import INDEX, JOURNAL, refuse_other_versions

Value = TypeVar("Value")
Arrays = Mapping[str, NDArray[Any]]

_STAGES, _JSON = "stages", "json"


@dataclasses.dataclass(frozen=True)
class Form(Generic[Value]):
    """How a value stands in a file: as arrays, and back.

    Attributes:
        arrays: of a value, by name.
        value: of its arrays.
    """

    arrays: Callable[[Value], Arrays]
    value: Callable[[Arrays], Value]

    def settled(self, value: Value) -> Value:
        """The value as it would be read from its file; sums over arrays depend on their order in memory."""
        return self.value({name: _as_read(array) for name, array in self.arrays(value).items()})


def fields_of(kind: Callable[..., Value]) -> Form[Value]:
    """The form of a dataclass whose fields are arrays, numbers and truths."""

    def arrays(value: Any) -> Arrays:
        return {field.name: np.asarray(getattr(value, field.name)) for field in dataclasses.fields(value)}

    def value(found: Arrays) -> Value:
        return kind(**{name: array if array.ndim else array.item() for name, array in found.items()})

    return Form(arrays, value)


def as_text(value: Any) -> NDArray[np.uint8]:
    """A value of JSON types as an array; numbers keep their bits, NaN and infinities too."""
    return np.frombuffer(json.dumps(value, default=np.generic.item).encode(), np.uint8)


def of_text(array: NDArray[Any]) -> Any:
    """The value of :func:`as_text`."""
    return json.loads(array.tobytes())


def in_json(to_json: Callable[[Value], Any], of_json: Callable[[Any], Value]) -> Form[Value]:
    """The form of a value that is said in JSON types."""
    return Form(lambda value: {_JSON: as_text(to_json(value))}, lambda found: of_json(of_text(found[_JSON])))


def _as_read(array: NDArray[Any]) -> NDArray[Any]:
    return np.array(array, order="F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C")


class OtherWorkError(UserError):
    """What is kept in a folder is not of this work."""


class _Kept:
    """The folder that stages are kept in, and within which work one is."""

    def __init__(self, into: RunFolder, within: str = "") -> None:
        self.into, self.within = into, within
        self.taken: set[str] = set()


_kept: contextvars.ContextVar[_Kept | None] = contextvars.ContextVar("kept", default=None)


@contextlib.contextmanager
def resumable(folder: str | Path, *, resume: bool = False) -> Iterator[None]:
    """Within the block, keep in ``folder`` the stages of the work that is done; when all of it is done they go.

    Write what the work results in within the block too: what is kept goes when the block ends, and stays where it fails
    or is killed.

    Args:
        folder: a new one.
        resume: it may hold what an interrupted run left, which is taken up.

    Raises:
        UserError: the folder holds something and ``resume`` is not given, it is of other work or of another state of
            the package or its libraries, it cannot be written, or another process fills it.
    """
    folder = path_of(folder)
    left = any((folder / name).exists() for name in (INDEX, JOURNAL))
    if left and not resume and holder_of(folder) is None:
        raise UserError(f"{folder} was left by a run that was interrupted: --resume takes it up; or remove it")
    with RunFolder.fill(folder, resume=resume) as into:
        refuse_other_versions(f"{folder} holds work that was begun", into.index.made_with)
        into.begin(_STAGES)
        before = _kept.set(_Kept(into))
        try:
            yield
        except UserError as error:
            # What is asked for cannot be: there is nothing to take up, unless it is the disk that was full.
            if not isinstance(error, OtherWorkError) and not isinstance(error.__cause__, OSError):
                _drop_all(into)
            raise
        finally:
            _kept.reset(before)
        _drop_all(into)
    (folder / INDEX).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # somebody else's file is in it
        folder.rmdir()


def _drop_all(into: RunFolder) -> None:
    for name in [*into.index.receipts]:
        into.drop(name)


def unfinished(path: Path) -> Path:
    """The folder next to a file to be written in which the stages of its making are kept until it is."""
    return path.with_name(f"{path.name}.unfinished")


@contextlib.contextmanager
def making(path: Path, *, resume: bool = False, companions: Sequence[Path] = ()) -> Iterator[None]:
    """As :func:`resumable`, of a file that is made in the block, in a folder next to it.

    Half-written files of a killed writer, of it or of its ``companions``, are removed.

    Raises:
        UserError: as :func:`resumable`, and where that folder is a link.
    """
    refuse_link(unfinished(path))
    with resumable(unfinished(path), resume=resume):
        for each in (path, *companions):
            sweep(each.parent, each.name)
        yield


@contextlib.contextmanager
def work(name: str, of: Callable[[], Mapping[str, Any]]) -> Iterator[None]:
    """Within the block stages belong to the work ``name``, which is of ``of()``: JSON types that say all it depends on.

    Raises:
        UserError: what is kept under this name is of something else.
    """
    outer = _kept.get()
    if outer is None:
        yield
        return
    inner = _Kept(outer.into, f"{outer.within}{name}.")
    _begin(inner, json.loads(json.dumps(dict(of()), default=str)))
    before = _kept.set(inner)
    try:
        yield
    finally:
        _kept.reset(before)


def _begin(kept: _Kept, wanted: dict[str, Any]) -> None:
    """Write what the work is of, or find that what is kept is of the same."""
    name = f"{kept.within}json"
    path = kept.into.path / name
    if kept.into.whole(name) is not None:
        remedy = "remove it, or give the command as it was"
        try:
            refuse_differences(f"{kept.into.path} is of a run", json.loads(path.read_text()), wanted, remedy)
        except UserError as error:
            raise OtherWorkError(str(error)) from None
        return
    kept.into.made_here(path)
    kept.into.write_json(name, wanted)


def stage(name: str, make: Callable[[], Value], form: Form[Value]) -> Value:
    """The value of a stage: the one that is kept, or ``make()``, which is kept from then on.

    Args:
        name: unlike that of any other stage of the same work; part of a file's name.
        make: called where none is kept, or none that is whole.
        form: how it stands in its file.
    """
    kept = _kept.get()
    if kept is None:
        return form.settled(make())
    if name in kept.taken:
        raise RuntimeError(f"two stages are called {kept.within}{name}")
    kept.taken.add(name)
    file = f"{kept.within}{name}.npz"
    path = kept.into.path / file
    if kept.into.whole(file) is None:
        content = io.BytesIO()
        np.savez(content, **form.arrays(make()))  # type: ignore[arg-type]  # arrays by name
        with kept.into.recording(file), replacing(path) as temporary:
            temporary.write_bytes(content.getvalue())
    with np.load(path, allow_pickle=False) as found:
        return form.value({each: found[each] for each in found.files})

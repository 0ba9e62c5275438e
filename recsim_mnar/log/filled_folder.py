"""A folder while its one owner fills it: what it holds already, what was written into it, and in the end its index."""

from __future__ import annotations

import contextlib
import contextvars
import json
import os
from collections.abc import Iterator
from pathlib import Path

from recsim_mnar.errors import UserError
from recsim_mnar.log.files import check_utf8, is_temporary, recorded, refuse_link, sync_file, sync_folder
from recsim_mnar.log.owned_folder import LEASE, LOCK, Held, owned
from recsim_mnar.log.receipts import INDEX, JOURNAL, DamagedIndexError, Index, Journal, Receipt, is_as, receipt_of

_OURS = (LOCK, LEASE, JOURNAL)
"""Files that lie in a folder only while it is filled, or after a run that was killed."""


class FilledFolder:
    """What its owner knows of a folder.

    Attributes:
        path: of the folder.
        index: receipts of the files that this run or, where it goes on with one, an earlier run has written.
    """

    def __init__(self, path: Path, held: Held) -> None:
        self.path = path
        self.index = Index()
        self._held = held
        self._journal = Journal(path)
        self._began = False
        self._new: list[Path] = []
        self._last: list[str] = []
        self._unsynced: list[str] = []

    def take_up(self) -> Index:
        """Read the receipts of an earlier run: of its index or, where that is missing or damaged, of its journal.

        Raises:
            UserError: an index.json lies there that another program wrote.
        """
        try:
            index = Index.read(self.path)
            if index is None and _is_json(self.path / INDEX):
                raise UserError(f"{self.path / INDEX} is of another program: name another folder, or move it away")
        except DamagedIndexError:
            index = None
        self.index = self._journal.read() if index is None else index
        return self.index

    def begin(self, made: str | None, made_with: dict[str, str]) -> None:
        """Say what makes the files from here on; receipts of an earlier run are kept where they are of the same.

        An index that lies there is taken away: until the end the folder is not finished.
        """
        kept = self.index.receipts if self.index.made == made else {}
        self.index = Index(dict(kept), made, dict(made_with))
        self._journal.begin(self.index)
        self._began = True
        (self.path / INDEX).unlink(missing_ok=True)

    def whole(self, name: str) -> Receipt | None:
        """The receipt of a file that lies there as it was written; None, and its receipt is dropped, for any other."""
        receipt = self.index.receipts.get(name)
        if receipt is not None and is_as(self.path, receipt):
            return receipt
        self.index.receipts.pop(name, None)
        return None

    @contextlib.contextmanager
    def recording(self, name: str, *, rows: int | None = None, users: tuple[int, int] | None = None) -> Iterator[Path]:
        """Take down the file of this name that is written within the block, by ``replacing`` and under its path.

        Its receipt is in the journal before the file has its name: a file without one was never finished.

        Args:
            name: in the folder.
            rows: of the table that it holds.
            users: the first and the last of them.

        Raises:
            UserError: somebody took the folder away from us, or a link leads out of it.
        """
        self._ready()
        path = self.inside(name)

        def take_down(temporary: Path, target: Path) -> bool:
            if target != path:
                return False
            self._add(receipt_of(temporary, name, rows=rows, users=users))
            return True

        with recorded(take_down):
            yield path

    def record(self, name: str) -> None:
        """Take down a file that lies there, written by others.

        Raises:
            UserError: somebody took the folder away from us.
        """
        self._ready()
        self._add(receipt_of(self.path / name, name))

    def _ready(self) -> None:
        if self._held.lost():
            raise UserError(f"{self.path} was taken over by another process: nothing more is written into it")
        if not self._began:
            self.begin(self.index.made, self.index.made_with)

    def _add(self, receipt: Receipt) -> None:
        self.index.receipts[receipt.file] = receipt
        self._journal.add(receipt)
        self._unsynced.append(receipt.file)

    def drop(self, name: str) -> None:
        """Remove a file that is of use no longer, with its receipt.

        Raises:
            NotOursError: a link leads out of the folder.
        """
        self.index.receipts.pop(name, None)
        self.inside(name).unlink(missing_ok=True)

    def inside(self, name: str) -> Path:
        """Where a file of this name lies.

        Raises:
            NotOursError: a folder on the way to it is a link.
        """
        for above in range(len(Path(name).parts) - 1):
            refuse_link(self.path.joinpath(*Path(name).parts[: above + 1]))
        return self.path / name

    def made_here(self, path: Path) -> None:
        """Remember a file of this process that is of no use alone: it goes where the work fails before it made more."""
        self._new.append(path)

    def at_the_end(self, name: str) -> None:
        """Record a file when all is done: alone it is of no use."""
        self._last.append(name)

    def _finish(self) -> None:
        for name in self._last:
            self.record(name)
        for name in self._unsynced:
            if name in self.index.receipts:
                sync_file(self.path / name)
        for folder in {(self.path / name).parent for name in self._unsynced}:
            sync_folder(folder)
        if self._began:
            self.index.write(self.path)
        self._journal.close(remove=True)

    def _leave(self) -> None:
        """After a failure: keep what was written, and its journal; remove what nobody has a use for."""
        kept = [p for p in self.path.iterdir() if p.name not in _OURS and p not in self._new and not is_temporary(p)]
        self._journal.close(remove=not kept)
        if not kept:
            for file in self._new:
                file.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    """Whether a file is there and whole, whosever it is: one of ours that was cut off is none."""
    try:
        if path.is_file():  # a device or a pipe may never end
            json.loads(path.read_bytes())
            return True
    except (OSError, ValueError, RecursionError):
        pass
    return False


_filled: contextvars.ContextVar[dict[str, FilledFolder] | None] = contextvars.ContextVar("filled", default=None)


def is_filled_here(folder: Path) -> bool:
    """Whether the code that asks runs within a block that fills this folder."""
    return os.path.realpath(folder) in (_filled.get() or {})


@contextlib.contextmanager
def filling(folder: Path, *, resume: bool = False, what: str = "folder") -> Iterator[FilledFolder]:
    """Own a folder, made where it is not there, and fill it; its index is written in the end.

    Within another such block on the same folder that one's object is handed out, and the outermost writes the index. So
    a folder that cannot be written is found at once, and where the work fails before it wrote anything of use, what
    this process made is removed: the command can be given again as it is.

    Args:
        folder: where.
        resume: it may hold something, which :meth:`FilledFolder.take_up` reads.
        what: what the user knows it by.

    Raises:
        UserError: it is a file, holds something, cannot be made or written, or another process owns it; within a
            folder that is being filled, it is a link.
    """
    place = os.path.realpath(folder)
    outer = _filled.get() or {}
    if place in outer:
        yield outer[place]
        return
    check_utf8(folder)
    if os.path.realpath(folder.parent) in outer:
        refuse_link(folder)
    made: list[Path] = []
    try:
        with _owned(folder, what, made, resume) as held:
            it = FilledFolder(folder, held)
            if not resume:
                refuse_occupied(folder, what)
            before = _filled.set({**outer, place: it})
            try:
                yield it
                it._finish()
            except BaseException:
                it._leave()
                raise
            finally:
                _filled.reset(before)
    except BaseException:
        for empty in made:
            with contextlib.suppress(OSError):  # not there, or somebody else's file lies in it
                empty.rmdir()
        raise


@contextlib.contextmanager
def _owned(folder: Path, what: str, made: list[Path], resume: bool) -> Iterator[Held]:
    """Make the folder and own it; folders that were not there are added to ``made``."""
    with contextlib.ExitStack() as stack:
        while True:
            if not resume and not any((folder / name).exists() for name in _OURS):
                refuse_occupied(folder, what)  # before a file of ours lies there
            made += [path for path in (folder, *folder.parents) if path not in made and not path.exists()]
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise UserError(f"{what} {folder} cannot be made: {error.strerror}; name another folder") from None
            try:
                held = stack.enter_context(owned(folder, what))
                break
            except FileNotFoundError:  # its owner failed at this moment and removed it
                continue
            except OSError as error:
                raise UserError(f"{what} {folder} cannot be written: {error.strerror}; name another folder") from None
        yield held


def refuse_occupied(folder: Path, what: str = "folder") -> None:
    """Raise UserError where ``folder`` is a file or holds something; ``what`` is what the user knows it by."""
    if folder.is_file():
        raise UserError(f"{what} {folder} is a file: name a folder")
    if not folder.exists():
        return
    found = [path for path in folder.iterdir() if path.name not in _OURS and not is_temporary(path)]
    if found:
        raise UserError(f"{what} {folder} exists and is not empty: name another folder, or remove it first")

"""Run folders opened, filled, killed, damaged and taken up in any order: nothing that was finished is lost."""

from __future__ import annotations

import contextvars
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from recsim_mnar.runs import files
from recsim_mnar.runs import folder as folders
from recsim_mnar.runs.folder import LOCK, SIMULATION, RunFolder
from recsim_mnar.runs.receipts import INDEX, Index
from recsim_mnar.tables.parts import verify
from toys import refused

CONTENT = {f"entry-{i}.json": f'{{"entry": {i}}}\n'.encode() * (i + 1) for i in range(3)}
ENTRIES = st.sampled_from([*CONTENT])
INTERRUPT = KeyboardInterrupt, KeyboardInterrupt(), None
SETTINGS = {"seed": 3, "code": {}}
DAMAGE = {
    "removed": lambda path: path.unlink(),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a bit": lambda path: path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]),
    "another's": lambda path: path.write_bytes(CONTENT[max(name for name in CONTENT if name != path.name)]),
}


class Owner:
    """Who fills a folder, in a context apart, as in a process of its own."""

    def __init__(self, path, resume):
        self.context = contextvars.copy_context()
        self.block = RunFolder.fill(path, resume=resume)
        self.into = self.context.run(self.block.__enter__)
        self.written: set[str] = set()

    def write(self, name, content=None):
        def write():
            with self.into.recording(name) as path, files.replacing(path) as temporary:
                temporary.write_bytes(CONTENT[name][: len(CONTENT[name]) // 2])
                if content is None:
                    raise KeyboardInterrupt
                temporary.write_bytes(content)

        self.context.run(write)

    def leave(self, *error):
        return self.context.run(self.block.__exit__, *(error or (None, None, None)))

    def is_killed(self):
        """The system closes its files, and nothing is done any more."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self.into, "_clean_up", lambda: None)
            self.leave(*INTERRUPT)
        (self.into.path / LOCK).touch()

    def write_until_killed(self, name, before):
        """Leave the temporary file, or the file without its receipt."""
        left = []

        def killed(*paths, **more):
            path = Path(paths[0])
            left.append((path, path.read_bytes()))
            raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(*((folders.Receipt, "of", killed) if before == "receipt" else (os, "replace", killed)))
            with pytest.raises(KeyboardInterrupt):
                self.write(name, CONTENT[name])
        for path, content in left:
            path.write_bytes(content)


class AnyOrder(RuleBasedStateMachine):
    """A folder and what it must hold: ``done`` are finished entries that nobody touched, ``others`` are strangers'."""

    def __init__(self):
        super().__init__()
        self.place = Path(tempfile.mkdtemp())
        self.path = self.place / "run"
        self.owner: Owner | None = None
        self.done: set[str] = set()
        self.spoilt: set[str] = set()
        self.unsure: set[str] = set()  # whole, and listed where an earlier receipt is of the same bytes
        self.others: dict[str, bytes] = {}
        self.complete = False

    def teardown(self):
        if self.owner is not None:
            self.owner.is_killed()
        shutil.rmtree(self.place)

    # ------------------------------------------------------------------------------------------------- what is done

    @rule(resume=st.sampled_from([True, True, False]))
    def open(self, resume):
        if self.owner is not None:
            with refused("is being written by another process: "):
                Owner(self.path, resume)
            return
        left = any((self.path / name).exists() for name in (SIMULATION, INDEX))
        if (self.others or left) and not (resume and left):
            before = self._bytes()
            with refused("exists and is not empty"):
                Owner(self.path, resume)
            assert self._bytes() == before
            return
        self._own(resume)

    def _own(self, resume):
        self.owner = Owner(self.path, resume)
        into = self.owner.into
        into.begin_run(SIMULATION, SETTINGS, into.refuse_other_run(SIMULATION, SETTINGS))
        whole = {name for name in CONTENT if into.whole(name)}
        assert self.done <= whole <= self.done | self.unsure
        self.done, self.unsure = whole, set()
        assert not [path for path in self.path.iterdir() if files.is_temporary(path)]
        self.complete = False
        self.spoilt = set()

    @precondition(lambda self: self.owner)
    @rule(name=ENTRIES)
    def write(self, name):
        assert (self.owner.into.whole(name) is not None) == (name in self.done)
        self.owner.write(name, CONTENT[name])
        self.owner.written.add(name)
        self.done.add(name)
        self.spoilt.discard(name)

    @precondition(lambda self: self.owner)
    @rule(name=ENTRIES)
    def write_half(self, name):
        with pytest.raises(KeyboardInterrupt):
            self.owner.write(name)

    @precondition(lambda self: self.owner)
    @rule(every=st.booleans())
    def finish(self, every):
        for name in sorted(CONTENT.keys() - self.done) if every else ():
            self.write(name)
        owner, self.owner = self.owner, None
        if any(not (self.path / name).exists() for name in owner.written):
            with pytest.raises(FileNotFoundError, match="entry-"):
                owner.leave()
            return
        owner.leave()
        self.complete = True
        listed = Index.read(self.path).receipts
        assert listed.keys() == self.done | self.spoilt | {SIMULATION}
        assert all(listed[name].bytes == len(CONTENT[name]) for name in self.done | self.spoilt)

    @precondition(lambda self: self.owner)
    @rule()
    def fail(self):
        owner, self.owner = self.owner, None
        assert not owner.leave(*INTERRUPT)

    # ------------------------------------------------------------------------------------------- what befalls a folder

    @precondition(lambda self: self.owner)
    @rule(at=st.sampled_from([None, "receipt", "rename"]), name=ENTRIES)
    def kill(self, at, name):
        owner, self.owner = self.owner, None
        if at is not None:
            owner.write_until_killed(name, at)
            self.unsure = {name} if at == "receipt" else set()
        owner.is_killed()

    @precondition(lambda self: self.done)
    @rule(data=st.data(), how=st.sampled_from([*DAMAGE]))
    def damage(self, data, how):
        name = data.draw(st.sampled_from(sorted(self.done)))
        DAMAGE[how](self.path / name)
        self.done.remove(name)
        self.spoilt.add(name)

    @precondition(lambda self: self.path.is_dir())
    @rule(number=st.integers(0, 1))
    def add_a_stranger(self, number):
        name = f"notes-{number}.md"
        self.others[name] = b"mine"
        (self.path / name).write_bytes(b"mine")

    # --------------------------------------------------------------------------------------------------- what must hold

    def _bytes(self):
        return {
            path.name: path.read_bytes()
            for path in self.path.iterdir()
            if path.name != LOCK and not files.is_temporary(path)
        }

    @invariant()
    def nothing_is_lost(self):
        for name, content in {**self.others, **{name: CONTENT[name] for name in self.done}}.items():
            assert (self.path / name).read_bytes() == content, name

    @invariant()
    def an_index_at_the_end(self):
        assert (self.path / INDEX).exists() == self.complete

    @precondition(lambda self: self.complete)
    @rule()
    def verify(self):
        faults = verify(self.path).faults
        assert {name for name in CONTENT if any(name in line for line in faults)} == self.spoilt
        assert len(faults) == len(self.spoilt)


@pytest.mark.parametrize("examples", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_in_any_order(examples, monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda file: None)  # processes are killed here, the power stays
    bounds = settings(
        max_examples=examples, stateful_step_count=25, deadline=None, derandomize=True,
        phases=[Phase.generate, Phase.shrink],
    )  # fmt: skip
    run_state_machine_as_test(AnyOrder, settings=bounds)

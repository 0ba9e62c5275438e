"""Mutated files before every command that reads them: a line or a result, within limits, never a traceback."""

from __future__ import annotations

import functools
import json
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from children import CPU_SECONDS, MEMORY, child, here_and_now, scratch, warm

from recsim_mnar.errors import UserError
from recsim_mnar.log import Log
from recsim_mnar.policies import registry
from recsim_mnar.policies.storage import Stored
from recsim_mnar.purchases.exposures import Exposures
from recsim_mnar.runs.receipts import INDEX, UNFINISHED

SIMULATE = ("simulate", "--world", "sessions", "--set", "n_items=20", "--set", "n_flips=5", "--policy",
            "user-popularity+epsilon=0.3", "--users", 190, "--train-users", 40, "--truth", "--workers", 1)  # fmt: skip
PURCHASES = ("simulate", "--world", "purchases", "--preset", "quick", "--policy", "popularity", "--users", 30,
             "--train-users", 50, "--truth", "--workers", 1)  # fmt: skip
STUDY = """catalogues = 1
agents = ["random", "popularity"]
protocols = ["loocv"]
[options]
train_users = 20
test_users = 20
arm_users = 20
truth_users = 20
folds = 2
[[worlds]]
world = "sessions"
preset = "quick"
params = { n_items = 20, n_flips = 5 }
"""
WORDS = [b"0", b"-1", b"1e400", b"99999999999999999999", b"null", b"true", b"[]", b"{}", b'""', b'"a"', b"[[[[", b"NaN"]


@cache
def corpus(place: Path) -> Path:
    """A folder of files of every kind that the package reads."""
    here = place / "corpus"
    run = here / "run"
    warm(*SIMULATE, "--seed", 3, "--out", run)
    shutil.copytree(run, here / "cut")
    _unfinished(here / "cut")
    (here / "cut" / "log" / "part-00002.parquet").unlink()
    warm("replay", run, "--policy", "random", "--out", here / "replayed.parquet")
    warm(*_estimate(here / "replayed.parquet", "random"))
    warm("verify", run)
    own = here / "own"
    own.mkdir()
    log = Log.read(run)
    shutil.copy(run / "log" / "part-00001.parquet", own / "a.parquet")
    warm(*SIMULATE, "--seed", 3, "--format", "arrow", "--out", here / "mapped")
    shutil.copytree(run, here / "again" / "run")  # a log, and a folder of parts that are replayed from it
    warm(*_replay_parts(here / "again"))
    shutil.copytree(here / "again", here / "half")
    _unfinished(here / "half" / "replayed")
    (here / "study").mkdir()
    (here / "study" / "study.toml").write_text(STUDY)
    warm("study", here / "study" / "study.toml", "--workers", 1, "--out", here / "study" / "out")
    (here / "open").mkdir()  # Arrow files without receipts
    shutil.copy(here / "mapped" / "log" / "part-00001.arrow", here / "open" / "a.arrow")
    log.select(slice(0, 2000)).with_column("a", log["propensity"][:2000]).write_csv(here / "own.csv")
    warm(*PURCHASES, "--out", here / "purchases")
    bare = here / "bare"  # exposures without receipts
    bare.mkdir()
    for name in ("exposures.parquet", "propensities.npz"):
        shutil.copy(here / "purchases" / name, bare / name)
    learner: Any = registry.learner("item-knn")
    fitted: Any = learner.fit(log, n_items=20, seed=0)
    fitted.save(here / "policy.npz")
    # What no command above has compiled: a child's seconds are those of the file, not of the compiler.
    for words in (
        _estimate(here / "own.csv", "a"),
        _replay(here / "own.csv"),
        _estimate(here / "own"),
        _replay(here / "own"),
    ):
        warm(*words)
        (here / "fuzz-out.parquet").unlink(missing_ok=True)
    return here


def _unfinished(run: Path) -> None:
    """Let the folder of a run be as a kill leaves it."""
    for folder in (run, run / "log"):
        (folder / INDEX).rename(folder / UNFINISHED)


def _estimate(path: Path, target: str = "propensity") -> tuple[object, ...]:
    return ("estimate", path, "--target", target)


def _replay(path: Path) -> tuple[object, ...]:
    return ("replay", path, "--policy", "random", "--out", path.parent / "fuzz-out.parquet")


def _resume(run: Path) -> tuple[object, ...]:
    return (*SIMULATE, "--seed", 3, "--out", run, "--resume")


def _replay_parts(place: Path) -> tuple[object, ...]:
    return ("replay", place / "run", "--policy", "random", "--workers", 1, "--out", f"{place / 'replayed'}/")


def _replay_again(place: Path) -> tuple[object, ...]:
    return (*_replay_parts(place), "--resume")


def _study_again(place: Path) -> tuple[object, ...]:
    return ("study", place / "study.toml", "--workers", 1, "--out", place / "out", "--resume")


Words = Callable[[Path], tuple[object, ...] | Callable[[], object]]
TARGETS: list[tuple[str, int, list[Words]]] = [
    (
        "own/a.parquet",
        6,
        [lambda p: _estimate(p / "own"), lambda p: _replay(p / "own"), lambda p: ("verify", p / "own")],
    ),
    (
        "open/a.arrow",
        4,
        [lambda p: _estimate(p / "open"), lambda p: _replay(p / "open"), lambda p: ("verify", p / "open")],
    ),
    ("mapped/log/part-00001.arrow", 1, [lambda p: _estimate(p / "mapped"), lambda p: ("verify", p / "mapped")]),
    ("mapped/log/index.json", 1, [lambda p: _estimate(p / "mapped"), lambda p: ("verify", p / "mapped")]),
    (
        "again/replayed/replay.json",
        2,
        [lambda p: _replay_again(p / "again"), lambda p: ("verify", p / "again" / "replayed")],
    ),
    (
        "again/replayed/log/index.json",
        1,
        [lambda p: _replay_again(p / "again"), lambda p: _estimate(p / "again" / "replayed", "random")],
    ),
    (
        "again/replayed/log/part-00001.parquet",
        1,
        [lambda p: _replay_again(p / "again"), lambda p: _estimate(p / "again" / "replayed", "random")],
    ),
    ("half/replayed/replay.json", 1, [lambda p: _replay_again(p / "half")]),
    ("half/replayed/.unfinished.json", 1, [lambda p: _replay_again(p / "half")]),
    ("half/replayed/log/.unfinished.json", 1, [lambda p: _replay_again(p / "half")]),
    ("study/out/study.json", 1, [lambda p: _study_again(p / "study")]),
    ("study/out/results.json", 1, [lambda p: _study_again(p / "study")]),
    ("study/out/tasks/sessions-quick-000.json", 1, [lambda p: _study_again(p / "study")]),
    ("own.csv", 2, [lambda p: _estimate(p / "own.csv", "a"), lambda p: _replay(p / "own.csv")]),
    ("run/log/part-00001.parquet", 1, [lambda p: _estimate(p / "run"), lambda p: _resume(p / "run")]),
    (
        "run/log/index.json",
        2,
        [lambda p: _estimate(p / "run"), lambda p: ("verify", p / "run"), lambda p: _resume(p / "run")],
    ),
    (
        "run/index.json",
        2,
        [lambda p: _estimate(p / "run"), lambda p: ("verify", p / "run"), lambda p: _resume(p / "run")],
    ),
    ("run/simulation.json", 2, [lambda p: ("verify", p / "run"), lambda p: _resume(p / "run")]),
    ("run/truth.parquet", 1, [lambda p: ("verify", p / "run"), lambda p: _resume(p / "run")]),
    ("run/catalogue.npz", 1, [lambda p: ("verify", p / "run")]),
    ("cut/simulation.json", 2, [lambda p: _resume(p / "cut"), lambda p: _estimate(p / "cut")]),
    ("cut/.unfinished.json", 2, [lambda p: _resume(p / "cut"), lambda p: _estimate(p / "cut")]),
    ("cut/log/.unfinished.json", 2, [lambda p: _resume(p / "cut"), lambda p: _estimate(p / "cut")]),
    ("cut/.lock", 1, [lambda p: _resume(p / "cut")]),
    ("replayed.parquet", 1, [lambda p: _estimate(p / "replayed.parquet", "random")]),
    ("bare/exposures.parquet", 3, [lambda p: lambda: Exposures.read(p / "bare")]),
    ("bare/propensities.npz", 3, [lambda p: lambda: Exposures.read(p / "bare")]),
    ("purchases/exposures.parquet", 1, [lambda p: ("verify", p / "purchases")]),
    ("policy.npz", 3, [lambda p: lambda: Stored.load(p / "policy.npz")]),
]
DRAWN = [target for target in TARGETS for _ in range(target[1])]


def mutated(data: bytes, draw: random.Random) -> bytes:
    """Some bytes, changed in one of many ways or in several."""
    for _ in range(draw.choice([1, 1, 1, 2, 4])):
        way = draw.randrange(9)
        at, n = draw.randrange(len(data) + 1), min(draw.choice([1, 4, 16, 64, 1024]), max(1, len(data)))
        if way <= 1 and data:
            i = draw.randrange(len(data))
            data = data[:i] + bytes([data[i] ^ 1 << draw.randrange(8)]) + data[i + 1 :]
        elif way == 2:
            data = data[:at]
        elif way == 3:
            data = data[:at] + draw.randbytes(n) + data[at + n :]
        elif way == 4:
            data = data[:at] + draw.randbytes(n) + data[at:]
        elif way == 5:
            data = data[:at] + data[at + n :]
        elif way == 6:
            data = data[:at] + data[at : at + n] * 3 + data[at + n :]
        elif way == 7:
            data = data[:at] + draw.choice([b"\0", b"\xff"]) * n + data[at + n :]
        else:
            data = _other_word(data, at, draw) if b"{" in data[:2] or at % 7 else draw.randbytes(n)
    return data


def _other_word(data: bytes, at: int, draw: random.Random) -> bytes:
    """A number or text of a JSON file, or of the metadata of a table, becomes another value."""
    start = data.find(b": ", at)
    if start < 0:
        return data[:at] + draw.choice(WORDS) + data[at:]
    end = min((e for e in (data.find(sign, start + 2) for sign in (b",", b"\n", b"}")) if e > 0), default=len(data))
    return data[: start + 2] + draw.choice(WORDS) + data[end:]


def fuzzed(place: Path, numbers: range) -> list[dict[str, Any]]:
    """Mutated files, each before one command, one after another in a child; those left when it dies in others."""
    corpus(place)
    found: list[dict[str, Any]] = []
    while len(found) < len(numbers):
        rest = numbers[len(found) :]
        with scratch() as here:
            outcome = here / "outcome.jsonl"
            work = functools.partial(_each, place, rest, outcome)
            ended = child(work, limits=True, seconds=20.0 * len(rest))
            lines = outcome.read_text().splitlines() if outcome.exists() else []
        done = [json.loads(line) for line in lines]
        found += done
        if len(done) < len(rest):  # the one that it was at ended it
            lost = {
                "file": _drawn(rest[len(done)])[1],
                "status": ended.status,
                "clean": False,
                "said": ended.lines[-2:],
            }
            found.append({**lost, "cpu": ended.seconds, "mb": ended.resident >> 20})
    return found


def _each(place: Path, numbers: range, outcome: Path) -> None:
    started = _megabytes()  # a process that is forked has the memory of its parent: a large one in a test session
    with outcome.open("a") as out:
        for number in numbers:
            # Its default action ends the process: no command takes so much CPU.
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            out.write(json.dumps(_one(place, number, started)) + "\n")
            out.flush()


def _drawn(number: int) -> tuple[random.Random, str, Words]:
    draw = random.Random(f"fuzz {number}")
    name, _, ways = draw.choice(DRAWN)
    return draw, name, draw.choice(ways)


def _megabytes() -> int:
    """The most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def _one(place: Path, number: int, started: int) -> dict[str, Any]:
    """One mutated file before one command, in this process, which held so many megabytes when it started."""
    draw, name, words = _drawn(number)
    source = corpus(place)
    with scratch() as here:
        copy = here / "c"
        top = Path(name).parts[0]
        if (source / top).is_dir():
            shutil.copytree(source / top, copy / top)
        else:
            copy.mkdir()
            for each in source.glob(f"{top.partition('.')[0]}*"):
                if each.is_file():
                    shutil.copy(each, copy / each.name)
        file = copy / name
        file.write_bytes(mutated(file.read_bytes() if file.exists() else b'{"host": "a", "pid": 1}', draw))
        what = words(copy)
        began = time.process_time()
        ended = here_and_now((lambda: _run_and_print(what)) if callable(what) else what)
        took = time.process_time() - began
    mb = _megabytes()
    clean = (ended.status == 0 or ended.error is not None) and took < CPU_SECONDS and mb - started < MEMORY >> 20
    outcome = {"file": name, "status": ended.status, "clean": clean, "cpu": round(took, 3), "mb": mb}
    return outcome if clean else {**outcome, "said": ended.lines[-3:]}


def _run_and_print(work: Callable[[], object]) -> None:
    """What the command line does with a mistake."""
    try:
        work()
    except UserError as error:
        import sys

        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None

"""Single faults in a log with receipts: does every reader name the file, and does a resumed run mend it and no more."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from children import bytes_of, command, scratch, warm

SIMULATE = ("simulate", "--world", "sessions", "--set", "n_items=20", "--set", "n_flips=5", "--policy",
            "user-popularity+epsilon=0.3", "--users", 190, "--train-users", 40, "--truth", "--workers", 1)  # fmt: skip
INDEX, RUN_INDEX, MANIFEST = "log/index.json", "index.json", "simulation.json"


@cache
def runs(place: Path) -> dict[int, Path]:
    """Two runs of other seeds, and a file of replay next to each."""
    made = {}
    warm(*SIMULATE, "--seed", 1, "--out", place / "warm")
    warm("replay", place / "warm", "--policy", "random", "--out", place / "warm.parquet")
    warm("estimate", place / "warm.parquet", "--target", "random")
    warm("verify", place / "warm")
    for seed in (3, 8):
        out = place / f"run{seed}"
        for words in (
            (*SIMULATE, "--seed", seed, "--out", out),
            ("replay", out, "--policy", "random", "--out", _replayed(out)),
        ):
            ended = command(*words)
            assert ended.status == 0, ended
        made[seed] = out
    return made


def _replayed(out: Path) -> Path:
    return out.with_name(out.name + "-replayed.parquet")


def _parts(out: Path) -> list[str]:
    return sorted(f"log/{path.name}" for path in (out / "log").glob("part-*"))


def flip(path: Path, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    path.write_bytes(data)


def truncate(path: Path, draw: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: draw.randrange(len(data))])


def remove(path: Path, draw: random.Random) -> None:
    path.unlink()


def _indexes(out: Path) -> list[str]:
    return [INDEX, RUN_INDEX, MANIFEST]


Fault = Callable[[Path, Path, random.Random], list[str]]


def _one(names: Callable[[Path], list[str]], harm: Callable[[Path, random.Random], None]) -> Fault:
    """Harm one of these files."""

    def fault(out: Path, other: Path, draw: random.Random) -> list[str]:
        name = draw.choice(names(out))
        harm(out / name, draw)
        return [name]

    return fault


def _copied(names: Callable[[Path], list[str]]) -> Fault:
    """One of these files is that of another run."""

    def fault(out: Path, other: Path, draw: random.Random) -> list[str]:
        name = draw.choice(names(out))
        shutil.copy(other / name, out / name)
        return [name]

    return fault


def _swap_parts(out: Path, other: Path, draw: random.Random) -> list[str]:
    a, b = draw.sample(_parts(out), 2)
    (out / a).rename(out / "x")
    (out / b).rename(out / a)
    (out / "x").rename(out / b)
    return [a, b]


def _double_part(out: Path, other: Path, draw: random.Random) -> list[str]:
    a, b = draw.sample(_parts(out), 2)
    shutil.copy(out / a, out / b)
    return [b]


def _added_part(out: Path, other: Path, draw: random.Random) -> list[str]:
    source = draw.choice([out, other])
    name = draw.choice(["log/part-00099.parquet", "log/more.parquet", "log/a.pq"])
    shutil.copy(source / draw.choice(_parts(source)), out / name)
    return [name]


KINDS: dict[str, tuple[int, Fault]] = {
    "bit of a part": (130, _one(_parts, flip)),
    "truncated part": (40, _one(_parts, truncate)),
    "removed part": (40, _one(_parts, remove)),
    "swapped parts": (30, _swap_parts),
    "doubled part": (30, _double_part),
    "part of another run": (30, _copied(_parts)),
    "part too many": (20, _added_part),
    "index of another run": (30, _copied(lambda out: [INDEX, RUN_INDEX])),
    "bit of an index or manifest": (30, _one(_indexes, flip)),
    "truncated index or manifest": (10, _one(_indexes, truncate)),
    "removed index or manifest": (10, _one(_indexes, remove)),
}
KIND_OF = [kind for kind, (n, _) in KINDS.items() for _ in range(n)]
READERS: dict[str, Callable[[Path], tuple[object, ...]]] = {
    "estimate": lambda out: ("estimate", out, "--target", "propensity"),
    "estimate of log/": lambda out: ("estimate", out / "log", "--target", "propensity"),
    "replay": lambda out: ("replay", out, "--policy", "random", "--out", out.with_name("r.parquet")),
    "verify": lambda out: ("verify", out),
}


def faulty(place: Path, number: int) -> dict[str, Any]:
    """One fault, held before every reader, and mended by a resumed run."""
    draw = random.Random(f"fault {number}")
    kind = KIND_OF[number]
    sources = runs(place)
    wanted = bytes_of(sources[3])
    with scratch() as here:
        out = here / "run3"
        shutil.copytree(sources[3], out)
        names = KINDS[kind][1](out, sources[8], draw)
        if bytes_of(out) == wanted:
            return {"kind": kind, "named": True, "mended": True, "void": True}
        said = {name: command(*words(out)) for name, words in READERS.items()}
        known = [Path(name).name for name in names] if kind != "index of another run" else ["index.json"]
        lacking = [
            name for name, ended in said.items()
            if not any(each in line for each in known for line in ended.lines) or (ended.error is None)
        ]  # fmt: skip
        before = {path: path.stat().st_ino for path in out.rglob("*.parquet")}
        again = command(*SIMULATE, "--seed", 3, "--out", out, "--resume")
        if kind == "part too many":  # not made here, so not taken away here
            mended = again.error is not None and known[0] in again.error
        else:
            touched = [p for p, inode in before.items() if p.exists() and p.stat().st_ino != inode]
            exactly = {str(p.relative_to(out)) for p in touched} <= set(names) or names[0].endswith(".json")
            mended = again.status == 0 and bytes_of(out) == wanted and exactly
    trial: dict[str, Any] = {"kind": kind, "named": not lacking, "mended": mended}
    if lacking or not mended:
        trial |= {"files": names, "silent": lacking, "resumed": again.lines[-2:]}
        trial["said"] = {name: ended.lines[-1:] for name, ended in said.items()}
    return trial


def faulty_replayed(place: Path, number: int) -> dict[str, Any]:
    """A bit, or the end, of a file of replay, or of its receipt."""
    draw = random.Random(f"replayed {number}")
    source = _replayed(runs(place)[3])
    with scratch() as here:
        file, receipt = here / source.name, here / (source.name + ".index.json")
        shutil.copy(source, file)
        shutil.copy(source.with_name(receipt.name), receipt)
        (flip if number % 4 else truncate)(draw.choice([file, file, receipt]), draw)
        said = [command("estimate", file, "--target", "random"), command("verify", file)]
    return {"named": all(each.error is not None and source.name in each.error for each in said),
            "said": [each.lines[-1:] for each in said]}  # fmt: skip


def without_receipts(place: Path, number: int) -> dict[str, Any]:
    """A bit of a part that a user put into a folder of their own: named, read as it was, or read as something else."""
    from recsim_mnar.log import Log

    draw = random.Random(f"own {number}")
    out = runs(place)[3]
    name = draw.choice(_parts(out))
    with scratch() as here:
        file = here / "own.parquet"
        shutil.copy(out / name, file)
        whole = Log.read(file)
        data = bytearray(file.read_bytes())
        at = draw.randrange(len(data))
        data[at] ^= 1 << draw.randrange(8)
        file.write_bytes(data)
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little") if at < len(data) - 8 else 0
        where = "pages" if at < footer else "footer"
        ended = command("verify", file, limits=True)
        if ended.status == 0:
            try:
                again = Log.read(file)
                same = again.digest() == whole.digest() and again.provenance == whole.provenance
            except Exception:
                return {"where": where, "outcome": "named"}
            return {"where": where, "outcome": "the same" if same else "other values", "at": at}
    return {"where": where, "outcome": "named" if ended.error else "not clean", "said": ended.lines[-1:]}

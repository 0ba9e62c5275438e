"""Disks that are full or may not be written, as small file systems in memory; run in a mount namespace of its own."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

from children import bytes_of, command, scratch
from kills import SIMULATE, TIMES, undisturbed

HERE = Path(__file__).resolve().parent


def can_mount() -> bool:
    """Whether this process may mount file systems in a namespace of its own."""
    words = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(words, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


def _mount(place: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)], check=True)


def full(number: int) -> dict[str, Any]:
    """Simulate on a disk that holds a share of what is needed; then on one that holds all."""
    wanted, _ = undisturbed("simulate")
    draw = random.Random(f"full {number}")
    size = draw.uniform(0.02, 1.05) * sum(-(-len(data) // 4096) * 4096 for data in wanted.values())
    with scratch() as above:
        place = above / "disk"
        place.mkdir()
        _mount(place, f"size={int(size) // 4096 * 4 + 4}k")
        try:
            words = (*SIMULATE, "--out", place / "out")
            first = command(*words)
            one_line = first.status == 0 or (first.error is not None and str(place) in first.error)
            other = command("replay", place / "out", "--policy", "random", "--out", place / "r.parquet")
            one_line &= other.status == 0 or other.error is not None
            (place / "r.parquet").unlink(missing_ok=True)
            (place / "r.parquet.index.json").unlink(missing_ok=True)
            subprocess.run(["mount", "-o", "remount,size=64m", str(place)], check=True)
            again = command(*words, "--resume") if first.status else first
            same = again.status == 0 and bytes_of(place / "out", without=TIMES) == wanted
            left = sorted(path.name for path in place.iterdir() if path.name != "out")
        finally:
            subprocess.run(["umount", str(place)], check=True)
    good = one_line and same and not left
    return {"kib": int(size) >> 10, "status": first.status, "one_line": one_line, "same": same,
            **({} if good else {"said": first.lines[-2:], "again": again.lines[-2:], "left": left})}  # fmt: skip


def read_only() -> dict[str, Any]:
    """A disk that may not be written: every command says so in a line with the path, and readers read."""
    with scratch() as above:
        place = above / "disk"
        place.mkdir()
        _mount(place, "size=64m")
        try:
            out = place / "out"
            assert command(*SIMULATE, "--out", out).status == 0
            subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
            writers = [
                (*SIMULATE, "--out", place / "other"),
                (*SIMULATE, "--out", out, "--resume"),
                ("replay", out, "--policy", "random", "--out", place / "r.parquet"),
                ("estimate", out, "--target", "propensity", "--json", place / "r.json"),
                ("compare", "--preset", "quick", "--out", place / "c"),
            ]
            said = [command(*words) for words in writers]
            readers = [command("estimate", out, "--target", "propensity"), command("verify", out)]
        finally:
            subprocess.run(["umount", str(place)], check=True)
    return {"one_line": [each.error is not None and str(place) in each.error for each in said],
            "readers": [each.status for each in readers], "said": [each.lines[-1:] for each in said]}  # fmt: skip

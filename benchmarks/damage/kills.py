"""Commands killed at random moments and taken up again; and two that start in one folder."""

from __future__ import annotations

import atexit
import random
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

from children import bytes_of, command, scratch, warm

WORLD = ("--world", "sessions", "--set", "n_items=20", "--set", "n_flips=5")
SIMULATE = ("simulate", *WORLD, "--policy", "user-popularity+epsilon=0.3", "--users", 1280, "--train-users", 40,
            "--seed", 3, "--truth", "--workers", 1)  # fmt: skip
REPLAYED = ("user-popularity+epsilon=0.1", "item-knn", "svd+rank=5")
SIZES = ("train_users=40", "test_users=40", "arm_users=40", "truth_users=60", "folds=2")
STUDY = """catalogues = 6
agents = ["random", "user-popularity"]
protocols = ["loocv", "off_policy"]
[options]
train_users = 40
test_users = 40
arm_users = 40
truth_users = 60
folds = 2
[[worlds]]
world = "sessions"
preset = "quick"
params = { n_items = 20, n_flips = 5 }
"""
TIMES = ("timings.json",)
"""A study's times differ from run to run."""
SLOW = '''import time
import numpy as np
class Slow:
    """Acts at random, and takes its time."""
    name = "slow"
    def __init__(self, n_items): self.n_items = n_items
    def act(self, users, uniforms):
        time.sleep(0.01)
        return (uniforms * self.n_items).astype(int), np.full(len(users), 1 / self.n_items)
    def probabilities(self, users): return np.full((len(users), self.n_items), 1 / self.n_items)
'''


@cache
def undisturbed(kind: str) -> tuple[dict[str, bytes], float]:
    """The bytes of an undisturbed run, and the seconds that it takes."""
    with scratch() as place:
        warm(*_words(kind, place / "warm"))
        began = time.monotonic()
        ended = command(*_words(kind, place))
        assert ended.status == 0, ended
        return bytes_of(place / "out", without=TIMES), time.monotonic() - began


@cache
def _log() -> Path:
    """A log to replay, with another to train on: as long as this process lives."""
    place = Path(tempfile.mkdtemp(prefix="damage-log-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    for name, seed, users in (("log", 3, 2560), ("train", 4, 64)):
        warm(*SIMULATE, "--users", users, "--seed", seed, "--out", place / name)
    return place


def _words(kind: str, place: Path) -> tuple[object, ...]:
    if kind == "simulate":
        return (*SIMULATE, "--out", place / "out")
    if kind == "replay":
        policies = (word for name in REPLAYED for word in ("--policy", name))
        return ("replay", _log() / "log", "--train", _log() / "train", *policies, "--workers", 1, "--out",
                f"{place / 'out'}/")  # fmt: skip
    if kind == "compare":
        sizes = (word for name in SIZES for word in ("--option", name))
        return ("compare", *WORLD, "--preset", "quick", "--agents", "random,user-popularity", "--protocols",
                "loocv,off_policy", *sizes, "--catalogues", 6, "--workers", 1, "--out", place / "out")  # fmt: skip
    place.mkdir(exist_ok=True)
    (place / "study.toml").write_text(STUDY)
    return ("study", place / "study.toml", "--workers", 1, "--out", place / "out")


def killed(kind: str, number: int) -> dict[str, Any]:
    """Kill a run once, or a third of them twice, and take it up: the bytes, and what was there at the kill."""
    wanted, seconds = undisturbed(kind)
    draw = random.Random(f"{kind} {number}")
    with scratch() as place:
        words = _words(kind, place)
        before = {path.name for path in place.iterdir()}
        for _ in range(50):  # until the moment comes before the end, which on a crowded machine is not known
            moment = draw.uniform(0.0, seconds)
            first = command(*words, kill_after=moment)
            if first.status == -9:
                break
            shutil.rmtree(place / "out", ignore_errors=True)
        there = sorted(bytes_of(place / "out")) if (place / "out").exists() else []
        if draw.random() < 1 / 3:
            command(*words, "--resume", kill_after=draw.uniform(0.0, 0.5 * seconds))
        last = command(*words, "--resume")
        found = bytes_of(place / "out", without=TIMES)
        left = sorted({path.name for path in place.iterdir()} - before - {"out"})
        same = last.status == 0 and found == wanted and not left
        differ = left + sorted(n for n in {*found, *wanted} if found.get(n) != wanted.get(n))
    parts = [n for n in there if n.endswith((".parquet", ".json")) and "/" in n and ".tmp" not in n]
    return {"killed": first.status == -9, "at": round(moment / seconds, 3), "files": len(there), "parts": len(parts),
            "temporary": sum(".tmp" in n for n in there), "same": same,
            **({} if same else {"differ": differ[:5], "said": last.lines[-3:]})}  # fmt: skip


SLOWLY = [sys.executable, "-m", "recsim_mnar", "simulate", *WORLD, "--policy", "slow_agent:Slow", "--users", "400",
          "--workers", "1", "--train-users", "5"]  # fmt: skip


@cache
def _alone(seed: int) -> dict[str, bytes]:
    """The bytes of the slow agent's run when no second one starts."""
    with scratch() as place:
        (place / "slow_agent.py").write_text(SLOW)
        subprocess.run([*SLOWLY, "--seed", str(seed), "--out", "out"], cwd=place, capture_output=True, check=True)
        return bytes_of(place / "out")


def double_start(number: int) -> dict[str, Any]:
    """Two processes that start in one folder, 0 to 4 s apart, half of them with one seed."""
    draw = random.Random(f"double {number}")
    delay = 4.0 * (number % 10) / 9 if number >= 4 else 0.0
    seeds = (0, 0) if number % 2 == 0 else (0, 9)
    with scratch() as place:
        (place / "slow_agent.py").write_text(SLOW)
        ways = [["--seed", str(seed), "--out", "out"] for seed in seeds]
        if draw.random() < 0.25:
            ways[1].append("--resume")
        started = []
        for i, way in enumerate(ways):
            if i:
                time.sleep(delay)
            pipes: dict[str, Any] = {"stderr": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            started.append(subprocess.Popen([*SLOWLY, *way], cwd=place, **pipes))
        errors = [each.communicate(timeout=300)[1].strip().splitlines() for each in started]
        codes = [each.returncode for each in started]
        owners = [i for i in (0, 1) if codes[i] == 0]
        found = bytes_of(place / "out") if (place / "out").exists() else {}
    wanted = _alone(seeds[owners[0]] if owners else 0)
    refused = [errors[i] for i in (0, 1) if codes[i] == 2]
    # With --resume the same run may be taken up after its end, which changes nothing.
    again = "--resume" in ways[1] and len(owners) == 2 and seeds[0] == seeds[1]
    good = (again or (len(owners), len(refused)) == (1, 1)) and found == wanted
    good &= all(len(lines) == 1 and lines[0].startswith("error: ") for lines in refused)
    outcome = {"delay": round(delay, 2), "seeds": seeds, "statuses": codes, "resume": "--resume" in ways[1]}
    return {**outcome, "refusal": refused[0][0] if refused else None, "same": found == wanted, "good": good}

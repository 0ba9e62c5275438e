"""Commands in children: forked from one process that has read the package, with limits, and killed where asked."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import recsim_mnar.replays.replayed_log as replayed_log
import recsim_mnar.simulation.executor as executor
import recsim_mnar.simulation.items as items
import recsim_mnar.simulation.run_folder as run_folder
from recsim_mnar import cli

SHARD_USERS = 32
"""Of the small logs here, so that they have many parts."""
CPU_SECONDS, WALL_SECONDS, MEMORY = 5, 60.0, 1 << 30
"""What a child may take: of time on a crowded machine more by the wall, and of resident memory."""


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        status: its exit status; minus the signal's number where one ended it.
        lines: that it wrote on standard error.
        seconds: of CPU.
        resident: bytes of memory at most.
    """

    status: int
    lines: list[str]
    seconds: float
    resident: int

    @property
    def error(self) -> str | None:
        """The one line of a mistake; None where there is another ending."""
        output = [line for line in self.lines if line.startswith("error: ")]
        clean = self.status == 2 and len(output) == 1 and not any("Traceback" in line for line in self.lines)
        return output[0] if clean else None


def small_parts() -> None:
    """Let this process and its children write a part for every few users; logs do not depend on it."""
    for module in (executor, items, run_folder, replayed_log):
        module.SHARD_USERS = SHARD_USERS  # type: ignore[attr-defined]
    run_folder.PART_SHARDS = replayed_log.PART_SHARDS = 1  # type: ignore[attr-defined]


def warm(*arguments: object) -> None:
    """Run a command in this process: its children need not read modules and compiled kernels again."""
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output), contextlib.suppress(SystemExit):
        cli.main([str(each) for each in arguments])


def command(*arguments: object, kill_after: float | None = None, limits: bool = False) -> Ended:
    """Run a command of the command line in a forked child."""
    return child(lambda: cli.main([str(each) for each in arguments]), kill_after=kill_after, limits=limits)


def here_and_now(what: Callable[[], object] | tuple[object, ...]) -> Ended:
    """Run a command, or work, in this process, as a child of its own would end; without seconds and memory."""
    output, path = io.StringIO(), list(sys.path)
    status = 0
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(io.StringIO()):
        try:
            if callable(what):
                what()
            else:
                cli.main([str(each) for each in what])
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        except BaseException:
            status = 1
            traceback.print_exc()
    sys.path[:] = path
    return Ended(status, output.getvalue().splitlines(), 0.0, 0)


def child(
    work: Callable[[], object], *, kill_after: float | None = None, limits: bool = False, seconds: float = WALL_SECONDS
) -> Ended:
    """Run ``work`` in a forked child; with ``kill_after`` it is killed so many seconds later."""
    with tempfile.TemporaryFile() as output:
        pid = os.fork()
        if pid == 0:
            _live(work, output.fileno(), limits)
        ended, status, used = _wait(pid, seconds if kill_after is None else kill_after)
        if not ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            _, status, used = os.wait4(pid, 0)
        output.seek(0)
        lines = output.read().decode(errors="replace").splitlines()
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, lines, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


def _wait(pid: int, seconds: float) -> tuple[bool, int, resource.struct_rusage]:
    end = time.monotonic() + seconds
    while True:
        gone, status, used = os.wait4(pid, os.WNOHANG)
        if gone:
            return True, status, used
        left = end - time.monotonic()
        if left <= 0:
            return False, status, used
        time.sleep(min(0.002, left))


def _live(work: Callable[[], object], output: int, limits: bool) -> None:
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(output, 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        # Where a test captures them, Python's own streams lead elsewhere.
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w", errors="backslashreplace")
        if limits:
            resource.setrlimit(resource.RLIMIT_AS, (_mapped() + 2 * MEMORY,) * 2)
        work()
        status = 0
    except SystemExit as left:
        status = left.code if isinstance(left.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        os._exit(status)


def _mapped() -> int:
    """Bytes of addresses that this process has."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def bytes_of(folder: Path, *, without: Sequence[str] = ()) -> dict[str, bytes]:
    """Every file below a folder, hidden ones too, but for what a run took (run.json)."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith("run.json"))
    return {name: path.read_bytes() for path in files if (name := str(path.relative_to(folder))) not in without}


@contextlib.contextmanager
def scratch(prefix: str = "damage-") -> Iterator[Path]:
    """A folder that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix=prefix) as folder:
        yield Path(folder)

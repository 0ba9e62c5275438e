"""One run, one set of bytes, on any workers: digests of the files of a run by threads, processes and clusters.

    python benchmarks/reproducibility/faces.py [--quick] [--only FACE] [--json FILE]

Each face does the same work: two logs (users in kernels; an agent that acts) with their truth as parts in a folder, a
replay, estimates from files, a comparison and a study of two catalogues. What must be alike: every byte of every file
but the times of a run. ``--json`` writes ``{sizes, made_with, faces, digests: {face: {what: digest}}}``, the
digests of the first face alone where all are alike. What other versions of the libraries give, ``same_bytes.py`` says.

Dask is an extra: a face that cannot be shown is named and left out. Ends with status 1 where two faces differ.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import packed, parser_of, write_text

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import Log
from recsim_mnar.own_log.bandit_file import Reading
from recsim_mnar.own_log.estimating import Question, estimate_log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.comparison import Setup
from recsim_mnar.protocols.records import plain
from recsim_mnar.replays.probabilities import replay_with_support
from recsim_mnar.runs.receipts import made_with
from recsim_mnar.simulation.items import simulate
from recsim_mnar.simulation.run_folder import simulate_to
from recsim_mnar.studies import Design, run_study
from recsim_mnar.worlds import make_world

FULL = {"users": 20_000, "items": 60, "compared": 300}
QUICK = {"users": 9_000, "items": 20, "compared": 40}
AGENTS = ("random", "user-popularity", "item-knn", "svd+rank=5")
Digests = dict[str, str]


class NotHereError(Exception):
    """A face that cannot be shown on this machine, and why."""


def main() -> None:
    parser = parser_of(__doc__, quick="a small slice")
    parser.add_argument("--only", action="append", metavar="FACE", help="this face alone; may be repeated")
    parser.add_argument("--json", type=Path, default=None)
    options = parser.parse_args()
    sizes = QUICK if options.quick else FULL
    names = options.only or [name for name, face in FACES.items() if face.quick or not options.quick]
    unknown = sorted({*names} - {*FACES})
    if unknown:
        parser.error(f"--only {unknown[0]!r}: the faces are {', '.join(FACES)}")
    digests: dict[str, Digests] = {}
    for name in names:
        began = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory(prefix="faces-") as folder, FACES[name].start(Path(folder)) as executor:
                found = digests[name] = done(executor, Path(folder), sizes)
        except NotHereError as error:
            print(f"{name:<40} left out: {error}", flush=True)
            continue
        together = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:16]
        print(f"{name:<40} {together}  {len(found)} digests, {time.perf_counter() - began:.0f} s", flush=True)
    good = alike(digests)
    if options.json:
        faces = list(digests)
        if good:
            digests = {faces[0]: digests[faces[0]]}  # those of all
        kept = {"sizes": sizes, "made_with": made_with(), "faces": faces, "digests": digests}
        write_text(options.json, packed(kept) + "\n")
    sys.exit(0 if good else 1)


def done(executor: Executor | None, folder: Path, sizes: dict[str, int]) -> Digests:
    """All the work by one executor: a digest of each result and of each file."""
    n_items = sizes["items"]
    world: Any = make_world("sessions", None, [f"n_items={n_items}", f"n_flips={n_items // 4}"])
    uniform = registry.learner("random").fit(Log({}), n_items=n_items, seed=0)
    train = simulate(world, uniform, 500, 9, executor=executor)
    knn = registry.learner("item-knn+epsilon=0.2").fit(train, n_items=n_items, seed=1)
    found: Digests = {"log of 500 users": train.digest()}
    for name, policy in (("uniform", uniform), ("acting", knn)):
        simulate_to(folder / name, world, policy, sizes["users"], 3, keep_truth=True, executor=executor)
        found[f"log {name}"] = Log.read(folder / name).digest()
    log = Log.read(folder / "uniform")
    probability, missing = replay_with_support(log, knn, uniform, executor=executor)
    found["replay"] = hashlib.sha256(probability.tobytes() + missing.tobytes()).hexdigest()
    log.with_column("knn", probability).write(folder / "replayed")
    question = Question(["knn"], estimators=("ips", "clipped_ips", "snips"))
    records = estimate_log(folder / "replayed", question, reading=Reading(exact=True)).records
    few = dict.fromkeys(("train_users", "test_users", "arm_users", "truth_users"), sizes["compared"])
    setup = Setup(agents=AGENTS, preset="quick", params={"n_items": n_items, "n_flips": 5}, options=few)
    compared = setup.resolved().run(4, executor=executor)
    study = run_study(Design([setup], catalogues=2, seed=5), folder=folder / "study", executor=executor)
    results = {
        "estimates": plain(records),
        "comparison": plain([r.untimed() for r in compared.records] + compared.summary()["judgements"]),
        "study": plain(study.judgements()),
    }
    found |= {what: digest(value) for what, value in results.items()}
    return found | {f"file {name}": value for name, value in files_of(folder).items()}


def digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def files_of(folder: Path) -> Digests:
    """Sha256 of every file; times and workers' files are left out."""
    files = [p for p in sorted(folder.rglob("*")) if p.is_file() and "dask" not in p.parts and p.suffix != ".tmp"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def alike(digests: dict[str, Digests]) -> bool:
    """Whether all faces have the digests of the first, which is said."""
    (first, wanted), *others = digests.items()
    good = True
    for name, found in others:
        differ = sorted(what for what in {*found, *wanted} if found.get(what) != wanted.get(what))
        good &= not differ
        if differ:
            print(f"NOT ALIKE: {name} and {first}: {', '.join(differ[:6])}")
    print(f"{len(digests)} faces {'alike' if good else 'NOT alike'}: {len(wanted)} digests each")
    return good


@dataclass(frozen=True)
class Face:
    """One way in which work is done.

    Attributes:
        start: an executor, given a folder; None where this process does the work.
        quick: whether it has part in a quick run.
    """

    start: Callable[[Path], contextlib.AbstractContextManager[Executor | None]]
    quick: bool = False


def threads(n: int) -> Callable[[Path], Any]:
    return lambda folder: ThreadPoolExecutor(n)


def processes(n: int, method: str) -> Callable[[Path], Any]:
    return lambda folder: ProcessPoolExecutor(n, mp_context=get_context(method))


def dask(n: int) -> Callable[[Path], Any]:
    @contextlib.contextmanager
    def start(folder: Path) -> Iterator[Executor]:
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise NotHereError("dask is not installed (pip install 'recsim-mnar[cluster]')") from None
        from recsim_mnar.cluster import cluster

        (folder / "dask").mkdir()
        with (
            dask_processes(folder / "dask", n) as address,
            cluster(address, warn=print) as executor,
        ):
            yield executor

    return start


@contextlib.contextmanager
def dask_processes(folder: Path, n: int) -> Iterator[str]:
    """A scheduler and n workers as processes of their own; hands out the address."""
    port = 20_000 + os.getpid() % 20_000
    address = f"tcp://127.0.0.1:{port}"
    base, here = [sys.executable, "-m", "dask"], ["--no-dashboard", "--host", "127.0.0.1"]
    ways = [[*base, "scheduler", *here, "--port", str(port)]]
    ways += [[*base, "worker", address, *here, "--nthreads", "1", "--death-timeout", "60"]] * n
    with contextlib.ExitStack() as stack:
        said = stack.enter_context((folder / "said.txt").open("w"))
        started: list[subprocess.Popen[bytes]] = []
        try:
            # Each a group of its own: a worker has a nanny above it.
            own: dict[str, Any] = {"stdout": said, "stderr": said, "cwd": folder, "start_new_session": True}
            started += [subprocess.Popen(way, **own) for way in ways]
            yield address
        finally:
            for process in reversed(started):
                process.terminate()
            for process in started:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    yield None


FACES = {
    "1 process": Face(alone, quick=True),
    "2 threads": Face(threads(2), quick=True),
    "7 threads": Face(threads(7)),
    "2 processes, spawned": Face(processes(2, "spawn"), quick=True),
    "7 processes, spawned": Face(processes(7, "spawn")),
    "2 processes, from a server": Face(processes(2, "forkserver")),
    "Dask, 1 worker": Face(dask(1)),
    "Dask, 2 workers": Face(dask(2), quick=True),
}


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"error: {error}")

"""The whole 2019 study through the command line: warm, from nothing compiled, and what it costs to ask for help.

CPU seconds of child processes, user and system. A cold run has an empty folder for compiled kernels. A catalogue inside
a study: one process, kernels loaded, one thread; the first catalogue does not count.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from table import Row

PROGRAM = "import sys; from recsim_mnar.cli import main; sys.exit(main())"
IMPORT = """
import recsim_mnar, sys
loaded = [name for name in ("numba", "scipy", "pandas", "pyarrow", "matplotlib") if name in sys.modules]
print(len(loaded), *loaded)
"""


STAGES = """
import json, sys, time
from recsim_mnar.protocols.comparison import Setup
found = []
for catalogue in range(-1, int(sys.argv[1])):
    setup = Setup("sessions", "jeunen2019", params={"catalogue_seed": catalogue + 1}).resolved()
    marks = []
    setup.run(1000 + catalogue, report=lambda stage: marks.append((stage, time.process_time())))
    ends = [began for _, began in marks[1:]] + [time.process_time()]
    found.append({stage: end - began for (stage, began), end in zip(marks, ends)})
print(json.dumps(found[1:]))
"""


def child(arguments: list[str], cache: str | None = None) -> tuple[float, float, str]:
    """CPU seconds, wall seconds and output of a Python child."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if cache is not None:
        environment["RECSIM_MNAR_CACHE_DIR"] = cache
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, env=environment, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-1000:])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall, done.stdout


def compare(preset: str, cache: str | None = None) -> float:
    """CPU seconds of ``recsim-mnar compare``."""
    with tempfile.TemporaryDirectory() as folder:
        common = ["-c", PROGRAM, "compare", "--preset", preset, "--out", str(Path(folder) / "out"), "--workers", "1"]
        return child(common, cache)[0]


def compared(rounds: int) -> list[Row]:
    """The study when all is compiled, and what compiling takes."""
    with tempfile.TemporaryDirectory() as cache:
        cold = compare("quick", cache)
        warm = [compare("jeunen2019", cache) for _ in range(rounds)]
        small = [compare("quick", cache) for _ in range(rounds)]
    common = {"theirs": None, "unit": "CPU s", "bar": 20, "at_least": False}
    inside = sum(stages(rounds).values())
    return [
        Row("a catalogue of preset jeunen2019 inside a study", "", inside, **{**common, "bar": 6}),
        Row("compare, preset jeunen2019, warm", "", min(warm), **common),
        Row("first run: compilation of all that compare runs", "", cold - min(small), **common),
    ]


def stages(catalogues: int) -> dict[str, float]:
    """CPU seconds of each stage of a catalogue inside a study: the median over catalogues."""
    found = json.loads(child(["-c", STAGES, str(catalogues)])[2])
    return {stage: statistics.median(one[stage] for one in found) for stage in found[0]}


def rows(quick: bool) -> list[Row]:
    """The study (not ``quick``), the import and ``--help``."""
    rounds = 1 if quick else 3
    found = [] if quick else compared(rounds)
    helps = [child(["-c", PROGRAM, "--help"])[0] for _ in range(rounds)]
    starts = [child(["-c", "pass"])[0] for _ in range(rounds)]
    loaded = child(["-c", IMPORT])[2].split()
    unit = "CPU s"
    return [
        *found,
        Row("heavy packages loaded by import recsim_mnar", "", float(loaded[0]), None, "packages", 0, at_least=False,
            note=" ".join(loaded[1:])),
        Row("recsim-mnar --help", "", min(helps), None, unit, 0.5, at_least=False, floor=min(starts),
            floor_is="starting Python"),
    ]  # fmt: skip

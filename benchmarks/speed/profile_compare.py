"""Where the time of `compare --preset jeunen2019` goes: by stage, and by function.

    python benchmarks/speed/profile_compare.py [--preset NAME] [--top N] [--json FILE]

CPU seconds of one process, everything compiled, no executor. Stages are measured without a profiler, functions in a
second run under cProfile; a kernel's time is its caller's own. It profiles the package that its Python imports, so an
older checkout, in its own virtual environment, gives the figures before a change.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import time
from pathlib import Path
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import recsim_mnar  # noqa: E402  (threads are set before numpy is loaded)
from recsim_mnar.protocols.comparison import Setup  # noqa: E402

PRESETS = ("jeunen2019", "quick", "recogym-v1")


def study(preset: str, report: Any = lambda stage: None) -> None:
    """The six agents of the paper, judged by every protocol."""
    Setup("sessions", preset).resolved().run(0, report=report)


def stages(preset: str) -> dict[str, float]:
    """CPU seconds of each stage, by the line that announces it."""
    marks: list[tuple[str, float]] = []
    study(preset, lambda stage: marks.append((stage, time.process_time())))
    ends = [began for _, began in marks[1:]] + [time.process_time()]
    return {stage: end - began for (stage, began), end in zip(marks, ends, strict=True)}


def functions(preset: str, top: int) -> list[dict[str, Any]]:
    """The functions with most time of their own."""
    profile = cProfile.Profile(time.process_time)
    profile.runcall(study, preset)
    rows = []
    for (file, number, name), (_, calls, own, whole, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        rows.append({"function": f"{Path(file).stem}:{number} {name}", "calls": calls, "own": own, "with calls": whole})
    return sorted(rows, key=lambda row: -row["own"])[:top]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="jeunen2019", choices=PRESETS)
    parser.add_argument("--top", type=int, default=12)
    parser.add_argument("--json", type=Path)
    a = parser.parse_args()
    study("quick")
    by_stage, by_function = stages(a.preset), functions(a.preset, a.top)
    total = sum(by_stage.values())
    print(f"recsim-mnar {recsim_mnar.__version__}, preset {a.preset}, CPU seconds of one process\n")
    for stage, seconds in by_stage.items():
        print(f"{seconds:8.2f}  {seconds / total:4.0%}  {stage}")
    print(f"{total:8.2f}        all\n\n     own  with calls     calls  function (under cProfile)")
    for row in by_function:
        print(f"{row['own']:8.2f}  {row['with calls']:10.2f}  {row['calls']:8,}  {row['function']}")
    if a.json:
        a.json.write_text(
            json.dumps({"preset": a.preset, "stages": by_stage, "functions": by_function}, indent=1) + "\n"
        )


if __name__ == "__main__":
    main()

"""The study of de Myttenaere et al. 2015, and the ones that it could not make.

    python benchmarks/myttenaere2015/run.py [PART ...] [--quick] [--platforms N] [--workers N] [--out DIR]

Parts, all by default: figure3 (Figures 3 and 4), figures (5 to 7), study (protocols against the truth), region (where
Figure 7's finding holds), strong (acceptance that follows affinity), structural (the paper's future work), whole
(34,448 users and 35,741 items). Each platform's numbers are kept
under runs/myttenaere2015/PART/ as they come, so that a run that is interrupted goes on; a part's summary goes into
results.json, and results.md is written from that.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import _study
import figure3
import figures
import region
import structural
import study
import whole

from recsim_mnar.protocols.records import plain

HERE = Path(__file__).resolve().parent
PARTS: dict[str, Any] = {
    "figure3": figure3, "figures": figures, "study": study, "region": region, "structural": structural, "strong": whole,
    "whole": whole,
}  # fmt: skip


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a file holds, made first where it is missing."""

    def made() -> dict[str, Any]:
        found = plain(make())
        print(f"{path.parent.name}/{path.stem} done", flush=True)
        return dict(found)

    return dict(_study.once(path, made))


def settings_of(quick: bool, platforms: int | None) -> dict[str, Any]:
    """The settings file, with its small slice and another number of platforms where wanted."""
    read = _study.settings_of(HERE)
    for part in PARTS:
        if quick:
            read[part] |= read["quick"][part]
        read[part]["platforms"] = platforms or read[part]["platforms"]
    return read


def run_part(part: str, settings: dict[str, Any], kinds: dict[str, Any], work: Path, workers: int) -> dict[str, Any]:
    """What every job of a part found, by its key."""
    with ThreadPoolExecutor(workers) as pool:
        jobs = PARTS[part].jobs(settings, kinds).items()
        futures = {key: pool.submit(kept, work / part / f"{key}.json", make) for key, make in jobs}
        return {key: future.result() for key, future in futures.items()}


def text_of(results: dict[str, Any], settings: dict[str, Any]) -> str:
    """All parts for a person."""
    lines = [
        "# De Myttenaere et al. 2015: results", "",
        "Written by `python benchmarks/myttenaere2015/run.py`. Brackets: 95 % intervals of the mean over platforms. "
        "*House* campaigns draw every list by the same weights; *personal* ones by these times the naive CF's scores.",
        "",
    ]  # fmt: skip
    for part, module in PARTS.items():
        if part in results:
            lines += module.markdown(results[part], settings[part])
    lines += [line for text in results.get("once", {}).values() for line in (text, "")]  # as README.md says
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--quick", action="store_true", help="small worlds: a check that it runs")
    parser.add_argument("--platforms", type=int, default=None, help="per case")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--out", type=Path, default=None, help="default: this folder; --quick: the folder of the runs")
    options = parser.parse_args()
    if set(options.parts) - set(PARTS):
        parser.error(
            f"unknown part: {', '.join(sorted(set(options.parts) - set(PARTS)))}. Choose of {', '.join(PARTS)}"
        )
    work = Path("runs/myttenaere2015-quick" if options.quick else "runs/myttenaere2015")
    out = options.out or (work if options.quick else HERE)
    settings = settings_of(options.quick, options.platforms)
    path = out / "results.json"
    results = _study.read(path)
    for part in options.parts or PARTS:
        found = run_part(part, settings[part], settings["kinds"], work, options.workers)
        results[part] = PARTS[part].numbers(found, settings[part])
        _study.write_results(path, results, 6, finite=False)
        if part == "figures":
            figures.draw(found, settings[part], out / "figures.png")
    text = text_of(_study.read(path), settings)
    _study.write_text(out / "results.md", text)
    print(text)


if __name__ == "__main__":
    main()

"""The study of de Myttenaere et al. 2015, and the one that it could not make.

    python benchmarks/myttenaere2015/run.py [--quick] [--only figures|study] [--seeds N] [--platforms N] [--out DIR]

Each platform's numbers are written as they come (``figures/KIND-N.json``, ``study/KIND-NNN.json``) and kept when the
run is taken up again. The analysis reads those files alone and writes ``results.json``, ``results.md`` and pictures.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from analysis import figure_numbers, markdown, study_numbers
from pictures import draw
from platforms import control_of, figures_of, study_of, world_of

from recsim_mnar.log.files import write_json
from recsim_mnar.protocols.records import plain

HERE = Path(__file__).resolve().parent


def kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a file holds, made first where it is missing."""
    if not path.exists():
        write_json(path, make())
        print(f"{path.parent.name}/{path.stem} done", flush=True)
    return json.loads(path.read_text())  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    settings = tomllib.loads((HERE / "settings.toml").read_text())
    parser.add_argument("--quick", action="store_true", help="the small preset: a check that it runs")
    parser.add_argument("--only", choices=("figures", "study"), default=None)
    parser.add_argument("--seeds", type=int, default=None, help="platforms of the figures")
    parser.add_argument("--platforms", type=int, default=None, help="platforms of the study")
    parser.add_argument(
        "--out", type=Path, default=None, help="default: beside this file; --quick: runs/myttenaere2015-quick"
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    out = options.out or (Path("runs/myttenaere2015-quick") if options.quick else HERE)
    figures, study, kinds = settings["figures"], settings["study"], settings["kinds"]
    if options.quick:
        figures |= {"preset": "quick", "seeds": 2, "step": 50, "p": [0, 10, 20, 40, 60], "samples": 2000}
        study |= {"preset": "quick", "set": [], "platforms": 3, "times": [300, 500]}
        study["schemes"] = [scheme.replace("p=80", "p=40") for scheme in study["schemes"]]
    figures["seeds"] = options.seeds or figures["seeds"]
    study["platforms"] = options.platforms or study["platforms"]
    jobs: dict[str, list[Any]] = {"figures": [], "control": [], "study": []}
    for kind in figures["kinds"]:
        for seed in range(figures["seeds"]):
            make = functools.partial(figures_of, figures, kinds, kind, seed)
            jobs["figures"].append(functools.partial(kept, out / "figures" / f"{kind}-{seed}.json", make))
            make = functools.partial(control_of, figures, kinds, kind, seed)
            jobs["control"].append(functools.partial(kept, out / "control" / f"{kind}-{seed}.json", make))
    for kind in study["kinds"]:
        for number in range(study["platforms"]):
            make = functools.partial(study_of, study, kinds, kind, number)
            jobs["study"].append(functools.partial(kept, out / "study" / f"{kind}-{number:03d}.json", make))
    with ThreadPoolExecutor(options.workers) as pool:
        found = {
            part: [future.result() for future in [pool.submit(job) for job in ones]]
            for part, ones in jobs.items()
            if options.only is None or (options.only == "study") == (part == "study")
        }
    if len(found) < 3:
        return
    results = {
        "figures": figure_numbers(found["figures"], found["control"], figures),
        "study": study_numbers(found["study"], study),
    }
    write_json(out / "results.json", plain(results))
    text = markdown(results, settings)
    (out / "results.md").write_text(text + "\n")
    days = world_of(figures["preset"], 0).campaign_days()
    for path in draw(found["figures"], figures, days, out):
        print(path)
    print(text)


if __name__ == "__main__":
    main()

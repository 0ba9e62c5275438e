"""Lines of a client's own code before and after, each file run: `python benchmarks/clients/run.py [--only NAME]`.

A client is a file, NAME_client.py, of which two programs are made: with the lines marked "before" and with those marked
"after". Both print the same line. Every library
runs in a virtual environment of its own, made under --venvs where it is not there yet, by pip from PyPI; what cannot be
installed is named and left out. The tests that read exported files back with the libraries run in the same places.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import venv
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

from _study import table, write_results, write_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MINUTES = 10


@dataclass(frozen=True)
class Venv:
    """A virtual environment: what pip installs in it, and our package with its dependencies or without."""

    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()  # packages whose own pins cannot be met, installed without them
    ours_alone: bool = False


VENVS = {
    "main": Venv(("stable-baselines3", "scikit-learn", "mabwiser", "implicit", "vowpalwabbit", "minari[hdf5]")),
    "lenskit": Venv(("lenskit",)),
    "d3rlpy": Venv(("d3rlpy", "scipy", "numba", "pandas", "pyarrow"), ours_alone=True),  # it pins gymnasium 1.0.0
    "obp": Venv(("torch", "scikit-learn", "pandas", "tqdm", "pyyaml", "seaborn"), alone=("obp==0.5.7",)),
    "rllib": Venv(("ray[rllib]",)),
}
CLIENTS = {
    "gymnasium_wrappers": "main",
    "stable_baselines3": "main",
    "cleanrl": "main",
    "obp": "obp",
    "vowpal_wabbit": "main",
    "vowpal_wabbit_log": "main",
    "minari": "main",
    "d3rlpy": "d3rlpy",
    "mabwiser": "main",
    "scikit_learn": "main",
    "implicit": "main",
    "lenskit": "lenskit",
}


LIBRARIES = {
    *("gymnasium", "torch", "stable_baselines3", "scikit-learn", "mabwiser", "implicit", "vowpalwabbit"),
    *("minari", "lenskit", "d3rlpy", "obp", "ray"),
}


def methods() -> dict[str, str]:
    """Source of each method of counted.py by its name, without underscores."""
    text = (HERE / "counted.py").read_text()
    defined = ast.parse(text).body[-1].body
    return {each.name.strip("_"): "    " + ast.get_source_segment(text, each) for each in defined}


def client(name: str) -> str:
    """The text of a client, with the methods that it names in the place of each ``# + name``."""
    text = (HERE / f"{name}_client.py").read_text()
    known = methods()
    return re.sub(r"    # \+ (.*)", lambda mark: "\n\n".join(known[each] for each in mark[1].split()), text)


def program(name: str, when: str) -> tuple[str, int]:
    """A client's program with its lines of ``when`` ("before" or "after"), and how many of them are code."""
    kept, own, mark = [], 0, "end"
    for line in client(name).splitlines():
        text = line.strip()
        if text.startswith("# --- "):
            mark = text.removeprefix("# --- ")
        elif mark == "end" or mark.startswith(when):
            kept.append(line)
            own += mark == when and text != "" and not text.startswith("#")
    return "\n".join(kept) + "\n", own


def python_of(name: str, folder: Path) -> Path | str:
    """The environment's Python, installed where it is missing; a text that says why there is none."""
    home = folder / name
    python = home / "bin" / "python"
    if python.exists():
        return python
    wanted = VENVS[name]
    venv.create(home, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "-q"]
    steps = [[*pip, *wanted.packages, "pytest"], [*pip, *(["--no-deps"] if wanted.ours_alone else []), str(ROOT)]]
    steps += [[*pip, "--no-deps", "--ignore-requires-python", package] for package in wanted.alone]
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True)
        if done.returncode:
            return f"{' '.join(step[4:])}: {done.stderr.strip().splitlines()[-1]}"
    return python


def printed(python: Path, text: str) -> str:
    """What a program prints, or how it failed."""
    environment = {**os.environ, "PYTHONPATH": str(HERE), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "client.py"
        path.write_text(text)
        command = [str(python), str(path)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60 * MINUTES)
        except subprocess.TimeoutExpired:
            return f"failed: not done after {MINUTES} minutes"
    if done.returncode:
        return f"failed: {done.stderr.strip().splitlines()[-1]}"
    return "\n".join(line for line in done.stdout.splitlines() if "\x1b" not in line)  # a library's coloured log


def compared(name: str, python: Path | str) -> dict[str, object]:
    """Lines before and after, and whether both programs print the same; a text says why there is no Python."""
    programs = {when: program(name, when) for when in ("before", "after")}
    lines = {when: own for when, (_, own) in programs.items()}
    if isinstance(python, str):
        return {**lines, "left_out": f"left out: {python}"}
    said = [printed(python, text) for text, _ in programs.values()]
    same = said[0] == said[1] and not said[0].startswith("failed")
    return {**lines, "same": same, "printed": said}


def read_back(name: str, python: Path) -> str:
    """The last line of the tests of exports and integrations, by the libraries of one environment."""
    command = [str(python), "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "tests/foreign"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60 * MINUTES)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines()
    return lines[-1]


def versions(python: Path) -> dict[str, str]:
    """What is installed, of the libraries of the table."""
    done = subprocess.run([str(python), "-m", "pip", "list", "--format", "json"], capture_output=True, text=True)
    return {p["name"]: p["version"] for p in json.loads(done.stdout) if p["name"] in LIBRARIES}


def clients_table(results: dict[str, dict[str, object]]) -> list[str]:
    """The table of results.md."""
    rows = [
        [name.replace("_", " "), row["before"], row["after"], row.get("left_out") or ("yes" if row["same"] else "no")]
        for name, row in results.items()
    ]
    return table(["client", "own lines before", "after", "both print the same"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=CLIENTS, action="append")
    parser.add_argument("--venvs", type=Path, default=HERE / ".venvs")
    parser.add_argument("--here", action="store_true", help="run the clients whose libraries this Python has")
    parser.add_argument("--out", type=Path, default=None, help="write results.md and results.json there")
    options = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    pythons: dict[str, Path | str] = {}
    for name in options.only or CLIENTS:
        place = CLIENTS[name]
        if place not in pythons:
            pythons[place] = Path(sys.executable) if options.here else python_of(place, options.venvs)
        python = pythons[place]
        results[name] = compared(name, python)
        if options.here and "No module named" in str(results[name]["printed"]):
            results[name]["left_out"] = "left out: not installed here"
        print(f"{name}: {results[name]}", flush=True)
    print("\n".join(clients_table(results)))
    broken = [name for name, row in results.items() if not row.get("left_out") and not row["same"]]
    if options.out is not None:
        write(options, results, pythons)
    if broken:
        sys.exit(f"before and after differ, or failed: {', '.join(broken)}")


def write(options: argparse.Namespace, results: dict[str, dict[str, object]], pythons: dict[str, Path | str]) -> None:
    """results.json and results.md, with the tests of exports and integrations where all environments were made."""
    tests, installed = {}, {}
    if not options.here and not options.only:
        pythons |= {place: python_of(place, options.venvs) for place in VENVS if place not in pythons}
        for place, python in pythons.items():
            tests[place] = python if isinstance(python, str) else read_back(place, python)
            installed[place] = {} if isinstance(python, str) else versions(python)
            print(f"tests/foreign in {place}: {tests[place]}", flush=True)
    write_results(options.out / "results.json", {"clients": results, "tests": tests, "versions": installed})
    places = [
        [place, ", ".join(f"{name} {version}" for name, version in installed[place].items()), line]
        for place, line in tests.items()
    ]
    lines = ["# Clients", "", *clients_table(results), "", *table(["environment", "versions", "tests/foreign"], places)]
    write_text(options.out / "results.md", "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

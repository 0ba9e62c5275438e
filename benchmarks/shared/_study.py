"""What studies share: command lines, settings, steps that are made once, result files, tables and checks.

A study's command puts this folder on the path. It is a folder of its own because next to it is ``coverage/``, which
Python would take for the package of that name.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import os
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import stdtrit
from scipy.stats import beta

from recsim_mnar.runs.files import replacing

if TYPE_CHECKING:
    from recsim_mnar.studies import Design, Study

WIDTH = 400  # of a line of results.json


# -------------------------------------------------------------------------------------------------------- command lines


def parser_of(
    doc: str | None, *, quick: str = "", study: str = "", workers: bool = False, out: str = ""
) -> argparse.ArgumentParser:
    """Make a parser of a study's command line, with the options that most studies have.

    Args:
        doc: what the program says of itself.
        quick: what a quick look is.
        study: the folder in which finished steps are kept unless another is named.
        workers: whether several processes share the work, one a processor unless a number is named.
        out: where results go unless a folder is named.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    if quick:
        parser.add_argument("--quick", action="store_true", help=quick)
    if study:
        parser.add_argument("--study", type=Path, default=Path(study), help="what is done already")
    if workers:
        parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    if out:
        parser.add_argument("--out", type=Path, default=None, help=f"default: {out}")
    return parser


def resumed(design: Design, folder: Path, workers: int) -> Study:
    """Run a study by processes; catalogues that the folder holds are not made again."""
    from recsim_mnar.studies import processes, run_study  # heavy, and few studies are of catalogues

    with processes(workers) as executor:
        report = lambda line: print(line, flush=True)  # noqa: E731  (what run_study takes)
        return run_study(design, folder=folder, resume=folder.exists(), executor=executor, report=report)


# ----------------------------------------------------------------------------------------------------- settings, steps


def settings_of(folder: Path, quick: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The study's settings.toml, with what a quick look changes."""
    return tomllib.loads((folder / "settings.toml").read_text()) | dict(quick or {})


def read(path: Path) -> Any:
    """A JSON file; an empty dictionary where there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def once(path: Path, make: Callable[[], Any], *, finite: bool = True) -> Any:
    """What a step found: made and kept where it was not made before, so that an interrupted study goes on.

    Raises:
        ValueError: it found a number that is not finite, where all must be ``finite``.
    """
    if not path.exists():
        found = json.dumps(make(), indent=1, allow_nan=not finite, default=lambda number: number.item())
        write_text(path, found + "\n")
    return json.loads(path.read_text())


# -------------------------------------------------------------------------------------------------------- result files


def write_text(path: Path, text: str) -> None:
    """Write a text under a temporary name, then rename it; the folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_text(text)


def write_results(path: Path, found: Any, digits: int = 10, *, finite: bool = True) -> None:
    """Write JSON with few lines, numbers rounded; see :func:`rounded`."""
    write_text(path, packed(rounded(found, digits, finite=finite)) + "\n")


def rounded(value: Any, digits: int = 10, *, finite: bool = True) -> Any:
    """JSON types with so many digits of every float; None for one that need not be ``finite`` and is not."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, Mapping):
        return {str(name): rounded(item, digits, finite=finite) for name, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [rounded(item, digits, finite=finite) for item in value]
    if isinstance(value, float):
        return None if not finite and not math.isfinite(value) else float(f"{value:.{digits}g}")
    return value


def packed(value: Any, indent: str = "") -> str:
    """JSON in which a list without lists, and whatever is short, stands on one line."""
    line = json.dumps(value, allow_nan=False, separators=(",", ": "))
    inner = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list)) or len(line) + len(indent) <= WIDTH:
        return line
    if isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in inner):
        return line
    parts = [packed(item, indent + " ") for item in inner]
    if isinstance(value, dict):
        parts = [f"{json.dumps(name)}: {part}" for name, part in zip(value, parts, strict=True)]
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{indent} " + f",\n{indent} ".join(parts) + f"\n{indent}{right}"


def save_picture(figure: Any, path: Path, dpi: int = 110) -> None:
    """Write a figure of matplotlib as PNG of at most 32 colours, a quarter of the size."""
    from PIL import Image

    drawn = io.BytesIO()
    figure.savefig(drawn, dpi=dpi)
    with replacing(path) as temporary:
        Image.open(drawn).convert("RGB").quantize(32).save(temporary, "png", optimize=True)


def columns_of(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Records as a list per name, so that names are kept once."""
    return {name: [record[name] for record in records] for name in (records[0] if records else {})}


def into_marks(path: Path, mark: str, lines: Iterable[str]) -> None:
    """Replace what stands between the two ``<!-- mark -->`` of a text; at its end where there are none."""
    text, line = path.read_text() if path.exists() else "", f"<!-- {mark} -->"
    if line not in text:
        text += ("\n" if text else "") + f"{line}\n{line}\n"
    before, _, rest = text.partition(line)
    write_text(path, f"{before}{line}\n" + "\n".join(lines) + f"\n{line}" + rest.partition(line)[2])


# ---------------------------------------------------------------------------------------------------- tables and checks


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]


def word(passed: bool) -> str:
    """The verdict on a check: PASS or short."""
    return "PASS" if passed else "short"


def check_lines(checks: Mapping[str, bool]) -> list[str]:
    """Each check with its verdict, as a block."""
    return ["```", *(f"{word(ok):5} {text}" for text, ok in checks.items()), "```"]


def verdicts(checks: Mapping[str, bool]) -> list[str]:
    """Each check, PASS or short, and how many pass."""
    return [*check_lines(checks), f"\n{sum(checks.values())} of {len(checks)} checks pass."]


# ----------------------------------------------------------------------------------------------------------- intervals


def exact_limits(hits: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Clopper and Pearson's limits of a share."""
    tail = (1.0 - level) / 2.0
    low = float(beta.ppf(tail, hits, of - hits + 1)) if hits else 0.0
    return low, float(beta.ppf(1.0 - tail, hits + 1, of - hits)) if hits < of else 1.0


def student(values: Any, level: float = 0.95) -> tuple[Any, Any, Any]:
    """Mean over independent values (or rows) and its interval; of one the limits are infinite."""
    values = np.asarray(values, float)
    mean, n = values.mean(axis=0), len(values)
    if n < 2:
        return mean, mean - math.inf, mean + math.inf
    half = stdtrit(n - 1, (1.0 + level) / 2.0) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half


def interval(row: Mapping[str, Any], form: str) -> str:
    """A mean and its interval, in words; too few catalogues have none."""
    mean = f"{row['mean']:{form}}"
    return mean if row["low"] is None else f"{mean} [{row['low']:{form}}, {row['high']:{form}}]"

"""Run the code blocks of README.md and of docs/, page by page, in their order.

Bash blocks run as they stand, Python blocks as programs or as the files that they name.

    python .ci/readme.py [--only N | --skip N]

``--only 2`` runs README.md's second bash block alone, ``--skip 2`` all but it, and the blocks of docs/. A Python block
whose first line is ``# name.py`` is written to that file; any other is run with the virtual environment that the first
bash block made.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from pathlib import Path


def blocks(page: Path) -> list[tuple[str, str]]:
    """(language, code) of every fenced block of a page that names one of ours."""
    return re.findall(r"^```(bash|python)\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def run(language: str, code: str) -> None:
    """Run one block; a failure ends the program."""
    began = time.perf_counter()
    named = re.match(r"# (\w+\.py)\n", code) if language == "python" else None
    if named:
        Path(named.group(1)).write_text(code)
        return
    print(f"--- {language}:\n{code.rstrip()}", flush=True)
    command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [".venv/bin/python", "-c", code]
    subprocess.run(command, check=True)
    print(f"--- {time.perf_counter() - began:.0f} s", flush=True)


def main() -> None:
    """Run the blocks asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--skip", type=int, default=None)
    options = parser.parse_args()
    number = 0
    for language, code in blocks(Path("README.md")):
        number += language == "bash"
        if options.only is not None and (language != "bash" or number != options.only):
            continue
        if options.skip is not None and language == "bash" and number == options.skip:
            continue
        run(language, code)
    if options.only is None:
        for page in sorted(Path("docs").glob("*.md")):
            for language, code in blocks(page):
                run(language, code)


if __name__ == "__main__":
    main()

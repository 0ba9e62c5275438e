"""Run the code blocks of pages, page by page, in their order.

Bash blocks run as they stand, Python blocks as programs or as the files that they name.

    python .ci/readme.py README.md --only 2     the second bash block alone
    python .ci/readme.py README.md --skip 2     every other block
    python .ci/readme.py docs/*.md

A Python block whose first line is ``# name.py`` is written to that file. Any other runs in the virtual environment that
the README's first bash block makes.
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
    """Run the blocks asked for; ``--only`` and ``--skip`` count the bash blocks of each page from 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("pages", nargs="+", type=Path)
    parser.add_argument("--only", type=int, default=None)
    parser.add_argument("--skip", type=int, default=None)
    options = parser.parse_args()
    for page in options.pages:
        number = 0
        for language, code in blocks(page):
            number += language == "bash"
            this = number if language == "bash" else None
            if (options.only is None or this == options.only) and (options.skip is None or this != options.skip):
                run(language, code)


if __name__ == "__main__":
    main()

"""What runs first in the kernel of each page: commands print as into a pipe, in one piece, and fail with their page."""

import os
import subprocess

from IPython.core.magic import register_cell_magic

for _name in ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):  # a page shows no colours
    os.environ.pop(_name, None)


@register_cell_magic
def bash(line: str, cell: str) -> None:
    """Run a cell's commands and print what they print; IPython's own prints pieces of a hundred bytes."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", cell], capture_output=True, text=True)
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"status {done.returncode}: {done.stderr}")

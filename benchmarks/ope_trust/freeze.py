"""Freeze the families of a version: `python benchmarks/ope_trust/freeze.py [v2]`, before any entry is run on it."""

from __future__ import annotations

import sys

import halves
import halves_v2

if __name__ == "__main__":
    version = halves_v2 if sys.argv[1:] == ["v2"] else halves
    frozen = version.FROZEN
    if frozen.exists():
        sys.exit(f"{frozen} exists. Another version needs another file.")
    lines = [f'"{name}" = "{halves.digest((version.HERE / name).read_bytes())}"' for name in version.SOURCES]
    frozen.parent.mkdir(exist_ok=True)
    frozen.write_text(f'version = "{frozen.stem}"\n\n[sha256]\n' + "\n".join(lines) + "\n")

"""Freeze the families of a version: `python benchmarks/ope_trust/freeze.py`, before any entry is run on it."""

from __future__ import annotations

import sys

from halves import FROZEN, HERE, SOURCES, digest

if __name__ == "__main__":
    if FROZEN.exists():
        sys.exit(f"{FROZEN} exists. Another version needs another file.")
    lines = [f'"{name}" = "{digest((HERE / name).read_bytes())}"' for name in SOURCES]
    FROZEN.parent.mkdir(exist_ok=True)
    FROZEN.write_text(f'version = "{FROZEN.stem}"\n\n[sha256]\n' + "\n".join(lines) + "\n")

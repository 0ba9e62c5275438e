"""The lowest versions that pyproject.toml allows, as constraints for pip: of what it runs on, and of its tests.

python .ci/lowest.py > lowest.txt && pip install -c lowest.txt '.[test]'
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def lowest(requirement: str) -> str:
    """``name==version`` of ``name>=version,...``."""
    found = re.match(r"([\w.-]+)>=([\w.]+)", requirement)
    if found is None:
        raise SystemExit(f"{requirement}: no lower bound")
    return f"{found[1]}=={found[2]}"


def main() -> None:
    """Print a line each."""
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for requirement in (*project["dependencies"], *project["optional-dependencies"]["test"]):
        print(lowest(requirement))


if __name__ == "__main__":
    main()

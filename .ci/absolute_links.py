"""Make a page's relative links absolute, because PyPI shows the page without the repository's files.

python .ci/absolute_links.py README.md https://host/owner/name v1.2.3
"""

import re
import sys
from pathlib import Path


def absolute(text: str, repository: str, ref: str) -> str:
    """The text with every relative link to a page, and every relative picture, led to the repository at that tag."""

    def led(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}({repository}/{kind}/{ref}/{match[2]})"

    return re.sub(r"(!?\[[^\]\n]*\])\((?![a-z]+:|#)([^)\s]+)\)", led, text)


if __name__ == "__main__":
    page, repository, ref = sys.argv[1:]
    Path(page).write_text(absolute(Path(page).read_text(), repository, ref))

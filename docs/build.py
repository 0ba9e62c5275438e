"""Build the site: ``python docs/build.py [--no-cells] [OUT]``, by default into docs/_build.

Needs ``pip install '.[docs]'`` and no network. Every warning of Sphinx is an error, every name in a type must be known
or listed, every public name must be described (extensions/reference.py). Every cell of a page is run; with
``--no-cells`` pages show code without its output. Afterwards every link and anchor between the pages is followed, and
no page may ask another host for anything.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.cmd.build import main as sphinx

HERE = Path(__file__).resolve().parent


class Page(HTMLParser):
    """What a page offers and asks for.

    Attributes:
        anchors: ids and names to which links may lead.
        links: what its links lead to.
        loaded: what a browser fetches to show it.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag is or asks for."""
        given = {name: value for name, value in attrs if value}
        self.anchors.update(given[name] for name in ("id", "name") if name in given)
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given:
            self.loaded.append(given["src"])
        if tag == "link" and "stylesheet" in given.get("rel", ""):
            self.loaded.append(given.get("href", ""))


def broken(site: Path) -> Iterator[str]:
    """A line for each link that leads nowhere and each thing that another host would have to give."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        yield from (f"{name} loads {url} from another host" for url in page.loaded if urlsplit(url).netloc)
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{name} links to {link}, which is not there"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name} links to {link}: the page has no such place"


def main() -> int:
    """Build, check, and say what there is and what it took."""
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("site", nargs="?", type=Path, default=HERE / "_build")
    parser.add_argument("--no-cells", action="store_true", help="show code cells without running them")
    given = parser.parse_args()
    site = given.site.resolve()
    began = time.perf_counter()
    # A cell that is not run has no language for its colours.
    cells = ["-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer"] if given.no_cells else []
    status = sphinx(["-W", "--keep-going", "-n", "-E", "-b", "html", "-j", "2", *cells, str(HERE), str(site)])
    if status:
        return status
    faults = list(broken(site))
    print(*faults, sep="\n")
    spent = os.times()
    cpu = spent.user + spent.system + spent.children_user + spent.children_system
    print(
        f"{len(list(site.rglob('*.html')))} pages in {site}: {time.perf_counter() - began:.0f} s, {cpu:.0f} CPU seconds"
    )
    print(f"{len(faults)} broken links")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

"""The documentation site, without building it: every page is led to, what is public described, every file there."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

import recsim_mnar

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

pytestmark = pytest.mark.skipif(not (ROOT / "recsim_mnar").is_dir(), reason="the reference is written from a checkout")

PAGES = sorted(
    path for path in DOCS.rglob("*.md") if path != DOCS / "README.md" and not {"_build", "api"} & set(path.parts)
)


@pytest.fixture(scope="module")
def extensions():
    sys.path.insert(0, str(DOCS / "extensions"))
    import public_names
    import reference_pages

    yield public_names, reference_pages
    sys.path.remove(str(DOCS / "extensions"))
    for name in ("public_names", "reference_pages"):
        del sys.modules[name]


def led_to(page: Path) -> set[Path]:
    """Pages that a page's toctrees name."""
    pages = set()
    for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if line and not line.startswith(":"):
                name = re.sub(r"^.*<(.*)>$", r"\1", line)
                pages |= set(page.parent.glob("api/*")) if "*" in name else {(page.parent / f"{name}.md").resolve()}
    return pages


def test_every_page_stands_in_a_toctree_and_every_toctree_names_pages():
    reached, new = set(), {DOCS / "index.md"}
    while new:
        reached |= new
        new = {page for path in new if path.suffix == ".md" for page in led_to(path)} - reached
    missing = [path for path in reached if not path.exists()]
    assert not missing
    alone = [str(page.relative_to(DOCS)) for page in PAGES if page not in reached]
    assert not alone, f"name them in a toctree, such as docs/index.md's: {alone}"


def test_every_page_says_what_it_is_and_brings_files_that_exist():
    for page in PAGES:
        text = page.read_text()
        brought = re.findall(r"^\[Read \S+\]\((\S+)\)$", text, flags=re.MULTILINE)
        assert all((page.parent / target).is_file() for target in brought), page
        assert brought or re.search(r"^# ", text, flags=re.MULTILINE), page


def test_contributors_are_sent_to_files_that_exist():
    page = (ROOT / "docs" / "house.md").read_text().partition("## All of it")[0]
    named = re.findall(r"`((?:\w+/)+\w*(?:\.\w+)?)`", page + (ROOT / "CONTRIBUTING.md").read_text())
    places = (ROOT, ROOT / "recsim_mnar")
    assert len(named) > 15
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


def test_links_between_pages_lead_to_files():
    for page in PAGES:
        prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)\s#]+)(?:#[^)]*)?\)", prose):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


def test_the_reference_describes_what_is_public_and_nothing_else(extensions):
    public_names, reference_pages = extensions
    pages = reference_pages.pages()
    text = "\n".join(pages.values())
    described = re.findall(r"^\.\. auto(?:class|function):: (\S+)$", text, flags=re.MULTILINE)
    for part in re.split(r"^\.\. automodule:: ", text, flags=re.MULTILINE)[1:]:
        module = part.split()[0]
        described += [f"{module}.{name}" for name in re.findall(r"^\.\. py:data:: (\S+)$", part, re.MULTILINE)]
        described += [module] if module not in pages else []
    assert len(described) == len(set(described))
    wanted = set(public_names.public_names().values())
    methods = {f"{m.name}.{name}" for m in public_names.modules() for name in m.methods}  # with their classes
    assert set(described) == wanted - methods
    top = {f"recsim_mnar.{name}" for name in recsim_mnar.__all__} & wanted
    assert len(top) > 40
    for name, value in (("estimate", "recsim_mnar.estimators.from_columns.estimate_value"), ("Log", None)):
        assert f"recsim_mnar.{name}" in described
        assert value is None or public_names.public_names()[value] == f"recsim_mnar.{name}"


def test_links_of_the_page_on_pypi_lead_to_the_repository():
    rename = runpy.run_path(str(ROOT / ".ci" / "absolute_links.py"))["absolute"]
    text = "![a](docs/a.svg) [b](docs/b.md) [c](https://c.org) [d](#e) f(x)"
    assert rename(text, "https://h/o/n", "v1") == (
        "![a](https://h/o/n/raw/v1/docs/a.svg) [b](https://h/o/n/blob/v1/docs/b.md) [c](https://c.org) [d](#e) f(x)"
    )


def test_every_link_has_words_of_its_own():
    """The site fills in titles where there are none; a page read as a file, as on a code host, shows nothing there."""
    pages = [*Path("docs").rglob("*.md"), *Path("benchmarks").rglob("*.md"), *Path().glob("*.md")]
    assert [str(page) for page in pages if "[](" in page.read_text()] == []

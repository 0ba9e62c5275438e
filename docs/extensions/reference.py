"""Writes the pages of the API reference, of what is public alone, and sees to it that no public name is missing."""

from __future__ import annotations

import collections
import functools
import re
from pathlib import Path
from typing import Any

import public_names
import reference_pages
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.ext.napoleon import GoogleDocstring
from sphinx.util.nodes import make_refnode


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for sources; check names when all pages were read."""
    # Of a property's docstring Napoleon takes what stands before a colon for its type; here it is text.
    GoogleDocstring._consume_inline_attribute = lambda self: ("", self._dedent(self._consume_to_end()))
    app.connect("builder-inited", _write_pages)
    app.connect("env-check-consistency", _check)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _defaults)
    app.connect("autodoc-process-docstring", _shapes, priority=600)  # after Napoleon
    app.connect("doctree-read", _leave_to_resolve)
    app.connect("missing-reference", _resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write_pages(app: Sphinx) -> None:
    folder = Path(app.srcdir) / "api"
    folder.mkdir(exist_ok=True)
    pages = reference_pages.pages()
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:  # an unchanged file is not read again
            path.write_text(text)


def _check(app: Sphinx, env: Any) -> None:
    """Raise ExtensionError naming the public names that no page describes."""
    described = set(env.domains.python_domain.objects)
    wanted = {*_published().values()}
    missing = sorted(wanted - described)
    if missing:
        raise ExtensionError(f"{len(missing)} public names are described nowhere: {', '.join(missing)}")
    print(f"API reference: {len(wanted)} of {len(wanted)} public names described")


def _skip(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what NamedTuple makes, whose fields stand under Attributes; keep properties without a docstring."""
    if type(thing).__name__ == "_tuplegetter":
        return True
    return False if isinstance(thing, property) and not name.startswith("_") else None


def _defaults(app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: Any, returns: Any) -> Any:
    """What a dataclass makes anew for each object has no value to print, and ``<factory>`` cannot be read as one."""
    return (signature.replace("<factory>", "..."), returns) if signature else None


_SEVERAL = re.compile(r"^\s*:(?:ivar|vartype|param|type) [^:]+, [^:]+:")
_TYPE = re.compile(r"^(\s*:(?:vartype|type) [^:]+:) (.+)$")


def _shapes(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """In brackets behind a name stand shapes and units, which are no classes to link to."""
    lines[:] = [_TYPE.sub(lambda match: f"{match[1]} ``{match[2].strip('*`')}``", line) for line in lines]
    # Of "a, b: text" Sphinx would take "a," for the type of b.
    lines[:] = [_SEVERAL.sub(lambda match: match[0].replace(", ", ","), line) for line in lines]


def _leave_to_resolve(app: Sphinx, doctree: Any) -> None:
    """Sphinx warns of short names that it finds twice before anyone is asked which is meant; :func:`_resolve` knows."""
    for node in doctree.findall(pending_xref):
        if node.get("refdomain") == "py":
            node.attributes.pop("refspecific", None)


def _resolve(app: Sphinx, env: Any, node: Any, contnode: Any) -> Any:
    """Link names as people write them: by the place they are imported from, or without any."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    where = [part for part in (node.get("py:module"), node.get("py:class")) if part]
    found = _described(app, target, where)
    if found is None:
        return contnode if _is_internal(target) else None
    return make_refnode(app.builder, node["refdoc"], found.docname, found.node_id, contnode, target)


def _described(app: Sphinx, target: str, where: list[str]) -> Any:
    """The entry of a name; of an attribute that has no entry of its own, that of its class."""
    objects = app.env.domains.python_domain.objects
    beside_it = f"{where[0]}.{target}" if where else target
    for dotted in [_origins().get(beside_it, beside_it), *_candidates(target, where)]:
        for name in dict.fromkeys((_public_name(dotted), dotted)):
            if name in objects:
                return objects[name]
            ending = [known for known in _by_last_part(app)[name.rpartition(".")[2]] if known.endswith(f".{name}")]
            beside = [known for known in ending if where and known.startswith(f"{where[0]}.")]
            found = beside or ending
            # Aliases of types are the same in every module that has them.
            if len(found) == 1 or (found and all(objects[known].objtype == "data" for known in found)):
                return objects[found[0]]
    return None


def _public_name(dotted: str) -> str:
    """The name under which something, or what it belongs to, is described."""
    parts = dotted.split(".")
    for length in range(len(parts), 1, -1):
        published = _published().get(".".join(parts[:length]))
        if published is not None:
            return ".".join((published, *parts[length:]))
    return dotted


@functools.cache
def _published() -> dict[str, str]:
    return public_names.public_names()


def _is_internal(target: str) -> bool:
    """Whether a name is the package's own, though no page describes it: a docstring may name it without a link."""
    return target.rpartition(".")[2] in _own_names()


@functools.cache
def _own_names() -> set[str]:
    """The last parts of all names that the package defines, and of its modules."""
    modules = public_names.modules()
    return {
        name.rpartition(".")[2] for module in modules for name in (module.name, *module.defined, *module.comes_from)
    }


@functools.cache
def _by_last_part(app: Sphinx) -> dict[str, list[str]]:
    """All described names by what follows their last dot; references are resolved when everything was read."""
    found = collections.defaultdict(list)
    for name in app.env.domains.python_domain.objects:
        found[name.rpartition(".")[2]].append(name)
    return found


def _candidates(target: str, where: list[str]) -> list[str]:
    """A dotted name, that with its re-exported beginning replaced, and those of what it belongs to."""
    names = [target]
    parts = target.split(".")
    for length in range(len(parts), 0, -1):
        origin = _origins().get(".".join(parts[:length]))
        if origin is not None:
            names.append(".".join((origin, *parts[length:])))
    owners = [name.rpartition(".")[0] for name in names]
    if target.islower() and "." not in target and len(where) == 2:
        owners.append(".".join(where))
    return names + [owner for owner in owners if owner.rpartition(".")[2][:1].isupper()]


@functools.cache
def _origins() -> dict[str, str]:
    """Names that modules import from others -> where they are described."""
    modules = public_names.modules()
    return {
        f"{module.name}.{name}": public_names.origin_of(module, name, modules)
        for module in modules
        for name in (*module.exported, *module.comes_from)
    }

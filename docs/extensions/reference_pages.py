"""The text of the API reference's pages, a page a folder of modules."""

from __future__ import annotations

import inspect

import public_names
from public_names import Module

import recsim_mnar


def pages(modules: list[Module]) -> dict[str, str]:
    """A page for each folder of modules, by its dotted name."""
    packages = {module.name for module in modules if module.is_package}
    grouped: dict[str, list[Module]] = {}
    for module in modules:
        page = module.name if module.name in packages else module.name.rpartition(".")[0]
        grouped.setdefault(page, []).append(module)
    return {page: _page(page, members, modules) for page, members in grouped.items()}


def _page(page: str, members: list[Module], modules: list[Module]) -> str:
    head, *rest = sorted(members, key=lambda module: (module.name != page, module.name))
    parts = [_title(page, "="), _module(head, modules)]
    for module in rest:
        parts += [_title(module.name, "-"), _module(module, modules)]
    return "\n".join(parts)


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _module(module: Module, modules: list[Module]) -> str:
    lines = [f".. automodule:: {module.name}", "   :no-members:", ""]
    lines += _re_exports(module, modules)
    lines += [f".. autofunction:: {module.name}.{name}\n" for name in module.functions]
    for name in module.classes:
        lines += [f".. autoclass:: {module.name}.{name}", "   :members:", "   :show-inheritance:", ""]
    for name in public_names.further_of(module, modules):
        lines += [f".. autoclass:: {module.name}.{name}", ""]
    for name, text in module.constants.items():
        lines += [f".. py:data:: {name}", "", f"   {text}", ""]
    return "\n".join(lines)


def _re_exports(module: Module, modules: list[Module]) -> list[str]:
    exported = {name: public_names.origin_of(module, name, modules) for name in module.exported}
    if module.name == "recsim_mnar":
        exported.update(at_the_top())
    others = {name: origin for name, origin in exported.items() if origin != f"{module.name}.{name}"}
    if not others:
        return []
    rows = [f"* - ``{name}``\n  - :py:obj:`{origin}`" for name, origin in sorted(others.items())]
    table = [".. list-table:: What can be imported from here", "   :widths: 30 70", ""]
    return [*table, *("   " + line for row in rows for line in row.split("\n")), ""]


def at_the_top() -> dict[str, str]:
    """The names of the package itself, and where each is described."""
    found = {}
    for name in recsim_mnar.__all__:
        if name.startswith("__"):
            continue
        thing = getattr(recsim_mnar, name)
        found[name] = thing.__name__ if inspect.ismodule(thing) else f"{thing.__module__}.{thing.__qualname__}"
    return found

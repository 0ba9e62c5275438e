"""The text of the API reference's pages: one of the top, one of each public package, one of the agents."""

from __future__ import annotations

import importlib
import inspect

import public_names
from public_names import Module


def pages() -> dict[str, str]:
    """A page for the top, each public package, the agents and what other libraries' models need, by name."""
    described = public_names.public_names()
    found = {name: _page(name, described) for name in ("recsim_mnar", *_packages())}
    found["recsim_mnar.agents"] = "\n".join([_head("recsim_mnar.agents"), *map(_class, public_names.agents())])
    libraries = [each for each in public_names.modules() if each.name.startswith("recsim_mnar.integrations.")]
    found["recsim_mnar.integrations"] = "\n".join([_head("recsim_mnar.integrations"), *map(_module, libraries)])
    return found


def _packages() -> list[str]:
    return [f"recsim_mnar.{package}" for package in public_names.PACKAGES]


def _page(package: str, described: dict[str, str]) -> str:
    """What is described under a package's name, and links to what the top describes."""
    mine = sorted(name for name in described.values() if name.rpartition(".")[0] == package)
    held = importlib.import_module(package)
    others = sorted({f"recsim_mnar.{name}" for name in held.__all__} & {*described.values()} - {*mine})
    links = ["Also here: " + ", ".join(f":py:obj:`{name}`" for name in others) + ".", ""] if others else []
    return "\n".join([_head(package), *links, *(_entry(name) for name in mine)])


def _head(name: str) -> str:
    return f"{_title(name, '=')}\n.. automodule:: {name}\n   :no-members:\n"


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _entry(name: str) -> str:
    module, _, last = name.rpartition(".")
    thing = getattr(importlib.import_module(module), last)
    if inspect.isclass(thing):
        return _class(name)
    if callable(thing):
        return f".. autofunction:: {name}\n"
    return f".. py:data:: {last}\n\n   {public_names.constant_said(name)}\n"


def _class(name: str) -> str:
    return f".. autoclass:: {name}\n   :members:\n   :show-inheritance:\n"


def _module(module: Module) -> str:
    """All of a module of ``integrations``, whose library need not be here."""
    lines = [_title(module.name, "-"), f".. automodule:: {module.name}", "   :no-members:", ""]
    lines += [f".. autofunction:: {module.name}.{name}\n" for name in module.functions]
    lines += [_class(f"{module.name}.{name}") for name in module.classes]
    lines += [f".. py:data:: {name}\n\n   {text}\n" for name, text in module.constants.items()]
    return "\n".join(lines)

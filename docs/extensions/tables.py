"""Tables that are read from the package: a world's parameters and presets, and what there is by name.

``{parameters} sessions``, ``{presets} sessions``, ``{named} agents`` (estimators, slates, protocols,
worlds), ``{findings} rows few`` (groups of findings.toml), ``{gallery} compare`` (a page of the package in four views).
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import Any

from docutils.nodes import Node, raw
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from recsim_mnar.worlds.registry import WORLDS


def setup(app: Sphinx) -> dict[str, Any]:
    """Announce the directives."""
    app.add_directive("parameters", _Parameters)
    app.add_directive("presets", _Presets)
    app.add_directive("named", _Named)
    app.add_directive("findings", _Findings)
    app.add_directive("gallery", _Gallery)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class _Table(SphinxDirective):
    required_arguments = 1

    def shown(self, heads: list[str], rows: list[list[str]]) -> list[Node]:
        """A table of Markdown."""
        lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        return self.parse_content_to_nodes_from(lines)

    def parse_content_to_nodes_from(self, lines: list[str]) -> list[Node]:
        """What Markdown lines make."""
        self.content = StringList(lines, source=self.get_source_info()[0])
        found: list[Node] = self.parse_content_to_nodes()
        return found


class _Parameters(_Table):
    """Every parameter of a world: its default and what its docstring says."""

    def run(self) -> list[Node]:
        kind = WORLDS[self.arguments[0]].world_class().params_class
        meanings = attributes_of(kind)
        rows = [
            [f"`{field.name}`", f"`{field.default!r}`" if field.default != "" else "", _marked(meanings[field.name])]
            for field in dataclasses.fields(kind)
        ]
        return self.shown(["parameter", "default", "meaning"], rows)


class _Presets(_Table):
    """Every preset of a world, the default first, and what it changes."""

    def run(self) -> list[Node]:
        presets = WORLDS[self.arguments[0]].world_class().presets
        rows = []
        for name, (params, text) in presets.items():
            changed = [
                f"`{field.name}={getattr(params, field.name)}`"
                for field in dataclasses.fields(params)
                if getattr(params, field.name) != field.default
            ]
            rows.append([f"`{name}`", _marked(text), ", ".join(changed) or "the defaults"])
        return self.shown(["preset", "description", "parameters"], rows)


class _Named(_Table):
    """What a command lists: ``agents``, ``estimators``, ``slates`` (theirs), ``protocols`` or ``worlds``."""

    def run(self) -> list[Node]:
        rows = {"agents": _agents, "estimators": _estimators, "protocols": _protocols, "worlds": _worlds}
        rows["slates"] = _of_slates
        return self.shown(*rows[self.arguments[0]]())


class _Findings(_Table):
    """The codes of groups of ``recsim_mnar/estimators/findings.toml``."""

    final_argument_whitespace = True

    def run(self) -> list[Node]:
        from recsim_mnar.estimators.verdict import texts

        rows = []
        for group in self.arguments[0].split():
            rows.append([f"**{texts()['titles'][group]}**", "", "", ""])
            for code, of_it in texts()[group].items():
                rows.append([f"`{code}`", of_it["means"], of_it.get("rule", ""), of_it["page"]])
        return self.shown(["code", "meaning", "rule", "remedy"], rows)


class _Gallery(SphinxDirective):
    """A page that gallery.py writes: light, dark, on a phone and printed."""

    required_arguments = 1
    views = (
        ("light.", "light", ""),
        ("dark.", "dark", ""),
        ("", "on a phone", ' class="phone"'),
        ("print.", "printed", ""),
    )

    def run(self) -> list[Node]:
        page = self.arguments[0]
        figures = [
            f'<figure{kind}><iframe loading="lazy" src="gallery/{page}.{view}html" title="{page}, {caption}"></iframe>'
            f"<figcaption>{caption}</figcaption></figure>"
            for view, caption, kind in self.views
        ]
        whole = f'<p><a href="gallery/{page}.html">The page itself</a></p>'
        return [raw("", f'<div class="gallery">{"".join(figures)}</div>{whole}', format="html")]


def attributes_of(kind: type) -> dict[str, str]:
    """What a class's docstring says under Attributes, by name."""
    section = re.split(r"\n\s*Attributes:\n", inspect.getdoc(kind) or "")[1]
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        begun = re.match(r" {4}(\w+): (.*)", line)
        if begun:
            name = begun[1]
            found[name] = begun[2]
        elif line.startswith("     "):
            found[name] += f" {line.strip()}"
    return found


def _marked(text: str) -> str:
    """A docstring's text as Markdown."""
    return re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text.replace("``", "`"))


def _agents() -> tuple[list[str], list[list[str]]]:
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import needs_of
    from recsim_mnar.protocols.comparison import worlds_for

    rows = []
    for name, text in registry.agents():
        where = worlds_for(needs_of(registry.agent_class(name)))
        rows.append([f"`{name}`", _marked(text), "all" if where is None else ", ".join(where)])
    return ["agent", "description", "worlds"], rows


def _estimators() -> tuple[list[str], list[list[str]]]:
    from recsim_mnar.estimators import ESTIMATORS

    rows = [
        [f"`{info.name}`", info.title, info.source, ", ".join(f"`{r}`" for r in (*info.needs, *info.requires))]
        for info in ESTIMATORS.values()
    ]
    return ["estimator", "value (w = target / propensity)", "source", "needs"], rows


def _of_slates() -> tuple[list[str], list[list[str]]]:
    from recsim_mnar.estimators.ranking_records import RANKING_ESTIMATORS

    rows = [[f"`{name}`", info.title, info.assumes, info.source] for name, info in RANKING_ESTIMATORS.items()]
    return ["name", "score of a slate", "assumes", "paper"], rows


def _protocols() -> tuple[list[str], list[list[str]]]:
    from recsim_mnar.protocols.base import known_protocols, summary_of
    from recsim_mnar.protocols.comparison import experiment_of

    rows = [[f"`{name}`", _marked(summary_of(name)), "all with the needed inputs"] for name in known_protocols()]
    for world, entry in WORLDS.items():
        own = experiment_of(entry.world_class()).own_protocols
        rows += [[f"`{name}`", _marked(summary_of(name, own)), world] for name in own]
    return ["protocol", "description", "worlds"], rows


def _worlds() -> tuple[list[str], list[list[str]]]:
    from recsim_mnar.worlds.registry import listed

    return ["world", "description"], [[f"`{name}`", _marked(text)] for name, text in listed()]

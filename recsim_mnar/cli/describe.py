"""``recsim-mnar describe``: one agent, world, preset, estimator or protocol, its parameters and its source."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import click

from recsim_mnar.cli.docstring import paragraphs, parameters
from recsim_mnar.cli.json_output import JsonOutput, json_option
from recsim_mnar.cli.output import answer, sentence, show_pairs
from recsim_mnar.errors import UserError, nearest

Told = dict[str, Any]
_EVERY = "every world"


@click.command(short_help="What one agent, world, ... is, and its parameters.")
@click.argument("kind", type=click.Choice(["agent", "world", "preset", "estimator", "protocol"]))
@click.argument("name")
@json_option("all of it")
def describe(kind: str, name: str, json_output: JsonOutput) -> None:
    """Say what NAME is: its parameters with defaults and meanings, its worlds, and where it is from.

    The lists (`recsim-mnar agents`, `worlds`, `presets`, `estimators`, `protocols`) have the names; your own
    package.module:Class is described too.
    """
    json_output.check()
    found = _DESCRIBED[kind](name)
    if not json_output.alone:
        _print(found)
    json_output.write(found)


def _print(found: Told) -> None:
    answer(f"{found['kind']} {found['name']}")
    for line in found["description"]:
        sentence(line)
    for heading, rows in _tables(found):
        answer("")
        if heading:
            answer(heading)
        show_pairs(rows)


def _tables(found: Told) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Headings with rows of names and texts."""
    facts = [(name, value if isinstance(value, str) else ", ".join(value)) for name, value in found["facts"].items()]
    if facts:
        yield "", facts
    for heading, rows in found["parameters"].items():
        if rows:
            yield f"{heading}:", [(_shown(row), row["meaning"] or "-") for row in rows]


def _shown(row: Told) -> str:
    return f"  {row['name']} (needed)" if row["needed"] else f"  {row['name']}={_value(row['default'])}"


def _value(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) and value else repr(value)


def _place(kind: Any) -> str:
    if not (inspect.isclass(kind) or inspect.isroutine(kind)):
        kind = type(kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _told(kind: str, name: str, description: list[str], facts: Told, **tables: list[Told]) -> Told:
    return {
        "kind": kind,
        "name": name,
        "description": description,
        "facts": {key: value for key, value in facts.items() if value},
        "parameters": {heading.replace("_", " "): rows for heading, rows in tables.items() if rows},
    }


def _agent(name: str) -> Told:
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.needs import HOLDINGS, needs_of
    from recsim_mnar.protocols.comparison import worlds_for

    name = name.partition("+")[0].strip()
    kind = registry.agent_class(name)
    needs = sorted(needs_of(kind))
    facts = {
        "learns from": [HOLDINGS[need] for need in needs] or "views, or nothing",
        "worlds": worlds_for(frozenset(needs)) or _EVERY,
        "while it acts": _learns(kind),
        "source": _place(kind),
        "used as": f"--agents {name}, or {name}+parameter=value",
    }
    softened = [
        {"name": "epsilon", "default": None, "needed": False, "meaning": "share of decisions that are uniform"},
        {"name": "temperature", "default": None, "needed": False, "meaning": "temperature of a softmax of its scores"},
    ]
    own = parameters(kind, without=("n_items", "name")) if inspect.isclass(kind) else []
    return _told("agent", name, paragraphs(kind), facts, parameters=own, softened_by=softened)


def _learns(kind: Any) -> str:
    learns = getattr(kind, "learns", None)
    return f"it learns from {learns}" if isinstance(learns, str) and learns != "nothing" else ""


def _world(name: str) -> Told:
    from recsim_mnar.policies.needs import HOLDINGS
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds.registry import entry_of

    entry = entry_of(name)
    kind = entry.world_class()
    facts: Told = {
        "what happens": entry.summary,
        "presets": [f"{each}: {text}" for each, text in entry.presets().items()],
        "default preset": entry.default,
        "logs hold beside views": [HOLDINGS[each] for each in sorted(kind.log_holds or ())],
        "truth column": kind.truth_column or "",
        "source": _place(kind),
    }
    tables: dict[str, list[Told]] = {"parameters_(--set)": parameters(kind.params_class)}
    try:
        experiment = experiment_of(kind)
    except UserError as error:
        facts["compare"] = str(error)
    else:
        facts["agents compared"] = list(experiment.agents)
        facts["protocols"] = list(experiment.protocols)
        tables["options_of_compare_(--option)"] = parameters(experiment.settings_type)
    presets = facts["presets"]
    return _told("world", name, paragraphs(kind), {**facts, "presets": "; ".join(presets)}, **tables)


def _preset(name: str) -> Told:
    from recsim_mnar.worlds.registry import worlds

    world, _, preset = name.replace(" ", ":").rpartition(":")
    there: dict[str, dict[str, tuple[Any, str]]] = {}
    for each, entry in worlds().items():
        try:
            there[each] = dict(entry.world_class().presets)
        except UserError:  # `worlds` says why
            continue
    if world and world not in there:
        raise UserError(f"preset {name!r}: unknown world {world!r}; {nearest(world, there)}")
    found = {each: presets[preset] for each, presets in there.items() if preset in presets and world in ("", each)}
    if not found:
        known = {each for of, presets in there.items() for each in presets if world in ("", of)}
        of = f" of the {world} world" if world else ""
        raise UserError(f"unknown preset {preset!r}{of}; {nearest(preset, known)}")
    tables = {}
    for each, (params, _) in found.items():
        rows = parameters(type(params))
        values = params.to_dict()
        tables[f"parameters_in_the_{each}_world"] = [{**row, "default": values[row["name"]]} for row in rows]
    facts = {f"{each} world": text for each, (_, text) in found.items()}
    return _told("preset", preset, [], {**facts, "used as": f"--world {next(iter(found))} --preset {preset}"}, **tables)


def _estimator(name: str) -> Told:
    from recsim_mnar.estimators.off_policy.scores import check_name

    info = check_name(name)
    says = {"q_logged": "--q-logged", "q_target": "--q-target"}
    facts: Told = {
        "after": info.source,
        "needs besides reward, propensity and target": [says.get(each, each) for each in info.needs],
        "must be given": list(info.requires),
        "may be given": list(info.takes),
        "weights": "clipped at --clip" if info.clips else "not clipped",
        "difference from a baseline": "known" if info.from_moments else "not known",
        "less bias": info.less_bias,
        "where few weights decide": "" if info.lighter == name else f"use {info.lighter}",
        "source": _place(info.scores),
    }
    said = paragraphs(info.scores)
    told_already = bool(said) and info.title.lower() in said[0].lower()
    return _told("estimator", name, said if told_already else [info.title, *said], facts)


def _protocol(name: str) -> Told:
    from recsim_mnar.protocols.base import known_protocols, protocol
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds.registry import WORLDS

    experiments = {world: experiment_of(entry.world_class()) for world, entry in WORLDS.items()}
    world, _, plain = name.rpartition(": ")
    owners = [each for each, own in experiments.items() if plain in own.own_protocols and world in ("", each)]
    if not owners and ":" not in plain and plain not in known_protocols():
        every = {*known_protocols(), *(each for own in experiments.values() for each in own.own_protocols)}
        raise UserError(f"unknown protocol {name!r}; {nearest(plain, every)} (one of your own: package.module:Class)")
    made = protocol(plain, experiments[owners[0]].own_protocols if owners else None)
    worlds = owners or [each for each, own in experiments.items() if made.needs <= own.provides]
    facts: Told = {
        "ranks by": list(made.metrics),
        "needs": sorted(made.needs),
        "worlds": worlds,
        "source": _place(type(made)),
        "used as": f"--protocols {plain}",
    }
    return _told("protocol", plain, [made.summary, *paragraphs(type(made))], facts, parameters=parameters(type(made)))


_DESCRIBED: dict[str, Callable[[str], Told]] = {
    "agent": _agent,
    "world": _world,
    "preset": _preset,
    "estimator": _estimator,
    "protocol": _protocol,
}

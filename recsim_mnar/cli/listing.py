"""``recsim-mnar list`` and ``describe``: one line per name, and all details of one."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import click

from recsim_mnar.cli.options import experiments
from recsim_mnar.cli.output import JsonOutput, answer, is_quiet, json_option, say, sentence, show_pairs
from recsim_mnar.errors import UserError, nearest

Rows = list[tuple[str, str]]
Facts = dict[str, str | list[str]]
_EVERY = "every world"
_MEANING = re.compile(r"^    (\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*)*)", re.MULTILINE)
"""A name and what follows it, in a docstring's section of arguments."""


@dataclass(frozen=True)
class Parameter:
    """A parameter or an option of what is described; one that is needed has no default."""

    name: str
    default: Any = None
    needed: bool = False
    meaning: str = ""

    def at(self, values: Mapping[str, Any]) -> Parameter:
        """The same with another default, by its name."""
        return replace(self, default=values[self.name])

    def shown(self) -> str:
        """Name and default, as a line begins with them."""
        if self.name.startswith("--"):
            return f"  {self.name}"
        if self.needed:
            return f"  {self.name} (needed)"
        return f"  {self.name}={_value(self.default)}"


@dataclass(frozen=True)
class Found:
    """All that is known of one.

    Attributes:
        kind: what it is.
        name: its own.
        description: a paragraph each.
        facts: by what they are of; empty ones are not shown.
        parameters: by heading.
    """

    kind: str
    name: str
    description: list[str]
    facts: Facts
    parameters: Mapping[str, list[Parameter]] = field(default_factory=dict)

    def to_dict(self) -> Mapping[str, object]:
        """List the fields that are set; JSON types."""
        return {
            "kind": self.kind,
            "name": self.name,
            "description": self.description,
            "facts": {name: fact for name, fact in self.facts.items() if fact},
            "parameters": {heading: [vars(row) for row in rows] for heading, rows in self.parameters.items() if rows},
        }

    def show(self) -> None:
        """Print it."""
        answer(f"{self.kind} {self.name}")
        for paragraph in self.description:
            sentence(paragraph)
        answer("")
        facts = {name: fact if isinstance(fact, str) else ", ".join(fact) for name, fact in self.facts.items()}
        show_pairs([(name, fact) for name, fact in facts.items() if fact])
        for heading, rows in self.parameters.items():
            if rows:
                answer("", f"{heading}:")
                show_pairs([(row.shown(), row.meaning or "-") for row in rows])


def _worlds() -> tuple[Rows, Any]:
    from recsim_mnar.worlds.registry import listed

    return _summaries(listed())


def _agents() -> tuple[Rows, Any]:
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import needs_of
    from recsim_mnar.protocols.comparison import worlds_for
    from recsim_mnar.worlds.registry import worlds

    rows = []
    content = []
    for name, text in registry.agents():
        where = worlds_for(needs_of(registry.agent_class(name)))
        rows.append((name, f"{text.removesuffix('.')} ({', '.join(where or [_EVERY])})."))
        content.append({"name": name, "summary": text, "worlds": where or sorted(worlds())})
    return rows, content


def _estimators() -> tuple[Rows, Any]:
    from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS
    from recsim_mnar.estimators.scores import known_estimators

    slates = [(name, f"of slates: {info.title}") for name, info in RANKING_ESTIMATORS.items()]
    return _summaries([*known_estimators().items(), *slates])


def _protocols() -> tuple[Rows, Any]:
    from recsim_mnar.protocols.base import known_protocols, summary_of

    result = [{"name": name, "world": None, "summary": summary_of(name)} for name in known_protocols()]
    options = {}
    for world, experiment in experiments().items():
        own_protocols = experiment.own_protocols
        result += [{"name": name, "world": world, "summary": summary_of(name, own_protocols)} for name in own_protocols]
        options[world] = experiment.settings(experiment.preset).to_dict()
    rows = [(": ".join(filter(None, (one["world"], one["name"]))), f"{one['summary']}") for one in result]
    return rows, {"protocols": result, "options": options}


def _presets() -> tuple[Rows, Any]:
    from recsim_mnar.worlds.registry import listed_presets

    rows = listed_presets()
    return rows, [{"world": name.split()[0], "name": name.split()[1], "summary": text} for name, text in rows]


def _tasks() -> tuple[Rows, Any]:
    from recsim_mnar.tasks import task, tasks

    return _summaries([(name, task(name).summary) for name in tasks()])


def _summaries(rows: Rows) -> tuple[Rows, Any]:
    return rows, [{"name": name, "summary": text} for name, text in rows]


_LISTS: dict[str, tuple[Callable[[], tuple[Rows, Any]], str]] = {
    "worlds": (_worlds, "List the worlds; `describe world NAME` has their parameters."),
    "agents": (_agents, "List the agents, and the worlds that each is for; `describe agent NAME` has its parameters."),
    "estimators": (_estimators, "List the estimators; `describe estimator NAME` says what each needs."),
    "protocols": (
        _protocols, "List the protocols, and the options of each world's comparison; `describe protocol NAME` has more."
    ),
    "presets": (_presets, "List the presets of every world; `describe preset NAME` has their parameters."),
    "tasks": (_tasks, "List the frozen tasks; `describe task NAME` has all that is frozen."),
}  # fmt: skip


@click.command("list", short_help="List worlds, agents, estimators, protocols, presets or tasks.")
@click.argument("kind", type=click.Choice([*_LISTS]), required=False)
@json_option("the list")
def list_command(kind: str | None, json_output: JsonOutput) -> None:
    """List what there is of a KIND, or of each, one line per name; `describe` has all that is known of one."""
    _show(kind, json_output)


def _show(kind: str | None, json_output: JsonOutput) -> None:
    json_output.check()
    lists = {kind_of_list: _LISTS[kind_of_list][0]() for kind_of_list in ([*_LISTS] if kind is None else [kind])}
    for name, (rows, content) in {} if json_output.alone else lists.items():
        if kind is None:
            answer(f"{name}:")
        if is_quiet():
            for kind_of_list, _ in rows:
                answer(kind_of_list)
        else:
            show_pairs(rows)
        if name == "protocols":
            say("")
            for world, values in content["options"].items():
                say(f"--option of --world {world}: {', '.join(f'{key}={value}' for key, value in values.items())}")
    written = {name: content for name, (_, content) in lists.items()}
    json_output.write(written if kind is None else written[kind])


def _alias(kind: str) -> click.Command:
    """The command `worlds`, `agents`, ...: `list` of that kind, under the name that scripts know."""
    keep = [option for option in list_command.params if option.name != "kind"]
    run = functools.partial(_show, kind)
    return click.Command(kind, callback=run, params=keep, help=_LISTS[kind][1], hidden=True)


aliases = [_alias(kind) for kind in _LISTS]


@click.command(short_help="Describe one agent, world, estimator, ...")
@click.argument("kind", metavar="[KIND]")
@click.argument("name", required=False)
@json_option("all of it")
def describe(kind: str, name: str | None, json_output: JsonOutput) -> None:
    """Describe NAME: its parameters with defaults and meanings, its worlds, and where it comes from.

    KIND is agent, world, preset, estimator, protocol, task, reference (oracle, planner) or command, and is needed only
    where a name is of several kinds.
    `recsim-mnar list` shows the names; your own package.module:Class is described too.
    """
    json_output.check()
    if name is not None and kind not in _DESCRIBED:
        raise UserError(f"describe {kind}: unknown kind. Give one of {', '.join(_DESCRIBED)}")
    if name is not None:
        description = _DESCRIBED[kind](name)
    else:
        description = _of_any_kind(kind)
    if not json_output.alone:
        description.show()
    json_output.write(description.to_dict())


def _of_any_kind(name: str) -> Found:
    """Describe a name whose kind was not given.

    Raises:
        UserError: nothing has this name, or things of several kinds have it.
    """
    if name in _DESCRIBED:
        raise UserError(f"describe {name}: which? Give its name; `recsim-mnar list {name}s` shows them")
    kind_name = {}
    reasons = []
    for kind, described_by in _DESCRIBED.items():
        try:
            kind_name[kind] = described_by(name)
        except UserError as error:
            reasons.append(str(error))
    if not kind_name:
        meant = next((reason for reason in reasons if "did you mean" in reason), "`recsim-mnar list` shows every name")
        raise UserError(meant if meant.startswith("unknown") else f"describe {name}: unknown name; {meant}")
    if len(kind_name) > 1:
        raise UserError(
            f"{name} is the name of several. Say which: describe {f' {name}, or describe '.join(kind_name)} {name}"
        )
    return next(iter(kind_name.values()))


def _value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str) and value:
        return value
    return repr(value)


def _place(kind: Any) -> str:
    if not (inspect.isclass(kind) or inspect.isroutine(kind)):
        kind = type(kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _plain(text: str) -> str:
    """Remove reStructuredText markup: ``code`` and :class:`~module.Name` become the names in them."""
    return " ".join(re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "").split())


def _paragraphs(kind: Any) -> list[str]:
    """The part of a docstring before its sections."""
    before = re.split(r"^[A-Z][a-z]+:$", inspect.getdoc(kind) or "", maxsplit=1, flags=re.MULTILINE)[0]
    return [_plain(block) for block in before.split("\n\n") if block.strip()]


def _parameters(kind: Any, *, without: tuple[str, ...] = ()) -> list[Parameter]:
    """Name, default and meaning of a class's parameters; ``**keywords`` stand for those of its base."""
    meanings: dict[str, str] = {}
    accepted: dict[str, inspect.Parameter] = {}
    goes_on = True
    for base in inspect.getmro(kind):
        described = [base, *([vars(base)["__init__"]] if "__init__" in vars(base) else [])]
        text = "\n".join(inspect.getdoc(one) or "" for one in described)
        meanings = dict(_MEANING.findall(text)) | meanings
        if goes_on and len(described) > 1:
            parameters = inspect.signature(base).parameters
            named = {name: p for name, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
            accepted = accepted | {name: p for name, p in named.items() if name not in accepted}
            goes_on = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return [
        Parameter(
            name,
            None if p.default is p.empty else p.default,
            p.default is p.empty,
            _plain(meanings.get(name, "")),
        )
        for name, p in accepted.items()
        if name not in without
    ]


def _agent(name: str) -> Found:
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import HOLDINGS, needs_of
    from recsim_mnar.protocols.comparison import worlds_for

    name = name.partition("+")[0].strip()
    kind = registry.agent_class(name)
    needs = sorted(needs_of(kind))
    facts: Facts = {
        "learns from": [HOLDINGS[need] for need in needs] or "views, or nothing",
        "worlds": worlds_for(frozenset(needs)) or _EVERY,
        "while it acts": _learns(kind),
        "source": _place(kind),
        "used as": f"--agents {name}, or {name}+parameter=value",
    }
    softened = [
        Parameter("epsilon", meaning="share of decisions that are uniform"),
        Parameter("temperature", meaning="temperature of a softmax of its scores"),
    ]
    if inspect.isclass(kind):
        parameters = _parameters(kind, without=("n_items", "name"))
    else:
        parameters = []
    return Found("agent", name, _paragraphs(kind), facts, {"parameters": parameters, "softened by": softened})


def _learns(kind: Any) -> str:
    learns = getattr(kind, "learns", None)
    if isinstance(learns, str) and learns != "nothing":
        return f"it learns from {learns}"
    return ""


def _world(name: str) -> Found:
    from recsim_mnar.policies.door import HOLDINGS
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds.registry import entry_of

    entry = entry_of(name)
    kind = entry.world_class()
    facts: Facts = {
        "what happens": entry.summary,
        "presets": "; ".join(f"{each}: {text}" for each, text in entry.presets().items()),
        "default preset": entry.default,
        "logs hold beside views": [HOLDINGS[each] for each in sorted(kind.log_holds or ())],
        "truth column": kind.truth_column or "",
        "source": _place(kind),
    }
    tables = {"parameters (--set)": _parameters(kind.params_class)}
    try:
        experiment = experiment_of(kind)
    except UserError as error:
        facts["compare"] = str(error)
    else:
        facts["agents compared"] = list(experiment.agents)
        facts["protocols"] = list(experiment.protocols)
        tables["options of compare (--option)"] = _parameters(experiment.settings_type)
    return Found("world", name, _paragraphs(kind), facts, tables)


def _preset(name: str) -> Found:
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
    presets_found = {
        each: presets[preset] for each, presets in there.items() if preset in presets and world in ("", each)
    }
    if not presets_found:
        known_presets = {each for of, presets in there.items() for each in presets if world in ("", of)}
        if world:
            of = f" of the {world} world"
        else:
            of = ""
        raise UserError(f"unknown preset {preset!r}{of}; {nearest(preset, known_presets)}")
    tables = {f"parameters in the {each} world": _frozen(params) for each, (params, _) in presets_found.items()}
    facts: Facts = {f"{each} world": text for each, (_, text) in presets_found.items()}
    facts["used as"] = f"--world {next(iter(presets_found))} --preset {preset}"
    return Found("preset", preset, [], facts, tables)


def _frozen(params: Any) -> list[Parameter]:
    """A world's parameters with the values that they have."""
    return [row.at(params.to_dict()) for row in _parameters(type(params))]


def _of_slates(name: str) -> Found:
    """An estimator of slates."""
    from recsim_mnar.estimators.ranking_records import LOGGED, MEANING, RANKING_ESTIMATORS, SUFFIXES

    info = RANKING_ESTIMATORS[name]
    kinds = {"cumulative": ["conditional"], "adaptive": ["marginal", "conditional"]}.get(info.weight, [info.weight])
    facts: Facts = {
        "after": info.source,
        "of": "slates, one row per position",
        "assumes of users": info.assumes,
        "where that is wrong it estimates": info.fails,
        "columns of the log": ["reward", "position", *(LOGGED[kind] for kind in kinds)],
        "columns of the target NAME": ["NAME" + SUFFIXES[kind] for kind in kinds],
        "must be given": [f"{requirement} ({MEANING[requirement]})" for requirement in info.requires],
        "may be given": list(info.takes),
        "weights": "clipped where a clip is given" if info.clipped else "not clipped",
        "compared with": list(info.less),
        "source": "recsim_mnar.estimators.rankings:estimate_ranking_value",
    }
    return Found("estimator", name, [info.title], facts)


def _estimator(name: str) -> Found:
    from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS
    from recsim_mnar.estimators.scores import check_name

    if name in RANKING_ESTIMATORS:
        return _of_slates(name)
    info = check_name(name)
    says = {"q_logged": "--q-logged", "q_target": "--q-target"}
    facts: Facts = {
        "after": info.source,
        "needs besides reward, propensity and target": [says.get(need, need) for need in info.needs],
        "must be given": list(info.requires),
        "may be given": list(info.takes),
        "weights": "clipped at --clip" if info.clips else "not clipped",
        "difference from a baseline": "known" if info.in_blocks else "not known",
        "less bias": info.less_bias,
        "where few weights decide": "" if info.lighter == name else f"use {info.lighter}",
        "source": _place(info.scores),
    }
    paragraphs = _paragraphs(info.scores)
    already = bool(paragraphs) and info.title.lower() in paragraphs[0].lower()
    return Found("estimator", name, paragraphs if already else [info.title, *paragraphs], facts)


def _protocol(name: str) -> Found:
    from recsim_mnar.protocols.base import known_protocols, protocol

    all_experiments = experiments()
    world, _, plain = name.rpartition(": ")
    owners = [
        entry
        for entry, experiment in all_experiments.items()
        if plain in experiment.own_protocols and world in ("", entry)
    ]
    if not owners and ":" not in plain and plain not in known_protocols():
        every = {
            *known_protocols(),
            *(entry for experiment in all_experiments.values() for entry in experiment.own_protocols),
        }
        raise UserError(f"unknown protocol {name!r}; {nearest(plain, every)} (one of your own: package.module:Class)")
    made = protocol(plain, all_experiments[owners[0]].own_protocols if owners else None)
    worlds = owners or [entry for entry, experiment in all_experiments.items() if made.needs <= experiment.provides]
    facts: Facts = {
        "ranks by": list(made.metrics),
        "needs": sorted(made.needs),
        "worlds": worlds,
        "source": _place(type(made)),
        "used as": f"--protocols {plain}",
    }
    tables = {"parameters": _parameters(type(made))}
    return Found("protocol", plain, [made.summary, *_paragraphs(type(made))], facts, tables)


def _earned(known: Any) -> str:
    """Format the rewards per user of a task's reference."""
    return f"{known.value:g} per user (standard error {known.error:g})"


def _task(name: str) -> Found:
    from recsim_mnar.tasks import task

    described_task = task(name)
    runner = described_task.runner()
    facts: Facts = {
        "world": described_task.world,
        "horizon": f"{described_task.horizon:,} {runner.step}s per {runner.unit}",
        f"{runner.unit}s": f"{described_task.users:,}, seed {described_task.seed}",
        "a learner's log": runner.learns_from,
        "score 0": f"random: {_earned(described_task.random)}",
        "score 1": f"{described_task.reference}: {_earned(described_task.best)}",
        "environment": _environment(described_task),
        "sha256": described_task.digest,
        "used as": f"recsim-mnar evaluate AGENT --task {name}",
    }
    tables = {"parameters": _frozen(described_task.make_world().params)}
    return Found("task", name, [f"{described_task.summary[0].upper()}{described_task.summary[1:]}."], facts, tables)


def _environment(found: Any) -> str:
    """Describe how to make a task's environment, with the observation of recent showings where it matters."""
    if not found.environment:
        return "none: learn from the task's log"
    words = found.name.split("-")
    camel_case = "".join(word.capitalize() for word in words[:-1])
    make = f"gym.make('recsim_mnar/{camel_case}-{words[-1]}'"
    params = found.params
    if not (params.get("fatigue") and "fatigue_memory" in params):
        return f"{make})"
    return f"{make}, observation='shown={params['fatigue_memory']:g}'); without it, what was shown is not observed"


def _reference(name: str) -> Found:
    from recsim_mnar.tasks.running import Items

    references = Items.references
    if name not in references:
        raise UserError(f"unknown reference {name!r}; {nearest(name, references)}")
    kind = getattr(references[name], "func", references[name])
    facts: Facts = {
        "knows": f"the world{' and' if 'oracle' in name else ', not'} its users' states",
        "source": _place(kind),
        "used as": f"recsim-mnar evaluate AGENT --task NAME --against {name}",
    }
    tables = {"parameters": _parameters(kind, without=("world",))}
    return Found("reference", name, _paragraphs(kind), facts, tables)


def _command(name: str) -> Found:
    """Every option of a command, those that its help leaves out included."""
    group = click.get_current_context().find_root().command
    if isinstance(group, click.Group):
        commands = group.commands
    else:
        commands = {}
    command = commands.get(name)
    if command is None:
        raise UserError(f"unknown command {name!r}; {nearest(name, commands)}")
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    tables = {
        "options in its help": [_option_row(parameter) for parameter in options if not parameter.hidden],
        "further options": [_option_row(parameter) for parameter in options if parameter.hidden],
    }
    if name == "compare":
        from recsim_mnar.protocols.interactions import InteractionsSettings

        tables["options of --interactions (--option)"] = _parameters(InteractionsSettings)
        for world, experiment in experiments().items():
            tables[f"options of --world {world} (--option)"] = _parameters(experiment.settings_type)
    return Found("command", name, _paragraphs(command.callback), {"used as": f"recsim-mnar {name}"}, tables)


def _option_row(parameter: click.Option) -> Parameter:
    if isinstance(parameter.default, (str, int, float)):
        default = parameter.default
    else:
        default = None
    return Parameter(parameter.opts[0], default, meaning=parameter.help or "")


_DESCRIBED: dict[str, Callable[[str], Found]] = {
    "agent": _agent,
    "world": _world,
    "preset": _preset,
    "estimator": _estimator,
    "protocol": _protocol,
    "task": _task,
    "reference": _reference,
    "command": _command,
}

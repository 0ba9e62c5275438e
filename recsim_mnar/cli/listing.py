"""``recsim-mnar list`` and ``describe``: one line per name, and all details of one."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from recsim_mnar.cli.options import experiments
from recsim_mnar.cli.output import JsonOutput, answer, is_quiet, json_option, say, sentence, show_pairs
from recsim_mnar.errors import UserError, nearest

Rows = list[tuple[str, str]]
"""Names, each with a line of text."""
Facts = dict[str, str | list[str]]
"""Values by heading."""
_EVERY_WORLD = "every world"
_MEANING = re.compile(r"^    (\w+)(?: \([^)]*\))?: (.*(?:\n {5,}.*)*)", re.MULTILINE)
"""A name and the text after it, in a docstring's section of arguments."""


@dataclass(frozen=True)
class Parameter:
    """A parameter or an option.

    Attributes:
        name: name of the parameter; of an option with its dashes.
        default: default value.
        needed: True for a parameter without a default.
        meaning: description; may be empty.
    """

    name: str
    default: Any = None
    needed: bool = False
    meaning: str = ""

    def head(self) -> str:
        """Format the name and the default, with which the parameter's line begins."""
        if self.name.startswith("--"):
            return f"  {self.name}"
        if self.needed:
            return f"  {self.name} (needed)"
        default = self.default
        if default is None:
            default = "none"
        elif not isinstance(default, str) or not default:
            default = repr(default)
        return f"  {self.name}={default}"


@dataclass(frozen=True)
class Description:
    """Details of one agent, world, command and so on.

    Attributes:
        kind: kind of thing, such as "agent" or "world".
        name: name of the thing.
        paragraphs: paragraphs of text.
        facts: values by heading; empty ones are not shown.
        parameters: parameters by heading.
    """

    kind: str
    name: str
    paragraphs: list[str]
    facts: Facts
    parameters: Mapping[str, list[Parameter]] = field(default_factory=dict)

    def to_dict(self) -> Mapping[str, object]:
        """Return everything that is set, as JSON types."""
        return {
            "kind": self.kind,
            "name": self.name,
            "description": self.paragraphs,
            "facts": {name: fact for name, fact in self.facts.items() if fact},
            "parameters": {heading: [vars(row) for row in rows] for heading, rows in self.parameters.items() if rows},
        }

    def show(self) -> None:
        """Print the description."""
        answer(f"{self.kind} {self.name}")
        for paragraph in self.paragraphs:
            sentence(paragraph)
        answer("")
        facts = {name: fact if isinstance(fact, str) else ", ".join(fact) for name, fact in self.facts.items()}
        show_pairs([(name, fact) for name, fact in facts.items() if fact])
        for heading, rows in self.parameters.items():
            if rows:
                answer("", f"{heading}:")
                show_pairs([(row.head(), row.meaning or "-") for row in rows])


# Each of the following functions returns the lines of a list, and its content for JSON.


def _list_worlds() -> tuple[Rows, Any]:
    """List the worlds."""
    from recsim_mnar.worlds.registry import listed

    return _summaries(listed())


def _list_agents() -> tuple[Rows, Any]:
    """List the agents, each with the worlds whose logs it can be fitted on."""
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import needs_of
    from recsim_mnar.protocols.comparison import worlds_for
    from recsim_mnar.worlds.registry import worlds

    rows = []
    content = []
    for name, summary in registry.agents():
        where = worlds_for(needs_of(registry.agent_class(name)))
        rows.append((name, f"{summary.removesuffix('.')} ({', '.join(where or [_EVERY_WORLD])})."))
        content.append({"name": name, "summary": summary, "worlds": where or sorted(worlds())})
    return rows, content


def _list_estimators() -> tuple[Rows, Any]:
    """List the estimators of single items, then those of slates."""
    from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS
    from recsim_mnar.estimators.scores import known_estimators

    slates = [(name, f"of slates: {info.title}") for name, info in RANKING_ESTIMATORS.items()]
    return _summaries([*known_estimators().items(), *slates])


def _list_protocols() -> tuple[Rows, Any]:
    """List the protocols, those of single worlds last; the JSON also has the options of each world's comparison."""
    from recsim_mnar.protocols.base import known_protocols, summary_of

    rows = [(name, summary_of(name)) for name in known_protocols()]
    content = [{"name": name, "world": None, "summary": summary} for name, summary in rows]
    options = {}
    for world, experiment in experiments().items():
        for name in experiment.own_protocols:
            summary = summary_of(name, experiment.own_protocols)
            rows.append((f"{world}: {name}", summary))
            content.append({"name": name, "world": world, "summary": summary})
        options[world] = experiment.settings(experiment.preset).to_dict()
    return rows, {"protocols": content, "options": options}


def _list_presets() -> tuple[Rows, Any]:
    """List the presets of all worlds."""
    from recsim_mnar.worlds.registry import listed_presets

    rows = listed_presets()
    content = []
    for name, summary in rows:
        world, preset = name.split()
        content.append({"world": world, "name": preset, "summary": summary})
    return rows, content


def _list_tasks() -> tuple[Rows, Any]:
    """List the frozen tasks."""
    from recsim_mnar.tasks import task, tasks

    return _summaries([(name, task(name).summary) for name in tasks()])


def _summaries(rows: Rows) -> tuple[Rows, Any]:
    """Return rows of names and summaries unchanged, and as JSON types."""
    return rows, [{"name": name, "summary": summary} for name, summary in rows]


_LISTS: dict[str, tuple[Callable[[], tuple[Rows, Any]], str]] = {
    "worlds": (_list_worlds, "List the worlds; `describe world NAME` has their parameters."),
    "agents": (
        _list_agents, "List the agents, and the worlds that each is for; `describe agent NAME` has its parameters."
    ),
    "estimators": (_list_estimators, "List the estimators; `describe estimator NAME` says what each needs."),
    "protocols": (
        _list_protocols,
        "List the protocols, and the options of each world's comparison; `describe protocol NAME` has more.",
    ),
    "presets": (_list_presets, "List the presets of every world; `describe preset NAME` has their parameters."),
    "tasks": (_list_tasks, "List the frozen tasks; `describe task NAME` has all that is frozen."),
}  # fmt: skip


@click.command("list", short_help="List worlds, agents, estimators, protocols, presets or tasks.")
@click.argument("kind", type=click.Choice([*_LISTS]), required=False)
@json_option("the list")
def list_command(kind: str | None, json_output: JsonOutput) -> None:
    """List what there is of a KIND, or of each, one line per name; `describe` has all that is known of one."""
    _print_lists(kind, json_output)


def _print_lists(kind: str | None, json_output: JsonOutput) -> None:
    """Print the list of a kind, or all lists for None, and write it as JSON."""
    json_output.check()
    kinds = list(_LISTS) if kind is None else [kind]
    lists = {name: _LISTS[name][0]() for name in kinds}
    if not json_output.alone:
        for name, (rows, content) in lists.items():
            if kind is None:
                answer(f"{name}:")
            if is_quiet():
                answer(*(row_name for row_name, _ in rows))
            else:
                show_pairs(rows)
            if name == "protocols":
                say("")
                for world, options in content["options"].items():
                    say(f"--option of --world {world}: {', '.join(f'{key}={value}' for key, value in options.items())}")
    contents = {name: content for name, (_, content) in lists.items()}
    json_output.write(contents if kind is None else contents[kind])


def _make_alias(kind: str) -> click.Command:
    """Make a hidden command such as `worlds`, which does the same as `list worlds`; scripts may still use it."""
    params = [param for param in list_command.params if param.name != "kind"]
    return click.Command(
        kind, callback=functools.partial(_print_lists, kind), params=params, help=_LISTS[kind][1], hidden=True
    )


aliases = [_make_alias(kind) for kind in _LISTS]


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
    if name is None:
        description = _describe_any_kind(kind)
    elif kind in _DESCRIBERS:
        description = _DESCRIBERS[kind](name)
    else:
        raise UserError(f"describe {kind}: unknown kind. Give one of {', '.join(_DESCRIBERS)}")
    if not json_output.alone:
        description.show()
    json_output.write(description.to_dict())


def _describe_any_kind(name: str) -> Description:
    """Describe a name whose kind was not given.

    Raises:
        UserError: nothing has this name, or things of several kinds have it.
    """
    if name in _DESCRIBERS:
        raise UserError(f"describe {name}: which? Give its name; `recsim-mnar list {name}s` shows them")
    descriptions = {}
    reasons = []
    for kind, describe_kind in _DESCRIBERS.items():
        try:
            descriptions[kind] = describe_kind(name)
        except UserError as error:
            reasons.append(str(error))
    if not descriptions:
        hint = next((reason for reason in reasons if "did you mean" in reason), "`recsim-mnar list` shows every name")
        raise UserError(hint if hint.startswith("unknown") else f"describe {name}: unknown name; {hint}")
    if len(descriptions) > 1:
        raise UserError(
            f"{name} is the name of several. Say which: describe {f' {name}, or describe '.join(descriptions)} {name}"
        )
    return next(iter(descriptions.values()))


def _defined_in(kind: Any) -> str:
    """Return ``package.module:Name`` of a class, of a function, or of an object's class."""
    if not (inspect.isclass(kind) or inspect.isroutine(kind)):
        kind = type(kind)
    return f"{kind.__module__}:{kind.__qualname__}"


def _strip_markup(text: str) -> str:
    """Remove reStructuredText markup and line breaks: ``code`` and :class:`~module.Name` become the names in them."""
    return " ".join(re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"\1", text).replace("``", "").split())


def _paragraphs(kind: Any) -> list[str]:
    """Return the paragraphs of a docstring before its sections."""
    text = re.split(r"^[A-Z][a-z]+:$", inspect.getdoc(kind) or "", maxsplit=1, flags=re.MULTILINE)[0]
    return [_strip_markup(paragraph) for paragraph in text.split("\n\n") if paragraph.strip()]


def _parameters(kind: Any, *, without: Sequence[str] = (), values: Mapping[str, Any] | None = None) -> list[Parameter]:
    """List the parameters of a class with their meanings from docstrings.

    The parameters of a base class belong to it as long as the constructors of the derived ones take ``**keywords``.

    Args:
        kind: the class.
        without: names to leave out.
        values: values to show in place of the defaults, by name; None for the defaults.
    """
    meanings: dict[str, str] = {}
    accepted: dict[str, inspect.Parameter] = {}
    takes_more = True  # True while all constructors so far take **keywords, which reach the base class
    for base in inspect.getmro(kind):  # the class first, whose docstring and parameters take precedence
        init = vars(base).get("__init__")
        for documented in (init, base):
            if documented is not None:
                meanings = dict(_MEANING.findall(inspect.getdoc(documented) or "")) | meanings
        if takes_more and init is not None:
            takes_more = False
            for name, parameter in inspect.signature(base).parameters.items():
                if parameter.kind is parameter.VAR_KEYWORD:
                    takes_more = True
                elif parameter.kind is not parameter.VAR_POSITIONAL:
                    accepted.setdefault(name, parameter)
    rows = []
    for name, parameter in accepted.items():
        needed = parameter.default is parameter.empty
        default = None if needed else parameter.default
        if values is not None:
            default = values[name]
        if name not in without:
            rows.append(Parameter(name, default, needed, _strip_markup(meanings.get(name, ""))))
    return rows


def _describe_agent(name: str) -> Description:
    """Describe an agent; options after its name are ignored."""
    from recsim_mnar.policies import registry
    from recsim_mnar.policies.door import HOLDINGS, needs_of
    from recsim_mnar.protocols.comparison import worlds_for

    name = name.partition("+")[0].strip()
    kind = registry.agent_class(name)
    needs = sorted(needs_of(kind))
    learns = getattr(kind, "learns", None)
    facts: Facts = {
        "learns from": [HOLDINGS[need] for need in needs] or "views, or nothing",
        "worlds": worlds_for(frozenset(needs)) or _EVERY_WORLD,
        "while it acts": "" if learns in (None, "nothing") else f"it learns from {learns}",
        "source": _defined_in(kind),
        "used as": f"--agents {name}, or {name}+parameter=value",
    }
    softened = [
        Parameter("epsilon", meaning="share of decisions that are uniform"),
        Parameter("temperature", meaning="temperature of a softmax of its scores"),
    ]
    parameters = _parameters(kind, without=("n_items", "name")) if inspect.isclass(kind) else []
    return Description("agent", name, _paragraphs(kind), facts, {"parameters": parameters, "softened by": softened})


def _describe_world(name: str) -> Description:
    """Describe a world, with the options of its comparison."""
    from recsim_mnar.policies.door import HOLDINGS
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds.registry import entry_of

    entry = entry_of(name)
    kind = entry.world_class()
    facts: Facts = {
        "what happens": entry.summary,
        "presets": "; ".join(f"{preset}: {text}" for preset, text in entry.presets().items()),
        "default preset": entry.default,
        "logs hold beside views": [HOLDINGS[holding] for holding in sorted(kind.log_holds or ())],
        "truth column": kind.truth_column or "",
        "source": _defined_in(kind),
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
    return Description("world", name, _paragraphs(kind), facts, tables)


def _describe_preset(name: str) -> Description:
    """Describe a preset, ``NAME`` or ``WORLD:NAME``, in each world that has it."""
    from recsim_mnar.worlds.registry import worlds

    world, _, preset = name.replace(" ", ":").rpartition(":")  # `list presets` prints "WORLD NAME"
    presets: dict[str, dict[str, tuple[Any, str]]] = {}
    for entry_name, entry in worlds().items():
        with contextlib.suppress(UserError):  # `worlds` shows why it cannot be imported
            presets[entry_name] = dict(entry.world_class().presets)
    if world:
        if world not in presets:
            raise UserError(f"preset {name!r}: unknown world {world!r}; {nearest(world, presets)}")
        presets = {world: presets[world]}
    facts: Facts = {}
    tables = {}
    with_preset = [entry_name for entry_name in presets if preset in presets[entry_name]]
    for entry_name in with_preset:
        params, text = presets[entry_name][preset]
        facts[f"{entry_name} world"] = text
        tables[f"parameters in the {entry_name} world"] = _parameter_values(params)
    if not with_preset:
        names = set().union(*presets.values())
        where = f" of the {world} world" if world else ""
        raise UserError(f"unknown preset {preset!r}{where}; {nearest(preset, names)}")
    facts["used as"] = f"--world {with_preset[0]} --preset {preset}"
    return Description("preset", preset, [], facts, tables)


def _parameter_values(params: Any) -> list[Parameter]:
    """List a world's parameters with their values."""
    return _parameters(type(params), values=params.to_dict())


def _describe_slate_estimator(name: str) -> Description:
    """Describe an estimator for slates."""
    from recsim_mnar.estimators.ranking_records import LOGGED, MEANING, RANKING_ESTIMATORS, SUFFIXES

    info = RANKING_ESTIMATORS[name]
    # Probabilities from which the estimator's weight is computed; other weights use the one of their own name.
    kinds = {"cumulative": ["conditional"], "adaptive": ["marginal", "conditional"]}.get(info.weight, [info.weight])
    facts: Facts = {
        "after": info.source,
        "of": "slates, one row per position",
        "assumes of users": info.assumes,
        "where that is wrong it estimates": info.estimates_if_wrong,
        "columns of the log": ["reward", "position", *(LOGGED[kind] for kind in kinds)],
        "columns of the target NAME": ["NAME" + SUFFIXES[kind] for kind in kinds],
        "must be given": [f"{requirement} ({MEANING[requirement]})" for requirement in info.requires],
        "may be given": list(info.takes),
        "weights": "clipped where a clip is given" if info.clipped_item_estimator else "not clipped",
        "compared with": list(info.weaker),
        "source": "recsim_mnar.estimators.rankings:estimate_ranking_value",
    }
    return Description("estimator", name, [info.title], facts)


def _describe_estimator(name: str) -> Description:
    """Describe an estimator, for single items or for slates."""
    from recsim_mnar.estimators.rankings import RANKING_ESTIMATORS
    from recsim_mnar.estimators.scores import check_name

    if name in RANKING_ESTIMATORS:
        return _describe_slate_estimator(name)
    info = check_name(name)
    facts: Facts = {
        "after": info.source,
        "needs besides reward, propensity and target": ["--fit-reward-model"] if info.needs else [],
        "must be given": list(info.requires),
        "may be given": list(info.takes),
        "weights": "clipped at --clip" if info.clips else "not clipped",
        "difference from a baseline": "known" if info.in_blocks else "not known",
        "less bias": info.less_bias,
        "where few weights decide": "" if info.lighter == name else f"use {info.lighter}",
        "source": _defined_in(info.scores),
    }
    paragraphs = _paragraphs(info.scores)
    if not paragraphs or info.title.lower() not in paragraphs[0].lower():
        paragraphs.insert(0, info.title)
    return Description("estimator", name, paragraphs, facts)


def _describe_protocol(name: str) -> Description:
    """Describe a protocol, ``NAME`` or ``WORLD: NAME`` for one that only some worlds have."""
    from recsim_mnar.protocols.base import known_protocols, protocol

    all_experiments = experiments()
    in_world, _, plain = name.rpartition(": ")
    owners = []
    every = set(known_protocols())
    for world, experiment in all_experiments.items():
        every.update(experiment.own_protocols)
        if plain in experiment.own_protocols and in_world in ("", world):
            owners.append(world)
    if not owners and ":" not in plain and plain not in known_protocols():
        raise UserError(f"unknown protocol {name!r}; {nearest(plain, every)} (one of your own: package.module:Class)")
    made = protocol(plain, all_experiments[owners[0]].own_protocols if owners else None)
    worlds = owners or [world for world, experiment in all_experiments.items() if made.needs <= experiment.provides]
    facts: Facts = {
        "ranks by": list(made.metrics),
        "needs": sorted(made.needs),
        "worlds": worlds,
        "source": _defined_in(type(made)),
        "used as": f"--protocols {plain}",
    }
    tables = {"parameters": _parameters(type(made))}
    return Description("protocol", plain, [made.summary, *_paragraphs(type(made))], facts, tables)


def _format_reward(value: Any) -> str:
    """Format the rewards per user of a task's reference."""
    return f"{value.value:g} per user (standard error {value.error:g})"


def _describe_task(name: str) -> Description:
    """Describe a frozen task."""
    from recsim_mnar.tasks import task

    frozen = task(name)
    runner = frozen.runner()
    facts: Facts = {
        "world": frozen.world,
        "horizon": f"{frozen.horizon:,} {runner.step_noun}s per {runner.unit_noun}",
        f"{runner.unit_noun}s": f"{frozen.users:,}, seed {frozen.seed}",
        "a learner's log": runner.log_description,
        "score 0": f"random: {_format_reward(frozen.random)}",
        "score 1": f"{frozen.reference}: {_format_reward(frozen.best)}",
        "environment": _environment_call(frozen),
        "sha256": frozen.digest,
        "used as": f"recsim-mnar evaluate AGENT --task {name}",
    }
    tables = {"parameters": _parameter_values(frozen.make_world().params)}
    return Description("task", name, [f"{frozen.summary[0].upper()}{frozen.summary[1:]}."], facts, tables)


def _environment_call(task: Any) -> str:
    """Return the call that makes a task's environment; with fatigue, its observation includes shown items."""
    if not task.environment:
        return "none: learn from the task's log"
    *words, version = task.name.split("-")
    make = f"gym.make('recsim_mnar/{''.join(word.capitalize() for word in words)}-{version}'"
    if task.params.get("fatigue") and "fatigue_memory" in task.params:
        observation = f"observation='shown={task.params['fatigue_memory']:g}'"
        return f"{make}, {observation}); without it, what was shown is not observed"
    return f"{make})"


def _describe_reference(name: str) -> Description:
    """Describe a reference, which knows the world."""
    from recsim_mnar.tasks.running import DecisionRunner

    references = DecisionRunner.references
    if name not in references:
        raise UserError(f"unknown reference {name!r}; {nearest(name, references)}")
    kind = getattr(references[name], "func", references[name])  # the class within a functools.partial
    facts: Facts = {
        "knows": f"the world{' and' if 'oracle' in name else ', not'} its users' states",
        "source": _defined_in(kind),
        "used as": f"recsim-mnar evaluate AGENT --task NAME --against {name}",
    }
    tables = {"parameters": _parameters(kind, without=("world",))}
    return Description("reference", name, _paragraphs(kind), facts, tables)


def _describe_command(name: str) -> Description:
    """Describe a command with all its options, including those that its help omits."""
    command: Any = click.get_current_context().find_root().command
    for word in name.split() or [name]:  # "plan ab" is a command of a group
        commands = getattr(command, "commands", {})
        if word not in commands:
            raise UserError(f"unknown command {name!r}; {nearest(name, commands)}")
        command = commands[word]
    tables: dict[str, list[Parameter]] = {"options in its help": [], "further options": []}
    for option in command.params:
        if isinstance(option, click.Option):
            default = option.default if isinstance(option.default, (str, int, float)) else None
            heading = "further options" if option.hidden else "options in its help"
            tables[heading].append(Parameter(option.opts[0], default, meaning=option.help or ""))
    if name == "compare":
        from recsim_mnar.protocols.interactions import InteractionsSettings

        tables["options of --interactions (--option)"] = _parameters(InteractionsSettings)
        for world, experiment in experiments().items():
            tables[f"options of --world {world} (--option)"] = _parameters(experiment.settings_type)
    return Description("command", name, _paragraphs(command.callback), {"used as": f"recsim-mnar {name}"}, tables)


_DESCRIBERS: dict[str, Callable[[str], Description]] = {
    "agent": _describe_agent,
    "world": _describe_world,
    "preset": _describe_preset,
    "estimator": _describe_estimator,
    "protocol": _describe_protocol,
    "task": _describe_task,
    "reference": _describe_reference,
    "command": _describe_command,
}

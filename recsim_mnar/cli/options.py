"""Options shared by several commands: types, groups, and checks of paths and names."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recsim_mnar.errors import MachineError, UserError, not_written
from recsim_mnar.tables.files import called

if TYPE_CHECKING:
    from recsim_mnar.own_log.bandit_file import Reading
    from recsim_mnar.protocols.base import Experiment

Row = tuple[str, str]
"""Name and help of an option."""


class GroupedCommand(click.Command):
    """A command whose help shows options under headings, and leaves the hidden ones to ``describe command``.

    Args:
        groups: long names of options by heading, without dashes and with spaces between; further options are added to
            the last heading.
    """

    def __init__(self, *arguments: Any, groups: Mapping[str, str], **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.groups = {heading: names.split() for heading, names in groups.items()}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        for heading, rows in self.rows(ctx).items():
            with formatter.section(heading):
                formatter.write_dl(rows)

    def rows(self, ctx: click.Context) -> dict[str, list[Row]]:
        """Return name and help of each option that is not hidden, by heading."""
        helps = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Option) and row is not None:
                helps[_long_name(parameter)] = row
        rows = {heading: [helps.pop(name) for name in names if name in helps] for heading, names in self.groups.items()}
        rows[list(rows)[-1]] += helps.values()  # options of no group
        return rows

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line; if an option of a comparison is typed as a flag, the error suggests ``--option``."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name.lstrip("-").replace("-", "_")
            if self.name == "compare" and name in option_names():
                raise UserError(
                    f"{error.option_name} is an option of the comparison: write --option {name}=VALUE"
                ) from None
            raise


def _long_name(parameter: click.Parameter) -> str:
    """Return the first long name of an option, without its dashes."""
    return next(name.removeprefix("--") for name in parameter.opts if name.startswith("--"))


def option_names() -> set[str]:
    """Return the names of the options of every comparison, that of interactions included."""
    from recsim_mnar.protocols.interactions import InteractionsSettings

    names = set(InteractionsSettings().to_dict())
    for experiment in experiments().values():
        names |= {*experiment.settings_type().to_dict(), *experiment.aliases}
    return names


def experiments() -> Mapping[str, Experiment]:
    """Return the comparison of each world by the world's name."""
    from recsim_mnar.protocols.comparison import experiment_of
    from recsim_mnar.worlds.registry import WORLDS

    return {name: experiment_of(entry.world_class()) for name, entry in WORLDS.items()}


MOST_A_PROCESSOR = 8
"""Largest number of workers for each processor; more would only wait for each other."""


def names_of(text: str, flag: str) -> list[str]:
    """Split the text of an option into names at commas.

    Raises:
        UserError: there is no name, or a name is empty or repeated.
    """
    names = [name.strip() for name in text.split(",")]
    if not any(names):
        raise UserError(f"{flag}: name at least one")
    if not all(names):
        raise UserError(f"{flag} {text!r}: a name is missing next to a comma")
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{flag}: {name} is named twice")
    return names


def pairs_of(texts: Sequence[str], flag: str) -> dict[str, str]:
    """Parse the texts ``name=value`` of a repeated option into values by name.

    Raises:
        UserError: a text is malformed, or a name is repeated.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals:
            raise UserError(f"{flag} {text}: write it as name=value")
        if name in pairs:
            raise UserError(f"{flag} {text}: {name} is given already, as {pairs[name]}; give it once")
        pairs[name] = value
    return pairs


def n_workers(stated: int | None) -> int:
    """Return the checked number of workers; for None the number of usable processors.

    Raises:
        UserError: the number is below 1 or too large for the processors.
    """
    if hasattr(os, "sched_getaffinity"):
        processors = len(os.sched_getaffinity(0))
    else:
        processors = os.cpu_count() or 1
    if stated is None:
        return processors
    most = MOST_A_PROCESSOR * processors
    if not 1 <= stated <= most:
        raise UserError(f"--workers must be in 1 .. {most}, {MOST_A_PROCESSOR} for each processor, got {stated}")
    return stated


def checked_file(path: Path, flag: str) -> None:
    """Raise UserError, before the work, if a file cannot be written.

    Args:
        path: path of the file.
        flag: option or argument of the path, for the message.
    """
    if path.is_dir():
        raise UserError(f"{flag} {path} is a folder: name a file")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        kind = MachineError if folder.is_dir() else UserError
        raise kind(f"{flag} {path}: {folder} is not a folder that can be written; name another file")
    try:
        os.lstat(folder / path.name)  # fails for a name that the file system does not accept
        tempfile.TemporaryFile(dir=folder).close()
    except FileNotFoundError:
        pass  # the name is accepted, and free
    except OSError as error:
        raise not_written(error, f"{flag} {path} cannot be written: {error.strerror}; name another file") from None


def new_file(path: Path, flag: str) -> None:
    """Check a file as :func:`checked_file` does, and raise UserError if it exists: nothing is overwritten unasked."""
    checked_file(path, flag)
    if path.exists():
        raise UserError(f"{flag} {path} exists: name another file, or remove it first")


@contextlib.contextmanager
def writing(path: Path, flag: str) -> Iterator[None]:
    """Convert errors of the operating system within the block to a UserError that names the option and its file."""
    try:
        yield
    except OSError as error:
        message = f"{flag} {path} cannot be written: {error.strerror or error}; name another file"
        raise not_written(error, message) from error


class WholeNumber(click.ParamType):
    """An integer; one with a decimal point or an exponent is refused, with the plain digits to write instead."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Implement :meth:`click.ParamType.convert`."""
        with contextlib.suppress(ValueError):
            return int(value)
        hint = "is not a whole number, such as 2000"
        with contextlib.suppress(ValueError):
            number = float(value)
            if number.is_integer() and abs(number) < 1e18:
                hint = f"must be written in digits: {int(number)}"
        return self.fail(f"{value!r} {hint}", param, ctx)


WHOLE = WholeNumber()


def option(names: str, what: str, kind: Any = None, default: Any = None, **more: Any) -> Callable[[Any], Any]:
    """Make an option of a command.

    Args:
        names: names of the option with spaces between; the last one may be the parameter's.
        what: help text.
        kind: type of the value; ``bool`` for a flag, None for text.
        default: default value, which the help shows; None for no default.
        **more: further arguments of ``click.option``.
    """
    if default is not None:
        more |= {"default": default, "show_default": True}
    more |= {"is_flag": True} if kind is bool else {"type": kind}
    return click.option(*names.split(), help=what, **more)


def seed_option(what: str) -> Callable[[Any], Any]:
    """Make the option ``--seed``, a number in [0, 2**64), with ``what`` as help."""

    def checked(context: click.Context, parameter: click.Parameter, value: int) -> int:
        """Return the seed; raise UserError if it is out of range."""
        from recsim_mnar.rng import check_seed

        return check_seed(value, "--seed")

    return option("--seed", what, WHOLE, 0, callback=checked)


def world_options(command: Any) -> Any:
    """Add ``--preset`` and ``--set``, which the command gets as ``preset`` and ``settings``."""
    what = "A parameter of the world; may be repeated."
    command = option("--set settings", what, multiple=True, metavar="NAME=VALUE")(command)
    return option("--preset", "A preset of the world; its own default unless named.")(command)


class Number(click.ParamType):
    """A finite number; anything else is refused with an example."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Implement :meth:`click.ParamType.convert`."""
        with contextlib.suppress(ValueError, TypeError):
            number = float(value)
            if math.isfinite(number):
                return number
        hint = ": write a decimal point" if "," in str(value) else ""
        return self.fail(f"{value!r} is not a number, such as 0.95{hint}", param, ctx)


NUMBER = Number()


class Share(Number):
    """A number that may be written in per cent: ``2%`` is 0.02."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Implement :meth:`click.ParamType.convert`."""
        text = str(value).strip()
        if text.endswith("%"):
            return super().convert(text.removesuffix("%").strip(), param, ctx) / 100.0
        return super().convert(value, param, ctx)


SHARE = Share()


class LeastPropensity(Share):
    """A probability above 0, in (0, 1]."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Implement :meth:`click.ParamType.convert`."""
        share = super().convert(value, param, ctx)
        flag = _flag_of(param)
        if share == 0.0:
            raise UserError(f"{flag} {value}: no exploration bounds nothing: leave it out")
        if not 0.0 < share <= 1.0:
            raise UserError(f"{flag} {value}: a probability is in (0, 1]")
        return share


LEAST_PROPENSITY = LeastPropensity()


class NewPath(click.Path):
    """A path to write; one that no file system accepts is refused before any work.

    Args:
        as_text: convert to text and keep a slash at its end.
    """

    def __init__(self, *, as_text: bool = False) -> None:
        super().__init__(path_type=Path)
        self.as_text = as_text

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Implement :meth:`click.ParamType.convert`."""
        flag = _flag_of(param)
        path = Path(os.fsdecode(super().convert(_typed_path(value, flag), param, ctx)))
        longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
        if longest > _LONGEST_NAME or len(os.fsencode(path)) > _LONGEST_PATH:
            most = f"a name has at most {_LONGEST_NAME} bytes, a path {_LONGEST_PATH}"
            raise UserError(f"{flag} {path}: the path is too long: {most}")
        if not self.as_text:
            return path
        return f"{path}{os.sep}" if str(value).endswith(os.sep) else str(path)


_LONGEST_NAME = 240
_LONGEST_PATH = 4000
"""Bytes, with room for the suffixes of temporary names."""
NEW_PATH = NewPath()
NEW_PLACE = NewPath(as_text=True)


class ReadPath(click.Path):
    """A path to read; an empty path is refused, and one without permission to read it."""

    def __init__(self) -> None:
        # Permission is checked below: click would report its lack as a mistake of the user, with another exit status.
        super().__init__(path_type=Path, readable=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """Implement :meth:`click.ParamType.convert`."""
        flag = _flag_of(param)
        path = Path(os.fsdecode(super().convert(_typed_path(value, flag), param, ctx)))
        if path.exists() and not os.access(path, os.R_OK):
            raise MachineError(
                f"{flag} {path} cannot be read: {os.strerror(errno.EACCES)}; name another file", code="permission"
            )
        return path


READ_PATH = ReadPath()
STANDARD_INPUT = "standard input"
_AS_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


@contextlib.contextmanager
def as_a_file(path: Path) -> Iterator[Path]:
    """Yield the path of a file to read; for standard input that of a copy, because tables are read more than once.

    Args:
        path: path as typed; ``-`` or a device of standard input stands for it.

    Raises:
        UserError: standard input is a terminal, or closed.
    """
    if str(path) not in _AS_STANDARD_INPUT:
        yield path
        return
    if sys.stdin is None or sys.stdin.isatty():
        raise UserError(f"{path}: nothing is piped in: pipe a CSV table into the command, or name a file")
    with tempfile.TemporaryDirectory(prefix="recsim-mnar-") as folder:
        copy = Path(folder) / "standard-input.csv"
        with copy.open("wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        with called(copy, STANDARD_INPUT):
            yield copy


def check_there(path: Path) -> None:
    """Raise UserError, before progress is shown, if a path to read does not exist."""
    if not os.path.lexists(path):
        raise UserError(f"{path} does not exist: name a file, or a folder of parts")


def _flag_of(param: click.Parameter | None) -> str:
    """Return the name of an option, or of an argument in capitals, for messages; "path" if it is unknown."""
    if param is None:
        return "path"
    name = param.opts[0]
    return name if name.startswith("-") else name.upper()


def _typed_path(path: Any, flag: str) -> Path:
    """Convert a typed path, with the home folder in place of ``~``; raise UserError for an empty one."""
    from recsim_mnar.runs.files import path_of

    if not str(path).strip():
        raise UserError(f"{flag}: the path is empty; name one")
    return path_of(os.fsdecode(path))


_ROLES = {
    "reward": "Column of rewards (clicks, ...).",
    "propensity": "Column of the logging policy's probability of the logged action.",
    "action": "Column of the logged action (what was shown).",
    "item": "Column of items that were viewed.",
    "event": "Column that says view or recommendation.",
    "user": "Column of users: their rows depend on each other.",
    "time": "Column of times: numbers or dates.",
    "logger": "Column of the policy that logged the row, where there are several.",
    "slate": "Column of slates, whose rows were shown together; none: single items.",
    "position": "Column of positions in the slate.",
    "weight": "Column of how many rows each row stands for, where only some were kept; none: all were.",
}
"""Help of the option that names the column of each role."""


_NAMES = {"user": "--user-column --cluster"}
"""Names of a role's option that has more than one."""

_OF_SLATES = ("slate", "position")
"""Roles of columns that few files have; help leaves their options to ``describe command``."""


def column_options(*roles: str) -> Callable[[Any], Any]:
    """Make an option such as ``--user-column`` for each role; :func:`columns_of` reads their values."""
    options = [
        option(
            _NAMES.get(role, f"--{role}-column"), f"{_ROLES[role]} Recognised unless named.", hidden=role in _OF_SLATES
        )
        for role in roles
    ]
    return all_of(*options)


def all_of(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine options into one decorator; help shows them in this order."""

    def decorate(command: Any) -> Any:
        """Add the options, the last one first, because each decorator puts its option before the others."""
        for decorator in reversed(options):
            command = decorator(command)
        return command

    return decorate


def columns_of(options: Mapping[str, Any]) -> dict[str, str | None]:
    """Read the options of :func:`column_options`: the column named for each role, or None."""
    return {role: options[f"{role}_column"] for role in _ROLES if f"{role}_column" in options}


PROPENSITIES_OF = option(
    "--propensities-of",
    "Of slates: what the propensities are of: the item at its position, the item given those above (conditional), the "
    "whole slate, or its items in any order (set). Found out unless named.",
    click.Choice(["position", "conditional", "slate", "set"]),
    hidden=True,
)


DECIMAL = option(
    "--decimal", "Decimal mark of a text file. Found out unless named.", click.Choice([".", ","]), hidden=True
)


def own_log_options(*roles: str, copies: bool = True) -> Callable[[Any], Any]:
    """Make the options of a log of the user's own; :func:`reading_of` reads their values.

    Args:
        roles: roles of columns, each of which gets an option such as ``--reward-column``.
        copies: True to add the options on copies, on rows that cannot be read, and on targets.
    """
    options = [
        column_options(*roles),
        option("--drop-missing", "Leave out rows with missing values, and count them.", bool),
        DECIMAL,
    ]
    if copies:
        options += [
            option(
                "--drop-invalid",
                "Leave out rows with values that cannot be read, and count them; refused above 5 % of the rows, or the "
                "share that is named.",
                SHARE, is_flag=False, flag_value="0.05",
            ),
            option(
                "--target-is",
                "What columns of --target hold: the item that the policy shows, or its probability of the one shown. "
                "Found out unless named.",
                click.Choice(["item", "probability"]),
                hidden=True,
            ),
            option("--deduplicate", "Keep the first of rows that are equal in every column.", bool, hidden=True),
            option("--separate-events", "Rows that are equal in every column are no copies.", bool, hidden=True),
            option(
                "--fold-case",
                "Take items of --target and values of --by that differ only in capitals as one.",
                bool,
                hidden=True,
            ),
        ]  # fmt: skip
    return all_of(*options)


def reading_of(options: Mapping[str, Any], context: str | None = None) -> Reading:
    """Return the statements about a log from a command's options, those of :func:`own_log_options` among them.

    Args:
        options: values of the options by name.
        context: names of the context columns, with commas; None for no such columns.
    """
    from recsim_mnar.own_log.bandit_file import STATED, Reading

    return Reading(
        columns=columns_of(options),
        context=() if context is None else names_of(context, "--context-columns"),
        **{name: options[name] for name in STATED if name in options},
    )

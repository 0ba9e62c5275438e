"""The command line: ``recsim-mnar compare | study | simulate | replay | estimate | verify | check | list | ...``.

Each module has one command, or a few that belong together; this one has how they all start, fail and end.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import multiprocessing
import os
import shlex
import signal
import sys
import textwrap
import threading
import traceback
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Any

import click

from recsim_mnar._start import leave
from recsim_mnar.cli.checks import check, doctor, verify, warm
from recsim_mnar.cli.comparison import compare, dataset, evaluate, study
from recsim_mnar.cli.estimation import estimate
from recsim_mnar.cli.fitting import advise, calibrate, plan, validate
from recsim_mnar.cli.listing import aliases, describe, list_command
from recsim_mnar.cli.output import quiet_option
from recsim_mnar.cli.simulation import replay, simulate
from recsim_mnar.errors import MachineError, UserError, code_of, described, is_of_the_machine, printable
from recsim_mnar.kernels.memory import LEAST_ADDRESSES, address_limit
from recsim_mnar.plugins import look_in
from recsim_mnar.simulation.own_code import TRACEBACK, of_own_code

MISTAKE = 2
"""Exit status of an error that the user can fix."""
OF_THE_MACHINE = 4
"""Exit status of a lack of memory, disk space or permission."""
CLOSED_PIPE = 141
"""Exit status if the reader of the output has closed the pipe, as shells report it."""
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


SECTIONS = {
    "A log of your own": (doctor, estimate, plan, calibrate, validate),
    "Simulated worlds": (compare, study, evaluate, dataset, simulate, replay),
    "Look up and check": (list_command, describe, check, verify, warm),
}
"""Commands by the heading under which help shows them."""


class _InSections(click.Group):
    """A group whose help shows commands under headings."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per heading of :data:`SECTIONS`."""
        for heading, commands in SECTIONS.items():
            with formatter.section(heading):
                formatter.write_dl([(str(command.name), command.get_short_help_str(70)) for command in commands])


@click.group(
    cls=_InSections,
    context_settings=_CONTEXT,
    epilog="Exit status: 0 done; 1 a crash: report it; 2 your mistake; 3 --require not met, or check or doctor found "
    "something; 4 memory, disk or permission: try again; 130 interrupted; 141 closed pipe; 143 SIGTERM. "
    "RECSIM_MNAR_TRACEBACK=1 prints the traceback of an error too. docs/commands.md: completion in your shell.",
)
@click.version_option(package_name="recsim-mnar", prog_name="recsim-mnar")
def cli() -> None:
    """Find out which offline number to trust when you choose a recommender.

    Start with `recsim-mnar compare --preset quick`, a simulated study in a minute, or with `recsim-mnar doctor FILE`,
    which says what your log holds and names the command to run next.
    """
    limit = address_limit()
    if limit < LEAST_ADDRESSES:  # below it libraries abort the process, without any message
        raise MachineError(
            f"this process may have {limit / 1e6:,.0f} MB of addresses (ulimit -v), and libraries take "
            f"{LEAST_ADDRESSES / 1e6:,.0f}: raise the limit",
            code="memory",
        )


def _name_hidden_options(command: click.Command, path: str) -> None:
    """Let a command's help end with the names of its hidden options, and with the command that describes them."""
    if isinstance(command, click.Group):
        for name, subcommand in command.commands.items():
            _name_hidden_options(subcommand, f"{path} {name}")
    hidden = [option.opts[0] for option in command.params if isinstance(option, click.Option) and option.hidden]
    if hidden:
        describe_line = shlex.join(["recsim-mnar", "describe", "command", path])
        text = f"`{describe_line}` describes further options: {', '.join(hidden)}."
        # click keeps the lines of a paragraph that begins so; its own would break a name at its hyphen.
        command.epilog = "\b\n" + textwrap.fill(text, 76, break_on_hyphens=False)


for command in (*itertools.chain(*SECTIONS.values()), advise, *aliases):
    cli.add_command(quiet_option(command))
    _name_hidden_options(command, str(command.name))


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, and exit; an error is one line on standard error and exit status 2 or 4.

    Args:
        arguments: words after the name of the program; None for those of the process.
    """
    words = sys.argv[1:] if arguments is None else arguments
    with contextlib.suppress(OSError):  # the current folder was removed
        look_in(os.getcwd())  # a user's own ``module:Class`` may be there
    _accept_any_character()
    interrupts = _watch_interrupts(words)
    stdout_before = sys.stdout
    try:
        status = cli.main(args=words or ["--help"], prog_name="recsim-mnar", standalone_mode=False)
    except (click.Abort, KeyboardInterrupt):
        _leave_interrupted(interrupts, words)
    except SystemExit as exit_request:
        # On a closed pipe, click swallows the error and replaces standard output by a stream that ignores errors.
        if sys.stdout is not stdout_before or isinstance(exit_request.__context__, BrokenPipeError):
            _leave_closed_pipe()
        own_code = of_own_code(exit_request)
        if own_code is not None:
            _fail(own_code, MISTAKE)
        raise
    except Exception as error:
        if interrupts:
            # After an interrupt any other error is a consequence: an extension module may raise its own exception, and
            # workers that the same signal ended are reported as missing.
            _leave_interrupted(interrupts, words)
        message = _in_one_line(error)
        if message is not None:
            status = MISTAKE
            code = code_of(error)
            if isinstance(error, BrokenExecutor) or is_of_the_machine(error):
                status = OF_THE_MACHINE
                code = code or MachineError.code
            if words[:1] != ["estimate"]:  # no other command prints codes
                code = ""
            _fail(message, status, code)
        if isinstance(error, BrokenPipeError):
            _leave_closed_pipe()
        raise
    else:
        sys.exit(status if isinstance(status, int) else 0)


def _accept_any_character() -> None:
    """Write characters that the terminal's encoding lacks (``LANG=C``) as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _watch_interrupts(words: list[str]) -> list[int]:
    """Handle SIGINT and SIGTERM: each raises KeyboardInterrupt.

    Args:
        words: words of the command line.

    Returns:
        A list to which the handler appends the number of each signal.
    """
    seen: list[int] = []
    process = os.getpid()

    def handler(number: int, frame: Any) -> None:
        """Record a signal, end the workers after SIGTERM, and raise KeyboardInterrupt."""
        if number == signal.SIGTERM:
            if os.getpid() != process:  # a child that a user's own code has forked
                os._exit(128 + number)
            if number in seen:  # a second SIGTERM: the clean-up after the first one is running
                return
            for worker in multiprocessing.active_children():  # the signal may have reached this process alone
                worker.terminate()
        seen.append(number)
        threading.excepthook = lambda complaint: None  # silence tracebacks of pool threads that are abandoned
        signal.default_int_handler(number, frame)

    def exit_if_interrupt(unraisable: Any) -> None:
        """Exit on a KeyboardInterrupt that Python cannot raise, because it came in a callback or a finaliser."""
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            _leave_interrupted(seen, words)
        sys.__unraisablehook__(unraisable)

    if threading.current_thread() is not threading.main_thread():
        return seen  # only the main thread may set handlers
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # ignored interrupts (nohup) stay ignored
        signal.signal(signal.SIGINT, handler)
        sys.unraisablehook = exit_if_interrupt
    # ``leave`` is the handler of SIGTERM while the package is imported (_start). A program that calls main() keeps a
    # handler of its own.
    if signal.getsignal(signal.SIGTERM) in (signal.SIG_DFL, leave):
        signal.signal(signal.SIGTERM, handler)
        sys.unraisablehook = exit_if_interrupt
    return seen


def _leave_interrupted(seen: list[int], words: list[str]) -> None:
    """Say how to resume, and exit at once with the status of the first signal.

    A normal exit would wait for worker threads. Nothing is lost, because files are renamed only when they are complete.

    Args:
        seen: numbers of the signals so far; SIGINT if empty.
        words: words of the command line.
    """
    if _can_resume(words):
        sys.stderr.write("To go on from here, run the same command with --resume.\n")
    sys.stderr.flush()
    sys.stdout.flush()
    leave(seen[0] if seen else signal.SIGINT)


def _can_resume(words: list[str]) -> bool:
    """Return True if a command has a ``--resume`` that was not typed."""
    command = cli.commands.get(words[0]) if words else None
    if command is None or "--resume" in words or not any(parameter.name == "resume" for parameter in command.params):
        return False
    # Only a study of catalogues is resumed by compare.
    return words[0] != "compare" or any(word.startswith("--catalogues") for word in words)


def _leave_closed_pipe() -> None:
    """Exit after the reader closed the output pipe.

    Standard output is redirected to the null device, so that Python's flush at exit does not fail again.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(CLOSED_PIPE)


def _in_one_line(error: Exception) -> str | None:
    """Return the message of an exception in one line; None for a bug of this package, whose traceback is useful."""
    if isinstance(error, UserError):
        from recsim_mnar.estimators.verdict import for_command

        return for_command(*error.args[:1] or ("",))
    if isinstance(error, click.ClickException):
        return _usage(error)
    own_code = of_own_code(error)
    if own_code is not None:
        return own_code
    if isinstance(error, BrokenExecutor):
        return "a worker process was ended from outside, for want of memory perhaps: name fewer --workers"
    if isinstance(error, MemoryError):
        return f"not enough memory: free some and try again, or give the command less at once ({described(error)})"
    if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
        # An error without a file name is one of a standard stream.
        return f"{error.filename or 'standard output'}: {error.strerror or error}"
    # An error in numba is blamed on the user's settings for it, if there are any.
    settings = [f"{name}={value}" for name, value in os.environ.items() if name.startswith("NUMBA_")]
    if settings and "numba" in Path(traceback.extract_tb(error.__traceback__)[-1].filename).parts:
        why = described(error).removesuffix(".")
        return f"numba refuses {', '.join(settings)}: {why}. Unset it, or correct it"
    return None


def _usage(error: click.ClickException) -> str:
    """Return the message of an error in the command line, with the command that prints the help if that is useful."""
    context = getattr(error, "ctx", None)
    hint = f" (`{context.command_path} --help` shows how)" if context is not None else ""
    if isinstance(error, click.exceptions.NoArgsIsHelpError) and context is not None:
        return f"name one of {', '.join(context.command.list_commands(context))}{hint}"
    text = " ".join(error.format_message().split())
    if hint and (isinstance(error, click.MissingParameter) or "unexpected extra argument" in text):
        return f"{text.removesuffix('.')}{hint}"
    return text


def _fail(message: str, status: int, code: str = "") -> None:
    """Print an error in one line, with its code in brackets if there is one, and exit with a status."""
    if os.environ.get(TRACEBACK):
        traceback.print_exc()
    line = f"error: {printable(message)}"
    if code:
        line += f" [{code}]"
    with contextlib.suppress(OSError):  # a full disk
        print(line, file=sys.stderr, flush=True)
    sys.exit(status)

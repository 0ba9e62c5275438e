"""What code of the user's own raised, in one line: a policy's, learner's, world's or protocol's method, or its exit."""

from __future__ import annotations

from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from recsim_mnar.errors import described
from recsim_mnar.policies.door import role_of
from recsim_mnar.worlds.base import Lanes, World

TRACEBACK = "RECSIM_MNAR_TRACEBACK"
"""Environment variable: where it is set, an error's traceback is printed before its line."""
_ENDS_US = ("recsim_mnar.", "click.")
"""Packages that may end the process."""


def of_own_code(error: BaseException) -> str | None:
    """What code of the user's own did, where it raised an exception or ended the process; None where it did not."""
    return left_by_own_code(error) if isinstance(error, SystemExit) else raised_by_own_code(error)


def raised_by_own_code(error: BaseException) -> str | None:
    """What, method and exception, where it came out of a class that is not this package's; else None."""
    # An exception that a generator or another library turned into one of its own is the cause of that.
    for each in (error, error.__cause__):
        if each is None:
            continue
        trace = each.__traceback__
        while trace is not None:
            method = _own_method(trace.tb_frame)
            if method is not None:
                what = described(each) + _advice(each)
                return f"{method} raised {what} ({_place(trace)}; {TRACEBACK}=1 shows the traceback)"
            trace = trace.tb_next
    return None


def _advice(error: BaseException) -> str:
    """What to do about an exception that the rules for logs brought about, for its line; else ""."""
    if "read-only" in str(error) and isinstance(error, ValueError):  # as NumPy says it, and Cython
        return ": logs are read-only, so copy what is to be changed (log['item'].copy())"
    return ""


def left_by_own_code(left: SystemExit) -> str | None:
    """Where code that is not this package's ended the process, such as by ``sys.exit()``; None where we did."""
    own = raised_by_own_code(left)
    trace = left.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if own is not None or trace is None or _name(trace.tb_frame).startswith(_ENDS_US):
        return own
    return f"{_place(trace)}: raised {described(left)}; code of your own must return or raise an error"


def _place(trace: TracebackType) -> str:
    return f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"


def _name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")) + "."


def _own_method(frame: FrameType) -> str | None:
    """The method of a policy, learner, world or protocol that a frame runs, unless the code is this package's."""
    if _name(frame).startswith("recsim_mnar."):
        return None
    actor: Any = frame.f_locals.get("self")
    what = "world" if isinstance(actor, (World, Lanes)) else role_of(actor)
    if what is None and callable(getattr(actor, "judge", None)):
        what = "protocol"
    if what is None:
        return None
    kind = type(actor)
    return f"{what} '{kind.__module__}:{kind.__qualname__}': its {frame.f_code.co_name}()"

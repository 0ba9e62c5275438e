"""What an interrupt does while a command still reads its modules: one line and status 130, as it does later on."""

from __future__ import annotations

import itertools
import os
import signal
import sys
from typing import Any


def leave_quietly_on_interrupt() -> None:
    """Where this process is the command line, watch for interrupts until it does so itself; elsewhere do nothing."""
    by_module = ("-m", "recsim_mnar") in itertools.pairwise(sys.orig_argv)
    if by_module or os.path.basename(sys.argv[0] if sys.argv else "") == "recsim-mnar":
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: Any) -> None:
    # An interrupt from the keyboard reaches the worker processes too, for which their parent speaks.
    if "--multiprocessing-fork" not in sys.orig_argv:
        os.write(2, b"interrupted\n")
    os._exit(130)

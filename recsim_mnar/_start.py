"""Start of a command: ignore Python files in the current folder, and report an interrupt in one line.

Imported before anything else: what Python has not loaded by itself could be a file of the current folder.
"""

import itertools
import os
import sys


def begin() -> None:
    """In a command-line process, remove the current folder from the path and watch for interrupts; else do nothing."""
    by_module = ("-m", "recsim_mnar") in itertools.pairwise(sys.orig_argv)
    if by_module or os.path.basename(sys.argv[0] if sys.argv else "") == "recsim-mnar":
        if by_module and not sys.flags.safe_path:
            _leave_current_folder()
        os.environ["PYTHONSAFEPATH"] = "1"  # Python puts the current folder before all others in worker processes, too
        _open_streams()
        import signal

        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as nohup and shells' background jobs ask for
            signal.signal(signal.SIGINT, leave)  # until a command watches for them itself
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not _is_worker():
            signal.signal(signal.SIGTERM, leave)


def _open_streams() -> None:
    """Let what is closed lead nowhere: else the next files that are opened would be standard output and error."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # of the least free number, which is this
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _leave_current_folder() -> None:
    """Remove the path entry that ``python -m`` put first, unless this package is a checkout in it."""
    above = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(os.curdir) != above:
        del sys.path[0]


def _is_worker() -> bool:
    return "--multiprocessing-fork" in sys.orig_argv


def leave(number: int, frame: object = None) -> None:
    """Say in one line which signal ended the command, and exit at once with the status that shells report for it."""
    # An interrupt from the keyboard reaches the worker processes too, for which their parent speaks.
    if not _is_worker():
        os.write(2, b"interrupted\n" if number == 2 else b"ended by SIGTERM\n")
    os._exit(128 + number)

"""Start of a command: ignore Python files in the current folder, and report an interrupt in one line.

Imported before anything else: what Python has not loaded by itself could be a file of the current folder.
"""

import itertools
import os
import sys


def begin() -> None:
    """In a command-line process, remove the current folder from the path and handle signals; else do nothing.

    Side effects on ``sys.path``, the variable PYTHONSAFEPATH, closed standard streams, and two signal handlers.
    """
    by_module = ("-m", "recsim_mnar") in itertools.pairwise(sys.orig_argv)
    if by_module or os.path.basename(sys.argv[0] if sys.argv else "") == "recsim-mnar":
        if by_module and not sys.flags.safe_path:
            _leave_current_folder()
        # Worker processes inherit this variable; without it Python would put the current folder first in theirs.
        os.environ["PYTHONSAFEPATH"] = "1"
        _open_streams()
        # Imported only now: before the path was cleaned, a file signal.py in the current folder could replace it.
        import signal

        # These handlers serve until a command sets its own. An ignored SIGINT (nohup, background jobs) stays ignored.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, leave)
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL and not _is_worker():
            signal.signal(signal.SIGTERM, leave)


def _open_streams() -> None:
    """Connect closed standard streams to the null device.

    Otherwise the next opened files would get the descriptors 0 to 2, and output would be written into them.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The system assigns the least free descriptor, which is `number`.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def _leave_current_folder() -> None:
    """Remove the path entry that ``python -m`` put first, unless this package is a checkout in it."""
    folder_of_package = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(os.curdir) != folder_of_package:
        del sys.path[0]


def _is_worker() -> bool:
    """Return True in a worker process of :mod:`multiprocessing`."""
    return "--multiprocessing-fork" in sys.orig_argv


def leave(number: int, frame: object = None) -> None:
    """Print in one line which signal ended the command, and exit at once with the status that shells report for it.

    Args:
        number: number of the signal.
        frame: unused; signal handlers receive it.
    """
    # An interrupt from the keyboard reaches worker processes too; only their parent prints the line.
    if not _is_worker():
        os.write(2, b"interrupted\n" if number == 2 else b"ended by SIGTERM\n")  # 2 is SIGINT
    os._exit(128 + number)

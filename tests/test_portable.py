"""Nothing in the package needs one system: what differs between them is asked for in one module, with fallbacks."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import recsim_mnar
import recsim_mnar.agents

PLACES = [Path(recsim_mnar.__file__).parent, Path(recsim_mnar.agents.__file__).parent]
UNIX = ("fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty")
GONE = ("fcntl", "resource", "termios")
"""Of these, what Python's own modules do without."""
ASKING = {"kernels/memory.py"}
"""The one module that may import them, or read below ``/proc``."""
OS_ALONE = ("fork", "getuid", "geteuid", "getgid", "mkfifo", "sched_getaffinity", "setsid", "statvfs", "uname", "wait4")
"""Names of ``os`` that Windows lacks; they are asked for with ``hasattr`` in the same function."""


def breaches(text):
    """Yield names that a module uses and that only some systems have."""
    nodes = list(ast.walk(ast.parse(text)))
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in UNIX)
        if isinstance(node, ast.ImportFrom) and node.module in UNIX:
            yield node.module
        if isinstance(node, ast.Call):
            first = node.args[0] if node.args else None
            if isinstance(first, ast.Constant) and str(first.value).startswith("/proc"):
                yield str(first.value)
    for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
        inside = list(ast.walk(function))
        asked = {node.value for node in inside if isinstance(node, ast.Constant)}
        for node in inside:
            of_os = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "os"
            if of_os and node.attr in OS_ALONE and node.attr not in asked:
                yield f"os.{node.attr}"


def test_one_module_asks_systems_in_their_own_ways():
    used_by = {}
    for place in PLACES:
        for path in place.rglob("*.py"):
            names = set(breaches(path.read_text()))
            if names:
                used_by[path.relative_to(place).as_posix()] = names
    assert set(used_by) == ASKING, used_by


WITHOUT = f"""
import sys

class Nowhere:
    def find_spec(self, name, path=None, target=None):
        if name in {GONE!r}:
            raise ImportError(name)

for name in {GONE!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Nowhere())
import os
for name in {OS_ALONE!r}:
    if hasattr(os, name) and name not in ("fork", "uname"):  # which Python's own modules ask for
        delattr(os, name)
import warnings
warnings.simplefilter("ignore")  # filelock says that it locks by a file
from recsim_mnar.cli import main
main(sys.argv[1:])
"""


def test_a_log_is_simulated_without_what_only_some_systems_have(tmp_path):
    """Nobody runs this on Windows: a Python without these modules is as near as it comes."""
    words = ["simulate", "--preset", "quick", "--set", "n_items=20", "--set", "n_flips=5", "--policy", "random"]
    words += ["--users", "60", "--seed", "3"]
    logs = []
    for out, code in (
        ("with", "import sys; from recsim_mnar.cli import main; main(sys.argv[1:])"),
        ("without", WITHOUT),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--workers", "1", "--out", out], cwd=tmp_path, capture_output=True,
            text=True, check=False, env=dict(os.environ),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        parts = sorted((tmp_path / out).rglob("*.parquet"))
        assert parts
        assert not (tmp_path / out / ".lock").exists()
        logs.append([part.read_bytes() for part in parts])
    assert logs[0] == logs[1]

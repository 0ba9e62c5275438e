"""Loops that train on a frozen task: at most three lines of ours each, marked, and a score at the end."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recsim_mnar import Policy
from recsim_mnar.testing import check_policy

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOOPS = {"task_plain_loop": None, "ppo_one_file": "torch", "task_stable_baselines3": "stable_baselines3"}

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="the examples are not next to the tests")


@pytest.mark.parametrize("name", LOOPS)
def test_three_lines_are_ours(name):
    """Every line of code that names the package, apart from an environment's id, is marked; there are three."""
    source = (EXAMPLES / f"{name}.py").read_text()
    lines = source.splitlines()
    marked = {number for number, line in enumerate(lines, 1) if "# ours" in line}
    assert 1 <= len(marked) <= 3
    named = {node.lineno for node in ast.walk(ast.parse(source)) if "recsim_mnar" in names_of(node)}
    assert named <= marked


def names_of(node: ast.AST) -> set[str]:
    """The top-level packages that a node of the program imports, or its name."""
    if isinstance(node, ast.Import):
        return {each.name.partition(".")[0] for each in node.names}
    if isinstance(node, ast.ImportFrom):
        return {(node.module or "").partition(".")[0]}
    return {node.id} if isinstance(node, ast.Name) else set()


@pytest.mark.slow
def test_a_recurrent_policy_remembers_what_it_showed():
    """It beats itself without that memory and random, keeps the rules of policies, and stands in the guide as it is."""
    path = EXAMPLES / "task_recurrent.py"
    done = subprocess.run([sys.executable, str(path), "200"], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    blind, remembering = (float(score) for score in re.findall(r"on fatigue-50-v1: score (-?[\d.]+)", done.stdout))
    assert blind < 0.0
    assert remembering > 0.5
    source = path.read_text()
    shown = source[source.index("class Recurrent(") : source.index("task = recsim_mnar.task(TASK)")].strip()
    assert "{literalinclude} ../examples/task_recurrent.py" in (EXAMPLES.parent / "docs" / "rl.md").read_text()
    made: dict[str, Any] = {"Policy": Policy, "np": np, "ITEMS": 6}
    exec(shown, made)
    weights = np.random.default_rng(0).normal(size=(6, 6))
    assert check_policy(lambda: made["Recurrent"](made["trace"], lambda hidden: hidden @ weights, 6)) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_they_train_and_are_scored(name):
    if LOOPS[name]:
        pytest.importorskip(LOOPS[name])
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "8192"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env={**os.environ})
    assert done.returncode == 0, done.stderr
    assert " on flipped-100-v1: score " in done.stdout

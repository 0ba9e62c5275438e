"""The house: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import recsim_mnar
import recsim_mnar.agents

CORE = Path(recsim_mnar.__file__).parent
AGENTS = Path(recsim_mnar.agents.__file__).parent

# What each layer may import of the package, from the ground up; a module not named here may import anything but agents.
AGENTS_MAY = {
    "recsim_mnar.policy.base",
    "recsim_mnar.log.table",
    "recsim_mnar.log.exposures",
    "recsim_mnar.propensities.observation",
    "recsim_mnar.models.factorization",
    "recsim_mnar.estimators",
    "recsim_mnar.rng",
    "recsim_mnar.errors",
    "recsim_mnar.log.schema",
    "recsim_mnar.numerics.jit",
    "recsim_mnar.numerics._rng_kernel",
    "recsim_mnar.agents",
}
GROUND = ("errors", "schema", "rng", "elementary", "_jit", "_rng_kernel")
NOT_ABOVE = {
    "worlds": ("envs", "simulate", "replay", "truth", "protocols", "report", "cli", "estimators", "policy", "log"),
    "estimators": ("worlds", "envs", "simulate", "replay", "truth", "protocols", "report", "cli"),
    "log": ("worlds", "envs", "simulate", "replay", "truth", "protocols", "report", "cli", "estimators", "policy"),
    "exposures": (
        "worlds",
        "envs",
        "simulate",
        "replay",
        "truth",
        "protocols",
        "report",
        "cli",
        "estimators",
        "policy",
    ),
    "policy": ("worlds", "envs", "simulate", "replay", "truth", "protocols", "report", "cli", "estimators"),
    "envs": ("protocols", "report", "cli", "truth", "replay"),
    "simulate": ("protocols", "report", "cli", "truth", "replay", "envs"),
    "replay": ("protocols", "report", "cli", "truth", "envs", "worlds"),
    "protocols": ("report", "cli", "envs"),
    "report": ("cli", "console", "envs", "worlds"),
}


def modules(folder, name):
    for path in sorted(folder.rglob("*.py")):
        if folder == CORE and AGENTS in path.parents:
            continue
        parts = path.relative_to(folder).with_suffix("").parts
        yield ".".join([name, *parts]).removesuffix(".__init__"), path


def imports(path, *, run_time_only=False):
    """Modules imported anywhere in a file (``if TYPE_CHECKING`` left out)."""
    tree = ast.parse(path.read_text())
    hidden = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and "TYPE_CHECKING" in ast.unparse(guard.test)
        for node in ast.walk(guard)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_agents_know_no_world_and_no_truth():
    for name, path in modules(AGENTS, "recsim_mnar.agents"):
        for used in imports(path):
            if used == "recsim_mnar" or not used.startswith("recsim_mnar"):
                continue
            allowed = any(used == may or used.startswith(may + ".") for may in AGENTS_MAY)
            assert allowed, f"{name} imports {used}"


def test_the_core_never_imports_agents():
    for name, path in modules(CORE, "recsim_mnar"):
        assert not any(used.startswith("recsim_mnar.agents") for used in imports(path)), name


@pytest.mark.parametrize("layer", NOT_ABOVE)
def test_dependencies_point_one_way(layer):
    for name, path in modules(CORE, "recsim_mnar"):
        if name == f"recsim_mnar.{layer}" or name.startswith(f"recsim_mnar.{layer}."):
            for used in imports(path):
                for above in NOT_ABOVE[layer]:
                    assert not (used + ".").startswith(f"recsim_mnar.{above}."), f"{name} imports {used}"


def test_the_ground_imports_only_the_ground():
    for part in GROUND:
        for used in imports(CORE / f"{part}.py"):
            if used.startswith("recsim_mnar."):
                assert used.split(".")[1] in GROUND, f"{part} imports {used}"


def test_kernels_hold_nothing_else():
    found = 0
    for folder, package in ((CORE, "recsim_mnar"), (AGENTS, "recsim_mnar.agents")):
        for name, path in modules(folder, package):
            if not path.name.endswith("_kernel.py"):
                continue
            found += 1
            for used in imports(path):
                root = used.split(".")[0]
                inside = "_kernel" in used or used.startswith("recsim_mnar.numerics.jit")
                assert root in ("numpy", "numba", "math", "collections", "__future__") or inside, f"{name}: {used}"
    assert found > 3


def test_python_calls_no_kernel_that_is_compiled_into_others_only():
    """There it would be a plain function: right, and a hundred times slower."""
    for folder in (CORE, AGENTS):
        for path in folder.rglob("*.py"):
            if path.name.endswith("_kernel.py"):
                continue
            tree = ast.parse(path.read_text())
            names = {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom)
                for alias in node.names
                if alias.name.endswith("_kernel")
            }
            for node in ast.walk(tree):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
                    assert not node.attr.startswith("_"), f"{path.name} calls {node.value.id}.{node.attr}"
                if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_kernel"):
                    assert not [a.name for a in node.names if a.name.startswith("_")], path.name


def test_every_package_is_in_the_wheel():
    import importlib

    for folder in (p for p in CORE.rglob("*") if p.is_dir() and (p / "__init__.py").exists()):
        if folder != AGENTS and AGENTS not in folder.parents:
            importlib.import_module(".".join(["recsim_mnar", *folder.relative_to(CORE).parts]))


def test_a_checkout_finds_its_agents(tmp_path):
    """Python started in a checkout imports the checkout, where the agents lie beside the package, not in it."""
    import shutil

    shutil.copytree(CORE, tmp_path / "recsim_mnar", ignore=shutil.ignore_patterns("agents", "__pycache__"))
    shutil.copytree(AGENTS, tmp_path / "agents", ignore=shutil.ignore_patterns("__pycache__"))
    code = "import recsim_mnar.agents.baselines as b; print(b.__file__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert Path(done.stdout.strip()) == tmp_path / "agents" / "baselines.py"


def test_import_is_light():
    code = "import recsim_mnar, sys; print([m for m in ('numba', 'scipy', 'pandas', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_an_upgrade_never_runs_yesterdays_machine_code(tmp_path):
    """The cache folder is named after all kernel sources: a callee changed in another file is compiled again."""
    package = tmp_path / "victim"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_caller_kernel.py").write_text(
        "from recsim_mnar.numerics.jit import kernel\nfrom victim._callee_kernel import callee\n\n"
        "@kernel\ndef caller(x):\n    return callee(x)\n"
    )
    answers = []
    for constant in (1.0, 2.0):
        (package / "_callee_kernel.py").write_text(
            f"from recsim_mnar.numerics.jit import kernel\n\n@kernel\ndef callee(x):\n    return x + {constant}\n"
        )
        code = "from victim._caller_kernel import caller; print(caller(1.0))"
        environment = {
            "PYTHONPATH": str(tmp_path),
            "RECSIM_MNAR_CACHE_DIR": str(tmp_path / "cache"),
            "PATH": "/usr/bin:/bin",
            # Python tells sources apart by size and whole seconds; this test writes two within one second.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        answers.append(float(done.stdout))
    assert answers == [2.0, 3.0]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_without_a_place_for_a_cache_everything_still_works():
    code = "from recsim_mnar import rng; print(rng.uniforms(1, 2, [3], [4])[0])"
    environment = {"RECSIM_MNAR_CACHE_DIR": "/proc/nowhere", "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert 0 <= float(done.stdout) < 1

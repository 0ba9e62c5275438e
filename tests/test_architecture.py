"""The house: who may import whom, what an import costs, and how much code there may be."""

from __future__ import annotations

import ast
import functools
import io
import re
import shutil
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import recsim_mnar
import recsim_mnar.agents

CORE = Path(recsim_mnar.__file__).parent
AGENTS = Path(recsim_mnar.agents.__file__).parent
ROOT = "recsim_mnar"

GROUND = {"_version", "errors", "progress", "kernels", "rng", "runs"}
# What each place may import, from the ground up: a folder, a module of the root, or one module of a folder. A place may
# always import itself; what is not named here is a breach, and so is a module that belongs to no place.
MAY = {
    "_version": set(),
    "errors": set(),
    "plugins": {"errors", "kernels"},
    "progress": set(),
    "kernels": {"errors"},
    "runs": {"_version", "errors"},
    "rng": {"errors", "kernels"},
    "tables": GROUND,
    "log": GROUND | {"tables"},
    "policies": GROUND | {"plugins", "log"},
    "estimators": GROUND | {"tables", "plugins", "log"},
    "answers": GROUND | {"log", "estimators"},
    "datasets": GROUND | {"tables", "log"},
    "models": GROUND | {"log"},
    "worlds": GROUND | {"plugins", "log.schema", "log.contexts", "log.ratings", "log.rows", "models", "datasets"},
    "simulation": GROUND | {"tables", "plugins", "log", "policies", "worlds"},
    "cluster": GROUND | {"log", "simulation"},
    "installation": GROUND | {"log", "policies", "estimators", "worlds", "simulation", "envs"},
    "tasks": GROUND | {"plugins", "log", "policies", "worlds", "simulation", "envs", "export"},
    "replays": set(),
    "replays.probabilities": GROUND | {"log", "policies", "simulation.executor"},
    "replays.replayed_log": GROUND | {"tables", "log", "policies", "simulation", "replays.probabilities"},
    "export": GROUND | {"log", "policies", "replays.probabilities"},
    "integrations": GROUND | {"log", "policies"},
    "replays.truth": GROUND | {"log", "policies", "worlds", "replays.probabilities", "simulation"},
    "testing": GROUND
    | {"plugins", "replays.probabilities", "log", "policies", "estimators", "worlds", "simulation", "envs"}
    | {"protocols"},
    "envs": GROUND | {"plugins", "log", "policies", "worlds", "simulation"},
    "protocols": GROUND
    | {
        "answers",
        "log",
        "policies",
        "estimators",
        "datasets",
        "models",
        "worlds",
        "simulation",
        "replays",
    }
    | {"plugins"},
    "studies": GROUND | {"log", "policies", "estimators", "worlds", "simulation", "protocols"},
    "own_log": GROUND
    | {
        "answers",
        "tables",
        "log",
        "policies",
        "estimators",
        "datasets",
        "worlds",
        "simulation",
        "replays.probabilities",
        "replays.replayed_log",
        "protocols",
        "studies",
    },
    # Above the files that people bring, which it reads.
    "fitting": GROUND
    | {
        "tables",
        "log",
        "datasets",
        "policies",
        "estimators",
        "worlds",
        "simulation",
        "replays.probabilities",
        "own_log",
    }
    | {"studies"},
    "report": GROUND | {"answers", "log", "estimators", "protocols", "studies", "own_log", "fitting"},
    "cli": GROUND
    | {"answers", "tables", "log", "policies", "estimators", "datasets", "worlds", "simulation", "replays"}
    | {"envs", "protocols", "studies", "own_log", "report", "testing", "plugins", "installation"}
    | {"cluster"}
    | {"_start", "fitting", "tasks"},
    # Two papers, one folder each: they import the core, and nothing but the root's public names imports them. Their
    # worlds are entry points, and a world's class names all else.
    "campaigns": GROUND
    | {"tables", "log", "policies", "estimators", "worlds", "simulation", "envs", "protocols", "tasks"},
    "purchases": GROUND
    | {"tables", "log", "policies", "estimators", "worlds", "simulation", "envs", "protocols", "tasks"}
    | {"purchases.exposures"},
    # The second part of a log of purchases: what uplift's learners are fitted on.
    "purchases.exposures": GROUND | {"tables", "log"},
    "agents": GROUND | {"log", "policies", "models", "estimators", "purchases.exposures"},
    "_start": set(),
    "__main__": {"cli"},
    # What users call; for type checkers alone, and at run time when it is asked for.
    ROOT: {
        "_start",
        "_version",
        "campaigns",
        "errors",
        "datasets",
        "estimators",
        "fitting",
        "log",
        "own_log",
        "policies",
        "protocols",
        "purchases",
    }
    | {"replays", "runs", "simulation", "studies", "tasks", "testing", "worlds"},
}
# What must not be reached by any way round, whatever stands between.
NEVER = {
    "log": {"policies", "worlds", "simulation", "estimators", "models"},
    "policies": {"worlds", "simulation", "replays.probabilities", "replays.truth", "envs", "estimators", "protocols"},
    "estimators": {"policies", "worlds", "simulation", "replays.probabilities", "replays.truth", "envs", "protocols"},
    "worlds": {"policies", "simulation", "replays.probabilities", "replays.truth", "envs", "protocols"},
    "envs": {"protocols", "replays.truth", "replays.probabilities", "report", "cli"},
    "replays.probabilities": {"worlds", "replays.truth", "envs", "protocols"},
    "replays.replayed_log": {"replays.truth", "envs", "protocols"},
    "export": {"replays.truth", "envs", "estimators", "protocols"},
    "integrations": {
        "worlds",
        "simulation",
        "replays.probabilities",
        "replays.truth",
        "envs",
        "estimators",
        "protocols",
    },
    "agents": {
        "worlds",
        "simulation",
        "replays.probabilities",
        "replays.truth",
        "envs",
        "protocols",
        "studies",
        "report",
        "cli",
        "testing",
    },
    **{
        place: {"agents"}
        for place in ("simulation", "replays.truth", "testing", "protocols", "studies", "own_log", "report", "cli")
    },
}


def sources(core: Path, agents: Path) -> dict[str, Path]:
    """Every module by its name; packages by theirs."""
    found = {}
    for folder, package in ((core, ROOT), (agents, f"{ROOT}.agents")):
        for path in sorted(folder.rglob("*.py")):
            if folder == core and agents in path.parents:
                continue
            parts = path.relative_to(folder).with_suffix("").parts
            found[".".join([package, *parts]).removesuffix(".__init__")] = path
    return found


@functools.cache
def parsed(text: str) -> ast.Module:
    """The syntax tree of a source, which several tests walk."""
    return ast.parse(text)


def imports(path: Path, known: dict[str, Path]) -> set[str]:
    """Modules of the package that a file imports anywhere, ``if TYPE_CHECKING`` included."""
    found = set()
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            for alias in node.names:
                module = f"{node.module}.{alias.name}"
                found.add(module if module in known else str(node.module))
    return {name for name in found if name == ROOT or name.startswith(f"{ROOT}.")}


def place(module: str) -> str:
    """The folder or module of the root to which a module belongs; a module of a folder that has rules of its own."""
    if module == ROOT:
        return ROOT
    first, *rest = module.split(".")[1:]
    own = ".".join([first, *rest[:1]])
    return own if own in MAY else first


def is_kernel(path: Path) -> bool:
    """Whether a module is compiled."""
    return path.name.startswith("_") and path.name.endswith("_kernel.py")


@functools.cache
def graph() -> dict[str, set[str]]:
    """Who imports whom."""
    known = sources(CORE, AGENTS)
    return {name: imports(path, known) - {name} for name, path in known.items()}


def reached(start: str, edges: dict[str, set[str]]) -> dict[str, str]:
    """Every module that can be reached, with the one that imports it; packages are not passed through."""
    came: dict[str, str] = {}
    waiting = [start]
    while waiting:
        here = waiting.pop()
        for there in edges.get(here, ()):
            if there not in came and there != ROOT:
                came[there] = here
                waiting.append(there)
    return came


def breaches(edges: dict[str, set[str]]) -> Iterator[str]:
    """Each import that the house forbids, in words."""
    for module, used in sorted(edges.items()):
        here = place(module)
        if here not in MAY:
            yield f"{module} belongs to no place of the house"
            continue
        for other in sorted(used):
            there = place(other)
            if there != here and not any(f"{other}.".startswith(f"{ROOT}.{allowed}.") for allowed in MAY[here]):
                yield f"{module} imports {other}"
        for other, by in reached(module, edges).items():
            if place(other) in NEVER.get(here, ()):
                yield f"{module} reaches {other} by {by}"


def circle(edges: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; none: an empty list."""
    left = {name: {other for other in used if other in edges and other != ROOT} for name, used in edges.items()}
    while left:
        free = {name for name, used in left.items() if not used & left.keys()}
        if not free:
            on_circle = {name for name in left if name in reached(name, left)}
            return sorted(on_circle)
        left = {name: used for name, used in left.items() if name not in free}
    return []


def test_everyone_imports_only_what_the_house_allows():
    assert list(breaches(graph())) == []


def test_no_circle():
    assert circle(graph()) == []


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        (
            "recsim_mnar.log.planted",
            "from recsim_mnar.policies.base import Policy",
            "log.planted imports recsim_mnar.policies.base",
        ),
        (
            "recsim_mnar.kernels.planted",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from recsim_mnar.log.table import Log",
            "kernels.planted imports recsim_mnar.log.table",
        ),
        (
            "recsim_mnar.worlds.planted",
            "from recsim_mnar.log import table",
            "worlds.planted imports recsim_mnar.log.table",
        ),
        (
            "recsim_mnar.envs.planted",
            "from recsim_mnar.campaigns.world import Platform",
            "envs.planted imports recsim_mnar.campaigns.world",
        ),
        ("recsim_mnar.shed", "", "recsim_mnar.shed belongs to no place"),
        ("recsim_mnar.runs.planted", "from recsim_mnar import __version__", "runs.planted imports recsim_mnar"),
        ("recsim_mnar.models.planted", "import recsim_mnar.worlds.base", "svd reaches recsim_mnar.worlds.base by"),
        ("recsim_mnar.log.schema", "from recsim_mnar.log.table import Log", "circle"),
    ],
)
def test_a_planted_breach_is_found(tmp_path, module, line, said):
    """Under TYPE_CHECKING, of one module of a folder, in a new folder, by a way round, in a circle."""
    known = sources(CORE, AGENTS)
    edges = dict(graph())

    def plant(name, code):
        path = tmp_path / "planted.py"
        path.write_text((known[name].read_text() if name in known else "") + f"\n{code}\n")
        known[name] = path
        edges[name] = imports(path, known) - {name}

    plant(module, line)
    if "svd" in said:
        plant("recsim_mnar.agents.factors.svd", "from recsim_mnar.models import planted")
    if said == "circle":
        assert {"recsim_mnar.log.schema", "recsim_mnar.log.table"} <= set(circle(edges))
    else:
        assert any(said in breach for breach in breaches(edges)), list(breaches(edges))


def test_nobody_imports_the_privates_of_another_module():
    known = sources(CORE, AGENTS)
    for name, path in known.items():
        for node in ast.walk(parsed(path.read_text())):
            if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith(ROOT)):
                continue
            if (node.module or "").endswith("_kernel") and is_kernel(path):
                continue  # compiled into one another; test_python_calls_no_kernel holds the rest
            for alias in node.names:
                private = alias.name.startswith("_") and not alias.name.startswith("__")
                assert not private or f"{node.module}.{alias.name}" in known, f"{name}: {node.module}.{alias.name}"


def test_only_worlds_compare_the_names_of_worlds():
    """Elsewhere a world is asked what it can do."""
    from recsim_mnar.worlds import WORLDS

    for name, path in sources(CORE, AGENTS).items():
        text = path.read_text()
        if place(name) == "worlds" or not any(f'"{world}"' in text for world in WORLDS):
            continue
        for node in ast.walk(parsed(text)):
            if isinstance(node, (ast.Compare, ast.MatchValue)):
                words = {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)}
                said = ast.unparse(node)  # "ratings" and "purchases" are also what a column or a metric is called
                named = isinstance(node, ast.MatchValue) or re.search(r"world|\bname\b|preset", said)
                assert not (words & set(WORLDS) and named), f"{name}, line {node.lineno}: {said}"


def all_imports(path: Path) -> set[str]:
    """Every module named by an import of a file."""
    nodes = list(ast.walk(parsed(path.read_text())))
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return plain | {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}


def test_kernels_hold_nothing_else():
    found = 0
    for name, path in sources(CORE, AGENTS).items():
        if not is_kernel(path):
            continue
        found += 1
        for used in all_imports(path):
            root = used.split(".")[0]
            inside = used.endswith("_kernel") or used == "recsim_mnar.kernels.jit"
            assert root in ("numpy", "numba", "math", "collections", "__future__") or inside, f"{name}: {used}"
    assert found > 3


def test_python_calls_no_kernel_that_is_compiled_into_others_only():
    """There it would be a plain function: right, and a hundred times slower."""
    for folder in (CORE, AGENTS):
        for path in folder.rglob("*.py"):
            text = path.read_text()
            if is_kernel(path) or "_kernel" not in text:
                continue
            tree = parsed(text)
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
    """setuptools cannot find packages below a folder that is installed elsewhere, so they are listed by hand."""
    listed = tomllib.loads(Path("pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {name for name, path in sources(CORE, AGENTS).items() if path.name == "__init__.py"}
    assert sorted(listed) == sorted(there)


def test_kernels_alone_are_hidden_from_the_type_checker():
    """Numba is their type checker, and one body serves several types."""
    for name, path in sources(CORE, AGENTS).items():
        hidden = "# mypy: ignore-errors" in path.read_text()
        assert hidden == is_kernel(path), name


def test_a_checkout_finds_its_agents(tmp_path):
    """Python started in a checkout imports the checkout, where the agents are next to the package, not in it."""
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
        "from recsim_mnar.kernels.jit import kernel\nfrom victim._callee_kernel import callee\n\n"
        "@kernel\ndef caller(x):\n    return callee(x)\n"
    )
    answers = []
    for constant in (1.0, 2.0):
        (package / "_callee_kernel.py").write_text(
            f"from recsim_mnar.kernels.jit import kernel\n\n@kernel\ndef callee(x):\n    return x + {constant}\n"
        )
        code = "from victim._caller_kernel import caller; print(caller(1.0))"
        environment = {
            "PYTHONPATH": str(tmp_path),
            "RECSIM_MNAR_CACHE_DIR": str(tmp_path / "cache"),
            "PATH": "/usr/bin:/bin",
            # Python distinguishes sources by size and whole seconds; this test writes two within one second.
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


# Tokens of code that a room may hold: what it held when it was last made smaller, and 5 % more. They only fall. Where a
# change needs more, a line of reason stands beside the number.
TOKENS = {
    "own_log": 53_300,
    "agents": 44_500,
    "estimators": 46_400,
    "worlds": 41_500,
    "protocols": 34_700,
    "fitting": 26_900,
    "cli": 23_200,
    "policies": 24_000,
    "purchases": 18_200,
    "tables": 19_000,  # marks between digits, units of time, open quotation marks: what was misread in silence
    "envs": 14_300,
    "campaigns": 16_300,
    "testing": 14_800,
    "report": 10_000,
    "log": 13_100,
    "datasets": 10_600,
    "simulation": 11_200,
    "answers": 11_100,  # records and sentences, which were of estimators
    "studies": 10_200,
    "kernels": 8_300,
    "models": 8_000,
    "replays": 7_600,
    "the root": 6_800,
    "tasks": 7_800,  # evaluate_agent: the score of an agent that acts in the environment
    "integrations": 6_000,
    "export": 3_700,
    "runs": 4_300,
}
AROUND = {"tests": 398_500, "benchmarks": 204_500}
"""Tokens of what stands around the package: as reached, and 5 % more."""
EXPERIMENTAL = ("protocols", "studies", "tasks")
EXPERIMENTS = 50_400
"""Tokens of protocols, studies and tasks together, without slack."""
MODULES = 254  # of the package and agents together
PER_LINE, LONG, WIDE = 9.6, 0, 17
"""Tokens per line of the package and agents, and functions above 60 lines and above 8 parameters; kernels apart."""
MOST_LINES, MOST_PARAMETERS = 60, 8
"""Of one function; docstrings are counted, as by the tool that measures this code from outside."""
HABITS = {"conditional": 1.2, "tuple": 0.2, "vague": 0.3}
"""Conditional expressions, tuples assigned to tuples and vague names per 100 lines of the package and agents."""
RELATIVE = 0.01
"""Share of docstrings that begin with a relative word."""
VAGUE = {
    "found",
    "each",
    "own",
    "known",
    "shown",
    "said",
    "given",
    "asked",
    "told",
    "such",
    "others",
    "whole",
    "taken",
    "wanted",
}
RELATIVES = {"what", "whether", "of", "as", "how", "that", "see", "which", "where"}
COMPILED = {"kernel", "inner", "inlined", "spliced", "summing", "compiled_as", "intrinsic"}
SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Size:
    """How much code there is.

    Attributes:
        tokens: Python's, without comments, line ends, indents and docstrings.
        lines: that hold any.
        long: functions above 60 lines, kernels apart.
        wide: functions above 8 parameters, kernels apart.
    """

    tokens: int = 0
    lines: int = 0
    long: int = 0
    wide: int = 0

    def __add__(self, other: Size) -> Size:
        return Size(
            self.tokens + other.tokens, self.lines + other.lines, self.long + other.long, self.wide + other.wide
        )


def is_compiled(function: ast.FunctionDef) -> bool:
    """True if a decorator of ``kernels/jit`` compiles the function."""
    return any(ast.unparse(each).partition("(")[0] in COMPILED for each in function.decorator_list)


def oversized(text: str) -> Iterator[tuple[str, str]]:
    """Name each function that is long or wide, kernels apart, with its line and number of lines or parameters."""
    for node in ast.walk(parsed(text)):
        if not isinstance(node, ast.FunctionDef) or is_compiled(node):
            continue
        lines = (node.end_lineno or 0) - node.lineno + 1
        parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        n_parameters = len([one for one in parameters if one.arg not in ("self", "cls")])
        where = f"{node.lineno} {node.name}"
        if lines > MOST_LINES:
            yield "long", f"{where} has {lines} lines of at most {MOST_LINES}, its docstring among them"
        if n_parameters > MOST_PARAMETERS:
            yield "wide", f"{where} has {n_parameters} parameters of at most {MOST_PARAMETERS}"


def over(where: str, number: float, most: float, of: str, remedy: str) -> list[str]:
    """Say in one line that a budget is exceeded; nothing if it is not."""
    if number <= most:
        return []
    return [f"{where}: {number:,} {of} of at most {most:,}: {remedy}"]


def raising(constant: str) -> str:
    """The remedy for too much code."""
    return f"simplify something there, or raise {constant} in {Path(__file__).name} with a line of reason"


def size_of(text: str) -> Size:
    """The size of a module's source."""
    nodes = list(ast.walk(parsed(text)))
    documented: set[int] = set()
    for node in nodes:
        holds = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        if holds and ast.get_docstring(node, clean=False) is not None:
            documented |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    kinds = [kind for kind, _ in oversized(text)]
    tokens = [
        token
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type not in SILENT and token.start[0] not in documented
    ]
    lines = {line for token in tokens for line in range(token.start[0], token.end[0] + 1)}
    return Size(len(tokens), len(lines), kinds.count("long"), kinds.count("wide"))


def room(module: str) -> str:
    """The folder at the root to which a module belongs; modules of the root together."""
    parts = module.split(".")[1:]
    if parts and (CORE / parts[0] / "__init__.py").exists():
        return parts[0]
    return parts[0] if parts[:1] == ["agents"] else "the root"


def folder_of(name: str) -> str:
    """A room as it is called in a message."""
    return {"agents": "agents", "the root": "recsim_mnar/*.py"}.get(name, f"recsim_mnar/{name}")


@functools.cache
def sizes() -> dict[str, Size]:
    """Size of each room."""
    found: dict[str, Size] = {}
    for module, path in sources(CORE, AGENTS).items():
        found[room(module)] = found.get(room(module), Size()) + size_of(path.read_text())
    return found


def test_rooms_stay_within_their_budgets():
    """A change that needs more argues with the number above."""
    assert set(sizes()) == set(TOKENS), (
        f"a folder of the package has no budget in TOKENS, or TOKENS one that is gone: {set(sizes()) ^ set(TOKENS)}"
    )
    too_much = []
    for name, size in sizes().items():
        too_much += over(folder_of(name), size.tokens, TOKENS[name], "tokens", raising(f"TOKENS['{name}']"))
    tokens = sum(sizes()[name].tokens for name in EXPERIMENTAL)
    where = " and ".join(map(folder_of, EXPERIMENTAL))
    too_much += over(where, tokens, EXPERIMENTS, "tokens", raising("EXPERIMENTS"))
    too_much += over("recsim_mnar and agents", len(sources(CORE, AGENTS)), MODULES, "modules", raising("MODULES"))
    assert not too_much, "\n".join(too_much)


@pytest.mark.slow
@pytest.mark.parametrize("folder", AROUND)
def test_tests_and_benchmarks_stay_within_their_budgets(folder):
    root = Path(__file__).parents[1] / folder
    tokens = sum(size_of(path.read_text()).tokens for path in root.rglob("*.py"))
    assert not over(folder, tokens, AROUND[folder], "tokens", raising(f"AROUND['{folder}']"))


def test_code_is_no_denser_and_functions_grow_no_larger():
    """Budgets in lines were once met by denser lines."""
    whole = sum(sizes().values(), Size())
    density = round(whole.tokens / whole.lines, 2)
    denser = over("recsim_mnar and agents", density, PER_LINE, "tokens a line", "put one thought on a line")
    assert not denser, "\n".join(denser)
    places: dict[str, list[str]] = {"long": [], "wide": []}
    for path in sources(CORE, AGENTS).values():
        for kind, where in oversized(path.read_text()):
            places[kind].append(f"{path.relative_to(CORE.parent)}:{where}")
    assert whole.long <= LONG, "\n".join([*places["long"], "move a part of it to a function of its own"])
    several = f"{whole.wide} functions with that many parameters of at most {WIDE}: group some in a dataclass"
    assert whole.wide <= WIDE, "\n".join([*places["wide"], several])


@pytest.mark.parametrize(
    ("text", "tokens", "lines"),
    [
        ('"""A module."""\n\n# why\nx = 1  # and more\n', 3, 1),
        ('def f():\n    """Do it."""\n    return """two\nlines"""\n', 7, 3),
        ("call(\n    1,\n\n    # no\n    2,\n)\n", 7, 4),
    ],
    ids=["comments and docstrings are none", "a text that is a value counts", "a call on lines of its own"],
)
def test_only_code_counts(text, tokens, lines):
    """What budgets count."""
    assert (size_of(text).tokens, size_of(text).lines) == (tokens, lines)


def test_long_and_wide_functions_are_counted_and_kernels_are_not():
    wide = ", ".join("abcdefghi")
    body = "    x = 1\n" * 60
    assert size_of(f"def f({wide}):\n    return a\n").wide == 1
    assert size_of(f"def f():\n{body}").long == 1
    assert size_of(f"@kernel\ndef f({wide}):\n{body}") == Size(204, 62)


def test_a_breach_names_the_function_and_its_numbers():
    """``assert 1 <= 0`` says neither what is too large nor by how much."""
    wide = ", ".join("abcdefghi")
    text = f"x = 1\n\n\ndef f({wide}):\n" + "    x = 1\n" * 60
    assert [(kind, where.split()[:2], re.findall(r"\d+", where)) for kind, where in oversized(text)] == [
        ("long", ["4", "f"], ["4", "61", "60"]),
        ("wide", ["4", "f"], ["4", "9", "8"]),
    ]


def test_a_breach_of_a_budget_names_folder_numbers_and_constant():
    assert over("here", 10, 10, "tokens", "") == []
    (line,) = over(folder_of("protocols"), 51_550, 51_300, "tokens", raising("TOKENS['protocols']"))
    for part in ("recsim_mnar/protocols", "51,550", "51,300", "TOKENS['protocols']", "test_architecture.py"):
        assert part in line
    assert all((CORE.parent / folder_of(name)).is_dir() for name in TOKENS if name not in ("the root", "agents"))


def habits(text: str) -> Iterator[tuple[str, int]]:
    """Name each habit of dense code in a source, with its line."""
    for node in ast.walk(parsed(text)):
        match node:
            case ast.IfExp():
                yield "conditional", node.lineno
            case ast.Name(id=name, ctx=ast.Store()) if name in VAGUE:
                yield "vague", node.lineno
            case ast.Assign(targets=[ast.Tuple(), *_], value=ast.Tuple()):
                yield "tuple", node.lineno


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """Give the line and first word of each docstring of a source."""
    for node in ast.walk(parsed(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            docstring = ast.get_docstring(node)
            if docstring:
                yield node.body[0].lineno, docstring.split()[0].strip("`:,.").lower()


def test_habits_of_dense_code_stay_rare():
    """Each failure names where the habit stands."""
    per_line = 100 / sum(sizes().values(), Size()).lines
    places: dict[str, list[str]] = {habit: [] for habit in HABITS}
    for module, path in sources(CORE, AGENTS).items():
        for habit, line in habits(path.read_text()):
            places[habit].append(f"{module}:{line}")
    too_much = []
    for habit, most in HABITS.items():
        rate = round(len(places[habit]) * per_line, 3)
        remedy = f"write some in the plain form (HABITS in {Path(__file__).name} says which): {places[habit]}"
        too_much += over(habit, rate, most, "per 100 lines", remedy)
    assert not too_much, "\n".join(too_much)


def test_docstrings_begin_with_a_verb_or_a_noun():
    """``What is read`` has to be parsed; ``Rows that are read`` is read."""
    words = [
        (f"{module}:{line}", word)
        for module, path in sources(CORE, AGENTS).items()
        for line, word in docstrings(path.read_text())
    ]
    relative = [f"{where}: {word}" for where, word in words if word in RELATIVES]
    remedy = f"begin some with an imperative or a noun: {relative}"
    too_much = over("docstrings", len(relative), RELATIVE * len(words), "that begin with a relative word", remedy)
    assert not too_much, too_much[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ny = 2 if x else 3\n", [("conditional", 2)]),
        ("a, b = 1, 2\n", [("tuple", 1)]),
        ("a, b = pair\n", []),
        ("for each in rows:\n    found = each\n", [("vague", 1), ("vague", 2)]),
        ("print(found)\n", []),
    ],
)
def test_each_habit_is_found_at_its_line(text, expected):
    assert sorted(habits(text)) == expected

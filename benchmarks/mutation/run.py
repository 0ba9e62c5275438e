"""Mutation study: what share of small faults, put into the estimators one at a time, do the tests notice?

    python benchmarks/mutation/run.py           # coverage, then every mutant, then the table; resumes
    python benchmarks/mutation/run.py --rules   # the verdict's rules alone, against the tests that are about them
    python benchmarks/mutation/run.py table     # the table from what was found
    python benchmarks/mutation/run.py --quick   # some mutants, nothing kept

All mutants of the verdict rules and 400 drawn from the rest of the estimators. One pytest process collects the tests
and runs none of them: every test and every mutant has a fork of its own, so nothing leaks. Kernels run in the
interpreter (NUMBA_DISABLE_JIT=1): compiling each mutant of a kernel anew would take days.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import importlib
import json
import os
import random
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["NUMBA_DISABLE_JIT"] = "1"  # before numba is imported
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the source that is mutated, before an installed one
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
import pytest
from _study import once, read, write_results, write_text

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "recsim_mnar" / "estimators"
RULES = ("checks.py", "verdict.py")  # every mutant of these
DRAWN, SEED = 400, 20261124  # of the rest
TESTS = (
    "tests/estimators",
    "tests/own_log/test_estimate.py",
    "tests/own_log/test_refute.py",
    "tests/own_log/test_segments.py",
    "tests/protocols/test_uplift_protocol.py",
    "tests/test_mixture.py",
    "tests/test_support.py",
)
RULE_TESTS = (
    "tests/estimators/test_verdict_rules.py",
    "tests/estimators/test_verdict.py",
    "tests/test_findings_page.py",
)
LONG, FIRST, AGAIN = 15.0, 6.0, 25.0  # seconds: a test that is left out, all tests of a mutant, of one that survived
KILLED, SURVIVED = "killed", "survived"

# ------------------------------------------------------------------------------------------------------------- mutants

FLIPS: dict[type, tuple[type, ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div,),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Mod: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.And: (ast.Or,),
    ast.Or: (ast.And,),
}
SWAPS = {"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"}


def is_words(node: ast.AST) -> bool:
    """Text for a reader, and sums of texts: a rule about words is not one about numbers."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return True
    return isinstance(node, ast.BinOp) and (is_words(node.left) or is_words(node.right))


def changes_of(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], ast.AST]]]:
    """What may be changed in a node: what it is called, and the function that makes it from a copy of the node."""

    def flip(kind: type, at: int | None = None) -> Callable[[Any], ast.AST]:
        def made(copied: Any) -> ast.AST:
            if at is None:
                copied.op = kind()
            else:
                copied.ops[at] = kind()
            return copied

        return made

    match node:
        case ast.Compare():
            for at, op in enumerate(node.ops):
                for kind in FLIPS.get(type(op), ()):
                    yield f"{type(op).__name__} -> {kind.__name__}", flip(kind, at)
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            for kind in FLIPS.get(type(node.op), ()):
                yield f"{type(node.op).__name__} -> {kind.__name__}", flip(kind)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield f"no {type(node.op).__name__}", lambda copied: copied.operand
        case ast.Constant(value=bool()):
            yield f"{node.value} -> {not node.value}", lambda copied: ast.Constant(not copied.value)
        case ast.Constant(value=int()):
            yield f"{node.value} -> {node.value + 1}", lambda copied: ast.Constant(copied.value + 1)
        case ast.Constant(value=float()):
            new = 1.5 * node.value if node.value else 1.0
            yield f"{node.value} -> {new}", lambda copied: ast.Constant(1.5 * copied.value if copied.value else 1.0)
        case ast.Call(func=ast.Name(id=name)) if name in SWAPS:
            yield f"{name} -> {SWAPS[name]}", lambda copied: renamed(copied, "id")
        case ast.Call(func=ast.Attribute(attr=name)) if name in SWAPS:
            yield f"{name} -> {SWAPS[name]}", lambda copied: renamed(copied, "attr")
        case ast.If() | ast.IfExp() if isinstance(node.test, ast.Name | ast.Attribute | ast.Call):
            yield "condition turned", turned


def renamed(copied: Any, field: str) -> ast.AST:
    """The call with the other of two names."""
    setattr(copied.func, field, SWAPS[getattr(copied.func, field)])
    return copied


def turned(copied: Any) -> ast.AST:
    """The branch with its condition denied."""
    copied.test = ast.UnaryOp(ast.Not(), copied.test)
    return copied


def walk(node: ast.AST, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], ast.AST]]:
    """Nodes that may be mutated, with the way to each; no words, annotations, decorators, defaults, errors raised."""
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "args"} and not isinstance(node, ast.Call):
            continue
        for at, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Raise) or is_words(child):
                continue
            here = (*place, (field, at))
            if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
                yield here, child
                yield from walk(child, here)


def mutants_of(path: Path) -> list[dict[str, Any]]:
    """Every mutant of a file: where it is, which function or constant it changes, and what the line becomes."""
    tree, found = ast.parse(path.read_text()), []
    for place, node in walk(tree):
        owner, kind = owner_of(tree, place)
        if owner is None:
            continue
        for which, (name, _) in enumerate(changes_of(node)):
            line = getattr(node, "lineno", 0)
            about = {"file": str(path.relative_to(SOURCE)), "line": line, "change": name, "owner": owner, "kind": kind}
            about["text"] = ast.get_source_segment(path.read_text(), node)
            found.append(about | {"place": place, "which": which})
    return found


def owner_of(tree: ast.AST, place: tuple[Any, ...]) -> tuple[str | None, str]:
    """The outermost function, or the constant of the module, that a place is in; None in other code of a module."""
    node, names = tree, []
    for field, at in place:
        node = getattr(node, field) if at is None else getattr(node, field)[at]
        if isinstance(node, ast.FunctionDef):
            return ".".join([*names, node.name]), "function"
        if isinstance(node, ast.ClassDef):
            names.append(node.name)
        elif (
            isinstance(node, ast.Assign)
            and not names
            and all(isinstance(t, ast.Name | ast.Tuple) for t in node.targets)
        ):
            return ast.unparse(node.targets[0]), "constant"
    return None, ""


def mutated(mutant: dict[str, Any]) -> ast.Module:
    """The syntax tree of the file with the change."""
    tree = ast.parse((SOURCE / mutant["file"]).read_text())
    parent, node = tree, tree
    for field, at in mutant["place"]:
        parent, node = node, (getattr(node, field) if at is None else getattr(node, field)[at])
    _, change = list(changes_of(node))[mutant["which"]]
    new = change(copy.deepcopy(node))
    if at is None:
        setattr(parent, field, new)
    else:
        getattr(parent, field)[at] = new
    return ast.fix_missing_locations(tree)


def put_in(mutant: dict[str, Any]) -> None:
    """Put a mutant in the running interpreter: the new code of its function, or its constant in every module."""
    path = SOURCE / mutant["file"]
    code = compile(mutated(mutant), str(path), "exec")
    module = next(m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == str(path))
    if mutant["kind"] == "constant":
        before, names = dict(vars(module)), mutant["owner"].strip("()").split(", ")
        after = dict(before)
        exec(code, after)
        for other in list(sys.modules.values()):
            if str(getattr(other, "__file__", "")).startswith(str(ROOT)):
                for name in names:
                    if getattr(other, name, None) is before[name]:
                        setattr(other, name, after[name])
        return
    wanted, nested = None, [code]
    while nested:
        inner = nested.pop()
        if inner.co_qualname == mutant["owner"]:
            wanted = inner
            break
        nested += [c for c in inner.co_consts if isinstance(c, types.CodeType)]
    if wanted is None:
        raise LookupError(f"no code of {mutant['owner']} in {path}")
    for function in FUNCTIONS[str(path), mutant["owner"]]:
        function.__code__ = wanted


FUNCTIONS: dict[tuple[str, str], list[types.FunctionType]] = {}
"""The functions of the estimators that the tests hold, however many names each has."""


def functions_here() -> dict[tuple[str, str], list[types.FunctionType]]:
    """Functions of the estimators by file and qualified name."""
    for path in SOURCE.rglob("*.py"):
        importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    found: dict[tuple[str, str], list[types.FunctionType]] = defaultdict(list)
    gc.unfreeze()  # what the tests' collection left is frozen (tests/conftest.py), and not listed then
    for each in gc.get_objects():
        if isinstance(each, types.FunctionType) and each.__code__.co_filename.startswith(str(SOURCE)):
            found[each.__code__.co_filename, each.__code__.co_qualname].append(each)
    return dict(found)


def chosen(rules: bool) -> list[dict[str, Any]]:
    """All mutants of the rules, and unless these alone are asked for, those drawn from the rest."""
    of_rules = [m for name in RULES for m in mutants_of(SOURCE / name)]
    if rules:
        return of_rules
    files = sorted(path for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
    rest = [m for path in files if str(path.relative_to(SOURCE)) not in RULES for m in mutants_of(path)]
    drawn = random.Random(SEED).sample(rest, DRAWN)
    return of_rules + sorted(drawn, key=lambda m: (m["file"], m["line"]))


# --------------------------------------------------------------------------------------------------------------- tests


class Conductor:
    """A plugin that runs no test of the session, but forks of it."""

    def __init__(self, work: Path, workers: int, mutants: list[dict[str, Any]]) -> None:
        self.work, self.workers, self.mutants = work, workers, mutants

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """The study, in place of the tests."""
        items = {item.nodeid: item for item in session.items}
        FUNCTIONS.update(functions_here())
        gc.freeze()  # forks share what is here
        covered = once(self.work / "covered.json", lambda: self.coverage(items))
        mutants, path = self.mutants, self.work / "found.json"
        for limit in (FIRST, AGAIN):
            found = read(path)
            todo = [m for m in mutants if found.get(key_of(m), {}).get("limit", 0.0) < limit and not dead(found, m)]
            print(f"{len(todo)} mutants, {limit:g} s each", flush=True)
            for at in range(0, len(todo), 40):
                part = todo[at : at + 40]
                jobs = [
                    (key_of(m), lambda m=m, limit=limit: self.judge(m, items, covered, limit), 3.0 * limit + 30.0)
                    for m in part
                ]
                for key, answer in self.forks(jobs).items():
                    if answer is not None and "error" in answer:
                        raise SystemExit(f"{key}: {answer['error']}")
                    found[key] = {"end": KILLED, "by": "time"} if answer is None else answer
                    found[key]["limit"] = limit
                write_text(path, json.dumps(found, indent=1))
                print(f"{at + len(part)}: {sum(dead(found, m) for m in mutants)} killed", flush=True)
        return True

    def coverage(self, items: dict[str, Any]) -> dict[str, Any]:
        """Lines of the estimators that each test runs, and its seconds; tests that fail or are long are left out."""
        jobs = [(name, lambda item=item: traced(item), LONG) for name, item in items.items()]
        return {
            name: answer for name, answer in self.forks(jobs).items() if answer is not None and answer.get("passed")
        }

    def judge(
        self, mutant: dict[str, Any], items: dict[str, Any], covered: dict[str, Any], limit: float
    ) -> dict[str, Any]:
        """Run the tests that run the mutant's lines, fastest first, until one fails or the seconds are over."""
        put_in(mutant)
        tests = covering(mutant, covered)
        start = time.perf_counter()
        for ran, name in enumerate(tests):
            signal.alarm(int(10 + 10 * covered[name]["seconds"]))  # a mutant that never ends is killed by the clock
            if not passes(items[name]):
                return {"end": KILLED, "by": name}
            if time.perf_counter() - start > limit:
                return {"end": SURVIVED, "tests": ran + 1, "of": len(tests)}
        return {"end": SURVIVED, "tests": len(tests), "of": len(tests)}

    def forks(self, jobs: list[tuple[str, Callable[[], Any], float]]) -> dict[str, Any]:
        """Answers of jobs, each in a fork of its own; None from one that died or took too long."""
        answers: dict[str, Any] = {}
        running: dict[int, tuple[str, int, float]] = {}
        waiting = list(reversed(jobs))
        while waiting or running:
            while waiting and len(running) < self.workers:
                name, job, seconds = waiting.pop()
                reading, writing = os.pipe()
                child = os.fork()
                if child == 0:
                    os.close(reading)
                    silent()
                    with os.fdopen(writing, "w") as to:
                        try:
                            to.write(json.dumps(job()))
                        except BaseException as error:
                            to.write(json.dumps({"error": repr(error)}))
                    os._exit(0)
                os.close(writing)
                os.set_blocking(reading, False)
                running[child] = (name, reading, time.monotonic() + seconds)
                texts = answers.setdefault(name, bytearray())
            time.sleep(0.01)
            for child, (name, reading, until) in list(running.items()):
                texts = answers[name]
                try:
                    while part := os.read(reading, 1 << 16):
                        texts += part
                except BlockingIOError:
                    if time.monotonic() > until:
                        os.kill(child, signal.SIGKILL)
                    continue
                os.waitpid(child, 0)
                os.close(reading)
                del running[child]
                answers[name] = json.loads(texts) if texts else None
        return answers


def silent() -> None:
    """Nothing of a fork is printed."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def passes(item: Any) -> bool:
    """Whether a test passes, or is skipped, with fixtures of its own."""
    from _pytest.runner import runtestprotocol

    item._initrequest()
    return not any(report.failed for report in runtestprotocol(item, nextitem=None, log=False))


def traced(item: Any) -> dict[str, Any]:
    """Lines of the estimators that a test runs."""
    lines: dict[str, set[int]] = defaultdict(set)
    prefix = str(SOURCE)

    def local(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_filename].add(frame.f_lineno)
        return local

    def trace(frame: Any, event: str, _: Any) -> Any:
        return local(frame, "line", None) if frame.f_code.co_filename.startswith(prefix) else None

    start = time.perf_counter()
    sys.settrace(trace)
    passed = passes(item)
    sys.settrace(None)
    found = {str(Path(file).relative_to(SOURCE)): sorted(at) for file, at in lines.items()}
    return {"passed": passed, "seconds": time.perf_counter() - start, "lines": found}


def covering(mutant: dict[str, Any], covered: dict[str, Any]) -> list[str]:
    """Tests that run the mutant's function, those of its line first, fastest first; of its file for a constant."""
    file = mutant["file"]
    near = [name for name, about in covered.items() if file in about["lines"]]
    if mutant["kind"] != "constant":
        whole = lines_of(mutant)
        near = [name for name in near if whole & set(covered[name]["lines"][file])]
    return sorted(near, key=lambda n: (mutant["line"] not in covered[n]["lines"][file], covered[n]["seconds"]))


def lines_of(mutant: dict[str, Any]) -> set[int]:
    """Lines of the function that a mutant is in, its first left out."""
    node: Any = ast.parse((SOURCE / mutant["file"]).read_text())
    for field, at in mutant["place"]:
        node = getattr(node, field) if at is None else getattr(node, field)[at]
        if isinstance(node, ast.FunctionDef):
            return set(range(node.body[0].lineno, (node.end_lineno or 0) + 1))
    return set()


def key_of(mutant: dict[str, Any]) -> str:
    """A mutant's name: its file, function, text and change, and not its line, which moves."""
    return f"{mutant['file']} {mutant['owner']} {mutant['place']} {mutant['which']}"


def dead(found: dict[str, Any], mutant: dict[str, Any]) -> bool:
    """Whether the tests noticed a mutant."""
    return bool(found.get(key_of(mutant), {}).get("end") == KILLED)


# --------------------------------------------------------------------------------------------------------------- table


def package_of(mutant: dict[str, Any]) -> str:
    """Where a mutant is counted: each of the verdict rules by itself, the rest by folder."""
    return (
        mutant["file"] if mutant["file"] in RULES else str(Path("estimators") / mutant["file"]).rpartition("/")[0] + "/"
    )


def table(work: Path, mutants: list[dict[str, Any]]) -> None:
    """The score of each package, survivors that are equivalent named apart; results.json has the survivors."""
    found, equal = read(work / "found.json"), read(HERE / "equivalent.json")
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    survivors = []
    for mutant in mutants:
        if key_of(mutant) not in found:
            continue
        alive = not dead(found, mutant)
        reason = equal.get(f"{mutant['file']} {mutant['owner']} {mutant['text']} {mutant['change']}") if alive else None
        groups[package_of(mutant)].append({"alive": alive, "reason": reason})
        if alive:
            about = {name: mutant[name] for name in ("file", "line", "owner", "text", "change")}
            survivors.append(about | ({"equivalent": reason} if reason else {}))
    rows = {}
    for name, group in groups.items():
        killed, same = sum(not m["alive"] for m in group), sum(m["reason"] is not None for m in group)
        rows[name] = {"mutants": len(group), "killed": killed, "equivalent": same}
    whole = {what: sum(row[what] for row in rows.values()) for what in ("mutants", "killed", "equivalent")}
    print(f"{'package':36} {'mutants':>8} {'killed':>8} {'equal':>6} {'score':>7} {'of those that differ':>21}")
    for name, row in (rows | {"all": whole}).items():
        row["score"] = row["killed"] / row["mutants"]
        row["score_of_different"] = row["killed"] / max(row["mutants"] - row["equivalent"], 1)
        print(
            f"{name:36} {row['mutants']:8} {row['killed']:8} {row['equivalent']:6} {100 * row['score']:6.1f} % "
            f"{100 * row['score_of_different']:19.1f} %"
        )
    write_results(HERE / "results.json", {"packages": rows | {"all": whole}, "survivors": survivors})


def main() -> None:
    """Coverage and mutants, or the table alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("all", "table"), default="all")
    parser.add_argument("--work", type=Path, default=HERE / "work", help="folder of what was found so far")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rules", action="store_true", help="the verdict's rules alone, against the tests about them")
    parser.add_argument("--quick", action="store_true", help="20 mutants of the verdict's rules; no results")
    given = parser.parse_args()
    rules = given.rules or given.quick
    mutants = chosen(rules)
    work = given.work / "rules" if rules else given.work
    if given.quick:
        mutants = random.Random(SEED + 1).sample(mutants, 20)
    if given.what == "all":
        os.chdir(ROOT)
        tests = RULE_TESTS if rules else TESTS
        conductor = Conductor(work, given.workers, mutants)
        options = [
            "-q",
            "-m",
            "not slow and not verify",
            "-W",  # `_study` has imported the package before pytest's plug-in of the same name
            "ignore::pytest.PytestAssertRewriteWarning",
            "-p",
            "no:randomly",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        status = pytest.main([*options, *tests], plugins=[conductor])
        if status not in (0, 5):
            raise SystemExit(int(status))
    if not given.quick:
        table(work, mutants)


if __name__ == "__main__":
    main()

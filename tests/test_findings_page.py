"""findings.toml: every code of a finding, and no other; what it says, to whom; and the page that shows it."""

from __future__ import annotations

import ast
import copy
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import recsim_mnar
from recsim_mnar.answers.weights import NOT_FIXED, TOO_MANY
from recsim_mnar.errors import CODES_BY_ERRNO, MachineError
from recsim_mnar.estimators.verdict import Finding, Verdict, for_command, texts
from recsim_mnar.own_log.gate import NOT_ABOVE_0, TOO_FEW_ROWS

CORE = Path(recsim_mnar.__file__).parent
MAKERS = {"Finding", "Damage"}  # a Damage of a tool's log becomes the finding of its code
PLACES = ("answers", "campaigns", "datasets", "estimators", "own_log", "protocols", "purchases")


def calls(tree: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    """Calls of functions of these names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node


def keys_of(scope: ast.AST, name: str) -> set[str]:
    """Keys of the dict over whose items a loop takes ``name``, as written in the function."""
    loops = [each for each in ast.walk(scope) if isinstance(each, ast.comprehension)]
    loops = [
        each for each in loops if name in {leaf.id for leaf in ast.walk(each.target) if isinstance(leaf, ast.Name)}
    ]
    (table,) = {each.iter.func.value.id for each in loops if isinstance(each.iter, ast.Call)}
    found = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == table and isinstance(node.value, ast.Dict):
                found |= {key.value for key in node.value.keys}
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == table:
                found.add(target.slice.value)
    return found


def codes_of(tree: ast.Module, constants: dict[str, str]) -> set[str]:
    """Codes of the findings that a module makes; one that cannot be read from the source fails."""
    found = set()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for call in calls(tree, MAKERS):
        if not call.args or isinstance(call.args[0], ast.Starred):  # of a finding that was made already
            continue
        code = call.args[0]
        around = [f for f in functions if f.lineno <= call.lineno <= f.end_lineno]
        scope = around[-1] if around else tree
        parameters = [each.arg for each in scope.args.args] if around else []
        if isinstance(code, ast.Constant):
            found.add(code.value)
        elif isinstance(code, ast.Attribute) and code.attr == "code":  # another finding's
            continue
        elif isinstance(code, ast.Name) and code.id in constants:
            found.add(constants[code.id])
        elif isinstance(code, ast.Name) and code.id in parameters:
            found |= {each.args[parameters.index(code.id)].value for each in calls(tree, {scope.name})}
        elif isinstance(code, ast.Name):
            found |= keys_of(scope, code.id)
        elif isinstance(code, ast.JoinedStr):
            head, name = code.values
            found |= {head.value + key for key in keys_of(scope, name.value.id)}
        else:
            pytest.fail(f"line {call.lineno}: {ast.unparse(code)} is no code that can be read")
    return found


def failures() -> set[str]:
    """Codes of errors: as they are given to one, and those of the machine."""
    texts = [path.read_text() for path in sorted(CORE.rglob("*.py"))]
    trees = [ast.parse(text) for text in texts if "code=" in text]
    given = {
        keyword.value
        for tree in trees
        for call in calls(tree, {"UserError", "MachineError"})
        for keyword in call.keywords
        if keyword.arg == "code"
    }
    words = {value.value for value in given if isinstance(value, ast.Constant)}
    named = {value.id for value in given if isinstance(value, ast.Name)} - {"code"}
    assert named == {"TOO_FEW_ROWS"}
    return words | {TOO_FEW_ROWS, "missing_values", "invalid_values", "memory", *CODES_BY_ERRNO, MachineError.code}


def codes() -> set[str]:
    """All codes of findings, and of failures."""
    trees = [ast.parse(path.read_text()) for place in PLACES for path in sorted((CORE / place).rglob("*.py"))]
    constants = {
        node.targets[0].id: node.value.value
        for tree in trees
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    return {NOT_ABOVE_0, NOT_FIXED, TOO_MANY, *failures()}.union(*(codes_of(tree, constants) for tree in trees))


def groups() -> dict[str, dict[str, dict[str, str]]]:
    """The codes of the table that the page shows, by group."""
    return {name: codes for name, codes in texts().items() if name not in ("options", "titles", "file")}


def test_the_table_has_every_code_once_and_no_other():
    listed = [code for group in groups().values() for code in group]
    assert sorted(listed) == sorted(codes())
    assert groups().keys() == texts()["titles"].keys()
    for group in groups().values():
        for code, of_it in group.items():
            assert {"means", "page"} <= of_it.keys(), code
            kinds = {key.partition("_")[0] for key in of_it}
            assert kinds <= {"means", "rule", "page", "says", "do"}, code


def test_what_doctor_says_of_a_file_is_said_somewhere():
    """Those of problems, which are no findings of an estimate; a code without texts is an error where it is met."""
    source = "".join(path.read_text() for path in sorted((CORE / "own_log").rglob("*.py")))
    assert [code for code in texts()["file"] if f'"{code}"' not in source] == []
    assert not {*texts()["file"]} & {code for group in groups().values() for code in group}


def test_the_page_shows_every_group():
    page = Path("docs/verdict.md").read_text()
    shown = re.findall(r"^```\{findings\} (.*)$", page, flags=re.MULTILINE)
    assert sorted(" ".join(shown).split()) == sorted(groups())


@pytest.mark.parametrize(
    ("finding", "python", "command"),
    [
        (Finding("propensities_estimated", 2.0, 1.0, says="blind", do="blind"), "(context=)", "(--context-columns)"),
        (Finding("few_users", 2.0, 50.0, users=50, counted="users", unit="users", least=100), "users", "users"),
        (Finding("few_users", 2.0, 50.0, "of one's own", "(--own)"), "(--own)", "(--own)"),
    ],
)
def test_readers_get_the_options_that_they_know(finding, python, command):
    """From the table; in Python's sentence and in JSON's."""
    assert finding.action.endswith(python)
    assert finding.to_dict()["action"].endswith(command)
    verdict = Verdict.of([finding])
    assert verdict.endswith(python)
    assert verdict.to_dict()["verdict"].endswith(command)
    for same in (copy.deepcopy(finding), dataclasses.replace(finding, number=0.0)):
        assert for_command(same.action) == for_command(finding.action)
    assert Finding.from_dict(finding.to_dict()).to_dict() == finding.to_dict()


def test_numbers_stand_in_the_sentence_as_the_table_says():
    finding = Finding("few_users", 2.0, 1234.0, users=1234, counted="users", unit="users", least=5000)
    assert ("1,234" in finding.message, "5000" in finding.message) == (True, True)


@pytest.mark.parametrize("params", [{"users": 3}, {"says": "nowhere"}, {"says": "far", "users": 3}])
def test_a_text_that_the_table_lacks_is_no_finding(params):
    with pytest.raises(KeyError):
        Finding("few_users", 2.0, 3.0, **params)


def test_codes_are_read_from_every_way_of_writing_them():
    source = """
NAMED = "named"
def made(code, score):
    return Finding(code, score)
def all_of(rows):
    runs = {"one": 1}
    runs["two"] = 2
    made("passed", 1.0)
    Finding("plain", 1.0); Finding(NAMED, 1.0); Finding(other.code, 1.0); Finding(**other)
    said = {"a": 1}
    return [Finding(name, 0.0) for name, run in runs.items()], [Damage(f"tool_{which}", 0) for which, n in said.items()]
"""
    found = codes_of(ast.parse(source), {"NAMED": "named"})
    assert found == {"passed", "one", "two", "plain", "named", "tool_a"}


@pytest.mark.parametrize("page", ["gate.md", "json.md", "README.md"])
def test_the_page_is_found(page):
    assert "(verdict.md#checks)" in Path("docs", page).read_text()

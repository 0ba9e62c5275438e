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
    tables = set()
    for loop in ast.walk(scope):
        if isinstance(loop, ast.comprehension) and isinstance(loop.iter, ast.Call):
            targets = {leaf.id for leaf in ast.walk(loop.target) if isinstance(leaf, ast.Name)}
            tables |= {loop.iter.func.value.id} if name in targets else set()
    (table,) = tables
    keys = set()
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign | ast.AnnAssign):
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if getattr(target, "id", "") == table and isinstance(node.value, ast.Dict):
            keys |= {key.value for key in node.value.keys}
        if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == table:
            keys.add(target.slice.value)
    return keys


def codes_of(tree: ast.Module, constants: dict[str, str]) -> set[str]:
    """Codes of the findings that a module makes; one that cannot be read from the source fails."""
    codes = set()
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for call in calls(tree, MAKERS):
        if not call.args or isinstance(call.args[0], ast.Starred):  # of a finding that was made already
            continue
        code = call.args[0]
        around = [function for function in functions if function.lineno <= call.lineno <= function.end_lineno]
        scope = around[-1] if around else tree
        parameters = [parameter.arg for parameter in scope.args.args] if around else []
        match code:
            case ast.Constant():
                codes.add(code.value)
            case ast.Attribute(attr="code"):  # another finding's
                pass
            case ast.Name() if code.id in constants:
                codes.add(constants[code.id])
            case ast.Name() if code.id in parameters:
                place = parameters.index(code.id)
                codes |= {outer.args[place].value for outer in calls(tree, {scope.name})}
            case ast.Name():
                codes |= keys_of(scope, code.id)
            case ast.JoinedStr(values=[head, name]):
                codes |= {head.value + key for key in keys_of(scope, name.value.id)}
            case _:
                pytest.fail(f"line {call.lineno}: {ast.unparse(code)} is no code that can be read")
    return codes


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


@pytest.fixture(scope="module")
def groups() -> dict[str, dict[str, dict[str, str]]]:
    """The codes of the table that the page shows, by group."""
    return {name: codes for name, codes in texts().items() if name not in ("options", "titles", "file")}


def test_the_table_has_every_code_once_and_no_other(groups):
    listed = [code for group in groups.values() for code in group]
    assert sorted(listed) == sorted(codes())
    assert groups.keys() == texts()["titles"].keys()


def test_every_code_of_the_table_has_its_texts(groups):
    for group in groups.values():
        for code, words in group.items():
            assert {"means", "page"} <= words.keys(), code
            assert {key.partition("_")[0] for key in words} <= {"means", "rule", "page", "says", "do"}, code


def test_codes_of_files_are_made_by_doctor_and_are_no_findings(groups):
    source = "".join(path.read_text() for path in sorted((CORE / "own_log").rglob("*.py")))
    of_files = texts()["file"]
    assert [code for code in of_files if f'"{code}"' not in source] == []
    assert not {*of_files} & {code for group in groups.values() for code in group}


def test_the_page_shows_every_group(groups):
    page = Path("docs/verdict.md").read_text()
    shown = re.findall(r"^```\{findings\} (.*)$", page, flags=re.MULTILINE)
    assert sorted(" ".join(shown).split()) == sorted(groups)


@pytest.mark.parametrize(
    ("finding", "python", "command"),
    [
        (Finding("propensities_estimated", 2.0, 1.0, says="blind", do="blind"), "(context=)", "(--context-columns)"),
        (Finding("few_users", 2.0, 50.0, users=50, counted="users", unit="users", least=100), "users", "users"),
        (Finding("few_users", 2.0, 50.0, "of one's own", "(--own)"), "(--own)", "(--own)"),
    ],
    ids=["an option", "no option", "a text of one's own"],
)
def test_readers_get_the_options_that_they_know(finding, python, command):
    """From the table; in Python's sentence and in JSON's."""
    assert finding.action.endswith(python)
    assert finding.to_dict()["action"].endswith(command)
    verdict = Verdict.of([finding])
    assert verdict.endswith(python)
    assert verdict.to_dict()["verdict"].endswith(command)
    for copied in (copy.deepcopy(finding), dataclasses.replace(finding, number=0.0)):
        assert for_command(copied.action) == for_command(finding.action)
    assert Finding.from_dict(finding.to_dict()).to_dict() == finding.to_dict()


def test_numbers_stand_in_the_sentence_as_the_table_says():
    finding = Finding("few_users", 2.0, 1234.0, users=1234, counted="users", unit="users", least=5000)
    assert "1,234" in finding.message
    assert "5000" in finding.message


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

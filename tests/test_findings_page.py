"""findings.toml: every code of a finding, and no other; what it says, to whom; and the page that shows it."""

from __future__ import annotations

import copy
import dataclasses
import re
from pathlib import Path

import pytest

import recsim_mnar
from recsim_mnar.answers.weights import NOT_FIXED, TOO_MANY
from recsim_mnar.errors import CODES_BY_ERRNO, MachineError
from recsim_mnar.estimators.verdict import Finding, Verdict, for_command, texts
from recsim_mnar.own_log.gate import NOT_ABOVE_0, TOO_FEW_ROWS

CORE = Path(recsim_mnar.__file__).parent
SOURCE = "\n".join(path.read_text() for path in sorted(CORE.rglob("*.py")))


@pytest.fixture(scope="module")
def groups() -> dict[str, dict[str, dict[str, str]]]:
    """The codes of the table that the page shows, by group."""
    return {name: codes for name, codes in texts().items() if name not in ("options", "titles", "file")}


def test_the_table_has_every_code_once_and_no_other(groups):
    """A finding whose code it lacks cannot be made; codes of errors, and literal ones, are read from the source."""
    listed = [code for group in groups.values() for code in group]
    assert len(listed) == len(set(listed))
    made = re.findall(r'\b(?:Finding|Damage)\(\s*"(\w+)"', SOURCE) + re.findall(r'\bcode="(\w+)"', SOURCE)
    assert {*made, *CODES_BY_ERRNO, MachineError.code, NOT_ABOVE_0, NOT_FIXED, TOO_MANY, TOO_FEW_ROWS} <= set(listed)
    words = set(re.findall(r'"(\w+)"', SOURCE))
    heads = re.findall(r'\b(?:Finding|Damage)\(\s*f"(\w+_)\{', SOURCE)  # before a name that the source has elsewhere
    assert [code for code in listed if not {code, *(code.removeprefix(head) for head in heads)} & words] == []
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


@pytest.mark.parametrize("page", ["gate.md", "json.md", "README.md"])
def test_the_page_is_found(page):
    assert "(verdict.md#checks)" in Path("docs", page).read_text()

"""Output of commands: at 60, 80 and 120 columns and in a pipe, quietly, as JSON, in any encoding."""

import io
import json
import re
import subprocess
import sys

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from recsim_mnar import cli
from recsim_mnar.cli import cli as group
from recsim_mnar.cli import output
from recsim_mnar.errors import printable
from twins.cases import quick_first
from twins.commands import all_commands, done, run, status_of

SMALL = ("--preset", "quick", "--set", "n_items=20", "--set", "n_flips=5")
_SIZES = ("train_users = 40", "test_users = 40", "arm_users = 40", "truth_users = 40", "folds = 2")
SIZES = tuple(word for size in _SIZES for word in ("--option", size))
HOSTILE = {
    "<script>alert(1)</script>": "<script>alert(1)</script>",
    "\u05e9\u05dc\u05d5\u05dd\u202eabc": "\u05e9\u05dc\u05d5\u05dd\\u202eabc",
    "x\x1b[31mred\nline": "x\\x1b[31mred\\nline",
    "[bold]b[/bold] 'a' \"q\"": "[bold]b[/bold] 'a' \"q\"",
    "n" * 300: "n" * 300,
}
"""Names of policies, and how they are shown."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A simulated log, what it is replayed as, interactions and a table with odd names."""
    folder = tmp_path_factory.mktemp("terminal")
    drawn = ("simulate", "--world", "sessions", *SMALL[2:], "--policy", "random", "--users", 60, "--quiet")
    for name, seed in (("sim", 5), ("train", 7)):
        assert status_of(*drawn, "--seed", seed, "--out", folder / name) == 0
    fit = ("--policy", "svd,popularity", "--train", folder / "train", "--quiet")
    assert status_of("replay", folder / "sim", *fit, "--out", folder / "rep.parquet") == 0
    lines = "".join(f"u{i % 9},i{i * i % 7},{i}\n" for i in range(90))
    (folder / "mine.csv").write_text("user_id,item_id,timestamp\n" + lines)
    rng = np.random.default_rng(0)
    columns = {"propensity": np.full(80, 0.5), "reward": rng.integers(0, 2, 80), "user": np.arange(80) // 4}
    columns |= {name: rng.choice([0.3, 0.5], 80) for name in HOSTILE}
    pq.write_table(pa.table(columns), folder / "hostile.parquet")
    (folder / "study.toml").write_text(
        'catalogues = 2\nagents = ["random", "popularity"]\n[[worlds]]\nworld = "sessions"\npreset = "quick"\n'
        "[worlds.params]\nn_items = 20\nn_flips = 5\n" + "[worlds.options]\n" + "\n".join(_SIZES)
    )
    return folder


NUMBER = r"-?\d*\.\d+(e-\d+)?"
TINY = ("sessions", *SMALL[2:], "--policy", "random", "--users", "5")
HALF = rf"{NUMBER} ±{NUMBER}"
OWN = ("--interactions", "mine.csv", "--agents", "random,popularity")
LEVEL = "trust|caution|do not use"
COMMANDS = {
    "compare": (
        ("compare", *SMALL, *SIZES, "--agents", "random,popularity", "--out", "{out}"),
        ["random", "popularity", "HR@1", "clipped IPS", HALF, r"leave-one-out \(HR@1\)\s+picks"],
    ),
    "interactions": (
        ("compare", *OWN, "--option", "length=5", "--out", "{out}"),
        ["random", "popularity", "NDCG@5", HALF],
    ),
    "study": (
        ("study", "study.toml", "--workers", "1", "--out", "{out}"),
        ["leave-one-out", "clipped IPS", "best pick", "loss", r"\d of 2"],
    ),
    "simulate": (("simulate", "--world", *TINY, "--out", "{out}"), ["5 users", "events in"]),
    "replay": (("replay", "sim", "--policy", "random", "--out", "{out}.csv"), ["rows with random over 20 items"]),
    "estimate": (
        ("estimate", "rep.parquet", "--target", "svd,popularity", "--baseline", "today"),
        ["svd", "popularity", r"random\s+traffic", "95 % interval", NUMBER, LEVEL],
    ),
    "doctor": (
        ("doctor", "rep.parquet", "--target", "svd"),
        ["Type this:", "recsim-mnar estimate", "rewards", "propensities", "more to type"],
    ),
    "plan ab": (("plan", "ab", "sim", "--lift", "5%"), ["users per arm", "the log leaves open"]),
    "verify": (("verify", "sim"), ["all are what their receipts say"]),
    "check": (("check", "constant"), ["constant keeps the"]),
    "worlds": (("worlds",), ["campaigns", "sessions", r"Jeunen\s+et\s+al."]),
    "agents": (("agents",), ["item-knn", "ulbpr", r"\(purchases\)", r"\(every\s+world\)"]),
    "estimators": (("estimators",), ["clipped_ips", r"mean\s+of\s+min"]),
    "protocols": (("protocols",), ["loocv", "purchases: uplift", "--option of --world ratings"]),
    "presets": (("presets",), ["sessions jeunen2019", "ratings mcar"]),
    "describe": (
        ("describe", "agent", "svd"),
        ["rank=30", r"number\s+of\s+singular\s+vectors", r"every\s+world", "factors.svd:SVD"],
    ),
}


@pytest.fixture
def without_figures(monkeypatch):
    """Pages without pictures, which take most of the time and are no part of what is looked at here."""
    for module in ("page", "study_page"):
        monkeypatch.setattr(f"recsim_mnar.report.{module}.figures_of", lambda *found: [])


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("width", quick_first([60, 80, 120, None]))
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_that_matters_is_lost_in_any_width(capsys, monkeypatch, place, tmp_path, name, width):
    arguments, words = COMMANDS[name]
    monkeypatch.chdir(place)
    monkeypatch.setattr(output, "screen_width", lambda: width)
    status, text, _ = run(capsys, *(str(a).format(out=tmp_path / "out") for a in arguments))
    assert status == 0
    for word in words:
        assert re.search(word, text), word
    assert "\u2026" not in text
    if width is not None and name in ("compare", "interactions"):
        assert all(len(line) <= width for line in text.splitlines() if not line.startswith("Report:")), text


def assert_shown(text):
    """Every name stands in a text as it is to be shown, and nothing of a terminal's language does."""
    flat = re.sub(r"\s*\n\s*", "", text)
    assert [shown for shown in HOSTILE.values() if shown not in flat and len(shown) <= 200] == []
    assert all(line.isprintable() for line in text.splitlines())


def test_hostile_names_are_text(capsys, place):
    target = ("--target", ",".join(HOSTILE), "--estimators", "ips")
    status, text, err = run(capsys, "estimate", place / "hostile.parquet", *target)
    assert (status, err) == (0, "")
    assert_shown(text)
    assert "n" * 300 in text


COMMANDS_NOW = [(name, command) for name, command in all_commands() if name != "advise"]
"""Without what is withdrawn: it only says what to type."""


@pytest.mark.parametrize(("name", "command"), COMMANDS_NOW, ids=lambda v: v if isinstance(v, str) else "")
def test_every_command_is_quiet_and_speaks_json(name, command):
    flags = {flag for parameter in command.params for flag in parameter.opts}
    assert {"--quiet", "--json"} <= flags
    assert all(p.help for p in command.params if isinstance(p, click.Option)), name


LISTS = ("worlds", "agents", "estimators", "protocols", "presets")
SILENT = ("simulate", "replay", "verify", "check")


@pytest.mark.usefixtures("without_figures")
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "interactions"])
def test_json_is_alone_on_standard_output(capsys, monkeypatch, place, tmp_path, name):
    monkeypatch.chdir(place)
    arguments = [word.format(out=tmp_path / "out") for word in COMMANDS[name][0]]
    status, text, err = run(capsys, *arguments, "--json", "-", "--quiet")
    assert (status, err) == (0, "")
    assert json.loads(text)


@pytest.mark.parametrize("name", [*LISTS, *SILENT])
def test_quiet_says_less(capsys, monkeypatch, place, tmp_path, name):
    monkeypatch.chdir(place)
    text = done(capsys, *(word.format(out=tmp_path / "out") for word in COMMANDS[name][0]), "--quiet")
    assert name in LISTS or text == ""
    assert all(len(line.split()) <= 2 for line in text.splitlines())


@pytest.mark.parametrize("kind", ["agent", "world", "preset", "estimator", "protocol"])
def test_whatever_is_listed_is_described_with_its_parameters(capsys, kind):
    listed = json.loads(done(capsys, f"{kind}s", "--json", "-"))
    names = (
        [entry["name"] for entry in listed]
        if kind != "protocol"
        else [
            f"{entry['world']}: {entry['name']}" if entry["world"] else entry["name"] for entry in listed["protocols"]
        ]
    )
    for name in names:
        description = json.loads(done(capsys, "describe", kind, name, "--json", "-"))
        assert description["facts"]
        for rows in description["parameters"].values():
            assert all(row["meaning"] for row in rows), (name, rows)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_encoding_shows_any_name(capsys, monkeypatch, place, encoding):
    monkeypatch.chdir(place)
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    assert status_of("estimate", "hostile.parquet", "--target", ",".join(HOSTILE), "--estimators", "ips") == 0
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)
    assert ("\u05e9" in text) == (encoding == "utf-8")
    assert ("\\u05e9" in text) == (encoding != "utf-8")


def test_a_pipe_that_is_closed_ends_it_quietly():
    asked = "describe preset quick --json -"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m recsim_mnar {asked} | true; echo $?"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "141"
    assert done.stderr == ""


def test_printable_cuts_what_is_beyond_measure():
    assert printable("a\tb\u200f") == "a\\tb\\u200f"
    assert printable("x" * 300) == "x" * 300
    assert "(820 more)" in printable("x" * 1000)


def test_help_shows_every_command_under_one_heading():
    under = [command.name for commands in cli.SECTIONS.values() for command in commands]
    assert sorted(under) == sorted(name for name, command in group.commands.items() if not command.hidden)


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (("item-knn",), 0, "^agent item-knn\n"),
        (("ips",), 2, "describe estimator ips, or describe protocol ips"),
        (("item-kn",), 2, "unknown agent 'item-kn'; did you mean 'item-knn'"),
        (("zzz",), 2, "describe zzz: unknown name; `recsim-mnar list` shows every name"),
        (("agent",), 2, "describe agent: which"),
        (("agnt", "svd"), 2, "describe agnt: unknown kind"),
    ],
)
def test_describe_finds_the_kind_of_a_name(capsys, words, status, expected):
    ended, out, err = run(capsys, "describe", *words)
    assert ended == status
    assert re.search(expected, out + err)


def test_help_names_every_option(capsys):
    """Those that it does not describe are named at its end, with the command that does."""
    for name, command in all_commands():
        names = {option.opts[0] for option in command.params if isinstance(option, click.Option)}
        out = done(capsys, *name.split(), "--help")
        assert names <= set(re.findall(r"--[a-z][\w-]*", out)), name
        if "describe command" in out:
            assert names <= set(re.findall(r"--[a-z][\w-]*", done(capsys, "describe", "command", name)))

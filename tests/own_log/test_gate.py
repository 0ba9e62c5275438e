"""The gate of a pipeline: what is required, exit statuses, what is written when, and the same from Python."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from recsim_mnar import MachineError, UserError, estimate_file
from recsim_mnar.cli.options import checked_file, writing
from recsim_mnar.errors import is_of_the_machine
from recsim_mnar.own_log import gate
from recsim_mnar.runs.folder import describe_foreign_file
from toys import read_json
from twins.commands import done, fails, run
from twins.json_schema import breaches

N = 20_000
FLOOR = 0.1
STATED = ("--propensity-min", FLOOR)
BETTER = ("--baseline", "today", "--require", "better")
IN_PYTHON = {"baseline": "today", "require": "better"}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A log of two items with a better policy, a worse one and today's own; users differ in nothing."""
    rng = np.random.default_rng(3)
    shown = rng.integers(0, 2, N)
    frame = pd.DataFrame({"user_id": np.arange(N) // 10, "item": shown, "propensity": 0.5})
    frame["click"] = (rng.random(N) < np.where(shown == 1, 0.3, 0.1)).astype(int)
    frame["new"] = np.where(shown == 1, 0.9, 0.1)
    frame["worse"] = np.where(shown == 1, 0.1, 0.9)
    frame["same"] = 0.5
    path = tmp_path_factory.mktemp("gate") / "log.csv"
    frame.to_csv(path, index=False)
    return path


@pytest.fixture
def by_device(shop, tmp_path):
    """The log of the shop, whose users have one of two devices."""
    log = tmp_path / "by_device.csv"
    frame = pd.read_csv(shop)
    frame.assign(device=np.where(frame.user_id % 2, "phone", "desk")).to_csv(log, index=False)
    return log


def test_trusted_is_not_better(shop, capsys):
    asked = ("estimate", shop, "--target", "worse", "--baseline", "today", *STATED)
    out = done(capsys, *asked, "--require", "trust")
    assert out.splitlines()[-1] == "--require trust is met. Trusted does not mean better: --require better"
    assert "does not mean" not in done(capsys, "estimate", shop, "--target", "new", *BETTER, *STATED)


def test_the_causes_tell_not_trusted_from_not_better(shop, capsys, tmp_path):
    """Both are status 3; programs read the codes."""

    def causes(target, *stated):
        path = tmp_path / "a.json"
        status, _, error = run(capsys, "estimate", shop, "--target", target, *BETTER, "--json", path, *stated)
        first, *others = read_json(path)
        assert not any("reasons" in record for record in others)
        assert first["met"] == (not first["reasons"])
        assert status == (3 if first["reasons"] else 0)
        assert all(cause["message"] in error for cause in first["reasons"])
        return first["reasons"]

    assert causes("new", *STATED) == []
    (worse,) = causes("worse", *STATED)
    assert worse.pop("message").endswith("is not above 0")
    assert worse == {"policy": "worse - propensity", "estimator": "snips", "code": "not_above_0", "contradicted": False}
    denied = causes("new", "--propensity-min", "0.9")
    assert [cause["code"] for cause in denied if cause["contradicted"]] == ["bound_denied"]
    assert causes("new") == []


def test_the_causes_of_a_segment_name_it(by_device):
    answer = estimate_file(by_device, "worse", **IN_PYTHON, propensity_min=FLOOR, by="device")
    segments = [(cause.get("by"), cause.get("segment")) for cause in answer.causes]
    assert segments == [(None, None), ("device", "desk"), ("device", "phone")]
    assert copy.deepcopy(answer).causes == answer.causes


def test_every_target_must_be_better(shop, capsys):
    status, _, error = run(capsys, "estimate", shop, "--target", "new,worse,same", *BETTER, *STATED)
    assert status == 3
    failed = [line.split(",")[0] for line in error.splitlines()]
    assert failed == [f"--require better: {name} - the random traffic" for name in ("worse", "same")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ((), "--require better needs --baseline: better than what?"),
        (("--baseline", "today", "--estimators", "dm"), "no difference from the baseline"),
    ],
)
def test_better_needs_a_difference(shop, capsys, more, message):
    assert message in fails(capsys, "estimate", shop, "--target", "new", "--require", "better", *more)


def test_todays_own_policy_is_no_news(shop, capsys):
    _, _, err = run(capsys, "estimate", shop, "--target", "propensity", *STATED, "--require", "trust")
    assert "is the policy that logged, so this says nothing of a new one" in err


def test_a_lost_propensity_column_is_a_mistake(shop, capsys, tmp_path):
    log = tmp_path / "lost.csv"
    pd.read_csv(shop).drop(columns="propensity").assign(segment=1).to_csv(log, index=False)
    asked = ("estimate", log, "--target", "new")
    error = fails(capsys, *asked, "--require", "caution")
    assert "no column is recognised as the propensity" in error
    assert "omit --require" in error
    assert run(capsys, *asked, "--require", "caution", "--context-columns", "segment")[0] in (0, 3)  # asked for
    done(capsys, *asked)


# --------------------------------------------------------------------------------------------------------- statuses


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EDQUOT, errno.ENOMEM])
def test_the_machine_is_not_the_user(number, tmp_path):
    with pytest.raises(MachineError, match="cannot be written"), writing(tmp_path / "a", "--json"):
        raise OSError(number, os.strerror(number))


def test_what_the_user_named_wrongly_is_a_mistake(tmp_path):
    with pytest.raises(UserError, match="is a folder") as caught:
        checked_file(tmp_path, "--json")
    assert not is_of_the_machine(caught.value)
    assert not is_of_the_machine(FileNotFoundError(errno.ENOENT, "no"))
    assert is_of_the_machine(MemoryError())


def test_memory_and_disk_are_status_4(shop, capsys, monkeypatch):
    asked = ("estimate", shop, "--target", "new")
    status, _, error = run(capsys, *asked, "--json", "/dev/full")
    assert status == 4
    assert "--json /dev/full cannot be written" in error
    assert error.endswith(" [disk]\n")

    def fail(*args, **options):
        raise MemoryError("3 GB")

    monkeypatch.setattr(gate, "estimate_log", fail)
    status, _, error = run(capsys, *asked)
    assert status == 4
    assert error.endswith(" [memory]\n")


def test_a_log_that_may_not_be_read_is_status_4(shop, capsys, monkeypatch):
    """Root may read everything, so by errno."""

    def refuse(*args, **options):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    for module, name, stub in ((os, "access", lambda path, mode: False), (pa, "input_stream", refuse)):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, stub)
            status, _, error = run(capsys, "estimate", shop, "--target", "new")
        assert status == 4
        assert f"{shop} cannot be read: " in error
        assert error.endswith(" [permission]\n")


def changed(shop, path, change):
    """A log with something wrong."""
    frame = pd.read_csv(shop)[:1000]
    frame["click"] = frame.click.astype(object)
    change(frame).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    ("more", "change", "code"),
    [
        (["--reward-column", "clack"], None, "no_such_column"),
        (["--by", "land"], None, "no_such_column"),
        (["--min-rows", "1001"], None, "too_few_rows"),
        ([], lambda f: f[:1], "too_few_rows"),
        ([], lambda f: f[:0], "empty"),
        ([], lambda f: f.rename(columns={"click": "x"}), "unclear_column"),
        ([], lambda f: f.assign(click=f.click.where(f.index > 3)), "missing_values"),
        ([], lambda f: f.assign(click=f.click.where(f.index > 3, "perhaps")), "invalid_values"),
        (["--drop-invalid"], lambda f: f.assign(click=f.click.where(f.index > 99, "perhaps")), "invalid_values"),
    ],
)
def test_failures_have_codes(shop, tmp_path, capsys, more, change, code):
    path = changed(shop, tmp_path / "log.csv", change or (lambda frame: frame))
    error = fails(capsys, "estimate", path, "--target", "new", *more, "--json", tmp_path / "a.json")
    assert error.endswith(f" [{code}]")
    assert not (tmp_path / "a.json").exists()


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("empty.csv", "", "empty"),
        ("log.xlsx", "PK", "not_a_table"),
        ("ragged.csv", "click,propensity,new\n1,0.5,0.5\n0,0.5\n", "not_a_table"),
        ("none.csv", None, "no_such_file"),
    ],
)
def test_failures_of_whole_files_have_codes(tmp_path, capsys, name, content, code):
    if content is not None:
        (tmp_path / name).write_text(content)
    assert fails(capsys, "estimate", tmp_path / name, "--target", "new").endswith(f" [{code}]")


def test_no_target_has_a_code(shop, capsys):
    assert fails(capsys, "estimate", shop).endswith(" [no_target]")


def test_a_last_line_without_an_end_is_a_remark(shop, tmp_path, capsys):
    path = tmp_path / "log.csv"
    asked = ("estimate", path, "--target", "new")
    text = shop.read_bytes()
    for content, cut in ((text, False), (text.removesuffix(b"\n"), True), (text.replace(b"\n", b"\r\n"), False)):
        path.write_bytes(content)
        remark = "log.csv: the last line has no end, so the file may be cut there"
        assert (remark in done(capsys, *asked)) is cut
    path.write_bytes(text[: text.rindex(b",")])
    assert "fields (row 20000: 6); its last line has no end" in run(capsys, *asked)[2]
    path.write_bytes(text.decode().encode("utf-16"))
    assert "may be cut" not in run(capsys, *asked)[1]


def test_programs_hear_which_statement_the_log_contradicts(shop, tmp_path):
    """Propensities twice as large as they are (epsilon not divided): half of the mass seems to be missing."""
    wrong = tmp_path / "log.csv"
    pd.read_csv(shop).assign(propensity=1.0).to_csv(wrong, index=False)
    stated = estimate_file(wrong, "new", **IN_PYTHON, propensity_min=FLOOR)
    assert ("support_denied", True) in [(cause["code"], cause["contradicted"]) for cause in stated.causes]
    unstated = estimate_file(wrong, "new", **IN_PYTHON)
    assert ("support_missing", False) in [(cause["code"], cause["contradicted"]) for cause in unstated.causes]


def test_a_time_column_that_is_named_is_checked(shop, tmp_path, capsys):
    frame = pd.read_csv(shop).assign(ts="2026-11-25 10:00:00")
    frame.loc[7, "ts"] = "2026-13-45"
    dated = tmp_path / "log.csv"
    frame.to_csv(dated, index=False)
    asked = ("estimate", dated, "--target", "new", "--baseline", "today", *STATED)
    done(capsys, *asked)  # nobody asked for times
    assert "column 'ts' is not a date in row 8" in fails(capsys, *asked, "--time-column", "ts")


@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ("0", "no exploration bounds nothing: leave it out"),
        ("1.5", "a probability is in (0, 1]"),
        ("-0.1", "a probability is in (0, 1]"),
    ],
)
def test_a_bound_that_is_no_probability_is_refused_by_its_option(shop, capsys, bound, message):
    error = fails(capsys, "estimate", shop, "--target", "new", "--propensity-min", bound)
    assert error == f"error: --propensity-min {bound}: {message}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "said"), [("SIGTERM", 143, "ended by SIGTERM"), ("SIGINT", 130, "interrupted")]
)
def test_a_signal_ends_it_in_one_line_and_leaves_nothing(shop, tmp_path, number, status, said):
    """SIGTERM is what schedulers send; the folder, its lock and the copy of standard input go."""
    (tmp_path / "own.py").write_text(
        "import pathlib, time\n\ndef slow(rows):\n    pathlib.Path('begun').touch()\n"
        "    for _ in range(600):\n        time.sleep(0.1)\n"
    )
    (tmp_path / "tmp").mkdir()
    words = ["-m", "recsim_mnar", "estimate", "-", "--target", "new", "--estimators", "own:slow", "--out", "page"]
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it, and its children
    try:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        process.stdin.write(shop.read_text())
        process.stdin.close()
        while process.poll() is None and not (tmp_path / "begun").exists():
            time.sleep(0.01)
        assert (tmp_path / "page" / ".lock").exists()
        process.send_signal(getattr(signal, number))
        err = process.stderr.read()
    assert (process.returncode, err.strip()) == (status, said)
    assert not (tmp_path / "page").exists()
    assert list((tmp_path / "tmp").iterdir()) == []


def test_sigterm_while_modules_are_read_is_one_line(tmp_path):
    (tmp_path / "gymnasium.py").write_text("import os, time\nos.kill(os.getpid(), 15)\ntime.sleep(9)")
    process = command("worlds", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (process.returncode, process.stderr) == (143, b"ended by SIGTERM\n")


# ------------------------------------------------------------------------------------------------- what is written when


def command(*arguments, **more):
    words = [sys.executable, "-m", "recsim_mnar", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, check=False, **more)


@pytest.mark.slow
def test_files_are_there_before_a_line_is_printed(shop, tmp_path):
    """The reader has gone: status 141, and both are written."""
    words = f"{sys.executable} -m recsim_mnar estimate {shop} --target new --json a.json --out page"
    process = subprocess.run(["bash", "-o", "pipefail", "-c", f"{words} | true"], cwd=tmp_path, check=False)
    assert process.returncode == 141
    assert read_json(tmp_path / "a.json")
    assert describe_foreign_file(tmp_path / "page", ("report.html", "results.json")) == ""


def test_a_second_run_may_replace_its_own_folder(shop, capsys, tmp_path):
    out = tmp_path / "page"
    asked = ("estimate", shop, "--target", "new", "--out", out)
    done(capsys, *asked)
    first = (out / "results.json").read_bytes()
    assert "or replace the results with --overwrite" in fails(capsys, *asked)
    done(capsys, *asked, *STATED, "--overwrite")
    second = (out / "results.json").read_bytes()
    assert second != first
    assert describe_foreign_file(out, ("report.html", "results.json")) == ""
    fails(capsys, "estimate", shop, "--target", "nope", "--out", out, "--overwrite")
    assert (out / "results.json").read_bytes() == second  # a run that fails takes nothing away


def test_files_of_somebody_else_are_not_replaced(shop, capsys, tmp_path):
    out = tmp_path / "page"
    asked = ("estimate", shop, "--target", "new", "--out", out)
    done(capsys, *asked)
    (out / "mine.txt").write_text("mine")
    assert "mine.txt was not written by this command" in fails(capsys, *asked, "--overwrite")
    (out / "mine.txt").unlink()
    (out / "report.html").write_text("changed")
    assert "report.html was changed after it was written" in fails(capsys, *asked, "--overwrite")
    assert (out / "report.html").read_text() == "changed"


@pytest.mark.slow
def test_standard_input_is_read(shop, tmp_path):
    asked = ("--target", "new", "--json", "a.json", "--out", "page")
    process = command("estimate", "-", *asked, input=shop.read_bytes(), cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert b"standard input: 20,000 rows" in process.stdout
    (read,) = read_json(tmp_path / "a.json")[0]["input"]
    assert read["path"] == "standard input"
    assert read["sha256"] == hashlib.sha256(shop.read_bytes()).hexdigest()
    assert "recsim-mnar-" not in (tmp_path / "page" / "results.json").read_text()
    process = command("estimate", "/dev/stdin", "--target", "nope", input=shop.read_bytes())
    assert process.returncode == 2
    assert process.stderr.startswith(b"error: standard input has no column 'nope'")
    assert command("estimate", "-", "--target", "new", input=b"").returncode == 2


# ---------------------------------------------------------------------------------------------------------- from Python


def test_python_says_what_the_command_writes(shop, capsys, tmp_path):
    answer = estimate_file(shop, "worse", **IN_PYTHON, propensity_min=FLOOR)
    path = tmp_path / "a.json"
    status, _, error = run(capsys, "estimate", shop, "--target", "worse", *BETTER, "--json", path, *STATED)
    assert status == 3
    assert read_json(path) == json.loads(json.dumps(answer.to_json()))
    assert (answer.met, answer.answer) == (False, "worse")
    assert "\n".join(answer.reasons) == error.strip()
    assert estimate_file(shop, ["new"]).met is None
    assert estimate_file(shop, ["new"], **IN_PYTHON, propensity_min=FLOOR).met is True


@pytest.mark.parametrize(
    ("baseline", "policy", "role"),
    [("today", "propensity", "today"), ("propensity", "propensity", "today"), ("same", "same", "baseline")],
)
def test_records_have_roles_whatever_the_baseline_is_called(by_device, baseline, policy, role):
    records = estimate_file(by_device, ["new", "worse"], baseline=baseline, by="device").to_json()
    roles = {"new": "target", "worse": "target", policy: role}
    for record in records:
        assert record["role"] == ("difference" if "baseline" in record else roles[record["policy"]])
    assert {record["role"] for record in records if "by" in record} == {"target", "difference", role}


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"propensity_mim": 0.1}, "no argument 'propensity_mim': did you mean 'propensity_min'?"),
        ({"columns": {"rewrd": "click"}}, "no role 'rewrd': did you mean 'reward'?"),
        ({"require": "trusted"}, "no requirement 'trusted': did you mean 'trust'?"),
    ],
)
def test_a_wrong_name_is_said_with_the_nearest(shop, more, message):
    with pytest.raises(UserError, match=re.escape(message)):
        estimate_file(shop, "new", **more)


def test_a_folder_is_known_by_the_digests_of_its_files(shop, tmp_path):
    """The digest is the one that `sha256sum * | sha256sum` prints."""
    (tmp_path / "parts").mkdir()
    head, *rows = shop.read_bytes().splitlines(keepends=True)
    parts = {"b.csv": head + b"".join(rows[:9000]), "a.csv": head + b"".join(rows[9000:])}
    for name, content in parts.items():
        (tmp_path / "parts" / name).write_bytes(content)
    listed = "".join(f"{hashlib.sha256(parts[name]).hexdigest()}  {name}\n" for name in sorted(parts))
    (read,) = estimate_file(tmp_path / "parts", "new").to_json()[0]["input"]
    assert read["sha256"] == hashlib.sha256(listed.encode()).hexdigest()
    assert read["bytes"] == sum(map(len, parts.values()))


# ------------------------------------------------------------------------------------------------------ docs/json.md


def described(heading: str) -> set[str]:
    """The keys in the first column of the table below a heading of docs/json.md."""
    page = Path("docs/json.md").read_text()
    section = re.split(r"\n#+ ", page.partition(f" {heading}\n")[2])[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    return {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}


def keys(*things: dict) -> set[str]:
    return {key for thing in things for key in thing}


def test_json_md_describes_every_key_and_no_other(shop, by_device, tmp_path, capsys):
    log = tmp_path / "log.csv"
    out = tmp_path / "page"
    pd.read_csv(by_device).assign(price=1.0).to_csv(log, index=False)
    asked = ("estimate", log, "--target", "new,worse", *BETTER, *STATED, "--by", "device", "--refute")
    asked += ("--reward-min", 0, "--reward-limit-column", "price", "--out", out)
    run(capsys, *asked, "--json", tmp_path / "a.json")
    records = read_json(tmp_path / "a.json")
    first = records[0]
    assert keys(*records) == described("An estimate")
    assert keys(first["sentence"]) == described("The sentence")
    (best,) = [record["best_of"] for record in records if "best_of" in record]
    assert keys(best) == described("The best of several")
    findings = [finding for record in records for finding in record["findings"] + record.get("refuters", [])]
    assert keys(*findings) == described("A finding")
    of_other_logs = {"propensity_min_taken", "value_identified", "identified_low", "identified_high"}
    assert described("Diagnostics") - of_other_logs <= keys(*(record["diagnostics"] for record in records))

    cut = tmp_path / "cut.csv"
    cut.write_bytes(shop.read_bytes().removesuffix(b"\n"))
    inputs = [*first["input"], *estimate_file(cut, "new").to_json()[0]["input"]]
    assert keys(*inputs) == described("The input")
    assert [file.get("last_line_ends", True) for file in inputs] == [True, False]

    results = read_json(out / "results.json")
    segmented = estimate_file(log, "worse", **IN_PYTHON, propensity_min=FLOOR, by="device")
    assert keys(*results["reasons"], *segmented.causes) == described("A reason")
    besides = {"schema", "sentence", "input", "refused", "required", "met", "reasons", "records"}
    assert keys(results) == described("results.json of estimate") | besides
    page = Path("docs/json.md").read_text()
    assert all(f"`{key}`" in page for key in keys(results["read"], *results["weights"]))
    assert results["input"] == first["input"]
    besides.remove("records")
    plain = [{key: value for key, value in record.items() if key not in besides} for record in records]
    assert plain == results["records"]


SCHEMA = read_json(Path("docs/estimate.schema.json"))
ASKED = {
    "a value": [],
    "a difference": ["--baseline", "today", "--estimators", "ips,snips", *STATED],
    "the best of two": ["--target", "new,worse", "--baseline", "today", "--require", "better", *STATED],
    "segments": ["--baseline", "same", "--by", "device", "--refute", "--require", "trust"],
    "a refused column": ["--by", "item", "--require", "trust"],
    "estimated propensities": ["--propensity-column", "none"],
    "no support": ["--target", "never"],
    "no range": ["--reward-column", "spent", "--baseline", "today"],
}


@pytest.mark.parametrize("options", ASKED.values(), ids=list(ASKED))
def test_records_keep_the_schema(by_device, save, tmp_path, capsys, options):
    frame = pd.read_csv(by_device)[:6000]
    row = np.arange(6000)
    frame.loc[row % 7 == 0, "device"] = ""
    frame["spent"] = frame.click * 7.5
    frame["never"] = np.where(row == 0, 1e-3, 0.0)
    path = save(frame)
    target = () if "--target" in options else ("--target", "new")
    status, _, _ = run(capsys, "estimate", path, *target, *options, "--json", tmp_path / "a.json")
    assert status in (0, 3)
    assert breaches(read_json(tmp_path / "a.json"), SCHEMA, SCHEMA) == []

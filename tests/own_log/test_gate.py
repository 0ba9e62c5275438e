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
import pytest

from recsim_mnar import MachineError, UserError, estimate_file
from recsim_mnar.cli.options import checked_file, writing
from recsim_mnar.errors import is_of_the_machine
from recsim_mnar.runs.folder import describe_foreign_file
from twins.commands import run
from twins.json_schema import breaches

N, FLOOR = 20_000, 0.1
STATED = ("--propensity-min", FLOOR)


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


def test_trusted_is_not_better(shop, capsys):
    asked = ("estimate", shop, "--target", "worse", "--baseline", "today", *STATED)
    status, out, err = run(capsys, *asked, "--require", "trust")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "--require trust is met. Trusted does not mean better: --require better"
    status, _, err = run(capsys, *asked, "--require", "better")
    assert status == 3
    said = r"worse - the random traffic, snips: the 95 % interval of the difference, .* points, is not above 0"
    assert re.fullmatch(f"--require better: {said}\n", err)
    better = ("estimate", shop, "--target", "new", "--baseline", "today", *STATED, "--require", "better")
    status, out, err = run(capsys, *better)
    assert (status, err) == (0, "")
    assert "does not mean" not in out


def test_the_causes_tell_not_trusted_from_not_better(shop, capsys, tmp_path):
    """Both are status 3; programs read the codes."""

    def causes(target, *stated):
        path = tmp_path / "a.json"
        asked = ("--target", target, "--baseline", "today", "--require", "better", "--json", path)
        status, _, err = run(capsys, "estimate", shop, *asked, *stated)
        first, *others = json.loads(path.read_text())
        assert not any("reasons" in each for each in others)
        assert (status, first["met"]) == ((3, False) if first["reasons"] else (0, True))
        assert all(each["message"] in err for each in first["reasons"])
        return first["reasons"]

    assert causes("new", *STATED) == []
    (worse,) = causes("worse", *STATED)
    assert worse.pop("message").endswith("is not above 0")
    assert worse == {"policy": "worse - propensity", "estimator": "snips", "code": "not_above_0", "contradicted": False}
    denied = causes("new", "--propensity-min", "0.9")
    assert [each["code"] for each in denied if each["contradicted"]] == ["bound_denied"]
    assert causes("new") == []


def test_the_causes_of_a_segment_name_it(shop, tmp_path):
    log = tmp_path / "log.csv"
    pd.read_csv(shop).assign(device=lambda rows: np.where(rows.user_id % 2, "phone", "desk")).to_csv(log, index=False)
    found = estimate_file(log, "worse", baseline="today", require="better", propensity_min=FLOOR, by="device")
    assert [(each.get("by"), each.get("segment")) for each in found.causes] == [
        (None, None), ("device", "desk"), ("device", "phone")
    ]  # fmt: skip
    assert copy.deepcopy(found).causes == found.causes


def test_every_target_must_be_better(shop, capsys):
    asked = ("estimate", shop, "--target", "new,worse,same", "--baseline", "today", *STATED, "--require", "better")
    status, _, err = run(capsys, *asked)
    assert status == 3
    assert [line.split(",")[0] for line in err.splitlines()] == [
        f"--require better: {name} - the random traffic" for name in ("worse", "same")
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ((), "--require better needs --baseline: better than what?"),
        (("--baseline", "today", "--estimators", "dm", "--q-target", "same"), "no difference from the baseline"),
    ],
)
def test_better_needs_a_difference(shop, capsys, more, said):
    status, _, err = run(capsys, "estimate", shop, "--target", "new", "--require", "better", *more)
    assert status == 2
    assert said in err


def test_todays_own_policy_is_no_news(shop, capsys):
    _, _, err = run(capsys, "estimate", shop, "--target", "propensity", *STATED, "--require", "trust")
    assert "is the policy that logged, so this says nothing of a new one" in err


def test_a_lost_propensity_column_is_a_mistake(shop, capsys, tmp_path):
    log = tmp_path / "lost.csv"
    pd.read_csv(shop).drop(columns="propensity").assign(segment=1).to_csv(log, index=False)
    asked = ("estimate", log, "--target", "new", "--require", "caution")
    status, _, err = run(capsys, *asked)
    assert status == 2
    assert "no column is recognised as the propensity" in err
    assert "omit --require" in err
    assert run(capsys, *asked, "--context-columns", "segment")[0] in (0, 3)  # asked for
    assert run(capsys, *asked[:4])[0] == 0


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
    from recsim_mnar.own_log import gate

    status, _, err = run(capsys, "estimate", shop, "--target", "new", "--json", "/dev/full")
    assert (status, err) == (
        4,
        "error: --json /dev/full cannot be written: No space left on device; name another file [disk]\n",
    )

    def fail(*args, **more):
        raise MemoryError("3 GB")

    monkeypatch.setattr(gate, "estimate_log", fail)
    status, _, err = run(capsys, "estimate", shop, "--target", "new")
    assert status == 4
    assert err.startswith("error: not enough memory: free some and try again")
    assert err.endswith(" [memory]\n")


def test_a_log_that_may_not_be_read_is_status_4(shop, capsys, monkeypatch):
    """Root may read everything, so by errno."""
    import pyarrow as pa

    asked = ("estimate", shop, "--target", "new")

    def refuse(*args, **more):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: False)
        status, _, err = run(capsys, *asked)
    assert (status, err) == (
        4,
        f"error: LOG {shop} cannot be read: Permission denied; name another file [permission]\n",
    )
    monkeypatch.setattr(pa, "input_stream", refuse)
    status, _, err = run(capsys, *asked)
    assert status == 4
    assert err.startswith(f"error: {shop} cannot be read: ")
    assert err.endswith(" [permission]\n")


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
    status, _, err = run(capsys, "estimate", path, "--target", "new", *more, "--json", tmp_path / "a.json")
    assert status == 2
    assert re.fullmatch(rf"error: .* \[{code}\]\n", err)
    assert not (tmp_path / "a.json").exists()


def test_failures_of_whole_files_have_codes(shop, tmp_path, capsys):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "log.xlsx").write_text("PK")
    (tmp_path / "ragged.csv").write_text("click,propensity,new\n1,0.5,0.5\n0,0.5\n")
    found = {}
    for name in ("empty.csv", "log.xlsx", "ragged.csv", "none.csv"):
        status, _, err = run(capsys, "estimate", tmp_path / name, "--target", "new")
        assert status == 2
        found[name] = err.rpartition(" ")[2].strip()
    wanted = {"empty.csv": "empty", "log.xlsx": "not_a_table", "ragged.csv": "not_a_table", "none.csv": "no_such_file"}
    assert found == {name: f"[{code}]" for name, code in wanted.items()}
    assert run(capsys, "estimate", shop)[2].endswith(" [no_target]\n")
    with pytest.raises(UserError) as caught:
        estimate_file(shop, "new", min_rows=N + 1)
    assert (caught.value.code, str(caught.value).endswith("fewer than min_rows=20,001: is the log whole?")) == (
        "too_few_rows", True,
    )  # fmt: skip
    assert estimate_file(shop, "new", min_rows=N).records[0]["n"] == N


def test_a_last_line_without_an_end_is_a_remark(shop, tmp_path, capsys):
    path = tmp_path / "log.csv"
    text = shop.read_bytes()
    for content, cut in ((text, False), (text.removesuffix(b"\n"), True), (text.replace(b"\n", b"\r\n"), False)):
        path.write_bytes(content)
        out = run(capsys, "estimate", path, "--target", "new")[1]
        assert ("log.csv: the last line has no end, so the file may be cut there" in out) is cut
    path.write_bytes(text[: text.rindex(b",")])
    assert "fields (row 20000: 6); its last line has no end" in run(capsys, "estimate", path, "--target", "new")[2]
    path.write_bytes(text.decode().encode("utf-16"))
    assert "may be cut" not in run(capsys, "estimate", path, "--target", "new")[1]


def test_what_contradicts_the_statement_says_so_to_programs(shop, tmp_path, capsys):
    """Propensities twice as large as they are (epsilon not divided): half of the mass seems to be missing."""
    frame = pd.read_csv(shop).assign(propensity=1.0)
    wrong = tmp_path / "log.csv"
    frame.to_csv(wrong, index=False)
    found = estimate_file(wrong, "new", baseline="today", require="better", **{"propensity_min": FLOOR})
    causes = {cause["code"]: cause["contradicted"] for cause in found.causes}
    assert causes["support_denied"] is True
    unstated = estimate_file(wrong, "new", baseline="today", require="better")
    assert {c["code"]: c["contradicted"] for c in unstated.causes}["support_missing"] is False


def test_a_time_column_that_is_named_is_checked(shop, tmp_path, capsys):
    frame = pd.read_csv(shop).assign(ts="2026-11-25 10:00:00")
    frame.loc[7, "ts"] = "2026-13-45"
    dated = tmp_path / "log.csv"
    frame.to_csv(dated, index=False)
    asked = ("estimate", dated, "--target", "new", "--baseline", "today", *STATED)
    assert run(capsys, *asked)[0] == 0  # nobody asked for it
    status, _, err = run(capsys, *asked, "--time-column", "ts")
    assert status == 2
    assert "column 'ts' is not a date in row 8" in err


@pytest.mark.parametrize(
    ("given", "said"),
    [("0", "no exploration bounds nothing: leave it out"), ("0%", "no exploration bounds nothing: leave it out"),
     ("1.5", "a probability is in (0, 1]"), ("-0.1", "a probability is in (0, 1]")],
)  # fmt: skip
def test_no_exploration_is_said_by_the_name_of_the_option(shop, capsys, given, said):
    status, _, err = run(capsys, "estimate", shop, "--target", "new", "--propensity-min", given)
    assert (status, err) == (2, f"error: --propensity-min {given}: {said}\n")


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
    done = command("worlds", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (143, b"ended by SIGTERM\n")


# ------------------------------------------------------------------------------------------------- what is written when


def command(*arguments, **more):
    words = [sys.executable, "-m", "recsim_mnar", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, check=False, **more)


@pytest.mark.slow
def test_files_are_there_before_a_line_is_printed(shop, tmp_path):
    """The reader has gone: status 141, and both are written."""
    words = f"{sys.executable} -m recsim_mnar estimate {shop} --target new --json a.json --out page"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", f"{words} | true"], cwd=tmp_path, check=False)
    assert done.returncode == 141
    assert json.loads((tmp_path / "a.json").read_text())
    assert describe_foreign_file(tmp_path / "page", ("report.html", "results.json")) == ""


def test_a_second_run_may_replace_its_own_folder(shop, capsys, tmp_path):
    out = tmp_path / "page"
    asked = ("estimate", shop, "--target", "new", "--out", out)
    assert run(capsys, *asked)[0] == 0
    before = (out / "results.json").read_bytes()
    status, _, err = run(capsys, *asked)
    assert status == 2
    assert "or replace the results with --overwrite" in err
    assert run(capsys, *asked, *STATED, "--overwrite")[0] == 0
    assert (out / "results.json").read_bytes() != before
    assert describe_foreign_file(out, ("report.html", "results.json")) == ""

    before = (out / "results.json").read_bytes()
    assert run(capsys, "estimate", shop, "--target", "nope", "--out", out, "--overwrite")[0] == 2
    assert (out / "results.json").read_bytes() == before  # a run that fails takes nothing away

    moved = "move it away, or name another folder"
    (out / "mine.txt").write_text("mine")
    status, _, err = run(capsys, *asked, "--overwrite")
    assert (status, err) == (2, f"error: --out {out}: mine.txt was not written by this command: {moved}\n")
    (out / "mine.txt").unlink()
    (out / "report.html").write_text("changed")
    status, _, err = run(capsys, *asked, "--overwrite")
    assert (status, err) == (2, f"error: --out {out}: report.html was changed after it was written: {moved}\n")
    assert (out / "report.html").read_text() == "changed"
    assert run(capsys, *asked[:4], "--overwrite")[0] == 2  # of nothing


@pytest.mark.slow
def test_standard_input_is_read(shop, tmp_path):
    asked = ("--target", "new", "--json", "a.json", "--out", "page")
    done = command("estimate", "-", *asked, input=shop.read_bytes(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"standard input: 20,000 rows" in done.stdout
    (read,) = json.loads((tmp_path / "a.json").read_text())[0]["input"]
    assert read["path"] == "standard input"
    assert read["sha256"] == hashlib.sha256(shop.read_bytes()).hexdigest()
    assert "recsim-mnar-" not in (tmp_path / "page" / "results.json").read_text()
    done = command("estimate", "/dev/stdin", "--target", "nope", input=shop.read_bytes())
    assert done.returncode == 2
    assert done.stderr.startswith(b"error: standard input has no column 'nope'")
    assert command("estimate", "-", "--target", "new", input=b"").returncode == 2


# ---------------------------------------------------------------------------------------------------------- from Python


def test_python_says_what_the_command_writes(shop, capsys, tmp_path):
    found = estimate_file(shop, "worse", baseline="today", require="better", propensity_min=FLOOR)
    path = tmp_path / "a.json"
    asked = ("--target", "worse", "--baseline", "today", "--require", "better", "--json", path)
    status, _, err = run(capsys, "estimate", shop, *asked, *STATED)
    assert status == 3
    assert json.loads(path.read_text()) == json.loads(json.dumps(found.to_json()))
    assert (found.met, found.answer) == (False, "worse")
    assert "\n".join(found.reasons) == err.strip()
    assert estimate_file(shop, ["new"]).met is None
    assert estimate_file(shop, ["new"], baseline="today", require="better", propensity_min=FLOOR).met is True


@pytest.mark.parametrize(
    ("baseline", "policy", "role"),
    [("today", "propensity", "today"), ("propensity", "propensity", "today"), ("same", "same", "baseline")],
)
def test_a_row_is_found_by_its_role(shop, tmp_path, baseline, policy, role):
    """Whatever today's column is called; in segments too."""
    log = tmp_path / "log.csv"
    frame = pd.read_csv(shop)
    frame.assign(device=np.where(frame.user_id % 2, "phone", "desk")).to_csv(log, index=False)
    records = estimate_file(log, ["new", "worse"], baseline=baseline, by="device").to_json()
    wanted = {"new": "target", "worse": "target", policy: role}
    for record in records:
        assert record["role"] == ("difference" if "baseline" in record else wanted[record["policy"]])
    assert {record["role"] for record in records if "by" in record} == {"target", "difference", role}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"propensity_mim": 0.1}, "no argument 'propensity_mim': did you mean 'propensity_min'?"),
        ({"columns": {"rewrd": "click"}}, "no role 'rewrd': did you mean 'reward'?"),
        ({"require": "trusted"}, "no requirement 'trusted': did you mean 'trust'?"),
    ],
)
def test_a_wrong_name_is_said_with_the_nearest(shop, more, said):
    with pytest.raises(UserError, match=re.escape(said)):
        estimate_file(shop, "new", **more)


def test_a_folder_is_known_by_the_digests_of_its_files(shop, tmp_path):
    """As `sha256sum * | sha256sum` prints it."""
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


def test_json_md_describes_every_key_and_no_other(shop, tmp_path, capsys):
    log, out = tmp_path / "log.csv", tmp_path / "page"
    frame = pd.read_csv(shop)
    half = np.where(frame.item == 1, 0.0, 1.0)
    frame.assign(device=np.where(frame.user_id % 2, "phone", "desk"), price=1.0, half=half).to_csv(log, index=False)
    asked = ("estimate", log, "--target", "new,worse", "--baseline", "today", "--by", "device", "--refute")
    asked += (*STATED, "--require", "better", "--reward-min", 0, "--reward-limit-column", "price", "--out", out)
    run(capsys, *asked, "--json", tmp_path / "a.json")
    records = json.loads((tmp_path / "a.json").read_text())
    results = json.loads((out / "results.json").read_text())
    assert keys(*records) == described("An estimate")
    assert keys(records[0]["sentence"]) == described("The sentence")
    cut = tmp_path / "cut.csv"
    cut.write_bytes(shop.read_bytes().removesuffix(b"\n"))
    read = [*records[0]["input"], *estimate_file(cut, "new").to_json()[0]["input"]]
    assert keys(*read) == described("The input")
    assert [each.get("last_line_ends", True) for each in read] == [True, False]
    assert keys(*(found for r in records for found in r["findings"] + r.get("refuters", []))) == described("A finding")
    (best,) = [record["best_of"] for record in records if "best_of" in record]
    assert keys(best) == described("The best of several")
    more = {"propensity_min_taken", "value_identified", "identified_low", "identified_high"}  # of other logs
    assert described("Diagnostics") - more <= keys(*(record["diagnostics"] for record in records))
    segmented = estimate_file(log, "worse", baseline="today", require="better", propensity_min=FLOOR, by="device")
    assert keys(*results["reasons"], *segmented.causes) == described("A reason")
    besides = {"schema", "sentence", "input", "refused", "required", "met", "reasons", "records"}
    assert keys(results) == described("results.json of estimate") | besides
    page = Path("docs/json.md").read_text()
    assert all(f"`{key}`" in page for key in keys(results["read"], *results["weights"]))
    assert results["input"] == records[0]["input"]
    plain = [{key: r[key] for key in r if key not in besides - {"records"}} for r in records]
    assert plain == results["records"]


SCHEMA = json.loads(Path("docs/estimate.schema.json").read_text())
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


@pytest.mark.parametrize("name", ASKED)
def test_what_is_written_keeps_the_schema(shop, tmp_path, capsys, name):
    frame = pd.read_csv(shop)[:6000]
    frame["device"] = np.where(np.arange(6000) % 7 == 0, "", np.where(frame.user_id % 2, "phone", "desk"))
    frame["spent"], frame["never"] = frame.click * 7.5, np.where(np.arange(6000) == 0, 1e-3, 0.0)
    frame.to_csv(tmp_path / "log.csv", index=False)
    target = [] if "--target" in ASKED[name] else ["--target", "new"]
    status = run(capsys, "estimate", tmp_path / "log.csv", *target, *ASKED[name], "--json", tmp_path / "a.json")[0]
    assert status in (0, 3)
    assert breaches(json.loads((tmp_path / "a.json").read_text()), SCHEMA, SCHEMA) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r[0].pop("sentence"), "breaks required"),
        (lambda r: r[1].update(role="mine"), "breaks enum"),
        (lambda r: r[1].update(n=1.5), "breaks type integer"),
        (lambda r: r[1].update(today=1), "breaks type boolean"),
        (lambda r: r[1].update(more=1), "'more' is not described"),
        (lambda r: r[0]["sentence"].update(more=1), "'more' is not described"),
        (lambda r: r[0]["findings"][0].update(level="fine"), "breaks enum"),
        (lambda r: r.clear(), "breaks minItems"),
    ],
)
def test_the_schema_finds_what_is_otherwise(shop, change, said):
    records = json.loads(json.dumps(estimate_file(shop, "new", baseline="today").to_json()))
    assert breaches(records, SCHEMA, SCHEMA) == []
    change(records)
    (found,) = breaches(records, SCHEMA, SCHEMA)
    assert said in found


def test_the_page_of_the_gate_has_a_script_of_whole_columns():
    """Its bash block names every role, and the statuses that the command has."""
    page = Path("docs/gate.md").read_text()
    script = re.search(r"^```bash\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL).group(1)
    assert "set -euo pipefail" in script
    for role in ("reward", "propensity", "user", "action", "time"):
        assert f"--{role}-column" in script
    statuses = re.findall(r"^\| (\d+) \|", page, flags=re.MULTILINE)
    assert statuses == ["0", "1", "2", "3", "4", "129", "130", "141", "143"]

"""What the outside of the package is: digests that no change may move unless the changelog says so.

    python benchmarks/reproducibility/goldens.py make              # writes goldens.json
    python benchmarks/reproducibility/goldens.py compare           # prints what differs, a line each; then status 1
    python benchmarks/reproducibility/goldens.py compare --quick   # a slice, in seconds

Groups of keys (``--only GROUP``): ``logs``, of every agent in every world by every interface (``same_bytes.py``);
``faces``, one small run of everything (``faces.py``); ``files``, what the commands write, as it is read back;
``estimates``, the bits of estimates on files of many kinds; ``wrong``, status and line for files that are no data;
``help``, ``json``, ``classes``: the options of commands, the keys of JSON, and the class names that stored agents hold.

Logs are digested by their decoded content, never by the bytes of a file. Sums of matrices round otherwise with other
numbers of threads and on other processors, so BLAS is held to one thread and one kind of processor here.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from typing import Any

from interfaces import digest

os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
os.environ |= {"OPENBLAS_CORETYPE": "Haswell", "COLUMNS": "100"}  # before NumPy is imported

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import golden_files
import package as p
from same_bytes import PARAMETERS, alike, digests_of, made_with, settings_of

FILE = Path(__file__).with_name("goldens.json")
USERS, ITEMS = 8, 90
SLICE = {"sessions": 4, "ratings": 2, "campaigns": 3, "purchases": 3}
"""Agents of each world in a quick run."""
SHORT = {
    "answers of the fitted policy": "answers",
    "answers of a fit on a skewed log": "skewed",
    "value on another log": "value",
    "catalogue.npz": "catalogue",
    "outcomes.npz": "outcomes",
    "truth.parquet": "truth-file",
    "log of drawn lists": "drawn",
    "log of a feedback loop": "loop",
    "rounds with leave-one-out": "rounds-loo",
    "fit on the house's log": "house-fit",
}
"""Groups of interfaces, as goldens write them."""
ONLINE = ("epsilon-greedy", "ucb1", "lin-epsilon-greedy", "lin-ucb", "lin-thompson", "logistic-thompson")
"""Agents that learn from all users."""


def logs(quick: bool) -> Iterator[tuple[str, str]]:
    """A digest of every group of interfaces, which must be alike; of every agent in every world."""
    with ThreadPoolExecutor(2) as two:
        p.small_shards(5)
        for world, setting in settings_of(USERS, ITEMS, {"1 worker": None, "2 threads": two}).items():
            for agent in setting.agents[: SLICE.get(world, 0) if quick else None]:
                found = digests_of(setting, agent)
                for group in alike(found):
                    raise SystemExit(f"{world}, {agent}: interfaces differ in {group}; same_bytes.py says which")
                groups = {name.partition(":")[0]: value for name, value in found.items()}
                yield f"{world}/{agent}", " ".join(f"{SHORT.get(g, g)}={v[:6]}" for g, v in groups.items())


def faces(quick: bool) -> Iterator[tuple[str, str]]:
    """Logs of several shards, replay, estimates, a comparison and a study."""
    if quick:
        return
    from faces import QUICK, done

    found = done(None, Path("faces"), QUICK)
    yield from ((name, value[:12]) for name, value in found.items() if not name.startswith("file "))


def files(quick: bool) -> Iterator[tuple[str, str]]:
    """Columns, provenance and values of logs that commands wrote, read back."""
    for name, options in golden_files.LOGS.items():
        if quick and name not in golden_files.QUICK_LOGS:
            continue
        p.command_line("simulate", *options, "--seed", 3, "--out", name)
        yield name, log_digest(p.Log.read(f"{name}/log"))
    setting = settings_of(USERS, ITEMS, {})["sessions"]
    for name in () if quick else ONLINE:
        policy = p.learner(name).fit(p.Log({}), n_items=setting.made.n_items, seed=1)
        yield f"online, {name}", log_digest(p.simulate_online(setting.made, policy, 20, 3).log)
    for name, arguments in golden_files.REPLAYS.items():
        p.command_line("replay", *arguments, "--out", name)
        for path in sorted(Path().glob(f"{Path(name).stem}*{Path(name).suffix}")):
            yield path.name, golden_files.table_digest(path)


def estimates(quick: bool) -> Iterator[tuple[str, str]]:
    """Of each file: the numbers, the texts and the printed lines of ``estimate``, and its status."""
    for number, (name, arguments) in enumerate(golden_files.estimates().items()):
        if quick and number % 4:
            continue
        status, printed, complaint = p.said("estimate", *arguments, "--json", "found.json")
        if status:
            yield name, refusal(status, complaint)
            continue
        found = json.loads(Path("found.json").read_text())
        for record in found:  # what says of which file a record is, is no estimate
            for key in ("input", "schema"):
                record.pop(key, None)
        numbers, texts = golden_files.leaves(found)
        yield name, f"numbers={sha(numbers)} texts={sha(texts)} printed={sha([printed])}"


def wrong(quick: bool) -> Iterator[tuple[str, str]]:
    """What a user reads who brings a file that is no data."""
    for name, arguments in golden_files.wrong().items():
        status, printed, complaint = p.said("estimate", *arguments)
        yield name, refusal(status, complaint + printed)


def refusal(status: int, complaint: str) -> str:
    """How a command ended that did not do its work."""
    return f"{status} {complaint.strip()}"


def helps(quick: bool) -> Iterator[tuple[str, str]]:
    """A digest of the help of each command, and its options in words."""
    for words, options in p.commands():
        yield " ".join(words) or "(none)", f"{sha([p.said(*words, '--help')[1]])} {' '.join(options)}"


def jsons(quick: bool) -> Iterator[tuple[str, str]]:
    """The keys of every JSON that commands write: a digest of all paths, and the names in words."""
    for name, arguments in golden_files.jsons(quick=quick).items():
        status, _, complaint = p.said(*arguments)
        if status:
            yield name, refusal(status, complaint)
    for path in sorted(Path("json").rglob("*.json")):
        digest, names = json_keys(json.loads(path.read_text()))
        # A folder's files hold mostly what --json gives, too.
        yield str(path.relative_to("json")), digest if path.parent.name != "json" else f"{digest} {names}"


def classes(quick: bool) -> Iterator[tuple[str, str]]:
    """The ``module:Class`` that a name is entered with, and that a stored agent holds."""
    yield from p.entered()
    settings = settings_of(USERS, ITEMS, {})
    worlds = [settings[world] for world in ("sessions", "ratings", "purchases")]
    for name in sorted(p.agent_names()):
        stored = golden_files.stored_class(worlds[:1] if quick else worlds, name + PARAMETERS.get(name, ""))
        if stored:
            yield f"stored {name}", stored


GROUPS: dict[str, Callable[[bool], Iterator[tuple[str, str]]]] = {
    "help": helps,
    "classes": classes,
    "wrong": wrong,
    "estimates": estimates,
    "files": files,
    "json": jsons,
    "logs": logs,
    "faces": faces,
}


def everything(groups: list[str], *, quick: bool) -> Found:
    """All goldens of these groups, as ``group: key``."""
    found: Found = {}
    for group in groups:
        # A process of its own: what one group sets or loads is nothing to the next.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
            found |= alone.submit(of_group, group, quick=quick).result()
    return found


def of_group(group: str, *, quick: bool) -> Found:
    """The goldens of one group, made in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="goldens-") as folder, contextlib.chdir(folder):
        found = {f"{group}: {key}": value for key, value in GROUPS[group](quick)}
    print(f"{group}: {len(found)} in {time.process_time():.0f} CPU s", file=sys.stderr, flush=True)
    return found


def differences(before: Found, after: Found, groups: list[str], *, quick: bool) -> Iterator[str]:
    """A line for each key that is not what it was; in a quick run no key is missed."""
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if old == new or key.partition(":")[0] not in groups or (quick and new is None):
            continue
        yield f"{key}: {keys_of(old, new)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "compare"))
    parser.add_argument("--quick", action="store_true", help="compare a slice")
    parser.add_argument("--only", action="append", choices=[*GROUPS], help="this group alone; may be repeated")
    options = parser.parse_args()
    groups = options.only or [*GROUPS]
    if options.what == "make" and (options.quick or options.only):
        parser.error("make writes all goldens: leave --quick and --only away")
    found = everything(groups, quick=options.quick)
    if options.what == "make":
        text = json.dumps({"made_with": made_with(), "goldens": found}, indent=0, sort_keys=True)
        FILE.write_text(text + "\n")
        print(f"{len(found)} goldens in {FILE.name}")
        return
    kept = json.loads(FILE.read_text())
    if kept["made_with"] != made_with():
        print(f"made with {kept['made_with']}, here {made_with()}")
    differ = list(differences(kept["goldens"], found, groups, quick=options.quick))
    print(*differ, f"{len(found)} goldens, {len(differ)} differ", sep="\n")
    sys.exit(1 if differ else 0)


Found = dict[str, str]


def sha(parts: list[str]) -> str:
    """The first 10 digits of a sha256 of texts."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:10]


def log_digest(log: Any) -> str:
    """Values, columns with their types, and the keys of the provenance, of a log that was read."""
    columns = " ".join(f"{name}:{values.dtype}" for name, values in log.columns.items())
    return f"{digest(log.columns)[:10]} {columns} | {' '.join(sorted(log.provenance))}"


def json_keys(value: Any) -> tuple[str, str]:
    """A digest of all paths of keys, and the names of keys."""
    paths = sorted(set(_paths(value, "")))
    names = {part for path in paths for part in path.split("/") if part not in ("", "[]")}
    return sha(paths), " ".join(sorted(names))


def _paths(value: Any, above: str) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield f"{above}/{name}"
            yield from _paths(each, f"{above}/{name}")
    elif isinstance(value, list):
        yield from (path for each in value for path in _paths(each, f"{above}/[]"))


def keys_of(old: str | None, new: str | None) -> str:
    """What differs between two goldens, in words: by their parts where they have any."""
    if old is None or new is None:
        return "new" if old is None else "gone"
    if re.match(r"\d ", old) or re.match(r"[a-z_.]+:", old):
        return f"was {old!r}, is {new!r}"
    before, after = old.split(), new.split()
    gone, come = [w for w in before if w not in after], [w for w in after if w not in before]
    return f"was {' '.join(gone) or '-'}, is {' '.join(come) or '-'}"


if __name__ == "__main__":
    main()

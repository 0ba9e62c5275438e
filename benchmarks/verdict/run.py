"""The verdict, judged on families of logs whose values are known.

    python benchmarks/verdict/run.py truths [--families FILE ...] [--only NAME ...] [--logs 100]
    python benchmarks/verdict/run.py judge [--families FILE ...] [--only NAME ...] [--logs 400] [--workers 1]
        [--until-trusted 100 --most 4000] [--folder runs/verdict]
    python benchmarks/verdict/run.py table [--families FILE ...] [--folder runs/verdict]
    python benchmarks/verdict/run.py uplift [--logs 100]
    python benchmarks/verdict/run.py --quick

A families file defines FAMILIES, a list of interface.Family; the default is families.py. ``truths`` compares exact
values with the mean of w r. ``judge`` estimates a value and a difference from each log in two modes and keeps one row
per log under FOLDER/NAME.MODE.npz, so that more logs continue where it stopped; rows of other rules are made anew.
"plain" states full support and users, "facts" also what a family's facts say. ``table`` writes results.json and
results.md.
``--quick`` runs five families on eight logs each and writes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import analysis
import numpy as np
from analysis import SIGNED
from interface import Family, Log

import recsim_mnar.estimators
from recsim_mnar.errors import UserError
from recsim_mnar.estimators import estimate_value
from recsim_mnar.estimators.off_policy.records import estimate_columns
from recsim_mnar.estimators.off_policy.refuters import item_findings
from recsim_mnar.estimators.off_policy.sentence import sentence_of
from recsim_mnar.estimators.verdict import LEVELS, Finding, Verdict
from recsim_mnar.log.columns import Clusters, LogColumns

HERE = Path(__file__).resolve().parent
MODES, QUANTITIES = analysis.MODES, analysis.QUANTITIES
STEP = 25  # logs that are drawn before they are kept
PAPERS_CLIP = 15.0  # of Jeunen et al. 2019
QUICK = ("p13-bucket-k10", "rare-20k", "drawn-014-lognormal-lognormal", "trained-on-log", "rows-tripled")
Row = dict[str, Any]


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", nargs="?", choices=("truths", "judge", "table", "uplift"))
    parser.add_argument("--families", nargs="+", type=Path, default=[HERE / "families.py"])
    parser.add_argument("--only", nargs="+", help="names of families")
    parser.add_argument("--logs", type=int, help="per family; judge: 400, truths and uplift: 100")
    parser.add_argument("--until-trusted", type=int, default=0, help="honest families: draw on to so many trusted logs")
    parser.add_argument("--most", type=int, default=4000, help="and to no more logs than this")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/verdict"))
    parser.add_argument("--quick", action="store_true")
    a = parser.parse_args(given)
    try:
        if a.quick:
            return quick()
        names = [family.name for family in every_family(tuple(a.families))]
        unknown = sorted(set(a.only or ()) - set(names))
        if unknown:
            raise UserError(f"no family {unknown[0]!r}: --only takes {', '.join(names)}")
        chosen = a.only or names
        if a.part == "truths":
            return truths(a.families, chosen, a.logs or 100)
        if a.part == "judge":
            judge(a.families, chosen, a.folder, a.logs or 400, a.until_trusted, a.most, a.workers)
            return 0
        if a.part == "table":
            return table(a.families, chosen, a.folder)
        if a.part == "uplift":
            return uplift(a.logs or 100)
        parser.error("name a part, or --quick")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
    return 2


def quick() -> int:
    """A slice that runs in seconds and leaves nothing behind."""
    paths = [HERE / "families.py"]
    with tempfile.TemporaryDirectory() as folder:
        truths(paths, QUICK, 8)
        judge(paths, QUICK, Path(folder), 8)
        found = summaries(paths, QUICK, Path(folder))
    print(analysis.text({"judged": found}))
    return 0


# ------------------------------------------------------------------------------------------------------------- families


@lru_cache
def every_family(paths: tuple[Path, ...]) -> list[Family]:
    """The families of all files; a name that an earlier file has is prefixed with the file's own.

    Raises:
        UserError: a file that does not define FAMILIES, or has two families of one name.
    """
    found: dict[str, Family] = {}
    for number, path in enumerate(paths):
        own = _load(path.resolve(), number)
        names = [family.name for family in own]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UserError(f"{path}: two families have the name {twice[0]!r}; rename one")
        renamed = [replace(f, name=f"{path.stem}.{f.name}") if f.name in found else f for f in own]
        found |= {family.name: family for family in renamed}
    return list(found.values())


def _load(path: Path, number: int) -> list[Family]:
    spec = importlib.util.spec_from_file_location(f"families_{number}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UserError(f"{path} is no Python file; name one that defines FAMILIES")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their module
    with _imports_from(path.parent):
        spec.loader.exec_module(module)
    if not hasattr(module, "FAMILIES"):
        raise UserError(f"{path} does not define FAMILIES, a list of interface.Family")
    return list(module.FAMILIES)


@contextmanager
def _imports_from(folder: Path) -> Iterator[None]:
    """Let a families file import modules that stand next to it, even where ours have the same names."""
    ours = {name: module for name, module in sys.modules.items() if (HERE / f"{name}.py").is_file()}
    for name in ours if folder != HERE else ():
        if name != "interface":
            del sys.modules[name]
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        sys.modules.update(ours)


def _chosen(paths: Sequence[Path], names: Sequence[str]) -> list[Family]:
    return [family for family in every_family(tuple(paths)) if family.name in names]


def truths(paths: Sequence[Path], names: Sequence[str], logs: int) -> int:
    """Compare exact values with the mean of w r; 1 where an honest one is further off than 4 standard errors."""
    far = 0
    for family in _chosen(paths, names):
        sums = np.array([_sums(family.draw(seed)) for seed in range(logs)])
        cells = []
        for k, truth in enumerate((family.value, family.baseline_value)):
            gaps = sums[:, k] - truth * sums[:, 2]
            z = gaps.sum() / max(float(np.sqrt(gaps @ gaps)), 1e-300)
            far += family.honest and abs(z) > 4.0
            cells.append(f"{truth:10.5g} {truth + gaps.sum() / sums[:, 2].sum():10.5g} {z:6.1f}")
        print(f"{family.name:32s} {'' if family.honest else 'not honest':10s} " + "  ".join(cells), flush=True)
    print(f"{far} values of honest families are further than 4 standard errors from {logs} logs of theirs")
    return int(far > 0)


def _sums(log: Log) -> tuple[float, float, int]:
    each = [float(np.sum(policy / log.propensity * log.reward)) for policy in (log.target, log.baseline)]
    return each[0], each[1], log.reward.size


# -------------------------------------------------------------------------------------------------------------- judging


def judge(paths: Sequence[Path], names: Sequence[str], folder: Path, logs: int, until: int = 0, most: int = 0,
          workers: int = 1) -> None:  # fmt: skip
    """Draw and estimate what is not there yet, one family at a time and worker."""
    folder.mkdir(parents=True, exist_ok=True)
    work = [(tuple(paths), name, folder, logs, until, most) for name in names]
    if workers == 1:
        for each in work:
            print(_judge_one(each), flush=True)
        return
    with ProcessPoolExecutor(workers) as pool:
        for line in pool.map(_judge_one, work):
            print(line, flush=True)


def _judge_one(work: tuple[tuple[Path, ...], str, Path, int, int, int]) -> str:
    paths, name, folder, logs, until, most = work
    began = time.process_time()
    family = _chosen(paths, (name,))[0]
    kept = {mode: read(folder, family, mode) for mode in MODES}
    while wanted := [mode for mode in MODES if _wants(family, kept[mode], logs, until, most)]:
        first = min(len(kept[mode]) for mode in wanted)
        # A mode that is ahead waits until the others have caught up, so that a log is drawn once.
        behind = [mode for mode in wanted if len(kept[mode]) == first]
        ahead = [len(kept[mode]) for mode in wanted if len(kept[mode]) > first]
        limit = logs if first < logs else most
        for seed in range(first, min(first + STEP, limit, *ahead)):
            log = family.draw(seed)
            also = of_items(log)
            for mode in behind:
                kept[mode].append(of_log(family, log, mode, also))
        for mode in behind:
            write(folder, family, mode, kept[mode])
    counts = ", ".join(f"{mode} {len(rows)}" for mode, rows in kept.items())
    return f"{name}: {counts} logs, {time.process_time() - began:.1f} CPU s"


def _wants(family: Family, rows: list[Row], logs: int, until: int, most: int) -> bool:
    if len(rows) < logs:
        return True
    trusted = min(sum(row[f"{quantity}.level"] == 0 for row in rows) for quantity in QUANTITIES)
    return family.honest and trusted < until and len(rows) < most


def of_log(family: Family, log: Log, mode: str, also: list[Finding] | None = None) -> Row:
    """What is kept of one log in one mode: of the value as Python gives it, of the rest as the command does.

    Args:
        family: of the log.
        log: one of its logs.
        mode: what is stated.
        also: :func:`of_items`, which no mode changes.
    """
    stated = {"full_support": True} | (family.facts if mode == "facts" else {})
    if mode == "facts":
        stated |= {"reward_limit": getattr(log, "reward_limit", None)}
    also = of_items(log) if also is None else also
    users = log.user
    if users is None and mode == "facts" and family.honest:  # that rows are independent is a fact, and stated so
        users = np.arange(log.reward.size)
    users = Clusters.of(users, log.reward.size)
    try:
        value = estimate_value(log.reward, log.propensity, log.target, cluster=users, **stated)
        records = _records(log, users, value.estimator, stated, also)
        verdict = value.verdict.with_findings(also)
        found = {"value": _kept(value.value, value.low, value.high, verdict.to_dict(), value.estimator)}
        (apart,) = (record for record in records if "baseline" in record)
        found["difference"] = _kept(apart["value"], apart["low"], apart["high"], apart, apart["estimator"])
    except UserError as error:
        nothing = {"verdict_level": LEVELS[2], "findings": [{"code": "refused", "level": LEVELS[2]}]}
        records = []
        found = {q: _kept(np.nan, -np.inf, np.inf, nothing, str(error)[:80]) for q in ("value", "difference")}
    plain = [_plain(log.reward, policy / log.propensity) for policy in (log.target, log.baseline)]
    found["value"] |= plain[0]
    found["difference"] |= {name: plain[0][name] - plain[1][name] for name in plain[0]}
    truth = float(getattr(log, "truth", family.value))
    found["value"]["truth"], found["difference"]["truth"] = truth, truth - family.baseline_value
    row = {f"{quantity}.{key}": x for quantity, own in found.items() for key, x in own.items()}
    return row | claimed(records, truth, family.baseline_value)


def of_items(log: Log) -> list[Finding]:
    """What the log says against its propensities item by item, which hangs on no policy and on nothing stated."""
    return item_findings(log.action, log.propensity, log.user, context=log.context)


def _records(log: Log, users: Clusters | None, leader: str, stated: dict[str, Any], also: list[Finding]) -> list[Any]:
    """The command's records of the leading estimator."""
    same = log.baseline is log.propensity or bool(np.array_equal(log.baseline, log.propensity))
    others = {"new": log.target, "base": log.propensity if same else log.baseline}
    columns = LogColumns(log.reward, log.propensity, users, others, range(log.reward.size))
    found = estimate_columns(columns, ["new"], baseline="base", estimators=(leader,), **stated)
    for record in found if also else ():
        before = [Finding(**{key: x for key, x in each.items() if key != "level"}) for each in record["findings"]]
        record |= Verdict.of([*before, *also]).to_dict()
    return found


def _kept(value: float, low: float, high: float, verdict: dict[str, Any], estimator: str) -> Row:
    codes = ",".join(sorted({f["code"] for f in verdict["findings"] if f["level"] != "trust"}))
    level = LEVELS.index(verdict["verdict_level"])
    return {"estimate": value, "low": low, "high": high, "level": level, "codes": codes, "estimator": estimator}


def claimed(records: list[Any], truth: float, baseline: float) -> Row:
    """What the first sentence claims of a log, and whether that is false.

    A sentence that gives an interval is false where the interval does not hold the truth, one that says "better" or
    "worse" also where the sign is wrong; the others claim nothing of values.
    """
    if not records:
        return {"sentence.answer": "refused", "sentence.sure": "do_not_use", "sentence.false": 0, "sentence.sign": 0}
    said = sentence_of(records)
    (apart,) = (record for record in records if "baseline" in record)
    gap, sign = truth - baseline, {"better": 1, "looks_better": 1, "worse": -1, "looks_worse": -1}.get(said.answer, 0)
    if said.answer not in (*SIGNED, "cannot_tell"):
        false = said.answer == "same_policy" and gap != 0.0
    elif said.low_percent is None or said.high_percent is None:
        false = not apart["low"] <= gap <= apart["high"]
    else:
        slack = 1e-9 * (1.0 + abs(gap / baseline))
        false = not said.low_percent / 100 - slack <= gap / baseline <= said.high_percent / 100 + slack
    wrong = sign * gap <= 0.0 if sign else False
    return {"sentence.answer": said.answer, "sentence.sure": said.sure, "sentence.false": int(false or wrong),
            "sentence.sign": int(wrong)}  # fmt: skip


def _plain(reward: np.ndarray, weight: np.ndarray) -> dict[str, float]:
    """What one line of NumPy gives."""
    total = max(float(weight.sum()), 1e-300)
    clipped = np.minimum(weight, PAPERS_CLIP)
    return {"ips": float(weight @ reward) / reward.size, "snips": float(weight @ reward) / total,
            "clipped": float(clipped @ reward) / reward.size}  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- keeping


@lru_cache
def rules() -> str:
    """A digest of the estimators' code: rows of other rules are not continued."""
    digest = hashlib.sha256()
    folder = Path(recsim_mnar.estimators.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _drawn(family: Family) -> str:
    log = family.draw(0)
    return hashlib.sha256(b"".join(x.tobytes() for x in (log.reward, log.propensity, log.target))).hexdigest()[:16]


def _signature(family: Family, mode: str) -> str:
    return " ".join((rules(), _drawn(family), repr(sorted(family.facts.items())) if mode == "facts" else ""))


def _path(folder: Path, family: Family, mode: str) -> Path:
    return folder / f"{family.name}.{mode}.npz"


def read(folder: Path, family: Family, mode: str) -> list[Row]:
    """The rows that are kept; none where the rules, the family or its facts have changed."""
    path = _path(folder, family, mode)
    if not path.exists():
        return []
    with np.load(path, allow_pickle=False) as kept:
        if str(kept["signature"]) != _signature(family, mode):
            print(f"{path}: of other rules or another family, made anew", flush=True)
            return []
        columns = {name: kept[name].tolist() for name in kept.files if name != "signature"}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def write(folder: Path, family: Family, mode: str, rows: list[Row]) -> None:
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    path = _path(folder, family, mode)
    temporary = path.with_suffix(f".{os.getpid()}.part")
    with temporary.open("wb") as out:
        np.savez_compressed(out, signature=np.array(_signature(family, mode)), **columns)
    temporary.replace(path)


def summaries(paths: Sequence[Path], names: Sequence[str], folder: Path) -> dict[str, Any]:
    """Summaries of what is kept, by family, mode and quantity."""
    found = []
    for family in _chosen(paths, names):
        for mode in MODES:
            rows = read(folder, family, mode)
            found += [analysis.summary(family, mode, quantity, rows) for quantity in QUANTITIES if rows]
    return {"rules": rules(), "families": found}


def table(paths: Sequence[Path], names: Sequence[str], folder: Path) -> int:
    """Write results.json and results.md; 1 where a check is short."""
    found = summaries(paths, names, folder)
    if not found["families"]:
        raise UserError(f"{folder} holds no logs of these families and rules; run judge first")
    analysis.save(analysis.load() | {"judged": found})
    checks = analysis.checks(found["families"])
    print("\n".join(analysis.check_lines(checks)))
    return int(not all(check["passed"] for check in checks))


def uplift(logs: int) -> int:
    """Average effects and list metrics on worlds of recommendations and purchases, into results.json."""
    import uplift_worlds

    found = uplift_worlds.judge_all(logs)
    analysis.save(analysis.load() | {"uplift": found})
    print(analysis.uplift_text(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

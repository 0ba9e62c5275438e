"""Judges the estimators of rankings on unseen settings; see README.md.

python benchmarks/slates/unseen/run.py                    # what is missing, then results.json and the README's tables
python benchmarks/slates/unseen/run.py tired rounded      # some settings
python benchmarks/slates/unseen/run.py --seconds 200      # stop after so long; run again to go on
python benchmarks/slates/unseen/run.py --quick            # four logs per setting, printed and not kept
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import summary  # noqa: E402
import worlds  # noqa: E402

from recsim_mnar.errors import UserError  # noqa: E402
from recsim_mnar.estimators.cross_fitted import cross_fitted_positions  # noqa: E402
from recsim_mnar.estimators.rankings import estimate_ranking_value  # noqa: E402

CLAIMS = {
    "whole": ["slate_ips", "slate_snips", "adaptive_ips"],
    "unordered": ["set_ips", "set_snips"],
    "cascade": ["reward_interaction_ips", "reward_interaction_snips", "cascade_dr"],
    "independent": ["independent_ips", "independent_snips", "pseudo_inverse"],
}
ESTIMATORS = [name for names in CLAIMS.values() for name in names]
LEVELS = ["trust", "caution", "do_not_use"]
INVERTED = 2_000  # rankings that the pseudo-inverse is given


def estimates(setting: worlds.Setting, log: dict[str, Any], bounds: dict[str, float]) -> dict[str, Any]:
    """By mode and estimator: value, low, high, level and codes of findings."""
    columns = {name: log[name] for name in ("user", "slate", "position", "action", "reward")}
    names = {
        "marginal": "propensity",
        "conditional": "conditional_propensity",
        "slate": "slate_propensity",
        "set": "set_propensity",
    }
    columns |= {name: log[f"log_{kind}"] for kind, name in names.items()}
    targets = {f"t{'' if kind == 'marginal' else '_' + kind}": log[f"target_{kind}"] for kind in names}
    columns |= targets
    common: dict[str, Any] = {"position_weights": setting.spec["weights"]}
    refused = (
        {"set_ips", "set_snips"} if setting.spec["weights"] != "mean" else set()
    )  # these need positions that weigh alike
    if setting.grade.max() > 1:
        common |= {"reward_max": float(setting.grade.max()), "reward_min": 0.0}
    if setting.spec.get("supported", True):
        common |= {"full_support": True, "weight_max": bounds}
    else:
        columns["t_unsupported"] = log["unsupported"]
    given = {}
    q_logged, q_target = cross_fitted_positions(log["action"], log["position"], log["reward"], log["user"], log["each"])
    given["cascade_dr"] = {"q_logged": q_logged, "q_target": q_target}
    given["pseudo_inverse"] = inverse_of(setting, log)
    if setting.behaviours:
        given["adaptive_ips"] = {"behaviour": np.array(setting.behaviours)[log["which"]]}
    allowed = [
        name
        for name in ESTIMATORS
        if name not in refused and given.get(name, {}) is not None and (name != "adaptive_ips" or name in given)
    ]
    out: dict[str, Any] = {"claimed": {}, "silent": {}}
    for mode, assumption, some in [
        ("silent", None, ESTIMATORS),
        *(("claimed", claim, ones) for claim, ones in CLAIMS.items()),
    ]:
        asked = [name for name in some if name in allowed]
        if not asked:
            continue
        arguments = {key: value for name in asked for key, value in given.get(name, {}).items()}
        try:
            answers = estimate_ranking_value(
                columns, "t", estimators=asked, assumption=assumption, **common, **arguments
            )
        except UserError as error:
            out[mode] |= {name: str(error) for name in asked}
            continue
        for name, one in answers.items():
            codes = sorted({finding.code for finding in one.verdict.findings})
            out[mode][name] = [one.value, one.low, one.high, LEVELS.index(one.verdict.level), codes]
    return out


def inverse_of(setting: worlds.Setting, log: dict[str, Any]) -> dict[str, Any] | None:
    """What the pseudo-inverse is given; None where there are too many rankings to list."""
    if setting.spec["log"]["kind"] == "uniform":
        return {"logger": "uniform", "n_items": setting.n, "inclusion": log["inclusion"]}
    if math.perm(setting.n, setting.k) > INVERTED:
        return None
    ranks = worlds.rankings(setting.n, setting.k)

    def law(taste: Any) -> tuple[Any, Any, Any]:
        taste = int(taste)
        return ranks, setting.logs[taste].prefix(ranks)[:, -1], setting.targets[taste].prefix(ranks)[:, -1]

    return {"logger": law, "context": log["taste"]}


def judge(setting: worlds.Setting, logs: int, raw: Path, until: float, seed: int) -> int:
    """Adds logs to the file of a setting until there are enough; how many there are."""
    path = raw / f"{setting.name}.json"
    kept = json.loads(path.read_text()) if path.exists() else []
    bounds, begun = setting.weight_bounds(), len(kept)
    while len(kept) < logs and time.monotonic() < until:
        log = setting.sample(np.random.default_rng([seed, setting.spec["seed"], len(kept)]))
        kept.append({"truth": log["truth"], **estimates(setting, log, bounds)})
    if len(kept) > begun:
        raw.mkdir(parents=True, exist_ok=True)
        replace(path, json.dumps(kept))
    return len(kept)


def replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def compact(results: dict[str, Any]) -> str:
    """JSON with one line per setting, numbers of six digits."""

    def rounded(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: rounded(one) for key, one in value.items()}
        return float(f"{value:.6g}") if isinstance(value, float) else value

    parts = []
    for title, part in results["parts"].items():
        lines = [f"{json.dumps(name)}: {json.dumps(rounded(one))}" for name, one in part["settings"].items()]
        parts.append(f'{json.dumps(title)}: {{"seed": {part["seed"]}, "settings": {{\n' + ",\n".join(lines) + "}}")
    return f'{{"judge": {json.dumps(results["judge"])}, "parts": {{\n' + ",\n".join(parts) + "}}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--seed", type=int, default=20_261_126)
    parser.add_argument("--raw", type=Path, default=HERE / "raw", help="folder of the single estimates")
    parser.add_argument("--title", help="of the part of results.json")
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    if args.quick:
        with tempfile.TemporaryDirectory() as folder:
            _run(args, Path(folder), worlds.frozen())
        return
    _run(args, args.raw, worlds.frozen())


def _run(args: argparse.Namespace, raw: Path, frozen: dict[str, Any]) -> None:
    until = time.monotonic() + args.seconds
    for name in args.settings or frozen["settings"]:
        setting = worlds.Setting(frozen["settings"][name])
        size = len(setting.sample(np.random.default_rng(0))["reward"]) // setting.k
        wanted = frozen["judge"]["logs" if size < 4_000 else "logs_large"]
        begun = time.process_time()
        done = judge(setting, 4 if args.quick else wanted, raw, until, args.seed)
        print(f"{name}: {done} logs, {time.process_time() - begun:.1f} CPU s", flush=True)
    if args.quick:
        print("\n".join(summary.tables(summary.summary(raw, frozen), frozen["judge"], "Four logs per setting")))
    if args.title:
        path = HERE / "results.json"
        results = json.loads(path.read_text()) if path.exists() else {"parts": {}}
        results["judge"] = frozen["judge"]
        results["parts"][args.title] = {"seed": args.seed, "settings": summary.summary(raw, frozen)}
        replace(path, compact(results))
        readme = HERE / "README.md"
        replace(readme, summary.written(readme.read_text(), json.loads(path.read_text())))


if __name__ == "__main__":
    main()

"""The gallery: every page that the package writes, made anew from small stored results when the site is built.

    python docs/extensions/gallery.py RUNS    # stores docs/gallery.json from the folders that RUNS holds

``RUNS`` holds ``compare``, ``study`` and ``interactions`` (folders of ``compare --out``), ``advice.json``, ``fit.json``
and ``validation.json`` (of ``--json``). What no chart or first screen reads is left out.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from recsim_mnar.estimators.off_policy.records import estimate_columns
from recsim_mnar.fitting.advice import Advice
from recsim_mnar.fitting.validation import Check, Validation
from recsim_mnar.log.columns import LogColumns
from recsim_mnar.own_log.bandit_file import WeighedLog
from recsim_mnar.own_log.in_numbers import LogNumbers
from recsim_mnar.protocols.comparison import Comparison, experiment_of
from recsim_mnar.protocols.interactions.comparison import _PICTURES, _TITLES
from recsim_mnar.protocols.records import Judgement, Record
from recsim_mnar.report.estimate_page import Estimates, write_estimates
from recsim_mnar.report.fitting_pages import write_advice, write_fit, write_validation
from recsim_mnar.report.log_page import write_log_page
from recsim_mnar.report.page import write_page
from recsim_mnar.report.study_page import _write_page as write_study_page
from recsim_mnar.studies.result import Study
from recsim_mnar.worlds import make_world

STORED = Path(__file__).resolve().parents[1] / "gallery.json"
PAGES = {
    "compare": "Which protocol is right?",
    "study": "A study over catalogues",
    "interactions": "Your own interactions",
    "estimate": "What other policies would have earned",
    "advise": "Does the log decide?",
    "calibrate": "A world like the log",
    "validate": "What the world is valid for",
    "simulate": "What was simulated",
}
"""Name of each page's file, and its title in the gallery."""
_KEYS = [("loocv", "hr@1"), ("off_policy", "clipped_ips"), ("ab_test", "ctr"), ("truth", "ctr")]
_DETAILS = (
    "verdict", "verdict_level", "covers", "identified", "ess", "share_supported", "value_on_log", "users", "clip_part",
    "sampling_low", "sampling_high", "paired_half_widths",
)  # fmt: skip


def pages(folder: Path) -> list[Path]:
    """Write every page into a folder, and return them in the order of :data:`PAGES`."""
    stored = json.loads(STORED.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / f"{name}.html" for name in PAGES}
    made_by = {"gallery": True}
    write_page(paths["compare"], _comparison(stored["compare"]), made_by)
    write_study_page(paths["study"], Study(made_by, stored["study"]))
    write_page(paths["interactions"], _interactions(stored["interactions"]), made_by)
    (folder / "estimates").mkdir(exist_ok=True)
    write_estimates(folder / "estimates", _estimates(), made_by)
    (folder / "estimates" / "report.html").replace(paths["estimate"])
    fields = {field.name for field in dataclasses.fields(Advice)}
    write_advice(paths["advise"], Advice(**{k: v for k, v in stored["advice"].items() if k in fields}), made_by)
    fitted: Any = SimpleNamespace(**stored["fit"])
    write_fit(paths["calibrate"], fitted, made_by)
    write_validation(paths["validate"], _validation(stored["validation"]), made_by)
    write_log_page(paths["simulate"], _log(), [("recsim-mnar doctor runs/log/log", "What is wrong with it?")])
    return list(paths.values())


def variants(folder: Path) -> None:
    """Next to each page one that is dark wherever it is shown, and one that is as printed."""
    for path in [folder / f"{name}.html" for name in PAGES]:
        text = path.read_text()
        dark = text.replace("screen and (prefers-color-scheme: dark)", "screen")
        path.with_suffix(".dark.html").write_text(dark.replace('content="light dark"', 'content="dark"'))
        light = text.replace("screen and (prefers-color-scheme: dark)", "not all")
        path.with_suffix(".light.html").write_text(light)
        paper = light.replace("@media screen and (max-width: 40rem)", "@media not all").replace(
            "<details", "<details open"
        )
        path.with_suffix(".print.html").write_text(paper.replace("@media print", "@media screen"))


def _comparison(stored: dict[str, Any]) -> Comparison:
    records = [_record(row) for row in stored["records"]]
    headings = {("loocv", "hr@1"): "HR@1", ("off_policy", "clipped_ips"): "clipped IPS", ("ab_test", "ctr"): "A/B CTR"}
    return Comparison(
        records,
        [_judgement(row) for row in stored["judgements"]],
        columns=_KEYS,
        headings=headings | {("truth", "ctr"): "true CTR"},
        pictures=experiment_of(make_world("sessions", "quick")).pictures(records),
        details=stored["details"],
        again="recsim-mnar compare --world sessions --catalogues 20",
    )


def _interactions(stored: dict[str, Any]) -> Comparison:
    records = [_record(row) for row in stored["records"]]
    keys = list(dict.fromkeys((r.protocol, r.metric) for r in records))
    ndcg = [key for key in keys if key[1].startswith("ndcg")]
    return Comparison(
        records, columns=[*ndcg, *(key for key in keys if key not in ndcg)], pictures=_PICTURES,
        headings={key: f"{_TITLES.get(key[0], key[0])}: {key[1].upper()}" for key in keys},
        title="Which agent suits these users?", conclusion=stored["conclusion"],
    )  # fmt: skip


def _record(row: dict[str, Any]) -> Record:
    return Record(
        **{**row, **{name: math.nan if row[name] is None else row[name] for name in ("value", "low", "high")}}
    )


def _judgement(row: dict[str, Any]) -> Judgement:
    return Judgement(**{k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k != "sentence"})


def _estimates() -> Estimates:
    """Three policies on a log of 6,000 rows: one better than today's, one too close, one that the log hardly shows."""
    rng = np.random.default_rng(3)
    logging = np.array([0.4, 0.3, 0.2, 0.095, 0.005])
    action = rng.choice(5, 6000, p=logging)
    reward = (rng.random(6000) < np.array([0.08, 0.1, 0.16, 0.09, 0.2])[action]) * 1.0
    policies = {"bandit": [0.1, 0.1, 0.6, 0.15, 0.05], "bestsellers": [0.6, 0.3, 0.06, 0.035, 0.005],
                "rare items": [0.02, 0.02, 0.02, 0.04, 0.9]}  # fmt: skip
    columns = {name: np.array(chances)[action] for name, chances in policies.items()}
    log = LogColumns(reward, logging[action], None, columns | {"propensity": logging[action]}, np.arange(6000))
    stated = {"propensity_min": 0.005, "full_support": True}
    records = estimate_columns(log, list(columns), baseline="propensity", estimators=("ips", "snips"), **stated)
    records = [r | {"today": True} if "propensity" in (r["policy"], r.get("baseline")) else r for r in records]
    weights = {name: column / logging[action] for name, column in columns.items()}
    weighed = WeighedLog(6000, None, float(reward.mean()), {}, weights)
    return Estimates("shop.csv", records, ["taken: reward: clicked; propensity: shown_prob"], weighed, None)


def _validation(stored: dict[str, Any]) -> Validation:
    checks = [Check(**check) for check in stored["checks"]]
    return Validation(checks, stored["not_checked"], stored["notes"], stored["facts"])


def _log() -> LogNumbers:
    log = LogNumbers({"world": {"name": "sessions"}, "policy": {"name": "user-popularity"}, "seed": 0}, 32_903, 300)
    ranks = np.arange(1, 201)
    log.views, log.shown = (9000 / ranks**0.9 / 20).astype(int), (9000 / ranks**1.2 / 8).astype(int)
    rng = np.random.default_rng(0)
    for kind, mean in (("organic", 30), ("bandit", 80)):
        log.by_user[kind].extend(rng.geometric(1 / mean, 300))
        log.stretches[kind].extend(rng.geometric(3 / mean, 900))
    log.propensities.extend(rng.beta(1.2, 6, 4000).clip(0.004, 1))
    log.rewards = {"value": 0.0158, "low": 0.0145, "high": 0.0172, "level": 0.95}
    return log


# --------------------------------------------------------------------------------------------------------------- store


def store(runs: Path) -> None:
    """Keep of runs what the pages read, with numbers of five digits."""
    of = {name: json.loads((runs / f"{name}.json").read_text()) for name in ("advice", "fit", "validation")}
    of["fit"] = {name: of["fit"][name] for name in ("world", "identified", "not_identified", "method")}
    for check in of["validation"]["checks"]:
        check["picture"] = _thinned(check["picture"])
    for name in ("compare", "interactions"):
        summary = json.loads((runs / name / "summary.json").read_text())
        rows = json.loads((runs / name / "results.json").read_text())["records"]
        of[name] = {"judgements": summary["judgements"], "conclusion": summary.get("conclusion", []),
                    "details": {k: summary[k] for k in ("weights", "popularity", "clip") if k in summary},
                    "records": [_kept(row) for row in rows if name == "interactions" or _shown(row)]}  # fmt: skip
    results = [
        json.loads(path.read_text())
        for path in sorted((runs / "study").rglob("*.json"))
        if path.parent != runs / "study"
    ]
    of["study"] = [
        {"label": r["label"], "catalogue": r["catalogue"], "seed": r["seed"], "judgements": r["judgements"],
         "records": [_kept(row, ("verdict_level", "covers")) for row in r["records"] if _shown(row)]}
        for r in results if "judgements" in r
    ]  # fmt: skip
    STORED.write_text(json.dumps(_rounded(of), separators=(",", ":"), ensure_ascii=False) + "\n")


def _shown(row: dict[str, Any]) -> bool:
    return (row["protocol"], row["metric"]) in _KEYS


def _kept(row: dict[str, Any], names: tuple[str, ...] = _DETAILS) -> dict[str, Any]:
    details = {name: row["details"][name] for name in names if name in row["details"]}
    return {**{k: v for k, v in row.items() if k not in ("study", "catalogue")}, "seconds": 0.0, "details": details}


def _thinned(picture: dict[str, Any], most: int = 25) -> dict[str, Any]:
    """The picture with every so many of its places."""
    n = len(picture.get("entries", ()))
    step = max(1, math.ceil(n / most))
    return {k: v[::step] if isinstance(v, list) and len(v) == n and n else v for k, v in picture.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_rounded(v) for v in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


# ------------------------------------------------------------------------------------------------------------- the site


def setup(app: Any) -> dict[str, bool]:
    """Write the pages into the built site, where docs/gallery.md shows them."""

    def write(app: Any, error: Exception | None) -> None:
        if error is None:
            pages(Path(app.outdir) / "gallery")
            variants(Path(app.outdir) / "gallery")

    app.connect("build-finished", write)
    return {"parallel_read_safe": True}


if __name__ == "__main__":
    store(Path(sys.argv[1]))

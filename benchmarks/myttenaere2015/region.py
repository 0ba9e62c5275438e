"""Where do both collaborative filterings fall after campaigns, and where do the item weights bring a part of it back?

    python benchmarks/myttenaere2015/region.py [--quick] [--seeds N] [--out DIR]

Figure 7 asks for both at once. Campaigns between untargeted and sharply personalised (``sharpness``), by either
recommender, and acceptance that is the same for all or follows affinity (``strength``). The change of the score since
the reference day is split: with all weights the items' probabilities are those of the reference day to the last digit,
so what then remains is structural, and total = marginal + structural. Each platform's numbers are kept
(``region/CASE-SEED.json``) when the run is taken up again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from analysis import interval, percent
from platforms import K, lived, world_of

from recsim_mnar.log.files import write_json
from recsim_mnar.log.profiles import Profiles
from recsim_mnar.policy import registry
from recsim_mnar.protocols.temporal.weighted_leave_one_out import hit_probabilities
from recsim_mnar.protocols.temporal.weighting_schemes import make_scheme
from recsim_mnar.simulate.platform import platform_log

HERE = Path(__file__).resolve().parent

RECOMMENDERS = ("naive-cf", "cosine-cf")
SHARPNESS = (0.0, 0.1, 0.25, 0.5, 1.0)
STRENGTHS = (0.0, 0.6, 1.2)
DAYS = (345, 500)
SCHEMES = ("unweighted", "weights", "structure", "alone")
NAMES = {"cosine-cf": "cosine CF", "naive-cf": "naive CF"}


def cases() -> list[tuple[str, float, float]]:
    """(recommender of the campaigns, sharpness, strength); sharpness 0 is the house's lists, whoever recommends."""
    found = list(itertools.product(RECOMMENDERS, SHARPNESS, STRENGTHS))
    return [case for case in found if case[1] > 0 or case[0] == RECOMMENDERS[0]]


def scores_of(case: tuple[str, float, float], seed: int, quick: bool) -> dict[str, Any]:
    """Scores of both recommenders on one platform at the reference day and later, by each scheme."""
    recommender, sharpness, strength = case
    changes = [f"acceptance_strength={strength:g}", *([] if quick else ["n_users=6000"])]
    world = world_of("quick" if quick else "viadeo", seed, changes)
    kind = {"recommender": recommender if sharpness else "", "sharpness": sharpness}
    log = platform_log(lived(world, seed, kind))
    reference = Profiles.of(log, world.params.reference_day, world.n_items)
    learners = {name: registry.learner(name) for name in NAMES}
    out: dict[str, Any] = {name: {} for name in NAMES}
    for day in (world.params.reference_day, *DAYS):
        now = Profiles.of(log, day, world.n_items)
        chosen = SCHEMES if day > world.params.reference_day else SCHEMES[:1]
        weighings = {scheme: make_scheme(scheme).weigh(now, reference) for scheme in chosen}
        for name, learner in learners.items():
            hits = {id(w.profiles): hit_probabilities(w.profiles, learner, K) for w in weighings.values()}
            out[name][str(day)] = {s: float(w.probabilities @ hits[id(w.profiles)]) for s, w in weighings.items()}
    return out


def changes(found: list[dict[str, Any]], name: str, day: int) -> dict[str, Any]:
    """Relative changes since the reference day over platforms: total, marginal, structural, and of other schemes."""
    first = [next(iter(one[name].values()))["unweighted"] for one in found]
    rel = {s: [one[name][str(day)][s] / a - 1 for one, a in zip(found, first, strict=True)] for s in SCHEMES}
    marginal = [a - b for a, b in zip(rel["unweighted"], rel["weights"], strict=True)]
    return {
        "total": interval(rel["unweighted"]), "marginal": interval(marginal), "structural": interval(rel["weights"]),
        **{s: interval(rel[s]) for s in SCHEMES[2:]},
    }  # fmt: skip


def within(row: dict[str, Any]) -> bool:
    """Figure 7's finding: the classical score falls, and with weights it falls less."""
    return bool(row["total"]["high"] < 0 and row["marginal"]["high"] < 0)


def markdown(found: dict[str, Any], seeds: int) -> tuple[str, dict[str, bool]]:
    """The table, and what it says."""
    lines = [
        "# Figure 7: the fall of both collaborative filterings, marginal and structural", "",
        f"Change of the score from day 300 to day 500, {seeds} platforms of 6,000 users [95 % interval]. Marginal: "
        "what the item weights undo. Structural: what remains when the items' probabilities are those of day 300.", "",
        "| campaigns by | sharpness | acceptance follows affinity | recommender | total | marginal | structural "
        "| structure weights | alone | falls, and weights help |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    both: list[str] = []
    for key, rows in found.items():
        recommender, sharpness, strength = key.split("/")
        for name, label in NAMES.items():
            row = rows[name]["500"]
            cells = [percent(row[part]) for part in ("total", "marginal", "structural", *SCHEMES[2:])]
            where = [recommender if float(sharpness) else "house", sharpness, strength]
            lines.append("| " + " | ".join([*where, label, *cells, "yes" if within(row) else "no"]) + " |")
        if all(within(rows[name]["500"]) for name in NAMES):
            both.append(key)
    naive = sum(within(rows["naive-cf"]["500"]) for rows in found.values())
    text = ", ".join(both) if both else "none"
    checks = {
        f"both fall and weights help, in some case (campaigns by/sharpness/strength): {text}": bool(both),
        f"the same for the naive CF alone: {naive} of {len(found)} cases": naive > 0,
        "no case in which all weights bring either score back to within 2 %": all(
            abs(rows[name]["500"]["structural"]["mean"]) > 0.02 for rows in found.values() for name in NAMES
        ),
    }
    lines += ["", "```", *(f"{'PASS ' if ok else 'short'} {text}" for text, ok in checks.items()), "```"]
    return "\n".join(lines), checks


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small preset, one case")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    out = options.out or (Path("runs/myttenaere2015-quick") if options.quick else HERE)
    found = {}
    for case in cases()[:2] if options.quick else cases():
        key = "/".join(f"{part:g}" if isinstance(part, float) else part for part in case)
        ones = []
        for seed in range(options.seeds):
            path = out / "region" / f"{key.replace('/', '-')}-{seed}.json"
            if not path.exists():
                write_json(path, scores_of(case, seed, options.quick))
            ones.append(json.loads(path.read_text()))
        found[key] = {name: {str(day): changes(ones, name, day) for day in DAYS} for name in NAMES}
        print(f"{key} done", flush=True)
    text, _ = markdown(found, options.seeds)
    write_json(out / "region.json", found)
    (out / "region.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tables of the study, from its records alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from _study import student, table, word

CHOSEN = "chosen by off-policy evaluation"
PPO = "ppo, shipped settings"


def chosen(candidates: dict[str, Any], family: str | None = None, by: str = "low") -> str:
    """The candidate with the largest lower limit of its off-policy estimate, of all or of a family."""
    own = {name: c for name, c in candidates.items() if family in (None, c["family"])}
    return max(own, key=lambda name: own[name]["estimate"][by])


def rows_of(found: dict[str, Any], catalogue: str) -> dict[str, dict[str, float]]:
    """Name and exact CTR of everything that stands in the table, for one catalogue."""
    candidates = found["from_log"][catalogue]
    rows = dict(found["baselines"][catalogue])
    rows |= {f"{name}, after learning": row for name, row in found["bandits"][catalogue].items()}
    for part in ("ppo", "ppo_defaults"):
        rows |= found.get(part, {}).get(catalogue, {})
    for family in dict.fromkeys(c["family"] for c in candidates.values()):
        rows[f"{family}, from the log"] = candidates[chosen(candidates, family)]
    rows[CHOSEN] = candidates[chosen(candidates)]
    rows["the largest estimate instead of the largest lower limit"] = candidates[chosen(candidates, by="value")]
    return rows


def cell(row: dict[str, float]) -> str:
    return f"{100 * row['value']:.3f} [{100 * row['low']:.3f}, {100 * row['high']:.3f}]"


def tables(found: dict[str, Any], given: dict[str, Any]) -> str:
    """Markdown: exact CTR by catalogue, what the choice costs, and the checks."""
    catalogues = list(found["baselines"])
    by_catalogue = {c: rows_of(found, c) for c in catalogues}
    # What needs a library that was missing somewhere is in no table.
    names = [name for name in by_catalogue[catalogues[0]] if all(name in rows for rows in by_catalogue.values())]
    mean = {name: sum(by_catalogue[c][name]["value"] for c in catalogues) / len(catalogues) for name in names}
    rows = [
        [name, *(cell(by_catalogue[c][name]) for c in catalogues), f"{100 * mean[name]:.3f}"]
        for name in sorted(names, key=lambda name: -mean[name])
    ]
    return "\n".join([
        f"Exact CTR in %, {given['evaluated_users']:,} users, the same in a catalogue; 95 % intervals over users.",
        "",
        *table(["policy", *(f"catalogue {c}" for c in catalogues), "mean"], rows),
        "",
        "Clicks while learning, in %: " + learning(found, given),
        "",
        "What the choice costs, all in %; the estimate is of users that were not learned from:",
        "",
        *table(
            ["catalogue", "by the largest", "chosen", "estimate", "exact CTR", "best candidate", "its CTR", "regret"],
            [row for c in catalogues for row in choices(c, found["from_log"][c])],
        ),
        "",
        *paired(by_catalogue, given),
        "",
        *checks(by_catalogue, given),
    ])  # fmt: skip


def choices(catalogue: str, candidates: dict[str, Any]) -> list[list[str]]:
    """What either choice picks in a catalogue, and its regret."""
    best, rows = max(candidates, key=lambda name: candidates[name]["value"]), []
    for by, words in (("low", "lower limit"), ("value", "estimate")):
        pick = chosen(candidates, by=by)
        row, top = candidates[pick], candidates[best]["value"]
        ends = [f"{100 * top:.3f}", f"{100 * (top - row['value']):.3f}"]
        rows.append([catalogue, words, pick, cell(row["estimate"]), cell(row), best, *ends])
    return rows


def paired(by_catalogue: dict[str, dict[str, Any]], given: dict[str, Any]) -> list[str]:
    """What was chosen less others, by catalogue."""
    lines = [
        "Chosen less others, in %, paired by catalogue; mean and 95 % Student interval over catalogues:",
        "",
    ]
    for rival in ("best fixed item", given["logging"], "user-popularity", "mf-ips", "item-knn", "oracle"):
        x = np.array([100 * (rows[CHOSEN]["value"] - rows[rival]["value"]) for rows in by_catalogue.values()])
        mean, low, high = student(x)
        figures = f"{mean:+.3f}" + (f" [{low:+.3f}, {high:+.3f}]" if len(x) > 1 else "")
        lines.append(f"- {rival}: {figures} ({', '.join(f'{one:+.3f}' for one in x)})")
    return lines


def learning(found: dict[str, Any], given: dict[str, Any]) -> str:
    """Of each bandit, by catalogue."""
    figures = []
    for name in given["bandits"]:
        rates = ", ".join(f"{100 * one[name]['while_learning']:.3f}" for one in found["bandits"].values())
        figures.append(f"{name} {rates}")
    return "; ".join(figures) + f" ({given['online_users']:,} users, {given['lanes']} lanes)."


def checks(by_catalogue: dict[str, dict[str, Any]], given: dict[str, Any]) -> list[str]:
    """PASS or short: what was chosen and what it must beat, intervals disjoint, in every catalogue."""
    lines = []
    pairs = [("chosen", CHOSEN, rival) for rival in ("best fixed item", given["logging"], "user-popularity")]
    if all(PPO in rows for rows in by_catalogue.values()):
        pairs.append((f"{PPO},", PPO, "user-popularity"))
    for words, own, rival in pairs:
        above = [rows[own]["low"] > rows[rival]["high"] for rows in by_catalogue.values()]
        shares = f"in {sum(above)} of {len(above)} catalogues"
        lines.append(f"- {word(all(above))}: {words} above {rival}, intervals disjoint, {shares}")
    for goal in ("item-knn", "oracle"):
        share = [rows[CHOSEN]["value"] / rows[goal]["value"] for rows in by_catalogue.values()]
        lines.append(f"- chosen, as a share of {goal}: " + ", ".join(f"{s:.3f}" for s in share))
    return lines

"""Tables and the figure of the study, from its records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from _study import save_picture, student, table, word

MUST = ("lin-ucb", "lin-thompson", "logistic-thompson")


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Regret at the end and in the last tenth, one value per seed, and the mean curve with its 95 % band."""
    curves = np.array([run["regret"] for run in runs])
    tenth = round(0.9 * curves.shape[1]) - 1
    bands = np.array(student(curves)).T
    return {
        "interactions": runs[0]["interactions"],
        "regret": curves[:, -1],
        "last_tenth": curves[:, -1] - curves[:, tenth],
        "seconds": [run["seconds"] for run in runs],
        "curve": dict(zip(("mean", "low", "high"), bands.T, strict=True)),
    }


def in_words(values: Any) -> str:
    mean, low, high = student(values)
    return f"{mean:,.0f} [{low:,.0f}, {high:,.0f}]"


def tables(found: dict[str, Any], given: dict[str, Any]) -> str:
    """Markdown: regret at the end, paired with the rival by seed, and the checks."""
    rival, checks, rows = given["paired_with"], [], []
    for reward, by_policy in found.items():
        ends = {name: np.asarray(row["regret"]) for name, row in by_policy.items()}
        base = ends[rival]
        for name in sorted(ends, key=lambda one: ends[one].mean()):
            row = by_policy[name]
            paired = "" if name == rival else in_words(ends[name] - base)
            below = "" if name == rival else f"{int((ends[name] < base).sum())} of {len(base)}"
            seconds = f"{np.median(row['seconds']):.0f}"
            rows.append([reward, name, in_words(ends[name]), in_words(row["last_tenth"]), paired, below, seconds])
            for other in (rival, "epsilon-greedy") if name in MUST else ():
                if other in ends:
                    passed = student(ends[name] - ends[other])[2] < 0
                    checks.append(f"- {word(passed)}: {name} below {other} at the end, {reward} rewards, paired")
    n = found[given["rewards"][0]][rival]["interactions"][-1]
    head = ["rewards", "policy", "regret", "of it in the last tenth", f"less {rival}'s, paired", "below it in"]
    return "\n".join([
        f"Regret after {n:,} interactions, {given['seeds']} seeds, {given['lanes']} lanes; 95 % intervals over seeds.",
        "",
        *table([*head, "seconds"], rows),
        "",
        *checks,
    ])  # fmt: skip


def figure(found: dict[str, Any], path: Path) -> None:
    """Mean regret with 95 % bands, a panel for each kind of reward; ``epsilon-greedy`` leaves it at the top."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    drawn, panels = plt.subplots(1, len(found), figsize=(5 * len(found), 3.6), squeeze=False, layout="constrained")
    for panel, (reward, by_policy) in zip(panels[0], found.items(), strict=True):
        for name, row in by_policy.items():
            at, curve = np.array(row["interactions"]) / 1000, row["curve"]
            (line,) = panel.plot(at, curve["mean"], label=name)
            panel.fill_between(at, curve["low"], curve["high"], color=line.get_color(), alpha=0.25, linewidth=0)
        top = max(max(row["regret"]) for name, row in by_policy.items() if name != "epsilon-greedy")
        panel.set(title=f"{reward} rewards", xlabel="interactions, thousands", ylabel="regret", ylim=(0, 1.2 * top))
    panels[0][0].legend(fontsize="small")
    save_picture(drawn, path)

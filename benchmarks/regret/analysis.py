"""Tables and the figure of the study, from its records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import stdtrit

MUST = ("lin-ucb", "lin-thompson", "logistic-thompson")


def ends(runs: list[dict[str, Any]]) -> np.ndarray:
    """(seeds,) regret after all interactions."""
    return np.array([run["regret"][-1] for run in runs])


def interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean and 95 % Student interval over seeds."""
    mean = float(values.mean())
    half = float(stdtrit(len(values) - 1, 0.975) * values.std(ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def told(values: np.ndarray) -> str:
    mean, low, high = interval(values)
    return f"{mean:,.0f} [{low:,.0f}, {high:,.0f}]"


def tables(found: dict[str, Any], given: dict[str, Any]) -> str:
    """Markdown: regret at the end, paired with the rival by seed, and the checks."""
    rival, checks = given["paired_with"], []
    n = found[given["rewards"][0]][rival][0]["interactions"][-1]
    lines = [
        f"Regret after {n:,} interactions, {given['seeds']} seeds, {given['lanes']} lanes; 95 % intervals over seeds.",
        "",
        f"| rewards | policy | regret | of it in the last tenth | less {rival}'s, paired | below it in | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for reward, by_policy in found.items():
        base = ends(by_policy[rival])
        for name in sorted(by_policy, key=lambda one: ends(by_policy[one]).mean()):
            runs = by_policy[name]
            regret = ends(runs)
            tenth = round(0.9 * len(runs[0]["regret"])) - 1
            late = np.array([run["regret"][-1] - run["regret"][tenth] for run in runs])
            paired = "" if name == rival else told(regret - base)
            below = "" if name == rival else f"{int((regret < base).sum())} of {len(base)}"
            seconds = np.median([run["seconds"] for run in runs])
            lines.append(f"| {reward} | {name} | {told(regret)} | {told(late)} | {paired} | {below} | {seconds:.0f} |")
            for other in (rival, "epsilon-greedy") if name in MUST else ():
                if other in by_policy:
                    word = "PASS" if interval(regret - ends(by_policy[other]))[2] < 0 else "short"
                    checks.append(f"- {word}: {name} below {other} at the end, {reward} rewards, paired")
    return "\n".join([*lines, "", *checks])


def figure(found: dict[str, Any], path: Path) -> None:
    """Mean regret with 95 % bands, a panel for each kind of reward; ``epsilon-greedy`` leaves it at the top."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    drawn, panels = plt.subplots(1, len(found), figsize=(5 * len(found), 3.6), squeeze=False, layout="constrained")
    for panel, (reward, by_policy) in zip(panels[0], found.items(), strict=True):
        for name, runs in by_policy.items():
            curves = np.array([run["regret"] for run in runs])
            bands = np.array([interval(column) for column in curves.T])
            at = np.array(runs[0]["interactions"]) / 1000
            (line,) = panel.plot(at, bands[:, 0], label=name)
            panel.fill_between(at, bands[:, 1], bands[:, 2], color=line.get_color(), alpha=0.25, linewidth=0)
        top = max(
            max(run["regret"][-1] for run in runs) for name, runs in by_policy.items() if name != "epsilon-greedy"
        )
        panel.set(title=f"{reward} rewards", xlabel="interactions, thousands", ylabel="regret", ylim=(0, 1.2 * top))
    panels[0][0].legend(fontsize="small")
    drawn.savefig(path, dpi=110)

"""Figures 5 to 7: scores of the four algorithms from day 300 to day 500, classical and with weights."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
from _study import check_lines, save_picture, student
from platforms import CFS, NAMES, Interval, K, by_kind, four, interval, lived, percent, plain, world_of

from recsim_mnar.campaigns.platform import platform_log
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import fit_item_weights, hit_probabilities, make_scheme


def platform_of(settings: dict[str, Any], kinds: dict[str, Any], kind: str, seed: int) -> dict[str, Any]:
    """Curves of one platform, with campaigns and without any."""
    world = world_of(settings["preset"], seed)
    log, without = (platform_log(lived(world, seed, kinds[kind], days=days)) for days in (None, []))
    t0, last = world.params.reference_day, world.params.n_days
    reference, final = (Profiles.of(log, day, world.n_items) for day in (t0, last))
    p0, agents = reference.item_probabilities(), four(log, reference)
    days = list(range(t0, last + 1, settings["step"]))
    curves: dict[str, dict[str, list[float]]] = {name: {str(p): [] for p in settings["p"]} for name in agents}
    clean: dict[str, list[float]] = {name: [] for name in agents}
    kl: dict[str, list[float]] = {str(p): [] for p in settings["p"]}
    for day in days:
        now, plainly = (Profiles.of(one, day, world.n_items) for one in (log, without))
        hits = {name: hit_probabilities(now, learner, K) for name, learner in agents.items()}
        for p in settings["p"]:
            fit = fit_item_weights(now, p0, p)
            kl[str(p)].append(fit.divergence)
            share = fit.weights[now.items]
            share /= np.repeat(np.add.reduceat(share, now.starts[:-1]), now.lengths())
            for name in agents:
                curves[name][str(p)].append(float(share @ hits[name] / now.n_users))
        weighing = make_scheme("unweighted").weigh(plainly, reference)
        for name, learner in agents.items():
            clean[name].append(float(weighing.probabilities @ hit_probabilities(plainly, learner, K)))
    return {
        "days": days, "campaign_days": world.campaign_days(), "curves": curves, "without": clean, "kl": kl,
        "pairs": {"reference": reference.n_pairs, "last": final.n_pairs, "campaigns": int((final.causes >= 0).sum())},
    }  # fmt: skip


jobs = functools.partial(by_kind, platform_of)


def numbers(found: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Relative changes since the reference day, by kind of campaign, algorithm, p and day; and without campaigns."""
    out: dict[str, Any] = {}
    for kind in settings["kinds"]:
        ones = [one for key, one in found.items() if key.rsplit("-", 1)[0] == kind]
        days = ones[0]["days"]
        at = {str(day): days.index(min(d for d in days if d >= day)) for day in settings["shown"]}
        out[kind] = {
            "platforms": len(ones),
            "pairs": {name: interval(one["pairs"][name] for one in ones) for name in ones[0]["pairs"]},
            "change": {
                name: {str(p): {d: _change(ones, name, str(p), j) for d, j in at.items()} for p in settings["p"]}
                for name in NAMES
            },
            "without": {
                name: {
                    d: interval(one["without"][name][j] / one["without"][name][0] - 1 for one in ones)
                    for d, j in at.items()
                }
                for name in NAMES
            },
            "largest_kl": {str(p): max(max(one["kl"][str(p)]) for one in ones) for p in settings["p"]},
        }  # fmt: skip
    return out


def _change(ones: list[dict[str, Any]], name: str, p: str, day: int) -> list[float]:
    return interval(one["curves"][name][p][day] / one["curves"][name]["0"][0] - 1 for one in ones)


def figures_5_and_6(g1: dict[str, Interval], g2: dict[str, Interval], few: str, more: str) -> dict[str, bool]:
    """What the paper says of the constant lists, by the change of their scores under each number of weights.

    Each asks for a change of the classical score, so that none holds where campaigns change nothing.

    Args:
        g1: changes of the list that campaigns recommend most, by number of weights.
        g2: of the list that they never recommend.
        few: weights that are enough for g1 and not for g2.
        more: weights that are enough for both.
    """
    rise, fall = g1["0"], g2["0"]
    return {
        f"Figure 5: g1 rises by more than 25 % (or 25 % is within the interval): {percent(rise)}": rise[2] > 0.25,
        f"Figure 5: g2 falls by 33 %: {percent(fall)}": fall[1] <= -0.33 <= fall[2],
        f"Figure 6: {few} weights take nine tenths of g1's rise away, {percent(g1[few])} is left": (
            rise[1] > 0 and abs(g1[few][0]) <= 0.1 * rise[0]
        ),
        f"Figure 6: {few} weights bring g2 no nearer to 0: {percent(g2[few])}": fall[2] < 0 and g2[few][1] <= fall[2],
        f"Figure 6: {more} weights take nine tenths of g2's fall away, {percent(g2[more])} is left": (
            fall[2] < 0 and abs(g2[more][0]) <= -0.1 * fall[0]
        ),
    }


def markdown(found: dict[str, Any], settings: dict[str, Any]) -> list[str]:
    """The tables of Figures 5 to 7."""
    lines = []
    first, last = (str(day) for day in (settings["shown"][0], settings["shown"][-1]))
    for kind, row in found.items():
        pairs = row["pairs"]
        lines += [
            f"## Figures 5 to 7: change of the score since day 300, campaigns: {kind}", "",
            f"Preset {settings['preset']}, {row['platforms']} platforms; pairs {plain(pairs['reference'], ',.0f')} at "
            f"first, {plain(pairs['last'], ',.0f')} at last, {plain(pairs['campaigns'], ',.0f')} from campaigns.",
            "", "| | no campaign | " + " | ".join("classical" if p == 0 else f"p = {p}" for p in settings["p"]) + " |",
            "|---" * (len(settings["p"]) + 2) + "|",
        ]  # fmt: skip
        for name, day in [(name, last) for name in NAMES] + [(name, first) for name in CFS]:
            cells = [row["without"][name], *row["change"][name].values()]
            lines.append(f"| {NAMES[name]}, day {day} | " + " | ".join(percent(cell[day]) for cell in cells) + " |")
        lines += [
            "| largest KL divergence | - | " + " | ".join(f"{v:.1e}" for v in row["largest_kl"].values()) + " |",
            "",
        ]
        g1, g2 = ({p: cell[last] for p, cell in row["change"][name].items()} for name in ("g1", "g2"))
        lines += [*check_lines(figures_5_and_6(g1, g2, *map(str, settings["enough"]))), ""]
    return lines


def draw(found: dict[str, Any], settings: dict[str, Any], path: Path) -> None:
    """Figures 5 to 7 for the first kind of campaign: a panel per algorithm, a curve per p."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ones = [one for key, one in found.items() if key.startswith(settings["kinds"][0])]
    figure, panels = plt.subplots(2, 2, figsize=(8.5, 5.5), layout="constrained", sharex=True)
    for axes, (name, title) in zip(panels.ravel(), NAMES.items(), strict=True):
        for p in settings["p"]:
            curves = np.array([one["curves"][name][str(p)] for one in ones])
            mean, low, high = student(curves)
            (line,) = axes.plot(ones[0]["days"], mean, label=f"p = {p}", lw=1)
            if len(curves) > 1:
                axes.fill_between(ones[0]["days"], low, high, color=line.get_color(), alpha=0.12)
        axes.set_title(f"{title}, mean of {len(ones)} platforms and 95 %", fontsize=9)
        for day in ones[0]["campaign_days"]:
            axes.axvline(day, color="0.7", lw=0.8)
    panels[1, 0].set_xlabel("t (days)")
    panels[0, 1].legend(fontsize=7)
    save_picture(figure, path, 80)
    plt.close(figure)

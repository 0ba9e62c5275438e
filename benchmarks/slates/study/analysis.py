"""The sentences, tables and picture of the study of lists, from results.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from _study import exact_limits, save_picture, table

from recsim_mnar.protocols.records import BEST, INDISTINGUISHABLE, OUTCOMES, listed
from recsim_mnar.studies.paired import mean, share
from recsim_mnar.studies.result import percent

SHOWN = (
    "leave-one-out (HR@5)",
    "leave-one-out (HR@1)",
    "independent IPS",
    "slate IPS",
    "clipped IPS",
    "A/B test",
)
"""Rankings that the picture and the comparison of pairs show; tables have all."""


def summary(arm: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each ranking of an arm: counts with Wilson's interval, and the mean cost with its interval."""
    found = {}
    for title, own in arm["rankings"].items():
        found[title] = {each: share([one == each for one in own["outcome"]]) for each in OUTCOMES}
        found[title]["right"] = share([one in (BEST, INDISTINGUISHABLE) for one in own["outcome"]])
        found[title]["unusable"] = share(own["unusable"])
        found[title]["barred"] = share(own["barred"])
        found[title]["cost"] = mean(own["cost"], least=0.0)
        found[title]["picks"] = {pick: own["pick"].count(pick) for pick in sorted(set(own["pick"]))}
    return found


def of(number: Mapping[str, Any], catalogues: int) -> str:
    """A count with the interval of its share."""
    return f"{number['count']} of {catalogues} ({100 * number['low']:.0f} to {100 * number['high']:.0f} %)"


def sentence(arm: Mapping[str, Any]) -> str:
    """The answer: who picks the best most often, the others, what their picks cost."""
    n, found = arm["catalogues"], summary(arm)
    order = sorted((title for title in found if title in SHOWN), key=lambda title: -found[title][BEST]["count"])
    first, *others = order
    said = [f"{_named(title)} in {of(found[title][BEST], n)}" for title in others]
    costs = [f"{_named(title)} {percent(found[title]['cost']).replace('[', '(').replace(']', ')')}" for title in order]
    return (
        f"Over {n} catalogues of lists of five, {_named(first)} picks the best of four recommenders in "
        f"{of(found[first][BEST], n).replace('(', '(95 % interval ')}, {listed(said)}. What their picks cost on "
        f"average, of the best click rate: {listed(costs)}."
    )


def _named(title: str) -> str:
    """A protocol in a sentence."""
    return f"the {title}" if title == "A/B test" else title


def rows_of(arm: Mapping[str, Any], *, brief: bool = False) -> list[str]:
    """The table of an arm; ``brief`` leaves out what the picks are."""
    n, found = arm["catalogues"], summary(arm)
    head = ["protocol", "picks the best", "a tie", "a worse one", "mean cost", "its pick barred", "the best barred"]
    rows = []
    for title, own in found.items():
        if brief and title not in SHOWN:
            continue
        counts = [own[each]["count"] for each in OUTCOMES if each != BEST]
        rows.append([title, of(own[BEST], n), *counts, percent(own["cost"]), own["unusable"]["count"]])
        rows[-1].append(own["barred"]["count"])
        if not brief:
            picks = sorted(own["picks"].items(), key=lambda one: -one[1])
            rows[-1] += [of(own["right"], n), ", ".join(f"{pick} {count}" for pick, count in picks)]
    return table([*head, *([] if brief else ["best or a tie", "picks"])], rows)


def pairs(arm: Mapping[str, Any]) -> list[str]:
    """Protocols against each other in the same catalogues."""
    rows = []
    hits = {title: [one == BEST for one in own["outcome"]] for title, own in arm["rankings"].items() if title in SHOWN}
    for one, other in combinations(hits, 2):
        wins = sum(a and not b for a, b in zip(hits[one], hits[other], strict=True))
        alone = sum(a != b for a, b in zip(hits[one], hits[other], strict=True))
        low, high = exact_limits(wins, alone) if alone else (0.0, 1.0)
        better = one if low > 0.5 else other if high < 0.5 else "not settled"
        rows.append([one, other, alone, wins, f"{100 * low:.0f} to {100 * high:.0f} %", better])
    return table(["one", "other", "exactly one is right", "of these the one", "95 % interval", "better"], rows)


def constants(arm: Mapping[str, Any]) -> list[str]:
    """What always picking the same recommender would give."""
    names, values = list(arm["truth"]), np.array(list(arm["truth"].values()))
    top = values.max(axis=0)
    rows = []
    for name, own in zip(names, values, strict=True):
        cost = mean(list(1.0 - own / top), least=0.0)
        rows.append([f"always {name}", of(share(list(own == top)), arm["catalogues"]), percent(cost)])
    return table(["no test at all", "is the best", "mean cost"], rows)


def figure(results: Mapping[str, Any], path: Path) -> None:
    """Left how often each protocol picks the best, right what its picks cost, one dot per catalogue."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    arm = results["lists"]
    found = {title: own for title, own in summary(arm).items() if title in SHOWN}
    drawn, (left, right) = plt.subplots(1, 2, figsize=(9, 2.9), sharey=True, layout="constrained")
    for place, (title, own) in enumerate(found.items()):
        hit, cost = own[BEST], own["cost"]
        left.plot([100 * hit["low"], 100 * hit["high"]], [place, place], color="C0", linewidth=2)
        left.plot(100 * hit["share"], place, "o", color="C0")
        each = 100 * np.array(arm["rankings"][title]["cost"])
        spread = place + 0.3 * (np.arange(len(each)) / len(each) - 0.5)
        right.plot(each, spread, ".", color="0.65", markersize=4)
        right.plot([100 * cost["low"], 100 * cost["high"]], [place, place], color="C3", linewidth=2)
        right.plot(100 * cost["mean"], place, "o", color="C3")
    left.axvline(25, color="0.6", linestyle=":", label="a blind choice of four")
    left.set(xlim=(0, 100), xlabel="picks the best, % of catalogues", yticks=range(len(found)), yticklabels=list(found))
    left.legend(fontsize="small")
    left.invert_yaxis()
    right.set(xlabel="cost of its pick, % of the best rate; dots: catalogues")
    save_picture(drawn, path)

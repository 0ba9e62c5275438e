"""What a study over an ensemble says of protocols, and what may be said of it given a validation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from recsim_mnar.protocols.judgement import BEST, INDISTINGUISHABLE, as_subject
from recsim_mnar.studies.result import mean, percent, share

_POWER_AND_LEVEL = 1.959964 + 0.841621
_LIVE = "ab_test"
_CALM = 0.01
"""A cost up to this share of the best value is small."""
_WIDE = 0.25
"""An interval of a mean cost as wide as this says little."""
_OFF, _CANNOT_SAY = "off", "cannot say"


@dataclass(frozen=True)
class Ranked:
    """How one ranking did over the ensemble.

    Attributes:
        protocol, metric, title: as in a judgement.
        logging: the policy under which its log was made.
        n: worlds.
        best: in how many it picks the best agent, with Wilson's interval (``share``, ``low``, ``high``, ``count``).
        as_good: in how many more its pick cannot be told from the best.
        cost: mean share of the best agent's value that its picks cost, with an interval over worlds.
        picks: how often it picks each agent.
    """

    protocol: str
    metric: str
    title: str
    logging: str
    n: int
    best: dict[str, Any]
    as_good: int
    cost: dict[str, Any]
    picks: dict[str, int]

    def sentence(self) -> str:
        """For a person."""
        told = f", and one that cannot be told from it in {self.as_good}" if self.as_good else ""
        price = "" if self.cost["mean"] is None else f"; its choice costs {self.price('of the best value')}"
        return (
            f"{as_subject(self.title)} picks the best of these agents in {self.best['count']} of {self.n}{told}{price}."
        )

    @property
    def too_few(self) -> bool:
        """Whether the worlds are too few to say what its choice costs on average."""
        low, high = self.cost["low"], self.cost["high"]
        return low is None or high - low > _WIDE

    def price(self, of: str = "") -> str:
        """The cost for a person; where the interval says little, in words. ``of`` follows the first figure."""
        mean, low, high = self.cost["mean"], self.cost["low"], self.cost["high"]
        if mean is None:
            return ""
        of = f" {of}" if of else ""
        if not self.too_few:
            return f"{percent(self.cost)}{of}"
        span = "" if low is None else f", 95 %: {low:.0%} to {high:.0%}"
        return f"{mean:.1%}{of} in {self.cost['n']} worlds (too few to say what it costs on average{span})"


@dataclass(frozen=True)
class Advice:
    """What to do, and how far to trust it.

    Attributes:
        ranked: one a ranking, the cheapest first; under the deployed kind of logging.
        exploring: the same of off-policy estimates under other logging policies.
        best_agents: in how many worlds each agent is truly the best.
        arm_users: of the study's A/B tests.
        users_needed: median over worlds of users an arm that tell the best agent from the next with power .8; None
            where they are level in most.
        n_worlds: of the ensemble.
        facts: of the log and the study.
        identified, not_identified: as the fitted world says.
        validation: as :meth:`recsim_mnar.fitting.validation.Validation.to_dict` gives it; None where it was left out.
        doctor: what is wrong with the file, as ``doctor`` says.
    """

    ranked: list[Ranked]
    exploring: list[Ranked]
    best_agents: dict[str, int]
    arm_users: int
    users_needed: int | None
    n_worlds: int
    facts: dict[str, Any]
    identified: Mapping[str, Any]
    not_identified: Mapping[str, Any]
    validation: Mapping[str, Any] | None = None
    doctor: list[str] = field(default_factory=list)

    @property
    def advised(self) -> Ranked | None:
        """The ranking whose choice costs least; of those within its interval one that needs no users comes first."""
        priced = [r for r in self.ranked if r.cost["mean"] is not None]
        if not priced:
            return None
        least = min(priced, key=lambda r: r.cost["mean"])
        bound = least.cost["high"] if least.cost["high"] is not None else least.cost["mean"]
        level = [r for r in priced if r.cost["mean"] <= min(bound, least.cost["mean"] + _CALM)]
        offline = [r for r in level if r.protocol != _LIVE]
        return min(offline or level, key=lambda r: r.cost["mean"])

    @property
    def says_nothing_of_agents(self) -> str:
        """Why the figures do not bear on the log's own platform; empty where nothing speaks against it."""
        if self.validation is None:
            return ""
        ranking = [c for c in self.validation["checks"] if c["kind"] == "ranking"]
        if any(c["grade"] == _OFF for c in ranking):
            return "agents rank otherwise in this world than on the log, so it does not say which of them is best"
        return ""

    def sentences(self) -> list[str]:
        """What it comes to, for a person."""
        lines = []
        if self.says_nothing_of_agents:
            lines.append(f"Do not choose by these figures: {self.says_nothing_of_agents}.")
        if "click_rate" in self.not_identified:
            lines.append(
                "The log has no recommendations: what users click in these worlds is drawn from ranges, not known from "
                "it, and every figure below rests on that."
            )
        lines.append(f"In {self.n_worlds} worlds like yours:")
        lines += [r.sentence() for r in self.ranked]
        if self.best_agents:
            first, count = max(self.best_agents.items(), key=lambda item: item[1])
            lines.append(f"{first} is truly the best of these agents in {count} of {self.n_worlds}.")
        if self.advised is not None and not self.says_nothing_of_agents:
            lines.append(f"So choose by {self.advised.title}: {self._price(self.advised)}.")
        if self.users_needed is not None:
            lines.append(
                f"An A/B test tells the best agent from the next with {self.users_needed:,} users an arm (median, "
                f"power .8); the figures above are of {self.arm_users:,}."
            )
        lines += self._on_exploring()
        return lines

    def _price(self, chosen: Ranked) -> str:
        cost = chosen.cost["mean"]
        if chosen.too_few:
            return f"its choice costs {cost:.1%} in these worlds, too few to rely on it: ask for more (--ensemble)"
        return f"its choice costs {cost:.1%} on average" + ("" if cost <= _CALM else f", more than {_CALM:.0%}")

    def _on_exploring(self) -> list[str]:
        off_policy = [r for r in self.ranked if r.protocol == "off_policy"]
        today = min(off_policy, key=lambda r: r.cost["mean"]) if off_policy else None
        lines = [
            f"With logs under {r.logging}, {r.title} picks the best in {r.best['count']} of {r.n} and costs "
            f"{r.price()}."
            for r in self.exploring
        ]
        if today is not None and self.exploring:
            least = min(self.exploring, key=lambda r: r.cost["mean"])
            better = least.cost["mean"] < today.cost["mean"] - 0.001
            best = least if better else today
            lines.append(f"Of the logging policies tried, {best.logging} makes off-policy choices cheapest.")
        return lines

    def trust(self) -> dict[str, list[str]]:
        """Questions for which the fitted world may be trusted, for which not, and those that nobody looked at."""
        if self.validation is None:
            return {"not checked": ["the world was not held against the log (validate was left out)"]}
        return {
            "trust it for": list(self.validation["valid_for"]),
            "not for": list(self.validation["not_valid_for"]),
            "cannot say": list(self.validation["cannot_say"]),
            "not checked": list(self.validation["not_checked"]),
        }

    def to_dict(self) -> dict[str, Any]:
        """JSON types."""
        return {
            "sentences": self.sentences(),
            "advised": None if self.advised is None else self.advised.title,
            "says_nothing_of_agents": self.says_nothing_of_agents,
            "trust": self.trust(),
            "ranked": [vars(r) for r in self.ranked],
            "exploring": [vars(r) for r in self.exploring],
            "best_agents": self.best_agents,
            "arm_users": self.arm_users,
            "users_needed": self.users_needed,
            "worlds": self.n_worlds,
            "facts": self.facts,
            "identified": dict(self.identified),
            "not_identified": dict(self.not_identified),
            "validation": self.validation,
            "doctor": self.doctor,
        }


def ranked_of(results: Sequence[Mapping[str, Any]], logging: str) -> list[Ranked]:
    """Over the results of a study, one a world, all under one logging policy; the cheapest first."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for result in results:
        for judgement in result["judgements"]:
            groups.setdefault((judgement["protocol"], judgement["metric"]), []).append(judgement)
    rows = [
        Ranked(
            protocol,
            metric,
            own[0]["title"],
            logging,
            len(own),
            share([j["outcome"] == BEST for j in own]),
            sum(j["outcome"] == INDISTINGUISHABLE for j in own),
            mean([j["cost_share"] for j in own], least=0.0, largest=1.0),
            dict(Counter(j["pick"] for j in own)),
        )
        for (protocol, metric), own in groups.items()
    ]
    return sorted(rows, key=lambda r: math.inf if r.cost["mean"] is None else r.cost["mean"])


def best_agents(results: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """In how many worlds each agent is truly the best."""
    found = Counter(next(iter({j["best"] for j in r["judgements"]})) for r in results if r["judgements"])
    return dict(found.most_common())


def users_needed(results: Sequence[Mapping[str, Any]], arm_users: int) -> int | None:
    """Users an arm that tell the best agent from the next, median over worlds; None where most are level."""
    needed = []
    for result in results:
        truth = {r["agent"]: r["value"] for r in result["records"] if r["protocol"] == "truth"}
        arms = {r["agent"]: r for r in result["records"] if r["protocol"] == _LIVE and r["low"] is not None}
        ranked = sorted((a for a in truth if a in arms), key=lambda a: -truth[a])
        if len(ranked) < 2:
            continue
        gap = truth[ranked[0]] - truth[ranked[1]]
        errors = [(arms[a]["high"] - arms[a]["low"]) / 2 / 1.959964 for a in ranked[:2]]
        variance = sum(error**2 for error in errors) * arm_users
        needed.append(math.inf if gap <= 0 else variance * (_POWER_AND_LEVEL / gap) ** 2)
    if not needed or not math.isfinite(float(np.median(needed))):
        return None
    return math.ceil(float(np.median(needed)))

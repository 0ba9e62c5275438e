"""Leave-one-out after campaigns as protocols, one a way to weigh the held-out pairs."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.log.profiles import Profiles
from recsim_mnar.log.table import Log
from recsim_mnar.policies.base import Learner
from recsim_mnar.protocols.base import Protocol, Trial
from recsim_mnar.protocols.records import Record
from recsim_mnar.protocols.temporal import weighting_schemes as schemes
from recsim_mnar.protocols.temporal.platforms import Campaigns
from recsim_mnar.protocols.temporal.weighted_leave_one_out import hit_probabilities, score
from recsim_mnar.worlds.campaigns.platform import Platform

Floats = NDArray[np.float64]


@dataclass
class AfterCampaigns:
    """What the protocols of the campaigns world read.

    Attributes:
        platform: on the day of the comparison; its log is the test log.
        reference: profiles at the reference time, before any campaign.
        campaigns: how they recommended.
        k: items of a list.
    """

    platform: Platform
    reference: Profiles
    campaigns: Campaigns
    k: int
    _found: dict[tuple[bytes, str], Floats] = field(default_factory=dict)

    def now(self, log: Log) -> Profiles:
        """Profiles on the day of the comparison."""
        return Profiles.of(log, self.platform.day, self.platform.world.n_items)

    def hits(self, profiles: Profiles, name: str, learner: Learner) -> Floats:
        """See :func:`hit_probabilities`; computed once for all schemes."""
        key = (profiles.fingerprint(), name)
        if key not in self._found:
            self._found[key] = hit_probabilities(profiles, learner, self.k, name=name)
        return self._found[key]


class WeighedLeaveOneOut(Protocol):
    """Leave-one-out on what users hold, each pair held out with the probability that a scheme says.

    Attributes:
        words: on the scheme, for titles.
        weighs_by: the scheme, made with the protocol: what it refuses is refused before anything is simulated.
    """

    metrics = ("hr",)
    needs = frozenset({"platform"})
    words: ClassVar[str] = ""
    weighs_by: schemes.Scheme

    def scheme(self, study: Trial) -> schemes.Scheme:
        """How pairs are weighed."""
        return self.weighs_by

    def log(self, study: Trial) -> Log:
        """Whose pairs are held out."""
        return study.log()

    def judge(self, study: Trial) -> list[Record]:
        """See :meth:`recsim_mnar.protocols.base.Protocol.judge`."""
        study.report(f"leave-one-out, {self.words}")
        own: AfterCampaigns = study.data
        scheme, log = self.scheme(study), self.log(study)
        weighing = scheme.weigh(own.now(log), own.reference)
        details = {"scheme": self.name, "time": own.platform.day, "reference_time": own.reference.time}
        details |= weighing.details | {"users_with_one_item": int((weighing.profiles.lengths() == 1).sum())}
        records = []
        for name, learner in study.learners.items():
            began = time.perf_counter()
            hits = own.hits(weighing.profiles, name, learner)
            value, low, high, n = score(weighing, hits, level=study.level)
            records.append(
                Record(
                    world=study.world.name,
                    protocol=self.name,
                    agent=name,
                    metric=f"hr@{own.k}",
                    value=value,
                    low=low,
                    high=high,
                    level=study.level,
                    n=n,
                    seconds=time.perf_counter() - began,
                    details=dict(details),
                )
            )
        return records

    def title(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.title`."""
        return f"leave-one-out ({self._words()})"

    def heading(self, metric: str) -> str:
        """See :meth:`recsim_mnar.protocols.base.Protocol.heading`."""
        return f"{metric.upper()}, {self._words()}"

    def _words(self) -> str:
        """With the parameters asked for, which tell two of a kind apart."""
        return ", ".join([self.words, *self.name.split("+")[1:]])


class UnweightedLOO(WeighedLeaveOneOut):
    """A user by P(u), then one of their items by P(i|u).

    See :class:`recsim_mnar.protocols.temporal.weighting_schemes.Unweighted`.

    Args:
        users: ``uniform``, or ``edges``, which draws one of all pairs.
        half_life: days after which an item counts half as much in P(i|u); 0 counts all alike.
    """

    name = "unweighted"
    summary = "leave-one-out, unweighted: a user, then one of their items (campaigns)"
    words = "unweighted"

    def __init__(self, users: str = "uniform", half_life: float = 0.0) -> None:
        self.weighs_by = schemes.Unweighted(users, half_life)


class WeightedLOO(WeighedLeaveOneOut):
    """Item weights that give back the items' probabilities at the reference time (de Myttenaere et al. 2015).

    Args:
        p: how many weights are optimised; 0 for all items.
    """

    name = "weights"
    summary = "leave-one-out, item weights optimised against campaigns (campaigns)"
    words = "weighted"

    def __init__(self, p: int = 0) -> None:
        self.weighs_by = schemes.Weights(p)


class AtReferenceLOO(WeighedLeaveOneOut):
    """Unweighted, on the data as they were at the reference time."""

    name = "at-t0"
    summary = "leave-one-out on the data of before the campaigns (campaigns)"
    words = "before campaigns"
    weighs_by = schemes.AtReference()


class ItemFirstLOO(WeighedLeaveOneOut):
    """An item by its probability at the reference time, then one of its holders."""

    name = "item-first"
    summary = "leave-one-out, an item by its former share, then a holder (campaigns)"
    words = "item first"
    weighs_by = schemes.ItemFirst()


class StratifiedRecallLOO(WeighedLeaveOneOut):
    """Pairs by the item's popularity to the power of -beta (Steck 2011).

    Args:
        beta: 0 counts pairs alike, 1 items.
    """

    name = "stratified-recall"
    summary = "leave-one-out, popularity-stratified recall of Steck 2011 (campaigns)"
    words = "stratified recall"

    def __init__(self, beta: float = 0.5) -> None:
        self.weighs_by = schemes.StratifiedRecall(beta)


class PopularitySNIPSLOO(WeighedLeaveOneOut):
    """Self-normalised inverse propensities from popularity (Yang et al. 2018).

    Args:
        gamma: exponent of the observation's power law.
    """

    name = "snips"
    summary = "leave-one-out, popularity propensities of Yang et al. 2018 (campaigns)"
    words = "popularity SNIPS"

    def __init__(self, gamma: float = 1.5) -> None:
        self.weighs_by = schemes.PopularitySNIPS(gamma)


class WTDLOO(WeighedLeaveOneOut):
    """Test pairs by P_MAR / P_MNAR (Carraro & Bridge 2020)."""

    name = "wtd"
    summary = "leave-one-out, pairs weighted as Carraro & Bridge 2020 (campaigns)"
    words = "WTD"
    weighs_by = schemes.WTD()


class AloneLOO(WeighedLeaveOneOut):
    """Only what users added alone, as the log says.

    See :class:`recsim_mnar.protocols.temporal.weighting_schemes.Alone`.

    Args:
        learn: 1: recommenders learn from that alone, too; 0: from everything.
    """

    name = "alone"
    summary = "leave-one-out on what users added alone, as the log says (campaigns)"
    words = "added alone"

    def __init__(self, learn: int = 0) -> None:
        self.weighs_by = schemes.Alone(learn)


class AloneEstimatedLOO(WeighedLeaveOneOut):
    """The same where the log does not say it.

    See :class:`recsim_mnar.protocols.temporal.weighting_schemes.AloneEstimated`.

    Args:
        days: of the campaigns, ``330/430``; the world's own by default.
        learn: as in :class:`AloneLOO`.
        window: days in which a campaign's additions come.
        draw: seed of the draws.
    """

    name = "alone-estimated"
    summary = "leave-one-out on what users added alone, estimated from jumps (campaigns)"
    words = "added alone, estimated"

    def __init__(self, days: str | float = "", learn: int = 0, window: int = 30, draw: int = 0) -> None:
        self._of_the_world = days == ""
        self._others = learn, window, draw
        self.weighs_by = schemes.AloneEstimated(0.0 if self._of_the_world else days, *self._others)

    def scheme(self, study: Trial) -> schemes.Scheme:
        """See :meth:`WeighedLeaveOneOut.scheme`."""
        if not self._of_the_world:
            return self.weighs_by
        return schemes.AloneEstimated(study.data.platform.world.campaign_days(), *self._others)


class StructureLOO(WeighedLeaveOneOut):
    """Weights of pairs that give back how predictable they were at t0.

    See :class:`recsim_mnar.protocols.temporal.weighting_schemes.StructureWeights`.

    Args:
        bins: of the support.
    """

    name = "structure"
    summary = "leave-one-out, pairs as predictable as before the campaigns (campaigns)"
    words = "structure weights"

    def __init__(self, bins: int = 10) -> None:
        self.weighs_by = schemes.StructureWeights(bins)


class RandomPhaseLOO(WeighedLeaveOneOut):
    """Only what users accepted in a further campaign of random items, on the same platform."""

    name = "random-phase"
    summary = "leave-one-out on what a further, random campaign made users add (campaigns)"
    words = "random campaign"

    def scheme(self, study: Trial) -> schemes.Scheme:
        """See :meth:`WeighedLeaveOneOut.scheme`."""
        return schemes.RandomPhase(len(study.data.platform.campaigns))

    def log(self, study: Trial) -> Log:
        """A platform of its own, which the random campaign has changed."""
        own, sizes = study.data, study.settings
        world = own.platform.world
        day = sizes.random_day or world.params.n_days - 20
        found: Log = own.campaigns.log_with_random_campaign(world, study.test_seed, day=day, share=sizes.random_share)
        return found

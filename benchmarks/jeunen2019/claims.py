"""Three claims of Jeunen, Rohde & Vasile 2019 that need runs of their own.

    python benchmarks/jeunen2019/claims.py [--split-catalogues N] [--size-catalogues N] [--clip-catalogues N] [--quick]
        [--out DIR]

- Leave-one-out with a random view held out and with the last one (``--split-catalogues``): the remark that a split by
  time makes no significant difference.
- Clipped IPS of Random on logs of a quarter, one and four times the paper's users (``--size-catalogues``): the reason
  given for its failure, "an insufficient sample size".
- Clipped IPS with other largest weights M (``--clip-catalogues``, the study's own): what "properly tuned" can mean.

Catalogues are kept in ``--out``, one file each, so that an interrupted run is taken up. Of no catalogues a part is not
run, and its results stay as they are.
"""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from analysis import over_catalogues, paper_interval, ratio_of_means
from scipy import stats
from tables import DESCRIBED, HERE, keep, once, parser_of, results_of, settings

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.log.table import Log
from recsim_mnar.policies import registry
from recsim_mnar.protocols.base import Trial
from recsim_mnar.protocols.comparison import compare
from recsim_mnar.protocols.decisions import Settings
from recsim_mnar.protocols.off_policy import OffPolicy, off_policy
from recsim_mnar.protocols.records import Record
from recsim_mnar.replays.truth import policies_on_log
from recsim_mnar.simulation import simulate
from recsim_mnar.worlds import make_world

SIZES = {"jeunen2019-text": Settings(), "quick": Settings(train_users=500, test_users=500, arm_users=500)}
CLIPS, NO_CLIP = (1.0, 2.0, 5.0, 15.0, 50.0, 150.0, 500.0), "infinity"
TIMES = (0.25, 1.0, 4.0)  # the paper's test users, of the logs by size


def split_of(catalogue: int, agents: list[str], preset: str) -> dict[str, Any]:
    """HR@1 of each agent where a random view of each user is held out, and where the last one is."""
    world = make_world("sessions", preset, [f"catalogue_seed={catalogue}"])
    policy = registry.learner("random").fit(Log({}), n_items=world.n_items)
    log = simulate(world, policy, SIZES[preset].test_users, 2000 + catalogue).organic()
    user = log["user"]
    last = np.flatnonzero(np.concatenate([user[1:] != user[:-1], [True]]))
    first = np.concatenate([[0], last[:-1] + 1])
    many = last > first
    first, last = first[many], last[many]
    drawn = first + (rng.uniforms(catalogue, rng.Stream.PROTOCOL, user[first], 0) * (last - first + 1)).astype(np.int64)
    out: dict[str, Any] = {"users": len(last)}
    for agent in agents:
        out[agent] = [
            float(hit_shares(log, registry.learner(agent), held, world.n_items).mean()) for held in (drawn, last)
        ]
    return out


def sizes_of(catalogue: int, agents: list[str], preset: str) -> dict[str, Any]:
    """Clipped IPS of Random, its mean weight and its A/B CTR, on test logs of each size."""
    world = make_world("sessions", preset, [f"catalogue_seed={catalogue}"])
    out = {}
    for times in TIMES:
        users = int(times * SIZES[preset].test_users)
        found = compare(
            world, {"random": registry.learner("random")}, protocols=("off_policy", "ab_test"),
            settings=replace(SIZES[preset], test_users=users, truth_users=50), seed=3000 + catalogue,
        )  # fmt: skip
        cells = {(r.protocol, r.metric): r.to_dict() for r in found.records}
        one = cells["off_policy", "clipped_ips"]
        out[f"{times:g}"] = {
            "users": users, "estimate": one["value"], "mean_weight": one["details"]["mean_weight"],
            "ctr": cells["ab_test", "ctr"]["value"],
        }  # fmt: skip
    return out


class EveryClip(OffPolicy):
    """Clipped IPS of every agent with every largest weight of :data:`CLIPS`, from one replay of the log."""

    def judge(self, study: Trial) -> list[Record]:
        """The records of the comparison's own M; ``found`` has value and cell 7's interval by M and agent."""
        log = study.log()
        asked = (study.world, log, study.policies, study.logging_policy, study.test_seed)
        given: Any = {"logging": study.logging_policy, "replayed": policies_on_log(*asked)}
        names = ("clipped_ips", "ips")
        self.found: dict[str, dict[str, list[float]]] = {}
        for clip in CLIPS:
            records = off_policy(log, study.policies, estimators=names, clip=clip, **given)
            cells = {(r.agent, r.metric): r.to_dict() for r in records}
            for agent in study.policies:
                clipped, ips = (cells[agent, name] for name in names)
                for name, row in ((f"{clip:g}", clipped), (NO_CLIP, ips)):
                    self.found.setdefault(name, {})[agent] = [row["value"], *paper_interval(row, ips)]
        return off_policy(log, study.policies, estimators=names[:1], clip=study.settings.clip, **given)


def clips_of(catalogue: int, agents: list[str], preset: str) -> dict[str, Any]:
    """Clipped IPS by M, and the CTRs, of one of the study's own catalogues."""
    world = make_world("sessions", preset, [f"catalogue_seed={catalogue}"])
    judged = EveryClip()
    learners = {agent: registry.learner(agent) for agent in agents}
    first_seed = settings()["first_seed"]
    found = compare(world, learners, protocols=(judged, "ab_test"), settings=SIZES[preset], seed=first_seed + catalogue)
    cells = {(r.agent, r.protocol, r.metric): r.value for r in found.records}
    ctr, true = ({a: cells[a, protocol, "ctr"] for a in agents} for protocol in ("ab_test", "truth"))
    return {"clips": judged.found, "ctr": ctr, "true": true}


def hit_shares(log: Log, learner: Any, held: Any, n_items: int) -> Any:
    """(n,) probability that each held-out row's item is ranked first by an agent fitted without these rows."""
    kept = np.ones(len(log), bool)
    kept[held] = False
    rest = log.select(kept)
    policy = learner.fit(rest, n_items=n_items, seed=0)
    users, hits = log["user"][held], np.empty(len(held))
    for begin in range(0, len(users), 500):
        some = users[begin : begin + 500]
        rows = rest.select(np.isin(rest["user"], some))
        views = rows["event"] == schema.ORGANIC
        policy.reset_training_users(some, some)
        policy.observe(rows["user"][views], rows["item"][views])
        scores = np.asarray(policy.scores(some), np.float64)
        own = scores[np.arange(len(some)), log["item"][held[begin : begin + 500]]][:, None]
        best = (scores > own).sum(axis=1) == 0
        hits[begin : begin + len(some)] = best / np.maximum((scores == own).sum(axis=1), 1)
        policy.forget(some)
    return hits


# -------------------------------------------------------------------------------------------------- over catalogues


def splits(found: list[dict[str, Any]], agents: list[str]) -> dict[str, Any]:
    """HR@1 by either split, their difference as a share and its paired test over catalogues; tau of the rankings."""
    out: dict[str, Any] = {}
    for a in agents:
        random, last = (np.array([one[a][k] for one in found]) for k in (0, 1))
        test = stats.ttest_rel(random, last) if len(found) > 1 and np.any(random != last) else None
        p = None if test is None else float(test.pvalue)
        change = ratio_of_means(last, random)
        out[a] = {"random": float(random.mean()), "last": float(last.mean()), "p": p, "change": change}
    taus = [float(stats.kendalltau([one[a][0] for a in agents], [one[a][1] for a in agents])[0]) for one in found]
    return {"agents": out, "tau": float(np.mean(taus)), "catalogues": len(found)}


def by_size(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over catalogues of Random's clipped IPS by its A/B CTR, and of its mean weight, by the log's users."""
    return {
        times: {
            "users": found[0][times]["users"],
            "of the CTR": over_catalogues([one[times]["estimate"] / one[times]["ctr"] for one in found], 0.0),
            "mean weight": over_catalogues([one[times]["mean_weight"] for one in found], 0.0),
        }
        for times in found[0]
    }


def by_clip(found: list[dict[str, Any]], sets: dict[str, list[str]]) -> dict[str, Any]:
    """What clipped IPS with each M says of each agent, and how it ranks each set of methods."""
    out: dict[str, Any] = {"catalogues": len(found), "agents": {}, "tau": {}}
    for clip in [*(f"{clip:g}" for clip in CLIPS), NO_CLIP]:
        cells = [(one["clips"][clip], one["ctr"], one["true"]) for one in found]
        out["agents"][clip] = {
            agent: over_catalogues((own[agent][0] / true[agent] for own, _, true in cells), 0.0)
            for agent in found[0]["true"]
        }
        out["tau"][clip] = {name: ranks(cells, members) for name, members in sets.items()}
    return out


def ranks(cells: list[Any], agents: list[str]) -> dict[str, Any]:
    """Kendall's tau with the A/B test of values and of upper bounds, over catalogues."""
    out = {}
    for what, place in (("values", 0), ("upper bounds", 2)):
        taus = [stats.kendalltau([own[a][place] for a in agents], [ctr[a] for a in agents])[0] for own, ctr, _ in cells]
        out[what] = over_catalogues(map(float, taus), -1.0, 1.0)
    return out


def main() -> int:
    parser = parser_of(__doc__, quick="the small preset", out="runs/jeunen2019-claims, of catalogues")
    parser.add_argument("--split-catalogues", type=int, default=96, help="of the split by time")
    parser.add_argument("--size-catalogues", type=int, default=6, help="of Random by the log's size; five at least")
    parser.add_argument("--clip-catalogues", type=int, default=24, help="of clipped IPS by M; two at least")
    options = parser.parse_args()
    out = options.out or Path(f"runs/jeunen2019-claims{'-quick' if options.quick else ''}")
    read = settings()
    agents = read["sets"][DESCRIBED]
    preset = "quick" if options.quick else read["worlds"][0]["preset"]

    every = list(dict.fromkeys(agent for own in read["sets"].values() for agent in own))

    def kept(name: str, make: Any, n: int, agents: list[str] = agents) -> list[Any]:
        makes = [functools.partial(make, catalogue, agents, preset) for catalogue in range(n)]
        return [once(out / f"{name}-{catalogue:03d}.json", each, finite=False) for catalogue, each in enumerate(makes)]

    folder = out if options.quick else HERE
    found = dict(results_of(folder).get("claims", {}))
    if options.size_catalogues:
        found["sizes"] = by_size(kept("sizes", sizes_of, options.size_catalogues))
    if options.split_catalogues:
        found["splits"] = splits(kept("split", split_of, options.split_catalogues), agents)
    if options.clip_catalogues:
        found["clips"] = by_clip(kept("clips", clips_of, options.clip_catalogues, every), read["sets"])
    keep("claims", found, folder, quick=options.quick)
    print((folder / "results.md").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What Jeunen, Rohde & Vasile 2019 claim, each claim PASS or short, and three that need runs of their own.

    python benchmarks/jeunen2019/claims.py [--catalogues N] [--split-catalogues N] [--size-catalogues N] [--quick]

Reads ``results.json`` and ``published.json``; writes ``claims.md`` and ``claims.json``. Three things it runs, a
catalogue at a time, kept under ``claims/``:

- clipped IPS and the A/B test (``--catalogues``), for the intervals' coverage agent by agent: those whose
  recommendations the logging policy could have shown, and those whose it could not;
- leave-one-out with a random view held out and with the last one (``--split-catalogues``), the paper's remark that a
  split by time makes no significant difference;
- clipped IPS of Random on logs of a quarter, one and four times the paper's users (``--size-catalogues``), the
  paper's reason for its failure: "an insufficient sample size".
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from analysis import over_catalogues, paper_interval, share
from scipy import stats

from recsim_mnar import rng
from recsim_mnar.log import schema
from recsim_mnar.log.files import write_json
from recsim_mnar.log.table import Log
from recsim_mnar.policy import registry, scores_of
from recsim_mnar.protocols.compare import compare
from recsim_mnar.protocols.decisions import Settings
from recsim_mnar.simulate import simulate
from recsim_mnar.worlds import make_world

HERE = Path(__file__).resolve().parent

SIZES = {"jeunen2019": Settings(), "quick": Settings(train_users=500, test_users=500, arm_users=500)}
TIMES = (0.25, 1.0, 4.0)  # the paper's test users, of the logs by size
SUPPORTED = 0.5  # of the mean weight, which is 1 where the log has support everywhere


def estimates_of(catalogue: int, settings: dict[str, Any], preset: str) -> dict[str, Any]:
    """Of each agent: clipped IPS, the paper's interval and ours, mean weight, and the A/B CTR."""
    world = make_world("sessions", preset, [f"catalogue_seed={catalogue}"])
    agents = [*settings["agents"], *settings["references"]]
    found = compare(
        world, {name: registry.learner(name) for name in agents}, protocols=("off_policy", "ab_test"),
        settings=replace(SIZES[preset], truth_users=50), seed=1000 + catalogue,
    )  # fmt: skip
    cells = {(r.agent, r.protocol, r.metric): r.to_dict() for r in found.records}
    out = {}
    for agent in agents:
        one = cells[agent, "off_policy", "clipped_ips"]
        out[agent] = {
            "estimate": one["value"], "ours": [one["low"], one["high"]], "paper": list(paper_interval(one)),
            "mean_weight": one["details"]["mean_weight"], "ctr": cells[agent, "ab_test", "ctr"]["value"],
        }  # fmt: skip
    return out


def split_of(catalogue: int, settings: dict[str, Any], preset: str) -> dict[str, Any]:
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
    for agent in settings["agents"]:
        out[agent] = [
            float(hit_shares(log, registry.learner(agent), held, world.n_items).mean()) for held in (drawn, last)
        ]
    return out


def sizes_of(catalogue: int, settings: dict[str, Any], preset: str) -> dict[str, Any]:
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
        scores = np.asarray(scores_of(policy, some), np.float64)
        own = scores[np.arange(len(some)), log["item"][held[begin : begin + 500]]][:, None]
        best = (scores > own).sum(axis=1) == 0
        hits[begin : begin + len(some)] = best / np.maximum((scores == own).sum(axis=1), 1)
        policy.forget(some)
    return hits


# --------------------------------------------------------------------------------------------------------- the claims


def coverage(found: list[dict[str, Any]], published: dict[str, Any], agents: list[str]) -> dict[str, Any]:
    """Coverage and ranking by upper bound of the agents that the log supports, and of those that it does not."""
    weight = {a: float(np.mean([one[a]["mean_weight"] for one in found])) for a in found[0]}
    out: dict[str, Any] = {"mean_weight": weight, "agents": {}, "groups": {}}

    def inside(one: dict[str, Any], which: str) -> bool:
        return bool(one[which][0] <= one["ctr"] <= one[which][1])

    for a in found[0]:
        out["agents"][a] = {which: share([inside(one[a], which) for one in found]) for which in ("paper", "ours")}
    groups = {
        "support": [a for a in agents if weight[a] >= SUPPORTED],
        "none": [a for a in agents if weight[a] < SUPPORTED],
    }
    for name, members in groups.items():
        row: dict[str, Any] = {"agents": members}
        if members:
            row["coverage"] = share([inside(one[a], "paper") for one in found for a in members])
        if len(members) > 1:
            taus = [
                float(stats.kendalltau([one[a]["paper"][1] for a in members], [one[a]["ctr"] for a in members])[0])
                for one in found
            ]
            row["tau_by_upper_bound"] = over_catalogues(taus)
        told = [published["agents"][a] for a in members if published["agents"][a].get("clipped_ips_low") is not None]
        row["published"] = [sum(t["clipped_ips_low"] <= t["ctr"] <= t["clipped_ips_high"] for t in told), len(told)]
        out["groups"][name] = row
    return out


def splits(found: list[dict[str, Any]], agents: list[str]) -> dict[str, Any]:
    """HR@1 by either split and the paired test of their difference over catalogues; Kendall's tau of the rankings."""
    out: dict[str, Any] = {}
    for a in agents:
        random, last = (np.array([one[a][k] for one in found]) for k in (0, 1))
        test = stats.ttest_rel(random, last) if len(found) > 1 and np.any(random != last) else None
        p = None if test is None else float(test.pvalue)
        out[a] = {"random": float(random.mean()), "last": float(last.mean()), "p": p}
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


def sizes(settings: dict[str, Any], figures: dict[str, Any], counts: dict[str, Any]) -> list[tuple[str, float, int]]:
    """Rows of the logs by the analytic expectation, times what the study counted, beside the paper's."""
    world: Any = make_world("sessions", settings["preset"])
    preset = SIZES[settings["preset"]]
    out = []
    for text, users, agent, told in (
        ("training", preset.train_users, "random", (40_000, 160_000)),
        ("test", preset.test_users, preset.logging, (100_000, 390_000)),
    ):
        expected = world.expected_events(figures[f"{agent} truth ctr"]["mean"])
        for k, kind in enumerate(("organic", "bandit")):
            out.append((f"{text} log, {kind} rows", users * expected[k] * counts[kind]["mean"], told[k]))
    return out


def protocols(result: dict[str, Any], settings: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Kendall's tau with the CTR of leave-one-out and of clipped IPS' upper bounds (the paper's interval).

    The mean of the catalogues' taus; leave-one-out of the notebook's methods, of the means over catalogues.
    """
    name = "2 Kendall's tau of that ranking with the A/B ranking (the paper's interval)"
    figures = result["figures"]
    notebook = settings["notebook_agents"]
    hr, ctr = ([figures[f"{a} {key}"]["mean"] for a in notebook] for key in ("loocv hr@1", "ab_test ctr"))
    return [
        ("as described", result["protocols"]["loocv"]["kendall_tau"]["mean"], result["claims"][name]["mean"]),
        ("as the notebook has them", float(stats.kendalltau(hr, ctr)[0]), result["claims_notebook"][name]["mean"]),
    ]


def checks(result: dict[str, Any], published: dict[str, Any], settings: dict[str, Any]) -> dict[str, bool | None]:
    """Each claim; None where it was not run."""
    figures, agents = result["figures"], settings["agents"]
    out: dict[str, bool | None] = {}
    for text, ours, told in sizes(settings, figures, result["counts"]):
        out[f"section 3: {text} {ours:,.0f}, published about {told:,} (within 12 %)"] = abs(ours / told - 1) <= 0.12
    for agent in agents:
        told = published["agents"][agent]["ctr"] * published["phantom_row"]
        ours = figures[f"{agent} ab_test ctr"]
        text = f"{ours['mean']:.5f} [{ours['range_low']:.5f}, {ours['range_high']:.5f}] holds {told:.5f}"
        out[f"Figure 2, A/B CTR of {agent}: range over catalogues {text}"] = (
            ours["range_low"] <= told <= ours["range_high"]
        )
    claims = {"as described": result["claims"], "as the notebook has them": result["claims_notebook"]}
    for how, row in claims.items():
        first = row["1 leave-one-out ranks otherwise than the A/B test"]["share"]
        ratio = row["1 ratio item-knn to random, leave-one-out over A/B test"]["mean"]
        upper = row["2 ranking by the upper bound of clipped IPS (the paper's interval) is the A/B ranking"]["share"]
        held = row["2 the paper's interval of clipped IPS holds the A/B CTR"]["share"]
        third = row["3 clipped IPS of Random is less than half its A/B CTR"]["share"]
        out[f"observation 1, methods {how}: leave-one-out ranks otherwise in {first:.0%} of catalogues"] = first > 0.5
        out[f"observation 1, methods {how}: ratios differ, by {ratio:.0f} times for item-kNN to Random"] = ratio > 2
        out[f'observation 2, methods {how}: the interval holds the CTR "almost always": {held:.0%} (>= 90 %)'] = (
            held >= 0.9
        )
        out[f"observation 2, methods {how}: upper bounds give the A/B ranking in {upper:.0%} of catalogues"] = (
            upper > 0.5
        )
        out[f"observation 3, methods {how}: clipped IPS fails for Random in {third:.0%} of catalogues"] = third > 0.5
    for how, loo, upper in protocols(result, settings):
        text = f"leave-one-out's Kendall's tau with the CTR {loo:.2f}, that of clipped IPS' upper bounds {upper:.2f}"
        out[f"abstract: bandit feedback reflects online performance better, methods {how}: {text}"] = upper > loo
    if "sizes" in result:
        rows = list(result["sizes"].values())
        told = ", ".join(f"{r['of the CTR']['mean']:.3f} with {r['users']:,} users" for r in rows)
        text = "observation 3: a larger log mends clipped IPS of Random: share of its CTR"
        out[f"{text} {told}"] = rows[-1]["of the CTR"]["mean"] > 0.5
    split, covered = result.get("splits"), result.get("coverage")
    text = "no significant difference between a random and a last-item split (paired t, p > .05)"
    if split is None or split["catalogues"] < 2:
        out[f"section 2: {text}: not run"] = None
    else:
        for agent, row in split["agents"].items():
            if row["p"] is not None:
                told = f"HR@1 {row['random']:.4f} and {row['last']:.4f}, p = {row['p']:.3f}"
                out[f"section 2, {agent}: {text}: {told}"] = row["p"] > 0.05
    if covered is None:
        out["observation 2 among the agents that the log supports: not run"] = None
    else:
        for name, label in (("support", "that the log supports"), ("none", "without support")):
            row = covered["groups"][name]
            theirs = "{} of {}".format(*row["published"])
            told = f"{', '.join(row['agents'])}: {row['coverage']['share']:.0%}; the paper's own {theirs}"
            if name == "support":
                out[f"observation 2, agents {label}: the interval holds the CTR (>= 90 %), {told}"] = (
                    row["coverage"]["share"] >= 0.9
                )
            else:
                out[f"observation 2, agents {label}: the interval misses the CTR (< 50 %), {told}"] = (
                    row["coverage"]["share"] < 0.5
                )
    return out


def markdown(result: dict[str, Any], found: dict[str, bool | None]) -> str:
    lines = ["# The claims of Jeunen, Rohde & Vasile 2019", ""]
    covered, split = result.get("coverage"), result.get("splits")
    if covered:
        n = next(iter(covered["agents"].values()))["paper"]["n"]
        lines += [
            f"Coverage of the A/B CTR by clipped IPS, {n} catalogues; a mean weight of 1: full support.",
            "",
        ]
        lines += ["| agent | mean weight | the paper's interval | ours |", "|---|---|---|---|"]
        for a, row in covered["agents"].items():
            cells = [f"{row[w]['share']:.0%}" for w in ("paper", "ours")]
            lines.append(f"| {a} | {covered['mean_weight'][a]:.2f} | {cells[0]} | {cells[1]} |")
        lines.append("")
        for name, row in covered["groups"].items():
            if "tau_by_upper_bound" in row:
                t = row["tau_by_upper_bound"]
                lines.append(
                    f"- agents with {name}: Kendall's tau of the ranking by upper bounds with the A/B test's "
                    f"{t['mean']:.2f} [{t['low']:.2f}, {t['high']:.2f}]"
                )
        lines.append("")
    if split:
        lines += [f"HR@1 by a random view and by the last one, {split['catalogues']} catalogues; Kendall's tau of the"]
        lines += [f"two rankings {split['tau']:.2f}.", "", "| agent | random | last | p |", "|---|---|---|---|"]
        for a, row in split["agents"].items():
            p = "-" if row["p"] is None else f"{row['p']:.3f}"
            lines.append(f"| {a} | {row['random']:.4f} | {row['last']:.4f} | {p} |")
        lines.append("")
    if "sizes" in result:
        lines += ["Clipped IPS of Random by the size of the test log:", ""]
        lines += ["| users | clipped IPS / CTR | mean weight |", "|---|---|---|"]
        for row in result["sizes"].values():
            cells = [
                f"{row[k]['mean']:.4f} [{row[k]['low']:.4f}, {row[k]['high']:.4f}]"
                for k in ("of the CTR", "mean weight")
            ]
            lines.append(f"| {row['users']:,} | {' | '.join(cells)} |")
        lines.append("")
    marks = {True: "PASS ", False: "short", None: "     "}
    lines += ["```", *(f"{marks[ok]} {text}" for text, ok in found.items()), "```", ""]
    ran = [ok for ok in found.values() if ok is not None]
    return "\n".join([*lines, f"{sum(ran)} of {len(ran)} checks pass."])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--catalogues", type=int, default=0, help="of the coverage by agent; two at least")
    parser.add_argument("--split-catalogues", type=int, default=0, help="of the split by time")
    parser.add_argument("--size-catalogues", type=int, default=0, help="of Random by the log's size; two at least")
    parser.add_argument("--quick", action="store_true", help="the small preset")
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    out = options.out or (Path("runs/jeunen2019-quick") if options.quick else HERE)
    read = tomllib.loads((HERE / "settings.toml").read_text())
    settings = {**read["worlds"][0], **read["analysis"]}
    published = json.loads((HERE / "published.json").read_text())
    result = json.loads((HERE / "results.json").read_text())
    preset = "quick" if options.quick else settings["preset"]

    def kept(name: str, make: Any, n: int) -> list[Any]:
        for catalogue in range(n):
            path = out / "claims" / f"{name}-{catalogue:03d}.json"
            if not path.exists():
                write_json(path, make(catalogue, settings, preset))
                print(f"{name} {catalogue} done", flush=True)
        return [json.loads(path.read_text()) for path in sorted((out / "claims").glob(f"{name}-*.json"))]

    estimates, splitted = (
        kept("estimates", estimates_of, options.catalogues),
        kept("split", split_of, options.split_catalogues),
    )
    if len(estimates) > 1:  # one has no interval
        result["coverage"] = coverage(estimates, published, settings["agents"])
    sized = kept("sizes", sizes_of, options.size_catalogues)
    if len(sized) > 1:
        result["sizes"] = by_size(sized)
    if splitted:
        result["splits"] = splits(splitted, settings["agents"])
    found = checks(result, published, settings)
    write_json(
        out / "claims.json", {"checks": found, **{k: result[k] for k in ("coverage", "splits", "sizes") if k in result}}
    )
    text = markdown(result, found)
    (out / "claims.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

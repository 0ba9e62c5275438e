"""The study's page: every claim of the paper next to our figure, and the tables behind it, from ``results.json``."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))

import _study
from _study import interval
from _study import once as once
from _study import parser_of as parser_of
from _study import resumed as resumed
from analysis import LIKE_WITH_LIKE, SUPPORTED, less, share
from scipy import stats

from recsim_mnar.worlds import make_world

HERE = Path(__file__).resolve().parent
NOMINAL = 0.9975
"""Coverage that cell 7 aims at."""
SMALL = 0.05
"""A change of a hit rate, as a share of it, up to which two splits count as one."""
TUNED = 0.1
"""A bias, as a share of the CTR, up to which an estimate represents it accurately."""
DESCRIBED, TRAINED, NOTEBOOK = "as described", "the notebook's, Popularity trained", "the notebook's"


def results_of(folder: Path = HERE) -> dict[str, Any]:
    """The results of all parts made so far."""
    return dict(_study.read(folder / "results.json"))


def keep(section: str, found: Any, folder: Path = HERE, *, quick: bool = False) -> None:
    """Put one part into a folder's ``results.json``, and write its ``results.md`` anew."""
    results = results_of(folder) | {section: found}
    text = page(results, json.loads((HERE / "published.json").read_text()))
    if quick:
        text = f"A slice of few users and items. Published values are of the full size.\n\n{text}"
    _study.write_results(folder / "results.json", results, 8)
    _study.write_text(folder / "results.md", text)


def settings() -> dict[str, Any]:
    """The study's settings, as its analysis reads them."""
    read = _study.settings_of(HERE)
    return {**read, **read["analysis"]}


# --------------------------------------------------------------------------------------------------------- the claims


class Claim(NamedTuple):
    """One row of the claims table; ``holds`` is None where it was not run."""

    quantity: str
    definition: str
    published: str
    ours: str
    holds: bool | None
    remark: str = ""

    def cells(self) -> list[str]:
        verdict = "not run" if self.holds is None else _study.word(self.holds)
        return [*self[:4], f"{verdict}{': ' if self.remark else ''}{self.remark}"]


def claims(results: dict[str, Any], published: dict[str, Any]) -> list[Claim]:
    """Every claim and figure of the paper."""
    found: list[Claim] = []
    if "source" in results:
        same = {name: all(parts.values()) for name, parts in results["source"].items()}
        ours = "; ".join(f"{name}: {'equal' if equal else 'differs'}" for name, equal in same.items())
        text = "catalogue and rows of the first 200 users against RecoGym's own code, compared once (README: made once)"
        found.append(Claim("the authors' environment, drawn without RecoGym", text, "-", ours, all(same.values())))
    if "authors" in results:
        found += sizes(results, published)
        found += notebook(results["authors"], published)
    if "catalogues" in results:
        study = results["catalogues"]
        found += over_catalogues(study, published)
        found += observations(study, published)
        if "clips" in results.get("claims", {}):
            found += tuned(results["claims"]["clips"], study, list(published["agents"]))
    return [*found, *further(results)]


def beside(authors: dict[str, Any]) -> list[str]:
    """The notebook's figures, published and ours: one row each."""
    rows = notebook(authors, json.loads((HERE / "published.json").read_text()))
    return table(["quantity", "published", "ours", "verdict"], [[*row[:1], *row[2:4], row.cells()[-1]] for row in rows])


def sizes(results: dict[str, Any], published: dict[str, Any]) -> Iterator[Claim]:
    """Rows of the logs under the uniform policy, by the analytic expectation less what July's generator drops."""
    world: Any = make_world("sessions", "jeunen2019")
    leave, away = world.params.p_leave_organic, world.params.p_leave_organic + world.params.p_organic_to_bandit
    organic, bandit = world.expected_events(0.01005)
    dropped = (organic * leave - leave / away) / away  # of who leaves while browsing, but for the first session
    kept = {"organic": organic - dropped, "bandit": bandit + leave / away}
    where = {
        "train": "section 3, 'roughly 40 000 organic ... and 160 000 bandit'; cell 3",
        "uniform": "section 3; cell 17",
    }
    for name, row in published["rows"].items():
        if row["organic"] is None:
            continue
        for k, kind in enumerate(("organic", "bandit")):
            expected, half = row["users"] * kept[kind], 1.96 * results["authors"]["rows"][name][f"{kind}_sd"]
            yield Claim(
                f"{kind} rows of {row['users']:,} users, uniform policy",
                where[name],
                f"{row[kind]:,} (text: {row['paper'][k]:,})",
                f"the same log: {results['authors']['rows'][name][kind]:,}; expected {expected:,.0f} "
                f"[{expected - half:,.0f}, {expected + half:,.0f}]"
                + (f", {row['users'] * organic:,.0f} before what July drops" if kind == "organic" else ""),
                results["authors"]["rows"][name][kind] == row[kind] and abs(row[kind] - expected) <= half,
            )


def notebook(authors: dict[str, Any], published: dict[str, Any]) -> Iterator[Claim]:
    """The notebook's tables on its own logs."""
    for name, theirs in published["agents"].items():
        ours = authors["agents"][name]
        value, half = ours["hr@1"][0], 1.96 * ours["sd"]
        whole = round(theirs["hr@1"][0] * ours["trials"]) / ours["trials"]  # printed to six decimals
        as_printed = six([whole, *row_limits(whole, ours["trials"])]) == six(theirs["hr@1"])
        yield Claim(
            f"HR@1 of {name}",
            "Figure 1; cells 5 and 20: fitted once on the training users; of each uniformly logged user but the last a "
            "view, drawn ten times without a seed; value +- 1.96 s / root of the trials",
            six(theirs["hr@1"]),
            f"expected {six(ours['hr@1'])}; over their draws [{value - half:.6f}, {value + half:.6f}]",
            as_printed and abs(theirs["hr@1"][0] - value) <= half,
            "the value within their draws; its limits by the rule, to the digit" if as_printed else "",
        )
    for metric, cell in (("clipped_ips", "Figure 2, M = 15; cells 7 and 23"), ("ips", "cell 23, not in the paper")):
        for name, theirs in published["agents"].items():
            ours = six(authors["agents"][name][metric])
            quantity = f"{metric.replace('_', ' ').replace('ips', 'IPS')} of {name}"
            yield Claim(quantity, cell, six(theirs[metric]), ours, ours == six(theirs[metric]))
    for name, theirs in published["agents"].items():
        ours = authors["agents"][name]["ctr"]
        holds, remark = six(ours) == six(theirs["ctr"]), ""
        if name == "random":
            holds = ours[1] <= theirs["ctr"][0] <= ours[2]
            remark = "the seed of its stream is drawn when RecoGym is imported (cell 15); their value in our interval"
        definition = "Figure 2, 'as measured through a simulated A/B-test'; cell 25, Beta(clicks + 1, misses + 1)"
        low, high = authors["agents"][name]["by_user"][1:]
        shown = f"{six(ours)}; our interval, by user [{low:.6f}, {high:.6f}]"
        yield Claim(f"A/B CTR of {name}", definition, six(theirs["ctr"]), shown, holds, remark)


def row_limits(rate: float, trials: int) -> list[float]:
    """The notebook's limits of a hit rate (cell 5): the normal law, trials as independent."""
    half = 1.96 * math.sqrt(rate * (1.0 - rate) / trials)
    return [rate - half, rate + half]


def over_catalogues(study: dict[str, Any], published: dict[str, Any]) -> Iterator[Claim]:
    """The published figures next to ours over catalogues."""
    names = list(published["agents"])
    agents = [pair for own in (NOTEBOOK, DESCRIBED) for pair in zip(names, agents_of(own, names), strict=True)]
    for metric, label, figure in (("hr@1", "HR@1", "Figure 1"), ("ctr", "A/B CTR", "Figure 2")):
        for name, agent in dict.fromkeys(agents):
            row, reported = study["figures"][agent][metric], published["agents"][name][metric][0]
            yield Claim(
                f"{label} of {name}, over catalogues: {agent}",
                f"{figure}; {study['catalogues']} other catalogues",
                f"{reported:.5f}",
                f"{row['mean']:.5f}, range {row['range_low']:.5f} to {row['range_high']:.5f}",
                row["range_low"] <= reported <= row["range_high"],
                f"{row['mean'] / reported - 1:+.1%}" if metric == "ctr" else "",
            )


def agents_of(own: str, names: list[str]) -> list[str]:
    """The agents of a set in the order of the published names."""
    by_name = dict(zip(settings()["sets"][DESCRIBED], settings()["sets"][own], strict=True))
    return [by_name[name] for name in names]


def observations(study: dict[str, Any], published: dict[str, Any]) -> Iterator[Claim]:
    """The three observations and the abstract, by set of methods."""
    agents = published["agents"].values()
    held = sum(a["clipped_ips"][1] <= a["ctr"][0] <= a["clipped_ips"][2] for a in agents)
    for name in (TRAINED, DESCRIBED, NOTEBOOK):
        row = study["observations"][name]
        methods = f"methods: {name}"
        yield observation_1_ranking(row, methods)
        yield from ratios(row, published["agents"], methods)
        wide = [study["coverage"][a]["ours width"]["mean"] for a in row["agents"][:2]]
        yield Claim(
            f"observation 2, coverage ({methods})",
            "'their true CTR value is almost always captured'; cell 7's interval, nominally 99.75 %; by catalogue",
            f"{held} of {len(agents)} in its own Figure 2",
            f"the A/B CTR in {interval(row['holds paper'], '.1%')}, the true one in "
            f"{interval(row['holds the true CTR paper'], '.1%')}; our interval {interval(row['holds ours'], '.1%')} "
            f"and {interval(row['holds the true CTR ours'], '.1%')}, but {wide[0]:.1f} and {wide[1]:.1f} times as wide "
            f"as the CTR for {row['agents'][0]} and {row['agents'][1]}",
            row["holds paper"]["mean"] >= 0.9,
        )
        yield Claim(
            f"observation 2, ranking ({methods})",
            "'When ranking competing algorithms according to their upper confidence bound, we are able to infer the "
            "true ranking'; PASS where the lower limit is above a half",
            "the A/B ranking",
            f"the true ranking in {proportion(row['true ranking upper bounds'])} of catalogues, the A/B test itself in "
            f"{proportion(row['true ranking A/B test'])}; the A/B ranking in "
            f"{proportion(row['same ranking upper bounds'])}, Kendall's tau {interval(row['tau upper bounds'], '.2f')}",
            row["true ranking upper bounds"]["low"] > 0.5,
        )
        yield from abstract(row, methods)
    yield general(study["observations"])
    for name, pairs in supported(study, list(published["agents"])).items():
        rows = [study["coverage"][agent]["paper"] for agent in pairs.values()]
        true = [study["coverage"][agent]["paper, the true CTR"] for agent in pairs.values()]
        found, of_true = pooled(rows), pooled(true)
        theirs = [published["agents"][reported] for reported in pairs]
        own = sum(a["clipped_ips"][1] <= a["ctr"][0] <= a["clipped_ips"][2] for a in theirs)
        p = stats.binomtest(of_true["hits"], of_true["n"], NOMINAL, alternative="less").pvalue
        yield Claim(
            f"observation 2, coverage, agents {name} ({', '.join(pairs.values())})",
            f"as above; support: mean weight of at least {SUPPORTED:g}; exact limits; p of so few or fewer at the "
            f"nominal {NOMINAL:.2%}, of the true CTR: an A/B rate has an error of its own",
            f"{own} of {len(pairs)}",
            f"the true CTR in {counted(of_true)}, p = {p:.2g}; the A/B CTR in {counted(found)}",
            of_true["share"] >= 0.9,
            f"below the nominal {NOMINAL:.2%}" if p < 0.05 else f"nothing known against the nominal {NOMINAL:.2%}",
        )
    widths = {a: study["coverage"][a]["paper width"]["mean"] for a in ("user-popularity", "svd", "user-knn")}
    theirs = {a: (v["clipped_ips"][2] - v["clipped_ips"][1]) / v["ctr"][0] for a, v in published["agents"].items()}
    yield Claim(
        "observation 2, width",
        "'Although these intervals are wide'; width over the CTR",
        ", ".join(f"{theirs[a]:.2f} ({a})" for a in widths),
        ", ".join(f"{width:.2f} ({a})" for a, width in widths.items()),
        max(widths.values()) > 0.2,
        "of a log of this size, whatever recommends",
    )
    missed = study["observations"][DESCRIBED]["random missed"]
    yield Claim(
        "observation 3",
        "'CIPS fails to accurately predict online performance for the Random baseline'",
        f"{published['agents']['random']['clipped_ips'][0]:.5f} against {published['agents']['random']['ctr'][0]:.5f}",
        f"below half its CTR in {proportion(missed)} of catalogues",
        missed["share"] > 0.5,
    )


def observation_1_ranking(row: dict[str, Any], methods: str) -> Claim:
    """Leave-one-out's ranking beside the truth's: near equals make the true CTRs, too, differ from an A/B test."""
    others = [1.0 - row[of]["share"] for of in ("same ranking leave-one-out", "true ranking A/B test")]
    further = row["tau of truth less that of leave-one-out"]
    return Claim(
        f"observation 1, ranking ({methods})",
        "'LOOCV generates wildly different results in terms of absolute values, ratios and rankings'; PASS where its "
        "Kendall's tau with the A/B test is below that of the true CTRs",
        "another ranking",
        f"tau {interval(row['tau leave-one-out'], '.2f')}, of the true CTRs {interval(row['tau truth'], '.2f')}, "
        f"difference {interval(further, '+.2f')}; another ranking in {others[0]:.0%} of catalogues, of the true CTRs "
        f"in {others[1]:.0%}",
        further["low"] > 0.0,
    )


def abstract(row: dict[str, Any], methods: str) -> Iterator[Claim]:
    """Values beside values and upper bounds beside upper bounds, each by Kendall's tau with the A/B test."""
    for (ours, theirs), label in zip(LIKE_WITH_LIKE, ("values", "upper bounds"), strict=True):
        tau, other, difference = (
            interval(row[key], form)
            for key, form in ((f"tau {ours}", ".2f"), (f"tau {theirs}", ".2f"), (less(ours, theirs), "+.2f"))
        )
        yield Claim(
            f"abstract, {label} ({methods})",
            "'offline evaluation that more accurately reflects online performance': Kendall's tau with the A/B test, "
            f"{label} of both",
            "stated",
            f"clipped IPS {tau}, leave-one-out {other}, difference {difference}",
            row[less(ours, theirs)]["low"] > 0.0,
        )


def general(observations: dict[str, Any]) -> Claim:
    """Section 3 says that nothing hangs on the models; three sets of models under the same six names say whether."""
    rows = [observations[name] for name in (TRAINED, NOTEBOOK, DESCRIBED)]
    sets = ", ".join((TRAINED, NOTEBOOK, DESCRIBED))
    told = [row["true ranking upper bounds"]["low"] > 0.5 for row in rows]
    covered = [row["holds paper"]["mean"] >= 0.9 for row in rows]
    better = [[row[less(*pair)]["low"] > 0.0 for row in rows] for pair in LIKE_WITH_LIKE]
    ranks = "; ".join(proportion(row["true ranking upper bounds"]) for row in rows)
    differences = ["; ".join(interval(row[less(*pair)], "+.2f") for row in rows) for pair in LIKE_WITH_LIKE]
    return Claim(
        "findings of any model",
        "section 3, 'Our findings, however, are model-agnostic and general': PASS where what upper bounds rank, what "
        "intervals hold and which protocol reflects the A/B test is the same for all sets of methods",
        "stated",
        f"in this order: {sets}. True ranking by upper bounds: {ranks}. A/B CTR held: "
        f"{'; '.join(interval(row['holds paper'], '.1%') for row in rows)}. Tau less leave-one-out's, values: "
        f"{differences[0]}; upper bounds: {differences[1]}",
        all(len(set(each)) == 1 for each in (told, covered, *better)),
        "they hang on the models",
    )


def ratios(row: dict[str, Any], theirs: dict[str, Any], methods: str) -> Iterator[Claim]:
    """Observation 1's absolute values and ratios: as the notebook counts hits, and with ties drawn."""
    rates = [agent["hr@1"][0] / agent["ctr"][0] for agent in theirs.values()]
    least, largest = row["value least"], row["value largest"]
    yield Claim(
        f"observation 1, absolute values ({methods})",
        "as above; HR@1 over the A/B CTR, the least and the largest of the six agents'; PASS where the mean of the "
        "largest is above 2 and that of the least below a half",
        f"{min(rates):.3f} to {max(rates):.2f}",
        f"{interval(least, '.2f')} to {interval(largest, '.2f')}",
        least["high"] < 0.5 and largest["low"] > 2.0,
        "the least by construction: Random's HR@1 is about one item in 2,000, whatever is clicked",
    )
    ctr = theirs["item-knn"]["ctr"][0] / theirs["random"]["ctr"][0]
    n_items = make_world("sessions", "jeunen2019").n_items
    definition = "HR@1 of item-kNN over Random's, by their A/B CTRs' ratio;"
    first, drawn = row["ratio leave-one-out"], row["ratio leave-one-out, refitted"]
    yield Claim(
        f"observation 1, ratio ({methods})",
        f"{definition} fitted once, the lowest index wins ties, so that Random always shows item 0",
        f"{theirs['item-knn']['hr@1'][0] / theirs['random']['hr@1'][0] / ctr:.0f}",
        f"median {first['median']:.3g}, over catalogues {first['least']:.3g} to "
        + ("no hit of Random's" if first["largest"] > 1e6 else f"{first['largest']:.3g}"),
        first["median"] > 2.0,
        "it hangs on how often item 0 is viewed",
    )
    yield Claim(
        f"observation 1, ratio, ties drawn ({methods})",
        f"{definition} refitted, ties drawn, so that Random's is one in {n_items:,}",
        f"{theirs['item-knn']['hr@1'][0] * n_items / ctr:.0f} with that for their Random",
        interval(drawn, ".3g"),
        drawn["low"] > 2.0,
        "it holds wherever views can be predicted, whatever is clicked",
    )


def pooled(rows: list[dict[str, float]]) -> dict[str, Any]:
    """The cells of several agents as one share with exact limits."""
    hits, n = sum(round(row["share"] * row["n"]) for row in rows), sum(int(row["n"]) for row in rows)
    return {**share([True] * hits + [False] * (n - hits), "exact"), "hits": hits}


def counted(row: dict[str, Any]) -> str:
    return f"{row['hits']} of {row['n']}, {row['share']:.1%} [{row['low']:.1%}, {row['high']:.1%}]"


def supported(study: dict[str, Any], names: list[str]) -> dict[str, dict[str, str]]:
    """The notebook's methods, Popularity trained, by published name: those that the log supports, and the others."""
    pairs = dict(zip(names, agents_of(TRAINED, names), strict=True))
    full = {name: study["coverage"][agent]["mean_weight"]["mean"] >= SUPPORTED for name, agent in pairs.items()}
    return {
        "that the log supports": {name: agent for name, agent in pairs.items() if full[name]},
        "without support": {name: agent for name, agent in pairs.items() if not full[name]},
    }


def tuned(clips: dict[str, Any], study: dict[str, Any], names: list[str]) -> Iterator[Claim]:
    """Section 4's "when properly tuned": clipped IPS by its largest weight M, chosen in hindsight."""
    quote = (
        "section 4, 'When properly tuned, counterfactual estimators such as clipped IPS can accurately represent model "
        f"utility in an online setting'; {clips['catalogues']} catalogues;"
    )
    for group, pairs in supported(study, names).items():
        means = {clip: [row[agent]["mean"] for agent in pairs.values()] for clip, row in clips["agents"].items()}
        near = [clip for clip, row in clips["agents"].items() if near_the_truth(row, pairs.values())]
        yield Claim(
            f"M, values, agents {group} ({', '.join(pairs.values())})",
            f"{quote} clipped IPS over the true CTR, the least and the largest of the agents' means; PASS where all "
            f"are within {TUNED:.0%} for some M",
            "M = 15",
            "; ".join(f"M = {clip}: {min(of_true):.2f} to {max(of_true):.2f}" for clip, of_true in means.items()),
            bool(near),
            f"M = {', '.join(near)}" if near else "no M mends what the log does not show",
        )
    for name in (TRAINED, DESCRIBED, NOTEBOOK):
        for label, (_, other) in zip(("values", "upper bounds"), LIKE_WITH_LIKE, strict=True):
            theirs = study["observations"][name][f"tau {other}"]["mean"]
            taus = {clip: row[name][label] for clip, row in clips["tau"].items()}
            above = [clip for clip, tau in taus.items() if tau["low"] > theirs]
            yield Claim(
                f"M, ranking by {label} (methods: {name})",
                f"{quote} Kendall's tau with the A/B test, {label}; PASS where for some M its interval is above "
                "leave-one-out's tau",
                "M = 15",
                "; ".join(f"M = {clip}: {interval(tau, '.2f')}" for clip, tau in taus.items())
                + f"; leave-one-out {theirs:.2f}",
                bool(above),
                f"M = {', '.join(above)}" if above else "no M",
            )


def near_the_truth(row: dict[str, Any], agents: Iterable[str]) -> bool:
    """True where clipped IPS is right of all these agents but for a bias of ``TUNED``."""
    return all(abs(row[agent]["mean"] - 1.0) <= TUNED for agent in agents)


def further(results: dict[str, Any]) -> Iterator[Claim]:
    """What ``claims.py`` runs in addition to the study."""
    ran = results.get("claims", {})
    if "sizes" in ran:
        rows = list(ran["sizes"].values())
        shown = "; ".join(f"{r['users']:,} users {interval(r['of the CTR'], '.4f')}" for r in rows)
        yield Claim(
            "observation 3, the reason",
            "'Due to an insufficient sample size': clipped IPS of Random over its CTR, by the log's size",
            "stated",
            shown,
            rows[-1]["of the CTR"]["mean"] > 0.5,
            f"mean weight {rows[-1]['mean weight']['mean']:.4f}: the log shows no more of what Random would",
        )
    if ran.get("splits", {}).get("catalogues", 0) > 1:
        for agent, row in ran["splits"]["agents"].items():
            if row["p"] is not None:
                change = row["change"]
                near = max(abs(change["low"]), abs(change["high"])) < SMALL
                yield Claim(
                    f"HR@1 of {agent} by a random and by the last view",
                    "section 2, 'experiments showed no significant difference between a random or time-based split'; "
                    f"PASS where the interval of the difference is within {SMALL:.0%}",
                    "no significant difference",
                    f"{row['random']:.4f} and {row['last']:.4f}, {interval(change, '+.2%')}, p = {row['p']:.4f}, "
                    f"{ran['splits']['catalogues']} catalogues",
                    near,
                    ("small, but there; " if near and row["p"] < 0.05 else "") + "items of this world do not change",
                )


# ----------------------------------------------------------------------------------------------------------- the page


def page(results: dict[str, Any], published: dict[str, Any]) -> str:
    """All of it in Markdown."""
    rows = claims(results, published)
    ran = [row.holds for row in rows if row.holds is not None]
    lines = [
        "# Jeunen, Rohde & Vasile 2019: results",
        "",
        f"{sum(ran)} of {len(ran)} checks pass. Intervals are 95 %.",
        "",
    ]
    lines += table(["quantity", "definition", "published", "ours", "verdict"], [row.cells() for row in rows])
    if "catalogues" in results:
        lines += study_tables(results["catalogues"], published)
    if "authors" in results:
        lines += ["## On the authors' User-popularity log", ""]
        lines += [
            "With the notebook's interval. Below the notebook's six: its neighbours where ties fall otherwise, and "
            "this package's own (`our`).",
            "",
        ]
        cells = [[name, six(row["clipped_ips"]), six(row["ips"])] for name, row in results["authors"]["agents"].items()]
        lines += table(["agent", "clipped IPS", "IPS"], cells)
        ties = results["authors"]["ties"]
        lines += [
            f"Of item-kNN the largest scores tie within 1e-9 in {ties['tied']:,} of {ties['states']:,} states of "
            "users: rounding decides which item is shown.",
            "",
        ]
    if "both" in results:
        lines += ["## Agents of the code and of the text", "", "24 catalogues, of seeds 1000 to 1023: `both.py`.", ""]
        for preset, found in results["both"].items():
            lines += [f"Preset `{preset}`:", "", *protocols(list(found["summary"].values()))]
    if "thousand" in results:
        text = "The six agents as described, catalogues 0 to 999, leave-one-out refitted."
        lines += ["## A thousand catalogues", "", text, "", *protocols(results["thousand"]["summary"])]
    return "\n".join(lines).rstrip() + "\n"


def study_tables(study: dict[str, Any], published: dict[str, Any]) -> list[str]:
    """The study over catalogues: figures, what each protocol's choice costs, coverage agent by agent."""
    by_agent = dict(zip(agents_of(NOTEBOOK, list(published["agents"])), published["agents"].values(), strict=True))
    lines = [
        f"## Over {study['catalogues']} catalogues",
        "",
        "Means [95 % range over catalogues], and the notebook's value.",
    ]
    lines += ["HR@1 as the notebook defines it, and refitted in each fold on the judged users' other rows.", ""]
    heads = ["agent", "HR@1", "notebook", "HR@1 refitted", "clipped IPS", "notebook", "A/B CTR", "notebook", "true CTR"]
    cells = []
    for agent, row in study["figures"].items():
        theirs = {m: f"{v[0]:.5f}" for m, v in by_agent.get(agent, {}).items()}
        ours = {m: f"{v['mean']:.5f} [{v['range_low']:.5f}, {v['range_high']:.5f}]" for m, v in row.items()}
        line = [agent]
        for metric in ("hr@1", "hr@1 refitted", "clipped_ips", "ctr", "true ctr"):
            line.append(ours[metric])
            line += [theirs.get(metric, "-")] if metric in ("hr@1", "clipped_ips", "ctr") else []
        cells.append(line)
    lines += table(heads, cells)
    lines += ["### What refitting changes", ""]
    lines += [
        "HR@1 refitted over HR@1 as the notebook defines it, less 1. Agents with next to no hits are left out.",
        "",
    ]
    cells = [
        [agent, f"{row['in all']:+.1%}", interval(row["one-view users left out of both"], "+.1%")]
        for agent, row in study["refitted"].items()
        if study["figures"][agent]["hr@1"]["mean"] > 0.005
    ]
    lines += table(["agent", "in all", "one-view users left out of both"], cells)
    lines += ["### What each protocol's choice costs", "", *protocols(list(study["protocols"].values()))]
    lines += [
        "### Intervals of clipped IPS, agent by agent",
        "",
        "Shares of catalogues in which they hold the A/B CTR, which has an error of its own, and the true one.",
        "",
    ]
    cells = [
        [
            agent,
            f"{row['mean_weight']['mean']:.2f}",
            *(proportion(row[w]) for w in ("paper", "paper, the true CTR", "ours", "ours, the true CTR")),
            *(f"{row[f'{w} width']['mean']:.2f}" for w in ("paper", "ours")),
        ]
        for agent, row in study["coverage"].items()
    ]
    lines += table(
        ["agent", "mean weight", "the paper's", "true", "ours", "true", "the paper's width over the CTR", "ours"], cells
    )
    rows = [f"{kind} {interval(row, '.4f')}" for kind, row in study["counts"].items()]
    return [*lines, f"Rows of the test logs over the analytic expectation: {', '.join(rows)}.", ""]


def protocols(rows: list[dict[str, Any]]) -> list[str]:
    """How often each protocol picks the best agent, and at what cost."""
    heads = ["protocol", "picks the best", "picks a statistical tie", "cost, share of the best CTR", "Kendall's tau"]
    bounds = "best_by_upper_bound"
    cells = [
        [
            row["title"],
            proportion(row["best"]),
            proportion(row["indistinguishable"]),
            interval(row["cost_share"], ".2%"),
            interval(row["kendall_tau"], ".2f"),
            *([proportion(row[bounds])] if bounds in row else []),
        ]
        for row in rows
    ]
    return table([*heads, *(["best by upper bound"] if bounds in rows[0] else [])], cells)


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    return [*_study.table(heads, rows), ""]


def proportion(row: dict[str, float]) -> str:
    return f"{row['share']:.0%} [{row['low']:.0%}, {row['high']:.0%}]"


def six(values: list[float]) -> str:
    return f"{values[0]:.6f} [{values[1]:.6f}, {values[2]:.6f}]"

"""Results of all entries and their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from _study import table
from families_v2 import HONEST
from scipy.stats import binomtest
from scoring import compared, figures, judged, set_threshold, usable, wilson

OURS = ("ours", "ours_caution")
PAIRS = ("difference", "difference_no_facts")
"""Our answers on differences from the baseline, with every fact and with none."""
SHARES = {
    "false_block": "false blocks, of usable",
    "unproved_block": "of logs not proved wrong",
    "false_pass": "false passes, of all",
    "covered_given_accept": "covers, given accept",
}
Found = dict[str, Any]


def gathered(found: dict[Any, Found], names: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Columns of all logs (family, half, value, fit), and each entry's answers, (logs, 4)."""
    columns: dict[str, list] = {"family": [], "half": [], "truth": [], "fit": []}
    for setting, answers in found.items():
        value, of_two = answers["setting"]["value"], np.array(answers["setting"]["estimates"])
        for name, cell in zip(columns, (setting.family, setting.half, value, usable(of_two, value)), strict=True):
            columns[name] += [cell] * len(of_two)
    asked = {name: np.array([row for a in found.values() for row in a[name]], float) for name in names}
    return {name: np.array(values) for name, values in columns.items()}, asked


def results(found: dict[Any, Found], thresholds: dict[str, float]) -> Found:
    """Figures per entry, at its own threshold and at that for 10 % false blocks, and counts per family."""
    logs, answers = gathered(found, thresholds)
    on = {name: judged(logs["truth"], logs["fit"], answers[name], t) for name, t in thresholds.items()}
    wrong = {name: o["block"] | o["pass"] for name, o in on.items()}
    families: dict[str, Found] = {}
    for family in dict.fromkeys(logs["family"]):
        rows = logs["family"] == family
        families[family] = {"logs": int(rows.sum()), "usable": int(logs["fit"][rows].sum()), "entries": {}}
        for name, o in on.items():
            cell = {key: int(o[key][rows].sum()) for key in ("accepted", "block", "pass")}
            cell |= {"errors": int(wrong[name][rows].sum()), "interval_score": float(o["score"][rows].mean())}
            cell["versus"] = [compared(wrong[name][rows], wrong[o][rows], len(thresholds) - len(OURS)) for o in OURS]
            families[family]["entries"][name] = cell
    public = logs["half"] == "public"
    halves = {"public": public, "hidden": ~public, "both": public | True}
    entries = {}
    for name, threshold in thresholds.items():
        part = {half: (logs["truth"][r], logs["fit"][r], answers[name][r]) for half, r in halves.items()}
        chosen = set_threshold(*part["public"])
        verdicts = [f["entries"][name]["versus"][0] for f in families.values()]
        blocks = [on[o]["block"].sum() / max(logs["fit"].sum(), 1) for o in OURS]
        alike = [set_threshold(*part["both"], share) for share in blocks]
        entries[name] = {"threshold": threshold, **{half: figures(*p, threshold) for half, p in part.items()}}
        entries[name] |= {
            "set_on_public": chosen,
            "hidden_at_set": figures(*part["hidden"], -np.inf if chosen is None else chosen),
            "passes_at_blocks_of_ours": [None if t is None else figures(*part["both"], t)["false_pass"] for t in alike],
            "families": {verdict: verdicts.count(verdict) for verdict in ("better", "tie", "worse")},
        }
    fits = [(s.half, usable(np.array(a["setting"]["estimates"]), a["setting"]["value"])) for s, a in found.items()]
    counts = {half: [sum(fit for h, fit in fits if h == half), sum(h == half for h, _ in fits)] for half, _ in fits}
    out = {"usable_settings": counts, "entries": entries, "families": families}
    return out | ({"trust": given_trust(found)} if all(PAIRS[0] in a for a in found.values()) else {})


TRUSTED = {"ours": "value", "ours_no_facts": "value", **dict.fromkeys(PAIRS, "difference")}
"""Answers of ours that are asked for what they are worth given trust, and what each is of."""
LEAST_COVERED, HALF = 0.92, 0.5


def given_trust(found: dict[Any, Found]) -> Found:
    """By answer, what is right, how wide and with which sign where it is trusted, pooled over honest families.

    Widths are of families that are trusted in half of their logs, over those of an oracle that knows the estimate's
    error in the setting: 2 x 1.96 rmse.
    """
    out = {}
    for name, of in TRUSTED.items():
        families: dict[str, np.ndarray] = {}
        for setting, answers in found.items():
            value, low, high, score, proved = np.array(answers[name], float).T
            truth, trusted = answers["setting"][of], score >= 2.0
            width = (high - low) / (2 * 1.96 * np.sqrt(((value - truth) ** 2).mean()))
            sure = trusted & ((low > 0) | (high < 0))
            wrong = sure & (np.sign(value) != np.sign(truth))
            right = trusted & (low <= truth) & (truth <= high)
            rows = np.stack([trusted, right, sure, wrong, proved, width])
            families[setting.family] = np.hstack([families.get(setting.family, rows[:, :0]), rows])
        cells = {family: [int(n) for n in rows[:5].sum(1)] for family, rows in families.items()}
        wide = {f: float(np.median(r[5][r[0] > 0])) for f, r in families.items() if r[0].mean() >= HALF and f in HONEST}
        pool = np.sum([cells[family] for family in HONEST], axis=0)
        out[name] = {
            "covers": wilson(pool[1], pool[0]),
            "trusted": wilson(pool[0], sum(families[family].shape[1] for family in HONEST)),
            "below": below(cells),
            "width": [float(np.median(list(wide.values()))), max(wide.values()), max(wide, key=wide.__getitem__)],
            "sure": int(pool[2]),
            "wrong": int(pool[3]),
            "proved": int(pool[4]),
            "families": {f: [*cells[f], wide.get(f)] for f in cells},
        }
    return out


def below(cells: dict[str, list[int]]) -> list[str]:
    """Honest families whose coverage given trust is below the least one at p < .001, after Holm."""
    p = {f: binomtest(cells[f][1], cells[f][0], LEAST_COVERED, "less").pvalue for f in HONEST if cells[f][0]}
    found: list[str] = []
    for family in sorted(p, key=p.__getitem__):
        if p[family] * (len(p) - len(found)) >= 0.001:
            break
        found.append(family)
    return found


def trust_lines(trust: Found) -> list[str]:
    """The table of what is trusted of honest families."""
    rows = []
    for name, t in trust.items():
        median, worst, where = t["width"]
        wide = (f"{median:.2f}", f"{worst:.2f} (`{where}`)")
        words = ", ".join(f"`{family}`" for family in t["below"]) or "none"
        signs = f"{t['wrong']} of {t['sure']}" if TRUSTED[name] == "difference" else "-"
        rows.append((f"`{name}`", share(t["trusted"]), share(t["covers"]), words, *wide, signs, str(t["proved"])))
    heads = ("answer", "trusted", "covers, given trust", f"families below {LEAST_COVERED}")
    widths = ("width over the oracle's, median", "largest")
    heads = (*heads, *widths, "wrong sign, of sure ones", "logs called proved wrong")
    return table(heads, rows) if rows else []


def share(of: list[float]) -> str:
    """A share and its interval."""
    return "-" if of[0] != of[0] else "{:.3f} ({:.3f} to {:.3f})".format(*of)


def shares(on: Found) -> list[str]:
    """The three shares with their intervals."""
    return [share(on[key]) for key in SHARES]


def family_rows(families: dict[str, Found]) -> list[tuple]:
    """Family by family: ours, and the best of the gates that are not ours."""
    rows = []
    for family, f in families.items():
        cells = f["entries"]
        others = {name: cell for name, cell in cells.items() if name not in OURS}
        best = min(others, key=lambda name: (others[name]["errors"], others[name]["pass"]))
        words = []
        for place in range(len(OURS)):
            verdicts = {cell["versus"][place] for cell in others.values()}
            words.append("**loses**" if "better" in verdicts else "wins" if verdicts == {"worse"} else "ties")
        counts = [f"{cells[name]['block']} + {cells[name]['pass']}" for name in (*OURS, best)]
        sharp = min(cells, key=lambda name: cells[name]["interval_score"])
        of = f"{f['usable']} of {f['logs']}"
        rows.append((f"`{family}`", of, counts[0], words[0], counts[1], words[1], counts[2], f"`{best}`", f"`{sharp}`"))
    return rows


def of_us(families: dict[str, Found]) -> list[str]:
    """What the families say of our entries, a line for each."""
    lines = []
    for place, name in enumerate(OURS):
        words = [row[3 + 2 * place] for row in family_rows(families)]
        on = {family: f["entries"][name] for family, f in families.items()}
        wrong = {family: e for family, e in on.items() if wilson(e["pass"], e["accepted"])[1] > 0.05}
        bold = [f"`{family}` ({e['pass']} of {e['accepted']})" for family, e in wrong.items()]
        lines.append(
            f"- `{name}` loses to another gate in {words.count('**loses**')} of {len(words)} families, wins against "
            f"every other in {words.count('wins')}, ties in {words.count('ties')}. Families in which more than .05 of "
            f"what it accepts is wrong, beyond chance: {', '.join(bold) or 'none'}."
        )
    return lines


def lines(found: Found) -> list[str]:
    """The three tables, and what they say of ours."""
    own, at, alike = [], [], []
    for name, e in found["entries"].items():
        both, threshold = e["both"], e["set_on_public"]
        scores = [f"{both['interval_score_usable']:.2f}", f"{both['interval_score']:.1f}"]
        own.append((f"`{name}`", *shares(both), *scores, *([""] * 3 if name == OURS[0] else e["families"].values())))
        at.append((f"`{name}`", "none" if threshold is None else f"{threshold:.4g}", *shares(e["hidden_at_set"])))
        alike.append((f"`{name}`", *("none" if p is None else share(p) for p in e["passes_at_blocks_of_ours"])))
    counts = ", ".join(f"{fit} of {of} {half}" for half, (fit, of) in found["usable_settings"].items())
    scores = ("interval score, usable", "interval score, all", "families: errs less than `ours`", "tie", "more")
    versus = ("`ours`", "against others", "`ours_caution`", "against others")
    heads = ("family", "usable", *versus, "best other", "which", "best interval score")
    return [
        f"Usable settings: {counts}.",
        "",
        *of_us(found["families"]),
        "",
        "Shares have Wilson's intervals at 95 %, which take the settings as given.",
        "",
        "## Each at its own threshold, both halves",
        "",
        *table(("entry", *SHARES.values(), *scores), own),
        "",
        "## At 10 % false blocks on the public half, used on the hidden half",
        "",
        *table(("entry", "threshold", *SHARES.values()), at),
        "",
        "none: no threshold blocks so few, as an interval wider than half of the value is a block; all are accepted.",
        "",
        "## False passes at as many false blocks as ours, both halves",
        "",
        *table(("entry", *(f"as `{name}`" for name in OURS)), alike),
        "",
        "## Family by family: false blocks + false passes, both halves",
        "",
        *table(heads, family_rows(found["families"])),
        *([] if "trust" not in found else ["", "## Honest families, where ours says trust", ""]),
        *trust_lines(found.get("trust", {})),
    ]


def short(found: Found) -> list[str]:
    """The table of the README."""
    rows = []
    for name, e in found["entries"].items():
        at = [f"{e['hidden_at_set'][key][0]:.3f}" for key in ("false_block", "false_pass")]
        count = "" if name == OURS[0] else " / ".join(map(str, e["families"].values()))
        own = [*(f"{e['both'][key][0]:.3f}" for key in SHARES), f"{e['both']['interval_score_usable']:.2f}"]
        at = ["-", "-"] if e["set_on_public"] is None else at
        alike = ["-" if passes is None else f"{passes[0]:.3f}" for passes in e["passes_at_blocks_of_ours"]]
        rows.append((f"`{name}`", *own, *at, *alike, count))
    names = [name.partition(",")[0] for name in SHARES.values()]
    blocks = [f"at {found['entries'][o]['both']['false_block'][0]:.3f} blocks" for o in OURS]
    heads = ("entry", *names, "interval score, usable", "set: false blocks", "set: false passes", *blocks, "families")
    return table(heads, rows)

"""Results of all entries and their tables."""

from __future__ import annotations

from typing import Any

import numpy as np
from _study import table
from scoring import compared, figures, judged, set_threshold, usable, wilson

OURS = ("ours", "ours_caution")


def gathered(found: dict[Any, dict], names: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Columns of all logs (family, half, value, fit), and each entry's answers, (logs, 4)."""
    columns: dict[str, list] = {"family": [], "half": [], "truth": [], "fit": []}
    for setting, answers in found.items():
        value, of_two = answers["setting"]["value"], np.array(answers["setting"]["estimates"])
        for name, entry in zip(columns, (setting.family, setting.half, value, usable(of_two, value)), strict=True):
            columns[name] += [entry] * len(of_two)
    asked = {name: np.array([row for a in found.values() for row in a[name]], float) for name in names}
    return {name: np.array(values) for name, values in columns.items()}, asked


def results(found: dict[Any, dict], thresholds: dict[str, float]) -> dict[str, Any]:
    """Figures per entry, at its own threshold and at that for 10 % false blocks, and counts per family."""
    logs, answers = gathered(found, thresholds)
    public = logs["half"] == "public"
    fits = [(s.half, usable(np.array(a["setting"]["estimates"]), a["setting"]["value"])) for s, a in found.items()]
    count = {half: [sum(fit for h, fit in fits if h == half), sum(h == half for h, _ in fits)] for half, _ in fits}
    entries: dict[str, Any] = {}
    on = {name: judged(logs["truth"], logs["fit"], answers[name], t) for name, t in thresholds.items()}
    wrong = {name: o["block"] | o["pass"] for name, o in on.items()}
    families: dict[str, Any] = {}
    for family in dict.fromkeys(logs["family"]):
        rows = logs["family"] == family
        families[family] = {"logs": int(rows.sum()), "usable": int(logs["fit"][rows].sum()), "entries": {}}
        for name, o in on.items():
            on = {family: f["entries"][name] for family, f in families.items()}
        wrong = {family: e for family, e in on.items() if e["accepted"] and wilson(e["pass"], e["accepted"])[1] > 0.05}
        bold = [f"`{family}` ({e['pass']} of {e['accepted']})" for family, e in wrong.items()]
        lines.append(
            f"- `{name}`: another gate errs less often in {words.count('**loses**')} of {len(rows)} families, each other "
            f"gate errs more often in {words.count('wins')}, {words.count('tie')} are ties. More than .05 of what it "
            f"accepts is wrong, beyond chance, in {', '.join(bold) or 'no family'}."
        )
    return lines


def lines(found: dict[str, Any]) -> list[str]:
    """The three tables, and what they say of ours."""
    entries, rows = found["entries"], family_rows(found["entries"], found["families"])
    settings = ", ".join(f"{fit} of {of} {half}" for half, (fit, of) in found["usable_settings"].items())
    shares = ("false blocks, of usable", "false passes, of all", "covers, given accept")
    scores = ("interval score, usable", "interval score, all", "errs less in families", "tie", "errs more")
    heads = ("family", "usable", "`ours`", "it", "`ours_caution`", "it", "best other", "which", "best interval score")
    return [
        f"Usable settings: {settings}. Shares have Wilson's intervals at 95 %, which take the settings as given.",
        "",
        "**What it says of us**",
        "",
        *of_us(found["families"], rows),
        "",
        "## Each at its own threshold, both halves",
        "",
        *table(("entry", *shares, *scores), own_rows(entries)),
        "",
        "## At 10 % false blocks on the public half, used on the hidden half",
        "",
        *table(("entry", "threshold", *shares), set_rows(entries)),
        "",
        "none: no threshold blocks so few, as an interval wider than half of the value is a block; all are accepted.",
        "",
        "## Family by family: false blocks + false passes, both halves, and whether ours wins against every other",
        "",
        *table(heads, rows),
    ]


def short(found: dict[str, Any]) -> list[str]:
    """The table of the README."""
    rows = []
    for name, e in found["entries"].items():
        own = [f"{e['both'][key][0]:.3f}" for key in ("false_block", "false_pass", "covered_given_accept")]
        at = [f"{e['hidden_at_set'][key][0]:.3f}" for key in ("false_block", "false_pass")]
        at = ["-", "-"] if e["set_on_public"] is None else at
        count = "" if name == OURS[0] else " / ".join(map(str, e["families"].values()))
        rows.append((f"`{name}`", *own, *at, f"{e['both']['interval_score_usable']:.2f}", count))
    shares = ("false blocks", "false passes", "covers, given accept", "set: false blocks", "set: false passes")
    return table(("entry", *shares, "interval score, usable", "families"), rows)

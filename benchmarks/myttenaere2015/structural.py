"""The paper's future work, the structural bias: schemes that aim at it beside all others, against the truth.

    python benchmarks/myttenaere2015/structural.py [--quick] [--platforms N] [--out DIR]

The study of run.py on its last day, with three more schemes: ``structure`` weighs pairs by how well the rest of the
profile predicted the item at t0, ``alone`` holds out only what users added alone, and ``alone+learn=1`` lets
recommenders learn from that alone too. Kendall's tau with the ranking by true quality, and the bias of the scores (the
collaborative filterings' apart) against the same platform without campaigns. Platforms are kept under ``structural/``.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from analysis import percent, plain, study_numbers
from platforms import study_of

from recsim_mnar.log.files import write_json
from recsim_mnar.protocols.records import plain as json_types

HERE = Path(__file__).resolve().parent

MORE = ("structure", "alone", "alone+learn=1")


def markdown(found: dict[str, Any], platforms: int) -> str:
    lines = ["# The structural bias: every scheme against the truth on the last day", ""]
    for kind, row in found.items():
        (schemes,) = [row[t] for t in row if t != "tau_gain_over_unweighted"]
        lines += [
            f"## campaigns: {kind}, {platforms} platforms", "",
            "| scheme | Kendall's tau | gain over unweighted | bias | cosine CF | naive CF |",
            "|---|---|---|---|---|---|",
        ]  # fmt: skip
        names = sorted((n for n in schemes if n != "truth"), key=lambda n: -schemes[n]["tau"]["mean"])
        for name in names:
            one, gain = schemes[name], row["tau_gain_over_unweighted"][name]
            relative = one["relative_bias"]
            cells = [percent(relative[k]) if relative else "-" for k in ("cosine-cf", "naive-cf")]
            tau, bias = plain(one["tau"]), plain(one["bias"], ".3f")
            lines.append(f"| {name} | {tau} | {plain(gain, '+.2f')} | {bias} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the small preset")
    parser.add_argument("--platforms", type=int, default=6)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args(given)
    read = tomllib.loads((HERE / "settings.toml").read_text())
    settings, kinds = read["study"], read["kinds"]
    settings["times"], settings["schemes"] = [500], [*settings["schemes"], *MORE]
    if options.quick:
        settings |= {"preset": "quick", "set": [], "kinds": settings["kinds"][:1]}
        settings["agents"] = ["popularity", "cosine-cf", "naive-cf"]
        settings["schemes"] = [scheme.replace("p=80", "p=40") for scheme in settings["schemes"]]
    out = options.out or (Path("runs/myttenaere2015-quick") if options.quick else HERE)
    found = []
    for number in range(options.platforms):
        for kind in settings["kinds"]:
            path = out / "structural" / f"{kind}-{number:03d}.json"
            if not path.exists():
                write_json(path, study_of(settings, kinds, kind, number))
                print(f"{path.stem} done", flush=True)
            found.append(json.loads(path.read_text()))
    result = study_numbers(found, settings)
    write_json(out / "structural.json", json_types(result))
    text = markdown(result, options.platforms)
    (out / "structural.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())

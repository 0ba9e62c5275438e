"""The study of Jeunen, Rohde & Vasile 2019 over many catalogues, next to the published figures: see README.md."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from analysis import analyse
from tables import HERE, keep, parser_of, resumed, settings

from recsim_mnar.studies.design import design_of
from recsim_mnar.studies.paired import LEAST


def main() -> None:
    parser = parser_of(__doc__, quick="the small preset: a check that the study runs", workers=True)
    parser.add_argument("--catalogues", type=int, default=None)
    parser.add_argument("--study", type=Path, default=None, help="records; runs/jeunen2019-study unless named")
    parser.add_argument("--out", type=Path, default=None, help="results; next to this file, or in --study")
    options = parser.parse_args()
    if options.catalogues is not None and options.catalogues < LEAST:
        parser.error(f"--catalogues must be {LEAST} at least: intervals are over catalogues")
    read = settings()
    catalogues = options.catalogues or read["catalogues"]
    design = replace(design_of(HERE / "settings.toml"), catalogues=catalogues)
    if options.quick:
        (world,) = design.worlds
        design = replace(design, worlds=[{**world, "preset": "quick"}])
    whole = not options.quick and catalogues >= read["catalogues"]
    folder = options.study or Path("runs/jeunen2019-quick" if options.quick else "runs/jeunen2019-study")
    out = options.out or (HERE if whole else folder)
    keep("catalogues", analyse(resumed(design, folder, options.workers), read), out, quick=options.quick)
    print((out / "results.md").read_text())
    print(f"This page: {out / 'results.md'}")


if __name__ == "__main__":
    main()

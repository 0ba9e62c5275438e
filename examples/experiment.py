"""The experiment section of a paper: the study of experiment.toml, its table, its paired differences and its means."""

import sys
from dataclasses import replace
from pathlib import Path

from recsim_mnar import run_study
from recsim_mnar.studies import design_of, processes


def main() -> None:
    design = design_of(Path(__file__).with_name("experiment.toml"))
    design = replace(design, catalogues=int(sys.argv[1]) if len(sys.argv) > 1 else 12)
    with processes(2) as executor:
        study = run_study(design, executor=executor)
    picked = study.frame().query("picked == True")
    # Agents that are level are all picked: each catalogue counts once.
    costs = picked.groupby(["logging", "clip", "catalogue", "protocol"]).cost.mean()
    print(costs.groupby(["logging", "protocol"]).mean().unstack().round(4))
    print(study.compare("loocv", "off_policy", by="logging").round(4).to_string())
    print(study.means(by="logging").round(4).to_string())


if __name__ == "__main__":
    main()

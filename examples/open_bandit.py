"""Off-policy evaluation of real recommendations, in both directions, next to what the other policy's own log shows.

    pip download --no-deps obp==0.4.1 && unzip -q obp-0.4.1-py3-none-any.whl -d obp_files
    python examples/open_bandit.py obp_files/obp/dataset/obd

From the Thompson-sampling log the uniform policy cannot be judged: its effective sample is two rows, and the verdict
says so. From the uniform log the Thompson policy can.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from recsim_mnar import Estimate, UserError, estimate


def show(title: str, log: pd.DataFrame, target: np.ndarray, truth: float) -> list[Estimate]:
    print(f"\n{title}; the policy's own log shows a click rate of {truth:.4f}")
    estimates = []
    for estimator, clip in (("ips", None), ("clipped_ips", 15.0), ("snips", None)):
        found = estimate(*log[["click", "propensity_score"]].to_numpy(float).T, target, estimator=estimator, clip=clip)
        covers = "covers it" if found.low <= truth <= found.high else "misses it"
        print(f"  {found.estimator:12s} {found.value:.4f}  [{found.low:.4f}, {found.high:.4f}] {covers}")
        facts = found.diagnostics
        print(f"  {'':12s} sampling alone [{facts.sampling_low:.4f}, {facts.sampling_high:.4f}], {found.method}")
        estimates.append(found)
    print(f"  effective sample {estimates[0].ess:,.0f} of {len(log):,} rows; verdict: {estimates[0].verdict}")
    return estimates


def shares_by_position(log: pd.DataFrame, n_items: int) -> pd.DataFrame:
    """Estimate a policy, averaged over time: how often it showed each item (column) at each position (row)."""
    counts = pd.crosstab(log["position"], log["item_id"]).reindex(columns=range(n_items), fill_value=0) + 1.0
    return counts.div(counts.sum(axis=1), axis=0)


def main(folder: str, campaign: str = "women") -> dict[str, list[Estimate]]:
    files = [Path(folder) / policy / campaign / f"{campaign}.csv" for policy in ("bts", "random")]
    for file in files:
        if not file.is_file():
            raise UserError(f"no file {file}: give the folder that holds random/ and bts/")
    thompson, uniform = (pd.read_csv(file).sort_values("timestamp", kind="stable") for file in files)
    n_items = len(pd.read_csv(files[0].with_name("item_context.csv")))
    print(f"Open Bandit, campaign {campaign}: {n_items} items, {len(thompson):,} rows a log")
    shares = shares_by_position(thompson, n_items).to_numpy()
    return {
        "uniform": show(
            "Uniform, from the Thompson log", thompson, np.full(len(thompson), 1.0 / n_items), uniform["click"].mean()
        ),
        "thompson": show(
            "Thompson sampling (its shares by position), from the uniform log",
            uniform,
            shares[uniform["position"] - 1, uniform["item_id"]],
            thompson["click"].mean(),
        ),
    }


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except UserError as error:
        sys.exit(str(error))

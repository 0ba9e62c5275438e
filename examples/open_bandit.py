"""Off-policy evaluation of real recommendations, in both directions, next to what the other policy's own log shows.

    pip download --no-deps obp==0.4.1 && unzip -q obp-0.4.1-py3-none-any.whl -d obp_files
    python examples/open_bandit.py obp_files

From the Thompson-sampling log the uniform policy cannot be judged: its effective sample is two rows, and the verdict
says so. From the uniform log the Thompson policy can.
"""

from __future__ import annotations

import sys

import numpy as np

from recsim_mnar import Estimate, UserError, estimate
from recsim_mnar.datasets import open_bandit


def show(title: str, log, target: np.ndarray, truth: float) -> list[Estimate]:
    print(f"\n{title}; the policy's own log shows a click rate of {truth:.4f}")
    estimates = []
    for estimator, clip in (("ips", None), ("clipped_ips", 15.0), ("snips", None)):
        found = estimate(log.reward, log.propensity, target, estimator=estimator, clip=clip)
        covers = "covers it" if found.low <= truth <= found.high else "misses it"
        print(f"  {found.estimator:12s} {found.value:.4f}  [{found.low:.4f}, {found.high:.4f}] {covers}")
        facts = found.diagnostics
        print(f"  {'':12s} sampling alone [{facts.sampling_low:.4f}, {facts.sampling_high:.4f}], {found.method}")
        estimates.append(found)
    print(f"  effective sample {estimates[0].ess:,.0f} of {len(log):,} rows; verdict: {estimates[0].verdict}")
    return estimates


def main(folder: str | None = None, campaign: str = "women") -> dict[str, list[Estimate]]:
    thompson = open_bandit.load_open_bandit(folder, policy="bts", campaign=campaign)
    uniform = open_bandit.load_open_bandit(folder, policy="random", campaign=campaign)
    print(f"Open Bandit, campaign {campaign}: {thompson.n_actions} items, {len(thompson):,} rows a log")
    return {
        "uniform": show("Uniform, from the Thompson log", thompson, thompson.uniform(), uniform.reward.mean()),
        "thompson": show(
            "Thompson sampling (its shares by position), from the uniform log",
            uniform,
            uniform.under(thompson.shares()),
            thompson.reward.mean(),
        ),
    }


if __name__ == "__main__":
    try:
        main(*sys.argv[1:3])
    except UserError as error:
        sys.exit(str(error))

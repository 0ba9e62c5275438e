"""A protocol of one's own in a comparison, with the rows that its numbers are means of."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from recsim_mnar import Design, Protocol, Record, replay, run_study
from recsim_mnar.estimators.intervals import ratio_interval

NAME = "own_protocol:MatchedClicks"


class MatchedClicks(Protocol):
    """Click rate of the logged decisions that an agent would have taken too, each weighted by its probability."""

    metrics = ("clicks",)
    needs = frozenset({"test_log"})

    def judge(self, study):
        """Give one record per agent."""
        log = study.log()
        shown = log.is_bandit
        user, clicks = log["user"][shown], log["reward"][shown]
        _, place = np.unique(user, return_inverse=True)
        records = []
        for name, policy in study.policies.items():
            began = time.perf_counter()
            agreement = replay(log, policy)[shown]
            study.keep_raw(self.name, "clicks", name, user=user, value=clicks, weight=agreement)
            sums, counts = np.bincount(place, agreement * clicks), np.bincount(place, agreement)
            interval = ratio_interval(sums, counts, study.level)
            key = (study.world.name, self.name, name, "clicks")
            seconds = time.perf_counter() - began
            records.append(Record.of(*key, interval, level=study.level, n=len(sums), seconds=seconds, details={}))
        return records

    def estimates_truth(self, metric):
        """Say that the number is a click rate, as the truth is."""
        return True


if __name__ == "__main__":
    design = Design([{"world": "sessions", "preset": "quick"}], protocols=["off_policy", NAME], catalogues=1)
    with tempfile.TemporaryDirectory() as folder:
        study = run_study(design, folder=Path(folder) / "study", save_raw=True)
        raw = pd.concat(map(pd.read_parquet, Path(folder).glob("study/raw/*.parquet")))
    rows = raw[raw.protocol == NAME]
    sums = rows.assign(clicks=rows.value * rows.weight).groupby("agent", observed=True)[["clicks", "weight"]].sum()
    for record in study.frame().query("protocol == @NAME").itertuples():
        raw_mean = sums.clicks[record.agent] / sums.weight[record.agent]
        print(
            f"{record.agent:16} {record.value:.6f} in the table, {raw_mean:.6f} of the rows; truth {record.truth:.6f}"
        )
        assert abs(record.value - raw_mean) < 1e-12

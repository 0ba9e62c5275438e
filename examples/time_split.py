"""An offline metric with a split by time: fit on the past, and rank what users view next."""

import time

import numpy as np

from recsim_mnar import Protocol, Record
from recsim_mnar.estimators.intervals import ratio_interval


class NextViews(Protocol):
    """Share of later views among an agent's ten best items, by user."""

    name = "next_views"
    metrics = ("recall@10",)
    needs = frozenset({"test_log"})

    def judge(self, study):
        """Give one record per agent."""
        views = study.log().organic()
        past = views.select(views["time"] <= np.quantile(views["time"], 0.8))
        later = views.select(views["time"] > past["time"].max())
        users = np.intersect1d(past["user"], later["user"])
        history = past.select(np.isin(past["user"], users))
        upcoming = later.select(np.isin(later["user"], users))
        place = np.searchsorted(users, upcoming["user"])
        records = []
        for name, learner in study.learners.items():
            began = time.perf_counter()
            policy = learner.fit(past, n_items=study.n_items, seed=study.seed_of(name))
            policy.reset_training_users(users, users)  # not reset(users): these users are in the log that it learned
            policy.observe(history["user"], history["item"])
            scores = policy.scores(users)
            score = scores[place, upcoming["item"]][:, None]
            # An item shares its rank with items of the same score: else an agent without an opinion would be the best.
            rank = (scores[place] > score).sum(1) + ((scores[place] == score).sum(1) - 1) / 2
            sums, counts = np.bincount(place, rank < 10), np.bincount(place)
            interval = ratio_interval(sums, counts, study.level)
            key = (study.world.name, self.name, name, "recall@10")
            seconds = time.perf_counter() - began
            records.append(Record.of(*key, interval, level=study.level, n=len(users), seconds=seconds))
        return records

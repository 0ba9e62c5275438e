"""Figure 1 of Schnabel et al. 2016: horror and romance lovers, and why the naive error misleads.

    python examples/movie_lovers.py

Everyone rates what they like. Yhat1 is off by one star wherever people like what they see; Yhat2 is right there and
wrong by four stars on unrated movies. The naive mean absolute error prefers Yhat2; IPS does not. Yhat3 is no
prediction of ratings but a set of recommendations, the romances to everyone: its cumulative gain (CG), the mean star
rating of what is recommended, looks far better than it is in an average of what was rated.
"""

from __future__ import annotations

import numpy as np

from recsim_mnar.estimators.ratings import estimate_ratings, loss
from recsim_mnar.log.ratings import Ratings
from recsim_mnar.worlds.ratings import observe


def main() -> None:
    lovers = np.kron([[1, 0], [0, 1]], np.ones((20, 10)))  # users x (horror, romance)
    likes = np.concatenate([lovers, np.zeros((40, 6))], axis=1)
    drama = np.concatenate([np.zeros((40, 20)), np.ones((40, 6))], axis=1)
    truth = np.where(drama == 1, 3.0, np.where(likes == 1, 5.0, 1.0))
    p = np.where(drama == 1, 0.25, np.where(likes == 1, 0.5, 0.05))
    first = np.where(likes == 1, 4.0, truth)
    second = np.where((likes == 0) & (drama == 0), 5.0, truth)
    observed = Ratings.from_dense(truth, observe(p, seed=1))
    for name, guess in (("Yhat1", first), ("Yhat2", second)):
        mae = loss("mae", guess)
        e = estimate_ratings(mae, observed, p)
        print(f"{name}: MAE {mae.risk(truth):.3f}; naive {e.naive:.3f}, IPS {e.ips:.3f}, SNIPS {e.snips:.3f}")
    third = np.concatenate([np.zeros((40, 10)), np.ones((40, 10)), np.zeros((40, 6))], axis=1)
    cg = loss("cg", third, k=10)
    e = estimate_ratings(cg, observed, p)
    seen = observed.values[third[observed.users, observed.items] == 1].mean()
    print(
        f"Yhat3: CG {cg.risk(truth):.3f}; mean of the rated among them {seen:.3f}, IPS {e.ips:.3f}, SNIPS {e.snips:.3f}"
    )
    naive = [estimate_ratings(loss("mae", guess), observed, p).naive for guess in (first, second)]
    print("naive prefers", "Yhat2, the worse one" if naive[1] < naive[0] else "Yhat1")


if __name__ == "__main__":
    main()

"""Leave-one-out on a user's own interactions: no world, so no truth and no judgement of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from recsim_mnar.policy.base import Learner
from recsim_mnar.protocols.compare import Comparison
from recsim_mnar.protocols.decisions import HIT_RATES
from recsim_mnar.protocols.leave_one_out.protocol import LeaveOneOut, leave_one_out
from recsim_mnar.rng import derive_seed

if TYPE_CHECKING:
    from recsim_mnar.datasets.interactions import Interactions


def compare_interactions(
    data: Interactions,
    learners: Mapping[str, Learner],
    *,
    folds: int = 10,
    level: float = 0.95,
    seed: int = 0,
    executor: Executor | None = None,
) -> Comparison:
    """Leave-one-out of every agent on interactions.

    Args:
        data: read from a file.
        learners: by name.
        folds: views of each user that are held out, one at a time.
        level: of the intervals.
        seed: of the draws and the training.
        executor: folds run in parallel.
    """
    records = leave_one_out(
        data.log,
        learners,
        n_items=data.n_items,
        folds=folds,
        seed=derive_seed(seed, "loocv"),
        ks=(1, 10),
        level=level,
        world="interactions",
        candidates="auto",
        executor=executor,
    )
    notes = []
    if records[0].details.get("candidates") == "unseen":
        notes.append("No user meets an item twice, so items that a user has seen are not ranked for that user.")
    heading = LeaveOneOut().heading
    return Comparison(
        records,
        notes=notes,
        columns=[("loocv", "hr@1"), ("loocv", "hr@10"), ("loocv", "mrr@10")],
        headings={("loocv", r.metric): heading(r.metric) for r in records},
        pictures=[HIT_RATES],
    )

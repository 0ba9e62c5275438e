"""Uplift from logs of recommendations and purchases, and with the truth beside it (Sato et al. 2019, section 2).

The average treatment effect E[Y^T - Y^C] of all cells: naive (equation 1), IPS (2), SNIPS (3). Of a model's lists:
Uplift@N (equation 4) and UpliftSNIPS@N (5), both averaged over users (6), the IPS form, which alone is unbiased where
recommendations are personalised, and Precision@N. In equation 3 as printed the control part has 1/e; 1/(1 - e), as in
equation 5, is meant and used here.
"""

from recsim_mnar.estimators.uplift.effects import EFFECTS, average_effect
from recsim_mnar.estimators.uplift.lists import (
    EMPTY,
    LIST_METRICS,
    causal_dcg,
    causal_precision,
    check_length,
    checked_lists,
    evaluate_lists,
    halves,
    top_items,
)

__all__ = [
    "EFFECTS",
    "EMPTY",
    "LIST_METRICS",
    "average_effect",
    "causal_dcg",
    "causal_precision",
    "check_length",
    "checked_lists",
    "evaluate_lists",
    "halves",
    "top_items",
]

"""The estimators there are, a line each."""

from __future__ import annotations

from dataclasses import dataclass

from recsim_mnar.errors import UserError, nearest


@dataclass(frozen=True)
class EstimatorInfo:
    """An estimator as a user meets it.

    Attributes:
        name: as in ``estimate_value(estimator=...)``.
        title: one line.
        source: paper.
        needs: arguments beside reward, propensity and target that must be given.
        takes: parameters that may be given.
    """

    name: str
    title: str
    source: str
    needs: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()


ESTIMATORS: dict[str, EstimatorInfo] = {
    info.name: info
    for info in (
        EstimatorInfo("ips", "mean of w r", "Horvitz & Thompson 1952", takes=("reward_max",)),
        EstimatorInfo(
            "clipped_ips", "mean of min(w, clip) r", "Ionides 2008; Bottou et al. 2013", takes=("reward_max",)
        ),
        EstimatorInfo("snips", "sum of w r over sum of w", "Swaminathan & Joachims 2015"),
    )
}


def check_name(name: str) -> EstimatorInfo:
    """The estimator of that name, or UserError with the nearest one."""
    if name not in ESTIMATORS:
        raise UserError(f"no estimator {name!r}; {nearest(str(name), ESTIMATORS)}")
    return ESTIMATORS[name]

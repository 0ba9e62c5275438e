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
        needs: columns beside reward, propensity and target that must be given.
        requires: parameters that must be given.
        takes: parameters that may be given.
        clips: whether ``clip`` cuts its weights.
    """

    name: str
    title: str
    source: str
    needs: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    clips: bool = False


_Q = ("q_logged", "q_target")

ESTIMATORS: dict[str, EstimatorInfo] = {
    info.name: info
    for info in (
        EstimatorInfo("ips", "mean of w r", "Horvitz & Thompson 1952"),
        EstimatorInfo("clipped_ips", "mean of min(w, clip) r", "Ionides 2008; Bottou et al. 2013", clips=True),
        EstimatorInfo("snips", "sum of w r over sum of w", "Swaminathan & Joachims 2015"),
        EstimatorInfo("dm", "mean of the reward model under the target", "Beygelzimer & Langford 2009", _Q[1:]),
        EstimatorInfo("dr", "reward model plus mean of w (r - q)", "Dudik, Langford & Li 2011", _Q),
        EstimatorInfo("clipped_dr", "dr with min(w, clip)", "Su et al. 2020", _Q, clips=True),
        EstimatorInfo("sndr", "dr with the correction divided by mean w", "Thomas & Brunskill 2016", _Q),
        EstimatorInfo("switch_dr", "dr where w <= tau, else the model", "Wang et al. 2017", _Q, takes=("tau",)),
        EstimatorInfo("dros", "dr with w lam / (w^2 + lam)", "Su et al. 2020", _Q, takes=("lam",)),
        EstimatorInfo("sg_ips", "ips with w / (1 - lam + lam w)", "Metelli et al. 2021", takes=("lam",)),
        EstimatorInfo("sg_dr", "dr with w / (1 - lam + lam w)", "Metelli et al. 2021", _Q, takes=("lam",)),
        EstimatorInfo(
            "mips",
            "weights of action groups in place of actions",
            "Saito & Joachims 2022",
            takes=("group_target", "group_propensity", "groups", "context"),
        ),
        EstimatorInfo("beta_ips", "ips minus b (w - 1), b cross-fitted", "Gupta et al. 2024", takes=("folds",)),
        EstimatorInfo("ix_ips", "mean of pi / (pi_0 + gamma) r", "Gabbianelli et al. 2024", takes=("gamma",)),
        EstimatorInfo("replay", "mean reward where the target takes the logged action", "Li et al. 2011"),
        EstimatorInfo(
            "balanced_ips", "ips over the mixture of the loggers", "Agarwal et al. 2017", requires=("loggers", "logger")
        ),
    )
}


def check_name(name: str) -> EstimatorInfo:
    """The estimator of that name, or UserError with the nearest one."""
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise UserError(f"no estimator {name!r}; {nearest(str(name), ESTIMATORS)}")
    return ESTIMATORS[name]

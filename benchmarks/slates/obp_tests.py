"""Open Bandit Pipeline's tests of its slate estimators, answered by ours.

    python benchmarks/slates/obp_tests.py [--theirs] ZR_OBP/tests/ope/test_ipw_estimators_slate.py ... [-- ARGUMENTS]

Arguments are pytest's. Wants obp 0.5.7 installed (from Python 3.11 on, pip needs --no-deps --ignore-requires-python).
Where PyTorch is not installed a placeholder takes its place, for the slate estimators use none of it. With --theirs
nothing is changed, which shows what fails anyway: with scikit-learn 1.9 six tests of the wording of its messages.

Each class of obp below is called first, for what it says of bad arguments. Where its slates are whole, the answer is
ours, after both were compared to a relative 1e-9. Its self-normalised estimators divide position by position and ours
by one mean weight, so they stay its own.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from recsim_mnar.estimators.rankings import estimate_ranking_value

NEAR = 1e-9
ANSWERED = {"ours": 0, "its own": 0}
FURTHEST = [0.0]


class _Placeholder(types.ModuleType):
    """A module all of whose capital names are classes, and the others modules."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {}) if name[0].isupper() else _Placeholder(f"{self.__name__}.{name}")


def without_torch() -> None:
    """Put placeholders where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        for name in ("torch", "torch.nn", "torch.nn.functional", "torch.optim"):
            module = _Placeholder(name)
            module.__path__ = []
            sys.modules[name] = module


def columns_of(given: dict[str, Any], kinds: dict[str, tuple[str, str]]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A log's columns and a target's arrays, from obp's arguments."""
    log = {"reward": given["reward"], "position": given["position"]}
    log |= {"slate": given["slate_id"], "user": given["slate_id"]}
    log |= {f"{kind}_propensity" if kind != "marginal" else "propensity": given[a] for kind, (a, _) in kinds.items()}
    return log, {kind: given[b] for kind, (_, b) in kinds.items()}


def down_to_conditional(values: Any, slates: int) -> Any:
    """The conditional probabilities of obp's cumulative ones."""
    down = np.asarray(values, np.float64).reshape(slates, -1)
    before = np.c_[np.ones(slates), down[:, :-1]]
    return np.divide(down, before, out=np.zeros_like(down), where=before > 0.0).ravel()


def ours(name: str, self: Any, given: dict[str, Any]) -> float | None:
    """Our estimate of clicks per slate; None where slates are not whole, or conditional ones are no probabilities."""
    ids = np.asarray(given["slate_id"])
    slates, rows = np.unique(ids).size, ids.size
    if rows != slates * self.len_list:
        return None
    model = {}
    if name in ("reward_interaction_ips", "cascade_dr"):
        if np.any(np.sort(ids, kind="stable") != ids):
            return None
        pairs = {"conditional": ("pscore_cascade", "evaluation_policy_pscore_cascade")}
        given = given | {each: down_to_conditional(given[each], slates) for each in pairs["conditional"]}
    elif name == "independent_ips":
        pairs = {"marginal": ("pscore_item_position", "evaluation_policy_pscore_item_position")}
    else:
        pairs = {"slate": ("pscore", "evaluation_policy_pscore")}
    if name == "cascade_dr":
        q = np.asarray(given["q_hat"]).reshape(rows, -1)
        law = np.asarray(given["evaluation_policy_action_dist"]).reshape(rows, -1)
        model = {"q_logged": q[np.arange(rows), given["action"]], "q_target": (q * law).sum(1)}
    log, target = columns_of(given, pairs)
    found = estimate_ranking_value(log, target, estimators=name, position_weights="clicks", **model)
    return found[name].value


def answering(cls: type, name: str, theirs: Callable[..., float]) -> Callable[..., float]:
    """obp's method, answered by ours."""

    def estimate(self: Any, *arguments: Any, **given: Any) -> float:
        value = theirs(self, *arguments, **given)
        mine = ours(name, self, given) if type(self) is cls and not arguments else None
        ANSWERED["its own" if mine is None else "ours"] += 1
        if mine is None:
            return value
        off = abs(mine - value) / max(abs(value), 1.0)
        FURTHEST[0] = max(FURTHEST[0], off)
        assert off <= NEAR, f"{name}: ours {mine!r}, obp's {value!r}"
        return mine

    return estimate


def main() -> int:
    files, own = sys.argv[1:], []
    if "--" in files:
        files, own = files[: files.index("--")], files[files.index("--") + 1 :]
    theirs = "--theirs" in files
    files = [each for each in files if each != "--theirs"]
    if not files:
        sys.exit(__doc__)
    without_torch()
    import obp
    from obp import ope

    names = {"SlateStandardIPS": "slate_ips", "SlateIndependentIPS": "independent_ips"}
    names |= {"SlateRewardInteractionIPS": "reward_interaction_ips", "SlateCascadeDoublyRobust": "cascade_dr"}
    for class_name, name in ({} if theirs else names).items():
        cls = getattr(ope, class_name)
        cls.estimate_policy_value = answering(cls, name, cls.estimate_policy_value)
    code = pytest.main(["-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-W", "ignore", *own, *files])
    found = {
        "obp": obp.__version__,
        "status": int(code),
        "answered": ANSWERED,
        "largest relative difference": FURTHEST[0],
    }
    print(json.dumps(found))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())

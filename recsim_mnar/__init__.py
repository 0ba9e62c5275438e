"""Simulated people, recommendations and logs whose known truth judges evaluation protocols."""

from recsim_mnar._start import begin as _begin

_begin()  # before all else, and Gymnasium and NumPy take the better part of a command's start

import importlib as _importlib  # noqa: E402  (likewise)
from pathlib import Path as _Path  # noqa: E402
from typing import Any as _Any  # noqa: E402

import gymnasium as _gymnasium  # noqa: E402

__version__ = "0.2.0"

# Where each public name is defined; it is imported when it is first asked for: `import recsim_mnar` stays light.
_DEFINED_IN = {
    "Advice": "fitting.advice",
    "FittedWorld": "fitting.calibration",
    "Learner": "policy",
    "Log": "log",
    "Policy": "policy",
    "advise_on": "fitting.advice",
    "calibrate_world": "fitting.calibration",
    "difference": "estimators",
    "estimate_value": "estimators",
    "make_world": "worlds",
    "plan_ab": "own_log.plan",
    "plan_estimate": "own_log.plan",
    "plan_logging": "own_log.plan",
    "resumable": "resuming",
    "run_study": "studies",
    "validate_world": "fitting.validation",
}
_MODULES = (
    "agents",
    "fitting",
    "datasets",
    "envs",
    "errors",
    "estimators",
    "export",
    "integrations",
    "log",
    "models",
    "policy",
    "propensities",
    "protocols",
    "replays",
    "report",
    "rng",
    "simulation",
    "studies",
    "testing",
    "worlds",
)
__all__ = ["__version__", *_DEFINED_IN, *_MODULES]


def __getattr__(name: str) -> _Any:
    """Import a public name or a module of the package when it is first asked for."""
    if name in _DEFINED_IN:
        return getattr(_importlib.import_module(f"{__name__}.{_DEFINED_IN[name]}"), name)
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


# Installed, the agents lie inside this package; in a checkout they lie beside it, and Python started there imports the
# checkout even where the package is installed.
_beside = _Path(__file__).resolve().parents[1]
if not _Path(__file__).with_name("agents").exists() and (_beside / "agents" / "state" / "acting.py").exists():
    __path__.append(str(_beside))

_gymnasium.register(
    id="recsim_mnar/Sessions-v0",
    entry_point="recsim_mnar.envs:sessions_env",
    vector_entry_point="recsim_mnar.envs:sessions_vector_env",
)

_gymnasium.register(
    id="recsim_mnar/Campaigns-v0",
    entry_point="recsim_mnar.envs:campaigns_env",
    vector_entry_point="recsim_mnar.envs:campaigns_vector_env",
)

_gymnasium.register(
    id="recsim_mnar/Ratings-v0",
    entry_point="recsim_mnar.envs:ratings_env",
    vector_entry_point="recsim_mnar.envs:ratings_vector_env",
)

_gymnasium.register(
    id="recsim_mnar/Purchases-v0",
    entry_point="recsim_mnar.envs.slates:purchases_env",
    vector_entry_point="recsim_mnar.envs.slates:purchases_vector_env",
)

_gymnasium.register(
    id="recsim_mnar/World-v0",
    entry_point="recsim_mnar.envs:world_env",
    vector_entry_point="recsim_mnar.envs:world_vector_env",
)

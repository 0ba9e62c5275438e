"""Simulated people, recommendations and logs with a known truth that judges evaluation protocols.

What users call stands here, and in the ``__all__`` of ``datasets``, ``envs``, ``estimators``, ``export``,
``integrations``, ``testing`` and ``worlds``; agents are reached by name. All else is internal and may change.
"""

from recsim_mnar._start import begin as _begin

_begin()  # before all else, and Gymnasium and NumPy take the better part of a command's start

import importlib as _importlib  # noqa: E402  (likewise)
from pathlib import Path as _Path  # noqa: E402
from typing import TYPE_CHECKING as _TYPE_CHECKING  # noqa: E402
from typing import Any as _Any  # noqa: E402

import gymnasium as _gymnasium  # noqa: E402

from recsim_mnar._version import __version__ as __version__  # noqa: E402  (likewise)

if _TYPE_CHECKING:
    from recsim_mnar.campaigns.model import PlatformWorld as PlatformWorld
    from recsim_mnar.datasets.interactions import Interactions as Interactions
    from recsim_mnar.errors import MachineError as MachineError
    from recsim_mnar.errors import UserError as UserError
    from recsim_mnar.estimators import Estimate as Estimate
    from recsim_mnar.estimators import Facts as Facts
    from recsim_mnar.estimators import difference as difference
    from recsim_mnar.estimators import estimate_value as _estimate_value
    from recsim_mnar.fitting.calibration import FittedWorld as FittedWorld
    from recsim_mnar.fitting.calibration import calibrate_world as _calibrate_world
    from recsim_mnar.fitting.validation import Validation as Validation
    from recsim_mnar.fitting.validation import validate_world as _validate_world
    from recsim_mnar.log import Log as Log
    from recsim_mnar.own_log.ab_plan import ABPlan as ABPlan
    from recsim_mnar.own_log.ab_plan import plan_ab as plan_ab
    from recsim_mnar.own_log.gate import FileAnswer as FileAnswer
    from recsim_mnar.own_log.gate import answer_file as _answer_file
    from recsim_mnar.own_log.replaying import estimate_agents as estimate_agents
    from recsim_mnar.policies import FeaturePolicy as FeaturePolicy
    from recsim_mnar.policies import Learner as Learner
    from recsim_mnar.policies import Policy as Policy
    from recsim_mnar.policies import SampledPolicy as SampledPolicy
    from recsim_mnar.policies.registry import learner as _learner
    from recsim_mnar.protocols.base import Protocol as Protocol
    from recsim_mnar.protocols.comparison import Comparison as Comparison
    from recsim_mnar.protocols.comparison import compare as compare
    from recsim_mnar.protocols.interactions import compare_interactions as compare_interactions
    from recsim_mnar.protocols.records import Record as Record
    from recsim_mnar.purchases.world import ExposureWorld as ExposureWorld
    from recsim_mnar.replays.probabilities import replay as replay
    from recsim_mnar.replays.truth import value_on_log as value_on_log
    from recsim_mnar.simulation import simulate as simulate
    from recsim_mnar.simulation.items import OnlineRun as OnlineRun
    from recsim_mnar.simulation.items import simulate_online as simulate_online
    from recsim_mnar.simulation.oracle import Oracle as Oracle
    from recsim_mnar.simulation.oracle import Planner as Planner
    from recsim_mnar.studies import Design as Design
    from recsim_mnar.studies import Study as Study
    from recsim_mnar.studies import run_study as run_study
    from recsim_mnar.tasks import Evaluation as Evaluation
    from recsim_mnar.tasks import Task as Task
    from recsim_mnar.tasks import TaskDataset as TaskDataset
    from recsim_mnar.tasks import evaluate as evaluate
    from recsim_mnar.tasks import evaluate_agent as evaluate_agent
    from recsim_mnar.tasks import task as task
    from recsim_mnar.tasks import task_dataset as task_dataset
    from recsim_mnar.tasks import tasks as _tasks
    from recsim_mnar.testing.kinds import check_named as _check_named
    from recsim_mnar.worlds import DecisionWorld as DecisionWorld
    from recsim_mnar.worlds import World as World
    from recsim_mnar.worlds import make_world as make_world

    agent = _learner
    calibrate = _calibrate_world
    check = _check_named
    estimate = _estimate_value
    task_names = _tasks
    estimate_file = _answer_file
    validate = _validate_world
    read_log = Log.read

# Public names by the module that defines them, with the name there behind the sign where that is another. A module is
# imported when it is first asked for: `import recsim_mnar` stays light. Type checkers read the block above.
_NAMES = {
    "campaigns.model": "PlatformWorld",
    "datasets.interactions": "Interactions",
    "errors": "MachineError UserError",
    "estimators": "Estimate Facts difference estimate=estimate_value",
    "fitting.calibration": "FittedWorld calibrate=calibrate_world",
    "fitting.validation": "Validation validate=validate_world",
    "log": "Log read_log=Log.read",
    "own_log.replaying": "estimate_agents",
    "own_log.gate": "FileAnswer estimate_file=answer_file",
    "own_log.ab_plan": "ABPlan plan_ab",
    "policies": "FeaturePolicy Learner Policy SampledPolicy",
    "policies.registry": "agent=learner",
    "protocols.base": "Protocol",
    "protocols.comparison": "Comparison compare",
    "protocols.interactions": "compare_interactions",
    "protocols.records": "Record",
    "purchases.world": "ExposureWorld",
    "replays.probabilities": "replay",
    "replays.truth": "value_on_log",
    "simulation": "simulate",
    "simulation.items": "OnlineRun simulate_online",
    "simulation.oracle": "Oracle Planner",
    "studies": "Design Study run_study",
    "tasks": "Evaluation Task TaskDataset evaluate evaluate_agent task task_dataset task_names=tasks",
    "testing.kinds": "check=check_named",
    "worlds": "DecisionWorld World make_world",
}
_DEFINED_IN = {word.partition("=")[0]: (module, word) for module, words in _NAMES.items() for word in words.split()}
_PACKAGES = ("agents", "datasets", "envs", "estimators", "export", "integrations", "testing", "worlds")
__all__ = ["__version__", *_DEFINED_IN, *_PACKAGES]


def __getattr__(name: str) -> _Any:
    """Import a public name or package on first use."""
    if name in _PACKAGES:
        return _importlib.import_module(f"{__name__}.{name}")
    if name not in _DEFINED_IN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, word = _DEFINED_IN[name]
    attribute = _importlib.import_module(f"{__name__}.{module}")
    for part in word.rpartition("=")[2].split("."):
        attribute = getattr(attribute, part)
    return attribute


def __dir__() -> list[str]:
    return sorted(__all__)


# Installed, the agents are inside this package; in a checkout they are next to it, and Python started there imports the
# checkout even where the package is installed.
_next_to_it = _Path(__file__).resolve().parents[1]
if not _Path(__file__).with_name("agents").exists() and (_next_to_it / "agents" / "acting.py").exists():
    __path__.append(str(_next_to_it))

for _world in ("sessions", "campaigns", "ratings", "purchases", "world"):
    _gymnasium.register(
        id=f"recsim_mnar/{_world.capitalize()}-v0",
        entry_point="recsim_mnar.envs:world_env",
        vector_entry_point="recsim_mnar.envs:world_vector_env",
        kwargs={} if _world == "world" else {"world": _world},
    )

for _file in sorted(_Path(__file__).with_name("tasks").joinpath("frozen").glob("*.toml")):
    if "environment = false" in _file.read_text().splitlines():  # to be learned from a log alone
        continue
    _name = _file.stem
    # sessions-slates-10-v1 is recsim_mnar/SessionsSlates10-v1.
    _words, _, _number = _name.rpartition("-")
    _gymnasium.register(
        id=f"recsim_mnar/{''.join(_word.capitalize() for _word in _words.split('-'))}-{_number}",
        entry_point="recsim_mnar.tasks.evaluating:task_env",
        vector_entry_point="recsim_mnar.tasks.evaluating:task_vector_env",
        kwargs={"name": _name},
    )

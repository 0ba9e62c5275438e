"""Names that users import: those at the top and in a few packages, each with a description."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import recsim_mnar

TOP = {
    "verbs": """agent calibrate check compare compare_interactions difference estimate estimate_agents estimate_file
        evaluate evaluate_agent make_world plan_ab read_log replay run_study simulate simulate_online task
        task_dataset task_names validate value_on_log""",
    "nouns": """ABPlan Comparison DecisionWorld Design Estimate Evaluation ExposureWorld
        Facts FeaturePolicy FileAnswer FittedWorld Interactions Learner Log MachineError OnlineRun Oracle Planner
        PlatformWorld Policy Protocol Record SampledPolicy Study Task TaskDataset UserError Validation
        World""",
}
VERBS, NOUNS = TOP["verbs"].split(), TOP["nouns"].split()
PACKAGES = {
    "agents": "",
    "datasets": """Interactions RatingStudy load_coat load_ml100k load_yahoo_r3
        read_interactions read_ratings""",
    "envs": """CampaignsEnv CampaignsVectorEnv PurchasesEnv PurchasesVectorEnv RankingEnv RankingVectorEnv RecordLog
        RecordVectorLog WorldEnv WorldVectorEnv world_env world_vector_env""",
    "estimators": """ESTIMATORS Diagnostics Estimate EstimatorInfo Facts cross_fitted_rewards difference estimate_value
        estimate_without_propensities""",
    "export": """Decisions action_dist decisions distributions from_arrays from_minari from_obp from_vw
        to_d3rlpy to_minari to_obp to_vw""",
    "integrations": "implicit lenskit mabwiser scikit_learn stable_baselines3 vowpal_wabbit",
    "testing": """Breach PolicyContract WorldContract check_estimator check_policy check_protocol check_vector
        check_world example_views""",
    "worlds": """WORLDS CampaignsParams CampaignsWorld DecisionWorld Entry ExposureWorld FeatureParams FeatureWorld
        Lanes Observation Outcomes Params PlainLanes PlatformWorld PurchasesParams PurchasesWorld RatingsParams
        RatingsWorld SessionsParams SessionsWorld SlateParams Transition World as_world entry_of make_world""",
}
MOST = 150
ROOT = Path(recsim_mnar.__file__).parent
NAMES = [
    *(f"recsim_mnar.{name}" for name in (*VERBS, *NOUNS)),
    *(f"recsim_mnar.{package}.{name}" for package, names in PACKAGES.items() for name in names.split()),
]


def thing(name: str) -> object:
    """Return the object of a public name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def test_the_top_holds_these_names_and_no_other():
    assert sorted(recsim_mnar.__all__) == sorted(["__version__", *VERBS, *NOUNS, *PACKAGES])
    assert dir(recsim_mnar) == sorted(recsim_mnar.__all__)


@pytest.mark.parametrize("package", PACKAGES)
def test_a_public_package_holds_these_names_and_no_other(package):
    assert sorted(getattr(thing(f"recsim_mnar.{package}"), "__all__", [])) == sorted(PACKAGES[package].split())


def test_they_are_few():
    """A name that stands at the top and in a package is one."""
    of_libraries = [name for name in NAMES if ".integrations." in name]
    others = {id(thing(name)) for name in NAMES if name not in of_libraries}
    assert len(others) + len(of_libraries) <= MOST


@pytest.mark.parametrize("name", [name for name in NAMES if ".integrations." not in name])
def test_every_public_name_is_there_and_says_what_it_is(name):
    found = thing(name)
    if inspect.isclass(found) or callable(found):
        assert (found.__doc__ or "").strip(), name


def test_nothing_more_has_to_be_imported_first():
    """In a process of their own, each name of a package from the package alone."""
    code = "import recsim_mnar\nfor name in {!r}: eval(name)\nprint('all there')"
    names = [name for name in NAMES if ".integrations." not in name and not name.endswith("Contract")]
    done = subprocess.run([sys.executable, "-c", code.format(names)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "all there", done.stderr


def test_verbs_are_functions():
    assert all(inspect.isroutine(getattr(recsim_mnar, name)) for name in VERBS)
    assert all(inspect.isclass(getattr(recsim_mnar, name)) for name in NOUNS)


def test_no_module_bears_the_name_of_a_function():
    """A package's attribute is one or the other: `recsim_mnar.simulate` was either, by who had imported what."""
    for path in ROOT.rglob("*.py"):
        name = path.parent.name if path.name == "__init__.py" else path.stem
        assert name not in VERBS, path
        package = path.relative_to(ROOT).parts[0]
        functions = [each for each in PACKAGES.get(package, "").split() if package != "integrations"]
        assert name not in functions, path


def test_type_checkers_see_what_is_there():
    """The block under TYPE_CHECKING and the table say the same."""
    block = next(node for node in ast.parse((ROOT / "__init__.py").read_text()).body if isinstance(node, ast.If))
    namespace = {}
    exec(compile(ast.Module(block.body, []), "the block", "exec"), namespace)
    assert {name for name in namespace if not name.startswith("_")} == {*VERBS, *NOUNS}
    for name in (*VERBS, *NOUNS):
        assert namespace[name] == getattr(recsim_mnar, name), name


def test_a_name_that_is_not_there_is_an_attribute_error():
    for place in ("recsim_mnar", "recsim_mnar.envs", "recsim_mnar.worlds", "recsim_mnar.datasets"):
        with pytest.raises(AttributeError, match=f"'{re.escape(place)}' has no attribute 'gymnasion'"):
            thing(f"{place}.gymnasion")


def test_version_and_licence_are_those_of_the_distribution():
    distribution = importlib.metadata.distribution("recsim-mnar")
    assert distribution.version == recsim_mnar.__version__
    assert distribution.metadata["License-Expression"] == "Apache-2.0"
    assert distribution.metadata.get_all("License-File") == ["LICENSE"]

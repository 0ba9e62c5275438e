"""A comparison as names and numbers: what the command line and a study's settings say, before anything is made."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.estimators.off_policy.scores import check_name
from recsim_mnar.policies import registry
from recsim_mnar.protocols.comparison import (
    Comparison,
    check_agents,
    check_comparable,
    chosen_protocols,
    compare,
    experiment_of,
)
from recsim_mnar.protocols.experiment import Holds
from recsim_mnar.worlds.registry import entry_of, make_world
from recsim_mnar.worlds.world_file import is_world_file

CATALOGUES = 20
"""Of the study to which the report of a single comparison points."""


@dataclass(frozen=True)
class Setup:
    """One comparison, but for its seeds; JSON types only.

    Attributes:
        world: a world's name, or a world file's.
        preset: of the world; the comparison's own default where None.
        params: the world's parameters that differ, by name.
        agents: names or ``package.module:Class``; the comparison's list where None.
        references: further agents, which are shown and cannot be picked.
        protocols: names or ``package.module:Class``; the comparison's list where None.
        options: of this world's comparison, by name.
        tie: share of the best true value that counts as nothing.
    """

    world: str = "sessions"
    preset: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    agents: tuple[str, ...] | None = None
    references: tuple[str, ...] = ()
    protocols: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    tie: float = 0.0

    def command(self, catalogues: int) -> str:
        """The line that runs the same on so many catalogues, as a person types it."""
        words = ["recsim-mnar", "compare", "--world", self.world]
        words += ["--preset", self.preset] if self.preset is not None else []
        for flag, names in (
            ("--agents", self.agents),
            ("--references", self.references),
            ("--protocols", self.protocols),
        ):
            words += [flag, ",".join(names)] if names else []
        for flag, pairs in (("--set", self.params), ("--option", self.options)):
            words += [word for name, value in pairs.items() for word in (flag, f"{name}={value}")]
        words += ["--tie", f"{self.tie:g}"] if self.tie else []
        return shlex.join([*words, "--catalogues", str(catalogues)])

    def resolved(self, catalogue_seed: int | None = None) -> Resolved:
        """World, agents and settings made; a UserError names what cannot be."""
        entry = entry_of(self.world)
        experiment = experiment_of(entry.world_class())
        usual = experiment.preset in entry.presets() and not is_world_file(self.world)
        preset = self.preset or (experiment.preset if usual else None)
        params = dict(self.params)
        world = make_world(self.world, preset, [f"{name}={value}" for name, value in params.items()])
        if catalogue_seed is not None and "catalogue_seed" in world.params.to_dict():
            params["catalogue_seed"] = catalogue_seed
            world = make_world(self.world, preset, [f"{name}={value}" for name, value in params.items()])
        settings = experiment.settings(preset, self.options)
        chosen_protocols(experiment, self.protocols, world.name)
        for name in str(getattr(settings, "estimators", "")).split(","):
            if name.strip():
                check_name(name.strip())
        names = [*(experiment.agents if self.agents is None else self.agents), *self.references]
        if len(set(names)) < len(names):
            raise UserError(f"agent {next(n for n in names if names.count(n) > 1)} is named twice")
        specs = {name: experiment.spec_of(name, settings) for name in names}
        made = {name: registry.learner(spec) for name, spec in specs.items()}
        for spec in experiment.further_agents(settings):
            registry.learner(spec)
        check_agents(experiment, world, made)
        check_comparable(len(made) - len(self.references), world.n_items)
        return Resolved(self, preset, world, settings, specs)


@dataclass(frozen=True)
class Resolved:
    """A setup whose names have been looked up.

    Attributes:
        setup: what was asked for.
        preset: of the world.
        world: of one catalogue.
        settings: of its comparison.
        specs: what each agent's name stands for.
    """

    setup: Setup
    preset: str | None
    world: Any
    settings: Any
    specs: dict[str, str]

    def run(
        self, seed: int, *, executor: Executor | None = None, report: Callable[[str], None] = lambda stage: None
    ) -> Comparison:
        """The comparison with a seed."""
        found = compare(
            self.world,
            {name: registry.learner(spec) for name, spec in self.specs.items()},
            protocols=self.setup.protocols,
            settings=self.settings,
            references=self.setup.references,
            tie=self.setup.tie,
            seed=seed,
            executor=executor,
            report=report,
        )
        found.again = self.setup.command(CATALOGUES)
        return found

    def holds(self) -> Holds | None:
        """About what the comparison holds in memory; None where nobody can say."""
        return experiment_of(self.world).holds(self.world, self.settings, len(self.specs))

    def run_config(self, seed: int) -> dict[str, Any]:
        """What suffices to make it again."""
        return {
            "world": self.world.describe(),
            "preset": self.preset,
            "settings": asdict(self.settings),
            "protocols": None if self.setup.protocols is None else list(self.setup.protocols),
            "agents": self.specs,
            "references": list(self.setup.references),
            "tie": self.setup.tie,
            "seed": seed,
        }

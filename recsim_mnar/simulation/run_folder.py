"""Simulation into a folder, new or of an interrupted run.

Each function of a request has the same two arguments and returns what the folder then holds, so that a world's entry
(:class:`recsim_mnar.worlds.registry.Entry`) can name one of its own. The way back, from a log's provenance to the
policy, is :func:`logging_policy`.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from recsim_mnar.errors import UserError
from recsim_mnar.log.table import FORMATS, Log, Provenance, check_format, record_part
from recsim_mnar.policies import registry
from recsim_mnar.policies.door import check_needs
from recsim_mnar.rng import check_seed, derive_seed
from recsim_mnar.runs.files import replacing
from recsim_mnar.runs.folder import SIMULATION, RunFolder
from recsim_mnar.runs.receipts import INDEX
from recsim_mnar.simulation.executor import SHARD_USERS, together, user_shards
from recsim_mnar.simulation.items import Recommender, as_recommender, checked_run, mapped, provenance, simulate
from recsim_mnar.simulation.own_code import origin_of
from recsim_mnar.tables.files import PACKED, listed, part_path, read_table, write_table
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import DecisionWorld, World

PART_SHARDS = 8
"""Shards of users in one Parquet part: some 800,000 rows in the sessions world."""

TRUTH = "truth.parquet"
CATALOGUE = "catalogue.npz"
_NOT_OF_THE_LOG = ("truth", "format")
"""Of the manifest: what says nothing of how the log was made."""


@dataclass(frozen=True)
class Written:
    """Contents of a folder after writing.

    Attributes:
        n_users: in the log.
        n_rows: in the log.
        n_parts: of the log.
        n_kept: parts that an earlier run had written.
    """

    n_users: int
    n_rows: int
    n_parts: int = 1
    n_kept: int = 0


def simulate_to(
    folder: Path,
    world: World,
    policy: Any,
    n_users: int,
    seed: int,
    *,
    training: Provenance | None = None,
    keep_truth: bool = False,
    form: str = "parquet",
    resume: bool = False,
    executor: Executor | None = None,
    progress: Callable[[int], None] = lambda users: None,
) -> Written:
    """Simulate into a folder: ``log/`` and, where asked for, ``truth.parquet`` and ``catalogue.npz``.

    A part is a fixed range of users, written under a temporary name and renamed, and taken down in a receipt; the index
    of receipts is written last. ``resume`` keeps the parts that are what their receipts say and makes the others. One
    process owns the folder meanwhile. Memory is bounded by a few parts.

    Args:
        folder: a new one, or with ``resume`` that of the interrupted run.
        world: where users live.
        policy: what recommends.
        n_users: how many.
        seed: of the users and of the policy's uniforms.
        training: what the policy was fitted on, for the provenance; JSON types only.
        keep_truth: write the truth too.
        form: of the parts, ``parquet`` or ``arrow`` (larger, and sooner written).
        resume: keep what is there.
        executor: to spread shards over.
        progress: called with the number of users done since the last call.

    Raises:
        UserError: the folder holds something else, or what was made otherwise (other parameters, code or versions), or
            another process writes it; or as :func:`recsim_mnar.simulation.items.simulate`.
    """
    policy = as_recommender(world, policy)
    n_users, seed = checked_run(world, policy, n_users, seed, 0)
    if keep_truth and world.truth_column is None:
        raise UserError(f"the {world.name} world has no truth column: it says no expected reward; ask for no truth")
    run_config = {**provenance(world, policy, n_users, seed), "training": training, "truth": keep_truth}
    run_config["format"] = check_format(form)
    settings = {**run_config, "code": origin_of(world, policy)}
    with (
        RunFolder.fill(folder, resume=resume) as into,
        parts_of(into, SIMULATION, settings, len(_shares(n_users))) as parts,
    ):
        return _fill(into, parts, world, policy, run_config, executor, progress)


@contextlib.contextmanager
def parts_of(into: RunFolder, manifest: str, settings: Mapping[str, Any], n_parts: int) -> Iterator[RunFolder]:
    """The folder ``log`` of a run's folder, filled within the block, and then recorded in that one.

    Args:
        into: the folder of the run.
        manifest: its name.
        settings: of the run, see :meth:`recsim_mnar.runs.folder.RunFolder.refuse_other_run`; ``format`` of its parts.
        n_parts: number of them.

    Raises:
        UserError: the folder holds another run, or a table that is none of its parts is among them.
    """
    made = into.refuse_other_run(manifest, settings)
    log = into.path / "log"
    if log.is_dir():
        expected = {part_path(log, i, FORMATS[settings["format"]]).name for i in range(n_parts)}
        for file in listed(log):
            if file.name not in expected:  # a reader would read it
                raise UserError(f"cannot resume: {file} is not part of this run: move it away")
    into.begin_run(manifest, settings, made)
    with RunFolder.fill(log, keep_others=True) as parts:
        parts.begin(made)
        yield parts
    into.record(f"log/{INDEX}")


def _shares(n_users: int) -> list[tuple[int, int]]:
    """First user and number of users of each part."""
    return list(user_shards(0, n_users, PART_SHARDS * SHARD_USERS))


def _fill(
    into: RunFolder,
    parts: RunFolder,
    world: World,
    policy: Recommender,
    config: Mapping[str, Any],
    executor: Executor | None,
    progress: Callable[[int], None],
) -> Written:
    """Make the parts that are missing or damaged, and the truth where the configuration of the run asks for it."""
    import pyarrow as pa

    form = config["format"]
    keep_truth = bool(config["truth"])
    shares = _shares(config["n_users"])
    truth_names = [f".truth-{i:05d}.parquet" for i in range(len(shares))]
    wants_truth = keep_truth and into.whole(TRUTH) is None
    lacks_log = [parts.whole(part_path(parts.path, i, FORMATS[form]).name) is None for i in range(len(shares))]
    lacks_truth = [wants_truth and into.whole(name) is None for name in truth_names]
    missing = [i for i in range(len(shares)) if lacks_log[i] or lacks_truth[i]]
    progress(config["n_users"] - sum(shares[i][1] for i in missing))
    settings = {key: value for key, value in config.items() if key not in _NOT_OF_THE_LOG}
    divide = functools.partial(_divided, world.truth_column if keep_truth else None)
    shards = [shard for i in missing for shard in user_shards(*shares[i])]
    results = mapped(divide, world, policy, config["seed"], shards, executor, keep_truth)
    for i in missing:
        made = []
        for _, n in user_shards(*shares[i]):
            made.append(next(results))
            progress(n)
        if lacks_truth[i]:
            with into.recording(truth_names[i]) as path:
                write_table(pa.table(together([truth for _, truth in made])), path)
        if lacks_log[i]:
            record_part(parts, i, [rows for rows, _ in made], settings, form)
    if keep_truth:
        _write_truth(into, world, config, truth_names, wants_truth)
    n_rows = sum(receipt.rows or 0 for receipt in parts.index.receipts.values())
    return Written(config["n_users"], n_rows, len(shares), len(shares) - sum(lacks_log))


def _write_truth(into: RunFolder, world: World, config: Mapping[str, Any], names: list[str], merge: bool) -> None:
    """Put the truth of the parts together, and write the catalogue."""
    import pyarrow.parquet as pq

    if merge:
        columns = pq.read_schema(into.path / names[0])
        with (
            into.recording(TRUTH) as path,
            replacing(path) as temporary,
            pq.ParquetWriter(temporary, columns, **PACKED) as writer,
        ):
            for name in names:
                writer.write_table(read_table(into.path / name))
    for name in names:
        into.drop(name)
    if into.whole(CATALOGUE) is None:
        arrays = world.truth_arrays(config["seed"], config["n_users"])
        with into.recording(CATALOGUE) as path, replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # keywords of ours


def _divided(truth_column: str | None, columns: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split columns into those of the log and the truth of its recommendations, if any."""
    log = Log(columns)
    rows = dict(log.columns)
    if truth_column is None:
        return rows, {}
    truth = {name: log[name][log.is_bandit] for name in ("user", "step", truth_column)}
    del rows[truth_column]
    return rows, truth


# ------------------------------------------------------------------------------------------------------------- by names

DEPLOYED = "deployed"
DEPLOYED_NAMES = (DEPLOYED, "house")
"""Names of the policy that a world brings along, its own recommender; the second is what version 0.1.0 called it."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments of a simulation.

    Attributes:
        out: folder.
        policy: name of what recommends, or :data:`DEPLOYED_NAMES`.
        n_users: how many.
        seed: of the users and the policy.
        train_users: users under the uniform policy on whose log a policy that learns is fitted.
        keep_truth: write the truth next to the log.
        form: of the parts, as :func:`recsim_mnar.simulation.run_folder.simulate_to`.
        resume: keep the parts that an interrupted run has written.
        executor: to spread users over.
        progress: called with the number of users done since the last call.
    """

    out: Path
    policy: str
    n_users: int
    seed: int = 0
    train_users: int = 2000
    keep_truth: bool = False
    form: str = "parquet"
    resume: bool = False
    executor: Executor | None = None
    progress: Callable[[int], None] = lambda users: None


def users(world: DecisionWorld, request: Request) -> Written:
    """Simulate users under the policy of a request.

    Raises:
        UserError: as :func:`recsim_mnar.simulation.run_folder.simulate_to`, or the policy is :data:`DEPLOYED_NAMES`,
            which worlds of one item at a time have not.
    """
    if request.policy in DEPLOYED_NAMES:
        raise UserError(f"policy {request.policy}: the {world.name} world has no recommender of its own: name an agent")
    return simulate_request(world, request, *trained(world, request))


def simulate_request(world: World, request: Request, policy: Any, training: Provenance | None) -> Written:
    """Simulate a request under a policy; ``training`` describes what it was fitted on."""
    return simulate_to(
        request.out,
        world,
        policy,
        request.n_users,
        request.seed,
        training=training,
        keep_truth=request.keep_truth,
        form=request.form,
        resume=request.resume,
        executor=request.executor,
        progress=request.progress,
    )


def trained(world: World, request: Request) -> tuple[Any, Provenance]:
    """Fit the policy of a request on other users under the uniform policy; return it and its training."""
    seed = derive_seed(request.seed, "train")
    learner = registry.learner(request.policy)
    check_needs(request.policy, learner, world.log_holds, f"a log of the {world.name} world")
    uniform = registry.uniform_policy(world.n_items)
    train = simulate(world, uniform, request.train_users, seed, executor=request.executor)
    policy = learner.fit(train, n_items=world.n_items, seed=derive_seed(request.seed, "fit"))
    return policy, {"policy": "random", "n_users": request.train_users, "seed": seed}


# ------------------------------------------------------------------------------------------ and back, from a provenance


def logging_policy(
    provenance: Mapping[str, Any], *, name: str | None = None, world: Any = None, executor: Executor | None = None
) -> Any:
    """Make the policy of a simulated log again from its provenance; None if that does not suffice.

    Args:
        provenance: of the log.
        name: of the policy, where somebody says so; else as the provenance says.
        world: of the log, where it is at hand; a catalogue that was given cannot be made again.
        executor: to spread users over.
    """
    try:
        stated = provenance["world"]
        training = provenance["training"]
        spec = name or provenance["policy"]["name"]
        named = [stated["name"], training["policy"]]
        if not name:
            named.append(spec)
        if not all(runs_nothing(str(entry)) for entry in named):
            return None
        if world is None or world.describe() != stated:
            if "catalogue" in stated:
                return None
            world = make_world(stated["name"], None, stated["params"])
        uniform = registry.learner(training["policy"]).fit(Log({}), n_items=world.n_items, seed=0)
        train = simulate(world, uniform, training["n_users"], training["seed"], executor=executor)
        fit_seed = derive_seed(check_seed(provenance["seed"]), "fit")
        return registry.learner(spec).fit(train, n_items=world.n_items, seed=fit_seed)
    except (KeyError, TypeError, UserError):
        return None


def names_catalogue(provenance: Mapping[str, Any], world: Any) -> bool:
    """Return whether a provenance is of a world of this kind with this world's catalogue."""
    stated = provenance.get("world")
    if not isinstance(stated, dict) or stated.get("name") != world.name:
        return False
    own_params = world.params.to_dict()
    params = stated.get("params", {})
    return all(own_params.get(name) == params.get(name) for name in ("n_items", "catalogue_seed", "n_factors"))


def runs_nothing(name: str) -> bool:
    """Return whether a provenance names something of an installed package or of a loaded module.

    A log runs no code.
    """
    head = name.partition("+")[0].strip()
    module, colon, _ = head.partition(":")
    # files name modules, too
    if colon:
        return module in sys.modules
    return "." not in head

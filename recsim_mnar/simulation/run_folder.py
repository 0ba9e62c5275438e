"""Simulation into a new folder or into that of an interrupted run, and the logging policy from a log's provenance.

A world's class names the function that simulates a :class:`Request` of the command line into a folder: it takes the
world and the request, and returns :class:`Written`. Worlds of single users name :func:`simulate_users`.
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
from recsim_mnar.simulation.executor import SHARD_USERS, concatenate_tables, user_shards
from recsim_mnar.simulation.items import (
    Recommender,
    as_recommender,
    checked_run,
    map_checked_shards,
    provenance,
    simulate,
)
from recsim_mnar.simulation.own_code import origin_of
from recsim_mnar.tables.files import PACKED, listed, part_path, read_table, write_table
from recsim_mnar.worlds import make_world
from recsim_mnar.worlds.base import DecisionWorld, World

PART_SHARDS = 8
"""Number of shards of users in one part of a log: about 800,000 rows in the sessions world."""

TRUTH = "truth.parquet"
CATALOGUE = "catalogue.npz"
_NOT_OF_THE_LOG = ("truth", "format")
"""Settings of a run that do not affect the rows of its log, and are left out of its provenance."""


@dataclass(frozen=True)
class Written:
    """Contents of a folder after writing.

    Attributes:
        n_users: number of users in the log.
        n_rows: number of rows in the log.
        n_parts: number of files of the log.
        n_kept: number of these files that an interrupted run had written.
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
    """Simulate users into a folder: ``log/`` and, if requested, ``truth.parquet`` and ``catalogue.npz``.

    A part of the log is a fixed range of users. It is written under a temporary name, renamed, and recorded in a
    receipt with its digest; the index of receipts is written last. One process owns the folder meanwhile. The memory
    needed is that of a few parts.

    Args:
        folder: a new folder, or with ``resume`` that of the interrupted run.
        world: world of the users.
        policy: policy that recommends.
        n_users: number of users.
        seed: seed of the users and of the policy's uniforms.
        training: description of the log on which the policy was fitted, for the provenance; JSON types only.
        keep_truth: True to write the truth as well.
        form: format of the parts, ``parquet`` or ``arrow`` (larger, and faster to write).
        resume: True to keep the parts of an interrupted run that match their receipts, and make the others.
        executor: executor to spread shards over.
        progress: function that is called with the number of users done since the last call.

    Raises:
        UserError: the folder holds other files, or a run with other parameters, code or versions, or another process
            writes to it; or an argument is one that :func:`recsim_mnar.simulation.items.simulate` refuses.
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
        return _make_missing_parts(into, parts, world, policy, run_config, executor, progress)


@contextlib.contextmanager
def parts_of(into: RunFolder, manifest: str, settings: Mapping[str, Any], n_parts: int) -> Iterator[RunFolder]:
    """Open the folder ``log`` within a run's folder as a context, and record its index when the context ends.

    Args:
        into: folder of the run.
        manifest: file name of the run's manifest.
        settings: settings of the run, which those of a resumed run must equal; ``format`` is that of the parts.
        n_parts: number of parts of the log.

    Raises:
        UserError: the folder holds another run, or ``log`` holds a table that is not a part of this run.
    """
    run_digest = into.refuse_other_run(manifest, settings)
    log = into.path / "log"
    if log.is_dir():
        expected = {part_path(log, i, FORMATS[settings["format"]]).name for i in range(n_parts)}
        for file in listed(log):
            if file.name not in expected:  # readers of the folder would take it for a part of the log
                raise UserError(f"cannot resume: {file} is not part of this run: move it away")
    into.begin_run(manifest, settings, run_digest)
    with RunFolder.fill(log, keep_others=True) as parts:
        parts.begin(run_digest)
        yield parts
    into.record(f"log/{INDEX}")


def _shares(n_users: int) -> list[tuple[int, int]]:
    """Return (first user, number of users) of each part of a log."""
    return list(user_shards(0, n_users, PART_SHARDS * SHARD_USERS))


def _make_missing_parts(
    into: RunFolder,
    parts: RunFolder,
    world: World,
    policy: Recommender,
    config: Mapping[str, Any],
    executor: Executor | None,
    progress: Callable[[int], None],
) -> Written:
    """Make the parts of a run that are missing or damaged, and its truth if requested.

    The truth of each part is written to a hidden file, so that a resumed run need not repeat it; once all parts are
    there, these files are merged and deleted.

    Args:
        into: folder of the run.
        parts: folder of its log.
        world: world of the users.
        policy: policy that recommends.
        config: provenance of the log, with ``truth`` and ``format``.
        executor: executor to spread shards over.
        progress: function that is called with the number of users done since the last call.
    """
    import pyarrow as pa

    form = config["format"]
    keep_truth = bool(config["truth"])
    shares = _shares(config["n_users"])
    truth_names = [f".truth-{i:05d}.parquet" for i in range(len(shares))]
    lacks_merged_truth = keep_truth and into.whole(TRUTH) is None
    lacks_log = [parts.whole(part_path(parts.path, i, FORMATS[form]).name) is None for i in range(len(shares))]
    lacks_truth = [lacks_merged_truth and into.whole(name) is None for name in truth_names]
    missing = [i for i in range(len(shares)) if lacks_log[i] or lacks_truth[i]]
    progress(config["n_users"] - sum(shares[i][1] for i in missing))  # users of parts that are kept
    settings = {key: value for key, value in config.items() if key not in _NOT_OF_THE_LOG}
    truth_column = world.truth_column if keep_truth else None
    split_truth = functools.partial(_split_truth, truth_column)
    shards = [shard for i in missing for shard in user_shards(*shares[i])]
    results = map_checked_shards(
        split_truth, world, policy, seed=config["seed"], shards=shards, executor=executor, keep=keep_truth
    )
    for i in missing:
        shards_made = []  # pairs of the columns of the log and those of the truth
        for _, n in user_shards(*shares[i]):
            shards_made.append(next(results))
            progress(n)
        if lacks_truth[i]:
            with into.recording(truth_names[i]) as path:
                write_table(pa.table(concatenate_tables([truth for _, truth in shards_made])), path)
        if lacks_log[i]:
            record_part(parts, i, [rows for rows, _ in shards_made], settings, form)
    if keep_truth:
        _write_truth(into, world, config, truth_names, lacks_merged_truth)
    n_rows = sum(receipt.rows or 0 for receipt in parts.index.receipts.values())
    n_kept = len(shares) - sum(lacks_log)
    return Written(n_users=config["n_users"], n_rows=n_rows, n_parts=len(shares), n_kept=n_kept)


def _write_truth(into: RunFolder, world: World, config: Mapping[str, Any], names: list[str], merge: bool) -> None:
    """Write the catalogue and the merged truth of a run.

    Args:
        into: folder of the run.
        world: world of the users.
        config: provenance of the log.
        names: names of the files with the truth of each part, which are deleted.
        merge: True to merge these files into one; False if an earlier run has done it.
    """
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


def _split_truth(truth_column: str | None, columns: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split simulated columns into a log and its truth.

    Returns:
        The columns of the log, without the truth column.
        User, step and truth of its recommendations; {} without a truth column.
    """
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
"""Names of the world's own recommender; the second is that of version 0.1.0."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """Arguments of a simulation into a folder.

    Attributes:
        out: the folder.
        policy: name of an agent, or one of :data:`DEPLOYED_NAMES` for the world's own recommender.
        n_users: number of users.
        seed: seed of the users and of the policy.
        train_users: number of users under the uniform policy on whose log a learner is fitted.
        keep_truth: True to write the truth next to the log.
        form: format of the log's parts, "parquet" or "arrow".
        resume: True to keep the parts that an interrupted run has written.
        executor: executor to spread users over.
        progress: function that is called with the number of users done since the last call.
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


def simulate_users(world: DecisionWorld, request: Request) -> Written:
    """Fit a request's policy, simulate users under it, and write their log.

    Raises:
        UserError: the request is for a recommender of the world's own, which worlds of single items do not have; or
            :func:`recsim_mnar.simulation.run_folder.simulate_to` refuses an argument.
    """
    if request.policy in DEPLOYED_NAMES:
        raise UserError(f"policy {request.policy}: the {world.name} world has no recommender of its own: name an agent")
    policy, training = fit_policy(world, request)
    return simulate_request(world, request, policy, training)


def simulate_request(world: World, request: Request, policy: Any, training: Provenance | None) -> Written:
    """Simulate a request under a policy and write its log; ``training`` describes the log the policy was fitted on."""
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


def fit_policy(world: World, request: Request) -> tuple[Any, Provenance]:
    """Fit the policy that a request names on the log of other users under the uniform policy.

    Returns:
        The fitted policy.
        Description of the training log, for the provenance.
    """
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
    """Refit the policy under which a log was simulated, from the log's provenance.

    The result is None if the provenance does not suffice, or names code that is neither installed nor loaded: reading
    a log must not run foreign code.

    Args:
        provenance: provenance of the log.
        name: name of the policy; None for that in the provenance.
        world: world of the log, needed if its catalogue was a user's own, which the provenance does not hold; else
            None.
        executor: executor to spread users over.
    """
    try:
        stated = provenance["world"]
        training = provenance["training"]
        spec = name or provenance["policy"]["name"]
        named = [stated["name"], training["policy"]]
        if not name:
            named.append(spec)
        if not all(runs_nothing(str(entry)) for entry in named):
            return None  # a log's provenance must not make its reader run code
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
    """Return whether a log's provenance names a world of the same class and with the same catalogue as ``world``."""
    stated = provenance.get("world")
    if not isinstance(stated, dict) or stated.get("name") != world.name:
        return False
    own_params = world.params.to_dict()
    params = stated.get("params", {})
    return all(own_params.get(name) == params.get(name) for name in ("n_items", "catalogue_seed", "n_factors"))


def runs_nothing(name: str) -> bool:
    """Return whether a name in a provenance can be resolved without running code that is not loaded already.

    These are names of registered agents, and classes (``package.module:Class``) of a loaded module. A name with a dot
    and without a colon is a file, which may be a module to run.
    """
    head = name.partition("+")[0].strip()
    module, colon, _ = head.partition(":")
    if colon:
        return module in sys.modules
    return "." not in head

"""What ``recsim-mnar replay`` is given, and where it writes: in blocks where the log allows it, else at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recsim_mnar.cli.options import new_file
from recsim_mnar.cli.training_log import halves, unfitted
from recsim_mnar.errors import UserError

if TYPE_CHECKING:
    from recsim_mnar.cli.output import JsonOutput
    from recsim_mnar.kernels.memory import MemoryLimit

_WHOLE_ROW_BYTES = 200
"""Of a row of a log that is replayed at once."""
_REPLAYED_ROW_BYTES = 400
"""Of a row of a block that is replayed: its columns, those that are added, and what policies make of them."""


@dataclass(frozen=True)
class Destination:
    """Where a replayed log is written, and in what form; a folder where the form is None."""

    path: Path
    form: str | None
    resume: bool


def destination_of(out: str, resume: bool) -> Destination:
    """Where ``--out`` says.

    Raises:
        UserError: it is neither a file of a known kind nor a folder, or there already.
    """
    from recsim_mnar.log.writing import FORMATS

    path = Path(out)
    forms = {ending: form for form, ending in FORMATS.items()} | {".csv": "csv"}
    form = forms.get(path.suffix.lower())
    if form is None and (out.endswith(("/", os.sep)) or not path.suffix):
        return Destination(path, None, resume)
    if form is None:
        raise UserError(f"--out {out}: name a file that ends in .parquet, .arrow or .csv, or a folder as {out}/")
    if resume:
        raise UserError(f"--resume: {out} is one file, written as a whole; name a folder with --out {path.stem}/")
    new_file(path, "--out")
    return Destination(path, form, resume)


def split_destinations(out: str, resume: bool) -> list[Destination]:
    """The two files of users that are split.

    Raises:
        UserError: a folder; or as :func:`destination_of`.
    """
    path = Path(out)
    if destination_of(out, resume).form is None:
        raise UserError(f"--out {out}: --split-users writes two files; name one that ends in .parquet, .arrow or .csv")
    return [destination_of(str(path.with_stem(f"{path.stem}-half-{half}")), False) for half in (1, 2)]


def fitted_policy(log: Path, learner: Any, name: str, given: Given, n_items: int, seed: int, has_train: bool) -> Any:
    """A policy of a name, fitted; what it lacks is said."""
    from recsim_mnar.rng import derive_seed

    try:
        fitted = learner.fit(given.training, n_items=n_items, seed=derive_seed(seed, "fit"))
        if not given.ours:
            _refuse_without_views(log, given, name, fitted)
        return fitted
    except UserError as error:
        if not given.ours:
            _refuse_without_views(log, given, name)
        raise (error if has_train else unfitted(name, log)) from None


def replay_in_blocks(
    given: Given,
    fitted: dict[str, Any],
    logging: Any,
    target: Destination,
    executor: Any,
    asked: dict[str, Any],
    story: dict[str, Any],
) -> int:
    """Write the replayed log block by block; returns how many parts of a folder were there already."""
    from recsim_mnar.policies.door import as_policy
    from recsim_mnar.progress import counted
    from recsim_mnar.replays.probabilities import Replayed
    from recsim_mnar.replays.replayed_log import ReplayRun

    assert given.blocks is not None
    assert given.survey is not None
    logging = None if logging is None else as_policy(logging)
    replayed = [Replayed(name, as_policy(each), logging) for name, each in fitted.items()]
    run = ReplayRun(given.blocks, given.survey, replayed, executor, counted(given.n_rows, "rows"), story)
    if target.form is None:
        return run.to_folder(target.path, asked, resume=target.resume)
    run.to_file(target.path, target.form)
    return 0


def replay_at_once(
    data: Any, fitted: dict[str, Any], logging: Any, target: Destination, executor: Any, story: dict[str, Any]
) -> None:
    """Write the replayed log from all of its rows; its provenance says the story of what policies were fitted on."""
    from recsim_mnar.log.writing import write_part
    from recsim_mnar.replays.probabilities import UNSUPPORTED, replay_with_support
    from recsim_mnar.replays.probabilities import replay as replay_policy
    from recsim_mnar.tables.parts import write_file

    if target.form is None:
        raise UserError(
            f"--out {target.path}: a folder of parts is written of this package's logs only, and of policies that do "
            "not learn from all users; name a file"
        )
    result = data
    for name, each in fitted.items():
        if logging is None:
            result = result.with_column(name, replay_policy(data, each, executor=executor))
            continue
        probability, missing = replay_with_support(data, each, logging, executor=executor)
        result = result.with_column(name, probability).with_column(name + UNSUPPORTED, missing)
    if target.form == "csv":
        result.write_csv(target.path)
    else:
        made = {**result.provenance, **story}
        write_file(target.path, len(result), lambda path: write_part(path, [result.columns], made))


@dataclass(frozen=True)
class Given:
    """The log that is replayed and the one to train on.

    Attributes:
        path: of the log.
        training: the log to train on, empty where none was named.
        ours: whether they are logs of this package's.
        data: all rows, where they were read at once.
        blocks: the log in its files, where it is read block by block.
        survey: of it.
        shared: users in both.
    """

    path: Path
    training: Any
    ours: bool
    data: Any = None
    blocks: Any = None
    survey: Any = None
    shared: int = 0

    @property
    def provenance(self) -> dict[str, Any]:
        """Of the log."""
        source: Any = self.blocks if self.data is None else self.data
        found: dict[str, Any] = source.provenance
        return found

    @property
    def n_rows(self) -> int:
        """Of the log."""
        return int(self.survey.n_rows) if self.data is None else len(self.data)

    @property
    def n_users(self) -> int:
        """Of the log."""
        return int(self.survey.n_users) if self.data is None else len(self.data.users())

    @property
    def n_items(self) -> int:
        """What the log's world says, else the largest item met plus one."""
        from recsim_mnar.simulation.named import items_told, n_items_of

        if self.data is not None:
            return n_items_of(self.data)
        return items_told(self.provenance, int(self.survey.highest_item) + 1)

    @property
    def all_bandit(self) -> bool:
        """Whether the log holds no views."""
        return bool(self.survey.all_bandit if self.data is None else self.data.is_bandit.all())

    def whole(self, limit: MemoryLimit) -> Any:
        """All rows."""
        from recsim_mnar.log.table import Log

        if self.data is not None:
            return self.data
        limit.hold(self.n_rows * _WHOLE_ROW_BYTES, f"{self.path}: a policy that learns from all users")
        return Log.read(self.path).validate(first_row=1)

    def threads(self, n: int, n_policies: int, limit: MemoryLimit) -> int:
        """How many threads there is memory for, at most ``n``."""
        from recsim_mnar.simulation.executor import SHARD_USERS

        if self.blocks is None:
            return n
        rows = SHARD_USERS * self.n_rows / max(int(self.survey.n_users), 1)
        a_block = rows * (_REPLAYED_ROW_BYTES + 16 * n_policies)
        return limit.count(3 * a_block, 1, n, f"replay {self.path}")


def given_logs(log: Path, train: Path | None, reading: Any, limit: MemoryLimit, json_output: JsonOutput) -> Given:
    """LOG and the log to train on; what was taken of files that are not this package's is said."""
    import numpy as np

    from recsim_mnar.log.blocks import LogBlocks
    from recsim_mnar.log.table import Log
    from recsim_mnar.own_log.as_log import needs_numbering, read_as_logs

    paths = [log] if train is None else [log, train]
    foreign = [needs_numbering(path) for path in paths]
    if all(foreign):
        limit.hold(least_bytes(log), f"{log}: a file of your own is read at once and")
        found = read_as_logs(paths, reading)
        for line in found.lines:
            json_output.say(line)
        data = found.logs[0].validate()
        training = found.logs[1].validate() if train is not None else Log({})
        return Given(log, training, False, data, shared=_shared_users(data, training))
    if any(foreign):
        ours = paths[foreign.index(False)]
        raise UserError(
            f"{paths[foreign.index(True)]} is a file of your own and {ours} a log of this package's, which numbers its "
            "items: give LOG and --train in one form"
        )
    training = Log.read(train).validate(first_row=1) if train is not None else Log({})
    blocks = LogBlocks.open(log)
    if blocks is None:
        limit.hold(least_bytes(log), f"{log}: a file of this kind is read at once and")
        data = Log.read(log).validate(first_row=1)
        return Given(log, training, True, data, shared=_shared_users(data, training))
    others = None if _of_other_seeds(blocks, training) else np.unique(training["user"])
    survey = blocks.survey(others)
    return Given(log, training, True, None, blocks, survey, survey.shared_users)


def halves_of(given: Given, seed: int, limit: MemoryLimit) -> list[Given]:
    """Each half of a log's users, with the other to train on."""
    one, other = halves(given.whole(limit), seed)
    return [Given(given.path, other, given.ours, one), Given(given.path, one, given.ours, other)]


def least_bytes(log: Path) -> float:
    """About what a file takes that is read at once."""
    from recsim_mnar.tables.files import part_files

    return 3.0 * sum(file.stat().st_size for file in part_files(log))


def digest_of_log(train: Path | None) -> str | None:
    """A digest of the log to train on."""
    from recsim_mnar.replays.replayed_log import digest_of_files
    from recsim_mnar.tables.parts import Parts

    return None if train is None else digest_of_files(Parts.of(train))


def _refuse_without_views(log: Path, given: Given, name: str, fitted: Any = None) -> None:
    """Say that a log without views replays nothing but policies that look at no history."""
    if given.all_bandit and (fitted is None or fitted.fixed_distribution() is None):
        raise UserError(
            f"{log} has no item events (views), so {name} would act on empty histories: add the users' views as rows, "
            "or give estimate the policy's own probabilities with --target-file"
        )


def _of_other_seeds(data: Any, training: Any) -> bool:
    """Whether two logs share no user because their provenance says that they are of different seeds."""
    seeds = [each.provenance.get("seed") for each in (data, training)]
    return len(training) == 0 or (None not in seeds and seeds[0] != seeds[1])


def _shared_users(data: Any, training: Any) -> int:
    """Users in both logs; 0 where their provenance says that they are users of different seeds."""
    if _of_other_seeds(data, training):
        return 0
    return len(set(data["user"].tolist()) & set(training["user"].tolist()))


def bound_of(logging: Any) -> dict[str, Any]:
    """For a replayed log's provenance: the least propensity of its policy, where both are known."""
    from recsim_mnar.estimators.off_policy.stated import PROPENSITY_MIN
    from recsim_mnar.policies.door import as_policy
    from recsim_mnar.replays.probabilities import least_propensity

    least = None if logging is None else least_propensity(as_policy(logging))
    return {} if least is None else {PROPENSITY_MIN: least}

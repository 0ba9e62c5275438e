"""The digests of one agent through every interface: among users who live apart, and on the campaigns' platform.

A name of an interface is ``group: which``; what stands in one group must be alike.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import package as p
import pyarrow.parquet as pq

Digests = dict[str, str]

SEED, OTHER_SEED = 4, 11
HISTORIES = 40
"""Users whose histories a fitted policy observes before it recommends."""

LANES = (1, 8, 100)
REFUSED = "refused"


class OrderReader(p.Policy):
    """Written outside the package: the last item viewed or the first, so the order of views matters."""

    name = "order-reader"

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items
        self.ends: dict[int, tuple[int, int]] = {}

    def observe(self, users, items):
        for user, item in zip(users.tolist(), items.tolist(), strict=True):
            self.ends[user] = (self.ends.get(user, (item, item))[0], item)

    def reset(self, users):
        for user in users.tolist():
            self.ends.pop(user, None)

    def _ends(self, users):
        return np.array([self.ends.get(user, (0, 0)) for user in users.tolist()]).reshape(-1, 2)

    def act(self, users, uniforms):
        ends = self._ends(users)
        actions = np.where(uniforms < 0.5, ends[:, 1], ends[:, 0])
        return actions, np.where(ends[:, 0] == ends[:, 1], 1.0, 0.5)

    def probabilities(self, users):
        out = np.zeros((len(users), self.n_items))
        np.add.at(out, (np.arange(len(users))[:, None], self._ends(users)), 0.5)
        return out

    def fresh(self):
        return OrderReader(self.n_items)


@dataclass(frozen=True)
class Setting:
    """A world, and who acts in it.

    Attributes:
        world: its name.
        preset: and preset.
        params: what differs from the preset.
        agents: their names and parameters.
        n_users: users of each log.
        n_train: users of the log on which agents are fitted.
        executors: what ``simulate`` spreads its work over, by name.
    """

    world: str
    preset: str
    params: Mapping[str, Any]
    agents: tuple[str, ...]
    n_users: int
    n_train: int
    executors: Mapping[str, Executor | None] = field(repr=False)

    @cached_property
    def made(self) -> Any:
        return p.make_world(self.world, self.preset, self.params)

    @cached_property
    def train(self) -> Any:
        """The log on which the command line fits, too."""
        return self._random_log(self.n_train, p.derive_seed(SEED, "train"))

    @cached_property
    def skewed(self) -> Any:
        """A log in which propensities differ and some items are never recommended."""
        policy = p.learner("user-popularity").fit(self.train, n_items=self.made.n_items, seed=0)
        return p.simulate(self.made, policy, self.n_train, OTHER_SEED)

    @cached_property
    def other(self) -> Any:
        """A log of other users under another policy than most."""
        return self._random_log(self.n_users, OTHER_SEED)

    def _random_log(self, n_users: int, seed: int) -> Any:
        uniform = p.learner("random").fit(p.Log({}), n_items=self.made.n_items, seed=0)
        return p.simulate(self.made, uniform, n_users, seed)

    def env(self, lanes: int | None = None) -> Any:
        name = f"recsim_mnar/{self.world.capitalize()}-v0"
        if lanes is None:
            return gym.make(name, preset=self.preset, **self.params).unwrapped
        return gym.make_vec(name, num_envs=lanes, preset=self.preset, **self.params)

    def arguments(self) -> list[str]:
        """The world, as the command line has it."""
        pairs = [f"{key}={str(value).lower()}" for key, value in self.params.items()]
        return ["--world", self.world, "--preset", self.preset, *(word for pair in pairs for word in ("--set", pair))]


# ------------------------------------------------------------------------------------------------------------- digests


def digest(arrays: Mapping[str, Any]) -> str:
    """The first 16 digits of a sha256 of arrays: names, types, shapes and little-endian bytes, one NaN for all."""
    sha = hashlib.sha256()
    for name in sorted(arrays):
        values = np.asarray(arrays[name])
        if values.dtype.kind not in "biufU":
            raise TypeError(f"{name}: {values.dtype} has no bytes of its own")
        values = values.astype(values.dtype.newbyteorder("<"))
        if values.dtype.kind == "f":
            values = np.where(np.isnan(values), np.nan, values).astype(values.dtype)
        sha.update(f"{name} {values.dtype.str} {values.shape}\n".encode())
        sha.update(values.tobytes())
    return sha.hexdigest()[:16]


def digest_file(path: Path) -> str:
    """Of the columns of a Parquet file, or the arrays of an ``.npz`` file."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as data:
            return digest({name: data[name] for name in data.files})
    table = pq.read_table(path)
    return digest({name: table.column(name).to_numpy() for name in table.column_names})


def alike(found: Digests) -> list[str]:
    """The groups whose digests differ among each other."""
    groups: dict[str, set[str]] = {}
    for name, value in found.items():
        groups.setdefault(name.partition(":")[0], set()).add(value)
    return sorted(group for group, values in groups.items() if len(values) > 1)


@contextmanager
def refusals(found: Digests, name: str) -> Iterator[None]:
    """What the package refuses is written down as that."""
    try:
        yield
    except p.UserError:
        found[name] = REFUSED


# -------------------------------------------------------------------------------------------- users apart: interfaces


def of_users(setting: Setting, spec: str) -> Digests:
    """The digests of an agent among users who live apart from each other."""
    found: Digests = {}
    with refusals(found, "fit"):
        policy = _fitted(setting, spec)
        if spec != "house":
            found["answers of the fitted policy"] = _answers(setting, policy)
            _replayed(setting, policy, found)
        _logs(setting, policy, found)
        _from_command_line(setting, spec, found)
    if spec != "house":
        with refusals(found, "answers of a fit on a skewed log"):
            policy = p.learner(spec).fit(setting.skewed, n_items=setting.made.n_items, seed=p.derive_seed(SEED, "fit"))
            found["answers of a fit on a skewed log"] = _answers(setting, policy)
    return found


def on_exposures(setting: Setting, spec: str) -> Digests:
    """The same of an agent that is fitted on exposures with the propensity of every cell."""
    name, *options = spec.split("+")
    parameters = {key: _value(text) for key, text in (option.split("=") for option in options)}
    uniform = p.learner("random").fit(p.Log({}), n_items=setting.made.n_items, seed=0)
    seed = p.derive_seed(SEED, "train")
    exposures = p.exposures_of(setting.made, uniform, setting.train, setting.n_train, seed)
    policy = p.agent_class(name)(**parameters).fit_exposures(exposures, seed=p.derive_seed(SEED, "fit"))
    found = {"answers of the fitted policy": _answers(setting, policy)}
    _logs(setting, policy, found)
    return found


def _value(text: str) -> float:
    return int(text) if text.isdigit() else float(text)


def _fitted(setting: Setting, spec: str) -> Any:
    if spec == "house":
        return p.DeployedPolicy(setting.made)
    return p.learner(spec).fit(setting.train, n_items=setting.made.n_items, seed=p.derive_seed(SEED, "fit"))


def _answers(setting: Setting, policy: Any) -> str:
    """A policy's answers for users of the training log after it has observed their histories."""
    log = setting.train
    rows = (log["user"] < HISTORIES) & ~log.is_bandit
    users = np.arange(HISTORIES)
    policy = policy.fresh()
    policy.reset(users)
    if setting.made.rates:
        policy.observe_ratings(log["user"][rows], log["item"][rows], log["reward"][rows])
    else:
        policy.observe(log["user"][rows], log["item"][rows])
    arrays = {"probabilities": policy.probabilities(users)}
    if policy.defines("scores"):
        arrays["scores"] = policy.scores(users)
    return digest(arrays)


def _replayed(setting: Setting, policy: Any, found: Digests) -> None:
    """The chances of another policy's actions, and what they would have earned."""
    with refusals(found, "replay: in memory"):
        found["replay: in memory"] = digest({"chance": p.replay(setting.other, policy)})
    if setting.world != "purchases":
        value = p.value_on_log(setting.made, setting.other, {"it": policy}, OTHER_SEED)["it"]
        found["value on another log"] = digest({"value": np.array([value])})


def _logs(setting: Setting, policy: Any, found: Digests) -> None:
    world, n = setting.made, setting.n_users
    for name, executor in setting.executors.items():
        log = p.simulate(world, policy, n, SEED, executor=executor)
        found[f"log: simulate, {name}"] = digest(log.columns)
    kept = p.simulate(world, policy, n, SEED, keep_truth=True)
    truth = (set(kept.columns) - set(log.columns)).pop()
    shown = kept.is_bandit
    found["truth: simulate"] = digest({name: kept[name][shown] for name in ("user", "step", truth)})
    size = 1
    if setting.world == "purchases":
        found["exposures: in memory"] = _digest_exposures(p.exposures_of(world, policy, log, n, SEED))
        size = world.params.slate_size
        if world.params.slates != "fixed":  # an environment's action is a slate of a fixed size
            return
    found["log: single environment"] = digest(p.stepped_again(setting.env(), log, size).columns)
    for lanes in LANES:
        again = p.stepped_again(setting.env(lanes), log, size)
        found[f"log: vector environment, {lanes} lanes"] = digest(again.columns)


def _digest_exposures(exposures: Any) -> str:
    names = ("user", "item", "time", "recommended", "purchased", "propensities")
    return digest({name: getattr(exposures, name) for name in names})


def _from_command_line(setting: Setting, spec: str, found: Digests) -> None:
    """``recsim-mnar simulate --truth`` and ``replay``: what their files hold."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        users = ("--users", setting.n_users, "--train-users", setting.n_train)
        p.command_line(
            "simulate", *setting.arguments(), "--policy", spec, *users, "--seed", SEED, "--truth", "--out", out
        )
        found["log: command line"] = digest(p.Log.read(out / "log").columns)
        found["truth: command line"] = digest_file(out / "truth.parquet")
        if setting.world == "purchases":
            found["exposures: command line"] = _digest_exposures(p.Exposures.read(out))
            found["outcomes.npz"] = digest_file(out / "outcomes.npz")
        else:
            found["catalogue.npz"] = digest_file(out / "catalogue.npz")
        if spec == "house":
            return
        setting.train.write(Path(place) / "train")
        setting.other.write(Path(place) / "other")
        file = Path(place) / "replayed.parquet"
        with refusals(found, "replay: command line"):
            p.command_line(
                "replay", Path(place) / "other", "--policy", spec, "--train", Path(place) / "train",
                "--items", setting.made.n_items, "--seed", SEED, "--out", file,
            )  # fmt: skip
            found["replay: command line"] = digest({"chance": pq.read_table(file).column(spec).to_numpy()})


def of_platform(setting: Setting, spec: str) -> Digests:
    """The digests of a platform whose campaigns show what an agent recommends; or ``house``, or ``organic``: none."""
    found: Digests = {}
    if spec == "organic":
        found["log: no campaign"] = digest(p.platform_log(p.run_campaigns(setting.made, SEED, days=())).columns)
        return found
    recommender = None if spec == "house" else p.learner(spec)
    with refusals(found, "fit"):
        platform = p.run_campaigns(setting.made, SEED, recommender=recommender, sharpness=None)
        found["log: run_campaigns"] = digest(p.platform_log(platform).columns)
        found["truth"] = digest({"acceptance": platform.acceptance(platform.present(), 1)})
        found["log: environment"] = _platform_from_env(setting, recommender)
        _platform_from_command_line(setting, spec, found)
        if recommender is not None:
            _platform_variants(setting, recommender, found)
    if recommender is not None:
        with refusals(found, "fit on the house's log"):
            _on_the_houses_log(setting, recommender, found)
    return found


def _platform_from_env(setting: Setting, recommender: Any) -> str:
    env = setting.env()
    env.reset(seed=SEED)
    over, number = False, 0
    while not over:
        platform, weights = env.platform, env.world.deployed_weights
        if recommender is None:
            over = env.step(weights)[2]
        else:
            log, users = p.additions_log(platform), platform.present()
            policy = recommender.fit(log, n_items=env.world.n_items, seed=p.derive_seed(SEED, f"campaign/{number}"))
            scores = np.where(weights > 0, p.score_users(policy, log, users), -np.inf)
            over = env.step_lists(*platform.best_lists(scores, users))[2]
        number += 1
    return digest(env.log().columns)


def _platform_from_command_line(setting: Setting, spec: str, found: Digests) -> None:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        users = setting.made.params.n_users
        p.command_line(
            "simulate", *setting.arguments(), "--policy", spec, "--users", users, "--seed", SEED, "--truth",
            "--out", out,
        )  # fmt: skip
        found["log: command line"] = digest(p.Log.read(out / "log").columns)
        for name in ("truth.parquet", "catalogue.npz"):
            found[name] = digest_file(out / name)


def _platform_variants(setting: Setting, recommender: Any, found: Digests) -> None:
    """Lists drawn by scores, and retraining round by round."""
    with refusals(found, "log of drawn lists"):
        platform = p.run_campaigns(setting.made, SEED, recommender=recommender, sharpness=1.0)
        found["log of drawn lists"] = digest(p.platform_log(platform).columns)
    loop = {"rounds": 2, "every": 60.0, "seed": SEED}
    platform, rounds = p.feedback_loop(setting.made, recommender, with_loo=False, **loop)
    found["log of a feedback loop"] = digest(p.platform_log(platform).columns)
    found["rounds"] = _digest_rounds(rounds)
    with refusals(found, "rounds with leave-one-out"):
        found["rounds with leave-one-out"] = _digest_rounds(p.feedback_loop(setting.made, recommender, **loop)[1])


def _digest_rounds(rounds: list[Any]) -> str:
    records = [asdict(one) for one in rounds]
    return digest({key: np.array([one[key] for one in records]) for key in records[0]})


def _on_the_houses_log(setting: Setting, recommender: Any, found: Digests) -> None:
    """A recommender of the whole log of a platform, what the house recommended included: its scores, and replayed."""
    platform = p.run_campaigns(setting.made, OTHER_SEED)
    log = p.platform_log(platform)
    policy = recommender.fit(log, n_items=setting.made.n_items, seed=p.derive_seed(SEED, "fit"))
    scores = p.score_users(policy, log.organic(), platform.present())
    found["answers of the fitted policy"] = digest({"scores": scores})
    with refusals(found, "replay"):
        found["replay"] = digest({"chance": p.replay(log, policy)})

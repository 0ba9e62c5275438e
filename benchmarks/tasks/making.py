"""Make the agents of the table: fitted on a task's log, trained among other users, or by Stable-Baselines3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from recsim_mnar import Planner, make_world, simulate_online
from recsim_mnar.agents.bandits.linear import LinThompson, LinUCB
from recsim_mnar.errors import UserError
from recsim_mnar.log.views import Views
from recsim_mnar.policies import Policy
from recsim_mnar.policies.base import Floats, Ints
from recsim_mnar.policies.door import PolicyWrapper
from recsim_mnar.policies.features import FeaturePolicy
from recsim_mnar.policies.rankings import Propensities, RankingPolicy
from recsim_mnar.policies.registry import learner
from recsim_mnar.policies.slots import Entry
from recsim_mnar.rng import derive_seed
from recsim_mnar.tasks.evaluating import Task, task_vector_env

CALENDAR = ("calendar", "arriving", "ageing", "trend")
"""Parameters of a world that moves with time."""
KINDS = ("ppo", "a2c", "dqn")
DEFAULTS: Mapping[str, Any] = {"lanes": 8, "observation": "counts", "scaled": False, "deterministic": False}
"""Of a model with the library's own settings; ``counts`` is what the environments show."""


class Frozen(PolicyWrapper):
    """A policy that learned from all users, as it was left: it learns no more, so users can be taken apart."""

    learns: Literal["nothing"] = "nothing"  # type: ignore[assignment]  # a property of those that learn
    batches_decisions = True  # type: ignore[assignment]  # between two views it does the same

    def __init__(self, learned: Policy) -> None:
        self.inner, self.n_items, self.name = learned, learned.n_items, learned.name

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Nothing."""

    def probabilities(self, users: Ints) -> Floats:
        """See :meth:`Policy.probabilities`; of each user once."""
        asked, of = np.unique(users, return_inverse=True)
        return np.asarray(self.inner.probabilities(asked))[of]

    def act(self, users: Ints, uniforms: Floats) -> tuple[Ints, Floats]:
        """The first item a with uniform < p_0 + ... + p_a."""
        shares = self.probabilities(users)
        top = self.n_items - 1 - np.argmax(shares[:, ::-1] > 0, axis=1)
        actions = np.minimum((np.cumsum(shares, axis=1) <= uniforms[:, None]).sum(axis=1), top)
        return actions, shares[np.arange(len(users)), actions]


def planner(name: str, chosen: Task) -> Policy:
    """What knows the world's parameters and sees observations alone; of a calendar it knows nothing."""
    still = {key: 0.0 for key in CALENDAR if key in chosen.params}
    world = make_world(chosen.world, None, {**chosen.params, **still})
    return Planner(world, myopic=name == "myopic")


def fitted(name: str, chosen: Task, log: Any, seed: int) -> Policy:
    """A learner of ours on the task's log; of seed 0 the very policy that ``evaluate`` fits."""
    fit = derive_seed(chosen.seed, "task/fit")
    n_items = chosen.make_world().n_items
    return learner(name).fit(log, n_items=n_items, seed=fit if seed == 0 else derive_seed(fit, f"table/{seed}"))


class Projected:
    """Of a bandit whose contexts are the mean of the vectors of what a user viewed, where counts would be too long.

    Args:
        n_items: number of items.
        name: of the bandit.
        vectors: (n_items, k).
        **parameters: of the bandit.
    """

    def __init__(self, n_items: int, name: str, vectors: Any, **parameters: Any) -> None:
        self._vectors = np.column_stack([vectors, np.ones(n_items)])
        super().__init__(n_items, name=name, features=np.zeros((1, vectors.shape[1])), **parameters)  # type: ignore[call-arg]

    def fitted(self) -> tuple[dict[str, Any], dict[str, Any]]:
        arrays, parameters = super().fitted()  # type: ignore[misc]
        return {**arrays, "features": self._vectors}, parameters

    @classmethod
    def refitted(cls, n_items: int, name: str, arrays: dict[str, Any], parameters: dict[str, Any]) -> Any:
        policy = cls(n_items, name, arrays["features"][:, :-1], **parameters)
        policy.state = {key: np.array(values) for key, values in arrays.items() if key != "features"}
        return policy

    def _entries(self) -> dict[str, Entry]:
        return {**super()._entries(), "_sums": Entry(np.float64, 0, (self._vectors.shape[1],))}  # type: ignore[misc]

    def _view(self, slots: Any, items: Any) -> None:
        super()._view(slots, items)  # type: ignore[misc]
        np.add.at(self._sums, slots, self._vectors[items])  # type: ignore[attr-defined]

    def _contexts(self, users: Ints, slots: Any) -> Floats:
        sums = self._sums[slots]  # type: ignore[attr-defined]
        known = sums[:, :-1] / (sums[:, -1:] + self._shrinkage)  # type: ignore[attr-defined]
        return np.concatenate([np.ones((len(known), 1)), known], axis=1)


class ProjectedUCB(Projected, LinUCB):
    """LinUCB."""


class ProjectedThompson(Projected, LinThompson):
    """Linear Thompson sampling."""


PROJECTED = {"lin-ucb": ProjectedUCB, "lin-thompson": ProjectedThompson}
"""Of more than :data:`MOST_ITEMS` items, whose contexts are of so many numbers."""
MOST_ITEMS, VECTORS = 200, 20


def item_vectors(log: Any, n_items: int) -> Any:
    """(n_items, 20) right singular vectors of users' view counts, of unit variance per column."""
    views = Views.of(log)
    counts = csr_array((np.ones(len(views.items)), (views.owners(), views.items)), shape=(len(views.users), n_items))
    start = np.full(min(counts.shape), 1.0)
    return svds(counts, k=VECTORS, v0=start)[2].T * np.sqrt(n_items)


def bandit(name: str, chosen: Task, seed: int, *, users: int, lanes: int) -> Policy:
    """A bandit that learned while it acted among other users, then frozen."""
    world, agent = chosen.make_world(), name
    if world.n_items > MOST_ITEMS:
        agent = PROJECTED[name](world.n_items, name, item_vectors(chosen.log(), world.n_items))
    learned = simulate_online(world, agent, users, seed, lanes=lanes).policy
    return Frozen(learned.policy if isinstance(learned, RankingPolicy) else learned)


def trained(kind: str, chosen: Task, setting: Mapping[str, Any], *, steps: int, seed: int) -> Any:
    """A trained model of Stable-Baselines3.

    Args:
        kind: of :data:`KINDS`.
        chosen: the task.
        setting: ``lanes``, ``observation``, ``scaled`` (view counts as shares), ``deterministic`` (the most probable
            action always), and keywords of the algorithm.
        steps: recommendations that it is trained on, a multiple of lanes times the length of a rollout.
        seed: of the model and of the users whom it meets, who are not those of the evaluation.

    Raises:
        UserError: a world of ratings, of which a policy keeps none.
        ImportError: the library is not installed.
    """
    if chosen.make_world().rates:
        raise UserError("a policy of features keeps no ratings, which are what the model observes")
    if kind == "dqn" and chosen.make_world().slate_size > 1:
        raise UserError("DQN takes one action of a list, and here an action is a ranking")
    import stable_baselines3
    import torch

    from recsim_mnar.integrations.stable_baselines3 import ScaledCounts, VecEnvAdapter

    torch.set_num_threads(1)  # small networks: more threads cost more than they save, and round otherwise
    own = {key: value for key, value in setting.items() if key not in DEFAULTS}  # keywords of the algorithm
    if setting["scaled"]:
        own["policy_kwargs"] = {"features_extractor_class": ScaledCounts}
    if kind == "dqn":
        own["buffer_size"] = steps  # whatever it was shown fits
    lanes = task_vector_env(
        setting["lanes"], name=chosen.name, observation=setting["observation"], autoreset_mode="SameStep"
    )
    algorithm = getattr(stable_baselines3, kind.upper())
    model = algorithm("MlpPolicy", VecEnvAdapter(lanes), seed=seed, device="cpu", **own)
    return model.learn(steps)


class Heads(RankingPolicy):
    """A model of rankings, with a head for every place: each place takes an item that none above it has.

    For ``evaluate`` alone, which reads no propensities: what is stated as an item's probability at its place is the one
    given the items above, and the set's is the order's. The true ones would take minutes for a hundred users.

    Args:
        model: trained on rankings, ``MultiDiscrete([n_items] * k)``.
        setting: of the model; ``deterministic`` takes each head's most probable item that is left, else one is drawn.
    """

    set_suffices = True

    def __init__(self, model: Any, setting: Mapping[str, Any]) -> None:
        sizes = model.action_space.nvec
        users = FeaturePolicy(int(sizes[0]), setting["observation"], scores=lambda x: self._shares(x)[:, 0])
        super().__init__(users, len(sizes), type(model).__name__.lower())
        self._model, self._setting = model, setting
        self._last: tuple[Any, Floats] | None = None

    def fresh(self) -> RankingPolicy:
        """See :meth:`RankingPolicy.fresh`; the model is shared."""
        return type(self)(self._model, self._setting)

    def conditional(self, users: Ints, above: Ints) -> Floats:
        """See :meth:`RankingPolicy.conditional`."""
        rows, place = np.arange(len(users)), above.shape[1]
        left = self._heads(users)[:, place] + 1e-12  # a head may be certain of an item that stands above
        left[rows[:, None], above] = 0.0
        if self._setting["deterministic"]:
            return np.eye(self.n_items)[left.argmax(axis=1)]
        return left / left.sum(axis=1, keepdims=True)

    def propensities_of(self, users: Ints, rankings: Ints) -> Propensities:
        """See the class."""
        rows, places = np.arange(len(users)), range(self.slate_size)
        each = [self.conditional(users, rankings[:, :j])[rows, rankings[:, j]] for j in places]
        given = np.stack(each, axis=1)
        return Propensities(given, given, given.prod(axis=1), given.prod(axis=1))

    def _heads(self, users: Ints) -> Floats:
        """(n, k, n_items) probabilities of the heads; asked again only where users have moved on."""
        x = self.policy.features(users)
        if self._last is None or not np.array_equal(self._last[0], x):
            self._last = x, self._shares(x)
        return self._last[1]

    def _shares(self, x: Any) -> Floats:
        import torch

        self._model.policy.set_training_mode(False)
        with torch.no_grad():
            heads = self._model.policy.get_distribution(torch.as_tensor(x)).distribution
        return np.stack([head.probs.numpy().astype(np.float64) for head in heads], axis=1)


def as_policy(model: Any, setting: Mapping[str, Any]) -> Policy | RankingPolicy:
    """The policy of a model, which observes and acts by its setting."""
    from recsim_mnar.integrations.stable_baselines3 import policy_of

    if hasattr(model.action_space, "nvec"):
        return Heads(model, setting)
    return policy_of(model, observation=setting["observation"], deterministic=setting["deterministic"])


def other_users(chosen: Task, seed: int) -> Task:
    """The task on other users than the public ones, for choosing settings."""
    return Task(**{**vars(chosen), "seed": seed})

"""Vowpal Wabbit (BSD-3-Clause): a contextual bandit of it as a policy that learns online, with exact propensities."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from vowpalwabbit import Workspace

from recsim_mnar.errors import UserError
from recsim_mnar.log.contexts import Context, feature_texts
from recsim_mnar.policies.base import Floats, Ints, Policy
from recsim_mnar.policies.features import FeaturePolicy


class VowpalWabbit(FeaturePolicy):
    """Policy with the distribution that Vowpal Wabbit's ``--cb_explore`` predicts; it learns from every outcome.

    Run it by ``simulate_online``, because it learns from all users. Features are named ``f0`` ... by their column, and
    those that are 0 are left out, as :func:`recsim_mnar.export.to_vw` writes them. The cost of an action is minus its
    reward.

    Args:
        arguments: arguments of Vowpal Wabbit without the number of actions, such as ``"--cb_type mtr --epsilon 0.1"``;
            with ``-i file`` it starts from a saved model.
        n_items: number of items.
        observation: name of the features of a user's events, as in :class:`recsim_mnar.policies.FeaturePolicy`.
        learns: ``all users``; or ``nothing`` for a trained model that no longer learns. With the observation ``shown``
            the policy then declares ``own user``, because a recommendation changes that user's features.
        **more: further arguments of :class:`recsim_mnar.policies.FeaturePolicy`.

    Raises:
        UserError: arguments that Vowpal Wabbit refuses.
    """

    learns = "all users"
    batches_decisions = False

    def __init__(
        self, arguments: str, n_items: int, observation: Context = "counts", *, learns: Any = "all users", **more: Any
    ) -> None:
        if "--cb_explore" in arguments:
            raise UserError("give the arguments without --cb_explore: its number is n_items")
        self.arguments = arguments
        self.learns = learns
        # Several decisions in one call are right only if no outcome between them changes the model.
        self.batches_decisions = learns == "nothing"
        more.setdefault("name", "vowpal-wabbit")
        super().__init__(n_items, observation, distribution=self._predict_distribution, **more)
        self._n_learned = 0  # number of outcomes
        self.workspace = self._open_workspace("")

    def _open_workspace(self, further: str) -> Any:
        """Open a Vowpal Wabbit workspace, which holds a model.

        Args:
            further: arguments after the policy's, such as ``-i file``; "" for none.

        Raises:
            UserError: Vowpal Wabbit refuses the arguments.
        """
        try:
            return Workspace(f"--cb_explore {self.n_items} {self.arguments} {further} --quiet")
        except RuntimeError as error:
            raise UserError(f"Vowpal Wabbit refuses {self.arguments!r}: {' '.join(str(error).split())}") from None

    def _predict_distribution(self, x: NDArray[np.float32]) -> Floats:
        """Predict the distribution over items for features (n, width), (n, n_items)."""
        return np.array([self.workspace.predict(f"| {features}") for features in feature_texts(x)], np.float64)

    def learn(self, users: Ints, actions: Ints, rewards: Floats, propensities: Floats) -> None:
        """Implement :meth:`recsim_mnar.policies.Policy.learn`."""
        if self.learns == "all users":
            for features, action, reward, propensity in zip(
                feature_texts(self.features(users)),
                actions.tolist(),
                rewards.tolist(),
                propensities.tolist(),
                strict=True,
            ):
                cost = 0.0 - reward  # not -reward, which is -0.0 where the reward is 0
                self.workspace.learn(f"{action + 1}:{cost!r}:{propensity!r} | {features}")
            self._n_learned += len(users)
            self.forget_answers()  # predictions stored before are out of date
        super().learn(users, actions, rewards, propensities)

    def fresh(self) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Policy.fresh`: without users, with a copy of the model as it is now."""
        twin = copy.copy(self)
        if self._n_learned:  # a workspace can only be copied through a file
            with tempfile.TemporaryDirectory() as folder:
                model = Path(folder) / "model.vw"
                self.workspace.save(str(model))
                twin.workspace = twin._open_workspace(f"-i {model}")
        else:
            twin.workspace = twin._open_workspace("")
        twin._given_distribution = twin._predict_distribution  # copy.copy kept the method that is bound to self
        twin._start()
        return twin

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`recsim_mnar.policies.Policy.describe`."""
        return {**super().describe(), "arguments": self.arguments}

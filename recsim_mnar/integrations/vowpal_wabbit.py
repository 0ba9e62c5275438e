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
    """Acts by the distribution that ``--cb_explore`` predicts, and learns from every outcome.

    Run it by ``simulate_online``.

    Features are ``f0`` ... for the columns of the features, zeros left out, as :func:`recsim_mnar.export.to_vw` writes
    them; the cost of an action is minus its reward.

    Args:
        arguments: arguments of Vowpal Wabbit without the number of actions: ``"--cb_type mtr --epsilon 0.1"``;
            ``-i file`` begins with a model.
        n_items: number of items.
        observation: observation of users: see :class:`recsim_mnar.policies.FeaturePolicy`.
        learns: ``nothing``: a trained model that only acts (with ``shown`` it then learns from its ``own
            user`` what was shown).
        **more: of :class:`recsim_mnar.policies.FeaturePolicy`.

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
        self.batches_decisions = learns == "nothing"
        super().__init__(n_items, observation, distribution=self._predicted, **{"name": "vowpal-wabbit", **more})
        self._learned = 0
        self.workspace = self._opened("")

    def _opened(self, more: str) -> Any:
        try:
            return Workspace(f"--cb_explore {self.n_items} {self.arguments} {more} --quiet")
        except RuntimeError as error:
            raise UserError(f"Vowpal Wabbit refuses {self.arguments!r}: {' '.join(str(error).split())}") from None

    def _predicted(self, x: NDArray[np.float32]) -> Floats:
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
                self.workspace.learn(f"{action + 1}:{0.0 - reward!r}:{propensity!r} | {features}")
            self._learned += len(users)
            self.forget_answers()
        super().learn(users, actions, rewards, propensities)

    def fresh(self) -> Policy:
        """Implement :meth:`recsim_mnar.policies.Policy.fresh`, with a new workspace that knows what this one does."""
        again = copy.copy(self)
        if self._learned:
            with tempfile.TemporaryDirectory() as folder:
                model = Path(folder) / "model.vw"
                self.workspace.save(str(model))
                again.workspace = again._opened(f"-i {model}")
        else:
            again.workspace = again._opened("")
        again._given_distribution = again._predicted
        again._start()
        return again

    def describe(self) -> Mapping[str, Any]:
        """Implement :meth:`recsim_mnar.policies.Policy.describe`."""
        return {**super().describe(), "arguments": self.arguments}

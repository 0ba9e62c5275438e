"""Policies of factor models: for the users that the model knows, and for new ones by what they view."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.purchases.factor_model import FactorModel, FactorModelConfig
from recsim_mnar.agents.state.acting import GreedyPolicy
from recsim_mnar.agents.state.known_users import KnownUsersPolicy

_RIDGE = 1e-3
"""Share of the mean square of the regressors that is added to the regression's diagonal."""


class FactorPolicy(KnownUsersPolicy):
    """Greedy by a factor model of known users; anybody else is given the average user's row.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        users, items: the model's tables.
        parameters: the learner's, and ``model``: numbers of users and factors, and the form.
    """

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        users: NDArray[Any],
        items: NDArray[Any],
        parameters: dict[str, Any],
    ) -> None:
        shape = parameters["model"]
        self._parameters = parameters
        self.model = FactorModel(
            int(shape["n_users"]), n_items, int(shape["factors"]), FactorModelConfig(**shape["form"]), users, items
        )
        self._scorer = self.model.scorer()
        self._rows = np.concatenate(
            [users.reshape(-1, self.model.n_users, users.shape[1]), self.model.average_user()[:, None]], axis=1
        )
        super().__init__(n_items, self.model.n_users, name)

    @classmethod
    def of(cls, model: FactorModel, name: str, parameters: dict[str, Any]) -> FactorPolicy:
        """The policy of a fitted model."""
        shape = {"n_users": model.n_users, "factors": model.factors, "form": asdict(model.form)}
        return cls(model.n_items, name, users=model.users, items=model.items, parameters={**parameters, "model": shape})

    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._scorer.of_rows(self._rows[:, rows])

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return {"users": self.model.users, "items": self.model.items}, dict(self._parameters)


def folded(model: FactorModel, counts: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The linear map that best guesses a training user's factors from the mean of the factors of what they viewed.

    Ridge regression over the training users, with an intercept. It makes a score additive in the views, which needs no
    training when a new user comes, and no user id.

    Args:
        model: without response and coupled rows.
        counts: (n_users, n_items) scipy CSR array of the views that the model was trained on.

    Returns:
        (n_items, d) what a view of each item adds to the (not yet divided) sum, and (d,) the intercept.
    """
    d = model.factors
    q = model.items[:, :d].astype(np.float64)
    n = np.asarray(counts.sum(axis=1), np.float64).ravel()
    seen = n > 0
    x = (counts @ q)[seen] / n[seen, None]
    p = model.users[seen, :d].astype(np.float64)
    centre, target = x.mean(axis=0), p.mean(axis=0)
    x, p = x - centre, p - target
    gram = x.T @ x
    gram[np.diag_indices(d)] += _RIDGE * np.trace(gram) / d + np.finfo(np.float64).tiny
    weights = np.linalg.solve(gram, x.T @ p)
    return (q @ weights).astype(np.float32), (target - centre @ weights).astype(np.float32)


class FoldInPolicy(GreedyPolicy):
    """Greedy by a factor model for users it never saw: their factors are guessed from their views.

    A user's factors are ``intercept + mean of rows[item] over the views``; without a view, the average training user's.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        rows: (n_items, d) what each view adds, see :func:`folded`.
        intercept: (d,).
        average: (d,) the average training user's factors.
        items: (n_items, d + 1) factors and bias of the items.
        parameters: the learner's, for provenance.
    """

    def __init__(
        self,
        n_items: int,
        name: str,
        *,
        rows: NDArray[Any],
        intercept: NDArray[Any],
        average: NDArray[Any],
        items: NDArray[Any],
        parameters: dict[str, Any],
    ) -> None:
        self._arrays = {"rows": rows, "intercept": intercept, "average": average, "items": items}
        d = rows.shape[1]
        self._width = d + 4  # the scoring kernel takes factors four at a time; the first of the last four is the bias
        self._factors = np.zeros((self._width, n_items), np.float32)
        self._factors[: d + 1] = items.T
        self._parameters = parameters
        super().__init__(n_items, name)

    @classmethod
    def of(cls, model: FactorModel, counts: Any, name: str, parameters: dict[str, Any]) -> FoldInPolicy:
        """The policy of a model that was trained on these view counts."""
        rows, intercept = folded(model, counts)
        d = model.factors
        return cls(
            model.n_items,
            name,
            rows=rows,
            intercept=intercept,
            average=model.average_user()[0, :d],
            items=np.ascontiguousarray(model.items[:, : d + 1]),
            parameters=parameters,
        )

    def _start(self) -> None:
        self._sums = np.empty((0, self._width - 4))
        self._views = np.empty(0, np.int64)
        super()._start()

    def _resize(self, n_slots: int) -> None:
        super()._resize(n_slots)
        more = n_slots - len(self._sums)
        self._sums = np.concatenate([self._sums, np.zeros((more, self._sums.shape[1]))])
        self._views = np.concatenate([self._views, np.zeros(more, np.int64)])

    def _clear(self, slots: NDArray[np.int64]) -> None:
        super()._clear(slots)
        self._sums[slots] = 0.0
        self._views[slots] = 0
        self._ties[slots] = 0  # without a view the average user's ranking holds, not a tie of all

    def _view(self, slots: NDArray[np.int64], items: NDArray[np.int32]) -> None:
        super()._view(slots, items)
        np.add.at(self._sums, slots, self._arrays["rows"][items])  # one view after another, in float64
        np.add.at(self._views, slots, 1)

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        from recsim_mnar.agents.factors import _factors_kernel

        n = self._views[slots]
        states = np.zeros((len(slots), self._width), np.float32)
        mean = self._sums[slots] / np.maximum(n, 1)[:, None] + self._arrays["intercept"]
        states[:, : self._width - 4] = np.where(n[:, None] > 0, mean, self._arrays["average"])
        states[:, self._width - 4] = 1.0
        out = np.empty((len(slots), self.n_items), np.float32)
        _factors_kernel.project(states, np.arange(len(slots)), self._factors, out)
        return out

    def fitted(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """See :meth:`recsim_mnar.policies.storage.Stored.fitted`."""
        return dict(self._arrays), dict(self._parameters)

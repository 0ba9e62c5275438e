"""Factor models of purchases and their policies, for known users and, from their views, for new ones."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import rng
from recsim_mnar.agents.acting import GreedyPolicy, KnownUsersPolicy, MappedViews
from recsim_mnar.policies.base import Ints

EXTRAS = 8
"""Places after the factors in a row of a table: bias, response to a recommendation, and zeros."""

_TILE = 256


def padded(factors: int) -> int:
    """Round up to a multiple of 8: the kernels' dot products use eight lanes."""
    return -(-factors // 8) * 8


@dataclass(frozen=True)
class FactorModelConfig:
    """Layout of a model: which rows and terms it has.

    Attributes:
        response: each user and item has a term of its own that is added where the item is recommended (RecResp).
        apart_users: users have rows of their own for recommended items (CausE).
        apart_items: likewise items (CausE, CausE-Prod).
    """

    response: bool = False
    apart_users: bool = False
    apart_items: bool = False

    @property
    def ranks_by_difference(self) -> bool:
        """True if items are ranked by sigma(x with) - sigma(x without) rather than by x."""
        return self.response or self.apart_users or self.apart_items


@dataclass(frozen=True)
class FactorModel:
    """Tables of float32 rows [factors | bias, response, zeros]; the rows for recommended items come after the others.

    Attributes:
        n_users, n_items: numbers of users and items (a table that is kept apart has twice as many rows).
        factors: length of the factors, a multiple of 8.
        form: which terms there are.
        users, items: the tables.
    """

    n_users: int
    n_items: int
    factors: int
    form: FactorModelConfig
    users: NDArray[np.float32]
    items: NDArray[np.float32]

    @classmethod
    def start(
        cls, shape: tuple[int, int], factors: int, form: FactorModelConfig, *, scale: float, seed: int
    ) -> FactorModel:
        """Factors from N(0, scale^2), addressed draws; biases and responses 0; coupled rows start equal."""
        d = padded(factors)
        tables = []
        for label, n, apart in (("users", shape[0], form.apart_users), ("items", shape[1], form.apart_items)):
            table = np.zeros((n, d + EXTRAS), np.float32)
            draws = rng.normals(rng.derive_seed(seed, f"factors/{label}"), rng.Stream.FIT, 0, (n, factors))
            table[:, :factors] = scale * draws
            tables.append(np.concatenate([table, table]) if apart else table)
        return cls(shape[0], shape[1], d, form, tables[0], tables[1])

    def copy(self) -> FactorModel:
        """A copy with separate tables."""
        return self.of(self.users.copy(), self.items.copy())

    def of(self, users: NDArray[np.float32], items: NDArray[np.float32]) -> FactorModel:
        """The same form with other tables."""
        return FactorModel(self.n_users, self.n_items, self.factors, self.form, users, items)

    def average_user(self) -> NDArray[np.float32]:
        """(1 or 2, row) mean row of the users; one row each without and with recommendation if these are separate."""
        return (
            self.users.reshape(-1, self.n_users, self.users.shape[1]).mean(axis=1, dtype=np.float64).astype(np.float32)
        )

    def scorer(self) -> Scorer:
        """The model laid out for scoring."""
        return Scorer(self)

    def scores(self, users: Ints) -> NDArray[np.float32]:
        """Ranking scores, (n, n_items): see :meth:`Scorer.of`."""
        return self.scorer().of(np.asarray(users, np.int64))


class Scorer:
    """Scores of all items for known users, or for any row of the users' table.

    Args:
        model: the fitted model; its tables are copied.
    """

    def __init__(self, model: FactorModel) -> None:
        d = model.factors
        form = model.form
        self.form = form
        self.n_items = model.n_items
        self._d = d
        self._users = model.users.reshape(-1, model.n_users, model.users.shape[1])
        items = model.items.reshape(-1, model.n_items, model.items.shape[1]).transpose(0, 2, 1).copy()
        items[:, d + 2] = 1.0  # meets the user's own terms
        self._items = items

    def of(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """(n, n_items): x, or sigma(x with) - sigma(x without) for models that distinguish the two.

        Each row comes from fixed operations that depend on no other row.
        """
        return self.of_rows(self._users[:, users])

    def of_rows(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute :meth:`of` for rows (1 or 2, n, row length) of a users' table."""
        from recsim_mnar.agents.purchases import _training_kernel

        n = rows.shape[1]
        out = np.empty((n, self.n_items), np.float32)
        if not self.form.ranks_by_difference:
            self._project(rows[0], self._items[0], 0.0, out)
            return out
        without = np.empty((min(n, _TILE), self.n_items), np.float32)
        for begin in range(0, n, _TILE):
            part = slice(begin, min(begin + _TILE, n))
            base = without[: part.stop - begin]
            self._project(rows[-1, part], self._items[-1], 1.0, out[part])
            self._project(rows[0, part], self._items[0], 0.0, base)
            _training_kernel.uplift_of_scores(out[part], base)
        return out

    def _project(self, rows: NDArray[Any], items: NDArray[Any], shown: float, out: NDArray[np.float32]) -> None:
        from recsim_mnar.agents.factors import _factors_kernel

        d = self._d
        states = np.zeros((len(rows), d + EXTRAS), np.float32)
        states[:, :d] = rows[:, :d]
        states[:, d] = 1.0
        z = shown if self.form.response else 0.0
        states[:, d + 1] = z
        states[:, d + 2] = rows[:, d] + np.float32(z) * rows[:, d + 1]
        _factors_kernel.project(states, np.arange(len(rows)), items, out)


_RIDGE = 1e-3
"""Share of the mean square of the regressors that is added to the regression's diagonal."""


class FactorPolicy(KnownUsersPolicy):
    """Greedy by a factor model of known users; other users get the mean row.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        users, items: the model's tables.
        parameters: the learner's, and ``model``: numbers of users and factors, and the form.
    """

    def __init__(
        self, n_items: int, name: str, *, users: NDArray[Any], items: NDArray[Any], parameters: dict[str, Any]
    ) -> None:
        shape = parameters["model"]
        self.model = FactorModel(
            int(shape["n_users"]), n_items, int(shape["factors"]), FactorModelConfig(**shape["form"]), users, items
        )
        self._scorer = self.model.scorer()
        self._rows = np.concatenate(
            [users.reshape(-1, self.model.n_users, users.shape[1]), self.model.average_user()[:, None]], axis=1
        )
        super().__init__(n_items, self.model.n_users, name, {"users": users, "items": items}, parameters)

    @classmethod
    def of(cls, model: FactorModel, name: str, parameters: dict[str, Any]) -> FactorPolicy:
        """Policy of a fitted model."""
        shape = {"n_users": model.n_users, "factors": model.factors, "form": asdict(model.form)}
        return cls(model.n_items, name, users=model.users, items=model.items, parameters={**parameters, "model": shape})

    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._scorer.of_rows(self._rows[:, rows])


def folded(model: FactorModel, counts: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Linear map that best predicts a training user's factors from the mean factors of the items viewed.

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
    centre = x.mean(axis=0)
    target = p.mean(axis=0)
    x = x - centre
    p = p - target
    gram = x.T @ x
    gram[np.diag_indices(d)] += _RIDGE * np.trace(gram) / d + np.finfo(np.float64).tiny
    weights = np.linalg.solve(gram, x.T @ p)
    return (q @ weights).astype(np.float32), (target - centre @ weights).astype(np.float32)


class FoldInPolicy(MappedViews, GreedyPolicy):
    """Greedy by a factor model for new users: their factors are predicted from their views.

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

    ranks_strangers = True  # as the average training user

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
        self._mapping = rows
        d = rows.shape[1]
        self._width = d + 4  # the scoring kernel takes factors four at a time; the first of the last four is the bias
        self._factors = np.zeros((self._width, n_items), np.float32)
        self._factors[: d + 1] = items.T
        arrays = {"rows": rows, "intercept": intercept, "average": average, "items": items}
        super().__init__(n_items, name, arrays, parameters)

    @classmethod
    def of(cls, model: FactorModel, counts: Any, name: str, parameters: dict[str, Any]) -> FoldInPolicy:
        """Policy of a model trained on these view counts."""
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

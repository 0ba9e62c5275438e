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
"""Number of columns after the factors in a row of a table: bias, response to a recommendation, and zeros."""

_TILE = 256
"""Number of users scored at once, to bound memory."""


def padded(factors: int) -> int:
    """Round up to a multiple of 8: the kernels' dot products use eight lanes."""
    return -(-factors // 8) * 8


@dataclass(frozen=True)
class FactorModelConfig:
    """Terms and tables of a factor model.

    Attributes:
        response: True if each user and item has a term that is added for recommended items (RecResp).
        apart_users: True if users have separate rows for recommended items (CausE).
        apart_items: True if items have separate rows for when they are recommended (CausE, CausE-Prod).
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
    """Parameters of a factor model of purchases: a row [factors | bias, response, zeros] for each user and item.

    Attributes:
        n_users: number of users.
        n_items: number of items.
        factors: number of columns for factors, a multiple of 8.
        form: terms and tables of the model.
        users: float32 rows of the users; if they have separate rows for recommended items, these follow after all
            others, so that the table has 2 n_users rows.
        items: float32 rows of the items, laid out in the same way.
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
        """Return a model before training: factors drawn from N(0, scale^2), biases and responses 0.

        Separate rows for recommended items start equal to the others.

        Args:
            shape: number of users and number of items.
            factors: number of factors.
            form: terms and tables of the model.
            scale: standard deviation of the factors.
            seed: seed of the draws.
        """
        d = padded(factors)
        tables = []
        for label, n, apart in (("users", shape[0], form.apart_users), ("items", shape[1], form.apart_items)):
            table = np.zeros((n, d + EXTRAS), np.float32)
            draws = rng.normals(rng.derive_seed(seed, f"factors/{label}"), rng.Stream.FIT, 0, (n, factors))
            table[:, :factors] = scale * draws
            if apart:
                table = np.concatenate([table, table])
            tables.append(table)
        return cls(shape[0], shape[1], d, form, tables[0], tables[1])

    def copy(self) -> FactorModel:
        """Return a model with copies of the tables."""
        return self.of(self.users.copy(), self.items.copy())

    def of(self, users: NDArray[np.float32], items: NDArray[np.float32]) -> FactorModel:
        """Return a model of the same form and size with these tables of users and items."""
        return FactorModel(self.n_users, self.n_items, self.factors, self.form, users, items)

    def average_user(self) -> NDArray[np.float32]:
        """Return the mean row of the users, (1, row length), or two rows if recommended items have separate ones."""
        tables = self.users.reshape(-1, self.n_users, self.users.shape[1])  # one, or two with separate rows
        return tables.mean(axis=1, dtype=np.float64).astype(np.float32)

    def scorer(self) -> Scorer:
        """Return the model's scorer, with tables laid out for it."""
        return Scorer(self)

    def scores(self, users: Ints) -> NDArray[np.float32]:
        """Return the ranking scores of n users, (n, n_items), see :meth:`Scorer.of`."""
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
        # A score is a dot product of a user's and an item's row: factors, item's bias, item's response, user's terms.
        items[:, d + 2] = 1.0  # multiplies the sum of the user's bias and response, see _project
        self._items = items

    def of(self, users: NDArray[np.int64]) -> NDArray[np.float32]:
        """Score all items for n users, (n, n_items).

        The score is x, or sigma(x with recommendation) - sigma(x without) for models that distinguish the two. A user's
        scores are the same to the last bit, whatever other users are scored.
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
        scratch = np.empty((min(n, _TILE), self.n_items), np.float32)
        for begin in range(0, n, _TILE):
            part = slice(begin, min(begin + _TILE, n))
            without = scratch[: part.stop - begin]
            # Separate rows for recommended items are last; without them the last is also the first.
            self._project(rows[-1, part], self._items[-1], 1.0, out[part])
            self._project(rows[0, part], self._items[0], 0.0, without)
            _training_kernel.uplift_of_scores(out[part], without)
        return out

    def _project(self, rows: NDArray[Any], items: NDArray[Any], shown: float, out: NDArray[np.float32]) -> None:
        """Write x of n users and all items to ``out`` (n, n_items).

        Args:
            rows: (n, row length) users' rows.
            items: (row length, n_items) items' rows as columns.
            shown: 1 if the items are recommended, 0 if not.
            out: (n, n_items), overwritten.
        """
        from recsim_mnar.agents.factors import _factors_kernel

        d = self._d
        states = np.zeros((len(rows), d + EXTRAS), np.float32)
        states[:, :d] = rows[:, :d]
        states[:, d] = 1.0  # multiplies the item's bias
        z = 0.0  # factor of the responses: 0 in models without them
        if self.form.response:
            z = shown
        states[:, d + 1] = z  # multiplies the item's response
        states[:, d + 2] = rows[:, d] + np.float32(z) * rows[:, d + 1]  # the user's bias and response
        _factors_kernel.project(states, np.arange(len(rows)), items, out)


_RIDGE = 1e-3
"""Ridge of :func:`fold_in_rows`: share of the regressors' mean square that is added to the diagonal."""


class FactorPolicy(KnownUsersPolicy):
    """Policy that recommends the best item by a factor model of the training users; other users get the mean row.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        users: the model's table of users.
        items: the model's table of items.
        parameters: the learner's parameters, and under ``model`` the numbers of users and factors, and the form.
    """

    def __init__(
        self, n_items: int, name: str, *, users: NDArray[Any], items: NDArray[Any], parameters: dict[str, Any]
    ) -> None:
        stored = parameters["model"]
        self.model = FactorModel(
            n_users=int(stored["n_users"]),
            n_items=n_items,
            factors=int(stored["factors"]),
            form=FactorModelConfig(**stored["form"]),
            users=users,
            items=items,
        )
        self._scorer = self.model.scorer()
        tables = users.reshape(-1, self.model.n_users, users.shape[1])
        # Row n_users, after the training users, is that of all other users.
        self._rows = np.concatenate([tables, self.model.average_user()[:, None]], axis=1)
        super().__init__(n_items, self.model.n_users, name, {"users": users, "items": items}, parameters)

    @classmethod
    def of(cls, model: FactorModel, name: str, parameters: dict[str, Any]) -> FactorPolicy:
        """Return the policy of a fitted model; ``parameters`` are the learner's."""
        shape = {"n_users": model.n_users, "factors": model.factors, "form": asdict(model.form)}
        return cls(model.n_items, name, users=model.users, items=model.items, parameters={**parameters, "model": shape})

    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._scorer.of_rows(self._rows[:, rows])


def fold_in_rows(model: FactorModel, counts: Any) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Fit a linear map that predicts a training user's factors from the mean factors of the viewed items.

    By ridge regression over the training users, with an intercept. A new user's factors then follow from the views,
    without further training.

    Args:
        model: a model without responses and without separate rows for recommended items.
        counts: (n_users, n_items) scipy CSR array of the views that the model was trained on.

    Returns:
        rows: (n_items, d) vector of each item; the mean of these over a user's views, plus the intercept, predicts the
            user's factors.
        intercept: (d,).
    """
    d = model.factors
    q = model.items[:, :d].astype(np.float64)  # items' factors
    n = np.asarray(counts.sum(axis=1), np.float64).ravel()  # views of each user
    has_views = n > 0
    x = (counts @ q)[has_views] / n[has_views, None]  # regressors: mean factors of the viewed items
    p = model.users[has_views, :d].astype(np.float64)  # responses: users' factors
    mean_x = x.mean(axis=0)
    mean_p = p.mean(axis=0)
    x = x - mean_x
    p = p - mean_p
    gram = x.T @ x
    # The tiny number keeps the matrix regular if all regressors are 0.
    gram[np.diag_indices(d)] += _RIDGE * np.trace(gram) / d + np.finfo(np.float64).tiny
    weights = np.linalg.solve(gram, x.T @ p)
    return (q @ weights).astype(np.float32), (mean_p - mean_x @ weights).astype(np.float32)


class FoldInPolicy(MappedViews, GreedyPolicy):
    """Policy that recommends the best item by a factor model; users' factors are predicted from their views.

    A user's factors are ``intercept + mean of rows[item] over the views``; before the first view they are those of the
    average training user.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        rows: (n_items, d) vector of each item, averaged over the views, see :func:`fold_in_rows`.
        intercept: (d,) added to that average.
        average: (d,) factors of the average training user.
        items: (n_items, d + 1) factors and bias of the items.
        parameters: the learner's parameters, for provenance.
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
        self._factors[: d + 1] = items.T  # the last column of ``items`` is the item's intercept
        arrays = {"rows": rows, "intercept": intercept, "average": average, "items": items}
        super().__init__(n_items, name, arrays, parameters)

    @classmethod
    def of(cls, model: FactorModel, counts: Any, name: str, parameters: dict[str, Any]) -> FoldInPolicy:
        """Return the policy of a model that was trained on these view counts; ``parameters`` are the learner's."""
        rows, intercept = fold_in_rows(model, counts)
        d = model.factors
        return cls(
            model.n_items,
            name,
            rows=rows,
            intercept=intercept,
            average=model.average_user()[0, :d],
            items=np.ascontiguousarray(model.items[:, : d + 1]),  # factors and bias
            parameters=parameters,
        )

    def _score(self, slots: NDArray[np.int64]) -> NDArray[np.float32]:
        """Implement :meth:`recsim_mnar.agents.acting.GreedyPolicy._score`."""
        from recsim_mnar.agents.factors import _factors_kernel

        n_views = self._views[slots]
        states = np.zeros((len(slots), self._width), np.float32)
        predicted = self._sums[slots] / np.maximum(n_views, 1)[:, None] + self._arrays["intercept"]
        d = self._width - 4
        states[:, :d] = np.where(n_views[:, None] > 0, predicted, self._arrays["average"])
        states[:, d] = 1.0  # multiplies the item's bias
        out = np.empty((len(slots), self.n_items), np.float32)
        _factors_kernel.project(states, np.arange(len(slots)), self._factors, out)
        return out

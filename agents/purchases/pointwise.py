"""Any model of labelled examples as a recommender of purchases, trained on the samples of ULRMF or RMF.

Sato et al. 2019, section 6: "our uplift-based optimizations are generic methods, they are applicable to various
recommender models".
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recsim_mnar.agents.purchases.learners import ULRMF, ExposureLearner, FactorLearner
from recsim_mnar.agents.purchases.training import Plan
from recsim_mnar.agents.state.acting import KnownUsersPolicy
from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in, whole_number
from recsim_mnar.rng import derive_seed

if TYPE_CHECKING:
    from recsim_mnar.log.exposures import Exposures

Ints = NDArray[np.integer[Any]]
Features = Callable[[Ints, Ints], Any]

_BLOCK = 1 << 18
_ANSWERS = ("predict_proba", "decision_function", "predict")  # the first that a model has ranks the items


def one_hot(n_users: int, n_items: int) -> Features:
    """Features of users and items by id: CSR rows (n_users + n_items) with a 1 for the user and a 1 for the item.

    A linear model of these ranks items alike for everyone; one that finds interactions does not.
    """
    from scipy import sparse

    def features(users: Ints, items: Ints) -> Any:
        places = np.stack([users, n_users + items], axis=1).astype(np.int32).ravel()
        starts = np.arange(0, len(places) + 1, 2, dtype=np.int32)
        ones = np.ones(len(places), np.float32)
        # A matrix and not an array: scikit-learn 1.4 takes either, older libraries with its interface the matrix.
        return sparse.csr_matrix((ones, places, starts), shape=(len(users), n_users + n_items))

    return features


class PointwiseLearner(ExposureLearner):
    """Any classifier or regressor, on samples that ULRMF labels: uplift optimisation for any model (Sato et al. 2019).

    A copy of the model is fitted once on all samples, equal ones merged and weighted by their number; or, with
    ``batch``, by ``partial_fit`` on new samples each time (algorithm 1). A sample is drawn from the strata of ``rule``
    at the address that the rule's own training uses, and carries its label: for ULRMF R-P 1, R-NP and NR-P 0, NR-NP 1
    with probability alpha.

    Args:
        model: unfitted, as in scikit-learn: a classifier with ``predict_proba`` or ``decision_function``, or a
            regressor with ``predict``; and ``fit(x, y, sample_weight=...)`` or ``fit(x, y)``, which is given each
            sample as often as it was drawn; with ``batch``, ``partial_fit(x, y)``. Its ``random_state``, if it has
            one, is set from the seed of the fit.
        rule: whose samples these are: ``ULRMF(alpha=..., gamma_p=..., gamma_r=...)``, the default, or ``RMF()`` for
            the same model trained on purchases. The rule's training settings have no effect.
        samples: number drawn.
        batch: samples of a call of ``partial_fit``; None: one call of ``fit``.
        features: of (users, items), (n,) each, the model's input of n rows; :func:`one_hot` where None.
        name: under which results are reported.

    Raises:
        UserError: the rule, the model, the features or a number is not of this kind.
    """

    needs = frozenset({"exposures"})

    def __init__(
        self,
        model: Any,
        rule: FactorLearner | None = None,
        *,
        samples: int = 1_000_000,
        batch: int | None = None,
        features: Features | None = None,
        name: str | None = None,
    ) -> None:
        self.model, self.rule, self.features = model, ULRMF() if rule is None else rule, features
        if not isinstance(self.rule, FactorLearner):
            raise UserError(f"{name or 'PointwiseLearner'}: the rule is {rule!r}. Give an object: ULRMF() or RMF().")
        self.name = name or f"{self.rule.name} {type(model).__name__}"
        self.samples = whole_number(samples, f"{self.name}: samples", 1)
        self.batch = None if batch is None else whole_number(batch, f"{self.name}: batch", 1)
        training, kind = "fit" if batch is None else "partial_fit", model if isinstance(model, type) else type(model)
        # Its class is asked, too: a stack of classifiers predicts only when it is fitted.
        answers = any(hasattr(part, way) for part in (model, kind) for way in _ANSWERS)
        for wrong, line in (
            (kind is model, f"the model is a class, {kind.__name__}. Give an object: {kind.__name__}(...)."),
            (not hasattr(model, training), f"{kind.__name__} has no {training}. Give a model that has it."),
            (not answers, f"{kind.__name__} has no predict. Give a model that has it."),
            (
                features is not None and not callable(features),
                f"features is a {type(features).__name__}. Give a function of (users, items).",
            ),
        ):
            if wrong:
                raise UserError(f"{self.name}: {line}")

    def parameters(self) -> dict[str, Any]:
        """The settings as JSON types, for provenance."""
        shares = {key: getattr(self.rule, key) for key in ("alpha", "gamma_p", "gamma_r") if hasattr(self.rule, key)}
        model = " ".join(repr(self.model).split())
        return {"model": model, "rule": self.rule.name, **shares, "samples": self.samples, "batch": self.batch}

    def plan(self, exposures: Exposures, periods: Sequence[int] | None = None) -> Plan:
        """The rule's plan of samples on some periods (all by default).

        Raises:
            UserError: the exposures lack what the rule learns from, or it does not label single items 0 and 1.
        """
        observed = self.exposed(exposures, periods)
        with self.named():
            plan = self.rule.plan(observed)
        if any(s.second for s in plan.strata) or {s.label for s in plan.strata} != {0, 1}:
            raise UserError(
                f"{self.name}: the samples of {self.rule.name} are not single items with labels 0 and 1. Use ULRMF or "
                "RMF as the rule, with shares that leave room for both labels."
            )
        return plan

    def draws(self, plan: Plan, seed: int, block: int) -> Iterator[tuple[Ints, Ints, Ints]]:
        """All samples in blocks: users, items and labels, (block,) each; the rule draws the same for the same seed."""
        labels, address = plan.labels(), derive_seed(seed, "samples")
        for first in range(0, self.samples, block):
            users, items, _, strata, _, _ = plan.draw(address, first, min(block, self.samples - first))
            yield users, items, labels[strata]

    def examples(self, plan: Plan, seed: int) -> tuple[Ints, Ints, Ints, Ints]:
        """All samples, equal ones merged: users, items, labels and how often each was drawn; by user, item, label."""
        shape = (plan.observed.n_users, plan.observed.n_items, 2)
        counts = np.zeros(int(np.prod(shape)), np.int64)
        for cells in self.draws(plan, seed, _BLOCK):
            counts += np.bincount(np.ravel_multi_index(cells, shape), minlength=len(counts))
        drawn = np.flatnonzero(counts)
        users, items, labels = np.unravel_index(drawn, shape)
        return users, items, labels, counts[drawn]

    def fit_exposures(
        self, exposures: Exposures, *, periods: Sequence[int] | None = None, seed: int = 0
    ) -> ScoreTablePolicy:
        """Build a policy for the users of the exposures from the fitted model's prediction of each cell.

        Raises:
            UserError: see :meth:`plan`; the features are not one row per cell; or the model does not predict a number
                for each, or labels alone.
        """
        plan = self.plan(exposures, periods)
        shape = (exposures.n_users, exposures.n_items)
        features = _a_row_per_cell(self.features or one_hot(*shape), self.name)
        model = self._fitted(plan, features, seed)
        scores = _predictions(model, features, shape, self.name)
        if not np.isfinite(scores).all():
            raise UserError(f"{self.name}: the model's predictions are not finite. Lower its learning rate.")
        return ScoreTablePolicy(shape[1], self.name, scores=scores, parameters=self.parameters())

    def _fitted(self, plan: Plan, features: Features, seed: int) -> Any:
        model = _seeded(self.model, seed)
        if self.batch is not None:
            classes = {"classes": np.arange(2)} if _takes(model.partial_fit, "classes") else {}
            for users, items, labels in self.draws(plan, seed, self.batch):
                model.partial_fit(features(users, items), labels, **classes)
            return model
        users, items, labels, weights = self.examples(plan, seed)
        if _takes(model.fit, "sample_weight"):
            model.fit(features(users, items), labels, sample_weight=weights.astype(np.float64))
            return model
        users, items, labels = (np.repeat(column, weights) for column in (users, items, labels))
        model.fit(features(users, items), labels)
        return model


class ULOMLP(PointwiseLearner):
    """A small neural network on ULRMF's samples (Sato et al. 2019, section 6), by scikit-learn's MLPClassifier.

    One hidden layer of ReLU on one-hot users and items, that is, on the sum of a learnt row of each; Adam, logistic
    loss, each sample new and seen once.

    Args:
        samples: number drawn, in whole steps.
        hidden: units of the hidden layer.
        rate: learning rate.
        penalty: of the squares of all weights, divided by the samples of a step (scikit-learn's ``alpha``).
        step: samples of a gradient step.
        alpha: probability that an item neither recommended nor purchased counts as positive.
        gamma_p: share of the samples that are purchased.
        gamma_r: share of the samples that are recommended, of the purchased and of the others.

    Raises:
        UserError: scikit-learn is missing, or a value is out of range.
    """

    name = "ulo-mlp"

    def __init__(
        self,
        samples: int = 3_000_000,
        hidden: int = 128,
        rate: float = 0.001,
        penalty: float = 0.01,
        step: int = 1000,
        alpha: float = 0.2,
        gamma_p: float = 0.2,
        gamma_r: float = 0.5,
    ) -> None:
        model = small_network(hidden, rate, penalty, step)
        rule = ULRMF(alpha=alpha, gamma_p=gamma_p, gamma_r=gamma_r)
        whole = -(-whole_number(samples, f"{self.name}: samples", 1) // step) * step  # the last step is as long, too
        super().__init__(model, rule, samples=whole, batch=50 * step, name=self.name)


def small_network(hidden: int, rate: float, penalty: float, step: int) -> Any:
    """The network of :class:`ULOMLP`, unfitted.

    Raises:
        UserError: scikit-learn is missing, or a value is out of range.
    """
    try:
        from sklearn.neural_network import MLPClassifier
    except ImportError:
        raise UserError("ulo-mlp needs scikit-learn: pip install 'recsim-mnar[scikit-learn]'") from None
    for name, value in (("hidden", hidden), ("step", step)):
        whole_number(value, f"ulo-mlp: {name}", 1)
    number_in(rate, "ulo-mlp: rate", ends="(]")
    number_in(penalty, "ulo-mlp: penalty")
    # Samples are drawn in random order; shuffling again would use draws of another generator.
    return MLPClassifier((hidden,), learning_rate_init=rate, alpha=penalty, batch_size=step, shuffle=False)


class ScoreTablePolicy(KnownUsersPolicy):
    """Greedy by a table of scores of known users; other users get the mean row.

    Args:
        n_items: number of items.
        name: the name under which results are reported.
        scores: (n_users, n_items).
        parameters: the learner's.
    """

    def __init__(self, n_items: int, name: str, *, scores: NDArray[Any], parameters: dict[str, Any]) -> None:
        mean = scores.mean(axis=0, dtype=np.float64)[None]
        self._table = np.concatenate([scores, mean]).astype(np.float32)
        super().__init__(n_items, len(scores), name, {"scores": self._table[:-1]}, parameters)

    def _scores_of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._table[rows]


def _seeded(model: Any, seed: int) -> Any:
    """Copy a model and set ``random_state`` of it and of its parts."""
    again = copy.deepcopy(model)
    names = again.get_params() if hasattr(again, "get_params") else ()
    states = {key: seed % 2**32 for key in names if key.rpartition("__")[2] == "random_state"}
    if states:
        again.set_params(**states)
    return again


def _takes(method: Callable[..., Any], name: str) -> bool:
    return name in inspect.signature(method).parameters


def _a_row_per_cell(features: Features, name: str) -> Features:
    def checked(users: Ints, items: Ints) -> Any:
        x = features(users, items)
        if np.shape(x)[:1] != users.shape:
            raise UserError(
                f"{name}: features has shape {np.shape(x)} for {len(users)} cells. Return one row per cell."
            )
        return x

    return checked


def _predictions(model: Any, features: Features, shape: tuple[int, int], name: str) -> NDArray[np.float32]:
    """(n_users, n_items) P(label 1), the decision function of a classifier, or the prediction of a regressor."""
    n_users, n_items = shape
    out = np.empty(shape, np.float32)
    step = max(1, _BLOCK // n_items)
    way = next((way for way in _ANSWERS if hasattr(model, way)), None)
    no_ranking = UserError(
        f"{name}: {type(model).__name__} predicts only labels, which cannot rank items. Give a classifier with "
        "predict_proba or decision_function, or a regressor."
    )
    if way is None:
        raise no_ranking
    for first in range(0, n_users, step):
        users = np.arange(first, min(first + step, n_users))
        x = features(np.repeat(users, n_items), np.tile(np.arange(n_items), len(users)))
        y, n = np.asarray(getattr(model, way)(x)), len(users) * n_items
        if y.dtype.kind not in "biuf" or y.shape not in (((n, 2),) if way == "predict_proba" else ((n,), (n, 1))):
            wanted = "a number for each, of predict_proba two"
            raise UserError(f"{name}: {way} gives {y.dtype} of shape {y.shape} for {n} cells. Return {wanted}.")
        out[users] = np.reshape(y[:, 1] if way == "predict_proba" else y, (len(users), n_items))
    # By the values: a classifier of one's own need not have classes_.
    if way == "predict" and np.isin(out, (0, 1)).all():
        raise no_ranking
    return out

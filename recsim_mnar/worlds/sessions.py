"""The sessions world: people who browse and are shown recommendations (the RecoGym v1 model, its defects mended).

Rohde, Bonner, Dunlop, Vasile & Karatzoglou 2018, "RecoGym"; the setting of Jeunen, Rohde & Vasile 2019.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from recsim_mnar import schema
from recsim_mnar.errors import UserError, nearest
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.base import Lanes, Moment, World
from recsim_mnar.worlds.catalogue import Catalogue, make_catalogue
from recsim_mnar.worlds.params import Params
from recsim_mnar.worlds.views import ViewSampler, ViewTables, aligned, view_sampler, view_tables

_RECOGYM_NAMES = {
    "num_products": "n_items",
    "K": "n_factors",
    "sigma_omega_initial": "sigma_omega_initial",
    "sigma_omega": "sigma_omega",
    "sigma_mu_organic": "sigma_mu_organic",
    "number_of_flips": "n_flips",
    "normalize_beta": "normalize_beta",
    "prob_organic_to_bandit": "p_organic_to_bandit",
    "prob_bandit_to_organic": "p_bandit_to_organic",
    "prob_leave_organic": "p_leave_organic",
    "prob_leave_bandit": "p_leave_bandit",
    "change_omega_for_bandits": "drift_in_bandit",
    "normal_time_mu": "clock_mean",
    "normal_time_sigma": "clock_sd",
    "random_seed": "catalogue_seed",
}
# What RecoGym carries in its arguments but its v1 environment does not read, or only to log more.
_RECOGYM_IGNORED = {"num_users", "num_clusters", "phi_var", "with_ps_all", "agent"}


@dataclass(frozen=True)
class SessionsParams(Params):
    """Parameters of the sessions world.

    Attributes:
        n_items: number of items P.
        n_factors: dimension K of interests and item factors.
        sigma_omega_initial: standard deviation of a user's first interests.
        sigma_omega: standard deviation of the drift of interests a unit of time.
        sigma_mu_organic: standard deviation of the items' organic offsets (popularity on the scale of logits).
        n_flips: pairs of items whose click factors and offsets are swapped: the mismatch between what is viewed and
        what
            is clicked. At P/2 with sigma_mu_organic = 3, popularity and click probability are uncorrelated for every P;
            with .1 the factors decide, partners become near-duplicates as P grows (mean cosine .58 at P = 10, .93 at
            2,000), and the correlation rises with P.
        normalize_beta: scale each item's click factors to unit length.
        p_organic_to_bandit: probability, after an organic event, that recommendations follow.
        p_bandit_to_organic: probability, after a recommendation, that browsing follows (a click always leads there).
        p_leave_organic: probability of leaving after an organic event.
        p_leave_bandit: probability of leaving after a recommendation.
        drift_in_bandit: interests drift after every event, not only when browsing follows.
        clock: ``unit`` moves by 1 at each event, ``normal`` by ``|clock_mean + clock_sd z|``.
        clock_mean: of the normal clock.
        clock_sd: of the normal clock.
        catalogue_seed: seed of the items; users have the seed that ``simulate`` or ``reset`` is given.
    """

    n_items: int = 10
    n_factors: int = 5
    sigma_omega_initial: float = 1.0
    sigma_omega: float = 0.1
    sigma_mu_organic: float = 3.0
    n_flips: int = 0
    normalize_beta: bool = False
    p_organic_to_bandit: float = 0.25
    p_bandit_to_organic: float = 0.05
    p_leave_organic: float = 0.01
    p_leave_bandit: float = 0.01
    drift_in_bandit: bool = False
    clock: str = "unit"
    clock_mean: float = 0.0
    clock_sd: float = 1.0
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        if self.n_items < 1:
            raise UserError(f"n_items must be at least 1, got {self.n_items}")
        if self.n_items > 10_000_000:
            raise UserError(f"n_items must be at most 10,000,000, got {self.n_items}")
        if not 1 <= self.n_factors <= 1000:
            raise UserError(f"n_factors must lie in 1..1000, got {self.n_factors}")
        for name in ("sigma_omega_initial", "sigma_omega", "sigma_mu_organic", "clock_sd"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, got {getattr(self, name):g}")
        if not 0 <= self.n_flips <= self.n_items // 2:
            raise UserError(
                f"n_flips must lie in 0..n_items/2 = {self.n_items // 2}, got {self.n_flips}: each flip uses two items"
            )
        for state, out in (("organic", "p_organic_to_bandit"), ("bandit", "p_bandit_to_organic")):
            leave = f"p_leave_{state}"
            for name in (out, leave):
                if not 0 <= getattr(self, name) <= 1:
                    raise UserError(f"{name} must lie in [0, 1], got {getattr(self, name):g}")
            stay = 1 - getattr(self, out) - getattr(self, leave)
            if stay < -1e-12:
                raise UserError(f"{out} + {leave} leave {stay:.3g} for staying: their sum must be at most 1")
        if self.p_leave_organic == 0 and (self.p_organic_to_bandit == 0 or self.p_leave_bandit == 0):
            raise UserError("p_leave_organic = 0: users would never leave; set p_leave_organic above 0")
        if self.clock not in ("unit", "normal"):
            raise UserError(f"clock must be 'unit' or 'normal', got {self.clock!r}")
        check_seed(self.catalogue_seed, "catalogue_seed")

    @classmethod
    def from_recogym(cls, args: Mapping[str, Any]) -> SessionsParams:
        """Parameters from RecoGym's own names (``env_1_args`` and the like).

        RecoGym ignores its ``prob_leave_bandit`` and uses ``prob_leave_organic`` in both states; here each has its own.

        Raises:
            UserError: a name that RecoGym's v1 environment does not have.
        """
        values: dict[str, Any] = {}
        for name, value in args.items():
            if name in _RECOGYM_NAMES:
                values[_RECOGYM_NAMES[name]] = value
            elif name == "time_generator":
                # An instance of RecoGym's NormalTimeGenerator or DefaultTimeGenerator, its class, or its name.
                kind = value if isinstance(value, str) else getattr(value, "__name__", type(value).__name__)
                values["clock"] = "normal" if "normal" in kind.lower() else "unit"
            elif name in _RECOGYM_IGNORED:
                continue
            else:
                raise UserError(f"RecoGym has no parameter {name!r}; {nearest(name, _RECOGYM_NAMES)}")
        return cls.from_dict(values)


PRESETS: dict[str, tuple[SessionsParams, str]] = {
    "jeunen2019": (
        SessionsParams(n_items=2000, n_flips=1000, sigma_mu_organic=0.1, sigma_omega=0.05),
        "the 2019 study: 2,000 items, every item flipped, flat popularity",
    ),
    "recogym-v1": (SessionsParams(), "RecoGym v1's defaults: 10 items, no flips"),
    "quick": (
        SessionsParams(n_items=200, n_flips=100, sigma_mu_organic=0.1, sigma_omega=0.05),
        "the 2019 study made small: 200 items and a tenth of the users, a few seconds",
    ),
}


_ONE_BLOCK = 1 << 25
"""Bytes of a log up to which its columns share a block, for fresh memory comes by the page, and a long block in larger
ones. A longer one is given back to the system at once, where single columns are kept for the next log."""

_USERS_A_CALL = 4096
_FORESEEN = 64


class SessionsWorld(World):
    """Users browse items, meet recommendations, click, and leave.

    Args:
        params: the model; defaults to RecoGym v1's.
    """

    name: ClassVar[str] = "sessions"
    params: SessionsParams

    def __init__(self, params: SessionsParams | None = None) -> None:
        self.params = params or SessionsParams()
        self.n_items = self.params.n_items

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        """The items, drawn from ``catalogue_seed``."""
        p = self.params
        return make_catalogue(
            n_items=p.n_items,
            n_factors=p.n_factors,
            sigma_mu_organic=p.sigma_mu_organic,
            n_flips=p.n_flips,
            normalize_beta=p.normalize_beta,
            seed=p.catalogue_seed,
        )

    @functools.cached_property
    def _sampler(self) -> ViewSampler:
        return view_sampler(self.n_items, self.params.n_factors, self.params.sigma_mu_organic)

    @functools.cached_property
    def _tables(self) -> ViewTables:
        return view_tables(self.catalogue, self._sampler)

    @functools.cached_property
    def _click_factors_by_factor(self) -> NDArray[np.float64]:
        return np.ascontiguousarray(self.catalogue.click_factors.T)

    # ------------------------------------------------------------------------------------------------------ the truth

    def click_probabilities(self, omega: NDArray[np.float64]) -> NDArray[np.float64]:
        """Click probability of every item for users with interests ``omega`` (n, K); returns (n, P)."""
        from recsim_mnar.worlds import _sessions_kernel

        omega = np.ascontiguousarray(omega, dtype=np.float64)
        out = np.empty((len(omega), self.n_items))
        catalogue = self.catalogue
        _sessions_kernel.click_probabilities(self._click_factors_by_factor, catalogue.click_offsets, omega, out)
        return out

    def reward_means(self, state: NDArray[np.float64]) -> NDArray[np.float64]:
        """See :meth:`World.reward_means`: the click probabilities."""
        return self.click_probabilities(state)

    def view_probabilities(self, omega: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probability of viewing every item next for users with interests ``omega`` (n, K); returns (n, P)."""
        logits = np.asarray(omega, dtype=np.float64) @ self.catalogue.item_factors.T + self.catalogue.item_offsets
        logits -= logits.max(axis=1, keepdims=True)
        weights = np.exp(logits)
        return weights / weights.sum(axis=1, keepdims=True)

    def expected_events(self, click_probability: float) -> tuple[float, float]:
        """Mean organic and bandit events a user, were every recommendation clicked with this probability.

        An organic event is followed by a bandit one with probability b = p_organic_to_bandit; a bandit session goes on
        with s = (1 - c)(1 - p_bandit_to_organic - p_leave_bandit) and ends in leaving with (1 - c) p_leave_bandit
        at each event. So an organic event is the last with q = p_leave_organic + b (1 - c) p_leave_bandit / (1 -
        s), and a user has 1/q organic events and b / (1 - s) bandit events for each of them.
        """
        p, c = self.params, click_probability
        per_session = 1 / (1 - (1 - c) * (1 - p.p_bandit_to_organic - p.p_leave_bandit))
        last = p.p_leave_organic + p.p_organic_to_bandit * (1 - c) * p.p_leave_bandit * per_session
        return 1 / last, p.p_organic_to_bandit * per_session / last

    # --------------------------------------------------------------------------------------------------- the dynamics

    def truth_arrays(self, seed: int, n_users: int) -> dict[str, NDArray[Any]]:
        """See :meth:`World.truth_arrays`: the catalogue, which is the same for all users."""
        return self.catalogue.arrays()

    def open_lanes(self, n_lanes: int, *, keep_truth: bool = False) -> SessionsLanes:
        """Places for ``n_lanes`` users; ``keep_truth`` adds the column ``click_probability`` to what they return."""
        return SessionsLanes(self, n_lanes, keep_truth=keep_truth)

    def live(
        self,
        seed: int,
        first_user: int,
        n_users: int,
        distribution: NDArray[np.float64] | None,
        *,
        keep_truth: bool = False,
    ) -> dict[str, NDArray[Any]]:
        """See :meth:`World.live`."""
        from recsim_mnar.worlds import _lives_kernel

        lanes = SessionsLanes(self, 1, keep_truth=keep_truth)
        organic, bandit = self.expected_events(0.01)
        rows = _new_rows(int(n_users * (organic + bandit) * 1.02) + 1024, keep_truth)
        progress = np.zeros(2, np.int64)
        ahead = _draws_ahead(self.params.n_factors)
        if distribution is None:
            chance, cumulative = np.zeros(0), np.zeros(0)
        else:
            chance = np.ascontiguousarray(distribution, dtype=np.float64)
            cumulative = np.cumsum(chance)
            # Rounding may leave the last sum below 1: a draw beyond it belongs to the last item that has a probability.
            cumulative[np.flatnonzero(chance)[-1] :] = np.inf
        while progress[0] < n_users:
            # So many at a time, so that Ctrl-C is heard.
            goal = min(n_users, progress[0] + _USERS_A_CALL)
            _lives_kernel.live(
                lanes.dynamics,
                lanes.tables,
                lanes.tiers,
                lanes._arrays,
                np.uint64(seed),
                first_user,
                goal,
                chance,
                cumulative,
                rows,
                progress,
                lanes.scratch,
                ahead,
            )
            if progress[0] < goal:
                # What is left, at the rate seen so far, with some room.
                capacity = int(len(rows.user) * max(1.1, 1.05 * n_users / (progress[0] + 1))) + 1024
                rows = _grown(rows, min(capacity, 2 * len(rows.user)), int(progress[1]))
        return _columns(rows, int(progress[1]), keep_truth)


def _new_rows(capacity: int, keep_truth: bool) -> Any:
    from recsim_mnar.worlds import _sessions_kernel

    types = [np.dtype(column.dtype) for column in schema.COLUMNS]
    edges = np.cumsum([0] + [-(-capacity * kind.itemsize // 64) * 64 for kind in types])
    if edges[-1] > _ONE_BLOCK:
        arrays = [aligned(capacity, kind) for kind in types]
    else:
        block = aligned(int(edges[-1]), np.uint8)
        arrays = [
            block[first : first + capacity * kind.itemsize].view(kind)
            for first, kind in zip(edges, types, strict=False)
        ]
    return _sessions_kernel.Rows._make([*arrays, np.empty(capacity if keep_truth else 0)])


def _draws_ahead(n_factors: int) -> Any:
    from recsim_mnar.worlds import _lives_kernel as kernel

    deviates = -(-n_factors // 4) * 4 * kernel.DRIFTS
    return kernel.Ahead(
        click=np.empty(kernel.DECISIONS),
        follow=np.empty(kernel.DECISIONS),
        action=np.empty(kernel.DECISIONS, np.int32),
        propensity=np.empty(kernel.DECISIONS),
        eventful=np.empty(kernel.DECISIONS, np.bool_),
        look=np.empty(kernel.VIEWS),
        leave=np.empty(kernel.VIEWS),
        words=np.empty(deviates, np.uint64),
        deviates=np.empty(deviates),
        quantile=np.empty(deviates),
        tails=np.full(deviates, 0.45),
        places=np.empty(deviates, np.int64),
    )


def _grown(rows: Any, capacity: int, used: int) -> Any:
    """Rows with more room, the first ``used`` kept."""
    larger = []
    for old in rows:
        new = np.empty(capacity if len(old) else 0, old.dtype)
        new[:used] = old[:used]
        larger.append(new)
    return type(rows)(*larger)


def _columns(rows: Any, used: int, keep_truth: bool) -> dict[str, NDArray[Any]]:
    """The first ``used`` rows, as views."""
    names = (*schema.NAMES, "click_probability") if keep_truth else schema.NAMES
    return {name: column[:used] for name, column in zip(names, rows, strict=False)}


class SessionsLanes(Lanes):
    """See :class:`recsim_mnar.worlds.base.Lanes`; opened by :meth:`SessionsWorld.open_lanes`."""

    def __init__(self, world: SessionsWorld, n_lanes: int, *, keep_truth: bool) -> None:
        from recsim_mnar.worlds import _sessions_kernel, _softmax_kernel, _tiers_kernel

        self._kernel = _sessions_kernel
        self._keep_truth = keep_truth
        p, t = world.params, world._tables
        sampler = world._sampler
        n_padded, room = t.factors.shape
        remembered, n_sums = 0, 0
        if sampler.hot:
            remembered = t.n_warm + len(t.cold_offsets)
            n_sums = t.centre.shape[1]
        elif sampler.boxes:
            remembered, n_sums = room, sampler.boxes
        self.n_factors = p.n_factors
        self.dynamics = _sessions_kernel.Dynamics(
            organic_to_bandit=p.p_organic_to_bandit,
            organic_out=p.p_organic_to_bandit + p.p_leave_organic,
            bandit_to_organic=p.p_bandit_to_organic,
            bandit_out=p.p_bandit_to_organic + p.p_leave_bandit,
            sigma_initial=p.sigma_omega_initial,
            sigma_drift=p.sigma_omega,
            drift_in_bandit=p.drift_in_bandit,
            unit_clock=p.clock == "unit",
            clock_mean=p.clock_mean,
            clock_sd=p.clock_sd,
            n_factors=p.n_factors,
            stale_limit=sampler.waste if sampler.hot else sampler.drift**2,
            keep_truth=keep_truth,
        )
        clicks = {"click_factors": world.catalogue.click_factors, "click_offsets": world.catalogue.click_offsets}
        known = {**vars(t), **clicks}
        self.tables = _softmax_kernel.Tables(*(known[name] for name in _softmax_kernel.Tables._fields))
        self.tiers = None
        if sampler.hot:
            self.tiers = _tiers_kernel.Tiers(*(known[name] for name in _tiers_kernel.Tiers._fields))
        n = n_lanes
        self._arrays = _softmax_kernel.Lanes(
            seed=np.zeros(n, np.uint64),
            user=np.zeros(n, np.int64),
            phase=np.full(n, _sessions_kernel.GONE, np.int64),
            step=np.zeros(n, np.int64),
            n_organic=np.zeros(n, np.int64),
            n_decisions=np.zeros(n, np.int64),
            n_drifts=np.zeros(n, np.int64),
            time=np.zeros(n),
            omega=np.zeros((n, n_padded)),
            stale=np.zeros((n, n_padded)),
            known=np.zeros(n, np.bool_),
            shift=np.zeros(n, np.float32),
            weights=aligned((n, remembered), np.float32),
            sums=aligned((n, n_sums), np.float32),
        )
        # Plain tuples cross into a kernel at a third of what named ones cost, and get their names back inside.
        self._plain = (tuple(self.dynamics), tuple(self.tables), self.tiers, tuple(self._arrays))
        self.user = self._arrays.user
        self.step = self._arrays.step
        self.time = self._arrays.time
        self.n_decisions = self._arrays.n_decisions
        whole = sampler.hot > 0 or sampler.boxes == 0
        self.scratch = _softmax_kernel.Scratch(
            drift=np.empty(n_padded),
            signs=np.empty(2 * n_padded),
            bound=aligned(n_sums, np.float32),
            blocks=np.empty(n_sums // 16),
            columns=aligned(16, np.float32),
            hot=aligned(t.n_hot, np.float32),
            hot_columns=aligned(16, np.float32),
            wide=aligned(64, np.float32),
            weights=aligned(room if whole else 0, np.float32),
            sums=aligned(len(t.starts) - 1 if whole else 0, np.float32),
        )
        self._rows = _new_rows(64, keep_truth)

    @property
    def state(self) -> NDArray[np.float64]:
        """See :attr:`Lanes.state`: here the interests omega, (n, K)."""
        return self._arrays.omega[:, : self.n_factors]

    def begin(self, which: NDArray[np.int64], seeds: NDArray[np.uint64], users: NDArray[np.int64]) -> Moment:
        """See :meth:`Lanes.begin`."""
        dynamics, _tables, _tiers, arrays = self._plain
        self._kernel.begin(dynamics, arrays, which, seeds, users)
        return self._advance(which, np.zeros(len(which) + 1, np.int64), np.zeros(0, np.int32), np.zeros(0))

    def take(self, which: NDArray[np.int64], actions: NDArray[np.int32], propensities: NDArray[np.float64]) -> Moment:
        """See :meth:`Lanes.take`."""
        return self._advance(which, np.arange(len(which) + 1), actions, propensities)

    def runs(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`Lanes.runs`: the draws that answer a recommendation are addressed, so they can be foreseen."""
        out = np.ones(len(which), np.int64)
        if not self.dynamics.drift_in_bandit:
            self._kernel.find_runs(self._plain[-1], which, _FORESEEN, self.dynamics.bandit_out, out)
        return out

    def take_runs(
        self,
        which: NDArray[np.int64],
        runs: NDArray[np.int64],
        actions: NDArray[np.int32],
        propensities: NDArray[np.float64],
    ) -> Moment:
        """See :meth:`Lanes.take_runs`."""
        edges = np.zeros(len(which) + 1, np.int64)
        np.cumsum(runs, out=edges[1:])
        return self._advance(which, edges, actions, propensities)

    def pass_over(self, which: NDArray[np.int64]) -> NDArray[np.int64]:
        """See :meth:`Lanes.pass_over`; with a normal clock the time that passes is drawn, and nothing is foreseen."""
        out = np.zeros(len(which), np.int64)
        if self.dynamics.unit_clock and not self.dynamics.drift_in_bandit:
            self._kernel.pass_over(self._plain[-1], which, _FORESEEN, self.dynamics.bandit_out, out)
        return out

    def _advance(
        self,
        which: NDArray[np.int64],
        edges: NDArray[np.int64],
        actions: NDArray[np.int32],
        propensities: NDArray[np.float64],
    ) -> Moment:
        starts = np.empty(len(which) + 1, np.int64)
        done, used = 0, 0
        while True:
            done, used = self._kernel.advance(
                *self._plain,
                which,
                done,
                edges,
                actions,
                propensities,
                tuple(self._rows),
                used,
                starts,
                self.scratch,
            )
            if done == len(which):
                break
            self._rows = _grown(self._rows, 2 * len(self._rows.user), used)
        starts[-1] = used
        columns = {name: values.copy() for name, values in _columns(self._rows, used, self._keep_truth).items()}
        return Moment(starts, columns, self._arrays.phase[which] == self._kernel.AWAITING)

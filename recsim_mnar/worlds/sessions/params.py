"""Parameters of the sessions world, by their own names or by RecoGym's, and its presets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.params import Params, must, one_of

LOGISTIC = "logistic"
CLICK_LINKS = ("recogym", LOGISTIC)
POSITION, CASCADE, INDEPENDENT = USER_MODELS = ("position", "cascade", "independent")
ONE, SEVERAL = CLICKS = ("one", "several")
OF_SLATES = ("slate_size", "user_model", "examination", "continues", "continues_after_click", "clicks")
MOST_PLACES = 100
"""Items of a slate at most: marginals of longer ones take too long, and nobody looks so far."""

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
            what is clicked. At P/2 with sigma_mu_organic = 3, popularity and click probability are uncorrelated for
            every P; with .1 the factors decide, partners become near-duplicates as P grows (mean cosine .58 at P = 10,
            .93 at 2,000), and the correlation rises with P.
        normalize_beta: scale each item's click factors to unit length.
        p_organic_to_bandit: probability, after an organic event, that recommendations follow.
        p_bandit_to_organic: probability, after a recommendation, that browsing follows (a click always leads there).
        p_leave_organic: probability of leaving after an organic event.
        p_leave_bandit: probability of leaving after a recommendation.
        drift_in_bandit: interests drift after every event, not only when browsing follows.
        clock: ``unit`` moves by 1 at each event, ``normal`` by ``|clock_mean + clock_sd z|``.
        clock_mean: of the normal clock.
        clock_sd: of the normal clock.
        no_repeats: a user views no item twice, and leaves when none is left; recommendations may repeat. Views are
            drawn from a softmax of the items that are left.
        fatigue: strength, in log probability, with which what was shown or viewed lately is clicked less; 0: none.
            This and the next switches: docs/worlds/sessions.md.
        fatigue_spread: share of it that repeats add for all items.
        fatigue_of_views: what a view counts, where a recommendation counts 1.
        fatigue_memory: factor by which what was shown fades from one event to the next.
        retention: strength with which bad recommendations make users leave sooner and good ones later; 0: not at all.
        retention_memory: factor by which the satisfaction with earlier recommendations fades at each one.
        influence: share of the way that a click moves a user's interests to the item's factors; 0: none.
        calendar: time over which users arrive and popularity moves, in units of the clock; 0: there is none.
        arriving: share of the items that arrive during the calendar.
        ageing: loss of an item's offset over an age of the whole calendar.
        trend: standard deviation over the whole calendar of the random walk of an item's offset.
        slate_size: items shown at each decision, from the top; 1: a single item. This and the next parameters: see
            docs/worlds/slates.md.
        user_model: how users read a slate. ``position`` users look at place r = 1, 2, ... with probability
            r^-``examination``, ``cascade`` users from the top until they stop, ``independent`` users everywhere.
        examination: exponent of ``position`` users.
        continues: probability with which ``cascade`` users go on to the next place after no click.
        continues_after_click: the same after a click.
        clicks: ``several`` in a slate or at most ``one``: the first of ``cascade`` users; of the others one at random
            of those that attract them, so that a place depends on all the others.
        click_link: ``recogym``, whose click probabilities are between .45 and 2.93 %, or ``logistic``, any.
        catalogue_file: instead of a drawn catalogue, an ``.npz`` file with ``item_factors``, ``item_offsets``,
            ``click_factors`` and ``click_offsets`` (a fitted world's, or ``catalogue.npz`` of ``simulate --truth``);
            the file says n_items and n_factors, and sigma_mu_organic, n_flips and normalize_beta are not read.
        catalogue_member: which of the catalogues of a fitted world's file: 0 the best fit, 1, 2, ... its ensemble.
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
    no_repeats: bool = False
    fatigue: float = 0.0
    fatigue_spread: float = 0.0
    fatigue_of_views: float = 0.0
    fatigue_memory: float = 0.9
    retention: float = 0.0
    retention_memory: float = 0.9
    influence: float = 0.0
    calendar: float = 0.0
    arriving: float = 0.0
    ageing: float = 0.0
    trend: float = 0.0
    slate_size: int = 1
    user_model: str = POSITION
    examination: float = 1.0
    continues: float = 0.8
    continues_after_click: float = 0.5
    clicks: str = SEVERAL
    click_link: str = "recogym"
    catalogue_file: str = ""
    catalogue_member: int = 0
    catalogue_seed: int = 0

    def check(self) -> None:
        """Raise UserError naming the parameter that breaks a rule."""
        must(self, "be at least 1", "n_items", "slate_size")
        must(self, "be at most 10,000,000", "n_items")
        must(self, "be in 1..1000", "n_factors")
        must(self, "not be negative", "sigma_omega_initial", "sigma_omega", "sigma_mu_organic", "clock_sd")
        if not 0 <= self.n_flips <= self.n_items // 2:
            raise UserError(
                f"n_flips must be in 0..n_items/2 = {self.n_items // 2}, got {self.n_flips}: each flip uses two items. "
                f"Set it too: n_flips={min(self.n_flips, self.n_items // 2)}"
            )
        for state, out in (("organic", "p_organic_to_bandit"), ("bandit", "p_bandit_to_organic")):
            leave = f"p_leave_{state}"
            must(self, "be in [0, 1]", out, leave)
            stay = 1 - getattr(self, out) - getattr(self, leave)
            if stay < -1e-12:
                raise UserError(f"{out} + {leave} leave {stay:.3g} for staying: their sum must be at most 1")
        if self.p_leave_organic == 0 and (self.p_organic_to_bandit == 0 or self.p_leave_bandit == 0):
            raise UserError("p_leave_organic = 0: users would never leave; set p_leave_organic above 0")
        must(self, "not be negative", "fatigue", "fatigue_spread", "fatigue_of_views", "retention")
        must(self, "not be negative", "calendar", "ageing", "trend", "examination")
        must(self, "be in [0, 1)", "retention_memory", "arriving")
        must(self, "be in [0, 1]", "influence", "continues", "continues_after_click")
        must(self, "be at most 10", "retention")
        if not 0 < self.fatigue_memory < 1:
            raise UserError(f"fatigue_memory must be between 0 and 1, got {self.fatigue_memory:g}")
        if self.calendar == 0 and (self.arriving or self.ageing or self.trend):
            raise UserError(
                "arriving, ageing and trend need a calendar: set calendar to its length, e.g. calendar=1000"
            )
        if self.calendar > 0 and self.no_repeats:
            raise UserError("no_repeats and a calendar exclude each other: set one of them")
        if self.slate_size > MOST_PLACES and not self.catalogue_file:
            raise UserError(f"slate_size must be at most {MOST_PLACES}, got {self.slate_size}")
        if self.slate_size > self.n_items and not self.catalogue_file:
            raise UserError(
                f"slate_size must be at most n_items = {self.n_items}, got {self.slate_size}: "
                "a slate shows an item once"
            )
        one_of(self, clock=("unit", "normal"), click_link=CLICK_LINKS, user_model=USER_MODELS)
        if self.clicks not in CLICKS:
            raise UserError(f"clicks must be 'one' (at most one in a slate) or 'several', got {self.clicks!r}")
        must(self, "be at least 0", "catalogue_member")
        check_seed(self.catalogue_seed, "catalogue_seed")

    def with_keywords(self, keywords: Mapping[str, Any]) -> Self:
        """Implement :meth:`Params.with_keywords`; UserError too for one that the others leave without effect."""
        return super().with_keywords(keywords)._with_effect(keywords, "")

    def with_settings(self, settings: Iterable[str]) -> Self:
        """Implement :meth:`Params.with_settings`; UserError too for one that the others leave without effect."""
        settings = list(settings)
        names = [setting.partition("=")[0].strip() for setting in settings]
        return super().with_settings(settings)._with_effect(names, "--set ")

    def _with_effect(self, names: Collection[str], flag: str) -> Self:
        """These parameters; UserError where one that was named and is no default has no effect."""
        usual = type(self)()
        readers = {"examination": POSITION, "continues": CASCADE, "continues_after_click": CASCADE}
        for name in OF_SLATES[1:]:
            if name not in names or getattr(self, name) == getattr(usual, name):
                continue
            if self.slate_size == 1:
                why = "slate_size = 1: set slate_size above 1, or leave it out"
            elif self.user_model != readers.get(name, self.user_model):
                why = f"user_model = {self.user_model}: set user_model={readers[name]}, or leave it out"
            elif name == "continues_after_click" and self.clicks == ONE:
                why = "clicks = one, where users stop at a click: leave it out"
            else:
                continue
            raise UserError(f"{flag}{name}={getattr(self, name)} has no effect with {why}")
        return self

    def to_provenance(self) -> dict[str, Any]:
        """List the parameters for a log; those of slates only where there are slates."""
        values = self.to_dict()
        if self.slate_size > 1:
            return values
        return {name: v for name, v in values.items() if name not in OF_SLATES}

    @property
    def changes(self) -> bool:
        """Return whether what is shown, or when, matters later."""
        return self.fatigue > 0 or self.retention > 0 or self.influence > 0 or self.calendar > 0

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
                # RecoGym's NormalTimeGenerator or DefaultTimeGenerator: an object, its class, or its name.
                kind = getattr(value, "__name__", type(value).__name__)
                if isinstance(value, str):
                    kind = value
                values["clock"] = "normal" if "normal" in kind.lower() else "unit"
            elif name in _RECOGYM_IGNORED:
                continue
            else:
                raise UserError(f"RecoGym has no parameter {name!r}; {nearest(name, _RECOGYM_NAMES)}")
        return cls.from_dict(values)


_JEUNEN_2019 = SessionsParams(n_items=2000, n_flips=1000, sigma_mu_organic=0.1, sigma_omega=0.05)

PRESETS: dict[str, tuple[SessionsParams, str]] = {
    "jeunen2019": (_JEUNEN_2019, "the 2019 study: 2,000 items, every item flipped, flat popularity"),
    "jeunen2019-text": (_JEUNEN_2019, "the same world; compare has the methods as the paper's text describes them"),
    "recogym-v1": (SessionsParams(), "RecoGym v1's defaults: 10 items, no flips"),
    "quick": (
        SessionsParams(n_items=200, n_flips=100, sigma_mu_organic=0.1, sigma_omega=0.05),
        "the 2019 study made small: 200 items and a tenth of the users, a few seconds",
    ),
}

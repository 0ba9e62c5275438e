"""Parameters of the sessions world, by their own names or by RecoGym's, and its presets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from recsim_mnar.errors import UserError, nearest
from recsim_mnar.rng import check_seed
from recsim_mnar.worlds.params import Params, must, one_of

LOGISTIC = "logistic"
CLICK_LINKS = ("recogym", LOGISTIC)
POSITION = "position"
CASCADE = "cascade"
INDEPENDENT = "independent"
USER_MODELS = (POSITION, CASCADE, INDEPENDENT)
ONE = "one"
SEVERAL = "several"
CLICKS = (ONE, SEVERAL)
OF_SLATES = ("slate_size", "user_model", "examination", "continues", "continues_after_click", "clicks")
"""Names of the parameters that concern slates."""
MOST_PLACES = 100
"""Largest number of items of a slate: marginals of longer ones take too long, and no user reads that far."""

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
# RecoGym's arguments that its v1 environment does not read, or reads only to log more.
_RECOGYM_IGNORED = {"num_users", "num_clusters", "phi_var", "with_ps_all", "agent"}


@dataclass(frozen=True)
class SessionsParams(Params):
    """Parameters of the sessions world.

    Attributes:
        n_items: number of items P.
        n_factors: dimension K of interests and item factors.
        sigma_omega_initial: standard deviation of a user's first interests.
        sigma_omega: standard deviation of the drift of interests per unit of time.
        sigma_mu_organic: standard deviation of the items' organic offsets (popularity on the scale of logits).
        n_flips: number of pairs of items whose click factors and offsets are swapped, which makes clicks differ from
            views. With P/2 flips and sigma_mu_organic = 3, popularity and click probability are uncorrelated for every
            P. With sigma_mu_organic = .1 the factors dominate; flipped partners become near-duplicates as P grows (mean
            cosine .58 at P = 10, .93 at 2,000), and the correlation rises with P.
        normalize_beta: True to scale each item's click factors to unit length.
        p_organic_to_bandit: probability, after an organic event, that recommendations follow.
        p_bandit_to_organic: probability, after a recommendation without a click, that browsing follows; after a click
            it always does.
        p_leave_organic: probability of leaving after an organic event.
        p_leave_bandit: probability of leaving after a recommendation without a click.
        drift_in_bandit: True if interests drift after every event, False if only when browsing follows.
        clock: time between events: ``unit`` is 1, ``normal`` is ``|clock_mean + clock_sd z|`` with a standard normal z.
        clock_mean: mean of the normal clock, before its absolute value is taken.
        clock_sd: standard deviation of the normal clock, before its absolute value is taken.
        no_repeats: True if a user never views an item twice, and leaves when no item is left. Views are then drawn from
            a softmax over the items that are left; recommendations may repeat.
        fatigue: loss of log click probability for each recent showing of an item; 0 for none. This effect and the next
            ones are described in docs/worlds/sessions.md.
        fatigue_spread: share of that loss that repeated showings of one item cause for all items.
        fatigue_of_views: weight of a view in fatigue, relative to a recommendation.
        fatigue_memory: factor by which the weight of a showing decreases with each event.
        retention: strength with which unsuitable recommendations make users leave sooner and suitable ones later; 0 for
            none.
        retention_memory: factor by which the weight of earlier recommendations in satisfaction decreases with each new
            one.
        influence: fraction of the distance to the item's factors by which a click moves a user's interests; 0 for none.
        calendar: length of the time over which users arrive and popularity changes, in units of the clock; 0 for no
            calendar.
        arriving: share of the items that arrive during the calendar.
        ageing: decrease of an item's offset over an age as long as the calendar.
        trend: standard deviation, over the whole calendar, of the random walk of an item's offset.
        slate_size: number of items shown at each decision, from the top; 1 for a single item. Slates are described in
            docs/worlds/slates.md.
        user_model: model of how users read a slate: ``position`` users look at position r = 1, 2, ... with probability
            r^-``examination``, ``cascade`` users read from the top until they stop, ``independent`` users look at every
            position.
        examination: exponent of the ``position`` model.
        continues: probability that a ``cascade`` user goes on to the next position after no click.
        continues_after_click: probability that a ``cascade`` user goes on to the next position after a click.
        clicks: number of clicks in a slate: ``several``, or at most ``one``. A ``cascade`` user then clicks the first
            item that attracts; other users click one of the items that attract them, at random, so that the click
            probability at a position depends on the items at all others.
        click_link: function from scores to click probabilities: ``recogym`` (between .45 and 2.93 %) or ``logistic``
            (any probability).
        catalogue_file: path of an ``.npz`` file with ``item_factors``, ``item_offsets``, ``click_factors`` and
            ``click_offsets`` (of a fitted world, or ``catalogue.npz`` of ``simulate --truth``); empty to draw the
            catalogue. A file determines n_items and n_factors; sigma_mu_organic, n_flips and normalize_beta are not
            used.
        catalogue_member: number of the catalogue in a fitted world's file: 0 for the best fit, 1, 2, ... for its
            ensemble.
        catalogue_seed: seed of the items; the seed of the users is an argument of ``simulate`` or ``reset``.
    """

    counts_of_items: ClassVar = ("n_flips",)

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
        """Implement :meth:`Params.with_keywords`; UserError also for a changed parameter without effect."""
        return super().with_keywords(keywords)._with_effect(keywords, "")

    def with_settings(self, settings: Iterable[str]) -> Self:
        """Implement :meth:`Params.with_settings`; UserError also for a changed parameter without effect."""
        settings = list(settings)
        names = [setting.partition("=")[0].strip() for setting in settings]
        return super().with_settings(settings)._with_effect(names, "--set ")

    def _with_effect(self, names: Collection[str], flag: str) -> Self:
        """Return these parameters, after checking that the slate parameters a user has set have an effect.

        Args:
            names: names of the parameters that the user has set.
            flag: beginning of the message: ``--set `` for settings of the command line, else empty.

        Raises:
            UserError: a parameter differs from its default, but the other parameters leave it without effect.
        """
        defaults = type(self)()
        # User models that read each parameter; all models read the parameters that are missing here.
        models = {"examination": POSITION, "continues": CASCADE, "continues_after_click": CASCADE}
        for name in OF_SLATES[1:]:
            if name not in names or getattr(self, name) == getattr(defaults, name):
                continue
            if self.slate_size == 1:
                why = "slate_size = 1: set slate_size above 1, or leave it out"
            elif self.user_model != models.get(name, self.user_model):
                why = f"user_model = {self.user_model}: set user_model={models[name]}, or leave it out"
            elif name == "continues_after_click" and self.clicks == ONE:
                why = "clicks = one, where users stop at a click: leave it out"
            else:
                continue
            raise UserError(f"{flag}{name}={getattr(self, name)} has no effect with {why}")
        return self

    def to_provenance(self) -> dict[str, Any]:
        """Implement :meth:`Params.to_provenance`; without the parameters of slates if single items are shown.

        This is for slates alone, whose parameters count together: a parameter of your own is declared by ``added``.
        """
        values = super().to_provenance()
        if self.slate_size > 1:
            return values
        return {name: v for name, v in values.items() if name not in OF_SLATES}

    @property
    def changes(self) -> bool:
        """Return True if recommendations have later effects, or popularity depends on time."""
        return self.fatigue > 0 or self.retention > 0 or self.influence > 0 or self.calendar > 0

    @classmethod
    def from_recogym(cls, args: Mapping[str, Any]) -> SessionsParams:
        """Return the parameters that correspond to RecoGym's arguments, such as its ``env_1_args``.

        RecoGym ignores its ``prob_leave_bandit`` and uses ``prob_leave_organic`` in both states; here each is used.

        Args:
            args: values by RecoGym's names.

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
                values["clock"] = "unit"
                if "normal" in kind.lower():
                    values["clock"] = "normal"
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

"""Click probabilities given the user: posterior of items' click factors and offsets.

The click probability of item a for interests omega is link(b_a + beta_a . omega), the coefficients normal about a line:
b_a ~ N(b0 + k mu_a, s_b^2), beta_a ~ N(r gamma_a, s^2 I). r, k and b0 are normal, s and s_b half-normal
(:data:`PRIORS`). gamma_a is known with an error, and views give a mean and a covariance of a user's interests: a row's
likelihood is averaged over them, by three-point Gauss-Hermite quadrature along beta_a . omega.

The posterior of coefficients is normal about its mode, which is found by Fisher scoring and checked; r, k and b0
are integrated out in closed form, s and s_b on a grid that narrows to the bulk of the posterior (Tierney & Kadane
1986). Rows of one user share the error of the user's interests, which posterior draws include.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from recsim_mnar import rng
from recsim_mnar.errors import UserError
from recsim_mnar.log.columns import Floats, Ints
from recsim_mnar.worlds.sessions.params import LOGISTIC


class Prior(NamedTuple):
    """Prior of a click model's hyperparameters, in units of the link's logit.

    Attributes:
        level: mean of b0, the common offset.
        levels: standard deviation of b0.
        relations: standard deviation of r (click factors on view factors) and of k (click offsets on view offsets).
        factors: scale of the half-normal prior of s, the spread of click factors.
        offsets: scale of the half-normal prior of s_b, the spread of click offsets.
    """

    level: float
    levels: float
    relations: float
    factors: float
    offsets: float


PRIORS = {"recogym": Prior(0.0, 3.0, 1.0, 1.0, 2.0), LOGISTIC: Prior(-3.0, 1.0, 0.4, 0.25, 0.5)}
# Grid of log s and of log s_b, relative to the prior's scale.
_NODES = 9
_LOWEST = np.log(0.002)
_HIGHEST = np.log(4.0)
_CUT = 6.0
"""Difference from the largest log posterior beyond which the grid is cut."""
_MOST_STEPS = 60
"""Largest number of scoring steps."""
_CONVERGED = 1e-3
"""Length of a scoring step, in standard errors, that ends them."""
_AT_MODE = 0.1
"""Length of the last step, in standard errors, up to which the result counts as a mode."""
_MOST_ALTERNATIONS = 8
"""Largest number of alternations between mode and spreads."""
# Three-point Gauss-Hermite quadrature over a standard normal variable.
_QUADRATURE_NODES = np.array([-np.sqrt(3.0), 0.0, np.sqrt(3.0)])
_QUADRATURE_WEIGHTS = np.array([1.0, 4.0, 1.0]) / 6.0


@dataclass(frozen=True)
class Recommended:
    """Recommendations counted by item and user, with what views say of both.

    Attributes:
        user: (n,) number of the row's user, from 0 to U - 1.
        action: (n,) the row's item, ascending.
        times: (n,) number of times that the item was recommended to the user.
        clicks: (n,) number of clicks among them.
        interests: (U, K) posterior means of users' interests, given their views.
        interest_covariances: (U, K, K) posterior covariances of users' interests.
        factors: (P, K) the items' view factors gamma.
        offsets: (P,) the items' view offsets mu.
        factor_covariances: (P, K, K) covariances of the errors of the view factors.
    """

    user: Ints
    action: Ints
    times: Floats
    clicks: Floats
    interests: Floats
    interest_covariances: Floats
    factors: Floats
    offsets: Floats
    factor_covariances: Floats

    def click_rate(self) -> tuple[float, float]:
        """Return the click rate and its standard error, clustered by user and at least one click per recommendation."""
        times = np.bincount(self.user, self.times)
        clicks = np.bincount(self.user, self.clicks)
        total = float(times.sum())
        rate = float(clicks.sum()) / total
        error = float(np.sqrt(((clicks - rate * times) ** 2).sum())) / total
        return rate, max(error, 1.0 / total)


class Draw(NamedTuple):
    """Click model of all P items: a posterior draw or the best fit.

    Attributes:
        theta: (P, K + 1) each item's click factors, then its offset.
        link: name of the link function.
        relation: r, the slope of click factors on view factors.
        spread: s, the standard deviation of click factors about that line.
    """

    theta: Floats
    link: str
    relation: float
    spread: float


class ClickModel(NamedTuple):
    """Fitted click model.

    Attributes:
        best: posterior mean under the link with the largest evidence, rescaled to the posterior spread.
        draws: draws from the posterior, the link drawn by its evidence.
        facts: JSON facts on the fit: evidence by link, refused links with the reason, click rates of log and fit.
    """

    best: Draw
    draws: list[Draw]
    facts: Mapping[str, Any]


def fit_clicks(shown: Recommended, n_draws: int, seed: int, links: tuple[str, ...]) -> ClickModel:
    """Fit a click model with every possible link, and draw models by the links' evidence.

    Args:
        shown: recommendations and clicks.
        n_draws: number of posterior draws.
        seed: seed of the draws.
        links: names of the candidate links.

    Returns:
        The best fit, the draws and facts.

    Raises:
        UserError: no link can produce the log's click rate, or no fit reaches a mode.
    """
    rate, error = shown.click_rate()
    refused = {}
    fits = {}
    for link in links:
        why = why_rate_is_impossible(link, rate, error)
        if why:
            refused[link] = why
            continue
        fit = Posterior(shown, link)
        if fit.step > _AT_MODE:
            refused[link] = f"its fit did not reach a mode (a step of {fit.step:.2g} standard errors is left)"
        else:
            fits[link] = fit
    if not fits:
        why = "; ".join(f"{link}: {text}" for link, text in refused.items())
        raise UserError(f"no click model can be fitted: {why}. Fit the views alone, without the recommendations")
    evidence = {link: fit.evidence for link, fit in fits.items()}
    best = max(evidence, key=lambda link: evidence[link])
    # Equal prior probabilities: the links' posterior odds are the ratios of their evidence.
    odds = np.exp(np.array(list(evidence.values())) - evidence[best])
    draws = []
    for i, u in enumerate(rng.uniforms(rng.derive_seed(seed, "link"), rng.Stream.BOOTSTRAP, np.arange(n_draws), 0)):
        fit = list(fits.values())[draw_category(odds, u)]
        draws.append(fit.draw(rng.derive_seed(seed, f"clicks/{i}")))
    model = fits[best].rescaled_means()
    fitted = float(np.average(fits[best].probabilities(model.theta)[0], weights=shown.times))
    facts = {
        "click_link": best,
        "click_link_weight": float(1.0 / odds.sum()),
        "click_evidence": evidence,
        "click_log_likelihood": {link: fit.value_at_mode for link, fit in fits.items()},
        "click_links_refused": refused,
        "click_rate_of_log": [rate, error],
        "click_rate_fitted": fitted,
        "click_rate_off": abs(fitted - rate) / error,
    }
    return ClickModel(model, draws, facts)


def why_rate_is_impossible(link: str, rate: float, error: float) -> str:
    """Return the reason why a link cannot produce a click rate; "" within four standard errors of the link's range.

    Args:
        link: name of the link.
        rate: click rate per recommendation.
        error: standard error of the rate.
    """
    # Logits of +-1000 reach the ends of the range: RecoGym's link is not from 0 to 1.
    low, high = link_of(np.array([-1e3, 1e3]), link)[0].tolist()
    if low - 4.0 * error <= rate <= high + 4.0 * error:
        return ""
    return f"its click rates are between {low:.3g} and {high:.3g}, the log's is {rate:.3g}"


def draw_category(chances: Floats, u: float) -> int:
    """Return the index of the category that a uniform number ``u`` in [0, 1) draws; chances need not sum to 1."""
    cumulated = np.cumsum(chances)
    return min(int(np.searchsorted(cumulated, u * cumulated[-1], side="right")), len(cumulated) - 1)


class _ConditionalPosterior:
    """Normal posterior of all coefficients, given the spreads s and s_b, from a quadratic log likelihood.

    An item's coefficients have the prior mean line_p @ (r, k, b0), and (r, k, b0) a normal prior, so both posteriors
    are normal in closed form (a linear mixed model).

    Attributes:
        spreads: s and s_b.
        precision: (P, K + 1, K + 1) prior precision of each item's coefficients about the line.
        covariance: (P, K + 1, K + 1) posterior covariance of each item's coefficients, given (r, k, b0).
        weighted_lines: (P, K + 1, 3) precision times line.
        slopes: (P, K + 1, 3) derivative of each item's posterior mean in (r, k, b0).
        line_covariance: (3, 3) posterior covariance of (r, k, b0).
        line_parameters: (3,) posterior mean of (r, k, b0).
        value: log of the integral of likelihood times prior over coefficients and (r, k, b0), up to terms that do not
            depend on the spreads.
    """

    def __init__(self, fit: Posterior, spreads: tuple[float, float]) -> None:
        self.fit = fit
        self.spreads = spreads
        k = fit.k
        prior_covariance = np.zeros((len(fit.theta), k + 1, k + 1))
        prior_covariance[:, :k, :k] = spreads[0] ** 2 * np.eye(k) + fit.factor_errors
        prior_covariance[:, k, k] = spreads[1] ** 2
        self.precision = np.linalg.inv(prior_covariance)
        self.covariance = np.linalg.inv(fit.information + self.precision)
        self.weighted_lines = np.einsum("pij,pjm->pim", self.precision, fit.lines)
        self.slopes = np.einsum("pij,pjm->pim", self.covariance, self.weighted_lines)
        gram = np.einsum("pim,pin->mn", fit.lines, self.weighted_lines)
        gram = gram - np.einsum("pim,pin->mn", self.weighted_lines, self.slopes)
        self.line_covariance = np.linalg.inv(gram + np.diag(fit.line_precision))
        right_side = (
            np.einsum("pim,pi->m", self.slopes, fit.information_times_mode) + fit.line_precision * fit.line_mean
        )
        self.line_parameters = np.einsum("mn,n->m", self.line_covariance, right_side)
        # Both integrals are normal: half the quadratic form at the mean, and half the log determinants of posterior
        # over prior covariance; first the coefficients', then those of (r, k, b0).
        self.value = float(
            0.5 * np.einsum("pi,pij,pj->", fit.information_times_mode, self.covariance, fit.information_times_mode)
            + 0.5 * (np.linalg.slogdet(self.covariance)[1] - np.linalg.slogdet(prior_covariance)[1]).sum()
            + 0.5 * (right_side @ self.line_parameters - fit.line_precision @ fit.line_mean**2)
            + 0.5 * (np.linalg.slogdet(self.line_covariance)[1] + np.log(fit.line_precision).sum())
        )

    def mean(self, information_times_mode: Floats, noise: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Compute posterior means for a likelihood with another mode.

        Args:
            information_times_mode: (P, K + 1) the likelihood's information times its mode.
            noise: (3,) added to the mean of (r, k, b0), as for a draw.

        Returns:
            theta: (P, K + 1) means of the coefficients, given the line.
            line_parameters: (3,) the mean of (r, k, b0) plus ``noise``.
        """
        right_side = np.einsum("pim,pi->m", self.slopes, information_times_mode)
        right_side = right_side + self.fit.line_precision * self.fit.line_mean
        line_parameters = np.einsum("mn,n->m", self.line_covariance, right_side) + noise
        prior_part = np.einsum("pim,m->pi", self.weighted_lines, line_parameters)
        return np.einsum("pij,pj->pi", self.covariance, information_times_mode + prior_part), line_parameters


class Posterior:
    """Posterior of the click coefficients of all items under one link, by Laplace's method.

    Attributes:
        shown: recommendations and clicks.
        link: name of the link.
        k: number of view factors K.
        prior: prior of the hyperparameters under the link.
        theta: (P, K + 1) coefficients at which the likelihood was last computed: first the mode, finally the mean.
        p, slopes, value, information, information_times_mode: expansion of the log likelihood at ``theta``, as
            :meth:`_update_likelihood` sets it.
        lines: (P, K + 1, 3) matrices that map (r, k, b0) to an item's prior mean.
        line_mean, line_precision: (3,) prior mean and precision of (r, k, b0).
        factor_errors: (P, K, K) covariance of click factors due to errors of the view factors.
        starts: (m,) first row of each item that was recommended, the m of them.
        axes: grids of log s and log s_b, relative to the prior's scales; log s has one node where there are no factors.
        values: log posterior at the grid's nodes, times the width of a node.
        likeliest: posterior at the node with the largest value.
        step: length of the last scoring step, in standard errors: the distance left to the mode.
        value_at_mode: log likelihood at the mode.
        evidence: log marginal likelihood of the link.
    """

    def __init__(self, shown: Recommended, link: str) -> None:
        self.shown = shown
        self.link = link
        self.prior = PRIORS[link]
        n_items, self.k = shown.factors.shape
        self.lines = np.zeros((n_items, self.k + 1, 3))
        self.lines[:, : self.k, 0] = shown.factors
        self.lines[:, self.k, 1] = shown.offsets - shown.offsets.mean()
        self.lines[:, self.k, 2] = 1.0
        self.line_mean = np.array([0.0, 0.0, self.prior.level])
        self.line_precision = 1.0 / np.array([self.prior.relations, self.prior.relations, self.prior.levels]) ** 2
        self.starts = np.flatnonzero(np.diff(shown.action, prepend=-1))
        self.theta = np.zeros((n_items, self.k + 1))
        # Start with the common offset at which the link gives the log's click rate.
        grid = np.linspace(-20.0, 20.0, 2001)
        rate = shown.click_rate()[0]
        self.theta[:, -1] = grid[np.argmin(np.abs(link_of(grid, link)[0] - rate))]
        self.likeliest: _ConditionalPosterior
        self.axes = [np.linspace(_LOWEST, _HIGHEST, _NODES) if free else np.zeros(1) for free in (self.k, True)]
        self._fit_mode_and_spreads()
        # The log likelihood is replaced by its quadratic expansion at the mode theta, whose value at coefficients 0 is
        # value + theta' information theta / 2 - information_times_mode' theta; ``values`` count from there.
        quadratic = np.einsum("pi,pij,pj->", self.theta, self.information, self.theta)
        change_to_zero = 0.5 * quadratic - (self.information_times_mode * self.theta).sum()
        self.value_at_mode = self.value
        highest = self.values.max()
        self.evidence = float(self.value + change_to_zero + highest + np.log(np.exp(self.values - highest).sum()))
        self._move_to_posterior_mean()

    def _fit_mode_and_spreads(self) -> None:
        """Alternate between the mode given the spreads and the likeliest spreads given the mode, until both stay."""
        spreads = (self.prior.factors, self.prior.offsets)
        relation = 0.0
        for _ in range(_MOST_ALTERNATIONS):
            # Errors of view factors reach click factors multiplied by r.
            self.factor_errors = relation**2 * self.shown.factor_covariances
            self._find_mode(spreads)
            self._fill_grid()
            spreads_of_mode = spreads
            spreads = self.likeliest.spreads
            relation = self.likeliest.line_parameters[0]
            if not self._narrow_axes() and np.allclose(spreads_of_mode, spreads, rtol=0.05):
                break
        self.likeliest = _ConditionalPosterior(self, spreads_of_mode)

    def _fill_grid(self) -> None:
        """Set ``values`` (n, m), log posteriors at the nodes of log s and log s_b, and ``likeliest``, their maximum.

        A value includes the half-normal prior, the Jacobian of the logarithm and the width of a node, so that sums of
        exponentials of values are integrals.
        """
        posteriors = [[self._posterior_at(s, o) for o in self.axes[1]] for s in self.axes[0]]
        self.values = np.array([[posterior.value for posterior in row] for row in posteriors])
        for axis, shape in zip(self.axes, ((-1, 1), (1, -1)), strict=True):
            if len(axis) > 1:
                # Log density of the half-normal prior, plus the Jacobian exp(axis), plus the log width of a node.
                half_normal = np.log(2.0 / np.pi) / 2.0 - 0.5 * np.exp(axis) ** 2 + axis + np.log(axis[1] - axis[0])
                self.values += half_normal.reshape(shape)
        i, j = np.unravel_index(np.argmax(self.values), self.values.shape)
        self.likeliest = posteriors[i][j]

    def _posterior_at(self, factors: float, offsets: float) -> _ConditionalPosterior:
        """Return the posterior at given logarithms of s and of s_b, relative to the prior's scales."""
        s = self.prior.factors * float(np.exp(factors))
        s_b = self.prior.offsets * float(np.exp(offsets))
        return _ConditionalPosterior(self, (s, s_b))

    def _narrow_axes(self) -> bool:
        """Narrow ``axes`` to the bulk of the posterior plus a node on either side; return whether they changed."""
        narrowed = False
        for i, axis in enumerate(self.axes):
            if len(axis) > 1:
                # Profile over the other axis: nodes whose best value is within _CUT of the largest.
                likely = axis[self.values.max(axis=1 - i) > self.values.max() - _CUT]
                width = axis[1] - axis[0]
                ends = (max(likely[0] - width, _LOWEST), min(likely[-1] + width, _HIGHEST))
                if np.abs(np.array(ends) - axis[[0, -1]]).max() > 1.5 * width:
                    self.axes[i] = np.linspace(*ends, _NODES)
                    narrowed = True
        return narrowed

    def _move_to_posterior_mean(self) -> None:
        """Move ``theta`` from the mode to the posterior mean, and recompute the grid there.

        Where few clicks make the posterior skewed the two differ. Each row's click probability is averaged over the
        posterior variance of its logit, and the normal posterior is computed from that likelihood, three times.
        """
        likeliest = self.likeliest
        recommended = self.shown
        design = np.concatenate([recommended.interests[recommended.user], np.ones((len(recommended.user), 1))], axis=1)
        for _ in range(3):
            slopes = likeliest.slopes
            covariance_of_line = np.einsum("pim,mn,pjn->pij", slopes, likeliest.line_covariance, slopes)
            covariance = likeliest.covariance + covariance_of_line
            self._update_likelihood(np.einsum("ni,nij,nj->n", design, covariance[recommended.action], design))
            likeliest = _ConditionalPosterior(self, likeliest.spreads)
            self.theta = likeliest.mean(self.information_times_mode)[0]
        # Draws use the grid's values at the mean, but the means above belong to the posterior that made them.
        self._fill_grid()
        self.likeliest = likeliest

    def _find_mode(self, spreads: tuple[float, float]) -> None:
        """Move ``theta`` to the posterior mode for given spreads by Fisher scoring, and set ``step``.

        A step of a coefficient is at most 2; a step that does not raise the log posterior is halved.
        """
        self._update_likelihood()
        for _ in range(_MOST_STEPS):
            posterior = _ConditionalPosterior(self, spreads)
            move = posterior.mean(self.information_times_mode)[0] - self.theta
            self.step = float(np.sqrt(np.einsum("pi,pij,pj->p", move, np.linalg.inv(posterior.covariance), move).max()))
            if self.step < _CONVERGED:
                return
            value_before = self.value - self._penalty(posterior)
            start = self.theta
            share = 1.0
            while share > 1e-3:
                self.theta = start + share * np.clip(move, -2.0, 2.0)
                self._update_likelihood()
                if self.value - self._penalty(posterior) > value_before:
                    break
                share *= 0.5

    def _penalty(self, posterior: _ConditionalPosterior) -> float:
        """Return the negative log prior of ``theta``, up to a constant, minimised over (r, k, b0)."""
        gram = np.einsum("pim,pin->mn", self.lines, posterior.weighted_lines) + np.diag(self.line_precision)
        right_side = np.einsum("pim,pi->m", posterior.weighted_lines, self.theta) + self.line_precision * self.line_mean
        line_parameters = np.linalg.solve(gram, right_side)
        deviation = self.theta - np.einsum("pim,m->pi", self.lines, line_parameters)
        from_mean = line_parameters - self.line_mean
        penalty_of_items = np.einsum("pi,pij,pj->", deviation, posterior.precision, deviation)
        return 0.5 * float(penalty_of_items + (self.line_precision * from_mean**2).sum())

    def probabilities(self, theta: Floats, more: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Compute click probabilities of all rows, averaged over the errors of users' interests by quadrature.

        Args:
            theta: (P, K + 1) coefficients.
            more: (n,) variance of the logits in addition to that from users' interests.

        Returns:
            p: (n,) probabilities of a click.
            slopes: (n, K + 1) derivatives of ``p`` in the coefficients of the row's item.
        """
        recommended = self.shown
        interests = recommended.interests[recommended.user]
        coefficients = theta[recommended.action]
        beta = coefficients[:, :-1]
        mean = np.einsum("nk,nk->n", interests, beta) + coefficients[:, -1]
        covariance_times_beta = np.einsum("nkl,nl->nk", recommended.interest_covariances[recommended.user], beta)
        # 1e-12 keeps the derivative of the standard deviation finite.
        sd = np.sqrt(np.einsum("nk,nk->n", covariance_times_beta, beta) + more + 1e-12)
        values = []
        slopes = []
        for node in _QUADRATURE_NODES:
            value, slope = link_of(mean + node * sd, self.link)
            values.append(value)
            slopes.append(slope)
        p = np.einsum("jn,j->n", values, _QUADRATURE_WEIGHTS)
        by_mean = np.einsum("jn,j->n", slopes, _QUADRATURE_WEIGHTS)
        by_sd = np.einsum("jn,j->n", slopes, _QUADRATURE_WEIGHTS * _QUADRATURE_NODES)
        # Chain rule: d mean / d beta = interests and d sd / d beta = covariance @ beta / sd.
        in_beta = by_mean[:, None] * interests + (by_sd / sd)[:, None] * covariance_times_beta
        return p, np.concatenate([in_beta, by_mean[:, None]], axis=1)

    def _update_likelihood(self, more: Floats | float = 0.0) -> None:
        """Expand the binomial log likelihood at ``theta`` to second order, with Fisher's information.

        Sets ``p`` and ``slopes`` of the rows, ``value``, ``information`` (P, K + 1, K + 1) and
        ``information_times_mode`` (P, K + 1): the information times the mode of the expansion.

        Args:
            more: (n,) additional variance of the logits.
        """
        clicks = self.shown.clicks
        times = self.shown.times
        k = self.k + 1
        self.p, self.slopes = self.probabilities(self.theta, more)
        variance = self.p * (1.0 - self.p)
        self.value = float((clicks * np.log(self.p) + (times - clicks) * np.log1p(-self.p)).sum())
        gradient = self.sum_by_item(((clicks - times * self.p) / variance)[:, None] * self.slopes)
        weighted = (times / variance)[:, None] * self.slopes
        outer = (weighted[:, :, None] * self.slopes[:, None, :]).reshape(-1, k * k)
        self.information = self.sum_by_item(outer).reshape(-1, k, k)
        self.information_times_mode = np.einsum("pij,pj->pi", self.information, self.theta) + gradient

    def sum_by_item(self, rows: Floats) -> Floats:
        """Sum values (n, m) over each item's rows; (P, m), 0 for items that were not recommended."""
        sums = np.zeros((len(self.theta), rows.shape[1]))
        sums[self.shown.action[self.starts]] = np.add.reduceat(rows, self.starts)
        return sums

    def draw(self, seed: int) -> Draw:
        """Draw the spreads, then (r, k, b0), then all coefficients from the posterior."""
        posterior = self._draw_spreads(rng.uniforms(seed, rng.Stream.BOOTSTRAP, np.arange(3), 0))
        information_times_mode = self.information_times_mode + self._draw_error_of_interests(seed)
        # The last row is for (r, k, b0), the others for the items' coefficients.
        normal = rng.normals(seed, rng.Stream.BOOTSTRAP, 2, (len(self.theta) + 1, self.k + 4))
        line_noise = np.einsum("mn,n->m", np.linalg.cholesky(posterior.line_covariance), normal[-1, :3])
        theta, line_parameters = posterior.mean(information_times_mode, line_noise)
        theta = theta + np.einsum("pij,pj->pi", np.linalg.cholesky(posterior.covariance), normal[:-1, : self.k + 1])
        return Draw(theta, self.link, float(line_parameters[0]), posterior.spreads[0])

    def _draw_error_of_interests(self, seed: int) -> Floats:
        """Draw the change (P, K + 1) of information times mode due to errors of users' interests.

        The likelihood averages over a user's interests row by row, but all rows of one user share one error: it is
        drawn once per user, and its first-order effect on each row's click probability enters the items' gradients.
        """
        recommended = self.shown
        normal = rng.normals(seed, rng.Stream.BOOTSTRAP, 1, (len(recommended.interests), self.k))
        errors = np.einsum("ukl,ul->uk", np.linalg.cholesky(recommended.interest_covariances), normal)[recommended.user]
        change_of_p = np.einsum("nk,nk->n", errors, self.theta[recommended.action, :-1]) * self.slopes[:, -1]
        scaled = recommended.times * change_of_p / (self.p * (1.0 - self.p))
        return self.sum_by_item(scaled[:, None] * self.slopes)

    def _draw_spreads(self, u: Floats) -> _ConditionalPosterior:
        """Draw the spreads: a node of the grid by its probability with ``u[0]``, then a point about it with ``u[1:]``.

        Returns the posterior of the coefficients at these spreads.
        """
        node = np.unravel_index(draw_category(np.exp(self.values - self.values.max()), u[0]), self.values.shape)
        point = []
        for axis, i, within in zip(self.axes, node, u[1:], strict=True):
            width = float(np.ptp(axis)) / max(len(axis) - 1, 1)
            point.append(float(axis[i] + (within - 0.5) * width))
        return self._posterior_at(*point)

    def rescaled_means(self) -> Draw:
        """Return posterior means, stretched about their line so that items vary as the true coefficients do.

        Posterior means vary less than the coefficients, by the posterior variance (Louis 1984). Where the means hardly
        vary, they are left alone: noise would be stretched.
        """
        posterior = self.likeliest
        mean, line_parameters = posterior.mean(self.information_times_mode)
        line = np.einsum("pim,m->pi", self.lines, line_parameters)
        between = ((mean - line) ** 2).mean(axis=0)
        within = np.diagonal(posterior.covariance, axis1=1, axis2=2).mean(axis=0)
        stretch = np.where(between > 1e-3 * within, np.sqrt((between + within) / np.maximum(between, 1e-12)), 1.0)
        return Draw(line + stretch * (mean - line), self.link, float(line_parameters[0]), posterior.spreads[0])


def link_of(x: Floats, link: str) -> tuple[Floats, Floats]:
    """Return click probabilities of logits ``x``, and the derivatives in ``x``, under a link.

    RecoGym's link is expit(5 expit(2 expit(.3 x) - 2) - 6) (Rohde et al. 2018); its derivative is the chain rule's.
    """
    from scipy.special import expit

    if link == LOGISTIC:
        p = np.clip(expit(x), 1e-12, 1.0 - 1e-12)
        return p, p * (1.0 - p)
    inner = expit(0.3 * x)
    middle = expit(2.0 * inner - 2.0)
    p = expit(5.0 * middle - 6.0)
    return p, p * (1.0 - p) * 5.0 * middle * (1.0 - middle) * 2.0 * inner * (1.0 - inner) * 0.3

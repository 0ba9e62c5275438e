"""The law that obp's interval samples from, computed instead of sampled.

obp draws n of the n rows with replacement, takes the mean of w r, and after many such draws their 2.5 % and 97.5 %
quantiles. Rows without reward add nothing, so only how often each rewarded row is drawn matters: the number of rewarded
draws is binomial, their split over the rewarded rows multinomial. The sum of n independent draws has the n-th power of
one draw's characteristic function, which a Fourier transform on a lattice turns into all its probabilities. Their
quantiles are what obp's interval becomes as its resamples grow without end.
"""

from __future__ import annotations

import numpy as np

POINTS = 2**15  # of the lattice: its step is 1/1365 of the bootstrap's standard deviation
REACH = 12.0  # standard deviations on either side; less than 1e-9 is outside, however few the rewarded rows
NEGLIGIBLE = 1e-17  # modulus of the characteristic function below which a frequency adds nothing


class RowBootstrap:
    """Law of the mean of n draws, with replacement, from n rows.

    Attributes:
        values: (k,) lattice of means, increasing.
        below: (k,) probability of a mean of at most ``values``.
    """

    def __init__(self, rows: np.ndarray) -> None:
        """
        Args:
            rows: (n,) w r of each row, not negative.
        """
        n = rows.size
        rewarded = rows[rows > 0.0]
        mean = float(rewarded.sum())
        spread = float(np.sqrt(max(rewarded @ rewarded - mean**2 / n, 0.0)))
        if spread == 0.0:  # all rows are equal: so is every draw of them
            self.values, self.below = np.array([mean / n]), np.ones(1)
            return
        step = 2.0 * REACH * spread / POINTS
        # A row between two lattice points is shared between them, which keeps its mean.
        place = rewarded / step
        lower = np.floor(place).astype(np.int64)
        upper_share = place - lower
        one = np.bincount(lower % POINTS, 1.0 - upper_share, POINTS)
        one += np.bincount((lower + 1) % POINTS, upper_share, POINTS)
        one[0] += n - rewarded.size
        transform = np.fft.rfft(one / n)
        counts = np.abs(transform) > NEGLIGIBLE ** (1.0 / n)
        power = np.zeros_like(transform)
        power[counts] = np.exp(n * np.log(transform[counts]))
        first = max(int((mean - REACH * spread) / step), 0)
        probability = np.roll(np.fft.irfft(power, POINTS), -first % POINTS)
        self.values = (first + np.arange(POINTS)) * (step / n)
        self.below = np.maximum.accumulate(np.cumsum(probability))
        self.below /= self.below[-1]

    def quantiles(self, probabilities: np.ndarray) -> np.ndarray:
        """The least mean that is not exceeded with each probability."""
        return self.values[np.minimum(np.searchsorted(self.below, probabilities - 1e-12), self.values.size - 1)]

    def interval(self, level: float) -> tuple[float, float]:
        """The percentile interval of infinitely many resamples."""
        low, high = self.quantiles(np.array([(1.0 - level) / 2.0, (1.0 + level) / 2.0]))
        return float(low), float(high)

    def sampled_interval(self, level: float, uniforms: np.ndarray) -> tuple[float, float]:
        """The percentile interval of as many resamples as there are uniforms, interpolated as NumPy and obp do."""
        low, high = np.percentile(self.quantiles(uniforms), [100.0 * (1.0 - level) / 2.0, 100.0 * (1.0 + level) / 2.0])
        return float(low), float(high)

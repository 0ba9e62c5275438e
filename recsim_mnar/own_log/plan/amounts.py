"""Amounts as people write them: 5%, 0.002; and the settings that all plans share."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from recsim_mnar.errors import UserError
from recsim_mnar.kernels.checks import number_in


@dataclass(frozen=True)
class Amount:
    """A part of a value, or an amount in the reward's unit.

    Attributes:
        size: as a share of the value where ``relative``, else in the reward's unit.
        relative: which of the two.
    """

    size: float
    relative: bool

    @staticmethod
    def of(given: Any, name: str) -> Amount:
        """Read ``"5%"`` (of the value) or a number (in the reward's unit).

        Raises:
            UserError: neither, 0, or not finite.
        """
        if isinstance(given, Amount):
            return given
        text = str(given).strip()
        relative = text.endswith("%")
        try:
            size = float(text.removesuffix("%")) / (100.0 if relative else 1.0)
        except ValueError:
            size = math.nan
        if not math.isfinite(size) or isinstance(given, bool):
            raise UserError(
                f"{name} must be a share of the value (5%) or an amount in the reward's unit, got {given!r}"
            )
        if size == 0.0:
            raise UserError(
                f"{name} is 0: nothing that small can be found; name a share of the value (5%) or an amount"
            )
        return Amount(size, relative)

    def of_value(self, value: float, name: str) -> float:
        """It in the reward's unit.

        Raises:
            UserError: a share of a value that is not positive.
        """
        if not self.relative:
            return self.size
        if not value > 0.0:
            raise UserError(
                f"{name}: the log's value is {value:.3g}, of which there is no share; give an amount instead"
            )
        return self.size * value


def checked_level(level: Any) -> float:
    """The coverage of intervals, and one less the test's size.

    Raises:
        UserError: outside (0, 1).
    """
    return number_in(level, "level", 0.0, 1.0, ends="()")


def quantile(probability: float) -> float:
    """Of the standard normal distribution."""
    from scipy.special import ndtri

    return float(ndtri(probability))


def two_sided(level: float) -> float:
    """Standard errors that an interval of this coverage reaches to either side."""
    return quantile(1.0 - (1.0 - level) / 2.0)


def factor_range(relative_error: float, level: float) -> tuple[float, float]:
    """Factors between which an amount lies whose logarithm has this standard error."""
    reach = math.exp(min(two_sided(level) * relative_error, 50.0))
    return 1.0 / reach, reach

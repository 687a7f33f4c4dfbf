"""Whether a series went up, went down or stayed flat between two windows of nights."""

from __future__ import annotations

import math
from typing import NamedTuple

from ndcg_spark.core.ragged import FloatArray


class WindowChange(NamedTuple):
    """Relative change of a mean between two windows, and its standard error.

    Parameters
    ----------
    change : float
        (mean of the later window - mean of the earlier) / |mean of the earlier|.
    error : float
    """

    change: float
    error: float

    def is_up(self, least: float, errors: float) -> bool:
        """Whether it rose by `least` or more, and by at least `errors` standard errors."""
        return self.change >= least and self.change >= errors * self.error

    def is_down(self, least: float, errors: float) -> bool:
        """Whether it fell by `least` or more, and by at least `errors` standard errors."""
        return WindowChange(-self.change, self.error).is_up(least, errors)

    def is_flat(self, most: float, errors: float) -> bool:
        """Whether |change| and `errors` standard errors add up to at most `most`."""
        return abs(self.change) + errors * self.error <= most


def window_change(earlier: FloatArray, later: FloatArray) -> WindowChange | None:
    """Compare two windows of nights.

    Parameters
    ----------
    earlier, later : float64, shapes (n,) and (m,)
        At least two nights each, finite.

    Returns
    -------
    WindowChange or None
        None where the earlier mean is 0.

    References
    ----------
    The standard error of Welch, Biometrika 34, 1947: variances of both windows, each over its number of nights.
    """
    before, after = math.fsum(earlier) / len(earlier), math.fsum(later) / len(later)
    if before == 0:
        return None
    variance = _variance(earlier, before) / len(earlier) + _variance(later, after) / len(later)
    return WindowChange((after - before) / abs(before), math.sqrt(variance) / abs(before))


def _variance(values: FloatArray, mean: float) -> float:
    return math.fsum((values - mean) ** 2) / (len(values) - 1)

"""Why a mean moved between two nights: other shares of its segments, or other means within them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class SegmentSums(NamedTuple):
    """Sum of weights and of weighted values of a segment."""

    weight: Fraction
    total: Fraction


class Shift(NamedTuple):
    """What a segment adds to the change of the overall mean."""

    mix: Fraction
    within: Fraction


def mix_and_within(before: Sequence[SegmentSums | None], after: Sequence[SegmentSums | None]) -> list[Shift]:
    """Divide the change of an overall mean into mix and within, segment by segment.

    Parameters
    ----------
    before, after : sequence of SegmentSums or None
        The same segments in the same order; None, or a weight of 0, where a night lacks one. Each night has weight
        somewhere.

    Returns
    -------
    list of Shift
        mix = (p_b - p_a)((u_a + u_b)/2 - (U_a + U_b)/2) and within = (p_a + p_b)/2 (u_b - u_a), for shares p of the
        weight, means u and overall means U. All add up to U_b - U_a, exactly. A segment that one night lacks takes
        the mean of the other.

    References
    ----------
    Kitagawa, Components of a difference between two rates, JASA 50(272), 1955.

    Examples
    --------
    >>> one = [SegmentSums(Fraction(1), Fraction(1)), SegmentSums(Fraction(1), Fraction(0))]
    >>> other = [SegmentSums(Fraction(3), Fraction(3)), SegmentSums(Fraction(1), Fraction(0))]
    >>> [float(shift.mix) for shift in mix_and_within(one, other)]
    [0.09375, 0.15625]
    """
    (shares_a, means_a, all_a), (shares_b, means_b, all_b) = _parts(before), _parts(after)
    middle = (all_a + all_b) / 2
    shifts = []
    nothing = Fraction(0)
    for p_a, p_b, known_a, known_b in zip(shares_a, shares_b, means_a, means_b, strict=True):
        u_a = known_a if known_a is not None else known_b if known_b is not None else nothing
        u_b = known_b if known_b is not None else u_a
        shifts.append(Shift((p_b - p_a) * ((u_a + u_b) / 2 - middle), (p_a + p_b) / 2 * (u_b - u_a)))
    return shifts


def _parts(segments: Sequence[SegmentSums | None]) -> tuple[list[Fraction], list[Fraction | None], Fraction]:
    """Share and mean of each segment, and the overall mean."""
    nothing = SegmentSums(Fraction(0), Fraction(0))
    filled = [nothing if one is None else one for one in segments]
    weight = sum((one.weight for one in filled), Fraction(0))
    shares = [one.weight / weight for one in filled]
    means = [one.total / one.weight if one.weight else None for one in filled]
    return shares, means, sum((one.total for one in filled), Fraction(0)) / weight

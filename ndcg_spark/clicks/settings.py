"""How clicks are corrected for the position at which items were shown: frozen, without Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ndcg_spark.errors import InvalidParameterError, one_of, option
from ndcg_spark.judgments.settings import ON_INVALID, check_keys

METHODS = ("pbm", "randomized", "pairs")
FITS = ("worker", "distributed")
PROPENSITIES_OF = ("position", "action")
MAX_POSITION = 1_000_000
MAX_POSITIONS = 10_000
"""Different positions of a log; what a worker returns has a number for each."""
MAX_CELLS = 8_000_000
"""Counts of patterns that one worker holds to fit a click model; they take about half a gigabyte."""
MAX_CLICK = 1e6
MAX_WEIGHT = 1e9
"""Sums of 2^31 products of such clicks and weights, and of their squares, fit into limbs from 2^32 on."""
IMPRESSION_RESERVED = (
    "relevance", "rule", "uncorrected", "n_impressions", "n_clipped", "weight_sum", "largest_weight", "segment_by",
    "segment", "run",
)  # fmt: skip
"""Columns of what is made of impressions; query and item columns may not have these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpressionColumns:
    """Names of the columns of a log of impressions.

    Parameters
    ----------
    query : tuple of str
        One or more columns that together identify a query.
    item : str
    position : str
        Where the item was shown, from 1: as logged, not the rank that is evaluated now. Not needed with `propensity`.
    click : str
        1 for a click and 0 for none, a boolean, or a gain.
    propensity : str or None
        Probability that the impression was examined, or shown (see `WeightPlan.propensity_of`), above 0, up to 1;
        None: it follows from the position.
    """

    query: tuple[str, ...] = ("query_id",)
    item: str = "item_id"
    position: str = "position"
    click: str = "click"
    propensity: str | None = None

    def __post_init__(self) -> None:
        check_keys(self.query, self.item, IMPRESSION_RESERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropensityPlan:
    """How the propensity of each position is found, except the impressions.

    Parameters
    ----------
    columns : ImpressionColumns
    method : str
        `pbm`: EM for a position-based click model, from any log in which items change their positions.
        `randomized`: click-through at the position over that at the first, from traffic whose order was shuffled.
        `pairs`: the same of the (query, item) that were shown at both positions.
    tolerance : float
        `pbm` has converged when no propensity moves by this much in a step.
    max_iter : int
        Steps after which `pbm` ends in any case.
    fit : str
        Where `pbm` and `pairs` hold their counts. `worker`: one Python worker, which takes up to 8,000,000 counts.
        `distributed`: all workers, with a Spark job for each step of EM.
    on_invalid : str
        `fail`: a bad row stops the action; `reject`: it is left out.

    Raises
    ------
    InvalidParameterError
    """

    columns: ImpressionColumns = field(default_factory=ImpressionColumns)
    method: str = "pbm"
    tolerance: float = 1e-6
    max_iter: int = 1000
    fit: str = "worker"
    on_invalid: str = "fail"

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        one_of("fit", self.fit, FITS)
        one_of("on_invalid", self.on_invalid, ON_INVALID)
        if not 0 < self.tolerance < 1:
            raise InvalidParameterError(f"tolerance must lie between 0 and 1; got {self.tolerance:g}.")
        if self.max_iter < 1:
            raise InvalidParameterError(f"{option('max_iter', str(self.max_iter))} must be at least 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightPlan:
    """How clicks are weighted by inverse propensities, except the impressions and a table of propensities.

    Parameters
    ----------
    columns : ImpressionColumns
        With `propensity`, unless propensities follow from the position.
    power : float or None
        Propensity of a position: 1 / position^power. None: a column or a table says it.
    clip : float or None
        Largest weight; None is no limit. It lowers the variance and adds a bias.
    run : str or None
        Column that tells several rankers apart in estimates.
    segment_sets : tuple of tuple of str
        Columns of the impressions to group estimates by, beside the overall ones.
    confidence : float
        Level of the intervals of estimates.
    propensity_of : str
        What a propensity column holds. `position`: the probability that the position was examined; estimates then
        have no SNIPS. `action`: the logged probability that this item was shown. Propensities of a table or of a
        power are always of positions. Labels do not depend on it.
    on_invalid : str
        `fail`: a bad row stops the action; `reject`: it is left out.

    Raises
    ------
    InvalidParameterError
    """

    columns: ImpressionColumns = field(default_factory=ImpressionColumns)
    power: float | None = None
    clip: float | None = None
    run: str | None = None
    segment_sets: tuple[tuple[str, ...], ...] = ()
    confidence: float = 0.95
    propensity_of: str = "position"
    on_invalid: str = "fail"

    def __post_init__(self) -> None:
        one_of("on_invalid", self.on_invalid, ON_INVALID)
        one_of("propensity_of", self.propensity_of, PROPENSITIES_OF)
        if self.power is not None and not 0 <= self.power < math.inf:
            raise InvalidParameterError(f"power must be a number of at least 0; got {self.power:g}.")
        if self.clip is not None and not 1 <= self.clip <= MAX_WEIGHT:
            raise InvalidParameterError(
                f"clip must lie between 1, the weight of the first position, and {MAX_WEIGHT:,.0f}; "
                f"got {self.clip:g}."
            )
        if not 0 < self.confidence < 1:
            raise InvalidParameterError(f"confidence must lie between 0 and 1; got {self.confidence:g}.")

    def check_source(self, *, table: bool) -> None:
        """Raise unless propensities come from exactly one place: a column, a table, or a power of the position.

        Those of actions come from a column.

        Parameters
        ----------
        table : bool
            Whether there is a table of propensities.
        """
        given = {
            "a propensity column": self.columns.propensity is not None,
            "a table of propensities": table,
            "a power": self.power is not None,
        }
        named = [what for what, there in given.items() if there]
        if len(named) != 1:
            raise InvalidParameterError(
                "propensities must come from one of a column, a table, or a power of the position; got "
                f"{' and '.join(named) or 'none'}."
            )
        if self.propensity_of == "action" and self.columns.propensity is None:
            raise InvalidParameterError(
                f"{option('propensity_of', 'action')} needs a propensity column ({option('propensity')}); those of a "
                "table or a power are of positions."
            )

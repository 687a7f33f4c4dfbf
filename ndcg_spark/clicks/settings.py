"""Settings of the correction of clicks for the position of items: frozen, without Spark."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from ndcg_spark.core.flag import Flag, OnInvalid, check_values
from ndcg_spark.errors import InvalidParameterError, check_fraction, option
from ndcg_spark.evaluation.settings import read_segment_sets
from ndcg_spark.judgments.settings import check_keys

Method: TypeAlias = Literal["pbm", "randomized", "pairs"]
PropensityOf: TypeAlias = Literal["position", "action"]
MAX_POSITION = 1_000_000
MAX_POSITIONS = 10_000
"""Distinct positions of a log; a worker's result has a number for each."""
MAX_CELLS = 8_000_000
"""Counts of patterns that a click model is fitted to; a sample above this. They need half a gigabyte."""
MAX_CLICK = 1e6
MAX_CLIP = 1e9
"""Sums of 2^31 products of such clicks and weights, and of their squares, fit into limbs from 2^32 on."""
IMPRESSION_RESERVED = (
    "relevance", "rule", "uncorrected", "n_impressions", "n_clipped", "weight_sum", "largest_weight", "segment_by",
    "segment", "run",
)  # fmt: skip
"""Columns of the results; query and item columns may not have these names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImpressionColumns:
    """Names of the columns of a log of impressions.

    Parameters
    ----------
    query
        Columns that identify a query.
    item
        Column that identifies an item.
    position
        Column with the position at which the item was shown, from 1.

        The logged position, not the rank that is evaluated now. Not needed with `propensity`.
    click
        Column that is 1 if the item was clicked, else 0; labels and estimates also take a gain.
    propensity
        Column of the impressions with the propensity of each; the position is then not read.

        The probability that the impression was examined, or shown (see `WeightSettings.propensity_of`), above 0, up
        to 1. None: it follows from the position.
    """

    query: Annotated[tuple[str, ...], Flag(group="Columns", metavar="A,B")] = ("query_id",)
    item: str = "item_id"
    position: str = "position"
    click: str = "click"
    propensity: Annotated[str | None, Flag(group="Propensities")] = None

    def __post_init__(self) -> None:
        check_values(self)
        check_keys(self.query, self.item, IMPRESSION_RESERVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropensitySettings:
    """Settings of the estimation of propensities of positions.

    Parameters
    ----------
    columns
        Names of the columns of the impressions.
    method
        A position-based click model fitted by EM (`pbm`); click-through of traffic whose order was shuffled
        (`randomized`); or click-through of items shown at both positions (`pairs`).

        `pbm` works with any log in which items change their positions. The others divide the click-through at a
        position by that at the first; `pairs` uses only the (query, item) that were shown at both.
    tolerance
        EM has converged if no propensity changes by this much in a step.
    max_iter
        Maximum number of EM steps.
    on_invalid
        What to do with bad rows: stop before there is a result (`fail`), or leave them out and count them (`reject`).
    """

    columns: ImpressionColumns = field(default_factory=ImpressionColumns)
    method: Annotated[Method, Flag(group="Method")] = "pbm"
    tolerance: Annotated[float, Flag(metavar="X")] = 1e-6
    max_iter: Annotated[int, Flag(metavar="N")] = 1000
    on_invalid: Annotated[OnInvalid, Flag(group="Checks")] = "fail"

    def __post_init__(self) -> None:
        check_values(self)
        check_fraction("tolerance", self.tolerance)
        if self.max_iter < 1:
            raise InvalidParameterError(f"{option('max_iter', str(self.max_iter))} must be at least 1.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightSettings:
    """Settings of the weighting of clicks by inverse propensities.

    Parameters
    ----------
    columns
        Names of the columns of the impressions, with `propensity`, unless propensities follow from the position.
    power
        Propensity of a position: 1 / position^X.

        None: a column or a table has the propensities.
    clip
        Largest weight, 1 / propensity; it lowers the variance and adds a bias.
    propensity_of
        Meaning of the propensity column: the probability that the position was examined (`position`), or that the
        logging policy showed this item (`action`). SNIPS needs the latter.

        Propensities from a table or a power are always those of positions. Labels do not depend on this setting.
    run
        Column that names the ranker, for several rankers.
    segment_sets
        Also estimate by A, and by B and C together.

        Columns of the impressions to group estimates by, in addition to the overall estimates.
    confidence
        Level of the confidence intervals.
    on_invalid
        What to do with bad rows: stop before there is a result (`fail`), or leave them out and count them (`reject`).
    """

    columns: ImpressionColumns = field(default_factory=ImpressionColumns)
    power: Annotated[float | None, Flag(group="Propensities", metavar="X")] = None
    clip: Annotated[float | None, Flag(metavar="M", shown="no limit")] = None
    propensity_of: PropensityOf = "position"
    run: Annotated[str | None, Flag(group="Columns")] = None
    segment_sets: Annotated[
        tuple[tuple[str, ...], ...],
        Flag(name="segments", metavar="A,B+C", read=read_segment_sets),
    ] = ()
    confidence: Annotated[float, Flag(group="Estimates", metavar="X")] = 0.95
    on_invalid: Annotated[OnInvalid, Flag(group="Checks")] = "fail"

    def __post_init__(self) -> None:
        check_values(self)
        if self.power is not None and not 0 <= self.power < math.inf:
            raise InvalidParameterError(f"power must be a finite number of at least 0; got {self.power:g}.")
        if self.clip is not None and not 1 <= self.clip <= MAX_CLIP:
            raise InvalidParameterError(
                f"clip must be between 1, the weight of the first position, and {MAX_CLIP:,.0f}; got {self.clip:g}."
            )
        check_fraction("confidence", self.confidence)

    def check_source(self, *, table: bool) -> None:
        """Raise unless propensities have exactly one source: a column, a table, or a power of the position.

        Propensities of actions need a column.

        Parameters
        ----------
        table : bool
            True if there is a table of propensities.
        """
        is_given = {
            "a propensity column": self.columns.propensity is not None,
            "a table of propensities": table,
            "a power": self.power is not None,
        }
        sources = [source for source, is_set in is_given.items() if is_set]
        if len(sources) != 1:
            raise InvalidParameterError(
                "propensities must come from one of a column, a table, or a power of the position; got "
                f"{' and '.join(sources) or 'none'}."
            )
        if self.propensity_of == "action" and self.columns.propensity is None:
            raise InvalidParameterError(
                f"{option('propensity_of', 'action')} needs a propensity column ({option('propensity')}); the "
                "propensities of a table or a power are those of positions."
            )

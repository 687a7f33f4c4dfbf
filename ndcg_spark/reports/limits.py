"""How much of a table fits into a report."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ndcg_spark.errors import InvalidParameterError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportLimits:
    """The most that a report shows. It states what it leaves out.

    Parameters
    ----------
    runs : int
        Runs; those with the highest value come first.
    nights : int
        Nights of the trend, the newest.
    segments : int
        Rows of the segment table, those with the most queries.
    comparisons : int
        Rows of the comparison, overall ones first, then those with the most queries.
    queries : int
        Queries with the lowest values, and queries that lost the most, of each run; and of the queries that changed
        most, those that lost and those that gained.
    items : int
        Items of each list of a query that changed.
    """

    runs: int = 8
    nights: int = 400
    segments: int = 500
    comparisons: int = 300
    queries: int = 10
    items: int = 20

    def __post_init__(self) -> None:
        for one in fields(self):
            most = 8 if one.name == "runs" else 2_000  # colours end at eight
            if not 1 <= getattr(self, one.name) <= most:
                raise InvalidParameterError(
                    f"{one.name} must lie between 1 and {most:,}; got {getattr(self, one.name)}."
                )

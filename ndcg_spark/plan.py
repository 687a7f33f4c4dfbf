"""What is to be evaluated, and how: frozen, without Spark."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError, one_of
from ndcg_spark.kernels.discounts import check_discount

STRATEGIES = ("auto", "engine", "window")
SOURCES = ("auto", "spark", "parquet")
DUPLICATE_CHECKS = ("top", "all", "none")
MAX_K = 1_000_000
MAX_RANK = 10_000_000
MAX_WEIGHT = 1e18
METRICS = ("ndcg", "dcg", "idcg")
TIE_METRICS = ("ndcg_best", "ndcg_worst", "tied_share")
PER_QUERY_COLUMNS = (
    "run", "k", "dcg", "idcg", "ndcg", "status", "n_items", "n_judged", "n_relevant",
)  # fmt: skip
RESERVED = (*PER_QUERY_COLUMNS, *TIE_METRICS, "weight", "n_rows", "n_left_out", "ranked", "ranks", "scores", "tied",
            "ideal")  # fmt: skip
"""Names that rankings and per-query results have for themselves; query and segment columns may not have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the input plays which part.

    Parameters
    ----------
    query : tuple of str
        The query key; several columns together where there are several.
    item : str or None
        None where no rule needs items.
    score : tuple of str
        One column, or several: then each is a run of its own, named after its column.
    rank : str or None
        A 1-based rank to be taken as it is, instead of scores.
    relevance : str
        In the judgments where there are judgments, else in the input. An array column makes the
        input one row a query.
    ideal : str or None
        With an array of relevances: the array of all judged relevances of the query.
    run : str or None
        A column that names the ranker; None where there is one, unnamed.
    weight : str or None
        Weight of a query in means; one value a query.
    order : str or None
        Position of a row in its source, for ties by input order and the first of duplicates.
    """

    query: tuple[str, ...] = ("query_id",)
    item: str | None = "item_id"
    score: tuple[str, ...] = ("score",)
    rank: str | None = None
    relevance: str = "relevance"
    ideal: str | None = None
    run: str | None = None
    weight: str | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        if not self.query:
            raise InvalidParameterError("query-col must name at least one column.")
        if len(set(self.query)) < len(self.query):
            raise InvalidParameterError(f"query-col names a column twice: {', '.join(self.query)}.")
        if len(set(self.score)) < len(self.score):
            raise InvalidParameterError(f"score-col names a column twice: {', '.join(self.score)}.")
        if len(self.score) > 1 and self.run is not None:
            raise InvalidParameterError("several score columns are runs themselves: leave run-col out.")
        if len(self.score) > 1 and self.rank is not None:
            raise InvalidParameterError("several score columns are ranked by their scores: leave rank-col out.")

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns of the input that name a query of a run: that of the run first, where there is one."""
        return self.query if self.run is None else (self.run, *self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationPlan:
    """Everything an evaluation is determined by, beside the data.

    Parameters
    ----------
    columns : Columns
    convention : Convention
    cutoffs : tuple of int or None
        Increasing; None (the whole list) comes last.
    segment_sets : tuple of tuple of str
        Each is a set of columns to group means by; the overall mean is always there.
    strategy : str
        How items are ranked. `engine`: Python workers rank them, on any table. `window`: window functions of Spark,
        the plain reference, which takes several times as long. `auto`: the engine. The numbers are the same. One row
        a query with an array of relevances is scored as it is.
    source : str
        Who reads an input that is given as a path. `parquet`: workers read the files; `spark`: Spark reads them;
        `auto`: workers where they can. A DataFrame is always read by Spark.
    on_invalid : str
        `fail`: a bad row stops the evaluation; `reject`: it is left out.
    null_score : str
        `bad`: a null score is a bad row; `unretrieved`: a judged item that the run did not retrieve.
    check_duplicates : str
        Where `duplicates=error` looks: `top` (the first k items and the ideal list), `all` rows, or nowhere (`none`:
        for tables that cannot have any; lists then need no items, which is quicker).
    confidence : float
        Of the intervals.
    sample : float
        Share of the queries to evaluate, above 0 and up to 1: those whose key hashes low, the same on every night
        and in run and judgments. The intervals then are about the mean of all queries.
    tie_bounds : bool
        Also give NDCG with tied items in the best and in the worst order, and the share of the first k ranks that
        is filled by the tie group which reaches beyond rank k (0: the cut falls between groups; 1: all k tie with
        what follows, as under a constant scorer). Needs a tie rule that takes groups: expected, best or worst.

    Examples
    --------
    >>> plan = EvaluationPlan(cutoffs=(5, 10))
    >>> plan.max_k, plan.segment_columns
    (10, ())
    """

    columns: Columns = field(default_factory=Columns)
    convention: Convention = field(default_factory=Convention)
    cutoffs: tuple[int | None, ...] = (10,)
    segment_sets: tuple[tuple[str, ...], ...] = ()
    strategy: str = "auto"
    source: str = "auto"
    on_invalid: str = "fail"
    null_score: str = "bad"
    check_duplicates: str = "top"
    confidence: float = 0.95
    sample: float = 1.0
    tie_bounds: bool = False

    def __post_init__(self) -> None:
        check_cutoffs(self.cutoffs)
        one_of("strategy", self.strategy, STRATEGIES)
        one_of("source", self.source, SOURCES)
        one_of("on_invalid", self.on_invalid, ("fail", "reject"))
        one_of("null_score", self.null_score, ("bad", "unretrieved"))
        one_of("check_duplicates", self.check_duplicates, DUPLICATE_CHECKS)
        if not 0 < self.confidence < 1:
            raise InvalidParameterError(f"confidence must lie between 0 and 1; got {self.confidence}.")
        if not 0 < self.sample <= 1:
            raise InvalidParameterError(f"sample must be above 0 and at most 1; got {self.sample}.")
        check_discount(self.convention.discount, self.max_k)
        named = {*self.columns.query, *self.segment_columns}
        dotted = sorted(name for name in named if "." in name)
        if dotted:
            raise InvalidParameterError(f"query or segment column {dotted[0]!r} has a dot in its name; rename it.")
        taken = sorted(name for name in named if name.lower() in RESERVED)  # Spark does not mind the case
        if taken:
            raise InvalidParameterError(
                f"query or segment column {taken[0]!r} has a name that results use for themselves; rename it."
            )
        if self.convention.ties == "input_order" and not self.columns.order and not self.columns.rank:
            raise InvalidParameterError("ties=input_order needs order-col, the column with that order.")
        if self.tie_bounds and not self.convention.groups_ties:
            raise InvalidParameterError(f"tie bounds need ties=expected, best or worst; got {self.convention.ties}.")
        if self.convention.duplicates == "first" and not self.columns.order:
            raise InvalidParameterError("duplicates=first needs order-col, the column that says which is first.")

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics that are computed."""
        return METRICS + (TIE_METRICS if self.tie_bounds else ())

    @property
    def max_k(self) -> int | None:
        """The largest cutoff, which is how much of each list matters; None: all of it."""
        return self.cutoffs[-1]

    @property
    def checks_top_duplicates(self) -> bool:
        """Whether lists carry items, where there are any, so that duplicates among them are found."""
        return self.convention.duplicates == "error" and self.check_duplicates == "top"

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """Every column some segment set uses, each once, in the order of first use."""
        return tuple(dict.fromkeys(name for names in self.segment_sets for name in names))

    @property
    def carried_segments(self) -> tuple[str, ...]:
        """Segment columns that are not query columns, and so must be carried along."""
        return tuple(name for name in self.segment_columns if name not in self.columns.query)

    @property
    def digest(self) -> str:
        """Sixteen hex digits that change with any choice that can change a number."""
        parts = {
            "columns": asdict(self.columns),
            "convention": self.convention.digest,
            "cutoffs": self.cutoffs,
            "segments": self.segment_sets,
            "policies": (self.on_invalid, self.null_score, self.check_duplicates, self.confidence, self.sample),
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def check_cutoffs(cutoffs: tuple[int | None, ...]) -> None:
    """Raise `InvalidParameterError` unless cutoffs are whole numbers from 1 on that rise, or None at the end."""
    numbers = [k for k in cutoffs if k is not None]
    if not cutoffs:
        raise InvalidParameterError("k needs at least one cutoff, such as 10, or all.")
    for k in numbers:
        if not hasattr(k, "__index__") or isinstance(k, bool) or k < 1:
            raise InvalidParameterError(f"k must be a whole number from 1 on, or all; got {k!r}.")
    if numbers and max(numbers) > MAX_K:
        raise InvalidParameterError(f"k must be at most {MAX_K:,}; got {max(numbers):,}. For whole lists use all.")
    ordered: list[int | None] = [*sorted(set(numbers)), *([None] if None in cutoffs else [])]
    if list(cutoffs) != ordered:
        raise InvalidParameterError(f"cutoffs must rise and come once each (all last); got {cutoffs}.")

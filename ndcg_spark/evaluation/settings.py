"""Settings of an evaluation: frozen, without Spark."""

from __future__ import annotations

import hashlib
import json
import operator
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from typing import Annotated, ClassVar, Literal, TypeAlias

from ndcg_spark.conventions import Convention
from ndcg_spark.conventions.forms import check_discount
from ndcg_spark.core.flag import Flag, OnInvalid, check_values
from ndcg_spark.core.labels import cutoff_order
from ndcg_spark.errors import InvalidParameterError, check_fraction, option
from ndcg_spark.evaluation.rules import RULES, add_weight, write_rules
from ndcg_spark.metrics import EVERY, CatalogueMetric, Metric, MetricAt, Need, in_order, parse_metric
from ndcg_spark.metrics.base import FIRST_SEEN, TOPICS
from ndcg_spark.metrics.normalized_gain import GAINS, NDCG, TIE_BOUNDS

Strategy: TypeAlias = Literal["auto", "engine", "window"]
Source: TypeAlias = Literal["auto", "spark", "parquet"]
NullScore: TypeAlias = Literal["bad", "unretrieved"]
DuplicateCheck: TypeAlias = Literal["top", "all", "none"]
DEFAULT_QUERY = ("query_id",)
MAX_K = 1_000_000
MAX_RANK = 10_000_000
MAX_SHORT_K = 200
"""Longest list of which 10,000 rankings, a batch of Spark, fit in some tens of megabytes."""
REJECT_WARNING_SHARE = 0.1
"""Share of rejected rows from which the job warns; the report also requires more than twice the usual share."""
PER_QUERY_COLUMNS = (
    "run", "k", "dcg", "idcg", "ndcg", "status", "n_items", "n_judged", "n_relevant",
)  # fmt: skip
RESERVED = (
    *PER_QUERY_COLUMNS, *(metric.column for metric in TIE_BOUNDS), "weight", "n_rows", "n_left_out", "n_rejected",
    "n_unjudged_items", "n_top_items", "ranked", "ranks", "scores", "tied", "ideal", "n_at_least", RULES,
)  # fmt: skip
"""Column names of rankings and per-query results, which query and segment columns must not have."""
ITEM_RESERVED = ("items", "features", "topics_of_items", "n_interactions", "n_users")
"""Further column names of rankings if metrics need items."""


def parse_segment_sets(segments: str | Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Parse segment sets; each is a column, or several columns joined by `+`.

    >>> parse_segment_sets(["country", "country+device"])
    (('country',), ('country', 'device'))
    """
    texts = [segments] if isinstance(segments, str) else list(segments)
    sets = tuple(tuple(column.strip() for column in text.split("+")) for text in texts)
    repeats = len(set(sets)) < len(sets) or any(len(set(columns)) < len(columns) for columns in sets)
    if repeats or not all(column for columns in sets for column in columns):
        raise InvalidParameterError(f"{option('segments')} must be column names, each set once; got {texts}.")
    return sets


def read_segment_sets(text: str) -> tuple[tuple[str, ...], ...]:
    """Parse segment sets in one text, as in `country,country+device`."""
    return parse_segment_sets([segment_set.strip() for segment_set in text.split(",")] if text else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Names of the columns of the input.

    Parameters
    ----------
    query
        Columns that identify a query.
    item
        Column that identifies an item.

        None if no rule needs items.
    score
        Scores, higher is better; several columns are evaluated as one run each.

        Runs are named after their columns.
    rank
        Ranks from 1, used instead of scores.
    relevance
        Relevances; an array column means one row per query, in rank order.

        Column of the judgments table if that is used, else of the input.
    ideal
        With arrays: all judged relevances of the query.
    ranked
        Lists of items, one row per query, instead of scores; several columns are evaluated as one run each.

        Arrays of ids in rank order, or of structs with an id and optionally a score. Runs are named after their
        columns.
    relevant
        Relevant items of each row; a column of the judgments table if that is used.

        An array of ids (grade 1), an array of structs of id and grade, or a map from id to grade.
    run
        Column that names the ranker, if the input has several rankers.
    weight
        Weight of a query in the means; constant within a query.
    order
        Position of a row in its source, for ties by input_order and duplicates by first.
    """

    ranks_are_positions: ClassVar[bool] = False  # of a list
    query: Annotated[tuple[str, ...], Flag(group="Columns", metavar="A,B")] = DEFAULT_QUERY
    item: str | None = "item_id"
    score: Annotated[tuple[str, ...], Flag(metavar="A,B")] = ("score",)
    rank: Annotated[str | None, Flag(shown="rank, if the input has no score")] = None
    relevance: str = "relevance"
    ideal: str | None = None
    ranked: Annotated[tuple[str, ...], Flag(metavar="A,B")] = ()
    relevant: str | None = None
    run: str | None = None
    weight: str | None = None
    order: str | None = None

    def __post_init__(self) -> None:
        check_values(self)
        if not self.query and not self.ranked:  # a row of lists may be a query without a key
            raise InvalidParameterError(f"{option('query')} must name at least one column.")
        if len(set(self.query)) < len(self.query):
            raise InvalidParameterError(f"{option('query')} names a column twice: {', '.join(self.query)}.")
        if len(set(self.score)) < len(self.score):
            raise InvalidParameterError(f"{option('score')} names a column twice: {', '.join(self.score)}.")
        if len(self.score) > 1 and self.run is not None:
            raise InvalidParameterError(f"each score column is a run: remove {option('run')}.")
        if len(self.score) > 1 and self.rank is not None:
            raise InvalidParameterError(
                f"several score columns cannot be combined with ranks: remove {option('rank')}."
            )

        self._check_lists()

    def _check_lists(self) -> None:
        if not self.ranked:
            if self.relevant is not None:
                raise InvalidParameterError(
                    f"column {self.relevant!r} ({option('relevant')}) holds the relevant items of ranked lists: "
                    f"name the column of these lists, too ({option('ranked')}), or remove it."
                )
            return
        if len(set(self.ranked)) < len(self.ranked):
            raise InvalidParameterError(f"{option('ranked')} names a column twice: {', '.join(self.ranked)}.")
        if len(self.ranked) > 1 and self.run is not None:
            raise InvalidParameterError(f"each ranked column is a run: remove {option('run')}.")
        conflicts = {"rank": self.rank is not None, "ideal": self.ideal is not None}
        conflicts["score"] = len(self.score) > 1
        is_fitted = not self.query and self.relevant is None  # as by `build_long_settings`
        for field_name in (field_name for field_name, is_set in conflicts.items() if is_set and not is_fitted):
            raise InvalidParameterError(
                f"{option('ranked')} names lists, which have their own ranks or scores: remove {option(field_name)}."
            )

    def with_default_rank(self, columns: Sequence[str]) -> Columns:
        """Return these columns with `rank` set if a table has a rank column and no score.

        Columns with a named rank column are returned unchanged.

        Parameters
        ----------
        columns : sequence of str
            The names of the table's columns.

        Returns
        -------
        Columns
        """
        has_score = self.score != ("score",) or any(column.lower() == "score" for column in columns)
        rank_columns = [column for column in columns if column.lower() == "rank"]
        if self.rank is not None or self.ranked or has_score or not rank_columns:
            return self
        return replace(self, rank="rank" if "rank" in rank_columns else rank_columns[0])

    def query_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the query columns of a table.

        Tables with lists may have none: if no query column was named and the default one is missing.

        Parameters
        ----------
        columns : sequence of str
            The names of the table's columns.

        Returns
        -------
        tuple of str
            The query columns; empty if each row is a query.
        """
        has_no_query = self.ranked and self.query == DEFAULT_QUERY and self.query[0] not in map(str.lower, columns)
        return () if has_no_query else self.query

    @property
    def runs(self) -> tuple[str, ...]:
        """Columns that are a run each; empty if there is only one column of scores or lists."""
        return next((names for names in (self.ranked, self.score) if len(names) > 1), ())

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a query of a run: the run column, if any, and the query columns."""
        return self.query if self.run is None else (self.run, *self.query)


class PositionColumns(Columns):
    """Columns of lists of ids, whose ranks are positions. Entries dropped by a rule leave no gaps in the ranks."""

    __slots__ = ()
    ranks_are_positions = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemColumns:
    """Names of the columns that item metrics read. The item column has the same name in all tables.

    Parameters
    ----------
    vector
        Column of the item table with an array of numbers, for ild and ils.

        Vectors of `pyspark.ml` are accepted, too.
    categories
        Column of the item table with an array of categories, or with one category.
    first_seen
        Column of the item table with a date, for first_appearance; null for an item that was never seen.

        Timestamps are accepted, too. Ages are counted up to `EvaluationSettings.as_of`, or up to the run date.
    topics
        Column in the table of relevances with an array of topics, or with one topic, for alpha_ndcg.
    user
        Column that identifies a user, in the interactions and, for first_new, in the input.

        In the input it must be a query or segment column.
    """

    vector: Annotated[str, Flag(group="Columns")] = "vector"
    categories: str = "categories"
    first_seen: str = "first_seen"
    topics: str = "topics"
    user: Annotated[str | None, Flag(shown="the query column")] = None

    def __post_init__(self) -> None:
        check_values(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSettings:
    """Settings that determine an evaluation.

    Parameters
    ----------
    columns
        Names of the columns of the input.
    convention
        Named set of rules, each of which can be changed; `ndcg-spark conventions` lists them.
    cutoffs
        Cutoffs in increasing order; None (the whole list) comes last.
    metrics
        Metrics, each at one of the cutoffs. Default: `ndcg`, `dcg` and `idcg` at all cutoffs.
    segment_sets
        Also compute means by A, and by B and C together.

        Each set of columns is grouped by separately. The overall mean is always computed.
    strategy
        How items are ranked: by the `engine`, or by `window` functions, a slow reference with the same results;
        `auto` is the engine.

        The engine runs in Python workers. Arrays of relevances are scored in their order, without ranking.
    source
        Reader of Parquet files named by path: `spark`, or Python workers (`parquet`, faster); `auto` uses workers if
        possible.

        A DataFrame is always read by Spark.
    on_invalid
        Treatment of bad rows: `fail` stops before any result is written, `reject` leaves them out and counts them.
    null_score
        Meaning of a null score: a `bad` row, or a judged item that was not retrieved (`unretrieved`).
    check_duplicates
        Where to check for duplicate items: at the `top` of the lists, in `all` rows (one more shuffle; for arrays
        and lists this also finds duplicate queries), or nowhere (`none`, faster).

        Used with `duplicates=error` only. The top is the first k + 1 items and the ideal list. Arrays and lists are
        always checked whole, but only `all` finds a query with two rows; otherwise both rows count.
    allow_unmatched
        Accept a run without any judged query or item; all its values are 0.

        By default such a run is refused if judgments are a separate table: usually ids differ in case or prefix.
    confidence
        Level of the confidence intervals.
    sample
        Evaluate this share of the queries, chosen by hash.

        Above 0 and up to 1. The sample is the same every night, and in run and judgments. Intervals refer to the mean
        of all queries.
    tie_bounds
        Also compute NDCG with ties in the best and in the worst order, and the tied share at k.

        The metrics are `ndcg_best`, `ndcg_worst` and `tied_share`: the share of the first k ranks in a tie group that
        reaches beyond rank k. The share is 0 without such a group, and 1 if all k ranks tie with later ranks, as for
        a constant scorer. Needs `ties=expected`, `best` or `worst`.
    item_columns
        Names of the columns that item metrics read.
    as_of
        The day up to which `first_appearance` counts the age of items.

    Examples
    --------
    >>> settings = EvaluationSettings(cutoffs=(5, 10))
    >>> settings.max_k, settings.segment_columns
    (10, ())
    """

    columns: Columns = field(default_factory=Columns)
    convention: Annotated[Convention, Flag(group="Metric", metavar="NAME", read=Convention.parse, text=str)] = field(
        default_factory=Convention
    )
    cutoffs: tuple[int | None, ...] = (10,)
    metrics: tuple[MetricAt, ...] = ()
    segment_sets: Annotated[
        tuple[tuple[str, ...], ...],
        Flag(group="Columns", name="segments", metavar="A,B+C", read=read_segment_sets),
    ] = ()
    strategy: Annotated[Strategy, Flag(group="Running")] = "auto"
    source: Source = "auto"
    on_invalid: Annotated[OnInvalid, Flag(group="Checks")] = "fail"
    null_score: NullScore = "bad"
    check_duplicates: DuplicateCheck = "top"
    allow_unmatched: bool = False
    confidence: Annotated[float, Flag(group="Metric", metavar="X")] = 0.95
    sample: Annotated[float, Flag(group="Input", metavar="X", shown="all")] = 1.0
    tie_bounds: Annotated[bool, Flag(group="Metric")] = False
    item_columns: ItemColumns = field(default_factory=ItemColumns)
    as_of: date | None = None

    def __post_init__(self) -> None:
        check_cutoffs(self.cutoffs)
        check_values(self)
        check_fraction("confidence", self.confidence)
        if not 0 < self.sample <= 1:
            raise InvalidParameterError(f"sample must be above 0 and at most 1; got {self.sample}.")
        check_discount(self.convention.discount, self.max_k)
        self._check_metrics()
        key_columns = {*self.columns.query, *self.segment_columns}
        refuse_special_characters("query or segment", key_columns)
        reserved = {*RESERVED, *self.metric_columns, *(ITEM_RESERVED if self.needs else ())}
        clashes = sorted(column for column in key_columns if column.lower() in reserved)  # Spark ignores case
        if clashes:
            raise InvalidParameterError(f"query or segment column {clashes[0]!r} has a reserved name; rename it.")
        has_order = self.columns.order or self.columns.ranked
        if self.convention.ties == "input_order" and not has_order and not self.columns.rank:
            raise InvalidParameterError(f"ties=input_order needs {option('order')}, the column with the input order.")
        if self.tie_bounds and not self.convention.groups_ties:
            raise InvalidParameterError(f"tie bounds need {self._groups_ties()}; got ties={self.convention.ties}.")
        if self.convention.duplicates == "first" and not has_order:
            raise InvalidParameterError(f"duplicates=first needs {option('order')}, the column that orders the rows.")

    def _check_metrics(self) -> None:
        if len(set(self.metrics)) < len(self.metrics):
            raise InvalidParameterError(f"a metric is named twice: {', '.join(map(str, self.metrics))}.")
        for metric_at in self.metrics:
            if metric_at.k not in self.cutoffs:
                raise InvalidParameterError(f"metric {str(metric_at)!r} is not at one of the cutoffs {self.cutoffs}.")
            if metric_at.metric.needs_ties and not self.convention.groups_ties:
                raise InvalidParameterError(
                    f"metric {str(metric_at)!r} needs {self._groups_ties()}; got ties={self.convention.ties}."
                )
        for metric_at in self.computed:
            has_order = self.ranks_given or self.columns.ranked  # lists may have scores, which is checked later
            if metric_at.metric.needs_order and self.groups_ties and not has_order:
                raise InvalidParameterError(
                    f"metric {str(metric_at)!r} needs an order of tied items, but ties={self.convention.ties} has "
                    f"none: use {self.convention.advice('ties', 'item_asc')}, or item_desc or input_order."
                )
            if any(need.what == "first_seen" for need in metric_at.metric.needs) and self.as_of is None:
                raise InvalidParameterError(
                    f"metric {str(metric_at)!r} needs {option('as_of')}, the day up to which ages are counted."
                )
        if self.needs and self.columns.item is None:
            raise InvalidParameterError(
                f"metric {self.metric_with(self.needs[0])!r} needs an item column ({option('item')})."
            )
        if self.tie_bounds and self.metrics and all(metric_at.metric.name != "ndcg" for metric_at in self.metrics):
            raise InvalidParameterError("tie bounds need ndcg among the metrics.")

    def _groups_ties(self) -> str:
        return f"{self.convention.advice('ties', 'expected')}, or best or worst"

    @property
    def requested(self) -> tuple[MetricAt, ...]:
        """Requested metrics; NDCG at all cutoffs if no metric was requested."""
        metrics = self.metrics or tuple(MetricAt(NDCG, k) for k in self.cutoffs)
        return tuple(replace(metric_at, asked=metric_at.asked or str(metric_at.metric)) for metric_at in metrics)

    @property
    def computed(self) -> tuple[MetricAt, ...]:
        """Requested metrics and the companions each implies, at each cutoff.

        A per-query table with one of `GAINS` has all of them and all tie bounds; summaries do not.
        """
        requested = {metric_at: metric_at for metric_at in self.requested}
        bounds = TIE_BOUNDS if self.tie_bounds else ()
        metrics: list[MetricAt] = []
        for metric_at in requested:
            companions = (*metric_at.metric.comes_with, *(bounds if metric_at.metric == NDCG else ()))
            metrics += [metric_at, *(MetricAt(metric, metric_at.k) for metric in companions)]
        cutoffs = dict.fromkeys(metric_at.k for metric_at in metrics if metric_at.metric in (*GAINS, *TIE_BOUNDS))
        metrics += [MetricAt(metric, k, shown=False) for k in cutoffs for metric in (*GAINS, *bounds)]
        return in_order(requested.get(metric_at, metric_at) for metric_at in metrics)

    @property
    def catalogue_metrics(self) -> tuple[MetricAt, ...]:
        """Metrics of all lists together."""
        return tuple(metric_at for metric_at in self.computed if isinstance(metric_at.metric, CatalogueMetric))

    @property
    def needs(self) -> tuple[Need, ...]:
        """Distinct inputs that metrics read besides relevances. If there are any, rankings carry their items."""
        return tuple(dict.fromkeys(need for metric_at in self.computed for need in metric_at.metric.needs))

    def metric_with(self, need: Need) -> str:
        """Return the name of the first metric that needs an input, for messages.

        Parameters
        ----------
        need : Need

        Returns
        -------
        str
        """
        return next(str(metric_at) for metric_at in self.computed if need in metric_at.metric.needs)

    @property
    def metric_columns(self) -> tuple[str, ...]:
        """Value columns of per-query tables; `GAINS` and tie bounds come first."""
        metrics = (metric_at.metric for metric_at in self.computed if isinstance(metric_at.metric, Metric))
        first = (*GAINS, *(TIE_BOUNDS if self.tie_bounds else ()))
        return tuple(dict.fromkeys(metric.column for metric in (*first, *metrics)))

    @property
    def levels(self) -> tuple[float, ...]:
        """Relevance levels for which metrics need the number of judged items that reach them."""
        metrics = (metric_at.metric for metric_at in self.computed if isinstance(metric_at.metric, Metric))
        return tuple(sorted({level for metric in metrics for level in metric.levels}))

    @property
    def max_k(self) -> int | None:
        """The largest cutoff; None for the whole list."""
        return self.cutoffs[-1]

    @property
    def ranks_given(self) -> bool:
        """True if ranks of the input are used unchanged, with gaps. Condensed lists are ranked anew."""
        has_ranks = self.columns.rank is not None and not self.columns.ranks_are_positions
        return has_ranks and self.convention.unjudged != "condensed"

    @property
    def groups_ties(self) -> bool:
        """True if tied items are treated together. Positions in a list do not tie."""
        return self.convention.groups_ties and not self.columns.ranks_are_positions

    @property
    def has_long_lists(self) -> bool:
        """True if lists may be longer than `MAX_SHORT_K`."""
        return self.max_k is None or self.max_k > MAX_SHORT_K

    @property
    def resolves_duplicates(self) -> bool:
        """True if all rows are searched for duplicates before ranking."""
        return self.convention.duplicates != "error" or self.check_duplicates == "all"

    @property
    def checks_top_duplicates(self) -> bool:
        """True if the first items are checked for duplicates, so that rankings must carry items."""
        return self.convention.duplicates == "error" and self.check_duplicates == "top"

    @property
    def lists_items(self) -> bool:
        """True if rankings carry the items of their lists."""
        return bool(self.needs)

    @property
    def segment_columns(self) -> tuple[str, ...]:
        """Distinct columns of all segment sets, in order of first use."""
        return tuple(dict.fromkeys(column for segment_set in self.segment_sets for column in segment_set))

    @property
    def carried_segments(self) -> tuple[str, ...]:
        """Segment columns that are not query columns."""
        return tuple(column for column in self.segment_columns if column not in self.columns.query)

    @property
    def rules(self) -> str:
        """All rules that change the value of a query, as one text; see `docs/tables.md`."""
        return self.rules_by(self.convention, self.null_score, self.sample)

    @staticmethod
    def rules_by(convention: Convention, null_score: NullScore = "bad", sample: float = 1.0) -> str:
        """Format the rules of a convention and of the other settings that change the value of a query.

        Parameters
        ----------
        convention : Convention
        null_score : str
        sample : float

        Returns
        -------
        str
        """
        return write_rules({**convention.choices, "null_score": null_score, "sample": repr(sample)})

    @property
    def rules_of_means(self) -> str:
        """`rules` and whether queries are weighted."""
        return str(add_weight(self.rules, weighted=self.columns.weight is not None))

    @property
    def digest(self) -> str:
        """Hash of columns, rules, cutoffs, segments, checks, confidence and sample, 16 hex digits.

        It does not depend on the choice of metrics, nor on `tie_bounds` and `as_of`.
        """
        choices: dict[str, object] = {
            "columns": asdict(self.columns),
            "convention": self.convention.digest,
            "cutoffs": self.cutoffs,
            "segments": self.segment_sets,
            "policies": (self.on_invalid, self.null_score, self.check_duplicates, self.confidence, self.sample),
        }
        if self.item_columns != ItemColumns():  # other metrics must not change the digest of NDCG
            choices["item_columns"] = asdict(self.item_columns)
        return hashlib.sha256(json.dumps(choices, sort_keys=True).encode()).hexdigest()[:16]


def refuse_special_characters(label: str, columns: Iterable[str]) -> None:
    """Raise if a column name has a dot or backtick: Spark cannot pass such columns to Python workers."""
    refused = sorted(column for column in columns if "." in column or "`" in column)
    if refused:
        column = refused[0]
        quoted, replacement = f"`{column.replace('`', '``')}`", column.replace(".", "_").replace("`", "_")
        raise InvalidParameterError(
            f"{label} column {column!r} has a dot or backtick in its name; rename it where it is read: "
            f"SELECT *, {quoted} AS {replacement} FROM ..., or .withColumnRenamed({column!r}, {replacement!r})."
        )


def parse_cutoff(k: object) -> int | None:
    """Parse a cutoff: a positive whole number, also as text. Return None, the whole list, for `all` and None."""
    if k is None or k == "all":
        return None
    try:
        number = int(k) if isinstance(k, str) else k
    except ValueError:
        number = k
    return check_k(number, or_else=", or all")


def parse_cutoffs(k: int | str | Sequence[int | str | None] | None) -> tuple[int | None, ...]:
    """Parse cutoffs, sorted and without repeats; `all` or None is the whole list and comes last.

    >>> parse_cutoffs(["all", 10, 1]), parse_cutoffs("1,3")
    ((1, 10, None), (1, 3))
    """
    if isinstance(k, str):
        k = [cutoff.strip() for cutoff in k.split(",")]
    values = list(k) if isinstance(k, Iterable) else [k]
    return tuple(sorted({parse_cutoff(cutoff) for cutoff in values}, key=cutoff_order))


def parse_single_cutoff(k: object, name: str = "k") -> int | None:
    """Parse a single cutoff; `name` is the argument for messages."""
    cutoffs = parse_cutoffs(k)  # type: ignore[arg-type]  # checked there
    if len(cutoffs) != 1:
        raise InvalidParameterError(f"{name} must be one cutoff; got {k!r}.")
    return cutoffs[0]


def parse_metrics(
    names: str | Sequence[str], k: int | str | Sequence[int | str | None] | None = None
) -> tuple[tuple[MetricAt, ...], tuple[int | None, ...]]:
    """Parse metrics without repeats, and sort all cutoffs. `k` is used for names without a cutoff.

    >>> metrics, cutoffs = parse_metrics(["ndcg@10", "p(rel=2)@5", "AP"])
    >>> [str(metric_at) for metric_at in metrics], cutoffs
    (['ndcg@10', 'p(rel=2)@5', 'ap'], (5, 10, None))
    """
    default_cutoffs = (None,) if k is None else parse_cutoffs(k)
    metrics: dict[MetricAt, None] = {}
    for text in split_metrics(names):
        metric_at, requested = read_metric(text), normalize_metric_name(text)
        cutoffs = (
            (metric_at.k,) if metric_at.k != EVERY else default_cutoffs if metric_at.metric.takes_cutoff else (None,)
        )
        metrics |= dict.fromkeys(
            MetricAt(metric_at.metric, cutoff, requested) for cutoff in cutoffs
        )  # which keeps the first name
    if not metrics:
        raise InvalidParameterError("metrics must name at least one metric, such as ndcg@10.")
    return tuple(metrics), parse_cutoffs([metric_at.k for metric_at in metrics])


def read_metric(text: str) -> MetricAt:
    """Parse a metric with its cutoff, `EVERY` if the text has none.

    >>> str(read_metric("P(rel=2)@5")), read_metric("ap").k == EVERY
    ('p(rel=2)@5', True)
    """
    metric, k = parse_metric(text)
    return MetricAt(metric, EVERY if k is None else parse_single_cutoff(k))


def normalize_metric_name(text: str) -> str:
    return re.sub(r"\s", "", text.partition("@")[0])


def split_metrics(names: str | Sequence[str]) -> list[str]:
    """Split texts at commas between metrics, not at commas within parentheses."""
    texts = [names] if isinstance(names, str) else list(names)
    return [metric for text in texts for metric in re.split(r",(?![^(]*\))", text) if metric.strip()]


def check_k(k: object, *, or_else: str = "") -> int:
    """Return a positive whole number; raise for anything else, such as 2.0 and True."""
    try:
        if not isinstance(k, bool):
            number = operator.index(k)  # type: ignore[arg-type]  # refused below
            if number >= 1:
                return number
    except TypeError:
        pass
    raise InvalidParameterError(f"k must be a positive whole number{or_else}; got {k!r}.")


def check_cutoffs(cutoffs: tuple[int | None, ...]) -> None:
    """Raise unless cutoffs are increasing positive whole numbers, with an optional None at the end."""
    numbers = [check_k(k, or_else=", or None for the whole list") for k in cutoffs if k is not None]
    if not cutoffs:
        raise InvalidParameterError("k needs at least one cutoff, such as 10, or all.")
    if numbers and max(numbers) > MAX_K:
        raise InvalidParameterError(f"k must be at most {MAX_K:,}; got {max(numbers):,}. Use all for whole lists.")
    ordered: list[int | None] = [*sorted(set(numbers)), *([None] if None in cutoffs else [])]
    if list(cutoffs) != ordered:
        raise InvalidParameterError(f"cutoffs must be increasing and distinct (all last); got {cutoffs}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceJobSettings:
    """Two conventions whose means are compared: the convention of `evaluation`, and `to`."""

    evaluation: EvaluationSettings
    to: Convention


def find_unread_options(settings: EvaluationSettings) -> dict[str, str]:
    """Return the options that differ from their defaults but have no effect, with the reason."""
    columns, convention = settings.columns, settings.convention
    reasons = {}
    has_order = settings.ranks_given or columns.ranked  # except for duplicates in a judgments table
    reads_order = convention.duplicates == "first" or (convention.ties == "input_order" and not has_order)
    if columns.order is not None and not reads_order:
        rules = (convention.advice("ties", "input_order"), convention.advice("duplicates", "first"))
        reasons["order"] = f"only {' and '.join(rules)} read it, for rows without ranks"
    if columns.score != Columns().score and columns.rank is not None:
        reasons["score"] = f"ranks are used instead ({option('rank')})"
    if settings.check_duplicates != "top" and convention.duplicates != "error":
        reasons["check_duplicates"] = f"duplicates={convention.duplicates} searches all rows"
    if settings.item_columns.topics != ItemColumns().topics and TOPICS not in settings.needs:
        reasons["topics"] = "no metric reads topics (alpha_ndcg does)"
    if settings.as_of is not None and FIRST_SEEN not in settings.needs:
        reasons["as_of"] = "no metric counts ages (first_appearance does)"
    return reasons


def refuse_unread_options(settings: EvaluationSettings, names: Collection[str] | None = None) -> None:
    """Raise for an option without effect: among `names`, or any that differs from its default."""
    for option_name, reason in find_unread_options(settings).items():
        if names is None or option_name in names:
            raise InvalidParameterError(f"{option(option_name)} has no effect: {reason}; remove it.")


def refuse_unread_k(names: str | Sequence[str]) -> None:
    """Raise if `k` has no effect because each metric names its cutoff or has none."""
    if all(
        metric_at.k != EVERY or not metric_at.metric.takes_cutoff
        for metric_at in map(read_metric, split_metrics(names))
    ):
        raise InvalidParameterError(
            f"{option('k')} has no effect: each metric names its cutoff or has none; remove it."
        )

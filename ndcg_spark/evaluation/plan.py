"""Plan how tables are read and ranked, from their columns and the settings. NumPy and Arrow only.

A runner executes a plan: it reads the columns of a table as in its `TablePlan`, and passes them to worker functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import pyarrow as pa

from ndcg_spark.conventions.convention import CHOICES
from ndcg_spark.core.schemas import MALFORMED, TableInfo
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.plan_columns import (
    Conversion,
    TablePlan,
    has_plain_text,
    plan_judgments,
    plan_rows,
    unify_keys,
)
from ndcg_spark.evaluation.plan_lists import build_long_settings, plan_lists
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks import query_rows as col
from ndcg_spark.evaluation.tasks.partial_ranking import N_REJECTED, QUERY_COUNTS
from ndcg_spark.evaluation.tasks.query_rows import RankingTask, canonical_names

ARRAYS: Final = "arrays"
WINDOW: Final = "window"
ENGINE: Final = "engine"
NO_FILES = "the input is a DataFrame or a table, not a path of Parquet files"
SAMPLED = "a sample is taken"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingPlan:
    """A strategy for ranking, its reason, and the columns to read. `settings` are fitted to the table.

    `others` are unused columns that may name a ranker. `why_spark_reads` says in a clause why workers cannot read the
    files of the table directly, or is None.
    """

    settings: EvaluationSettings
    rows: TablePlan
    judgments: TablePlan | None
    strategy: Literal["arrays", "window", "engine"]
    reason: str = ""
    others: tuple[str, ...] = ()
    why_spark_reads: str | None = None

    @property
    def why_spark_only(self) -> str | None:
        """Why only Spark can rank the table, in a clause, or None."""
        if self.strategy != ARRAYS and self.why_spark_reads not in (None, SAMPLED):
            return self.why_spark_reads
        reads = [self.rows.columns, *self.rows.runs.values()]
        keys = [self.rows.columns[name].type for name in self.rows.query]
        reasons = {
            "sampling needs keys as text, which only Spark formats": self.rows.sample < 1
            and not all(map(has_plain_text, keys)),
            "only Spark formats runs of this type as text": any(
                read.conversion is Conversion.SPARK_TEXT for columns in reads for read in columns.values()
            ),
        }
        return next((reason for reason, is_true in reasons.items() if is_true), None)

    @property
    def rankings_schema(self) -> pa.Schema:
        """Columns of rankings, one row per query."""
        settings, rows, names = self.settings, self.rows.schema, canonical_names(self.settings)
        doubles, counts = pa.list_(pa.float64()), pa.list_(pa.int64())
        rejected = [N_REJECTED] if settings.on_invalid == "reject" else []
        fields = [("run", pa.string()), *((label, rows.field(name).type) for name, label in names.query.items())]
        fields += [(name, pa.int64()) for name in (*QUERY_COUNTS, *rejected)]
        fields += [("n_at_least", counts)] if settings.levels else []
        for name, label in names.carried.items():
            tables = [
                table.columns for table in (self.rows, self.judgments) if table is not None and name in table.columns
            ]
            fields += [(label, tables[0][name].type)] if tables else []
        fields.append(("ranked", doubles))
        from_rows = col.RANKED_LIST not in rows.names
        if from_rows and settings.ranks_given:
            fields.append(("ranks", counts))
        elif from_rows and settings.groups_ties:
            fields += [("scores", doubles), ("tied", counts)]
        if settings.lists_items:
            in_rows = col.ITEM in rows.names
            fields.append(
                ("items", pa.list_(rows.field(col.ITEM).type) if in_rows else rows.field(col.RANKED_ITEMS).type)
            )
        return pa.schema([*fields, ("ideal", doubles)])

    @property
    def task(self) -> RankingTask:
        """The task that is shipped to workers."""
        rows, is_arrays = self.rows.schema, self.strategy == ARRAYS  # arrays are checked whole elsewhere
        return RankingTask(
            settings=self.settings,
            rows=rows,
            judgments=None if self.judgments is None else self.judgments.schema,
            checks_duplicates=self.settings.checks_top_duplicates and col.ITEM in rows.names and not is_arrays,
            others=self.others,
        )


def plan_ranking(
    rows: TableInfo, judgments: TableInfo | None, settings: EvaluationSettings, *, fitted: bool = False
) -> RankingPlan:
    """Plan how tables are read and ranked; raise for invalid columns.

    Lists with a judgments table must have been converted to long tables. `fitted` settings come from `fit_settings`.
    """
    settings = settings if fitted else fit_settings(rows, settings)
    lists = _plan_arrays(rows, judgments, settings)
    if lists is not None:
        return lists
    relevance = settings.columns.relevance
    if settings.columns.ideal is not None:
        raise InvalidParameterError(
            f"column {relevance!r} is not an array of relevances, so {settings.columns.ideal!r} "
            f"({option('ideal')}) has no effect; remove it."
        )
    if settings.convention.ideal == "unsorted":
        raise InvalidParameterError(
            "ideal=unsorted needs arrays: a column of relevances and a column of judged relevances."
        )
    require_carried_columns(settings, rows, *([] if judgments is None else [judgments]))
    row_plan = plan_rows(rows, settings, has_judgments_table=judgments is not None)
    judgment_plan = None if judgments is None else plan_judgments(judgments, settings)
    if judgment_plan is not None:
        row_plan, judgment_plan = unify_keys(row_plan, judgment_plan, settings)
    is_window = settings.strategy == "window"
    reasons = {
        "strategy=window ranks in Spark": is_window,
        "duplicates are resolved among all rows": settings.resolves_duplicates,
        SAMPLED: settings.sample < 1,
    }
    return RankingPlan(
        settings=settings,
        rows=row_plan,
        judgments=judgment_plan,
        strategy=WINDOW if is_window else ENGINE,
        reason="strategy=window was requested" if is_window else "",
        others=list_unused_columns(rows, settings),
        why_spark_reads=next((reason for reason, is_true in reasons.items() if is_true), None),
    )


def require_spark_allowed(settings: EvaluationSettings, reason: str) -> None:
    """Raise if Spark has to read a table, for `reason`, but the user requested workers."""
    if settings.source == "parquet":
        raise InvalidParameterError(
            f"{option('source', 'parquet')} is not available for this table: {reason}. Use "
            f"{option('source', 'auto')}."
        )


def _plan_arrays(info: TableInfo, judgments: TableInfo | None, settings: EvaluationSettings) -> RankingPlan | None:
    """Plan a table with one row per query; return None for other tables."""
    columns, fitted = settings.columns, settings
    if columns.ranked:
        subject, action = f"column {columns.ranked[0]!r} has lists", "ranked"
        fitted = build_long_settings(info, settings)
    elif is_array(info, columns.relevance):
        subject, action = f"column {columns.relevance!r} is an array", "scored"
        if judgments is not None:
            raise InvalidParameterError("arrays of relevances cannot be combined with a judgments table.")
        if len(columns.score) > 1:
            raise InvalidParameterError(
                f"{option('score')} names {', '.join(columns.score)}: arrays of relevances are in rank order and "
                "have no scores; remove it, and put the lists of each ranker into separate rows "
                f"({option('run')})."
            )
    else:
        return None
    require_carried_columns(settings, info)
    return RankingPlan(
        settings=fitted,
        rows=plan_lists(info, settings),
        judgments=None,
        strategy=ARRAYS,
        reason=f"{subject}: each row is {action} directly",
        why_spark_reads=subject,
    )


def fit_settings(info: TableInfo, settings: EvaluationSettings) -> EvaluationSettings:
    """Fit settings to a table: default rank column, and lists without a query column. Raise for a wrong `ideal`."""
    columns = settings.columns
    if columns.ranked and not columns.query_columns(info.names):
        needs = {"sample": settings.sample < 1}
        needs |= {f"metric {str(metric_at)!r}": bool(metric_at.metric.needs) for metric_at in settings.computed}
        for subject in (subject for subject, is_true in needs.items() if is_true):
            raise InvalidParameterError(f"{subject} needs a query column: name it ({option('query')}).")
        settings = replace(settings, columns=replace(columns, query=()))
    if not is_array(info, columns.relevance):  # arrays are already in rank order
        settings = replace(settings, columns=settings.columns.with_default_rank(info.names))
    if columns.ideal in CHOICES["ideal"] and columns.ideal not in info.names:
        raise InvalidParameterError(
            f"{option('ideal')} names column {columns.ideal!r}, which does not exist; the rule for ideal lists is "
            f"{settings.convention.advice('ideal', columns.ideal)}."
        )
    return settings


def require_query(settings: EvaluationSettings) -> None:
    """Raise if rows of lists have no query column to identify queries."""
    if not settings.columns.query:
        raise InvalidParameterError(
            f"this compares single queries, but the lists have no query column: name the column ({option('query')})."
        )


def is_array(info: TableInfo, column: str) -> bool:
    return column in info.names and pa.types.is_list(info.type_of(column))


def list_unused_columns(info: TableInfo, settings: EvaluationSettings) -> tuple[str, ...]:
    """List the unused columns that may name a ranker."""
    columns = settings.columns
    used = {*columns.query, *columns.score, *settings.segment_columns, columns.item, columns.rank, columns.relevance}
    used |= {columns.run, columns.weight, columns.order, MALFORMED}
    type_checks = (pa.types.is_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date)
    return tuple(
        field.name
        for field in info.schema
        if field.name not in used
        and field.name not in info.spellings
        and any(is_type(field.type) for is_type in type_checks)
    )


def require_carried_columns(settings: EvaluationSettings, *tables: TableInfo) -> None:
    """Raise unless each segment, weight and order column is in one of the tables."""
    columns = settings.columns
    required = [(column, option("segments")) for column in settings.carried_segments]
    for column, column_option in ((columns.weight, option("weight")), (columns.order, option("order"))):
        required += [] if column is None else [(column, column_option)]
    for column, column_option in required:
        if not any(table.has(column) for table in tables):
            tables[0].require(column, column_option)

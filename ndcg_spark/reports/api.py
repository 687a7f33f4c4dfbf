"""The public function of reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

from pyspark.sql import DataFrame

from ndcg_spark.comparison.spark_results import Comparison
from ndcg_spark.core.adapters import accepts_tables
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.matching import read_top_items
from ndcg_spark.evaluation.spark_results import Evaluation
from ndcg_spark.reports import spark_reading
from ndcg_spark.reports.assembly import Report, build_report
from ndcg_spark.reports.reading import NightTables, Rows
from ndcg_spark.reports.settings import QUERY_TEXT, ReportLimits, require_texts


@accepts_tables
def report(
    metrics: DataFrame | Evaluation,
    *,
    per_query: DataFrame | None = None,
    comparison: DataFrame | Comparison | None = None,
    flags: DataFrame | None = None,
    changed: DataFrame | Iterable[Mapping[str, Any]] | None = None,
    query_texts: DataFrame | None = None,
    query_text_col: str | None = None,
    summary: Mapping[str, Any] | None = None,
    night: date | None = None,
    dataset: str | None = None,
    runs: str | Sequence[str] = (),
    metric: str | None = None,
    gates: str | Sequence[str] = (),
    baseline: str | None = None,
    production: str | None = None,
    title: str | None = None,
    today: date | None = None,
    limits: ReportLimits | None = None,
) -> Report:
    """Build the report of one night from the tables that jobs have written. Runs actions.

    Parameters
    ----------
    metrics : DataFrame or Evaluation
        A metric table; or a summary or the result of `evaluate`, which are one night without a date. For a result the
        report also shows queries.
    per_query : DataFrame or None
        A per-query table: adds the distribution of queries, and those with the worst values.
    comparison : DataFrame, Comparison or None
        A comparison table, or the result of `compare`: adds the differences between runs.
    flags : DataFrame or None
        The table of `flag_changes`: nights to mark. A metric table may itself have `flagged` (boolean) and `note`.
    changed : DataFrame, iterable of mapping, or None
        Rows of `changed_queries`: adds the queries that lost and gained most between two runs, with both lists.
    query_texts : DataFrame or None
        A table with the text of each query: the query columns of the per-query table, and `query_text_col`. The page
        then shows texts beside the queries. A query without a row, or whose text is null, has no text.
    query_text_col : str or None
        Column of `query_texts` with the text. None: `query_text`.
    summary : mapping or None
        The JSON of the job: adds the rows that were rejected.
    night : date or None
        None: the newest.
    dataset : str or None
        None: the only one.
    runs : str or sequence of str
        Runs to show; empty: those with the best values. If one of them, `baseline` or `production` has no rows on the
        night, the headline reports that.
    metric : str or None
        Metric of the headline, as `ndcg@10`. None: NDCG at 10, or at the largest cutoff.
    gates : str or sequence of str
        Gates such as `ndcg@10>=0.40`.
    baseline : str or None
        The run that losses of queries are against. None: losses since the night before.
    production : str or None
        The run whose bad news comes first in the headline. None: the run with the worst news.
    title : str or None
    today : date or None
        Day of the report: the headline warns if the newest night is older than the day before. None: no warning.
    limits : ReportLimits or None
        Limits to the number of rows shown.

    Returns
    -------
    Report

    Raises
    ------
    InvalidParameterError, InputRefusedError, MissingColumnError
        For names that the tables do not have, and for an evaluation whose judgments match no items.

    Notes
    -----
    Spark cost: an action each for data sets, night, trend, segments and missing series of the metric table; the last
    passes rows of 31 days through Python workers. Queries need three more, one of which shuffles the queries of two
    nights. Comparisons, flags, changed queries and texts of queries need one each (two for texts of both kinds of
    queries). Spark filters and limits the rows; the driver collects at most as many as `limits` allow.
    """
    options = dict(locals())
    for name in ("metrics", "per_query", "comparison", "flags", "changed", "query_texts", "query_text_col"):
        del options[name]
    require_texts(query_text_col, has_texts=query_texts is not None)
    list_notes = None
    if isinstance(metrics, Evaluation):
        list_notes, columns = partial(_list_notes, metrics), metrics.settings.columns
        if per_query is None and columns.query:  # rankings of lists may have no query column
            per_query = metrics.per_query_table
        metrics = metrics.ranking.summary(keep_refusals=True)
    tables = NightTables(
        metrics=spark_reading.SparkMetrics(metrics),
        queries=None if per_query is None else partial(spark_reading.SparkQueries, per_query),
        comparison=None if comparison is None else spark_reading.SparkComparisons(comparison),
        flags=None if flags is None else spark_reading.SparkFlags(flags),
        texts=None if query_texts is None else spark_reading.SparkTexts(query_texts, query_text_col or QUERY_TEXT),
    )
    if isinstance(changed, DataFrame):
        changed = spark_reading.collect_changed_queries(changed, (limits or ReportLimits()).queries)
    return build_report(tables, changed=changed, list_notes=list_notes, **options)


def _list_notes(evaluation: Evaluation, rows: Rows) -> list[str]:
    return [f"Judgments: {line}." for line in check_matched(read_top_items(rows), evaluation.ranking)]

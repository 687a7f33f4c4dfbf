"""Log evaluations to MLflow: means as metrics, the convention as parameters, segments and queries as tables."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark._version import __version__
from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import convert_tables, is_spark_table, refuses_streams
from ndcg_spark.core.arrow_tables import ArrowTable
from ndcg_spark.errors import InputRefusedError, cannot_import, get_message
from ndcg_spark.evaluation.matching import read_top_items
from ndcg_spark.evaluation.merging import METRIC_TABLE, read_summary_rows
from ndcg_spark.evaluation.results import LocalEvaluation, Results
from ndcg_spark.evaluation.rules import RULES, combine_rules, write_rules
from ndcg_spark.evaluation.tasks.stored import CONFIG_HASH, CONVENTION, SUMMARY_SCHEMA
from ndcg_spark.sources.local import open_memory_table

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from pyspark.sql import DataFrame

    from ndcg_spark.evaluation.spark_results import Evaluation

SEGMENTS_FILE = "ndcg_spark/segments.json"
_COLUMNS = tuple(name for name in SUMMARY_SCHEMA.names if name != "state")
_STAMPS = (CONVENTION, CONFIG_HASH, "package_version")
_NIGHTS = ("run_date", "dataset")
_REFUSED_SIGNS = re.compile(r"[^\w\- :]+")
_VALID_NAME = re.compile(r"[\w./\- :]*")
_MAX_LENGTHS = {"name": 250, "param": 6000, "tag": 8000}
"""MLflow's limits in characters: of all names, and of the values of parameters and tags."""
_MAX_BATCH_METRICS = 1000
"""MLflow's limit of metrics in a batch."""
_MAX_WRITE_QUERIES = 50_000
"""Queries that are written at once, in addition to the partition in memory."""


@refuses_streams
def log_evaluation(
    result: Evaluation | LocalEvaluation | DataFrame | ArrowTable,
    *,
    run_id: str | None = None,
    step: int = 0,
    prefix: str = "",
    per_query: bool = True,
    across_rules: bool = False,
) -> dict[str, float]:
    """Log an evaluation to a run of MLflow.

    Logged are a metric for each overall mean; the choices of the convention as parameters; the rules, the hash of the
    configuration and the version of this package as tags; all rows of the summary, with their segments, as a table;
    and the metrics of each query as a file.

    Parameters
    ----------
    result : Evaluation, LocalEvaluation, DataFrame or other table
        A result of `evaluate`, or the rows of one night of a metric table.
    run_id : str or None
        The run of MLflow. None: the active run, or else a new run, which becomes active.
    step : int
        Step of the metrics, such as the number of a night.
    prefix : str
        Prefix of the names of metrics, parameters and tags: `prefix="test_"` makes `test_ndcg_at_10`. With another
        prefix, a second evaluation with other rules can be logged to the same run.
    per_query : bool
        Log the metrics of each query, too. A metric table does not have them.
    across_rules : bool
        Log means with different rules under one prefix. Rules that differ are then `mixed` in the tag
        `ndcg_spark.rules`.

    Returns
    -------
    dict from str to float
        The logged metrics. NDCG@10 is `ndcg_at_10`, because MLflow refuses `@`; a metric of the whole list has no
        suffix; `p(rel=2)@5` is `p_rel_2_at_5`. Names of rankers come first: `bm25/ndcg_at_10`. A metric without a
        value is not logged.

    Raises
    ------
    MissingPackageError
        If MLflow is not installed.
    MissingColumnError
        If a table is not a summary.
    InputRefusedError
        If rows are bad; if no judgment matches; if rows are of several nights; if the rules differ within these rows,
        or from those of the run of MLflow under this prefix; if two rankers or metrics would get the same name in
        MLflow; or if MLflow does not accept a name. Nothing is logged then.

    Notes
    -----
    An evaluation without Spark is logged without Spark.

    Spark cost: one action, which collects the summary: a row for each run, segment, metric and k. With `per_query`,
    another action ranks again and collects the metrics of queries on the driver, one partition at a time.

    The table is the artifact `ndcg_spark/segments.json`, which `mlflow.load_table` and MLflow's pages read. Logging
    to a run again adds rows to it. The queries are the artifact `ndcg_spark/per_query.parquet`, or
    `per_query_7.parquet` at step 7, with `prefix` before its name.

    Examples
    --------
    >>> with mlflow.start_run():  # doctest: +SKIP
    ...     log_evaluation(evaluate(rankings, k=[1, 10], segments=["country"]))
    {'dcg_at_1': 4.0, 'dcg_at_10': 7.2, ..., 'ndcg_at_10': 0.87}
    """
    mlflow = _import_mlflow()
    rows = _collect_result(result)
    description = _describe_result(result, rows, across=across_rules)
    metrics = _list_metrics(rows, prefix)
    facts = _build_facts(description, prefix)
    _check_names([*metrics, *facts.params, *facts.tags])
    client, active = mlflow.MlflowClient(), mlflow.active_run()
    run_id = active.info.run_id if run_id is None and active is not None else run_id
    if run_id is not None:
        facts = _merge_facts(client.get_run(run_id).data, facts, prefix, across=across_rules)
    with ExitStack() as stack:
        files = []
        if per_query and isinstance(result, Results):
            folder = Path(stack.enter_context(TemporaryDirectory()))
            start, end = re.sub(r"\W+", "_", prefix), f"_{step}" if step else ""
            files.append(folder / f"{start}per_query{end}.parquet")
            _write_queries(result.per_query_table, files[0])
        run_id = _log_rows(mlflow, run_id or mlflow.start_run().info.run_id, rows, facts, metrics, step)
        for file in files:
            client.log_artifact(run_id, str(file), "ndcg_spark")
    return metrics


def _log_rows(
    mlflow: Any, run_id: str, rows: list[dict[str, Any]], facts: _Facts, metrics: dict[str, float], step: int
) -> str:
    client: MlflowClient = mlflow.MlflowClient()
    entities, now = mlflow.entities, int(time.time() * 1000)
    client.log_batch(
        run_id,
        params=[entities.Param(name, value) for name, value in facts.params.items()],
        tags=[entities.RunTag(name, value) for name, value in facts.tags.items()],
    )
    logged = (entities.Metric(name, value, now, step) for name, value in metrics.items())
    while batch := list(islice(logged, _MAX_BATCH_METRICS)):
        client.log_batch(run_id, metrics=batch)
    table = {name: [row[name] for row in rows] for name in _COLUMNS}
    client.log_table(run_id, table, SEGMENTS_FILE)
    return run_id


def _write_queries(queries: DataFrame | pa.Table, path: Path) -> None:
    """Write a table to a Parquet file. For a table of Spark, run an action that holds one partition at a time."""
    if isinstance(queries, pa.Table):
        pq.write_table(queries, path, compression="zstd")
    else:
        _write_frame(queries, path)


def _write_frame(frame: DataFrame, path: Path) -> None:
    from pyspark.sql import types as T

    from ndcg_spark.core.columns import exact_col
    from ndcg_spark.core.failures import readable_errors
    from ndcg_spark.core.workers import arrow_schema

    # Rows have timestamps in the session's time zone, but without a time zone.
    instants = [field.name for field in frame.schema if isinstance(field.dataType, T.TimestampType)]
    if instants:  # Spark Connect raises if there is no column to add
        frame = frame.withColumns({name: exact_col(name).cast("timestamp_ntz") for name in instants})
    schema = arrow_schema(frame.schema, frame.sparkSession)
    with readable_errors(), pq.ParquetWriter(path, schema, compression="zstd") as writer:
        rows = frame.toLocalIterator()
        while batch := [row.asDict() for row in islice(rows, _MAX_WRITE_QUERIES)]:
            writer.write_table(pa.Table.from_pylist(batch, schema))


def _import_mlflow() -> Any:
    try:
        import mlflow
        import mlflow.entities
    except ImportError as error:
        raise cannot_import(error, "log_evaluation needs MLflow", "mlflow", "mlflow") from error
    return mlflow


def _collect_result(result: Evaluation | LocalEvaluation | DataFrame | ArrowTable) -> list[dict[str, Any]]:
    if isinstance(result, Results):
        rows = _collect_rows(result.summary)
        result._check_matched(read_top_items(rows))
        return rows
    if is_spark_table(result):
        (frame,) = convert_tables({"result": result}).values()
        return _collect_rows(_select_columns(frame))
    table = open_memory_table(result, "result", label=METRIC_TABLE)
    nights = [name for name in _NIGHTS if table.info.has(name)]
    stamps = [(name, table.info.require(name, f"column of a {METRIC_TABLE}")) for name in (*_STAMPS, *nights)]
    return _collect_rows(
        read_summary_rows(table, pa.schema([*(SUMMARY_SCHEMA.field(name) for name in _COLUMNS), *stamps]))
    )


def _collect_rows(rows: DataFrame | pa.Table) -> list[dict[str, Any]]:
    if isinstance(rows, pa.Table):
        return list(rows.to_pylist())
    from ndcg_spark.core.failures import readable_errors

    with readable_errors():
        return [row.asDict() for row in rows.collect()]


def _select_columns(result: DataFrame) -> DataFrame:
    """Select the columns of a metric table that are logged."""
    from pyspark.sql import functions as F

    from ndcg_spark.core.columns import exact_cols, has_column, require_column
    from ndcg_spark.evaluation.frames.summary import add_missing_counts, read_rules

    result = add_missing_counts(result).withColumn(RULES, F.nullif(read_rules(result), F.lit("")))
    for name in (*_COLUMNS, *_STAMPS):
        require_column(result, name, "of a metric table", "table")
    nights = [name for name in _NIGHTS if has_column(result, name)]
    return result.select(*exact_cols([*_COLUMNS, *_STAMPS, *nights]))


class _Facts(NamedTuple):
    """Parameters and tags of a run of MLflow."""

    params: dict[str, str]
    tags: dict[str, str]


def _describe_result(result: Any, rows: Sequence[dict[str, Any]], *, across: bool) -> dict[str, str | None]:
    """Return rules, convention, hash of the configuration, and version. Refuse rows of several versions or nights."""
    if not rows:
        raise InputRefusedError("there is nothing to log: the summary has no rows.")
    if isinstance(result, Results):
        return {**result.provenance, "package_version": __version__, RULES: result.settings.rules_of_means}
    for column in ("package_version", *_NIGHTS):
        values = sorted({str(row[column]) for row in rows if column in row})
        if len(values) > 1:
            raise InputRefusedError(
                f"the rows have several values of {column} ({', '.join(values[:3])}); select one."
            )
    stamps = {column: ", ".join(sorted({str(row[column]) for row in rows})) for column in _STAMPS}
    texts = sorted({str(row[RULES] or "") for row in rows})
    return {**stamps, RULES: combine_rules(texts, "a run of MLflow", across=across)}


def _build_facts(description: dict[str, str | None], prefix: str) -> _Facts:
    tags = {"rules": RULES, "config_hash": CONFIG_HASH, "version": "package_version"}
    values = {f"{prefix}ndcg_spark.{name}": description[column] for name, column in tags.items()}
    params = {f"{prefix}{name}": value for name, value in _list_params(str(description[CONVENTION]))}
    return _Facts(
        {name: value[: _MAX_LENGTHS["param"]] for name, value in params.items()},
        {name: value[: _MAX_LENGTHS["tag"]] for name, value in values.items() if value is not None},
    )


def _merge_facts(run_data: Any, facts: _Facts, prefix: str, *, across: bool) -> _Facts:
    """Return the facts to add to a run that may have some. Refuse other rules under the same prefix."""
    tag = f"{prefix}ndcg_spark.rules"
    texts = [tags.get(tag) for tags in (run_data.tags, facts.tags)]
    if texts[0] is None:  # rules are unknown: compare the conventions
        both = {name: value for name, value in facts.params.items() if name in run_data.params}
        texts = [write_rules({name: params[name] for name in both}) for params in (run_data.params, facts.params)]
    subject = f"the run of MLflow, which has results already{f' under prefix {prefix!r}' if prefix else ''},"
    try:
        rules = combine_rules(texts, subject, across=across)
    except InputRefusedError as error:
        hint = "or log these with another prefix (prefix='other_')."
        raise InputRefusedError(f"{get_message(error).rstrip('.')}, {hint}") from None
    tags = facts.tags if rules is None or run_data.tags.get(tag) is None else {**facts.tags, tag: rules}
    return _Facts({name: value for name, value in facts.params.items() if name not in run_data.params}, tags)


def _check_names(names: Iterable[str]) -> None:
    """Raise for a name that MLflow would refuse. MLflow itself checks names only after others were logged."""
    for name in names:
        if len(name) > _MAX_LENGTHS["name"]:
            raise InputRefusedError(
                f"names in MLflow have at most {_MAX_LENGTHS['name']} characters; {name[:60] + '...'!r} has "
                f"{len(name)}: choose a shorter name of the ranker, or a shorter prefix."
            )
        if not _VALID_NAME.fullmatch(name):
            raise InputRefusedError(
                f"names in MLflow have letters, digits, blanks and _ - . : /; got {name!r}: choose another prefix."
            )


def _list_params(convention: str) -> Iterator[tuple[str, str]]:
    yield "convention", convention
    try:
        parsed = Convention.parse(convention)
    except ValueError:  # a function of Python as gain or discount
        return
    for name in Convention.__dataclass_fields__:
        if name != "name":
            yield f"convention.{name}", str(getattr(parsed, name))


def _list_metrics(rows: Sequence[dict[str, Any]], prefix: str) -> dict[str, float]:
    metrics: dict[str, float] = {}
    sources: dict[str, tuple[str, str]] = {}
    for row in rows:
        if row["segment_by"] or row["value"] is None:
            continue
        name = prefix + mlflow_name(row["run"], row["metric"], row["k"])
        source = (row["run"], row["metric"])
        if sources.setdefault(name, source) != source:
            raise InputRefusedError(
                f"{sources[name]!r} and {source!r} would have the same name in MLflow, {name!r}; rename one."
            )
        if name in metrics:
            raise InputRefusedError(f"the rows have {name!r} twice; select those of one configuration.")
        metrics[name] = row["value"]
    return dict(sorted(metrics.items()))


def mlflow_name(run: str, metric: str, k: int | None) -> str:
    """Return the name of a mean in MLflow. `run` is empty if there is only one ranker.

    >>> mlflow_name("", "ndcg", 10), mlflow_name("bm25", "p(rel=2)", 5), mlflow_name("", "ap", None)
    ('ndcg_at_10', 'bm25/p_rel_2_at_5', 'ap')
    """
    plain = re.sub(r"\W+", "_", metric.replace("-", "minus_")).strip("_")
    name = plain if k is None else f"{plain}_at_{k}"
    return f"{_REFUSED_SIGNS.sub('_', run)}/{name}" if run else name

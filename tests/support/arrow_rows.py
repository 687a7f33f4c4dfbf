"""Rows of the oracle as the batches that workers read; the exchange between workers without Spark."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from ndcg_spark.conventions import Convention
from ndcg_spark.core.batches import EXCHANGE_SCHEMA, WorkerFunction
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.evaluation.tasks.exchange import merge_rankings, send_judgments, send_rows
from ndcg_spark.evaluation.tasks.query_rows import ITEM, ORDER, RANK, RELEVANCE, SCORE, RankingTask
from support.oracle import Choices, Row, group_by_query
from support.spark_rankings import LONG, NUMBERS, RANKED, STRUCTS, build_convention, compute_ranks, sort_by_rank

QUERY = "query_0"
Ranks = Mapping[tuple[object, object], int]
Parts = Sequence[Sequence[pa.RecordBatch]]
"""For each worker that reads, the batches that it is given."""


def build_file_rows(rows: Sequence[Row]) -> pa.RecordBatch:
    """Build rows as stored in a file, under the default column names."""
    columns = _build_columns(rows)
    names = {QUERY: "query_id", ITEM: "item_id", ORDER: "position"}
    return pa.RecordBatch.from_pydict({names.get(name, name): values for name, values in columns.items()})


def build_canonical_rows(
    rows: Sequence[Row], settings: EvaluationSettings, ranks: Ranks | None = None
) -> pa.RecordBatch:
    """Build rows under the column names of workers; `ranks` replace scores."""
    columns = _build_columns(rows)
    if ranks is not None:
        del columns[SCORE]
        columns[RANK] = pa.array([ranks.get((row.query, row.item)) for row in rows], pa.int32())
    if settings.columns.order is None:
        del columns[ORDER]
    return pa.RecordBatch.from_pydict(columns)


def _build_columns(rows: Sequence[Row]) -> dict[str, pa.Array]:
    item = pa.int64() if rows and isinstance(rows[0].item, int) else pa.string()
    place = pa.int32() if all(isinstance(row.position, int) for row in rows) else pa.float64()
    return {
        QUERY: pa.array([row.query for row in rows], pa.string()),
        ITEM: pa.array([row.item for row in rows], item),
        SCORE: pa.array([None if row.score is None else float(row.score) for row in rows], pa.float64()),
        RELEVANCE: pa.array([row.relevance for row in rows], pa.float64()),
        ORDER: pa.array([row.position for row in rows], place),
    }


def select_run(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the retrieved rows, without relevances."""
    value = rows.column(SCORE if SCORE in rows.schema.names else RANK)
    return rows.filter(value.is_valid()).drop_columns([RELEVANCE])


def select_judgments(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the judged rows, without scores, ranks and order."""
    judged = rows.filter(rows.column(RELEVANCE).is_valid())
    return judged.select([name for name in judged.schema.names if name not in (SCORE, RANK, ORDER)])


def build_ranking_task(
    rows: pa.RecordBatch, settings: EvaluationSettings, judgments: pa.RecordBatch | None = None, **limits: int
) -> RankingTask:
    """Build the task that the driver sends to workers for such rows."""
    return RankingTask(
        settings=settings,
        rows=rows.schema,
        judgments=None if judgments is None else judgments.schema,
        checks_duplicates=settings.checks_top_duplicates and ITEM in rows.schema.names,
        **limits,
    )


def deal_rows(rows: pa.RecordBatch, seed: int, *, n_workers: int = 3, max_rows: int = 40) -> Parts:
    """Cut rows into batches of random sizes and deal them to workers at random."""
    random_, at = random.Random(seed), 0
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(n_workers)]
    while at < rows.num_rows:
        n_rows = random_.randint(1, max_rows)
        random_.choice(parts).append(rows.slice(at, n_rows))
        at += n_rows
    return parts


def send_parts(parts: Parts, send: WorkerFunction, *task: Any) -> list[dict[str, Any]]:
    """Return the rows that all workers send to the exchange."""
    batches = [batch for part in parts for batch in send(iter(part), *task)]
    assert all(batch.schema == EXCHANGE_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def receive_rows(
    rows: Iterable[dict[str, Any]], receive: WorkerFunction, *task: Any, seed: int = 0
) -> list[pa.RecordBatch]:
    """Run the receiving workers on rows of the exchange, shuffled and in small batches."""
    arriving = list(rows)
    random.Random(seed).shuffle(arriving)
    results: list[pa.RecordBatch] = []
    for partition in sorted({row["partition_id"] for row in arriving}):
        rows_of_partition = [row for row in arriving if row["partition_id"] == partition]
        batches = [
            pa.RecordBatch.from_pylist(rows_of_partition[at : at + 4], schema=EXCHANGE_SCHEMA)
            for at in range(0, len(rows_of_partition), 4)
        ]
        results += receive(iter(batches), *task)
    return results


def exchange_rows(task: RankingTask, parts: Parts, judged: Parts = (), seed: int = 0) -> list[pa.RecordBatch]:
    """Send and merge rows, and judgments if they are a separate table; return the rankings."""
    rows = send_parts(parts, send_rows, task)
    if task.judgments is not None:
        rows += send_parts(judged, send_judgments, task)
    assert {row["partition_id"] for row in rows} <= set(range(task.n_partitions))
    return receive_rows(rows, merge_rankings, task, seed=seed)


def index_bits(rankings: Iterable[pa.RecordBatch]) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Return all values of rankings by (run, query); floats as hex strings, equal only for equal bits."""
    values: dict[tuple[object, ...], tuple[object, ...]] = {}
    for batch in rankings:
        for row in batch.to_pylist():
            key = (row.pop("run"), row["query_id"])
            assert key not in values, key
            values[key] = tuple((name, _format_bits(value)) for name, value in row.items())
    return values


def _format_bits(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_format_bits, value))
    return value.hex() if isinstance(value, float) else value


# --- Tables of every form


def build_long_table(rows: Sequence[Row], choices: Choices) -> pa.Table:
    """Build a table with one row per item; it has ranks if the convention breaks ties."""
    item = pa.int64() if isinstance(rows[0].item, int) else pa.string()
    ranks = compute_ranks(rows, choices) if choices.ties not in ("expected", "best", "worst") else {}
    return pa.table(
        {
            "query_id": pa.array([row.query for row in rows]),
            "item_id": pa.array([row.item for row in rows], item),
            "score": pa.array([None if row.score is None else float(row.score) for row in rows], pa.float64()),
            "relevance": pa.array([row.relevance for row in rows], pa.float64()),
            "position": pa.array([row.position for row in rows], pa.int32()),
            "rank": pa.array([ranks.get((row.query, row.item)) for row in rows], pa.int32()),
        }
    )


def build_array_table(rows: Sequence[Row], choices: Choices) -> pa.Table:
    """Build one row per query: relevances in rank order, and all judged ones; as numbers and with their items."""
    item = pa.int64() if isinstance(rows[0].item, int) else pa.string()
    entry = pa.struct([("item", item), ("relevance", pa.float64())])
    cells = []
    for query, query_rows in group_by_query(rows).items():
        ranked = [{"item": row.item, "relevance": row.relevance} for row in sort_by_rank(query_rows, choices)]
        judged = [{"item": row.item, "relevance": row.relevance} for row in query_rows if row.relevance is not None]
        numbers = [[row["relevance"] for row in lists] for lists in (ranked, judged)]
        cells.append((query, *numbers, ranked, judged))
    columns = zip(*cells, strict=True)
    types = [pa.string(), *[pa.list_(pa.float64())] * 2, *[pa.list_(entry)] * 2]
    names = ["query_id", "ranked", "judged", "ranked_items", "judged_items"]
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, types, strict=True)], names=names)


def build_forms(rows: Sequence[Row], choices: Choices) -> Iterator[tuple[str, dict[str, pa.Table], Columns]]:
    """Yield the name, tables and columns of each form of input: long, run and judgments, ranks, arrays."""
    table = build_long_table(rows, choices)
    yield "long", {"input": table}, LONG
    judged = table.filter(table.column("relevance").is_valid())
    run = table.filter(table.column("score").is_valid()).drop_columns(["relevance"])
    yield "judgments", {"input": run, "judgments": judged}, LONG
    if choices.ties in ("item_asc", "item_desc", "input_order"):
        # Condensed ranks are ranked anew, for which ties by input order name the order column.
        columns = replace(RANKED, order="position") if choices.ties == "input_order" else RANKED
        yield "rank", {"input": table}, columns
        yield "rank judgments", {"input": run, "judgments": judged}, columns
        arrays = build_array_table(rows, choices)
        yield "numbers", {"input": arrays}, NUMBERS
        yield "structs", {"input": arrays}, STRUCTS


def choose_convention(columns: Columns, choices: Choices) -> Convention:
    """Return the convention for a form; arrays have no ties and need no order column."""
    convention = build_convention(choices)
    return replace(convention, ties="item_asc") if columns in (NUMBERS, STRUCTS) else convention

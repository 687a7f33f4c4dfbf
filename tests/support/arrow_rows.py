"""Rows of the oracle as the batches that workers read, and the exchange between workers without Spark."""

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
from support.oracle import Choices, Row, rows_by_query
from support.spark_rankings import LONG, NUMBERS, RANKED, STRUCTS, convention_of, in_rank_order, ranks_of

QUERY = "query_0"
Ranks = Mapping[tuple[object, object], int]
Parts = Sequence[Sequence[pa.RecordBatch]]
"""For each worker that reads, the batches that it is given."""


def file_rows(rows: Sequence[Row]) -> pa.RecordBatch:
    """Rows as they lie in a file, under the default names of columns."""
    columns = _columns(rows)
    names = {QUERY: "query_id", ITEM: "item_id", ORDER: "position"}
    return pa.RecordBatch.from_pydict({names.get(name, name): values for name, values in columns.items()})


def canonical_rows(rows: Sequence[Row], settings: EvaluationSettings, ranks: Ranks | None = None) -> pa.RecordBatch:
    """Rows under the names that workers know; with `ranks`, these take the place of scores."""
    columns = _columns(rows)
    if ranks is not None:
        del columns[SCORE]
        columns[RANK] = pa.array([ranks.get((row.query, row.item)) for row in rows], pa.int32())
    if settings.columns.order is None:
        del columns[ORDER]
    return pa.RecordBatch.from_pydict(columns)


def _columns(rows: Sequence[Row]) -> dict[str, pa.Array]:
    item = pa.int64() if rows and isinstance(rows[0].item, int) else pa.string()
    place = pa.int32() if all(isinstance(row.position, int) for row in rows) else pa.float64()
    return {
        QUERY: pa.array([row.query for row in rows], pa.string()),
        ITEM: pa.array([row.item for row in rows], item),
        SCORE: pa.array([None if row.score is None else float(row.score) for row in rows], pa.float64()),
        RELEVANCE: pa.array([row.relevance for row in rows], pa.float64()),
        ORDER: pa.array([row.position for row in rows], place),
    }


def run_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """What was retrieved, without relevances."""
    value = rows.column(SCORE if SCORE in rows.schema.names else RANK)
    return rows.filter(value.is_valid()).drop_columns([RELEVANCE])


def judgments_of(rows: pa.RecordBatch) -> pa.RecordBatch:
    """What was judged, without scores, ranks and order."""
    judged = rows.filter(rows.column(RELEVANCE).is_valid())
    return judged.select([name for name in judged.schema.names if name not in (SCORE, RANK, ORDER)])


def ranking_task(
    rows: pa.RecordBatch, settings: EvaluationSettings, judgments: pa.RecordBatch | None = None, **limits: int
) -> RankingTask:
    """What the driver would send to workers for such rows."""
    return RankingTask(
        settings=settings,
        rows=rows.schema,
        judgments=None if judgments is None else judgments.schema,
        checks_duplicates=settings.checks_top_duplicates and ITEM in rows.schema.names,
        **limits,
    )


def split(rows: pa.RecordBatch, seed: int, *, n_workers: int = 3, most_rows: int = 40) -> Parts:
    """Rows in batches of random sizes, dealt to workers at random."""
    random_, at = random.Random(seed), 0
    parts: list[list[pa.RecordBatch]] = [[] for _ in range(n_workers)]
    while at < rows.num_rows:
        n_rows = random_.randint(1, most_rows)
        random_.choice(parts).append(rows.slice(at, n_rows))
        at += n_rows
    return parts


def sent(parts: Parts, send: WorkerFunction, *task: Any) -> list[dict[str, Any]]:
    """Rows of the exchange, as every worker sends them."""
    batches = [batch for part in parts for batch in send(iter(part), *task)]
    assert all(batch.schema == EXCHANGE_SCHEMA for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def received(
    rows: Iterable[dict[str, Any]], receive: WorkerFunction, *task: Any, seed: int = 0
) -> list[pa.RecordBatch]:
    """What the workers behind the exchange make of its rows, which arrive in any order and in small batches."""
    arriving = list(rows)
    random.Random(seed).shuffle(arriving)
    actual: list[pa.RecordBatch] = []
    for partition in sorted({row["partition_id"] for row in arriving}):
        group = [row for row in arriving if row["partition_id"] == partition]
        batches = [
            pa.RecordBatch.from_pylist(group[at : at + 4], schema=EXCHANGE_SCHEMA) for at in range(0, len(group), 4)
        ]
        actual += receive(iter(batches), *task)
    return actual


def exchanged(task: RankingTask, parts: Parts, judged: Parts = (), seed: int = 0) -> list[pa.RecordBatch]:
    """Rankings of rows, and of judgments where they are a table of their own."""
    rows = sent(parts, send_rows, task)
    if task.judgments is not None:
        rows += sent(judged, send_judgments, task)
    assert {row["partition_id"] for row in rows} <= set(range(task.n_partitions))
    return received(rows, merge_rankings, task, seed=seed)


def bits_of(rankings: Iterable[pa.RecordBatch]) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Everything in rankings, by run and query; doubles as text that only equal bits share."""
    actual: dict[tuple[object, ...], tuple[object, ...]] = {}
    for batch in rankings:
        for row in batch.to_pylist():
            key = (row.pop("run"), row["query_id"])
            assert key not in actual, key
            actual[key] = tuple((name, _exactly(value)) for name, value in row.items())
    return actual


def _exactly(value: object) -> object:
    if isinstance(value, list):
        return tuple(map(_exactly, value))
    return value.hex() if isinstance(value, float) else value


# --- Tables of every form


def long_table(rows: Sequence[Row], choices: Choices) -> pa.Table:
    """One row a row, with the rank that the definition gives where it breaks ties."""
    item = pa.int64() if isinstance(rows[0].item, int) else pa.string()
    ranks = ranks_of(rows, choices) if choices.ties not in ("expected", "best", "worst") else {}
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


def array_table(rows: Sequence[Row], choices: Choices) -> pa.Table:
    """One row a query: relevances in rank order, and all judged ones; as numbers and with their items."""
    item = pa.int64() if isinstance(rows[0].item, int) else pa.string()
    entry = pa.struct([("item", item), ("relevance", pa.float64())])
    actual = []
    for query, group in rows_by_query(rows).items():
        ranked = [{"item": row.item, "relevance": row.relevance} for row in in_rank_order(group, choices)]
        judged = [{"item": row.item, "relevance": row.relevance} for row in group if row.relevance is not None]
        numbers = [[row["relevance"] for row in lists] for lists in (ranked, judged)]
        actual.append((query, *numbers, ranked, judged))
    columns = zip(*actual, strict=True)
    types = [pa.string(), *[pa.list_(pa.float64())] * 2, *[pa.list_(entry)] * 2]
    names = ["query_id", "ranked", "judged", "ranked_items", "judged_items"]
    return pa.table([pa.array(group, kind) for group, kind in zip(columns, types, strict=True)], names=names)


def forms(rows: Sequence[Row], choices: Choices) -> Iterator[tuple[str, dict[str, pa.Table], Columns]]:
    """The same rankings as a long table, a run and judgments, with ranks, and as arrays: name, tables, columns."""
    table = long_table(rows, choices)
    yield "long", {"input": table}, LONG
    judged = table.filter(table.column("relevance").is_valid())
    run = table.filter(table.column("score").is_valid()).drop_columns(["relevance"])
    yield "judgments", {"input": run, "judgments": judged}, LONG
    if choices.ties in ("item_asc", "item_desc", "input_order"):
        # Condensed ranks are ranked anew, for which ties by input order name the order column.
        of_ranks = replace(RANKED, order="position") if choices.ties == "input_order" else RANKED
        yield "rank", {"input": table}, of_ranks
        yield "rank judgments", {"input": run, "judgments": judged}, of_ranks
        arrays = array_table(rows, choices)
        yield "numbers", {"input": arrays}, NUMBERS
        yield "structs", {"input": arrays}, STRUCTS


def convention_for(columns: Columns, choices: Choices) -> Convention:
    """Arrays have no ties, so no order column either."""
    convention = convention_of(choices)
    return replace(convention, ties="item_asc") if columns in (NUMBERS, STRUCTS) else convention

"""Metrics of the catalogue from how often each item is listed, beside the means of other metrics."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import value_at
from ndcg_spark.core.labels import ASKED
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.tasks.partial_sums import COUNTS, ESTIMATES, GROUP_KEYS, LISTS, STATE_TYPE, finish_batch
from ndcg_spark.metrics import CatalogueMetric
from ndcg_spark.metrics.catalogue import Exposure


def finish_catalogue(
    batches: Iterator[pa.RecordBatch],
    confidence: float,
    metrics: tuple[tuple[CatalogueMetric, int | None, str | None], ...],
    item_column: str,
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if batch.num_rows and (twice := value_at(batch.column("twice"), 0)) is not None:
            raise InputRefusedError(f"item {item_column}={twice} comes twice in the item table; keep one row of it.")
        of_lists = pc.equal(batch.column("metric"), LISTS)
        means = batch.filter(pc.invert(of_lists)).select([*GROUP_KEYS, ASKED, *COUNTS, "states"])
        yield finish_batch(means, confidence)
        yield from _of_catalogue(batch.filter(of_lists), metrics)


def _of_catalogue(
    lists: pa.RecordBatch, metrics: tuple[tuple[CatalogueMetric, int | None, str | None], ...]
) -> Iterator[pa.RecordBatch]:
    """Rows of each metric at its cutoff: a value with neither error nor state, as it is no mean."""
    exposures = []
    for row in lists.select(["levels", "n_items"]).to_pylist():
        inside = {level["listed"]: level["n"] for level in row["levels"] if level["known"]}
        outside = sum(level["listed"] * level["n"] for level in row["levels"] if not level["known"])
        exposures.append(Exposure(inside, row["n_items"], outside))
    at = lists.column("k").to_pylist()
    for metric, k, asked in metrics:
        rows = [row for row, its in enumerate(at) if its == k]
        its = lists.take(pa.array(rows, pa.int64()))
        columns = {name: its.column(name) for name in (*GROUP_KEYS, ASKED, *COUNTS)}
        columns["metric"] = pa.array([str(metric)] * len(rows), pa.string())
        columns[ASKED] = pa.array([asked] * len(rows), pa.string())
        columns |= {name: pa.nulls(len(rows), pa.float64()) for name in ESTIMATES}
        columns["value"] = pa.array([metric.value(exposures[row]) for row in rows], pa.float64())
        columns["state"] = pa.nulls(len(rows), STATE_TYPE)
        yield pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))

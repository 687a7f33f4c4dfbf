"""One table of a night, written as jobs write several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame

from ndcg_spark.tables import ManyNights, RunPartition, TableRows, write_together


def replace_partition(
    frame: DataFrame,
    reference: str,
    kind: str | None,
    night: RunPartition | ManyNights,
    runs: Sequence[str],
    *,
    empty: Sequence[str] = (),
    **more: Any,
) -> None:
    write_together([TableRows(reference=reference, kind=kind, frame=frame, runs=runs, empty=empty)], night, **more)

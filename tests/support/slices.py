"""One table of a night, written as jobs write several."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

from ndcg_spark.tables import Rows, Slices, write_together


def replace_slices(frame: DataFrame, reference: str, kind: str | None, slices: Slices, **more: Any) -> None:
    write_together([Rows(frame=frame, slices=slices, reference=reference, kind=kind)], **more)

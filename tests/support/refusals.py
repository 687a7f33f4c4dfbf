"""What an evaluation says when it refuses its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.errors import find_refusal, spelled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def refusal(frame: DataFrame) -> str | None:
    """The message of ours in what the action raises; None where nothing is raised."""
    try:
        frame.collect()
    except Exception as error:  # Spark chooses the class
        return spelled(find_refusal(str(error)) or "") or f"not a refusal: {str(error)[:500]}"
    return None

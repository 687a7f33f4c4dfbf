"""Ranking metrics as Spark column functions, for arrays in each row and as aggregates for `groupBy(...).agg(...)`.

They are plain Spark expressions: no Python worker runs, and nothing needs to be installed on the cluster. `register`
makes them available in SQL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.functions.aggregates import average_precision_at as average_precision_at
    from ndcg_spark.functions.aggregates import dcg_at as dcg_at
    from ndcg_spark.functions.aggregates import ndcg_at as ndcg_at
    from ndcg_spark.functions.aggregates import precision_at as precision_at
    from ndcg_spark.functions.aggregates import recall_at as recall_at
    from ndcg_spark.functions.aggregates import reciprocal_rank_at as reciprocal_rank_at
    from ndcg_spark.functions.arrays import average_precision as average_precision
    from ndcg_spark.functions.arrays import dcg as dcg
    from ndcg_spark.functions.arrays import ndcg as ndcg
    from ndcg_spark.functions.arrays import precision as precision
    from ndcg_spark.functions.arrays import recall as recall
    from ndcg_spark.functions.arrays import reciprocal_rank as reciprocal_rank
    from ndcg_spark.functions.statements import register as register
    from ndcg_spark.functions.statements import sql as sql
else:
    __getattr__, __dir__ = export_names(
        __name__,
        aggregates="average_precision_at dcg_at ndcg_at precision_at recall_at reciprocal_rank_at",
        arrays="average_precision dcg ndcg precision recall reciprocal_rank",
        statements="register sql",
    )
    __all__ = __dir__()

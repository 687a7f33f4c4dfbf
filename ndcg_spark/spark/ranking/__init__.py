"""Tables to rankings: the engine, the window reference, and tables of arrays."""

from ndcg_spark.spark.ranking.rank import rank_queries

__all__ = ["rank_queries"]

"""Canonical rows to rankings: one row per query with two short lists, whatever the way there.

A ranking has `run` (empty where there is one unnamed ranker), the query columns, `n_rows`, `n_left_out`,
`n_items`, `n_judged`, `n_relevant`, carried segment columns, `weight`, `ranked` (relevances of the first K
items, null = unjudged), `ranks` (only where ranks are given: 1-based, ascending, maybe with gaps), and
`ideal` (the K best judged relevances).
"""

from ndcg_spark.spark.ranking.rank import rank_queries

__all__ = ["rank_queries"]

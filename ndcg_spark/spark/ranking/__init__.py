"""Canonical rows to rankings: one row per query with two short lists, whatever the way there.

A ranking has `run` (empty where there is one unnamed ranker), the query columns, `n_rows`, `n_left_out`,
`n_items`, `n_judged`, `n_relevant`, carried segment columns, `weight`, `ranked` (relevances of the first K
items, null = unjudged), `ranks` (only where ranks are given: 1-based, ascending, maybe with gaps), `scores` and
`tied` (only where the tie rule takes tied items together: `ranked` then has an element for each different score
and relevance, `tied` says how many items it stands for, and the last score may reach beyond rank K), and `ideal`
(the K best judged relevances; zeros at its end may be left out where they gain nothing). Instead of `ideal`, and of
`ranked` and `ranks` where ranks are given, it may have `grades` and `others`: the same, packed (see
`worker.grades`); and instead of all three `pieces`: what workers that read files themselves found of a query in each
stretch of its rows (see `worker.pieces`).
"""

from ndcg_spark.spark.ranking.rank import rank_queries

__all__ = ["rank_queries"]

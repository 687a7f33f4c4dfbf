"""Retrieval with vectors and codes: Arrow batches in, Arrow batches out.

`tables` checks and packs rows. `searching` sends them to cells (block of queries, stripe of the corpus), and finds
the best items of a cell. `merging` merges the cells of each query into its result.
"""

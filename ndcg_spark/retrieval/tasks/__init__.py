"""Retrieval by vectors and codes: Arrow batches in, Arrow batches out.

`tables` reads rows and decides which are bad; `searching` packs them for the cells of (block of queries, stripe of
the corpus) and finds the best of a cell; `merging` puts the cells of a query together and gives its answer.
"""

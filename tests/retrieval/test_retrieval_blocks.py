"""Retrieval by worker functions: worked values, loops as an oracle, equal bits for any shape of blocks."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from support.retrieval import (
    ITEMS_178,
    QUERY_178,
    compute_ndcg,
    count_shared_labels,
    find_items,
    score_by_loop,
    score_queries,
)

import ndcg_spark.core.distances
import ndcg_spark.retrieval.kernels
from ndcg_spark.conventions import Convention
from ndcg_spark.core.distances import HAS_BIT_COUNT
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.retrieval.tasks.merging import build_ideal_lists

METRICS = ("cosine", "inner", "euclidean", "hamming")


def build_table_178(kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Build the worked example in one form of code."""

    def code(number: int) -> Any:
        if kind == "bytes":
            return bytes([number])
        if kind == "words":
            return [number]
        return [1 if number >> bit & 1 else -1 for bit in reversed(range(8))]

    queries = {"id": QUERY_178["query_id"], "labels": QUERY_178["labels"], "vector": [*map(code, QUERY_178["code"])]}
    items = {"id": ITEMS_178["item_id"], "labels": ITEMS_178["labels"], "vector": [*map(code, ITEMS_178["code"])]}
    return queries, items


# ------------------------------------------------------------------------------------------------- worked values


@pytest.mark.parametrize("kind", ["bytes", "words", "signs"])
@pytest.mark.parametrize("parts", [1, 3])
def test_the_worked_codes_by_hand(kind, parts):
    """Distances of 10110010, counted by hand. NDCG with 2^rel - 1, by every order of the tied items."""
    queries, items = build_table_178(kind)
    actual = find_items(queries, items, "hamming", 8, kind=kind, parts=parts)
    assert actual == {"q": [*zip("abcdefgh", (0, -1, -1, -2, -2, -2, -3, -5), strict=True)]}
    values = score_queries(queries, items, "hamming", (4, 8), kind=kind, parts=parts)
    assert [row["ndcg"] for row in values] == pytest.approx([0.355234221298, 0.604153514849], abs=1e-12)
    assert [(row["n_items"], row["n_judged"], row["n_relevant"]) for row in values] == [(8, 8, 5)] * 2


@pytest.mark.parametrize(
    ("ties", "value"), [("best", 0.545807162524), ("worst", 0.230979617976), ("item_asc", 0.509516637170)]
)
def test_the_worked_codes_under_other_tie_rules(ties, value):
    queries, items = build_table_178("bytes")
    (row,) = score_queries(queries, items, "hamming", (4,), kind="bytes", convention=f"default;ties={ties}")
    assert row["ndcg"] == pytest.approx(value, abs=1e-12)


def test_the_whole_list_is_k_8_of_8():
    queries, items = build_table_178("bytes")
    (whole,) = score_queries(queries, items, "hamming", (None,), kind="bytes")
    assert whole["ndcg"] == pytest.approx(0.604153514849, abs=1e-12)


def test_a_cosine_by_hand():
    items = find_items({"id": [1], "vector": [[1, 2, 2]]}, {"id": [7], "vector": [[2, 1, 2]]}, "cosine", 5)
    assert items == {1: [(7, pytest.approx(8 / 9, abs=1e-15))]}


# ---------------------------------------------------------------------------------------------------------- traps


def test_near_vectors_far_from_the_origin_differ():
    """a^2 - 2ab + b^2 is 0 for 100000001 and 100000000; their squared distance is 1."""
    items = {"id": [1, 2, 3], "vector": [[1e8 + 2], [1e8], [1e8 + 1]]}
    actual = find_items({"id": [0], "vector": [[1e8 + 1]]}, items, "euclidean", 3)
    assert actual == {0: [(3, 0.0), (1, -1.0), (2, -1.0)]}


@pytest.mark.parametrize("n_bits", [8, 64, 128, 255, 256, 257, 1000])
@pytest.mark.parametrize("has_bit_count", sorted({HAS_BIT_COUNT, False}))
def test_equal_and_opposite_signs(n_bits, has_bit_count, monkeypatch):
    """The dot product of 128 equal signs is -128 in eight bits, and 256 equal bits are 0 in a byte."""
    monkeypatch.setattr(ndcg_spark.retrieval.kernels, "HAS_BIT_COUNT", has_bit_count)
    monkeypatch.setattr(ndcg_spark.core.distances, "HAS_BIT_COUNT", has_bit_count)
    ones = np.ones(n_bits, dtype=np.int8)
    one_off = ones.copy()
    one_off[-1] = -1
    items = {"id": [1, 2, 3], "vector": [-ones, ones, one_off]}
    actual = find_items({"id": [0], "vector": [ones]}, items, "hamming", 3, kind="signs", parts=1)
    assert actual == {0: [(2, 0.0), (3, -1.0), (1, -float(n_bits))]}
    assert find_items({"id": [0], "vector": [ones]}, items, "hamming", 1, kind="signs", parts=1) == {0: [(2, 0.0)]}


def test_huge_and_tiny_vectors_have_a_cosine():
    items = {"id": [1, 2], "vector": [[1e-200, 1e-200], [1e200, 0.0]]}
    actual = find_items({"id": [0], "vector": [[3e300, 3e300]]}, items, "cosine", 2)
    assert actual == {0: [(1, pytest.approx(1.0)), (2, pytest.approx(0.5**0.5))]}


def test_an_item_of_large_norm_does_not_hide_small_ones():
    items = {"id": [1, 2, 3], "vector": [[-1e12, 0.0], [1e-9, 0.0], [2e-9, 0.0]]}
    actual = find_items({"id": [0], "vector": [[1.0, 1.0]]}, items, "inner", 2)
    assert actual == {0: [(3, 2e-9), (2, 1e-9)]}


def test_the_ideal_list_has_the_best_k_by_gain():
    relevances, offsets = build_ideal_lists(np.array([[5, 1, 1], [2, 0, 0]]), 3, Convention())
    assert (relevances.tolist(), offsets.tolist()) == ([2.0, 1.0, 0.0, 0.0, 0.0], [0, 3, 5])
    by_table = Convention(gain="table:0=0,1=3,2=9")
    assert build_ideal_lists(np.array([[5, 1, 1]]), 2, by_table)[0].tolist() == [2.0, 1.0]
    assert build_ideal_lists(np.array([[1, 2, 1]]), None, Convention())[0].tolist() == [2.0, 1.0, 1.0, 0.0]


# --------------------------------------------------------------------------------------------------------- oracle


def random_tables(seed: int, metric: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Generate vectors on a coarse grid, so that many tie, or of any size; or codes of +1 and -1."""
    rng = np.random.default_rng(seed)
    n_queries, n_items, width = int(rng.integers(1, 30)), int(rng.integers(1, 300)), int(rng.integers(1, 90))
    n_labels = int(rng.integers(1, 80))

    def table(n: int, name: str) -> dict[str, Any]:
        if metric == "hamming":
            vectors = rng.choice(np.array([-1, 1], dtype=np.int8), size=(n, width))
        elif seed % 2:
            vectors = rng.integers(-2, 3, size=(n, width)).astype(float)
            vectors[~vectors.any(axis=1), 0] = 1.0
        else:
            vectors = rng.normal(size=(n, width)) * rng.choice([1e-3, 1.0, 1e3], size=(n, 1))
        labels = rng.random((n, n_labels)) < 0.2
        ids = rng.permutation(3 * n)[:n]
        return {
            "id": ids.tolist() if seed % 3 else [f"{name}{number}" for number in ids],
            "vector": list(vectors),
            "labels": labels.astype(int).tolist(),
            "same": rng.choice(["x", "y", "z"], size=n).tolist(),
        }

    return table(n_queries, "q"), table(n_items, "i"), "signs" if metric == "hamming" else "doubles"


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("metric", METRICS)
def test_the_best_items_are_those_of_loops(metric, seed):
    sizes = {"rows": 20, "sent_rows": 40}  # several blocks in each stripe
    queries, items, kind = random_tables(seed, metric)
    k = random.Random(seed).choice([1, 3, 10, 1000])
    has_filter = seed % 4 == 0
    actual = find_items(queries, items, metric, k, kind=kind, parts=1 + seed % 3, block_bytes=4000, held_pairs=200,
                        **sizes, **({"same": "same"} if has_filter else {}))  # fmt: skip
    for at, query in enumerate(queries["id"]):
        allowed = [
            (item, score_by_loop(metric, queries["vector"][at].tolist(), items["vector"][place].tolist()))
            for place, item in enumerate(items["id"])
            if not has_filter or queries["same"][at] == items["same"][place]
        ]
        got = actual.get(query, [])
        truth = dict(allowed)
        assert len(got) == min(k, len(allowed))
        assert [score for _, score in got] == pytest.approx([truth[item] for item, _ in got], rel=1e-12, abs=1e-12)
        best = sorted(truth.values(), reverse=True)[:k]
        assert [score for _, score in got] == pytest.approx(best, rel=1e-12, abs=1e-12)
        assert got == sorted(got, key=lambda pair: (-pair[1], pair[0]))
        if metric == "hamming":
            assert got == sorted(allowed, key=lambda pair: (-pair[1], pair[0]))[:k]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("metric", ["hamming", "euclidean"])
def test_ndcg_is_that_of_loops_over_the_whole_corpus(metric, seed):
    queries, items, kind = random_tables(2 * seed + 1, metric)  # whole numbers: ties are ties in any arithmetic
    cutoffs = (1, 5, 40, None)
    sizes = {"block_bytes": 2000, "held_pairs": 100, "rows": 20, "sent_rows": 40}
    values = score_queries(queries, items, metric, cutoffs, kind=kind, parts=1 + seed % 3, **sizes)
    by_query = {(row["query_id"], row["k"]): row for row in values}
    assert len(by_query) == len(queries["id"]) * len(cutoffs)
    for at, query in enumerate(queries["id"]):
        scores = [score_by_loop(metric, queries["vector"][at].tolist(), item.tolist()) for item in items["vector"]]
        relevances = [count_shared_labels(queries["labels"][at], item) for item in items["labels"]]
        for k in cutoffs:
            row = by_query[query, k]
            assert row["ndcg"] == pytest.approx(compute_ndcg(scores, relevances, k), abs=1e-12)
            assert row["n_relevant"] == sum(relevance > 0 for relevance in relevances)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("k", [7, None])
def test_any_shape_of_blocks_gives_the_same_bits(metric, k):
    queries, items, kind = random_tables(6, metric)
    shapes = [(1, 2**25, 2**21, 1000), (3, 1, 1, 7), (2, 3000, 50, 64), (4, 9000, 1000, 3)]
    actual = []
    for parts, block_bytes, held_pairs, rows in shapes:
        choices = {
            "rows": rows,
            "sent_rows": rows,
            "parts": parts,
            "block_bytes": block_bytes,
            "held_pairs": held_pairs,
        }
        values = score_queries(queries, items, metric, (3, k), kind=kind, **choices)
        best = find_items(queries, items, metric, k or 5, kind=kind, **choices)
        actual.append((sorted(values, key=lambda row: (row["query_id"], row["k"] or 0)), dict(sorted(best.items()))))
    assert all(result == actual[0] for result in actual)


def test_the_query_itself_and_other_tenants_are_left_out():
    """A query finds, of four equal vectors, the others of its tenant; so does the ideal list."""
    table = {"id": [1, 2, 3, 4], "vector": [[1.0]] * 4, "labels": ["a", "a", "b", "a"], "same": ["x", "x", "x", "y"]}
    choices = {"same": "same", "exclude_self": True, "parts": 2}
    actual = find_items(table, table, "cosine", 4, labels="labels", **choices)
    assert {query: [item for item, _ in found_items] for query, found_items in actual.items()} == {
        1: [2, 3],
        2: [1, 3],
        3: [1, 2],
    }
    counts = {row["query_id"]: (row["n_items"], row["n_relevant"], row["status"])
              for row in score_queries(table, table, "cosine", (3,), **choices)}  # fmt: skip
    assert counts == {1: (2, 1, "evaluated"), 2: (2, 1, "evaluated"), 3: (2, 0, "no_relevant"), 4: (0, 0, "unjudged")}


# ---------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("metric", "kind", "vectors", "reason"),
    [
        ("cosine", "doubles", [[1.0, 2.0], [1.0]], "two lengths, 1 and 2"),
        ("inner", "doubles", [[1.0, float("nan")]], "not_finite at item_id=10"),
        ("inner", "floats", [[1.0, float("inf")]], "not_finite at item_id=10"),
        ("cosine", "doubles", [[1.0, 0.0], [0.0, 0.0]], "zero_vector at item_id=11"),
        ("euclidean", "doubles", [[1e200, 0.0]], "out_of_range at item_id=10"),
        ("inner", "doubles", [[1.0, 0.0], [1e-160, 0.0]], "out_of_range at item_id=11"),
        ("cosine", "doubles", [[1.0, 0.0], None], "null_vector at item_id=11"),
        ("hamming", "bytes", [b"", b""], "empty_vector at item_id=10"),
        ("cosine", "doubles", [[1.0, None]], "null_in_vector at item_id=10"),
        ("cosine", "doubles", [[]], "empty_vector at item_id=10"),
        ("hamming", "signs", [[1, -1], [1, 0]], "not_plus_or_minus_one at item_id=11"),
        ("hamming", "bytes", [b"ab", b"abc"], "two lengths, 16 and 24"),
        ("hamming", "words", [[1, -1], [-1, -1]], "array<tinyint>"),
        ("cosine", "doubles", [[1.0, 2.0, 3.0]], "two lengths, 2 and 3"),
        ("hamming", "bytes", [b"abc"], "two lengths, 16 and 24"),
    ],
)
def test_bad_vectors_are_refused(metric, kind, vectors, reason):
    good = {"doubles": [1.0, 2.0], "floats": [1.0, 2.0], "signs": [1, -1], "bytes": b"ab", "words": [5, 6]}[kind]
    items = {"id": list(range(10, 10 + len(vectors))), "vector": vectors}
    with pytest.raises(InputRefusedError, match=reason):
        find_items({"id": [1], "vector": [good]}, items, metric, 3, kind=kind)


def test_packed_bits_may_be_those_of_1_and_of_minus_1():
    """In one word, -1 has 64 bits set and 1 has one. In two words, 6 and 7 differ in one bit."""
    single_word = find_items(
        {"id": [1], "vector": [[1]]}, {"id": [2, 3], "vector": [[1], [-1]]}, "hamming", 2, kind="words"
    )
    assert single_word == {1: [(2, 0), (3, -63)]}
    items = {"id": [2, 3], "vector": [[5, 6], [5, 7]]}
    two = find_items({"id": [1], "vector": [[5, 6]]}, items, "hamming", 2, kind="words")
    assert two == {1: [(2, 0), (3, -1)]}


def test_two_lengths_in_different_batches_are_refused():
    items = {"id": [1, 2], "vector": [[1.0, 2.0], [1.0]]}
    with pytest.raises(InputRefusedError, match="two lengths, 1 and 2"):
        find_items({"id": [1], "vector": [[1.0, 2.0]]}, items, "cosine", 3, rows=1)


def test_zero_vectors_score_zero_on_request():
    items = {"id": [1, 2, 3], "vector": [[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]]}
    actual = find_items({"id": [0], "vector": [[1.0, 0.0]]}, items, "cosine", 3, zero_vector="zero")
    assert actual == {0: [(3, 1.0), (2, 0.0), (1, -1.0)]}


@pytest.mark.parametrize("labels", [[[1, 2]], [[1, None]], [None], [[1, 0, 1]]])
def test_bad_labels_are_refused(labels):
    with pytest.raises(InputRefusedError, match="label"):
        score_queries({"id": [1], "vector": [[1.0]], "labels": [[1, 0]]},
                      {"id": [2], "vector": [[1.0]], "labels": labels}, "cosine", (3,))  # fmt: skip


def test_duplicate_queries_and_items_are_refused():
    queries, items = {"id": [1], "vector": [[1.0]]}, {"id": [2, 2], "vector": [[1.0], [2.0]]}
    with pytest.raises(InputRefusedError, match="a query appears twice: query_id=2"):
        find_items(items, queries, "cosine", 3, rows=1)
    with pytest.raises(InputRefusedError, match="an item appears twice in the results of query_id=1"):
        find_items(queries, items, "cosine", 3, rows=1)

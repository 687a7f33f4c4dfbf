"""Means from states, against fractions; batches, partitions and merges must not change a bit."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from datetime import date
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from support.arrow_rankings import slice_batch, summarize_rows

from ndcg_spark.conventions import Convention
from ndcg_spark.core.exact import MOMENTS
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.partial_sums import (
    GROUP_COUNTS,
    GROUP_KEYS,
    PARTIAL_SCHEMA,
    SummingTask,
    add_up,
    build_empty_summary,
    build_summing_task,
    format_segments,
)

METRICS = ("ndcg", "dcg", "idcg")
CONVENTION = Convention(no_relevant="skip", missing_query="zero", unjudged_query="drop")
SETS = (("country",), ("country", "device"))
TYPES = {"k": pa.int32(), "n_rows": pa.int64(), "n_left_out": pa.int64(), "country": pa.string()}
TYPES |= dict.fromkeys((*METRICS, "weight"), pa.float64())


def random_queries(seed: int, n: int = 60) -> list[dict[str, Any]]:
    """Per-query rows of every status, with queries that are dropped and queries that have DCG but no NDCG."""
    random_ = random.Random(seed)
    actual = []
    for number in range(n):
        status = random_.choice(["evaluated", "evaluated", "no_relevant", "missing", "unjudged"])
        values: dict[str, float | None] = {metric: random_.uniform(0, 20) for metric in METRICS}
        if status in ("no_relevant", "unjudged"):
            values = dict.fromkeys(METRICS) if status != "no_relevant" else {**values, "ndcg": None}
        actual.append(
            {
                "run": random_.choice(["", "b"]),
                "query_id": number,
                "k": random_.choice([1, 10, None]),
                **values,
                "status": status,
                "n_rows": random_.randint(1, 9) + 5,
                "n_left_out": random_.randint(0, 5),
                "weight": random_.choice([0.0, 0.3, 1.0, 7.5]),
                "country": random_.choice(["DE", "FR", None]),
                "device": random_.choice([True, False, None]),
            }
        )
    return actual


def to_batch(queries: Sequence[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [pa.array([query[name] for query in queries], TYPES.get(name)) for name in queries[0]]
    return pa.RecordBatch.from_arrays(arrays, names=list(queries[0]))


def partials(
    batches: Sequence[pa.RecordBatch], *, sets=SETS, weighted: bool = True, **limits: int
) -> list[dict[str, Any]]:
    task = SummingTask(
        segment_sets=sets,
        weighted=weighted,
        metrics=build_summing_task(EvaluationSettings()).metrics,
        convention=CONVENTION,
        **limits,
    )
    results = list(add_up(iter(batches), task))
    assert all(result.schema == PARTIAL_SCHEMA for result in results)
    return [row for result in results for row in result.to_pylist()]


def segment_of(query: dict[str, Any], names: tuple[str, ...]) -> str | None:
    texts = [str(query[n]).lower() if isinstance(query[n], bool) else query[n] for n in names]
    return "" if not names else texts[0] if len(names) == 1 else json.dumps(texts, separators=(",", ":"))


def expected_rows(queries: Sequence[dict[str, Any]], *, weighted: bool) -> dict[tuple, dict[str, Any]]:
    """Every group by plain loops over fractions."""
    groups: dict[tuple, list[dict[str, Any]]] = {}
    for query in queries:
        for names in ((), *SETS):
            for metric in METRICS:
                key = (query["run"], "+".join(names), segment_of(query, names), metric, query["k"])
                groups.setdefault(key, []).append(query)
    actual = {}
    for key, group in groups.items():
        kept = [query for query in group if query["ndcg"] is not None]
        pairs = [(Fraction(q[key[3]]), Fraction(q["weight"] if weighted else 1)) for q in kept]
        pairs = [(v, w) for v, w in pairs if w]  # a query of weight 0 is in no mean
        total, n = sum((w for _, w in pairs), Fraction(0)), len(pairs)
        mean = sum(v * w for v, w in pairs) / total if total else None
        error = None
        if mean is not None and n > 1:
            error = math.sqrt(Fraction(n, n - 1) * sum(w**2 * (v - mean) ** 2 for v, w in pairs) / total**2)
        dropped = [query for query in group if query["dcg"] is None]
        there = [query for query in group if query["dcg"] is not None]
        actual[key] = {
            "n_queries": n,
            **{f"n_{s}": sum(q["status"] == s for q in group) for s in ("no_relevant", "missing", "unjudged")},
            "n_rows": sum(q["n_rows"] - q["n_left_out"] for q in there),
            "n_left_out": sum(q["n_left_out"] for q in there) + sum(q["n_rows"] for q in dropped),
            "value": None if mean is None else float(mean),
            "weight_sum": float(total),
            "std_error": error if error is None else pytest.approx(error, rel=1e-9, abs=1e-14),
        }
    return actual


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("seed", range(12))
def test_every_group_has_the_mean_and_the_counts_of_its_queries(seed, weighted):
    queries = random_queries(seed)
    got = summarize_rows(partials([to_batch(queries)], weighted=weighted))
    expected = expected_rows(queries, weighted=weighted)
    assert got.keys() == expected.keys()
    for key, values in expected.items():
        assert {name: got[key][name] for name in values} == values, key


@pytest.mark.parametrize("max_groups", [1, 50_000])
@pytest.mark.parametrize("rows_per_batch", [1, 2, 1000])
def test_neither_batches_nor_partitions_nor_order_change_a_bit(rows_per_batch, max_groups):
    queries = random_queries(1, 30)
    expected = summarize_rows(partials([to_batch(queries)]))
    for seed in range(2):
        shuffled = random.Random(seed).sample(queries, len(queries))
        cut = 11 * seed
        parts = [to_batch(part) for part in (shuffled[:cut], shuffled[cut:]) if part]
        # max_groups=1: hand on after every batch
        rows = [row for part in parts for row in partials(slice_batch(part, rows_per_batch), max_groups=max_groups)]
        assert summarize_rows(rows) == expected


def test_runs_may_come_as_large_strings():
    """Spark can be told to send them so. The first batch has one run and cutoff, the other several."""
    batch = to_batch(random_queries(3))
    wide = batch.set_column(batch.schema.get_field_index("run"), "run", batch.column("run").cast(pa.large_string()))
    assert summarize_rows(partials([wide.slice(0, 1), wide.slice(1)])) == summarize_rows(partials([batch]))


def test_one_row_a_group_and_metric_for_each_partition():
    rows = partials(slice_batch(to_batch(random_queries(2)), 5))
    assert len({tuple(row[key] for key in GROUP_KEYS) for row in rows}) == len(rows)


def test_summaries_merge_into_that_of_all_queries():
    """The state that a summary stores is all that a merge needs."""
    nights = [random_queries(seed) for seed in range(3)]
    stored = [row for night in nights for row in summarize_rows(partials([to_batch(night)])).values()]
    together = summarize_rows(partials([to_batch([query for night in nights for query in night])]))
    assert summarize_rows(stored) == together


def test_the_order_of_a_sum_of_tenths_does_not_matter():
    """0.1 + 0.2 + 0.3 + ... rounds differently in each order; the exact mean is rounded once."""
    values = [n / 10 for n in range(1, 10)]
    queries = [{**random_queries(0, 1)[0], "k": 1, **dict.fromkeys(METRICS, value)} for value in values]
    actual = summarize_rows(partials([to_batch(queries)], weighted=False))
    exact = float(sum(map(Fraction, values)) / 9)
    assert {row["value"] for row in actual.values()} == {exact}


def test_confidence_is_that_of_the_interval():
    queries = [{**random_queries(0, 1)[0], **dict.fromkeys(METRICS, value)} for value in (0.0, 1.0, 1.0, 1.0)]
    rows = partials([to_batch(queries)], sets=(), weighted=False)
    for confidence, z in ((0.95, 1.959963984540054), (0.5, 0.6744897501960817)):
        for row in summarize_rows(rows, confidence).values():
            assert (row["value"], row["std_error"]) == (0.75, 0.25)
            assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.75 - z / 4, 0.75 + z / 4), rel=1e-14)


def test_weights_that_are_no_numbers_are_refused():
    queries = [{**query, "weight": math.inf} for query in random_queries(0, 3)]
    with pytest.raises(InputRefusedError, match="too large"):
        partials([to_batch(queries)])


def test_a_group_whose_weights_are_too_small_is_named():
    """1e-40 is below the limit of 2^-80, which is 8.3e-25."""
    queries = [{**query, "run": "b", "weight": 1e-40} for query in random_queries(0, 3) if query["ndcg"] is not None]
    with pytest.raises(InputRefusedError, match=r"run=b, .*metric=.*: weights of queries sum to 1e-40, too small"):
        summarize_rows(partials([to_batch(queries[:1])], sets=()))


@pytest.mark.parametrize("rows", [[], [to_batch(random_queries(0)).slice(0, 0)]], ids=["no batch", "no rows"])
def test_nothing_in_nothing_out(rows):
    assert partials(rows) == []


def test_a_summary_of_nothing():
    rows = build_empty_summary(("", "b"), EvaluationSettings(cutoffs=(5, None)).computed)
    assert [(row["run"], row["metric"], row["k"]) for row in rows] == [
        (run, metric, k) for run in ("", "b") for metric in METRICS for k in (5, None)
    ]
    for row in rows:
        assert (row["n_queries"], row["value"], row["weight_sum"], row["std_error"]) == (0, None, 0.0, None)
        assert row["state"] == [0] * MOMENTS.size
        assert row["segment_by"] == row["segment"] == ""


# --- Segments


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ([], ["", "", ""]),
        ([["DE", None, ""]], ["DE", None, ""]),
        ([[True, False, None]], ["true", "false", None]),
        ([[1, 2.5, date(2026, 1, 31)]], ["1", "2.5", "2026-01-31"]),
        ([["a", "ü", None], ["b", '"', "null"]], ['["a","b"]', '["ü","\\""]', '[null,"null"]']),
        ([["a,b", "a", "x"], ["c", "b,c", "x"]], ['["a,b","c"]', '["a","b,c"]', '["x","x"]']),
    ],
)
def test_segment_texts(columns, texts):
    assert format_segments(columns, 3) == texts


def counted_by_segment(name: str, values: list) -> dict[str | None, int]:
    queries = [{**query, "run": "", "k": 5, "status": "evaluated"} for query in random_queries(3, 3)]
    same = {"ndcg": 0.5, "dcg": 0.5, "weight": 1.0}
    queries = [{**query, name: value, **same} for query, value in zip(queries, values, strict=True)]
    rows = partials([to_batch(queries)], sets=((name,),))
    return {row["segment"]: row["n_queries"] for row in rows if row["segment_by"] == name}


@pytest.mark.parametrize("name", ["region", "geo:country", "n_rows_sum", "ndcg:3", "value", "segment:a", "n_queries"])
def test_a_segment_column_may_have_any_name_that_is_not_reserved(name):
    assert counted_by_segment(name, ["a", "b", "a"]) == {"a": 2, "b": 1}
    assert counted_by_segment(name, [7, 8, 7]) == {"7": 2, "8": 1}


@pytest.mark.parametrize("name", GROUP_COUNTS)
def test_a_segment_column_named_as_a_count_is_refused_or_right(name):
    try:
        EvaluationSettings(segment_sets=((name,),))
    except InvalidParameterError:
        return
    assert counted_by_segment(name, [7, 8, 7]) == {"7": 2, "8": 1}


@pytest.mark.parametrize("name", ["session:id", "basket_sum"])
def test_a_query_column_may_have_any_name_that_is_not_reserved(name):
    same = {"run": "", "k": 5, "ndcg": 0.5, "status": "evaluated", "weight": 1.0}
    queries = [{**query, name: "x", **same} for query in random_queries(3, 3)]
    rows = partials([to_batch(queries)], sets=())
    assert {row["n_queries"] for row in rows} == {3}

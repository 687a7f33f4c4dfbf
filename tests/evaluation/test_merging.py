"""`merge_summaries` of tables in memory: the bits of one evaluation, as Spark merges them."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.engines import with_columns
from support.random_rankings import random_rows

from ndcg_spark import evaluate, merge_summaries
from ndcg_spark.core.adapters import convert_tables
from ndcg_spark.core.arrow_tables import sort_rows
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, MissingColumnError

OPTIONS = {
    "k": [1, 5], "run": "ranker", "segments": ["country", "country+device"], "weight": "weight",
    "null_score": "unretrieved", "metrics": ["ndcg", "recall", "p(rel=2)"], "convention": "default;no_relevant=skip",
}  # fmt: skip


def nights() -> list[pa.Table]:
    """Rankings of disjoint queries by two rankers, the second of which has no row on the last night."""
    rows = random_rows(71, max_items=12, unretrieved=True, fractional=True)
    numbers = {query: at for at, query in enumerate(dict.fromkeys(row.query for row in rows))}
    cells = [
        {
            "query_id": row.query, "item_id": row.item, "score": row.score, "relevance": row.relevance,
            "ranker": ranker, "country": ("DE", "FR", None)[numbers[row.query] % 3],
            "device": numbers[row.query] % 2, "weight": 0.1 + numbers[row.query] % 4,
        }
        for row in rows
        for ranker in ("new", "old")
        if ranker == "new" or numbers[row.query] % 5
    ]  # fmt: skip
    table = pa.Table.from_pylist(cells)
    at = pa.array([numbers[query] % 5 for query in table.column("query_id").to_pylist()])
    return [table.filter(pc.is_in(at, pa.array(group))) for group in ([1], [2, 3, 4], [0])]


def summaries() -> list[pa.Table]:
    return [evaluate(night, **OPTIONS).summary for night in nights()]


def test_nights_merge_into_the_bits_of_all_queries_in_any_order():
    whole = evaluate(pa.concat_tables(nights()), **OPTIONS).summary
    assert merge_summaries(pa.concat_tables(reversed(summaries()))).equals(whole)
    shuffled = pa.concat_tables(summaries()).sort_by("value")
    assert merge_summaries(shuffled.to_pandas()).equals(whole)
    assert merge_summaries(merge_summaries(shuffled)).equals(whole)


def old_rows() -> pa.Table:
    """Rows of an older metric table beside new ones, and of a metric that is no mean."""
    new, old, other = summaries()
    old = old.drop_columns(["asked", "rules", "n_rejected", "n_unjudged_items"])
    catalogue = with_columns(
        other.slice(0, 1), metric="coverage", state=pa.nulls(1, other.schema.field("state").type), value=0.25
    )
    return pa.concat_tables([new, old, other, catalogue, catalogue], promote_options="default")


def test_old_rows_and_metrics_of_items_merge_as_by_spark(spark):
    """Counts that some rows lack are null, the name that was asked for is that of the rows that have it."""
    stored = with_columns(old_rows(), run_date=date(2026, 1, 31))
    merged = merge_summaries(stored, confidence=0.8)
    of_spark = merge_summaries(convert_tables({"summaries": stored}, spark)["summaries"], confidence=0.8).collect()
    actual = pa.Table.from_pylist([row.asDict() for row in of_spark], merged.schema)
    assert sort_rows(actual).equals(merged)
    (coverage,) = merged.filter(pc.field("metric") == "coverage").to_pylist()
    assert (coverage["value"], coverage["n_queries"] > 0) == (None, True)
    ndcg = merged.filter((pc.field("metric") == "ndcg") & (pc.field("segment_by") == "")).to_pylist()
    assert [(row["n_rejected"], row["asked"]) for row in ndcg if row["k"] == 1] == [(None, "ndcg@1")] * 2
    assert all(row["rules"].endswith("unknown=some") for row in ndcg if row["run"] == "new")


def test_a_confidence_is_between_0_and_1():
    for wrong in (0.0, 1.0, 2.0):
        with pytest.raises(InvalidParameterError, match="confidence"):
            merge_summaries(summaries()[0], confidence=wrong)


def test_rules_that_differ_are_refused_or_mixed():
    (first, *_) = summaries()
    other = evaluate(nights()[1], **{**OPTIONS, "convention": "trec_eval;no_relevant=skip"}).summary
    both = pa.concat_tables([first, other])
    with pytest.raises(InputRefusedError, match=r"run=new.* different rules \(.*ties: expected and item_desc"):
        merge_summaries(both)
    merged = merge_summaries(both, across_rules=True).filter(pc.field("segment_by") == "")
    assert all("ties=mixed" in text for text in merged.column("rules").to_pylist())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda rows: nights()[0], MissingColumnError, "column 'run' .* is not in the metric table"),
        (lambda rows: rows.drop_columns(["state"]), MissingColumnError, "'state'"),
        (lambda rows: with_columns(rows, k="ten"), InputRefusedError, "'k' of the metric table is string, not int"),
        (lambda rows: "metrics/", InvalidParameterError, "must be a table: .*; it is of type str"),
    ],
)
def test_what_is_no_summary_is_refused(change, error, text):
    with pytest.raises(error, match=text):
        merge_summaries(change(summaries()[0]))

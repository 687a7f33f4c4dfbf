"""Judgments that match nothing are refused by what runs actions: whatever the form of the rankings."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from support.engines import parametrize_engine, run_refused, table, with_columns
from support.main_job import assert_refused, mean_ndcg, run_command

from ndcg_spark import compare, evaluate, report
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.frames.matching import check_matched
from ndcg_spark.evaluation.matching import TopItems, read_top_items

K = 3
N_ITEMS = 6
RUN_SCHEMA = "model string, query_id string, sku string, score double, country string, weight double"


def as_they_are(query: int, item: int) -> tuple[str, str]:
    return f"q{query}", f"sku-{query * N_ITEMS + item}"


def items_in_capitals(query: int, item: int) -> tuple[str, str]:
    return as_they_are(query, item)[0], as_they_are(query, item)[1].upper()


def queries_with_a_prefix(query: int, item: int) -> tuple[str, str]:
    return f"shop:q{query}", as_they_are(query, item)[1]


def items_of_the_next_query(query: int, item: int) -> tuple[str, str]:
    return f"q{query}", as_they_are(query + 1, item)[1]


def items_far_down(query: int, item: int) -> tuple[str, str]:
    return as_they_are(query, N_ITEMS - 1)


WAYS = {way.__name__: way for way in (
    as_they_are, items_in_capitals, queries_with_a_prefix, items_of_the_next_query, items_far_down
)}  # fmt: skip


@dataclass(frozen=True)
class World:
    """Queries with ranked items, the judgments of some, and what comes of both by the rule, found by loops."""

    seed: int
    judges: Callable[[int, int], tuple[str, str]]
    n_queries: int = 8

    @cached_property
    def ranked(self) -> dict[str, list[str]]:
        """Items of each query in rank order."""
        return {
            f"q{query}": [as_they_are(query, item)[1] for item in range(N_ITEMS)] for query in range(self.n_queries)
        }

    @cached_property
    def judged(self) -> dict[tuple[str, str], float]:
        draw = random.Random(self.seed)
        pairs = [(query, item) for query in range(self.n_queries) for item in range(K) if draw.random() < 0.6]
        return {self.judges(query, item): draw.choice((1.0, 2.0)) for query, item in pairs}

    @cached_property
    def outcome(self) -> str:
        """What becomes of the run: `plain`, `zero` with a line, or refused for its `queries` or `items`."""
        queries = {query for query, _ in self.judged}
        items = {item for _, item in self.judged}
        if any((query, item) in self.judged for query, group in self.ranked.items() for item in group[:K]):
            return "plain"
        if not queries & set(self.ranked):
            return "queries"
        return "zero" if any(item in items for group in self.ranked.values() for item in group) else "items"

    def run_rows(self, name: str = "only") -> list[tuple]:
        return [
            (name, query, item, float(-place), "DE" if query < "q4" else "US", 0.5 + (query < "q4"))
            for query, group in self.ranked.items()
            for place, item in enumerate(group)
        ]

    @property
    def run(self) -> pa.Table:
        return table(self.run_rows(), RUN_SCHEMA)

    @property
    def judgments(self) -> pa.Table:
        rows = [(query, item, grade) for (query, item), grade in self.judged.items()]
        return table(rows, "query_id string, sku string, relevance double")

    @property
    def lists(self) -> pa.Table:
        rows = [("only", query, group, "DE" if query < "q4" else "US") for query, group in self.ranked.items()]
        return table(rows, "model string, query_id string, items array<string>, country string")


def in_capitals(run: pa.Table) -> pa.Table:
    return with_columns(run, sku=pc.utf8_upper(run["sku"]))


FORMS: dict[str, tuple[Callable[[World], pa.Table], dict[str, Any]]] = {
    "long": (lambda world: world.run, {}),
    "weighted": (lambda world: world.run, {"weight": "weight", "convention": "default;missing_query=drop"}),
    "given ranks": (
        lambda world: with_columns(world.run, rank=pc.subtract(1.0, world.run["score"])).drop_columns(["score"]),
        {"rank": "rank"},
    ),
    "score columns": (
        lambda world: with_columns(world.run, second=world.run["score"]), {"score": ["score", "second"]}
    ),
    "lists": (lambda world: world.lists, {"ranked": "items", "segments": ["country"]}),
    "reject": (lambda world: world.run, {"on_invalid": "reject", "segments": ["country"]}),
}  # fmt: skip
"""The same rankings, and options."""
SAYS = {"queries": "none of its queries is judged; compare query_id='q0' with 'shop:q",
        "items": "and no judged item occurs anywhere in it; compare sku='sku-0' with 'SKU-"}  # fmt: skip


UNMATCHED = ("items_in_capitals", "queries_with_a_prefix")


@parametrize_engine(
    "form, way",
    local=[(form, way) for form in FORMS for way in (WAYS if form in ("long", "weighted") else UNMATCHED)],
    spark=[("long", "items_of_the_next_query"), ("lists", UNMATCHED[1])],
    window=[("weighted", way) for way in (UNMATCHED[0], "items_far_down")],
)
def test_what_becomes_of_a_run(engine, form, way, capsys):
    world = World([*FORMS].index(form), WAYS[way])
    make, options = FORMS[form]
    result = evaluate(make(world), world.judgments, k=[1, K], item="sku", **options, **engine)
    wanted = {"items_far_down": "zero", "items_of_the_next_query": "zero"}
    assert world.outcome == {"as_they_are": "plain", "items_in_capitals": "items",
                             "queries_with_a_prefix": "queries", **wanted}[way]  # fmt: skip
    if world.outcome in SAYS:
        said = run_refused(result)
        assert SAYS[world.outcome] in said
        assert "allow_unmatched=True accepts zeros" in said
        return
    actual = result.to_pandas()
    result.show()
    n_items = K * len({query for query, _ in world.judged} & set(world.ranked))  # others are dropped
    assert actual["value"].eq(0).all() == (world.outcome == "zero")
    line = f"none of the {n_items} items ranked among the first {K} is judged"
    assert (line in capsys.readouterr().out) == (world.outcome == "zero")


def test_one_of_several_runs_matches_and_each_is_told_apart(spark, capsys):
    good, bad = World(1, as_they_are), World(1, items_in_capitals)
    rows = good.run_rows("good") + [
        (name, query, sku.upper(), *rest) for name, query, sku, *rest in bad.run_rows("bad")
    ]
    judgments, data = good.judgments, table(rows, RUN_SCHEMA)
    asked = {"k": K, "item": "sku", "run": "model", "segments": ["country"], "engine": "spark"}
    result = evaluate(data, judgments, **asked)
    says = "^run 'bad': none of the 24 items ranked among the first 3 is judged, .* compare sku='SKU-0' with 'sku-"
    for act in (result.show, result.plot, lambda: compare(result, baseline="good").show()):
        with pytest.raises(InputRefusedError, match=says):
            act()
    assert result.summary.where("metric = 'ndcg' and run = 'bad'").first()["value"] == 0.0
    evaluate(data, judgments, allow_unmatched=True, **asked).show()
    assert "run 'bad': none of the 24 items ranked among the first 3 is judged\n" in capsys.readouterr().out
    compare(result, baseline="good", allow_unmatched=True, replicates=0, flips=0).show()
    assert "run 'bad': none of the 24 items ranked among the first 3 is judged\n" in capsys.readouterr().out
    kept = compare(result.per_query, baseline="good", replicates=0, flips=0).to_pandas()
    assert len(kept)  # metrics of queries do not tell what was judged


def test_evaluations_of_two_tables_are_told_apart_when_they_are_compared(spark):
    good = World(2, as_they_are)
    options = {"k": K, "item": "sku", "engine": "spark"}
    first, second = (evaluate(element, good.judgments, **options) for element in (good.run, in_capitals(good.run)))
    with pytest.raises(InputRefusedError, match=r"^run 'b': none of the 24 items .* compare sku='SKU-0' with 'sku-"):
        compare({"a": first, "b": second}, replicates=0, flips=0).to_pandas()
    compare({"a": first, "b": first}, replicates=0, flips=0).to_pandas()


@pytest.mark.parametrize("convention", [
    "default;unjudged_query=zero", "default;unjudged=condensed", "default;no_relevant=one", "default;ideal=retrieved",
])  # fmt: skip
def test_no_rule_of_a_convention_hides_it(convention):
    world = World(3, items_in_capitals)
    result = evaluate(world.run, world.judgments, item="sku", metrics=["rr", "p@1"], convention=convention)
    with pytest.raises(InputRefusedError, match="no judged item occurs anywhere in it"):
        result.show()


def test_judgments_without_rows_and_runs_without_rows(engine):
    world, options = World(3, as_they_are), {"k": K, "item": "sku", **engine}
    assert "the judgments have no relevances" in run_refused(
        evaluate(world.run, world.judgments.slice(0, 0), **options)
    )
    actual = evaluate(world.run.slice(0, 0), world.judgments, **options).to_pandas()
    assert actual["value"].tolist() == [0.0]  # all queries are missing, as before


def test_a_table_with_its_own_relevances_is_not_checked(engine):
    data = table([("q", "a", 1.0, None)], "query_id string, item_id string, score double, relevance int")
    assert len(evaluate(data, k=1, **engine).to_pandas()) == 1


APART = SimpleNamespace(
    tables=SimpleNamespace(has_judgments_table=True), settings=SimpleNamespace(allow_unmatched=False)
)
"""What is read of a ranking whose judgments are a table of their own, if they match."""


def lines(*shares: tuple[str, int, int]) -> list[str]:
    actual = [TopItems(run=run, k=10, n_items=n, n_judged=judged) for run, n, judged in shares]
    return check_matched(actual, APART)  # type: ignore[arg-type]


def test_a_low_share_is_a_line():
    assert lines(("", 1000, 10)) == []
    assert lines(("", 1000, 9)) == ["0.90% of the 1,000 items ranked among the first 10 are judged"]
    assert lines(("a", 1000, 500), ("b", 1000, 50)) == []
    assert lines(("a", 1000, 500), ("b", 1000, 49)) == [
        "run 'b': 4.90% of the 1,000 items ranked among the first 10 are judged; of run 'a', 50.00%"
    ]


def test_counts_are_read_of_all_queries_at_the_largest_cutoff():
    def row(run, k, segment_by="", n=10, n_rows=5, **more):
        counts = {"n_top_items": n, "n_unjudged_items": 4, "n_rows": n_rows, "n_left_out": 0}
        return {"run": run, "segment_by": segment_by, "k": k, **counts, **more}

    rows = [row("a", 5), row("a", 10, n=20), row("b", None, n=30), row("b", 10), row("a", None, "country"),
            row("c", 10, n_rows=0), row(None, 10)]  # fmt: skip
    actual = [(item.run, item.k, item.n_items, item.n_judged) for item in read_top_items(rows)]
    assert actual == [("a", 10, 20, 16), ("b", None, 30, 26)]


@pytest.fixture
def files(tmp_path):
    """Rankings of two runs, of which one has other ids, and their judgments, as files."""
    world = World(4, as_they_are)
    bad = [(name, query, sku.upper(), *rest) for name, query, sku, *rest in world.run_rows("bad")]
    pq.write_table(table(world.run_rows("good") + bad, RUN_SCHEMA), tmp_path / "run.parquet")
    pq.write_table(world.judgments, tmp_path / "judgments.parquet")
    tables = ("--input", tmp_path / "run.parquet", "--judgments", tmp_path / "judgments.parquet")
    return (
        *tables,
        "--item-col",
        "sku",
        "--run-col",
        "model",
        "--k",
        K,
        "--run-date",
        "2026-01-31",
        "--dataset",
        "shop",
    )


BAD = "run 'bad': none of the 15 items ranked among the first 3 is judged"
WAY_OUT = "--allow-unmatched accepts zeros"


def test_the_main_job_refuses_and_writes_nothing(engine, files, tmp_path):
    files = (*files, "--engine", engine["engine"])
    outputs = ("--output", tmp_path / "metrics", "--per-query-output", tmp_path / "queries")
    assert_refused(mean_ndcg(*files, *outputs), BAD, "compare sku='SKU-0' with 'sku-", WAY_OUT, "Nothing was written")
    assert_refused(mean_ndcg(*files), BAD, WAY_OUT)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["judgments.parquet", "run.parquet"]
    kept = mean_ndcg(*files, *outputs, "--allow-unmatched", "--json", "-")
    assert (kept.code, kept.complaints) == (0, [])
    assert BAD in kept.out.splitlines()
    (row,) = (row for row in kept.json["metrics"] if (row["run"], row["metric"]) == ("bad", "ndcg"))
    assert (row["value"], row["n_top_items"], row["n_unjudged_items"]) == (0.0, 15, 15)


def test_the_job_that_compares_refuses_and_writes_nothing(spark, files, tmp_path):
    asked = ("compare-runs", *files, "--baseline", "good", "--flips", "0", "--replicates", "0")
    output = ("--output", tmp_path / "comparison")
    assert_refused(
        run_command(*asked, *output), BAD, "compare sku='SKU-0' with 'sku-", WAY_OUT, "Nothing was written"
    )
    assert not (tmp_path / "comparison").exists()
    kept = run_command(*asked, *output, "--allow-unmatched", "--json", "-")
    assert (kept.code, kept.complaints) == (0, [])
    assert BAD in kept.out.splitlines()
    assert not [name for row in kept.json["comparison"] for name in row if name.startswith("__")]


def test_a_report_refuses_an_evaluation_and_a_comparison(spark):
    good, options = World(1, as_they_are), {"k": K, "item": "sku", "engine": "spark"}
    first, second = (evaluate(element, good.judgments, **options) for element in (good.run, in_capitals(good.run)))
    with pytest.raises(InputRefusedError, match=r"^none of the 24 items ranked among the first 3 is judged"):
        report(second)
    compared = compare({"a": first, "b": second}, replicates=0, flips=0)
    summary = evaluate(with_columns(good.run, model="a"), good.judgments, run="model", **options).summary
    with pytest.raises(InputRefusedError, match=r"^run 'b': none of the 24 items"):
        report(summary.unionByName(summary.withColumn("run", F.lit("b"))), comparison=compared)

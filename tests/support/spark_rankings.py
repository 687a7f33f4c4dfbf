"""Rows of the oracle as DataFrames of every form, and results of Spark as results of the oracle.

Evaluations are collected together: one action for all that a test compares.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from packaging.version import Version

from ndcg_spark.evaluation.local import LocalRanking, rank_locally
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.sources.local import open_memory_table
from ndcg_spark.sources.parquet import PartSizes
from support.arrow_rankings import build_convention, sort_by_rank
from support.oracle import Choices, Cutoff, Result, Results, Row, group_by_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ndcg_spark.evaluation.spark_results import Evaluation

# Most plans of the tests run once: Java's second compiler costs more than it saves. Without it
# the code cache has 48 MB and is full after a minute of tests; later code would be interpreted.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=1g -XX:+UseSerialGC"
TOLERANCE = 1e-12
EXACT_FIELDS = ("status", "n_items", "n_judged", "n_relevant")
VALUES = ("dcg", "idcg", "ndcg")

LONG = Columns(order="position")
RANKED = Columns(rank="rank", order=None)
NUMBERS = Columns(item=None, relevance="ranked", ideal="judged")
STRUCTS = Columns(relevance="ranked_items", ideal="judged_items")


def since_spark(version: str, what: str) -> pytest.MarkDecorator:
    """Skip a test on a Spark that lacks the feature under test."""
    import pyspark  # the client alone is a package of another name

    lacks_it = Version(pyspark.__version__) < Version(version)
    return pytest.mark.skipif(lacks_it, reason=f"{what} came with Spark {version}")


def create_scored_table(spark: SparkSession, rows: Sequence[Row], choices: Choices | None = None) -> DataFrame:
    """Create one row per item, with the 1-based rank by definition of retrieved items."""
    item = "bigint" if isinstance(rows[0].item, int) else "string"
    schema = f"query_id string, item_id {item}, score double, relevance double, position int, rank int"
    ranks = compute_ranks(rows, choices) if choices is not None else {}
    cells = [
        (r.query, r.item, _to_float(r.score), r.relevance, r.position, ranks.get((r.query, r.item))) for r in rows
    ]
    return spark.createDataFrame(cells, schema)


def _to_float(value: float | None) -> float | None:
    return None if value is None else float(value)


def create_array_table(spark: SparkSession, rows: Sequence[Row], choices: Choices) -> DataFrame:
    """Create one row per query: relevances in rank order, and all judged ones unordered; with and without items."""
    item = "bigint" if isinstance(rows[0].item, int) else "string"
    entries = f"array<struct<item:{item}, relevance:double>>"
    schema = (
        f"query_id string, ranked array<double>, judged array<double>, ranked_items {entries}, judged_items {entries}"
    )
    cells = []
    for query, query_rows in group_by_query(rows).items():
        ranked = [(row.item, row.relevance) for row in sort_by_rank(query_rows, choices)]
        judged = [(row.item, row.relevance) for row in query_rows if row.relevance is not None]
        cells.append((query, [rel for _, rel in ranked], [rel for _, rel in judged], ranked, judged))
    return spark.createDataFrame(cells, schema)


def compute_ranks(rows: Iterable[Row], choices: Choices) -> dict[tuple[object, object], int]:
    """Return 1-based ranks by (query, item)."""
    return {
        (query, row.item): rank
        for query, query_rows in group_by_query(rows).items()
        for rank, row in enumerate(sort_by_rank(query_rows, choices), start=1)
    }


def shuffle_rows(rows: Sequence[Row], seed: int) -> list[Row]:
    return random.Random(seed).sample(list(rows), len(rows))


@contextmanager
def session_settings(spark: SparkSession, **settings: object) -> Iterator[None]:
    """Change settings of the session (`__` is a dot) for a block."""
    names = {name.replace("__", "."): str(value) for name, value in settings.items()}
    before = {name: spark.conf.get(name, None) for name in names}
    try:
        for name, value in names.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


SHORT_LIVED_PLANS = {
    "spark__sql__shuffle__partitions": 1,
    "spark__sql__adaptive__enabled": "false",
    "spark__sql__codegen__wholeStage": "false",
    "spark__sql__codegen__factoryMode": "NO_CODEGEN",
}
"""For many small plans that run once: to plan them anew and to compile them would take longer than to run them."""
SHORT_LIVED_SETTINGS = {name.replace("__", "."): str(value) for name, value in SHORT_LIVED_PLANS.items()}
"""The same, for a session that is to start with them."""


# --- Evaluations, together


def evaluate_small_parts(
    data: DataFrame | str,
    *,
    judgments: DataFrame | None = None,
    interactions: DataFrame | None = None,
    **options: Any,
) -> Evaluation:
    """Evaluate like `evaluate`, but split small files, too."""
    from ndcg_spark.evaluation.api import evaluation_settings
    from ndcg_spark.evaluation.frames.ranking import choose_ranking
    from ndcg_spark.evaluation.spark_results import Evaluation

    settings, sizes = evaluation_settings(**options), PartSizes(smallest=1)
    ranking = choose_ranking(data, settings, judgments=judgments, interactions=interactions, sizes=sizes)
    return Evaluation(settings=settings, ranking=ranking)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One evaluation to run."""

    data: DataFrame | pa.Table | str
    settings: EvaluationSettings
    judgments: DataFrame | pa.Table | None = None

    @property
    def tables(self) -> dict[str, Any]:
        return {"input": self.data} | ({} if self.judgments is None else {"judgments": self.judgments})

    def per_query(self) -> DataFrame:
        from ndcg_spark.core.adapters import convert_tables
        from ndcg_spark.evaluation.frames.ranking import choose_ranking

        sizes, tables = (
            PartSizes(smallest=1),
            convert_tables(self.tables),
        )  # a small file, too, is read in several parts
        return choose_ranking(
            tables["input"], self.settings, judgments=tables.get("judgments"), sizes=sizes
        ).per_query()

    def ranking_here(self) -> LocalRanking:
        """Rank tables of Arrow without Spark."""
        ranking = rank_locally(
            {name: open_memory_table(table, name) for name, table in self.tables.items()}, self.settings
        )
        assert isinstance(ranking, LocalRanking), ranking
        return ranking

    def results_here(self) -> Results:
        """Return the results of the local engine, under the keys of `collect_cases`."""
        ranking = self.ranking_here()
        names = ("run", *self.settings.columns.query)
        return {
            _build_key([str(row[name]) for name in names], row["k"]): _build_result(row)
            for row in ranking.per_query().to_pylist()
        }


def build_strategy_cases(
    spark: SparkSession, rows: Sequence[Row], choices: Choices, cutoffs: Sequence[Cutoff]
) -> dict[str, Case]:
    """Build cases for a long table, run and judgments, ranks, each by the engine and by windows; and for arrays."""
    convention = build_convention(choices)
    missing = "unretrieved" if any(row.score is None for row in rows) else "bad"
    table, arrays = create_scored_table(spark, rows, choices), create_array_table(spark, rows, choices)
    run, judgments = (table.where(f"{name} is not null") for name in ("score", "relevance"))
    run = run.drop("relevance")

    def settings(columns: Columns, **changes: object) -> EvaluationSettings:
        chosen = {"columns": columns, "cutoffs": tuple(cutoffs), "convention": convention} | changes
        return EvaluationSettings(**chosen)

    in_order = replace(convention, ties="item_asc")  # arrays have no ties, so no order column either
    cases = {
        "numbers": Case(data=arrays, settings=settings(NUMBERS, convention=in_order)),
        "structs": Case(data=arrays, settings=settings(STRUCTS, convention=in_order)),
    }
    for strategy in ("engine", "window"):
        cases |= {
            f"long {strategy}": Case(data=table, settings=settings(LONG, strategy=strategy, null_score=missing)),
            f"judgments {strategy}": Case(data=run, judgments=judgments, settings=settings(LONG, strategy=strategy)),
            f"rank {strategy}": Case(data=table, settings=settings(RANKED, strategy=strategy, null_score=missing)),
            f"rank judgments {strategy}": Case(
                data=run, judgments=judgments, settings=settings(RANKED, strategy=strategy)
            ),
        }
    if choices.ties == "input_order":
        cases = {name: _add_order(case) for name, case in cases.items()}
    return cases


def _add_order(case: Case) -> Case:
    """Name the order column: condensed ranks are ranked anew, and ties by input order need it."""
    if case.settings.columns.rank is None:
        return case
    return replace(case, settings=replace(case.settings, columns=replace(case.settings.columns, order="position")))


def collect_cases(cases: Mapping[str, Case]) -> dict[str, Results]:
    """Collect results by case, under keys (query, k), with one action.

    A query is its value as text; with a named run or a key of several columns, the tuple (run, value, ...).
    """
    from pyspark.sql import functions as F

    frames = []
    for name, case in cases.items():
        key = F.array(*[F.col(f"`{column}`").cast("string") for column in ("run", *case.settings.columns.query)])
        frames.append(
            case.per_query().select(F.lit(name).alias("way"), key.alias("key"), "k", *VALUES, *EXACT_FIELDS)
        )
    results: dict[str, Results] = {name: {} for name in cases}
    for row in reduce(lambda left, right: left.unionByName(right), frames).collect():
        key = _build_key(row["key"], row["k"])
        assert key not in results[row["way"]], (row["way"], key)
        results[row["way"]][key] = _build_result(row)
    return results


def _build_key(run_and_query: Sequence[str], k: int | None) -> tuple[Any, int | None]:
    parts = tuple(run_and_query) if run_and_query[0] else tuple(run_and_query[1:])
    return (parts if len(parts) > 1 else parts[0], k)


def _build_result(row: Any) -> Result:
    return Result(**{name: row[name] for name in (*VALUES, *EXACT_FIELDS)})


def assert_same_results(got: Results, expected: Results, tolerance: float = TOLERANCE) -> None:
    """Compare counts and status exactly; dcg, idcg and ndcg to `tolerance`, or both null."""
    difference = describe_differences(got, expected, tolerance)
    assert not difference, difference


def describe_differences(got: Results, expected: Results, tolerance: float = TOLERANCE) -> str:
    """Describe the differences for a person; empty if there are none."""
    if got.keys() != expected.keys():
        return f"queries differ: {sorted(map(str, got.keys() ^ expected.keys()))[:4]}"
    wrong = [key for key in expected if not _is_same(got[key], expected[key], tolerance)]
    if not wrong:
        return ""
    first = f"{wrong[0]}: got {got[wrong[0]]}, expected {expected[wrong[0]]}"
    return f"{len(wrong)} of {len(expected)} results differ, the first {first}"


def _is_same(got: Result, expected: Result, tolerance: float) -> bool:
    exact = all(getattr(got, name) == getattr(expected, name) for name in EXACT_FIELDS)
    return exact and all(is_close(getattr(got, name), getattr(expected, name), tolerance) for name in VALUES)


def is_close(got: float | None, expected: float | None, tolerance: float = TOLERANCE) -> bool:
    """Check that two values differ by at most `tolerance` (relative above 1), or that both are null."""
    if got is None or expected is None:
        return got is expected
    return abs(got - expected) <= tolerance * max(1.0, abs(expected))

"""The shared data through `ndcg_spark.evaluate` by either engine, against the same tools; and Spark's own MLlib."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import SparkSession

from ndcg_spark import Convention, evaluate
from ndcg_spark.conventions import PRESETS
from scripts.checks.peers import definitions as written
from scripts.checks.peers.comparisons import (
    COMPARISONS,
    EXACT,
    NUMBERS,
    Comparison,
    Outcome,
    has_list_and_label,
    without_ties,
    worst_difference,
)
from scripts.checks.peers.data import (
    ANY_GRADE,
    Cutoff,
    Queries,
    Shape,
    SharedSet,
    Values,
    random_queries,
    rankings,
    score,
)

RUN = (("query_id", pa.string()), ("item_id", pa.string()), ("score", pa.float64()), ("position", pa.int32()))
JUDGMENTS = (("query_id", pa.string()), ("item_id", pa.string()), ("relevance", pa.float64()))
ARRAYS = (("query_id", pa.string()), ("ranked", pa.list_(pa.float64())), ("judged", pa.list_(pa.float64())))
Fields = tuple[tuple[str, pa.DataType], ...]
Engine = Literal["local", "spark"]
ENGINES: dict[Engine, str] = {"local": "without Spark", "spark": "on Spark"}


def engine_outcomes(sets: Sequence[SharedSet], engine: Engine) -> Iterator[Outcome]:
    """Each preset by an engine, against its tool; on Spark also MLlib."""
    spark = make_session() if engine == "spark" else None
    try:
        if spark is not None:
            yield against_mllib(spark, range(2))
        for comparison in COMPARISONS:
            taken = [data for data in sets if comparison.takes(data)]
            if taken and not comparison.optional:
                print(f"{comparison.convention} {ENGINES[engine]} ...", file=sys.stderr, flush=True)
                yield by_engine(engine, comparison, taken)
    finally:
        if spark is not None:
            spark.stop()


def make_session() -> SparkSession:
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[2]").appName("ndcg-spark peers").config(map=settings).getOrCreate()


def by_engine(engine: Engine, comparison: Comparison, sets: Sequence[SharedSet]) -> Outcome:
    """One evaluation of all runs of all sets that the tool takes, each query under a name of its own."""
    cutoffs: Sequence[Cutoff] = tuple(k for k in comparison.cutoffs if k is not None) or comparison.cutoffs
    queries: Queries = {}
    theirs: Values = {}
    for data in sets:
        for run, its in data.runs.items():
            asked = {query: rows for query, rows in its.items() if comparison.domain(rows)}
            found = comparison.tool.call(asked, cutoffs)
            if not comparison.shape.ties:
                found = without_ties(found, asked)
            prefix = f"{data.name}/{run}/"
            theirs |= {(prefix + query, k): value for (query, k), value in found.items()}
            queries |= {
                prefix + query: [replace(row, query=prefix + query) for row in rows] for query, rows in asked.items()
            }
    ours = evaluated(engine, queries, Convention.parse(comparison.convention), cutoffs)
    if not comparison.shape.ties:
        ours = without_ties(ours, queries)
    return Outcome(
        convention=comparison.convention,
        data=f"{len(sets)} shared sets {ENGINES[engine]}",
        tool=comparison.tool.title,
        values=len(theirs),
        worst=worst_difference(ours, theirs),
        tolerance=comparison.tolerance,
    )


def evaluated(engine: Engine, queries: Queries, convention: Convention, cutoffs: Sequence[Cutoff]) -> Values:
    if convention.ideal == "unsorted":  # an order of labels is a thing of arrays
        cells = rankings(queries, convention).select(["query_id", "ranked", "ideal"]).rename_columns(names_of(ARRAYS))
        options: dict[str, Any] = {"item": None, "relevance": "ranked", "ideal": "judged"}
        result = evaluate(cells.cast(pa.schema(ARRAYS)), k=cutoffs, convention=convention, engine=engine, **options)
    else:
        run, judgments = tables_of(queries)
        order = "position" if convention.ties == "input_order" else None
        result = evaluate(run, judgments=judgments, k=cutoffs, convention=convention, order=order, engine=engine)
    found = result.per_query
    rows = found.to_pylist() if isinstance(found, pa.Table) else found.select("query_id", "k", "ndcg").collect()
    return {(row["query_id"], row["k"]): row["ndcg"] for row in rows if row["ndcg"] is not None}


def tables_of(queries: Queries) -> tuple[pa.Table, pa.Table]:
    every = [row for rows in queries.values() for row in rows]
    run = [(row.query, row.item, row.score, row.position) for row in every if row.score is not None]
    judged = [(row.query, row.item, row.relevance) for row in every if row.relevance is not None]
    return table_of(run, RUN), table_of(judged, JUDGMENTS)


def table_of(rows: Sequence[tuple[Any, ...]], fields: Fields) -> pa.Table:
    """A table of rows, which may be none."""
    return pa.Table.from_pylist([dict(zip(names_of(fields), row, strict=True)) for row in rows], pa.schema(fields))


def names_of(fields: Fields) -> list[str]:
    return [name for name, _ in fields]


def against_mllib(spark: SparkSession, seeds: Sequence[int]) -> Outcome:
    """MLlib itself, which gives means alone: one job a query and cutoff."""
    from pyspark.mllib.evaluation import RankingMetrics

    outcome = partial(Outcome, convention="mllib_binary", tool=f"Spark {spark.version} MLlib", tolerance=EXACT)
    cutoffs, count, worst = NUMBERS[2:], 0, 0.0
    for seed in seeds:
        random_ = random_queries(seed, Shape(grades=ANY_GRADE), n_queries=12)
        # An empty list has no type that Spark could find out.
        queries = {name: rows for name, rows in random_.items() if has_list_and_label(rows) and written.truth(rows)}
        theirs: Values = {}
        for query, rows in queries.items():
            one = ([row.item for row in written.shown(rows)], sorted(written.truth(rows)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # MLlib makes an SQLContext, which is deprecated
                metrics = RankingMetrics(spark.sparkContext.parallelize([one], 1))
            theirs |= {(query, k): metrics.ndcgAt(k) for k in cutoffs if k is not None}
        ours = score(queries, PRESETS["mllib_binary"], cutoffs)
        count, worst = count + len(theirs), max(worst, worst_difference(ours, theirs))
    return outcome(data=f"random, {len(seeds)} seeds", values=count, worst=worst)

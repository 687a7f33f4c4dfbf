"""The shared data through `ndcg_spark.evaluate` by either engine, against the same tools; and Spark's own MLlib."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace

from pyspark.sql import SparkSession

from ndcg_spark.conventions import PRESETS, Convention
from scripts.checks.peers import definitions as written
from scripts.checks.peers.comparisons import (
    COMPARISONS,
    NUMBERS,
    Comparison,
    Outcome,
    build_outcome,
    compute_differences,
    has_list_and_label,
    without_ties,
)
from scripts.checks.peers.data import (
    ANY_GRADE,
    Cutoff,
    Engine,
    Queries,
    Shape,
    SharedSet,
    Values,
    random_queries,
    score,
)
from scripts.checks.session import make_session

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
                yield evaluate_with_engine(engine, comparison, taken)
    finally:
        if spark is not None:
            spark.stop()


def evaluate_with_engine(engine: Engine, comparison: Comparison, sets: Sequence[SharedSet]) -> Outcome:
    """Evaluate all runs of all sets that the tool supports at once, with a unique name for each query."""
    cutoffs: Sequence[Cutoff] = tuple(k for k in comparison.cutoffs if k is not None) or comparison.cutoffs
    queries: Queries = {}
    theirs: Values = {}
    for data in sets:
        for run, run_queries in data.runs.items():
            compared = {query: rows for query, rows in run_queries.items() if comparison.domain(rows)}
            values = comparison.tool.call(compared, cutoffs)
            if not comparison.shape.ties:
                values = without_ties(values, compared)
            prefix = f"{data.name}/{run}/"
            theirs |= {(prefix + query, k): value for (query, k), value in values.items()}
            queries |= {
                prefix + query: [replace(row, query=prefix + query) for row in rows]
                for query, rows in compared.items()
            }
    ours = score(queries, Convention.parse(comparison.convention), cutoffs, engine)
    if not comparison.shape.ties:
        ours = without_ties(ours, queries)
    data_sets = f"{len(sets)} shared sets {ENGINES[engine]}"
    values = compute_differences(ours, theirs)
    return build_outcome(comparison.convention, data_sets, comparison.tool.title, values, comparison.tolerance)


def against_mllib(spark: SparkSession, seeds: Sequence[int]) -> Outcome:
    """MLlib itself, which gives means alone: one job a query and cutoff."""
    from pyspark.mllib.evaluation import RankingMetrics

    cutoffs, differences = NUMBERS[2:], list[float]()
    for seed in seeds:
        random_ = random_queries(seed, Shape(grades=ANY_GRADE), n_queries=12)
        # An empty list has no type that Spark could find out.
        queries = {name: rows for name, rows in random_.items() if has_list_and_label(rows) and written.truth(rows)}
        theirs: Values = {}
        for query, rows in queries.items():
            pair = ([row.item for row in written.rank_retrieved(rows)], sorted(written.truth(rows)))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # MLlib makes an SQLContext, which is deprecated
                metrics = RankingMetrics(spark.sparkContext.parallelize([pair], 1))
            theirs |= {(query, k): metrics.ndcgAt(k) for k in cutoffs if k is not None}
        differences += compute_differences(score(queries, PRESETS["mllib_binary"], cutoffs), theirs)
    return build_outcome("mllib_binary", f"random, {len(seeds)} seeds", f"Spark {spark.version} MLlib", differences)

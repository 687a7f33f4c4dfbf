"""Results of a Spark Connect client, printed as JSON; `test_connect.py` runs this script.

It needs its own process: pyspark chooses between classic sessions and Connect once.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ndcg_spark import add_package_to_workers, compare, dcg, evaluate, ndcg, read_table, readable_errors, report
from ndcg_spark.clicks import PropensitySettings, WeightSettings
from ndcg_spark.clicks.frames import estimate_impressions, fit_impressions, judge_impressions, list_propensities
from ndcg_spark.diagnosis import changed_queries, score_losses
from ndcg_spark.history import RollUpSettings
from ndcg_spark.history.frames import roll_up_table
from ndcg_spark.ml import NdcgEvaluator
from ndcg_spark.reports.sentences import write_headline
from support.comparing import example_1
from support.error_kinds import KINDS, catch_kind_error
from support.main_job import mean_ndcg
from support.reports import create_comparison_table, create_metrics_table, create_query_table

SCHEMA = "query_id string, item_id string, score double, relevance double"
GOOD = [("q", f"i{n}", -float(n), rel) for n, rel in enumerate((3.0, 2.0, 3.0, 0.0, 1.0, 2.0))]
NAN = [("q7", "a", math.nan, 1.0), ("q7", "b", 2.0, 0.0)]
CLICKS = [("q", item, k, int(n < clicks)) for item, k, clicks in (("a", 1, 6), ("a", 2, 3)) for n in range(10)]


def catch_error(action: Callable[[], object]) -> list[str]:
    """Return the class and text of the error that an action raises."""
    try:
        with readable_errors():
            action()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return []


def judge_clicks(log: DataFrame) -> dict[str, Any]:
    """Fit a click model, correct labels and estimate a mean."""
    fitted = fit_impressions(log, PropensitySettings(max_iter=6))
    table = list_propensities(fit_impressions(log, PropensitySettings(method="pairs")))
    labels = judge_impressions(log, WeightSettings(), table)
    (estimate,) = estimate_impressions(log, WeightSettings(power=1)).collect()
    return {
        "fitted": [row.asDict(recursive=True) for row in fitted.collect()],
        "labels": {row["item_id"]: row["relevance"] for row in labels.collect()},
        "estimate": [estimate["ips"], estimate["snips"]],
    }


def run_jobs(folder: Path, bad: DataFrame) -> dict[str, Any]:
    """Return the exit code and complaints of a job, for a bad row and for a corrupt file."""
    bad.write.parquet(str(folder / "bad"))
    (folder / "corrupt").mkdir()
    for path in (folder / "bad").glob("*.parquet"):
        (folder / "corrupt" / path.name).write_bytes(path.read_bytes())
    (folder / "corrupt" / "z.parquet").write_bytes(b"PAR1" + b"x" * 100)
    results = {}
    for name in ("bad", "corrupt"):
        ended = mean_ndcg("--input", folder / name, "--k", 3, "--strategy", "window")
        results[name] = [ended.code, ended.complaints]
    return results


def evaluate_paths(folder: Path, good: DataFrame) -> list[Any]:
    """Evaluate tables by path: means, the reader, a folder of two levels, partition folders."""
    for name in ("flat", "levels", "levels/s", "runs/run=007", "runs/run=7"):
        good.write.mode("append").parquet(str(folder / name))
    evaluation = evaluate(str(folder / "flat"), k=6, convention="linear")
    (mean,) = evaluation.summary.where("metric = 'ndcg'").collect()
    runs = evaluate(folder / "runs", run="run").summary.select("run").distinct().collect()
    levels = catch_error(lambda: evaluate(folder / "levels"))
    text = str(folder / "text.csv")
    good.write.option("header", True).csv(text)
    (text_mean,) = evaluate(text, k=6, convention="linear").summary.where("metric = 'ndcg'").collect()
    refused = catch_error(lambda: evaluate(read_table(text)))
    return [
        evaluation.ranking.source,
        [mean["value"], text_mean["value"]],
        levels,
        sorted(row["run"] for row in runs),
        refused,
    ]


def summarize_report(spark: SparkSession) -> list[Any]:
    """Summarize a report of literal tables."""
    contents = report(
        create_metrics_table(spark), per_query=create_query_table(spark), comparison=create_comparison_table(spark)
    ).contents
    (lost,) = contents.queries.losses
    counts = [sum(distribution.counts) for distribution in contents.queries.distributions]
    return [write_headline(contents), len(contents.segments.rows), counts, lost.query, len(contents.differences.rows)]


def run_comparisons(spark: SparkSession) -> dict[str, Any]:
    """Run the worked comparison, unclustered and clustered; count changed queries and losses."""
    rows = [("ab"[r["run"]], r["query"], 10, r["value"], r["user"]) for r in example_1()]
    table = spark.createDataFrame(rows, "run string, query_id string, k int, ndcg double, user string")
    results = {
        name: compare(table, baseline="a", metrics="ndcg", cluster=cluster).summary.collect()[0].asDict()
        for name, cluster in (("plain", None), ("clustered", "user"))
    }
    night = compare(table, baseline="a", metrics="ndcg", flips=99, keep_replicates=True).summary
    weeks = roll_up_table(night.selectExpr("date'2026-01-05' run_date", "*"), RollUpSettings(periods=("week",)))
    (week,) = weeks.select("independence", "difference", "boot_low", "n_days").collect()
    wide = [(f"q{n}", f"i{i}", float(-i), float((i * (n + 2)) % 7), i * n % 4) for n in range(1, 4) for i in range(4)]
    two = evaluate(
        spark.createDataFrame(wide, "query_id string, item_id string, old double, new double, relevance int"),
        score=["old", "new"], k=3,
    )  # fmt: skip
    changed = changed_queries(two, baseline="old", run="new").collect()
    lost = score_losses(two.rankings, two.settings).collect()
    sums = [row["ndcg"] + row["lost_not_retrieved"] + row["lost_ranked_low"] for row in lost]
    return {**results, "week": list(week), "changed": len(changed), "sums": sums}


def tune_als(spark: SparkSession) -> dict[str, Any]:
    """Tune ALS by `NdcgEvaluator`, save and load the evaluator; compare it with `evaluate`."""
    from pyspark.ml.recommendation import ALS
    from pyspark.ml.tuning import CrossValidator, ParamGridBuilder

    ratings = [(user, item, float(item % 4)) for user in range(6) for item in range(8)]
    table = spark.createDataFrame(ratings, "user int, item int, rating double").coalesce(1)
    als = ALS(userCol="user", itemCol="item", ratingCol="rating", rank=2, seed=1, maxIter=5)
    evaluator = NdcgEvaluator(
        queryCol="user", itemCol="item", labelCol="rating", k=3, missingPrediction="unretrieved"
    )
    grid = ParamGridBuilder().addGrid(als.maxIter, [0, 5]).build()
    fitted = CrossValidator(
        estimator=als, estimatorParamMaps=grid, evaluator=evaluator, numFolds=2, seed=1, parallelism=1
    ).fit(table)
    predictions = fitted.bestModel.transform(table)
    (mean,) = (
        evaluate(predictions, query="user", item="item", score="prediction", relevance="rating", k=3)
        .summary.where("metric = 'ndcg'")
        .collect()
    )
    with tempfile.TemporaryDirectory() as folder:
        evaluator.save(f"{folder}/evaluator")
        loaded = NdcgEvaluator.load(f"{folder}/evaluator")
    return {"metrics": fitted.avgMetrics, "ours": loaded.evaluate(predictions), "evaluate": mean["value"]}


def main(url: str) -> None:
    spark = SparkSession.builder.remote(url).getOrCreate()
    good, bad = (spark.createDataFrame(rows, SCHEMA) for rows in (GOOD, NAN))
    arrays = spark.createDataFrame([([3.0, 1.0], [3.0, 3.0])], "ranked array<double>, ideal array<double>")
    columns = arrays.select(ndcg("ranked"), ndcg(arrays["ranked"], "ideal", gain="linear"), dcg("ranked"))
    evaluation = evaluate(good, k=[1, 6], convention="linear")
    lacking = catch_error(evaluate(good).summary.collect)
    shipped = [add_package_to_workers(spark), add_package_to_workers(spark)]
    results = {
        "lacking": lacking,
        "shipped": shipped,
        "per_query": [[row["k"], row["dcg"], row["idcg"], row["ndcg"]] for row in evaluation.per_query.collect()],
        "means": {row["k"]: row["value"] for row in evaluation.summary.where("metric = 'ndcg'").collect()},
        "columns": [columns.columns, list(columns.collect()[0])],
        "clicks": judge_clicks(
            spark.createDataFrame(CLICKS, "query_id string, item_id string, position int, click int")
        ),
        "crash": catch_error(lambda: spark.sql("SELECT raise_error('boom')").collect())[1][:200],
    }
    results["ml"] = tune_als(spark)
    results["report"] = summarize_report(spark)
    results["comparisons"] = run_comparisons(spark)
    with tempfile.TemporaryDirectory() as folder:
        results["path"] = evaluate_paths(Path(folder) / "tables", good)
        results["jobs"] = run_jobs(Path(folder), bad)
        results["errors"] = {
            name: catch_kind_error(spark, name, Path(folder) / "errors" / str(n)) for n, name in enumerate(KINDS)
        }
    json.dump(results, sys.stdout)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])

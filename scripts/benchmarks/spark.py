"""Mean NDCG@k on Spark: by this library's public path, and by others with the preparation they need."""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

import ndcg_spark
from ndcg_spark.evaluation.settings import MAX_SHORT_K
from ndcg_spark.functions import ndcg_at
from ndcg_spark.jobs.session import build_local_settings


def make_session(memory: str, k: int, kind: str = "job") -> SparkSession:
    """Open the session that a job with the default convention would open, or a `plain` one, on two cores."""
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": memory,
        "spark.local.dir": str(Path(".bench/spark").absolute()),
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if kind == "job":
        of_job = build_local_settings(sys.executable, long_rows=k > MAX_SHORT_K)
        settings = of_job | settings | {"spark.sql.shuffle.partitions": "64"}
    return SparkSession.builder.appName("ndcg-spark bench").config(map=settings).getOrCreate()


def by_library(data: DataFrame | str, k: int, **options: object) -> float:
    """`evaluate`, as a notebook calls it, on a DataFrame or on the path of files."""
    evaluation = ndcg_spark.evaluate(data, k=options.pop("cutoffs", k), **options)
    mean = evaluation.summary.where(f"metric = 'ndcg' and segment_by = '' and k = {k}")
    return float(mean.collect()[0]["value"])


def by_library_with_six_cutoffs(rows: DataFrame, k: int) -> float:
    """Evaluate k and five smaller cutoffs in one pass."""
    return by_library(rows, k, cutoffs=sorted({max(1, k * tenths // 10) for tenths in (1, 2, 3, 5, 7)} | {k}))


TEN_METRICS = ("ndcg", "p", "r", "ap", "rr", "success", "err", "rbp", "cg", "p(rel=2)")


def by_library_with_ten_metrics(data: DataFrame | str, k: int, **options: object) -> float:
    """Ten metrics at three cutoffs, in one pass."""
    return by_library(data, k, cutoffs=sorted({1, max(1, k // 2), k}), metrics=TEN_METRICS, **options)


def by_library_with_judgments(rows: DataFrame, k: int, **options: object) -> float:
    """Evaluate the rows as a run without relevances, with the relevances in a judgments table."""
    judgments = rows.select("query_id", "item_id", "relevance")
    return by_library(rows.drop("relevance", "rank"), k, judgments=judgments, **options)


def by_window_code(rows: DataFrame, k: int) -> float:
    """Evaluate with usual window code: ranks by two windows, two sums, their ratio; ties in any order."""

    def gained(by: str) -> Column:
        rank = F.row_number().over(Window.partitionBy("query_id").orderBy(F.desc(by)))
        return F.when(rank <= k, (F.pow(F.lit(2.0), "relevance") - 1) / F.log2(rank + 1)).otherwise(0.0)

    terms = rows.select("query_id", gained("score").alias("dcg"), gained("relevance").alias("idcg"))
    values = terms.groupBy("query_id").agg(F.sum("dcg").alias("dcg"), F.sum("idcg").alias("idcg"))
    ndcg = F.when(F.col("idcg") > 0, F.col("dcg") / F.col("idcg")).otherwise(0.0)
    return float(values.agg(F.avg(ndcg)).collect()[0][0])


def by_aggregate(rows: DataFrame, k: int) -> float:
    """`ndcg_at` of `ndcg_spark.functions` in a query of one's own."""
    values = rows.groupBy("query_id").agg(ndcg_at("score", "relevance", k=k).alias("ndcg"))
    return float(values.agg(F.avg("ndcg")).collect()[0][0])


def by_ml_evaluator(rows: DataFrame, k: int) -> float:
    """`pyspark.ml` RankingEvaluator: binary labels, arrays of items, collected by hand."""
    from pyspark.ml.evaluation import RankingEvaluator

    evaluator = RankingEvaluator(predictionCol="prediction", labelCol="label", metricName="ndcgAtK", k=k)
    return float(evaluator.evaluate(_collect_items(rows, k)))


def by_mllib(rows: DataFrame, k: int) -> float:
    """`pyspark.mllib` RankingMetrics on an RDD: binary labels."""
    from pyspark.mllib.evaluation import RankingMetrics

    pairs = _collect_items(rows, k).rdd.map(lambda row: (row["prediction"], row["label"]))
    return float(RankingMetrics(pairs).ndcgAt(k))


def _collect_items(rows: DataFrame, k: int) -> DataFrame:
    """Collect the first k items by a window, and the relevant items, as is usually done."""
    by_score = Window.partitionBy("query_id").orderBy(F.col("score").desc(), "item_id")
    item = F.col("item_id").cast("double")
    top = rows.withColumn("place", F.row_number().over(by_score)).where(F.col("place") <= k)
    pairs = F.sort_array(F.collect_list(F.struct("place", item.alias("item"))))
    listed = top.groupBy("query_id").agg(pairs.alias("pairs"))
    prediction = listed.select("query_id", F.col("pairs").getField("item").alias("prediction"))
    label = rows.where("relevance > 0").groupBy("query_id").agg(F.collect_list(item).alias("label"))
    return prediction.join(label, "query_id")


def by_recommenders(rows: DataFrame, k: int) -> float:
    """Microsoft recommenders' SparkRankingEvaluation: binary labels."""
    from recommenders.evaluation.spark_evaluation import SparkRankingEvaluation

    columns = {"col_user": "query_id", "col_item": "item_id", "col_rating": "relevance", "col_prediction": "score"}
    evaluation = SparkRankingEvaluation(rows.where("relevance > 0"), rows, k=k, **columns)
    return float(evaluation.ndcg_at_k())

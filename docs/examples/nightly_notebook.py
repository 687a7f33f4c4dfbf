# Databricks notebook source
# MAGIC %md
# MAGIC # Ranking quality, last night
# MAGIC
# MAGIC Reads the metric table that `ndcg-spark mean-ndcg --output` or `write_night` writes every night: the means of
# MAGIC the last night, what moved since the night before, and where. Without a metric table it writes a small one,
# MAGIC two nights of a shop, and runs anywhere.
# MAGIC
# MAGIC Set the widget `metrics` to your table, such as `main.ranking.metrics`, and `dataset` to a data set. If
# MAGIC it is empty, the data set of the newest night is read.

# COMMAND ----------

# MAGIC %md
# MAGIC The next cell installs the wheel that `databricks.yml` copies to the folder `dist` beside this notebook. It is
# MAGIC the wheel of the nightly job. The packages that it needs here are part of Databricks.

# COMMAND ----------

# MAGIC %pip install --quiet --upgrade --no-index --no-deps --find-links ./dist ndcg-spark

# COMMAND ----------

# MAGIC %restart_python

# COMMAND ----------

# %%
# The `# %%` lines are cells of VS Code and Jupytext; Databricks takes the COMMAND lines.
from datetime import date
from tempfile import mkdtemp

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from ndcg_spark import evaluate, merge_summaries, read_table, write_night
from ndcg_spark.diagnosis import shift_of_means

spark = SparkSession.builder.getOrCreate()
on_databricks = "dbutils" in globals()
table = dataset = ""
if on_databricks:
    dbutils.widgets.text("metrics", "", "Metric table")  # noqa: F821  # Databricks has it
    dbutils.widgets.text("dataset", "", "Data set")  # noqa: F821  # Databricks has it
    table = dbutils.widgets.get("metrics")  # noqa: F821  # Databricks has it
    dataset = dbutils.widgets.get("dataset")  # noqa: F821  # Databricks has it


def show(frame):
    """A table to sort and plot on Databricks, text elsewhere."""
    if on_databricks:
        display(frame)  # noqa: F821  # Databricks has it
    else:
        frame.show(truncate=False)


# COMMAND ----------

# %%
# Two nights of a small shop, for a first look: the second ranks hats worse.
rows = [
    ("2026-01-30", "shoes", "DE", "a", 0.9, 3), ("2026-01-30", "shoes", "DE", "b", 0.8, 2),
    ("2026-01-30", "hats", "FR", "c", 0.9, 1), ("2026-01-30", "hats", "FR", "d", 0.5, 0),
    ("2026-01-31", "shoes", "DE", "a", 0.9, 3), ("2026-01-31", "shoes", "DE", "b", 0.8, 2),
    ("2026-01-31", "hats", "FR", "c", 0.4, 1), ("2026-01-31", "hats", "FR", "d", 0.5, 0),
]  # fmt: skip
if not table:
    table = f"{mkdtemp()}/metrics"
    columns = "night string, query_id string, country string, item_id string, score double, relevance int"
    rankings = spark.createDataFrame(rows, columns)
    for night in (date(2026, 1, 30), date(2026, 1, 31)):
        result = evaluate(rankings.where(F.col("night") == str(night)), k=[1, 10], segments="country")
        write_night({table: result.summary}, night=night, dataset="shop", stamps=result.provenance)
metrics = read_table(table)

# COMMAND ----------

# %%
# Read one data set, and of each run the nights with its newest configuration: others cannot be compared or merged.
if not dataset:
    dataset = metrics.orderBy(F.desc("run_date"), "dataset").select("dataset").first()[0]
newest = F.max_by("config_hash", "run_date").over(Window.partitionBy("run"))
metrics = metrics.where(F.col("dataset") == dataset).withColumn("newest", newest)
metrics = metrics.where(F.col("config_hash").eqNullSafe(F.col("newest"))).drop("newest")

# COMMAND ----------

# MAGIC %md
# MAGIC ## The last night
# MAGIC
# MAGIC `value` is the mean over `n_queries` queries, `ci_low` to `ci_high` its interval.

# COMMAND ----------

# %%
last = metrics.agg(F.max("run_date")).first()[0]
overall = metrics.where((F.col("segment_by") == "") & (F.col("metric") == "ndcg"))
show(
    overall.where(F.col("run_date") == last)
    .select("dataset", "run", "k", "value", "ci_low", "ci_high", "n_queries")
    .orderBy("dataset", "run", "k")
)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Since the night before
# MAGIC
# MAGIC Segments whose mean has changed the most come first. After a change of the configuration, there is no night to
# MAGIC compare with. `ndcg-spark diagnose` and `report` say more.

# COMMAND ----------

# %%
before = metrics.where(F.col("run_date") < last).agg(F.max("run_date")).first()[0]
shifts = shift_of_means(metrics.where(F.col("run_date") == before), metrics.where(F.col("run_date") == last))
changes = shifts.where("metric = 'ndcg' and not is_total").selectExpr(
    "run", "segment_by", "segment", "k", "value_before", "value_after", "value_after - value_before difference"
)
show(changes.where("difference is not null").orderBy(F.abs("difference").desc(), "run", "segment", "k").limit(20))

# COMMAND ----------

# MAGIC %md
# MAGIC ## All nights of this configuration as one
# MAGIC
# MAGIC Means of nights are added from their exact sums, without reading rankings again.

# COMMAND ----------

# %%
merged = merge_summaries(metrics).where("metric = 'ndcg' and segment_by = ''")
show(merged.select("run", "k", "value", "n_queries").orderBy("run", "k"))

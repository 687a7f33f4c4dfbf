# Databricks notebook source
# MAGIC %md
# MAGIC # A first evaluation
# MAGIC
# MAGIC Two rankers of a small shop: their NDCG by country, who is better, what errors say, and how to keep a night.
# MAGIC Runs on Databricks, in Jupyter and in VS Code, once the package is installed.

# COMMAND ----------

# %%
# The `# %%` lines are cells of VS Code and Jupytext; Databricks takes the COMMAND lines.
import math
from datetime import date
from tempfile import mkdtemp

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

from ndcg_spark import compare, evaluate, read_table, readable_errors, report, write_night
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.evaluation import explain_ranks

spark = SparkSession.builder.getOrCreate()
columns = ["ranker", "query_id", "country", "device", "item_id", "score", "relevance"]
rows = []
for n in range(40):
    query = (f"q{n}", "FR" if n % 2 else "DE", "phone" if n % 5 == 0 else "desktop")
    good = {"bm25": 0.5 if n % 4 == 3 else 0.9, "neural": 0.9}  # half of what bm25 finds in FR is second
    for ranker, score in good.items():
        rows += [(ranker, *query, "a", score, 3.0), (ranker, *query, "b", 0.8, 0.0)]
rankings = spark.createDataFrame(rows, columns)

# COMMAND ----------

# MAGIC %md
# MAGIC ## Means
# MAGIC
# MAGIC A result says what it will compute; nothing runs before `show`, `to_pandas`, or an action on one of its
# MAGIC DataFrames. In a notebook, `result` at the end of a cell is a table once it has been shown.

# COMMAND ----------

# %%
result = evaluate(rankings, k=[1, 3], run="ranker", segments="country")
print(result)
result.show()
table = result.to_pandas()
result.means().where("metric = 'ndcg@3'").show()  # a DataFrame of Spark, as are summary, per_query and rankings

# COMMAND ----------

# MAGIC %md
# MAGIC ## Other tables
# MAGIC
# MAGIC A run and judgments apart, and tables of pandas, polars or Arrow, which are evaluated without Spark: their
# MAGIC results are tables of Arrow. A cutoff is a number, a list, or text; segments are a column, or several, with
# MAGIC `+` for both together.

# COMMAND ----------

# %%
frame = pd.DataFrame(rows, columns=columns)
run = frame[frame.ranker == "bm25"].drop(columns=["relevance", "ranker"])
qrels = pa.table({"query_id": [f"q{n}" for n in range(40)], "item_id": ["a"] * 40, "relevance": [3.0] * 40})
evaluate(run, qrels, k="1,3").show()
evaluate(frame, k=3, run="ranker", segments=["country", "country+device"]).show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Who is better, and where

# COMMAND ----------

# %%
comparison = compare(result, baseline="bm25", runs="neural", k=3, metrics="ndcg")
print(comparison)
comparison.show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## One query

# COMMAND ----------

# %%
one = explain_ranks(rankings.where("query_id = 'q3' AND ranker = 'bm25'"))
one.select("item", "relevance", "rank", "gain", "discount", "ideal_rank").orderBy("rank").show()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Errors
# MAGIC
# MAGIC Errors are one line. A wrong argument or column is refused at once. Bad rows are found by the action: `show`
# MAGIC and `to_pandas` count them; any other action names the first, in one line inside `readable_errors`.

# COMMAND ----------

# %%
bad = frame.assign(score=frame.score.where(frame.query_id != "q3", math.nan))
attempts = {
    "a name": lambda: evaluate(rankings, segment="country"),
    "a column": lambda: evaluate(rankings, score="scores"),
    "a cutoff": lambda: evaluate(rankings, k=0),
    "bad rows": lambda: evaluate(bad, run="ranker").show(),
    "bad rows of a comparison": lambda: compare(evaluate(bad, run="ranker"), baseline="bm25").show(),
    "a run": lambda: compare(result, baseline="bm52"),
}
for what, attempt in attempts.items():
    try:
        attempt()
    except NdcgSparkError as error:
        print(f"{what}: {error}")
try:
    with readable_errors():
        evaluate(spark.createDataFrame(bad), run="ranker").per_query.collect()
except NdcgSparkError as error:
    print(f"any action: {error}")
evaluate(bad, run="ranker", on_invalid="reject", k=3).show()  # without such rows

# COMMAND ----------

# MAGIC %md
# MAGIC ## A night
# MAGIC
# MAGIC `write_night` writes all tables or none, in place of what they had of that night and data set; then a page for
# MAGIC people. On Databricks, give names of tables instead of folders.

# COMMAND ----------

# %%
folder, night = mkdtemp(), date(2026, 1, 31)
write_night(
    {f"{folder}/metrics": result.summary, f"{folder}/queries": result.per_query_table},
    night=night,
    dataset="shop",
    stamps=result.provenance,
)
read_table(f"{folder}/queries", night=night, dataset="shop").where("k = 3 AND ndcg < 1").select(
    "run", "query_id", "ndcg"
).show(3)
page = report(result, comparison=comparison, baseline="bm25")
print(page)
page.save(f"{folder}/night.html")

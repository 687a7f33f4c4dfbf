# Databricks notebook source
# MAGIC %md
# MAGIC # How good is a retriever?
# MAGIC
# MAGIC From a table of retrieved chunks, as a vector search returns them, and one of relevant chunks: NDCG, recall,
# MAGIC and the share of what was retrieved that is judged. For any number of questions; runs on Databricks, in
# MAGIC Jupyter and in VS Code, after `pip install ".[compare,mlflow]"` in a clone.

# COMMAND ----------

# %%
# The `# %%` lines are cells of VS Code and Jupytext; Databricks takes the COMMAND lines.
import mlflow
from pyspark.sql import SparkSession

from ndcg_spark import compare, evaluate
from ndcg_spark.mlflow import log_evaluation

spark = SparkSession.builder.getOrCreate()
questions = ["how do I reset my password", "which plans are there", "where is my invoice", "who can see my data"]
found, labels = [], []
for n, question in enumerate(questions):
    for rank, chunk in enumerate((f"doc{n}-2", f"doc{n}-1", f"faq{n}", "intro")):
        found.append(("small chunks", question, chunk, 0.9 - 0.1 * rank))
        found.append(("large chunks", question, chunk, 0.6 + 0.1 * rank if n < 3 else 0.9 - 0.1 * rank))
    labels += [
        (question, f"doc{n}-1", 2),
        (question, f"faq{n}", 1),
        (question, f"doc{n}-2", 0),
        (question, f"old{n}", 1),
    ]
retrieved = spark.createDataFrame(found, "index string, question string, chunk_id string, search_score double")
relevant = spark.createDataFrame(labels, "question string, chunk_id string, relevance int")

# COMMAND ----------

# MAGIC %md
# MAGIC Take your tables in place of these: `retrieved = spark.table("rag.retrieved")`. Where relevant ids have no
# MAGIC grade, add a column `relevance` with 1. A grade of 0 says that somebody looked, and it is not relevant.
# MAGIC `old0` is relevant and was not retrieved: recall and the ideal list know of it.

# COMMAND ----------

# %%
result = evaluate(
    retrieved, relevant, query="question", item="chunk_id", score="search_score", run="index",
    metrics=["ndcg@3", "r@3", "judged@3"],
)  # fmt: skip
result.show()

# COMMAND ----------

# MAGIC %md
# MAGIC Where `judged@3` is low, the other numbers say little: judge more of what was retrieved. These questions fare
# MAGIC worst:

# COMMAND ----------

# %%
result.per_query.select("run", "question", "ndcg", "r", "judged").orderBy("ndcg", "run", "question").show(
    3, truncate=False
)

# COMMAND ----------

# %%
compare(result, baseline="small chunks").show()

# COMMAND ----------

# MAGIC %md
# MAGIC In a run of MLflow: the means, the convention, and the values of each question as an artifact.

# COMMAND ----------

# %%
with mlflow.start_run(run_name="retriever") as logged:
    log_evaluation(result)

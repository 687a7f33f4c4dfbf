"""The example of the README as a program: `python docs/examples/ten_lines.py`, in an environment with Spark."""

from pyspark.sql import SparkSession

from ndcg_spark import evaluate

spark = SparkSession.builder.getOrCreate()
shoes = [("shoes", "a", 0.9, 3), ("shoes", "b", 0.8, 2), ("shoes", "c", 0.7, 3), ("shoes", "d", 0.6, 0)]
rows = [*shoes, ("hats", "e", 0.9, 0), ("hats", "f", 0.5, 1)]
rankings = spark.createDataFrame(rows, "query_id string, item_id string, score double, relevance int")

result = evaluate(rankings, k=[1, 3])
result.show()
result.per_query.select("query_id", "k", "dcg", "idcg", "ndcg").orderBy("query_id", "k").show()

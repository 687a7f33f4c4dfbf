"""Print the statements that create the SQL functions: `python -m ndcg_spark.functions > functions.sql`."""

from ndcg_spark.functions.statements import sql

if __name__ == "__main__":
    print(sql(), end="")

"""`python -m ndcg_spark.functions > functions.sql` writes the statements that create the functions for SQL."""

from ndcg_spark.functions.statements import sql

if __name__ == "__main__":
    print(sql(), end="")

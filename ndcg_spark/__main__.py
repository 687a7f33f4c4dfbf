"""`python -m ndcg_spark`: the console command, where its script is not on the path."""

from ndcg_spark.main import run

if __name__ == "__main__":
    run()

"""NDCG on Apache Spark."""

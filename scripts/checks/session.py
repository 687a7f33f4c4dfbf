"""The session of checks that need nothing of Spark but answers."""

from pyspark.sql import SparkSession
from support.spark_rankings import SHORT_LIVED

from ndcg_spark.jobs import worker_daemon


def make_session() -> SparkSession:
    """Open a small, quiet local session with little planning."""
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.driver.host": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **worker_daemon.SETTINGS,
    }
    return SparkSession.builder.master("local[2]").appName("ndcg-spark check").config(map=settings).getOrCreate()

#!/usr/bin/env bash
# A night on YARN: spark_submit_yarn.sh 2026-01-31 [options of nightly]
#
# /opt/ndcg-spark, or the folder in NDCG_SPARK_HOME, holds
#   night_tables.toml    steps of the night
#   jobs/                of this repository
#   ndcg_spark.zip       dist/ndcg_spark.zip, which scripts/package makes
#   environment.tar.gz   a virtual environment with numpy, pandas and pyarrow, packed by venv-pack or conda-pack
#
# Client mode passes the exit code of the job on: 0 done, 2 refused, 3 a gate was not met. The driver runs python3 of
# this machine, which needs numpy, pandas, pyarrow, click and rich, and for the step report matplotlib, Jinja2 and
# SciPy. With --deploy-mode cluster, spark-submit ends with 1 for all but 0; the driver needs --files
# night_tables.toml, all of these packages in environment.tar.gz, and
# spark.pyspark.driver.python=./environment/bin/python.
set -euo pipefail
night=${1:?usage: spark_submit_yarn.sh YYYY-MM-DD [options of nightly]}
shift
cd "${NDCG_SPARK_HOME:-/opt/ndcg-spark}"

# spark.sql.catalogImplementation=hive: tables of the Hive metastore in hive-site.xml. Clusters with an Iceberg, Delta
# or Glue catalog set theirs instead (docs/clusters.md, Catalog tables).
# spark.yarn.maxAppAttempts=1: in cluster mode, YARN would run a job that ended with 2 or 3 a second time.
exec spark-submit \
    --master yarn \
    --deploy-mode client \
    --name "ranking metrics $night" \
    --queue nightly \
    --num-executors 8 \
    --executor-cores 4 \
    --executor-memory 8g \
    --driver-memory 4g \
    --conf spark.executor.memoryOverhead=4g \
    --conf spark.yarn.maxAppAttempts=1 \
    --conf spark.sql.catalogImplementation=hive \
    --conf spark.sql.session.timeZone=UTC \
    --conf spark.sql.execution.arrow.maxBytesPerBatch=2147483647 \
    --conf spark.pyspark.driver.python=python3 \
    --conf spark.pyspark.python=./environment/bin/python \
    --archives environment.tar.gz#environment \
    --py-files ndcg_spark.zip \
    jobs/nightly.py \
    --config night_tables.toml \
    --run-date "$night" \
    "$@"

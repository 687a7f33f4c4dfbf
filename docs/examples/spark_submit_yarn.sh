#!/usr/bin/env bash
# The nightly job on YARN: spark_submit_yarn.sh 2026-01-31
#
# Client mode passes the exit code of the job on: 0 done, 2 refused, 3 a gate was not met. With --deploy-mode cluster,
# spark-submit ends with 1 for all but 0, and run.toml needs --files run.toml.
# environment.tar.gz is a virtual environment with numpy, pandas and pyarrow, packed by venv-pack or conda-pack.
set -euo pipefail
night=${1:?usage: spark_submit_yarn.sh YYYY-MM-DD [options of mean-ndcg]}
shift

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
    --conf spark.sql.session.timeZone=UTC \
    --conf spark.sql.execution.arrow.maxBytesPerBatch=2147483647 \
    --conf spark.pyspark.driver.python=python3 \
    --conf spark.pyspark.python=./environment/bin/python \
    --archives environment.tar.gz#environment \
    --py-files ndcg_spark.zip \
    jobs/mean_ndcg.py \
    --config run.toml \
    --run-date "$night" \
    --input "SELECT * FROM prod.rankings WHERE run_date = DATE'$night'" \
    "$@"

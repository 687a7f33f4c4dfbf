"""A night as a task of Airflow 2 or 3 (apache-airflow-providers-apache-spark).

The files of this folder, `jobs/` and `ndcg_spark.zip` (`scripts/package` makes it in `dist`) are in /opt/ndcg-spark
on the machines that run tasks. The job runs in client mode: the driver is on such a machine. Its Python needs numpy,
pandas, pyarrow, click and rich, and for the step `report` also matplotlib, Jinja2 and SciPy (in a clone `pip install
".[report]"`). That step writes its page to a folder of the machine; mount a shared one if there are several.

A night, `{{ ds }}`, is the day on which the data interval of a run begins. Clear a run in the web page to evaluate
its night again and replace its rows. A run that is started by hand needs the logical date of its night. Earlier
nights are a backfill, which Airflow 3 lists with --dry-run:

    airflow backfill create --dag-id ranking_metrics --from-date 2026-01-01 --to-date 2026-02-01          # Airflow 3
    airflow dags backfill --start-date 2026-01-01 --end-date 2026-02-01 ranking_metrics                   # Airflow 2
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.timetables.interval import CronDataIntervalTimetable

HOME = "/opt/ndcg-spark"

with DAG(
    "ranking_metrics",
    # A cron string means another timetable in Airflow 3, whose `ds` is the day on which the run starts.
    schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1),
    catchup=False,  # else the first start would evaluate every night since start_date; see above for a backfill
    max_active_runs=2,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=10)},
):
    SparkSubmitOperator(
        task_id="nightly",
        name="ranking metrics {{ ds }}",
        application=f"{HOME}/jobs/nightly.py",
        py_files=f"{HOME}/ndcg_spark.zip",
        deploy_mode="client",
        conf={
            # Tables of the Hive metastore in hive-site.xml. Clusters with an Iceberg, Delta or Glue catalog set
            # theirs instead (docs/clusters.md, Catalog tables).
            "spark.sql.catalogImplementation": "hive",
            "spark.sql.session.timeZone": "UTC",
            "spark.executor.memoryOverhead": "4g",
            "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        },
        num_executors=8,
        executor_cores=4,
        executor_memory="8g",
        application_args=[
            "--config", f"{HOME}/night_tables.toml",
            "--run-date", "{{ ds }}",
            "--log-format", "json",
        ],
    )  # fmt: skip

"""The nightly jobs as an Airflow DAG (apache-airflow-providers-apache-spark and -standard).

The files of this folder, `jobs/` and `ndcg_spark.zip` lie in /opt/ndcg-spark. A night is the data interval of a run:
to clear a run in the web page, or a backfill, evaluates an old night again and replaces its rows.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow import DAG
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.empty import EmptyOperator

HOME = "/opt/ndcg-spark"
SPARK = {
    "spark.executor.memoryOverhead": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
}

with DAG(
    "ranking_metrics",
    schedule="30 3 * * *",
    start_date=datetime(2026, 1, 1),
    catchup=True,
    max_active_runs=2,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=10)},
):
    mean_ndcg = SparkSubmitOperator(
        task_id="mean_ndcg",
        name="ranking metrics {{ ds }}",
        application=f"{HOME}/jobs/mean_ndcg.py",
        py_files=f"{HOME}/ndcg_spark.zip",
        conf=SPARK,
        num_executors=8,
        executor_cores=4,
        executor_memory="8g",
        application_args=[
            "--config", f"{HOME}/run.toml",
            "--run-date", "{{ ds }}",
            "--input", "SELECT * FROM prod.rankings WHERE run_date = DATE'{{ ds }}'",
            "--log-format", "json",
        ],
    )  # fmt: skip
    flag_changes = SparkSubmitOperator(
        task_id="flag_changes",
        application=f"{HOME}/jobs/flag_changes.py",
        py_files=f"{HOME}/ndcg_spark.zip",
        application_args=["--config", f"{HOME}/run.toml", "--from", "{{ ds }}", "--to", "{{ ds }}"],
        trigger_rule="all_done",  # a missed gate ends mean_ndcg with 3; its metrics are written
    )
    report = SparkSubmitOperator(
        task_id="report",
        application=f"{HOME}/jobs/report.py",
        py_files=f"{HOME}/ndcg_spark.zip",
        application_args=[
            "--config", f"{HOME}/run.toml",
            "--run-date", "{{ ds }}",
            "--output", "/var/www/ranking/{{ ds }}.html",
        ],
        trigger_rule="all_done",
    )  # fmt: skip
    # When all is over, also when a job has failed: a night that is missing or red is reported here.
    alerts = SparkSubmitOperator(
        task_id="alerts",
        application=f"{HOME}/run_alerts.py",
        application_args=["{{ ds }}"],
        trigger_rule="all_done",
        retries=0,
    )
    # Airflow judges a run by its leaf tasks alone. This one depends on all others and, unlike them, runs only if all
    # succeeded; otherwise it is upstream_failed, and the run has failed.
    all_succeeded = EmptyOperator(task_id="all_succeeded")
    mean_ndcg >> flag_changes >> report >> alerts
    [mean_ndcg, flag_changes, report, alerts] >> all_succeeded

"""The nightly jobs as an Airflow DAG, for Airflow 2 and 3 (apache-airflow-providers-apache-spark and -standard).

The files of this folder, `jobs/` and `ndcg_spark.zip` (`scripts/package` makes it in `dist`) lie in /opt/ndcg-spark
on the machines that run tasks. Jobs run in client mode: the driver is on such a machine. Its Python needs numpy,
pandas, pyarrow, click and rich, and for the task `report` also matplotlib and Jinja2 (`pip install
"ndcg-spark[report]"`). That task writes its page to a folder of the machine; mount a shared one if there are several.

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
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.timetables.interval import CronDataIntervalTimetable

HOME = "/opt/ndcg-spark"
SESSION = {
    # Tables of the Hive metastore in hive-site.xml. Clusters with an Iceberg, Delta or Glue catalog set theirs
    # instead (docs/clusters.md, Catalog tables).
    "spark.sql.catalogImplementation": "hive",
    "spark.sql.session.timeZone": "UTC",
}

with DAG(
    "ranking_metrics",
    # A cron string means another timetable in Airflow 3, whose `ds` is the day on which the run starts.
    schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1),
    catchup=False,  # else the first start would evaluate every night since start_date; see above for a backfill
    max_active_runs=2,
    default_args={"retries": 1, "retry_delay": timedelta(minutes=10)},
):
    mean_ndcg = SparkSubmitOperator(
        task_id="mean_ndcg",
        name="ranking metrics {{ ds }}",
        application=f"{HOME}/jobs/mean_ndcg.py",
        py_files=f"{HOME}/ndcg_spark.zip",
        deploy_mode="client",
        conf=SESSION
        | {
            "spark.executor.memoryOverhead": "4g",
            "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
        },
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
        deploy_mode="client",
        conf=SESSION,
        application_args=["--config", f"{HOME}/run.toml", "--from", "{{ ds }}", "--to", "{{ ds }}"],
        trigger_rule="all_done",  # a missed gate ends mean_ndcg with 3; its metrics are written
    )
    report = SparkSubmitOperator(
        task_id="report",
        application=f"{HOME}/jobs/report.py",
        py_files=f"{HOME}/ndcg_spark.zip",
        deploy_mode="client",
        conf=SESSION,
        application_args=[
            "--config", f"{HOME}/run.toml",
            "--run-date", "{{ ds }}",
            "--output", "/var/www/ranking/{{ ds }}.html",
        ],
        trigger_rule="all_done",
    )  # fmt: skip
    # When all is over, also when a job has failed: a night that is missing or red is reported here. No job of the
    # night runs any more, so one that has not ended was killed: --hours 0.
    alerts = SparkSubmitOperator(
        task_id="alerts",
        application=f"{HOME}/run_alerts.py",
        deploy_mode="client",
        conf=SESSION,
        application_args=["{{ ds }}", "--hours", "0"],
        trigger_rule="all_done",
        retries=0,
    )
    # Airflow judges a run by its leaf tasks alone. This one depends on all others and, unlike them, runs only if all
    # succeeded; otherwise it is upstream_failed, and the run has failed.
    all_succeeded = EmptyOperator(task_id="all_succeeded")
    mean_ndcg >> flag_changes >> report >> alerts
    [mean_ndcg, flag_changes, report, alerts] >> all_succeeded

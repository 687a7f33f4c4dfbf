"""Run the alerts of a folder for a night, and exit with 3 if one of them has rows.

spark-submit --conf spark.sql.catalogImplementation=hive run_alerts.py 2026-01-31 [FOLDER] [--hours 6]

The default folder is `alerts`, beside this file. A job that has not ended after `--hours` is an alarm. Use 0 where
all jobs of the night are over, as in a task that runs after them: a job that has not ended by then was killed.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from pyspark.sql import Row, SparkSession

# `rejected_share` must be below `max-reject-fraction` of night_tables.toml: a job that rejects more is refused.
BOUNDS = {"metric": "ndcg", "k": 10, "bound": 0.40, "least_drop": 0.005, "share": 0.05, "rejected_share": 0.001}


def run_alerts(
    spark: SparkSession,
    night: date,
    tables: dict[str, str] | None = None,
    *,
    folder: Path | None = None,
    hours: int = 6,
) -> dict[str, list[Row]]:
    """Rows of every alert; `tables` has other names for prod.ranking_metrics and prod.run_log."""
    if folder is None:
        folder = Path(__file__).resolve().parent / "alerts"  # Databricks has no __file__: name the folder there
    found = {}
    for path in sorted(folder.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        for name, other in (tables or {}).items():
            text = text.replace(name, other)
        bounds = {name: value for name, value in {**BOUNDS, "hours": hours}.items() if f":{name}" in text}
        found[path.stem] = spark.sql(text, args={"night": night, **bounds}).collect()
    return found


def parsed(words: Sequence[str]) -> Namespace:
    """The arguments of the command line."""
    parser = ArgumentParser("run_alerts.py", description="Run the alerts of a night; exit with 3 if one has rows.")
    parser.add_argument("night", type=date.fromisoformat)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--hours", type=int, default=6, help="after which a job that has not ended is an alarm")
    return parser.parse_args(words)


if __name__ == "__main__":
    options = parsed(sys.argv[1:])
    session = SparkSession.builder.getOrCreate()
    rows = run_alerts(session, options.night, folder=options.folder, hours=options.hours)
    if not rows:
        sys.exit("there are no alerts in the folder")
    for name, alarms in rows.items():
        for alarm in alarms:
            print(f"ALERT {name}: {alarm}")
    if any(rows.values()):
        sys.exit(3)

"""Run the alerts of a folder for a night, and exit with 3 if one of them has rows.

spark-submit run_alerts.py 2026-01-31 [FOLDER]

The default folder is `alerts`, beside this file.
"""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path

from pyspark.sql import Row, SparkSession

BOUNDS = {"metric": "ndcg", "k": 10, "bound": 0.40, "least_drop": 0.005, "share": 0.05, "hours": 6}


def run_alerts(
    spark: SparkSession, night: date, tables: dict[str, str] | None = None, *, folder: Path | None = None
) -> dict[str, list[Row]]:
    """Rows of every alert; `tables` has other names for prod.ranking_metrics and prod.run_log."""
    if folder is None:
        folder = Path(__file__).resolve().parent / "alerts"  # Databricks has no __file__: name the folder there
    found = {}
    for path in sorted(folder.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        for name, other in (tables or {}).items():
            text = text.replace(name, other)
        bounds = {name: value for name, value in BOUNDS.items() if f":{name}" in text}
        found[path.stem] = spark.sql(text, args={"night": night, **bounds}).collect()
    return found


if __name__ == "__main__":
    night, *folders = sys.argv[1:]
    session = SparkSession.builder.getOrCreate()
    rows = run_alerts(session, date.fromisoformat(night), folder=Path(folders[0]) if folders else None)
    if not rows:
        sys.exit("there are no alerts in the folder")
    for name, alarms in rows.items():
        for alarm in alarms:
            print(f"ALERT {name}: {alarm}")
    if any(rows.values()):
        sys.exit(3)

"""Tables of a Hive metastore: a session with one needs a Java of its own, so this runs in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.spark_rankings import SHORT_LIVED

pytestmark = [pytest.mark.spark, pytest.mark.classic("processes with sessions of their own")]
PROGRAM = f"""
import json, sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pyspark.sql import SparkSession
from ndcg_spark.errors import OutputRefusedError
from ndcg_spark.tables import Rows, Slices, write_together

root = sys.argv[1]
spark = SparkSession.builder.master("local[2]").enableHiveSupport().config(map={{
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f'"-Dderby.system.home={{root}}/derby" {SHORT_LIVED}',
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.warehouse.dir": f"{{root}}/warehouse",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}}).getOrCreate()
night = Slices.for_night(date(2026, 1, 31), "shop", [""])
other = Slices.for_night(date(2026, 1, 31), "app", [""])
columns = "run STRING, value INT, dataset STRING"
hive = f"({{columns}}) PARTITIONED BY (run_date DATE, slice STRING) STORED AS"
spark.sql(f"CREATE TABLE as_hive_parquet {{hive}} PARQUET")
spark.sql(f"CREATE TABLE as_hive_orc {{hive}} ORC")
spark.sql(f"CREATE TABLE as_hive_text {{hive}} TEXTFILE")


def write(table, value, slices=night, *more):
    rows = spark.createDataFrame([("", value)] * 3, "run string, value int").repartition(2).selectExpr("*", *more)
    if value < 0:
        rows = rows.selectExpr("run", "CAST(raise_error('broken row') AS INT) AS value")
    try:
        write_together([Rows(frame=rows, slices=slices, reference=table, kind="table")])
    except OutputRefusedError as error:
        return str(error)
    return "done"


found = {{}}
for table in ("as_hive_parquet", "as_hive_orc", "created"):
    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(write, (table, table), (1, 2), (night, other)))
    told += [write(table, -1), write(table, 3), write(table, -1)]
    counted = spark.table(table).groupBy("dataset", "value").count().collect()
    # Hive knows the new column by its name in small letters.
    grown = [write(table, 3, night, "'x' AS Grown"), write(table, 2, other), write(table, 3, night, "'y' AS Grown")]
    grown += sorted(map(list, spark.table(table).groupBy("dataset", "grown").count().collect()))
    found[table] = told, sorted(map(list, counted)), grown
found["as_hive_text"] = [write("as_hive_text", 1)], [], []
print(json.dumps(found))
spark.stop()
"""


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hive")
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": str(root), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-c", PROGRAM, str(folder)]
    ended = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("table", ["as_hive_parquet", "as_hive_orc", "created"])
def test_slices_of_a_hive_table_are_replaced_whole(found, table):
    message, counted, _ = found[table]
    assert counted == [["app", 2, 3], ["shop", 3, 3]]
    assert [message[at] for at in (0, 1, 3)] == ["done"] * 3
    assert all("broken row" in message[at] for at in (2, 4))


@pytest.mark.parametrize("table", ["as_hive_parquet", "as_hive_orc", "created"])
def test_a_hive_table_gets_a_column(found, table):
    *_, grown = found[table]
    assert grown == ["done"] * 3 + [["app", None, 3], ["shop", "y", 3]]


def test_a_hive_table_of_text_is_refused(found):
    (message,), *_ = found["as_hive_text"]
    assert "as_hive_text" in message
    assert "parquet and orc" in message

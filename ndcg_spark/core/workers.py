"""Functions and schemas for Python workers, and the package sent to them."""

from __future__ import annotations

import hashlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from inspect import signature
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ndcg_spark.core.batches import EXCHANGE_SCHEMA, REFUSAL, BatchFunction, WorkerFunction, WorkerTask
from ndcg_spark.core.columns import raise_if
from ndcg_spark.core.failures import (
    HOW_TO_INSTALL,
    HOW_TO_SHIP,
    SPARK_ERRORS,
    WORKERS_RUN,
    first_line,
    readable_errors,
)
from ndcg_spark.core.package import PACKAGE, package_zip
from ndcg_spark.core.session import runs_locally, session_time_zone
from ndcg_spark.errors import InputRefusedError, NdcgSparkError


def in_workers(
    frame: DataFrame,
    function: WorkerFunction,
    *task: Any,
    schema: T.StructType | str,
    keep_refusals: bool = False,
) -> DataFrame:
    """Run `function(batches, *task)` on the Arrow batches of each partition; lazy.

    With `keep_refusals`, or if `frame` has kept some, a refusal is a row with a text in the column `REFUSAL`, until
    `raise_refusals` or `collect`; otherwise the action raises it.
    """
    if not keep_refusals and REFUSAL not in frame.columns:
        return frame.mapInArrow(_pack(WorkerTask(function, task)), schema=schema)
    if isinstance(schema, str):
        raise TypeError("refusals are kept beside columns of a StructType.")
    work = WorkerTask(function, task, arrow_schema(schema, frame.sparkSession))
    with_refusals = T.StructType([*schema.fields, T.StructField(REFUSAL, T.StringType())])
    return frame.mapInArrow(_pack(work), schema=with_refusals)


def filter_rows(frame: DataFrame, condition: Column) -> DataFrame:
    """Keep rows for which a condition holds, and refusals. Lazy."""
    return frame.where(condition | F.col(REFUSAL).isNotNull() if REFUSAL in frame.columns else condition)


def raise_refusals(frame: DataFrame) -> DataFrame:
    """Raise kept refusals where an action meets one, and drop their column. Lazy."""
    if REFUSAL not in frame.columns:
        return frame
    refused = F.col(REFUSAL)
    # Spark moves no later filter below this number, as it may differ from run to run; the filter could drop the row.
    is_refusal = refused.isNotNull() & (F.spark_partition_id() >= 0)
    return frame.where(raise_if(F.lit(True), is_refusal, refused, kind="boolean")).drop(REFUSAL)


def collect(frame: DataFrame) -> list[Row]:
    """Run an action: collect rows. Kept refusals are raised here, so that Spark logs no failed task."""
    with readable_errors():
        rows = frame.collect()
    if REFUSAL not in frame.columns:
        return rows
    refused = [row[REFUSAL] for row in rows if row[REFUSAL] is not None]
    if refused:
        raise InputRefusedError(min(refused))
    names = [name for name in frame.columns if name != REFUSAL]
    return [Row(**{name: row[name] for name in names}) for row in rows]


def _pack(function: BatchFunction) -> BatchFunction:
    """Pack a function for Python workers. The packed one uses nothing of this package, so any worker can load it.

    Workers that lack this package raise with the Python they run.
    """
    content: bytes = cloudpickle.dumps(function)  # type: ignore[no-untyped-call]  # it has no types
    here, host = sys.executable, socket.gethostname()
    on_connect = "SPARK_CONNECT_MODE_ENABLED" in os.environ or "SPARK_REMOTE" in os.environ
    workers_run, ship, install = WORKERS_RUN, HOW_TO_SHIP, HOW_TO_INSTALL

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pickle
        import socket
        import sys

        try:
            work: BatchFunction = pickle.loads(content)
        except ModuleNotFoundError as error:
            lacks = str(error.name).partition(".")[0]
            if on_connect or socket.gethostname() != host:
                cure = ship if lacks == "ndcg_spark" else install
            elif sys.executable == here:
                cure = "install it there, or set PYTHONPATH, before the session is created."
            else:
                cure = f"export PYSPARK_PYTHON={here} before the session is created."
            line = f"{workers_run} {sys.executable}, which has no {lacks}, and this program runs {here}: {cure}"
            # The text of a cause comes first, here without a stack; Spark would set it to None before it prints.
            cause = ModuleNotFoundError(line)
            fixed_cause = property(lambda _: cause, lambda _, new: None)
            kind = type(
                "ModuleNotFoundError", (ModuleNotFoundError,), {"__cause__": fixed_cause, "__module__": "builtins"}
            )
            raise kind(line) from None
        return work(batches)

    return run


EXCHANGE = from_arrow_schema(EXCHANGE_SCHEMA)
_TAKES_ZONE = "timezone" in signature(to_arrow_schema).parameters


def arrow_schema(schema: T.StructType, spark: SparkSession) -> pa.Schema:
    """Translate a schema as Spark does for its workers: timestamps are in the time zone of the session."""
    zone = session_time_zone(spark)
    options: dict[str, Any] = {"timezone": zone} if _TAKES_ZONE else {}
    translated = to_arrow_schema(schema, **options)
    return pa.schema([field.with_type(_in_zone(field.type, zone)) for field in translated])


def _in_zone(kind: pa.DataType, zone: str) -> pa.DataType:
    """Put timestamps in a zone; before Spark took one, it named UTC for all of them."""
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, tz=zone)
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_zone(kind.value_type, zone)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_in_zone(field.type, zone)) for field in kind])
    return kind


def add_package_to_workers(spark: SparkSession) -> bool:
    """Send this package to the Python workers of a session.

    Workers import the package. Where it is installed on all machines, or came with `spark-submit --py-files`, they
    have it; a client of Spark Connect calls this once for each session, before the first result is requested.
    Packages that this one needs (numpy, pandas, pyarrow; SciPy for comparisons) are not sent.

    Parameters
    ----------
    spark : SparkSession
        Of Spark Connect, or a classic one of Spark 4.0 or later.

    Returns
    -------
    bool
        False where nothing was sent, as a classic session in local mode shares its Python with its workers.

    Raises
    ------
    NdcgSparkError
        When the session does not take packages: a classic session of Spark 3.5, or Sail.

    Notes
    -----
    Spark cost: no job; about 1.6 MB are sent to the server, and from there to each executor once. What is sent
    precedes an installed version on workers. A second call with the same version changes nothing.

    Examples
    --------
    >>> spark = SparkSession.builder.remote("sc://host:15002").getOrCreate()  # doctest: +SKIP
    >>> ndcg_spark.add_package_to_workers(spark)  # doctest: +SKIP
    True
    """
    # The first is that of a classic session until Spark 4.0.
    not_taken: tuple[type[Exception], ...] = (RuntimeError, *SPARK_ERRORS)
    on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    if not on_connect and runs_locally(spark):
        return False
    content = package_zip()
    # Named after what is in it: the same name with other content would be refused.
    digest = hashlib.sha256(content).hexdigest()[:12]
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-") as folder:
        path = Path(folder) / f"{PACKAGE}-{digest}.zip"
        path.write_bytes(content)
        try:
            spark.addArtifacts(str(path), pyfile=True)
        except not_taken as error:
            raise NdcgSparkError(
                f"this session cannot send packages to its workers ({first_line(error)}): install ndcg-spark there, "
                "or start it with spark-submit --py-files dist/ndcg_spark.zip."
            ) from error
    return True

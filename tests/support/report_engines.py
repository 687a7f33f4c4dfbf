"""Build each report of a test by Spark and without; both must be the same."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from functools import partial

from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.reports import api, local_reading, reading, spark_reading
from ndcg_spark.sources.local import open_memory_table

COLUMNS = {"metrics": reading.METRICS, "comparison": reading.COMPARISONS, "flags": reading.FLAGS}
COUNTERPARTS = {
    spark_reading.SparkMetrics: local_reading.LocalMetrics,
    spark_reading.SparkComparisons: local_reading.LocalComparisons,
    spark_reading.SparkFlags: local_reading.LocalFlags,
    spark_reading.SparkTexts: local_reading.LocalTexts,
}


def open_locally(frame, name):
    """Open a DataFrame as the local engine opens a file; None if it leaves the table to Spark."""
    if not hasattr(frame, "toArrow"):  # a result of `compare`, or Spark 3.5
        return None
    table = open_memory_table(frame.toArrow(), name)
    find_obstacle = {"queries": local_reading.find_queries_obstacle, "texts": local_reading.find_texts_obstacle}
    obstacle = find_obstacle.get(name, lambda table: local_reading.find_obstacle(table, COLUMNS[name]))(table)
    return None if obstacle else table


def convert(tables, frames):
    """Make the tables of the local engine from those of Spark; None if one is left to Spark."""
    converted = {}
    for name in ("metrics", "comparison", "flags", "texts", "queries"):
        spark_table = getattr(tables, name)
        if spark_table is None:
            continue
        table = open_locally(spark_table.args[0] if name == "queries" else frames[spark_table], name)
        if table is None:
            return None
        if name == "queries":
            converted[name] = partial(local_reading.LocalQueries, table)
        else:
            more = (spark_table.column,) if name == "texts" else ()
            converted[name] = COUNTERPARTS[type(spark_table)](table, *more)
    return reading.NightTables(**converted)


def asdict_or_value(value):
    """Return a section as a dict, which shows where two differ."""
    return asdict(value) if is_dataclass(value) else value


def catch(build):
    """Return what a function returns, and the error that it raises."""
    try:
        return build(), None
    except NdcgSparkError as error:
        return None, error


def build_reports_twice(monkeypatch):
    """Build the reports of a test by both engines, and return a list of those that were built twice."""
    build_by_spark, frames, built = api.build_report, {}, []
    for spark_class in COUNTERPARTS:

        def remember(self, frame, *more, _init=spark_class.__init__):
            frames[self] = frame
            _init(self, frame, *more)

        # stands in for: nothing, because it calls the constructor
        monkeypatch.setattr(spark_class, "__init__", remember)

    def build(tables, **options):
        actual, error = catch(lambda: build_by_spark(tables, **options))
        local = None if options["list_notes"] else convert(tables, frames)
        if local is not None:
            same, refusal = catch(lambda: build_by_spark(local, **options))
            assert (type(refusal), str(refusal)) == (type(error), str(error)), (refusal, error)
            if not error:
                for name in (field.name for field in fields(actual.contents)):
                    local_value, spark_value = (
                        asdict_or_value(getattr(each.contents, name)) for each in (same, actual)
                    )
                    assert local_value == spark_value, (name, local_value, spark_value)
            built.append(actual)
        if error:
            raise error
        return actual

    monkeypatch.setattr(api, "build_report", build)
    return built

"""Plans are made of columns alone; what they say is read alike by Spark and from Arrow batches."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from support.source_rules import PROJECT_ROOT

from ndcg_spark.core.columns import describe_table, mark_text_table
from ndcg_spark.core.schemas import format_type
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.api import evaluation_settings
from ndcg_spark.evaluation.frames.columns import select_canonical_columns
from ndcg_spark.evaluation.plan import plan_ranking
from ndcg_spark.evaluation.plan_columns import ColumnRead, Conversion, TablePlan
from ndcg_spark.evaluation.tasks.columns import convert_batch

NAN, INFINITY, BIG = float("nan"), float("inf"), 2**53 + 1
LONG = "query_id string, item_id string"
DIGITS = [
    Decimal("0.1"),
    Decimal("123456789012345678.12345678901234567890"),
    Decimal("-0.00000000000000000001"),
    None,
]
TEXTS = [
    *("1", " 1.5 ", "-.5", "5.", "1e400", "-1E-400", "NaN", "infinity", "-Inf", "+1", None),
    *("1d", "0x1p3", "", " ", "1 0", "\t1", "1\n", "٣", "1_0"),
]
"""What Java's parser takes for a number, or nearly."""

FORMS = {
    "numbers as they are": (
        f"{LONG}, score float, relevance tinyint, weight double",
        [("a", "x", -0.0, 1, 0.1), ("a", "y", NAN, None, -0.0), ("b", "x", INFINITY, -3, None)],
        {"weight": "weight"},
    ),
    "weights and booleans": (
        f"{LONG}, score bigint, relevance boolean, w int",
        [("a", "x", BIG, True, 3), ("a", "y", None, False, None), ("b", "y", -BIG, None, 2**31 - 1)],
        {"weight": "w"},
    ),
    "decimals": (
        f"{LONG}, score decimal(38,20), relevance decimal(2,1), w decimal(38,20)",
        [("a", str(at), one, Decimal("1.5"), one) for at, one in enumerate(DIGITS)],
        {"weight": "w"},
    ),
    "keys with two zeros": (
        "query_id double, item_id float, score int, relevance int, s double",
        [(-0.0, -0.0, 1, 1, -0.0), (0.0, 0.0, 2, 0, NAN), (NAN, 1e-45, 3, 1, None), (None, None, 4, 0, 1.5)],
        {"segments": "s", "convention": "default;ties=item_asc"},
    ),
    "keys of other types": (
        "query_id date, item_id binary, score int, relevance int, s timestamp_ntz, d decimal(5,2)",
        [(date(1, 1, 1), b"\x00\xff", 1, 1, datetime(1969, 12, 31, 23, 59, 59, 999999), Decimal("1.50")),
         (date(9999, 12, 31), b"", 2, 0, None, None)],
        {"segments": ("s", "d"), "convention": "default;ties=item_asc"},
    ),
    "runs of whole numbers": (
        f"{LONG}, score int, relevance int, model bigint",
        [("a", "x", 1, 1, 7), ("a", "y", 1, 1, -(2**63)), ("a", "z", 1, 1, None)],
        {"run": "model"},
    ),
    "runs of booleans": (
        f"{LONG}, score int, relevance int, model boolean",
        [("a", "x", 1, 1, True), ("a", "y", 1, 1, False)],
        {"run": "model"},
    ),
    "runs of dates": (
        f"{LONG}, score int, relevance int, model date", [("a", "x", 1, 1, date(1, 1, 1))], {"run": "model"}
    ),
    "several scores": (
        f"{LONG}, new float, old int, relevance int", [("a", "x", 1.5, 2, 1)], {"score": ("new", "old")}
    ),
    "arrays of numbers": (
        "query_id string, relevance array<tinyint>, best array<float>",
        [("a", [1, None, 0], [-0.0, NAN]), ("b", None, []), ("c", [], None)],
        {"ideal": "best"},
    ),
    "arrays of structs": (
        "query_id string, relevance array<struct<item:int,relevance:decimal(3,1)>>",
        [("a", [(1, Decimal("1.5")), (None, None)]), ("b", None), ("c", [])],
        {},
    ),
    "lists of ids": (
        "query_id string, ranked array<string>, liked array<string>",
        [("a", ["x", None], ["x"]), ("b", [], None), ("c", None, [])],
        {"ranked": "ranked", "relevant": "liked"},
    ),
    "lists with scores, and a map": (
        "query_id string, ranked array<struct<item_id:int,score:decimal(4,2)>>, liked map<bigint,boolean>",
        [("a", [(1, Decimal("1.25")), (2, None)], {1: True, 3: False}), ("b", [], {}), ("c", None, None)],
        {"ranked": "ranked", "relevant": "liked"},
    ),
    "lists of two rankers": (
        "query_id string, old array<int>, new array<bigint>, liked array<struct<item:bigint,grade:tinyint>>",
        [("a", [1], [2, 1], [(1, 2)]), ("b", [], None, [])],
        {"ranked": ("old", "new"), "relevant": "liked"},
    ),
}  # fmt: skip


def batches_of(frame: DataFrame) -> list[pa.RecordBatch]:
    """What workers get of a table."""

    def packed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            yield pa.RecordBatch.from_pydict({"payload": [sink.getvalue()]})

    rows = frame.coalesce(1).mapInArrow(packed, "payload binary").collect()
    return [batch for row in rows for batch in pa.ipc.open_stream(row["payload"])]


def rows_of(batches: list[pa.RecordBatch]) -> list[str]:
    """Rows as text that tells apart the two zeros, and types of Python."""
    return sorted(repr(sorted(row.items())) for batch in batches for row in batch.to_pylist())


def both_sides(frame: DataFrame, **options: object) -> tuple[list[pa.RecordBatch], list[pa.RecordBatch]]:
    plan = plan_ranking(describe_table(frame), None, evaluation_settings(**options)).rows
    by_arrow = [convert_batch(batch, plan) for batch in batches_of(frame)]
    assert all(batch.schema.equals(plan.schema) for batch in by_arrow)
    return batches_of(select_canonical_columns(frame, plan)), by_arrow


def test_columns_are_read_alike(spark: SparkSession) -> None:
    """Those of every form, in values and in types."""
    for form, (schema, rows, options) in FORMS.items():
        by_spark, by_arrow = both_sides(spark.createDataFrame(rows, schema), **options)
        assert rows_of(by_spark) == rows_of(by_arrow), form
        types = [{field.name: format_type(field.type) for field in side[0].schema} for side in (by_spark, by_arrow)]
        assert types[0] == types[1], form


VALUES = {
    "string": ["'a'", "''", "'é'"],
    "boolean": ["true", "false"],
    "tinyint": ["0", "-128", "127"],
    "smallint": ["0", "-32768"],
    "int": ["0", "2147483647"],
    "bigint": ["9007199254740993", "-9223372036854775808"],
    "float": ["'-0.0'", "0.1", "'NaN'", "'Infinity'", "'1e-45'"],
    "double": ["'-0.0'", "0.1", "'NaN'", "'-Infinity'", "'1.7976931348623157e308'"],
    "decimal(3,1)": ["1.5", "-0.1"],
    "decimal(38,20)": ["123456789012345678.12345678901234567890", "0.00000000000000000001"],
    "date": ["'0001-01-01'", "'2026-11-27'", "'9999-12-31'"],
    "timestamp": ["'2026-11-27 12:00:00.000001+00:00'"],
    "timestamp_ntz": ["'1969-12-31 23:59:59.999999'"],
    "binary": ["X'00FF'", "X''"],
}
ROLES = ("query", "item", "run", "segments", "score", "rank", "relevance", "weight", "order")


def reads_of_roles(spark: SparkSession) -> tuple[DataFrame, dict[str, ColumnRead], dict[str, str | None]]:
    """A table with a column of each type; how it is read in each role, or refused; which reads need Spark."""
    columns = {f"c{at}": kind for at, kind in enumerate(VALUES)}
    longest = max(map(len, VALUES.values()))
    rows = [
        ", ".join(
            f"CAST({(VALUES[kind][row:] or ['NULL'])[0]} AS {kind}) AS {name}" for name, kind in columns.items()
        )
        for row in range(longest + 1)
    ]
    others = "'q' AS query_id, 'i' AS item_id, 1.0D AS score, 1 AS relevance"
    table = spark.sql(" UNION ALL ".join(f"SELECT {row}, {others}" for row in rows))
    reads, needs, refused = {}, {}, {}
    for name, kind in columns.items():
        for role in ROLES:
            more = {"convention": "default;ties=input_order"} if role == "order" else {}
            more |= {"convention": "default;ties=item_asc"} if role == "item" else {}
            try:
                plan = plan_ranking(describe_table(table), None, evaluation_settings(**{role: name}, **more))
            except InputRefusedError as error:
                refused[role, kind] = str(error)
                continue
            (read,) = [column for column in plan.rows.columns.values() if column.source == (name,)]
            reads[f"{role}_{name}"], needs[f"{role} {kind}"] = read, plan.why_spark_only
    assert all(kind in text for (_, kind), text in refused.items())
    return table, reads, needs


def test_every_type_in_every_role_is_read_alike_or_refused_or_needs_spark(spark: SparkSession) -> None:
    table, reads, needs = reads_of_roles(spark)
    assert {role for role, why in needs.items() if why} == {
        f"run {kind}" for kind in VALUES if kind.startswith(("float", "double", "dec", "time", "bin"))
    }
    by_both = TablePlan(
        columns={name: one for name, one in reads.items() if one.conversion is not Conversion.SPARK_TEXT}
    )
    assert len(by_both.columns) > 80
    by_arrow = [convert_batch(batch, by_both) for batch in batches_of(table)]
    assert rows_of(batches_of(select_canonical_columns(table, by_both))) == rows_of(by_arrow)
    for name, one in reads.items():
        if one.conversion is Conversion.SPARK_TEXT:
            with pytest.raises(ValueError, match="Only Spark can write"):
                convert_batch(batches_of(table.limit(1))[0], TablePlan(columns={name: one}))


def test_a_sample_by_numbers_that_are_not_whole_needs_spark_in_every_form(spark: SparkSession) -> None:
    """Arrow writes them as other texts."""
    for schema, rows, options in FORMS.values():
        plan = plan_ranking(
            describe_table(spark.createDataFrame(rows, schema)), None, evaluation_settings(**options, sample=0.5)
        )
        for kind, message in (
            (pa.string(), None),
            (pa.int32(), None),
            (pa.float64(), "sampling needs keys as text, which only Spark formats"),
        ):
            query = {name: replace(plan.rows.columns[name], type=kind) for name in plan.rows.query}
            of_kind = replace(plan, rows=replace(plan.rows, columns={**plan.rows.columns, **query}))
            assert of_kind.why_spark_only == message


def test_text_is_read_alike(spark: SparkSession) -> None:
    rows = [("a", str(at), text, text, text) for at, text in enumerate(TEXTS)]
    schema = f"{LONG}, score string, relevance string, w string, __malformed_line string"
    table = mark_text_table(
        spark.createDataFrame([(*row, None) for row in rows] + [(None,) * 5 + ("x " * 150,)], schema)
    )
    by_spark, by_arrow = both_sides(table, weight="w")
    assert rows_of(by_spark) == rows_of(by_arrow)
    assert {row["bad_row"] for batch in by_arrow for row in batch.to_pylist()} == {
        None, "score_not_a_number", "malformed_line: " + "x " * 100
    }  # fmt: skip


def test_judgments_in_another_width_are_read_alike(spark: SparkSession) -> None:
    run = spark.createDataFrame([(1, 2, 0.5), (None, None, 0.1)], "query_id int, item_id bigint, score double")
    judged = spark.createDataFrame([(1, 2, 1)], "query_id bigint, item_id smallint, relevance int")
    plan = plan_ranking(describe_table(run), describe_table(judged, "judgments"), evaluation_settings())
    for table, group in ((run, plan.rows), (judged, plan.judgments)):
        assert rows_of(batches_of(select_canonical_columns(table, group))) == rows_of(
            [convert_batch(batch, group) for batch in batches_of(table)]
        )
        assert group.schema.field("query_0").type == group.schema.field("item").type == pa.int64()


def test_every_conversion_is_among_the_forms(spark: SparkSession) -> None:
    tables = [(spark.createDataFrame(rows, schema), options) for schema, rows, options in FORMS.values()]
    plans = [plan_ranking(describe_table(one), None, evaluation_settings(**options)).rows for one, options in tables]
    reads = [read for plan in plans for of in (plan.columns, *plan.runs.values()) for read in of.values()]
    elsewhere = {Conversion.PARSE_DOUBLE, Conversion.SPARK_TEXT}  # of text tables, and of the types below
    assert {read.conversion for read in reads} == {*Conversion} - elsewhere


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
import pyarrow as pa
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.evaluation.plan import plan_ranking
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings

def info(label="input", **columns):
    return TableInfo(schema=pa.schema(list(columns.items())), label=label)

text, number, ids = pa.string(), pa.float64(), pa.list_(pa.string())
run = {"query_id": text, "item_id": text, "score": number}
ranks = {"query_id": text, "item_id": text, "rank": pa.int32()}
judged = info("judgments", query_id=text, item_id=text, relevance=number)
lists = EvaluationSettings(columns=Columns(ranked=("r",), relevant="g"))
print(plan_ranking(info(**run, relevance=number), None, EvaluationSettings()).strategy)
print(plan_ranking(info(**run), judged, EvaluationSettings()).judgments is not None)
print(plan_ranking(info(**ranks, relevance=number), None, EvaluationSettings()).settings.columns.rank)
print(plan_ranking(info(query_id=text, relevance=pa.list_(number)), None, EvaluationSettings()).strategy)
print(plan_ranking(info(r=ids, g=ids), None, lists).settings.columns.query)
print(plan_ranking(info(query_id=text, r=ids, g=pa.map_(text, number)), None, lists).why_spark_only)
try:
    plan_ranking(info(query_id=text), None, EvaluationSettings())
except LookupError as error:
    print(error)
"""


def test_plans_are_made_without_spark() -> None:
    """`fit` of every form: a long table, a run and judgments, ranks, arrays, lists without and with a query."""
    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK], cwd=PROJECT_ROOT, capture_output=True, text=True, check=True
    )
    assert ended.stdout.splitlines() == [
        "engine", "True", "rank", "arrays", "()", "None",
        "column 'score' (score=) is not in the input, which has: query_id.",
    ]  # fmt: skip

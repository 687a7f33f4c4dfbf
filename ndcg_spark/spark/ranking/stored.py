"""Whether Python workers can read the files of a table themselves, and how the rows lie in them."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.ranking.local_files import file_sizes, is_plain_read, largest_file, table_parts
from ndcg_spark.spark.ranking.order import adds_up_whole_queries, whole_between
from ndcg_spark.spark.reasons import MALFORMED
from ndcg_spark.worker.files import FilePart, misfit, read_part
from ndcg_spark.worker.hashing import key_hashes
from ndcg_spark.worker.packing import GROUPS
from ndcg_spark.worker.pieces import piece_offsets

FIRST_ROWS = 4_096
LARGEST_SHARE_OF_BEGINS = 0.25
"""Of the first rows: where more begin a piece, pieces cost more than moving rows does (20 million rows, shuffled)."""
LONGEST_QUERY = 2**28
"""Bytes of its rows, where these are moved to each other: Arrow holds 2 GiB in a batch, Spark 3.5 half of that."""
_Kinds = Mapping[T.DataType, pa.DataType]
_WHOLE: _Kinds = {
    T.ByteType(): pa.int8(),
    T.ShortType(): pa.int16(),
    T.IntegerType(): pa.int32(),
    T.LongType(): pa.int64(),
}
_NUMBERS: _Kinds = {**_WHOLE, T.FloatType(): pa.float32(), T.DoubleType(): pa.float64()}
_NAMES: _Kinds = {**_WHOLE, T.StringType(): pa.string()}
_KINDS: _Kinds = {**_NUMBERS, **_NAMES, T.DateType(): pa.date32(), T.BooleanType(): pa.bool_()}
_OF_PIECES = ("items", "best_items", "sums")


def obstacle_to_files(frame: DataFrame, plan: EvaluationPlan, *, judged: bool) -> str | None:
    """Say why workers cannot read a table themselves, if they cannot.

    Lists files and reads the footer of one; runs no action.

    Parameters
    ----------
    frame : DataFrame
        The main table, as it came.
    plan : EvaluationPlan
    judged : bool
        Whether relevances are taken from it.

    Returns
    -------
    str or None
    """
    found = _plan_obstacle(plan, judged=judged) or _type_obstacle(frame, plan)
    if found is not None:
        return found
    sizes = file_sizes(frame)
    if not sizes or not is_plain_read(frame):
        return "the table is not Parquet files that workers can open by their path, each row as it is there"
    first, wanted = largest_file(sizes), read_schema(frame, plan)
    for name in wanted.names:
        if any(f"/{name}=" in path for path in sizes):
            return f"column {name!r} is what folders are named after"
    try:
        found = pq.read_schema(first)
    except (OSError, pa.ArrowException) as error:
        return f"{first} cannot be read: {str(error).splitlines()[0]}"
    missing = sorted(set(wanted.names) - set(found.names))
    if missing:
        return f"column {missing[0]!r} is not in {first}"
    return misfit(first, found, wanted)


def obstacle_to_moving(frame: DataFrame, plan: EvaluationPlan) -> str | None:
    """Say why scattered rows cannot be moved to their query, if they cannot.

    Reads the footer and the first rows of a file, runs no action.

    Parameters
    ----------
    frame : DataFrame
        One that `is_scattered`.
    plan : EvaluationPlan

    Returns
    -------
    str or None
    """
    rows = _first_rows(frame, plan)
    counts = np.unique(key_hashes(rows, plan.columns.keys), return_counts=True)[1]
    if estimated_size(frame, plan)[1] * counts.max(initial=0) > LONGEST_QUERY * rows.num_rows:
        return "rows of a query are scattered, and one query has very many"
    return None


def is_scattered(frame: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether rows of files are moved to their query before they are cut.

    Reads the first rows of a file, and maybe the footers of all; runs no action.

    Parameters
    ----------
    frame : DataFrame
        Without an `obstacle_to_files`.
    plan : EvaluationPlan

    Returns
    -------
    bool
        By the layout that the plan states, or where successive rows are mostly of different queries, as each would
        be a piece; never where files are in the order of queries.
    """
    if plan.layout != "scattered":
        rows = _first_rows(frame, plan)
        n_pieces = len(piece_offsets(rows, plan.columns.keys)) - 1
        if rows.num_rows < FIRST_ROWS // 2 or n_pieces <= LARGEST_SHARE_OF_BEGINS * rows.num_rows:
            return False
    return not _in_order(frame, plan)


def estimated_size(frame: DataFrame, plan: EvaluationPlan) -> tuple[float, float]:
    """Estimate the rows of a table, and the bytes of the columns that are read of them, by its largest file.

    Reads the footer and the first rows of a file, runs no action.

    Parameters
    ----------
    frame : DataFrame
        Without an `obstacle_to_files`.
    plan : EvaluationPlan

    Returns
    -------
    tuple of float
    """
    sizes, rows = file_sizes(frame), _first_rows(frame, plan)
    largest = largest_file(sizes)
    n_rows = pq.read_metadata(largest).num_rows * sum(sizes.values()) / max(1, sizes[largest])
    return n_rows, n_rows * rows.nbytes / max(1, rows.num_rows)


def _first_rows(frame: DataFrame, plan: EvaluationPlan) -> pa.RecordBatch:
    """The first rows of the largest file, as workers read them, but for those without a query."""
    sizes, columns = file_sizes(frame), read_schema(frame, plan)
    part = FilePart(path=largest_file(sizes), start=0, end=sys.maxsize)
    nothing = pa.RecordBatch.from_pylist([], schema=columns)
    rows = next(read_part(part, columns, FIRST_ROWS), nothing)
    return rows.filter(pa.array(np.logical_and.reduce([rows.column(name).is_valid() for name in plan.columns.keys])))


def _plan_obstacle(plan: EvaluationPlan, *, judged: bool) -> str | None:
    convention, carried = plan.convention, plan.carried_segments
    found = {
        "judgments lie in another table": not judged,
        "k=all takes whole lists": plan.longest is None,
        "there are several score columns": len(plan.columns.score) > 1,
        f"ties={convention.ties} takes all items that tie at rank k": convention.groups_ties,
        "a gain table need not rise with relevance": convention.has_gain_table,
        "all rows are looked through for duplicates": convention.duplicates != "error"
        or plan.check_duplicates == "all",
        "ranks close up over unjudged items": plan.columns.rank is not None and convention.unjudged == "condensed",
        "a sample is taken": plan.sample < 1,
        "a column has a name that pieces use": any(_is_taken(name) for name in (*plan.columns.query, *carried)),
    }
    return next((reason for reason, holds in found.items() if holds), None)


def _is_taken(name: str) -> bool:
    return name.lower() in _OF_PIECES or GROUPS in name


def _type_obstacle(frame: DataFrame, plan: EvaluationPlan) -> str | None:
    if MALFORMED in frame.columns:
        return f"column {MALFORMED!r} says which rows are bad"
    for name, kinds in _kinds_of_columns(frame, plan).items():
        if name not in frame.columns:
            return f"there is no column {name!r}"  # which is said where it is looked for
        if frame.schema[name].dataType not in kinds:
            return f"column {name!r} is {frame.schema[name].dataType.simpleString()}"
    needs_item = plan.columns.rank is None and plan.convention.ties != "input_order"
    return "there is no item column" if needs_item and not has_item(frame, plan) else None


def _kinds_of_columns(frame: DataFrame, plan: EvaluationPlan) -> dict[str, _Kinds]:
    """The columns that are read, and the types that each may have."""
    columns = plan.columns
    wanted: dict[str, _Kinds] = {name: {**_NAMES, T.DateType(): pa.date32()} for name in columns.query}
    optional: list[tuple[str | None, _Kinds]] = [
        (columns.run, {T.StringType(): pa.string()}),
        (columns.item if has_item(frame, plan) else None, _NAMES),
        (columns.score[0] if columns.rank is None else None, _NUMBERS),
        (columns.rank, _WHOLE),
        (columns.relevance, {**_NUMBERS, T.BooleanType(): pa.bool_()}),
        (columns.order, _WHOLE),
        (columns.weight, _NUMBERS),
    ]
    wanted |= {name: kinds for name, kinds in optional if name is not None}
    return wanted | {name: _KINDS for name in plan.carried_segments if name not in wanted}


def has_item(frame: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether a table has items. Reads the schema, runs no action.

    Parameters
    ----------
    frame : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    return plan.columns.item in frame.columns


def in_order(frame: DataFrame, plan: EvaluationPlan) -> bool:
    """Whether a table is files in the order of queries, which workers add up where they read them.

    Reads footers of files, runs no action.

    Parameters
    ----------
    frame : DataFrame
        The main table, as it came.
    plan : EvaluationPlan

    Returns
    -------
    bool
    """
    judged = plan.columns.relevance in frame.columns
    obstacle = plan.way not in ("auto", "files") or obstacle_to_files(frame, plan, judged=judged)
    return not obstacle and _in_order(frame, plan)


def _in_order(frame: DataFrame, plan: EvaluationPlan) -> bool:
    return adds_up_whole_queries(plan) and whole_between(table_parts(frame), plan.columns.query[0]) is not None


def read_schema(frame: DataFrame, plan: EvaluationPlan) -> pa.Schema:
    """Columns that are read of files, as Arrow has them. Reads the schema, runs no action.

    Parameters
    ----------
    frame : DataFrame
    plan : EvaluationPlan

    Returns
    -------
    pyarrow schema
    """
    return pa.schema([(name, arrow_type(frame.schema[name].dataType)) for name in _kinds_of_columns(frame, plan)])


def arrow_type(kind: T.DataType) -> pa.DataType:
    """Arrow's type for a type of Spark that a column of files, or of their pieces, may have.

    Parameters
    ----------
    kind : DataType

    Returns
    -------
    pyarrow data type
    """
    if isinstance(kind, T.ArrayType):
        return pa.list_(arrow_type(kind.elementType))
    return pa.binary() if isinstance(kind, T.BinaryType) else _KINDS[kind]

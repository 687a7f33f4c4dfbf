"""Files in the order of queries: summed up where they are read, to the same bits as by any other way."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import COUNTS, SUMMED_COUNTS, cut_task, file_rows, gathered
from support.arrow_rankings import task_of
from support.oracle import Choices, Row
from support.random_rankings import random_rows
from support.spark_rankings import SHORT_LIVED_PLANS, session_settings
from test_cost import plan_of as plan_of_spark
from test_files_way import plan_of, refusal, write

import ndcg_spark
from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.spark.ranking.order import whole_between
from ndcg_spark.worker import files, whole
from ndcg_spark.worker import in_order as in_order_files
from ndcg_spark.worker.files import FilePart, parts_of
from ndcg_spark.worker.in_order import make_whole_summer
from ndcg_spark.worker.summing import SummingTask, make_finisher
from ndcg_spark.worker.whole import SUMS, WholeTask, make_rest_summer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module", autouse=True)
def _short_lived_plans(spark: SparkSession):
    with session_settings(spark, **SHORT_LIVED_PLANS):
        yield


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.query)


# --- Which queries are whole


def stored(path: Path, *groups: Sequence[Any]) -> str:
    """A file with a row group of each list of queries."""
    kind = pa.string() if any(isinstance(one, str) for group in groups for one in group) else pa.int64()
    with pq.ParquetWriter(path, pa.schema([("nested", pa.struct([("a", pa.int64())])), ("q", kind)])) as writer:
        for group in groups:
            nested = pa.array([{"a": 1, "b": 2}] * len(group), writer.schema.field("nested").type)
            writer.write_table(pa.table({"nested": nested, "q": pa.array(group, kind)}, schema=writer.schema))
    return str(path)


def group_parts(path: str) -> list[FilePart]:
    """A part for each row group."""
    with pq.ParquetFile(path) as file:
        starts = files.starts_of_groups(file)
    return [FilePart(path=path, start=start, end=start + 1) for start in starts]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        (([1, 2], [3, 4], [5]), ((None, 3), (2, 5), (4, None))),
        (([5], [1, 2], [3, 4]), ((4, None), (None, 3), (2, 5))),
        (([1, 2], [2], [2, 3]), ((None, 2), (2, 2), (2, None))),
        ((["a", "b"], ["b", "é"], ["中"]), ((None, "b"), ("b", "中"), ("é", None))),
        (([1, 4], [2, 3]), None),
        (([1, 2], [None, None]), None),
        (([1, 2], [3, None]), ((None, 3), (2, None))),
        (([7],), ((None, None),)),
    ],
)
def test_queries_between_the_ends_of_other_parts_are_whole(tmp_path: Path, groups, expected) -> None:
    assert whole_between(group_parts(stored(tmp_path / "rows.parquet", *groups)), "q") == expected


def test_what_files_do_not_say_is_not_known(tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"q": [1, 2]}), path, write_statistics=False)
    assert whole_between(group_parts(path), "q") is None
    assert whole_between(group_parts(path), "elsewhere") is None
    assert whole_between([FilePart(path="nowhere", start=0, end=1)], "q") is None


def test_parts_without_row_groups_have_nothing_to_bound(tmp_path: Path) -> None:
    path = stored(tmp_path / "rows.parquet", [1, 2], [3])
    first, second = group_parts(path)
    nothing = FilePart(path=path, start=0, end=1)
    assert whole_between([first, nothing, second], "q") == ((None, 3), (None, None), (2, None))


# --- What a worker makes of them


def summed(path: str, rows: pa.RecordBatch, plan: EvaluationPlan) -> tuple[list[dict[str, Any]], list[str]]:
    """Means by the workers' functions alone, as Spark would chain them; and the queries that were handed on."""
    parts = parts_of({path: Path(path).stat().st_size}, 5, 1, 2**27)
    bounds = whole_between(parts, "query_id")
    assert bounds is not None
    cut = cut_task(rows, plan)
    score = replace(task_of(plan.convention, plan.cutoffs), carried=SUMMED_COUNTS, looks=cut.looks)
    cut = whole.CutTask(plan=plan, parts=tuple(parts), columns=rows.schema, pieces=cut.pieces, looks=cut.looks)
    task = WholeTask(cut=cut, score=score, add_up=SummingTask(segment_sets=(), weighted=False), bounds=bounds)
    numbers = pa.RecordBatch.from_pydict({"id": pa.array(range(len(parts)))})
    found = [row for batch in make_whole_summer(task)(iter([numbers])) for row in batch.to_pylist()]
    pieces, sums = ([row for row in found if (row[SUMS] is None) is piece] for piece in (True, False))
    rest = gathered(pieces, cut).drop_columns(["run"])
    rest = rest.append_column(SUMS, pa.array([[]] * rest.num_rows, pa.list_(pa.binary())))
    ends = pa.RecordBatch.from_pylist(
        [{"query_id": "", **dict.fromkeys(COUNTS), "pieces": [], SUMS: [row[SUMS] for row in sums]}],
        schema=rest.schema,
    )
    return means(list(make_rest_summer(task)(iter([rest, ends])))), sorted({row["query_id"] for row in pieces})


def means(partial: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows = [row for batch in partial for row in batch.to_pylist()]
    kinds = {**{field.name: field.type for field in partial[0].schema}, "states": pa.list_(pa.list_(pa.int64()))}
    del kinds["state"]
    groups: dict[tuple, dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[name] for name in ("metric", "k"))
        group = groups.setdefault(key, {**row, "states": [], **{n: 0 for n in row if n.startswith("n_")}})
        group["states"].append(row["state"])
        group |= {name: group[name] + row[name] for name in row if name.startswith("n_")}
    merged = [{name: groups[key][name] for name in kinds} for key in sorted(groups)]
    batch = pa.RecordBatch.from_pylist(merged, schema=pa.schema(list(kinds.items())))
    return [row for result in make_finisher(0.95)(iter([batch])) for row in result.to_pylist()]


@pytest.mark.parametrize("at_once", [3, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_whole_queries_add_up_to_what_all_pieces_do(tmp_path: Path, monkeypatch, seed: int, at_once: int) -> None:
    """Batches that end within queries; and the same rows out of order, of which nothing is summed there."""
    rows = random_rows(seed, n_queries=30, special=False)
    plan = plan_of(Choices(ties="item_asc"), check_duplicates=("top", "none")[seed % 2])
    monkeypatch.setattr(files, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(whole, "SCORED_AT_ONCE", 4)
    found = {}
    for name, ordered in {"in order": in_order(rows), "out of order": in_order(rows)}.items():
        batch = file_rows(ordered if name == "in order" else ordered[:1] + ordered[:0:-1])
        (tmp_path / name).mkdir()
        pq.write_table(pa.Table.from_batches([batch]), tmp_path / name / "rows.parquet", row_group_size=len(rows))
        found[name] = summed(str(tmp_path / name / "rows.parquet"), batch, plan)
    assert found["in order"] == (found["out of order"][0], [])
    assert found["out of order"][1] == sorted({row.query for row in rows})


def test_a_query_with_very_many_rows_is_handed_on_in_pieces(tmp_path: Path, monkeypatch) -> None:
    rows = [Row(query="a", item=str(n), score=n, relevance=n % 4, position=n) for n in range(40)]
    rows += [Row(query="b", item="x", score=0, relevance=1, position=0)]
    path = write(tmp_path / "rows", file_rows(rows), n_files=1, of_a_group=100) + "/part-0.parquet"
    plan = plan_of(Choices(ties="item_asc"))
    monkeypatch.setattr(files, "ROWS_AT_ONCE", 3)
    assert summed(path, file_rows(rows), plan)[1] == []
    expected = summed(path, file_rows(rows), plan)[0]
    monkeypatch.setattr(in_order_files, "MOST_HELD", 9)
    assert summed(path, file_rows(rows), plan) == (expected, ["a", "b"])


def test_a_query_is_not_refused_before_all_of_its_rows_are_there(tmp_path: Path, monkeypatch) -> None:
    """Nothing relevant is retrieved; what is relevant is judged in rows after those of all queries."""
    names = "abcdefgh"
    rows = [Row(query=query, item="x", score=1, relevance=0, position=0) for query in names]
    rows += [Row(query=query, item="y", relevance=1, position=1) for query in names]
    path = write(tmp_path / "rows", file_rows(rows), n_files=1, of_a_group=100) + "/part-0.parquet"
    monkeypatch.setattr(whole, "SCORED_AT_ONCE", 1)
    monkeypatch.setattr(files, "ROWS_AT_ONCE", 3)
    plan = plan_of(Choices(ties="item_asc"))
    plan = replace(plan, convention=replace(plan.convention, no_relevant="error"))
    found, handed_on = summed(path, file_rows(rows), plan)
    assert handed_on == list(names)
    assert {row["n_queries"] for row in found} == {len(names)}


def test_nan_is_one_value_of_a_segment() -> None:
    pieces = {f"{end}:s": pa.array([float("nan"), None]) for end in ("low", "high")}
    assert len(whole._settled(pieces, "s", None)) == 2


# --- Through Spark


def summary_of(table: DataFrame, way: str, **options: Any) -> list[tuple]:
    found = ndcg_spark.evaluate(table, k=[1, 5], way=way, null_score="unretrieved", **options).summary.collect()
    return sorted((tuple(row) for row in found), key=str)


@pytest.mark.parametrize("integer_queries", [True, False])
def test_sums_are_those_of_every_other_way(
    spark: SparkSession, tmp_path: Path, monkeypatch, integer_queries: bool
) -> None:
    """Segments and weights; queries that reach into the next row group and the next file."""
    monkeypatch.setattr("ndcg_spark.spark.ranking.local_files.SMALLEST_PART", 1)
    rows = in_order(random_rows(17, n_queries=60, negatives=True))
    batch = file_rows(rows)
    number = {name: n for n, name in enumerate(sorted({row.query for row in rows}))}
    names = [number[row.query] if integer_queries else row.query for row in rows]
    batch = batch.set_column(0, "query_id", pa.array(names))
    weights, countries = (
        [kind(number[row.query]) for row in rows] for kind in (lambda n: n / 3 + 1, lambda n: n % 3)
    )
    batch = batch.append_column("w", pa.array(weights)).append_column("country", pa.array(countries))
    table = spark.read.parquet(write(tmp_path / "rows", batch, n_files=3, of_a_group=11))
    options = {"segments": ["country", "query_id"], "weight": "w"}
    summary = ndcg_spark.evaluate(table, k=3, way="files", null_score="unretrieved", **options).summary
    assert "collect_list(sums" in plan_of_spark(summary)
    expected = summary_of(table, "window", **options)
    assert summary_of(table, "files", **options) == expected
    scattered = batch.take(pa.array(random.Random(1).sample(range(batch.num_rows), batch.num_rows)))
    table = spark.read.parquet(write(tmp_path / "scattered", scattered, n_files=3, of_a_group=11))
    assert summary_of(table, "files", layout="scattered", **options) == expected


def test_runs_and_keys_of_several_columns_are_moved_together(spark: SparkSession, tmp_path: Path) -> None:
    rows = random_rows(5, n_queries=20)
    batch = file_rows(rows)
    batch = batch.append_column("day", pa.array([int(row.query[-1:].isdigit()) for row in rows], pa.date32()))
    runs = [
        batch.append_column("run", pa.array([run] * len(rows))).set_column(2, "score", pa.array(scores, pa.float64()))
        for run, scores in {"a": batch.column("score"), "b": [float(n % 5) for n in range(len(rows))]}.items()
    ]
    both = pa.Table.from_batches(runs).combine_chunks().to_batches()[0]
    mixed = both.take(pa.array(random.Random(1).sample(range(both.num_rows), both.num_rows)))
    table = spark.read.parquet(write(tmp_path / "rows", mixed))
    options = {"run": "run", "query": ["query_id", "day"], "layout": "scattered"}
    found = summary_of(table, "files", **options)
    assert len({row[0] for row in found}) == 2
    assert found == summary_of(table, "window", **options)


def test_whole_queries_are_refused_like_others(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        Row(query=query, item=str(n), score=-n, relevance=n % 3, position=n) for query in "abcd" for n in range(5)
    ]
    batch = file_rows(rows)
    changes = {
        "twice": batch.set_column(1, "item_id", pa.array(["0"] * len(rows))),
        "bad": batch.set_column(2, "score", pa.array([float("nan") if n == 7 else 0.0 for n in range(len(rows))])),
        "segments": batch.append_column("country", pa.array([n % 2 for n in range(len(rows))])),
    }
    for name, changed in changes.items():
        options = {"segments": ["country"] if name == "segments" else []}
        table = spark.read.parquet(write(tmp_path / name, changed, n_files=1, of_a_group=100))
        said = [refusal(ndcg_spark.evaluate(table, k=2, way=way, **options).summary) for way in ("files", "window")]
        assert re.sub("query_id=.", "", said[0]) == re.sub("query_id=.", "", said[1]), (
            name
        )  # which is met first differs

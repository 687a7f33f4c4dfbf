"""Sorted files: complete queries are added up where they are read, to the bits that the exchange gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from evaluation.test_partial_rankings import settings_of
from support.arrow_rankings import summarize_batches
from support.arrow_rows import QUERY, build_canonical_rows, build_ranking_task, receive_rows, send_parts
from support.oracle import Choices, Row, evaluate, mean
from support.random_rankings import random_rows

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.plan_columns import ColumnRead, Conversion, TablePlan
from ndcg_spark.evaluation.settings import EvaluationSettings
from ndcg_spark.evaluation.tasks.complete_queries import FilesTask, send_complete, send_files
from ndcg_spark.evaluation.tasks.exchange import PARTIALS, ROWS, SUMS, merge_and_add_up
from ndcg_spark.evaluation.tasks.partial_sums import build_summing_task
from ndcg_spark.evaluation.tasks.query_rows import RankingTask
from ndcg_spark.evaluation.tasks.scoring import build_scoring_task
from ndcg_spark.sources.parquet import PartSizes, split_files
from ndcg_spark.sources.parquet_types import read_footer

COLUMNS = ["run", "query_id", "n_rows", "n_left_out", "n_items", "n_judged", "ranked", "ideal"]
Bounds = tuple[tuple[Any, Any], ...]


def files_of(folder: Path, rows: pa.RecordBatch, *, n_files: int, of_a_group: int) -> FilesTask:
    """Files of small row groups, about four parts each; nothing is promised."""
    step = -(-rows.num_rows // n_files)
    for at in range(n_files):
        part = pa.Table.from_batches([rows.slice(at * step, step)])
        pq.write_table(part, folder / f"{at}.parquet", row_group_size=of_a_group)
    actual = [read_footer(str(path)).identity for path in sorted(folder.iterdir())]
    parts = split_files(actual, PartSizes(n_parts=4 * n_files, smallest=1))
    reads = {field.name: ColumnRead((field.name,), Conversion.AS_IS, field.type) for field in rows.schema}
    return FilesTask(parts=parts, plan=TablePlan(columns=reads), schema=rows.schema)


def bounds_of(files: FilesTask) -> Bounds:
    """By definition: the highest query before a part, and the lowest behind it."""
    queries = [
        [query for batch in files.read_part(at) for query in batch.column(QUERY).to_pylist()]
        for at in range(len(files.parts))
    ]
    actual = []
    for at in range(len(queries)):
        before = [query for part in queries[:at] for query in part]
        after = [query for part in queries[at + 1 :] for query in part]
        actual.append((max(before, default=None), min(after, default=None)))
    return tuple(actual)


def summed(files: FilesTask, task: RankingTask) -> tuple[dict[tuple, dict[str, Any]], list[int]]:
    """Means, and the kinds of what was sent to make them."""
    scoring, summing = build_scoring_task(COLUMNS, task.settings), build_summing_task(task.settings)
    numbers = [[pa.RecordBatch.from_pydict({"id": pa.array([at])})] for at in range(len(files.parts))]
    if files.bounds is None:
        rows = send_parts(numbers, send_files, files, task)
    else:
        rows = send_parts(numbers, send_complete, files, task, scoring, summing)
    partial = receive_rows(rows, merge_and_add_up, task, scoring, summing)
    return summarize_batches(partial), [row["kind"] for row in rows]


def by_query(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.query.encode())


@pytest.mark.parametrize("batch_rows", [3, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_complete_queries_add_up_to_what_the_exchange_gives(tmp_path: Path, seed: int, batch_rows: int) -> None:
    """Queries reach across batches, row groups and files. The mean is the oracle's."""
    choices = Choices(ties=("item_asc", "expected")[seed % 2])
    rows = by_query(random_rows(seed, n_queries=30, special=seed > 2))
    settings = settings_of(choices, (1, 3), check_duplicates=("top", "none")[seed // 2 % 2])
    canonical = build_canonical_rows(rows, settings)
    files = files_of(tmp_path, canonical, n_files=3, of_a_group=10)
    assert len(files.parts) >= 12
    task = build_ranking_task(canonical, settings, n_partitions=3, queries_at_once=4)
    expected, kinds = summed(files, task)
    assert set(kinds) <= {ROWS, PARTIALS}
    got, kinds = summed(replace(files, bounds=bounds_of(files), batch_rows=batch_rows), task)
    assert got == expected
    assert SUMS in kinds
    values = evaluate(rows, choices, (1, 3))
    for metric in ("ndcg", "dcg", "idcg"):
        for k in (1, 3):
            assert got["", metric, k]["value"] == pytest.approx(mean(values, k, metric), abs=1e-12)


def test_a_part_out_of_order_is_sent_like_any_other(tmp_path: Path) -> None:
    """Its file promised order. Nothing of it is added up where it is read, so nothing is counted twice."""
    rows = by_query(random_rows(1, n_queries=30, special=False))
    settings = settings_of(Choices(), (1, 3))
    ordered = build_canonical_rows(rows, settings)
    mixed = build_canonical_rows([*rows[:1], *rows[:0:-1]], settings)
    task = build_ranking_task(ordered, settings)
    actual = {}
    for name, canonical in {"ordered": ordered, "mixed": mixed}.items():
        (tmp_path / name).mkdir()
        files = files_of(tmp_path / name, canonical, n_files=1, of_a_group=10_000)
        actual[name] = summed(replace(files, bounds=((None, None),) * len(files.parts), batch_rows=16), task)
    assert actual["ordered"][1] == [SUMS]
    assert SUMS not in actual["mixed"][1]
    assert actual["ordered"][0] == actual["mixed"][0]


def test_a_query_too_long_to_be_held_is_sent_in_parts(tmp_path: Path) -> None:
    rows = [Row(query="a", item=f"{n}", score=n, relevance=n % 4) for n in range(100)]
    rows += [Row(query="b", item="x", score=0, relevance=1)]
    settings = settings_of(Choices(ties="item_asc"))
    canonical = build_canonical_rows(rows, settings)
    files = files_of(tmp_path, canonical, n_files=1, of_a_group=10_000)
    files = replace(files, bounds=((None, None),) * len(files.parts))
    task = build_ranking_task(canonical, settings)
    expected, kinds = summed(files, task)
    assert kinds == [SUMS]
    got, kinds = summed(replace(files, batch_rows=3), task)
    assert got == expected
    assert SUMS not in kinds
    assert PARTIALS in kinds or ROWS in kinds


def test_a_query_is_not_refused_before_all_of_its_rows_are_there(tmp_path: Path) -> None:
    """Nothing relevant is retrieved; what is relevant is judged in rows behind those of all queries."""
    names = "abcdefgh"
    rows = [Row(query=query, item="x", score=1, relevance=0) for query in names]
    rows += [Row(query=query, item="y", relevance=1) for query in names]
    settings = settings_of(Choices(ties="item_asc"))
    settings = replace(settings, convention=replace(settings.convention, no_relevant="error"))
    canonical = build_canonical_rows(rows, settings)
    files = files_of(tmp_path, canonical, n_files=1, of_a_group=10_000)
    files = replace(files, bounds=((None, None),) * len(files.parts), batch_rows=3)
    actual, kinds = summed(files, build_ranking_task(canonical, settings, queries_at_once=1))
    assert SUMS not in kinds
    assert {row["n_queries"] for row in actual.values()} == {len(names)}


@pytest.mark.parametrize("what", ["twice", "bad", "nothing relevant"])
def test_what_is_refused_of_complete_queries_is_named(tmp_path: Path, what: str) -> None:
    score = float("nan") if what == "bad" else 1.0
    rows = [Row(query=query, item=f"{n}", score=n, relevance=1.0) for query in "abc" for n in range(3)]
    rows += [Row(query="d", item="0", score=score, relevance=0.0)] * (2 if what == "twice" else 1)
    settings = settings_of(Choices(ties="item_asc"))
    settings = replace(settings, convention=replace(settings.convention, no_relevant="error"))
    canonical = build_canonical_rows(rows, settings)
    files = files_of(tmp_path, canonical, n_files=1, of_a_group=10_000)
    task = build_ranking_task(canonical, settings)
    said = []
    for bounds in (None, ((None, None),) * len(files.parts)):
        with pytest.raises(InputRefusedError, match="query_id=d") as caught:
            summed(replace(files, bounds=bounds), task)
        said.append(str(caught.value))
    assert said[0] == said[1]


# --- Files


def test_parts_cover_each_row_group_once(tmp_path: Path) -> None:
    settings = EvaluationSettings()
    canonical = build_canonical_rows(
        [Row(query=f"{n}", item="x", score=n, relevance=1) for n in range(100)], settings
    )
    files = files_of(tmp_path, canonical, n_files=2, of_a_group=9)
    for smallest, largest in ((1, 1), (1, 300), (10**9, 10**9)):
        sizes = PartSizes(n_parts=4, smallest=smallest, largest=largest)
        parts = split_files([read_footer(str(path)).identity for path in sorted(tmp_path.iterdir())], sizes)
        actual = [
            query
            for part in parts
            for batch in part.read(files.schema.names, files.schema, 7)
            for query in batch.column(QUERY).to_pylist()
        ]
        assert actual == [f"{n}" for n in range(100)]


@pytest.mark.parametrize("change", ["another footer", "another time", "another size", "gone", "no Parquet"])
def test_a_file_that_changed_is_refused(tmp_path: Path, change: str) -> None:
    """Between planning and reading; by size, time or footer."""
    settings = EvaluationSettings()
    rows = build_canonical_rows([Row(query="q", item="x", score=1.0, relevance=1)], settings)
    files = files_of(tmp_path, rows, n_files=1, of_a_group=10)
    path = tmp_path / "0.parquet"
    (part, *_) = files.parts
    if change == "gone":
        path.unlink()
    elif change == "no Parquet":
        path.write_bytes(b"text" * 100)
    elif change == "another size":
        path.write_bytes(path.read_bytes() + path.read_bytes())
    identity = {"another footer": {"footer": "0" * 16}, "another time": {"version": "1"}}.get(change, {})
    part = replace(part, file=replace(part.file, **identity))
    expected = "changed after the evaluation was planned; evaluate again"
    if change in ("gone", "no Parquet"):
        why = "it no longer exists; evaluate again" if change == "gone" else "is not a Parquet file; source='spark'"
        expected = f"cannot read .*{why}"
    with pytest.raises(InputRefusedError, match=expected):
        list(part.read(files.schema.names, files.schema, 10))


def test_what_is_no_parquet_file_has_no_identity(tmp_path: Path) -> None:
    for name, content in {"empty": b"", "text": b"query,item\n1,2\n"}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OSError, match="is not a Parquet file"):
            read_footer(str(tmp_path / name))

"""Rows that workers pack, and others put together by query, against the oracle; and hashes of queries."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import SUMMED_COUNTS, cut_task, file_rows, gathered
from support.arrow_rankings import task_of
from support.oracle import Choices, Row, evaluate
from test_whole_queries import means
from test_worker_oracle import assert_same
from test_worker_pieces import choices_of, plan_of, rows_of, scored

from ndcg_spark.plan import EvaluationPlan
from ndcg_spark.worker import files, moving
from ndcg_spark.worker.files import parts_of
from ndcg_spark.worker.hashing import key_hashes
from ndcg_spark.worker.moving import MoveTask, make_moved_cutter, make_moved_summer, make_mover
from ndcg_spark.worker.pieces import CutTask
from ndcg_spark.worker.summing import SummingTask
from ndcg_spark.worker.whole import SUMS, WholeTask, make_rest_summer

LABELS = (0, 5, 9)


def moved_parts(path: Path, rows: pa.RecordBatch, plan: EvaluationPlan) -> tuple[CutTask, list[pa.RecordBatch]]:
    """Rows written to a file, packed part by part, and the packed batches of each label in the order of a shuffle."""
    pq.write_table(pa.Table.from_batches([rows]), path, row_group_size=7)
    cut = replace(cut_task(rows, plan), parts=tuple(parts_of({str(path): path.stat().st_size}, 3, 1, 2**20)))
    numbers = pa.RecordBatch.from_pydict({"id": pa.array(range(len(cut.parts)))})
    packed = [
        row for batch in make_mover(MoveTask(cut=cut, labels=LABELS))(iter([numbers])) for row in batch.to_pylist()
    ]
    random.Random(len(packed)).shuffle(packed)
    assert {row["label"] for row in packed} <= set(LABELS)
    of_label = [[row["rows"] for row in packed if row["label"] == label] for label in LABELS]
    return cut, [pa.RecordBatch.from_pydict({"rows": pa.array(one, pa.binary())}) for one in of_label]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Batches of some rows, so that parts, packed batches and chunks all have ends."""
    monkeypatch.setattr(files, "ROWS_AT_ONCE", 5)
    monkeypatch.setattr(moving, "ROWS_AT_ONCE", 8)
    monkeypatch.setattr(moving, "MOVED_AT_ONCE", 11)
    return monkeypatch


@pytest.mark.parametrize("held", [2**20, 20], ids=["held", "too many to be held"])
@pytest.mark.parametrize("seed", range(30))
def test_rows_that_were_moved_score_what_the_oracle_says(tmp_path: Path, small, seed: int, held: int) -> None:
    small.setattr(moving, "MOST_HELD", held)
    choices, rows = choices_of(seed), rows_of(seed)
    plan = plan_of(choices, (1, 3), check_duplicates=("top", "none")[seed % 2])
    cut, moved = moved_parts(tmp_path / "rows.parquet", file_rows(rows), plan)
    pieces = [
        piece for batch in moved for found in make_moved_cutter(cut)(iter([batch])) for piece in found.to_pylist()
    ]
    assert_same(scored(gathered(pieces, cut), plan), evaluate(rows, choices, (1, 3)))
    if held > len(rows):
        queries = [piece["query_id"] for piece in pieces]
        assert len(queries) == len(set(queries))  # a piece a query


def summed(cut: CutTask, moved: Sequence[pa.RecordBatch], plan: EvaluationPlan) -> tuple[list[dict], set[str]]:
    """Means, and queries that were handed on in pieces."""
    score = replace(task_of(plan.convention, plan.cutoffs), carried=SUMMED_COUNTS, looks=cut.looks)
    task = WholeTask(cut=cut, score=score, add_up=SummingTask(segment_sets=(), weighted=False), bounds=())
    found = [row for one in moved for batch in make_moved_summer(task)(iter([one])) for row in batch.to_pylist()]
    pieces, sums = ([row for row in found if (row[SUMS] is None) is piece] for piece in (True, False))
    rest = gathered(pieces, cut)
    rest = rest.append_column(SUMS, pa.array([[]] * rest.num_rows, pa.list_(pa.binary())))
    counts = dict.fromkeys(name for name in rest.schema.names if name.startswith("n_"))
    ends = {"run": None, "query_id": "", **counts, "pieces": [], SUMS: [row[SUMS] for row in sums]}
    batches = [rest, pa.RecordBatch.from_pylist([ends], schema=rest.schema)]
    return means(list(make_rest_summer(task)(iter(batches)))), {row["query_id"] for row in pieces}


@pytest.mark.parametrize("seed", range(6))
def test_means_are_the_same_held_in_pieces_and_where_hashes_are_shared(tmp_path: Path, small, seed: int) -> None:
    rows = rows_of(seed)
    plan = plan_of(choices_of(seed), (1, 3), check_duplicates="none")
    task, moved = moved_parts(tmp_path / "rows.parquet", file_rows(rows), plan)
    found, handed_on = summed(task, moved, plan)
    assert handed_on == set()
    small.setattr(moving, "MOST_HELD", 20)
    in_pieces, handed_on = summed(task, moved, plan)
    assert in_pieces == found
    assert handed_on
    small.setattr(moving, "MOST_HELD", 2**20)
    for n_hashes in (1, 3):
        small.setattr(moving, "key_hashes", lambda batch, keys, n=n_hashes: key_hashes(batch, keys) % np.uint64(n))
        shared, handed_on = summed(task, moved, plan)
        assert shared == found
        assert handed_on


def test_rows_that_are_alike_but_for_their_relevance_rank_by_it_in_whatever_order_they_come(tmp_path: Path) -> None:
    """As in a struct of score, item and relevance, by which Spark orders; none of which is the lowest."""
    alike = [Row(query="q", item="a", score=1, relevance=relevance) for relevance in (0.0, 2.0, None)]
    rows = [*alike, Row(query="q", item="b", score=0.5, relevance=3.0)]
    for ties, first in {"item_asc": None, "item_desc": 2.0}.items():
        plan = plan_of(Choices(ties=ties), (1,), check_duplicates="none")
        for at, order in enumerate(permutations(rows)):
            path = tmp_path / f"{ties} {at}.parquet"
            cut, moved = moved_parts(path, file_rows(order), plan)
            pieces = [
                piece
                for batch in moved
                for found in make_moved_cutter(cut)(iter([batch]))
                for piece in found.to_pylist()
            ]
            assert scored(gathered(pieces, cut), plan)["q", 1]["dcg"] == (0.0 if first is None else 2**first - 1)


def test_wide_rows_are_held_by_their_bytes(tmp_path: Path, small) -> None:
    rows = rows_of(1)
    plan = plan_of(choices_of(1), (1, 3), check_duplicates="none")
    task, moved = moved_parts(tmp_path / "rows.parquet", file_rows(rows), plan)
    found, _ = summed(task, moved, plan)
    small.setattr(moving, "MOST_BYTES_HELD", 500)
    again, handed_on = summed(*moved_parts(tmp_path / "rows.parquet", file_rows(rows), plan), plan)
    assert again == found
    assert handed_on


# --- Hashes


KEYS = {
    "numbers": pa.array([3, 7, 3, -1, 2**62, 0]),
    "narrow": pa.array([3, 7, 3, -1, 2, 0], pa.int8()),
    "dates": pa.array([3, 7, 3, -1, 2, 0], pa.date32()),
    "texts": pa.array(["", "a", "", "b", "aa", "ba"]),
    "other texts": pa.array(["中", "a\0", "中", "a", "\0a", "\0"]),
}


@pytest.mark.parametrize("name", KEYS)
def test_the_hash_of_a_query_is_its_own_wherever_it_lies(name: str) -> None:
    column = KEYS[name]
    hashes = key_hashes(pa.RecordBatch.from_pydict({"q": column}), ("q",))
    assert len(set(hashes.tolist())) == 5
    assert hashes[0] == hashes[2]
    later = pa.concat_arrays([column.slice(3), column]).slice(2)
    assert (
        key_hashes(pa.RecordBatch.from_pydict({"q": later}), ("q",)).tolist() == hashes.tolist()[5:] + hashes.tolist()
    )


def test_texts_are_hashed_alike_in_whatever_batch_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.RecordBatch.from_pydict({"q": [f"{n}" * (n % 7) for n in range(100)]})
    hashes = key_hashes(batch, ("q",)).tolist()
    monkeypatch.setattr("ndcg_spark.worker.hashing._AT_ONCE", 7)
    assert key_hashes(batch, ("q",)).tolist() == hashes


def test_columns_of_a_key_do_not_change_places() -> None:
    batch = pa.RecordBatch.from_pydict({"a": [1, 2, 1, 2], "b": [2, 1, 1, 2], "c": ["x", "y", "y", "x"]})
    assert len(set(key_hashes(batch, ("a", "b")).tolist())) == 4
    assert len(set(key_hashes(batch, ("a", "c")).tolist())) == 4


def test_hashes_of_successive_queries_spread_over_partitions() -> None:
    for values in (pa.array(range(100_000)), pa.array([f"q{n}" for n in range(100_000)])):
        hashes = key_hashes(pa.RecordBatch.from_pydict({"q": values}), ("q",))
        counts = np.bincount(((hashes >> 32) * np.uint64(50) >> 32).astype(np.int64), minlength=50)
        assert counts.min() > 1_500
        assert counts.max() < 2_500

"""Sums by group, compared with plain loops; batches, limits and the distribution of keys do not change them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from ndcg_spark.core.batches import make_row_lists
from ndcg_spark.core.sums import GroupSums, merge_states, read_states

KEYS = {"run": ("a", "b", None), "value": (0.0, -0.0, 1.5, None), "k": (1, 10, None)}
TYPES = {"run": pa.string(), "value": pa.float64(), "k": pa.int32()}
NUMBERS = ("n", "m", "l")


def random_batches(seed: int, n_batches: int) -> Iterator[tuple[list[tuple], dict[str, list[int]]]]:
    """Yield keys of rows, equal in every other batch, and some of the numbers."""
    random_ = random.Random(seed)
    for number in range(n_batches):
        n_rows = random_.randint(0, 6)
        rows = [tuple(map(random_.choice, KEYS.values())) for _ in range(n_rows)]
        rows = rows if number % 2 else rows[:1] * n_rows
        names = random_.sample(NUMBERS, random_.randint(1, 3))
        yield rows, {name: [random_.randint(-(2**40), 2**40) for _ in rows] for name in names}


@pytest.mark.parametrize("limit", [0, 1, 5, 1000])
@pytest.mark.parametrize(("seed", "n_batches"), [(1, 0), (2, 1), (3, 7), (4, 100)])
def test_sums_are_those_of_loops(limit, seed, n_batches):
    batches = list(random_batches(seed, n_batches))
    sums, tables = GroupSums(list(KEYS), limit), []
    for rows, numbers in batches:
        columns = {name: pa.array([row[at] for row in rows], TYPES[name]) for at, name in enumerate(KEYS)}
        sums.add(columns, {name: np.array(values, dtype=np.int64) for name, values in numbers.items()})
        tables += sums.flush()
    assert [table.num_rows > limit for table in tables] == [True] * len(tables)
    tables += sums.flush(at_end=True)
    assert list(sums.flush(at_end=True)) == []
    got, expected = Counter(), Counter()
    for table in tables:
        groups = [repr(tuple(row[name] for name in KEYS)) for row in table.to_pylist()]
        assert len(set(groups)) == len(groups)
        for name in table.column_names[len(KEYS) :]:
            for group, number in zip(groups, table.column(name).to_pylist(), strict=True):
                got[group, name] += number
    for rows, numbers in batches:
        for name, values in numbers.items():
            for row, number in zip(rows, values, strict=True):
                expected[repr(row), name] += number
    assert {key: number for key, number in got.items() if number} == expected


def test_states_of_rows_are_read_as_they_were_put_in_and_merge():
    states = np.arange(12).reshape(3, 4)
    column = pa.array([make_row_lists(states).to_pylist(), make_row_lists(states[:1]).to_pylist(), []])
    parts = read_states(column, 4)
    assert [part.tolist() for part in parts] == [states.tolist(), states[:1].tolist(), []]
    assert merge_states(parts, 4).tolist() == [[12, 15, 18, 21], [0, 1, 2, 3], [0, 0, 0, 0]]
    assert make_row_lists(merge_states([], 4)).type == pa.list_(pa.int64())

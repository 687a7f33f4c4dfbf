"""Rankings to be compared: seeded random ones, the shared data sets, and what this package says about them."""

from __future__ import annotations

import csv
import gzip
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
from support.oracle import to_float32

import ndcg_spark
from ndcg_spark.conventions import Convention
from ndcg_spark.metrics import parse_metric
from scripts.checks import ROOT

Cutoff = int | None
Values = dict[tuple[str, Cutoff], float]
"""NDCG by (query, k); a query that a tool leaves out is not there. A cutoff of None is the whole list."""

SHARED = ROOT.parent / "shared" / "data"
DATA_SETS = ("trec_eval", "trec_eval_rel_level", "lightgbm_lambdarank", "esci_judgments")
Engine = Literal["local", "spark"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One item of one query. A score of None: judged, not retrieved. A relevance of None: not judged."""

    query: str
    item: str
    score: float | None
    relevance: float | None
    position: int = 0


Queries = dict[str, list[Row]]
"""The rows of each query in the order of the input, which is that of `position`."""


# --- Random rankings


GRADES = (0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0)
NEGATIVE = (*GRADES, -1.0, -2.0)
FRACTIONAL = (*GRADES, 0.25, 0.5, 1.5, 2.75)
ANY_GRADE = (*NEGATIVE, *FRACTIONAL)
TIED_SCORES = (-1.0, 0.0, 0.5, 2.0)
MERGED_BY_FLOAT32 = (0.1, 0.1 + 1e-12, 0.1 + 2e-9, 16777216.0, 16777217.0, 0.5)
PREFIXES = ("", "a", "aa", "A", "Z", "9", "10", "-", "é", "e\u0301", "中", "\uffee", "\U0001f600")
"""UTF-8 bytes order the last two one way, UTF-16 units (as in Java) the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Features of random rankings that a tool supports."""

    grades: tuple[float, ...] = NEGATIVE
    ties: bool = True
    exact_in_float32: bool = False


def random_queries(seed: int, shape: Shape, n_queries: int = 24) -> Queries:
    """Queries of 1 to 14 items, one of 60, and one each without scores, without judgments, without gain."""
    random_ = random.Random(f"{seed} {shape}")
    names = [str(101 + n) for n in range(n_queries)]  # gdeval takes numbers alone
    queries = {name: _one_query(random_, name, random_.randint(1, 14), shape) for name in names}
    queries[names[0]] = _one_query(random_, names[0], 60, shape)
    queries[names[1]] = [replace(row, score=None, relevance=row.relevance or 1.0) for row in queries[names[1]]]
    queries[names[2]] = [replace(row, score=row.score or 0.0, relevance=None) for row in queries[names[2]]]
    lowest = min(0.0, *shape.grades)
    queries[names[3]] = [replace(row, relevance=random_.choice([lowest, 0.0])) for row in queries[names[3]]]
    return queries


def _one_query(random_: random.Random, query: str, n: int, shape: Shape) -> list[Row]:
    numbers = random_.sample(range(10_000_000, 10_000_000 + 40 * n), n)  # distinct whatever the prefix
    scores = _scores(random_, n, shape)
    rows = []
    for position, (number, score) in enumerate(zip(numbers, scores, strict=True)):
        fate = random_.random() if position else 0.5  # the first item is retrieved and judged
        row = Row(
            query=query,
            item=f"{random_.choice(PREFIXES)}.{number}",
            score=None if fate < 0.15 else score,
            relevance=None if fate > 0.85 else random_.choice(shape.grades),
            position=position,
        )
        rows.append(row)
    return rows


def _scores(random_: random.Random, n: int, shape: Shape) -> list[float]:
    if not shape.ties or random_.random() < 0.3:
        return [value / 64 for value in random_.sample(range(-64 * n, 64 * n), n)]
    few = TIED_SCORES if shape.exact_in_float32 or random_.random() < 0.5 else MERGED_BY_FLOAT32
    return [random_.choice(few) for _ in range(n)]


# --- Shared data


@dataclass(frozen=True, slots=True)
class SharedSet:
    """One data set: ranked rows of each run, and values of tools that were stored with it."""

    name: str
    runs: Mapping[str, Queries]
    expected: Mapping[tuple[str, str], Values]  # by (tool, run)


def find_shared_folder() -> Path | None:
    """Return the folder of the shared data sets, which are not part of the project; None if it is absent."""
    folder = Path(os.environ.get("NDCG_SPARK_SHARED_DATA") or SHARED)
    return folder if folder.is_dir() else None


@cache
def load_shared(folder: Path, name: str) -> SharedSet:
    runs: dict[str, Queries] = {}
    for line in _lines(folder / name / "rows.csv.gz"):
        row = Row(
            query=line["query_id"],
            item=line["doc_id"],
            score=float(line["score"]) if line["score"] else None,
            relevance=float(line["relevance"]) if line["relevance"] else None,
            position=int(line["pos"]) if line["pos"] else 0,
        )
        runs.setdefault(line["run"], {}).setdefault(row.query, []).append(row)
    for queries in runs.values():
        for rows in queries.values():
            rows.sort(key=lambda row: row.position)
    expected: dict[tuple[str, str], Values] = {}
    for line in _lines(folder / name / "expected_per_query.csv.gz"):
        values = expected.setdefault((line["oracle"], line["run"]), {})
        values[line["query_id"], int(line["k"])] = float(line["ndcg"])
    return SharedSet(name, runs, expected)


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


# --- What this package says


RUN = {"query_id": pa.string(), "item_id": pa.string(), "score": pa.float64(), "position": pa.int32()}
JUDGMENTS = {"query_id": pa.string(), "item_id": pa.string(), "relevance": pa.float64()}
ARRAYS = {"query_id": pa.string(), "ranked": pa.list_(pa.float64()), "judged": pa.list_(pa.float64())}


def score(queries: Queries, convention: Convention, cutoffs: Sequence[Cutoff], engine: Engine = "local") -> Values:
    """NDCG by the package."""
    rows = per_query(queries, convention, engine, k=list(cutoffs))
    return {(row["query_id"], row["k"]): row["ndcg"] for row in rows if row["ndcg"] is not None}


def metric_values(queries: Queries, convention: Convention, name: str) -> dict[str, float]:
    """Return a metric of each query that counts."""
    column = parse_metric(name)[0].column
    rows = per_query(queries, convention, metrics=[name])
    return {row["query_id"]: row[column] for row in rows if row[column] is not None}


def per_query(
    queries: Queries, convention: Convention, engine: Engine = "local", **options: Any
) -> list[Mapping[str, Any]]:
    """Return rows of `ndcg_spark.evaluate` on a run and judgments; on arrays if labels are ordered."""
    every = [row for rows in queries.values() for row in rows]
    if convention.ideal == "unsorted":
        lists = [(query, ranked_labels(rows, convention), labels(rows)) for query, rows in queries.items()]
        data, options = (
            build_table(lists, ARRAYS),
            {**options, "item": None, "relevance": "ranked", "ideal": "judged"},
        )
    else:
        run = [(row.query, row.item, row.score, row.position) for row in every if row.score is not None]
        judged = [(row.query, row.item, row.relevance) for row in every if row.relevance is not None]
        order = "position" if convention.ties == "input_order" else None
        data, options = (
            build_table(run, RUN),
            {**options, "judgments": build_table(judged, JUDGMENTS), "order": order},
        )
    result_rows = ndcg_spark.evaluate(data, convention=convention, engine=engine, **options).per_query
    return result_rows.to_pylist() if isinstance(result_rows, pa.Table) else result_rows.collect()


def build_table(rows: Sequence[tuple[Any, ...]], types: Mapping[str, pa.DataType]) -> pa.Table:
    """Build a table of rows, which may be empty."""
    return pa.Table.from_pylist([dict(zip(types, row, strict=True)) for row in rows], pa.schema(types))


def labels(rows: Sequence[Row]) -> list[float]:
    """Relevances of the judged items."""
    return [row.relevance for row in rows if row.relevance is not None]


def ranked_labels(rows: Sequence[Row], convention: Convention) -> list[float | None]:
    """Relevances of the retrieved items in rank order."""
    ordered = sorted((row for row in rows if row.score is not None), key=lambda row: row.position)
    if convention.ties in ("item_asc", "item_desc"):
        ordered.sort(key=lambda row: row.item.encode(), reverse=convention.ties == "item_desc")
    return [row.relevance for row in sorted(ordered, key=lambda row: -round_score(row, convention.score_precision))]


def round_score(row: Row, precision: str = "double") -> float:
    """Return the score of a retrieved row in the precision of the comparison."""
    assert row.score is not None
    return to_float32(row.score) if precision == "float32" else row.score

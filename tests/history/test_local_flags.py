"""flag-changes with both engines: equal rows, lines, JSON and refusals. Random metric tables and per-query tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timezone

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.main_job import assert_refused, read_stored_rows, run_command
from support.nights import nth_night

from ndcg_spark.history.local import find_missing_series, read_metric_rows
from ndcg_spark.history.tasks import judging
from ndcg_spark.sources.local import open_memory_table

SMALLER = "ils(by=categories)"
"""A metric of which smaller is better."""
RULES = ("gain=linear;ties=worst", "gain=exponential;ties=worst")
KEYS = {"run_date": pa.date32(), **dict.fromkeys(("run", "config_hash", "rules", "dataset"), pa.string())}
METRIC_TYPES = {
    **KEYS, **dict.fromkeys(("segment_by", "segment", "metric"), pa.string()), "k": pa.int32(),
    "value": pa.float64(), "std_error": pa.float64(), "n_queries": pa.int64(), "n_missing": pa.int64(),
    "computed_at": pa.timestamp("us", "UTC"),
}  # fmt: skip
QUERY_TYPES = {
    **KEYS, "query_id": pa.string(), "k": pa.int32(), "ndcg": pa.float64(), "ils_by_categories": pa.float64(),
    "country": pa.string(), "tier": pa.int32(), "status": pa.string(), "weight": pa.float64(),
}  # fmt: skip
SEGMENTS = [("", ""), ("country", "DE"), ("country", "FR"), ("country", None), ("country+tier", '["DE","1"]')]
METRICS = [("ndcg", 10), ("ndcg", 5), (SMALLER, 10), ("unknown_metric", None), ("dcg", 10)]


class Night:
    """A night of a run: its keys, and how far its values are from usual."""

    def __init__(self, numbers: np.random.Generator, at: int, run: str) -> None:
        changed, unknown = numbers.random() > 0.9, 0.05 * (run != "b")
        self.keys = {
            "run_date": nth_night(at), "run": run, "dataset": "shop", "config_hash": f"c{int(changed)}",
            "rules": numbers.choice([RULES[0], RULES[int(changed)], None], p=[0.8, 0.2 - unknown, unknown]),
        }  # fmt: skip
        self.shift = numbers.choice([0.0, -0.2, 0.2], p=[0.7, 0.15, 0.15])


def build_nights(numbers: np.random.Generator, n_nights: int) -> Iterator[Night]:
    for run in ("", "a", "b"):
        for at in range(n_nights):
            if numbers.random() < 0.9:
                yield Night(numbers, at, run)


def build_metrics(numbers: np.random.Generator, nights: list[Night]) -> Iterator[dict]:
    for night in nights:
        for by, segment in SEGMENTS:
            for metric, k in METRICS:
                if numbers.random() < 0.05 or (by and night.shift and numbers.random() < 0.3):
                    continue
                n = int(numbers.integers(0, 40))
                value = 0.5 + night.shift + 0.02 * numbers.standard_normal()
                rules = night.keys["rules"]
                yield {
                    **night.keys, "segment_by": by, "segment": segment, "metric": metric, "k": k,
                    "rules": rules and f"{rules};missing_query=zero;weight={'yes' if k == 5 else 'no'}",
                    "value": None if numbers.random() < 0.03 else round(value, int(numbers.choice([1, 6]))),
                    "std_error": None if numbers.random() < 0.1 else 0.01,
                    "n_queries": n, "n_missing": None if n == 7 else n * 7 % (n + 1),
                    "computed_at": datetime(2026, 3, 1, int(numbers.integers(24)), tzinfo=timezone.utc),
                }  # fmt: skip


def build_queries(numbers: np.random.Generator, nights: list[Night], *, doubled: bool = True) -> Iterator[dict]:
    """Build queries of each night; with `doubled`, run b has them also by other rules and of another data set."""
    for night in nights:
        others = [{"rules": RULES[night.keys["rules"] == RULES[0]], "config_hash": "c9"}, {"dataset": "app"}]
        others = others if doubled and night.keys["run"] == "b" else []
        for query in range(14):
            if numbers.random() < 0.15:
                continue
            status = numbers.choice(["ok", "missing", "no_relevant", None], p=[0.7, 0.1, 0.1, 0.1])
            of_query = {
                "query_id": f"q{query}", "status": status, "tier": int(numbers.integers(1, 3)),
                "country": numbers.choice(["DE", "FR", None]), "weight": numbers.choice([None, 1.0, 2.5]),
            }  # fmt: skip
            for k in (5, 10):
                values = dict.fromkeys(("ndcg", "ils_by_categories"), 0.3 + 0.02 * query + night.shift / 4)
                noise = 0.01 * numbers.standard_normal()
                values = {name: 0.0 if status == "missing" else value + noise for name, value in values.items()}
                yield from ({**night.keys, **of_query, "k": k, **values, **other} for other in ({}, *others))


def write_nights(path, rows, types, without=()):
    """Write a folder for each night, as jobs do, with `run_date` in its name."""
    table = pa.Table.from_pylist(list(rows), pa.schema([*types.items()]))
    pq.write_to_dataset(table.drop_columns([*without]), path, partition_cols=["run_date"])
    return path


def run_both(folder, *arguments):
    """Run flag-changes with both engines; return its result, and the stored rows, which must be the same."""
    results, stored = [], []
    for engine in ("local", "spark"):
        output = folder / f"flags_{engine}"
        outputs = ("--output", output, "--json", "-")
        results.append(run_command("flag-changes", *arguments, *outputs, "--engine", engine))
        rows = [{**row, "computed_at": None} for row in read_stored_rows(output)]
        stored.append(sorted(rows, key=lambda row: str([row[name] for name in ("run_date", *judging.SERIES)])))
    local, spark = results
    assert (local.code, local.out, local.complaints) == (spark.code, spark.out, spark.complaints)
    assert stored[0] == stored[1]
    return local, stored[0]


def write_tables(folder, seed):
    """Write a metric table, and a per-query table that lacks some columns, depending on the seed."""
    numbers = np.random.default_rng(seed)
    nights = [*build_nights(numbers, 45 if seed == 3 else 12)]
    metrics = write_nights(folder / "metrics", build_metrics(numbers, nights), METRIC_TYPES)
    without = [(), ("rules", "weight"), ("status", "tier"), ("rules", "config_hash", "dataset")][seed]
    queries = build_queries(numbers, nights, doubled="dataset" not in without)
    return metrics, write_nights(folder / "queries", queries, QUERY_TYPES, without)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("seed", range(4))
def test_engines_flag_the_same(seed, tmp_path):
    metrics, per_query = write_tables(tmp_path, seed)
    paired = ("--per-query", per_query, "--from", "2026-01-02", "--to", "2026-01-09")
    others = [
        ("--from", "2026-01-01", "--direction", "both", "--verbose"),
        ("--metrics", f"{SMALLER},ndcg@5", "--lookback", "20", "--fail-on-flag"),
    ]
    weekdays, lasting, few = set(), 0, 0
    for options in (paired, others[seed % 2]):
        ended, rows = run_both(tmp_path, "--input", metrics, *options)
        assert ended.code in (0, 3), ended.err
        weekdays |= {row["weekday"] for row in rows}
        lasting += sum(row["status"] in (judging.ONGOING, judging.RECOVERED) for row in rows)
        few += sum(row["status"] == judging.FEW_QUERIES for row in rows)
        assert len(rows) > 3
    assert few > 3
    assert {"any", "before", "before_paired"} <= weekdays
    assert lasting > 3


@pytest.mark.usefixtures("spark")
def test_engines_refuse_the_same(tmp_path):
    metrics, per_query = write_tables(tmp_path, 0)
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"run_date": [date(2026, 1, 1)], "metric": ["ndcg"], "run": ["a"]}), other)
    for arguments, named in (
        (("--input", metrics, "--dataset", "app"), "no data set 'app' in the metric table; there is shop"),
        (("--input", metrics, "--config-hash", "c9"), "no config_hash 'c9' in the metric table; there are c0, c1"),
        (
            ("--input", metrics, "--metrics", "ap"),
            "no metric 'ap' in the metric table; there are dcg, ils(",
        ),
        (("--input", metrics, "--metrics", "ndcg@7"), "no metric 'ndcg@7' in the metric table; there are dcg@10"),
        (("--input", metrics, "--from", "2030-01-01", "--to", "2030-01-02"), "has no night from 2030-01-01"),
        (("--input", other), "column 'segment_by'"),
        (("--input", metrics, "--per-query", per_query, "--query-col", "user"), "column 'user'"),
        (("--input", metrics, "--per-query", other, "--query-col", "run"), "column 'k' (k) is not in the per-query"),
    ):
        ended, rows = run_both(tmp_path, *arguments)
        assert_refused(ended, named)
        assert rows == []


def test_rows_that_repeat_are_refused(tmp_path):
    numbers = np.random.default_rng(0)
    nights = [*build_nights(numbers, 3)]
    metrics = write_nights(tmp_path / "metrics", build_metrics(numbers, nights), METRIC_TYPES)
    queries = [*build_queries(numbers, nights)]
    per_query = write_nights(tmp_path / "queries", [*queries, *queries], QUERY_TYPES)
    local = ("flag-changes", "--engine", "local", "--input")
    ended = run_command(*local, metrics, "--per-query", per_query)
    assert_refused(ended, "appears twice in run 'the night", "choose the rows of one night and data set")
    pq.write_table(
        pa.concat_tables([pq.read_table(metrics, schema=pa.schema(METRIC_TYPES))] * 2), tmp_path / "twice.parquet"
    )
    ended = run_command(*local, tmp_path / "twice.parquet", "--from", "2026-01-01")
    assert_refused(ended, "has two rows for the night 2026-01-0", "keep the rows of one data set")


@pytest.mark.parametrize(
    ("column", "values", "why"),
    [
        ("run_date", pa.array(["2026-01-01"]), "column 'run_date' of parquet:.* is string, which Spark converts"),
        ("value", pa.array(["0.5"]), "column 'value' of parquet:.* is string, which Spark converts"),
    ],
)
def test_what_is_left_to_spark(tmp_path, column, values, why):
    row = {"run_date": date(2026, 1, 1), "run": "", "segment_by": "", "segment": "", "metric": "ndcg", "value": 0.5}
    table = pa.table({**{name: [value] for name, value in row.items()}, "k": [10], column: values})
    pq.write_table(table, tmp_path / "metrics.parquet")
    ended = run_command("flag-changes", "--input", tmp_path / "metrics.parquet", "--engine", "local")
    assert_refused(ended, "--engine local cannot do this: ")
    assert re.search(why, ended.err)


def test_missing_series_of_a_night():
    """Run b and segment FR are missing on the last night; segment IT had too few queries to be missed."""
    rows = [
        {"run_date": nth_night(at), "run": run, "segment_by": by, "segment": segment, "metric": "ndcg", "k": 10}
        | {"value": 0.5 + at / 100, "n_queries": n, "config_hash": "c1"}
        for at in range(3)
        for run in "ab"
        for by, segment, n in (("", "", 100), ("country", "DE", 60), ("country", "FR", 40), ("country", "IT", 1))
        if at < 2 or (run == "a" and segment in ("", "DE"))
    ]
    table = open_memory_table(pa.Table.from_pylist(rows), "rows")
    missing = find_missing_series(read_metric_rows(table).drop_columns(["std_error"]), nth_night(2))
    facts = [
        (row["run"], row["segment"], row["median"], row["reference_night"], row["last_queries"]) for row in missing
    ]
    assert sorted(facts) == [("a", "FR", 0.51, nth_night(1), 40), ("b", "", 0.51, nth_night(1), 100)]
    assert set(missing[0]) == set(judging.MISSING_COLUMNS)
    assert find_missing_series(read_metric_rows(table), nth_night(0)) == []

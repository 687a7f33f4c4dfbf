"""The nightly metric table: each night and run is one set of rows, whatever is run again, refused or broken."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.main_job import (
    assert_refused,
    find_value,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_mean_ndcg,
    write_rows,
    write_table,
)
from support.oracle import Choices, Row, evaluate, mean

from ndcg_spark import __version__, merge_summaries

CUTOFFS = (1, 3)
METRICS = ("ndcg", "dcg", "idcg")
NIGHTS = ("2026-01-30", "2026-01-31", "2026-02-01")
EXPONENTIAL = Choices(ties="item_asc")


def night_rows(seed: int, n_queries: int = 4) -> list[Row]:
    """Queries of four items; relevances and scores from a small congruence, queries named after the seed."""
    return [
        Row(
            query=f"s{seed}-{query}",
            item=f"i{item}",
            score=float((7 * seed + 5 * query + 3 * item) % 11),
            relevance=float((seed + query + item * item) % 4),
        )
        for query in range(n_queries)
        for item in range(4)
    ]


def means(rows: list[Row]) -> dict[tuple[str, int], Any]:
    results = evaluate(rows, EXPONENTIAL, CUTOFFS)
    return {(m, k): pytest.approx(mean(results, k, m), abs=1e-12) for m in METRICS for k in CUTOFFS}


@dataclass(frozen=True, slots=True)
class Place:
    """A metric table: how the job is told of it, where its files are, who writes it."""

    reference: str
    files: Path
    engine: str

    def night(self, source: Path, run_date: str, dataset: str, *more: object) -> tuple[object, ...]:
        flags = ("--input", source, "--output", self.reference, "--run-date", run_date, "--dataset", dataset)
        return (*flags, "--k", "1,3", "--engine", self.engine, *more)

    def means(self, run_date: str, dataset: str, run: str) -> dict[tuple[str, int], float]:
        """Overall means of a night; fails if a mean is there twice."""
        named = [
            row
            for row in read_stored_rows(self.files)
            if (row["run_date"], row["dataset"], row["run"], row["segment_by"]) == (run_date, dataset, run, "")
        ]
        actual = {(row["metric"], row["k"]): row["value"] for row in named}
        assert len(actual) == len(named)
        return actual


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("metric_table")


@pytest.fixture(scope="module", params=["local", "spark"])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def place(request, engine, folder):
    """A folder of the engine without Spark, and a table of Spark's catalog."""
    if engine == "local":
        path = folder / "metrics"
        yield Place(str(path), path, engine)
        return
    spark = request.getfixturevalue("spark")
    warehouse = Path(str(spark.conf.get("spark.sql.warehouse.dir")).removeprefix("file:"))
    shutil.rmtree(warehouse / "nightly_metrics", ignore_errors=True)
    yield Place("nightly_metrics", warehouse / "nightly_metrics", engine)
    spark.sql("DROP TABLE nightly_metrics")


@pytest.fixture(scope="module")
def nights(place, folder):
    """Three nights, then the second again with other data: the files before and after that."""
    for seed, run_date in enumerate(NIGHTS):
        run_mean_ndcg(*place.night(write_rows(folder / f"{seed}.parquet", night_rows(seed)), run_date, "shop"))
    before = read_files(place.files)
    run_mean_ndcg(*place.night(write_rows(folder / "7.parquet", night_rows(7)), NIGHTS[1], "shop"))
    return before, read_files(place.files)


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    """Data files that came, went or changed; Spark's markers and checksums aside."""
    names = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    return {name for name in names if name.endswith(".parquet")}


# ------------------------------------------------------------------------------------------------------ nights


def test_every_night_is_there_once(nights, place):
    data = dict(zip(NIGHTS, (0, 7, 2), strict=True))
    assert {night: place.means(night, "shop", "") for night in NIGHTS} == {
        night: means(night_rows(seed)) for night, seed in data.items()
    }
    assert len(read_stored_rows(place.files)) == len(NIGHTS) * len(METRICS) * len(CUTOFFS)


def test_a_night_run_again_leaves_the_others_to_the_byte(nights):
    before, after = nights
    assert {name.split("/")[0] for name in changed(before, after)} == {f"run_date={NIGHTS[1]}"}


@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_names_and_types_of_the_columns(nights, place, spark):
    types = dict(spark.table(place.reference).dtypes)
    wanted = {
        **dict.fromkeys(("run", "segment_by", "segment", "metric", "dataset", "convention"), "string"),
        **dict.fromkeys(("config_hash", "input", "package_version"), "string"),
        **dict.fromkeys(("value", "weight_sum", "std_error", "ci_low", "ci_high"), "double"),
        **dict.fromkeys(("n_queries", "n_no_relevant"), "bigint"),
        **{"k": "int", "run_date": "date", "computed_at": "timestamp"},
    }
    assert {name: types.get(name) for name in wanted} == wanted


def test_rows_tell_where_they_come_from(nights, place, folder):
    rows = read_stored_rows(place.files)
    assert {(row["run"], row["segment_by"], row["segment"]) for row in rows} == {("", "", "")}
    assert {row["dataset"] for row in rows} == {"shop"}
    assert {row["convention"] for row in rows} == {"default"}
    assert {row["package_version"] for row in rows} == {__version__}
    assert {row["input"] for row in rows} == {f"parquet:{folder}/{seed}.parquet" for seed in (0, 2, 7)}
    assert len({row["config_hash"] for row in rows}) == 1
    assert all(row["computed_at"] is not None for row in rows)


@pytest.mark.parametrize("engine", ["spark"], indirect=True)
def test_stored_nights_merge_into_the_mean_over_all_of_them_to_the_bit(nights, place, spark, folder):
    merged = merge_summaries(spark.table(place.reference).where("dataset = 'shop'")).collect()
    rows = [row for seed in (0, 7, 2) for row in night_rows(seed)]
    ended = run_mean_ndcg("--input", write_rows(folder / "all.parquet", rows), "--k", "1,3", "--json", "-")
    exact = ("run", "segment_by", "segment", "metric", "k", "value", "n_queries", "n_rows", "weight_sum", "std_error")

    def facts(rows):
        return sorted(tuple(row[name] for name in (*exact, "ci_low", "ci_high", "n_no_relevant")) for row in rows)

    assert facts(merged) == facts(ended.json["metrics"])
    assert {(row["metric"], row["k"]): row["value"] for row in merged} == means(rows)


# ---------------------------------------------------------------------------------- data sets and runs of one night


@pytest.fixture(scope="module")
def neighbours(nights, place, folder):
    """On a night that is there: another data set with two runs, then one of those again, on its own."""

    def named(row: Row) -> str:
        return "new" if row.query.startswith("s4") else "old"

    both = write_rows(folder / "both.parquet", night_rows(3) + night_rows(4), ranker=named)
    again = write_rows(folder / "again.parquet", night_rows(5), ranker=lambda _: "new")
    snapshots = [read_files(place.files)]
    for source in (both, again):
        run_mean_ndcg(*place.night(source, NIGHTS[1], "app", "--run-col", "ranker"))
        snapshots.append(read_files(place.files))
    return snapshots


def test_another_data_set_leaves_the_night_of_the_first(neighbours, nights, place):
    before, after, _ = neighbours
    assert before.keys() <= after.keys()
    assert changed(before, after).isdisjoint(before)
    assert place.means(NIGHTS[1], "shop", "") == means(night_rows(7))


def test_a_run_done_again_leaves_the_other_run_of_its_night(neighbours, place):
    _, before, after = neighbours
    assert place.means(NIGHTS[1], "app", "old") == means(night_rows(3))
    assert place.means(NIGHTS[1], "app", "new") == means(night_rows(5))
    assert len({Path(name).parent for name in changed(before, after)}) == 1


# ------------------------------------------------------------------------------------------ runs that go wrong


@pytest.fixture(scope="module")
def kept(folder):
    """A table with one night, for what must not touch it, or only in part."""
    path = folder / "kept"
    place = Place(str(path), path, "local")
    source = write_rows(folder / "kept.parquet", night_rows(1))
    run_mean_ndcg(*place.night(source, NIGHTS[0], "shop"))
    return place


def test_a_crash_leaves_the_table(kept, folder):
    """The second file of the input is no parquet: this shows only when it is read."""
    write_rows(folder / "broken" / "a.parquet", night_rows(2))
    (folder / "broken" / "b.parquet").write_bytes(b"no parquet at all")
    before = read_files(kept.files)
    assert mean_ndcg(*kept.night(folder / "broken", NIGHTS[0], "shop")).code in (1, 2)
    assert read_files(kept.files) == before


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_an_empty_input_is_refused_and_leaves_the_table(kept, folder, ending):
    before = read_files(kept.files)
    types = {"query_id": pa.string(), "item_id": pa.string(), "score": pa.float64(), "relevance": pa.float64()}
    empty = write_table(folder / f"empty.{ending}", dict.fromkeys(types, ()), types)
    assert_refused(mean_ndcg(*kept.night(empty, NIGHTS[0], "shop")), "no rows", "--allow-empty")
    assert read_files(kept.files) == before


def test_an_empty_input_that_is_allowed_replaces_its_night_only(kept, folder):
    queries = folder / "queries"
    run_mean_ndcg(*kept.night(folder / "kept.parquet", NIGHTS[1], "shop", "--per-query-output", queries))
    assert read_stored_rows(queries)
    empty = write_rows(folder / "empty.csv", [])
    more = ("--per-query-output", queries, "--allow-empty", "--json", "-")
    ended = run_mean_ndcg(*kept.night(empty, NIGHTS[1], "shop", *more))
    assert {(row["n_queries"], row["value"]) for row in ended.json["metrics"]} == {(0, None)}
    assert set(kept.means(NIGHTS[1], "shop", "").values()) == {None}
    assert kept.means(NIGHTS[0], "shop", "") == means(night_rows(1))
    assert read_stored_rows(queries) == []


@pytest.mark.parametrize(("gate", "code"), [("ndcg@3>=0.999", 3), ("ndcg@3<0.999", 0)], ids=["missed", "met"])
def test_a_gate_is_judged_after_the_metrics_are_written(kept, folder, gate, code):
    ended = mean_ndcg(
        *kept.night(folder / "kept.parquet", NIGHTS[2], f"gate {code}", "--gate", gate, "--gate", "dcg@1>=0"),
        *("--json", "-"),
    )
    assert (ended.code, ended.complaints) == (code, [])
    assert kept.means(NIGHTS[2], f"gate {code}", "") == means(night_rows(1))
    wanted = find_value(ended.json, "ndcg", 3)
    actual = [(row["gate"], row["value"], row["met"]) for row in ended.json["gates"]]
    assert actual[0] == (gate, wanted, code == 0)
    assert [line for line in ended.out.splitlines() if line.startswith(f"gate {gate}")]


# ----------------------------------------------------------------------------------------------- other tables


def test_a_metric_table_with_buckets_is_refused(spark, kept, folder, tmp_path):
    """Files that are put in place of others would lie in no bucket: joins and GROUP BY run would fail."""
    schema = spark.read.parquet(str(kept.files)).schema
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in schema)
    by = "PARTITIONED BY (run_date, slice) CLUSTERED BY (run) SORTED BY (k) INTO 4 BUCKETS"
    spark.sql(f"CREATE TABLE bucketed_metrics ({columns}) USING parquet {by}")
    try:
        outputs = ("--output", "bucketed_metrics", "--per-query-output", tmp_path / "queries")
        ended = mean_ndcg("--input", folder / "kept.parquet", "--k", 3, *outputs)
        assert_refused(ended, "'bucketed_metrics' has buckets of 'run'", "CLUSTERED BY")
        assert spark.table("bucketed_metrics").groupBy("run").count().collect() == []
        assert list(tmp_path.iterdir()) == []
    finally:
        spark.sql("DROP TABLE bucketed_metrics")

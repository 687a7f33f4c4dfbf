"""Paths of Parquet files: workers read them, with the numbers and refusals of a table that Spark reads."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import build_file_rows
from support.expectations import collect_refusal
from support.main_job import mean_ndcg, run_mean_ndcg
from support.oracle import Choices, Row, evaluate
from support.random_rankings import random_rows
from support.spark_rankings import (
    SHORT_LIVED_PLANS,
    Case,
    assert_same_results,
    build_convention,
    collect_cases,
    compute_ranks,
    evaluate_small_parts,
    session_settings,
)

import ndcg_spark
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation import Evaluation
from ndcg_spark.evaluation.frames.source import ParquetSource
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.sources.parquet import parse_footers, read_footers, send_footers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.classic("Python workers read files themselves")
DEFAULT = Choices(ties="item_asc")
CHOICES = {
    "default": DEFAULT,
    "item_desc, clip, float32": Choices(ties="item_desc", score_precision="float32", negative="clip"),
    "input_order, condensed": Choices(ties="input_order", unjudged="condensed", no_relevant="one"),
    "expected, retrieved": Choices(gain="linear", ties="expected", ideal="retrieved", missing_query="drop"),
}


@pytest.fixture(scope="module", autouse=True)
def _short_lived_plans(spark: SparkSession) -> Iterator[None]:
    with session_settings(spark, **SHORT_LIVED_PLANS):
        yield


def write(folder: Path, rows: pa.RecordBatch, *, n_files: int = 2, row_group_size: int = 7) -> str:
    """Write small row groups, so that queries span groups and files."""
    folder.mkdir(parents=True)
    step = -(-rows.num_rows // n_files)
    for at in range(n_files):
        part = pa.Table.from_batches([rows.slice(at * step, step)])
        pq.write_table(part, folder / f"part-{at}.parquet", row_group_size=row_group_size)
    return str(folder)


def build_rows_with_ranks(rows: Sequence[Row], choices: Choices) -> pa.RecordBatch:
    ranks = compute_ranks(rows, replace(choices, ties="item_asc") if choices.ties == "expected" else choices)
    return build_file_rows(rows).append_column(
        "rank", pa.array([ranks.get((r.query, r.item)) for r in rows], pa.int32())
    )


def sort_by_query(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row.query.encode())


def choose_source(path: str, **options: Any) -> ParquetSource:
    """Return the source chosen for a path, which must be of files."""
    source = evaluate_small_parts(path, **options).ranking.implementation.source
    assert isinstance(source, ParquetSource), source
    return source


# --- Numbers


@pytest.mark.parametrize("name", CHOICES)
def test_results_of_files_equal_the_oracle(tmp_path: Path, name: str) -> None:
    """Strings and integers as items; queries shuffled and clustered; scores, and ranks if these are kept."""
    choices, cases, expected = CHOICES[name], {}, {}
    for seed, integer in enumerate((False, True)):
        rows = random_rows(seed, integer_items=integer, negatives=True, extreme_scores=True)
        rows = sort_by_query(rows)[::-1] if integer else rows
        path = write(tmp_path / f"{seed}", build_rows_with_ranks(rows, choices))
        columns = Columns(order="position") if choices.ties == "input_order" else Columns()
        settings = EvaluationSettings(
            columns=columns,
            convention=build_convention(choices),
            cutoffs=(1, 3, 10, None),
            null_score="unretrieved",
            source="parquet",
        )
        cases[f"{seed} scores"] = Case(data=path, settings=settings)
        if choices.ties in ("item_asc", "item_desc"):
            cases[f"{seed} ranks"] = Case(data=path, settings=replace(settings, columns=Columns(rank="rank")))
        expected |= {case: evaluate(rows, choices, settings.cutoffs) for case in cases if case.startswith(f"{seed}")}
    for case, got in collect_cases(cases).items():
        assert_same_results(got, expected[case])


def evaluate_sorted(data: Any, **options: Any) -> list[tuple]:
    rows = evaluate_small_parts(data, k=[1, 5], null_score="unretrieved", **options).summary.collect()
    return sorted((tuple(row) for row in rows), key=str)


@pytest.mark.parametrize("integer_queries", [True, False])
def test_complete_queries_of_sorted_files_give_the_sums_of_any_table(
    spark: SparkSession, tmp_path: Path, integer_queries: bool
) -> None:
    """With segments and weights; queries span row groups and files; also with shuffled rows."""
    rows = sort_by_query(random_rows(17, n_queries=60, negatives=True))
    batch = build_file_rows(rows)
    number = {name: n for n, name in enumerate(sorted({row.query for row in rows}))}
    names = [number[row.query] if integer_queries else row.query for row in rows]
    batch = batch.set_column(0, "query_id", pa.array(names))
    weights, countries = (
        [kind(number[row.query]) for row in rows] for kind in (lambda n: n / 3 + 1, lambda n: n % 3)
    )
    batch = batch.append_column("w", pa.array(weights)).append_column("country", pa.array(countries))
    options = {"segments": ["country", "query_id"], "weight": "w"}
    path = write(tmp_path / "rows", batch, n_files=3, row_group_size=11)
    assert choose_source(path).files.bounds is not None
    expected = evaluate_sorted(spark.read.parquet(path), **options)
    assert evaluate_sorted(path, source="parquet", **options) == expected
    mixed = batch.take(pa.array(random.Random(1).sample(range(batch.num_rows), batch.num_rows)))
    path = write(tmp_path / "shuffled", mixed, n_files=3, row_group_size=11)
    assert choose_source(path).files.bounds is None
    assert evaluate_sorted(path, source="parquet", **options) == expected


def test_runs_judgments_and_keys_of_several_columns(spark: SparkSession, tmp_path: Path) -> None:
    """Run b misses a query of the judgments; both tables by path and by Spark."""
    rows = random_rows(5, n_queries=20)
    batch = build_file_rows(rows)
    batch = batch.append_column("day", pa.array([int(row.query[-1:].isdigit()) for row in rows], pa.date32()))
    scores = {"a": batch.column("score"), "b": pa.array([float(n % 5) for n in range(len(rows))])}
    runs = [
        batch.append_column("run", pa.array([run] * len(rows))).set_column(2, "score", run_scores)
        for run, run_scores in scores.items()
    ]
    runs[1] = runs[1].filter(pa.compute.not_equal(runs[1].column("query_id"), "q0"))
    both = pa.Table.from_batches(runs).combine_chunks().to_batches()[0]
    path = write(tmp_path / "rows", both.take(pa.array(random.Random(1).sample(range(len(both)), len(both)))))
    judged = pa.Table.from_batches([batch]).select(["query_id", "day", "item_id", "relevance"])
    pq.write_table(judged.filter(pa.compute.is_valid(judged["relevance"])), tmp_path / "judged.parquet")
    options = {"run": "run", "query": ["query_id", "day"]}
    long = evaluate_sorted(path, source="parquet", **options)
    assert len({row[0] for row in long}) == 2
    assert long == evaluate_sorted(spark.read.parquet(path), **options)
    options |= {"judgments": spark.read.parquet(str(tmp_path / "judged.parquet"))}
    joined = evaluate_sorted(path, source="parquet", **options)
    assert joined == evaluate_sorted(spark.read.parquet(path).drop("relevance"), **options)
    assert joined != long


def test_several_score_columns_of_files(spark: SparkSession, tmp_path: Path) -> None:
    rows = sort_by_query(random_rows(6, n_queries=20))
    batch = build_file_rows(rows).append_column("other", pa.array([n % 7 for n in range(len(rows))], pa.int32()))
    path = write(tmp_path / "rows", batch)
    options = {"score": ["score", "other"]}
    assert evaluate_sorted(path, source="parquet", **options) == evaluate_sorted(spark.read.parquet(path), **options)


def test_texts_may_be_written_as_large_strings(spark: SparkSession, tmp_path: Path) -> None:
    """Polars writes them; a second file has no rows, as Spark may write."""
    rows = build_file_rows([Row(query=f"q{n * 7 % 60}", item=n, score=n, relevance=n % 3) for n in range(300)])
    wide = rows.set_column(0, "query_id", rows.column("query_id").cast(pa.large_string()))
    path = write(tmp_path / "rows", wide)
    pq.write_table(pa.Table.from_batches([wide.slice(0, 0)]), Path(path) / "empty.parquet")
    assert evaluate_sorted(path, source="parquet") == evaluate_sorted(spark.read.parquet(path))


def test_texts_and_numbers_may_be_written_as_dictionaries(spark: SparkSession, tmp_path: Path) -> None:
    """Pandas writes categories so; also sorted by query, and as segments."""
    rows = [Row(query=f"q{n // 5:02}", item=f"i{n % 7}", score=n, relevance=n % 3) for n in range(300)]
    batch = build_file_rows(rows).append_column("country", pa.array([f"c{n // 50}" for n in range(300)]))
    for name in ("query_id", "item_id", "relevance", "country"):
        at = batch.schema.get_field_index(name)
        batch = batch.set_column(at, name, batch.column(name).dictionary_encode())
    path = write(tmp_path / "rows", batch)
    assert choose_source(path).files.bounds is not None
    options = {"segments": ["country"]}
    assert evaluate_sorted(path, source="parquet", **options) == evaluate_sorted(spark.read.parquet(path), **options)


def test_files_may_be_anywhere_below_a_path(spark: SparkSession, tmp_path: Path) -> None:
    """In a folder of dates, which is not a used column; beside files that Spark ignores; as a `file:` URL."""
    rows = random_rows(8)
    path = write(tmp_path / "nightly rows é" / "day=2026-01-31", build_file_rows(rows))
    (Path(path) / "_SUCCESS").write_text("")
    (Path(path) / ".part-9.parquet").write_text("no Parquet")
    expected = evaluate_sorted(spark.read.parquet(path))
    folder = Path(path).parent
    assert evaluate_sorted(str(folder), source="parquet") == expected
    assert evaluate_sorted(f"file://{folder}", source="parquet") == expected
    assert evaluate_sorted(folder, source="parquet") == expected


def test_workers_read_file_urls_like_spark(tmp_path: Path) -> None:
    """Spark decodes nothing in `file:` URLs: `a%20b` and `a b` are two folders with different rows."""
    for other in ("a b", "a", "100"):
        write(tmp_path / other, build_file_rows(random_rows(9)))
    expected = evaluate_sorted(write(tmp_path / "plain", build_file_rows(random_rows(8))), source="parquet")
    for name in ("a%20b", "a#b", "100%"):
        path = write(tmp_path / name, build_file_rows(random_rows(8)))
        assert evaluate_sorted(f"file:{path}", source="parquet") == expected, name


# --- Which queries are complete


def write_queries(folder: Path, *files: Sequence[Any], **options: Any) -> str:
    """Write files of these queries, one row each, in one row group."""
    kind = pa.string() if any(isinstance(query, str) for queries in files for query in queries) else pa.int64()
    folder.mkdir(exist_ok=True)
    for at, queries in enumerate(files):
        n = len(queries)
        columns = {"query_id": pa.array(queries, kind), "item_id": pa.array(range(n)), "score": pa.array([1.0] * n)}
        table = pa.table({**columns, "relevance": pa.array([1.0] * n)})
        pq.write_table(table, folder / f"{at}.parquet", **options)
    return str(folder)


def test_complete_queries_are_between_the_ends_of_other_files(tmp_path: Path) -> None:
    """One part per file; for each the highest query before it and the lowest after it."""
    for at, (files, expected) in enumerate((
        (([1, 2], [3, 4], [5]), ((None, 3), (2, 5), (4, None))),
        (([5], [1, 2], [3, 4]), ((4, None), (None, 3), (2, 5))),
        (([1, 2], [2], [2, 3]), ((None, 2), (2, 2), (2, None))),
        ((["a", "b"], ["b", "é"], ["中"]), ((None, "b"), ("b", "中"), ("é", None))),
        (([1, 4], [2, 3]), None),
        (([1, 2], [None, None]), None),
        (([1, 2], [3, None]), ((None, 3), (2, None))),
        (([7],), ((None, None),)),
    )):  # fmt: skip
        source = ndcg_spark.evaluate(write_queries(tmp_path / f"{at}", *files)).ranking.implementation.source
        assert isinstance(source, ParquetSource), source
        assert (files, source.files.bounds) == (files, expected)
    assert choose_source(write_queries(tmp_path / "rows", [1], [2], write_statistics=False)).files.bounds is None
    path = write_queries(tmp_path / "rows", [1], [2])
    assert choose_source(path).files.bounds is not None
    assert choose_source(path, query=["query_id", "item_id"]).files.bounds is None


def test_queries_with_other_tables_are_not_complete(spark: SparkSession, tmp_path: Path) -> None:
    """Judgments are another table, and metrics that read other tables are joined to rankings."""
    path = write_queries(tmp_path / "rows", [1], [2])
    frame = spark.read.parquet(path)
    alone = choose_source(path)
    judged = choose_source(path, judgments=frame.select("query_id", "item_id", "relevance"))
    options = {"metrics": "novelty@1", "convention": "default;ties=item_asc"}
    joined = choose_source(path, interactions=frame.select("query_id", "item_id"), **options)
    assert (alone.files.bounds is None, "sorted by query" in alone.reason) == (False, True)
    for source in (judged, joined):
        assert (source.files.bounds is None, "sorted by query" in source.reason) == (True, False)


# --- Who reads


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("table") / "rows", build_rows_with_ranks(random_rows(3), DEFAULT))


def test_windows_and_arrays_are_read_by_spark(spark: SparkSession, folder: str) -> None:
    """Windows rank in Spark, and arrays need no exchange."""
    with pytest.raises(InvalidParameterError, match=r"source='parquet' .* strategy=window ranks in Spark"):
        ndcg_spark.evaluate(folder, source="parquet", strategy="window")
    arrays = spark.createDataFrame([("q", [1.0, 0.0])], "query_id string, relevance array<double>")
    with pytest.raises(InvalidParameterError, match=r"source='parquet' .* column 'relevance' is an array"):
        ndcg_spark.evaluate(arrays, source="parquet")


def test_a_path_is_read_by_workers_and_a_table_by_spark(spark: SparkSession, folder: str) -> None:
    frame = spark.read.parquet(folder)
    assert ndcg_spark.evaluate(folder).ranking.source == "parquet"
    assert ndcg_spark.evaluate(folder, source="spark").ranking.source == "spark"
    assert ndcg_spark.evaluate(frame).ranking.source == "spark"
    with pytest.raises(InvalidParameterError, match=r"'parquet' is not available for this table: .* DataFrame"):
        ndcg_spark.evaluate(frame, source="parquet")


def change_column(name: str, make: Callable[[pa.Array], pa.Array]) -> Callable[[Path], None]:
    """Return a function that changes a column in all files of a folder."""

    def change(folder: Path) -> None:
        for path in folder.glob("*.parquet"):
            table = pq.ParquetFile(path).read()
            at = table.schema.get_field_index(name)
            pq.write_table(table.set_column(at, name, make(table[name])), path)

    return change


OBSTACLES: dict[str, tuple[Callable[[Path], None], dict[str, Any], str]] = {
    "a sample": (lambda _: None, {"sample": 0.5}, "a sample is taken"),
    "duplicates": (lambda _: None, {"convention": "default;duplicates=best"}, "among all rows"),
    "all duplicates": (lambda _: None, {"check_duplicates": "all"}, "among all rows"),
    "decimals": (
        change_column("relevance", lambda column: column.cast(pa.decimal128(20, 2))),
        {},
        r"'relevance' is decimal\(20,2\)",
    ),
}


def test_spark_reads_what_workers_cannot(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    """Or the reason is refused if workers were requested."""
    for name, (change, options, why) in OBSTACLES.items():
        path = write(tmp_path / name, build_file_rows(random_rows(3)))
        change(Path(path))
        assert ndcg_spark.evaluate(path, **options).ranking.source == "spark"
        with pytest.raises(InvalidParameterError, match=f"source='parquet' is not available .*{why}"):
            ndcg_spark.evaluate(path, source="parquet", **options)
    rows = build_file_rows(random_rows(3)).drop_columns(["query_id"])
    write(tmp_path / "by query" / "query_id=q1", rows)
    assert "'query_id' is in the names of folders" in ndcg_spark.evaluate(str(tmp_path / "by query")).ranking.reason
    for setting in ("spark__sql__files__ignoreCorruptFiles", "spark__sql__files__ignoreMissingFiles"):
        for text in ("true", "TRUE"):  # Spark returns the text as it was set
            with session_settings(spark, **{setting: text}):
                assert "is set" in ndcg_spark.evaluate(folder).ranking.reason


def test_default_file_system_of_spark_is_used(spark: SparkSession, tmp_path: Path) -> None:
    """Hadoop's files may set the file system of a path; here a setting of the session does."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder, relevances in ((ours, (1, 0)), (theirs, (0, 1))):
        write(
            folder, build_file_rows([Row(query="q", item=n, score=-n, relevance=r) for n, r in enumerate(relevances)])
        )
    name = f"fs.viewfs.mounttable.there.link.{ours}"
    before = ndcg_spark.evaluate(str(ours), k=1)
    spark.conf.set("fs.defaultFS", "viewfs://there/")
    spark.conf.set(name, f"file://{theirs}")
    try:
        evaluation = ndcg_spark.evaluate(str(ours), k=1)
        assert "another file system, as viewfs://there" in evaluation.ranking.reason
        assert find_ndcg(evaluation) == 0.0  # the item at rank 1 is not relevant in those files
    finally:
        spark.conf.unset("fs.defaultFS")
        spark.conf.unset(name)
    assert before.ranking.source == "parquet"
    assert find_ndcg(before) == 1.0


def find_ndcg(evaluation: Evaluation) -> float:
    """Return the only mean of NDCG."""
    return evaluation.summary.where("metric = 'ndcg'").collect()[0]["value"]


def test_files_of_several_schemas_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """One file has narrower numbers."""
    rows = [Row(query=query, item=n, score=-n, relevance=n % 3) for n, query in enumerate("aabbcc")]
    batch = build_file_rows(rows)
    path = write(tmp_path / "rows", batch.slice(0, 4), n_files=1)
    other = batch.slice(4).drop_columns(["item_id"]).append_column("item_id", pa.array([4, 5], pa.int32()))
    pq.write_table(pa.Table.from_batches([other]), Path(path) / "zzz.parquet")
    evaluation = ndcg_spark.evaluate(path)
    assert evaluation.ranking.source == "spark"
    assert "'item_id'" in evaluation.ranking.reason
    assert "is int32, not int64" in evaluation.ranking.reason
    assert "zzz.parquet" in evaluation.ranking.reason


HALVES = [Row(query=f"q{n // 2}", item=n, score=-n, relevance=n % 2) for n in range(8)]
"""Queries of two items, of which the second is relevant: NDCG is 1 / log2(3)."""
OF_HALVES = 0.6309297535714575


def test_unsigned_relevances(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "rows", build_file_rows(HALVES))
    change_column("relevance", lambda column: column.cast(pa.uint32()))(Path(path))
    assert find_ndcg(ndcg_spark.evaluate(path)) == OF_HALVES


def test_columns_with_another_case_are_left_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Spark ignores the case of names."""
    path = write(tmp_path / "rows", build_file_rows(HALVES))
    other = Path(path) / "part-1.parquet"
    pq.write_table(pq.ParquetFile(other).read().rename_columns({"query_id": "QUERY_ID"}), other)
    row = ndcg_spark.evaluate(path).summary.where("metric = 'ndcg'").first()
    assert (row["value"], row["n_queries"]) == (OF_HALVES, 4)


def test_corrupt_files_are_ignored_on_request(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "rows", build_file_rows(HALVES))
    (Path(path) / "zz-broken.parquet").write_bytes(b"this is no Parquet file, whatever its name says")
    with session_settings(spark, spark__sql__files__ignoreCorruptFiles="true"):
        assert find_ndcg(ndcg_spark.evaluate(path)) == OF_HALVES


def test_large_variable_width_types_change_nothing(spark: SparkSession, tmp_path: Path) -> None:
    countries = pa.array(["DE"] * 4 + ["FR"] * 4)
    path = write(tmp_path / "rows", build_file_rows(HALVES).append_column("country", countries))
    with session_settings(spark, spark__sql__execution__arrow__useLargeVarTypes="true"):
        for data in (path, spark.read.parquet(path)):
            evaluation = ndcg_spark.evaluate(data, segments=["country"])
            rows = evaluation.summary.where("metric = 'ndcg'").collect()
            assert {row["segment"]: row["value"] for row in rows} == dict.fromkeys(("", "DE", "FR"), OF_HALVES)


# --- What is refused


READ = {
    "query_id": {},
    "item_id": {},
    "score": {},
    "relevance": {},
    "w": {"weight": "w"},
    "country": {"segments": "country"},
    "at": {"order": "at", "convention": "default;ties=input_order"},
    "ranker": {"run": "ranker"},
    "rank": {"rank": "rank", "score": ()},
    "ideal": {"relevance": "listed", "ideal": "ideal"},
    "listed": {"ranked": "listed", "relevant": "ideal"},
}
"""Columns that an evaluation reads, with options by which it does."""


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of two files; the second lacks the column that the folder is named after, or none."""
    whole = {
        "query_id": ["a", "b"], "item_id": ["x", "y"], "score": [2.0, 1.0], "relevance": [1, 0], "w": [1.0, 1.0],
        "country": ["n", "n"], "at": [1, 2], "ranker": ["r", "r"], "rank": [1, 1], "listed": [[1], [1]],
        "ideal": [[1], [1]], "nobody reads it": [0, 0],
    }  # fmt: skip
    folders = {}
    for name in [*READ, "nobody reads it"]:
        folder = tmp_path_factory.mktemp("uneven")
        pq.write_table(pa.table(whole), folder / "0.parquet")
        other = whole | {"query_id": ["c", "d"]}
        pq.write_table(pa.table(other).drop_columns([name]), folder / "1.parquet")
        folders[name] = str(folder)
    return folders


def test_file_without_a_needed_column_is_named(uneven: dict[str, str]) -> None:
    for name, options in READ.items():
        path = uneven[name]
        message = rf"^column '{name}' \([a-z]+=\) of the input is not in {path}/1\.parquet, but in other files: "
        for data, source in (
            (path, "auto"), (path, "spark"), (f"{path}/*.parquet", "auto"), (ndcg_spark.read_table(path), "auto"),
        ):  # fmt: skip
            with pytest.raises(InputRefusedError, match=message):
                ndcg_spark.evaluate(data, source=source, **options)
    path = uneven["relevance"]
    with pytest.raises(InputRefusedError, match=r"relevance=\) of the judgments is not in .*/1\.parquet"):
        ndcg_spark.evaluate(uneven["nobody reads it"], path)
    for flag, other in (("--input", ()), ("--judgments", ("--input", uneven["nobody reads it"]))):
        ended = mean_ndcg(flag, path, *other)
        assert ended.code == 2
        assert f"is not in {path}/1.parquet, but in other files" in ended.err


def test_columns_that_files_may_lack(spark: SparkSession, uneven: dict[str, str], tmp_path: Path) -> None:
    """A column that nothing reads, one in folder names, and any column in a DataFrame or with merged schemas."""
    assert ndcg_spark.evaluate(uneven["nobody reads it"]).ranking.source == "parquet"
    relevance = uneven["relevance"]
    tables = [
        spark.read.parquet(relevance),
        ndcg_spark.read_table(relevance, options={"mergeSchema": "true"}),
    ]
    for table in tables:
        mean = ndcg_spark.evaluate(table).summary.where("metric = 'ndcg'").first()
        assert (mean["n_queries"], mean["n_unjudged"]) == (2, 2)
    for number, country in enumerate("no"):
        folder = tmp_path / f"country={country}"
        folder.mkdir()
        rows = pq.ParquetFile(f"{uneven['nobody reads it']}/{number}.parquet").read().drop_columns(["country"])
        pq.write_table(rows, folder / "0.parquet")
    actual = ndcg_spark.evaluate(str(tmp_path), segments="country", check_duplicates="none").summary
    assert {row["segment"] for row in actual.where("metric = 'ndcg'").collect()} == {"", "n", "o"}


def test_footers_that_workers_read_name_the_file_as_well(uneven: dict[str, str]) -> None:
    """Workers read the footers of objects in a store, too."""
    paths = [f"{uneven['relevance']}/{name}.parquet" for name in "01"]
    columns = {"query_0": "query_id", "relevance": "relevance"}
    schema = pa.schema([("query_0", pa.string()), ("relevance", pa.int64())])
    assert len(read_footers(paths[:1], columns, schema)) == 1
    with pytest.raises(InputRefusedError, match=r"^column 'relevance' of the input is not in .*/1\.parquet, but in "):
        read_footers(paths, columns, schema)
    numbers = pa.RecordBatch.from_pydict({"id": pa.array([0, 1])})
    (actual,) = send_footers(iter([numbers]), paths, columns, schema)
    with pytest.raises(InputRefusedError, match="'relevance' of the input is not in "):
        parse_footers(actual.column("found").to_pylist())


def test_refusals_are_those_of_a_table_that_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    """A bad row, a duplicate item in a ranking, a segment with two values; in sorted files and by both outputs."""
    rows = [Row(query=query, item=f"{n}", score=-n, relevance=n % 3) for query in "abcd" for n in range(5)]
    batch = build_file_rows(rows)
    changes = {
        "twice": batch.set_column(1, "item_id", pa.array(["0"] * len(rows))),
        "bad": batch.set_column(2, "score", pa.array([float("nan") if n == 7 else 0.0 for n in range(len(rows))])),
        "segments": batch.append_column("country", pa.array([n % 2 for n in range(len(rows))])),
    }
    for name, changed_rows in changes.items():
        options = {"k": 2, "segments": ["country"] if name == "segments" else []}
        path = write(tmp_path / name, changed_rows, n_files=1, row_group_size=100)
        said = [
            collect_refusal(getattr(evaluate_small_parts(data, **options), output))
            for data in (path, spark.read.parquet(path))
            for output in ("summary", "rankings")
        ]
        assert said[0] is not None
        assert len({re.sub("query_id=.", "", str(refusal)) for refusal in said}) == 1, said  # either may be met first


def test_a_file_that_changes_before_it_is_read_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = write(tmp_path / "rows", build_file_rows(random_rows(3)))
    actual = evaluate_small_parts(path, null_score="unretrieved")
    assert collect_refusal(actual.rankings) is None
    change_column("score", lambda column: column)(Path(path))
    assert "changed after the evaluation was planned; evaluate again" in str(collect_refusal(actual.summary))


# --- The job


def test_the_job_accounts_for_every_row_of_files(spark: SparkSession, tmp_path: Path) -> None:
    """Segments, weights and rejected rows: equal to the last bit for every reader."""
    rows = [row for row in random_rows(11, n_queries=40) if row.query != "missing"]
    batch = build_file_rows(rows)
    weight = pa.array([1.0 + len(row.query) for row in rows])
    country = pa.array([None if row.query.endswith("1") else row.query[-1] for row in rows])
    batch = batch.append_column("w", weight).append_column("country", country)
    options = ["--input", write(tmp_path / "rows", batch), "--k", "1,5", "--weight-col", "w"]
    options += ["--on-invalid", "reject", "--segment-cols", "country", "--json", "-"]
    choices = (("--source", "parquet"), ("--source", "spark"), ("--strategy", "window"))
    files, table, window = (run_mean_ndcg(*options, *choice).json for choice in choices)
    assert files == table == window
    assert files["rows"]["rejected"] > 0


def test_job_names_the_reader_and_the_reason(folder: str) -> None:
    for source, message in {
        "parquet": "Parquet files under a local path",
        "spark": "source=spark was requested",
    }.items():
        ended = mean_ndcg("--input", folder, "--k", "3", "--source", source, "--explain")
        assert ended.code == 0
        assert re.search(rf"source +{source}", ended.out), ended.out
        assert message in ended.out

"""Folders of files: both readers read the same files, none is silently ignored, names of folders are values."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.errors import AnalysisException
from pyspark.sql import types as T
from support.main_job import assert_refused, mean_ndcg
from support.spark_rankings import session_settings

import ndcg_spark
from ndcg_spark.core.failures import SPARK_ERRORS
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources import folders
from ndcg_spark.sources.formats import open_table
from ndcg_spark.sources.stores import list_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 0.6309297535714574
"""NDCG of a query whose only relevant item is at rank 2: 1 / log2(3)."""


def build_rows(query: str, *, relevant_at: int = 1) -> dict[str, list[Any]]:
    """Build two items of a query, one of them relevant."""
    relevances = [float(rank == relevant_at) for rank in (1, 2)]
    return {"query_id": [query] * 2, "item_id": [1, 2], "score": [2.0, 1.0], "relevance": relevances}


def write_files(root: Path, files: Mapping[str, Mapping[str, list[Any]]]) -> str:
    """Write Parquet files below a folder."""
    for name, columns in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(dict(columns)), root / name)
    return str(root)


def collect_means(summary: DataFrame, *keys: str) -> dict[tuple, float]:
    return {tuple(row[key] for key in keys): row["value"] for row in summary.where("metric = 'ndcg'").collect()}


# --- Data files on two levels


TWO_LEVELS = {
    "a sub folder": ("a.parquet", "s/b.parquet"),
    "a folder of a column": ("a.parquet", "day=1/b.parquet"),
    "below a folder of a column": ("day=1/a.parquet", "day=1/s/b.parquet"),
    "fewer columns": ("day=1/a.parquet", "day=2/hour=3/b.parquet"),
    "sub folders": ("s/a.parquet", "s/t/b.parquet"),
}


def test_data_files_on_two_levels_are_refused_by_both_readers(spark: SparkSession, tmp_path: Path) -> None:
    """Workers read all of them, Spark only some: the mean was (1 + .631) / 2 of both queries, or 1 of one."""
    for name, (first, second) in TWO_LEVELS.items():
        path = write_files(tmp_path / name, {first: build_rows("a"), second: build_rows("b", relevant_at=2)})
        common = os.path.commonpath([first, second])
        shown = [re.escape(repr(os.path.relpath(path, common or "."))) for path in (first, second)]
        for source in ("auto", "spark"):
            with pytest.raises(InputRefusedError, match=f"two levels.*{shown[0]}.*{shown[1]}.*recursiveFileLookup"):
                ndcg_spark.evaluate(path, source=source)
        assert "two levels" in str(list_files(path))


def test_every_path_must_have_files_on_one_level(spark: SparkSession, tmp_path: Path) -> None:
    """Judgments, other formats, reader options, patterns: one line and exit code 2."""
    rows = build_rows("a")
    flat = write_files(tmp_path / "flat", {"a.parquet": rows})
    nested = write_files(tmp_path / "nested", {"a.parquet": rows, "s/b.parquet": build_rows("b")})
    ended = mean_ndcg("--input", flat, "--judgments", nested)
    assert_refused(ended, f"'{nested}' has data files on two levels, such as 'a.parquet' and 's/b.parquet'")
    with pytest.raises(InputRefusedError, match="two levels"):
        open_table(spark, nested, options={"mergeSchema": "true"})
    assert list_queries(open_table(spark, nested, options={"recursivefilelookup": "TRUE"}).frame) == list("aabb")
    assert list_queries(open_table(spark, nested, options={"pathGlobFilter": "a.*"}).frame) == ["a", "a"]
    assert list_queries(open_table(spark, f"{tmp_path}/n*d/*").frame) == ["a", "a", "b", "b"]
    with pytest.raises(InputRefusedError, match=r"does not read all .*n\*d.*'a\.parquet' and skips 's/b\.parquet'"):
        open_table(spark, f"{tmp_path}/n*d")
    for kind in ("csv", "json", "orc", "trec-run"):
        text = tmp_path / kind
        for at in (".", "s"):
            (text / at).mkdir(parents=True, exist_ok=True)
            if kind == "orc":
                pa.orc.write_table(pa.table(rows), text / at / "a.orc")
            else:
                ending = kind if kind != "trec-run" else "run"
                (text / at / f"a.{ending}").write_text('{"query_id": "q"}\n' if kind == "json" else "query_id\nq\n")
        with pytest.raises(InputRefusedError, match=r"two levels.*'a\.\w+'.*'s/a\.\w+'"):
            open_table(spark, str(text), kind)


def test_files_in_plain_subfolders_are_not_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads a TREC run in a subfolder as no rows."""
    (tmp_path / "runs" / "s").mkdir(parents=True)
    (tmp_path / "runs" / "s" / "a.run").write_text("1 Q0 d1 1 0.9 tag\n")
    with pytest.raises(InputRefusedError, match=r"does not read .*s/a\.run"):
        open_table(spark, str(tmp_path / "runs"), "trec-run")
    path = write_files(tmp_path / "rows", {"s/b.parquet": build_rows("b")})
    with pytest.raises(InputRefusedError, match=r"does not read .*s/b\.parquet"):
        open_table(spark, path)


def test_broken_files_are_not_reported_as_levels(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own error is reported, also if all levels were requested."""
    for name in ("a.parquet", "s/b.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"PAR1 broken PAR1")
    with pytest.raises(InputRefusedError, match=r"^(?!.*two levels).*a\.parquet"):
        open_table(spark, str(tmp_path))
    options = {"recursiveFileLookup": "true", "ignoreCorruptFiles": "true"}
    with pytest.raises(InputRefusedError, match="holds no parquet files"):
        open_table(spark, str(tmp_path), options=options)


@pytest.mark.parametrize(
    ("names", "nightly"),
    [
        (["run", "dataset", "run_date", "slice"], True),
        (["run", "dataset", "slice"], True),
        (["run", "dataset", "run_date"], False),
        (["run", "slice", "dataset"], False),
        (["run", "run_date", "slice"], False),
    ],
)
def test_nightly_tables_are_recognized_by_stored_columns(names: list[str], nightly: bool) -> None:
    assert folders._is_nightly(T.StructType([T.StructField(name, T.StringType()) for name in names])) is nightly


def test_stray_files_on_another_level_are_ignored(spark: SparkSession, tmp_path: Path) -> None:
    path = write_files(tmp_path / "f", {"a.parquet": build_rows("a")})
    for name in ("s/notes.txt", "s/README", "s/.part.crc", "_temporary/0/b.parquet", "_SUCCESS"):
        (tmp_path / "f" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "f" / name).write_text("no Parquet")
    assert collect_means(ndcg_spark.evaluate(path).summary, "n_queries") == {(1,): 1.0}
    write_files(tmp_path / "f", {"s/000000_0": build_rows("b")})  # as Hive and Flink name their files
    with pytest.raises(InputRefusedError, match=r"two levels.*s/000000_0"):
        ndcg_spark.evaluate(path)


FOLDERS = [
    *("", "", "s", "s/t", "day=1", "day=1", "day=2", "Day=3"),
    *("day=1/hour=2", "day=2/hour=3", "day=2/s", "_day=4"),
]
HIDDEN = ["_temporary/0", ".hidden", "_x", "day=1/_x", "s/.y"]
NAMES = st.sampled_from(["a.parquet", "b é.parquet", "000000_0", "_c.parquet", ".d.parquet", "e.parquet._COPYING_"])
STRAYS = st.sampled_from(["notes.txt", "zzz.md", "s/README", "day=1/x.crc", "gone.parquet -> nowhere"])


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[str], list[str], bool]:
    """Draw names of Parquet files, of strays, and whether the folder `link=...` points to files elsewhere."""
    level = draw(st.sampled_from([[""], ["day=1", "day=2", "Day=3"], ["day=1/hour=2", "day=2/hour=3"], FOLDERS]))
    places = draw(st.lists(st.sampled_from(level), min_size=1, max_size=3))
    places += draw(st.lists(st.sampled_from(HIDDEN), max_size=2))
    files = sorted({f"{place}/{draw(NAMES)}".lstrip("/") for place in places})
    return files, draw(st.lists(STRAYS, max_size=1)), draw(st.sampled_from([False, False, True]))


def is_visible(name: str) -> bool:
    """The rule of Spark, written again."""
    return not any(
        part.startswith(".") or part.endswith("._COPYING_") or (part.startswith("_") and "=" not in part)
        for part in name.split("/")
    )


def list_queries(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.select("query_id").collect())


@pytest.mark.classic("Python workers read files themselves")
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(layout=layouts())
@example(layout=(["day=1/a.parquet", "Day=3/a.parquet"], ["notes.txt"], False))
@example(layout=(["a.parquet", "_temporary/0/b.parquet", "_x/c.parquet"], ["gone.parquet -> nowhere"], False))
@example(layout=(["day=1/000000_0"], ["notes.txt"], False))
@example(layout=(["day=1/a.parquet"], [], True))
def test_both_readers_read_the_rows_of_spark_or_refuse(
    spark: SparkSession, layout: tuple[list[str], list[str], bool]
) -> None:
    """A layout in which Spark would ignore a file because of its folder is refused."""
    files, strays, linked = layout
    with TemporaryDirectory() as folder:
        root = Path(folder, "rows")
        path = write_files(root, {name: {"query_id": [name]} for name in files})
        for name, _, target in (stray.partition(" -> ") for stray in strays):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(target) if target else (root / name).write_text("no Parquet")
        if linked:
            write_files(Path(folder, "elsewhere"), {"l.parquet": {"query_id": ["day=9/l.parquet"]}})
            (root / "day=9").symlink_to(Path(folder, "elsewhere"))
        data = [name for name in files if is_visible(name)] + ["day=9/l.parquet"] * linked
        levels = {name.count("/") for name in data}
        try:
            expected: list[str] | None = list_queries(spark.read.parquet(path))
        except SPARK_ERRORS:
            expected = None
        try:
            by_spark: list[str] | None = list_queries(open_table(spark, path).frame)
        except (InputRefusedError, *SPARK_ERRORS):
            by_spark = None
        listed = list_files(path)
        by_workers = None if isinstance(listed, str) else [str(pq.read_table(row)["query_id"][0]) for row in listed]
        if len(levels) > 1:
            assert (by_spark, by_workers) == (None, None)
        else:
            assert by_spark == expected
            assert by_spark in (None, sorted(data))
            assert by_workers is None or sorted(by_workers) == by_spark


# --- Names of folders that stand for values


def test_runs_and_queries_in_names_of_folders_keep_their_zeros(spark: SparkSession, tmp_path: Path) -> None:
    """Spark infers integers, which makes one run of 007 and 7."""
    files = {"run=007/a.parquet": build_rows("q"), "run=7/a.parquet": build_rows("q", relevant_at=2)}
    runs = write_files(tmp_path / "runs", files)
    for source in ("auto", "spark"):
        rows = ndcg_spark.evaluate(runs, run="run", source=source).summary
        assert collect_means(rows, "run") == pytest.approx({("007",): 1.0, ("7",): SECOND}, abs=1e-12)
    plain = {name: values for name, values in build_rows("q", relevant_at=2).items() if name != "query_id"}
    first = {name: values for name, values in build_rows("q").items() if name != "query_id"}
    queries = write_files(tmp_path / "queries", {"query_id=05/a.parquet": first, "query_id=5/a.parquet": plain})
    rows = ndcg_spark.evaluate(queries, k=2).per_query.collect()
    assert {row["query_id"]: row["ndcg"] for row in rows} == pytest.approx({"05": 1.0, "5": SECOND}, abs=1e-12)
    frame = spark.read.parquet(runs)
    assert collect_means(ndcg_spark.evaluate(frame, run="run", check_duplicates="none").summary, "run").keys() == {
        ("7",)
    }


INT, LONG, DATE, TIME, TEXT, DOUBLE = "int", "bigint", "date", "timestamp", "string", "double"
NULL = "__HIVE_DEFAULT_PARTITION__"
VALUES: list[tuple[str, str]] = [
    ("7 8", INT), ("0 -7", INT), (f"7 {NULL}", INT), ("12345678901", LONG), ("9876543210987654321", "decimal(19,0)"),
    ("007 7", TEXT), ("-0 0", TEXT), ("+7 7", TEXT), ("%207 7", TEXT), ("٣ 3", TEXT), ("09876543210987654321", TEXT),
    ("1e3", TEXT), ("0e5", TEXT), ("1d 2f", TEXT), ("1.0 1.00", TEXT), ("1.0 2.5", DOUBLE), ("0.1 -3.25", DOUBLE),
    ("0.10", TEXT), ("0.5 1", TEXT), ("1E-3", TEXT), ("1.0E-5", DOUBLE), ("100000000.5", TEXT), ("-0.0 0.0", TEXT),
    ("0.0 2.5", DOUBLE), ("NaN -Infinity", DOUBLE), ("+Infinity 1.5", TEXT),
    ("1.000000005E8", DOUBLE), ("2026-01-09 2026-12-31", DATE), (f"2026-01-09 {NULL}", DATE), ("2026-1-9", TEXT),
    ("2026-01-09%2010%3A00%3A00", TIME), ("2026-01-09%2010%3A00%3A00.50", TEXT), ("2026-03-29%2002%3A30%3A00", TEXT),
    ("a%3Ab b", TEXT), ("true", TEXT),
]  # fmt: skip


def test_folder_names_are_typed_only_if_their_text_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """One column per case, in a table of two files; in a zone whose clock jumped at 02:30 on 2026-03-29.

    %20 is a space in the folder name; other escapes are Hive's.
    """

    def folder(row: int) -> str:
        texts = [words.split(" ")[row % len(words.split(" "))].replace("%20", " ") for words, _ in VALUES]
        return "/".join(f"{'C' if row else 'c'}{n}={text}" for n, text in enumerate(texts))

    path = write_files(tmp_path / "f", {f"{folder(row)}/a.parquet": {"row": [row]} for row in (0, 1)})
    with session_settings(spark, spark__sql__session__timeZone="Europe/Paris"):
        frame = open_table(spark, path).frame
        frame = frame.toDF(*map(str.lower, frame.columns))
        kinds = dict(frame.dtypes)
        assert {text: kinds[f"c{n}"] for n, (text, _) in enumerate(VALUES)} == dict(VALUES)
        rows = {row["row"]: row for row in frame.collect()}
    at = {text: f"c{n}" for n, (text, _) in enumerate(VALUES)}
    expected = {"007 7": ["007", "7"], "%207 7": [" 7", "7"], "a%3Ab b": ["a:b", "b"], f"7 {NULL}": [7, None]}
    assert {text: [rows[0][at[text]], rows[1][at[text]]] for text in expected} == expected


def test_other_formats_keep_names_of_folders_too(spark: SparkSession, tmp_path: Path) -> None:
    for kind, text in {"csv": "x\n1\n", "json": '{"x": "1"}\n', "orc": ""}.items():
        for run in ("007", "7"):
            place = tmp_path / kind / f"run={run}"
            place.mkdir(parents=True)
            if text:
                (place / f"a.{kind}").write_text(text)
            else:
                pa.orc.write_table(pa.table({"x": ["1"]}), place / "a.orc")
        rows = open_table(spark, str(tmp_path / kind), kind).frame.select("x", "run").collect()
        assert (kind, sorted(tuple(row) for row in rows)) == (kind, [("1", "007"), ("1", "7")])


@pytest.mark.parametrize(("said", "passes"), [("Read timed out", False), ("[NOT_IMPLEMENTED] inputFiles", True)])
def test_failures_of_listing_files(spark: SparkSession, tmp_path: Path, monkeypatch, said, passes) -> None:
    """A platform that never lists files may read the table; any other failure is an error."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")

    def fail(*_: object) -> None:
        raise AnalysisException(said)

    def is_read() -> None:
        if passes:
            assert open_table(spark, str(tmp_path)).frame.columns == ["a"]
        else:
            with pytest.raises(InputRefusedError, match=said):
                open_table(spark, str(tmp_path))

    with monkeypatch.context() as broken:
        broken.setattr(type(spark.range(1)), "inputFiles", fail)
        is_read()
    monkeypatch.setattr(folders, "list_files_below", fail)  # files that are not read must be found, too
    is_read()

"""Paths that are hard to get through Spark, Hadoop and a shell: right numbers, or a refusal in a line.

Each name is that of the folder in which both tables of a run lie. Column names and ids are tested elsewhere.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.main_job import assert_refused, mean_ndcg, read_files, read_stored_rows, write_rows
from support.oracle import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = [Row(query=f"q{n // 4}", item=f"i{n}", score=float(n * 7 % 10), relevance=n * 5 % 4) for n in range(40)]
OTHERS = [Row(query=row.query, item=row.item, score=-row.score, relevance=row.relevance) for row in ROWS]
PLAIN = (*("a b", " first", "last ", "é中😀", "a%20b", "100%", "%2F", "x=1", "score=2", "a#b", "a&$H", "a,b+c", "~"),)
QUOTED = ("it's", '"it"', "`it`", "tab\there", "-k", "a:b", "new\nline")
DECODED = {"a%20b": "a b", "%2F": "/", "100%": "100", "a#b": "a"}
NIGHT = ("--run-date", "2026-01-31", "--dataset", "search", "--k", "5")


@pytest.fixture(scope="module")
def expected(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> float:
    path = write_rows(tmp_path_factory.mktemp("plain") / "rows.parquet", ROWS)
    return ndcg_of(mean_ndcg("--input", path, *NIGHT, "--json", "-").json)


def ndcg_of(outcome: dict) -> float:
    (value,) = [row["value"] for row in outcome["metrics"] if row["metric"] == "ndcg"]
    return value


@pytest.mark.parametrize("names", [PLAIN, QUOTED], ids=["plain", "quoted"])
def test_paths_of_any_name_are_read_and_written(
    spark: SparkSession, tmp_path: Path, expected: float, names: tuple[str, ...]
) -> None:
    """Folders of all these names in each other; by workers and by Spark; beside what lies there decoded once more."""
    folder = tmp_path.joinpath(*names)
    file = f"{names[3]}.parquet"
    write_rows(folder / "rows" / file, ROWS)
    for name in DECODED.keys() & set(names):
        around = tmp_path.joinpath(*[element if element != name else DECODED[name].strip("/") for element in names])
        write_rows(around / "rows" / file, OTHERS)
    before = sorted(os.listdir(folder))
    on_connect = "connect" in type(spark).__module__  # where Python workers do not read files themselves
    for source in ("auto" if on_connect else "parquet", "spark"):
        put = ("--output", folder / f"{names[0]} metrics")
        ended = mean_ndcg("--input", folder / "rows", *put, *NIGHT, "--source", source, "--json", "-")
        assert (ended.code, ended.complaints) == (0, []), ended.err
        assert ndcg_of(ended.json) == expected
        (stored,) = [row for row in read_stored_rows(folder / f"{names[0]} metrics") if row["metric"] == "ndcg"]
        assert (stored["value"], stored["dataset"]) == (expected, "search")
    assert sorted(os.listdir(folder)) == sorted([*before, f"{names[0]} metrics"])
    ended = mean_ndcg("--input", folder / "rows", "--output", folder / "rows" / "below", *NIGHT)
    assert_refused(ended, "overlaps --input")


@pytest.mark.parametrize("name", ["[ab]", "{a,b}*"])
def test_a_path_that_spark_takes_for_a_pattern(tmp_path: Path, expected: float, name: str) -> None:
    """As an input it is the folder of that name, else the pattern; as an output it is refused."""
    write_rows(tmp_path / name / "0.parquet", ROWS)
    write_rows(tmp_path / "a" / "0.parquet", OTHERS)  # which the pattern matches
    ended = mean_ndcg("--input", tmp_path / name, *NIGHT, "--json", "-")
    assert ended.code == 0, ended.err
    assert ndcg_of(ended.json) == expected
    matched = {"[ab]": "a", "{a,b}*": "bcd"}[name]
    write_rows(tmp_path / "apart" / matched / "0.parquet", ROWS)
    ended = mean_ndcg("--input", tmp_path / "apart" / name, *NIGHT, "--json", "-")
    assert ended.code == 0, ended.err
    assert ndcg_of(ended.json) == expected
    before = read_files(tmp_path)
    ended = mean_ndcg("--input", tmp_path / "apart" / matched, "--output", tmp_path / name / "metrics", *NIGHT)
    assert_refused(ended, "so Spark would not find it")
    assert read_files(tmp_path) == before


@pytest.mark.usefixtures("spark")
def test_a_path_with_a_blank_is_no_query(tmp_path: Path) -> None:
    """Two such folders are two data sets, whose rows do not replace each other."""
    for name, rows in {"my rows": ROWS, "your rows": OTHERS}.items():
        path = write_rows(tmp_path / name / "0.parquet", rows)
        ended = mean_ndcg("--input", path.parent, "--output", tmp_path / "out", "--run-date", "2026-01-31")
        assert (ended.code, ended.complaints) == (0, []), ended.err
    assert {row["dataset"] for row in read_stored_rows(tmp_path / "out")} == {"my rows", "your rows"}

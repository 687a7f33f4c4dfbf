"""A folder with two nights of rankings and a file of steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.main_job import write_table
from support.night_files import FILE, write_file


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder with rankings of two nights and a file of a night; it is the working folder."""
    for day in (30, 31):
        rows = [
            (run, query, item, float(item == first), float(item == "b"))
            for run, first in (("bm25", "a"), ("vectors", "b" if day == 31 else "a"))
            for query in ("q1", "q2", "q3")
            for item in ("a", "b")
        ]
        names = ("ranker", "query_id", "item_id", "score", "relevance")
        columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
        write_table(tmp_path / "rankings" / f"2026-01-{day}.parquet", columns)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NDCG_SPARK_ENGINE", "local")  # whatever session other tests have
    write_file(FILE)
    return tmp_path

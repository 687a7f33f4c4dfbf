"""Run jobs inside the test process; write their inputs and read their outputs."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark.main import main
from support.oracle import Row

PROGRESS = re.compile(r".*: \d+\.\d s")
COLUMNS = {"query_id": "query", "item_id": "item", "score": "score", "relevance": "relevance"}


@dataclass(frozen=True, slots=True)
class RunResult:
    """Exit code and output of a run."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The object that `--json -` prints on the last line."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def complaints(self) -> list[str]:
        """Lines on standard error other than progress."""
        return [line for line in self.err.splitlines() if line.strip() and not PROGRESS.fullmatch(line)]


def mean_ndcg(*arguments: object) -> RunResult:
    """Run `ndcg-spark mean-ndcg` in this process, in the active session."""
    return run_command("mean-ndcg", *arguments)


def run_command(*arguments: object) -> RunResult:
    """Run `ndcg-spark` in this process."""
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([*map(str, arguments)])
    return RunResult(code, out.getvalue(), err.getvalue())


def run_mean_ndcg(*arguments: object) -> RunResult:
    """Run `ndcg-spark mean-ndcg`; check that it succeeds."""
    ended = mean_ndcg(*arguments)
    assert (ended.code, ended.complaints) == (0, []), ended.err
    return ended


def assert_refused(ended: RunResult, *named: str) -> None:
    """Check a refusal: exit code 2, nothing on stdout, one line on stderr that has all the names."""
    assert ended.code == 2, (ended.out, ended.err)
    assert ended.out == ""
    assert len(ended.complaints) == 1, ended.err
    (line,) = ended.complaints
    assert [name for name in named if name not in line] == [], line
    assert "Traceback" not in ended.err
    assert "org.apache" not in ended.err.replace("--packages org.apache", "")


def find_value(outcome: Mapping[str, Any], metric: str, k: int | None, *, run: str = "") -> float | None:
    """Return an overall mean from the JSON."""
    (row,) = [
        row
        for row in outcome["metrics"]
        if (row["run"], row["segment_by"], row["metric"], row["k"]) == (run, "", metric, k)
    ]
    return row["value"]


def find_query_values(outcome: Mapping[str, Any]) -> dict[tuple[str, str, int | None], float | None]:
    """Return values by (query, metric, k); the segments must be queries."""
    rows = [row for row in outcome["metrics"] if row["segment_by"] == "query_id"]
    return {(row["segment"], row["metric"], row["k"]): row["value"] for row in rows}


# ----------------------------------------------------------------------------------------------------- inputs


def write_table(path: Path, columns: Mapping[str, Sequence[Any]], types: Mapping[str, pa.DataType] = {}) -> Path:
    """Write a Parquet file, or a CSV by its extension; None is null, NaN stays NaN."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        lines = [
            ",".join("" if value is None else str(value) for value in line)
            for line in zip(*columns.values(), strict=True)
        ]
        path.write_text("\n".join([",".join(columns), *lines, ""]), encoding="utf-8")
    else:
        pq.write_table(pa.table({name: pa.array(values, types.get(name)) for name, values in columns.items()}), path)
    return path


def write_rows(path: Path, rows: Iterable[Row], names: Iterable[str] = COLUMNS, **more: Callable[[Row], Any]) -> Path:
    """Write rows of the oracle under the default column names, with more columns computed from each."""
    listed = list(rows)
    columns = {name: [getattr(row, COLUMNS[name]) for row in listed] for name in names}
    columns |= {name: [compute(row) for row in listed] for name, compute in more.items()}
    doubles = {name: pa.float64() for name in ("score", "relevance") if name in columns}
    return write_table(path, columns, doubles)


def write_run(path: Path, rows: Iterable[Row]) -> Path:
    """Write the retrieved items, without relevances."""
    return write_rows(path, [row for row in rows if row.score is not None], ("query_id", "item_id", "score"))


def write_judgments(path: Path, rows: Iterable[Row]) -> Path:
    """Write the judged items, without scores."""
    return write_rows(path, [row for row in rows if row.relevance is not None], ("query_id", "item_id", "relevance"))


# ---------------------------------------------------------------------------------------------------- outputs


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder; empty if there is no such folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read_stored_rows(folder: Path) -> list[dict[str, Any]]:
    """Return rows of a partitioned Parquet folder, without Spark; `run_date` is text here."""
    rows = []
    for path in sorted(folder.rglob("*.parquet")):
        partition = dict(part.split("=", 1) for part in path.relative_to(folder).parts[:-1])
        rows += [row | partition for row in pq.ParquetFile(path).read().to_pylist()]
    return rows

"""Tables at s3://: read by workers through Arrow, or by Spark; equal numbers, and refusals in a line.

The store is a server on this machine. Spark has no connector to S3 from PyPI; tests that need one use Hadoop's
ViewFileSystemOverloadScheme instead, with a local folder as the bucket `connected`.
"""

from __future__ import annotations

import pickle
import random
import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.arrow_rows import build_file_rows
from support.expectations import collect_refusal
from support.main_job import (
    assert_refused,
    mean_ndcg,
    read_files,
    read_stored_rows,
    run_mean_ndcg,
    write_judgments,
    write_run,
)
from support.object_store import SECRET, Server, s3_server, set_environment
from support.random_rankings import random_rows
from support.spark_rankings import session_settings

import ndcg_spark
from ndcg_spark.errors import InputRefusedError, InvalidParameterError
from ndcg_spark.evaluation.frames.source import ParquetSource
from ndcg_spark.jobs.logs import Progress
from ndcg_spark.sources.local import LocalTable, open_local
from ndcg_spark.sources.stores import list_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_spec("moto") is None, reason="moto[server], an S3 server, is not installed"),
    pytest.mark.classic("workers and settings of this machine reach the store"),
]
NIGHT = ("--run-date", "2026-01-31", "--dataset", "search")
ROWS = [row for row in random_rows(11, n_queries=40) if row.query != "missing" and row.score is not None]


@pytest.fixture(scope="module")
def server(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with s3_server(tmp_path_factory.mktemp("store")) as started, set_environment(spark, started.settings()):
        for bucket in ("data", "denied", "connected"):
            started.put(bucket)
        started.deny_objects("denied")
        yield started


def write(folder: Path, *, n_files: int = 3, mixed: bool = False) -> Path:
    """Write small row groups below folders that are not used columns, with files that Spark ignores."""
    rows = sorted(ROWS, key=lambda row: row.query.encode())
    batch = build_file_rows(random.Random(1).sample(rows, len(rows)) if mixed else rows)
    step = -(-batch.num_rows // n_files)
    for at in range(n_files):
        path = folder / "day=2026-01-31" / f"part {at} %20é+#.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_batches([batch.slice(at * step, step)]), path, row_group_size=31)
    (folder / "_SUCCESS").write_bytes(b"")
    (folder / "_temporary").mkdir()
    (folder / "_temporary" / "0.parquet").write_bytes(b"no Parquet")
    return folder


@pytest.fixture(scope="module")
def tables(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of files, also stored at s3://data."""
    root = tmp_path_factory.mktemp("tables")
    for name in ("sorted", "mixed"):
        server.put_folder(write(root / name, mixed=name == "mixed"), f"data/{name}")
    write_run(root / "run" / "0.parquet", ROWS)
    write_judgments(root / "judged" / "0.parquet", ROWS)
    for name in ("run", "judged"):
        server.put_folder(root / name, f"data/{name}")
    return root


def evaluate_sorted(data: str, **options: object) -> list[tuple]:
    rows = ndcg_spark.evaluate(data, k=[1, 5], **options).summary.collect()
    return sorted((tuple(row) for row in rows), key=str)


# --- Read by Arrow, without Spark


def test_open_local_at_a_store_equals_local_files(server: Server, tables: Path) -> None:
    """Including the column of the folder `day=2026-01-31`."""
    local, remote = open_local(str(tables / "sorted")), open_local("s3a://data/sorted/")
    assert isinstance(local, LocalTable)
    assert isinstance(remote, LocalTable)
    assert remote.info == local.info
    assert remote.info.names[-1] == "day"
    assert remote.n_bytes == local.n_bytes
    rows = [
        [row for part in table.parts(8) for batch in part.read(table.info.names, table.info.schema, 50)
         for row in batch.to_pylist()]
        for table in (local, remote)
    ]  # fmt: skip
    assert rows[0] == rows[1] != []
    assert SECRET.encode() not in pickle.dumps(remote.parts(8))
    with pytest.raises(InputRefusedError, match=r"there is no path 's3://data/nothing'"):
        open_local("s3://data/nothing")
    server.put("data/log/_delta_log/0.json", b"{}")
    server.put("data/ice/metadata/1.metadata.json", b"{}")
    for table in ("log", "ice"):
        server.put(f"data/{table}/data/day=1/a.parquet", b"no Parquet")
        clause = "the path may contain files of a Delta, Iceberg or Hudi table"
        assert open_local(f"s3://data/{table}/data/day=1") == clause


# --- Read by workers


@pytest.mark.parametrize("name", ["sorted", "mixed"])
def test_workers_read_objects_to_the_bits_of_local_files(tables: Path, name: str) -> None:
    """Keys with spaces, per cent signs and accents; `s3`, `s3a` and a trailing slash."""
    local = str(tables / name)
    expected = evaluate_sorted(local, source="spark")
    assert evaluate_sorted(local, source="parquet") == expected
    for address in (f"s3://data/{name}", f"s3a://data/{name}/")[: 2 if name == "sorted" else 1]:
        evaluation = ndcg_spark.evaluate(address, k=[1, 5], source="parquet")
        source = evaluation.ranking.implementation.source
        assert isinstance(source, ParquetSource)
        assert (source.files.bounds is not None) == (name == "sorted")
        assert SECRET.encode() not in pickle.dumps(source.files)
        assert sorted((tuple(row) for row in evaluation.summary.collect()), key=str) == expected


def test_requests_are_few_and_concurrent(server: Server, tables: Path) -> None:
    """Planning: two listings; 2 requests for the first schema; 2 per file. Reading: 2 per part, 1 per row group."""
    before = len(server.requests())
    evaluation = ndcg_spark.evaluate("s3://data/sorted", k=5)
    planned = server.requests()[before:]
    n_files, n_groups = 3, sum(pq.ParquetFile(path).num_row_groups for path in tables.glob("sorted/day*/*.parquet"))
    listings = [line for line in planned if line.startswith("LIST")]
    assert (len(listings), len(planned)) == (2, 2 + 2 + 2 * n_files), planned
    assert evaluation.summary.collect()
    read = server.requests()[before + len(planned) :]
    n_parts = len(evaluation.ranking.implementation.source.files.parts)
    assert len(read) == 2 * n_parts + n_groups, read


def test_the_job_reads_a_run_and_judgments_at_the_store(server: Server, tables: Path) -> None:
    """Judgments are a table at the store, too, without a connector of Spark; bad rows are counted and left out."""
    for name in ("run", "judged"):
        assert (tables / name).is_dir()
    roots = [str(tables), "s3://data"]
    actual = [
        run_mean_ndcg(
            "--input", f"{root}/run", "--judgments", f"{root}/judged", "--k", "1,5", "--json", "-", *more
        ).json
        for root in roots
        for more in ((), ("--on-invalid", "reject"))
    ]
    assert {row["input"] for row in actual[2:]} == {"parquet:s3://data/run judged by parquet:s3://data/judged"}
    for result in actual:
        result.pop("input")
        result.pop("config_hash")  # it holds how bad rows are treated
    assert actual[0] == actual[2]
    assert actual[1] == actual[3]


def test_folder_named_like_a_file_is_listed(server: Server) -> None:
    """Spark names its output so; an object of such a name is one file."""
    server.put("data/rows.parquet/0.parquet")
    for address in ("s3://data/rows.parquet", "s3://data/rows.parquet/", "s3://data/rows.parquet/0.parquet"):
        assert list_files(address) == ["s3://data/rows.parquet/0.parquet"]


def test_explain_names_the_reader_and_the_reason(tables: Path) -> None:
    ended = mean_ndcg("--input", "s3a://data/sorted", "--explain")
    assert (ended.code, ended.complaints) == (0, [])
    assert "source       parquet: 3 Parquet objects that workers can read, sorted by query" in ended.out
    assert SECRET not in ended.out
    ended = mean_ndcg("--input", "s3://data/sorted", "--sample", "0.5", "--explain")
    assert "source       spark: a sample is taken" in ended.out


# --- Refusals


def test_objects_on_two_levels_are_refused(server: Server, tables: Path, connected: Path) -> None:
    """By Arrow without a connector of Spark, by Spark with one; an object of each level is named."""
    body = next((tables / "sorted" / "day=2026-01-31").glob("part 0*")).read_bytes()
    for key in ("a.parquet", "s/b.parquet"):
        server.put(f"data/levels/{key}", body)
        (connected / "rows" / key).parent.mkdir(exist_ok=True)
        (connected / "rows" / key).write_bytes(body)
    for address in ("s3://data/levels", "s3a://connected/rows"):
        for source in ("auto", "spark"):
            with pytest.raises(
                InputRefusedError, match=rf"'{address}'.* on two levels, such as 'a.parquet' and 's/b.parq"
            ):
                ndcg_spark.evaluate(address, source=source)


def put_broken_object(server: Server, tables: Path, name: str) -> None:
    """Store an object that ends too early."""
    body = next((tables / "sorted" / "day=2026-01-31").glob("part 1*")).read_bytes()
    server.put(f"data/{name}/0.parquet", next((tables / "sorted" / "day=2026-01-31").glob("part 0*")).read_bytes())
    server.put(f"data/{name}/1.parquet", body[: len(body) // 2])


def test_unreadable_objects_are_refused_in_one_line(server: Server, tables: Path, tmp_path: Path) -> None:
    """Exit code 2, the name of the object or bucket, what to add to Spark; nothing is written."""
    put_broken_object(server, tables, "truncated")
    server.put_folder(tables / "sorted", "denied/rows")
    server.put("data/delta/_delta_log/0.json")
    connector = "Spark has no file system for s3; start it with --packages org.apache.spark:spark-hadoop-cloud_2.1"
    output = tmp_path / "metrics"
    for reference, *named in (
        ("s3://no-such-bucket/rows", "'no-such-bucket'", "NO_SUCH_BUCKET", connector, "calls it s3a ("),
        ("s3://denied/rows", "denied/rows/day=2026-01-31/part 0 %20é+#.parquet", "ACCESS_DENIED", connector),
        ("s3a://data/none", "there is no path 's3a://data/none'"),
        ("s3://data/delta", "not every file below the path belongs to the table", connector),
        ("s3://KEY:SECRET@data/sorted", "'s3://***@data/sorted' contains credentials"),
        ("hdfs:///rows", "cannot read parquet 'hdfs:///rows': "),
        ("dbfs:/rows", "Spark has no file system for dbfs, which exists only on Databricks"),
        ("s3://data/rows.csv", "cannot read csv 's3://data/rows.csv'", connector),
    ):
        ended = mean_ndcg("--input", reference, "--output", output, *NIGHT)
        assert_refused(ended, *named)
        assert not {"SECRET", SECRET} & set(re.split(r"\W", ended.err))
    ended = mean_ndcg("--input", "s3://data/truncated", "--output", output, *NIGHT)
    assert ended.code == 2
    fell_back, refused = ended.complaints
    assert fell_back.startswith(
        "read by Spark: a file cannot be read (s3://data/truncated/1.parquet is not a Parquet"
    )
    assert "cannot read s3://data/truncated/1.parquet" in refused
    assert not output.exists()
    with pytest.raises(InvalidParameterError, match=r"'parquet' is not available .*1\.parquet is not a Parquet"):
        ndcg_spark.evaluate("s3://data/truncated", source="parquet")


@pytest.mark.parametrize("read", [ndcg_spark.evaluate, ndcg_spark.read_table], ids=["evaluate", "read_table"])
def test_unknown_schemes_are_refused_in_one_line(spark: SparkSession, read: Callable[[str], object]) -> None:
    with pytest.raises(InputRefusedError) as refused:
        read("nope://data/rows.parquet")
    message = "cannot read parquet 'nope://data/rows.parquet': Spark has no file system for nope; add its connector."
    assert str(refused.value) == message


def test_error_of_spark_counts_if_it_reaches_the_store(tables: Path, connected: Path) -> None:
    """The folder is missing on the server, which is not asked."""
    (connected / "rows" / "broken.parquet").write_bytes(b"no Parquet")
    with pytest.raises(InputRefusedError, match=r"^cannot read parquet 's3a://connected/rows': .*[Ff]ooter"):
        ndcg_spark.evaluate("s3a://connected/rows")


def test_a_path_with_credentials_is_refused_in_python(spark: SparkSession) -> None:
    with pytest.raises(InvalidParameterError, match=r"'s3://\*\*\*@data/sorted' contains credentials") as refused:
        ndcg_spark.evaluate("s3://KEY:SECRET@data/sorted")
    assert "SECRET" not in str(refused.value)


def test_an_output_that_spark_cannot_reach_is_refused_before_anything_runs(tables: Path, tmp_path: Path) -> None:
    for reference, scheme in {
        "s3://data/metrics": "s3",
        "s3a://other/metrics/": "s3a",
        "gs://data/metrics": "gs",
        "abfss://box@acct.dfs.core.windows.net/metrics": "abfss",
    }.items():
        ended = mean_ndcg("--input", tables / "sorted", "--output", reference, *NIGHT)
        assert_refused(ended, repr(reference), f"Spark has no file system for {scheme}; start it with --packages")
    ended = mean_ndcg("--input", tables / "sorted", "--output", "s3a://KEY:SECRET@data/metrics", *NIGHT)
    assert_refused(ended, "'s3a://***@data/metrics' contains credentials")
    assert "SECRET" not in ended.err


def delete_object(server: Server) -> str:
    server.delete("data/moving/day=2026-01-31/part 1 %20é+#.parquet")
    return r"cannot read s3://data/moving/day=2026-01-31/part 1 %20é\+#.parquet: it no longer exists; evaluate again"


def replace_object(server: Server, tables: Path) -> str:
    """Change one byte outside of the footer: the ETag differs."""
    key = "moving/day=2026-01-31/part 1 %20é+#.parquet"
    body = bytearray((tables / key.replace("moving", "sorted")).read_bytes())
    body[100] ^= 1
    server.put(f"data/{key}", bytes(body))
    return r"part 1 %20é\+#.parquet changed after the evaluation was planned; evaluate again"


def test_objects_that_change_between_listing_and_reading_are_refused(
    server: Server, tables: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In Python the action raises; the job ends with exit code 2 and without an output."""
    server.put_folder(tables / "sorted", "data/moving")
    evaluation = ndcg_spark.evaluate("s3://data/moving", k=5)
    assert re.search(replace_object(server, tables), str(collect_refusal(evaluation.summary)))
    server.put_folder(tables / "sorted", "data/moving")
    step, said = Progress.step, []

    def late(self: Progress, what: str) -> object:
        said.append(delete_object(server))
        return step(self, what)

    monkeypatch.setattr(Progress, "step", late)
    ended = mean_ndcg("--input", "s3://data/moving", "--output", tmp_path / "metrics", *NIGHT)
    assert_refused(ended)
    assert re.search(said[0], ended.err)
    assert not (tmp_path / "metrics").exists()


def test_lost_connection_is_named(spark: SparkSession, tables: Path, tmp_path: Path) -> None:
    """Arrow tries three times; then the line has the object, the reason and the way out."""
    with s3_server(tmp_path) as other, set_environment(spark, other.settings()):
        other.put("data")
        other.put_folder(tables / "mixed", "data/mixed")
        evaluation = ndcg_spark.evaluate("s3://data/mixed", k=5)
        other.stop()
        said = str(collect_refusal(evaluation.summary))
        assert re.search(
            r"cannot read s3://data/mixed/day=2026-01-31/part \d .*NETWORK_CONNECTION.*; source='spark'", said
        )
        with pytest.raises(InputRefusedError, match=r"cannot read parquet 's3://data/mixed': .*NETWORK_CONNECTION"):
            ndcg_spark.evaluate("s3://data/mixed")


def test_inconsistent_files_are_refused(server: Server, tables: Path) -> None:
    """A column in both files and folder names is refused at once; a file that lacks a column, by the action."""
    path = next((tables / "sorted" / "day=2026-01-31").glob("part 0*"))
    server.put("data/doubled/query_id=q/0.parquet", path.read_bytes())
    message = r"column 'query_id' of 's3://data/doubled' is both in the files and in folder names; Spark has no file"
    with pytest.raises(InputRefusedError, match=message):
        ndcg_spark.evaluate("s3://data/doubled")
    lacking = pa.BufferOutputStream()
    pq.write_table(pq.read_table(path).drop_columns(["relevance"]), lacking)
    server.put("data/lacking/0.parquet", path.read_bytes())
    server.put("data/lacking/1.parquet", lacking.getvalue().to_pybytes())
    actual = collect_refusal(ndcg_spark.evaluate("s3://data/lacking", k=5, strategy="window").summary)
    assert actual == (
        "column 'relevance' is not in s3://data/lacking/1.parquet, or is spelled differently; Spark reads "
        "such tables only with its own connector to the store."
    )


# --- A Spark that has a connector


@pytest.fixture
def connected(spark: SparkSession, server: Server, tables: Path, tmp_path: Path) -> Iterator[Path]:
    """Spark's s3a://connected is a folder, Arrow's is the bucket of the server. `s3` is not a scheme of Hadoop."""
    settings = {
        "fs.s3a.impl": "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme",
        "fs.s3a.impl.disable.cache": "true",
        "fs.viewfs.overload.scheme.target.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
    }
    for name in ("rows", "others", "metrics"):
        (tmp_path / "bucket" / name).mkdir(parents=True)
        settings[f"fs.viewfs.mounttable.connected.link./{name}"] = (tmp_path / "bucket" / name).as_uri()
    with session_settings(spark, **{name.replace(".", "__"): value for name, value in settings.items()}):
        yield tmp_path / "bucket"


def test_spark_lists_and_workers_read_or_spark_reads_all(
    server: Server, tables: Path, connected: Path, tmp_path: Path
) -> None:
    """Both give equal bits; if workers are denied access, Spark reads and logs a line."""
    write(connected / "rows")
    server.put_folder(connected / "rows", "connected/rows")
    before = len(server.requests())
    by_workers = ndcg_spark.evaluate("s3a://connected/rows", k=[1, 5])
    assert by_workers.ranking.source == "parquet"
    assert [request for request in server.requests()[before:] if request.startswith("LIST")] == []  # Spark has listed
    expected = evaluate_sorted("s3a://connected/rows", source="spark")
    assert sorted((tuple(row) for row in by_workers.summary.collect()), key=str) == expected
    write(connected / "others")
    ended = mean_ndcg("--input", "s3a://connected/others", "--k", "5", "--json", "-")
    assert ended.code == 0, ended.err
    (line,) = ended.complaints
    assert line.startswith("read by Spark: a file cannot be read (s3a://connected/others/day=")
    assert (
        "source       spark: a file cannot be read" in mean_ndcg("--input", "s3a://connected/others", "--explain").out
    )


def test_a_metric_table_at_a_store_that_spark_reaches(server: Server, tables: Path, connected: Path) -> None:
    """The scheme is Spark's; the output must be separate from the input in any spelling."""
    put = ("--output", "s3a://connected/metrics/", "--dataset", "search", "--k", "5")
    rows = ("--input", tables / "sorted")
    run_mean_ndcg(*rows, *put, "--run-date", "2026-01-30")
    first = read_files(connected / "metrics" / "run_date=2026-01-30")
    run_mean_ndcg(*rows, *put, "--run-date", "2026-01-31")
    again = run_mean_ndcg(*rows, *put, "--run-date", "2026-01-31", "--json", "-").json
    assert read_files(connected / "metrics" / "run_date=2026-01-30") == first
    (stored,) = [
        row for row in read_stored_rows(connected / "metrics") if row["metric"] == "ndcg" and "-31" in row["run_date"]
    ]
    (message,) = [row for row in again["metrics"] if row["metric"] == "ndcg"]
    assert stored["value"] == message["value"]
    assert_refused(
        mean_ndcg(*rows, "--output", "s3a://connected/metrics/run_date=2026-01-09", *NIGHT),
        "is inside 's3a://connected/metrics', which contains nights",
    )
    server.put_folder(write(connected / "rows"), "connected/rows")
    for source, output in (
        ("s3a://connected/rows/", "s3a://connected//rows//metrics"),
        ("s3://connected/rows", "s3a://connected/rows/metrics"),
    ):
        ended = mean_ndcg("--input", source, "--output", output, "--source", "spark", *NIGHT)
        assert_refused(ended, "overlaps --input")

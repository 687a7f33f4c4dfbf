"""Addresses of object stores, their file systems, and the files of a path, without requests."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support.disks import drop_root, make_closed_folder

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.sources import stores
from ndcg_spark.sources.parquet import FilePart, to_spark_schema
from ndcg_spark.sources.parquet_types import read_footer
from ndcg_spark.sources.stores import (
    StoreAddress,
    find_file_system,
    find_two_levels,
    hide_secrets,
    list_files,
    parse_address,
    refuse_secrets,
    select_data_files,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("s3://data/rows/a b%20é.parquet", StoreAddress("s3", "data", "rows/a b%20é.parquet")),
        ("s3a://data/rows/", StoreAddress("s3", "data", "rows")),
        ("S3N://data", StoreAddress("s3", "data", "")),
        ("gs://data//rows", StoreAddress("gs", "data", "rows")),
        ("abfs://c@acct.dfs.core.windows.net/x", StoreAddress("abfss", "c@acct.dfs.core.windows.net", "x")),
        *[(path, None) for path in ("/data/rows", "rows", "s3:/rows", "s3://", "file:///rows", "dbfs:/rows")],
        *[(path, None) for path in ("hdfs://node:8020/rows", "/Volumes/a/b/c/rows", "prod.rankings", "s3:x/y")],
    ],
)
def test_parse_addresses_of_stores(path: str, expected: StoreAddress | None) -> None:
    assert parse_address(path) == expected


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("s3a://KEY:SE/CRET@data/rows", "s3a://***@data/rows"),
        ("s3a://KEY:SECRET@data/rows", "s3a://***@data/rows"),
        ("hdfs://me:word@node/rows", "hdfs://***@node/rows"),
        ("abfss://c@a.dfs.core.windows.net/x?sv=2022&sig=abc", "abfss://c@a.dfs.core.windows.net/x?***"),
        ("s3://data/x?X-Amz-Signature=abc", "s3://data/x?***"),
    ],
)
def test_credentials_in_an_address_are_refused_and_not_shown(path: str, shown: str) -> None:
    assert hide_secrets(path) == shown
    with pytest.raises(InvalidParameterError) as caught:
        refuse_secrets(path)
    assert shown in str(caught.value)
    for secret in ("SECRET", "CRET", "word", "abc"):
        assert secret not in str(caught.value)


@pytest.mark.parametrize(
    "path",
    [
        "abfss://c@a.dfs.core.windows.net/x",
        "s3://data/a:b@c",
        "hdfs://node:8020/a@b",
        "/rows?sig=1",
        "select 1 as `s3://k:v@b`",
        "s3://d/?.x",
    ],
)
def test_other_paths_stay_as_they_are(path: str) -> None:
    refuse_secrets(path)
    assert hide_secrets(path) == path


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment with nothing but a region."""
    for name in (*stores._S3_SETTINGS, *stores._GS_SETTINGS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-3")
    return monkeypatch


def find_options(path: str, **expected: object) -> tuple[str, dict[str, object]]:
    """Return the path inside a file system and the options that it pickles."""
    for make, _ in stores._MAKERS.values():
        make.cache_clear()
    store, inside = find_file_system(path)
    (options,) = store.__reduce__()[1]
    return inside, {name: options[name] for name in expected}


def test_options_of_a_store_come_from_the_environment(plain: pytest.MonkeyPatch) -> None:
    here: dict[str, object] = {"region": "eu-west-3", "endpoint_override": "", "scheme": "https", "anonymous": False}
    assert find_options("s3a://data/a b", **here) == ("data/a b", here)
    plain.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9000")
    here |= {"endpoint_override": "127.0.0.1:9000", "scheme": "http"}
    assert find_options("s3://data/x", **here) == ("data/x", here)
    plain.setenv("AWS_ENDPOINT_URL_S3", "https://store.example")
    plain.delenv("AWS_REGION")
    plain.setenv("AWS_NO_SIGN_REQUEST", "YES")
    here = {"region": "", "endpoint_override": "store.example", "scheme": "https", "anonymous": True}
    assert find_options("s3://data", **here) == ("data", here)
    here = {"endpoint_override": "", "scheme": "https", "anonymous": False}
    assert find_options("gs://data/x", **here) == ("data/x", here)
    plain.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:4443")
    here = {"endpoint_override": "127.0.0.1:4443", "scheme": "http", "anonymous": True}
    assert find_options("gs://data/x", **here) == ("data/x", here)
    for host in ("core.windows.net", "core.chinacloudapi.cn"):
        here = {"account_name": "acct"} | {f"{kind}_storage_authority": f".{kind}.{host}" for kind in ("dfs", "blob")}
        assert find_options(f"abfss://box@acct.dfs.{host}/a/b", **here) == ("box/a/b", here)
    assert find_options("abfs://box@acct.dfs.core.chinacloudapi.cn/", **here) == ("box", here)


@pytest.mark.parametrize("path", ["s3://data/x", "gs://data/x", "abfss://box@acct.dfs.core.windows.net/x"])
def test_file_systems_need_no_request(plain: pytest.MonkeyPatch, path: str) -> None:
    """The arguments fit the installed pyarrow."""
    assert isinstance(find_file_system(path)[0], fs.FileSystem)


def test_a_build_without_a_file_system_and_a_container_without_account_are_named(plain: pytest.MonkeyPatch) -> None:
    def lacking(**_: object) -> None:
        raise ImportError

    plain.delattr(fs, "GcsFileSystem")
    with pytest.raises(OSError, match=r"pyarrow [\d.]+ is built without GcsFileSystem"):
        find_file_system("gs://not-made-before/x")  # file systems are cached by bucket
    with pytest.raises(OSError, match="lacks the account; write container@account"):
        find_file_system("abfss://box/x")


def test_parts_for_workers_hold_no_credentials(tmp_path: Path, plain: pytest.MonkeyPatch) -> None:
    plain.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    find_file_system("s3://data/x")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    part = FilePart(file=read_footer(str(tmp_path / "a.parquet")).identity, start=0, end=1)
    assert b"secret" not in pickle.dumps(part)


def test_hidden_files_are_those_that_spark_ignores(tmp_path: Path) -> None:
    """Spark ignores a leading dot, a leading underscore without `=`, and files that are still being copied."""
    seen = ["_day=1/a.parquet", "_DAY=2/b.parquet"]
    hidden = ["_SUCCESS", ".e.parquet", "_f.parquet", "_g/h.parquet", ".day=1/i.parquet", "j.parquet._COPYING_"]
    for name in seen + hidden:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    actual = list_files(str(tmp_path))
    assert sorted(str(Path(path).relative_to(tmp_path)) for path in actual) == sorted(seen)


@pytest.mark.parametrize(
    ("files", "why"),
    [
        (("a.parquet", "s/b.parquet"), "data files are on two levels, such as 'a.parquet' and 's/b.parquet'"),
        (
            ("day=1/a.parquet", "day=2/hour=3/b.parquet"),
            "two levels, such as 'day=1/a.parquet' and 'day=2/hour=3/b.parquet'",
        ),
        (("s/a.parquet", "s/b.parquet"), "'s/a.parquet' is in a folder whose name is not name=value"),
        (("day=1/s/a.parquet",), "'day=1/s/a.parquet' is in a folder whose name is not name=value"),
        (("day=/a.parquet",), "is not name=value"),
        (("day=1/a.parquet", "hour=2/b.parquet"), "folders on one level have different columns"),
    ],
)
def test_files_that_spark_may_not_all_read_are_not_listed(tmp_path: Path, files: tuple[str, ...], why: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    for path in (str(tmp_path), f"{tmp_path}/"):
        assert why in str(list_files(path))


def test_a_folder_that_cannot_be_listed_is_not_an_empty_one(public_folder: Path) -> None:
    """Neither is a link into it a dangling link."""
    for day in (1, 2):
        (public_folder / f"day={day}").mkdir()
        (public_folder / f"day={day}" / "a.parquet").touch()
    (public_folder / "day=1" / "gone.parquet").symlink_to(public_folder / "nothing")
    assert len(list_files(str(public_folder))) == 2
    make_closed_folder(public_folder / "day=2")
    with drop_root():
        actual = list_files(str(public_folder))
    assert actual == f"the files cannot be listed (Permission denied: {public_folder}/day=2)"
    (public_folder / "links").mkdir()
    (public_folder / "links" / "b.parquet").symlink_to(public_folder / "day=2" / "a.parquet")
    with drop_root():
        actual = list_files(str(public_folder / "links"))
    assert actual == f"the files cannot be listed (Permission denied: {public_folder}/links/b.parquet)"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], None),
        (["a/x.parquet", "b/y.parquet"], None),
        (["a/b/x.parquet", "a/y.parquet"], ("y.parquet", "b/x.parquet")),
    ],
)
def test_files_on_two_levels_are_named_below_their_folder(files: list[str], expected: tuple[str, str] | None) -> None:
    assert find_two_levels(files) == expected


@pytest.mark.parametrize("mark", ["_delta_log", ".hoodie", "day=1/_delta_log"])
def test_files_of_a_table_with_a_log_are_left_to_spark(tmp_path: Path, mark: str) -> None:
    (tmp_path / mark).mkdir(parents=True)
    (tmp_path / "a.parquet").touch()
    assert list_files(str(tmp_path)) == "not every file below the path belongs to the table"
    (tmp_path / mark).rename((tmp_path / mark).with_name("_delta_logs"))
    assert list_files(str(tmp_path)) == [str(tmp_path / "a.parquet")]


def test_columns_that_spark_can_get_from_workers() -> None:
    settings = {
        "q": pa.large_string(),
        "v": pa.large_list(pa.float32()),
        "at": pa.timestamp("ns", "Europe/Paris"),
        "naive": pa.timestamp("us"),
        "s": pa.struct([("x", pa.int8())]),
        "d": pa.decimal128(10, 2),
        "u": pa.uint64(),
        "category": pa.dictionary(pa.int8(), pa.large_string()),
    }
    expected = {
        "q": pa.string(),
        "v": pa.list_(pa.float32()),
        "at": pa.timestamp("us", "UTC"),
        "d": pa.decimal128(10, 2),
        "category": pa.string(),
    }
    assert to_spark_schema(pa.schema(settings)) == pa.schema(expected)


def test_notes_with_a_number_in_their_name_are_not_data() -> None:
    """Hive's files have neither a number with an extension, nor the extension of a format."""
    names = ["t/a.parquet", "t/000000_0", "t/notes 2026.txt", "t/README"]
    assert select_data_files(names, lambda name: name.endswith(".parquet")) == names[:2]

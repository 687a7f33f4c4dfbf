"""Object stores and local folders: addresses, Arrow's file systems for them, and the files below a folder."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import takewhile
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from ndcg_spark.errors import InvalidParameterError

SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "abfss": "abfss", "abfs": "abfss"}
"""Schemes of the object stores that Arrow reads, by each of their spellings."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/*(.*)", re.DOTALL)
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/@:]*:(?!\d+(?:/|$))[^@]*@")
"""Secret keys may contain slashes. Digits after the colon, up to a slash or the end, are a port, not a key."""
_TOKEN = re.compile(r"[?&](sig|sv|AWSAccessKeyId|X-Amz-\w+|X-Goog-\w+)=.*", re.IGNORECASE | re.DOTALL)
_TRUE_TEXTS = ("1", "true", "yes", "on")
_S3_SETTINGS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_NO_SIGN_REQUEST")
_GS_SETTINGS = ("STORAGE_EMULATOR_HOST", "GS_NO_SIGN_REQUEST")
_MAX_GS_RETRY_TIME = timedelta(seconds=30)
"""Arrow's default is 15 minutes: a missing credential would be reported only then."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """An address in an object store: `s3`, `gs` or `abfss`; bucket, or container and account; key or ""."""

    scheme: str
    bucket: str
    key: str


def parse_address(path: str) -> StoreAddress | None:
    """Parse an address such as `s3a://bucket/key`; None for any other path. Nothing in a key is decoded."""
    match = _ADDRESS.fullmatch(path)
    scheme = SCHEMES.get(match[1].lower()) if match else None
    if match is None or scheme is None or not match[2]:
        return None
    return StoreAddress(scheme, match[2], match[3].rstrip("/"))


def hide_secrets(path: str) -> str:
    """Mask a password or signature in an address. Other texts are returned unchanged."""
    if not _ADDRESS.fullmatch(path):
        return path
    return _TOKEN.sub("?***", _LOGIN.sub(r"\1***@", path))


def refuse_secrets(path: str) -> None:
    masked = hide_secrets(path)
    if masked != path:
        raise InvalidParameterError(
            f"{masked!r} contains credentials, which would be written to logs and tables; set them in the "
            "environment, in Spark's settings or in the role of the machine."
        )


def find_file_system(path: str) -> tuple[Any, str]:
    """Return Arrow's file system for a path, and the path inside it. Raise an OSError if Arrow lacks it.

    Sends no request, except to look up the region of an AWS bucket if the environment does not set it.
    """
    address = parse_address(path)
    if address is None:
        return fs.LocalFileSystem(), path
    make_file_system, settings = _MAKERS[address.scheme]
    environment = tuple((name, os.environ[name]) for name in settings if os.environ.get(name))
    bucket = address.bucket.partition("@")[0]
    return make_file_system(address.bucket, environment), f"{bucket}/{address.key}".rstrip("/")


_Settings = tuple[tuple[str, str], ...]


@lru_cache(maxsize=32)
def _make_s3(bucket: str, environment: _Settings) -> Any:
    settings = dict(environment)
    options: dict[str, Any] = {}
    endpoint = settings.get("AWS_ENDPOINT_URL_S3") or settings.get("AWS_ENDPOINT_URL")
    if endpoint:  # Arrow reads this variable only when it parses URIs
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint_override": parts.netloc + parts.path.rstrip("/"), "scheme": parts.scheme}
    region = settings.get("AWS_REGION") or settings.get("AWS_DEFAULT_REGION")
    if region or not endpoint:
        options["region"] = region or fs.resolve_s3_region(bucket)
    if settings.get("AWS_NO_SIGN_REQUEST", "").lower() in _TRUE_TEXTS:
        options["anonymous"] = True
    return _make_file_system("S3FileSystem", options)


@lru_cache(maxsize=32)
def _make_gs(_: str, environment: _Settings) -> Any:
    settings = dict(environment)
    options: dict[str, Any] = {"retry_time_limit": _MAX_GS_RETRY_TIME}
    emulator = settings.get("STORAGE_EMULATOR_HOST")
    if emulator:
        parts = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
        options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme, "anonymous": True}
    elif settings.get("GS_NO_SIGN_REQUEST", "").lower() in _TRUE_TEXTS:
        options["anonymous"] = True
    return _make_file_system("GcsFileSystem", options)


@lru_cache(maxsize=32)
def _make_abfss(bucket: str, _: _Settings) -> Any:
    host = bucket.partition("@")[2]
    account, domain = host.partition(".")[::2]
    if not account:
        raise OSError(f"{bucket!r} lacks the account; write container@account.dfs.core.windows.net")
    options: dict[str, Any] = {"account_name": account}
    if domain and domain != "dfs.core.windows.net":
        options["dfs_storage_authority"] = f".{domain}"
        options["blob_storage_authority"] = f".{domain.replace('dfs.', 'blob.', 1)}"
    return _make_file_system("AzureFileSystem", options)


def _make_file_system(name: str, options: Mapping[str, Any]) -> Any:
    try:
        file_system_class = getattr(fs, name)
    except (AttributeError, ImportError):
        raise OSError(f"pyarrow {pa.__version__} is built without {name}") from None
    return file_system_class(**options)


_MAKERS: dict[str, tuple[Callable[[str, _Settings], Any], tuple[str, ...]]] = {
    "s3": (_make_s3, _S3_SETTINGS),
    "gs": (_make_gs, _GS_SETTINGS),
    "abfss": (_make_abfss, ()),
}


def format_reason(error: Exception, path: str = "") -> str:
    """Format Arrow's error about a file in one line, without request ids of the store."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    reason = re.sub(r"\s*\(Request ID: [^)]*\)", "", line).rstrip(". ")
    return reason if path in reason else f"{path}: {reason}"


MAX_FILES = 2_000
"""Most files in a folder that workers of Spark read: each is a task, after its footer was read."""
MAX_LOCAL_FILES = 10_000
"""Most files in a folder that the local engine reads, in about a millisecond each."""
MARKS = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata/*.metadata.json"}
"""File that identifies the folder of a table, for each format that keeps a log of its files."""
_LOG_FOLDER = re.compile(
    "|".join(rf"(?:^|/){re.escape(mark)}(?:/|$)".replace(r"\*", "[^/]*") for mark in MARKS.values())
)
NO_FILES = "there are no files"
_FOREIGN_FILES = "not every file below the path belongs to the table"
_WILDCARDS = re.compile(r"[*?\[\]{}\\]")
_COLUMN_FOLDER = re.compile(r"([^=]+)=.+", re.DOTALL)
"""A folder name that holds a value of a partition column."""
NULL_FOLDER_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A Delta, Iceberg or Hudi table in the folder `root`. `whole`: the path is that folder, not one inside it."""

    kind: str
    root: str
    whole: bool

    def __str__(self) -> str:
        return f"the {self.kind.capitalize()} table {self.root!r}"

    def refusal(self, path: str) -> str:
        return (
            f"{path!r} contains files of {self}, which include deleted and replaced rows; use the name of the table "
            f"in the catalog, or read {self.root!r} with format {self.kind}."
        )


def list_folders_above(base: str) -> list[str]:
    folders = [base]
    while (parent := os.path.dirname(os.path.abspath(folders[-1]))) != os.path.abspath(folders[-1]):
        folders.append(parent)
    return folders


def list_likely_roots(base: str) -> list[str]:
    parts = base.split("/")
    cuts = [len(parts), *(number for number, part in enumerate(parts) if "=" in part or part == "data")]
    return list(dict.fromkeys("/".join(parts[:cut]) for cut in cuts if cut))


def is_marked(root: str, mark: str) -> bool:
    """Check for a mark in a local folder. Raise an OSError if its metadata cannot be listed."""
    folder, _, pattern = mark.rpartition("/")
    if not folder:
        return os.path.lexists(os.path.join(root, mark))  # a broken link counts, too
    try:
        return any(fnmatchcase(name, pattern) for name in os.listdir(os.path.join(root, folder)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_local_table_folder(path: str) -> TableFolder | None:
    """Return the Delta, Iceberg or Hudi table that contains a local path, or None."""
    for root in list_folders_above(path.rstrip("/") or "/"):
        kind = next((kind for kind, mark in MARKS.items() if is_marked(root, mark)), None)
        if kind is not None:
            return TableFolder(kind, root, whole=root == path.rstrip("/"))
    return None


def has_log_above(path: str) -> bool:
    """Check whether a path in an object store may be inside a Delta, Iceberg or Hudi table."""
    store, inside = find_file_system(path)
    for root, mark in ((root, mark) for root in list_likely_roots(inside) for mark in MARKS.values()):
        folder, _, pattern = mark.rpartition("/")
        if not folder and store.get_file_info(f"{root}/{mark}").type != fs.FileType.NotFound:
            return True
        inner = store.get_file_info(fs.FileSelector(f"{root}/{folder}", allow_not_found=True)) if folder else []
        if any(fnmatchcase(file.base_name, pattern) for file in inner):
            return True
    return False


def has_metadata_file(folder: str) -> bool:
    """Check for `_metadata` files, which Spark reads although their names are hidden."""
    store, inside = find_file_system(folder)
    files = store.get_file_info([f"{inside}/{name}" for name in ("_metadata", "_common_metadata")])
    return any(file.type != fs.FileType.NotFound for file in files)


def strip_file_scheme(path: str) -> str:
    """Turn a `file:` address into a local path. Like Spark, decode nothing: `%20` is part of a name."""
    if not path.startswith("file:"):
        return path
    rest = path.removeprefix("file:")
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest


def has_wildcards(path: str) -> bool:
    """Check for wildcards, which Spark expands unless they are escaped."""
    return bool(_WILDCARDS.search(path))


def is_pattern(path: str) -> bool:
    """Check for wildcards in a path that does not exist under that name."""
    return has_wildcards(path) and not os.path.exists(strip_file_scheme(path))


def escape_path(path: str) -> str:
    """Escape wildcards for Spark's readers if a local file or folder has exactly this name."""
    if not os.path.exists(strip_file_scheme(path)):
        return path
    absolute = (
        os.path.abspath(path) if ":" in path and not path.startswith("file:") else path
    )  # the colon does not end a scheme
    return escape_wildcards(absolute)


def escape_wildcards(path: str) -> str:
    return _WILDCARDS.sub(r"\\\g<0>", path)


def list_files(path: str, ending: str = ".parquet", max_files: int = MAX_FILES) -> list[str] | str:
    """List the files below a path; or return a clause on why workers cannot. A store may raise an OSError."""
    address = parse_address(path)
    return _list_folder(path, ending, max_files) if address is None else _list_prefix(path, address)


def check_endings(files: list[str], ending: str = ".parquet", max_files: int = MAX_FILES) -> list[str] | str:
    """Return the files; or a clause, if they are none, too many, or one has another ending."""
    others = [file for file in files if not file.endswith(ending)]
    if len(files) > max_files:
        return f"there are more than {max_files:,} files"
    return f"{others[0]} has another ending" if others else files or NO_FILES


def select_data_files(names: Sequence[str], has_ending: Callable[[str], bool]) -> list[str]:
    """Drop stray files, such as notes, from a list of files.

    Data files have an ending of the format, or a digit and no ending (Hive, Flink). In a partition folder every file
    is data, because Spark reads it. If no file looks like data, all files are returned.
    """

    def is_data(name: str) -> bool:
        file_name = name.rpartition("/")[2]
        return has_ending(name) or ("." not in file_name and any(map(str.isdecimal, file_name)))

    if not any(map(is_data, names)):
        return list(names)
    return [
        name for name in names if is_data(name) or _COLUMN_FOLDER.fullmatch(os.path.basename(os.path.dirname(name)))
    ]


def find_two_levels(names: Sequence[str]) -> tuple[str, str] | None:
    """Return two files on different levels, relative to their common folder; None if all are on one level."""
    levels = sorted(names, key=lambda name: (name.count("/"), name))
    if not levels or levels[0].count("/") == levels[-1].count("/"):
        return None
    return strip_common_folder(levels[0], levels[-1])


def strip_common_folder(first: str, second: str) -> tuple[str, str]:
    """Make two file names relative to their common folder."""
    folders = zip(first.split("/")[:-1], second.split("/")[:-1], strict=False)
    n_common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], folders))
    return "/".join(first.split("/")[n_common:]), "/".join(second.split("/")[n_common:])


def find_folder_column(path: str, files: Sequence[str], columns: Iterable[str]) -> str | None:
    """Return a column that is also a partition column below a path; Spark would use the folder's value."""
    root = path.rstrip("/") + "/"
    below = {file.removeprefix(root).rpartition("/")[0].lower() for file in files}
    return next(
        (column for column in columns if any(f"/{column.lower()}=" in f"/{folder}" for folder in below)), None
    )


def walk_folder(
    path: str | os.PathLike[str], *, follow_links: bool = False
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder like `os.walk`, but raise an OSError if a folder cannot be listed."""

    def fail(error: OSError) -> None:
        raise error

    return os.walk(path, onerror=fail, followlinks=follow_links)


def _list_folder(path: str, ending: str, max_files: int) -> list[str] | str:
    if os.path.isfile(path):
        return check_endings([path], ending)
    if not os.path.isdir(path):
        return "the path is not a local file or folder"
    paths: list[str] = []
    try:
        for folder, folders, files in walk_folder(path, follow_links=True):
            if any(map(_LOG_FOLDER.search, folders)):
                return _FOREIGN_FILES
            folders[:] = sorted(name for name in folders if not is_hidden(name))
            paths += filter(is_file, (os.path.join(folder, name) for name in sorted(files) if not is_hidden(name)))
            if len(paths) > max_files:
                break
    except OSError as error:
        return f"the files cannot be listed ({error.strerror}: {error.filename})"
    return _check_levels(paths, path, ending, max_files)


def is_file(path: str) -> bool:
    """Check that a path is a file. Broken links are not, as in Spark."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _list_prefix(path: str, address: StoreAddress) -> list[str] | str:
    store, inside = find_file_system(path)
    if address.key.endswith(".parquet") and store.get_file_info(inside).type == fs.FileType.File:
        return check_endings([path.rstrip("/")])
    entries = store.get_file_info(fs.FileSelector(inside, recursive=True))
    keys = sorted(entry.path[len(inside) + 1 :] for entry in entries if entry.type == fs.FileType.File)
    if any(map(_LOG_FOLDER.search, keys)):
        return _FOREIGN_FILES
    root = path.rstrip("/")
    return _check_levels(
        [f"{root}/{key}" for key in keys if not any(map(is_hidden, key.split("/")))], root, ".parquet"
    )


def _check_levels(paths: list[str], root: str, ending: str, max_files: int = MAX_FILES) -> list[str] | str:
    """Return the files if all have the same partition columns, or none; else a clause that names a violation."""
    files = check_endings(paths, ending, max_files)
    if isinstance(files, str):
        return files
    keys = [name[len(root) :].lstrip("/") for name in files]
    levels = find_two_levels(keys)
    if levels is not None:
        return f"data files are on two levels, such as {levels[0]!r} and {levels[1]!r} (move all to one level)"
    columns = set()
    for key in keys:
        folders = [_COLUMN_FOLDER.fullmatch(folder) for folder in key.split("/")[:-1]]
        if None in folders:
            return f"{key!r} is in a folder whose name is not name=value"
        columns.add(tuple(folder[1].lower() for folder in folders if folder))
    return files if len(columns) == 1 else "folders on one level have different columns"


def is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def unescape_name(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text)

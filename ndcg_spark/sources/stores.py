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
"""Schemes of object stores that Arrow reads; those of one store are spellings of one scheme."""
_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/*(.*)", re.DOTALL)
_LOGIN = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/@:]*:(?!\d+(?:/|$))[^@]*@")
"""Secret keys may contain slashes. Digits behind the colon, up to a slash or the end, are a port, not a key."""
_TOKEN = re.compile(r"[?&](sig|sv|AWSAccessKeyId|X-Amz-\w+|X-Goog-\w+)=.*", re.IGNORECASE | re.DOTALL)
_YES = ("1", "true", "yes", "on")
_S3_SETTINGS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_NO_SIGN_REQUEST")
_GS_SETTINGS = ("STORAGE_EMULATOR_HOST", "GS_NO_SIGN_REQUEST")
_GS_RETRIES = timedelta(seconds=30)
"""Arrow's own limit is 15 minutes, which a missing credential would take to be noticed."""


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A place in an object store: `s3`, `gs` or `abfss`; bucket, or container and account; key or ""."""

    scheme: str
    bucket: str
    key: str


def address_of(path: str) -> StoreAddress | None:
    """Parse an address such as `s3a://bucket/key`; None for any other path. Nothing in a key is decoded."""
    found = _ADDRESS.fullmatch(path)
    scheme = SCHEMES.get(found[1].lower()) if found else None
    if found is None or scheme is None or not found[2]:
        return None
    return StoreAddress(scheme, found[2], found[3].rstrip("/"))


def without_secrets(path: str) -> str:
    """Hide a password or signature in an address; other texts stay as they are."""
    if not _ADDRESS.fullmatch(path):
        return path
    return _TOKEN.sub("?***", _LOGIN.sub(r"\1***@", path))


def refuse_secrets(path: str) -> None:
    shown = without_secrets(path)
    if shown != path:
        raise InvalidParameterError(
            f"{shown!r} has credentials in it, which would end in logs and tables; leave them to the environment, "
            "to Spark's settings or to the role of the machine."
        )


def file_system(path: str) -> tuple[Any, str]:
    """Arrow's file system for a local path or an object store, and the path inside it; an OSError if Arrow lacks it.

    Runs no request, unless the region of a bucket of AWS is not in the environment.
    """
    address = address_of(path)
    if address is None:
        return fs.LocalFileSystem(), path
    make, settings = _MAKERS[address.scheme]
    known = tuple((name, os.environ[name]) for name in settings if os.environ.get(name))
    bucket = address.bucket.partition("@")[0]
    return make(address.bucket, known), f"{bucket}/{address.key}".rstrip("/")


_Settings = tuple[tuple[str, str], ...]


@lru_cache(maxsize=32)
def _s3(bucket: str, known: _Settings) -> Any:
    settings = dict(known)
    options: dict[str, Any] = {}
    endpoint = settings.get("AWS_ENDPOINT_URL_S3") or settings.get("AWS_ENDPOINT_URL")
    if endpoint:  # which only Arrow's parser of URIs would look up
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        options |= {"endpoint_override": parts.netloc + parts.path.rstrip("/"), "scheme": parts.scheme}
    region = settings.get("AWS_REGION") or settings.get("AWS_DEFAULT_REGION")
    if region or not endpoint:
        options["region"] = region or fs.resolve_s3_region(bucket)
    if settings.get("AWS_NO_SIGN_REQUEST", "").lower() in _YES:
        options["anonymous"] = True
    return _made("S3FileSystem", options)


@lru_cache(maxsize=32)
def _gs(_: str, known: _Settings) -> Any:
    settings = dict(known)
    options: dict[str, Any] = {"retry_time_limit": _GS_RETRIES}
    emulator = settings.get("STORAGE_EMULATOR_HOST")
    if emulator:
        parts = urlsplit(emulator if "://" in emulator else f"http://{emulator}")
        options |= {"endpoint_override": parts.netloc, "scheme": parts.scheme, "anonymous": True}
    elif settings.get("GS_NO_SIGN_REQUEST", "").lower() in _YES:
        options["anonymous"] = True
    return _made("GcsFileSystem", options)


@lru_cache(maxsize=32)
def _abfss(bucket: str, _: _Settings) -> Any:
    host = bucket.partition("@")[2]
    account, domain = host.partition(".")[::2]
    if not account:
        raise OSError(f"{bucket!r} names no account, as in container@account.dfs.core.windows.net")
    options: dict[str, Any] = {"account_name": account}
    if domain and domain != "dfs.core.windows.net":
        options["dfs_storage_authority"] = f".{domain}"
        options["blob_storage_authority"] = f".{domain.replace('dfs.', 'blob.', 1)}"
    return _made("AzureFileSystem", options)


def _made(name: str, options: Mapping[str, Any]) -> Any:
    try:
        kind = getattr(fs, name)
    except (AttributeError, ImportError):
        raise OSError(f"pyarrow {pa.__version__} is built without {name}") from None
    return kind(**options)


_MAKERS: dict[str, tuple[Callable[[str, _Settings], Any], tuple[str, ...]]] = {
    "s3": (_s3, _S3_SETTINGS),
    "gs": (_gs, _GS_SETTINGS),
    "abfss": (_abfss, ()),
}


def reason_of(error: Exception, path: str = "") -> str:
    """Say in a line why Arrow cannot read a file, without the request ids of stores."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    why = re.sub(r"\s*\(Request ID: [^)]*\)", "", line).rstrip(". ")
    return why if path in why else f"{path}: {why}"


MAX_FILES = 2_000
"""Whose footers are read before anything else is done, about a millisecond each."""
MARKS = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata/*.metadata.json"}
"""Names in the folder of a table of each format that keeps a log of its files, and in no other."""
_MARKED = re.compile("|".join(rf"(?:^|/){re.escape(mark)}(?:/|$)".replace(r"\*", "[^/]*") for mark in MARKS.values()))
NO_FILES = "there are no files"
_NOT_ALL = "not every file below the path belongs to the table"
_SIGNS = re.compile(r"[*?\[\]{}\\]")
_OF_A_COLUMN = re.compile(r"([^=]+)=.+", re.DOTALL)
"""The name of a folder that stands for a value of a column."""
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = re.compile(r"%([0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class TableFolder:
    """A Delta, Iceberg or Hudi table below `root`; a path that leads there names the `whole` table, or a part."""

    kind: str
    root: str
    whole: bool

    def __str__(self) -> str:
        return f"the {self.kind.capitalize()} table {self.root!r}"

    def refusal(self, path: str) -> str:
        return (
            f"{path!r} leads to files of {self}, which hold rows that were deleted or replaced, too; name the table "
            f"in the catalog, or read {self.root!r} with format {self.kind}."
        )


def folders_above(base: str) -> list[str]:
    above = [base]
    while (parent := os.path.dirname(os.path.abspath(above[-1]))) != os.path.abspath(above[-1]):
        above.append(parent)
    return above


def likely_roots(base: str) -> list[str]:
    parts = base.split("/")
    cuts = [len(parts), *(at for at, part in enumerate(parts) if "=" in part or part == "data")]
    return list(dict.fromkeys("/".join(parts[:cut]) for cut in cuts if cut))


def is_marked(root: str, mark: str) -> bool:
    """Look for a mark in a local folder. An OSError says that its metadata cannot be listed."""
    folder, _, pattern = mark.rpartition("/")
    if not folder:
        return os.path.lexists(os.path.join(root, mark))  # also a link that leads nowhere now
    try:
        return any(fnmatchcase(name, pattern) for name in os.listdir(os.path.join(root, folder)))
    except (FileNotFoundError, NotADirectoryError):
        return False


def table_folder(path: str) -> TableFolder | None:
    """Find the table whose files a path of this machine leads to."""
    for root in folders_above(path.rstrip("/") or "/"):
        kind = next((kind for kind, mark in MARKS.items() if is_marked(root, mark)), None)
        if kind is not None:
            return TableFolder(kind, root, whole=root == path.rstrip("/"))
    return None


def has_log_above(path: str) -> bool:
    """Look for logs of tables in an object store, where a path below may lead to their files."""
    store, inside = file_system(path)
    for root, mark in ((root, mark) for root in likely_roots(inside) for mark in MARKS.values()):
        folder, _, pattern = mark.rpartition("/")
        if not folder and store.get_file_info(f"{root}/{mark}").type != fs.FileType.NotFound:
            return True
        inner = store.get_file_info(fs.FileSelector(f"{root}/{folder}", allow_not_found=True)) if folder else []
        if any(fnmatchcase(one.base_name, pattern) for one in inner):
            return True
    return False


def has_metadata_file(folder: str) -> bool:
    """Look for files that Spark takes columns from, or reads, though their names are those of hidden ones."""
    store, inside = file_system(folder)
    found = store.get_file_info([f"{inside}/{name}" for name in ("_metadata", "_common_metadata")])
    return any(one.type != fs.FileType.NotFound for one in found)


def local_path(path: str) -> str:
    """Turn `file:` addresses into local paths. Like Spark, decode nothing: `%20` is part of a name."""
    if not path.startswith("file:"):
        return path
    rest = path.removeprefix("file:")
    return "/" + rest[2:].partition("/")[2] if rest.startswith("//") else rest


def has_signs(path: str) -> bool:
    """Check for signs of a pattern, which Spark acts on unless they are escaped."""
    return bool(_SIGNS.search(path))


def is_pattern(path: str) -> bool:
    """Check for signs of a pattern in a path that does not exist under that name."""
    return has_signs(path) and not os.path.exists(local_path(path))


def escaped(path: str) -> str:
    """Write a path for Spark's readers; a local file or folder of that name is not a pattern."""
    if not os.path.exists(local_path(path)):
        return path
    whole = os.path.abspath(path) if ":" in path and not path.startswith("file:") else path  # no scheme ends there
    return _SIGNS.sub(r"\\\g<0>", whole)


def list_files(path: str, ending: str = ".parquet") -> list[str] | str:
    """List the files below a path; or say in a clause why workers cannot read them. Raises an OSError of a store."""
    address = address_of(path)
    return _below_folder(path, ending) if address is None else _below_prefix(path, address)


def fitting(found: list[str], ending: str = ".parquet") -> list[str] | str:
    others = [name for name in found if not name.endswith(ending)]
    if len(found) > MAX_FILES:
        return f"there are more than {MAX_FILES:,} files"
    return f"{others[0]} has another ending" if others else found or NO_FILES


def data_files(names: Sequence[str], has_ending: Callable[[str], bool]) -> list[str]:
    """Leave out stray files, such as notes.

    Data has an ending of the format, or no ending but a number, as Hive and Flink name files. Any file is data in a
    folder of a column, which Spark takes for a part of the table, and if no file looks like data.
    """

    def is_data(name: str) -> bool:
        file = name.rpartition("/")[2]
        return has_ending(name) or ("." not in file and any(map(str.isdecimal, file)))

    if not any(map(is_data, names)):
        return list(names)
    return [
        name for name in names if is_data(name) or _OF_A_COLUMN.fullmatch(os.path.basename(os.path.dirname(name)))
    ]


def two_levels(names: Sequence[str]) -> tuple[str, str] | None:
    """Find two files on different levels, by their names below the folder that holds both."""
    levels = sorted(names, key=lambda name: (name.count("/"), name))
    if not levels or levels[0].count("/") == levels[-1].count("/"):
        return None
    return below_common_folder(levels[0], levels[-1])


def below_common_folder(first: str, second: str) -> tuple[str, str]:
    """Cut the common folders off two names of files."""
    folders = zip(first.split("/")[:-1], second.split("/")[:-1], strict=False)
    n_common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], folders))
    return "/".join(first.split("/")[n_common:]), "/".join(second.split("/")[n_common:])


def column_of_folders(path: str, files: Sequence[str], columns: Iterable[str]) -> str | None:
    """Find a column that Spark takes from names of folders below a path, whatever the files contain."""
    root = path.rstrip("/") + "/"
    below = {one.removeprefix(root).rpartition("/")[0].lower() for one in files}
    return next((one for one in columns if any(f"/{one.lower()}=" in f"/{folder}" for folder in below)), None)


def walked(path: str | os.PathLike[str], *, follow_links: bool = False) -> Iterator[tuple[str, list[str], list[str]]]:
    """Walk a folder as `os.walk` does, but raise an OSError if a folder cannot be listed."""

    def fail(error: OSError) -> None:
        raise error

    return os.walk(path, onerror=fail, followlinks=follow_links)


def _below_folder(path: str, ending: str) -> list[str] | str:
    if os.path.isfile(path):
        return fitting([path], ending)
    if not os.path.isdir(path):
        return "the path is not a file or folder of this machine"
    found: list[str] = []
    try:
        for folder, folders, files in walked(path, follow_links=True):
            if any(map(_MARKED.search, folders)):
                return _NOT_ALL
            folders[:] = sorted(name for name in folders if not is_hidden(name))
            found += filter(_is_file, (os.path.join(folder, name) for name in sorted(files) if not is_hidden(name)))
            if len(found) > MAX_FILES:
                break
    except OSError as error:
        return f"the files cannot be listed ({error.strerror}: {error.filename})"
    return _placed(found, path, ending)


def _is_file(path: str) -> bool:
    """Check that a name leads to a file; like Spark, ignore broken links."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return False


def _below_prefix(path: str, address: StoreAddress) -> list[str] | str:
    store, inside = file_system(path)
    if address.key.endswith(".parquet") and store.get_file_info(inside).type == fs.FileType.File:
        return fitting([path.rstrip("/")])
    entries = store.get_file_info(fs.FileSelector(inside, recursive=True))
    keys = sorted(entry.path[len(inside) + 1 :] for entry in entries if entry.type == fs.FileType.File)
    if any(map(_MARKED.search, keys)):
        return _NOT_ALL
    root = path.rstrip("/")
    return _placed([f"{root}/{key}" for key in keys if not any(map(is_hidden, key.split("/")))], root, ".parquet")


def _placed(found: list[str], root: str, ending: str) -> list[str] | str:
    """Return files that all lie at the top, or all in folders of the same columns; or name two that do not."""
    files = fitting(found, ending)
    if isinstance(files, str):
        return files
    keys = [name[len(root) :].lstrip("/") for name in files]
    levels = two_levels(keys)
    if levels is not None:
        return f"data files lie on two levels, as {levels[0]!r} and {levels[1]!r} (move all to one level)"
    columns = set()
    for key in keys:
        folders = [_OF_A_COLUMN.fullmatch(folder) for folder in key.split("/")[:-1]]
        if None in folders:
            return f"{key!r} is in a folder whose name is not name=value"
        columns.add(tuple(folder[1].lower() for folder in folders if folder))
    return files if len(columns) == 1 else "folders of one level stand for different columns"


def is_hidden(name: str) -> bool:
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)

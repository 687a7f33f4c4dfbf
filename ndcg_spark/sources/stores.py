"""Object stores: which addresses lie in one, and Arrow's file systems for them.

Settings come from where the process runs: environment, configuration files, the role of the machine. Nothing secret
is part of a task, so nothing secret travels or is logged.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
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
    """A place in an object store: `s3`, `gs` or `abfss`; bucket, or container and account; key, maybe empty."""

    scheme: str
    bucket: str
    key: str


def address_of(path: str) -> StoreAddress | None:
    """Read an address such as `s3a://bucket/key`; None for any other path. Nothing in a key is decoded."""
    found = _ADDRESS.fullmatch(path)
    scheme = SCHEMES.get(found[1].lower()) if found else None
    if found is None or scheme is None or not found[2]:
        return None
    return StoreAddress(scheme, found[2], found[3].rstrip("/"))


def without_secrets(path: str) -> str:
    """Hide what is a password or a signature in an address; other paths and texts stay as they are."""
    if not _ADDRESS.fullmatch(path):
        return path
    return _TOKEN.sub("?***", _LOGIN.sub(r"\1***@", path))


def refuse_secrets(path: str) -> None:
    """Raise where an address has a password or signature in it, which would end in logs and tables."""
    shown = without_secrets(path)
    if shown != path:
        raise InvalidParameterError(
            f"{shown!r} has credentials in it, which would end in logs and tables; leave them to the environment, "
            "to Spark's settings or to the role of the machine."
        )


def file_system(path: str) -> tuple[Any, str]:
    """Arrow's file system for a path of this machine or of an object store, and the path inside it.

    Runs no request, except that the region of a bucket of AWS is asked for where the environment does not name it.
    An OSError says that this build of Arrow lacks the file system.
    """
    address = address_of(path)
    if address is None:
        return _local(), path
    make, settings = _MAKERS[address.scheme]
    known = tuple((name, os.environ[name]) for name in settings if os.environ.get(name))
    bucket = address.bucket.partition("@")[0]
    return make(address.bucket, known), f"{bucket}/{address.key}".rstrip("/")


@lru_cache(maxsize=1)
def _local() -> Any:
    return fs.LocalFileSystem()


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
    """Say in a line why Arrow cannot read, of which file, and without the request ids that stores add."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    why = re.sub(r"\s*\(Request ID: [^)]*\)", "", line).rstrip(". ")
    return why if path in why else f"{path}: {why}"

"""Hides credentials in text before it is logged, stored or shown; the one place that knows their forms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"

_SECRET_NAMES = (
    r"pass(?:word|wd|phrase)",
    r"secret",
    r"token",
    r"credentials?",
    r"signature",
    r"(?:access|account|api|private|shared|encryption)[_.-]?key",
    r"(?<![A-Za-z0-9])(?:sig|sas|pwd|auth|pass(?=\s*=))(?![A-Za-z0-9])",
)
_SECRET = "|".join(_SECRET_NAMES)
_SECRET_NAME = re.compile(_SECRET, re.IGNORECASE)
# What follows the name belongs to it: fs.azure.account.key.NAME.dfs.core.windows.net. A bound keeps long words cheap.
_NAMED = re.compile(
    rf"((?:{_SECRET})[\w.-]{{0,80}}"  # the name
    r"[\"'`]?(?:\s*(?:=>|[=:])\s*|%3D|\s+(?=[\"'])))"  # name=, "name": , name => , name 'value' (SQL)
    r"(?:(\"|')(?:\\.|\2\2|(?!\2)[^\\])*\2"  # in quotes; SQL writes a quote within twice
    r"|\{[^{}\s]*\}"  # SQL Server
    r"|[\"']?(?![\s&;\"'])[^\s&;\"']+)",  # a quote may lack its end
    re.IGNORECASE,
)
_SETTING = re.compile(r"[^\s=/?&;\"']+=")
_AUTHORIZATION = re.compile(r"\b((?:authorization[\"']?\s*[=:]\s*[\"']?)?(?:bearer|basic)\s+)[\w.~+/=-]{8,}", re.I)
# Secret keys of S3 may have slashes, so for s3://KEY:SECRET@bucket the whole reference is searched for the @.
_S3_USER = re.compile(r"(\bs3[an]?://)[^\s/@:]+:[^\s@]+@", re.IGNORECASE)
# A password may have slashes; a port before a path is none. A bound keeps long words cheap.
_USER_AND_PASSWORD = re.compile(r"(?<=://)([^\s/@:\"']*):(?!\d+[/?])[^\s\"'?]{1,200}@")
# Oracle: jdbc:oracle:thin:USER/PASSWORD@//host/service. A bound keeps long words cheap.
_ORACLE_USER = re.compile(r"(\b(?:thin|oci8?):[^\s/@\"']{0,80}/)(?:\"[^\"]{1,80}\"|[^\s\"']{1,80})@", re.IGNORECASE)
# A lone user is a container at abfss:// and wasbs://, but at http:// it may be an access token.
_LONE_USER = re.compile(r"(\b(?:git\+)?https?://)[^\s/@:\"']+@", re.IGNORECASE)
_KNOWN_KEYS = re.compile(
    r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|dapi[0-9a-f]{32}(?:-\d+)?|gh[pousr]_[A-Za-z0-9]{36,}|glpat-[\w-]{20,}"
    r"|xox[abprs]-[A-Za-z0-9-]{10,}|AIza[\w-]{35}|hv[bs]\.[\w-]{20,}"
    r"|eyJ[\w-]{10,}\.eyJ[\w-]{10,}(?:\.[\w-]*)?)(?![\w-])"
)
_PEM = re.compile(r"(-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----)(?:(?!-----).)+", re.DOTALL)


def redact(text: str) -> str:
    """Hide credentials in a path, a URL, an option or a message.

    `***` replaces passwords in URLs (`user:***@host`), values whose name says that they are secret (`password=`,
    `?sig=`, `X-Amz-Signature=`, `access_key=`, `token=`), and keys that are known by their form (private keys, JSON
    Web Tokens, keys of AWS, Databricks, GitHub, GitLab, Google, Slack, Vault). A second call changes nothing. Where
    the end of a value is unclear, more is hidden rather than less; a secret that neither its name nor its form gives
    away is not found.

    >>> redact("jdbc:postgresql://etl:pa55@db:5432/clicks")
    'jdbc:postgresql://etl:***@db:5432/clicks'
    >>> redact("https://acct.blob.core.windows.net/c/f.parquet?sv=2024&sig=aBc%2F1")
    'https://acct.blob.core.windows.net/c/f.parquet?sv=2024&sig=***'
    >>> redact("s3://bucket/rankings/run_date=2026-01-31")
    's3://bucket/rankings/run_date=2026-01-31'
    """
    text = _S3_USER.sub(rf"\1{HIDDEN}@", text)
    text = _USER_AND_PASSWORD.sub(rf"\1:{HIDDEN}@", text)
    text = _ORACLE_USER.sub(rf"\1{HIDDEN}@", text)
    text = _LONE_USER.sub(rf"\1{HIDDEN}@", text)
    text = _AUTHORIZATION.sub(rf"\1{HIDDEN}", text)
    text = _NAMED.sub(_hide_value, text)
    text = _PEM.sub(rf"\1{HIDDEN}", text)
    return _KNOWN_KEYS.sub(HIDDEN, text)


def _hide_value(match: re.Match[str]) -> str:
    quote = match.group(2) or ""
    return f"{match.group(1)}{quote}{HIDDEN}{quote}"


def redact_values(value: Any) -> Any:
    """Copy a value with credentials hidden in every text within lists and mappings; in the keys of mappings, too.

    Under a name such as `password` all of a value is hidden, in a mapping and in a text `NAME=VALUE` of a list, as
    options of readers and Spark settings are. A mapping becomes a dict.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {redact(str(name)): _redact_value(str(name), inner) for name, inner in value.items()}
    return [_redact_setting(inner) for inner in value] if isinstance(value, list | tuple) else value


def _redact_value(name: str, value: Any) -> Any:
    return HIDDEN if value is not None and _SECRET_NAME.search(name) else redact_values(value)


def _redact_setting(value: Any) -> Any:
    setting = _SETTING.match(value) if isinstance(value, str) else None
    return f"{setting[0]}{HIDDEN}" if setting and _SECRET_NAME.search(setting[0]) else redact_values(value)

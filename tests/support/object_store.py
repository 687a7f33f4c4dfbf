"""An S3 server on this machine for tests, and the settings by which Arrow finds it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

SECRET = "a-secret-that-must-not-show"
_ANY = re.compile(r'"(?:\x1b\[\d+m)*([A-Z]+) (\S+) HTTP')
_UP = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


@dataclass(frozen=True)
class Server:
    """The server, and the requests that it logs."""

    process: subprocess.Popen[bytes]
    log: Path
    url: str

    def settings(self) -> dict[str, str]:
        """Environment by which Arrow finds the server, with its own credentials only."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "an-id",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def put(self, key: str, body: bytes = b"") -> None:
        """Store an object, or make a bucket."""
        self._ask("PUT", quote(key), body)

    def put_folder(self, folder: Path, key: str) -> None:
        """Store all files below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{key}/{path.relative_to(folder)}", path.read_bytes())

    def delete(self, key: str) -> None:
        self._ask("DELETE", quote(key))

    def deny_objects(self, bucket: str) -> None:
        """Deny reads of all objects in a bucket; its keys can still be listed."""
        action, resource = ["s3:GetObject", "s3:HeadObject"], f"arn:aws:s3:::{bucket}/*"
        statement = {"Effect": "Deny", "Principal": "*", "Action": action, "Resource": resource}
        policy = {"Version": "2012-10-17", "Statement": [statement]}
        self._ask("PUT", f"{bucket}?policy", json.dumps(policy).encode())

    def requests(self) -> list[str]:
        """Requests so far, without those of this class: `GET data/rows/0.parquet`, or `LIST data`."""
        logged = _ANY.findall(self.log.read_text(errors="replace"))
        reads = [(method, unquote(path).lstrip("/")) for method, path in logged if method in ("GET", "HEAD")]
        listings = ((path.partition("?")[0], "list-type" in path) for _, path in reads)
        return [
            f"LIST {bucket}" if lists else f"{method} {path}"
            for (method, path), (bucket, lists) in zip(reads, listings, strict=True)
        ]

    def stop(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def _ask(self, method: str, path: str, body: bytes = b"") -> None:
        headers = {
            "Authorization": "AWS4-HMAC-SHA256 Credential=an-id/20260101/us-east-1/s3/aws4_request",
            "Content-Type": "application/octet-stream",  # by default the server would parse a form
        }
        request = urllib.request.Request(f"{self.url}/{path}", body, headers, method=method)
        with urllib.request.urlopen(request, timeout=20):
            pass


@contextmanager
def s3_server(folder: Path) -> Iterator[Server]:
    """Start an empty store on a free port of 127.0.0.1; always stop it."""
    log = folder / "requests.log"
    command = [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=folder)
    try:
        deadline = time.monotonic() + 60
        while (up := _UP.search(log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-500:]}")
            time.sleep(0.05)
        yield Server(process, log, f"http://127.0.0.1:{up[1]}")
    finally:
        process.kill()
        process.wait(10)


@contextmanager
def set_environment(spark: object, settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables in this process and in Python workers that start in the block."""
    places = (os.environ, spark.sparkContext.environment)  # type: ignore[attr-defined]  # a classic session
    before = [{name: place.get(name) for name in settings} for place in places]
    try:
        for place in places:
            place.update(settings)
        yield
    finally:
        for place, old in zip(places, before, strict=True):
            for name, value in old.items():
                if value is None:
                    place.pop(name, None)
                else:
                    place[name] = value

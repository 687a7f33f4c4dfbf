"""Results in a file, so that a call that was interrupted goes on where it ended."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any


class Lines:
    """File with a line for each result; an incomplete line of a killed call is skipped."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if text and not text.endswith("\n"):
            path.write_text(text + "\n", encoding="utf-8")
        self.lines: list[dict[str, Any]] = []
        for line in text.splitlines():
            with suppress(ValueError):
                self.lines.append(json.loads(line))

    def append(self, line: dict[str, Any]) -> None:
        """Keep one more."""
        with self._lock, self._path.open("a", encoding="utf-8") as file:
            self.lines.append(line)
            file.write(json.dumps(line) + "\n")

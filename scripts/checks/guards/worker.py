"""Plugin of pytest for broken.py: collects tests, then runs those it is asked for, in one process and session.

It reads lines of JSON from a socket (`mutant`, `tests`) and answers with lines: `began` and `ended` of each test, and
`done`. Fixtures that tests of a file share are made anew for each request, as a mutant may have been on before; those
of the session, Spark among them, stay.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from scripts.checks.guards.switches import RECORD, STATE


class Server:
    """Pytest plugin that serves the requests."""

    def __init__(self, folder: Path, connection: socket.socket, package: str) -> None:
        self.folder, self.package = folder, package
        self.lines = connection.makefile("rw", encoding="utf-8")
        self.running: dict[str, int] = {}
        """Numbers of what was run: tests by their names, and shared fixtures as `file::fixture of a file`."""
        self.seconds: dict[str, float] = {}

    def switch(self, mutant: int, running: int = 0) -> None:
        """Turn a mutant on; 0: none."""
        with (self.folder / "switch").open("r+b") as file:
            file.write(STATE.pack(mutant, running))

    def state(self) -> tuple[int, int]:
        return STATE.unpack((self.folder / "switch").read_bytes())  # type: ignore[return-value]

    def get_number(self, what: str) -> int:
        return self.running.setdefault(what, len(self.running) + 1)

    def say(self, **what: Any) -> None:
        self.lines.write(json.dumps(what) + "\n")
        self.lines.flush()

    def forget(self) -> None:
        """Empty the caches of the package, which may hold what a mutant computed."""
        for name, module in list(sys.modules.items()):
            if name == self.package or name.startswith(self.package + "."):
                for attribute in list(vars(module).values()):
                    if isinstance(attribute, functools._lru_cache_wrapper):
                        attribute.cache_clear()

    # --- hooks

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[None]:
        """Record what a shared fixture passes under its own name: only the first test that uses it makes it."""
        mutant, before = self.state()
        if mutant != RECORD or fixturedef.scope == "function":
            return (yield)
        what = f"{request.node.nodeid}::{fixturedef.argname} of a file"
        self.switch(mutant, self.get_number(what))
        began = time.monotonic()
        try:
            return (yield)
        finally:
            self.seconds[what] = time.monotonic() - began
            self.switch(mutant, before)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Serve until the other side hangs up."""
        items = {item.nodeid: item for item in session.items}
        self.say(tests={name: list_shared_fixtures(item) for name, item in items.items()})
        for line in self.lines:
            request = json.loads(line)
            self.serve(session, items, request["mutant"], request["tests"])
        return True

    def serve(self, session: pytest.Session, items: dict[str, pytest.Item], mutant: int, tests: list[str]) -> None:
        self.forget()
        for position, name in enumerate(tests):
            following = items[tests[position + 1]] if position + 1 < len(tests) else Between(session)
            self.switch(mutant, self.get_number(name) if mutant == RECORD else 0)
            self.say(began=name)
            began = time.monotonic()
            outcome, why = run(items[name], following)
            self.say(ended=name, outcome=outcome, why=why, seconds=round(time.monotonic() - began, 3))
            if outcome == "failed" and mutant != RECORD:
                break
        self.switch(0)
        if tests:
            # What a whole session shares stays: so does the stack of what is set up, down to the session.
            session._setupstate.teardown_exact(Between(session))
        self.forget()
        self.say(done=True, running=self.running, seconds=self.seconds)


class Between:
    """Test without a file, which makes pytest tear down all fixtures except those of the session."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session

    def listchain(self) -> list[Any]:
        return [self.session]


def list_shared_fixtures(item: pytest.Item) -> list[str]:
    return list(getattr(item, "fixturenames", ()))


def run(item: pytest.Item, following: Any) -> tuple[str, str]:
    """Run a test; return its outcome, and the last line of the failure."""
    try:
        reports = runtestprotocol(item, log=False, nextitem=following)
    except (KeyboardInterrupt, SystemExit) as error:
        return "failed", repr(error)
    failed = [report for report in reports if report.failed]
    if failed:
        text = str(getattr(failed[0].longrepr, "reprcrash", None) or failed[0].longrepr)
        return "failed", text[-300:]
    return ("skipped" if any(report.skipped for report in reports) else "passed"), ""


def pytest_configure(config: pytest.Config) -> None:
    """Take up the connection that broken.py hands over by the environment."""
    folder, number, package = (
        os.environ["BROKEN_FOLDER"],
        int(os.environ["BROKEN_SOCKET"]),
        os.environ["BROKEN_PACKAGE"],
    )
    config.pluginmanager.register(Server(Path(folder), socket.socket(fileno=number), package))

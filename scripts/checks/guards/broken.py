"""Break guards on purpose, one at a time, and look whether the tests that concern them notice.

Guards are what decides on sessions, catalogs, places, slices, bad rows and names: conditions that refuse something,
calls of what may refuse, reasons why rows are bad, and answers of yes or no. They are found in the syntax tree
(sites.py says what is one), so that moved code keeps its mutants. Each is broken by itself: its
condition is negated, what it refuses is left out, an operand of its `and` or `or` is left out, its call is dropped.

The checkout is not changed. A copy gets a switch at each guard, and one process of pytest, with one Spark session,
turns them on one after the other. First each test runs once with all of them off, which records the guards it passes
and how they decide. Then a mutant meets those tests of its topic for which it makes a difference, the quickest first,
until one fails that passes without it (`caught`), or hangs (`timeout`). A mutant that no test notices survives;
survivors.py says why those that must.

Results are lines of a file. What is there is not run again unless its function has changed, or, for a survivor, the
tests; so a call that was interrupted, or whose --budget was spent, goes on where it ended. Remove the file to begin
anew. Prints counts and survivors; exits with 1 if less than 95 % of those that were run are caught, or if a survivor
has no reason.

    scripts/check guards broken --budget 30
    scripts/check guards broken --topic slices --topic names --n 50 --seed 7
    scripts/check guards broken --list --topic sessions
    scripts/check guards broken --only refuse_stamps --results /tmp/some.jsonl
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts.checks import ROOT
from scripts.checks.guards.project import copy_project, variables
from scripts.checks.guards.sites import SWITCHES, Mutant, break_package
from scripts.checks.guards.survivors import REASONS
from scripts.checks.guards.switches import RECORD, STATE
from scripts.checks.kept import Lines

RESULTS = ROOT / ".guards-broken.jsonl"
NAME = "ndcg_spark"
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "scripts.checks.guards.worker", "-p", "no:cacheprovider")
MIN_SHARE = 0.95


@dataclass(frozen=True)
class Topic:
    """Modules of one topic, as globs below the package, and the test files for them, cheap ones first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


def files(words: str) -> tuple[str, ...]:
    """Expand the braces of a text to file names, as a shell does."""
    parts = [re.fullmatch(r"(.*?)\{(.*)\}(.*)|(.*)", word) for word in words.split()]
    return tuple(f"{p[1]}{name}{p[3]}" if p[2] else p[0] for p in parts if p for name in (p[2] or "").split(","))


def topic(modules: str, tests: str) -> Topic:
    """Build a topic from two texts of file names."""
    return Topic(files(modules), files(tests))


TOPICS: Mapping[str, Topic] = {
    "sessions": topic(
        "jobs/session.py core/{session,workers}.py",
        """
            tests/core/test_{settings,workers,shipping}.py tests/jobs/test_{surroundings,local_session}.py
            tests/evaluation/test_{job_refusals,job_process}.py tests/jobs/test_connect.py
        """,
    ),
    "catalogs": topic(
        "tables/{catalog,commits}.py",
        """
            tests/jobs/test_{local_session,awkward_names}.py
            tests/tables/test_{delta_statements,iceberg_statements,places,metric_table}.py
            tests/tables/test_{table_writes,growing_tables,hive_tables}.py
        """,
    ),
    "places": topic(
        "tables/{places,checks}.py sources/{folders,stores}.py",
        """
            tests/sources/test_stores.py tests/tables/test_places.py tests/sources/test_{table_folders,folders}.py
            tests/jobs/test_awkward_paths.py tests/sources/test_parquet_source.py
            tests/evaluation/test_{inputs,job_outputs}.py
            tests/tables/test_{output_disks,metric_table,growing_tables,table_writes,arrow_writes}.py
            tests/sources/test_object_stores.py
        """,
    ),
    "slices": topic(
        "tables/{slices,claims,catalog,folders,table_writes,writing,nights}.py",
        """
            tests/tables/test_{write_night,growing_tables,table_writes,arrow_writes,delta_statements}.py
            tests/evaluation/test_job_outputs.py tests/tables/test_{output_disks,metric_table}.py
            tests/sources/test_object_stores.py tests/history/test_roll_up.py
        """,
    ),
    "functions": topic(
        "functions/*.py",
        """
            tests/functions/test_{aggregates,array_functions,sql_functions}.py
        """,
    ),
    "lists": topic(
        "evaluation/frames/lists.py evaluation/tasks/list_rankings.py",
        """
            tests/evaluation/test_lists.py
        """,
    ),
    "bad rows": topic(
        """
            evaluation/tasks/{valid_rows,partial_ranking,items}.py judgments/tasks.py retrieval/tasks/tables.py
            evaluation/frames/columns.py core/bad_rows.py judgments/frames.py clicks/frames.py
            evaluation/frames/ranking.py comparison/tasks/pairing.py
        """,
        """
            tests/evaluation/test_valid_rows.py tests/judgments/test_judging_ratings.py
            tests/comparison/test_comparing.py tests/retrieval/test_retrieval_blocks.py
            tests/evaluation/test_{arrow_columns,partial_rankings,evaluation}.py tests/jobs/test_explain.py
            tests/evaluation/test_{item_metrics,bad_rows,rejected_rows,key_types,single_rows}.py
            tests/evaluation/test_{duplicates,inputs,several_rankers,lists,lists_by_rules}.py
            tests/judgments/test_{judgments_ratings,judgments_events}.py tests/retrieval/test_retrieval.py
            tests/evaluation/test_metrics_of_items.py tests/comparison/test_comparison.py
            tests/clicks/test_clicks_on_spark.py tests/evaluation/test_{job_bad_rows,job_rejects}.py
            tests/judgments/test_build_judgments.py tests/retrieval/test_retrieve_job.py
            tests/clicks/test_position_bias_job.py
        """,
    ),
    "names": topic(
        """
            errors.py core/{redaction,columns,adapters,arrow_tables,flag}.py comparison/{differences,tables}.py
            sources/api.py jobs/options.py metrics/base.py
        """,
        """
            tests/core/test_{adapters,vector_columns,setting_values}.py tests/jobs/test_fields.py
            tests/core/test_redaction.py tests/evaluation/test_evaluation_settings.py
            tests/metrics/test_metric_properties.py tests/project/test_option_names.py
            tests/core/test_error_kinds.py tests/jobs/test_{cli_options,config_file}.py
            tests/evaluation/test_{metrics,inputs,several_rankers,advice}.py tests/jobs/test_awkward_names.py
            tests/comparison/test_compare_job.py tests/sources/test_read_table.py
        """,
    ),
}
"""The one place that knows modules: a move of code changes it, and a name that is not there ends the script."""


class Kept(Lines):
    """Results of mutants and of test files; later ones replace earlier ones."""

    @property
    def mutants(self) -> dict[str, dict[str, Any]]:
        return {line["mutant"]: line for line in self.lines if "mutant" in line}

    @property
    def tests(self) -> dict[str, dict[str, Any]]:
        """Guards that the tests of a file pass, by file."""
        return {line["file"]: line for line in self.lines if "file" in line}


class HangsError(Exception):
    """A test takes much longer than without a mutant, or its process died."""

    test = ""


class Runner:
    """Pytest process that is started when it is needed, and restarted after it ended."""

    patience = 60.0
    """Seconds that a test may take beside ten times what it takes without a mutant."""
    start_up = 300.0
    """Seconds more for the first of a process, which starts Spark."""

    def __init__(self, copy: Path, package: str, files: Sequence[str]) -> None:
        self.copy, self.package, self.files = copy, package, list(files)
        self.tests: dict[str, list[str]] = {}
        """Fixtures of each test."""
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._buffer = b""

    def start(self) -> None:
        """Start it, and wait until it has collected all tests."""
        if self._process is not None:
            return
        (self.copy / "switch").write_bytes(STATE.pack(0, 0))
        ours, child_socket = socket.socketpair()
        environment = variables(self.copy, ROOT) | {
            "BROKEN_FOLDER": str(self.copy),
            "BROKEN_SOCKET": str(child_socket.fileno()),
            "BROKEN_PACKAGE": self.package,
            "CI": "1",  # the same examples of hypothesis each time
        }
        with (self.copy / "pytest.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*PYTEST, *self.files],
                cwd=self.copy, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                pass_fds=[child_socket.fileno()], start_new_session=True,
            )  # fmt: skip
        child_socket.close()
        self._socket, self._buffer, self._is_new = ours, b"", True
        try:
            self.tests = self._answer(300)["tests"]
        except HangsError:
            tail = (self.copy / "pytest.log").read_text(errors="replace")[-3000:]
            self.end()
            sys.exit(f"scripts/check guards broken: tests cannot be collected:\n{tail}")

    def run(self, mutant: int, tests: Sequence[str], seconds: Mapping[str, float]) -> Iterator[dict[str, Any]]:
        """Run tests until one fails; yields how each ended, and at last what was run by which number."""
        self.start()
        assert self._socket is not None
        self._socket.sendall(json.dumps({"mutant": mutant, "tests": list(tests)}).encode() + b"\n")
        limit, running = 300.0, ""
        while True:
            try:
                answer = self._answer(limit)
            except HangsError as error:
                error.test = running
                raise
            if "began" in answer:
                running = answer["began"]
                limit = self.patience + 10 * seconds.get(running, 60.0) + self._is_new * self.start_up
                self._is_new = False
                continue
            yield answer
            if "done" in answer:
                return

    def _answer(self, limit: float) -> dict[str, Any]:
        assert self._socket is not None
        until = time.monotonic() + limit
        while b"\n" not in self._buffer:
            self._socket.settimeout(max(0.01, until - time.monotonic()))
            try:
                more = self._socket.recv(1 << 20)
            except TimeoutError:
                raise HangsError(f"no answer in {limit:.0f} s") from None
            if not more:
                raise HangsError("the process of the tests has ended")
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End it with all that it has started."""
        if self._process is None:
            return
        for pid in reversed([self._process.pid, *list_descendants(self._process.pid)]):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()
        if self._socket is not None:
            self._socket.close()
        self._process = self._socket = None


def list_descendants(pid: int) -> list[int]:
    """Processes that a process has started, and theirs."""
    listed = subprocess.run(["ps", "-e", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = [tuple(map(int, line.split())) for line in listed.splitlines()]
    pids, todo = [], [pid]
    while todo:
        children = [child for child, parent in parents if parent in todo]
        pids += children
        todo = children
    return pids


class Hunt:
    """Mutants, and the tests that may catch them."""

    def __init__(
        self, mutants: Mapping[int, Mutant], topics: Mapping[str, Topic], runner: Runner, results: Kept, limit: float
    ) -> None:
        self.mutants, self.topics, self.runner, self.kept, self.limit = mutants, topics, runner, results, limit
        self.unsteady: set[str] = set()
        """Tests that fail without a mutant, too."""
        self._sources = {file: hash_functions(runner.copy / file) for file in runner.files}

    def _code(self, file: str) -> str:
        """Hash the functions of the topics of a test file: its tests run again if a function changes."""
        topics = [name for name, topic in self.topics.items() if file in topic.tests]
        functions = sorted({mutant.source for mutant in self.mutants.values() if mutant.topic in topics})
        return hashlib.sha256("".join(functions).encode()).hexdigest()[:12]

    def _source(self, test: str) -> str:
        """Hash of a test function."""
        file, _, name = test.partition("::")
        return self._sources[file].get(name.partition("[")[0].rpartition("::")[2], "")

    def tests_hash(self, topic: str) -> str:
        """All test files of a topic: a survivor is tried again when one of them has changed."""
        texts = [(self.runner.copy / file).read_bytes() for file in self.topics[topic].tests]
        return hashlib.sha256(b"".join(texts)).hexdigest()[:12]

    def record(self, deadline: float) -> bool:
        """Run the tests that are not recorded; whether all are."""
        self.runner.start()
        for file in self.runner.files:
            known = self.kept.tests.get(file)
            if known is None or known["code"] != self._code(file):
                known = {"tests": {}, "shared": {}}
            tests = [test for test in self.runner.tests if test.partition("::")[0] == file]
            held = {
                test: recorded
                for test, recorded in known["tests"].items()
                if recorded["source"] == self._source(test)
            }
            new = [test for test in tests if test not in held]
            if file in self.kept.tests and not new and set(held) == set(tests):
                continue
            if time.monotonic() > deadline:
                return False
            began = time.monotonic()
            line = self._recorded(new) if new else {"tests": {}, "shared": {}}
            recorded = {test: recorded for test, recorded in {**held, **line["tests"]}.items() if test in tests}
            shared = {**known["shared"], **line["shared"]}
            self.kept.append({"file": file, "code": self._code(file), "tests": recorded, "shared": shared})
            print(f"recorded {file}: {len(new)} tests, {time.monotonic() - began:.0f} s", flush=True)
        return True

    def _recorded(self, tests: Sequence[str]) -> dict[str, Any]:
        passed = self.runner.copy / "passed"
        passed.unlink(missing_ok=True)
        passed.touch()
        passed.chmod(0o666)  # a test may be another user for a moment
        recorded: dict[str, Any] = {}
        last: dict[str, Any] = {}
        for answer in self.runner.run(RECORD, tests, dict.fromkeys(tests, 120.0)):
            if "ended" in answer:
                recorded[answer["ended"]] = {"outcome": answer["outcome"], "seconds": answer["seconds"]}
            else:
                last = answer
            if answer.get("outcome") == "failed":
                print(f"fails without a mutant: {answer['ended']}: {answer['why']}", flush=True)
        names = {number: what for what, number in last["running"].items()}
        by: dict[str, dict[str, int]] = {}
        for line in passed.read_text().splitlines():
            running, number, outcome = map(int, line.split())
            guards = by.setdefault(names.get(running, ""), {})
            name = short(self.mutants[number].key)
            guards[name] = guards.get(name, 0) | 1 << outcome  # 1: was false, 2: was true
        for name, test in recorded.items():
            test["passes"] = by.get(name, {})
            test["fixtures"], test["source"] = self.runner.tests[name], self._source(name)
        shared = {
            what: {"passes": by.get(what, {}), "seconds": last["seconds"].get(what, 0.0)}
            for what in last["running"]
            if what.endswith(" of a file") and not what.startswith("::")
        }
        return {"tests": recorded, "shared": shared}

    def candidates(self, mutant: Mutant) -> dict[str, float]:
        """Tests for which a mutant makes a difference, and their seconds; the quickest first."""
        guard = short(self.mutants[mutant.guard].key)
        wanted = {None: 3, True: 2, False: 1}[mutant.seen]
        seconds = {}
        for file in self.topics[mutant.topic].tests:
            recorded = self.kept.tests[file]
            for name, test in recorded["tests"].items():
                if test["outcome"] != "passed":
                    continue
                shared = [
                    fixture for what, fixture in recorded["shared"].items()
                    if what.rpartition("::")[2].removesuffix(" of a file") in test["fixtures"]
                ]  # fmt: skip
                passes = test["passes"].get(guard, 0)
                for fixture in shared:
                    passes |= fixture["passes"].get(guard, 0)
                if passes & wanted:
                    seconds[name] = test["seconds"] + sum(fixture["seconds"] for fixture in shared)
        return dict(sorted(seconds.items(), key=lambda test: test[1]))

    def verdict(self, number: int) -> dict[str, Any]:
        """Run the tests that concern a mutant."""
        mutant = self.mutants[number]
        every = {name: took for name, took in self.candidates(mutant).items() if name not in self.unsteady}
        tests, spent = [], 0.0
        for name, took in every.items():
            spent += took
            if tests and spent > self.limit:
                break
            tests.append(name)
        line = {
            "mutant": mutant.key, "topic": mutant.topic, "module": mutant.module, "source": mutant.source,
            "tests_hash": self.tests_hash(mutant.topic), "tests": len(tests), "of": len(every),
        }  # fmt: skip
        began = time.monotonic()
        outcome = (
            self._caught_by(number, tests, every) if tests else {"verdict": "survived", "why": "no test reaches it"}
        )
        return {**line, **outcome, "seconds": round(time.monotonic() - began, 1)}

    def _caught_by(self, number: int, tests: list[str], seconds: Mapping[str, float]) -> dict[str, Any]:
        fresh = False
        while tests:
            verdict, test, why = self._ended(number, tests, seconds)
            if verdict == "survived":
                break
            if fresh:
                self.runner.end()
            again, _, its_why = self._ended(0, [test], seconds)
            if again == "survived":
                return {"verdict": verdict, "by": test, "why": why}
            self.runner.end()  # what this mutant or another left behind may be what makes it fail
            if fresh:
                self.unsteady.add(test)
                print(f"ends without a mutant, too: {test}: {its_why}", flush=True)
                tests = tests[tests.index(test) + 1 :]
            fresh = not fresh
        return {"verdict": "survived", "why": ""}

    def _ended(self, number: int, tests: Sequence[str], seconds: Mapping[str, float]) -> tuple[str, str, str]:
        """Run tests until one fails or hangs; return the verdict, that test, and the reason."""
        verdict = ("survived", "", "")
        try:
            for answer in self.runner.run(number, tests, seconds):
                if answer.get("outcome") == "failed":
                    verdict = ("caught", answer["ended"], answer["why"])
        except HangsError as error:
            self.runner.end()
            return "timeout", error.test or tests[0], str(error)
        return verdict

    def is_done(self, mutant: Mutant) -> bool:
        """Check whether the verdict of a mutant is known and still valid."""
        known = self.kept.mutants.get(mutant.key)
        if known is None or known["source"] != mutant.source:
            return False
        return known["verdict"] != "survived" or known["tests_hash"] == self.tests_hash(mutant.topic)


def hash_functions(path: Path) -> dict[str, str]:
    """Return hashes of the functions of a test file."""
    functions = (
        function for function in ast.walk(ast.parse(path.read_bytes())) if isinstance(function, ast.FunctionDef)
    )
    return {function.name: short(ast.unparse(function)) for function in functions}


def short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:10]


def prepare_copy(folder: Path, package: str, topics: Mapping[str, Topic], errors: str) -> dict[int, Mutant]:
    """Put the switches into a copy."""
    missing = [file for topic in topics.values() for file in topic.tests if not (folder / file).is_file()]
    if missing:
        raise LookupError(f"there is no test file {missing[0]}; TOPICS in scripts/checks/guards/broken.py names it.")
    mutants = break_package(folder, package, {name: settings.modules for name, settings in topics.items()}, errors)
    source = (Path(__file__).resolve().parent / "switches.py").read_text(encoding="utf-8")
    filled = source.replace('FOLDER = ""', f"FOLDER = {str(folder)!r}")
    (folder / package / f"{SWITCHES}.py").write_text(filled, encoding="utf-8")
    (folder / "switch").write_bytes(STATE.pack(0, 0))
    return mutants


def select_mutants(
    mutants: Mapping[int, Mutant], topics: Sequence[str], only: str, n: int | None, seed: int
) -> list[int]:
    """Return numbers of mutants in random order, so that the first ones are a sample."""
    numbers = [number for number, mutant in mutants.items() if mutant.topic in topics and only in mutant.key]
    numbers.sort(key=lambda number: short(f"{seed} {mutants[number].key}"))
    return numbers[:n]


def format_summary(
    mutants: Sequence[Mutant], results: Mapping[str, Mapping[str, Any]], reasons: Mapping[str, str]
) -> tuple[str, bool]:
    """Format a table of verdicts and survivors; return it and whether the check passes."""
    run = [mutant for mutant in mutants if mutant.key in results and results[mutant.key]["source"] == mutant.source]
    columns = ("found", "run", "caught by a test", "caught by a timeout", "survived", "of these with a reason")
    lines = [f"| guards | {' | '.join(columns)} | caught |", "| --- |" + " ---: |" * (len(columns) + 1)]

    def row(name: str, group: Sequence[Mutant]) -> float:
        mine = [mutant for mutant in run if mutant in group]
        verdicts = Counter(results[mutant.key]["verdict"] for mutant in mine)
        with_reason = sum(results[mutant.key]["verdict"] == "survived" and mutant.key in reasons for mutant in mine)
        share = 1 - verdicts["survived"] / len(mine) if mine else 0.0
        numbers = (len(group), len(mine), verdicts["caught"], verdicts["timeout"], verdicts["survived"], with_reason)
        lines.append(f"| {name} | {' | '.join(map(str, numbers))} | {share:.1%} |")
        return share

    for topic in dict.fromkeys(mutant.topic for mutant in mutants):
        row(topic, [mutant for mutant in mutants if mutant.topic == topic])
    for how in sorted({mutant.how for mutant in mutants}):
        row(how, [mutant for mutant in mutants if mutant.how == how])
    share = row("all", mutants)
    survivors = [mutant for mutant in run if results[mutant.key]["verdict"] == "survived"]
    for mutant in survivors:
        what = results[mutant.key]
        tests = what["why"] or f"{what['tests']} of {what['of']} tests"
        lines.append(f"survived ({mutant.topic}; {tests}): {mutant.key}: {reasons.get(mutant.key, 'NO REASON')}")
    lines += [
        f"this reason is of no mutant: {key}" for key in reasons if not any(mutant.key == key for mutant in mutants)
    ]
    return "\n".join(lines), share >= MIN_SHARE and all(mutant.key in reasons for mutant in survivors)


def hunt(hunt_: Hunt, numbers: Sequence[int], deadline: float) -> None:
    """Run mutants that are not done until the time is spent."""
    if not hunt_.record(deadline):
        print("the time was spent before all tests were recorded; another call goes on", flush=True)
        return
    todo = [number for number in numbers if not hunt_.is_done(hunt_.mutants[number])]
    for position, number in enumerate(todo, start=1):
        if time.monotonic() > deadline:
            print(
                f"the time is spent, with {len(todo) - position + 1} mutants to run; another call goes on", flush=True
            )
            return
        line = hunt_.verdict(number)
        hunt_.kept.append(line)
        print(f"{position}/{len(todo)} {line['verdict']} in {line['seconds']} s: {line['mutant']}", flush=True)


def main() -> int:
    """Parse, run, answer."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topic", action="append", choices=TOPICS, help="may be repeated; default: all")
    parser.add_argument("--only", default="", metavar="TEXT", help="mutants with this text in their names")
    parser.add_argument("--n", type=int, help="a sample of so many mutants; default: all")
    parser.add_argument("--seed", type=int, default=0, help="of the sample, and of the order; default: 0")
    parser.add_argument("--budget", type=float, default=60, metavar="MINUTES", help="default: 60")
    parser.add_argument("--limit", type=float, default=120, help="seconds of tests per mutant; default: 120")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default: {RESULTS.name}")
    parser.add_argument("--list", action="store_true", help="print the mutants, and run nothing")
    options = parser.parse_args()
    deadline = time.monotonic() + 60 * options.budget
    topics = options.topic or list(TOPICS)
    with tempfile.TemporaryDirectory(prefix="guards-") as name:
        folder = Path(name).resolve()
        folder.chmod(0o755)
        copy_project(folder)
        mutants = prepare_copy(folder, NAME, TOPICS, f"{NAME}/errors.py")
        numbers = select_mutants(mutants, topics, options.only, options.n, options.seed)
        if options.list:
            print("\n".join(sorted(f"{mutants[number].topic}: {mutants[number].key}" for number in numbers)))
            return 0
        results = Kept(options.results)
        files = dict.fromkeys(file for topic in topics for file in TOPICS[topic].tests)
        runner = Runner(folder, NAME, list(files))
        try:
            hunt(Hunt(mutants, TOPICS, runner, results, options.limit), numbers, deadline)
        finally:
            runner.end()
    whole = topics == list(TOPICS) and not options.only and options.n is None
    text, is_well = format_summary([mutants[number] for number in numbers], results.mutants, REASONS)
    print(
        text if whole else "\n".join(number for number in text.splitlines() if not number.startswith("this reason"))
    )
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())

"""Which refusals of the package the tests reach.

A refusal is a `raise`, and each error class of ours that is called, each call of what always raises (`NoReturn`),
each reason of bad rows, and each column that raises in Spark. The syntax tree finds them. The tests run in a copy of
the project in which each refusal leaves a mark at the moment it is reached: it sets the time of a file of its own.
So it does not matter which process reaches it, with which environment and Python, or how that process ends. A tracer
misses jobs whose tests clear the environment, and workers that are killed. A column that raises in Java cannot touch
a file; its number travels in the message, and `find_refusal` notes it.

Runs all tests, or those of the files that are named, which takes as long as the tests, half an hour on two idle
cores. unseen.py has reasons for a few refusals that cannot be reached; exits with 1 if there is another one. Results
are lines of a file: an interrupted call goes on where it ended, and test files that have changed are run again.

    scripts/check guards reached
    scripts/check guards reached tests/sources/test_folders.py
"""

from __future__ import annotations

import argparse
import ast
import builtins
import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from support.processes import ROOT

from scripts.checks.guards.project import copy_project, variables
from scripts.checks.guards.sites import get_last_name
from scripts.checks.guards.unseen import UNSEEN
from scripts.checks.kept import Lines

RESULTS = ROOT / ".guards-reached.jsonl"
CODE = ("ndcg_spark", "jobs")
FILES_OF_A_PART = 8
AT_MOST_UNSEEN = 10


@dataclass(frozen=True)
class Refusal:
    """A refusal, identified by its function and text, which stay if code moves within a file."""

    place: str
    text: str
    line: int

    @property
    def key(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass(frozen=True)
class Insertion:
    """Text to put into a source at a line and a column (of bytes)."""

    line: int
    column: int
    text: str


# Each expression is None, so that `or` goes on to what stood there.
NOTE = "__import__('os').utime({path!r})"
NOTE_IF = (
    "(lambda bad: bad is not None and __import__('numpy').any(bad) and __import__('os').utime({path!r}) or bad)("
)
NOTE_TOLD = (
    "text = __import__('re').sub('§([0-9]+)§', lambda told: __import__('os').utime({folder!r} + told[1]) or '', text)"
)


class Finder(ast.NodeVisitor):
    """Finds refusals in one module, and what to insert to note each."""

    def __init__(self, module: str, folder: str, first: int) -> None:
        self.refusals: list[Refusal] = []
        self.insertions: list[Insertion] = []
        self._module, self._folder, self._first = module, folder, first
        self._functions: list[str] = []
        self._yields_reasons = False
        self._never_return: set[str] = set()

    def visit_Module(self, node: ast.Module) -> None:
        functions = [
            function for function in ast.walk(node) if isinstance(function, ast.FunctionDef) and function.returns
        ]
        self._never_return = {function.name for function in functions if ast.unparse(function.returns) == "NoReturn"}
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outside = self._yields_reasons
        self._yields_reasons = node.returns is not None and ast.unparse(node.returns) == "Iterator[Reason]"
        if (self._module, node.name) == ("ndcg_spark/errors.py", "find_refusal"):
            first = node.body[1]  # after the docstring
            note = NOTE_TOLD.format(folder=f"{self._folder}/")
            self.insertions.append(Insertion(first.lineno, first.col_offset, f"{note}; "))
        self._functions.append(node.name)
        self.generic_visit(node)
        self._functions.pop()
        self._yields_reasons = outside

    def visit_Raise(self, node: ast.Raise) -> None:
        calls = [call for call in ast.walk(node) if isinstance(call, ast.Call) and is_ours(call.func)]
        if node.exc is not None and not calls and not is_builtin(node.exc):
            self._insert(node, node.lineno, node.col_offset, NOTE + "; ")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        called, name = node.func, get_last_name(node.func)
        if is_ours(called) or name in self._never_return:
            self._insert(node, called.lineno, called.col_offset, "(" + NOTE + " or ")
            self.insertions.append(Insertion(called.end_lineno, called.end_col_offset, ")"))
        elif name == "refuse" and isinstance(called, ast.Attribute):  # a method: the condition, and what is wrong
            self._insert_around(node, node.args[0])
        elif name in ("refuse", "raise_if"):  # columns: the message ends the arguments
            last = node.args[-1]
            self._insert(node, last.end_lineno, last.end_col_offset, ", '§{number}§'")
        elif name == "raise_error":
            (message,) = node.args
            self._insert(node, message.lineno, message.col_offset, "F.concat(")
            mark = f", F.lit('§{self._first + len(self.refusals) - 1}§'))"
            self.insertions.append(Insertion(message.end_lineno, message.end_col_offset, mark))
        self.generic_visit(node)

    def visit_Yield(self, node: ast.Yield) -> None:
        if self._yields_reasons and isinstance(node.value, ast.Tuple):
            self._insert_around(node, node.value.elts[1])
        self.generic_visit(node)

    def _insert_around(self, node: ast.expr, condition: ast.expr) -> None:
        self._insert(node, condition.lineno, condition.col_offset, NOTE_IF)
        self.insertions.append(Insertion(condition.end_lineno, condition.end_col_offset, ")"))

    def _insert(self, node: ast.AST, line: int, column: int, text: str) -> None:
        number = self._first + len(self.refusals)
        place = f"{self._module}:{'.'.join(self._functions)}"
        self.refusals.append(Refusal(place, ast.unparse(node), node.lineno))
        path = f"{self._folder}/{number}"
        self.insertions.append(Insertion(line, column, text.format(path=path, number=number)))


def is_builtin(node: ast.expr) -> bool:
    """Check whether an error, or its class, is Python's own."""
    return get_last_name(node.func if isinstance(node, ast.Call) else node) in vars(builtins)


def is_ours(called: ast.expr) -> bool:
    """Check whether a call creates an error of the package."""
    return get_last_name(called).endswith("Error") and not is_builtin(called)


def mark_refusals(source: str, module: str, folder: str = "", first: int = 0) -> tuple[str, list[Refusal]]:
    """Return a module whose refusals touch numbered files in `folder` when reached, and the refusals."""
    finder = Finder(module, folder, first)
    finder.visit(ast.parse(source))
    lines = source.encode().split(b"\n")
    # The last first, so that columns stay right.
    for insertion in sorted(
        finder.insertions, key=lambda insertion: (insertion.line, insertion.column), reverse=True
    ):
        line = lines[insertion.line - 1]
        lines[insertion.line - 1] = line[: insertion.column] + insertion.text.encode() + line[insertion.column :]
    return b"\n".join(lines).decode(), finder.refusals


def number_refusals(refusals: Iterable[Refusal]) -> list[Refusal]:
    """Number refusals of the same text in the same function."""
    seen: Counter[str] = Counter()
    numbered_refusals = []
    for refusal in refusals:
        seen[refusal.key] += 1
        again = f" [{seen[refusal.key]}]" if seen[refusal.key] > 1 else ""
        numbered_refusals.append(Refusal(refusal.place, refusal.text + again, refusal.line))
    return numbered_refusals


def copy_marked_project(target: Path, folder: Path) -> list[Refusal]:
    """Copy the project, with marks in the code of the package; returns its refusals."""
    refusals: list[Refusal] = []
    for name in copy_project(target):
        if name.endswith(".py") and name.split("/")[0] in CODE:
            text, new_refusals = mark_refusals((ROOT / name).read_text(), name, str(folder), len(refusals))
            (target / name).write_text(text)
            refusals += new_refusals
    return number_refusals(refusals)


@dataclass(frozen=True)
class Part:
    """Test files that have run, by the digests of their texts; what they reached, and which tests failed."""

    files: Mapping[str, str]
    reached: list[str]
    failed: list[str]
    seconds: float


class Parts(Lines):
    """Parts that have run."""

    @property
    def done(self) -> list[Part]:
        return [Part(**line) for line in self.lines]

    def add(self, part: Part) -> None:
        self.append(vars(part))

    @property
    def reached(self) -> set[str]:
        return {key for part in self.done for key in part.reached}

    def to_run(self, files: Mapping[str, str]) -> dict[str, str]:
        """Files that have not run, or have other texts now."""
        have = {item for part in self.done for item in part.files.items()}
        return {name: digest for name, digest in files.items() if (name, digest) not in have}


def hash_test_files(root: Path, names: Sequence[str]) -> dict[str, str]:
    """Test files and digests of their texts."""
    paths = sorted(root.glob("tests/**/test_*.py"))
    digests = {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}
    missing = sorted({*names} - {*digests})
    if missing:
        raise SystemExit(f"scripts/check guards reached: there is no test file {missing[0]!r}.")
    return {name: digest for name, digest in digests.items() if not names or name in names}


def split_into_parts(files: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Divide files into parts, each of which has files of every folder."""
    n_parts = -(-len(files) // FILES_OF_A_PART)
    for number in range(n_parts):
        yield {name: files[name] for name in sorted(files)[number::n_parts]}


def run_part(files: Mapping[str, str], project: Path, folder: Path, refusals: Sequence[Refusal], n: int) -> Part:
    """Run test files in the copy, and look which refusals they reached."""
    forget_reached(folder, refusals)
    began = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "--tb=no", "-p", "no:cacheprovider"]
    command += ["-n", str(n), "--dist", "loadfile"] if n > 1 else []
    ended = subprocess.run(
        [*command, *files],
        cwd=project,
        env=variables(project),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    if ended.returncode not in (0, 1, 5):  # passed, some failed, none chosen
        raise SystemExit(f"pytest ended with {ended.returncode}:\n{ended.stdout[-3000:]}")
    lines = ended.stdout.splitlines()
    failed = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return Part(dict(files), list_reached(folder, refusals), failed, round(time.monotonic() - began, 1))


def forget_reached(folder: Path, refusals: Sequence[Refusal]) -> None:
    """Reset the files of refusals to "not reached"."""
    for number in range(len(refusals)):
        (folder / str(number)).touch()
        (folder / str(number)).chmod(0o666)  # the time of a file is set by those who may write it
        os.utime(folder / str(number), (0, 0))


def list_reached(folder: Path, refusals: Sequence[Refusal]) -> list[str]:
    """Refusals whose files have a time."""
    return [refusal.key for number, refusal in enumerate(refusals) if (folder / str(number)).stat().st_mtime]


def find_unseen(refusals: Iterable[Refusal], reached: set[str]) -> tuple[list[Refusal], list[str]]:
    """Return refusals that no test reached and no reason excuses, and errors in the table of reasons."""
    refusals = list(refusals)
    wrong = [f"{len(UNSEEN)} reasons, more than {AT_MOST_UNSEEN}"] if len(UNSEEN) > AT_MOST_UNSEEN else []
    left = [refusal for refusal in refusals if refusal.key not in reached]
    for place, words in UNSEEN:
        matching = [refusal for refusal in refusals if refusal.place == place and words in refusal.text]
        if len(matching) != 1:
            wrong.append(f"{place}: {words!r} stands for {len(matching)} refusals, not for one")
        elif matching[0].key in reached:
            wrong.append(f"{place}: {words!r} is reached, and needs no reason")
        left = [refusal for refusal in left if refusal not in matching]
    return left, wrong


def run_and_report(results: Path, n: int, names: Sequence[str]) -> int:
    """Run what is not in the file yet, and print refusals that no test reached; 1 if there is one."""
    parts = Parts(results)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with TemporaryDirectory(prefix="guards-") as name:
        project, folder = Path(name) / "project", Path(name) / "reached"
        folder.mkdir()
        for refusal in (Path(name), folder):  # some tests are another user for a moment
            refusal.chmod(0o777)
        refusals = copy_marked_project(project, folder)
        for files in split_into_parts(parts.to_run(hash_test_files(ROOT, names))):
            try:
                part = run_part(files, project, folder, refusals, n)
            except BaseException:  # interrupted: what was reached counts, and these files run again
                parts.add(Part({}, list_reached(folder, refusals), [], 0.0))
                raise
            parts.add(part)
            summary = f"{len(files)} test files, {part.seconds:.0f} s, {len(part.reached)} refusals"
            print(summary + "".join(f"\n  {refusal}" for refusal in part.failed), file=sys.stderr, flush=True)
    left, wrong = find_unseen(refusals, parts.reached)
    n_reached = sum(refusal.key in parts.reached for refusal in refusals)
    print(f"{len(refusals)} refusals: {n_reached} reached, {len(UNSEEN)} with a reason, {len(left)} neither")
    for refusal in left:
        module, _, function = refusal.place.partition(":")
        print(f"{module}:{refusal.line} {function}: {refusal.text}")
    print("".join(f"{line}\n" for line in wrong), end="", file=sys.stderr)
    return int(bool(left or wrong))


def main() -> int:
    """Parse, look."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", help="test files; default: all")
    parser.add_argument("--at-once", type=int, default=2, help="processes of tests; default: 2")
    parser.add_argument("--results", type=Path, default=RESULTS, help=f"default: {RESULTS.name}")
    options = parser.parse_args()
    return run_and_report(options.results, options.at_once, options.files)


if __name__ == "__main__":
    sys.exit(main())

"""How large the package is, and how many of its modules one has to read to follow a story.

Prints a line for each room: files, lines, and of these code, docstrings and imports; blank lines and comments are the
rest. A room is a folder of the package; its modules at the top are one by themselves.

With --walk, three stories run on six rows: the means of `evaluate`, `mean-ndcg` and `compare-runs`. For each, modules
are counted in which a function was called, by the driver or by a worker, other than while a module was imported.

    scripts/check size
    scripts/check size --beside v0.3.0
    scripts/check size --walk --modules
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from scripts.checks import ROOT

NAME = "ndcg_spark"
KINDS = ("files", "lines", "code", "docstrings", "imports")
TOP = "(top)"
OF_HOOK = "NDCG_SPARK_WALK"
"""Variable of the environment: the file that processes of a walk add names of modules to."""
HOOK = """
import os
import sys
import threading

package, seen = os.sep + "ndcg_spark" + os.sep, set()


def in_import(frame):
    while frame is not None:
        if frame.f_code.co_name == "<module>" and package in frame.f_code.co_filename:
            return frame.f_globals["__name__"] != "__main__"
        frame = frame.f_back
    return False


def on_call(frame, event, argument):
    name = frame.f_code.co_filename
    if event != "call" or name in seen or package not in name or in_import(frame):
        return
    seen.add(name)
    with open(os.environ["NDCG_SPARK_WALK"], "a") as file:
        file.write(name + chr(10))


sys.setprofile(on_call)
threading.setprofile(on_call)
"""
EVALUATE = """
import sys
import ndcg_spark
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
table = spark.read.csv(sys.argv[1], header=True, inferSchema=True).where("ranker = 'a'")
ndcg_spark.evaluate(table, k=10).summary.collect()
"""
JOB = "import sys; from ndcg_spark.main import main; sys.exit(main(sys.argv[1:]))"
ROWS = "ranker,query_id,item_id,score,relevance\n" + "".join(
    f"{ranker},q,{item},{score},{relevance}\n"
    for ranker, scores in (("a", (0.9, 0.8, 0.7)), ("b", (0.7, 0.8, 0.9)))
    for item, score, relevance in zip((1, 2, 3), scores, (0, 1, 2), strict=True)
)
STORIES = {
    "evaluate(df, k=10).summary": (EVALUATE,),
    "mean-ndcg": (JOB, "mean-ndcg", "--run-col", "ranker", "--input"),
    "compare-runs": (JOB, "compare-runs", "--run-col", "ranker", "--baseline", "a", "--input"),
}


def count_lines(text: str) -> Counter[str]:
    """Count the lines of a module by kind."""
    docstrings, imports = set(), set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports |= set(range(node.lineno, node.end_lineno + 1))
        elif isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            docstrings |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines = text.splitlines()
    rest = (line.strip() for number, line in enumerate(lines, start=1) if number not in docstrings | imports)
    code = sum(1 for line in rest if line and not line.startswith("#"))
    return Counter(files=1, lines=len(lines), code=code, docstrings=len(docstrings), imports=len(imports))


def count_rooms(package: Path) -> dict[str, Counter[str]]:
    """Count lines by room, in alphabetical order."""
    sizes: dict[str, Counter[str]] = {}
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0] if path.parent != package else TOP
        sizes.setdefault(room, Counter()).update(count_lines(path.read_text(encoding="utf-8")))
    return sizes


def sum_counts(sizes: Iterable[Counter[str]]) -> Counter[str]:
    """Sum the counts of all rooms."""
    return sum(sizes, Counter())


def format_table(sizes: dict[str, Counter[str]]) -> str:
    """Format a line per room, and the totals."""
    lines = [f"{'room':16}" + "".join(f"{kind:>12}" for kind in KINDS)]
    for room, counts in (*sizes.items(), ("total", sum_counts(sizes.values()))):
        lines.append(f"{room:16}" + "".join(f"{counts[kind]:12,}" for kind in KINDS))
    return "\n".join(lines)


def package_at(commit: str, folder: Path) -> Path:
    """Write the package as it was at a commit into a folder."""
    packed = subprocess.run(["git", "archive", commit, NAME], cwd=ROOT, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME


def walk_story(arguments: tuple[str, ...], root: Path = ROOT) -> list[str]:
    """Run a story in its own process; return the modules of the package that it passes."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(HOOK)
        (folder / "rows.csv").write_text(ROWS)
        passed = folder / "passed"
        passed.touch()
        program, *words = arguments
        subprocess.run(
            [sys.executable, "-c", program, *words, str(folder / "rows.csv")],
            env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{root}", OF_HOOK: str(passed)},
            cwd=folder, capture_output=True, check=True,
        )  # fmt: skip
        return sorted({line.rpartition(f"{os.sep}{NAME}{os.sep}")[2] for line in passed.read_text().splitlines()})


def main() -> int:
    """Print what was asked for."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--beside", metavar="COMMIT", help="also print the totals at that commit")
    options.add_argument("--walk", action="store_true", help="run three stories, and count the modules they pass")
    options.add_argument("--modules", action="store_true", help="with --walk: name the modules, too")
    arguments = options.parse_args()
    sizes = count_rooms(ROOT / NAME)
    print(format_table(sizes))
    if arguments.beside:
        with tempfile.TemporaryDirectory() as name:
            before = sum_counts(count_rooms(package_at(arguments.beside, Path(name))).values())
        print(f"{arguments.beside[:15]:16}" + "".join(f"{before[kind]:12,}" for kind in KINDS))
    for story, modules in STORIES.items() if arguments.walk else ():
        passed = walk_story(modules)
        print(
            f"{story}: {len(passed)} modules" + "".join(f"\n    {module}" for module in passed if arguments.modules)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Change numbers, operators and calls of a part of the package, one at a time, and look whether tests notice: mutmut.

For what runs without Spark: a mutant takes a tenth of a second where its tests do. Each meets the tests that pass
its function, among those that need neither Spark nor another tool. What no test passes is `no tests`. The checkout
is not changed. Prints counts, and writes the mutants that live on into a file, with what they change.

    scripts/check guards changed metrics --tests tests/metrics
    scripts/check guards changed evaluation/tasks comparison/tasks --only '*scoring*'
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from scripts.checks import ROOT

SETTINGS = """[mutmut]
source_paths=
    {sources}
also_copy=
    {copied}
pytest_add_cli_args_test_selection=
    {tests}
    -m
    not spark and not slow and not peers
"""
COPIED = ("ndcg_spark", "tests", "scripts", "jobs", "docs", "README.md", "CHANGELOG.md")


def lines(texts: list[str] | tuple[str, ...]) -> str:
    return "\n    ".join(texts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["metrics"], help="folders and files below ndcg_spark/")
    parser.add_argument("--tests", nargs="+", default=["tests"], help="files and folders of tests")
    parser.add_argument("--only", nargs="*", default=[], help="patterns of names of mutants")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--survivors", type=Path, default=ROOT / ".mutants-alive.txt")
    options = parser.parse_args()
    if find_spec("mutmut") is None:
        print("mutmut is not installed: pip install 'mutmut>=3.8'", file=sys.stderr)
        return 2
    sources = [f"ndcg_spark/{folder_or_file}" for folder_or_file in options.parts]
    settings = SETTINGS.format(sources=lines(sources), copied=lines(COPIED), tests=lines(options.tests))
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(("git", "clone", "--quiet", str(ROOT), folder), check=True)
        Path(folder, "setup.cfg").write_text(settings)

        def mutmut(*arguments: str) -> str:
            call = [sys.executable, "-m", "mutmut", *arguments]
            return subprocess.run(call, cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout

        mutmut("run", "--max-children", str(options.processes), *options.only)
        mutmut("export-cicd-stats")
        counts = json.loads(Path(folder, "mutants", "mutmut-cicd-stats.json").read_text())
        alive = [line.split(":")[0].strip() for line in mutmut("results").splitlines() if line.endswith("survived")]
        options.survivors.write_text("\n".join(mutmut("show", name) for name in alive))
    print(", ".join(f"{name.replace('_', ' ')} {n}" for name, n in counts.items() if n))
    print(f"those that live on: {options.survivors}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

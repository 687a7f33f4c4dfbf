"""Random rankings, each strategy, form and route against the others and the oracle.

Of each seed means are asked, and metrics of queries; routes.py says which routes answer, questions.py what a seed
draws. Prints each difference with its seed; exits with 1 if there is one. With --results, answers are kept in a file,
and seeds that it has are not asked again.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.checks.cross_check.questions import draw_question
from scripts.checks.cross_check.routes import ask, summarize_results
from scripts.checks.kept import Lines
from scripts.checks.session import make_session

PARTS = ("means", "queries")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, help="one of both questions")
    parser.add_argument("--seeds", type=int, default=20, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--results", type=Path, help="file that keeps the answers, so that a run can be resumed")
    options = parser.parse_args()
    parts = [options.only] if options.only else PARTS
    lines = Lines(options.results) if options.results else None
    lines_by_seed = {(line["part"], line["seed"]): line for line in (lines.lines if lines else [])}
    questions = [(part, seed) for part in parts for seed in range(options.first, options.first + options.seeds)]
    spark = make_session()
    for part, seed in questions:
        if (part, seed) in lines_by_seed:
            continue
        with tempfile.TemporaryDirectory() as folder:
            question = draw_question(seed, Path(folder), per_query=part == "queries")
            line = {"part": part, "seed": seed, **vars(ask(spark, question))}
        lines_by_seed[part, seed] = line
        for key in line["differences"]:
            print(f"{part}, seed {seed}: {key}", flush=True)
        if lines is not None:
            lines.append(line)
    spark.stop()
    for part in parts:
        print(f"{part}: {summarize_results([lines_by_seed[key] for key in questions if key[0] == part])}")
    return int(any(lines_by_seed[key]["differences"] for key in questions))


if __name__ == "__main__":
    sys.exit(main())

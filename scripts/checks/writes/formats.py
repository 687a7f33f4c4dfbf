"""Try what writes promise on tables of every format, and print the table of formats and properties.

    scripts/check writes formats            # all legs
    scripts/check writes formats delta      # one of: spark, iceberg, delta

Each leg has an environment of its own. spark: parquet folder, parquet table and Hive table, on the Spark of .venv.
iceberg: Spark 3.5 with the Iceberg runtime that a package of PyPI carries. delta: the engine Sail behind a client of
Spark Connect, as no package carries Delta for Spark; `deltalake` alters a table where Sail cannot.

Exits 1 if a promise was not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from itertools import count
from pathlib import Path

from scripts.checks.writes.elsewhere import run_elsewhere
from scripts.checks.writes.places import Place, list_places, rows
from scripts.checks.writes.properties import PROPERTIES
from scripts.checks.writes.sessions import LEGS, start

Results = dict[str, dict[str, str]]


def try_all(places: list[Place], only: str = "") -> Results:
    """Try all properties on all places; what is not kept begins with NO."""
    results: Results = {}
    for place in places:
        for title, call in PROPERTIES.items():
            if only not in title:
                continue
            began = time.monotonic()
            try:
                place.clear()
                answer = call(place)
            except Exception as error:  # a row of the table, and exit code 1
                answer = f"NO: {type(error).__name__}: {str(error).splitlines()[0][:300]}"
                traceback.print_exc()
            results.setdefault(place.title, {})[title] = answer
            print(f"{place.title}: {title}: {answer} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return results


def format_table(results: Results) -> str:
    """Format results as a Markdown table of formats and properties."""
    lines = [f"| property | {' | '.join(results)} |", f"| --- |{' --- |' * len(results)}"]
    for title in PROPERTIES:
        cells = [answers.get(title, "-") for answers in results.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_for_ever(leg: str, title: str, base: str, root: str, first: str) -> None:
    """Write one version after the other until somebody ends this process; print each when it is done."""
    spark, _ = start(leg, Path(base), hive=False)
    place = next(
        candidate for candidate in list_places(leg, spark, Path(base), hive=False) if candidate.title == title
    )
    if leg == "delta":  # the catalog of Sail is in the memory of a server
        spark.sql(f"CREATE TABLE {place.reference} USING delta LOCATION '{root}'")
    for version in count(int(first)):
        place.write(rows(spark, version))
        print(version, flush=True)


def run_here(leg: str, only: str) -> Results:
    """Try a leg on the Spark of this Python."""
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-formats-") as folder:
        spark, server = start(leg, Path(folder))
        try:
            return try_all(list_places(leg, spark, Path(folder)), only)
        finally:
            spark.stop()
            if server is not None:
                server.stop()


def main(argv: list[str] | None = None) -> int:
    """Run legs, and print what they have found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("legs", metavar="LEG", nargs="*", help=f"of {', '.join(LEGS)}; default: all")
    parser.add_argument("--only", default="", help="part of the titles of the properties to try")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--writer", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.writer:
        write_for_ever(*options.writer)
    unknown = [leg for leg in options.legs if leg not in LEGS]
    if unknown:
        parser.error(f"there is no leg {unknown[0]}; there are {', '.join(LEGS)}")
    results: Results = {}
    failed = False
    for leg in options.legs or LEGS:
        if leg == "spark" or options.here:
            results |= run_here(leg, options.only)
            continue
        try:
            results |= run_elsewhere(leg, "scripts.checks.writes.formats", "--only", options.only, leg)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            failed = True
    print(json.dumps(results) if options.here else format_table(results))
    failed |= any(answer.startswith("NO") for answers in results.values() for answer in answers.values())
    return int(failed and not options.here)


if __name__ == "__main__":
    sys.exit(main())

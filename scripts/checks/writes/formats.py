"""Try what writes promise on tables of every format, and print the table of formats and properties.

    scripts/formats                     # all legs, each in its own environment
    python scripts/formats.py spark     # parquet folder, parquet table and Hive table, on the Spark of this Python

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

from scripts.checks.writes.places import LEGS, Place, places_of, rows, start
from scripts.checks.writes.properties import PROPERTIES

Results = dict[str, dict[str, str]]


def try_all(places: list[Place], only: str = "") -> Results:
    """Try all properties on all places; what is not kept begins with NO."""
    found: Results = {}
    for place in places:
        for title, call in PROPERTIES.items():
            if only not in title:
                continue
            began = time.monotonic()
            try:
                place.clear()
                told = call(place)
            except Exception as error:  # a row of the table, and exit code 1
                told = f"NO: {type(error).__name__}: {str(error).splitlines()[0][:300]}"
                traceback.print_exc()
            found.setdefault(place.title, {})[title] = told
            print(f"{place.title}: {title}: {told} ({time.monotonic() - began:.1f} s)", file=sys.stderr, flush=True)
    return found


def table_of(found: Results) -> str:
    """Formats and properties as a table of Markdown."""
    lines = [f"| property | {' | '.join(found)} |", f"| --- |{' --- |' * len(found)}"]
    for title in PROPERTIES:
        cells = [its.get(title, "-") for its in found.values()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return "\n".join(lines)


def write_for_ever(leg: str, title: str, base: str, root: str, first: str) -> None:
    """Write one version after the other until somebody ends this process; print each when it is done."""
    spark, _ = start(leg, Path(base), hive=False)
    place = next(one for one in places_of(leg, spark, Path(base), hive=False) if one.title == title)
    if leg == "delta":  # the catalog of Sail is in the memory of a server
        spark.sql(f"CREATE TABLE {place.reference} USING delta LOCATION '{root}'")
    for version in count(int(first)):
        place.write(rows(spark, version))
        print(version, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Run a leg, or print what legs have found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("leg", choices=(*LEGS, "print"), nargs="?")
    parser.add_argument("files", nargs="*", help="what legs have found, to be printed together")
    parser.add_argument("--json", help="file for what was found")
    parser.add_argument("--only", default="", help="part of the titles of the properties to try")
    parser.add_argument("--writer", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.writer:
        write_for_ever(*options.writer)
    found: Results = {}
    if options.leg == "print":
        for file in options.files:
            found |= json.loads(Path(file).read_text())
    else:
        with tempfile.TemporaryDirectory(prefix="ndcg-spark-formats-") as folder:
            spark, server = start(options.leg, Path(folder))
            try:
                found = try_all(places_of(options.leg, spark, Path(folder)), options.only)
            finally:
                spark.stop()
                if server is not None:
                    server.stop()
    if options.json:
        Path(options.json).write_text(json.dumps(found))
    if options.leg == "print" or not options.json:
        print(table_of(found))
    return int(any(told.startswith("NO") for its in found.values() for told in its.values()))


if __name__ == "__main__":
    sys.exit(main())

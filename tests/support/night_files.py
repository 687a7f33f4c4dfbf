"""Files of nights, nights that are run by them, and how their steps ended."""

from __future__ import annotations

from datetime import date
from itertools import takewhile
from pathlib import Path

from support.main_job import Ended, command, stored_rows

NIGHT = date(2026, 1, 31)
FILE = """
dataset = "shop"
run-log = "./log"

[[step]]
command = "mean-ndcg"
input = "rankings/{run_date}.parquet"
run-col = "ranker"
k = [1, 3]
output = "./metrics"
per-query-output = "./queries"

[[step]]
command = "compare-runs"
baseline = "bm25"
replicates = 0
flips = 0
output = "./comparisons"
"""
OTHER = """
[[step]]
command = "mean-ndcg"
name = "other"
dataset = "b"
input = "rankings/{run_date}.parquet"
run-col = "ranker"
output = "./metrics"
"""


def write_file(text: str) -> None:
    Path("night.toml").write_text(text, encoding="utf-8")


def nightly(*more: object) -> Ended:
    """Run the night of the working folder."""
    days = () if "--backfill" in more else ("--run-date", NIGHT)
    return command("nightly", "--config", "night.toml", *days, *more)


def statuses(ended: Ended) -> dict[str, str]:
    """Status of each step, from the last lines."""
    out = "\n" + ended.out
    lines = takewhile(lambda line: line.startswith("  "), out[out.rindex("\nsteps of 2026") :].splitlines()[2:])
    return {
        name.strip(): rest.split(" after")[0].split(":")[0].strip()
        for name, _, rest in (one.partition(": ") for one in lines)
    }


def logged(folder: Path) -> list[tuple[str, str, int]]:
    return sorted((row["command"], row["status"], row["exit_code"]) for row in stored_rows(folder / "log"))

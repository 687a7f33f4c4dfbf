"""Thirty nights of `ndcg-spark nightly` on real rankings: one is missing, one is bad, one is run again.

Every night 180 of the 1,797 images of handwritten digits that scikit-learn ships are queries, drawn anew, and two
rankers order all other images: `pixels` and `thumbnail`, as in the demo of a report. What happens:

    2026-01-14  the job of the rankings did not run: the night is refused
    2026-01-20  the last ten queries are not there yet
    2026-01-25  `pixels` finds nothing for the digit 7, until 2026-01-29: its items were lost
    2026-01-30  it is mended: the digit has recovered
    2026-01-31  a usual night; then the ten queries of 2026-01-20 arrive, and that night is run again

Items that were lost are rows without a score: judged, and not retrieved. Grades come from the labels, as in data.py.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from scripts.demos.data import Digits, rankings_table, score_by_both
from scripts.demos.runner import FOLDER, explain, run_in

FIRST, LAST = date(2026, 1, 2), date(2026, 1, 31)
MISSING, RUN_AGAIN, BAD, MENDED = (date(2026, 1, day) for day in (14, 20, 25, 30))
DAY = timedelta(days=1)
LOST_DIGIT = 7
N_QUERIES, N_LATE = 180, 10
# Lines that are not shown: logs and means of segments; of a backfill, all but news.
LOGS = r"^WARNING: Using incubator|^run [0-9a-f-]{36}: |^[a-z ]+( \S+)?: [\d.]+ s$|^run=\S+ (digit|shape)="
BUT_NEWS = rf"{LOGS}|^(?!FLAG|recovered|older|  to renew|.* (refused|failed|older)|ndcg-spark )"
NIGHT_FILE = """\
dataset = "digits"
run-log = "./run_log"

[[step]]
command = "mean-ndcg"
input = "rankings/{run_date}"
run-col = "run"
segment-cols = ["digit", "shape"]
k = [1, 3, 10]
on-invalid = "reject"
null-score = "unretrieved"
gate = ["ndcg@10>=0.8"]
output = "./metrics"
per-query-output = "./queries"

[[step]]
command = "compare-runs"
baseline = "thumbnail"
output = "./comparisons"

[[step]]
command = "flag-changes"
output = "./flags"

[[step]]
command = "roll-up"
periods = ["week"]
output = "./weeks"

[[step]]
command = "report"
output = "page-{run_date}.html"
index = "index.html"
"""


def list_nights() -> Iterator[date]:
    """Yield the nights whose rankings are there."""
    for ahead in range((LAST - FIRST).days + 1):
        night = FIRST + timedelta(days=ahead)
        if night != MISSING:
            yield night


def rank_night(night: date, digits: Digits, queries: slice) -> pa.Table:
    """Rank images that are not queries of the night for a part of those that are, by both rankers."""
    number = np.arange(len(digits.digit))
    query = np.random.default_rng([2026, night.toordinal()]).choice(number, N_QUERIES, replace=False)
    item = np.setdiff1d(number, query)
    query = query[queries]
    scores = score_by_both(digits.pixels[query], digits.pixels[item])
    if BAD <= night < MENDED:
        scores["pixels"][digits.digit[query] == LOST_DIGIT] = np.nan
    rankings = rankings_table(digits, query, item, scores)
    # Rows of lost items have no score, which is null.
    score = pa.array(rankings["score"].to_numpy(), from_pandas=True)
    return rankings.set_column(rankings.column_names.index("score"), "score", score)


def write_part(folder: Path, night: date, rankings: pa.Table, number: int) -> Path:
    """Write rankings as a file of those of a night."""
    path = folder / "rankings" / str(night) / f"part-{number}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rankings, path)
    return path


def write_nights(folder: Path) -> None:
    """Make a new folder with the rankings of all nights and the file of their steps."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    digits = Digits()
    for night in list_nights():
        queries = slice(0, N_QUERIES - N_LATE if night == RUN_AGAIN else N_QUERIES)
        write_part(folder, night, rank_night(night, digits, queries), 0)
    (folder / "night.toml").write_text(NIGHT_FILE, encoding="utf-8")


def print_run_log(folder: Path, nights: Sequence[date]) -> None:
    """Print the status of each command on some nights, in the order of their starts."""
    rows = ds.dataset(folder / "run_log", format="parquet", partitioning="hive").to_table().to_pylist()
    for row in sorted(rows, key=lambda row: (str(row["run_date"]), row["started_at"])):
        if str(row["run_date"]) in map(str, nights):
            message = f"  {row['message']}" if row["message"] else ""
            print(f"{row['run_date']}  {row['command']:12}  {row['status']:12}  {row['exit_code']}{message}")


def find_renewal(output: str) -> list[str]:
    """Find the command that renews what has become old, in what a night printed."""
    (line,) = [line for line in output.splitlines() if "to renew them: ndcg-spark " in line]
    return shlex.split(line.partition("ndcg-spark ")[2])


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Run thirty nights: one is missing, one bad, one run again.")
    parser.add_argument("--output", type=Path, help="folder for all of it  [default: .demo/night]")
    folder: Path = parser.parse_args(argv).output or FOLDER / "night"
    write_nights(folder)
    print(
        f"Wrote rankings of {FIRST} to {LAST} to {folder}/rankings.\n\n$ cd {folder}\n$ cat night.toml\n{NIGHT_FILE}"
    )
    explain(f"Nights before {BAD}: rankings of {MISSING} are missing. No step needs Spark.")
    nightly, fill = ("nightly", "--config", "night.toml"), ("--only", "mean-ndcg", "--only", "compare-runs")
    run_in(folder, *nightly, "--backfill", f"{FIRST}..{BAD - DAY}", *fill, hidden=BUT_NEWS, codes=(2,))
    explain(f"{BAD}: `pixels` finds nothing for the digit {LOST_DIGIT}. The gate holds; the history shows it.")
    run_in(folder, *nightly, "--run-date", BAD, hidden=LOGS)
    explain("Nobody has noticed for four nights.")
    run_in(folder, *nightly, "--backfill", f"{BAD + DAY}..{MENDED - DAY}", *fill, hidden=BUT_NEWS)
    explain(f"{MENDED}: the items are there again.")
    run_in(folder, *nightly, "--run-date", MENDED, hidden=LOGS)
    explain(f"{LAST}: a usual night.")
    run_in(folder, *nightly, "--run-date", LAST, hidden=LOGS)
    late = write_part(folder, RUN_AGAIN, rank_night(RUN_AGAIN, Digits(), slice(N_QUERIES - N_LATE, None)), 1)
    explain(f"The last {N_LATE} queries of {RUN_AGAIN} have arrived in {late}. That night is run again.")
    again = run_in(folder, *nightly, "--run-date", RUN_AGAIN, hidden=LOGS)
    explain("What was made of that night is renewed by the command of the last line, and nothing else.")
    run_in(folder, *find_renewal(again), hidden=LOGS)
    explain(f"What the run log has of {MISSING}, {BAD} and {MENDED}:")
    print_run_log(folder, (MISSING, BAD, MENDED))
    explain(f"Open {folder}/page-{BAD}.html, the bad night, {folder}/page-{LAST}.html, and {folder}/index.html.")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

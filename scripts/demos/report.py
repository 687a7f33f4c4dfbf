"""Metrics of ten nights, their comparison, weeks and flags, and a report of all of it, from real images.

Every night a tenth of the 1,797 images of handwritten digits that scikit-learn ships are queries, and two rankers
order all other images: `pixels`, by the cosine similarity of the 64 pixels, and `thumbnail`, by that of 16 pixels,
each the mean of four. Something is wrong with the last night; `--night` says what:

    segment   the lower half of the straight digits of `pixels` is missing, as if a scanner had broken
    empty     no image of a 7 was asked for
    baseline  `thumbnail` did not run
    rejected  half of the queries have no scores
    missing   the job did not run at all

Grades come from the labels, as in data.py. The commands that are printed are those that a person would type;
here they share one Spark session. Where the baseline or the night is missing, some are refused, as on a real night.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scripts.demos.data import SHAPE, Digits, FloatArray, cosine_similarity, rankings_table, score_by_both
from scripts.demos.runner import run_commands

N_NIGHTS = 10
LAST_NIGHT = date(2026, 1, 31)
NIGHTS = ("segment", "empty", "baseline", "rejected", "missing")
"""What may be wrong with the last night."""


def without_lower_half(pixels: FloatArray) -> FloatArray:
    """Images whose last four lines are empty."""
    lines = pixels.reshape(-1, 8, 8).copy()
    lines[:, 4:] = 0
    return lines.reshape(len(pixels), 64)


def rank_night(night: int, wrong: str = "") -> pa.Table:
    """Both rankers on one night: query_id, item_id, run, score, relevance, digit, shape; `wrong` is one of NIGHTS."""
    digits = Digits(N_NIGHTS, night)
    query, item, pixels = digits.query, digits.item, digits.pixels
    if wrong == "empty":
        query = query[digits.digit[query] != 7]
    scores = score_by_both(pixels[query], pixels[item])
    if wrong == "segment":
        is_broken = SHAPE[digits.digit[query]] == "straight"
        queries = np.where(is_broken[:, None], without_lower_half(pixels[query]), pixels[query])
        scores["pixels"] = cosine_similarity(queries, pixels[item])
    if wrong == "rejected":
        for run_scores in scores.values():
            run_scores[::2] = np.nan
    if wrong == "baseline":
        del scores["thumbnail"]
    return rankings_table(digits, query, item, scores)


def date_of_night(night: int) -> date:
    """Return the date of a night."""
    return LAST_NIGHT - timedelta(days=N_NIGHTS - 1 - night)


def commands(folder: Path, wrong: str) -> list[list[str]]:
    """Return the commands: the nightly job on every night, then the jobs that read its tables."""
    metrics, per_query, summary = f"{folder}/metrics", f"{folder}/per_query", f"{folder}/summary.json"
    typed = []
    for night in range(N_NIGHTS - (wrong == "missing")):
        typed.append(
            ["mean-ndcg", "--input", f"{folder}/rankings/{date_of_night(night)}", "--run-col", "run",
             "--segment-cols",
             "digit,shape,digit+shape", "--k", "1,3,5,10,100", "--on-invalid", "reject", "--run-date",
             f"{date_of_night(night)}", "--dataset", "digits", "--output", metrics, "--per-query-output", per_query,
             "--json", summary]
        )  # fmt: skip
    compared, weeks, flags = f"{folder}/comparison", f"{folder}/weeks", f"{folder}/flags"
    of_table, last = ["--input", metrics, "--metrics", "ndcg@10"], str(LAST_NIGHT)
    typed.append(
        ["compare-runs", "--per-query", per_query, "--baseline", "thumbnail", "--metrics", "ndcg@10",
         "--segment-cols", "shape", "--run-date", last, "--dataset", "digits", "--output", compared]
    )  # fmt: skip
    typed.append(["roll-up", *of_table, "--periods", "week,month", "--output", weeks])
    typed.append(
        ["flag-changes", *of_table, "--from", last, "--to", last, "--fewest-any-day", "8", "--output", flags]
    )
    tables = ["--metrics", metrics, "--per-query", per_query]
    page = ["--gate", "ndcg@10>=0.88", "--output", f"{folder}/report.html"]
    if wrong == "missing":
        # Named, the night is refused; without a name the page is of the night before, and says so first.
        typed.append(["report", *tables, "--run-date", last, *page])
        typed.append(["report", *tables, *page])
        return typed
    tables += ["--flags", flags, "--summary", summary]
    if wrong != "baseline":
        diagnosis = f"{folder}/diagnosis.json"
        typed.append(
            ["diagnose", "runs", "--input", f"{folder}/rankings/{last}", "--run-col", "run", "--k", "10",
             "--baseline", "thumbnail", "--run", "pixels", "--top", "5", "--json", diagnosis,
             "--on-invalid", "reject"]
        )  # fmt: skip
        tables += ["--comparison", compared, "--diagnosis", diagnosis]
    typed.append(["report", *tables, "--baseline", "thumbnail", "--run-date", last, *page])
    return typed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Make ten nights of metrics of real data, and their report.")
    parser.add_argument("--output", type=Path, help="folder for tables and report  [default: .demo/report-NIGHT]")
    parser.add_argument("--night", choices=NIGHTS, default=NIGHTS[0], help="what is wrong with the last night")
    options = parser.parse_args(argv)
    folder: Path = options.output or Path(f".demo/report-{options.night}")
    for night in range(N_NIGHTS):
        wrong = options.night if night == N_NIGHTS - 1 else ""
        if wrong != "missing":
            place = folder / "rankings" / str(date_of_night(night))
            place.mkdir(parents=True, exist_ok=True)
            pq.write_table(rank_night(night, wrong), place / "part-00000.parquet")
    print(f"Wrote rankings to {folder}/rankings.", flush=True)
    status = run_commands(
        commands(folder, options.night),
        refusals=options.night in ("baseline", "missing"),
        most={"diagnose": 0, "report": 4},
    )
    print(f"\nOther bad nights: scripts/demo report --night {', '.join(NIGHTS)}.\nOpen {folder}/report.html")
    return status


if __name__ == "__main__":
    raise SystemExit(main())

"""Reports of random tables, built by Spark and without (`support/report_engines.py`)."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timedelta, timezone

import numpy as np
import pytest
from support.reports import METRICS_DDL, build_metric_row

from ndcg_spark import report
from ndcg_spark.errors import NdcgSparkError
from ndcg_spark.history.tasks import judging
from ndcg_spark.reports import ReportLimits

FIRST = date(2026, 1, 4)
RUNS = ("a", "b", "c")
SEGMENTS = [("country", "DE"), ("country", None), ("country", "ü"), ("country+device", '["DE", "phone"]'),
            ("country+device", "another text")]  # fmt: skip
STATUSES = (judging.LOW, judging.HIGH, judging.USUAL, judging.RECOVERED, judging.ONGOING, judging.MISSING)
FLAGS_DDL = (
    "night date, run string, segment_by string, segment string, metric string, k int, status string, z double, "
    "limit double, value double, median double, std_error double, spread double, weekday string, dataset string, "
    "source_computed_at timestamp"
)
COMPARISONS_DDL = (
    "run string, baseline string, segment_by string, segment string, metric string, k int, difference double, "
    "n_queries bigint, run_date date, dataset string, source_computed_at timestamp, period string, "
    "period_start date, period_end date"
)
QUERIES_DDL = (
    "run string, country string, query_id bigint, k int, ndcg double, tied_share double, n_items bigint, "
    "n_relevant bigint, weight double, rules string, run_date date, dataset string"
)


def compare_night(seed, night, difference, computed):
    """Make comparisons of a night or of the period that it ends or begins; with seed 1 of earlier ones."""
    kind = (None, "week", "rolling_7", None)[seed % 4]
    start = night - timedelta(days=7 if seed == 1 else 0 if kind == "week" else 6)
    if kind == "rolling_7" or (kind == "week" and start.weekday() == 0):
        yield *difference, None if seed == 5 else night, "shop", computed, kind, start, start + timedelta(days=6)
    if kind is None or seed == 1:
        yield *difference, start if seed == 1 else night, "shop", computed, None, None, None


@pytest.mark.parametrize("seed", range(8))
def test_random_tables(spark, also_without_spark, seed):
    """Metrics with and without a direction, missing nights, runs and segments, nulls, ties, periods, weights."""
    random = np.random.default_rng(seed)
    metric = ("ndcg", "tied_share")[seed % 2]
    nights = [FIRST + timedelta(days=at) for at in range(9) if random.random() < 0.8]

    def is_rare(chance=0.2):
        return random.random() < chance

    def null_or(value):
        return None if is_rare() else value

    tables = {"metrics": [], "flags": [], "comparison": [], "per_query": []}
    for night in nights:
        for run in RUNS:
            if is_rare() or (seed == 7 and night == nights[-1] and run != "b"):
                continue
            for by, segment in [("", ""), *SEGMENTS]:
                if by and is_rare(0.3):
                    continue
                value, n = round(float(random.random()), 1), int(random.integers(1, 400))
                more = {"metric": metric, "segment_by": by, "segment": segment, "n_queries": null_or(n) if by else n}
                computed = datetime(2026, 2, 1 + int(random.integers(3)), 3, tzinfo=timezone.utc)
                hashes = {
                    "config_hash": str(random.integers(2)),
                    "rules": null_or("evaluator=x"),
                    "note": null_or("n"),
                }
                more |= {"flagged": null_or(is_rare()), "computed_at": computed} | hashes
                known = {name: more[name] for name in more if name not in ("flagged", "note", "rules")}
                tables["metrics"].append(build_metric_row(run, night, null_or(value), null_or(0.01), **known))
                z = null_or(float(round(random.normal() * 2)))
                status, weekday = str(random.choice(STATUSES)), str(random.choice([judging.BEFORE, "any"]))
                if seed == 0 and night == nights[-1]:
                    status, z = judging.LOW, None if segment == "DE" else 0.0
                flag = (
                    night,
                    null_or(run) if run == "a" else run,
                    by,
                    segment,
                    metric,
                    10,
                    status,
                    z,
                    4.5,
                    value,
                    null_or(0.5),
                    0.1,
                    0.2,
                )
                tables["flags"].append((*flag, weekday, null_or("shop"), null_or(computed)))
                if run != "a" and (seed != 1 or night != nights[-1]):
                    difference = (run, "a", by, segment, metric, 10, round(float(random.normal()), 1), null_or(n))
                    tables["comparison"] += compare_night(seed, night, difference, null_or(computed))
            for at in range(40):
                value, n_relevant = null_or(round(float(random.random()), 1)), null_or(int(random.integers(3)))
                query = (
                    run,
                    str(random.choice(["DE", "US"])),
                    at,
                    10,
                    value,
                    value,
                    at,
                    n_relevant,
                    null_or(float(random.integers(3))) if seed % 4 > 1 else 1.0,
                    "evaluator=x",
                )
                tables["per_query"].append((*query, night, "shop"))
    columns = {"metrics": METRICS_DDL, "flags": FLAGS_DDL, "comparison": COMPARISONS_DDL, "per_query": QUERIES_DDL}
    frames = {name: spark.createDataFrame(rows, columns[name]) for name, rows in tables.items()}
    texts = [("DE" if at else None, at, null_or(f"text {at}")) for at in range(0, 40, 2)]
    frames["query_texts"] = spark.createDataFrame(texts, "country string, query_id bigint, query_text string")
    limits = ReportLimits(segments=3, nights=4, queries=4) if seed > 3 else None
    baseline, runs = "a" if seed % 3 == 0 else None, ("b", "c") if seed in (1, 5, 7) else ()
    with suppress(NdcgSparkError):  # of a run that lacks the night: both engines must refuse alike
        report(frames.pop("metrics"), **frames, limits=limits, baseline=baseline, runs=runs, night=nights[-1])
    assert also_without_spark

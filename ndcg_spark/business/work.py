"""The work of `business-link`: join, correlate, report. The method `run` runs actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from ndcg_spark._version import __version__
from ndcg_spark.business.frames import find_unmatched_clicks, link_metric
from ndcg_spark.business.settings import LinkJobSettings, LinkSettings
from ndcg_spark.business.tasks import DOWN_DOWN, FLAT_UP, LINK_COLUMNS, LINK_SCHEMA, NO_DIRECTION, UP_DOWN
from ndcg_spark.core import labels
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import RULES, format_rules_notes
from ndcg_spark.history.flagging import PROVENANCE, add_provenance_columns
from ndcg_spark.history.tasks.judging import format_series
from ndcg_spark.history.work import find_nights, select_rows
from ndcg_spark.jobs.outputs import SOURCE_TIME, add_provenance
from ndcg_spark.jobs.printing import MAX_SEGMENTS, print_rows
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.tables import Rows, Slices

MAX_UNMATCHED_SEGMENTS = 10
RATES = {"ctr": "click-through", "cvr": "conversion"}
_EXCLUDED_TEXTS = {
    "n_no_clicks": "without clicks",
    "n_no_metric": "without the metric",
    "n_no_value": "without a query",
    "n_few_impressions": "of few impressions",
    "n_zero": "of a rate over 0",
}
_ALARMS = {
    UP_DOWN: "up, click-through down",
    DOWN_DOWN: "down, which is better, and click-through down",
    FLAT_UP: "flat, conversion up",
}


class BusinessLink(Work[LinkJobSettings]):
    """Compares a metric with clicks."""

    def __init__(self, job: Job[LinkJobSettings]) -> None:
        super().__init__(job)
        self.table, self.clicks = self.tables["input"], self.tables["clicks"]
        self.rows = select_rows(self.table, self.settings.rows)
        link_metric(self.rows, self.clicks.frame, self.settings.link)

    def schemas(self) -> Mapping[str, pa.Schema]:
        return {"output": add_provenance_columns(LINK_SCHEMA)}

    def run(self) -> Outcome:
        """Find the nights, link them, and find segments that only the clicks have: three actions."""
        with self.job.step("looking for nights"):
            nights = find_nights(self.table, self.rows, self.settings.rows, self.settings.link.as_of)
        as_of = self.settings.link.as_of or nights.last
        self.job.record(night=as_of, dataset=nights.dataset)
        settings = replace(self.settings.link, as_of=as_of)
        with self.job.step("joining nights"):
            rows = link_metric(self.rows, self.clicks.frame, settings).collect()
            links = [row.asDict(recursive=True) for row in rows]
            if not any(row["n_nights"] for row in links):
                raise InputRefusedError(
                    f"no night of a segment is in both tables and counts: {self.table.name} has nights from "
                    f"{nights.first} to {nights.last}; compare run_date, segment_by and segment of "
                    f"{self.clicks.name}, and --min-impressions."
                )
            links.sort(key=lambda row: (*labels.row_order(row), row["rate"]))
            unmatched = find_unmatched_clicks(self.rows, self.clicks.frame, settings)
            facts = {
                "links": links,
                "alarms": [row for row in links if row["alarm"]],
                "clicks_without_metric": [row.asDict() for row in unmatched.limit(MAX_UNMATCHED_SEGMENTS).collect()],
                "as_of": str(as_of),
                "dataset": nights.dataset,
                "limits": settings.text,
                "input": f"{self.table.name} with {self.clicks.name}",
                "package_version": __version__,
                SOURCE_TIME: nights.computed_at,
            }
        slices = Slices.for_night(as_of, nights.dataset, sorted({row["run"] for row in links}))
        return Outcome(
            facts=facts,
            tables={"output": Rows(frame=self._build_table(facts), slices=slices)},
            lines=_iterate_lines(facts, settings),
            met=not (facts["alarms"] and self.settings.fail_on_alarm),
        )

    def _build_table(self, facts: Mapping[str, Any]) -> DataFrame:
        schema = ", ".join(f"{column} {kind}" for column, kind in LINK_COLUMNS.items())
        values = [tuple(row[column] for column in LINK_COLUMNS) for row in facts["links"]]
        return add_provenance(self.job.spark.createDataFrame(values, schema), facts, PROVENANCE).coalesce(1)


def _iterate_lines(facts: Mapping[str, Any], settings: LinkSettings) -> Iterator[Line]:
    """Yield correlations (a table on a terminal, else one line each), excluded nights, and alarms."""
    printed = [row for row in facts["links"] if row["n_nights"]][: 2 * MAX_SEGMENTS]
    yield lambda: print_rows("metric and rate of the same night", [_format_cells(row) for row in printed])
    if len(facts["links"]) > len(printed):
        more = len(facts["links"]) - len(printed)
        yield f"... and {more} more, without a night or beyond these; --output and --json have all."
    if facts["clicks_without_metric"]:
        yield f"clicks without a metric: {'; '.join(map(labels.segment, facts['clicks_without_metric']))}"
    n_short = sum(row["note"] == "not_enough_nights" for row in facts["links"])
    if n_short:
        n_series = len(facts["links"])
        yield f"alarms: {n_short} of {n_series} series have fewer than {2 * settings.window} nights to compare"
    undirected = sorted({row["metric"] for row in facts["links"] if row["note"] == NO_DIRECTION})
    if undirected:
        yield f"no alarms for {', '.join(undirected)} and click-through: neither larger nor smaller is better"
    yield from format_rules_notes(row[RULES] for row in facts["links"])
    yield from (f"ALARM {_format_alarm(row, settings)}" for row in facts["alarms"])
    if not facts["alarms"]:
        yield "no alarm"
    yield (
        f"rule: mean of the last {settings.window} nights against the {settings.window} before; up or down: by "
        f"{settings.min_change:.3g} or more and {settings.noise_limit:g} standard errors; flat: change and "
        f"{settings.noise_limit:g} standard errors together at most {settings.max_flat:g}"
    )


def _format_cells(row: dict[str, Any]) -> dict[str, str]:
    excluded = ", ".join(f"{row[count]} {reason}" for count, reason in _EXCLUDED_TEXTS.items() if row[count])
    return {
        "series": format_series(row),
        "rate": RATES[row["rate"]],
        "nights": f"{row['n_nights']}" + (f" (left out: {excluded})" if excluded else ""),
        "Pearson": labels.estimate(row, "pearson", "pearson_", "+.3f"),
        "Spearman": labels.estimate(row, "spearman", "spearman_", "+.3f"),
        "nightly changes": labels.estimate(row, "change_pearson", "change_pearson_", "+.3f"),
        "strongest lag": _format_strongest(row["lags"]),
    }


def _format_strongest(lags: list[dict[str, Any]]) -> str:
    """Format the correlation with the largest absolute value among all lags, with its lag."""
    known = [lag for lag in lags if lag["low"] is not None]
    if not known:
        return "-"
    strongest = max(known, key=lambda lag: (abs(lag["pearson"]), -abs(lag["lag"])))
    return f"{strongest['pearson']:+.3f} at {strongest['lag']:+d}"


def _format_alarm(row: dict[str, Any], settings: LinkSettings) -> str:
    def change(name: str) -> str:
        noise = settings.noise_limit * row[f"{name}_change_error"]
        return f"{100 * row[f'{name}_change']:+.2f} % ± {100 * noise:.2f} %"

    windows = f"{row['window_from']}..{row['window_to']} against {row['before_from']}..{row['before_to']}"
    moved = f"{row['metric']} {change('metric')}, {RATES[row['rate']]} {change('rate')}"
    return f"{row['metric']} {_ALARMS[row['alarm']]}: {format_series(row)}; {windows}: {moved}"

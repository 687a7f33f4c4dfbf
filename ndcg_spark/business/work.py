"""What `business-link` does with its tables: join, correlate, answer. What is called `run` runs actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from ndcg_spark._version import __version__
from ndcg_spark.business.frames import linked_rates, unmatched_clicks
from ndcg_spark.business.settings import LinkJobSettings, LinkSettings
from ndcg_spark.business.tasks import DOWN_DOWN, FLAT_UP, LINK_COLUMNS, NO_DIRECTION, UP_DOWN
from ndcg_spark.core import labels
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.evaluation.rules import RULES, format_rules_notes
from ndcg_spark.history.tasks import series_name
from ndcg_spark.history.work import PROVENANCE, found_nights, result_schema, taken_rows
from ndcg_spark.jobs.outputs import SOURCE_TIME, add_provenance
from ndcg_spark.jobs.printing import MAX_SEGMENTS, print_rows
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.tables import Rows, Slices

MOST_SEGMENTS_NAMED = 10
RATES = {"ctr": "click-through", "cvr": "conversion"}
_LEFT_OUT = {
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
    """Holding a metric against clicks."""

    def __init__(self, job: Job[LinkJobSettings]) -> None:
        super().__init__(job)
        self.table, self.clicks = self.tables["input"], self.tables["clicks"]
        self.rows = taken_rows(self.table, self.settings.rows)
        linked_rates(self.rows, self.clicks.frame, self.settings.link)

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": result_schema(self.job.spark, LINK_COLUMNS)}

    def run(self) -> Outcome:
        """Find the nights, link them, and look for segments that only the clicks have: three actions."""
        with self.job.step("looking for nights"):
            nights = found_nights(self.table, self.rows, self.settings.rows, self.settings.link.as_of)
        as_of = self.settings.link.as_of or nights.last
        self.job.record(night=as_of, dataset=nights.dataset)
        settings = replace(self.settings.link, as_of=as_of)
        with self.job.step("joining nights"):
            found = linked_rates(self.rows, self.clicks.frame, settings).collect()
            links = [row.asDict(recursive=True) for row in found]
            if not any(row["n_nights"] for row in links):
                raise InputRefusedError(
                    f"no night of a segment is in both tables and counts: {self.table.name} has nights from "
                    f"{nights.first} to {nights.last}; compare run_date, segment_by and segment of "
                    f"{self.clicks.name}, and --min-impressions."
                )
            links.sort(key=lambda row: (*labels.row_order(row), row["rate"]))
            unmatched = unmatched_clicks(self.rows, self.clicks.frame, settings)
            facts = {
                "links": links,
                "alarms": [row for row in links if row["alarm"]],
                "clicks_without_metric": [row.asDict() for row in unmatched.limit(MOST_SEGMENTS_NAMED).collect()],
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
            tables={"output": Rows(frame=self._stored(facts), slices=slices)},
            lines=_lines(facts, settings),
            met=not (facts["alarms"] and self.settings.fail_on_alarm),
        )

    def _stored(self, facts: Mapping[str, Any]) -> DataFrame:
        schema = ", ".join(f"{name} {kind}" for name, kind in LINK_COLUMNS.items())
        values = [tuple(row[name] for name in LINK_COLUMNS) for row in facts["links"]]
        return add_provenance(self.job.spark.createDataFrame(values, schema), facts, PROVENANCE).coalesce(1)


def _lines(facts: Mapping[str, Any], settings: LinkSettings) -> Iterator[Line]:
    """Correlations (a table at a terminal, else a line each), nights left out, and alarms."""
    shown = [row for row in facts["links"] if row["n_nights"]][: 2 * MAX_SEGMENTS]
    yield lambda: print_rows("metric and rate of the same night", [_cells(row) for row in shown])
    if len(facts["links"]) > len(shown):
        more = len(facts["links"]) - len(shown)
        yield f"... and {more} more, without a night or beyond these; --output and --json have all."
    if facts["clicks_without_metric"]:
        yield f"clicks without a metric: {'; '.join(map(labels.segment, facts['clicks_without_metric']))}"
    short = sum(row["note"] == "not_enough_nights" for row in facts["links"])
    if short:
        n_series = len(facts["links"])
        yield f"alarms: {short} of {n_series} series have fewer than {2 * settings.window} nights to compare"
    without = sorted({row["metric"] for row in facts["links"] if row["note"] == NO_DIRECTION})
    if without:
        yield f"no alarm is about {', '.join(without)} and click-through: neither more nor less of it is better"
    yield from format_rules_notes(row[RULES] for row in facts["links"])
    yield from (f"ALARM {_alarm(row, settings)}" for row in facts["alarms"])
    if not facts["alarms"]:
        yield "no alarm"
    yield (
        f"rule: mean of the last {settings.window} nights against the {settings.window} before; up or down: by "
        f"{settings.min_change:.3g} or more and {settings.noise_limit:g} standard errors; flat: change and "
        f"{settings.noise_limit:g} standard errors together at most {settings.max_flat:g}"
    )


def _cells(row: dict[str, Any]) -> dict[str, str]:
    left_out = ", ".join(f"{row[name]} {why}" for name, why in _LEFT_OUT.items() if row[name])
    return {
        "series": series_name(row),
        "rate": RATES[row["rate"]],
        "nights": f"{row['n_nights']}" + (f" (left out: {left_out})" if left_out else ""),
        "Pearson": labels.estimate(row, "pearson", "pearson_", "+.3f"),
        "Spearman": labels.estimate(row, "spearman", "spearman_", "+.3f"),
        "nightly changes": labels.estimate(row, "change_pearson", "change_pearson_", "+.3f"),
        "strongest lag": _strongest(row["lags"]),
    }


def _strongest(lags: list[dict[str, Any]]) -> str:
    """The largest correlation in size among all lags, and its lag."""
    known = [one for one in lags if one["low"] is not None]
    if not known:
        return "-"
    one = max(known, key=lambda one: (abs(one["pearson"]), -abs(one["lag"])))
    return f"{one['pearson']:+.3f} at {one['lag']:+d}"


def _alarm(row: dict[str, Any], settings: LinkSettings) -> str:
    def change(name: str) -> str:
        noise = settings.noise_limit * row[f"{name}_change_error"]
        return f"{100 * row[f'{name}_change']:+.2f} % ± {100 * noise:.2f} %"

    windows = f"{row['window_from']}..{row['window_to']} against {row['before_from']}..{row['before_to']}"
    moved = f"{row['metric']} {change('metric')}, {RATES[row['rate']]} {change('rate')}"
    return f"{row['metric']} {_ALARMS[row['alarm']]}: {series_name(row)}; {windows}: {moved}"

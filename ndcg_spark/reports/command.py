"""The command that reports a night."""

from __future__ import annotations

import os

from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.command import Command, Gates, Input, Output, Request
from ndcg_spark.reports.settings import ReportJobSettings, require_texts


def _check(request: Request[ReportJobSettings]) -> None:
    require_texts(request.settings.query_text_col, has_texts="query_texts" in request.sources)
    output = request.files.get("output")
    if output is None:
        raise InvalidParameterError("name the page to write: --output report.html.")
    for name in ("summary", "diagnosis", "index"):
        other = request.in_force.get(name)
        if other and os.path.realpath(output) == os.path.realpath(other):
            raise InvalidParameterError(f"--{name} and --output are both {output!r}; give each its own place.")


REPORT = Command(
    name="report",
    reads_results=True,
    short="An HTML page about one night.",
    about="""
    Write an HTML page about one night of the metric table.

    The headline is the worst news of the night. The page has means with their changes, the trend over nights, NDCG
    at each cutoff, and segments to sort and filter; further tables add the distribution of queries, queries to
    inspect, and differences between runs.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """,
    settings=ReportJobSettings,
    reads=(
        Input(name="metrics", about="Metric table of one or many nights: a path, a catalog table, or a SQL query.",
              follows=("mean-ndcg.output",), nights="until", with_gates=True),
        Input(name="per_query", about="Per-query table: adds the distribution of queries, and queries to inspect.",
              required=False, follows=("mean-ndcg.per_query_output",)),
        Input(name="comparison", about="Comparison table: adds the differences between runs.", required=False,
              follows=("compare-runs.output",), can_lack=True),
        Input(name="flags", about="Table that flag-changes wrote: marks the nights far from their history.",
              required=False, follows=("flag-changes.output",), can_lack=True),
        Input(name="query_texts", about="Table with the text of each query: its key columns as in the per-query "
              "table, and a column of the text.", required=False),
    ),
    writes=(
        Output(name="output", holds="page", about="HTML file to write, without external resources.", file=True),
        Output(name="index", holds="index", about="HTML file to write that lists the nights with their verdicts, and "
               "links to the pages beside it.", file=True),
    ),
    json=False,
    gates=Gates(example="ndcg@10>=0.40", about="an overall mean", parse=lambda text, settings: text),
    check=_check,
    find_night_and_dataset=lambda settings: (settings.run_date, settings.dataset or ""),
    work="reports.work:DrawReport",
    local="reports.local_work:LocalDrawReport",
)  # fmt: skip

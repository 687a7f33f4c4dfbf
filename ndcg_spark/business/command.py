"""The command business-link, which compares a ranking metric with clicks."""

from __future__ import annotations

from ndcg_spark.business.settings import LinkJobSettings
from ndcg_spark.history.command import METRIC_TABLE
from ndcg_spark.jobs.command import Command, Input, Output

BUSINESS_LINK = Command(
    name="business-link",
    reads_results=True,
    short="A metric beside click-through and conversion, with alarms.",
    about="""
    Compare a ranking metric with click-through and conversion, night by night and for each segment.

    Prints correlations (of nights, of changes from night to night, and with a lag) and raises two alarms: the metric
    is up while click-through is down, and the metric is flat while conversion is up. Click-through is clicks /
    impressions, conversion is conversions / clicks. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 alarm (with --fail-on-alarm), 130
    interrupted.
    """,
    settings=LinkJobSettings,
    reads=(
        METRIC_TABLE,
        Input(name="clicks", about="Clicks per night and segment, with the columns run_date, segment_by, segment, "
              "impressions, clicks, conversions: a path, a catalog table, or a SQL query."),
    ),
    writes=(
        Output(name="output", holds="links", about="Table of correlations and alarms to write: a folder or a catalog "
               "table."),
    ),
    nights={"as_of": 0},
    find_night_and_dataset=lambda settings: (settings.link.as_of, settings.rows.dataset or ""),
    work="business.work:BusinessLink",
)  # fmt: skip

"""The options of `retrieve`, in the groups that its help shows."""

from __future__ import annotations

from typing import Any

import click

from ndcg_spark.jobs.fields import grouped, options_of
from ndcg_spark.jobs.groups import GroupedCommand
from ndcg_spark.jobs.needed_packages import needed_packages
from ndcg_spark.jobs.options import (
    confidence_option,
    gate_option,
    json_option,
    operation_options,
    slice_options,
    spark_option,
    table_to_read,
    table_to_write,
)
from ndcg_spark.retrieval.command.retrieve_config import retrieve_config
from ndcg_spark.retrieval.settings import RetrievalPlan

_OF_QUERIES = [
    click.Option(["--segment-cols"], metavar="A,B+C", help="Columns of the queries: also compute means by A, and by "
                 "B and C together."),
    click.Option(["--weight-col"], metavar="NAME", help="Column of the queries: their weight in the means."),
]  # fmt: skip
_EVALUATION = [
    click.Option(["--k"], metavar="1,10,100", help="Cutoffs, evaluated in one pass; the largest is the number of "
                 "items retrieved. `all` evaluates whole lists.  [default: 10; with --metrics, names without @ use "
                 "the whole list]"),
    click.Option(["--metrics"], metavar="ndcg@10,ap,...", help="Metrics to compute in the same pass, such as "
                 "ndcg@10,acg@100,wap@100,ap_r; `ndcg-spark metrics` lists them.  [default: ndcg at each k]"),
    click.Option(["--convention"], default="default", show_default=True, metavar="NAME", help="Rules of the "
                 "evaluation: a name that `ndcg-spark conventions` lists, and changes, as "
                 "'default;ties=item_asc'."),
    confidence_option(),
]  # fmt: skip
_TABLES = [
    *table_to_write("--rankings-output", "Table of the items found to write: query, item, score, rank, and relevance "
                    "where there are labels."),
    *table_to_write("--judgments-output", "Table of the relevant items of each query in the whole corpus to write; "
                    "it can be large."),
    *table_to_write("--output", "Metric table to write: a folder or a catalog table."),
    *table_to_write("--per-query-output", "Table of the metrics of every query to write."),
]  # fmt: skip
GROUPS = grouped(
    {
        "Input": [
            *table_to_read("--queries", "Query table: a path, a catalog table, or a SQL query."),
            *table_to_read("--corpus", "Table of all items, as --queries."),
        ],
        "Columns": [],
        "Retrieval": [],
        "Output": _TABLES,
    },
    options_of(RetrievalPlan, without={"block_bytes", "held_pairs"}),
    {
        "Columns": _OF_QUERIES,
        "Retrieval": _EVALUATION,
        "Output": [*slice_options("--queries"), json_option(), gate_option()],
        "Running": [spark_option()],
        "Operations": operation_options(),
    },
)
"""Options by the group under which `--help` lists them."""


@click.command("retrieve", cls=GroupedCommand, groups=GROUPS)
def retrieve(**options: Any) -> int:
    """Find the nearest items of each query, exactly, and evaluate them by labels.

    Both tables have an identifier, and a vector (array of numbers, pyspark.ml vector) or a code (binary or
    array<bigint> with packed bits, array<tinyint> of +1 and -1). With --labels-col NDCG@k is printed, against the
    best order of the whole corpus. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """
    config = retrieve_config(options)
    with needed_packages():
        from ndcg_spark.retrieval.command.retrieve_job import run_retrieve
    return run_retrieve(config)

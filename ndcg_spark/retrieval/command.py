"""The command `retrieve`: it retrieves items, and evaluates them if there are labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ndcg_spark.conventions import Convention
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.evaluation.command import OUTPUT, PER_QUERY_OUTPUT, cutoff_option, metrics_option, read_metrics
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.settings import Columns, EvaluationSettings
from ndcg_spark.jobs.command import Command, Gates, Input, Output, Request
from ndcg_spark.jobs.options import build_options, build_settings, format_flag, merge_groups
from ndcg_spark.retrieval.settings import QueryColumns, RetrievalJobSettings, RetrievalSettings


def _build_options() -> dict[str, list[click.Option]]:
    query_options = build_options(QueryColumns)
    evaluation = [
        cutoff_option("Cutoffs, evaluated in one pass; the largest is the number of items retrieved. `all` evaluates "
                      "whole lists.", "1,10,100"),
        metrics_option("ndcg@10,acg@100,wap@100,ap_r"),
        click.Option(["--convention"], default="default", show_default=True, metavar="NAME", help="Rules of the "
                     "evaluation: a name that `ndcg-spark conventions` lists, and changes, as "
                     "'default;ties=item_asc'."),
        *query_options["Retrieval"],
    ]  # fmt: skip
    retrieval_options = build_options(RetrievalSettings)
    return merge_groups(
        {
            "Columns": retrieval_options["Columns"] + query_options["Columns"],
            "Retrieval": retrieval_options["Retrieval"] + evaluation,
        },
        {title: options for title, options in retrieval_options.items() if title not in ("Columns", "Retrieval")},
    )


def _read_settings(options: Mapping[str, Any]) -> RetrievalJobSettings:
    metrics, cutoffs = read_metrics(options)
    settings, query_columns = build_settings(RetrievalSettings, options), build_settings(QueryColumns, options)
    evaluation = EvaluationSettings(
        columns=Columns(query=(settings.query,), item=settings.item, weight=query_columns.weight),
        convention=Convention.parse(options["convention"]),
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=query_columns.segment_sets,
        confidence=query_columns.confidence,
    )
    return RetrievalJobSettings(retrieval=settings, evaluation=evaluation)


def _check_request(request: Request[RetrievalJobSettings]) -> None:
    if not request.settings.evaluates:
        needs_labels = [format_flag(target) for target in request.targets if target != "rankings_output"]
        needs_labels += ["--gate"] if request.gates else []
        if needs_labels:
            raise InvalidParameterError(f"{needs_labels[0]} needs --labels-col, the column that defines relevance.")
        if not request.targets:
            raise InvalidParameterError("there is nothing to do: set --labels-col or --rankings-output.")
    if "rankings_output" in request.targets and request.settings.evaluation.max_k is None:
        raise InvalidParameterError("--rankings-output needs a number of items: --k all is for evaluation only.")


RETRIEVE = Command(
    name="retrieve",
    short="The nearest items of each query.",
    about="""
    Find the nearest items of each query by exact search, and evaluate them with labels.

    Both tables have an identifier, and a vector (array of numbers, pyspark.ml vector) or a code (binary or
    array<bigint> with packed bits, array<tinyint> of +1 and -1). With --labels-col, NDCG@k is printed, relative to
    the best order of the whole corpus. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """,
    settings=RetrievalJobSettings,
    options=_build_options,
    parse_settings=_read_settings,
    reads=(
        Input(name="queries", about="Query table: a path, a catalog table, or a SQL query."),
        Input(name="corpus", about="Table of all items, as --queries."),
    ),
    writes=(
        Output(name="rankings_output", holds="rankings", about="Table of the items found to write: query, item, "
               "score, rank, and relevance where there are labels."),
        Output(name="judgments_output", holds="judgments", about="Table of the relevant items of each query in the "
               "whole corpus to write; it can be large."),
        PER_QUERY_OUTPUT,
        OUTPUT,
    ),
    sliced=True,
    gates=Gates(
        example="ndcg@10>=0.40",
        about="an overall mean",
        parse=lambda text, settings: Gate.parse(text, settings.evaluation),
    ),
    check=_check_request,
    long_rows=lambda settings: True,  # blocks are some megabytes
    work="retrieval.work:Retrieve",
)  # fmt: skip

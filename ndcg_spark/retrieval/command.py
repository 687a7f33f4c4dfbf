"""The command that retrieves items, and evaluates them."""

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


def _options() -> dict[str, list[click.Option]]:
    of_queries = build_options(QueryColumns)
    evaluation = [
        cutoff_option("Cutoffs, evaluated in one pass; the largest is the number of items retrieved. `all` evaluates "
                      "whole lists.", "1,10,100"),
        metrics_option("ndcg@10,acg@100,wap@100,ap_r"),
        click.Option(["--convention"], default="default", show_default=True, metavar="NAME", help="Rules of the "
                     "evaluation: a name that `ndcg-spark conventions` lists, and changes, as "
                     "'default;ties=item_asc'."),
        *of_queries["Retrieval"],
    ]  # fmt: skip
    own = build_options(RetrievalSettings)
    return merge_groups(
        {"Columns": own["Columns"] + of_queries["Columns"], "Retrieval": own["Retrieval"] + evaluation},
        {title: its for title, its in own.items() if title not in ("Columns", "Retrieval")},
    )


def _settings(given: Mapping[str, Any]) -> RetrievalJobSettings:
    metrics, cutoffs = read_metrics(given)
    settings, of_queries = build_settings(RetrievalSettings, given), build_settings(QueryColumns, given)
    evaluation = EvaluationSettings(
        columns=Columns(query=(settings.query,), item=settings.item, weight=of_queries.weight),
        convention=Convention.parse(given["convention"]),
        cutoffs=cutoffs,
        metrics=metrics,
        segment_sets=of_queries.segment_sets,
        confidence=of_queries.confidence,
    )
    return RetrievalJobSettings(retrieval=settings, evaluation=evaluation)


def _check(request: Request[RetrievalJobSettings]) -> None:
    if not request.settings.evaluates:
        needing = [format_flag(name) for name in request.targets if name != "rankings_output"]
        needing += ["--gate"] if request.gates else []
        if needing:
            raise InvalidParameterError(f"{needing[0]} needs --labels-col, the column that decides relevance.")
        if not request.targets:
            raise InvalidParameterError("there is nothing to do: name --labels-col, or --rankings-output.")
    if "rankings_output" in request.targets and request.settings.evaluation.max_k is None:
        raise InvalidParameterError("--rankings-output needs a number of items: --k all is for evaluation only.")


RETRIEVE = Command(
    name="retrieve",
    short="The nearest items of each query.",
    about="""
    Find the nearest items of each query, exactly, and evaluate them by labels.

    Both tables have an identifier, and a vector (array of numbers, pyspark.ml vector) or a code (binary or
    array<bigint> with packed bits, array<tinyint> of +1 and -1). With --labels-col NDCG@k is printed, against the
    best order of the whole corpus. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """,
    settings=RetrievalJobSettings,
    options=_options,
    read=_settings,
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
        read=lambda text, settings: Gate.parse(text, settings.evaluation),
    ),
    check=_check,
    long_rows=lambda settings: True,  # blocks are some megabytes
    work="retrieval.work:Retrieve",
)  # fmt: skip

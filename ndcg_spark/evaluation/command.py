"""The command mean-ndcg, shared options of commands that rank, and the lists of conventions and metrics."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from ndcg_spark.conventions import ABOUT, PRESETS, Convention
from ndcg_spark.core.flag import list_settings
from ndcg_spark.evaluation.gates import Gate
from ndcg_spark.evaluation.settings import (
    DifferenceJobSettings,
    EvaluationSettings,
    parse_cutoffs,
    parse_metrics,
    refuse_unread_k,
    refuse_unread_options,
)
from ndcg_spark.jobs.command import READ_FORMATS, Command, Gates, Input, Output
from ndcg_spark.jobs.options import (
    build_options,
    build_override_options,
    build_settings,
    merge_groups,
    parse_run_date,
)
from ndcg_spark.jobs.places import name_missing_packages
from ndcg_spark.metrics import MetricAt, all_metrics
from ndcg_spark.metrics.base import FIRST_SEEN

JUDGMENTS = Input(
    name="judgments",
    about="Table with the relevances, if the input has none.",
    required=False,
    follows=("build-judgments events.output", "build-judgments annotators.output", "position-bias judgments.output"),
    formats=f"trec-qrels, {READ_FORMATS}",
)
_CHANGES = tuple(choice.field for choice in list_settings(Convention) if choice.field != "name")
_OWN = ("cutoffs", "metrics", "as_of")
"""Fields that are read from several options, or from `--run-date`."""


def rankings(about: str, *, required: bool = True) -> Input:
    return Input(name="input", about=about, required=required, formats=f"trec-run, {READ_FORMATS}")


def cutoff_option(about: str, metavar: str = "1,3,5,10") -> click.Option:
    return click.Option(["--k"], metavar=metavar, help=f"{about}  [default: 10; with --metrics, names without @ "
                        "use the whole list]")  # fmt: skip


def metrics_option(examples: str) -> click.Option:
    return click.Option(["--metrics"], metavar="ndcg@10,ap,...", help=f"Metrics to compute in the same pass, such as "
                        f"{examples}; `ndcg-spark metrics` lists them.  [default: ndcg at each k]")  # fmt: skip


def evaluation_options(*, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build the options of an evaluation, without the fields of `EvaluationSettings` named in `without`."""
    metric_options = [cutoff_option("Cutoffs, computed in one pass; `all` is the whole list.")]
    metric_options += [] if "metrics" in without else [metrics_option("ndcg@10,ap@100,p(rel=2)@5,rr")]
    excluded = (*_OWN, *without)
    return merge_groups(
        {"Input": [], "Columns": [], "Metric": metric_options},
        {"Metric": build_options(EvaluationSettings, without=excluded)["Metric"][:1]},
        build_override_options(Convention, without=("name",)),
        build_options(EvaluationSettings, without=(*excluded, "convention")),
    )


def read_evaluation_settings(arguments: Mapping[str, Any]) -> EvaluationSettings:
    metrics, cutoffs = read_metrics(arguments)
    needs_age = any(need == FIRST_SEEN for metric_at in metrics for need in metric_at.metric.needs)
    return build_settings(
        EvaluationSettings,
        arguments,
        convention=read_convention(arguments),
        cutoffs=cutoffs,
        metrics=metrics,
        as_of=parse_run_date(arguments.get("run_date")) if needs_age else None,
    )


def read_command_line() -> dict[str, Any]:
    """Return the parameters set on the command line, without those of --config, which may serve several commands."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    command_line = ParameterSource.COMMANDLINE
    return {
        parameter: value
        for parameter, value in context.params.items()
        if context.get_parameter_source(parameter) is command_line
    }


def refuse_unread_flags(settings: EvaluationSettings) -> None:
    """Raise for an option on the command line that has no effect."""
    arguments = read_command_line()
    if "explain_difference" in arguments:  # the other convention may read it
        return
    refuse_unread_options(settings, [parameter.removesuffix("_col") for parameter in arguments])
    if "k" in arguments and arguments.get("metrics") is not None:
        refuse_unread_k(arguments["metrics"])


def read_convention(arguments: Mapping[str, Any]) -> Convention:
    changes = {flag: arguments[flag] for flag in _CHANGES if arguments[flag] is not None}
    return Convention.parse(arguments["convention"]).changed(changes)


def read_metrics(arguments: Mapping[str, Any]) -> tuple[tuple[MetricAt, ...], tuple[int | None, ...]]:
    k = None if arguments["k"] is None else [cutoff.strip() for cutoff in arguments["k"].split(",")]
    metrics = arguments.get("metrics")
    return parse_metrics(metrics, k) if metrics is not None else ((), parse_cutoffs(k or 10))


PER_QUERY_OUTPUT = Output(name="per_query_output", holds="queries", about="Table to write: metrics of every query.")
OUTPUT = Output(name="output", holds="metrics", about="Metric table to write: a folder or a catalog table.")


EXPLAIN_DIFFERENCE = Command(
    name="explain-difference",
    short="Why two conventions give two means.",
    about="""
    Explain why another convention gives another mean on the same rankings, rule by rule, at one k.

    Rules are changed one after the other; each contribution is the effect of one rule after all earlier changes.
    Contributions add up to the gap. The queries with the largest contributions are listed. Only the JSON is
    written.

    Exit codes: 0 done, 2 refused input or options, 130 interrupted.
    """,
    settings=DifferenceJobSettings,
    options=lambda: merge_groups(
        evaluation_options(without=("metrics", "tie_bounds", "confidence", "segment_sets", "allow_unmatched")),
        {"Metric": [click.Option(["--to"], required=True, metavar="CONVENTION", help="The other convention: a name "
                                 "that `ndcg-spark conventions` lists, and changes, as 'trec_eval;gain=linear'.")]},
    ),
    parse_settings=lambda values: DifferenceJobSettings(
        evaluation=read_evaluation_settings(values),
        to=Convention.parse(values.get("to", values.get("explain_difference"))),
    ),
    reads=(rankings("Rankings: a path, a catalog table, or a SQL query."), JUDGMENTS),
    sliced=True,  # in the run log
    long_rows=lambda settings: settings.evaluation.has_long_lists,
    work="evaluation.work:ExplainDifference",
)  # fmt: skip


MEAN_NDCG = Command(
    name="mean-ndcg",
    short="Mean NDCG@k per run and segment.",
    about="""
    Mean NDCG@k per run and segment, written to a nightly metric table.

    The input is a long table (query, item, score or rank, relevance), a run with --judgments beside it, or one
    row per query with lists of items (--ranked-cols) or with an array of relevances. Nothing is written unless an
    output is named; the means are printed.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """,
    settings=EvaluationSettings,
    options=lambda: merge_groups(
        evaluation_options(),
        {"Running": [click.Option(["--explain-difference"], metavar="CONVENTION", help="Print why this convention "
                                  "gives another mean, rule by rule, at one k; nothing is written. As "
                                  "`ndcg-spark explain-difference --to CONVENTION`.")]},
    ),
    parse_settings=read_evaluation_settings,
    choose_command=lambda values: (
        EXPLAIN_DIFFERENCE if values["explain_difference"] and not values["explain"] else None
    ),
    reads=(
        rankings("Rankings: a path, a catalog table, or a SQL query."),
        JUDGMENTS,
        Input(name="items", about="Catalogue: one row per item, for metrics that need it, such as ild and coverage.",
              required=False),
        Input(name="interactions", about="Earlier interactions: user and item, for novelty and first_new.",
              required=False),
    ),
    writes=(PER_QUERY_OUTPUT, OUTPUT),
    sliced=True,
    rejects=True,
    allows_empty=True,
    explains=True,
    check=lambda request: refuse_unread_flags(request.settings),
    gates=Gates(example="ndcg@10>=0.40", about="an overall mean", parse=Gate.parse),
    long_rows=lambda settings: settings.has_long_lists,
    work="evaluation.work:MeanNdcg",
    local="evaluation.local_work:LocalMeanNdcg",
)  # fmt: skip


@click.command("conventions")
def conventions() -> None:
    """List the conventions, their differences from the default, and the tools they reproduce."""
    with name_missing_packages():
        from rich import box
        from rich.console import Console
        from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in ("convention", "against the default", "reproduces"):
        table.add_column(name, overflow="fold")
    for name, convention in PRESETS.items():
        changes = ", ".join(f"{choice}={value}" for choice, value in convention.differences().items())
        table.add_row(name, changes or "-", ABOUT[name])
    Console(width=None if sys.stdout.isatty() else 120).print(table)


@click.command("metrics")
def metrics() -> None:
    """List the metrics with their parameters, defaults, definitions and sources."""
    with name_missing_packages():
        from rich import box
        from rich.console import Console
        from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in ("metric", "parameters", "value of a query", "needs", "source"):
        table.add_column(name, overflow="fold", no_wrap=name == "metric")
    for name, metric in all_metrics().items():
        label = f"{name}@k" if metric.takes_cutoff else name
        if metric.aliases:
            label += f"\n({', '.join(metric.aliases)})"
        parameters = [
            f"{parameter.name}={parameter.default:g}"
            if isinstance(parameter.default, float)
            else f"{parameter.name}={parameter.default}"
            for parameter in fields(metric)
        ]
        needs = ", ".join(map(str, metric().needs)) or "relevances"
        table.add_row(label, "\n".join(parameters) or "-", metric.about, needs, metric.source)
    Console(width=None if sys.stdout.isatty() else 120).print(table)

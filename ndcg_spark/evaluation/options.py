"""The options that say how rankings are evaluated, which several commands have, and the settings that they give."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import click
from click.core import ParameterSource

from ndcg_spark.conventions import Convention
from ndcg_spark.core.flag import settings_in
from ndcg_spark.evaluation.settings import EvaluationSettings, cutoffs_of, metrics_of
from ndcg_spark.evaluation.unread import refuse_unread, refuse_unread_k
from ndcg_spark.jobs.command import READ_FORMATS, Reads
from ndcg_spark.jobs.fields import changes_of, grouped, options_of, run_date_of, settings_of
from ndcg_spark.metrics import MetricAt
from ndcg_spark.metrics.base import FIRST_SEEN

JUDGMENTS = Reads(
    name="judgments",
    about="Table with the relevances, if the input has none.",
    required=False,
    formats=f"trec-qrels, {READ_FORMATS}",
)
_CHANGES = tuple(one.field for one in settings_in(Convention) if one.field != "name")
_OWN = ("cutoffs", "metrics", "as_of")
"""Fields that are read from several options, or from `--run-date`."""


def rankings(about: str, *, required: bool = True) -> Reads:
    """The table that is ranked."""
    return Reads(name="input", about=about, required=required, formats=f"trec-run, {READ_FORMATS}")


def cutoff_option(about: str, metavar: str = "1,3,5,10") -> click.Option:
    """Build `--k`."""
    return click.Option(["--k"], metavar=metavar, help=f"{about}  [default: 10; with --metrics, names without @ "
                        "use the whole list]")  # fmt: skip


def metrics_option(examples: str) -> click.Option:
    """Build `--metrics`."""
    return click.Option(["--metrics"], metavar="ndcg@10,ap,...", help=f"Metrics to compute in the same pass, such as "
                        f"{examples}; `ndcg-spark metrics` lists them.  [default: ndcg at each k]")  # fmt: skip


def evaluation_options(*, without: Collection[str] = ()) -> dict[str, list[click.Option]]:
    """Build the options of an evaluation, but for fields of `EvaluationSettings` that a command leaves out."""
    own = [cutoff_option("Cutoffs, computed in one pass; `all` is the whole list.")]
    own += [] if "metrics" in without else [metrics_option("ndcg@10,ap@100,p(rel=2)@5,rr")]
    left = (*_OWN, *without)
    return grouped(
        {"Input": [], "Columns": [], "Metric": own},
        {"Metric": options_of(EvaluationSettings, without=left)["Metric"][:1]},
        changes_of(Convention, without=("name",)),
        options_of(EvaluationSettings, without=(*left, "convention")),
    )


def evaluation_of(given: Mapping[str, Any]) -> EvaluationSettings:
    """Read how rankings are evaluated."""
    metrics, cutoffs = asked_metrics(given)
    ages = any(need == FIRST_SEEN for one in metrics for need in one.metric.needs)
    return settings_of(
        EvaluationSettings,
        given,
        convention=convention_of(given),
        cutoffs=cutoffs,
        metrics=metrics,
        as_of=run_date_of(given.get("run_date")) if ages else None,
    )


def given_here() -> dict[str, Any]:
    """Parameters that are on the command line; a file for --config may serve several commands."""
    context = click.get_current_context(silent=True)
    if context is None:
        return {}
    here = ParameterSource.COMMANDLINE
    return {name: its for name, its in context.params.items() if context.get_parameter_source(name) is here}


def refuse_unread_here(settings: EvaluationSettings) -> None:
    """Raise for an option on the command line that nothing reads beside the others."""
    here = given_here()
    if "explain_difference" in here:  # whose other convention may read it
        return
    refuse_unread(settings, [name.removesuffix("_col") for name in here])
    if "k" in here and here.get("metrics") is not None:
        refuse_unread_k(here["metrics"])


def convention_of(given: Mapping[str, Any]) -> Convention:
    """Read `--convention` and the flags that change it."""
    changes = {flag: given[flag] for flag in _CHANGES if given[flag] is not None}
    return Convention.parse(given["convention"]).changed(changes)


def asked_metrics(given: Mapping[str, Any]) -> tuple[tuple[MetricAt, ...], tuple[int | None, ...]]:
    """Metrics and cutoffs of `--metrics` and `--k`."""
    k = None if given["k"] is None else [one.strip() for one in given["k"].split(",")]
    metrics = given.get("metrics")
    return metrics_of(metrics, k) if metrics is not None else ((), cutoffs_of(k or 10))

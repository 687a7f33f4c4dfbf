"""The command compare-runs, and its gates, such as `ndcg@10.ci_low>-0.002`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from ndcg_spark.comparison.settings import ChosenRuns, ComparisonJobSettings, Statistics, refuse_unread_seed
from ndcg_spark.core import labels
from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.command import (
    JUDGMENTS,
    evaluation_options,
    read_command_line,
    read_convention,
    read_evaluation_settings,
    refuse_unread_flags,
)
from ndcg_spark.evaluation.command import rankings as rankings_table
from ndcg_spark.evaluation.gates import COMPARISONS, describe_contrary_gate, parse_named_metric
from ndcg_spark.evaluation.settings import EvaluationSettings, refuse_unread_k
from ndcg_spark.jobs.command import Command, Gates, Input, Output, Request
from ndcg_spark.jobs.options import build_options, build_settings, merge_groups, parse_names
from ndcg_spark.metrics import EVERY, MetricAt

_GATE = re.compile(r"\s*(\w+(?:\([^()]*\))?(?:@\w+)?)\.(\w+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*")
GATE_COLUMNS = (
    "n_queries", "n_wins", "n_ties", "n_losses", "n_only_run", "n_only_baseline", "n_skipped", "n_clusters", "value",
    "baseline_value", "difference", "weight_sum", "std_error", "df", "ci_low", "ci_high", "t", "p_value",
    "p_sign_flip", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift", "lift_low", "lift_high",
    "design_effect", "n_effective", "n_clusters_effective", "p_holm", "p_bh", "mde", "n_required",
)  # fmt: skip
HIGHER_MEANS_MORE = (
    "value", "difference", "ci_low", "ci_high", "t", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift",
    "lift_low", "lift_high",
)  # fmt: skip
"""Columns that are higher if the run has a higher metric."""


@dataclass(frozen=True, slots=True)
class ComparisonGate:
    """A condition on a column of the rows over all queries, for every pair of runs.

    If the user named no cutoff, the metric must be compared at one cutoff only.
    """

    text: str
    metric: MetricAt
    column: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> ComparisonGate:
        match = _GATE.fullmatch(text)
        if match is None:
            raise InvalidParameterError(
                f"gate {text!r} is not of the form METRIC@K.COLUMN>NUMBER, such as ndcg@10.ci_low>-0.002."
            )
        metric_text, column, comparison, number = match.groups()
        if column not in GATE_COLUMNS:
            raise InvalidParameterError(
                f"gate {text!r}: there is no column {column!r}; choose one of {', '.join(GATE_COLUMNS)}."
            )
        metric = parse_named_metric(metric_text, text)
        try:
            bound = float(number)
        except ValueError:
            raise InvalidParameterError(f"gate {text!r}: {number!r} is not a number.") from None
        return cls(text, metric, column, comparison, bound)

    @property
    def contrary(self) -> str:
        """Warning if the gate demands a worse value; else empty."""
        if self.column not in HIGHER_MEANS_MORE:
            return ""
        return describe_contrary_gate(self.text, str(self.metric.metric), self.comparison)

    def results(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Check each pair's row over all queries; return `gate`, `run`, `baseline`, `value` and `met` of each pair.

        A null does not meet a gate. Refuses a gate on a metric or cutoff that was not compared.
        """
        overall = [row for row in rows if not row["segment_by"]]
        metric, k = str(self.metric.metric), self.metric.k
        gated = [row for row in overall if row["metric"] == metric and k in (row["k"], EVERY)]
        if self.column in ("p_value", "p_holm", "p_bh") and any(row["verdict"] is None for row in gated):
            raise InvalidParameterError(
                f"gate {self.text!r}: {metric} was added to ndcg and is not tested; name it in {option('metrics')}."
            )
        if not gated:
            known = sorted({labels.metric_at(row["metric"], row["k"]) for row in overall})
            raise InvalidParameterError(
                f"gate {self.text!r}: this metric or cutoff was not compared; compared are {', '.join(known)}."
            )
        metrics = sorted({labels.metric_at(row["metric"], row["k"]) for row in gated})
        if len(metrics) > 1:
            raise InvalidParameterError(f"gate {self.text!r}: name the cutoff too, such as {metrics[0]}.")
        return [
            {"gate": self.text, "run": row["run"], "baseline": row["baseline"], "value": row[self.column],
             "met": row[self.column] is not None and COMPARISONS[self.comparison](row[self.column], self.bound)}
            for row in gated
        ]  # fmt: skip


_BUILT_FIELDS = ("rankings", "of_queries", "run_column", "convention", "chosen", "statistics")
_OMITTED_OPTIONS = ("tie_bounds", "confidence")
"""Options of an evaluation that compare-runs does not have; `--alpha` sets the level of intervals."""
_QUERY_OPTIONS = frozenset((
    "query_col", "run_col", "segment_cols", "weight_col", "k", "metrics", "convention", "ideal", "no_relevant",
    "missing_query",
))  # fmt: skip
"""Options of an evaluation that also apply to per-query tables."""


def _build_options() -> dict[str, list[click.Option]]:
    chosen = build_options(ChosenRuns)
    evaluation = evaluation_options(without=_OMITTED_OPTIONS)
    return merge_groups(
        {"Runs": chosen["Runs"], "Columns": evaluation["Columns"] + chosen["Columns"]},
        build_options(Statistics),
        build_options(ComparisonJobSettings, without=_BUILT_FIELDS),
        {title: options for title, options in evaluation.items() if title != "Columns"},
    )


def _build_settings(values: Mapping[str, Any]) -> ComparisonJobSettings:
    chosen, statistics = build_settings(ChosenRuns, values), build_settings(Statistics, values)
    query_options: dict[str, Any] = {"segments": parse_names(values["segment_cols"])}
    rankings: EvaluationSettings | None = None
    if values["input"] is None:
        k = None if values["k"] is None else [cutoff.strip() for cutoff in values["k"].split(",")]
        query_options |= {"query": parse_names(values["query_col"]), "weight": values["weight_col"]}
        query_options |= {"metrics": values["metrics"], "k": k}
    else:
        rankings = read_evaluation_settings({**values, "confidence": 1 - statistics.alpha})
        cluster, columns = chosen.cluster, (*rankings.segment_columns, *rankings.columns.query)
        if cluster is not None and cluster not in columns:  # so that per-query results have the column
            rankings = replace(rankings, segment_sets=(*rankings.segment_sets, (cluster,)))
    return build_settings(
        ComparisonJobSettings,
        values,
        rankings=rankings,
        of_queries=query_options,
        run_column=values["run_col"] or "run",
        convention=read_convention(values),
        chosen=chosen,
        statistics=statistics,
    )


def _check_request(request: Request[ComparisonJobSettings]) -> None:
    sources = request.sources
    if ("input" in sources) == ("per_query" in sources):
        raise InvalidParameterError("name what to compare: either --input (rankings) or --per-query (their metrics).")
    if "per_query" in sources:
        _refuse_ranking_options()
    elif request.settings.chosen.across_rules:
        raise InvalidParameterError("--across-rules needs --per-query: runs of --input have the same rules.")
    alone = "per_query" not in sources or request.settings.chosen.baseline is None
    if "baseline_per_query" in sources and alone:
        raise InvalidParameterError("--baseline-per-query needs --per-query and --baseline NAME.")
    flags, settings = read_command_line(), request.settings
    statistics = settings.statistics
    refuse_unread_seed(statistics.replicates, statistics.flips, is_given="seed" in flags)
    if settings.rankings is not None:
        refuse_unread_flags(settings.rankings)
    elif "k" in flags and settings.of_queries["metrics"] is not None:
        refuse_unread_k(settings.of_queries["metrics"])


def _refuse_ranking_options() -> None:
    """Refuse options of the command line that affect only the evaluation of rankings, for per-query tables.

    A --config file may have them, because other commands read it as well.
    """
    groups = evaluation_options(without=_OMITTED_OPTIONS)
    unread = {parameter.name for options in groups.values() for parameter in options}
    unread |= {"judgments", "judgments_format", "judgments_option", "input_format", "input_option"}
    unread |= {"rejects", "rejects_format", "max_reject_fraction"}
    refused = set(read_command_line()) & (unread - _QUERY_OPTIONS)
    for parameter in click.get_current_context().command.params if refused else ():
        if parameter.name in refused:
            raise InvalidParameterError(
                f"{parameter.opts[0]} has no effect with --per-query, whose queries have been evaluated; remove it."
            )


COMPARE_RUNS = Command(
    name="compare-runs",
    short="Differences between runs, with tests.",
    about="""
    Compare runs: is one really better than another, where, and by how much.

    Compares runs over the same queries, per segment, metric and k: difference, interval, lift, tests by t, sign flips
    and bootstrap, adjusted for their number. The input is rankings of several runs (a run column or several score
    columns), or metrics of every query that were written before. Nothing is written unless an output is named.

    Exit codes: 0 done, 2 refused input or options (nothing was written), 3 a gate was not met, 130 interrupted.
    """,
    settings=ComparisonJobSettings,
    options=_build_options,
    parse_settings=_build_settings,
    reads=(
        rankings_table("Rankings to evaluate and compare: a path, a catalog table, or a SQL query.", required=False),
        JUDGMENTS,
        Input(name="per_query", about="Metrics of every query, as --per-query-output of mean-ndcg writes them, "
              "instead of rankings. Their stored weights are used; --weight-col '' turns them off.", required=False,
              follows=("mean-ndcg.per_query_output",), instead_of="input"),
        Input(name="baseline_per_query", about="Metrics of every query of the baseline, if they are in a table of "
              "their own. --baseline names it in the result.", required=False),
    ),
    writes=(
        Output(name="output", holds="comparison", about="Comparison table to write: a folder or a catalog table."),
    ),
    sliced=True,
    rejects=True,
    explains=True,
    gates=Gates(
        example="ndcg@10.ci_low>-0.002",
        about="a column of the rows over all queries",
        parse=lambda text, settings: ComparisonGate.parse(text),
    ),
    check=_check_request,
    list_ignored=lambda values: ("judgments", "rejects") if values["input"] is None else (),
    work="comparison.work:CompareRuns",
    local="comparison.local_work:LocalCompareRuns",
)  # fmt: skip

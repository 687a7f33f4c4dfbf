"""Tables of per-query metrics, whichever engine reads them, and the comparison settings that fit them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

from ndcg_spark.comparison.plan import STORED_WEIGHT, QueriesPlan, plan_queries
from ndcg_spark.comparison.settings import ComparisonSettings, parse_metrics
from ndcg_spark.comparison.tasks.pairing import UNWEIGHTED
from ndcg_spark.conventions import Convention
from ndcg_spark.core import labels
from ndcg_spark.core.flag import to_tuple
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, check_choice, option
from ndcg_spark.evaluation.api import Cutoffs
from ndcg_spark.evaluation.plan import require_query
from ndcg_spark.evaluation.results import Results
from ndcg_spark.evaluation.rules import RULES, combine_rules, read_rules
from ndcg_spark.evaluation.settings import EvaluationSettings, parse_cutoffs, parse_segment_sets
from ndcg_spark.metrics import EVERY, Metric, MetricAt, in_order, parse_metric


class QueryTable(ABC):
    """Per-query metrics, from a table or from an evaluation; each engine has its own subclasses.

    Only tables can be restricted to a night or a run; evaluations raise NotImplementedError.
    """

    @property
    @abstractmethod
    def evaluation(self) -> Results | None:
        """The evaluation; None for a table."""

    @property
    @abstractmethod
    def info(self) -> TableInfo:
        """Names and types of the columns."""

    @abstractmethod
    def runs(self) -> dict[str, bool]:
        """Map each run to True if its rows may have stored weights. Reads the columns of a table."""

    def computed_at(self) -> datetime | None:
        """Return the latest `computed_at` of a stored table; None without this column. Reads the column."""
        raise NotImplementedError

    def with_runs(self, column: str, name: str) -> QueryTable:
        """Use another column, as text, as the run column; `name` is the run of a table without it."""
        raise NotImplementedError

    def select_slice(self, name: str, night: date | None, dataset: str | None, hint: str = "") -> QueryTable:
        """Select the rows of one night and data set, like `select_slice`; `name` and `hint` are for messages."""
        raise NotImplementedError

    def select_run(self, run: str) -> QueryTable:
        """Select the rows of one run; all rows of a table without a run column."""
        raise NotImplementedError


Tables: TypeAlias = Sequence[tuple[QueryTable, str | None]]
"""Tables with the run that each holds; None for a single table with a run column."""


def choose_tables(tables: Tables, settings: ComparisonSettings) -> Tables:
    """Select the tables of the runs that are compared."""
    return [(table, run) for table, run in tables if run is None or run in settings.runs]


def plan_tables(tables: Tables, settings: ComparisonSettings) -> list[QueriesPlan]:
    """Plan how the compared tables are read; raise if their columns are missing or have wrong types."""
    return plan_queries([(table.info, run) for table, run in choose_tables(tables, settings)], settings)


def build_settings(
    tables: Tables,
    *,
    baseline: str | int | None = None,
    runs: str | int | Sequence[str | int] | None = None,
    metrics: str | Sequence[str] | None = None,
    k: Cutoffs = None,
    query: str | Sequence[str] | None = None,
    segments: str | Sequence[str] | None = None,
    convention: str | Convention | None = None,
    **options: Any,
) -> ComparisonSettings:
    """Build the settings that the options of `compare` describe; an action may list the runs."""
    evaluated = [table.evaluation.settings for table, _ in tables if table.evaluation is not None]
    first = evaluated[0] if evaluated else None
    baseline = None if baseline is None else format_run(baseline)
    if convention is None and first is not None:
        convention = first.convention
    known_convention = convention if isinstance(convention, Convention) else Convention.parse(convention or "default")
    if first is not None:
        query = first.columns.query if query is None else query
        require_query(first)
        segments = ["+".join(columns) for columns in first.segment_sets] if segments is None else segments
    chosen_runs, listed = _resolve_runs(tables, baseline, runs)
    weight = options.pop("weight", None)
    if weight is None and any(listed.values()) and _have_weights(tables):
        weight = STORED_WEIGHT
    compared_metrics = _choose_metrics(metrics, k, evaluated, tables)
    rules = _combine_known_rules(
        tables,
        () if chosen_runs is None else chosen_runs,
        known_convention,
        across=options.get("across_rules", False),
    )
    default_unpaired = (
        "drop"
        if len({read_rules(text)["sample"] for text in rules.evaluated}) > 1
        else known_convention.missing_query
    )
    return ComparisonSettings(
        runs=tuple(listed) if chosen_runs is None else chosen_runs,
        baseline=baseline,
        metrics=compared_metrics,
        weight=weight or None,
        query=(query,) if isinstance(query, str) else ("query_id",) if query is None else tuple(query),
        segment_sets=parse_segment_sets(segments or ()),
        same_ideal=known_convention.ideal == "judged",
        skips_no_relevant=known_convention.no_relevant == "skip",
        rules=rules.text,
        rules_in_rows=rules.in_rows,
        **{**options, "unpaired": options.get("unpaired") or default_unpaired},
    )


def _resolve_runs(
    tables: Tables, baseline: str | None, runs: str | int | Sequence[str | int] | None
) -> tuple[tuple[str, ...] | None, dict[str, bool]]:
    """Return the runs to compare (None: all), and the existing runs with whether they may have weights.

    May run an action that lists the runs.
    """
    chosen = None if runs is None else tuple(map(format_run, to_tuple("runs", format_run(runs))))
    is_named = chosen is not None and (baseline is None or baseline in chosen)
    listed = dict.fromkeys(chosen or (), True) if is_named else _list_runs(tables)
    known = list_known_runs(tables) or tuple(listed)
    for run in chosen or ():
        check_run("run", run, known)
    if baseline is not None:
        check_run("baseline", baseline, known)
    if chosen is not None:
        chosen = add_baseline(chosen, baseline)
        listed = {run: listed.get(run, True) for run in chosen}
    return chosen, listed


class _KnownRules(NamedTuple):
    """Rules of the compared queries: those of each evaluation, their combination, and whether rows have their own."""

    evaluated: list[str]
    text: str
    in_rows: bool


def _combine_known_rules(tables: Tables, runs: Sequence[str], convention: Convention, *, across: bool) -> _KnownRules:
    """Combine the rules that are known before an action, and refuse evaluations whose rules differ."""
    chosen_tables = [table for table, run in tables if run is None or not runs or run in runs]
    evaluated = [table.evaluation.settings.rules for table in chosen_tables if table.evaluation is not None]
    text = combine_rules(evaluated, "the comparison", across=across)
    if len(evaluated) == len(chosen_tables):
        return _KnownRules(evaluated, text or "", False)
    in_rows = bool(evaluated) or any(table.info.has(RULES) for table in chosen_tables)
    default = text or EvaluationSettings.rules_by(convention)
    return _KnownRules(evaluated, default if in_rows else "", in_rows)


def add_baseline(runs: Sequence[str], baseline: str | None) -> tuple[str, ...]:
    """Add the baseline in front of the runs if it is not one of them."""
    return (*runs,) if baseline is None or baseline in runs else (baseline, *runs)


def format_run(run: Any) -> Any:
    """Return a whole number as text, since results name runs as text; return other values unchanged."""
    return run if isinstance(run, bool) or not isinstance(run, Integral) else str(run)


def list_known_runs(tables: Tables) -> tuple[str, ...] | None:
    """List the runs without reading rows; None if a run column holds them."""
    if not tables or tables[0][1] is not None:
        return tuple(run for _, run in tables if run is not None)
    table = tables[0][0]
    if table.evaluation is not None:
        return list_evaluated_runs(table.evaluation.settings)
    return None if table.info.has("run") else ()


def list_evaluated_runs(settings: EvaluationSettings) -> tuple[str, ...] | None:
    """List the runs of an evaluation; None if a run column holds them."""
    if settings.columns.runs:
        return settings.columns.runs
    return None if settings.columns.run is not None else ("",)


def check_run(label: str, run: str, known: tuple[str, ...]) -> None:
    """Raise unless `run` is one of the known runs; `label` names the option that the user set."""
    if not known:
        raise InputRefusedError(f"there is no run {run!r} to compare: the input has no rows.")
    if known == ("",) and run:
        raise InvalidParameterError(
            f"the input has one run without a name; two runs need {option('run')} or {option('score')}, or two "
            f"columns of {option('ranked')}."
        )
    check_choice(label, run, known)


def _list_runs(tables: Tables) -> dict[str, bool]:
    """List the runs, by an action if a run column holds them, with whether they may have stored weights."""
    known = list_known_runs(tables)
    return tables[0][0].runs() if known is None else dict.fromkeys(known, True)


def _have_weights(tables: Tables) -> bool:
    """Return True if all tables have a weight column, False if none has; refuse a mixture."""
    weighted = {
        run: table.info.has(STORED_WEIGHT)
        if table.evaluation is None
        else table.evaluation.settings.columns.weight is not None
        for table, run in tables
    }
    if len(set(weighted.values())) > 1:
        has, lacks = (
            next(run for run, has_weight in weighted.items() if has_weight is expected) for expected in (True, False)
        )
        raise InputRefusedError(
            f"the table of run {has!r} has stored weights and that of run {lacks!r} has none; {UNWEIGHTED}."
        )
    return any(weighted.values())


def _choose_metrics(
    names: str | Sequence[str] | None,
    k: int | str | Sequence[int | str | None] | None,
    evaluated: Sequence[EvaluationSettings],
    tables: Tables,
) -> tuple[MetricAt, ...]:
    """Choose the metrics to compare; `dcg` is added to the default `ndcg`."""
    if names is not None:
        metrics = parse_metrics(names, k)
        computed = evaluated[0].computed if evaluated else ()
        for metric in dict.fromkeys(
            metric_at.metric for metric_at in metrics if isinstance(metric_at.metric, Metric)
        ):
            evaluated_ks, ks = (
                [metric_at.k for metric_at in some_metrics if metric_at.metric == metric]
                for some_metrics in (computed, metrics)
            )
            if evaluated_ks and EVERY not in ks and set(ks).isdisjoint(evaluated_ks):
                raise InvalidParameterError(
                    f"{str(metric)!r} was evaluated at k={labels.cutoffs(evaluated_ks)}; got k={labels.cutoffs(ks)}."
                )
        return metrics
    if not evaluated:
        metrics = parse_metrics(None, k)
        has_dcg = all("dcg" in table.info.names for table, _ in tables)
        return (*metrics, *(MetricAt(parse_metric("dcg")[0], metric_at.k) for metric_at in metrics if has_dcg))
    common = _intersect_metrics(evaluated, k)
    if not common:
        raise InvalidParameterError(f"k={k!r} is not one of the cutoffs that were evaluated.")
    return common


def _intersect_metrics(
    evaluated: Sequence[EvaluationSettings], k: int | str | Sequence[int | str | None] | None
) -> tuple[MetricAt, ...]:
    """Return the per-query metrics and cutoffs that all evaluations have, without `idcg`."""
    shown = [
        [metric_at for metric_at in settings.computed if metric_at.shown and isinstance(metric_at.metric, Metric)]
        for settings in evaluated
    ]
    common = [
        metric_at
        for metric_at in shown[0]
        if metric_at.metric.name != "idcg" and all(metric_at in metrics for metrics in shown)
    ]
    if not common:
        raise InvalidParameterError(
            f"the evaluations have no per-query metric at a common cutoff; choose {option('metrics')} and "
            f"{option('k')} of the evaluations so that they share one."
        )
    if k is not None:
        ks = parse_cutoffs(k)
        return tuple(metric_at for metric_at in common if metric_at.k in ks)
    if evaluated[0].metrics:
        return tuple(common)
    partly = {metric_at.metric for metrics in shown for metric_at in metrics if metric_at not in common}
    return in_order(metric_at if metric_at.metric in partly else replace(metric_at, k=EVERY) for metric_at in common)

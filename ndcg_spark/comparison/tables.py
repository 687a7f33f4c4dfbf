"""What is compared, whichever engine reads it: metrics of queries, and the settings that fit them and the options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

from ndcg_spark.comparison.plan import STORED_WEIGHT, QueriesPlan, plan_queries
from ndcg_spark.comparison.settings import ComparisonSettings, compared_metrics
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
    """Metrics of queries: a table of them, or those of an evaluation. Each engine has its own kind.

    Only a table is cut to a night or a run; evaluations raise there.
    """

    @property
    @abstractmethod
    def evaluation(self) -> Results | None:
        """The evaluation, if it is one."""

    @property
    @abstractmethod
    def info(self) -> TableInfo:
        """What the columns are."""

    @abstractmethod
    def runs(self) -> dict[str, bool]:
        """List the runs of the run column, and whether rows of each have a stored weight. Reads it."""

    def computed_at(self) -> datetime | None:
        """Newest time at which rows of a stored table were computed, if it has that. Reads the column."""
        raise NotImplementedError

    def with_runs(self, column: str, name: str) -> QueryTable:
        """Take another column, as text, for the run column; `name` is the run of a table without it."""
        raise NotImplementedError

    def of_slice(self, name: str, night: date | None, dataset: str | None, otherwise: str = "") -> QueryTable:
        """Rows of one night and data set, as from `select_slice`; messages call the table `name`."""
        raise NotImplementedError

    def of_run(self, run: str) -> QueryTable:
        """Rows of one run; all of a table without a run column."""
        raise NotImplementedError


Tables: TypeAlias = Sequence[tuple[QueryTable, str | None]]
"""Tables with the runs that they hold; None for a single one, whose run column tells."""


def choose_tables(tables: Tables, settings: ComparisonSettings) -> Tables:
    """Leave out the tables of runs that are not compared."""
    return [(one, run) for one, run in tables if run is None or run in settings.runs]


def plan_tables(tables: Tables, settings: ComparisonSettings) -> list[QueriesPlan]:
    """Plan how the tables that are compared are read; raise for all that is wrong with their columns."""
    return plan_queries([(one.info, run) for one, run in choose_tables(tables, settings)], settings)


def comparison_settings(
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
    evaluated = [one.evaluation.settings for one, _ in tables if one.evaluation is not None]
    first = evaluated[0] if evaluated else None
    baseline = None if baseline is None else run_text(baseline)
    if convention is None and first is not None:
        convention = first.convention
    used = convention if isinstance(convention, Convention) else Convention.parse(convention or "default")
    if first is not None:
        query = first.columns.query if query is None else query
        require_query(first)
        segments = ["+".join(one) for one in first.segment_sets] if segments is None else segments
    names, listed = _named_runs(tables, baseline, runs)
    weight = options.pop("weight", None)
    if weight is None and any(listed.values()) and _has_weight(tables):
        weight = STORED_WEIGHT
    compared = _metrics(metrics, k, evaluated, tables)
    rules = _rules(tables, () if names is None else names, used, across=options.get("across_rules", False))
    usual = "drop" if len({read_rules(text)["sample"] for text in rules.evaluated}) > 1 else used.missing_query
    return ComparisonSettings(
        runs=tuple(listed) if names is None else names,
        baseline=baseline,
        metrics=compared,
        weight=weight or None,
        query=(query,) if isinstance(query, str) else ("query_id",) if query is None else tuple(query),
        segment_sets=parse_segment_sets(segments or ()),
        same_ideal=used.ideal == "judged",
        skips_no_relevant=used.no_relevant == "skip",
        rules=rules.text,
        rules_in_rows=rules.in_rows,
        **{**options, "unpaired": options.get("unpaired") or usual},
    )


def _named_runs(
    tables: Tables, baseline: str | None, runs: str | int | Sequence[str | int] | None
) -> tuple[tuple[str, ...] | None, dict[str, bool]]:
    """Runs to compare, None for all; and those there are, with whether they may have weights. May list them."""
    names = None if runs is None else tuple(map(run_text, to_tuple("runs", run_text(runs))))
    is_named = names is not None and (baseline is None or baseline in names)
    listed = dict.fromkeys(names or (), True) if is_named else _runs(tables)
    known = known_runs(tables) or tuple(listed)
    for run in names or ():
        one_of_runs("run", run, known)
    if baseline is not None:
        one_of_runs("baseline", baseline, known)
    if names is not None:
        names = with_baseline(names, baseline)
        listed = {run: listed.get(run, True) for run in names}
    return names, listed


class _Rules(NamedTuple):
    """Rules of the queries that are compared: those of evaluations; what is known of all; whether rows say more."""

    evaluated: list[str]
    text: str
    in_rows: bool


def _rules(tables: Tables, names: Sequence[str], convention: Convention, *, across: bool) -> _Rules:
    """Look at what is known before anything runs, and refuse two rules of evaluations."""
    chosen = [one for one, run in tables if run is None or not names or run in names]
    evaluated = [one.evaluation.settings.rules for one in chosen if one.evaluation is not None]
    text = combine_rules(evaluated, "the comparison", across=across)
    if len(evaluated) == len(chosen):
        return _Rules(evaluated, text or "", False)
    in_rows = bool(evaluated) or any(one.info.has(RULES) for one in chosen)
    usual = text or EvaluationSettings.rules_by(convention)
    return _Rules(evaluated, usual if in_rows else "", in_rows)


def with_baseline(runs: Sequence[str], baseline: str | None) -> tuple[str, ...]:
    """Runs that were chosen, and the one that they are compared with."""
    return (*runs,) if baseline is None or baseline in runs else (baseline, *runs)


def run_text(run: Any) -> Any:
    """Name of a run as results have it, which is text, where it was given as a value of a run column of numbers."""
    return run if isinstance(run, bool) or not isinstance(run, Integral) else str(run)


def known_runs(tables: Tables) -> tuple[str, ...] | None:
    """Name the runs, without reading rows; None where a run column holds their names."""
    if not tables or tables[0][1] is not None:
        return tuple(run for _, run in tables if run is not None)
    table = tables[0][0]
    if table.evaluation is not None:
        return evaluated_runs(table.evaluation.settings)
    return None if table.info.has("run") else ()


def evaluated_runs(settings: EvaluationSettings) -> tuple[str, ...] | None:
    """Name the runs of an evaluation; None where a run column holds their names."""
    if settings.columns.runs:
        return settings.columns.runs
    return None if settings.columns.run is not None else ("",)


def one_of_runs(name: str, run: str, known: tuple[str, ...]) -> None:
    """Raise unless `run` is one of the runs there are; `name` is what it is called where the user wrote it."""
    if not known:
        raise InputRefusedError(f"there is no run {run!r} to compare: the input has no rows.")
    if known == ("",) and run:
        raise InvalidParameterError(
            f"the input has one run without a name; two runs need {option('run')} or {option('score')}, or two "
            f"columns of {option('ranked')}."
        )
    check_choice(name, run, known)


def _runs(tables: Tables) -> dict[str, bool]:
    """Names of the runs, those of a run column by reading it; and whether queries may have stored weights."""
    known = known_runs(tables)
    return tables[0][0].runs() if known is None else dict.fromkeys(known, True)


def _has_weight(tables: Tables) -> bool:
    """Whether the tables have weights, by their schemas: all of them or none."""
    weighted = {
        run: one.info.has(STORED_WEIGHT)
        if one.evaluation is None
        else one.evaluation.settings.columns.weight is not None
        for one, run in tables
    }
    if len(set(weighted.values())) > 1:
        has, lacks = (next(run for run, its in weighted.items() if its is whether) for whether in (True, False))
        raise InputRefusedError(
            f"the table of run {has!r} has stored weights and that of run {lacks!r} has none; {UNWEIGHTED}."
        )
    return any(weighted.values())


def _metrics(
    names: str | Sequence[str] | None,
    k: int | str | Sequence[int | str | None] | None,
    evaluated: Sequence[EvaluationSettings],
    tables: Tables,
) -> tuple[MetricAt, ...]:
    """Choose the metrics to compare; `dcg` comes beside `ndcg` without being asked for."""
    if names is not None:
        chosen = compared_metrics(names, k)
        computed = evaluated[0].computed if evaluated else ()
        for metric in dict.fromkeys(one.metric for one in chosen if isinstance(one.metric, Metric)):
            there, at = ([one.k for one in metrics if one.metric == metric] for metrics in (computed, chosen))
            if there and EVERY not in at and set(at).isdisjoint(there):
                raise InvalidParameterError(
                    f"{str(metric)!r} was evaluated at k={labels.cutoffs(there)}; got k={labels.cutoffs(at)}."
                )
        return chosen
    if not evaluated:
        chosen = compared_metrics(None, k)
        has_dcg = all("dcg" in one.info.names for one, _ in tables)
        return (*chosen, *(MetricAt(parse_metric("dcg")[0], one.k) for one in chosen if has_dcg))
    common = _common_metrics(evaluated, k)
    if not common:
        raise InvalidParameterError(f"k={k!r} is none of the cutoffs that were evaluated.")
    return common


def _common_metrics(
    evaluated: Sequence[EvaluationSettings], k: int | str | Sequence[int | str | None] | None
) -> tuple[MetricAt, ...]:
    """Metrics of queries, without `idcg`, that all evaluations have, each at the cutoffs that all of them have."""
    shown = [
        [one for one in settings.computed if one.shown and isinstance(one.metric, Metric)] for settings in evaluated
    ]
    common = [one for one in shown[0] if one.metric.name != "idcg" and all(one in metrics for metrics in shown)]
    if not common:
        raise InvalidParameterError(
            f"nothing can be compared: no metric of queries was evaluated at one cutoff in all runs; choose "
            f"{option('metrics')} and {option('k')} of the evaluations so that they share one."
        )
    if k is not None:
        at = parse_cutoffs(k)
        return tuple(one for one in common if one.k in at)
    if evaluated[0].metrics:
        return tuple(common)
    partly = {one.metric for metrics in shown for one in metrics if one not in common}
    return in_order(one if one.metric in partly else replace(one, k=EVERY) for one in common)

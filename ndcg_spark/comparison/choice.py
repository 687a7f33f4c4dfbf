"""Which runs of per-query tables are compared, and whether their queries weigh. It runs actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.comparison.api import with_baseline
from ndcg_spark.comparison.frames import runs_in
from ndcg_spark.comparison.settings import ComparisonJobSettings
from ndcg_spark.core.expressions import has_column, named, require_column
from ndcg_spark.errors import InputRefusedError, InvalidParameterError, option
from ndcg_spark.sources.nights import one_slice

if TYPE_CHECKING:
    from ndcg_spark.comparison.api import Tables

PER_QUERY, BASELINE = "--per-query", "--baseline-per-query"
_BY_QUERY = "choose one by a query (run_date = ...), or of a folder by its part (run_date=...)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What is compared; `names` are the runs of a table to take (None: all), `weight` is as for `compare`."""

    runs: Tables
    names: tuple[str, ...] | None
    weight: str | None


def choose_runs(
    frames: Sequence[DataFrame], settings: ComparisonJobSettings, *, night: date | None, dataset: str | None
) -> Chosen:
    """Choose the runs to compare among those that per-query tables have.

    The table of the baseline is the second of `frames`, if it has one. Refused are runs that the tables do not have,
    and runs of which only some have stored weights.

    Spark cost: a scan of the columns `run` and `weight` of each table, and one each of `run_date` and
    `dataset`, if there.
    """
    frame, *others = frames
    frame = one_slice(frame, PER_QUERY, night=night, dataset=dataset)
    if not others:
        require_column(frame, settings.run_column, option("run"), "per-query table")
        table, held = _listed(frame, settings.run_column, "")
        names = with_baseline(settings.chosen.runs or tuple(held), settings.chosen.baseline)
        _require(names, held, PER_QUERY, night)
        return Chosen(runs=table, names=names, weight=_weight(settings, {run: held[run] for run in names}))
    baseline, (its_rows, has_weight) = str(settings.chosen.baseline), _baseline(others[0], settings, dataset)
    asked = tuple(run for run in settings.chosen.runs or () if run != baseline) or settings.chosen.runs or ()
    table, held = _listed(frame, settings.run_column, asked[0] if len(asked) == 1 else "")
    names = asked or tuple(held)
    _require(names, held, PER_QUERY, night)
    if baseline in names:
        raise InvalidParameterError(
            f"{PER_QUERY} has a run {baseline!r}, too, which is the name of the baseline; choose other runs by "
            "--runs, or name the baseline otherwise by --baseline."
        )
    runs = {baseline: its_rows, **{run: table.where(named("run") == run) for run in names}}
    weighted = {baseline: has_weight, **{run: held[run] for run in names}}
    return Chosen(runs=runs, names=None, weight=_weight(settings, weighted))


def _listed(frame: DataFrame, run_column: str, name: str) -> tuple[DataFrame, dict[str, bool]]:
    """A table with the column `run`, its runs, and whether they have weights. `name`: of a table without runs."""
    has_runs = has_column(frame, run_column)
    column = named(run_column).cast("string") if has_runs else F.lit(name)
    table = frame if run_column == "run" and has_runs else frame.withColumn("run", column)
    return table, runs_in(table)


def _baseline(frame: DataFrame, settings: ComparisonJobSettings, dataset: str | None) -> tuple[DataFrame, bool]:
    """Rows of the baseline in a table of its own, and whether they have weights."""
    # Its night is seldom that of the results.
    frame = one_slice(frame, BASELINE, night=None, dataset=dataset, chosen_otherwise=_BY_QUERY)
    table, held = _listed(frame, settings.run_column, "")
    if not held:
        raise InputRefusedError(f"{BASELINE} has no rows; is the night in it?")
    if len(held) == 1:
        return table, next(iter(held.values()))
    name = str(settings.chosen.baseline)
    if name not in held:
        raise InputRefusedError(
            f"{BASELINE} has several runs, {_listing(held)}; name one of them by --baseline, or choose its rows by a "
            "query."
        )
    return table.where(named("run") == name), held[name]


def _require(names: Sequence[str], held: Mapping[str, bool], flag: str, night: date | None) -> None:
    if not held:
        raise InputRefusedError(f"{flag} has no rows; is the night in it?")
    lacking = [run for run in names if run not in held]
    if lacking:
        of_night = "" if night is None else f" of the night {night}"
        raise InvalidParameterError(
            f"{flag} has no rows of run {lacking[0]!r}{of_night}; its runs are {_listing(held)}."
        )


def _weight(settings: ComparisonJobSettings, weighted: Mapping[str, bool]) -> str | None:
    """Column of the weights: the one that was named, or the stored one if the runs have it."""
    asked: str | None = settings.of_queries["weight"]
    if asked is not None or all(weighted.values()):
        return asked
    if any(weighted.values()):
        has, lacks = ([run for run, its in weighted.items() if its is whether] for whether in (True, False))
        raise InputRefusedError(
            f"{_listing(has)} {'has' if len(has) == 1 else 'have'} stored weights, and {_listing(lacks)} "
            f"{'has' if len(lacks) == 1 else 'have'} none; --weight-col '' compares without weights."
        )
    return ""


def _listing(names: Sequence[str] | Mapping[str, bool]) -> str:
    return ", ".join(map(repr, names))

"""The work of the position-bias commands. Methods named `run` run actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.clicks import frames
from ndcg_spark.clicks.settings import PropensitySettings, WeightSettings
from ndcg_spark.core import labels
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.jobs.outputs import summarize_rejected
from ndcg_spark.jobs.runner import Job, Line, Outcome, Work
from ndcg_spark.tables import Rows

S = TypeVar("S", bound=PropensitySettings | WeightSettings)
MAX_PRINTED = 50
"""Number of printed positions and groups; `--output` and `--json` have all."""
MAX_WARNED = 10
"""Number of positions that a warning names."""
NO_FIT: dict[str, Any] = {
    "method": None, "positions": [], "n_patterns": 0, "n_fitted": 0, "n_iterations": None, "converged": None,
    "log_likelihood": None,
}  # fmt: skip
"""A fit without impressions."""


class _ClickWork(Work[S]):
    """Makes `MAKES` from impressions."""

    MAKES: str

    def __init__(self, job: Job[S]) -> None:
        super().__init__(job)
        self.table, self.propensities = self.tables["input"], self.tables.get("propensities")
        self.frame = self.table.frame
        self.propensity_frame = self.propensities.frame if self.propensities else None
        self.name = self.table.name + (f" weighted by {self.propensities.name}" if self.propensities else "")
        self.output = self._make()

    @abstractmethod
    def _make(self) -> DataFrame:
        """Build the lazy DataFrame of the output."""

    @abstractmethod
    def _read_impressions(self) -> frames.Impressions:
        """Read the impressions; lazy."""

    @abstractmethod
    def _collect(self) -> tuple[DataFrame, int, dict[str, Any]]:
        """Run the action: return rows to write, the number of impressions, and facts."""

    @abstractmethod
    def _iterate_lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        """Yield the lines to print."""

    @abstractmethod
    def _describe(self) -> Sequence[tuple[str, str]]:
        """Describe the method and its cost."""

    def _build_table(self, output: DataFrame) -> DataFrame:
        """Build the rows to write; lazy. Slices are named by data set and run."""
        return output.withColumn("run", F.lit(""))

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        return {
            "impressions": frames.check_impressions(
                self._read_impressions(), self.settings.columns, originals=originals
            )
        }

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": self._build_table(self.output).schema}

    def run(self) -> Outcome:
        """Run an action: make the output."""
        input_counts, allows = self.job.count_bad_rows(), self.request.shared.allow_empty
        with self.job.step("judging" if self.MAKES == "judgments" else f"computing {self.MAKES}"):
            output, n_impressions, described = self._collect()
        if not n_impressions and not allows:
            raise InputRefusedError(
                f"there are no impressions to make {self.MAKES} from; nothing was written (--allow-empty replaces "
                "the existing rows by none)."
            )
        facts = {
            "makes": self.MAKES,
            "rows": {"impressions": n_impressions, **summarize_rejected(input_counts)},
            **self.build_provenance(input=self.name),
            **described,
        }
        runs = sorted({estimate["run"] for estimate in described.get("estimates", [])}) or [""]
        slices = self.job.build_slices(runs, may_be_empty=[""] if allows else [])
        rows = Rows(frame=self._build_table(output), slices=slices)
        return Outcome(facts=facts, tables={"output": rows}, lines=self._iterate_report(facts))

    def _iterate_report(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        yield from self._iterate_lines(facts)
        rows = facts["rows"]
        yield f"impressions: {rows['impressions']:,} used, {rows['rejected']:,} rejected"
        yield from self._iterate_warnings(facts)

    def _iterate_warnings(self, facts: Mapping[str, Any]) -> Iterator[str]:
        yield from ()

    def explain(self) -> Sequence[tuple[str, str]]:
        lines = (("input", self.name), ("makes", self.MAKES), *self._describe())
        return (*lines, ("bad rows", self.request.on_invalid))


class Propensities(_ClickWork[PropensitySettings]):
    """Fits propensities of positions."""

    MAKES = "propensities"

    def _make(self) -> DataFrame:
        return frames.fit_impressions(self.frame, self.settings)

    def _read_impressions(self) -> frames.Impressions:
        return frames.read_counted_impressions(self.frame, self.settings)

    def _build_table(self, output: DataFrame) -> DataFrame:
        return super()._build_table(frames.list_propensities(output))

    def _collect(self) -> tuple[DataFrame, int, dict[str, Any]]:
        rows = self.output.collect()
        frame = self.job.spark.createDataFrame(rows, self.output.schema).coalesce(1)
        fitted: dict[str, Any] = rows[0].asDict(recursive=True) if rows else NO_FIT
        return frame, sum(position["n_impressions"] for position in fitted["positions"]), fitted

    def _iterate_lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        for position in facts["positions"][:MAX_PRINTED]:
            yield (
                f"position {position['position']}: {labels.number(position['propensity'], '.6f')} "
                f"({position['n_clicks']:,} clicks of {position['n_impressions']:,} impressions)"
            )
        if len(facts["positions"]) > MAX_PRINTED:
            yield f"... and {len(facts['positions']) - MAX_PRINTED} more; --output and --json have all of them."
        trace = facts["log_likelihood"] or []
        yield from (f"log-likelihood after step {step:,}: {trace[step]:,.6f}" for step in _choose_steps(len(trace)))
        if trace:
            end = "converged" if facts["converged"] else "not converged"
            yield f"EM: {end} after {facts['n_iterations']:,} steps"
        if facts["n_fitted"] < facts["n_patterns"]:
            yield (
                f"EM: fitted to a sample of {facts['n_fitted']:,} of {facts['n_patterns']:,} different counts of "
                "(query, item), which has all frequent ones"
            )

    def _iterate_warnings(self, facts: Mapping[str, Any]) -> Iterator[str]:
        above = [position for position in facts["positions"] if position["reason"] == "above_1"]
        if above:
            texts = [f"{position['position']} ({position['ratio']:.4f})" for position in above]
            yield f"warning: estimated above 1, so set to 1, at position {labels.join_names(texts, MAX_WARNED)}"
        missing = [position for position in facts["positions"] if position["propensity"] is None]
        if missing:
            texts = [f"{position['position']} ({position['reason']})" for position in missing]
            shown = labels.join_names(texts, MAX_WARNED)
            yield f"warning: no propensity for position {shown}; impressions there will be bad rows"
        if facts["converged"] is False and facts["log_likelihood"]:
            yield (
                f"warning: EM has not converged in {facts['n_iterations']:,} steps; raise --max-iter or --tolerance."
            )

    def _describe(self) -> Sequence[tuple[str, str]]:
        settings = self.settings
        until = f"until no propensity moves by {settings.tolerance:g}, at most {settings.max_iter:,} steps"
        return (
            ("method", settings.method),
            *([("EM", until)] if settings.method == "pbm" else []),
            ("cost", "three shuffles of counts, one task in a Python worker"),
        )


def _choose_steps(n: int) -> list[int]:
    """Return the steps to print: 0, 1, 2, 5, 10, 20, 50, ... and the last; the JSON has all of them."""
    round_steps = [0, *(digit * 10**power for power in range(7) for digit in (1, 2, 5))]
    return [step for step in round_steps if step < n - 1] + ([n - 1] if n else [])


class _WeightedClickWork(_ClickWork[WeightSettings]):
    """Makes `MAKES` from impressions that are weighted by inverse propensities."""

    COST: str

    def _read_impressions(self) -> frames.Impressions:
        return frames.read_weighted_impressions(self.frame, self.settings, self.propensity_frame)

    def _describe(self) -> Sequence[tuple[str, str]]:
        settings, table = self.settings, self.request.sources.get("propensities")
        formula = "" if settings.power is None else f"1 / position^{settings.power:g}"
        source = settings.columns.propensity or (formula if table is None else table.reference)
        clip = "none" if settings.clip is None else f"{settings.clip:g}"
        return ("propensity", source), ("clip", clip), ("cost", self.COST)


class Judgments(_WeightedClickWork):
    """Labels items by clicks."""

    MAKES, COST = "judgments", "one shuffle of sums, in Spark SQL"

    def _make(self) -> DataFrame:
        return frames.judge_impressions(self.frame, self.settings, self.propensity_frame)

    def _collect(self) -> tuple[DataFrame, int, dict[str, Any]]:
        self.job.persist(self.output)
        aggregates = [F.count(F.lit(1)).alias("judgments"), F.max("largest_weight").alias("largest_weight")]
        aggregates += [F.sum(column).alias(column) for column in ("n_impressions", "n_clipped")]
        (row,) = self.output.agg(*aggregates).collect()
        facts = {column: 0 if value is None else value for column, value in row.asDict().items()}
        return self.output, facts.pop("n_impressions"), facts

    def _iterate_lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        yield f"judgments: {facts['judgments']:,}"
        yield f"weights: at most {facts['largest_weight']:g}, {facts['n_clipped']:,} impressions clipped"


class Estimates(_WeightedClickWork):
    """Estimates clicks per query."""

    MAKES = "estimates"
    COST = "one shuffle of sums (two with segments), one pass of queries through Python workers"

    def _make(self) -> DataFrame:
        return frames.estimate_impressions(self.frame, self.settings, self.propensity_frame)

    def _build_table(self, output: DataFrame) -> DataFrame:
        return output

    def _collect(self) -> tuple[DataFrame, int, dict[str, Any]]:
        rows = self.output.collect()
        estimates_rows = [row.asDict(recursive=True) for row in rows]
        estimates_rows.sort(key=labels.segment_order)
        total = sum(row["n_impressions"] for row in estimates_rows if not row["segment_by"])
        estimates = [{name: value for name, value in row.items() if name != "state"} for row in estimates_rows]
        frame = self.job.spark.createDataFrame(rows, self.output.schema).coalesce(1)
        return frame, total, {"estimates": estimates}

    def _iterate_lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        for row in facts["estimates"][:MAX_PRINTED]:
            run = f"run={row['run']} " if row["run"] else ""
            estimates = {name: labels.estimate(row, name, f"{name}_ci_", ".6f") for name in ("ips", "snips")}
            values = "  ".join(f"{name} {estimate}" for name, estimate in estimates.items())
            n_eff = labels.number(row["n_eff"], ".1f")
            yield f"{run}{labels.segment(row)} queries={row['n_queries']}  {values}  n_eff {n_eff}"
        if len(facts["estimates"]) > MAX_PRINTED:
            yield f"... and {len(facts['estimates']) - MAX_PRINTED} more; --output and --json have all of them."
        if any(row["snips_reason"] for row in facts["estimates"]):
            yield (
                "no SNIPS: these are propensities of positions; SNIPS needs propensities of showing an item "
                "(--propensity-of action)."
            )

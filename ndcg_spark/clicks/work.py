"""What the commands about position bias do with their tables. What is called `run` runs actions."""

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
MOST_SHOWN = 50
"""Positions and groups that are printed; `--output` and `--json` have all."""
NO_FIT: dict[str, Any] = {
    "method": None, "positions": [], "n_patterns": 0, "n_fitted": 0, "n_iterations": None, "converged": None,
    "log_likelihood": None,
}  # fmt: skip
"""A fit to nothing."""


class _OfClicks(Work[S]):
    """Making `MAKES` of impressions."""

    MAKES: str

    def __init__(self, job: Job[S]) -> None:
        super().__init__(job)
        self.table, self.propensities = self.tables["input"], self.tables.get("propensities")
        self.frame = self.table.frame
        self.given = self.propensities.frame if self.propensities else None
        self.name = self.table.name + (f" weighted by {self.propensities.name}" if self.propensities else "")
        self.made = self._made()

    @abstractmethod
    def _made(self) -> DataFrame:
        """Make it; lazy."""

    @abstractmethod
    def _impressions(self) -> frames.Impressions:
        """Read the impressions; lazy."""

    @abstractmethod
    def _counted(self) -> tuple[DataFrame, int, dict[str, Any]]:
        """Run the action: return rows to write, the number of impressions, and facts."""

    @abstractmethod
    def _lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        """Lines that are printed."""

    @abstractmethod
    def _about(self) -> Sequence[tuple[str, str]]:
        """How it is made, and what it costs."""

    def _stored(self, made: DataFrame) -> DataFrame:
        """Rows to write; lazy. Slices are named by data set and run."""
        return made.withColumn("run", F.lit(""))

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        return {
            "impressions": frames.checked_impressions(self._impressions(), self.settings.columns, originals=originals)
        }

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": self._stored(self.made).schema}

    def run(self) -> Outcome:
        """Make it. Run an action."""
        accounts, allows = self.job.count_bad_rows(), self.request.shared.allow_empty
        with self.job.step("judging" if self.MAKES == "judgments" else f"computing {self.MAKES}"):
            made, n_impressions, described = self._counted()
        if not n_impressions and not allows:
            raise InputRefusedError(
                f"there are no impressions to make {self.MAKES} of; nothing was written (--allow-empty writes that "
                "over what was there)."
            )
        facts = {
            "makes": self.MAKES,
            "rows": {"impressions": n_impressions, **summarize_rejected(accounts)},
            **self.stamp(input=self.name),
            **described,
        }
        runs = sorted({one["run"] for one in described.get("estimates", [])}) or [""]
        slices = self.job.build_slices(runs, empty=[""] if allows else [])
        rows = Rows(frame=self._stored(made), slices=slices)
        return Outcome(facts=facts, tables={"output": rows}, lines=self._said(facts))

    def _said(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        yield from self._lines(facts)
        rows = facts["rows"]
        yield f"impressions: {rows['impressions']:,} used, {rows['rejected']:,} rejected"
        yield from self._warned(facts)

    def _warned(self, facts: Mapping[str, Any]) -> Iterator[str]:
        yield from ()

    def explain(self) -> Sequence[tuple[str, str]]:
        about = (("input", self.name), ("makes", self.MAKES), *self._about())
        return (*about, ("bad rows", self.request.on_invalid))


class Propensities(_OfClicks[PropensitySettings]):
    """Fit propensities of positions."""

    MAKES = "propensities"

    def _made(self) -> DataFrame:
        return frames.fitted_propensities(self.frame, self.settings)

    def _impressions(self) -> frames.Impressions:
        return frames.counted_impressions(self.frame, self.settings)

    def _stored(self, made: DataFrame) -> DataFrame:
        return super()._stored(frames.propensity_table(made))

    def _counted(self) -> tuple[DataFrame, int, dict[str, Any]]:
        rows = self.made.collect()
        frame = self.job.spark.createDataFrame(rows, self.made.schema).coalesce(1)
        fitted: dict[str, Any] = rows[0].asDict(recursive=True) if rows else NO_FIT
        return frame, sum(one["n_impressions"] for one in fitted["positions"]), fitted

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        for one in facts["positions"][:MOST_SHOWN]:
            yield (
                f"position {one['position']}: {labels.number(one['propensity'], '.6f')} "
                f"({one['n_clicks']:,} clicks of {one['n_impressions']:,} impressions)"
            )
        if len(facts["positions"]) > MOST_SHOWN:
            yield f"... and {len(facts['positions']) - MOST_SHOWN} more; --output and --json have all of them."
        trace = facts["log_likelihood"] or []
        yield from (f"log-likelihood after step {step:,}: {trace[step]:,.6f}" for step in _some_steps(len(trace)))
        if trace:
            end = "converged" if facts["converged"] else "not converged"
            yield f"EM: {end} after {facts['n_iterations']:,} steps"
        if facts["n_fitted"] < facts["n_patterns"]:
            yield (
                f"EM: fitted to a sample of {facts['n_fitted']:,} of {facts['n_patterns']:,} different counts of "
                "(query, item), which has all frequent ones"
            )

    def _warned(self, facts: Mapping[str, Any]) -> Iterator[str]:
        above = [one for one in facts["positions"] if one["reason"] == "above_1"]
        if above:
            listed = _listed([f"{one['position']} ({one['ratio']:.4f})" for one in above])
            yield f"warning: estimated above 1, so 1 is taken, at position {listed}"
        missing = [one for one in facts["positions"] if one["propensity"] is None]
        if missing:
            listed = _listed([f"{one['position']} ({one['reason']})" for one in missing])
            yield f"warning: no propensity for position {listed}; impressions there will be bad rows"
        if facts["converged"] is False and facts["log_likelihood"]:
            yield (
                f"warning: EM has not converged in {facts['n_iterations']:,} steps; --max-iter allows more, "
                "--tolerance asks for less."
            )

    def _about(self) -> Sequence[tuple[str, str]]:
        settings = self.settings
        until = f"until no propensity moves by {settings.tolerance:g}, at most {settings.max_iter:,} steps"
        return (
            ("method", settings.method),
            *([("EM", until)] if settings.method == "pbm" else []),
            ("cost", "three shuffles of counts, one task in a Python worker"),
        )


def _listed(texts: list[str]) -> str:
    more = len(texts) - 10
    return ", ".join(texts[:10]) + (f" and {more:,} more" if more > 0 else "")


def _some_steps(n: int) -> list[int]:
    """Steps 0, 1, 2, 5, 10, 20, 50, ... and the last; the JSON has all of them."""
    round_steps = [0, *(digit * 10**power for power in range(7) for digit in (1, 2, 5))]
    return [step for step in round_steps if step < n - 1] + ([n - 1] if n else [])


class _Weighing(_OfClicks[WeightSettings]):
    """Making something of impressions that are weighted by inverse propensities."""

    COST: str

    def _impressions(self) -> frames.Impressions:
        return frames.weighted_impressions(self.frame, self.settings, self.given)

    def _about(self) -> Sequence[tuple[str, str]]:
        settings, table = self.settings, self.request.sources.get("propensities")
        formula = "" if settings.power is None else f"1 / position^{settings.power:g}"
        source = settings.columns.propensity or (formula if table is None else table.reference)
        clip = "none" if settings.clip is None else f"{settings.clip:g}"
        return ("propensity", source), ("clip", clip), ("cost", self.COST)


class Judgments(_Weighing):
    """Label items by clicks."""

    MAKES, COST = "judgments", "one shuffle of sums, in Spark SQL"

    def _made(self) -> DataFrame:
        return frames.judged_impressions(self.frame, self.settings, self.given)

    def _counted(self) -> tuple[DataFrame, int, dict[str, Any]]:
        self.job.persist(self.made)
        counted = [F.count(F.lit(1)).alias("judgments"), F.max("largest_weight").alias("largest_weight")]
        counted += [F.sum(name).alias(name) for name in ("n_impressions", "n_clipped")]
        (row,) = self.made.agg(*counted).collect()
        found = {name: 0 if value is None else value for name, value in row.asDict().items()}
        return self.made, found.pop("n_impressions"), found

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        yield f"judgments: {facts['judgments']:,}"
        yield f"weights: at most {facts['largest_weight']:g}, {facts['n_clipped']:,} impressions clipped"


class Estimates(_Weighing):
    """Estimate clicks per query."""

    MAKES = "estimates"
    COST = "one shuffle of sums (two with segments), one pass of queries through Python workers"

    def _made(self) -> DataFrame:
        return frames.propensity_estimates(self.frame, self.settings, self.given)

    def _stored(self, made: DataFrame) -> DataFrame:
        return made

    def _counted(self) -> tuple[DataFrame, int, dict[str, Any]]:
        rows = self.made.collect()
        found = [row.asDict(recursive=True) for row in rows]
        found.sort(key=labels.segment_order)
        total = sum(row["n_impressions"] for row in found if not row["segment_by"])
        estimates = [{name: value for name, value in row.items() if name != "state"} for row in found]
        frame = self.job.spark.createDataFrame(rows, self.made.schema).coalesce(1)
        return frame, total, {"estimates": estimates}

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[Line]:
        for one in facts["estimates"][:MOST_SHOWN]:
            run = f"run={one['run']} " if one["run"] else ""
            estimates = {name: labels.estimate(one, name, f"{name}_ci_", ".6f") for name in ("ips", "snips")}
            values = "  ".join(f"{name} {estimate}" for name, estimate in estimates.items())
            n_eff = labels.number(one["n_eff"], ".1f")
            yield f"{run}{labels.segment(one)} queries={one['n_queries']}  {values}  n_eff {n_eff}"
        if len(facts["estimates"]) > MOST_SHOWN:
            yield f"... and {len(facts['estimates']) - MOST_SHOWN} more; --output and --json have all of them."
        if any(one["snips_reason"] for one in facts["estimates"]):
            yield (
                "no SNIPS: these are propensities of positions, and it needs those of showing an item "
                "(--propensity-of action)."
            )

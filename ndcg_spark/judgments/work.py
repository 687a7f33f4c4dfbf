"""What the commands that make judgments do with their tables. What is called `run` runs actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.jobs.outputs import rejected_counts
from ndcg_spark.jobs.runner import Job, Outcome, Work
from ndcg_spark.judgments import frames
from ndcg_spark.judgments.settings import EventSettings, RatingSettings
from ndcg_spark.tables import Rows

S = TypeVar("S", bound=EventSettings | RatingSettings)


class _Judging(Work[S]):
    """Making judgments of rows of `KIND`, whose `COUNTED` columns account for the rows that were read."""

    KIND: str
    COUNTED: tuple[str, ...]

    def __init__(self, job: Job[S]) -> None:
        super().__init__(job)
        self.table = self.tables["input"]
        self.frame = self.table.frame
        self.judgments = self._made().withColumn("run", F.lit(""))  # slices are named by data set and run

    @abstractmethod
    def _made(self) -> DataFrame:
        """Make judgments; lazy."""

    def _agreement(self, found: list[Row]) -> dict[str, Any]:
        """More facts; `found` are counts by rule."""
        return {}

    @abstractmethod
    def _lines(self, facts: Mapping[str, Any]) -> Iterator[str]:
        """Lines about the rows that were read."""

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": self.judgments.schema, "disputes": self.judgments.schema}

    def run(self) -> Outcome:
        """Judge and count. Run an action, and one more for agreement."""
        accounts = self.job.count_bad_rows()
        self.job.keep(self.judgments)
        with self.job.step("judging"):
            counted = [F.count(F.lit(1)).alias("n"), F.count("relevance").alias("n_judged")]
            counted += [F.sum(name).alias(name) for name in self.COUNTED]
            if "disputed" in self.judgments.columns:
                counted.append(F.count_if(F.col("disputed")).alias("n_disputed"))
            found = self.judgments.groupBy("rule").agg(*counted).orderBy("rule").collect()
            rows = {name.removeprefix("n_"): _total(found, name) for name in self.COUNTED}
            facts = {
                "judgments": _total(found, "n"),
                "judged": _total(found, "n_judged"),
                "by_rule": {row["rule"]: row["n"] for row in found},
                "rows": {**rows, **rejected_counts(accounts)},
                **self.stamp(input=self.table.name),
                **self._agreement(found),
            }
        allows = self.request.shared.allow_empty
        if not facts["judgments"] and not allows:
            raise InputRefusedError(
                f"there are no {self.KIND} to make judgments of; nothing was written (--allow-empty writes that over "
                "what was there)."
            )
        tables = {"output": Rows(frame=self.judgments, slices=self.job.slices(empty=[""] if allows else []))}
        if "disputed" in self.judgments.columns:
            disputes = self.judgments.where("disputed")
            tables["disputes"] = Rows(frame=disputes, slices=self.job.slices(empty=[""]))
        return Outcome(facts=facts, tables=tables, lines=self._said(facts))

    def _said(self, facts: Mapping[str, Any]) -> Iterator[str]:
        by_rule = ", ".join(f"{rule} {n:,}" for rule, n in facts["by_rule"].items()) or "none"
        unjudged = facts["judgments"] - facts["judged"]
        yield f"judgments: {facts['judgments']:,} ({by_rule}), {unjudged:,} of them without relevance"
        yield from self._lines(facts)

    def explanation(self) -> Sequence[tuple[str, str]]:
        return ("input", self.table.name), *self._about(), ("bad rows", self.request.on_invalid)

    @abstractmethod
    def _about(self) -> Sequence[tuple[str, str]]:
        """How rows are judged, and what it costs."""


def _total(found: list[Row], name: str) -> int:
    return sum(row[name] or 0 for row in found)


class FromEvents(_Judging[EventSettings]):
    """Judge by an event log."""

    KIND = "events"
    COUNTED = ("n_events", "n_impressions", "n_duplicates")

    def _made(self) -> DataFrame:
        return frames.judged_events(self.frame, self.settings)

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        reasons = frames.checked_events(self.frame, self.settings, originals=originals)
        return {"events": reasons}

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[str]:
        rows = facts["rows"]
        read = sum(rows[name] for name in ("events", "impressions", "duplicates", "rejected"))
        yield (
            f"events: {read:,} in the window = {rows['events']:,} graded + {rows['impressions']:,} impressions + "
            f"{rows['duplicates']:,} repeated + {rows['rejected']:,} rejected"
        )

    def _about(self) -> Sequence[tuple[str, str]]:
        settings = self.settings
        grades = ", ".join(f"{event}={grade:g}" for event, grade in settings.ranked_grades)
        half_life = "none" if settings.half_life is None else f"{settings.half_life:g} days"
        cost = "one shuffle, all rows of it" if settings.dedup != "none" else "one shuffle of aggregates"
        return (
            ("grades", f"{grades}; shown: {settings.impression}"),
            (
                "rule",
                f"{settings.rule}; half-life {half_life}; negative {settings.negative}; dedup {settings.dedup}",
            ),
            ("window", f"from {settings.start or 'the first event'} until before {settings.as_of or 'the end'}"),
            ("cost", f"{cost}, in Spark SQL"),
        )


class FromRatings(_Judging[RatingSettings]):
    """Judge by ratings."""

    KIND = "ratings"
    COUNTED = ("n_ratings", "n_zero_weight")

    def _made(self) -> DataFrame:
        return frames.judged_ratings(self.frame, self.settings)

    def checked(self, *, originals: bool) -> dict[str, DataFrame]:
        reasons = frames.checked_ratings(self.frame, self.settings, originals=originals)
        return {"ratings": reasons}

    def _agreement(self, found: list[Row]) -> dict[str, Any]:
        (agreed,) = frames.agreement_of(frames.item_pairs(self.judgments, self.settings)).collect()
        return {"disputed": _total(found, "n_disputed"), "agreement": agreed.asDict()}

    def _lines(self, facts: Mapping[str, Any]) -> Iterator[str]:
        rows, agreed = facts["rows"], facts["agreement"]
        weightless = f"{rows['zero_weight']:,} of weight 0, " if rows["zero_weight"] else ""
        yield f"ratings: {rows['ratings']:,} used, {weightless}{rows['rejected']:,} rejected"
        yield f"in dispute: {facts['disputed']:,}"
        alpha = f"none ({agreed['reason']})" if agreed["alpha"] is None else f"{agreed['alpha']:.4f}"
        behind = f"{agreed['n_ratings']:,} ratings of {agreed['n_items']:,} items"
        yield f"agreement: Krippendorff's alpha (ordinal) {alpha}, {behind}"

    def _about(self) -> Sequence[tuple[str, str]]:
        settings = self.settings
        return (
            ("rule", f"{settings.rule}; tie {settings.tie}; in dispute from {settings.dispute_range:g} apart"),
            ("cost", "one shuffle of all rows, one pass through Python workers"),
        )

"""Work of the commands that build judgments. Only `run` starts Spark actions."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.errors import InputRefusedError
from ndcg_spark.jobs.outputs import summarize_rejected
from ndcg_spark.jobs.runner import Job, Outcome, Work
from ndcg_spark.judgments import frames
from ndcg_spark.judgments.settings import EventSettings, RatingSettings
from ndcg_spark.tables import Rows

S = TypeVar("S", bound=EventSettings | RatingSettings)


class _JudgmentWork(Work[S]):
    """Base of both commands: judge rows of `KIND`. The `COUNT_COLUMNS` add up to the rows that were read."""

    KIND: str
    COUNT_COLUMNS: tuple[str, ...]

    def __init__(self, job: Job[S]) -> None:
        super().__init__(job)
        self.table = self.tables["input"]
        self.frame = self.table.frame
        self.judgments = self._make_judgments().withColumn(
            "run", F.lit("")
        )  # the name of a slice has data set and run

    @abstractmethod
    def _make_judgments(self) -> DataFrame:
        """Build the judgments; lazy."""

    def _measure_agreement(self, counts: list[Row]) -> dict[str, Any]:
        """Return further facts; `counts` has one row per rule."""
        return {}

    @abstractmethod
    def _describe_rows(self, facts: Mapping[str, Any]) -> Iterator[str]:
        """Yield lines about the rows that were read."""

    def schemas(self) -> Mapping[str, T.StructType]:
        return {"output": self.judgments.schema, "disputes": self.judgments.schema}

    def run(self) -> Outcome:
        """Judge and count. Runs one action, and one more for agreement."""
        input_counts = self.job.count_bad_rows()
        self.job.persist(self.judgments)
        with self.job.step("judging"):
            aggregates = [F.count(F.lit(1)).alias("n"), F.count("relevance").alias("n_judged")]
            aggregates += [F.sum(column).alias(column) for column in self.COUNT_COLUMNS]
            if "disputed" in self.judgments.columns:
                aggregates.append(F.count_if(F.col("disputed")).alias("n_disputed"))
            counts = self.judgments.groupBy("rule").agg(*aggregates).orderBy("rule").collect()
            rows = {column.removeprefix("n_"): _sum_counts(counts, column) for column in self.COUNT_COLUMNS}
            facts = {
                "judgments": _sum_counts(counts, "n"),
                "judged": _sum_counts(counts, "n_judged"),
                "by_rule": {row["rule"]: row["n"] for row in counts},
                "rows": {**rows, **summarize_rejected(input_counts)},
                **self.build_provenance(input=self.table.name),
                **self._measure_agreement(counts),
            }
        allows = self.request.shared.allow_empty
        if not facts["judgments"] and not allows:
            raise InputRefusedError(
                f"the input has no {self.KIND} to judge; nothing was written (--allow-empty deletes the existing "
                "rows)."
            )
        tables = {
            "output": Rows(frame=self.judgments, slices=self.job.build_slices(may_be_empty=[""] if allows else []))
        }
        if "disputed" in self.judgments.columns:
            disputes = self.judgments.where("disputed")
            tables["disputes"] = Rows(frame=disputes, slices=self.job.build_slices(may_be_empty=[""]))
        return Outcome(facts=facts, tables=tables, lines=self._summarize(facts))

    def _summarize(self, facts: Mapping[str, Any]) -> Iterator[str]:
        by_rule = ", ".join(f"{rule} {n:,}" for rule, n in facts["by_rule"].items()) or "none"
        unjudged = facts["judgments"] - facts["judged"]
        yield f"judgments: {facts['judgments']:,} ({by_rule}), {unjudged:,} of them without relevance"
        yield from self._describe_rows(facts)

    def explain(self) -> Sequence[tuple[str, str]]:
        return ("input", self.table.name), *self._explain(), ("bad rows", self.request.on_invalid)

    @abstractmethod
    def _explain(self) -> Sequence[tuple[str, str]]:
        """Describe how rows are judged, and the cost."""


def _sum_counts(counts: list[Row], column: str) -> int:
    return sum(row[column] or 0 for row in counts)


class FromEvents(_JudgmentWork[EventSettings]):
    """Build judgments from an event log."""

    KIND = "events"
    COUNT_COLUMNS = ("n_events", "n_impressions", "n_duplicates")

    def _make_judgments(self) -> DataFrame:
        return frames.judge_events(self.frame, self.settings)

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        reasons = frames.check_events(self.frame, self.settings, originals=originals)
        return {"events": reasons}

    def _describe_rows(self, facts: Mapping[str, Any]) -> Iterator[str]:
        rows = facts["rows"]
        read = sum(rows[count] for count in ("events", "impressions", "duplicates", "rejected"))
        yield (
            f"events: {read:,} in the window = {rows['events']:,} graded + {rows['impressions']:,} impressions + "
            f"{rows['duplicates']:,} repeated + {rows['rejected']:,} rejected"
        )

    def _explain(self) -> Sequence[tuple[str, str]]:
        settings = self.settings
        grades = ", ".join(f"{event}={grade:g}" for event, grade in settings.ranked_grades)
        half_life = "none" if settings.half_life is None else f"{settings.half_life:g} days"
        cost = "one shuffle of all rows" if settings.dedup != "none" else "one shuffle of aggregates"
        return (
            ("grades", f"{grades}; impression: {settings.impression}"),
            (
                "rule",
                f"{settings.rule}; half-life {half_life}; negative {settings.negative}; dedup {settings.dedup}",
            ),
            ("window", f"from {settings.start or 'the first event'} until before {settings.as_of or 'the end'}"),
            ("cost", f"{cost}, in Spark SQL"),
        )


class FromRatings(_JudgmentWork[RatingSettings]):
    """Build judgments from ratings."""

    KIND = "ratings"
    COUNT_COLUMNS = ("n_ratings", "n_zero_weight")

    def _make_judgments(self) -> DataFrame:
        return frames.judge_ratings(self.frame, self.settings)

    def check_rows(self, *, originals: bool) -> dict[str, DataFrame]:
        reasons = frames.check_ratings(self.frame, self.settings, originals=originals)
        return {"ratings": reasons}

    def _measure_agreement(self, counts: list[Row]) -> dict[str, Any]:
        (agreement,) = frames.compute_agreement(frames.count_item_pairs(self.judgments, self.settings)).collect()
        return {"disputed": _sum_counts(counts, "n_disputed"), "agreement": agreement.asDict()}

    def _describe_rows(self, facts: Mapping[str, Any]) -> Iterator[str]:
        rows, agreement = facts["rows"], facts["agreement"]
        zero_weight = f"{rows['zero_weight']:,} of weight 0, " if rows["zero_weight"] else ""
        yield f"ratings: {rows['ratings']:,} used, {zero_weight}{rows['rejected']:,} rejected"
        yield f"in dispute: {facts['disputed']:,}"
        alpha = f"none ({agreement['reason']})" if agreement["alpha"] is None else f"{agreement['alpha']:.4f}"
        basis = f"{agreement['n_ratings']:,} ratings of {agreement['n_items']:,} items"
        yield f"agreement: Krippendorff's alpha (ordinal) {alpha}, {basis}"

    def _explain(self) -> Sequence[tuple[str, str]]:
        settings = self.settings
        return (
            ("rule", f"{settings.rule}; tie {settings.tie}; in dispute from {settings.dispute_range:g} apart"),
            ("cost", "one shuffle of all rows, one pass through Python workers"),
        )

"""The engine: source -> partial rankings -> exchange -> merge and score -> means. See docs/architecture.md."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from ndcg_spark.core.arrow_schemas import arrow_schema
from ndcg_spark.core.batches import BatchFunction
from ndcg_spark.core.workers import as_shipped
from ndcg_spark.evaluation.frames.scoring import scoring_task
from ndcg_spark.evaluation.frames.source import ParquetSource, Source, SparkSource
from ndcg_spark.evaluation.frames.summary import PARTIAL_SCHEMA, finished, summing_task
from ndcg_spark.evaluation.settings import EvaluationPlan
from ndcg_spark.evaluation.tasks.column_names import ITEM, RANKED_ITEMS, RANKED_LIST, WEIGHT, canonical_names
from ndcg_spark.evaluation.tasks.complete_queries import make_complete_sender
from ndcg_spark.evaluation.tasks.exchange import EXCHANGE_SCHEMA, make_judgment_sender, make_row_sender
from ndcg_spark.evaluation.tasks.partial_ranking import COUNTS, N_REJECTED
from ndcg_spark.evaluation.tasks.query_rows import RankingTask
from ndcg_spark.evaluation.tasks.receiving import make_merger, make_merging_summer

EXCHANGE = from_arrow_schema(EXCHANGE_SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A source, and the canonical judgments of its queries where they are a table of their own.

    `others`: columns of the main table that the plan does not use, for messages.
    """

    plan: EvaluationPlan
    source: Source
    judgments: DataFrame | None = None
    others: tuple[str, ...] = ()

    def rankings(self) -> DataFrame:
        """Rank every query, and count rejected rows; lazy.

        Spark cost: one shuffle, of partial rankings or of rows where there is nothing to cut, in packed batches
        of some thousand; two passes through Python workers. No action.
        """
        task = self._task(counts_relevant=True)
        return self._exchanged(task, None).mapInArrow(as_shipped(make_merger(task)), schema=self.schema())

    def summary(self) -> DataFrame:
        """Means of all metrics; lazy. Like `summarize_rankings`, but rankings never leave the workers.

        Spark cost: as for `rankings`, and one small shuffle of sums. Complete queries of sorted files are scored
        where they are read.
        """
        task = self._task(counts_relevant=False)
        columns = [name for name in self.schema().names if name != "n_relevant"]  # of no use to means
        scoring, summing = scoring_task(columns, self.plan), summing_task(self.plan)
        send = None
        if isinstance(self.source, ParquetSource) and self.source.files.bounds:
            send = make_complete_sender(self.source.files, task, scoring, summing)  # `cost_of_means` tells it
        merge = make_merging_summer(task, scoring, summing)
        partial = self._exchanged(task, send).mapInArrow(as_shipped(merge), schema=PARTIAL_SCHEMA)
        return finished(partial, self.plan.confidence, n_tasks=self.source.n_tasks)

    @property
    def cost(self) -> str:
        """What `rankings` cost, for a person."""
        rows = "all rows"
        if self._task(counts_relevant=False).cuts_early:
            rows = "about 2 K numbers a query and input partition, or of its rows where these are fewer"
        judgments = "" if self.judgments is None else ", and of all judgments"
        return f"one shuffle of {rows}{judgments}; two passes through Python workers"

    @property
    def cost_of_means(self) -> str:
        """What `summary` costs, for a person."""
        if isinstance(self.source, ParquetSource) and self.source.files.bounds:
            return f"complete queries are scored where they are read; of the others, {self.cost}"
        return self.cost

    def schema(self) -> T.StructType:
        """Columns of rankings; see `ndcg_spark.evaluation.frames.rank`."""
        return rankings_schema(self.plan, self.source.rows, self.judgments)

    def _task(self, *, counts_relevant: bool) -> RankingTask:
        rows, spark = self.source.rows.schema, self.source.rows.sparkSession
        return RankingTask(
            plan=self.plan,
            rows=arrow_schema(rows, spark),
            judgments=None if self.judgments is None else arrow_schema(self.judgments.schema, spark),
            n_partitions=self.source.n_partitions,
            checks_duplicates=self.plan.checks_top_duplicates and ITEM in rows.names,
            counts_relevant=counts_relevant,
            others=self.others,
        )

    def exchanged(self, *, shuffled: bool = True) -> DataFrame:
        """What crosses the shuffle on the way to `rankings`, before or after it: for measurements. Lazy."""
        task = self._task(counts_relevant=False)
        return self._exchanged(task, None) if shuffled else self._sent(task, None)

    def _exchanged(self, task: RankingTask, send: BatchFunction | None) -> DataFrame:
        sent = self._sent(task, send)
        if self.judgments is not None:
            sent = sent.unionAll(self.judgments.mapInArrow(as_shipped(make_judgment_sender(task)), schema=EXCHANGE))
        if isinstance(self.source, SparkSource):
            # Spark puts small partitions together, which it does not do with a number given, nor by id: 200 tasks
            # for six rows take 6.5 s, one takes 0.7. Without adaptive execution it does not, and a number is given.
            n_tasks = self.source.n_tasks
            by_id = F.col("partition_id")
            return sent.repartition(by_id) if n_tasks is None else sent.repartition(n_tasks, by_id)
        if hasattr(sent, "repartitionById"):
            return sent.repartitionById(task.n_partitions, "partition_id")
        return sent.repartition(task.n_partitions, "partition_id")

    def _sent(self, task: RankingTask, send: BatchFunction | None) -> DataFrame:
        if isinstance(self.source, SparkSource):
            return self.source.rows.mapInArrow(as_shipped(make_row_sender(task)), schema=EXCHANGE)
        files = self.source.files
        n_parts = max(1, len(files.parts))
        numbers = self.source.rows.sparkSession.range(0, len(files.parts), 1, n_parts)
        return numbers.mapInArrow(as_shipped(send or make_row_sender(task, files.read)), schema=EXCHANGE)


def rankings_schema(plan: EvaluationPlan, rows: DataFrame, judgments: DataFrame | None) -> T.StructType:
    """Columns of rankings, from canonical rows and judgments. Reads schemas, runs no action."""
    names, known = canonical_names(plan), rows.schema
    fields = [T.StructField("run", T.StringType())]
    fields += [T.StructField(label, known[name].dataType) for name, label in names.query.items()]
    rejected = [N_REJECTED] if plan.on_invalid == "reject" else []
    fields += [T.StructField(name, T.LongType()) for name in (*COUNTS, *rejected)]
    if plan.levels:
        fields.append(T.StructField("n_at_least", T.ArrayType(T.LongType())))
    for name, label in names.carried.items():
        for table in (rows, judgments):
            if table is not None and name in table.columns:
                kind = T.DoubleType() if name == WEIGHT else table.schema[name].dataType
                fields.append(T.StructField(label, kind))
                break
    fields.append(T.StructField("ranked", T.ArrayType(T.DoubleType())))
    from_rows = RANKED_LIST not in known.names
    if from_rows and plan.ranks_given:
        fields.append(T.StructField("ranks", T.ArrayType(T.LongType())))
    elif from_rows and plan.convention.groups_ties:
        fields.append(T.StructField("scores", T.ArrayType(T.DoubleType())))
        fields.append(T.StructField("tied", T.ArrayType(T.LongType())))
    if plan.lists_items:
        kind = T.ArrayType(known[ITEM].dataType) if from_rows else known[RANKED_ITEMS].dataType
        fields.append(T.StructField("items", kind))
    return T.StructType([*fields, T.StructField("ideal", T.ArrayType(T.DoubleType()))])

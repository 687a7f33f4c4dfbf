"""Check on Spark that judgments match the ranked items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ndcg_spark.core.columns import exact_col, exact_cols
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.evaluation.frames.ranking import Ranking, explode_scores, select_valid_rows
from ndcg_spark.evaluation.matching import Match, TopItems, check_top_items
from ndcg_spark.evaluation.tasks.query_rows import ITEM, RANK, RELEVANCE, RUN, SCORE, canonical_names
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck

MAX_IDS = 10_000
"""Number of judged ids to look up in a run. If none of them occurs, the run has other ids."""
_ITEM_JUDGED, _QUERY_JUDGED, _JUDGED = "item_judged", "query_judged", "judged"


def check_matched(
    top_items: Sequence[TopItems], ranking: Ranking, *, other_runs: Sequence[TopItems] = (), allowed: bool = False
) -> list[str]:
    """Check with `check_top_items` that a table of judgments matches the runs.

    Runs an action that reads run and judgments, if no item among the first K of a run is judged.
    """
    if not ranking.tables.has_judgments_table:
        return []
    find = partial(_find_matches, ranking=ranking)
    return check_top_items(top_items, ranking.settings, find, other_runs=other_runs, allowed=allowed)


def _find_matches(runs: Sequence[TopItems], ranking: Ranking) -> Mapping[str, Match]:
    """Find for each run whether any of its queries and items is judged, and example ids. Runs an action."""
    settings, names = ranking.settings, canonical_names(ranking.settings)
    queries = [*names.query]
    rows = select_valid_rows(explode_scores(ranking.rows, settings), RowCheck(settings))
    rows = rows.where(exact_col(RANK if RANK in rows.columns else SCORE).isNotNull())
    if RUN not in rows.columns or runs[0].is_table:
        rows = rows.withColumn(RUN, F.lit(runs[0].run))
    rows = rows.where(F.col(RUN).isin([run.run for run in runs]))
    judgments: DataFrame = ranking.implementation.judgments  # type: ignore[union-attr,assignment]  # arrays have none
    judged = judgments.where(F.col(RELEVANCE).isNotNull())
    ids = judged.select(ITEM).distinct().orderBy(F.xxhash64(ITEM), ITEM).limit(MAX_IDS)
    known = judged.select(*exact_cols(queries)).distinct().withColumn(_QUERY_JUDGED, F.lit(True))
    examples = [F.min(ITEM).alias("item"), F.min(F.struct(*exact_cols(queries))).alias("query")]
    matches = (
        rows.join(F.broadcast(ids.withColumn(_ITEM_JUDGED, F.lit(True))), ITEM, "left")
        .join(known, queries, "left")
        .groupBy(RUN)
        .agg(
            *(F.coalesce(F.max(flag), F.lit(False)).alias(flag) for flag in (_ITEM_JUDGED, _QUERY_JUDGED)), *examples
        )
    )
    with readable_errors():
        matched_rows = matches.crossJoin(judged.agg(F.struct(*examples).alias(_JUDGED))).collect()
    return {
        row[RUN]: Match(
            query_judged=row[_QUERY_JUDGED],
            item_judged=row[_ITEM_JUDGED],
            item=row["item"],
            query=tuple(row["query"]),
            judged_item=row[_JUDGED]["item"],
            judged_query=tuple(row[_JUDGED]["query"] or ()),
        )
        for row in matched_rows
    }

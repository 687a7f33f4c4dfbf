"""Original rows of tables that are evaluated without Spark: bad rows, and differences between duplicates."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core import labels
from ndcg_spark.evaluation.local import LocalRanking
from ndcg_spark.evaluation.tasks.originals import REJECTS, find_originals
from ndcg_spark.evaluation.tasks.valid_rows import RowCheck
from ndcg_spark.local.pool import Job, Pool


def find_rejects(ranking: LocalRanking, labels: Collection[str]) -> pa.Table:
    """Read the bad rows of the named tables, `input` or `judgments`: `source`, `reason`, `row`."""
    jobs: list[Job] = []
    for label, files in (("input", ranking.rows), ("judgments", ranking.judged)):
        if files is not None and label in labels:
            whole_table = replace(files, schema=ranking.tables[label].info.schema, bounds=None)
            check = RowCheck(ranking.settings, judgments=label == "judgments")
            jobs += [(find_originals, (replace(whole_table, parts=(part,)), check, label)) for part in files.parts]
    with Pool(ranking.n_processes, imports=(__name__,)) as pool:
        return pa.concat_tables([REJECTS.empty_table(), *pool.run(jobs)])


def find_differing_columns(ranking: LocalRanking, query: str) -> list[str] | None:
    """List unused columns in which rows of the same query and item differ, most items first. Reads the main table.

    `query` is text such as `query_id=7`. Empty if no item is repeated; None if the query does not exist.
    """
    others, item = ranking.plan.others, str(ranking.settings.columns.item)
    values: dict[Any, dict[str, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for row in _read_query_rows(ranking, query, [item, *others]):
        for column in others:
            values[row[item]][column].add(row[column])
    if not values:
        return None
    n_items = Counter(
        column for columns in values.values() for column, distinct in columns.items() if len(distinct) > 1
    )
    return sorted(n_items, key=lambda column: (-n_items[column], others.index(column)))


def _read_query_rows(ranking: LocalRanking, query: str, names: list[str]) -> Iterator[dict[str, Any]]:
    keys, info = list(ranking.settings.columns.query), ranking.tables["input"].info
    schema = pa.schema([(name, info.type_of(name)) for name in dict.fromkeys([*keys, *names])])
    key_type, text = schema.field(0).type, query.removeprefix(f"{keys[0]}=")
    is_plain = len(keys) == 1 and (pa.types.is_string(key_type) or pa.types.is_integer(key_type))
    for part in ranking.rows.parts:
        for batch in part.read(schema.names, schema, ranking.rows.batch_rows):
            rows = batch.filter(pc.equal(batch.column(0).cast(pa.string()), text)) if is_plain else batch
            yield from (row for row in rows.to_pylist() if labels.key({key: row[key] for key in keys}) == query)

"""Bad rows of tables that are evaluated without Spark, as they came."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pyarrow as pa

from ndcg_spark.evaluation.local import LocalRanking
from ndcg_spark.evaluation.tasks.originals import REJECTS, find_originals
from ndcg_spark.evaluation.tasks.valid_rows import RowRules
from ndcg_spark.local.pool import Job, Pool


def find_rejects(ranking: LocalRanking, names: Collection[str]) -> pa.Table:
    """Read the named tables, `input` or `judgments`: their bad rows (`source`, `reason`, `row`)."""
    jobs: list[Job] = []
    for name, files in (("input", ranking.rows), ("judgments", ranking.judged)):
        if files is not None and name in names:
            whole = replace(files, schema=ranking.tables[name].info.schema, bounds=None)
            rules = RowRules(ranking.settings, judgments=name == "judgments")
            jobs += [(find_originals, (replace(whole, parts=(part,)), rules, name)) for part in files.parts]
    with Pool(ranking.n_processes, imports=(__name__,)) as pool:
        return pa.concat_tables([REJECTS.empty_table(), *pool.run(jobs)])

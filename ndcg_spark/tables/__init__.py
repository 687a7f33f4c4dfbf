"""Nightly tables: a write replaces the rows of a date, data set and run as a whole, and no other rows.

Every table is partitioned by `run_date` and `slice`. A slice belongs to one (data set, run). It is the unit that a
re-run replaces; two jobs can write different slices at the same time.

A write has two steps. `stage_slices` computes the rows and writes them to a place that readers ignore; `swap_in`
replaces the old rows by them. A failure before the second step leaves every table unchanged.
"""

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.tables.checks import Reading as Reading
    from ndcg_spark.tables.checks import check_output as check_output
    from ndcg_spark.tables.checks import reading_of as reading_of
    from ndcg_spark.tables.checks import refuse_inside_table as refuse_inside_table
    from ndcg_spark.tables.checks import refuse_nested as refuse_nested
    from ndcg_spark.tables.nights import write_night as write_night
    from ndcg_spark.tables.places import canonical as canonical
    from ndcg_spark.tables.slices import PARTITIONS as PARTITIONS
    from ndcg_spark.tables.slices import SliceKey as SliceKey
    from ndcg_spark.tables.slices import Slices as Slices
    from ndcg_spark.tables.slices import SliceWrite as SliceWrite
    from ndcg_spark.tables.slices import slice_name as slice_name
    from ndcg_spark.tables.writing import Rows as Rows
    from ndcg_spark.tables.writing import refusing as refusing
    from ndcg_spark.tables.writing import stage_slices as stage_slices
    from ndcg_spark.tables.writing import swap_in as swap_in
    from ndcg_spark.tables.writing import write_together as write_together
else:
    __getattr__, __dir__ = export_names(
        __name__,
        checks="Reading check_output reading_of refuse_inside_table refuse_nested",
        nights="write_night",
        places="canonical",
        slices="PARTITIONS SliceKey SliceWrite Slices slice_name",
        writing="Rows refusing stage_slices swap_in write_together",
    )
    __all__ = __dir__()

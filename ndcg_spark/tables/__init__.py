"""Nightly tables: a write replaces the rows of a night, data set and run as a whole, and no other rows.

Tables are partitioned by `run_date` and `slice`; a Delta table may be clustered instead. A slice is what a re-run
replaces; two jobs can write different slices at the same time.

A write has two steps. `stage_slices` computes the rows and writes them to a place that readers ignore; `swap_in`
replaces the old rows by them. Rows of remote folders, and of Delta and Iceberg tables whose folder this process does
not share with Spark, are computed in the second step. A failure before it leaves the rows of every table unchanged;
columns that were added stay.
"""

from typing import TYPE_CHECKING

from ndcg_spark.core.lazy_names import export_names

if TYPE_CHECKING:
    from ndcg_spark.tables.checks import UsedPlaces as UsedPlaces
    from ndcg_spark.tables.checks import check_output as check_output
    from ndcg_spark.tables.checks import find_used_places as find_used_places
    from ndcg_spark.tables.checks import refuse_inside_table as refuse_inside_table
    from ndcg_spark.tables.checks import refuse_nested as refuse_nested
    from ndcg_spark.tables.nights import write_night as write_night
    from ndcg_spark.tables.places import canonicalize as canonicalize
    from ndcg_spark.tables.slices import PARTITIONS as PARTITIONS
    from ndcg_spark.tables.slices import SliceKey as SliceKey
    from ndcg_spark.tables.slices import Slices as Slices
    from ndcg_spark.tables.slices import SliceWrite as SliceWrite
    from ndcg_spark.tables.slices import slice_name as slice_name
    from ndcg_spark.tables.writing import Rows as Rows
    from ndcg_spark.tables.writing import convert_write_errors as convert_write_errors
    from ndcg_spark.tables.writing import stage_slices as stage_slices
    from ndcg_spark.tables.writing import swap_in as swap_in
    from ndcg_spark.tables.writing import write_together as write_together
else:
    __getattr__, __dir__ = export_names(
        __name__,
        checks="UsedPlaces check_output find_used_places refuse_inside_table refuse_nested",
        nights="write_night",
        places="canonicalize",
        slices="PARTITIONS SliceKey SliceWrite Slices slice_name",
        writing="Rows convert_write_errors stage_slices swap_in write_together",
    )
    __all__ = __dir__()

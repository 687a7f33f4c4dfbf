"""Nightly tables: the rows of a date, data set and run are replaced as a whole, and nothing else is touched.

Every table is partitioned by `run_date` and `slice`. A slice names one (data set, run), so it is the unit that
a re-run replaces and that two jobs can write at the same time.

A write has two steps. `stage_slices` computes the rows and writes them where no reader looks; `swap_in` puts them
in place of the old ones. What fails before the second step leaves every table as it was.
"""

from ndcg_spark.tables.checks import Reading, check_output, reading_of, refuse_inside_table, refuse_nested
from ndcg_spark.tables.nights import Rows, write_night, write_together
from ndcg_spark.tables.places import canonical
from ndcg_spark.tables.slices import PARTITIONS, SliceKey, Slices, SliceWrite, slice_name
from ndcg_spark.tables.writing import refusing, stage_slices, swap_in

__all__ = [
    "PARTITIONS",
    "Reading",
    "Rows",
    "SliceKey",
    "SliceWrite",
    "Slices",
    "canonical",
    "check_output",
    "reading_of",
    "refuse_inside_table",
    "refuse_nested",
    "refusing",
    "slice_name",
    "stage_slices",
    "swap_in",
    "write_night",
    "write_together",
]

"""Refusals that no test reaches, and why: (file and function, words of it) to the reason. At most ten."""

from __future__ import annotations

UNSEEN = {
    ("ndcg_spark/worker/batches.py:joined", "more than 2 GiB of text at once"): (
        "takes 2 GiB of memory and of copying; two batches of 1 GiB of text each were seen to reach it"
    ),
    ("ndcg_spark/tables/folders.py:stage_slices", "executors wrote the others to disks of their own"): (
        "needs executors on other machines: a test that scripts/cluster runs reaches it"
    ),
    ("ndcg_spark/tables/iceberg.py:IcebergLog.replace", "raise ConflictError from error"): (
        "needs Iceberg, which scripts/formats installs: a writer who comes late there reaches it"
    ),
    ("ndcg_spark/tables/catalog.py:check_table", "has write.wap.enabled, and spark.wap.id is set"): (
        "needs Iceberg, which scripts/formats installs: its properties of tables reach it"
    ),
    ("ndcg_spark/tables/catalog.py:TableFacts.folder", "the catalog does not say where table"): (
        "needs a catalog that hides where its tables lie, and tables that are neither Delta nor Iceberg"
    ),
}

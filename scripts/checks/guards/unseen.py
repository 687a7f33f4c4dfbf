"""Refusals that no test reaches, and why: (file and function, words of it) to the reason. At most ten."""

from __future__ import annotations

UNSEEN = {
    ("ndcg_spark/core/batches.py:concat_batches", "more than 2 GiB of text"): (
        "takes 2 GiB of memory and of copying; two batches of 1 GiB of text each were seen to reach it"
    ),
    ("ndcg_spark/tables/commits.py:IcebergLog.replace", "raise ConflictError from error"): (
        "needs Iceberg, which scripts/check writes installs: a writer who comes late there reaches it"
    ),
    ("ndcg_spark/evaluation/means.py:Means._facts", "the input changed while the job ran"): (
        "needs a table without versions, into which another program writes between two reads of one job"
    ),
    ("ndcg_spark/jobs/runner.py:JobRun._write_in_time", "raise failed[0]"): (
        "after an interrupt: hands what a write of the run log raised in a thread to the warning that says so"
    ),
}

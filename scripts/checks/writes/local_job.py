"""A command; the main job takes two processes and many partitions and files for tables of some megabytes.

NDCG_SPARK_KILL may say before which call of which step, for which table, it sends itself a signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any


def main() -> int:
    """Lower limits, plan the signal, run."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the command itself loads these when it has handlers
    from ndcg_spark.evaluation import local
    from ndcg_spark.jobs.outputs import StagedFile
    from ndcg_spark.local import messages
    from ndcg_spark.main import main as run
    from ndcg_spark.tables.claims import Claim
    from ndcg_spark.tables.folders import FolderWrite

    local.MIN_PROCESS_BYTES, local.PARTITION_BYTES, local.MAX_SHARE_BYTES = 2**15, 2**13, 2**16
    local.MIN_PART_BYTES = 2**15
    for module in (local, messages):
        module.HELD_BYTES = 2**10  # type: ignore[attr-defined]
    kill = os.environ["NDCG_SPARK_KILL"]
    if kill:
        step, at, number, table = json.loads(kill)
        owner, name = {"release": (Claim, step), "page": (StagedFile, "swap")}.get(step, (FolderWrite, step))
        call, calls = getattr(owner, name), iter(range(1000))

        def call_or_end(*arguments: Any) -> Any:
            if (not table or arguments[0].root.name == table) and next(calls) == at:
                os.kill(os.getpid(), number)
            return call(*arguments)

        setattr(owner, name, call_or_end)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return run()


if __name__ == "__main__":
    sys.exit(main())

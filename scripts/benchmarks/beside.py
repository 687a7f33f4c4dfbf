"""The package of another checkout, timed in the same run: a process with a Spark session of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path


class Beside:
    """Process that evaluates tables with the package of another checkout; starts at the first request."""

    def __init__(self, checkout: Path, memory: str) -> None:
        self._checkout, self._memory = checkout.absolute(), memory
        self._process: subprocess.Popen[str] | None = None

    def seconds(self, path: str, k: int, options: dict[str, object]) -> tuple[float, float]:
        """Return the mean, and the seconds it took."""
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": str(self._checkout)}
            command = [sys.executable, "-c", Path(__file__).read_text(encoding="utf-8"), self._memory]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=self._checkout
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"path": os.path.abspath(path), "k": k, "options": options}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the package in {self._checkout} ended without an answer")
        value, taken = json.loads(answer)
        return value, taken


def serve(memory: str) -> None:
    """Answer on standard output, a line for each line of standard input. The session is that checkout's, too."""
    import ndcg_spark

    if Path("scripts/benchmarks").is_dir():
        from scripts.benchmarks.spark import make_session
    else:  # a checkout in which all scripts lay in one folder
        sys.path.insert(0, "scripts")
        from bench_spark import make_session

    spark = make_session(memory, 10)
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        evaluation = ndcg_spark.evaluate(spark.read.parquet(request["path"]), k=request["k"], **request["options"])
        mean = evaluation.summary.where(f"metric = 'ndcg' and segment_by = '' and k = {request['k']}")
        value = float(mean.collect()[0]["value"])
        print(json.dumps([value, time.perf_counter() - began]), flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])

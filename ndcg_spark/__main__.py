"""`ndcg-spark` and `python -m ndcg_spark`: the console command. Ctrl-C is a line while modules are loaded, too."""

from __future__ import annotations

import sys


def run() -> None:
    """Load the console command and run it."""
    try:
        from ndcg_spark.main import run as run_command
    except KeyboardInterrupt:
        print("ndcg-spark: interrupted", file=sys.stderr)
        sys.exit(130)
    run_command()


if __name__ == "__main__":
    run()

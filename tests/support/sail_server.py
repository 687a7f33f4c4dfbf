"""Run a command with a server of Sail, another engine that speaks Spark Connect. Needs pysail.

    python tests/support/sail_server.py python -m pytest ...

Its Python workers are threads of this process and share its packages.
"""

from __future__ import annotations

import os
import subprocess
import sys

from pysail.spark import SparkConnectServer

SHIPPED = "NDCG_SPARK_SHIPPED"


def main(command: list[str]) -> int:
    """Run a command with a server; return its exit code."""
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    try:
        host, port = server.listening_address
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
        return subprocess.run(
            command, env={**environment, "SPARK_REMOTE": f"sc://{host}:{port}", SHIPPED: "yes"}, check=False
        ).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

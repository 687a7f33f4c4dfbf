"""A Hive metastore that several processes share; it lives in the Java of a session, so it costs no process more.

Embedded Derby lets one Java in only. A process that is killed while it writes a catalog table needs a catalog that
others look into afterwards, so that one Java serves its Derby to all sessions, as the metastore of a cluster does.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def metastore_settings(root: Path, port: int) -> dict[str, str]:
    """What sessions need that use the metastore, the one that serves it included."""
    return {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": f"thrift://127.0.0.1:{port}",
        "spark.sql.warehouse.dir": f"{root}/warehouse",
    }


def serve_metastore(spark: SparkSession, root: Path, port: int) -> None:
    """Serve a metastore below a folder from the Java of a session, until that ends.

    Its own program, `HiveMetaStore`, would listen to the whole network, and needs a logger that Spark does not ship.
    """
    java = spark.sparkContext._jvm
    hive = java.org.apache.hadoop.hive
    settings = hive.conf.HiveConf()
    wanted: Mapping[str, str] = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={root}/shared-metastore;create=true",
        "datanucleus.schema.autoCreateAll": "true",
        "hive.metastore.schema.verification": "false",
        "hive.metastore.uris": "",  # else it would ask itself
        "hive.metastore.warehouse.dir": f"file:{root}/warehouse",
    }
    for name, value in wanted.items():
        settings.set(name, value)
    handler = hive.metastore.HiveMetaStore.newRetryingHMSHandler(
        hive.metastore.HiveMetaStore.HMSHandler("faults", settings, False), settings
    )
    place = java.java.net.InetSocketAddress("127.0.0.1", port)
    arguments = java.org.apache.thrift.server.TThreadPoolServer.Args(
        java.org.apache.thrift.transport.TServerSocket(place)
    ).processor(hive.metastore.TSetIpAddressProcessor(handler))
    server = java.org.apache.thrift.server.TThreadPoolServer(arguments)
    threading.Thread(target=server.serve, daemon=True).start()

"""Sessions that write tables: of Spark, of Spark with Iceberg, of Sail for Delta; and a metastore that several share.

Embedded Derby lets one Java in only. A process that is killed while it writes a catalog table needs a catalog that
others look into afterwards, so that one Java, that of a session, serves its Derby to all, as the metastore of a
cluster does.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

METASTORE = "metastore-port"
"""File below the folder of a session that tells the port of its metastore to writers in other processes."""
LEGS = ("spark", "iceberg", "delta")


def session(scratch: Path, more: Mapping[str, str] = {}) -> SparkSession:
    """Open a quiet session of two cores below the scratch folder; `more` overrides settings."""
    options = {
        "spark.master": "local[2]",
        "spark.app.name": "writes",
        # Most plans run once: Java spends more on its second compiler than that would save.
        "spark.driver.extraJavaOptions": f'"-Dderby.system.home={scratch}/derby" -XX:TieredStopAtLevel=1 '
        "-XX:ReservedCodeCacheSize=1g "  # else 48 MB, and what comes after these is interpreted
        "-XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.log.level": "OFF",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **more,
    }
    return SparkSession.builder.config(map=options).getOrCreate()


def start(leg: str, root: Path, *, hive: bool = True) -> tuple[SparkSession, Any]:
    """Start the Spark of a leg; the second result is a server to be stopped, or None."""
    if leg == "delta":
        return start_sail(root)
    if leg == "iceberg":
        spark = session(root, iceberg_settings(root))
        spark.sql("CREATE NAMESPACE IF NOT EXISTS ice.db")
        return spark, None
    shared = root / METASTORE
    if shared.exists():  # another process serves it, this is its writer
        return session(root, metastore_settings(root, int(shared.read_text()))), None
    if not hive:
        return session(root), None
    port = free_port()
    spark = session(root, metastore_settings(root, port))
    serve_metastore(spark, root, port)
    shared.write_text(str(port))
    return spark, None


def iceberg_settings(root: Path) -> dict[str, str]:
    """Return settings of a catalog `ice` below a folder; a PyPI package has the Iceberg runtime for Spark 3.5."""
    import snowpark_connect_deps_iceberg

    folder = os.path.dirname(str(snowpark_connect_deps_iceberg.__file__))
    return {
        "spark.jars": next(iter(glob(f"{folder}/jars/iceberg-spark-runtime-3.5_2.12-*.jar"))),
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.cache-enabled": "false",  # else a session sees commits of others half a minute later
        "spark.sql.catalog.ice.warehouse": f"{root}/ice",
    }


def start_sail(root: Path) -> tuple[SparkSession, Any]:
    os.environ.setdefault("RUST_LOG", "error")
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{server.listening_address[1]}").getOrCreate()
    spark.conf.set("spark.sql.warehouse.dir", f"{root}/warehouse")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark, server


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def metastore_settings(root: Path, port: int) -> dict[str, str]:
    """Return the settings of sessions that use the metastore, including the one that serves it."""
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

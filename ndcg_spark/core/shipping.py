"""The package on its way to the Python workers of a session that do not have it."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ndcg_spark.errors import NdcgSparkError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from pyspark.sql import SparkSession

PACKAGE = "ndcg_spark"
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip can hold."""


def add_package_to_workers(spark: SparkSession) -> bool:
    """Send this package to the Python workers of a session.

    Workers import the package. Where it is installed on all machines, or came with `spark-submit --py-files`, they
    have it; a client of Spark Connect calls this once for each session, before the first result is asked for.
    Packages that this one needs (numpy, pandas, pyarrow; SciPy for comparisons) are not sent.

    Parameters
    ----------
    spark : SparkSession
        Of Spark Connect, or a classic one of Spark 4.0 or later.

    Returns
    -------
    bool
        False where nothing was sent, as a classic session in local mode shares its Python with its workers.

    Raises
    ------
    NdcgSparkError
        When the session does not take packages: a classic session of Spark 3.5, or Sail.

    Notes
    -----
    Spark cost: no job; about 1.6 MB are sent to the server, and from there to each executor once. What is sent
    precedes an installed version on workers. A second call with the same version changes nothing.

    Examples
    --------
    >>> spark = SparkSession.builder.remote("sc://host:15002").getOrCreate()  # doctest: +SKIP
    >>> ndcg_spark.add_package_to_workers(spark)  # doctest: +SKIP
    True
    """
    from ndcg_spark.core.failures import SPARK_ERRORS, first_line  # scripts/package needs no pyspark
    from ndcg_spark.core.session_settings import runs_locally

    # The first is that of a classic session until Spark 4.0.
    not_taken: tuple[type[Exception], ...] = (RuntimeError, *SPARK_ERRORS)
    on_connect = type(spark).__module__.startswith("pyspark.sql.connect")
    if not on_connect and runs_locally(spark):
        return False
    content = package_zip()
    # Named after what is in it: the same name with other content would be refused.
    digest = hashlib.sha256(content).hexdigest()[:12]
    with tempfile.TemporaryDirectory(prefix="ndcg-spark-") as folder:
        path = Path(folder) / f"{PACKAGE}-{digest}.zip"
        path.write_bytes(content)
        try:
            spark.addArtifacts(str(path), pyfile=True)
        except not_taken as error:
            raise NdcgSparkError(
                f"this session cannot send packages to its workers ({first_line(error)}): install ndcg-spark there, "
                "or start it with spark-submit --py-files dist/ndcg_spark.zip."
            ) from error
    return True


def package_zip() -> bytes:
    """Put the files of this package, wherever it came from, into a zip; the same files give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in sorted(_files(files(PACKAGE), PACKAGE)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o100644 << 16
            entry.create_system = 3  # Unix, on whatever system this runs
            archive.writestr(entry, content)
    return buffer.getvalue()


def _files(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    for one in folder.iterdir():
        if one.name == "__pycache__" or one.name.startswith("."):
            continue
        path = f"{name}/{one.name}"
        if one.is_dir():
            yield from _files(one, path)
        else:
            yield path, one.read_bytes()

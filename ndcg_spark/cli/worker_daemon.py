"""Start the Python workers of a local session from the installed pyspark.

Spark puts a zip of its own Python code first on their path. What comes from a zip Python compiles anew in every
process, which takes more than a second at each start of a session; of installed modules it keeps the compiled form.
"""

from __future__ import annotations

import sys

SETTING = "spark.python.daemon.module"
"""Names the module that Spark starts workers with: this one, where workers run the Python of the driver."""
ZIPS = ("pyspark.zip", "-src.zip")
"""Ends of the paths that Spark adds: its own code, and that of py4j."""


def zips_last(path: list[str]) -> list[str]:
    """Put Spark's zips behind everything else, where they still help if nothing is installed.

    Parameters
    ----------
    path : list of str
        As `sys.path`.

    Returns
    -------
    list of str

    Examples
    --------
    >>> zips_last(["", "/spark/python/lib/pyspark.zip", "/site-packages"])
    ['', '/site-packages', '/spark/python/lib/pyspark.zip']
    """
    return sorted(path, key=lambda entry: entry.endswith(ZIPS))


if __name__ == "__main__":
    sys.path[:] = zips_last(sys.path)
    from pyspark import daemon

    daemon.manager()

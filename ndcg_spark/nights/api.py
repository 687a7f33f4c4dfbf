"""A night from Python: all steps of a file."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone

from ndcg_spark.jobs.logs import CommandLog
from ndcg_spark.nights.results import StepResult
from ndcg_spark.nights.steps import read_night
from ndcg_spark.nights.work import NightRun, session_of


def nightly(
    config: str,
    *,
    night: date | None = None,
    dataset: str | None = None,
    only: Sequence[str] = (),
    start: str | None = None,
    resume: bool = False,
) -> list[StepResult]:
    """Run the steps of a night, which a file lists, one after another. Runs the actions of all of them.

    All steps are checked before the first one runs. A step that is refused or fails stops the steps that read its
    tables, and no others. Each prints what its command prints; an active session of Spark is used.

    Parameters
    ----------
    config : str
        TOML file with a table `[[step]]` for each step: its `command`, and options of that command. `{run_date}` in
        a text is the night.
    night : date, optional
        Night under which results are stored; today in UTC if it is None.
    dataset : str, optional
        Data set under which results are stored; that of the file, or else of its first step, if it is None.
    only : sequence of str
        Names of the steps to run; all if it is empty.
    start : str, optional
        Step that is run first; those before it are not run.
    resume : bool
        Do not run steps again that ended well for this night with the same options, version and inputs. Needs a run
        log.

    Returns
    -------
    list of StepResult
        How each step ended.

    Raises
    ------
    InvalidParameterError
        For a file that cannot be read, or an option that is wrong; nothing was run.
    OutputRefusedError
        If somebody else runs this night of the data set.
    """
    found = read_night(config, night or datetime.now(timezone.utc).date(), dataset=dataset)
    run = NightRun(found, found.chosen([only] if isinstance(only, str) else only, start), CommandLog(), "nightly")
    with session_of([run]) as spark:
        run.run(spark, resume=resume)
    return run.results

"""Python interface: run the steps of a night."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timezone

from ndcg_spark.jobs.logs import CommandLog
from ndcg_spark.nights.results import StepResult
from ndcg_spark.nights.steps import read_night
from ndcg_spark.nights.work import NightRun, open_shared_session


def nightly(
    config: str,
    *,
    night: date | None = None,
    dataset: str | None = None,
    only: Sequence[str] = (),
    start: str | None = None,
    resume: bool = False,
) -> list[StepResult]:
    """Run the steps of a night, listed in a file, one after another. Spark actions: those of every step.

    All steps are checked before the first one runs. If a step is refused or fails, only the steps that read its
    tables are skipped. Each step prints the output of its command. An active Spark session is used.

    Parameters
    ----------
    config : str
        TOML file with a table `[[step]]` for each step: its `command`, and options of that command. `{run_date}` in
        a string is replaced by the night.
    night : date, optional
        Night under which results are stored; default: today in UTC.
    dataset : str, optional
        Data set under which results are stored; default: the data set of the file, or else of its first step.
    only : sequence of str
        Names of the steps to run; default: all.
    start : str, optional
        First step to run; earlier steps are skipped.
    resume : bool
        Skip steps that succeeded for this night with the same options, version and inputs. Requires a run log.

    Returns
    -------
    list of StepResult
        Status of each step.

    Raises
    ------
    InvalidParameterError
        If the file cannot be read or an option is wrong; nothing was run.
    OutputRefusedError
        If another process runs this night of the data set.
    """
    plan = read_night(config, night or datetime.now(timezone.utc).date(), dataset=dataset)
    steps = plan.select_steps([only] if isinstance(only, str) else only, start)
    run = NightRun(plan, steps, CommandLog(), "nightly")
    with open_shared_session([run]) as spark:
        run.run(spark, resume=resume)
    return run.results

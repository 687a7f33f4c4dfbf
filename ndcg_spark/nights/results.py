"""Results of the steps of a night."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ndcg_spark.errors import escape_unprintable
from ndcg_spark.jobs.run_log import ENDED_WELL, FLAGGED, GATE_NOT_MET

BEFORE: Final = "succeeded_before"
NOT_RUN: Final = "not_run"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """Result of one step of a night.

    Parameters
    ----------
    step : str
        Name of the step.
    status : str
        As in the run log (`succeeded`, `flagged`, `gate_not_met`, `refused`, `failed`, `interrupted`), or
        `succeeded_before` (skipped by `resume`), or `not_run` (a step that it needs failed, or it is a step for
        flagged nights and nothing was flagged).
    exit_code : int, optional
        Exit code of the command; None if it was not run.
    seconds : float
        Run time.
    message : str
        Reason why the step was refused, failed or was not run; otherwise empty.
    writes : mapping of str to str
        Paths of its tables and pages, by what they hold.
    facts : mapping
        JSON output of the command.
    status_before : str
        Earlier status in the run log if the status is `succeeded_before`; otherwise empty.
    """

    step: str
    status: str
    exit_code: int | None = None
    seconds: float = 0.0
    message: str = ""
    writes: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    status_before: str = ""

    @property
    def is_flagged(self) -> bool:
        """True if the step flagged something or missed a gate, in this run or an earlier one."""
        return not {self.status, self.status_before}.isdisjoint((FLAGGED, GATE_NOT_MET))

    @property
    def is_usable(self) -> bool:
        """True if the tables of the step are complete for this night."""
        return self.status in (*ENDED_WELL, BEFORE)

    @property
    def problem(self) -> str:
        """The status of a step that did not succeed, and why."""
        return f"{self.step}: {self.status.replace('_', ' ')}{': ' if self.message else ''}{self.message}"

    @property
    def line(self) -> str:
        """Line of the step that is printed at the end of a night."""
        outputs = ", ".join(f"{content} to {path}" for content, path in self.writes.items()) if self.is_usable else ""
        time = "" if self.exit_code is None or self.status == BEFORE else f" after {self.seconds:.1f} s"
        details = outputs if self.exit_code else self.message or outputs  # the summary of the night repeats failures
        return escape_unprintable(
            f"{self.step}: {self.status.replace('_', ' ')}{time}{': ' if details else ''}{details}"
        )

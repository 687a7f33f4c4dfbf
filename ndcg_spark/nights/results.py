"""How the steps of a night ended."""

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
    """How a step of a night ended.

    Parameters
    ----------
    step : str
        Name of the step.
    status : str
        As in the run log (`succeeded`, `gate_not_met`, `refused`, `failed`, `interrupted`), or `flagged`, as
        something was flagged; `succeeded_before`, as by `resume`; `not_run`, as a step that it needs was not done, or
        nothing was flagged.
    exit_code : int, optional
        As of the command alone; None if it was not run.
    seconds : float
        Time that it took.
    message : str
        Why it was refused, failed, or was not run; else empty.
    writes : mapping of str to str
        Places of its tables and pages, by what they hold.
    facts : mapping
        What the command writes as JSON.
    status_before : str
        Of a step that succeeded before: its status in the run log; else empty.
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
        """Whether it flagged something or missed a gate, in this run or before."""
        return not {self.status, self.status_before}.isdisjoint((FLAGGED, GATE_NOT_MET))

    @property
    def is_usable(self) -> bool:
        """Whether its tables are those of the night."""
        return self.status in (*ENDED_WELL, BEFORE)

    @property
    def line(self) -> str:
        """What is printed at the end of a night."""
        written = ", ".join(f"{what} to {place}" for what, place in self.writes.items()) if self.is_usable else ""
        took = "" if self.exit_code is None or self.status == BEFORE else f" after {self.seconds:.1f} s"
        about = written if self.exit_code else self.message or written  # the message of the night has the others
        return escape_unprintable(f"{self.step}: {self.status.replace('_', ' ')}{took}{': ' if about else ''}{about}")

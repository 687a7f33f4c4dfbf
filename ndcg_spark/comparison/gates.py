"""Quality gates of comparisons: `ndcg@10.ci_low>-0.002`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ndcg_spark.errors import InvalidParameterError, option
from ndcg_spark.evaluation.gates import COMPARISONS, contrary_line, name_and_cutoff
from ndcg_spark.evaluation.settings import cutoffs_of

_GATE = re.compile(r"\s*(\w+(?:\([^()]*\))?(?:@\w+)?)\.(\w+)\s*(>=|<=|>|<)\s*([-+0-9.eE]+)\s*")
GATED = (
    "n_queries", "n_wins", "n_ties", "n_losses", "n_only_run", "n_only_baseline", "n_skipped", "n_clusters", "value",
    "baseline_value", "difference", "weight_sum", "std_error", "df", "ci_low", "ci_high", "t", "p_value",
    "p_sign_flip", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift", "lift_low", "lift_high",
    "design_effect", "n_effective", "n_clusters_effective", "p_holm", "p_bh", "mde", "n_required",
)  # fmt: skip
"""Columns that gates may be about."""
OF_RUN = (
    "value", "difference", "ci_low", "ci_high", "t", "boot_low", "boot_high", "boot_t_low", "boot_t_high", "lift",
    "lift_low", "lift_high",
)  # fmt: skip
"""Columns of which more is more of the metric, for the run."""


@dataclass(frozen=True, slots=True)
class ComparisonGate:
    """A condition on a column of the rows over all queries, for every pair of runs.

    With `any_k` the user named no cutoff; then there must be one alone.
    """

    text: str
    metric: str
    k: int | None
    any_k: bool
    column: str
    comparison: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> ComparisonGate:
        """Read a gate, such as `ndcg@10.ci_low>-0.002`."""
        found = _GATE.fullmatch(text)
        if found is None:
            raise InvalidParameterError(
                f"gate {text!r} is not of the form METRIC@K.COLUMN>NUMBER, as ndcg@10.ci_low>-0.002."
            )
        named, column, comparison, number = found.groups()
        if column not in GATED:
            raise InvalidParameterError(
                f"gate {text!r}: there is no number {column!r}; there are {', '.join(GATED)}."
            )
        name, at = name_and_cutoff(named, text)
        try:
            bound = float(number)
        except ValueError:
            raise InvalidParameterError(f"gate {text!r}: {number!r} is no number.") from None
        return cls(text, name, None if at is None else cutoffs_of(at)[0], at is None, column, comparison, bound)

    @property
    def contrary(self) -> str:
        """A line if it asks for what is worse; else empty."""
        return contrary_line(self.text, self.metric, self.comparison) if self.column in OF_RUN else ""

    def results(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Hold every pair's row over all queries against the gate: `gate`, `run`, `baseline`, `value`, `met`.

        A null meets no gate. A gate on a metric or cutoff that was not compared is refused.
        """
        overall = [row for row in rows if not row["segment_by"]]
        its = [row for row in overall if row["metric"] == self.metric and (self.any_k or row["k"] == self.k)]
        if self.column in ("p_value", "p_holm", "p_bh") and any(row["verdict"] is None for row in its):
            raise InvalidParameterError(
                f"gate {self.text!r}: {self.metric} stands beside ndcg and is not tested; name it in "
                f"{option('metrics')}."
            )
        cutoffs = sorted({"all" if row["k"] is None else str(row["k"]) for row in its})
        if not its:
            there = sorted({f"{row['metric']}@{'all' if row['k'] is None else row['k']}" for row in overall})
            raise InvalidParameterError(
                f"gate {self.text!r} is about what is not compared; there are {', '.join(there)}."
            )
        if len(cutoffs) > 1:
            raise InvalidParameterError(f"gate {self.text!r}: name the cutoff too, as {self.metric}@{cutoffs[0]}.")
        return [
            {"gate": self.text, "run": row["run"], "baseline": row["baseline"], "value": row[self.column],
             "met": row[self.column] is not None and COMPARISONS[self.comparison](row[self.column], self.bound)}
            for row in its
        ]  # fmt: skip

"""What a job would do, for a person who wants to know before it runs."""

from __future__ import annotations

from ndcg_spark.cli.config import JobConfig, Target
from ndcg_spark.cli.inputs import Inputs

_COSTS = {
    "top_k": "one shuffle of at most K rows a query and input partition",
    "window": "two shuffles and two sorts, of about K rows a query and input partition where K <= 1000",
    "given": "one shuffle of the rows within rank K",
    "arrays": "no shuffle",
}


def explain_job(inputs: Inputs, config: JobConfig) -> str:
    """Describe a job: how it ranks and why, what it costs, what it would write. Runs no action.

    Parameters
    ----------
    inputs : Inputs
    config : JobConfig

    Returns
    -------
    str
        Several lines.
    """
    inputs.rankings()  # finds missing columns and wrong types
    plan, way = inputs.plan, inputs.way
    cutoffs = ", ".join("all" if k is None else str(k) for k in plan.cutoffs)
    changed = plan.convention.differences()
    choices = ", ".join(f"{name}={value}" for name, value in changed.items()) or "all as by default"
    segments = ", ".join("+".join(names) for names in plan.segment_sets) or "none"
    actions = 1 + sum(target is not None for target in (config.output, config.per_query_output, config.rejects))
    if plan.on_invalid == "reject":
        actions += 1 if inputs.judgments is None else 2
    lines = [
        f"input        {inputs.name}",
        f"cutoffs      {cutoffs} (all in one pass)",
        f"convention   {plan.convention} (digest {plan.convention.digest}; {choices})",
        f"segments     {segments}",
        f"way          {way.ranked.replace('_', '-')}: {way.reason}",
        f"ideal        {plan.convention.ideal}, by {way.ideal.replace('_', '-')}",
        f"cost         {_cost(inputs)}; {actions} action{'s' if actions > 1 else ''}",
        f"bad rows     {plan.on_invalid}",
        f"would write  {_targets(config)}",
        "Nothing was run.",
    ]
    return "\n".join(lines)


def _cost(inputs: Inputs) -> str:
    parts = [_COSTS[inputs.way.ranked]]
    convention = inputs.plan.convention
    if inputs.judgments is not None:
        whole = convention.unjudged == "condensed" or convention.ideal == "retrieved"
        parts.append("a join of the whole run with the judgments" if whole else "a join of K rows a query")
    resolves = convention.duplicates != "error" or inputs.plan.check_duplicates == "all"
    if resolves:
        parts.append("a shuffle of all rows by (query, item) for duplicates")
    parts.append("one pass through Python workers of about 2 K numbers a query")
    return "; ".join(parts)


def _targets(config: JobConfig) -> str:
    named: list[tuple[str, Target | None]] = [
        ("metrics", config.output),
        ("queries", config.per_query_output),
        ("rejects", config.rejects),
    ]
    found = [f"{what} to {target.reference}" for what, target in named if target is not None]
    night = f"replacing {config.run_date.isoformat()} of data set {config.dataset!r} only"
    return f"{', '.join(found)}, {night}" if found else "nothing"

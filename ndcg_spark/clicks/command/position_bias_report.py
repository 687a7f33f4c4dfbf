"""What a person reads of a `position-bias` job."""

from __future__ import annotations

from typing import Any

from ndcg_spark.clicks.command.position_bias_config import PositionBiasConfig
from ndcg_spark.clicks.settings import PropensityPlan

MOST_SHOWN = 50
"""Positions and groups that are printed; `--output` and `--json` have all."""


def report_lines(outcome: dict[str, Any]) -> list[str]:
    """Say what was made and from what."""
    of = {"propensities": _propensities, "judgments": _judgments, "estimates": _estimates}
    lines = of[outcome["makes"]](outcome)
    rows = outcome["rows"]
    return [*lines, f"impressions: {rows['impressions']:,} used, {rows['rejected']:,} rejected"]


def warnings_of(outcome: dict[str, Any]) -> list[str]:
    """Say which propensities are missing or were cut, and whether EM did not converge."""
    if outcome["makes"] != "propensities":
        return []
    found = []
    above = [one for one in outcome["positions"] if one["reason"] == "above_1"]
    if above:
        listed = _listed([f"{one['position']} ({one['ratio']:.4f})" for one in above])
        found.append(f"warning: estimated above 1, so 1 is taken, at position {listed}")
    missing = [one for one in outcome["positions"] if one["propensity"] is None]
    if missing:
        listed = _listed([f"{one['position']} ({one['reason']})" for one in missing])
        found.append(f"warning: no propensity for position {listed}; impressions there will be bad rows")
    if outcome.get("converged") is False and outcome.get("log_likelihood"):
        found.append(
            f"warning: EM has not converged in {outcome['n_iterations']:,} steps; --max-iter allows more, "
            "--tolerance asks for less."
        )
    return found


def _listed(texts: list[str]) -> str:
    more = len(texts) - 10
    return ", ".join(texts[:10]) + (f" and {more:,} more" if more > 0 else "")


def _propensities(outcome: dict[str, Any]) -> list[str]:
    lines = [
        f"position {one['position']}: {_number(one['propensity'])} ({one['n_clicks']:,} clicks of "
        f"{one['n_impressions']:,} impressions)"
        for one in outcome["positions"][:MOST_SHOWN]
    ]
    if len(outcome["positions"]) > MOST_SHOWN:
        lines.append(f"... and {len(outcome['positions']) - MOST_SHOWN} more; --output and --json have all of them.")
    trace = outcome.get("log_likelihood") or []
    lines += [f"log-likelihood after step {step:,}: {trace[step]:,.6f}" for step in _some_steps(len(trace))]
    if trace:
        end = "converged" if outcome["converged"] else "not converged"
        lines.append(f"EM: {end} after {outcome['n_iterations']:,} steps")
    if outcome["n_fitted"] < outcome["n_patterns"]:
        lines.append(
            f"EM: fitted to a sample of {outcome['n_fitted']:,} of {outcome['n_patterns']:,} different counts of "
            "(query, item), which has all frequent ones"
        )
    return lines


def _some_steps(n: int) -> list[int]:
    """Steps 0, 1, 2, 5, 10, 20, 50, ... and the last; the JSON has all of them."""
    round_steps = [0, *(digit * 10**power for power in range(7) for digit in (1, 2, 5))]
    return [step for step in round_steps if step < n - 1] + ([n - 1] if n else [])


def _judgments(outcome: dict[str, Any]) -> list[str]:
    largest = outcome["largest_weight"]
    return [
        f"judgments: {outcome['judgments']:,}",
        f"weights: at most {largest:g}, {outcome['n_clipped']:,} impressions clipped",
    ]


def _estimates(outcome: dict[str, Any]) -> list[str]:
    lines = []
    for one in outcome["estimates"][:MOST_SHOWN]:
        run = f"run={one['run']} " if one["run"] else ""
        segment = "null" if one["segment"] is None else one["segment"]
        group = f"{one['segment_by']}={segment}" if one["segment_by"] else "overall"
        values = "  ".join(f"{name} {_with_interval(one, name)}" for name in ("ips", "snips"))
        lines.append(f"{run}{group} queries={one['n_queries']}  {values}  n_eff {_number(one['n_eff'], 1)}")
    if len(outcome["estimates"]) > MOST_SHOWN:
        lines.append(f"... and {len(outcome['estimates']) - MOST_SHOWN} more; --output and --json have all of them.")
    if any(one["snips_reason"] for one in outcome["estimates"]):
        lines.append(
            "no SNIPS: these are propensities of positions, and it needs those of showing an item (--propensity-of "
            "action)."
        )
    return lines


def _with_interval(one: dict[str, Any], name: str) -> str:
    if one[f"{name}_ci_low"] is None:
        return _number(one[name])
    return f"{one[name]:.6f} [{one[f'{name}_ci_low']:.6f}, {one[f'{name}_ci_high']:.6f}]"


def _number(value: float | None, digits: int = 6) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def explanation(name: str, config: PositionBiasConfig) -> str:
    """Say what a run would do and cost."""
    plan = config.plan
    if isinstance(plan, PropensityPlan):
        about = [f"method       {plan.method}"]
        if plan.method == "pbm":
            about.append(
                f"EM           until no propensity moves by {plan.tolerance:g}, at most {plan.max_iter:,} steps"
            )
        cost = "three shuffles of counts, one task in a Python worker"
    else:
        source = plan.columns.propensity or (
            f"1 / position^{plan.power:g}" if config.propensities is None else config.propensities.reference
        )
        clip = "none" if plan.clip is None else f"{plan.clip:g}"
        about = [f"propensity   {source}", f"clip         {clip}"]
        cost = "one shuffle of sums, in Spark SQL"
        if config.makes == "estimates":
            cost = "one shuffle of sums (two with segments), one pass of queries through Python workers"
    targets = [(config.makes, config.output), ("rejects", config.rejects)]
    written = ", ".join(f"{what} to {target.reference}" for what, target in targets if target) or "nothing"
    lines = [f"input        {name}", f"makes        {config.makes}", *about, f"cost         {cost}"]
    return "\n".join([*lines, f"bad rows     {plan.on_invalid}", f"would write  {written}", "Nothing was run."])

"""What a person reads of the link between a metric and clicks."""

from __future__ import annotations

from typing import Any

from ndcg_spark.business.settings import LinkPlan
from ndcg_spark.business.tasks import FLAT_UP, UP_DOWN
from ndcg_spark.errors import printable
from ndcg_spark.history.tasks.nights import series_name
from ndcg_spark.jobs.report import MOST_SEGMENTS, show_cells

RATES = {"ctr": "click-through", "cvr": "conversion"}
_LEFT_OUT = {
    "n_no_clicks": "without clicks",
    "n_no_metric": "without the metric",
    "n_no_value": "without a query",
    "n_few_impressions": "of few impressions",
    "n_zero": "of a rate over 0",
}
_ALARMS = {UP_DOWN: "up, click-through down", FLAT_UP: "flat, conversion up"}


def show_links(outcome: dict[str, Any], plan: LinkPlan) -> None:
    """Print correlations (a table at a terminal, else a line each), nights left out, and alarms."""
    links = outcome["links"]
    shown = [row for row in links if row["n_nights"]][: 2 * MOST_SEGMENTS]
    show_cells("metric and rate of the same night", [_cells(row) for row in shown])
    if len(links) > len(shown):
        print(
            f"... and {len(links) - len(shown)} more, without a night or beyond these; --output and --json have all."
        )
    if outcome["clicks_without_metric"]:
        print(printable(f"clicks without a metric: {'; '.join(map(_place, outcome['clicks_without_metric']))}"))
    short = sum(row["note"] == "not_enough_nights" for row in links)
    if short:
        print(f"alarms: {short} of {len(links)} series have fewer than {2 * plan.window} nights to compare")
    for row in outcome["alarms"]:
        print(printable(f"ALARM {_alarm(row, plan)}"))
    if not outcome["alarms"]:
        print("no alarm")
    print(_rule(plan))


def _place(row: dict[str, Any]) -> str:
    by = row["segment_by"]
    return f"{by}={'null' if row['segment'] is None else row['segment']}" if by else "overall"


def _cells(row: dict[str, Any]) -> dict[str, str]:
    left_out = ", ".join(f"{row[name]} {why}" for name, why in _LEFT_OUT.items() if row[name])
    return {
        "series": series_name(row),
        "rate": RATES[row["rate"]],
        "nights": f"{row['n_nights']}" + (f" (left out: {left_out})" if left_out else ""),
        "Pearson": _interval(row, "pearson"),
        "Spearman": _interval(row, "spearman"),
        "nightly changes": _interval(row, "change_pearson"),
        "strongest lag": _strongest(row["lags"]),
    }


def _interval(row: dict[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{row[name]:+.3f}" + ("" if low is None else f" [{low:+.3f}, {high:+.3f}]")


def _strongest(lags: list[dict[str, Any]]) -> str:
    """The largest correlation in size among all lags, and its lag."""
    known = [one for one in lags if one["low"] is not None]
    if not known:
        return "-"
    one = max(known, key=lambda one: (abs(one["pearson"]), -abs(one["lag"])))
    return f"{one['pearson']:+.3f} at {one['lag']:+d}"


def _alarm(row: dict[str, Any], plan: LinkPlan) -> str:
    def change(name: str) -> str:
        noise = plan.noise_limit * row[f"{name}_change_error"]
        return f"{100 * row[f'{name}_change']:+.2f} % ± {100 * noise:.2f} %"

    windows = f"{row['window_from']}..{row['window_to']} against {row['before_from']}..{row['before_to']}"
    moved = f"{row['metric']} {change('metric')}, {RATES[row['rate']]} {change('rate')}"
    return f"{row['metric']} {_ALARMS[row['alarm']]}: {series_name(row)}; {windows}: {moved}"


def _rule(plan: LinkPlan) -> str:
    return (
        f"rule: mean of the last {plan.window} nights against the {plan.window} before; up or down: by "
        f"{plan.min_change:.3g} or more and {plan.noise_limit:g} standard errors; flat: change and "
        f"{plan.noise_limit:g} standard errors together at most {plan.max_flat:g}"
    )

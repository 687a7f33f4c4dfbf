"""Rows of a log of impressions: which are bad, and what each of them weighs."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ndcg_spark.clicks.settings import (
    MAX_CLICK,
    MAX_POSITION,
    MAX_WEIGHT,
    ImpressionColumns,
    PropensitySettings,
    WeightSettings,
)
from ndcg_spark.core.bad_rows import Reasons, checked, key_reasons
from ndcg_spark.core.expressions import comparable_key, named, number
from ndcg_spark.errors import option

TABLE = "impressions"
"""What the table is called for a person."""
_POSITION, _GIVEN, _TIMES = "given position", "given propensity", "times given"
"""Columns on the way; they have spaces, so that no key is likely to share the name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Impressions:
    """A log with the reasons why rows are bad, and columns that hold for the others.

    `click`, `position` and `weight` (the inverse propensity before clipping) are doubles, the last two null where
    they are not asked for. `columns` are those that the log came with.
    """

    frame: DataFrame
    reasons: Reasons
    click: Column
    position: Column = field(default_factory=lambda: F.lit(None))
    weight: Column = field(default_factory=lambda: F.lit(None))
    columns: list[str]


def counted_impressions(impressions: DataFrame, settings: PropensitySettings, *, parse_text: bool) -> Impressions:
    """Read impressions to fit propensities from: clicks are 0 or 1. Reads the schema, runs no action."""
    columns = settings.columns
    reasons = key_reasons(impressions, columns.query, columns.item, TABLE)
    position, reasons_of_position = _position(impressions, columns, parse_text)
    click, reasons_of_click = _click(impressions, columns, parse_text)
    reasons += [*reasons_of_position, *reasons_of_click, ("click_not_0_or_1", (click != 0) & (click != 1))]
    names = impressions.columns
    return Impressions(frame=impressions, reasons=reasons, click=click, position=position, columns=names)


def weighted_impressions(
    impressions: DataFrame, settings: WeightSettings, propensities: DataFrame | None, *, parse_text: bool
) -> Impressions:
    """Read impressions and their inverse propensities. Reads schemas, runs no action.

    `propensities` has `position` and `propensity`, and is broadcast. With `parse_text`, numbers of the impressions
    may be text.
    """
    settings.check_source(table=propensities is not None)
    columns = settings.columns
    reasons = key_reasons(impressions, columns.query, columns.item, TABLE)
    for name in (name for names in settings.segment_sets for name in names):
        comparable_key(impressions, name, option("segments"), TABLE)
    if settings.run is not None:
        reasons.append(("null_run", comparable_key(impressions, settings.run, option("run"), TABLE).isNull()))
    frame = impressions
    of_propensity: Reasons = []
    if columns.propensity is not None:
        propensity = number(impressions, columns.propensity, option("propensity"), TABLE, parse_text=parse_text)
        of_propensity = [
            ("null_propensity", named(columns.propensity).isNull()),
            ("propensity_not_a_number", propensity.isNull()),
            *_range(propensity),
        ]
    else:
        position, of_position = _position(impressions, columns, parse_text)
        reasons += of_position
        if propensities is None:
            power, there = float(settings.power or 0), F.when(position >= 1, position)
            propensity = F.lit(1.0) / (there if power == 1 else F.pow(there, F.lit(power)))
        else:
            frame, propensity = _with_given(impressions, position, propensities), named(_GIVEN)
            of_propensity = [
                ("position_without_propensity", propensity.isNull()),
                ("position_with_two_propensities", named(_TIMES) > 1),
                *_range(propensity),
            ]
    if settings.clip is None:
        of_propensity.append(("propensity_too_small", propensity < F.lit(1 / MAX_WEIGHT)))
    click, of_click = _click(impressions, columns, parse_text)
    reasons += [*of_click, *of_propensity]
    weight = F.lit(1.0) / F.when(propensity > 0, propensity)  # a division by 0 would raise even in a bad row
    return Impressions(frame=frame, reasons=reasons, click=click, weight=weight, columns=impressions.columns)


def _range(propensity: Column) -> Reasons:
    return [
        ("nan_propensity", F.isnan(propensity)),
        ("propensity_not_above_0", propensity <= 0),
        ("propensity_above_1", propensity > 1),
    ]


def checked_impressions(found: Impressions, columns: ImpressionColumns, *, originals: bool) -> DataFrame:
    """Say of each impression whether it is bad, and why. Lazy; rows as `checked` gives them."""
    keys = [*columns.query, columns.item]
    return checked(found.frame, found.reasons, keys, originals=found.columns if originals else ())


def _position(frame: DataFrame, columns: ImpressionColumns, parse_text: bool) -> tuple[Column, Reasons]:
    position = number(frame, columns.position, option("position"), TABLE, parse_text=parse_text)
    reasons: Reasons = [
        ("null_position", named(columns.position).isNull() | F.isnan(position)),
        ("position_not_a_number", position.isNull()),
        ("position_below_1", position < 1),
        ("position_too_large", position > MAX_POSITION),
        ("position_not_whole", position % 1 != 0),
    ]
    return position, reasons


def _click(frame: DataFrame, columns: ImpressionColumns, parse_text: bool) -> tuple[Column, Reasons]:
    click = number(frame, columns.click, option("click"), TABLE, parse_text=parse_text)
    reasons: Reasons = [
        ("null_click", named(columns.click).isNull()),
        ("click_not_a_number", click.isNull()),
        ("nan_click", F.isnan(click)),
        ("infinite_click", F.abs(click) == float("inf")),
        ("click_too_large", F.abs(click) > MAX_CLICK),
    ]
    return click, reasons


def _with_given(impressions: DataFrame, position: Column, propensities: DataFrame) -> DataFrame:
    """Look up propensities by position. What is wrong with one of them makes the rows of its position bad."""
    where, value = (
        number(propensities, name, "propensities", "table of propensities", parse_text=True)
        for name in ("position", "propensity")
    )
    listed = propensities.select(where.alias(_POSITION), value.alias(_GIVEN)).groupBy(named(_POSITION))
    given = listed.agg(F.max(named(_GIVEN)).alias(_GIVEN), F.count(F.lit(1)).alias(_TIMES))
    return impressions.join(F.broadcast(given), position == named(_POSITION), "left").drop(_POSITION)

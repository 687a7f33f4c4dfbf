"""A field of a settings class is an option: its type, its default, its sentence, and what is read from a text."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

import click
import pytest
from click.testing import CliRunner

from ndcg_spark.core.flag import Flag, check_values
from ndcg_spark.errors import InvalidParameterError
from ndcg_spark.jobs.command import GroupedCommand
from ndcg_spark.jobs.options import build_options, build_settings, merge_groups, read_parameter_docs

Size = Literal["small", "large"]


def weights_of(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("+")))


def text_of(weights: tuple[int, ...]) -> str:
    return "+".join(map(str, weights))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What is made.

    Parameters
    ----------
    day
        Day on which it is made.
    sizes
        Sizes to make, each `size` of which
        is one thing; not with `item`.

        A second paragraph is for Python alone.
    item : str or None
        Column of what is made.
    price
        What it may cost.
    size
        Size of the box.
    is_blue
        Whether it is blue.

    Raises
    ------
    InvalidParameterError
    """

    day: Annotated[date, Flag(name="on day")]
    sizes: Annotated[tuple[Size, ...], Flag(group="Things", metavar="A,B")] = ("small", "large")
    item: str | None = "item_id"
    price: Annotated[float | None, Flag(shown="any, as `size` says")] = None
    size: Annotated[Size, Flag(group="Box")] = "small"
    is_blue: bool = False
    weights: Annotated[tuple[int, ...], Flag(read=weights_of, text=text_of)] = (1, 2)

    def __post_init__(self) -> None:
        check_values(self)


def test_options_stand_under_the_title_of_the_field_before():
    actual = build_options(Sample, without={"price"})
    assert {title: [element.opts[0] for element in group] for title, group in actual.items()} == {
        "": ["--on"], "Things": ["--sizes", "--item-col"], "Box": ["--size", "--is-blue", "--weights"],
    }  # fmt: skip
    more = merge_groups({"Box": [1], "End": [2]}, {"Things": [3], "Box": [4]})
    assert (list(more), more["Box"]) == (["Box", "End", "Things"], [1, 4])


@pytest.mark.parametrize(
    ("name", "kind", "default", "sentence"),
    [
        ("day", "text", None, "Day on which it is made."),
        ("sizes", "text", "small,large", "Sizes to make, each --size of which is one thing; not with --item-col."),
        ("item_col", "text", "item_id", "Column of what is made."),
        ("price", "float", None, "What it may cost.  [default: any, as --size says]"),
        ("size", "choice", "small", "Size of the box."),
        ("is_blue", "boolean", False, "Whether it is blue."),
        ("weights", "text", "1+2", ""),
    ],
)
def test_an_option_has_type_default_and_sentence_of_its_field(name, kind, default, sentence):
    (one,) = (group for options in build_options(Sample).values() for group in options if group.name == name)
    message = one.to_info_dict()
    assert (message["type"]["name"], one.help, one.required) == (kind, sentence, name == "day")
    assert (message["default"] if default is not None else None) == default


def made(*arguments: str) -> Sample:
    actual = []

    @click.command("make", cls=GroupedCommand, groups=merge_groups(build_options(Sample)))
    def make(**given):
        actual.append(build_settings(Sample, given))

    ended = CliRunner().invoke(make, [*arguments], standalone_mode=False)
    if ended.exception is not None:
        raise ended.exception
    return actual[0]


def test_settings_are_those_of_the_class_where_nothing_is_given():
    assert made("--on", "2026-01-31") == Sample(day=date(2026, 1, 31))


def test_settings_are_what_was_given():
    given = (
        "--on",
        "2026-01-31",
        "--sizes",
        "large, small",
        "--item-col",
        "sku",
        "--price",
        "2.5",
        "--size",
        "large",
    )
    assert made(*given, "--is-blue", "--weights", "7+8") == Sample(
        day=date(2026, 1, 31), sizes=("large", "small"), item="sku", price=2.5, size="large", is_blue=True,
        weights=(7, 8),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        (["--on", "31.1.2026"], InvalidParameterError, "--on: '31.1.2026' is not a date; write it as 2026-01-31"),
        (["--on", "2026-02-30"], InvalidParameterError, "--on: '2026-02-30' is not a day of the calendar"),
        (["--on", "2026-01-31", "--sizes", "small,huge"], InvalidParameterError, "sizes must be one of small, large"),
        (["--on", "2026-01-31", "--size", "huge"], click.UsageError, "'huge' is not one of 'small', 'large'"),
        ([], click.MissingParameter, "Missing parameter: day"),
    ],
)
def test_what_a_field_does_not_take_is_refused(given, kind, message):
    with pytest.raises(kind, match=message.replace("(", r"\(")):
        made(*given)


def test_without_docstrings_there_are_no_sentences():
    """As under `python -OO`."""
    bare = type("Bare", (), {})
    assert read_parameter_docs(bare) == {}

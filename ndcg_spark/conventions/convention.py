"""Every choice that changes an NDCG value, under one name, and in words; presets that reproduce other tools."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal, TypeAlias

from ndcg_spark.conventions.forms import (
    DiscountFunction,
    GainFunction,
    check_discount,
    function_text,
    parse_discount,
    parse_gain,
)
from ndcg_spark.core.flag import Flag, check_values, list_settings
from ndcg_spark.errors import InvalidParameterError, option

Ties: TypeAlias = Literal["expected", "item_asc", "item_desc", "input_order", "best", "worst"]
ScorePrecision: TypeAlias = Literal["double", "float32"]
Ideal: TypeAlias = Literal["judged", "retrieved", "k_ones", "as_many", "unsorted"]
Unjudged: TypeAlias = Literal["zero", "condensed", "error"]
Negative: TypeAlias = Literal["keep", "clip", "error"]
NoRelevant: TypeAlias = Literal["zero", "one", "skip", "error"]
MissingQuery: TypeAlias = Literal["zero", "drop"]
UnjudgedQuery: TypeAlias = Literal["drop", "zero"]
Duplicates: TypeAlias = Literal["error", "best", "first"]

TIE_GROUP_RULES = ("expected", "best", "worst")
"""Tie rules that treat all items of one score together, and so need no item column."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """Every choice that changes an NDCG value, under one name.

    Parameters
    ----------
    name
        Name of the preset it started from; it does not change a number.
    gain
        How a relevance becomes a gain: `exponential` (2^rel - 1), `linear`, or `binary`, each also as NAME:LEVEL with
        gain 0 below that level; power:P (the sign stays); or table:LEVEL=GAIN,... for a gain by level.

        In Python also a NumPy function of float64 relevances that does not fall as relevance grows.
    discount
        How the weight of a rank falls: `log2`, `ln`, log:BASE, or `reciprocal` (1 / rank); or table:D1,D2,... for a
        weight by rank.

        In Python also a NumPy function of float64 ranks. Weights are above 0, and none is above the one before it.
    ties
        Order of items with equal scores: `expected` (average of all), `item_asc`, `item_desc`, `input_order` (by an
        order column), `best`, `worst`.

        Items are ordered as strings by UTF-8 bytes, or as numbers by value; `best` and `worst` go by gain. Items that
        tie here, too, are ordered by relevance, the lowest first.
    score_precision
        Precision in which scores are compared: `double`, `float32`.
    ideal
        Items of the ideal list: `judged` (the best judged items), `retrieved` (judged items of the list), `k_ones` (k
        of relevance 1), `as_many` (the best judged items, no more than are ranked), `unsorted` (judged items in the
        order of their array).

        From those of `as_many`, `unjudged=condensed` removes items. MLlib takes them `unsorted`.
    unjudged
        Items without judgment: `zero` (gain 0), `condensed` (removed before ranking), `error` (refused among the
        first k).
    negative
        Relevances below 0: `keep`, `clip` (to 0, before the gain), `error` (bad rows).
    no_relevant
        NDCG of a query with nothing relevant, whose IDCG is 0 or less: `zero`, `one`, `skip` (left out of the mean),
        `error`.
    missing_query
        Judged queries that the run misses: `zero` (NDCG 0), `drop`.
    unjudged_query
        Queries of the run without any judgment: `drop`, `zero` (NDCG 0).
    duplicates
        An item that appears twice in a query: `error`, `best` (the best score counts), `first` (by the order column).
    pad_to_k
        Relevance of the items that a list shorter than k misses; off for none.

        In Python, None is none.

    Examples
    --------
    >>> convention = Convention.parse("trec_eval;gain=exponential")
    >>> convention.ties, convention.gain
    ('item_desc', 'exponential')
    >>> str(convention)
    'trec_eval;gain=exponential'
    >>> Convention.parse(str(convention)) == convention
    True
    """

    name: str = "default"
    gain: Annotated[str | GainFunction, Flag(group="Metric", metavar="G")] = "exponential"
    discount: Annotated[str | DiscountFunction, Flag(metavar="D")] = "log2"
    ties: Ties = "expected"
    score_precision: ScorePrecision = "double"
    ideal: Ideal = "judged"
    unjudged: Unjudged = "zero"
    negative: Negative = "keep"
    no_relevant: NoRelevant = "zero"
    missing_query: MissingQuery = "zero"
    unjudged_query: UnjudgedQuery = "drop"
    duplicates: Duplicates = "error"
    pad_to_k: Annotated[float | None, Flag(metavar="REL")] = None

    def __post_init__(self) -> None:
        check_values(self)
        if not callable(self.gain):
            parse_gain(self.gain)
        check_discount(self.discount, 0)
        if self.pad_to_k is not None:
            number: object = self.pad_to_k
            if not isinstance(number, int | float) or not math.isfinite(number):
                raise InvalidParameterError(f"pad_to_k must be a finite relevance; got {self.pad_to_k!r}.")
            object.__setattr__(self, "pad_to_k", float(self.pad_to_k) + 0.0)  # 0, 0.0 and -0.0 are one choice

    @property
    def groups_ties(self) -> bool:
        """Check whether the tie rule treats all items of one score together."""
        return self.ties in TIE_GROUP_RULES

    @property
    def has_gain_table(self) -> bool:
        """Check whether gains are a table, which need not rise with relevance."""
        return isinstance(self.gain, str) and self.gain.startswith("table:")

    @classmethod
    def parse(cls, text: str | Convention) -> Convention:
        """Parse a convention: the name of a preset, followed by changes. Inverse of `str()`.

        Parameters
        ----------
        text : str or Convention
            Name of a preset, then any number of `;choice=value`. A convention is returned as it is.

        Returns
        -------
        Convention

        Raises
        ------
        InvalidParameterError
            For an unknown preset, choice or value.
        """
        if isinstance(text, Convention):
            return text
        if not isinstance(text, str):
            raise InvalidParameterError(f"a convention is the name of a preset or a Convention; got {text!r}.")
        name, *changes = text.split(";")
        if name not in PRESETS:
            raise InvalidParameterError(f"unknown convention {name!r}; choose one of {', '.join(sorted(PRESETS))}.")
        pairs = [change.partition("=") for change in changes]
        changed_choices = {choice: value for choice, _, value in pairs}
        if len(changed_choices) < len(pairs):
            twice = next(
                choice
                for index, (choice, *_) in enumerate(pairs)
                if choice in [earlier for earlier, *_ in pairs[:index]]
            )
            raise InvalidParameterError(f"convention {text!r} has {twice!r} twice; keep one.")
        return PRESETS[name].changed(changed_choices)

    def changed(self, choices: dict[str, str]) -> Convention:
        """Return a convention with some choices changed.

        Parameters
        ----------
        choices : dict from choice to its value as text

        Returns
        -------
        Convention

        Raises
        ------
        InvalidParameterError
            For an unknown choice or value.
        """
        parsed: dict[str, str | float | None] = {}
        for choice, value in choices.items():
            if choice not in _CHOICE_NAMES:
                raise InvalidParameterError(f"unknown choice {choice!r}; choose one of {', '.join(_CHOICE_NAMES)}.")
            parsed[choice] = _parse_pad_to_k(value) if choice == "pad_to_k" else value
        return replace(self, **parsed)  # type: ignore[arg-type]  # text, which __post_init__ checks

    def advice(self, choice: str, value: str) -> str:
        """Name a change of this convention for a message, as each front end writes it.

        Parameters
        ----------
        choice, value : str
            A field, and what it is to be.

        Returns
        -------
        str
            With marks that become `convention='default;ties=best'` in Python and `--ties best` in the shell.
        """
        parts = [change for change in str(self).split(";") if not change.startswith(f"{choice}=")]
        return option("convention", repr(";".join([*parts, f"{choice}={value}"])))

    def __str__(self) -> str:
        """Name of the preset and what differs from it, in the form that `parse` reads."""
        preset = PRESETS.get(self.name, PRESETS["default"])
        parts = [preset.name]
        for choice, value in self.differences(preset).items():
            parts.append(f"{choice}={_format_value(value)}")
        return ";".join(parts)

    def differences(self, other: Convention | None = None) -> dict[str, object]:
        """Choices in which this convention differs from another.

        Parameters
        ----------
        other : Convention or None
            None: the default convention.

        Returns
        -------
        dict from choice to this convention's value
        """
        base = Convention() if other is None else other
        return {
            choice: getattr(self, choice)
            for choice in _CHOICE_NAMES
            if getattr(self, choice) != getattr(base, choice)
        }

    @property
    def choices(self) -> dict[str, str]:
        """All choices in full, in their order and without the name; one text for one value, however it is written."""
        return {choice: _format_canonical(choice, getattr(self, choice)) for choice in _CHOICE_NAMES}

    @property
    def digest(self) -> str:
        """Sixteen hex digits of a hash of all choices, without the name."""
        return hashlib.sha256(json.dumps(self.choices, sort_keys=True).encode()).hexdigest()[:16]


def _parse_pad_to_k(text: str) -> float | None:
    if text in ("", "off", "None"):
        return None
    try:
        return float(text)
    except ValueError:
        raise InvalidParameterError(f"pad_to_k must be a relevance or 'off'; got {text!r}.") from None


def _format_value(value: object) -> str:
    if value is None:
        return "off"
    if callable(value):
        return f"{value.__module__}.{getattr(value, '__qualname__', type(value).__name__)}"
    return str(value)


def _format_canonical(choice: str, value: object) -> str:
    if callable(value):
        return function_text(value)
    if choice == "gain":
        return parse_gain(value).text
    return parse_discount(value).text if choice == "discount" else _format_value(value)


_CHOICE_NAMES = tuple(field.name for field in fields(Convention) if field.name != "name")
CHOICES: dict[str, tuple[str, ...]] = {
    setting.field: setting.choices for setting in list_settings(Convention) if setting.choices
}
"""The values of every choice that has a fixed list; the first is the default."""


_GAINS = {
    "exponential": "2 to the power of the relevance, minus 1",
    "linear": "the relevance itself",
    "binary": "1 for a relevance above 0, else 0",
}
_DISCOUNTS = {
    "log2": "1 / log2(rank + 1)",
    "ln": "1 / ln(rank + 1)",
    "reciprocal": "1 / rank",
}
_WORDS: dict[str, tuple[str, dict[str, str]]] = {
    "ties": (
        "Items with equal scores",
        {
            "expected": "every order of them counts alike: the value is the mean over all orders",
            "item_asc": "are ordered by item, ascending",
            "item_desc": "are ordered by item, descending",
            "input_order": "keep the order of the input",
            "best": "are put in the order that is best for the ranker",
            "worst": "are put in the order that is worst for the ranker",
        },
    ),
    "score_precision": (
        "Scores are compared",
        {"double": "in double precision", "float32": "after rounding to 32 bits"},
    ),
    "ideal": (
        "The ideal list holds",
        {
            "judged": "all items of the query that have a relevance in the input, retrieved or not",
            "retrieved": "only the judged items that were retrieved",
            "k_ones": "k items of relevance 1, whatever was judged",
            "as_many": "the best judged items, no more of them than are ranked",
            "unsorted": "the judged items in the order in which they were stored",
        },
    ),
    "unjudged": (
        "Items without a judgment",
        {"zero": "gain nothing", "condensed": "are removed before ranking", "error": "are refused among the first k"},
    ),
    "negative": (
        "Relevances below 0",
        {"keep": "cost", "clip": "count as 0", "error": "are bad rows"},
    ),
    "no_relevant": (
        "Queries with nothing relevant",
        {
            "zero": "count as 0",
            "one": "count as 1",
            "skip": "are left out of the mean",
            "error": "are refused",
        },
    ),
    "missing_query": (
        "Judged queries that the ranker did not answer",
        {"zero": "count as 0", "drop": "are left out"},
    ),
    "unjudged_query": (
        "Queries without any judgment",
        {"drop": "are left out", "zero": "count as 0"},
    ),
    "duplicates": (
        "An item that appears twice in a query",
        {
            "error": "is refused",
            "best": "counts once, with its best score",
            "first": "counts once, where it is first",
        },
    ),
}


def in_words(convention: Convention) -> list[tuple[str, str]]:
    """Spell a convention out: the subject of each choice, and what was chosen.

    >>> in_words(Convention())[0]
    ('Gain of an item', '2 to the power of the relevance, minus 1')
    """
    sentences = [
        ("Gain of an item", _describe_gain(convention.gain)),
        ("Discount of a rank", _describe_discount(convention.discount)),
    ]
    sentences += [(title, words[getattr(convention, choice)]) for choice, (title, words) in _WORDS.items()]
    padded = convention.pad_to_k
    short = "stay short" if padded is None else f"are filled up with items of relevance {padded:g}"
    return [*sentences, ("Lists shorter than k", short)]


def _describe_gain(gain: object) -> str:
    if not isinstance(gain, str):
        return f"a function of the relevance, {getattr(gain, '__qualname__', gain)}"
    name, _, rest = gain.partition(":")
    if name == "power":
        return f"the relevance to the power of {rest}"
    if name == "table":
        return f"by a table of relevance and gain: {rest}"
    return _GAINS[name] + (f"; 0 for relevances below {rest}" if rest else "")


def _describe_discount(discount: object) -> str:
    if not isinstance(discount, str):
        return f"a function of the rank, {getattr(discount, '__qualname__', discount)}"
    name, _, rest = discount.partition(":")
    if name == "log":
        return f"1 / log(rank + 1), to base {rest}"
    if name == "table":
        return f"by a table, from rank 1 on: {rest}"
    return _DISCOUNTS[name]


PRESETS: dict[str, Convention] = {}
"""Conventions by the names of the tools whose numbers they reproduce."""
ABOUT: dict[str, str] = {}
"""The version of the tool that each preset reproduces, and what it does not reproduce."""


def _preset(name: str, about: str, **choices: str) -> None:
    PRESETS[name] = Convention(name=name, **choices)  # type: ignore[arg-type]  # text, which Convention checks
    ABOUT[name] = about


_TREC = {"gain": "linear", "ties": "item_desc", "negative": "clip", "missing_query": "drop"}
_LISTED = {"ideal": "retrieved", "no_relevant": "one"}
_BY_ITEM = {"ties": "item_asc"}  # tools that leave the order of tied items open, or have it by item
_EMPTY_TRUTH = {"unjudged_query": "zero"}  # a list with an empty truth beside it counts 0

_preset("default", "this project's own choices")
_preset("linear", "the default with the relevance itself as gain", gain="linear")
_preset(
    "trec_eval", "trec_eval 10, scores as doubles; it cuts the fractions of relevances, which count here", **_TREC
)
_preset("trec_eval_9", "trec_eval up to 9.0.8 and pytrec_eval: scores as float32", **_TREC, score_precision="float32")
_preset(
    "ir_measures",
    "ir_measures 0.4, and trec_eval -c: a judged query that is not in the run counts 0",
    **{**_TREC, "missing_query": "zero", "score_precision": "float32"},
)
_preset(
    "gdeval",
    "gdeval of the TREC Web Track, which prints 5 decimals and leaves out queries with nothing relevant",
    **{**_TREC, "gain": "exponential", "no_relevant": "skip"},
)
_preset(
    "sklearn",
    "scikit-learn 1.9 ndcg_score: ties averaged, negative labels refused",
    gain="linear", ties="expected", ideal="retrieved", negative="error",
)  # fmt: skip
_preset(
    "lightgbm",
    "LightGBM 4.7 with its default label gains; needs the order of rows; LightGBM counts a query with nothing "
    "relevant as 1 without its weight, we with it",
    ties="input_order", **_LISTED,
)  # fmt: skip
_preset(
    "xgboost",
    "XGBoost 3.2 ndcg; its ndcg without @k means @32; needs the order of rows; its linear gain was wrong before 3.1",
    ties="input_order", score_precision="float32", **_LISTED,
)  # fmt: skip
_preset(
    "xgboost_minus",
    "XGBoost 3.2 ndcg@k-: a query with nothing relevant counts 0",
    ties="input_order", score_precision="float32", ideal="retrieved", no_relevant="zero",
)  # fmt: skip
_preset("catboost", "CatBoost NDCG:type=Base, tied items worst first", gain="linear", ties="worst", **_LISTED)
_preset("catboost_exp", "CatBoost NDCG:type=Exp, tied items worst first", ties="worst", **_LISTED)
_preset(
    "mllib",
    "Spark MLlib ndcgAt from Scala with relevances, which takes the labels in the order given for ideal; needs a "
    "column with an array of them; mllib_sorted corrects this",
    ideal="unsorted", **_EMPTY_TRUTH, **_BY_ITEM,
)  # fmt: skip
_preset(
    "mllib_sorted",
    "Spark MLlib ndcgAt from Scala with relevances, with the ideal list sorted",
    **_EMPTY_TRUTH,
    **_BY_ITEM,
)
_preset(
    "mllib_binary",
    "Spark MLlib ndcgAt from Python, which ignores relevances",
    gain="binary",
    **_EMPTY_TRUTH,
    **_BY_ITEM,
)
_preset(
    "recommenders_spark",
    "Microsoft recommenders, Spark",
    gain="binary",
    missing_query="drop",
    no_relevant="skip",
    **_BY_ITEM,
)
_preset(
    "recommenders_pandas",
    "Microsoft recommenders, pandas, score_type=raw; nothing relevant is NaN there, which its mean leaves out",
    gain="linear", no_relevant="skip", **_BY_ITEM,
)  # fmt: skip
_preset("ranx", "ranx 0.3 ndcg; its order of tied items is not specified", gain="linear:1", **_BY_ITEM)
_preset(
    "ranx_burges", "ranx 0.3 ndcg_burges; its order of tied items is not specified", gain="exponential:1", **_BY_ITEM
)
_preset(
    "torchmetrics",
    "torchmetrics retrieval_normalized_dcg; it adds in float32, so equal to 1e-6",
    gain="linear", ties="expected", ideal="retrieved", score_precision="float32",
)  # fmt: skip
_preset("talr", "tie-aware hashing (He et al., CVPR 2018): no cutoff, ties averaged", ties="expected", **_LISTED)
_preset("replay", "Sber RePlay NDCG", gain="binary", ties="item_desc")
_preset("rectools", "RecTools NDCG, whose ideal assumes k relevant items", gain="binary", ideal="k_ones", **_BY_ITEM)
_preset(
    "mlflow",
    "MLflow ndcg_at_k, whose ideal is no longer than the list",
    gain="binary", ideal="as_many", **_EMPTY_TRUTH, **_BY_ITEM,
)  # fmt: skip
_preset(
    "evidently",
    "evidently NDCG over the items shown; its tie order is a defect and not reproduced",
    gain="linear", ideal="retrieved", no_relevant="skip", **_BY_ITEM,
)  # fmt: skip

"""Presets: conventions by the names of the tools whose numbers they reproduce.

Versions matter: a preset names the one it reproduces, and what it does not reproduce.
"""

from __future__ import annotations

from ndcg_spark.conventions.convention import Convention

PRESETS: dict[str, Convention] = {}
"""Convention by name."""

ABOUT: dict[str, str] = {}
"""The tool that each preset reproduces, and its caveats."""


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
    "column with an array of them; mllib_sorted is what it should be",
    ideal="unsorted", **_EMPTY_TRUTH, **_BY_ITEM,
)  # fmt: skip
_preset(
    "mllib_sorted",
    "Spark MLlib ndcgAt from Scala with relevances, had it sorted the ideal list",
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

"""An evaluator for `pyspark.ml`, which selects models by the numbers of `evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pyspark import keyword_only
from pyspark.ml.evaluation import Evaluator
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasLabelCol, HasPredictionCol
from pyspark.ml.util import DefaultParamsReadable, DefaultParamsWritable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from ndcg_spark.conventions import Convention
from ndcg_spark.core.adapters import accepts_rows
from ndcg_spark.core.columns import exact_col, number_column, require_column
from ndcg_spark.core.failures import readable_errors
from ndcg_spark.core.labels import metric_at
from ndcg_spark.errors import (
    InputRefusedError,
    InvalidParameterError,
    NdcgSparkError,
    check_choice,
    get_message,
    option,
    spell_options,
)
from ndcg_spark.evaluation.api import evaluate
from ndcg_spark.evaluation.settings import NullScore, parse_metrics, parse_single_cutoff
from ndcg_spark.metrics import MetricAt

MISSING_PREDICTIONS = ("error", "drop", "unretrieved")
_CHOICES = ("gain", "discount", "ties")


def _to_names(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else TypeConverters.toListString(value)


def _to_text(value: Any) -> str:
    return str(value)  # k may be a number or `all`; a saved evaluator stores it as text


def _make_param(name: str, about: str, convert: Callable[[Any], Any] = TypeConverters.toString) -> Param[Any]:
    return Param(Params._dummy(), name, about, typeConverter=convert)


def _is_array(dataset: DataFrame, column: str) -> bool:
    return column in dataset.columns and isinstance(dataset.schema[column].dataType, T.ArrayType)


@contextmanager
def _name_params_in_errors() -> Iterator[None]:
    """Replace the names of options of `evaluate` in errors by the names of params."""
    params = {"query": "queryCol", "item": "itemCol", "score": "predictionCol", "relevance": "labelCol"}
    params |= {"ranked": "predictionCol", "relevant": "labelCol"}
    try:
        yield
    except NdcgSparkError as error:
        message = spell_options(get_message(error), lambda name, value: f"{params.get(name, name)}={value}")
        raise type(error)(message) from error


class NdcgEvaluator(
    Evaluator, HasLabelCol, HasPredictionCol, DefaultParamsReadable["NdcgEvaluator"], DefaultParamsWritable
):
    """Evaluate predictions of a `pyspark.ml` model with the mean of a ranking metric.

    Use it with `CrossValidator` and `TrainValidationSplit`, or call `evaluate(predictions)`. The value is the overall
    mean that `ndcg_spark.evaluate` computes with the same options. `isLargerBetter` depends on the metric.

    Columns of arrays are lists with one row per query, as for `RankingEvaluator` of `pyspark.ml`: `predictionCol` has
    the recommended items, `labelCol` the relevant items. Under the convention `mllib_binary`, NDCG has the same value
    as with `RankingEvaluator`.

    Parameters
    ----------
    predictionCol : str
        Scores, where higher is better; or lists of items, as `ranked` of `evaluate`. Default: `prediction`.
    labelCol : str
        Relevances, where null is an unjudged item; or lists of items, as `relevant` of `evaluate`. Default: `label`.
    queryCol : str or list of str
        One or more columns that together identify a query; lists need none. Default: `query_id`.
    itemCol : str
        Column of items. Default: `item_id`, which may be missing if no rule needs items.
    k : int or "all"
        Cutoff of a metric whose name has none. Default: 10.
    metricName : str
        Any metric with a better direction that needs no table of items or interactions: `ndcg`, `ndcg@5`, `ap`,
        `p(rel=2)@5`. Default: `ndcg`.
    convention : str
        Name of a preset, with changes after semicolons. Default: `default`.
    gain, discount, ties : str
        Choices that replace those of `convention`; see `Convention`.
    missingPrediction : str
        Treatment of rows whose prediction is NaN or null, such as those of users or items that are new to the model.
        `error`: the row is a bad row. `drop`: the row is ignored, also in the ideal list. `unretrieved`: the item is
        judged but not retrieved, so it lowers NDCG if it is relevant. Not for lists. Default: `error`.

    See Also
    --------
    evaluate : The same numbers, with values of queries, segments and intervals.
    with_query_folds : Folds for `CrossValidator` that keep the rows of a query together.

    Notes
    -----
    `evaluate` raises `InvalidParameterError` for an unknown metric, convention or choice, `MissingColumnError` for a
    missing column, and `InputRefusedError` for bad rows and if no query counts.

    Spark cost of `evaluate`: one action, with a shuffle of partial rankings and a small shuffle of sums. It runs in
    classic sessions and on Spark Connect. Workers need this package.

    Examples
    --------
    >>> evaluator = NdcgEvaluator(queryCol="user", itemCol="movie", labelCol="rating", k=5)
    >>> evaluator.getQueryCol(), evaluator.isLargerBetter()
    (['user'], True)
    >>> evaluator.evaluate(model.transform(validation))  # doctest: +SKIP
    0.8123
    """

    queryCol = _make_param("queryCol", "columns that together identify a query", _to_names)  # noqa: N815  # as pyspark.ml
    itemCol = _make_param("itemCol", "column of items")  # noqa: N815
    k = _make_param("k", "cutoff of a metric whose name has none: a whole number of at least 1, or all", _to_text)
    metricName = _make_param("metricName", "name of a metric, such as ndcg or ap@100")  # noqa: N815
    convention = _make_param("convention", "name of a preset, with changes after semicolons")
    gain = _make_param("gain", "gain, instead of that of the convention")
    discount = _make_param("discount", "discount, instead of that of the convention")
    ties = _make_param("ties", "order of items with equal scores, instead of that of the convention")
    missingPrediction = _make_param(  # noqa: N815
        "missingPrediction", f"treatment of rows without a prediction: {', '.join(MISSING_PREDICTIONS)}"
    )

    _input_kwargs: dict[str, Any]

    @keyword_only
    def __init__(
        self,
        *,
        predictionCol: str = "prediction",  # noqa: N803  # as pyspark.ml
        labelCol: str = "label",  # noqa: N803
        queryCol: str | Sequence[str] = "query_id",  # noqa: N803
        itemCol: str | None = None,  # noqa: N803
        k: int | str = 10,
        metricName: str = "ndcg",  # noqa: N803
        convention: str = "default",
        gain: str | None = None,
        discount: str | None = None,
        ties: str | None = None,
        missingPrediction: str = "error",  # noqa: N803
    ) -> None:
        super().__init__()
        self._setDefault(
            queryCol=["query_id"], k="10", metricName="ndcg", convention="default", missingPrediction="error"
        )
        self._use(self._input_kwargs)

    @keyword_only
    def setParams(  # noqa: N802
        self,
        *,
        predictionCol: str = "prediction",  # noqa: N803
        labelCol: str = "label",  # noqa: N803
        queryCol: str | Sequence[str] = "query_id",  # noqa: N803
        itemCol: str | None = None,  # noqa: N803
        k: int | str = 10,
        metricName: str = "ndcg",  # noqa: N803
        convention: str = "default",
        gain: str | None = None,
        discount: str | None = None,
        ties: str | None = None,
        missingPrediction: str = "error",  # noqa: N803
    ) -> NdcgEvaluator:
        """Set the given params. None resets a param to its default."""
        return self._use(self._input_kwargs)

    def _use(self, params: dict[str, Any]) -> NdcgEvaluator:
        """Set params, and clear those that are None, because `_set` would store None as a value."""
        for param in [param for param, value in params.items() if value is None]:
            self.clear(getattr(self, param))
        return self._set(**{param: value for param, value in params.items() if value is not None})

    @_name_params_in_errors()
    def _evaluate(self, dataset: DataFrame) -> float:
        metric, convention = self._metric(), self._convention()
        options: dict[str, Any] = {"item": self.getItemCol()} if self.isDefined(self.itemCol) else {}
        rows, null_score = self._rows(dataset)
        result = evaluate(
            rows,
            query=self.getQueryCol(),
            **self._columns(dataset),
            metrics=metric_at(metric.metric, metric.k) if metric.metric.takes_cutoff else str(metric),
            convention=convention,
            null_score=null_score,
            **options,
        )
        is_metric = (F.col("metric") == str(metric.metric)) & F.col("k").eqNullSafe(F.lit(metric.k))
        with readable_errors():
            rows_of_mean = result.summary.where((F.col("segment_by") == "") & is_metric).select("value").collect()
        if not rows_of_mean or rows_of_mean[0]["value"] is None:
            raise InputRefusedError(f"no query counts for {metric} under convention {convention}, so it has no mean.")
        return float(rows_of_mean[0]["value"])

    def _columns(self, dataset: DataFrame) -> dict[str, Any]:
        prediction, label = self.getPredictionCol(), self.getLabelCol()
        if _is_array(dataset, prediction):
            return {"ranked": prediction, "relevant": label}
        return {"score": prediction, "relevance": label}

    def _metric(self) -> MetricAt:
        metric_name = self.getMetricName()
        (metric, *others), _ = parse_metrics(metric_name, [parse_single_cutoff(self.getK())])
        if others:
            raise InvalidParameterError(f"metricName must name one metric at one cutoff; got {metric_name!r}.")
        if metric.metric.needs:
            needs = ", ".join(map(str, metric.metric.needs))
            raise InvalidParameterError(
                f"metricName {metric_name!r} needs more than predictions ({needs}); compute it with "
                "ndcg_spark.evaluate."
            )
        if metric.metric.larger_is_better is None:
            raise InvalidParameterError(
                f"metricName {metric_name!r} cannot choose a model: neither more nor less of {metric.metric.name} is "
                "better; choose another metric, or compute it with ndcg_spark.evaluate."
            )
        return metric

    def _convention(self) -> Convention:
        changes = {name: self.getOrDefault(name) for name in _CHOICES if self.isDefined(name)}
        return Convention.parse(self.getConvention()).changed(changes)

    def _rows(self, dataset: DataFrame) -> tuple[DataFrame, NullScore]:
        missing = self.getMissingPrediction()
        check_choice("missingPrediction", missing, MISSING_PREDICTIONS)
        if missing == "error":
            return dataset, "bad"
        if _is_array(dataset, self.getPredictionCol()):
            raise InvalidParameterError(
                f"missingPrediction={missing} applies to scores, but predictionCol has lists; remove "
                "missingPrediction."
            )
        prediction = self.getPredictionCol()
        score = F.nanvl(number_column(dataset, prediction, option("score"), "predictions"), F.lit(None))
        rows = dataset.withColumn(prediction, score)
        if missing == "drop":
            return rows.where(exact_col(prediction).isNotNull()), "bad"
        return rows, "unretrieved"

    def isLargerBetter(self) -> bool:  # noqa: N802
        """Return True if the best model has the largest value. Refuse a metric without a better direction."""
        return bool(self._metric().metric.larger_is_better)

    def setPredictionCol(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(predictionCol=value)

    def setLabelCol(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(labelCol=value)

    def setQueryCol(self, value: str | Sequence[str]) -> NdcgEvaluator:  # noqa: N802
        return self._set(queryCol=value)

    def getQueryCol(self) -> list[str]:  # noqa: N802
        return _to_names(self.getOrDefault(self.queryCol))

    def setItemCol(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(itemCol=value)

    def getItemCol(self) -> str:  # noqa: N802
        return str(self.getOrDefault(self.itemCol))

    def setK(self, value: int | str) -> NdcgEvaluator:  # noqa: N802
        return self._set(k=value)

    def getK(self) -> str:  # noqa: N802
        return str(self.getOrDefault(self.k))

    def setMetricName(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(metricName=value)

    def getMetricName(self) -> str:  # noqa: N802
        return str(self.getOrDefault(self.metricName))

    def setConvention(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(convention=value)

    def getConvention(self) -> str:  # noqa: N802
        return str(self.getOrDefault(self.convention))

    def setGain(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(gain=value)

    def setDiscount(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(discount=value)

    def setTies(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(ties=value)

    def setMissingPrediction(self, value: str) -> NdcgEvaluator:  # noqa: N802
        return self._set(missingPrediction=value)

    def getMissingPrediction(self) -> str:  # noqa: N802
        return str(self.getOrDefault(self.missingPrediction))


@accepts_rows
def with_query_folds(
    rows: DataFrame,
    query: str | Sequence[str] = "query_id",
    *,
    num_folds: int = 3,
    fold_col: str = "fold",
    seed: int = 0,
) -> DataFrame:
    """Add a column that assigns all rows of a query to the same fold, for `CrossValidator(foldCol=...)`.

    Without such a column, `CrossValidator` draws folds row by row: it splits lists, and a query has rows in both
    training and validation.

    Parameters
    ----------
    rows : DataFrame
        Rows of training data.
    query : str or sequence of str
        One or more columns that together identify a query.
    num_folds : int
        Number of folds, as `numFolds` of the `CrossValidator`; at least 2.
    fold_col : str
        Name of the new column.
    seed : int
        Seed of the assignment.

    Returns
    -------
    DataFrame
        Lazy: `rows` with an int column from 0 to `num_folds` - 1. The fold is a hash of the query, so it is the same
        in every run and on every cluster. Folds differ in size, as the hashes are random.

    Raises
    ------
    InvalidParameterError
        If `num_folds` is less than 2, or `fold_col` exists.
    MissingColumnError
        If a query column does not exist.

    Notes
    -----
    Spark cost: none; no shuffle, no Python.

    Examples
    --------
    >>> folds = with_query_folds(training, "user", num_folds=5)  # doctest: +SKIP
    >>> CrossValidator(..., numFolds=5, foldCol="fold").fit(folds)  # doctest: +SKIP
    """
    query_columns = _to_names(query)
    if num_folds < 2:
        raise InvalidParameterError(f"num_folds must be a whole number of at least 2; got {num_folds!r}.")
    for column in query_columns:
        require_column(rows, column, option("query"), "table")
    if fold_col.lower() in {column.lower() for column in rows.columns}:
        raise InvalidParameterError(f"fold_col {fold_col!r} is a column of the table; choose another name.")
    keys = [
        exact_col(column).cast("string") for column in query_columns
    ]  # as text, so that an int and a bigint agree
    return rows.withColumn(fold_col, F.pmod(F.xxhash64(F.lit(f"fold {seed}"), *keys), F.lit(num_folds)).cast("int"))

"""The tools themselves, called live on rankings. Each gives NDCG by (query, k), without the queries it leaves out.

A tool is imported when it is first called, so that one that is not installed costs only its own lines.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from scripts.checks.peers.data import Cutoff, Queries, Row, Values

WHOLE_LIST = 100_000
"""Stands for the whole list where a tool knows only cutoffs."""


class UnavailableError(Exception):
    """The tool is not available; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """An outside implementation, or a definition that is not part of a package."""

    call: Callable[[Queries, Sequence[Cutoff]], Values]
    package: str = ""
    beside: str = ""

    @property
    def title(self) -> str:
        """Name of the tool and its installed version."""
        try:
            return f"{self.package} {version(self.package)}{self.beside}" if self.package else self.beside
        except PackageNotFoundError:
            return f"{self.package}{self.beside}"


def import_tool(module: str) -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tool and of what it imports
        try:
            return importlib.import_module(module)
        except Exception as error:  # a broken installation raises whatever it likes, as a missing libgomp does
            raise UnavailableError(f"{module} cannot be imported: {error}") from error


def _judgments(queries: Queries) -> dict[str, dict[str, int]]:
    qrels = {
        query: {row.item: int(row.relevance) for row in rows if row.relevance is not None}
        for query, rows in queries.items()
    }
    return {query: judged for query, judged in qrels.items() if judged}


def _run(queries: Queries) -> dict[str, dict[str, float]]:
    scores = {
        query: {row.item: row.score for row in rows if row.score is not None} for query, rows in queries.items()
    }
    return {query: scored for query, scored in scores.items() if scored}


def _arrays(rows: Iterable[Row]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Labels and scores of the retrieved items in input order; who trains a ranker labels unjudged items 0."""
    listed = sorted((row for row in rows if row.score is not None), key=lambda row: row.position)
    return np.array([row.relevance or 0.0 for row in listed]), np.array([row.score for row in listed])


# --- trec_eval and gdeval


def pytrec_eval(queries: Queries, cutoffs: Sequence[Cutoff], *, judged_only: bool = False) -> Values:
    numbers = ",".join(str(k) for k in cutoffs if k is not None)
    measures = {"ndcg"} | ({f"ndcg_cut.{numbers}"} if numbers else set())
    evaluator = import_tool("pytrec_eval").RelevanceEvaluator(
        _judgments(queries), measures, judged_docs_only_flag=judged_only
    )
    results = evaluator.evaluate(_run(queries))
    return {
        (query, k): values["ndcg" if k is None else f"ndcg_cut_{k}"]
        for query, values in results.items()
        for k in cutoffs
    }


def ir_measures(queries: Queries, cutoffs: Sequence[Cutoff]) -> Values:
    module = import_tool("ir_measures")
    measures = {module.nDCG if k is None else module.nDCG @ k: k for k in cutoffs}
    measurements = module.iter_calc(list(measures), _judgments(queries), _run(queries))
    return {(metric.query_id, measures[metric.measure]): metric.value for metric in measurements}


def run_pytrec_eval_measure(queries: Queries, measure: str) -> dict[str, float]:
    """Return one measure of trec_eval, by the name of its output, such as map_cut_5."""
    name, _, k = measure.rpartition("_")
    requested = f"{name}.{k}" if k.isdigit() else measure
    evaluator = import_tool("pytrec_eval").RelevanceEvaluator(_judgments(queries), {requested})
    return {query: values[measure] for query, values in evaluator.evaluate(_run(queries)).items()}


def run_ir_measure(queries: Queries, measure: str) -> dict[str, float]:
    """Return one measure of ir_measures, by its name there."""
    module = import_tool("ir_measures")
    measurements = module.iter_calc([module.parse_measure(measure)], _judgments(queries), _run(queries))
    return {metric.query_id: metric.value for metric in measurements}


def gdeval(queries: Queries, cutoffs: Sequence[Cutoff]) -> Values:
    """gdeval.pl, of which ir-measures ships a copy that prints no means."""
    perl = shutil.which("perl")
    import_tool("ir_measures")
    source = pkgutil.get_data("ir_measures", "bin/gdeval.pl")
    if perl is None or source is None:
        raise UnavailableError("gdeval.pl needs perl, and the copy that ir-measures ships")
    values: Values = {}
    with tempfile.TemporaryDirectory() as folder:
        script, judged, run = (Path(folder) / name for name in ("gdeval.pl", "qrels", "run"))
        script.write_bytes(source)
        judged.write_text(_lines(_judgments(queries), "{query} 0 {item} {value}\n"), encoding="utf-8")
        run.write_text(_lines(_run(queries), "{query} Q0 {item} 1 {value!r} run\n"), encoding="utf-8")
        for k in cutoffs:
            command = [perl, str(script), str(judged), str(run), str(k or WHOLE_LIST)]
            printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            for line in printed.splitlines()[1:]:
                _, query, ndcg, _ = line.split(",")
                values[query, k] = float(ndcg)
    return values


def _lines(cells: Mapping[str, Mapping[str, float]], form: str) -> str:
    return "".join(
        form.format(query=query, item=item, value=value)
        for query, items in cells.items()
        for item, value in items.items()
    )


# --- Libraries of Python and of learning to rank


def scikit_learn(queries: Queries, cutoffs: Sequence[Cutoff]) -> Values:
    ndcg_score = import_tool("sklearn.metrics").ndcg_score
    values = {}
    for query, rows in queries.items():
        labels, scores = _arrays(rows)
        for k in cutoffs:
            values[query, k] = float(ndcg_score([labels], [scores], k=k))
    return values


def lightgbm(queries: Queries, cutoffs: Sequence[Cutoff]) -> Values:
    """Score with a booster without trees by `init_score`; it returns means, so each query is its own data set."""
    module = import_tool("lightgbm")
    cutoff_by_name = {k or WHOLE_LIST: k for k in cutoffs}
    quiet = {"verbose": -1, "num_threads": 1}
    values = {}
    for query, rows in queries.items():
        labels, scores = _arrays(rows)
        data = module.Dataset(
            np.zeros((len(labels), 1)), labels, group=[len(labels)], init_score=scores, params=quiet
        )
        settings = {"objective": "none", "metric": "ndcg", "eval_at": sorted(cutoff_by_name), **quiet}
        for _, name, value, *_ in module.Booster(settings, data).eval_train():
            values[query, cutoff_by_name[int(name.partition("@")[2])]] = float(value)
    return values


def xgboost(queries: Queries, cutoffs: Sequence[Cutoff], *, minus: str = "", **options: bool) -> Values:
    """Score with a booster without trees by `base_margin`; it returns means, so each query is its own data set."""
    module = import_tool("xgboost")
    cutoff_by_name = {f"ndcg@{k or WHOLE_LIST}{minus}": k for k in cutoffs}
    settings = {
        "objective": "rank:ndcg",
        "eval_metric": list(cutoff_by_name),
        "verbosity": 0,
        "nthread": 1,
        **options,
    }
    values = {}
    for query, rows in queries.items():
        labels, scores = _arrays(rows)
        data = module.DMatrix(
            np.zeros((len(labels), 1)), labels, base_margin=scores, qid=np.zeros(len(labels), dtype=int), nthread=1
        )
        for printed in module.Booster(settings, [data]).eval(data).split("\t")[1:]:
            name, _, value = printed.removeprefix("eval-").partition(":")
            values[query, cutoff_by_name[name]] = float(value)
    return values


def catboost(queries: Queries, cutoffs: Sequence[Cutoff], *, kind: str = "Base") -> Values:
    eval_metric = import_tool("catboost.utils").eval_metric
    values = {}
    for query, rows in queries.items():
        labels, scores = _arrays(rows)
        for k in cutoffs:
            metric = f"NDCG:type={kind};top={k or -1}"
            values[query, k] = eval_metric(labels, scores, metric, group_id=[0] * len(labels))[0]
    return values


def ranx(queries: Queries, cutoffs: Sequence[Cutoff], *, metric: str = "ndcg") -> Values:
    module = import_tool("ranx")
    cutoff_by_name = {metric if k is None else f"{metric}@{k}": k for k in cutoffs}
    run = module.Run(_run(queries))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Numba warns of a cast in ranx when it first compiles it
        module.evaluate(module.Qrels(_judgments(queries)), run, list(cutoff_by_name), make_comparable=True)
    return {
        (query, k): float(value) for name, k in cutoff_by_name.items() for query, value in run.scores[name].items()
    }


PYTREC_EVAL = Tool(package="pytrec-eval-terrier", call=pytrec_eval)
JUDGED_ONLY = Tool(
    package="pytrec-eval-terrier", call=partial(pytrec_eval, judged_only=True), beside=", judged documents only"
)
IR_MEASURES = Tool(package="ir-measures", call=ir_measures)
GDEVAL = Tool(package="ir-measures", call=gdeval, beside=": gdeval.pl 1.2a")
SCIKIT_LEARN = Tool(package="scikit-learn", call=scikit_learn)
LIGHTGBM = Tool(package="lightgbm", call=lightgbm)
XGBOOST = Tool(package="xgboost-cpu", call=xgboost)
XGBOOST_MINUS = Tool(package="xgboost-cpu", call=partial(xgboost, minus="-"), beside=", ndcg@k-")
XGBOOST_LINEAR = Tool(
    package="xgboost-cpu", call=partial(xgboost, ndcg_exp_gain=False), beside=", ndcg_exp_gain=False"
)
CATBOOST = Tool(package="catboost", call=catboost)
CATBOOST_EXP = Tool(package="catboost", call=partial(catboost, kind="Exp"), beside=", type=Exp")
RANX = Tool(package="ranx", call=ranx)
RANX_BURGES = Tool(package="ranx", call=partial(ranx, metric="ndcg_burges"), beside=", ndcg_burges")

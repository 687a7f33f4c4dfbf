"""Random rankings under random conventions: every strategy and form of input against the oracle, and bit for bit.

A seed draws rows (ties, extreme scores, nulls, negative and fractional relevances, items and order values that come
twice), a convention and cutoffs. The rows are evaluated as a long table, as a run with judgments, by given ranks and
as two runs in one table: by the engine on a DataFrame, by the engine on Parquet files (random row groups, sorted or
not), by windows, and without Spark. Where the oracle has an answer, values must agree with it to 1e-12; between
strategies, metrics and refusals must be the same to the last bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from support import oracle
from support.random_rankings import random_rows
from support.spark_rankings import ranks_of

import ndcg_spark
from ndcg_spark.errors import find_refusal

TOLERANCE = 1e-12
VALUES = ("dcg", "idcg", "ndcg")
FACTS = ("status", "n_items", "n_judged", "n_relevant", "n_rows", "n_left_out")
GAINS = ("exponential", "linear", "power:2", "table:-2=-1,-1=-1,0=0.5,0.25=0.5,0.5=1,1=1,1.5=2,2=2,2.75=2,3=9,4=9")
Found = dict[Any, tuple[Any, ...]] | str
"""Metrics and counts by (run, query, k); or a refusal."""


def fuzz(spark: SparkSession, seed: int, folder: Path) -> tuple[int, list[str]]:
    """Evaluate what a seed draws by every strategy.

    Returns the number of evaluations that were compared, and what differs.
    """
    draw = random.Random(seed)
    choices, cutoffs = random_choices(draw), random_cutoffs(draw)
    shape = {
        name: draw.random() < 0.5 for name in ("extreme_scores", "nulls", "negatives", "fractional", "unretrieved")
    }
    rows = random_rows(seed, max_items=draw.choice((3, 12, 40)), integer_items=draw.random() < 0.5, **shape)
    doubled = draw.random() < 0.3
    if doubled:
        rows = with_repeats(rows, draw)
    check = draw.choice(("top", "none")) if doubled else draw.choice(("top", "all", "none"))
    common = {
        "k": cutoffs,
        "convention": convention_of(choices),
        "check_duplicates": check,
        "null_score": "unretrieved" if any(row.score is None for row in rows) else "bad",
    }
    expected = None if doubled else oracle.evaluate(rows, choices, cutoffs)
    compared, wrong = 0, []
    for form, table, judgments, options in forms(rows, choices, common, doubled=doubled):
        if choices.ties == "input_order" and "rank" not in options:
            options["order"] = "position"
        found = {
            name: evaluated(data, judged, {**common, **options, **how})
            for name, data, judged, how in strategies(spark, table, judgments, folder / f"{seed}-{form}", draw)
            if not (check == "all" and how.get("engine") == "local")  # Spark alone looks among all rows
        }
        compared += len(found)
        reference = found["window"]
        about = f"{form}, {common['convention']}, k={cutoffs}, check={check}"
        wrong += [
            f"{name} differs from window: {about}: {first_difference(one, reference)}"
            for name, one in found.items()
            if one != reference
        ]
        if expected is not None and form != "runs":
            difference = from_oracle(reference, expected)
            wrong += [f"window differs from the oracle: {about}: {difference}"] if difference else []
    return compared, wrong


def random_choices(draw: random.Random) -> oracle.Choices:
    allowed = {name: draw.choice(values) for name, values in oracle.ALLOWED.items()}
    padding = draw.choice((None, None, None, -1.0, 0.5))
    gain = draw.choice(GAINS)
    if allowed["ideal"] == "k_ones" or padding is not None:
        gain = draw.choice(GAINS[:2])
    return oracle.Choices(gain=gain, discount=draw.choice(("log2", "reciprocal")), pad_to_k=padding, **allowed)


def random_cutoffs(draw: random.Random) -> list[int | None]:
    cutoffs: list[int | None] = sorted(draw.sample((1, 2, 3, 5, 10, 50), draw.randint(1, 3)))
    return [*cutoffs, None] if draw.random() < 0.3 else cutoffs


def convention_of(choices: oracle.Choices) -> str:
    named = {name: getattr(choices, name) for name in (*oracle.ALLOWED, "gain", "discount")}
    named |= {"pad_to_k": "off" if choices.pad_to_k is None else choices.pad_to_k}
    return "default;" + ";".join(f"{name}={value}" for name, value in named.items())


def with_repeats(rows: Sequence[oracle.Row], draw: random.Random) -> list[oracle.Row]:
    """Some items come again with another relevance, and some order values are the same."""
    again = [
        replace(row, relevance=draw.choice((0.0, 1.0, 2.0)), score=draw.choice((row.score, 0.5)))
        for row in draw.sample(list(rows), len(rows) // 6)
    ]
    found = [replace(row, position=row.position // 4) for row in [*rows, *again]]
    draw.shuffle(found)
    return found


def forms(
    rows: list[oracle.Row], choices: oracle.Choices, common: dict[str, Any], *, doubled: bool
) -> Iterator[tuple[str, pa.Table, pa.Table | None, dict[str, Any]]]:
    """Ways in which tables have these rows: name, main table, judgments, options."""
    ranks = {} if doubled else ranks_of(rows, replace(choices, ties="item_asc") if _grouped(choices) else choices)
    table = pa.table(
        {
            "query_id": pa.array([row.query for row in rows], pa.string()),
            "item_id": pa.array([row.item for row in rows]),
            "score": pa.array([row.score for row in rows], pa.float64()),
            "relevance": pa.array([row.relevance for row in rows], pa.float64()),
            "position": pa.array([row.position for row in rows], pa.int32()),
            "rank": pa.array([ranks.get((row.query, row.item)) for row in rows], pa.int32()),
        }
    )
    yield "long", table, None, {}
    run = table.filter(table["score"].is_valid()).drop_columns(["relevance"])
    judgments = table.filter(table["relevance"].is_valid()).select(["query_id", "item_id", "relevance"])
    yield "judgments", run, judgments, {"null_score": "bad"}
    if not doubled and not _grouped(choices):
        yield "rank", table, None, {"rank": "rank"}
        yield "rank judgments", run, judgments, {"rank": "rank", "null_score": "bad"}
    half = run.slice(0, run.num_rows // 2)
    names = ["a"] * run.num_rows + ["b"] * half.num_rows
    both = pa.concat_tables([run, half]).append_column("ranker", pa.array(names))
    yield "runs", both, judgments, {"run": "ranker", "null_score": "bad"}


def _grouped(choices: oracle.Choices) -> bool:
    return choices.ties in ("expected", "best", "worst")


def strategies(
    spark: SparkSession, table: pa.Table, judgments: pa.Table | None, folder: Path, draw: random.Random
) -> Iterator[tuple[str, DataFrame | pa.Table | str, DataFrame | pa.Table | None, dict[str, Any]]]:
    """Windows and the engine on a DataFrame, the engine on files, and that of this machine on both.

    The rows of each come in another order.
    """
    shuffled = table.take(draw.sample(range(table.num_rows), table.num_rows))
    ordered = table.sort_by([("query_id", "ascending"), ("position", "descending")])
    judged = None if judgments is None else spark.createDataFrame(judgments)
    frame = spark.createDataFrame(shuffled)
    yield "window", frame, judged, {"strategy": "window"}
    yield "engine", frame.repartition(draw.choice((1, 3))), judged, {"strategy": "engine"}
    yield "local", shuffled, judgments, {"engine": "local"}
    for name, rows in (("files", shuffled), ("sorted files", ordered)):
        path = folder / name.replace(" ", "-")
        path.mkdir(parents=True)
        middle = draw.randint(0, rows.num_rows)
        for number, part in enumerate((rows.slice(0, middle), rows.slice(middle))):
            pq.write_table(part, path / f"{number}.parquet", row_group_size=draw.choice((1, 7, 1000)))
        yield name, str(path), judged, {"source": "parquet"} if draw.random() < 0.8 else {}
        yield f"local, {name}", str(path), judgments, {"engine": "local"}


def evaluated(
    data: DataFrame | pa.Table | str, judgments: DataFrame | pa.Table | None, options: dict[str, Any]
) -> Found:
    """Metrics of every query with all their bits, or the reason why they are refused."""
    if options.get("check_duplicates") == "all" or "rank" in options:
        options = {name: value for name, value in options.items() if name != "source"}
    try:
        found = ndcg_spark.evaluate(data, judgments=judgments, **options).per_query
        rows = found.to_pylist() if isinstance(found, pa.Table) else found.collect()
    except (PySparkException, ndcg_spark.errors.NdcgSparkError) as error:
        refusal = find_refusal(str(error)) or str(error)
        if not any(text in refusal for text in ("comes twice", "bad row", "comes 2 times", "comes 3 times")):
            raise
        return "refused"
    return {
        (row["run"], row["query_id"], row["k"]): (
            *(None if row[name] is None else float(row[name]).hex() for name in VALUES),
            *(row[name] for name in FACTS),
        )
        for row in rows
    }


def first_difference(one: Found, other: Found) -> str:
    if isinstance(one, str) or isinstance(other, str):
        return (
            f"{one if isinstance(one, str) else 'evaluated'} and {other if isinstance(other, str) else 'evaluated'}"
        )
    keys = sorted(one.keys() | other.keys(), key=str)
    at = next(key for key in keys if one.get(key) != other.get(key))
    return f"{at}: {one.get(at)} and {other.get(at)}"


def from_oracle(found: Found, expected: oracle.Results) -> str:
    """What differs from the oracle; empty where nothing does."""
    if isinstance(found, str):
        return found
    for (_, query, k), got in found.items():
        wanted = expected[query, k]
        for name, value in zip(VALUES, got, strict=False):
            right = getattr(wanted, name)
            if (value is None) != (right is None):
                return f"{query}, k={k}: {name} is {value}, not {right}"
            if value is not None and abs(float.fromhex(value) - right) > TOLERANCE * max(1.0, abs(right)):
                return f"{query}, k={k}: {name} is {float.fromhex(value)}, not {right}"
        if got[3:7] != tuple(getattr(wanted, name) for name in FACTS[:4]):
            return f"{query}, k={k}: {got[3:7]}, not {wanted}"
    return "" if len(found) == len(expected) else f"{len(found)} results, not {len(expected)}"


def summary_of(results: Sequence[Mapping[str, Any]]) -> str:
    """Counts over all seeds."""
    differences = sum(len(one["differences"]) for one in results)
    compared = sum(one["compared"] for one in results)
    return f"{len(results)} seeds, {compared} evaluations compared, {differences or 'no'} differences"

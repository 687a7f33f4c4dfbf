"""A file of a night for a table, from the names and types of its columns. Loads no Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError

NAMES = {
    "query": "query_id qid query queryid search_id searchid request_id impression_id session_id user_id userid uid "
    "user topic topic_id customer_id question_id",
    "item": "item_id iid item itemid doc_id docid doc document_id documentid docno product_id productid product sku "
    "asin movie_id movieid song_id video_id article_id content_id passage_id pid candidate_id url",
    "score": "score scores prediction predicted predicted_score pred similarity model_score ranker_score y_score "
    "y_pred logit probability",
    "rank": "rank position pos place",
    "relevance": "relevance rel relevance_grade relevance_label label grade rating judgment judgement gain target "
    "y_true qrel clicked is_relevant relevant",
    "run": "run ranker model model_name system variant algorithm run_id run_name tag arm",
}
"""Names of columns as people have them, the usual ones first."""
SEGMENTS = (
    "country market region locale language lang device platform os segment category query_type query_class vertical "
    "site store tier new_user user_type intent"
)
RANKED = "ranked items recommended recommendations recs retrieved results predictions prediction candidates top_items"
RELEVANT = "relevant relevant_items truth ground_truth actual positives labels clicked purchased qrels"
JUDGED_LISTS = "relevances relevance rels rel labels grades gains"
WHAT = {
    "query": "who or what is ranked for",
    "item": "what is ranked",
    "score": "the higher, the earlier in the list",
    "rank": "the place in the list, from 1",
    "relevance": "how good an item is for the query",
    "run": "the rankers, which are compared",
    "ranked": "items in the order of the list",
    "relevant": "the items that are relevant",
}
KINDS = {
    "query": "id", "item": "id", "run": "id", "score": "number", "rank": "number", "relevance": "number",
    "ranked": "list", "relevant": "list",
}  # fmt: skip


_DATE = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")


@dataclass(frozen=True, slots=True)
class Choice:
    """A column that was chosen for an option, and why."""

    option: str
    column: str
    why: str


def plain(name: str) -> str:
    """Spell a name as NAMES do: `queryID` and `Query Id` are `query_id`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", apart.lower()).strip("_")


def is_kind(kind: pa.DataType, wanted: str, *, is_text: bool) -> bool:
    """Check the type of a column; text of a csv file may be a number."""
    if wanted == "list":
        return bool(pa.types.is_list(kind) or pa.types.is_map(kind))
    if pa.types.is_nested(kind):
        return False
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return bool(wanted == "id" or numeric or pa.types.is_boolean(kind) or is_text)


def choose(info: TableInfo, option: str, names: str, taken: Sequence[str] = ()) -> Choice | None:
    """Choose the column whose name is the most usual for an option."""
    by_name = {plain(name): name for name in reversed(info.names) if name not in taken}
    for usual in names.split():
        column = by_name.get(usual)
        if column is not None and is_kind(info.type_of(column), KINDS[option], is_text=info.is_text):
            return Choice(option, column, WHAT[option])
    return None


def choices_of(info: TableInfo, judgments: TableInfo | None) -> list[Choice]:
    """Choose the columns of a table in any of the forms of inputs; refuse a table that has none of them."""
    ranked = choose(info, "ranked", RANKED)
    if ranked is not None:
        return _of_lists(info, judgments, ranked)
    arrays = choose(info, "ranked", JUDGED_LISTS)
    if arrays is not None:
        query = choose(info, "query", NAMES["query"])
        chosen = [Choice("relevance", arrays.column, "relevances in the order of the list")]
        return [*([query] if query else []), *chosen, *_run(info)]
    judged = info if judgments is None else judgments
    query = _needed(info, "query", NAMES["query"])
    item = _needed(info, "item", NAMES["item"])
    score = choose(info, "score", NAMES["score"])
    order = score or choose(info, "rank", NAMES["rank"])
    if order is None:
        raise InputRefusedError(_no_column(info, "score or rank", f"{NAMES['score']} {NAMES['rank']}"))
    relevance = choose(judged, "relevance", NAMES["relevance"], taken=[order.column])
    if relevance is None:
        more = "; name the table that has it by --judgments" if judgments is None else ""
        raise InputRefusedError(_no_column(judged, "relevance", NAMES["relevance"]) + more)
    return [query, item, order, relevance, *_run(info)]


def _of_lists(info: TableInfo, judgments: TableInfo | None, ranked: Choice) -> list[Choice]:
    query = choose(info, "query", NAMES["query"])
    relevant = choose(judgments or info, "relevant", RELEVANT, taken=[ranked.column])
    if relevant is None:
        raise InputRefusedError(_no_column(judgments or info, "relevant items", RELEVANT))
    return [*([query] if query else []), ranked, relevant]


def _run(info: TableInfo) -> list[Choice]:
    run = choose(info, "run", NAMES["run"])
    return [run] if run else []


def _needed(info: TableInfo, option: str, names: str) -> Choice:
    found = choose(info, option, names)
    if found is None:
        raise InputRefusedError(_no_column(info, option, names))
    return found


def _no_column(info: TableInfo, option: str, names: str) -> str:
    return (
        f"no column of the {info.label} ({', '.join(info.names)}) is named as one for the {option} would be, such as "
        f"{', '.join(names.split()[:4])}"
    )


def segments_of(info: TableInfo, taken: Sequence[str]) -> list[str]:
    """Choose columns of text whose names are those of segments."""
    return [
        name
        for name in info.names
        if name not in taken and plain(name) in SEGMENTS.split() and not pa.types.is_nested(info.type_of(name))
    ]


def night_file(
    reference: str,
    info: TableInfo,
    judgments: tuple[str, TableInfo] | None,
    dataset: str,
    formats: Mapping[str, str | None],
) -> str:
    """Write the file of a night for a table; `formats` are those of tables whose format was named."""
    return "\n".join(_lines(reference, info, judgments, dataset, formats)) + "\n"


def with_run_date(reference: str) -> tuple[str, str]:
    """Put {run_date} in the place of the date in a reference; return the date, too, empty if it has none or several.

    >>> with_run_date("rankings/2026-01-31")
    ('rankings/{run_date}', '2026-01-31')
    """
    dates = set(_DATE.findall(reference))
    return (reference, "") if len(dates) != 1 else (_DATE.sub("{run_date}", reference), dates.pop())


def _line(choice: Choice) -> str:
    """A key of the file, and why the column was chosen."""
    usual = {"query": "query_id", "item": "item_id", "score": "score", "relevance": "relevance"}
    key = f"{choice.option}-col{'s' if choice.option == 'ranked' else ''}"
    note = f"by its name: {choice.why}{'; the default' if usual.get(choice.option) == choice.column else ''}"
    return f"{key} = {json.dumps(choice.column, ensure_ascii=False)}  # {note}"


def _lines(
    reference: str,
    info: TableInfo,
    judgments: tuple[str, TableInfo] | None,
    dataset: str,
    formats: Mapping[str, str | None],
) -> Iterator[str]:
    chosen = choices_of(info, judgments[1] if judgments else None)
    segments = segments_of(info, [one.column for one in chosen])
    yield f"# ndcg-spark nightly --config FILE: a night of {reference}."
    dated, night = with_run_date(reference)
    yield (
        f"# {{run_date}} is the night, as {night}."
        if night
        else "# Where the input of each night is another one, put {run_date} in the place of its date."
    )
    yield f"dataset = {json.dumps(dataset, ensure_ascii=False)}"
    yield 'run-log = "./run_log"'
    yield from (_line(one) for one in chosen if one.option == "query")  # of every step that reads queries
    yield ""
    yield "[[step]]"
    yield 'command = "mean-ndcg"'
    yield f"input = {json.dumps(dated, ensure_ascii=False)}"
    if judgments:
        yield f"judgments = {json.dumps(judgments[0], ensure_ascii=False)}"
    for name, kind in formats.items():
        if kind is not None:
            yield f"{name}-format = {json.dumps(kind)}"
    yield from (_line(one) for one in chosen if one.option != "query")
    if segments:
        yield f"segment-cols = {json.dumps(segments, ensure_ascii=False)}  # means of each value of these, too"
    yield '# gate = ["ndcg@10>=0.4"]  # a mean that is lower ends with exit code 3'
    yield 'output = "./metrics"'
    yield 'per-query-output = "./queries"'
    if any(one.option == "run" for one in chosen):
        yield ""
        yield "[[step]]"
        yield 'command = "compare-runs"'
        yield '# baseline = "..."  # one of the rankers; without it, each pair is compared'
        yield 'output = "./comparisons"'
    for command, output in (("flag-changes", "./flags"), ("report", "night-{run_date}.html")):
        yield ""
        yield "[[step]]"
        yield f'command = "{command}"'
        yield f'output = "{output}"'
        if command == "flag-changes":
            yield "# fail-on-flag = true  # a flagged night ends with exit code 3"
    yield 'index = "index.html"  # all nights, with links to their pages'

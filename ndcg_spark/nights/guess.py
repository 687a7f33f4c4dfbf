"""Write a file for `nightly` from the names and types of a table's columns. Does not import Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ndcg_spark.core.labels import join_names
from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.errors import InputRefusedError
from ndcg_spark.sources.references import guess_format

NAMES = {
    "query": "query_id qid query queryid search_id searchid request_id impression_id session_id user_id userid uid "
    "user topic topic_id customer_id question_id session q",
    "item": "item_id iid item itemid doc_id docid doc document_id documentid docno product_id productid product sku "
    "asin movie_id movieid movie song_id song track_id track video_id video article_id article content_id "
    "passage_id pid candidate_id url",
    "score": "score scores prediction predicted predicted_score pred similarity model_score ranker_score y_score "
    "y_pred logit probability",
    "rank": "rank position pos place",
    "relevance": "relevance rel relevance_grade relevance_label label grade rating judgment judgement gain target "
    "y_true qrel clicked is_relevant relevant click purchased watched",
    "run": "run ranker retriever model model_name system variant algorithm run_id run_name tag arm ranker_name "
    "ranker_id model_id ranker_version model_version",
}
"""Common column names, the most common first."""
SEGMENTS = (
    "country market region locale language lang device platform os segment category query_type query_class vertical "
    "site store tier plan new_user user_type intent"
)
DATES = "run_date date day dt ds night event_date log_date partition_date"
"""Common names of the column that says of which night a row is."""
NOT_USED = "# not used: "
"""The line of a file that names columns which it does not use begins with this."""
MAX_OTHERS = 5
"""Columns that are offered as segments where none has a common name."""
RANKED = "ranked items recommended recommendations recs retrieved results predictions prediction candidates top_items"
RELEVANT = "relevant relevant_items truth ground_truth actual positives labels clicked purchased qrels"
JUDGED_LISTS = "relevances relevance rels rel labels grades gains"
REASONS = {
    "query": "who or what is ranked for",
    "item": "what is ranked",
    "score": "the higher, the earlier in the list",
    "rank": "the position in the list, from 1",
    "relevance": "how good an item is for the query",
    "run": "the rankers to compare",
    "ranked": "items in the order of the list",
    "relevant": "the items that are relevant",
}
TYPES = {
    "query": "id", "item": "id", "run": "id", "score": "number", "rank": "number", "relevance": "number",
    "ranked": "list", "relevant": "list",
}  # fmt: skip


_DATE = re.compile(r"(?<!\d)\d{4}-\d\d-\d\d(?!\d)")


@dataclass(frozen=True, slots=True)
class Choice:
    """The column chosen for an option, and the reason."""

    option: str
    column: str
    why: str
    is_named: bool = False
    """True if the user named the column."""


def normalize_name(column: str) -> str:
    """Return a column name in snake case: `queryID` and `Query Id` become `query_id`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", column)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")


def is_of_type(arrow_type: pa.DataType, expected: str, *, is_text: bool) -> bool:
    """Return whether a column has the expected type; with `is_text` (csv), any column may hold numbers."""
    if expected == "list":
        return bool(pa.types.is_list(arrow_type) or pa.types.is_map(arrow_type))
    if pa.types.is_nested(arrow_type):
        return False
    numeric = pa.types.is_integer(arrow_type) or pa.types.is_floating(arrow_type) or pa.types.is_decimal(arrow_type)
    return bool(expected == "id" or numeric or pa.types.is_boolean(arrow_type) or is_text)


def choose_column(
    info: TableInfo, option: str, names: str, used: Sequence[str] = (), named: str | None = None
) -> Choice | None:
    """Choose the column with the most common name for an option; None if no column has any of the names.

    A column that the user `named` is the choice, and refused if the table lacks it.
    """
    if named is not None:
        require = info.require_number if TYPES[option] == "number" else info.require
        require(named, f"--{option}-col")
        return Choice(option, named, REASONS[option], is_named=True)
    by_name = {normalize_name(column): column for column in reversed(info.own_names) if column not in used}
    for common_name in names.split():
        column = by_name.get(common_name)
        if column is not None and is_of_type(info.type_of(column), TYPES[option], is_text=info.is_text):
            return Choice(option, column, REASONS[option])
    return None


def choose_columns(
    info: TableInfo, judgments: TableInfo | None, named: Mapping[str, str] | None = None
) -> list[Choice]:
    """Choose the columns of a table in any of the input forms; refuse a table in none of them.

    `named` are columns by their option; with another one than `query` and `run`, the form is a row per item.
    """
    named = named or {}
    taken, judged = [*named.values()], info if judgments is None else judgments
    for option, column in named.items():
        choose_column(judged if option == "relevance" else info, option, "", named=column)
    if not named.keys() - {"query", "run"}:
        ranked = choose_column(info, "ranked", RANKED, taken)
        if ranked is not None:
            return _choose_list_columns(info, judgments, ranked, named)
        arrays = choose_column(info, "ranked", JUDGED_LISTS, taken)
        if arrays is not None:
            query = choose_column(info, "query", NAMES["query"], taken, named.get("query"))
            relevances = [Choice("relevance", arrays.column, "relevances in the order of the list")]
            return [*([query] if query else []), *relevances, *_choose_run(info, named)]
    query, item = (choose_column(info, name, NAMES[name], taken, named.get(name)) for name in ("query", "item"))
    score = None if "rank" in named else choose_column(info, "score", NAMES["score"], taken, named.get("score"))
    order = score or choose_column(info, "rank", NAMES["rank"], taken, named.get("rank"))
    used = [order.column, *taken] if order else taken
    relevance = choose_column(judged, "relevance", NAMES["relevance"], used, named.get("relevance"))
    of_relevance = "--relevance-col" if judgments else "--relevance-col, or the table that has it with --judgments"
    used += [choice.column for choice in (query, relevance, *_choose_run(info, named)) if choice]
    item = item or _choose_only_id(info, judged, used)
    wanted = [
        (query, info, "query", NAMES["query"], "--query-col"),
        (item, info, "item", NAMES["item"], "--item-col"),
        (order, info, "score or rank", f"{NAMES['score']} {NAMES['rank']}", "--score-col or --rank-col"),
        (relevance, judged, "relevance", NAMES["relevance"], of_relevance),
    ]
    missing: dict[str, list[str]] = {}
    for choice, table, what, names, flag in wanted:
        if choice is None:
            text = f"the {what}, such as {_list_names(names)}: name it with {flag}"
            missing.setdefault(_describe_lack(table), []).append(text)
    if missing:
        raise InputRefusedError("; ".join(f"{lack} {'; '.join(texts)}" for lack, texts in missing.items()))
    return [*(choice for choice, *_ in wanted if choice is not None), *_choose_run(info, named)]


def _choose_only_id(info: TableInfo, judged: TableInfo, used: Sequence[str]) -> Choice | None:
    """Choose the column for items if the name of a single one ends with `_id`, and is common for nothing else."""
    others = {name for names in (NAMES["query"], NAMES["run"], SEGMENTS, DATES) for name in names.split()}
    columns = [
        column
        for column in info.own_names
        if (name := normalize_name(column)).endswith("_id")
        and others.isdisjoint((name, name.removesuffix("_id")))
        and column not in used
        and judged.has(column)
    ]
    return Choice("item", columns[0], f"the only other id; {REASONS['item']}") if len(columns) == 1 else None


def _choose_list_columns(
    info: TableInfo, judgments: TableInfo | None, ranked: Choice, named: Mapping[str, str]
) -> list[Choice]:
    taken = [ranked.column, *named.values()]
    query = choose_column(info, "query", NAMES["query"], taken, named.get("query"))
    relevant = choose_column(judgments or info, "relevant", RELEVANT, taken)
    if relevant is None:
        lack = f"{_describe_lack(judgments or info)} the relevant items, such as {_list_names(RELEVANT)}"
        raise InputRefusedError(f"{lack}; a file written by hand (docs/examples/night.toml) can name any column")
    return [*([query] if query else []), ranked, relevant, *_choose_run(info, named)]


def _choose_run(info: TableInfo, named: Mapping[str, str]) -> list[Choice]:
    run = choose_column(info, "run", NAMES["run"], [*named.values()], named.get("run"))
    return [run] if run else []


def _describe_lack(info: TableInfo) -> str:
    return f"no column of the {info.label} ({', '.join(info.own_names)}) has a usual name for"


def _list_names(names: str) -> str:
    return ", ".join(names.split()[:4])


def list_other_columns(info: TableInfo, used: Sequence[str]) -> list[str]:
    """List the first columns of text, whole numbers or booleans that are not used; they could be segments."""
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean)
    names = [column for column in info.own_names if column not in used]
    return [column for column in names if any(is_kind(info.type_of(column)) for is_kind in kinds)][:MAX_OTHERS]


def choose_segments(info: TableInfo, used: Sequence[str]) -> list[str]:
    """Choose the columns with common names of segments."""
    return [
        column
        for column in info.own_names
        if column not in used
        and normalize_name(column) in SEGMENTS.split()
        and not pa.types.is_nested(info.type_of(column))
    ]


def write_night_file(
    reference: str,
    info: TableInfo,
    judgments: tuple[str, TableInfo] | None,
    dataset: str,
    formats: Mapping[str, str | None],
    named: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a file for `nightly`; `formats` holds the formats that the user named, else None.

    `named` are the columns that the user named, by option.
    """
    choices = choose_columns(info, judgments[1] if judgments else None, named)
    return "\n".join(_write_lines(reference, info, judgments, dataset, formats, choices)) + "\n"


def insert_run_date(reference: str) -> tuple[str, str]:
    """Replace the date in a reference with {run_date}; also return the date, empty unless there is exactly one.

    >>> insert_run_date("rankings/2026-01-31")
    ('rankings/{run_date}', '2026-01-31')
    """
    dates = set(_DATE.findall(reference))
    return (reference, "") if len(dates) != 1 else (_DATE.sub("{run_date}", reference), dates.pop())


def select_night(reference: str, kind: str | None, info: TableInfo, used: Sequence[str]) -> tuple[str, str]:
    """Return a reference of one night of a table whose column of dates has a usual name, and that column, if any.

    Folders such as `run_date=2026-01-31` and catalog tables hold several nights.
    """
    by_name = {normalize_name(column): column for column in reversed(info.own_names) if column not in used}
    column = next((by_name[name] for name in DATES.split() if name in by_name), "")
    if not column:
        return reference, ""
    if Path(reference).is_dir() and next(Path(reference).glob(f"{column}=*/"), None):
        return f"{reference.rstrip('/')}/{column}={{run_date}}", column
    arrow_type = info.type_of(column)
    is_date, is_text = pa.types.is_date(arrow_type), pa.types.is_string(arrow_type)
    if (kind or guess_format(reference)) != "table" or not (is_date or is_text):
        return reference, ""
    return f"SELECT * FROM {reference} WHERE {column} = {'DATE' if is_date else ''}'{{run_date}}'", column


def _read_one_night(reference: str, kind: str | None, info: TableInfo, used: Sequence[str]) -> tuple[str, str, str]:
    """Return the reference of one night, the column of dates if it has one, and a comment."""
    dated, night = insert_run_date(reference)
    if night:
        return dated, "", f"{{run_date}} is the night, for example {night}."
    selected, column = select_night(reference, kind, info, used)
    if column and selected != reference:
        return selected, column, f"{{run_date}} is the night, a value of the column {json.dumps(column)}."
    return reference, "", "If each night has its own input, write {run_date} in place of the date."


def _write_line(choice: Choice) -> str:
    """Return the line of the file that sets a column, with the reason as its comment."""
    defaults = {"query": "query_id", "item": "item_id", "score": "score", "relevance": "relevance"}
    key = f"{choice.option}-col{'s' if choice.option == 'ranked' else ''}"
    default = "; the default" if defaults.get(choice.option) == choice.column else ""
    note = f"{'' if choice.is_named else 'by its name: '}{choice.why}{default}"
    return f"{key} = {json.dumps(choice.column, ensure_ascii=False)}  # {note}"


def _write_lines(
    reference: str,
    info: TableInfo,
    judgments: tuple[str, TableInfo] | None,
    dataset: str,
    formats: Mapping[str, str | None],
    choices: Sequence[Choice],
) -> Iterator[str]:
    used = [choice.column for choice in choices]
    one_night, night_column, comment = _read_one_night(reference, formats["input"], info, used)
    used += [night_column] if night_column else []
    segments = choose_segments(info, used)
    yield f"# ndcg-spark nightly --config FILE: a night of {reference}."
    yield f"# {comment}"
    yield f"dataset = {json.dumps(dataset, ensure_ascii=False)}  # any name; results are stored under it"
    yield 'run-log = "./run_log"'
    yield from (_write_line(choice) for choice in choices if choice.option == "query")  # every step needs it
    others = list_other_columns(info, used)
    pairs = f'; "{"+".join([*segments, "OTHER"][:2])}" adds their pairs' if segments else ""
    note = f"a mean and a comparison for each of their values, too{pairs}"
    if segments:
        yield f"segment-cols = {json.dumps(segments, ensure_ascii=False)}  # {note}"
    elif others:
        yield f"# segment-cols = {json.dumps(others, ensure_ascii=False)}  # columns that are not used; {note}"
    known = {*used, *(segments or others)}
    unused = [json.dumps(name, ensure_ascii=False) for name in info.own_names if name not in known]
    if unused:
        yield f"{NOT_USED}{join_names(unused)}"
    yield ""
    yield "[[step]]"
    yield 'command = "mean-ndcg"'
    yield f"input = {json.dumps(one_night, ensure_ascii=False)}"
    if judgments:
        yield f"judgments = {json.dumps(judgments[0], ensure_ascii=False)}"
    is_query = bool(night_column) and formats["input"] == "table"
    for table, table_format in {**formats, **({"input": "sql"} if is_query else {})}.items():
        if table_format is not None:
            yield f"{table}-format = {json.dumps(table_format)}"
    yield from (_write_line(choice) for choice in choices if choice.option != "query")
    has_run = any(choice.option == "run" for choice in choices)
    if not has_run:
        yield '# run-col = "..."  # column of the ranker, if there are several; init --run-col also adds a comparison'
    yield "# k = [5, 10]  # cutoffs; by default 10"
    yield '# gain = "linear"  # by default exponential: 2^relevance - 1'
    if any(choice.option == "score" for choice in choices):
        yield '# null-score = "unretrieved"  # if items that were not retrieved are rows without a score'
    yield (
        '# on-invalid = "reject"  # bad rows are left out instead of refused; max-reject-fraction = 0.01 limits them'
    )
    gate = "exit code 3 if the mean of all queries of any ranker is lower"
    yield f'# gate = ["ndcg@10>=0.4"]  # {gate}; of one ranker: "NAME: ndcg@10>=0.4"'
    yield 'output = "./metrics"'
    yield 'per-query-output = "./queries"'
    if has_run:
        yield ""
        yield "[[step]]"
        yield 'command = "compare-runs"'
        yield '# baseline = "..."  # the ranker to compare the others with; by default, each pair is compared'
        yield '# unpaired = "drop"  # leaves out queries that one ranker lacks; by default they count as 0'
        yield 'output = "./comparisons"'
    fail_on_flag = "# fail-on-flag = true  # exit code 3 on the night that something is flagged, not while it lasts"
    yield from ("", "[[step]]", 'command = "flag-changes"', 'output = "./flags"', fail_on_flag)
    yield from ("", "[[step]]", 'command = "report"', 'output = "night-{run_date}.html"')
    if has_run:
        yield '# production = "..."  # the ranker that users see: its bad news comes first (default: that of any)'
    yield 'index = "index.html"  # all nights, with links to their pages'

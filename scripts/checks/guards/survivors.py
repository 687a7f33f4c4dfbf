"""Why mutants of broken.py survive that no test can catch, by the name of the mutant."""

from __future__ import annotations

REASONS: dict[str, str] = {
    # --- the same answer by a longer way, or none but for types
    "build_settings: operand: setting.flag.hidden": "a hidden field has no option, so it has no value",
    "_read_entries: operand: task.settings.lists_items": "items that nothing reads are carried on: the same numbers",
    "_is_within: operand: column.null_count": "both ways find the same ends; that without nulls is quicker",
    "parse_address: operand: match is None": "without a match there is no scheme; the type checker wants it said",
    "_describe_toml_type: operand: isinstance(option, click.Option)": "commands have only options; for mypy",
    "RemoteTableWrite.swap: dropped: add_columns(self.spark, self.reference, list(self.catalog_table.columns))": (
        "heals what another job does at the same moment: a catalog of Hive keeps the columns of the later one"
    ),
    "_cut_lists: operand: col.ITEM in ranked.columns": "the check is on only where items are carried (engine.py)",
    "find_table_folder: operand: not isinstance(error, OSError)": (
        "an OSError comes of folders of this machine, which Spark reaches, too: it saves a look"
    ),
    "Engine._exchange: negated: isinstance(self.source, SparkSource)": (
        "into how many tasks rows are sent changes no number; it is about time and memory"
    ),
    "Engine._exchange: negated: hasattr(sent, 'repartitionById')": (
        "from Spark 4.2 on and before: the same partitions by another call"
    ),
    "_needs_times: operand: settings.half_life is not None": "the same value, by way of times that decay nothing",
    "_needs_times: operand: settings.rule == 'best'": "a sum keeps times of events, too, which it does not read",
    "_find_catalog: operand: prefix": "else the setting of a catalog without a name is asked for: there is none",
    "Ranking.rankings: operand: N_REJECTED not in rankings.columns": (
        "where nothing is rejected, each query has rows or judgments: the filter keeps all, which saves a filter"
    ),
    "_convert_argument: operand: type(argument).__module__.startswith('pyspark.pandas')": (
        "no other table has to_spark, and one that had would be taken alike"
    ),
    "_convert_argument: operand: hasattr(argument, 'to_spark')": "of pyspark.pandas, whatever has rows has it",
    "is_table: operand: _is_pandas_frame(table)": (
        "pandas hands its tables over as Arrow since 2.2; older versions need it"
    ),
    "_to_spark: negated: int(pyspark.__version__.partition('.')[0]) >= 4": (
        "both ways hand over the same rows; Spark 3.5 has only the slower one"
    ),
    # --- what cannot be had here
    "claim_slices: left out: fcntl is None": "only where Python has no flock, as on Windows",
    "register: left out: int(spark.version.split('.')[0]) < 4": (
        "Spark 4 has SQL functions; scripts/test-matrix 3.5.9 runs the test that is refused there"
    ),
}

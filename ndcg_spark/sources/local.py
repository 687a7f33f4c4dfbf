"""STUB"""

import os
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from ndcg_spark.core.schemas import TableInfo
from ndcg_spark.sources import stores


@dataclass(frozen=True)
class Slice:
    table: pa.Table

    def read(self, columns, schema, rows):
        for b in self.table.select(list(columns)).cast(schema).to_batches(max_chunksize=rows):
            yield b


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalTable:
    info: TableInfo
    name: str = ""
    n_bytes: int = 0
    files: tuple[str, ...] = ()
    table: pa.Table | None = None

    def parts(self, wanted):
        return (Slice(self.table),)


def open_local(reference, kind=None, options={}, *, label="input"):
    files = stores.list_files(reference)
    schema = pq.read_schema(files[0])
    return LocalTable(
        info=TableInfo(schema=schema, label=label),
        name=reference,
        n_bytes=sum(os.path.getsize(f) for f in files),
        files=tuple(files),
    )


def table_of(given, name):
    t = given if isinstance(given, pa.Table) else pa.table(given)
    return LocalTable(info=TableInfo(schema=t.schema, label=name), n_bytes=t.nbytes, table=t)

"""Spark's hash of texts, by which queries get random numbers and are drawn for samples, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ndcg_spark.core.batches import HashArray, int_values

_SEED = 42


def hash_texts(salt: str, columns: Sequence[pa.Array]) -> HashArray:
    """Hash rows of text columns as Spark's `xxhash64(lit(salt), *columns)`; each text is hashed once.

    The hash of one text is the seed of the next; a null leaves it as it is.
    """
    from xxhash import xxh64_intdigest  # drivers that only talk to Spark may lack it

    hashes = np.full(len(columns[0]), xxh64_intdigest(salt.encode(), _SEED), dtype=np.uint64)
    for column in columns:
        encoded = column.dictionary_encode()
        texts = [*encoded.dictionary.cast(pa.binary()).to_pylist(), None]
        codes = int_values(pc.fill_null(encoded.indices, len(texts) - 1))
        seeds, of_seed = np.unique(hashes, return_inverse=True)
        pairs, of_pair = np.unique(of_seed * len(texts) + codes, return_inverse=True)
        pair_hashes = [
            seed if text is None else xxh64_intdigest(text, seed)
            for seed, text in ((int(seeds[pair // len(texts)]), texts[pair % len(texts)]) for pair in pairs.tolist())
        ]
        hashes = np.array(pair_hashes, dtype=np.uint64)[of_pair]
    return hashes

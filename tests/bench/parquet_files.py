#!/usr/bin/env python3
"""Random tables that pyarrow writes as Parquet, read by our reader: all values must be equal.

    tests/bench/parquet_files.py build/release/tests/parquet_rows [SEED [FILES]]

Types, nesting, nulls, codecs, versions of pages, sizes of pages and row groups are drawn.
"""
import json
import random
import struct
import subprocess
import sys
import tempfile

import pyarrow as pa
import pyarrow.parquet as pq


def as_float32(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def draw_text(rng):
    kind = rng.randrange(6)
    if kind == 0:
        return ""
    if kind == 1:
        return rng.choice(["a", "bb", "ccc"])
    if kind == 2:
        return "".join(rng.choice('äß€😀"\\\n\t\x01 x') for _ in range(rng.randrange(20)))
    longest = 3000 if rng.random() < 0.05 else 40
    return "".join(rng.choice("abcdefg ") for _ in range(rng.choice([3, 30, 300, longest])))


def leaves(rng):
    whole = lambda low, high: lambda: rng.randrange(low, high)
    return [
        (pa.string(), lambda: draw_text(rng)),
        (pa.large_string(), lambda: draw_text(rng)),
        (pa.int8(), whole(-(2**7), 2**7)),
        (pa.int16(), whole(-(2**15), 2**15)),
        (pa.int32(), whole(-(2**31), 2**31)),
        (pa.int64(), lambda: rng.choice([rng.randrange(-(2**63), 2**63), rng.randrange(5)])),
        (pa.uint8(), whole(0, 2**8)),
        (pa.uint32(), whole(0, 2**32)),
        (pa.uint64(), whole(0, 2**64)),
        (pa.float32(), lambda: as_float32(rng.uniform(-1e3, 1e3))),
        (pa.float64(), lambda: rng.choice([rng.uniform(-1, 1), 1e300 * rng.random(), 0.0])),
        (pa.bool_(), lambda: rng.random() < 0.5),
        (pa.null(), lambda: None),
    ]


def draw_type(rng, depth=0):
    """A type, and what draws a value of it."""
    kind = rng.random()
    if depth < 3 and kind < 0.2:
        inner, draw = draw_type(rng, depth + 1)
        longest = rng.choice([0, 1, 3, 6])
        outer = pa.list_(inner) if rng.random() < 0.7 else pa.large_list(inner)
        return outer, lambda: [draw() for _ in range(rng.randrange(longest + 1))]
    if depth < 3 and kind < 0.4:
        members = [(f"m{i}", *draw_type(rng, depth + 1)) for i in range(rng.randrange(1, 4))]
        outer = pa.struct([(name, inner) for name, inner, _ in members])
        return outer, lambda: {name: draw() for name, _, draw in members}
    inner, draw = rng.choice(leaves(rng))
    nulls = rng.choice([0, 0, 0.1, 0.5, 1])
    return inner, lambda: None if rng.random() < nulls else draw()


def draw_table(rng):
    rows = rng.choice([1, 7, 100, 1000])
    columns, fields = [], []
    for i in range(rng.randrange(1, 6)):
        kind, draw = draw_type(rng)
        nulls = rng.choice([0, 0, 0.2])
        values = [None if rng.random() < nulls else draw() for _ in range(rows)]
        columns.append(pa.array(values, type=kind))
        some = columns[-1].null_count > 0 or pa.types.is_null(kind)
        fields.append(pa.field(f"c{i}", kind, nullable=some or rng.random() < 0.5))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def draw_options(rng):
    either = [True, False]
    return {
        "compression": rng.choice(["none", "snappy", "gzip", "zstd"]),
        "data_page_version": rng.choice(["1.0", "2.0"]),
        "use_dictionary": rng.choice(either),
        "row_group_size": rng.choice([1, 10, 64, 100000]),
        "data_page_size": rng.choice([64, 1024, 1 << 20]),
        "dictionary_pagesize_limit": rng.choice([64, 1 << 20]),
        "write_statistics": rng.choice(either),
        "version": rng.choice(["1.0", "2.4", "2.6"]),
        "write_page_checksum": rng.choice(either),
        "use_compliant_nested_type": rng.choice(either),
        "write_page_index": rng.choice(either),
        "store_schema": False,
    }


def same(a, b):
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and type(b) in (int, float):
        return a == b or (abs(a) <= 1e3 and as_float32(a) == as_float32(b))
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def main():
    program = sys.argv[1]
    seed, files = (int(text) for text in (sys.argv[2:] + ["1", "100"][len(sys.argv) - 2 :])[:2])
    rng = random.Random(seed)
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        for number in range(files):
            table, options = draw_table(rng), draw_options(rng)
            pq.write_table(table, file.name, **options)
            read = subprocess.run([program, file.name], capture_output=True, check=False)
            lines = read.stdout.decode().split("\n")[:-1]
            if read.returncode or not same(table.to_pylist(), [json.loads(one) for one in lines]):
                sys.exit(f"file {number} differs: {options}\n{table.schema}\n{read.stderr.decode()}")
    print(f"{files} files are equal")


if __name__ == "__main__":
    main()

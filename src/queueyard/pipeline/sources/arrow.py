"""Records as Arrow batches: the shape that every source hands to Spark. Pure.

Where Arrow takes a value of Python, be it a number, it imports pandas to ask whether the value is one of its own. That
takes 0.15 s, and 36 MB in every process that reads, so what each block of lines needs is made without values of Python.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

#: schemas.RECORD, as Arrow calls it
ARROW_RECORD = pa.schema(
    [
        ("stream", pa.string()),
        ("place", pa.string()),
        ("file", pa.string()),
        ("generation", pa.int32()),
        ("position", pa.int64()),
        ("minor", pa.int64()),
        ("raw", pa.string()),
    ]
)


def record_batch(
    *,
    stream: str,
    place: str,
    file: str,
    generation: int,
    positions: Sequence[int] | pa.Array,
    raw: Sequence[str] | pa.Array,
    minors: Sequence[int] | pa.Array | None = None,
) -> pa.RecordBatch:
    """Records of one file, stream or feed; `minors` is left out where every position is one record."""
    count = len(raw)
    return pa.record_batch(
        [
            pa.repeat(text(stream), count),
            pa.repeat(text(place), count),
            pa.repeat(text(file), count),
            pa.repeat(number(generation), count).cast(pa.int32()),
            _numbers(positions),
            pa.repeat(number(0), count) if minors is None else _numbers(minors),
            raw if isinstance(raw, pa.Array) else pa.array(raw, pa.string()),
        ],
        schema=ARROW_RECORD,
    )


def split_lines(data: bytes | pa.Buffer) -> pa.Array:
    """Whole lines, the last one included, as binary values without their ends."""
    return pc.split_pattern(_as_one(data, len(data) - 1), b"\n").flatten()


def holds(data: bytes | pa.Buffer, word: str) -> bool:
    """Whether a word of plain letters stands in it. In Python, that takes three times as long."""
    found: bool = pc.match_substring_regex(_as_one(data, len(data)), word)[0].as_py()
    return found


def number(value: int) -> pa.Int64Scalar:
    return pa.arange(value, value + 1)[0]


def text(value: str) -> pa.StringScalar:
    data = value.encode()
    return pa.Array.from_buffers(pa.string(), 1, [None, bounds(0, len(data)), pa.py_buffer(data)])[0]


def bounds(*places: int) -> pa.Buffer:
    """Where values begin and end in what holds them all."""
    return pa.py_buffer(struct.pack(f"={len(places)}i", *places))


def _as_one(data: bytes | pa.Buffer, size: int) -> pa.Array:
    """An array of one value which is not copied: handing bytes over takes five times as long as splitting them."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, bounds(0, size), pa.py_buffer(data)])


def _numbers(values: Sequence[int] | pa.Array) -> pa.Array:
    return values if isinstance(values, pa.Array) else pa.array(values, pa.int64())

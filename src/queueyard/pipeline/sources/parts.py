"""Lines about the same record as one part of it, folded in the task that reads them. Pure.

What is folded here need not travel to Spark, nor be sorted there. It is the fold of silver/folding.py, of lines that
stand near each other: of every field the last value that a line names, of some the first. Parts are folded further like
lines, because all lines of one stand before those of the next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from queueyard.pipeline.sources.arrow import number

if TYPE_CHECKING:
    from collections.abc import Mapping


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """How lines are folded."""

    #: the field that says which record a line is about
    key: str
    #: fields whose first value counts
    first: list[str] = []


def parts_of(lines: Mapping[str, pa.Array], fold: Fold) -> tuple[dict[str, pa.Array], pa.Array]:
    """(the fields of each part, the place of its last line). `lines` are the fields of the lines; each has the key."""
    keys = lines[fold.key].dictionary_encode()
    parts, count = keys.indices, len(keys.dictionary)
    last = _last(parts, count)

    def chosen(name: str) -> pa.Array:
        column = lines[name]
        if name not in fold.first and not column.null_count:
            return last
        # A line that does not name the field belongs to no part.
        named = pc.if_else(column.is_valid(), parts, pa.nulls(1, parts.type)[0])
        return _first(named, count) if name in fold.first else _last(named, count)

    return {name: lines[name].take(chosen(name)) for name in lines}, last


def _last(parts: pa.Array, count: int) -> pa.Array:
    """For each part, the place of its last line; null for one that has none."""
    # Of equal ones, it takes the last. A grouped maximum would do as well, and import Arrow's engine and pandas for it.
    return pc.inverse_permutation(parts, max_index=count - 1, output_type=pa.int64())


def _first(parts: pa.Array, count: int) -> pa.Array:
    return pc.subtract(number(len(parts) - 1), _last(parts[::-1], count))

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

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE = "place of a line"


class Fold(msgspec.Struct, frozen=True, kw_only=True):
    """How lines are folded."""

    #: the field that says which record a line is about
    key: str
    #: fields whose first value counts
    first: list[str] = []


def parts_of(lines: Mapping[str, pa.Array], fold: Fold) -> tuple[dict[str, pa.Array], pa.Array]:
    """(the fields of each part, the place of its last line). `lines` are the fields of the lines; each has the key."""
    places = pa.arange(0, len(lines[fold.key]))
    named = {name: _where_named(column, places) for name, column in lines.items() if name != fold.key}
    rules = {name: "min" if name in fold.first else "max" for name in (*named, _PLACE)}
    rows = pa.table({fold.key: lines[fold.key], **named, _PLACE: places})
    parts = rows.group_by(fold.key, use_threads=False).aggregate(list(rules.items()))
    chosen = {name: parts.column(f"{name}_{rule}").combine_chunks() for name, rule in rules.items()}
    last = chosen.pop(_PLACE)
    return {name: lines[name].take(chosen.get(name, last)) for name in lines}, last


def _where_named(column: pa.Array, places: pa.Array) -> pa.Array:
    """The place of each line that names the field, and null of the others."""
    return pc.if_else(column.is_valid(), places, pa.scalar(None, places.type)) if column.null_count else places

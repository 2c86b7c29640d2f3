"""A block of bytes of a file as a batch of lines, with just the columns that are wanted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.arrow import ARROW_RECORD, holds, number, record_batch, split_lines
from queueyard.pipeline.sources.parsing import Shape, arrow_fields, records_in
from queueyard.pipeline.sources.parts import Fold, parts_of

if TYPE_CHECKING:
    from queueyard.pipeline.sources.spans import Span

_RECORD = "record"
_REST = "rest"
_NULL = "null"


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of every line."""

    names: list[str]
    #: the fields of `record`; None if it is not wanted
    record: Shape | None
    #: what lines of a stream must be like to be read; where a stream has none, they must be like `record`
    shapes: Mapping[str, Shape]
    #: how lines about the same record are folded; None if every line is wanted
    fold: Fold | None = None

    @classmethod
    def of(cls, schema: StructType, shapes: Mapping[str, Shape], fold: Fold | None = None) -> Columns:
        """SourceFailed for a schema that asks for what lines do not have."""
        kinds = {field.name: field.dataType for field in schema.fields}
        record = kinds.get(_RECORD)
        fields = _shape_of(record) if isinstance(record, StructType) else None
        known = {*ARROW_RECORD.names, *((_RECORD, _REST) if fields else ())}
        if strange := [name for name in kinds if name not in known]:
            raise SourceFailed(
                f"lines have no {', '.join(strange)}",
                hint=f"Ask for any of {', '.join(ARROW_RECORD.names)}, and {_RECORD} (a struct) with {_REST}.",
            )
        if fold is not None and not {fold.key, *fold.first} <= (fields or {}).keys():
            raise SourceFailed(
                f"lines are folded by {', '.join([fold.key, *fold.first])}, and not all of that is asked for",
                hint=f"Ask for a {_RECORD} that has these fields.",
            )
        return cls(names=list(kinds), record=fields, shapes=shapes, fold=fold)


def batch_of(span: Span, offset: int, block: bytes, size: int, columns: Columns) -> pa.RecordBatch:
    """The lines that start in the span and are not blank, of a block whose first `size` bytes are whole lines."""
    data = pa.py_buffer(block).slice(0, size)
    lines = split_lines(data)
    sizes = pc.add(pc.binary_length(lines).cast(pa.int64()), number(1))
    offsets = pc.add(pc.subtract(pc.cumulative_sum(sizes), sizes), number(offset))
    texts, is_sound = _decoded(lines)
    is_blank = pc.or_(pc.equal(sizes, number(1)), pc.ascii_is_space(texts))
    is_line = pc.and_not(pc.less(offsets, number(span.end)), is_blank)
    if is_line.false_count:
        texts, offsets = texts.filter(is_line), offsets.filter(is_line)
    made = record_batch(
        stream=span.stream,
        place=span.place,
        file=span.path,
        generation=span.generation,
        positions=offsets,
        raw=texts,
    )
    if columns.record is not None:
        shape = columns.shapes.get(span.stream, columns.record)
        # Blank lines may stay in it: they make no difference to whoever looks for objects.
        found = records_in(texts, shape, data if is_sound and offset + size <= span.end else None)
        records = _picked(found, shape, columns.record)
        made = made.append_column(_RECORD, records)
        if columns.fold is not None or _REST in columns.names:
            is_more = _is_more(texts, records, data)
            made = made.append_column(_REST, _where(is_more, texts))
            if columns.fold is not None and not is_more.true_count:
                made = _folded(made.select(columns.names), records, columns.fold)
    return made.select(columns.names)


def _shape_of(record: StructType) -> Shape:
    return {field.name: field.dataType.simpleString() for field in record.fields}


def _decoded(lines: pa.Array) -> tuple[pa.Array, bool]:
    """The lines as texts, and whether they all were."""
    try:
        return lines.cast(pa.string()), True
    except pa.ArrowInvalid:
        return pa.array([line.as_py().decode("utf-8", "replace") for line in lines], pa.string()), False


def _picked(found: pa.StructArray, shape: Shape, wanted: Shape) -> pa.StructArray:
    """The wanted fields of every record; fields that its shape does not have are null."""
    fields = arrow_fields(wanted)
    columns = [
        pc.struct_field(found, field.name) if field.name in shape else pa.nulls(len(found), field.type)
        for field in fields
    ]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=found.is_null())


def _is_more(texts: pa.Array, records: pa.StructArray, data: pa.Buffer) -> pa.BooleanArray:
    """Whether the record of a line does not tell all of it."""
    is_unread = records.is_null()
    return pc.or_(is_unread, pc.match_substring(texts, _NULL)) if holds(data, _NULL) else is_unread


def _where(is_wanted: pa.BooleanArray, texts: pa.Array) -> pa.Array:
    # `if_else` would keep the bytes of a text in whose place it puts null, and all of them would travel to Spark.
    return pc.replace_with_mask(pa.nulls(len(texts), pa.string()), is_wanted, texts.filter(is_wanted))


def _folded(lines: pa.RecordBatch, records: pa.StructArray, fold: Fold) -> pa.RecordBatch:
    """The parts of these lines, each where its last line stands; the lines as they are if one of them has no key."""
    fields = dict(zip(records.type.names, records.flatten(), strict=True))
    if fields[fold.key].null_count:
        return lines
    folded, last = parts_of(fields, fold)
    record = pa.StructArray.from_arrays(list(folded.values()), fields=list(records.type))
    place = lines.schema.get_field_index(_RECORD)
    return lines.remove_column(place).take(last).add_column(place, _RECORD, record)

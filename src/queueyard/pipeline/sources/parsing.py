"""Lines of JSON as records, read by Arrow in the task that reads the file. Pure.

Spark's `from_json` forgives much, and sets out anew for every text. Arrow's reader takes a block of lines at once, and
refuses whatever has not just the types that are asked for. So a record that is given here is the one that `from_json`
would give, and what is refused is null and left to it.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.arrow import bounds, number, text

#: The types of fields that both read alike, as Spark calls them.
FLAT: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
}
#: the fields of a line, and their types as Spark calls them
Shape = Mapping[str, str]

#: Spark refuses lists in lists, numbers and names beyond some length, the shortest being a number of so many digits.
_LONGEST_BYTES = 1_000
#: So many lines are left to Spark together if one of them is refused; more are tried in halves.
_FEW_LINES = 256


def arrow_fields(shape: Shape) -> list[pa.Field]:
    """SourceFailed for a type that is not in FLAT."""
    for name, kind in shape.items():
        if kind not in FLAT:
            raise SourceFailed(
                f"a line is not read as a record whose {name} is of type {kind}",
                hint=f"Ask for {', '.join(FLAT)}, or for the text (raw) and read it by from_json.",
            )
    return [pa.field(name, FLAT[kind]) for name, kind in shape.items()]


def records_in(lines: pa.StringArray, shape: Shape, data: pa.Buffer | None = None) -> pa.StructArray:
    """A record for every line; null where Spark has to look. None of the lines is blank or holds a newline.

    `data` is the bytes of the same lines, if they are at hand; blank lines among them do not matter.
    """
    schema = pa.schema(arrow_fields(shape))
    is_short = pc.less_equal(pc.binary_length(lines), number(_LONGEST_BYTES))
    if is_short.false_count == 0:
        return _records(lines, schema, data)
    places = pc.subtract(pc.cumulative_sum(is_short.cast(pa.int64())), number(1))
    short = _records(lines.filter(is_short), schema, None)
    return short.take(pc.if_else(is_short, places, pa.nulls(1, pa.int64())[0]))


def _records(lines: pa.StringArray, schema: pa.Schema, data: pa.Buffer | None) -> pa.StructArray:
    read = _read(lines, schema, data)
    if read is not None:
        return read
    if len(lines) <= _FEW_LINES:
        return pa.nulls(len(lines), pa.struct(list(schema)))
    middle = len(lines) // 2
    return pa.concat_arrays([_records(lines[:middle], schema, None), _records(lines[middle:], schema, None)])


def _read(lines: pa.StringArray, schema: pa.Schema, data: pa.Buffer | None) -> pa.StructArray | None:
    """All of the lines, or None if one of them is refused."""
    if not _are_braced(lines):
        return None
    joined = _joined(lines) if data is None else data
    try:
        table = pyarrow.json.read_json(
            pa.BufferReader(joined),
            read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    # Arrow looks for objects, wherever lines end. No object goes over the end of a line that is in braces: behind a
    # closing one, an opening one can only begin the next object. So each line is one or more, and here just one.
    if table.num_rows != len(lines):
        return None
    columns = [table.column(name).combine_chunks() for name in schema.names]
    return pa.StructArray.from_arrays(columns, fields=list(schema))


def _are_braced(lines: pa.StringArray) -> bool:
    are: bool = pc.all(pc.and_(pc.starts_with(lines, "{"), pc.ends_with(lines, "}"))).as_py()
    return are


def _joined(lines: pa.StringArray) -> pa.Buffer:
    all_of_them = pa.ListArray.from_buffers(pa.list_(pa.string()), 1, [None, bounds(0, len(lines))], children=[lines])
    return pc.binary_join(all_of_them, text("\n"))[0].as_buffer()

"""Lines that a source reads by itself: the same records that Spark would read, or none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T
import pytest

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.parsing import records_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHAPE = {"id": "string", "exclusive": "boolean", "attempt": "int", "size": "bigint"}
_UNREADABLE = "_unreadable"
_SCHEMA = T.StructType(
    [
        T.StructField("id", T.StringType()),
        T.StructField("exclusive", T.BooleanType()),
        T.StructField("attempt", T.IntegerType()),
        T.StructField("size", T.LongType()),
        T.StructField(_UNREADABLE, T.StringType()),
    ]
)

_SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["true", "1", "\u2028", "\x00", "é", "\U0001f600"])
)
_VALUES = st.recursive(
    _SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
)
_OBJECTS = st.dictionaries(st.sampled_from([*SHAPE, "ID", "other", "nested"]), _VALUES, max_size=5)
_ODD = st.sampled_from(
    [*list("{}[]\",:\\' \t/0-.eE\x1f\x7f"), "null", "NaN", "\\u00", "\\ud800", '"id"', "//", "\ufeff", "}{"]
)


@st.composite
def _lines(draw: st.DrawFn) -> str:
    """An object as JSON; then, perhaps, with something put in or taken out anywhere."""
    text = json.dumps(
        draw(_OBJECTS), ensure_ascii=draw(st.booleans()), separators=draw(st.sampled_from([None, (",", ":")]))
    )
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 2)))
        text = text[:start] + draw(_ODD | st.just("")) + text[end:]
    return text


def read(*lines: str) -> list[dict[str, Any] | None]:
    found: list[dict[str, Any] | None] = records_in(pa.array(lines, pa.string()), SHAPE).to_pylist()
    return found


@settings(suppress_health_check=list(HealthCheck), max_examples=25, deadline=None)
@given(lines=st.lists(_lines().filter(lambda line: line.strip() != ""), min_size=20, max_size=60))
@example(lines=['{"id":"a"}', '{"id":"a","id":"b"}', '{"id":1}', '{"size":-0}', '{"attempt":1e2}', "{}", "null", "[]"])
def test_what_is_read_is_what_spark_reads(spark: SparkSession, lines: list[str]) -> None:
    rows = spark.createDataFrame(list(enumerate(lines)), "place int, raw string").select(
        "place", F.from_json("raw", _SCHEMA, {"columnNameOfCorruptRecord": _UNREADABLE}).alias("record")
    )
    by_spark = [row["record"].asDict() for row in sorted(rows.collect())]

    alone = [read(line)[0] for line in lines]
    together = read(*lines)

    for line, ours, theirs in zip(lines, alone, by_spark, strict=True):
        assert ours is None or {**ours, _UNREADABLE: None} == theirs, line
    assert together == alone or together == [None] * len(lines)


def test_a_plain_record_is_read() -> None:
    assert read('{"id": "a", "exclusive": true, "attempt": 2, "size": 9007199254740993, "more": [1, {"id": 5}]}') == [
        {"id": "a", "exclusive": True, "attempt": 2, "size": 9007199254740993}
    ]


@pytest.mark.parametrize(
    "line",
    [
        '{"id":1}',
        '{"exclusive":"true"}',
        '{"attempt":2147483648}',
        '{"size":1.0}',
        '{"id":"a","id":"b"}',
        '{"id":"a"}{"id":"b"}',
        "{'id':'a'}",
        '{"id":"a"',
        '{"id":"a"}\r',
        "7",
    ],
)
def test_what_only_spark_can_judge_is_left_to_it(line: str) -> None:
    assert read(line) == [None]


def test_lines_that_are_one_object_together_are_not_taken_for_records() -> None:
    halves = ['{"nested":[{"id":"a"}', '{"id":"b"}]}']

    # The third line is two objects, so that there are as many objects as lines.
    assert read(*halves, '{"id":"c"}{"id":"d"}') == [None, None, None]


def test_a_line_that_spark_may_find_too_long_is_left_to_it_and_its_neighbours_are_not() -> None:
    long = json.dumps({"id": "long", "nested": "x" * 1_000})

    found = read('{"id":"a"}', long, '{"id":"b"}')

    assert [record and record["id"] for record in found] == ["a", None, "b"]


@pytest.mark.parametrize("bad", [0, 700, 1999])
def test_one_bad_line_leaves_only_few_others_to_spark(bad: int) -> None:
    lines = [f'{{"id":"{number}"}}' for number in range(2000)]
    lines[bad] = '{"id":'

    found = read(*lines)

    left = [number for number, record in enumerate(found) if record is None]
    assert bad in left
    assert len(left) <= 256
    assert all(record["id"] == str(number) for number, record in enumerate(found) if record)


def test_no_lines_are_no_records() -> None:
    assert read() == []


def test_a_type_that_is_not_read_is_refused_with_those_that_are() -> None:
    with pytest.raises(SourceFailed, match="size is of type double") as refused:
        records_in(pa.array(["{}"], pa.string()), {"size": "double"})

    assert "bigint" in (refused.value.hint or "")

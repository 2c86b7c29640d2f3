"""Lines that their source folds: the same records as without that, in fewer rows."""

from __future__ import annotations

from itertools import pairwise
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pyarrow as pa
from pyspark.sql import types as T
import pytest

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.silver.folding import FOLD
from queueyard.pipeline.sources import lines as source
from queueyard.pipeline.sources import parsing
from queueyard.pipeline.sources.blocks import Columns
from queueyard.pipeline.sources.lines import read_span
from queueyard.pipeline.sources.looking import look
from queueyard.pipeline.sources.parts import Fold, parts_of
from queueyard.pipeline.sources.spans import Origin, Span, plan, split
from queueyard.queen.rules import fold

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_FIELDS = ("id", "created_at", "status", "reason")
_NOTED = T.StructType([T.StructField(name, T.StringType()) for name in _FIELDS])
_WANTED = T.StructType(
    [RECORD["position"], T.StructField("record", _NOTED), T.StructField("rest", T.StringType()), RECORD["raw"]]
)
_READ_AND_TOLD = """
import sys
from pathlib import Path
from pyspark.sql import types as T
from queueyard.pipeline.silver.folding import FOLD
from queueyard.pipeline.sources.blocks import Columns
from queueyard.pipeline.sources.lines import read_span
from queueyard.pipeline.sources.looking import look
from queueyard.pipeline.sources.spans import Origin, plan

file = Path("noted.jsonl")
text = T.StringType()
record = T.StructType([T.StructField("id", text), T.StructField("created_at", text)])
wanted = T.StructType([T.StructField("record", record), T.StructField("rest", text)])
for fold, at in ((None, "2" * 2_000), (FOLD, "2")):
    file.write_text('{"id":"a","created_at":"1"}\\n\\n{"id":"a","created_at":"%s"}\\n{"id":"b"}\\n' % at)
    [span] = plan({}, look([Origin(stream="noted", place="/here", path=str(file))]), most_bytes=1 << 30)[0]
    print(sum(batch.num_rows for batch in read_span(span, Columns.of(wanted, {}, fold))))
print("pandas" in sys.modules)
"""
_VALUES = st.sampled_from(["", "x", "y", "the null"])
_LINES = st.fixed_dictionaries({"id": st.sampled_from("abc")}, optional=dict.fromkeys(_FIELDS[1:], _VALUES))
_ODD_LINES = st.fixed_dictionaries(
    {"id": st.sampled_from("abc")}, optional=dict.fromkeys(_FIELDS[1:], st.none() | _VALUES)
)


def test_the_last_value_of_a_field_counts_and_of_some_the_first() -> None:
    lines = {
        "id": pa.array(["a", "b", "a", "a", "b"]),
        "created_at": pa.array([None, "1", "2", "3", None]),
        "status": pa.array(["open", "open", None, "done", None]),
        "size": pa.array([None, None, 7, None, None], pa.int64()),
        "seen": pa.array([None, True, None, None, False]),
    }

    parts, last = parts_of(lines, Fold(key="id", first=["created_at"]))

    assert {name: column.to_pylist() for name, column in parts.items()} == {
        "id": ["a", "b"],
        "created_at": ["2", "1"],
        "status": ["done", "open"],
        "size": [7, None],
        "seen": [None, False],
    }
    assert last.to_pylist() == [3, 4]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(_LINES | _ODD_LINES, min_size=1, max_size=30), block=st.integers(40, 600), data=st.data())
def test_parts_and_single_lines_fold_into_the_records_of_all_lines(
    tmp_path: Path, lines: list[dict[str, Any]], block: int, data: st.DataObject
) -> None:
    spans = _written(tmp_path / "lines.jsonl", [json.dumps(line) for line in lines])
    piece = data.draw(st.integers(1, max(1, spans[0].end)))

    rows = _read([one for span in spans for one in split(span, most_bytes=piece)], block=block)

    assert _folded(_told(row) for row in rows) == _folded(lines)


def test_lines_of_a_block_come_as_one_row_where_the_last_of_them_stands(tmp_path: Path) -> None:
    texts = ['{"id":"a","created_at":"1"}', '{"id":"b"}', '{"id":"a","status":"done"}']
    spans = _written(tmp_path / "lines.jsonl", texts)

    first, second = _read(spans)

    assert (first["record"]["id"], first["raw"]) == ("b", texts[1])
    assert second["record"] == {"id": "a", "created_at": "1", "status": "done", "reason": None}
    assert (second["position"], second["raw"], second["rest"]) == (len(texts[0]) + len(texts[1]) + 2, texts[2], None)


@pytest.mark.parametrize(
    "odd",
    ['{"id":"a","reason":null}', '{"id":"a","status":5}', "no JSON", '{"_migration":{}}'],
    ids=["a null of its own", "another type", "no JSON", "no key"],
)
def test_a_block_with_a_line_that_is_not_all_told_comes_line_by_line(tmp_path: Path, odd: str) -> None:
    texts = ['{"id":"a","reason":"x"}', odd, '{"id":"a","status":"done"}']

    rows = _read(_written(tmp_path / "lines.jsonl", texts))

    assert [row["raw"] for row in rows] == texts


def test_a_fold_by_fields_that_are_not_asked_for_is_refused() -> None:
    wanted = T.StructType([T.StructField("record", T.StructType([_NOTED["id"]]))])

    with pytest.raises(SourceFailed, match="folded by id, created_at"):
        Columns.of(wanted, {}, FOLD)


def test_a_process_that_reads_lines_imports_no_pandas(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _READ_AND_TOLD], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert done.stdout.split() == ["3", "2", "False"], done.stderr


def _written(path: Path, texts: list[str]) -> list[Span]:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return plan({}, look([Origin(stream="noted", place="/here", path=str(path))]), most_bytes=1 << 30)[0]


def _read(spans: list[Span], *, block: int = 1 << 20) -> list[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_BLOCK_BYTES_TO_FOLD", block)
        patch.setattr(parsing, "_FEW_LINES", 1)
        batches = [batch for span in spans for batch in read_span(span, Columns.of(_WANTED, {}, FOLD))]
    ends = [batch.column("position").to_pylist() for batch in batches if batch.num_rows]
    # What allows parts to be folded like lines.
    assert all(max(before) < min(behind) for before, behind in pairwise(ends))
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["position"])


def _told(row: dict[str, Any]) -> dict[str, Any]:
    """A line that says what this row says."""
    if row["rest"] is not None:
        line: dict[str, Any] = json.loads(row["rest"])
        return line
    return {name: value for name, value in row["record"].items() if value is not None}


def _folded(lines: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """As queen folds them."""
    records: dict[str, dict[str, Any]] = {}
    for line in lines:
        records[line["id"]] = fold(records.get(line["id"]), line)
    return records

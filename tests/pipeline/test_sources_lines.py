"""Growing JSONL files through Spark: whole lines, once each, whatever happens to the file."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import msgspec
from pyspark.sql import types as T
import pytest

from pipeline.streams_support import as_text, batch, micro_batches
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.schemas import RECORD
from queueyard.pipeline.sources import parsing
from queueyard.pipeline.sources.blocks import Columns
from queueyard.pipeline.sources.lines import LineSource, read_span
from queueyard.pipeline.sources.looking import look, with_renamed
from queueyard.pipeline.sources.spans import Marks, Origin, Span, plan, split

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ALL = 1 << 60
_COUNTED = T.StructType([T.StructField("id", T.StringType()), T.StructField("count", T.LongType())])


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"


def origin_of(path: Path) -> Origin:
    return Origin(stream="jjq.events", place="/here", path=str(path))


def planned(path: Path, marks: Marks | None = None) -> tuple[list[Span], Marks]:
    return plan(marks or {}, look([origin_of(path)]), most_bytes=ALL)


def rotated(path: Path, marks: Marks, *, named: tuple[Path, ...] = (), most: int = ALL) -> tuple[list[Span], Marks]:
    """What is planned of a file that may have another name by now."""
    origins = [origin_of(one) for one in (*named, path)]
    return plan(marks, with_renamed(look(origins), origins, marks), most_bytes=most)


def texts(spans: list[Span]) -> list[str]:
    return [text for span in spans for found in read_span(span) for text in found.column("raw").to_pylist()]


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as stream:
        stream.write(text)


class TestWithoutSpark:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(
        lines=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), min_size=1), max_size=12),
        data=st.data(),
    )
    def test_ranges_that_are_cut_anywhere_give_every_line_once(
        self, tmp_path: Path, lines: list[str], data: st.DataObject
    ) -> None:
        path = tmp_path / "cut.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
        size = path.stat().st_size
        spans = planned(path)[0]

        pieces = [piece for span in spans for piece in split(span, most_bytes=data.draw(st.integers(1, max(1, size))))]

        assert texts(pieces) == [line for line in lines if line.encode().strip()]

    def test_a_line_that_is_longer_than_a_block_is_one_line(self, log: Path) -> None:
        huge = "x" * (9 << 20)
        log.write_text(f"first\n{huge}\nlast\n")

        pieces = split(planned(log)[0][0], most_bytes=1 << 20)

        assert [(text[:5], len(text)) for text in texts(pieces)] == [("first", 5), ("xxxxx", 9 << 20), ("last", 4)]

    @pytest.mark.parametrize(("megabytes", "pieces"), [(1, 1), (100, 4), (512, 8), (1024, 8), (2048, 16)])
    def test_much_is_read_by_as_many_tasks_as_are_worth_it(self, log: Path, megabytes: int, pieces: int) -> None:
        log.write_text("one\n")
        [span] = planned(log)[0]
        much = [msgspec.structs.replace(span, end=megabytes << 20)]

        reader = LineSource({"spans": msgspec.json.encode(much).decode()}).reader(RECORD)

        assert len(reader.partitions()) == pieces

    def test_positions_are_the_byte_offsets_of_the_lines(self, log: Path) -> None:
        log.write_text("grün\n\nzwei\n", encoding="utf-8")

        [found] = read_span(planned(log)[0][0])

        assert found.column("position").to_pylist() == [0, 7]

    def test_bytes_that_are_no_text_do_not_stop_it(self, log: Path) -> None:
        log.write_bytes(b"\xff\xfe\ngood\n")

        assert texts(planned(log)[0]) == ["\ufffd\ufffd", "good"]

    def test_a_file_that_was_renamed_after_the_plan_is_still_the_one_that_is_read(self, log: Path) -> None:
        log.write_text("one\ntwo\n")
        spans, _ = planned(log)

        log.rename(log.with_name("log.1.jsonl"))
        log.write_text("other\n")

        assert texts(spans) == ["one", "two"]

    def test_the_end_of_a_file_that_was_rotated_away_is_read_before_the_new_file(self, log: Path) -> None:
        log.write_text("one\n")
        _, marks = planned(log)

        append(log, "two\n")
        log.rename(log.with_name("log.jsonl.1"))
        append(log, "three\n")
        spans, after = rotated(log, marks)

        assert texts(spans) == ["two", "three"]
        assert [span.generation for span in spans] == [0, 1]
        assert rotated(log, after)[0] == []

    def test_it_is_read_also_while_there_is_no_new_file(self, log: Path) -> None:
        log.write_text("one\n")
        _, marks = planned(log)

        append(log, "two\n")
        log.rename(log.with_name("log.jsonl.1"))
        first, marks = rotated(log, marks)
        append(log, "three\n")
        second, _ = rotated(log, marks)

        assert (texts(first), texts(second)) == (["two"], ["three"])

    def test_it_is_read_bit_by_bit_where_little_is_asked_for(self, log: Path) -> None:
        log.write_text("one\n")
        _, marks = planned(log)

        append(log, "two\nthree\n")
        log.rename(log.with_name("log.jsonl.1"))
        append(log, "four\n")
        taken: list[str] = []
        while (step := rotated(log, marks, most=4))[0]:
            taken += texts(step[0])
            marks = step[1]

        assert taken == ["two", "three", "four"]

    def test_it_is_read_once_where_its_new_name_is_known_too(self, log: Path) -> None:
        old = log.with_name("log.1.jsonl")
        log.write_text("one\n")
        _, marks = rotated(log, {}, named=(old,))

        append(log, "two\n")
        log.rename(old)
        append(log, "three\n")
        spans, after = rotated(log, marks, named=(old,))

        assert texts(spans) == ["two", "three"]
        assert rotated(log, after, named=(old,))[0] == []

    def test_a_file_of_the_same_inode_that_begins_otherwise_is_not_it(self, log: Path) -> None:
        log.write_text("one\n")
        _, marks = planned(log)

        log.rename(log.with_name("else.txt"))
        log.with_name("else.txt").write_text("not ours\n")

        assert rotated(log, marks)[0] == []

    def test_a_file_that_was_replaced_after_the_plan_is_refused(self, log: Path, tmp_path: Path) -> None:
        log.write_text("one\ntwo\n")
        spans, _ = planned(log)
        other = tmp_path / "other"
        other.write_text("eins\nzwei\n")

        other.replace(log)

        with pytest.raises(SourceFailed, match="while it was read"):
            texts(spans)

    def test_a_file_that_was_cut_short_after_the_plan_is_refused(self, log: Path) -> None:
        log.write_text("one\ntwo\n")
        spans, _ = planned(log)

        os.truncate(log, 4)

        with pytest.raises(SourceFailed, match="while it was read"):
            texts(spans)

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
    @given(
        lines=st.lists(
            st.builds('{{"id":"{}"}}'.format, st.integers()) | st.sampled_from(["", "  ", "{", "\ufffd", '{"id":5}']),
            max_size=12,
        ),
        few=st.integers(1, 3),
        data=st.data(),
    )
    def test_every_record_stands_beside_its_own_text(
        self, tmp_path: Path, lines: list[str], few: int, data: st.DataObject
    ) -> None:
        path = tmp_path / "cut.jsonl"
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        size = data.draw(st.integers(1, max(1, path.stat().st_size)))
        pieces = [piece for span in planned(path)[0] for piece in split(span, most_bytes=size)]
        wanted = Columns.of(T.StructType([RECORD["raw"], T.StructField("record", _COUNTED)]), {})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(parsing, "_FEW_LINES", few)
            rows = [row for piece in pieces for found in read_span(piece, wanted) for row in found.to_pylist()]

        assert [row["raw"] for row in rows] == [line for line in lines if line.strip()]
        assert all(row["record"]["id"] == json.loads(row["raw"])["id"] for row in rows if row["record"])
        assert few > 1 or [row["record"] is not None for row in rows] == ['"' in row["raw"][6:] for row in rows]

    def test_lines_come_as_records_with_the_text_of_those_that_are_more(
        self, log: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parsing, "_FEW_LINES", 1)
        found = ['{"id":"a","count":1,"more":[]}', '{"id":null,"count":2}', '{"id":5}', "no JSON", '{"id":"the null"}']
        log.write_text("".join(f"{text}\n" for text in found))
        wanted = T.StructType([T.StructField("record", _COUNTED), T.StructField("rest", T.StringType())])

        [rows] = read_span(planned(log)[0][0], Columns.of(wanted, {}))

        assert rows.to_pylist() == [
            {"record": {"id": "a", "count": 1}, "rest": None},
            {"record": {"id": None, "count": 2}, "rest": found[1]},
            {"record": None, "rest": found[2]},
            {"record": None, "rest": found[3]},
            {"record": {"id": "the null", "count": None}, "rest": found[4]},
        ]

    def test_a_column_that_lines_do_not_have_is_refused_with_those_that_they_have(self) -> None:
        with pytest.raises(SourceFailed, match="lines have no colour, rest") as refused:
            LineSource({"spans": "[]"}).reader(
                T.StructType([T.StructField(name, T.StringType()) for name in ("colour", "raw", "rest")])
            )

        assert "position" in (refused.value.hint or "")

    def test_a_folder_in_place_of_the_file_is_refused_with_the_next_command(self, log: Path) -> None:
        log.mkdir()

        with pytest.raises(SourceFailed) as refused:
            planned(log)

        assert "ls -l" in (refused.value.hint or "")


class TestThroughSpark:
    def test_a_batch_gives_whole_lines_with_where_they_stood(self, spark: SparkSession, log: Path) -> None:
        log.write_text('{"a":1}\n{"a":2}\n{"a"')

        rows = batch(spark, "queueyard_lines", spans=as_text(planned(log)[0]))

        assert [tuple(row) for row in rows] == [
            ("jjq.events", "/here", str(log), 0, 0, 0, '{"a":1}'),
            ("jjq.events", "/here", str(log), 0, 8, 0, '{"a":2}'),
        ]

    def test_only_lines_of_the_shape_of_their_stream_come_as_records(self, spark: SparkSession, log: Path) -> None:
        log.write_text('{"id":"a","count":1}\n')

        def read(**shape: str) -> object:
            frame = spark.read.format("queueyard_lines").schema("record struct<id: string, other: int>")
            shapes = as_text({"jjq.events": shape})
            [row] = frame.options(spans=as_text(planned(log)[0]), shapes=shapes).load().collect()
            return row["record"] and tuple(row["record"])

        assert read(id="string", count="int") == ("a", None)
        assert read(id="string", count="string") is None

    def test_a_stream_goes_on_from_its_checkpoint_through_a_torn_line_and_a_rotation(
        self, spark: SparkSession, log: Path, tmp_path: Path
    ) -> None:
        old = tmp_path / "log.1.jsonl"
        options = {"origins": as_text([origin_of(log), origin_of(old)])}
        append(log, "1\n2\n3")
        first = micro_batches(spark, tmp_path, "queueyard_lines", **options)

        append(log, "0\n4\n")
        log.rename(old)
        append(old, "late\n")
        append(log, "5\n")
        second = micro_batches(spark, tmp_path, "queueyard_lines", **options)
        third = micro_batches(spark, tmp_path, "queueyard_lines", **options)

        assert first == ["1", "2"]
        assert second == third == ["1", "2", "30", "4", "5", "late"]

    def test_a_stream_reads_the_end_of_a_file_that_was_rotated_away(
        self, spark: SparkSession, log: Path, tmp_path: Path
    ) -> None:
        options = {"origins": as_text([origin_of(log)])}
        append(log, "1\n")
        micro_batches(spark, tmp_path, "queueyard_lines", **options)

        append(log, "2\n")
        log.rename(tmp_path / "log.jsonl.1")
        append(log, "3\n")
        second = micro_batches(spark, tmp_path, "queueyard_lines", **options)
        append(tmp_path / "log.jsonl.1", "late\n")
        third = micro_batches(spark, tmp_path, "queueyard_lines", **options)

        assert second == ["1", "2", "3"]
        assert third == ["1", "2", "3", "late"]

    def test_a_stream_reads_a_truncated_file_from_its_start(
        self, spark: SparkSession, log: Path, tmp_path: Path
    ) -> None:
        options = {"origins": as_text([origin_of(log)])}
        append(log, "1\n2\n3\n")
        micro_batches(spark, tmp_path, "queueyard_lines", **options)

        log.write_text("a\n")
        found = micro_batches(spark, tmp_path, "queueyard_lines", **options)

        assert found == ["1", "2", "3", "a"]

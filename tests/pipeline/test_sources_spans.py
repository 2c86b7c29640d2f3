"""Growing files: whatever happens to them, each whole line is planned exactly once. Pure, over a disk in memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
import msgspec

from queueyard.pipeline.sources.spans import (
    HEAD_BYTES,
    Mark,
    Marks,
    Origin,
    Seen,
    Span,
    between,
    is_same_grown,
    plan,
    split,
)

if TYPE_CHECKING:
    from collections.abc import Callable

ALL = 1 << 60
NOW, OLD = "log.jsonl", "log.1.jsonl"


def origin(path: str, *, archive_of: str | None = None, renamed_from: str | None = None) -> Origin:
    return Origin(stream="jjq.events", place="/here", path=path, archive_of=archive_of, renamed_from=renamed_from)


def seen(
    path: str, inode: int, content: bytes, *, archive_of: str | None = None, renamed_from: str | None = None
) -> Seen:
    return Seen(
        origin=origin(path, archive_of=archive_of, renamed_from=renamed_from),
        inode=inode,
        end=content.rfind(b"\n") + 1,
        head=content[:HEAD_BYTES],
    )


def lines_that_start_in(content: bytes, start: int, end: int) -> list[bytes]:
    """What a reader has to give for a range; the slow and plain way."""
    found, offset = [], 0
    for line in content.splitlines(keepends=True):
        if start <= offset < end and line.endswith(b"\n"):
            found.append(line)
        offset += len(line)
    return found


@dataclass
class Disk:
    """One log with its last predecessor, as rotation leaves them."""

    #: the names that are known; a predecessor of another name is found by its mark
    names: tuple[str, ...] = (NOW, OLD)
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    free_inodes: list[int] = field(default_factory=list)
    written: int = 0
    marks: Marks = field(default_factory=dict)
    given: Counter[bytes] = field(default_factory=Counter)

    def do(self, step: str, little: int) -> None:
        steps: dict[str, Callable[[], object]] = {
            "append": lambda: self.append(NOW),
            "half": lambda: self.append(NOW, half=True),
            "late": lambda: self.append(OLD) if OLD in self.files else None,
            "rotate": self.rotate,
            "truncate": self.truncate,
            "replace": self.replace,
            "read": lambda: self.read(ALL),
            "read_little": lambda: self.read(little),
        }
        steps[step]()

    def append(self, path: str, *, half: bool = False) -> None:
        inode, content = self.files.get(path) or (self._new_inode(), b"")
        is_torn = bool(content) and not content.endswith(b"\n")
        if is_torn:
            rest = content[content.rfind(b"\n") + 1 :]
            text = self._line(int(rest.split(b"-")[1]))[len(rest) :]
        else:
            self.written += 1
            text = self._line(self.written)
            text = text[: len(text) - 4] if half else text
        self.files[path] = (inode, content + text)

    def rotate(self) -> None:
        if NOW in self.files:
            self._forget(OLD)
            self.files[OLD] = self.files.pop(NOW)

    def truncate(self) -> None:
        if NOW in self.files:
            self.files[NOW] = (self.files[NOW][0], b"")

    def replace(self) -> None:
        self._forget(NOW)
        self.append(NOW)

    def read(self, most_bytes: int) -> list[Span]:
        files = [file for path in sorted(self.files) if (file := self._seen(path)) is not None]
        spans, after = plan(self.marks, files, most_bytes=most_bytes)
        origins = [origin(path) for path in self.names]
        assert sorted(between(self.marks, after, origins), key=self._place) == sorted(spans, key=self._place)
        self.marks = after
        for span in spans:
            self.given.update(lines_that_start_in(self.files[span.path][1], span.start, span.end))
        return spans

    def whole_lines(self) -> list[bytes]:
        contents = [content for _, content in self.files.values()]
        return [line for content in contents for line in content.splitlines(keepends=True) if line.endswith(b"\n")]

    def _seen(self, path: str) -> Seen | None:
        if path in self.names:
            return seen(path, *self.files[path])
        file = seen(path, *self.files[path], renamed_from=NOW)
        return file if any(is_same_grown(file, mark) for mark in self.marks.values()) else None

    def _place(self, span: Span) -> int:
        return list(self.files).index(span.path)

    def _line(self, number: int) -> bytes:
        return f"line-{number}-{'x' * (number % 7)}end\n".encode()

    def _new_inode(self) -> int:
        # As file systems do: the number of a file that is gone is soon that of another one.
        return self.free_inodes.pop() if self.free_inodes else 100 + self.written

    def _forget(self, path: str) -> None:
        gone = self.files.pop(path, None)
        if gone is not None:
            self.free_inodes.append(gone[0])


_STEPS = st.sampled_from(["append", "append", "half", "late", "rotate", "truncate", "replace", "read", "read_little"])


@given(steps=st.lists(_STEPS, max_size=40), little=st.integers(1, 60))
def test_every_whole_line_is_given_exactly_once_through_any_history(steps: list[str], little: int) -> None:
    disk = Disk()

    for step in [*steps, "read"]:
        disk.do(step, little)
        if step == "read":
            assert [line for line in disk.whole_lines() if disk.given[line] != 1] == []

    assert [line for line, count in disk.given.items() if count > 1] == []


@given(steps=st.lists(_STEPS, max_size=40), little=st.integers(1, 60))
def test_a_file_that_was_begun_is_given_to_its_end_under_whatever_name(steps: list[str], little: int) -> None:
    disk = Disk(names=(NOW,))

    for step in [*steps, "read"]:
        was_begun = disk.given.copy()
        disk.do(step, little)
        if step == "read":
            old = disk.files.get(OLD, (0, b""))[1].splitlines(keepends=True)
            now = disk.files.get(NOW, (0, b""))[1].splitlines(keepends=True)
            wanted = now + (old if old and was_begun[old[0]] else [])
            assert [line for line in wanted if line.endswith(b"\n") and disk.given[line] != 1] == []

    assert [line for line, count in disk.given.items() if count > 1] == []


@given(content=st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=20), data=st.data())
def test_ranges_that_are_cut_anywhere_give_every_line_once(content: list[bytes], data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in content)
    whole = Span(stream="s", place="p", path="f", inode=1, generation=0, start=0, end=len(text))
    most = data.draw(st.integers(1, max(1, len(text))))

    pieces = split(whole, most_bytes=most)

    given_lines = [line for piece in pieces for line in lines_that_start_in(text, piece.start, piece.end)]
    assert given_lines == lines_that_start_in(text, 0, len(text))


class TestOneFile:
    def test_nothing_new_is_nothing_to_read(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        spans, after = plan(marks, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        assert (spans, after) == ([], marks)

    def test_a_torn_line_waits_until_it_is_whole(self) -> None:
        spans, marks = plan({}, [seen(NOW, 1, b"one\ntw")], most_bytes=ALL)
        later, _ = plan(marks, [seen(NOW, 1, b"one\ntwo\n")], most_bytes=ALL)

        assert [(span.start, span.end) for span in spans + later] == [(0, 4), (4, 8)]

    def test_truncation_in_place_starts_a_new_generation(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\ntwo\n")], most_bytes=ALL)

        spans, _ = plan(marks, [seen(NOW, 1, b"new\n")], most_bytes=ALL)

        assert [(span.generation, span.start, span.end) for span in spans] == [(1, 0, 4)]

    def test_other_content_of_the_same_inode_and_a_greater_length_is_another_file(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        spans, _ = plan(marks, [seen(NOW, 1, b"other and longer\n")], most_bytes=ALL)

        assert [(span.generation, span.start) for span in spans] == [(1, 0)]

    def test_a_mark_of_an_older_note_is_read_again_rather_than_trusted(self) -> None:
        marks = {NOW: Mark(inode=1, offset=4, generation=0, fingerprint="unknown")}

        spans, _ = plan(marks, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        assert [(span.generation, span.start) for span in spans] == [(1, 0)]


class TestARenamedFile:
    def test_its_unread_end_comes_before_the_lines_of_its_successor(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        spans, after = plan(
            marks, [seen(OLD, 1, b"one\ntwo\n", renamed_from=NOW), seen(NOW, 2, b"three\n")], most_bytes=ALL
        )

        assert [(span.inode, span.generation, span.start, span.end) for span in spans] == [(1, 0, 4, 8), (2, 1, 0, 6)]
        assert after[NOW].inode == 2
        assert between(marks, after, [origin(NOW)]) == spans[::-1]

    def test_its_mark_goes_with_it_although_nothing_of_it_is_new(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        renamed = [seen(OLD, 1, b"one\n", renamed_from=NOW), seen(NOW, 2, b"two\n")]
        _, after = plan(marks, renamed, most_bytes=ALL)
        late = [seen(OLD, 1, b"one\nlate\n", renamed_from=NOW), seen(NOW, 2, b"two\n")]
        spans, _ = plan(after, late, most_bytes=ALL)

        assert [(span.path, span.generation, span.start, span.end) for span in spans] == [(OLD, 0, 4, 9)]

    def test_it_is_forgotten_when_it_is_gone(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)
        files = [seen(OLD, 1, b"one\n", renamed_from=NOW), seen(NOW, 2, b"two\n")]
        _, marks = plan(marks, files, most_bytes=ALL)

        _, after = plan(marks, files[1:], most_bytes=ALL)

        assert (sorted(marks), sorted(after)) == ([OLD, NOW], [NOW])

    def test_a_note_that_knows_nothing_of_renaming_is_understood(self) -> None:
        old = {"inode": 1, "offset": 4, "generation": 2, "fingerprint": "f", "head_bytes": 4, "since": 0}

        mark = msgspec.convert(old, Mark)

        assert (mark.offset, mark.generation, mark.renamed_from) == (4, 2, None)


class TestArchives:
    def test_what_is_archived_before_the_first_plan_is_older_than_the_file(self) -> None:
        files = [archive("a-1", 1, b"one\n"), archive("a-2", 2, b"two\n"), seen(NOW, 3, b"three\n")]

        assert generations({}, files) == [("a-1", 0), ("a-2", 1), (NOW, 2)]

    def test_an_archive_that_came_later_lies_between_what_was_read_of_the_file_and_what_is_new(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\ntwo\n")], most_bytes=ALL)

        files = [archive("a-1", 2, b"one\n"), archive("a-2", 3, b"two\n"), seen(NOW, 4, b"three\n")]

        assert generations(marks, files) == [("a-1", 1), ("a-2", 2), (NOW, 3)]

    def test_an_archive_that_grew_lies_there_too(self) -> None:
        _, marks = plan({}, [archive("a-1", 1, b"one\n"), seen(NOW, 2, b"two\n")], most_bytes=ALL)

        files = [archive("a-1", 1, b"one\ntwo\n"), seen(NOW, 3, b"three\n")]

        assert generations(marks, files) == [("a-1", 2), (NOW, 3)]

    def test_a_file_that_goes_on_although_it_was_archived_is_newer_than_the_archive(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)

        files = [archive("a-1", 2, b"one\n"), seen(NOW, 1, b"one\ntwo\n")]

        assert generations(marks, files) == [("a-1", 1), (NOW, 2)]

    def test_what_is_read_bit_by_bit_is_in_the_same_order(self) -> None:
        files = [archive("a-1", 1, b"one\n1\n"), archive("a-2", 2, b"two\n"), seen(NOW, 3, b"three\n")]
        marks: Marks = {}
        found: list[tuple[str, int]] = []

        while (step := plan(marks, files, most_bytes=3))[0]:
            found += [(span.path, span.generation) for span in step[0]]
            marks = step[1]

        assert list(dict.fromkeys(found)) == [("a-1", 0), ("a-2", 1), (NOW, 2)]

    def test_an_archive_that_is_gone_keeps_its_place_in_the_order(self) -> None:
        _, marks = plan({}, [seen(NOW, 1, b"one\n")], most_bytes=ALL)
        _, marks = plan(marks, [archive("a-1", 2, b"one\n"), seen(NOW, 3, b"")], most_bytes=ALL)

        assert generations(marks, [seen(NOW, 3, b"two\n")]) == [(NOW, 2)]

    def test_a_note_with_archives_below_zero_is_gone_on_with(self) -> None:
        _, marks = plan({}, [seen("a-1", 1, b"one\n"), seen(NOW, 2, b"two\n")], most_bytes=ALL)
        old = {**marks, "a-1": msgspec.structs.replace(marks["a-1"], generation=-1_000_000)}

        files = [archive("a-1", 1, b"one\ntwo\n"), archive("a-2", 3, b"2\n"), seen(NOW, 4, b"three\n")]

        assert generations(old, files[:1]) == [("a-1", 1)]
        assert generations(old, files) == [("a-1", 1), ("a-2", 2), (NOW, 3)]


def archive(path: str, inode: int, content: bytes) -> Seen:
    return seen(path, inode, content, archive_of=NOW)


def generations(marks: Marks, files: list[Seen]) -> list[tuple[str, int]]:
    """Of all that is new."""
    return [(span.path, span.generation) for span in plan(marks, files, most_bytes=ALL)[0]]

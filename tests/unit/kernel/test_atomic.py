"""Replacement, append and tolerant reading, one promise per test; what a crash leaves is in promises/."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from queueyard.kernel.atomic import (
    BadLine,
    Files,
    append_lines,
    is_still_at,
    read_document,
    read_lines,
    replace_file,
)
from queueyard.kernel.errors import CorruptFile, StorageFailed

NOBODY = 65534
STRAY = ".state.json.queueyard-0123456789ab"


class RecordingFiles(Files):
    """Real files that remember the order of the calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self.calls.append("open")
        return super().open(path, flags, mode)

    def write(self, descriptor: int, data: bytes) -> int:
        self.calls.append("write")
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self.calls.append("fsync")
        super().fsync(descriptor)

    def rename(self, source: str, target: str) -> None:
        self.calls.append("rename")
        super().rename(source, target)

    def fsync_folder(self, path: str) -> None:
        self.calls.append("fsync_folder")
        super().fsync_folder(path)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def refuse(bad: BadLine) -> None:
    pytest.fail(str(bad))


def read_all(path: Path, **options: Any) -> tuple[list[Any], list[BadLine]]:
    bad: list[BadLine] = []
    lines = read_lines(path, msgspec.json.decode, on_bad=bad.append, **options)
    return [line.value for line in lines], bad


class TestReplace:
    def test_the_new_content_is_there_and_nothing_else(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(b"old")

        replace_file(path, b"new")

        assert path.read_bytes() == b"new"
        assert names_in(tmp_path) == ["state.json"]

    def test_it_writes_fsyncs_renames_and_fsyncs_the_folder_in_this_order(self, tmp_path: Path) -> None:
        files = RecordingFiles()

        replace_file(tmp_path / "state.json", b"new", files=files)

        assert files.calls == ["open", "write", "fsync", "rename", "fsync_folder"]

    @pytest.mark.parametrize("mode", [0o600, 0o640, 0o755, 0o444])
    def test_the_mode_bits_of_the_old_file_are_kept(self, tmp_path: Path, mode: int) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(b"old")
        path.chmod(mode)

        replace_file(path, b"new")

        assert path.stat().st_mode & 0o7777 == mode

    def test_a_mode_that_is_asked_for_wins_over_the_old_one(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(b"old")
        path.chmod(0o644)

        replace_file(path, b"new", mode=0o600)

        assert path.stat().st_mode & 0o7777 == 0o600

    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o644)])
    def test_a_new_file_follows_the_umask(self, tmp_path: Path, umask: int, mode: int) -> None:
        path = tmp_path / "state.json"
        program = (
            "import os, pathlib, sys; os.umask(int(sys.argv[2]));"
            "from queueyard.kernel.atomic import replace_file; replace_file(pathlib.Path(sys.argv[1]), b'new')"
        )

        subprocess.run([sys.executable, "-c", program, str(path), str(umask)], check=True)

        assert path.stat().st_mode & 0o7777 == mode

    def test_the_temporary_file_of_a_dead_writer_is_swept(self, tmp_path: Path) -> None:
        (tmp_path / STRAY).write_bytes(b"half of someth")

        replace_file(tmp_path / "state.json", b"new")

        assert names_in(tmp_path) == ["state.json"]

    def test_the_temporary_file_of_a_living_writer_stays(self, tmp_path: Path) -> None:
        stray = tmp_path / STRAY
        with stray.open("wb") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)

            replace_file(tmp_path / "state.json", b"new")

            assert names_in(tmp_path) == [STRAY, "state.json"]

    @pytest.mark.parametrize(
        "name",
        [
            ".state.json.queueyard-copy",
            ".state.json.queueyard-0123456789abcd",
            ".state.json.queueyard-0123456789AB",
            ".other.json.queueyard-0123456789ab",
            "state.json.queueyard-0123456789ab",
        ],
    )
    def test_a_file_that_only_looks_like_a_stray_stays(self, tmp_path: Path, name: str) -> None:
        (tmp_path / name).write_bytes(b"somebody's own")

        replace_file(tmp_path / "state.json", b"new")

        assert (tmp_path / name).read_bytes() == b"somebody's own"

    def test_a_folder_or_pipe_named_like_a_stray_does_not_hinder(self, tmp_path: Path) -> None:
        (tmp_path / STRAY).mkdir()
        os.mkfifo(tmp_path / ".state.json.queueyard-ba9876543210")

        replace_file(tmp_path / "state.json", b"new")

        assert (tmp_path / "state.json").read_bytes() == b"new"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a stray that belongs to somebody else")
    def test_a_stray_of_somebody_else_does_not_hinder(self, tmp_path: Path) -> None:
        with tempfile.TemporaryDirectory() as shared:
            Path(shared).chmod(0o1777)
            stray = Path(shared, STRAY)
            stray.touch(mode=0o600)
            program = (
                "import encodings.ascii, os, pathlib, sys; from queueyard.kernel.atomic import replace_file;"
                f"os.setgid({NOBODY}); os.setuid({NOBODY}); replace_file(pathlib.Path(sys.argv[1]), b'new')"
            )

            subprocess.run([sys.executable, "-c", program, f"{shared}/state.json"], check=True)

            assert Path(shared, "state.json").read_bytes() == b"new"
            assert stray.exists()

    @pytest.mark.parametrize("name", ["x" * 255, "ü" * 127, "x" * 201])
    def test_a_name_as_long_as_the_disk_takes_can_be_replaced(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / name
        path.write_bytes(b"old")

        replace_file(path, b"new")

        assert path.read_bytes() == b"new"
        assert names_in(tmp_path) == [name]

    def test_a_folder_in_the_place_of_the_file_is_told_and_nothing_is_left(self, tmp_path: Path) -> None:
        (tmp_path / "state.json").mkdir()

        with pytest.raises(StorageFailed, match=r"cannot write .*state\.json: Is a directory") as caught:
            replace_file(tmp_path / "state.json", b"new")

        assert caught.value.hint == f"A folder stands where a file should be: ls -ld {tmp_path / 'state.json'}"
        assert names_in(tmp_path) == ["state.json"]

    def test_a_missing_folder_is_told_with_its_name(self, tmp_path: Path) -> None:
        with pytest.raises(StorageFailed) as caught:
            replace_file(tmp_path / "missing" / "state.json", b"new")

        assert caught.value.hint == f"Check that the folder exists: ls -ld {tmp_path / 'missing'}"

    def test_a_file_in_the_place_of_the_folder_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "folder").write_bytes(b"")

        with pytest.raises(StorageFailed) as caught:
            replace_file(tmp_path / "folder" / "state.json", b"new")

        assert caught.value.hint == f"A file stands where a folder should be: ls -ld {tmp_path / 'folder'}"


class TestAppend:
    def test_lines_follow_each_other_and_the_range_tells_where(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"

        first = append_lines(path, [b"1", b"22"])
        second = append_lines(path, [b"333"])

        assert path.read_bytes() == b"1\n22\n333\n"
        assert (first, second) == ((0, 5), (5, 9))

    def test_the_range_after_a_torn_tail_is_that_of_the_new_lines(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b'{"to')

        start, end = append_lines(path, [b"1"])

        assert path.read_bytes()[start:end] == b"1\n"

    def test_a_torn_tail_is_mended_by_the_next_append(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b'1\n{"to')

        append_lines(path, [b"2"])

        assert path.read_bytes() == b'1\n{"to\n2\n'

    def test_nothing_to_append_changes_nothing(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"1\n22\n")

        where = append_lines(path, [])

        assert where == (5, 5)
        assert path.read_bytes() == b"1\n22\n"

    def test_all_lines_of_one_call_are_one_write(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"torn")
        files = RecordingFiles()

        append_lines(path, [b"1", b"2", b"3"], files=files)

        assert files.calls == ["open", "write", "fsync"]

    def test_a_new_file_has_a_durable_name_before_its_first_byte(self, tmp_path: Path) -> None:
        files = RecordingFiles()

        append_lines(tmp_path / "log.jsonl", [b"1"], files=files)

        assert files.calls == ["open", "fsync_folder", "write", "fsync"]

    def test_an_append_that_need_not_last_leaves_out_the_fsync(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"1\n")
        files = RecordingFiles()

        append_lines(path, [b"2"], durable=False, files=files)

        assert files.calls == ["open", "write"]

    def test_a_file_that_is_replaced_while_we_wait_for_its_lock_is_not_lost(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"1\n")
        program = (
            "import pathlib, sys; from queueyard.kernel.atomic import append_lines;"
            "print('ready', flush=True); append_lines(pathlib.Path(sys.argv[1]), [b'3'])"
        )
        with path.open("rb") as old:
            fcntl.flock(old, fcntl.LOCK_EX)
            child = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
            with child:
                assert child.stdout is not None
                child.stdout.readline()
                replace_file(path, b"1\n2\n")
                fcntl.flock(old, fcntl.LOCK_UN)

        assert child.returncode == 0
        assert path.read_bytes() == b"1\n2\n3\n"

    def test_a_folder_in_the_place_of_the_file_is_told(self, tmp_path: Path) -> None:
        (tmp_path / "log.jsonl").mkdir()

        with pytest.raises(StorageFailed) as caught:
            append_lines(tmp_path / "log.jsonl", [b"1"])

        assert caught.value.hint == f"A folder stands where a file should be: ls -ld {tmp_path / 'log.jsonl'}"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody who may not read")
    def test_a_file_of_somebody_else_is_told_with_who_to_ask(self, tmp_path: Path) -> None:
        with tempfile.TemporaryDirectory() as shared:
            Path(shared).chmod(0o755)
            Path(shared, "log.jsonl").touch(mode=0o600)
            program = (
                "import os, pathlib, sys\n"
                "from queueyard.kernel.atomic import append_lines\n"
                "from queueyard.kernel.errors import StorageFailed\n"
                f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
                "try: append_lines(pathlib.Path(sys.argv[1]), [b'1'])\n"
                "except StorageFailed as fault: print(fault, fault.hint, sep='\\n')\n"
            )

            told = subprocess.run(
                [sys.executable, "-c", program, f"{shared}/log.jsonl"], check=True, capture_output=True, text=True
            )

            assert told.stdout.splitlines() == [
                f"cannot append to {shared}/log.jsonl: Permission denied",
                f"Check who owns it: ls -ld {shared}/log.jsonl",
            ]


class TestReadLines:
    def test_a_missing_file_has_no_lines(self, tmp_path: Path) -> None:
        assert read_all(tmp_path / "missing.jsonl") == ([], [])

    def test_a_bad_line_is_reported_with_file_line_and_byte_and_the_reader_goes_on(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b'1\n\n{"half":\n"\xff"\n2\n')

        values, bad = read_all(path)

        assert values == [1, 2]
        assert [(line.path, line.number, line.offset) for line in bad] == [(path, 3, 3), (path, 4, 12)]
        assert str(bad[0]) == f"{path}: line 3 (byte 3): Input data was truncated"

    def test_a_torn_last_line_is_reported_as_torn(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b'1\n{"hal')

        values, bad = read_all(path)

        assert values == [1]
        assert [str(line) for line in bad] == [f"{path}: line 2 (byte 2): torn last line"]

    def test_a_line_that_is_being_written_while_we_read_is_never_taken_for_two(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b'1\n{"n":[2,')

        def decode_beside_a_writer(raw: bytes) -> Any:
            if not raw.endswith(b"\n"):
                with path.open("ab") as writer:
                    writer.write(b"3]}\n4\n")
            return msgspec.json.decode(raw)

        bad: list[BadLine] = []
        first = [line.value for line in read_lines(path, decode_beside_a_writer, on_bad=bad.append)]
        then = [line.value for line in read_lines(path, msgspec.json.decode, start=bad[0].offset, on_bad=refuse)]

        assert [line.reason for line in bad] == ["torn last line"]
        assert (first, then) == ([1], [{"n": [2, 3]}, 4])

    def test_a_whole_last_line_without_a_newline_counts(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"1\n2")

        assert read_all(path) == ([1, 2], [])

    def test_reading_goes_on_where_the_last_reading_stopped(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        append_lines(path, [b"1", b"2"])
        start, _ = append_lines(path, [b"3"])

        lines = list(read_lines(path, msgspec.json.decode, start=start, first_number=3, on_bad=refuse))

        assert [(line.number, line.offset, line.value) for line in lines] == [(3, 4, 3)]

    def test_json_nested_without_end_is_a_bad_line_too(self, tmp_path: Path) -> None:
        path = tmp_path / "log.jsonl"
        path.write_bytes(b"[" * 100_000 + b"\n2\n")

        values, bad = read_all(path)

        assert values == [2]
        assert [line.number for line in bad] == [1]

    def test_a_folder_in_the_place_of_the_file_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StorageFailed, match="cannot read"):
            read_all(tmp_path)

    @given(garbage=st.binary(max_size=200))
    def test_no_bytes_at_all_make_the_reader_fail_or_lose_a_line_behind_them(self, garbage: bytes) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.jsonl")
            path.write_bytes(b'"before"\n' + garbage)
            append_lines(path, [b'"behind"'])

            values, bad = read_all(path)

        assert values[0] == "before"
        assert values[-1] == "behind"
        assert len(values) + len(bad) == 2 + sum(bool(line.strip()) for line in garbage.split(b"\n"))

    @given(values=st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=9), st.dictionaries(st.text(), st.none()))))
    def test_what_was_appended_is_read_at_the_offset_that_append_told(self, values: list[Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "log.jsonl")
            starts = [append_lines(path, [msgspec.json.encode(value)], durable=False)[0] for value in values]

            lines = list(read_lines(path, msgspec.json.decode, on_bad=refuse))

        assert [(line.offset, line.value) for line in lines] == list(zip(starts, values, strict=True))


class TestReadDocument:
    def test_a_missing_document_is_none(self, tmp_path: Path) -> None:
        assert read_document(tmp_path / "missing.json", msgspec.json.decode, repair="-") is None

    def test_a_whole_document_is_decoded(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(b'{"a": 1}')

        assert read_document(path, msgspec.json.decode, repair="-") == {"a": 1}

    @pytest.mark.parametrize("content", [b"", b"{", b'"\xff"', b"[" * 100_000])
    def test_a_document_that_makes_no_sense_is_corrupt_and_never_empty(self, tmp_path: Path, content: bytes) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(content)

        with pytest.raises(CorruptFile, match="cannot be understood") as caught:
            read_document(path, msgspec.json.decode, repair="queen repair")

        assert caught.value.hint == "queen repair"
        assert path.read_bytes() == content

    def test_a_folder_in_the_place_of_the_document_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(StorageFailed, match="Is a directory"):
            read_document(tmp_path, msgspec.json.decode, repair="-")


class TestIsStillAt:
    def test_a_replaced_file_is_no_longer_there(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(b"old")
        with path.open("rb") as stream:
            before = is_still_at(stream.fileno(), path)
            replace_file(path, b"new")

            after = is_still_at(stream.fileno(), path)

        assert (before, after) == (True, False)

    def test_a_deleted_file_is_no_longer_there(self, tmp_path: Path) -> None:
        path = tmp_path / "state.json"
        path.write_bytes(b"old")
        with path.open("rb") as stream:
            path.unlink()

            assert not is_still_at(stream.fileno(), path)

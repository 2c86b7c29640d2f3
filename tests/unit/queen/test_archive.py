from __future__ import annotations

from datetime import UTC, datetime, timedelta
import threading
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queueyard.kernel.atomic import append_lines
from queueyard.kernel.testing import Died, FakeClock
from queueyard.queen import archive as archive_module
from queueyard.queen import messages
from queueyard.queen.archive import Archived, archive, rewrite
from queueyard.queen.store import ARCHIVE, ASSIGNMENTS, MESSAGES, RESERVATIONS, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

BEFORE = datetime(2025, 6, 1, tzinfo=UTC)
OLD, NEW = "2025-01-01T00:00:00Z", "2025-12-01T00:00:00Z"


class EventfulClock(FakeClock):
    """Something happens while somebody sleeps."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        super().__init__()
        self._meanwhile = meanwhile

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._meanwhile()


def die() -> None:
    raise Died


def ids_in(path: Path) -> list[str]:
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return [msgspec.json.decode(line)["id"] for line in lines if line.startswith(b'{"id"')]


def old_message(identifier: str, **fields: Any) -> dict[str, Any]:
    return {"id": identifier, "from": "ui", "to": "api", "body": "text", "created_at": OLD, **fields}


# --- what is settled -------------------------------------------------------------------------------------------------


def test_only_settled_old_records_go_with_all_their_lines(
    store: Store, clock: FakeClock, home: Home, write: Writer
) -> None:
    write(
        MESSAGES,
        old_message("qm-read"),
        old_message("qm-unread"),
        old_message("qm-read-lately", read=True, read_at=NEW),
        old_message("qm-deleted", deleted=True),
        old_message("qm-new", read=True, created_at=NEW),
        old_message("qm-no-time", read=True, created_at="once"),
        {"id": "qm-read", "read": True, "read_at": OLD},
    )
    write(
        ASSIGNMENTS,
        {"id": "qa-active", "updated_at": OLD, "status": "active"},
        {"id": "qa-done", "updated_at": OLD, "status": "active"},
        {"id": "qa-done", "updated_at": OLD, "status": "completed"},
        {"id": "qa-done-lately", "updated_at": NEW, "status": "completed"},
    )
    write(
        RESERVATIONS,
        {"id": "qr-holds", "expires_at": "2027-01-01T00:00:00Z"},
        {"id": "qr-released", "expires_at": "2027-01-01T00:00:00Z", "status": "released", "released_at": OLD},
        {"id": "qr-expired", "expires_at": OLD},
        {"id": "qr-expired-lately", "expires_at": NEW},
        {"id": "qr-for-ever", "expires_at": "never"},
    )

    told = archive(store, clock, before=BEFORE)

    folder = home.beads / ARCHIVE
    assert told == [
        Archived(file=MESSAGES, records=2, lines=3, archive=str(folder / "queen_messages-2026-01-01.jsonl")),
        Archived(file=ASSIGNMENTS, records=1, lines=2, archive=str(folder / "queen_assignments-2026-01-01.jsonl")),
        Archived(file=RESERVATIONS, records=2, lines=2, archive=str(folder / "queen_reservations-2026-01-01.jsonl")),
    ]
    assert ids_in(folder / "queen_messages-2026-01-01.jsonl") == ["qm-read", "qm-deleted", "qm-read"]
    assert ids_in(home.beads / MESSAGES) == ["qm-unread", "qm-read-lately", "qm-new", "qm-no-time"]
    assert ids_in(home.beads / ASSIGNMENTS) == ["qa-active", "qa-done-lately"]
    assert ids_in(home.beads / RESERVATIONS) == ["qr-holds", "qr-expired-lately", "qr-for-ever"]


def test_what_is_no_record_stays_where_it_is(store: Store, clock: FakeClock, home: Home, write: Writer) -> None:
    odd = [b'{"_migration":"v2"}\n', b"no json\n", b'{"id":"qm-torn']
    write(MESSAGES, odd[0], old_message("qm-1", read=True), *odd[1:])

    archive(store, clock, before=BEFORE)

    assert (home.beads / MESSAGES).read_bytes() == b"".join(odd) + b"\n"


def test_a_dry_run_tells_the_same_and_changes_nothing(
    store: Store, clock: FakeClock, home: Home, write: Writer
) -> None:
    write(MESSAGES, old_message("qm-1", read=True), {"id": "qm-1", "subject": "x"})
    before = {path: path.read_bytes() for path in home.beads.rglob("*") if path.is_file()}

    told = archive(store, clock, before=BEFORE, dry_run=True)
    after = {path: path.read_bytes() for path in home.beads.rglob("*") if path.is_file()}

    assert after == before
    assert archive(store, clock, before=BEFORE) == told


def test_where_nothing_is_settled_no_file_is_touched(store: Store, clock: FakeClock, home: Home, write: Writer) -> None:
    path = write(MESSAGES, old_message("qm-1"))
    before = path.stat()

    told = archive(store, clock, before=BEFORE)

    assert [(one.records, one.archive) for one in told] == [(0, None)] * 3
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert not (home.beads / ARCHIVE).exists()


def test_two_runs_of_one_day_share_an_archive(store: Store, clock: FakeClock, home: Home, write: Writer) -> None:
    for identifier in ("qm-1", "qm-2"):
        write(MESSAGES, old_message(identifier, read=True))
        archive(store, clock, before=BEFORE)

    assert [path.name for path in (home.beads / ARCHIVE).iterdir()] == ["queen_messages-2026-01-01.jsonl"]
    assert ids_in(home.beads / ARCHIVE / "queen_messages-2026-01-01.jsonl") == ["qm-1", "qm-2"]


# --- readers still know it -------------------------------------------------------------------------------------------


def test_an_archived_message_is_found_read_and_searched_as_before(
    store: Store, clock: FakeClock, write: Writer
) -> None:
    write(
        MESSAGES,
        old_message("qm-1", read=True, subject="Button"),
        old_message("qm-2", thread_id="qm-1", reply_to="qm-1", created_at=NEW),
    )
    before = messages.find(store, "qm-1", near="api")

    archive(store, clock, before=BEFORE)

    assert messages.find(store, "qm-1", near="api") == before
    assert [one.id for one in messages.thread(store, "qm-2")] == ["qm-1", "qm-2"]
    assert [one.id for one in messages.search(store, "button")] == ["qm-1"]
    assert [one.id for one in messages.inbox(store, agent="api")] == ["qm-2"]
    assert messages.reply(store, clock, sender="api", identifier="qm-1", body="late").thread_id == "qm-1"


def test_an_archived_message_can_still_be_deleted(store: Store, clock: FakeClock, write: Writer) -> None:
    write(MESSAGES, old_message("qm-1", read=True))
    archive(store, clock, before=BEFORE)

    messages.delete(store, clock, identifiers=["qm-1"], agent="api")

    assert messages.search(store, "text") == []


# --- others write meanwhile ------------------------------------------------------------------------------------------


def test_what_a_tool_that_does_not_lock_writes_into_the_old_file_is_carried_over(
    home: Home, store: Store, write: Writer
) -> None:
    path = write(MESSAGES, old_message("qm-1", read=True), old_message("qm-2"))
    late = [b'{"id":"qm-3","to":"api"}\n', b'{"id":"qm-4","to":"api"}\n']

    with path.open("ab", buffering=0) as foreign:
        told = archive(store, EventfulClock(lambda: foreign.write(late.pop(0)) if late else None), before=BEFORE)

    assert told[0].lines == 1
    assert ids_in(path) == ["qm-2", "qm-3"]
    assert late == [b'{"id":"qm-4","to":"api"}\n']
    assert path.read_bytes().endswith(b"\n")


def test_a_late_line_without_newline_is_carried_over_whole(home: Home, store: Store, write: Writer) -> None:
    path = write(MESSAGES, old_message("qm-1", read=True), old_message("qm-2"))

    with path.open("ab", buffering=0) as foreign:
        archive(store, EventfulClock(lambda: foreign.write(b'\n{"id":"qm-3"}\n{"id":"qm-4"}')), before=BEFORE)

    assert ids_in(path) == ["qm-2", "qm-3", "qm-4"]
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    "pieces",
    [
        [b'{"id":"qm-3"', b',"to":"api"}\n{"id":"qm-4"}\n'],
        [b'{"id":"qm-3"', b',"to":"api"}\n{"id":"qm-', b'4"}\n'],
        [b'{"id":"qm-3"', b',"to":', b'"api"}\n{"id":"qm-4"}\n'],
    ],
    ids=["one", "two in a row", "slowly"],
)
def test_a_line_that_is_being_written_is_not_cut_in_two(store: Store, write: Writer, pieces: list[bytes]) -> None:
    path = write(MESSAGES, old_message("qm-1", read=True), old_message("qm-2"))

    with path.open("ab", buffering=0) as foreign:
        foreign.write(pieces.pop(0))
        archive(store, EventfulClock(lambda: foreign.write(pieces.pop(0)) if pieces else None), before=BEFORE)

    assert path.read_bytes().split(b"\n")[1:] == [b'{"id":"qm-3","to":"api"}', b'{"id":"qm-4"}', b""]
    assert ids_in(path)[0] == "qm-2"


def test_a_line_that_was_left_torn_stays_a_line(store: Store, write: Writer) -> None:
    path = write(MESSAGES, old_message("qm-1", read=True), old_message("qm-2"))
    path.write_bytes(path.read_bytes() + b'{"id":"qm-3"')

    archive(store, FakeClock(), before=BEFORE)

    assert path.read_bytes().split(b"\n")[1:] == [b'{"id":"qm-3"', b""]


def test_who_sends_as_we_do_finds_the_new_file(home: Home, store: Store, write: Writer) -> None:
    write(MESSAGES, old_message("qm-1", read=True))
    other = Store(home)
    clock = EventfulClock(lambda: other.append(MESSAGES, [{"id": "qm-2", "to": "api"}], what="message"))

    archive(store, clock, before=BEFORE)

    assert ids_in(home.beads / MESSAGES) == ["qm-2"]
    other.close()


def test_nothing_is_acknowledged_into_a_file_that_is_about_to_go(home: Home, write: Writer) -> None:
    """A writer comes after the file was read and before it is replaced, and then the archiver dies."""
    path = write(MESSAGES, old_message("qm-1", read=True))
    sender = threading.Thread(target=append_lines, args=(path, [b'{"id":"qm-2"}']))

    def unwanted(lines: Sequence[bytes]) -> Sequence[bytes]:
        sender.start()
        # Time enough for a writer that does not wait to do the wrong thing.
        sender.join(0.2)
        return lines

    with pytest.raises(Died):
        rewrite(path, home.beads / ARCHIVE / "a.jsonl", unwanted, EventfulClock(die))
    sender.join()

    assert ids_in(path) == ["qm-2"]
    assert ids_in(home.beads / ARCHIVE / "a.jsonl") == ["qm-1"]


def test_a_line_that_comes_just_before_the_file_goes_is_in_one_of_the_two(
    store: Store, clock: FakeClock, home: Home, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It concerns a record that was judged by the lines before it."""
    path = write(MESSAGES, old_message("qm-1", read=True))
    real = archive_module.rewrite

    def late(*arguments: Any) -> int:
        write(MESSAGES, {"id": "qm-1", "read": False})
        return real(*arguments)

    monkeypatch.setattr(archive_module, "rewrite", late)

    archive(store, clock, before=BEFORE)

    assert ids_in(path) == ["qm-1", "qm-1"]
    assert len(messages.inbox(store, agent="api", unread=True)) == 1


# --- somebody dies ---------------------------------------------------------------------------------------------------


def test_an_archiver_that_dies_before_the_file_is_replaced_leaves_everything_readable_once(
    store: Store, clock: FakeClock, home: Home, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(MESSAGES, old_message("qm-1", read=True), old_message("qm-2"))
    with monkeypatch.context() as patch:
        patch.setattr(archive_module, "replace_file", lambda *_: die())
        with pytest.raises(Died):
            archive(store, clock, before=BEFORE)
    between = [one.id for one in messages.search(store, "text")]

    archive(store, clock, before=BEFORE)

    assert between == ["qm-2", "qm-1"]
    assert [one.id for one in messages.search(store, "text")] == ["qm-2", "qm-1"]
    assert ids_in(home.beads / MESSAGES) == ["qm-2"]
    assert messages.find(store, "qm-1", near=None).read


def test_the_mode_of_the_file_is_kept(store: Store, clock: FakeClock, write: Writer) -> None:
    path = write(MESSAGES, old_message("qm-1", read=True))
    path.chmod(0o664)

    archive(store, clock, before=BEFORE + timedelta(days=1))

    assert path.stat().st_mode & 0o777 == 0o664

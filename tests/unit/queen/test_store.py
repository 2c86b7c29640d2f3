from __future__ import annotations

import os
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
import msgspec
import pytest

from queueyard.kernel.atomic import append_lines
from queueyard.kernel.errors import CorruptFile, LockTimeout, StorageFailed
from queueyard.kernel.locks import FileLock
from queueyard.kernel.testing import Died, FakeClock, FaultyFiles, Loss
from queueyard.queen.errors import InvalidValue, LineTooLong
from queueyard.queen.records import LONGEST_LINE_BYTES, Message, Reservation, view
from queueyard.queen.store import ARCHIVE, ASSIGNMENTS, MESSAGES, RESERVATIONS, Ledger, Store

if TYPE_CHECKING:
    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer

IDS = ("qr-1", "qr-2", "qr-3")

# --- a ledger keeps up with its file ---------------------------------------------------------------------------------

lines = st.builds(
    lambda identifier, fields: msgspec.json.encode({"id": identifier, **fields}),
    st.sampled_from(IDS),
    st.fixed_dictionaries(
        {},
        optional={
            "pattern": st.sampled_from(["src/**", "a", None]),
            "agent": st.sampled_from(["ui", "api"]),
            "status": st.sampled_from(["active", "released", "lost"]),
            "exclusive": st.sampled_from([True, False, None, "yes"]),
            "deleted": st.sampled_from([True, False, None]),
            "strange": st.integers(0, 3),
        },
    ),
) | st.sampled_from([b"", b"  ", b"no json", b"[]", b'{"id":""}', b'{"_migration":"v2"}', b'{"id":"qr-1","pattern":'])


class FileComesAndGoes(RuleBasedStateMachine):
    """One ledger reads along; after every step it must know what one that reads from the start knows."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / RESERVATIONS
        self.ledger = Ledger(self.path, Reservation)
        self.mirror: dict[str, Reservation] = {}

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(new=st.lists(lines, min_size=1, max_size=3))
    def we_append(self, new: list[bytes]) -> None:
        append_lines(self.path, new, durable=False)

    @rule(new=lines, ended=st.booleans())
    def somebody_appends_without_looking_whether_the_last_line_is_whole(self, new: bytes, ended: bool) -> None:
        with self.path.open("ab") as stream:
            stream.write(new + b"\n" * ended)

    @precondition(lambda self: self.path.exists())
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        os.truncate(self.path, int(self.path.stat().st_size * part))

    @precondition(lambda self: self.path.exists())
    @rule(part=st.floats(0, 1), identifier=st.sampled_from(IDS))
    def truncate_and_write_more_than_there_was(self, part: float, identifier: str) -> None:
        size = self.path.stat().st_size
        os.truncate(self.path, int(size * part))
        append_lines(self.path, [msgspec.json.encode({"id": identifier, "pattern": "x" * size})], durable=False)

    @rule(new=st.lists(lines, max_size=5))
    def replace(self, new: list[bytes]) -> None:
        other = self.path.with_name("other")
        other.write_bytes(b"".join(line + b"\n" for line in new))
        other.rename(self.path)

    @rule()
    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    @invariant()
    def reading_along_is_reading_from_the_start(self) -> None:
        changed = self.ledger.refresh()
        fresh = Ledger(self.path, Reservation)

        assert fresh.refresh() is None
        assert self.ledger.all() == fresh.all()
        assert [self.ledger.raw(one.id) for one in fresh.all()] == [fresh.raw(one.id) for one in fresh.all()]
        assert self.ledger.bad == fresh.bad
        assert self.ledger.torn == fresh.torn
        assert self.ledger.refresh() == []
        self._follow(changed)
        assert self.mirror == {one.id: one for one in fresh.all()}

    def _follow(self, changed: list[str] | None) -> None:
        """Somebody who only hears what changed must end up with the same."""
        if changed is None:
            self.mirror = {one.id: one for one in self.ledger.all()}
        for identifier in changed or ():
            record = self.ledger.get(identifier)
            self.mirror.pop(identifier, None)
            if record is not None:
                self.mirror[identifier] = record


def test_a_ledger_that_reads_along_knows_what_one_that_reads_from_the_start_knows() -> None:
    run_state_machine_as_test(
        FileComesAndGoes, settings=settings(max_examples=100, stateful_step_count=25, deadline=None)
    )


def test_a_reading_that_failed_halfway_is_done_again_from_the_start(
    home: Home, write: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(home.beads / RESERVATIONS, Reservation)
    write(RESERVATIONS, {"id": "qr-1", "pattern": "a"})
    ledger.refresh()
    write(RESERVATIONS, {"id": "qr-2", "pattern": "b"}, {"id": "qr-3", "pattern": "c"})
    taken: list[str] = []

    def fail_at_the_second(raw: dict[str, Any]) -> str:
        if taken:
            raise StorageFailed("the disk is gone")
        taken.append(raw["id"])
        return "qr-2"

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_take", fail_at_the_second)
        with pytest.raises(StorageFailed):
            ledger.refresh()

    assert ledger.refresh() is None
    assert [one.id for one in ledger.all()] == ["qr-1", "qr-2", "qr-3"]


def test_a_deleted_record_is_not_listed_but_can_come_back(home: Home, write: Writer) -> None:
    ledger = Ledger(home.beads / RESERVATIONS, Reservation)
    write(RESERVATIONS, {"id": "qr-1", "pattern": "a"}, {"id": "qr-1", "deleted": True})
    ledger.refresh()
    gone = ledger.all()

    write(RESERVATIONS, {"id": "qr-1", "deleted": False})
    changed = ledger.refresh()

    assert (gone, changed) == ([], ["qr-1"])
    assert [one.pattern for one in ledger.all()] == ["a"]


def test_a_record_for_a_rewrite_has_every_key_and_is_a_copy(home: Home, write: Writer) -> None:
    ledger = Ledger(home.beads / RESERVATIONS, Reservation)
    write(RESERVATIONS, {"id": "qr-1", "pattern": "a", "their": {"own": 1}})
    ledger.refresh()

    ledger.raw("qr-1")["pattern"] = "changed"

    assert ledger.raw("qr-1") == {"id": "qr-1", "pattern": "a", "their": {"own": 1}}
    with pytest.raises(KeyError):
        ledger.raw("qr-2")


# --- append ----------------------------------------------------------------------------------------------------------


def test_a_record_that_is_too_long_is_refused_and_nothing_is_written(store: Store, home: Home) -> None:
    short, long = {"id": "qm-1", "body": "x"}, {"id": "qm-2", "body": "x" * LONGEST_LINE_BYTES}

    with pytest.raises(LineTooLong, match="message"):
        store.append(MESSAGES, [short, long], what="message")

    assert not (home.beads / MESSAGES).exists()


def test_the_longest_line_that_is_allowed_is_written_whole(store: Store, home: Home) -> None:
    empty = len(b'{"id":"qm-1","body":""}')

    store.append(MESSAGES, [{"id": "qm-1", "body": "x" * (LONGEST_LINE_BYTES - empty)}], what="message")

    assert (home.beads / MESSAGES).stat().st_size == LONGEST_LINE_BYTES + 1
    assert store.messages(lambda index: index.get("qm-1")) is not None


def test_an_update_that_fits_no_line_goes_without_the_body_that_is_there_already(store: Store, write: Writer) -> None:
    body = "x" * (LONGEST_LINE_BYTES - 40)
    write(MESSAGES, {"id": "qm-1", "body": body})

    store.append(MESSAGES, [{"id": "qm-1", "body": body, "read": True, "read_at": "2026"}], what="", is_update=True)

    found = store.messages(lambda index: index.get("qm-1"))
    assert found == {"id": "qm-1", "body": body, "read": True, "read_at": "2026"}


def test_what_is_no_text_is_refused(store: Store, home: Home) -> None:
    with pytest.raises(InvalidValue, match="no text"):
        store.append(MESSAGES, [{"id": "qm-1", "body": "\udcff"}], what="message")

    assert not (home.beads / MESSAGES).exists()


# --- records that belong together ------------------------------------------------------------------------------------

TOGETHER = [{"id": f"qr-{number}", "pattern": "src/**"} for number in range(3)]
NOTE = "unfinished.json"


def ids_in(store: Store) -> list[str]:
    store.reservations.refresh()
    return [one.id for one in store.reservations.all()]


def test_nothing_is_left_of_the_note_when_all_is_written(store: Store, home: Home) -> None:
    with store.locked():
        store.append_together(RESERVATIONS, TOGETHER, what="reservation")

    assert ids_in(store) == ["qr-0", "qr-1", "qr-2"]
    assert not (home.private / NOTE).exists()


@pytest.mark.parametrize("there", [0, 1, 2, 3])
def test_whoever_locks_next_adds_what_is_missing(store: Store, home: Home, write: Writer, there: int) -> None:
    """`there` records were written before the writer died, and the next one only half."""
    died = Store(home, files=FaultyFiles(home.beads))
    lines = [msgspec.json.encode(record) for record in TOGETHER]
    with died.locked():
        pass
    (home.private / NOTE).write_bytes(
        msgspec.json.encode({"file": RESERVATIONS, "lines": [line.decode() for line in lines]})
    )
    write(RESERVATIONS, *TOGETHER[:there], *(line[:9] for line in lines[there : there + 1]))

    with store.locked():
        seen = ids_in(store)

    assert seen == ["qr-0", "qr-1", "qr-2"]
    assert not (home.private / NOTE).exists()
    assert len(store.reservations.bad) == (there < 3)


def test_what_was_left_half_written_is_also_completed_without_another_write(store: Store, home: Home) -> None:
    die_at = steps_until(home, "write", RESERVATIONS)
    files = FaultyFiles(home.beads, die_at=die_at, after=True)
    died = Store(home, files=files)
    with pytest.raises(Died), died.locked():
        died.append_together(RESERVATIONS, TOGETHER, what="reservation")
    files.power_cut(bytes_lost=Loss.HALF, names_lost=False)
    before = ids_in(store)

    store.finish_interrupted()

    assert before != ["qr-0", "qr-1", "qr-2"]
    assert ids_in(store) == ["qr-0", "qr-1", "qr-2"]


def steps_until(home: Home, call: str, name: str) -> int:
    """The number of the step at which this call reaches this file."""
    files = FaultyFiles(home.beads)
    trial = Store(home, files=files)
    with trial.locked():
        trial.append_together(RESERVATIONS, TOGETHER, what="reservation")
    (home.beads / RESERVATIONS).unlink()
    return next(step.number for step in files.steps if step.call == call and step.path.endswith(name))


def test_what_the_disk_refuses_is_not_added_later(store: Store, home: Home) -> None:
    (home.beads / RESERVATIONS).mkdir()

    with pytest.raises(StorageFailed), store.locked():
        store.append_together(RESERVATIONS, TOGETHER, what="reservation")
    (home.beads / RESERVATIONS).rmdir()

    with store.locked():
        assert ids_in(store) == []


def test_a_note_that_makes_no_sense_is_told_with_its_repair(store: Store, home: Home) -> None:
    with store.locked():
        pass
    (home.private / NOTE).write_bytes(b'{"file":"../elsewhere","lines":[]}')

    with pytest.raises(CorruptFile, match=NOTE) as fault, store.locked():
        pass
    assert "rm " in (fault.value.hint or "")


# --- lock ------------------------------------------------------------------------------------------------------------


def test_who_does_not_get_the_lock_in_time_is_told(home: Home, clock: FakeClock) -> None:
    patient = Store(home, clock=clock, lock_timeout_s=3.0)
    with patient.locked():
        pass

    with FileLock(home.private / "lock"), pytest.raises(LockTimeout), patient.locked():
        pass

    assert clock.monotonic() >= 3.0


def test_the_private_folder_keeps_itself_out_of_git(store: Store, home: Home) -> None:
    with store.locked():
        pass

    assert (home.private / ".gitignore").read_text() == "*\n"


# --- other files -----------------------------------------------------------------------------------------------------


def test_droids_are_the_markdown_files_that_are_not_hidden(store: Store, home: Home) -> None:
    assert store.droids() is None
    folder = home.root / ".factory" / "droids"
    folder.mkdir(parents=True)
    for name in ("ui.md", "api.md", ".hidden.md", "notes.txt", "v1.2.md"):
        (folder / name).touch()

    assert store.droids() == {"ui", "api", "v1.2"}


def test_a_droid_that_comes_right_after_a_look_is_known_to_the_next(store: Store, home: Home) -> None:
    """The time of the folder does not move, because its clock ticks too slowly."""
    home.droids.mkdir(parents=True)
    (home.droids / "ui.md").touch()
    moment_ns = home.droids.stat().st_mtime_ns
    before = store.droids()

    (home.droids / "api.md").touch()
    os.utime(home.droids, ns=(moment_ns, moment_ns))

    assert before == {"ui"}
    assert store.droids() == {"ui", "api"}


def test_of_an_issue_the_last_line_counts_and_what_is_no_issue_is_left_out(store: Store, write: Writer) -> None:
    write(
        "issues.jsonl",
        {"id": "qb-1", "title": "old", "status": "open", "unknown": 1},
        {"id": "qb-1", "title": "new", "status": "closed", "_type": "issue"},
        {"id": "mem-1", "_type": "memory"},
        b"no json\n",
        {"id": "qb-2", "dependencies": [{"issue_id": "qb-2", "depends_on_id": "qb-1", "type": "blocks"}]},
    )

    issues = store.issues()

    assert issues is not None
    assert {key: (issue.title, issue.status) for key, issue in issues.items()} == {
        "qb-1": ("new", "closed"),
        "qb-2": ("", "open"),
    }
    assert [edge.depends_on_id for edge in issues["qb-2"].dependencies or ()] == ["qb-1"]


def test_issues_may_stand_in_either_file_or_in_none(store: Store, write: Writer) -> None:
    assert store.issues() is None

    write("beads.jsonl", {"id": "qb-1"})
    fallback = store.issues()
    write("issues.jsonl", {"id": "qb-2"})

    assert fallback is not None
    assert list(fallback) == ["qb-1"]
    assert list(store.issues() or {}) == ["qb-2"]


def test_archived_lines_come_oldest_archive_first(store: Store, home: Home, write: Writer) -> None:
    (home.beads / ARCHIVE).mkdir()
    write(f"{ARCHIVE}/queen_messages-2026-02-01.jsonl", {"id": "qm-1", "read": True}, b"torn", b"\n")
    write(f"{ARCHIVE}/queen_messages-2026-01-01.jsonl", {"id": "qm-1", "to": "ui"}, {"_migration": "v2"})
    write(f"{ARCHIVE}/queen_assignments-2026-01-01.jsonl", {"id": "qa-1"})

    assert list(store.archived(MESSAGES)) == [{"id": "qm-1", "to": "ui"}, {"id": "qm-1", "read": True}]
    assert list(store.archived(ASSIGNMENTS)) == [{"id": "qa-1"}]
    assert store.archived_message("qm-1") == {"id": "qm-1", "to": "ui", "read": True}
    assert store.archived_message("qm-2") is None


def test_what_was_written_about_an_archived_message_since_is_folded_in(store: Store, home: Home, write: Writer) -> None:
    (home.beads / ARCHIVE).mkdir()
    write(f"{ARCHIVE}/queen_messages-2026-01-01.jsonl", {"id": "qm-1", "to": "ui", "created_at": "2026"})

    write(MESSAGES, {"id": "qm-1", "deleted": True, "created_at": "2027"})

    assert store.archived_message("qm-1") == {"id": "qm-1", "to": "ui", "created_at": "2026", "deleted": True}


def test_every_message_is_folded_without_the_lines_that_do_not_fit(store: Store, write: Writer) -> None:
    write(
        MESSAGES,
        {"id": "qm-1", "to": "ui", "subject": "s"},
        {"id": "qm-1", "read": "yes"},
        {"id": "qm-1", "subject": 7},
        b"no json\n",
        {"_migration": "v2"},
        {"id": "qm-2", "deleted": True},
    )
    bad: list[int] = []

    everything = store.every_message(lambda line: bad.append(line.number))

    assert everything == {"qm-1": {"id": "qm-1", "to": "ui", "subject": "s"}, "qm-2": {"id": "qm-2", "deleted": True}}
    assert bad == [2, 3, 4]
    assert view(everything["qm-1"], Message).subject == "s"
    assert store.messages(lambda index: index.get("qm-1")) == everything["qm-1"]


def test_bad_lines_of_all_three_files_are_told_with_their_numbers(store: Store, write: Writer) -> None:
    write(MESSAGES, b"\n", b"no json\n", b'{"id":"qm-')
    write(ASSIGNMENTS, {"id": "qa-1"}, {"id": "qa-1", "status": "lost"})
    write(RESERVATIONS, b'{"id":')
    store.messages(lambda index: index.agents())
    store.assignments.refresh()
    store.reservations.refresh()

    told = [(line.path.name, line.number) for line in store.bad_lines()]

    assert told == [(MESSAGES, 2), (MESSAGES, 3), (ASSIGNMENTS, 2), (RESERVATIONS, 1)]

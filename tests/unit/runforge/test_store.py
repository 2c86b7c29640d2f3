"""The files of the queue: what is accepted stays, what others write is merged, what is broken is refused."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from queueyard.kernel.atomic import append_lines
from queueyard.kernel.errors import CorruptFile
from queueyard.runforge import store as store_module
from queueyard.runforge.records import Added, Ended, Job, JobState, Started, decode_queue, encode_rows
from queueyard.runforge.store import WAKE, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.kernel.testing import FakeClock
    from queueyard.runforge.workspace import Workspace

AT = "2026-02-01T12:00:00.000000"


def add(store: Store, *names: str, group: str | None = None) -> None:
    with store.writing():
        store.commit(Added(jobs=[Job(job_id=name, run_id=f"run-{name}", group_id=group) for name in names]))


def published(workspace: Workspace) -> dict[str, Any]:
    raw: dict[str, Any] = json.loads(workspace.queue_file.read_bytes())
    return raw


def states(workspace: Workspace) -> dict[str, str]:
    return {job["job_id"]: job["state"] for job in published(workspace)["jobs"]}


def foreign_write(workspace: Workspace, raw: dict[str, Any]) -> None:
    """As the public tool does it: a new file put in the place of the old one, without any lock."""
    other = workspace.queue_file.with_name("theirs.tmp")
    other.write_text(json.dumps(raw, indent=2))
    workspace.queue_file.unlink(missing_ok=True)
    other.rename(workspace.queue_file)


class TestWriting:
    def test_queue_json_tells_what_was_committed_when_the_command_returns(
        self, store: Store, workspace: Workspace
    ) -> None:
        add(store, "a", "b")

        assert states(workspace) == {"a": "queued", "b": "queued"}
        assert list(published(workspace)) == [
            "version",
            "kind",
            "max_parallel",
            "gpu_slots",
            "jobs",
            "last_served_group",
        ]

    def test_another_process_sees_it(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")

        assert list(Store(workspace).look().jobs) == ["a"]

    def test_a_store_that_is_used_for_long_sees_what_others_write(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        add(Store(workspace), "b")

        store.refresh()

        assert list(store.state.jobs) == ["a", "b"]

    def test_who_was_first_in_the_journal_was_first(self, store: Store, workspace: Workspace) -> None:
        """A command cancels a job that the daemon is about to start; the daemon sees it by its own append."""
        add(store, "a")
        daemon = Store(workspace)
        daemon.refresh()
        canceled = Ended(job_id="a", was=JobState.QUEUED, attempt=1, state=JobState.CANCELED, at=AT)

        store.commit(canceled)
        changes = daemon.commit(Started(job_id="a", attempt=1, at=AT))

        assert changes == []
        assert daemon.state.jobs["a"].state is JobState.CANCELED

    def test_a_torn_line_is_closed_and_costs_only_itself(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        journal = next(workspace.queue_folder.glob("*journal*"))
        with journal.open("ab") as stream:
            stream.write(b'{"op":"add","jobs":[{"job_id":"half')

        add(Store(workspace), "b")

        fresh = Store(workspace)
        assert list(fresh.look().jobs) == ["a", "b"]
        assert len(fresh.bad) == 1

    def test_what_a_killed_command_committed_is_published_by_the_next(self, store: Store, workspace: Workspace) -> None:
        with store.locked():
            store.commit(Added(jobs=[Job(job_id="a", run_id="a")]))
        assert not workspace.queue_file.exists()

        with Store(workspace).writing():
            pass

        assert states(workspace) == {"a": "queued"}

    def test_events_tell_every_change_once(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        store.commit(Started(job_id="a", attempt=1, at=AT), Started(job_id="a", attempt=1, at=AT))

        kinds = [json.loads(line)["kind"] for line in workspace.events.read_bytes().splitlines()]

        assert kinds == ["queued", "started"]


class TestCheckpoints:
    @pytest.fixture(autouse=True)
    def _short_journals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store_module, "COMPACT_FROM_BYTES", 200)

    def test_a_long_journal_is_folded_and_nothing_is_lost(self, store: Store, workspace: Workspace) -> None:
        for number in range(5):
            add(store, f"{number}", group="g")

        [journal] = workspace.queue_folder.glob("*journal*")
        assert journal.name != "queueyard-journal-000001.jsonl"
        fresh = Store(workspace).look()
        assert list(fresh.jobs) == list("01234")
        assert list(fresh.unsaved) == ["g"]

    def test_a_reader_that_looks_away_meanwhile_still_sees_everything(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        reader = Store(workspace)
        reader.refresh()

        for number in range(5):
            add(store, f"{number}")
        reader.refresh()

        assert list(reader.state.jobs) == ["a", *"01234"]

    def test_a_queue_that_only_grows_by_one_job_at_a_time_is_not_rewritten_each_time(
        self, store: Store, workspace: Workspace
    ) -> None:
        add(store, *[f"{number}" for number in range(100)])
        sidecar = workspace.sidecar.stat().st_ino

        add(store, "one more")

        assert workspace.sidecar.stat().st_ino == sidecar

    def test_with_a_daemon_a_command_leaves_the_journal_alone(
        self, store: Store, workspace: Workspace, listening: int
    ) -> None:
        with store.locked():
            store.commit(Added(jobs=[Job(job_id=f"{number}", run_id=f"{number}") for number in range(20)]))
            assert store.is_long
            assert store.wake(WAKE)

        assert not workspace.sidecar.exists()
        assert os.read(listening, 10) == WAKE


@pytest.fixture
def listening(workspace: Workspace) -> Iterator[int]:
    """Somebody reads the pipe, as a daemon does."""
    workspace.make_queue_folder()
    os.mkfifo(workspace.wake)
    descriptor = os.open(workspace.wake, os.O_RDWR | os.O_NONBLOCK)
    yield descriptor
    os.close(descriptor)


class TestWaking:
    def test_without_a_daemon_nobody_is_woken(self, store: Store, workspace: Workspace) -> None:
        workspace.make_queue_folder()
        assert not store.wake(WAKE)

        os.mkfifo(workspace.wake)
        assert not store.wake(WAKE)

    def test_a_daemon_that_does_not_publish_in_time_is_not_waited_for(
        self, store: Store, workspace: Workspace, listening: int, clock: FakeClock
    ) -> None:
        add(store, "a")

        assert states(workspace) == {"a": "queued"}
        assert clock.monotonic() > 1
        assert os.read(listening, 10) == b"s"


class TestForeignEdits:
    def test_a_queue_of_another_tool_is_taken_over(self, store: Store, workspace: Workspace) -> None:
        workspace.make_queue_folder()
        foreign_write(
            workspace,
            {
                "version": 1,
                "kind": "execution_queue",
                "max_parallel": 7,
                "jobs": [{"job_id": "j", "run_id": "r", "state": "queued"}],
                "last_served_group": "g",
            },
        )

        add(store, "mine")

        assert states(workspace) == {"j": "queued", "mine": "queued"}
        assert (published(workspace)["max_parallel"], published(workspace)["last_served_group"]) == (7, "g")

    def test_a_write_that_is_based_on_an_old_copy_loses_nothing(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        old = published(workspace)
        add(store, "b")
        store.commit(Started(job_id="a", attempt=1, at=AT))

        foreign_write(workspace, old | {"jobs": [*old["jobs"], {"job_id": "c", "run_id": "c", "state": "queued"}]})
        with store.writing():
            pass

        assert states(workspace) == {"a": "running", "b": "queued", "c": "queued"}

    def test_a_cancellation_by_another_tool_counts(self, store: Store, workspace: Workspace) -> None:
        add(store, "a", "b")
        raw = published(workspace)
        raw["jobs"][0]["state"] = "canceled"

        foreign_write(workspace, raw)

        assert Store(workspace).look().jobs["a"].state is JobState.CANCELED
        add(store, "c")
        assert states(workspace) == {"a": "canceled", "b": "queued", "c": "queued"}

    def test_an_edit_between_our_look_and_our_write_is_merged(
        self, store: Store, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another tool writes while we encode: it is noticed right before the rename."""
        add(store, "a")
        raw = published(workspace)
        calls: list[str] = []

        def overtaken(document: Any, rows_key: str) -> bytes:
            if not calls:
                foreign_write(workspace, raw | {"jobs": [{"job_id": "x", "run_id": "x", "state": "queued"}]})
            calls.append(rows_key)
            return encode_rows(document, rows_key)

        monkeypatch.setattr(store_module, "encode_rows", overtaken)
        add(store, "b")

        assert states(workspace) == {"a": "queued", "b": "queued", "x": "queued"}
        assert len(calls) == 2

    def test_what_another_tool_wrote_and_we_looked_at_is_kept_by_the_next_write(self, workspace: Workspace) -> None:
        workspace.make_queue_folder()
        jobs = [{"job_id": f"j{number}", "run_id": f"r{number}", "state": "queued"} for number in range(5)]
        foreign_write(workspace, {"kind": "execution_queue", "jobs": jobs})
        store = Store(workspace)
        assert len(store.look().jobs) == 5

        with store.locked():
            store.publish()

        assert [job["job_id"] for job in published(workspace)["jobs"]] == [job["job_id"] for job in jobs]
        assert len(Store(workspace).look().jobs) == 5

    def test_our_own_file_is_not_taken_for_a_foreign_one(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        before = next(workspace.queue_folder.glob("*journal*")).read_bytes()

        other = Store(workspace)
        other.refresh()

        assert not other.merge_foreign()
        assert next(workspace.queue_folder.glob("*journal*")).read_bytes() == before

    def test_a_file_that_was_deleted_is_written_again(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        workspace.queue_file.unlink()

        add(store, "b")

        assert states(workspace) == {"a": "queued", "b": "queued"}

    def test_no_temporary_file_is_left(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        foreign_write(workspace, published(workspace))
        add(store, "b")

        assert [path.name for path in workspace.queue_folder.iterdir() if "queueyard-" in path.name] == [
            "queueyard-journal-000001.jsonl"
        ]


class TestBrokenFiles:
    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"{",
            b"[]",
            b'{"version": 2}',
            b'{"version":1,"jobs":[{"job_id":7}]}',
            b'{"version":1,"jobs":[{}]}',
            b"\x00",
        ],
    )
    def test_a_queue_json_that_makes_no_sense_is_refused_with_the_repair(
        self, store: Store, workspace: Workspace, content: bytes
    ) -> None:
        add(store, "a")
        workspace.queue_file.write_bytes(content)

        with pytest.raises(CorruptFile, match=r"queue\.json") as caught:
            add(store, "b")

        assert "doctor --fix" in str(caught.value.hint)
        assert workspace.queue_file.read_bytes() == content
        assert list(Store(workspace).state.jobs) == []

    def test_a_sidecar_that_makes_no_sense_is_refused(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        workspace.sidecar.write_bytes(b"{}")

        with pytest.raises(CorruptFile, match=r"queueyard\.json"):
            Store(workspace).look()

    def test_a_line_of_a_later_version_is_skipped_and_told(self, store: Store, workspace: Workspace) -> None:
        add(store, "a")
        append_lines(next(workspace.queue_folder.glob("*journal*")), [b'{"op":"from-the-future"}'])

        add(store, "b")

        assert list(store.state.jobs) == ["a", "b"]
        assert [bad.reason for bad in store.bad] != []


def test_the_published_file_is_read_back_as_it_was(store: Store, workspace: Workspace) -> None:
    add(store, "ä", group='with "quotes"')

    queue = decode_queue(workspace.queue_file.read_bytes())

    assert queue.jobs == list(store.state.jobs.values())
    assert msgspec.json.decode(workspace.queue_file.read_bytes()) == msgspec.to_builtins(store.state.queue_file())

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from itertools import pairwise
import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pipeline import oracle
from queueyard.kernel.atomic import NOT_UNDERSTOOD
from queueyard.kernel.clock import from_rfc3339, to_rfc3339
from queueyard.kernel.events import Event, Kind, System
from queueyard.kernel.ids import ulid_time
from queueyard.ops.export import ExportManifest
from queueyard.ops.records import Change, FeedOp, Refusal
from queueyard.ops.store import JOURNAL_NAME
from queueyard.panqueue.events import event_from, events_from
from queueyard.pipeline.generator import FolderInUse, Generated, StreamCount, generate
from queueyard.pipeline.generator.chance import START, arrivals, moment, text
from queueyard.pipeline.generator.panqueue import load
from queueyard.queen.records import Assignment, Message, Reservation, decode_record, is_migration
from queueyard.runforge.groups import fault_of
from queueyard.runforge.records import JobState, decode_queue, decode_raw
from scripts import run_script
from servers import fresh_id, shared_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

EVENTS = 12_000


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Generated:
    return generate(tmp_path_factory.mktemp("histories"), events=EVENTS, seed=11)


@pytest.fixture(scope="module")
def told(generated: Generated) -> list[Event]:
    return oracle.events(generated.folder)


# --- the same bytes --------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_in_any_folder_and_with_any_number_of_processes(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"

    counted = generate(one, events=1_500, seed=3)
    counted_by_two = generate(other, events=1_500, seed=3, workers=2)

    assert counted.streams == counted_by_two.streams
    assert _content(one) == _content(other)


def test_another_seed_gives_another_history(tmp_path: Path) -> None:
    generate(tmp_path / "one", events=500, seed=1)
    generate(tmp_path / "other", events=500, seed=2)

    one, other = _content(tmp_path / "one"), _content(tmp_path / "other")

    journal = "runforge/.runforge/queue/events.jsonl"
    assert one[journal] != other[journal]


def test_the_zone_of_the_machine_does_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    generate(tmp_path / "here", events=500, seed=5)
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        generate(tmp_path / "there", events=500, seed=5)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert _content(tmp_path / "here") == _content(tmp_path / "there")


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    with pytest.raises(FolderInUse, match="is not empty"):
        generate(tmp_path, events=10, seed=1)

    assert os.listdir(tmp_path) == ["mine.txt"]  # noqa: PTH208  names alone


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- counts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("events", [0, 1, 7, 100, 2_345])
def test_exactly_so_many_lines_are_written_as_were_asked_for(tmp_path: Path, events: int) -> None:
    counted = generate(tmp_path, events=events, seed=4)

    assert counted.lines == events
    assert sum(_lines_in(path) for path in tmp_path.rglob("*.jsonl")) == events


def test_one_system_alone_gets_all_lines(tmp_path: Path) -> None:
    counted = generate(tmp_path, events=400, seed=4, systems=[System.JJQ])

    assert [(one.stream, one.lines) for one in counted.streams] == [("jjq.events", 400)]


def _lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def _decode_event(line: bytes) -> Event:
    return msgspec.json.decode(line, type=Event)


def _decode_entry(line: bytes) -> Event:
    entry = msgspec.json.decode(line, type=dict[str, str])
    event = event_from(entry.pop("id"), entry, source="redis", queue="mail")
    if event is None:
        raise ValueError("none of ours")
    return event


_DECODERS: dict[str, tuple[str, Callable[[bytes], Any]]] = {
    "queen.messages": ("queen/.beads/queen_messages.jsonl", lambda line: decode_record(line, Message)),
    "queen.assignments": ("queen/.beads/queen_assignments.jsonl", lambda line: decode_record(line, Assignment)),
    "queen.reservations": ("queen/.beads/queen_reservations.jsonl", lambda line: decode_record(line, Reservation)),
    "runforge.events": ("runforge/.runforge/queue/events.jsonl", _decode_event),
    "jjq.events": ("jjq/.jj/repo/jjq/journal.jsonl", _decode_event),
    "ops.events": (f"ops-client/*/{JOURNAL_NAME}", _decode_event),
    "ops.changes": ("ops/*/changes-*.jsonl", lambda line: msgspec.json.decode(line, type=Change)),
    "ops.audit": ("ops/*/audit-*.jsonl", lambda line: msgspec.json.decode(line, type=Refusal)),
    "panqueue.events": ("panqueue/*.entries.jsonl", _decode_entry),
}


def test_every_stream_is_counted(generated: Generated) -> None:
    assert [one.stream for one in generated.streams] == sorted(_DECODERS)


@pytest.mark.parametrize("stream", sorted(_DECODERS))
def test_the_decoder_of_the_system_finds_what_was_counted(generated: Generated, stream: str) -> None:
    pattern, decode = _DECODERS[stream]

    found = _count(stream, generated.folder.glob(pattern), decode)

    assert found == generated.of(stream)
    assert found.sound > 30


def _count(stream: str, paths: Iterable[Path], decode: Callable[[bytes], Any]) -> StreamCount:
    lines = sound = duplicates = torn = 0
    for path in paths:
        *whole, rest = path.read_bytes().split(b"\n")
        torn += bool(rest)
        seen: set[bytes] = set()
        for line in whole:
            lines += 1
            try:
                decode(line)
            except NOT_UNDERSTOOD:
                continue
            sound += 1
            duplicates += line in seen
            seen.add(line)
    return StreamCount(stream=stream, lines=lines, sound=sound, corrupt=lines - sound, duplicates=duplicates, torn=torn)


@pytest.mark.parametrize(
    "stream",
    ["queen.messages", "queen.assignments", "queen.reservations", "runforge.events", "jjq.events", "ops.events"],
)
def test_growing_files_have_repeated_damaged_and_torn_lines(generated: Generated, stream: str) -> None:
    count = generated.of(stream)

    assert count.duplicates > 0
    assert count.corrupt > 0
    assert count.torn > 0


# --- what the systems say of it --------------------------------------------------------------------------------------


def test_journals_hold_late_lines_and_a_few_clocks_that_are_far_ahead(generated: Generated) -> None:
    path = generated.folder / "runforge" / ".runforge" / "queue" / "events.jsonl"
    times = [oracle.at(event) for event in oracle.sound_lines(path, _decode_event)]

    usual = [at for at in times if (at - moment(START)).days < 60]
    steps_back = sum(later < earlier for earlier, later in pairwise(usual))

    assert steps_back > 3
    assert 0 < len(times) - len(usual) < len(times) / 20


def test_work_waits_is_done_fails_is_tried_again_and_stalls(told: list[Event]) -> None:
    kinds = Counter((event.system, event.kind) for event in told)

    for system in (System.RUNFORGE, System.PANQUEUE, System.JJQ):
        for kind in (Kind.QUEUED, Kind.STARTED, Kind.SUCCEEDED, Kind.FAILED, Kind.RETRIED, Kind.STALLED, Kind.CANCELED):
            assert kinds[system, kind], f"{system} never tells {kind}"
    for kind in (Kind.QUEUED, Kind.STARTED, Kind.RETRIED, Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.CANCELED):
        assert kinds[System.OPS, kind], f"ops never tells {kind}"
    for kind in (Kind.READ, Kind.DELETED, Kind.RENEWED, Kind.RELEASED, Kind.EXPIRED, Kind.CANCELED, Kind.SUCCEEDED):
        assert kinds[System.QUEEN, kind], f"queen never tells {kind}"


def test_failures_have_many_wordings_and_groups_very_different_sizes(told: list[Event]) -> None:
    reasons = {event.reason for event in told if event.kind is Kind.FAILED and event.system is System.PANQUEUE}
    groups = Counter(event.group for event in told if event.system is System.RUNFORGE and event.kind is Kind.QUEUED)

    assert len(reasons) > 20
    assert max(groups.values()) > 5 * min(groups.values())


def test_some_lines_change_a_record_in_part_and_some_clear_fields(generated: Generated) -> None:
    lines = [line for name in oracle.SHAPES for line in oracle.queen_lines(generated.folder, name)]

    assert any("created_at" not in line for line in lines)
    assert any(None in line.values() for line in lines)
    assert any(line.get("reply_to") and line["thread_id"] != line["id"] for line in lines)


def test_a_file_of_queen_begins_with_the_note_of_a_migration(generated: Generated) -> None:
    first = next(oracle.whole_lines(generated.folder / "queen" / ".beads" / "queen_messages.jsonl"))

    assert is_migration(decode_record(first, Message))


def test_an_id_of_queen_tells_when_its_record_was_made(generated: Generated) -> None:
    made = next(line for line in oracle.queen_lines(generated.folder, "messages"))

    at = ulid_time(made["id"])

    assert at is not None
    assert abs((from_rfc3339(made["created_at"]) - at).total_seconds()) < 0.001


def test_the_snapshots_of_runforge_are_what_runforge_reads(generated: Generated) -> None:
    root = generated.folder / "runforge"

    jobs = {job.run_id: job for job in decode_queue((root / ".runforge" / "queue" / "queue.json").read_bytes()).jobs}
    groups = [decode_raw(path.read_bytes()) for path in root.glob(".runforge/groups/*/group.json")]
    results = {path.parent.name: decode_raw(path.read_bytes()) for path in root.glob(".ml/runs/*/result.json")}

    assert {job.state for job in jobs.values()} >= {JobState.SUCCEEDED, JobState.FAILED}
    assert [fault_of(group) for group in groups] == [None] * len(groups)
    assert sum(len(group["runs"]) for group in groups) == sum(job.group_id is not None for job in jobs.values())
    assert results
    assert all(result["status"] == jobs[run_id].state for run_id, result in results.items())


def test_the_snapshot_and_the_journal_of_runforge_end_at_the_same_moment(
    generated: Generated, told: list[Event]
) -> None:
    queue = decode_queue((generated.folder / "runforge" / ".runforge" / "queue" / "queue.json").read_bytes())
    known = {(event.item, event.kind, event.attempt) for event in told if event.system is System.RUNFORGE}

    ended = [job for job in queue.jobs if job.finished_at]
    running = [job for job in queue.jobs if job.state is JobState.RUNNING]

    assert len(ended) > 50
    assert {(job.job_id, Kind(job.state), job.attempt) for job in ended} <= known
    assert {(job.job_id, Kind.STARTED, job.attempt) for job in running} <= known


# --- ops -------------------------------------------------------------------------------------------------------------


def test_segments_are_what_the_export_of_ops_writes(generated: Generated) -> None:
    for folder in (generated.folder / "ops").iterdir():
        manifest = msgspec.json.decode((folder / "_manifest.json").read_bytes(), type=ExportManifest)

        for stream, segments in (("changes", manifest.changes), ("audit", manifest.audit)):
            numbers = []
            for segment in segments:
                body = (folder / segment.name).read_bytes()
                assert segment.name == f"{stream}-{segment.first:012d}-{segment.last:012d}.jsonl"
                assert (segment.bytes, segment.sha256) == (len(body), sha256(body).hexdigest())
                numbers += [msgspec.json.decode(line)["seq"] for line in body.splitlines()]
            assert numbers == list(range(1, len(numbers) + 1))


def test_versions_of_a_file_follow_each_other(generated: Generated) -> None:
    last: dict[tuple[str, str], Change] = {}
    for change in oracle.changes(generated.folder):
        before = last.get((change.space, change.file_id))

        assert change.version == change.base_version + 1
        assert change.base_version == (before.version if before else 0)
        assert (change.op is FeedOp.CREATE) == (before is None or before.op is FeedOp.DELETE)
        last[change.space, change.file_id] = change
    assert any(change.op is FeedOp.DELETE for change in last.values())


def test_what_the_server_applied_is_what_the_client_was_answered(generated: Generated, told: list[Event]) -> None:
    applied = Counter(f"{change.request_id}:{change.batch_index}" for change in oracle.changes(generated.folder))
    answers = [event for event in told if event.system is System.OPS and "applied" in event.data]

    # The last batches may have been cut off by the end of the history.
    assert sum(applied[event.item] == event.data["applied"] for event in answers) >= len(answers) - 1
    assert len(answers) > 50


# --- panqueue --------------------------------------------------------------------------------------------------------


def test_entries_are_in_the_order_of_their_ids(generated: Generated) -> None:
    for path in (generated.folder / "panqueue").iterdir():
        ids = [msgspec.json.decode(line)["id"] for line in oracle.whole_lines(path)]
        pairs = [tuple(map(int, one.split("-"))) for one in ids]

        assert pairs == sorted(set(pairs))


def test_a_file_of_entries_becomes_a_stream_that_panqueue_reads(generated: Generated) -> None:
    import redis

    path = generated.folder / "panqueue" / "render.entries.jsonl"
    server, queue = shared_server(), fresh_id("generated")

    count = load(path, server.url, queue=queue)

    with redis.Redis.from_url(server.url) as client:
        entries = client.execute_command("XRANGE", f"{{q:{queue}}}:events", "-", "+")
    flat = [(entry_id, [part for pair in fields.items() for part in pair]) for entry_id, fields in _pairs(entries)]
    found = [event for _, event in events_from(flat, source="redis", queue="render")]
    assert count == _lines_in(path) == len(entries)
    assert found == list(oracle.panqueue_events(path, source="redis"))


def _pairs(entries: Any) -> Iterable[tuple[bytes, dict[bytes, bytes]]]:
    for entry_id, fields in entries:
        yield entry_id, fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))


# --- chance ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("microseconds", [0, 1, 10, 500_000, 999_999, 86_400_000_000, 123_456_789_012])
def test_times_are_written_as_everywhere_else(microseconds: int) -> None:
    at = START + microseconds

    assert text(at) == to_rfc3339(moment(at))


def test_arrivals_come_by_day_and_in_bursts() -> None:
    import random

    at = arrivals(random.Random(1), 0.05)
    times = [next(at) for _ in range(20_000)]

    by_hour = Counter(moment(one).hour for one in times)
    per_minute = Counter(one // 60_000_000 for one in times)
    assert by_hour[10] > 4 * by_hour[3]
    assert max(per_minute.values()) > 20
    assert times == sorted(times)


def test_the_command_tells_a_machine_what_it_has_made(tmp_path: Path) -> None:
    done = run_script("queueyard", "pipeline", "generate", "play", "--events", "500", "--json", cwd=tmp_path)

    told = json.loads(done.stdout)
    assert done.code == 0
    assert told["folder"] == "play"
    assert sum(stream["lines"] for stream in told["streams"]) >= 500
    assert (tmp_path / "play" / "queueyard.toml").exists()

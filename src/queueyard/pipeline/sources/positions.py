"""What is new at all places, over all sources: one plan from the note of the last batch to the note of the next.

A note is {"lines": spans.Marks, "snapshots": digests.Marks, "streams": entries.Marks, "feeds": sequences.Marks}. It
stands in the log of a table, so nothing in it is a secret. Needs no Spark.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.pipeline.sources import (
    digests,
    entries,
    feed_client,
    looking,
    redis_client,
    sequences,
    snapshot_files,
    spans,
)
from queueyard.pipeline.sources.places import feeds_at, origins_of, secrets_of, snapshots_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from queueyard.yard.places import Place

#: how much one batch takes from streams and from feeds
BATCH_ENTRIES = 2_000_000
_ENTRY_BYTES = 200


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """One frame: a format of Spark and its options, which may hold secrets."""

    format: str
    options: dict[str, str]

    def __repr__(self) -> str:
        return f"Read({self.format})"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to read, and the note of a batch that has read it."""

    reads: list[Read]
    note: dict[str, Any]
    #: the formats that occur in it, by name
    streams: frozenset[str]
    #: whether that is all that was there to see; else the next plan goes on with it
    is_all: bool
    #: about how much that is
    bytes: int
    #: entries of streams that were trimmed before they could be read; None if some were and nobody knows how many
    lost: int | None


def plan(
    places: Sequence[Place],
    note: Mapping[str, Any],
    *,
    most_bytes: int,
    most_entries: int = BATCH_ENTRIES,
    environment: Mapping[str, str] = os.environ,
) -> Plan:
    """What is new; nothing to read if nothing is. SourceFailed for a place that cannot be asked."""
    # Before the journals: what a snapshot tells is in them by the time that they are looked at, and they know more.
    snapshot_origins = snapshots_at(places)
    looks = snapshot_files.look(snapshot_origins)
    line_marks = _read(note, "lines", spans.Marks)
    new_spans, line_marks = spans.plan(line_marks, _files(places, line_marks), most_bytes=most_bytes)
    snapshot_marks = digests.of_those_there(_read(note, "snapshots", digests.Marks), snapshot_origins, looks)
    new_snapshots: list[digests.Snapshot] = []
    has_all_lines = sum(span.end - span.start for span in new_spans) < most_bytes
    if has_all_lines:
        # A batch that could not take all of the journals leaves the snapshots to the one that can.
        found = snapshot_files.opened(digests.suspects(snapshot_marks, looks))
        new_snapshots, snapshot_marks = digests.plan(snapshot_marks, found)
    secrets = secrets_of(places)
    new_entries = entries.plan(
        _read(note, "streams", entries.Marks), redis_client.look(secrets), most_entries=most_entries
    )
    token = environment.get(feed_client.TOKEN_VARIABLE, "").strip()
    new_ranges, feed_marks = sequences.plan(
        _read(note, "feeds", sequences.Marks), feed_client.look(feeds_at(places), token), most_entries=most_entries
    )
    wanted: tuple[tuple[str, str, Sequence[Any], dict[str, str]], ...] = (
        ("queueyard_lines", "spans", new_spans, {}),
        ("queueyard_snapshots", "snapshots", new_snapshots, {}),
        ("queueyard_streams", "ranges", new_entries.ranges, {"secret": _text(secrets)}),
        ("queueyard_feeds", "ranges", new_ranges, {"token": token} if token else {}),
    )
    marks = {"lines": line_marks, "snapshots": snapshot_marks, "streams": new_entries.marks, "feeds": feed_marks}
    return Plan(
        reads=[Read(format=name, options={option: _text(work), **more}) for name, option, work, more in wanted if work],
        note={**note, **{name: msgspec.to_builtins(known) for name, known in marks.items() if known}},
        streams=frozenset(
            [span.stream for span in new_spans]
            + [snapshot.stream for snapshot in new_snapshots]
            + ["panqueue.events" for _ in new_entries.ranges]
            + [f"ops.{one.kind}" for one in new_ranges]
        ),
        is_all=has_all_lines
        and sum(one.entries for one in new_entries.ranges) < most_entries
        and sum(one.upto - one.after for one in new_ranges) < most_entries,
        bytes=sum(span.end - span.start for span in new_spans)
        + sum(one.size for one in new_snapshots)
        + _ENTRY_BYTES
        * (sum(one.entries for one in new_entries.ranges) + sum(one.upto - one.after for one in new_ranges)),
        lost=new_entries.lost,
    )


def _text(work: Any) -> str:
    return msgspec.json.encode(work).decode()


def _files(places: Sequence[Place], marks: spans.Marks) -> list[spans.Seen]:
    origins = origins_of(places)
    return looking.with_renamed(looking.look(origins), origins, marks)


def _read(note: Mapping[str, Any], name: str, marks: Any) -> Any:
    return msgspec.convert(note.get(name, {}), marks)

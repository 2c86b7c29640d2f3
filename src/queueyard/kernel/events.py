"""One event for five systems: every change of state, told in the same words.

Events describe; they never decide. A journal that cannot be written therefore never fails the operation that it
describes: the loss is told once on stderr, and the pipeline still finds the state itself.
"""

from __future__ import annotations

from enum import StrEnum
import sys
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.atomic import FILES, Files, append_lines
from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.errors import StorageFailed
from queueyard.kernel.ids import derived_ulid

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path


class System(StrEnum):
    """Where an event comes from."""

    JJQ = "jjq"
    RUNFORGE = "runforge"
    PANQUEUE = "panqueue"
    QUEEN = "queen"
    OPS = "ops"


class Kind(StrEnum):
    """What happened, in one vocabulary for all systems (docs/glossary.md)."""

    QUEUED = "queued"
    STARTED = "started"
    PROGRESSED = "progressed"
    RETRIED = "retried"
    STALLED = "stalled"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"
    RELEASED = "released"
    RENEWED = "renewed"
    READ = "read"
    DELETED = "deleted"
    CONFLICTED = "conflicted"
    PAUSED = "paused"
    RESUMED = "resumed"


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of state of one item."""

    #: ULID; the same change always has the same id
    id: str
    #: RFC 3339, UTC, microseconds
    at: str
    system: System
    #: which repository, workspace, Redis or server it came from
    source: str
    #: trunk bookmark, "execution", queue id, messages/assignments/reservations, space
    queue: str
    #: sequence id, job id, message id, requestId:batchIndex
    item: str
    kind: Kind
    #: 1, 2, ...
    attempt: int = 1
    #: group id, concurrency key, issue id, requestId
    group: str | None = None
    #: worker, daemon, agent, client
    actor: str | None = None
    #: why, on failure
    reason: str | None = None
    #: a small object of the system's own
    data: dict[str, Any] = {}


def event_id(at: datetime, *, system: System, queue: str, item: str, kind: Kind, change: str) -> str:
    """The id of a change; `change` tells apart two changes of one kind of one item (a version, an attempt)."""
    return derived_ulid(at, system, queue, item, kind, change)


def make_event(at: datetime, *, system: System, queue: str, item: str, kind: Kind, change: str, **fields: Any) -> Event:
    """An event whose id follows from what it tells, so that telling it twice is harmless."""
    identifier = event_id(at, system=system, queue=queue, item=item, kind=kind, change=change)
    return Event(id=identifier, at=to_rfc3339(at), system=system, queue=queue, item=item, kind=kind, **fields)


class Journal:
    """A JSONL file of events beside the state that they describe."""

    def __init__(self, path: Path, *, complain: Callable[[str], None] | None = None, files: Files = FILES) -> None:
        self.path = path
        self._files = files
        self._complain = complain or _complain_on_stderr
        self._has_complained = False

    def append(self, *events: Event) -> None:
        """Add events; never raises for a disk that refuses, nor for a text that JSON cannot hold."""
        try:
            lines = [msgspec.json.encode(event) for event in events]
            append_lines(self.path, lines, durable=False, files=self._files)
        except (StorageFailed, UnicodeError) as fault:
            if not self._has_complained:
                self._has_complained = True
                self._complain(f"warning: events are not recorded: {fault}")


def _complain_on_stderr(text: str) -> None:
    print(text, file=sys.stderr)  # noqa: T201

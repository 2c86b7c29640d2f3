"""A change of an item, told as the shared Event, and the journal that keeps them beside the shared repository.

Nobody has to read the journal to know the queue: it is history, for `log`, `stats`, `wait` and the pipeline.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.atomic import BadLine, read_lines
from queueyard.kernel.events import Event, Kind, System, make_event
from queueyard.kernel.ids import sequence_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from queueyard.jjq.records import CheckResult, Commit, Failure, Merge, Reason

#: an item's way ends with one of these; after a failure a new item may follow (`retried`)
ENDS = frozenset({Kind.SUCCEEDED, Kind.FAILED, Kind.CONFLICTED, Kind.CANCELED})


class Teller:
    """Makes the events of one repository and one trunk."""

    def __init__(self, *, source: str, queue: str, now: Callable[[], datetime], actor: str | None = None) -> None:
        self._source = source
        self._queue = queue
        self._now = now
        self._actor = actor

    def queued(self, number: int, candidate: Commit) -> Event:
        return self._event(number, Kind.QUEUED, candidate.commit_id, data=_of_candidate(candidate))

    def requeued(self, failed: int, number: int, candidate: Commit) -> Event:
        """The failed item goes on under a new number."""
        return self._event(
            failed, Kind.RETRIED, str(number), data={"as": sequence_id(number), **_of_candidate(candidate)}
        )

    def started(self, merge: Merge, *, attempt: int) -> Event:
        data = {"merge": merge.commit.commit_id, "base": merge.base.commit_id}
        return self._event(merge.id, Kind.STARTED, merge.commit.commit_id, attempt=attempt, data=data)

    def wasted(self, merge: Merge, *, attempt: int, why: str, duration_ms: int) -> Event:
        """A check was thrown away: the merge that it looked at will never land."""
        data = {"merge": merge.commit.commit_id, "duration_ms": duration_ms}
        return self._event(merge.id, Kind.RELEASED, merge.commit.commit_id, attempt=attempt, reason=why, data=data)

    def landed(self, number: int, merge: Commit, check: CheckResult | None, *, attempt: int = 1) -> Event:
        data = {"merge": merge.commit_id, **_of_check(check)}
        return self._event(number, Kind.SUCCEEDED, merge.commit_id, attempt=attempt, data=data)

    def failed(self, failure: Failure, check: CheckResult | None, *, attempt: int = 1) -> Event:
        kind = Kind.CONFLICTED if failure.conflict_paths or check is None else Kind.FAILED
        data: dict[str, Any] = {"merge": failure.merge_commit_id, **_of_check(check)}
        data |= {"conflicts": list(failure.conflict_paths)} if failure.conflict_paths else {}
        reason: Reason = failure.reason
        return self._event(failure.id, kind, failure.merge_commit_id, attempt=attempt, reason=reason.value, data=data)

    def deleted(self, number: int, commit: Commit, *, queued: bool) -> Event:
        return self._event(number, Kind.CANCELED if queued else Kind.DELETED, commit.commit_id)

    def stalled(self, number: int) -> Event:
        return self._event(number, Kind.STALLED, str(self._now()), reason="the run died")

    def _event(self, number: int, kind: Kind, change: str, **fields: Any) -> Event:
        return make_event(
            self._now(),
            system=System.JJQ,
            queue=self._queue,
            item=sequence_id(number),
            kind=kind,
            change=change,
            source=self._source,
            actor=self._actor,
            **fields,
        )


def read_journal(path: Path, *, on_bad: Callable[[BadLine], None], start: int = 0) -> Iterator[tuple[Event, int]]:
    """Every event from byte `start` on, oldest first, each with the offset of its line."""
    decoder = msgspec.json.Decoder(Event)
    for line in read_lines(path, decoder.decode, start=start, on_bad=on_bad):
        yield line.value, line.offset


def _of_candidate(candidate: Commit) -> dict[str, Any]:
    return {"change": candidate.change_id, "commit": candidate.commit_id, "subject": candidate.subject}


def _of_check(check: CheckResult | None) -> dict[str, Any]:
    if check is None:
        return {}
    told: dict[str, Any] = {"duration_ms": check.duration_ms, "exit_code": check.exit_code}
    told |= {"tries": check.tries} if check.tries > 1 else {}
    return told | ({"reused": True} if check.reused else {})

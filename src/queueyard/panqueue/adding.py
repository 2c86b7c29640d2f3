"""How jobs get into a queue: what is checked before, and how many adds become one call.

`Intake` checks and encodes what a caller gives; `calls_for` makes as few calls of it as possible, for clients with and
without an event loop alike. Nothing here talks to the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import msgspec

from queueyard.panqueue.queues import JobChanges, Queue, checked_key, new_job_id, with_options
from queueyard.panqueue.records import IdsFrom, JobOptions
from queueyard.panqueue.rules import batches
from queueyard.panqueue.store import MOST_BYTES_PER_CALL, MOST_JOBS_PER_CALL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from queueyard.panqueue.store import Ask, QueueStore
    from queueyard.panqueue.wire import Word

P = TypeVar("P")


class NewJob(msgspec.Struct, frozen=True, gc=False):
    """A job on its way in."""

    id: str
    payload: bytes
    key: str | None
    options: JobOptions
    ids_from: IdsFrom


class Intake(Generic[P]):
    """Turns what a caller gives into jobs of one queue."""

    def __init__(self, queue: Queue[P, Any], defaults: JobOptions) -> None:
        self.queue = queue
        self.defaults = defaults
        self._ids_from = IdsFrom.SERVER if queue.short_ids else IdsFrom.CLIENT
        self._encode = queue.payloads.encode

    def prepare(
        self, payload: P, *, keyed: bool, key: str | None, job_id: str | None, **changes: Unpack[JobChanges]
    ) -> NewJob:
        """Check and encode one job. NotSerializable, PayloadTooLarge, KeyRequired, BadQueue."""
        text = self._encode(payload)
        if keyed or key is not None:
            key = checked_key(self.queue.id, key, keyed=keyed)
        options = with_options(self.defaults, **changes) if changes else self.defaults
        if job_id is not None:
            return NewJob(job_id, text, key, options, IdsFrom.CALLER)
        return NewJob(new_job_id() if self._ids_from is IdsFrom.CLIENT else "", text, key, options, self._ids_from)


def calls_for(
    store: QueueStore, jobs: Sequence[NewJob], *, keyed: bool, actor: str
) -> Iterator[tuple[Sequence[NewJob], Ask[int]]]:
    """The calls that add these jobs in their order: as few as options, number and size allow."""
    start = 0
    while start < len(jobs):
        first, end = jobs[start], start + 1
        while end < len(jobs) and _are_alike(jobs[end], first):
            end += 1
        alike = jobs[start:end]
        sizes = [len(job.payload) for job in alike]
        for low, high in batches(sizes, most=MOST_JOBS_PER_CALL, most_bytes=MOST_BYTES_PER_CALL):
            part = alike[low:high]
            words: list[Word] = []
            for job in part:
                words.append(job.id)
                words.append(job.payload)
                if keyed:
                    words.append(job.key or "")
            yield part, store.add(words, first.options, keyed=keyed, ids_from=first.ids_from, actor=actor)
        start = end


def _are_alike(one: NewJob, other: NewJob) -> bool:
    # The same object, nearly always.
    return (one.options is other.options or one.options == other.options) and one.ids_from is other.ids_from


def ids_of(part: Sequence[NewJob], first: int) -> list[str]:
    """The ids that the added jobs have; `first` is what the server answered."""
    if part[0].ids_from is IdsFrom.SERVER:
        return [str(first + place) for place in range(len(part))]
    return [job.id for job in part]

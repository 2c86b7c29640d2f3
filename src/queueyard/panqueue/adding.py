"""How jobs get into a queue: what is checked before, and how many adds become one call.

`Intake` checks and encodes what a caller gives; `calls_for` makes as few calls of it as possible, for clients with and
without an event loop alike. Nothing here talks to the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

import msgspec

from queueyard.panqueue.errors import BadSchedule
from queueyard.panqueue.placing import Placing
from queueyard.panqueue.queues import JobChanges, Queue, checked_key, new_job_id, with_options
from queueyard.panqueue.records import IdsFrom, JobOptions
from queueyard.panqueue.rules import batches
from queueyard.panqueue.schedules import CatchUp, Schedule, check_schedule
from queueyard.panqueue.store import MOST_BYTES_PER_CALL, MOST_JOBS_PER_CALL, stored_options

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
        #: what was said about the last job, and what came of it: nearly always the next one is alike
        self._last: tuple[JobChanges, JobOptions] = ({}, defaults)

    def prepare(
        self, payload: P, *, keyed: bool, key: str | None, job_id: str | None, **changes: Unpack[JobChanges]
    ) -> NewJob:
        """Check and encode one job. NotSerializable, PayloadTooLarge, KeyRequired, BadQueue."""
        text = self._encode(payload)
        if keyed or key is not None:
            key = checked_key(self.queue.id, key, keyed=keyed)
        options = self._options_with(changes) if changes else self.defaults
        if job_id is not None:
            return NewJob(job_id, text, key, options, IdsFrom.CALLER)
        return NewJob(new_job_id() if self._ids_from is IdsFrom.CLIENT else "", text, key, options, self._ids_from)

    def schedule(
        self,
        name: str,
        payload: P,
        *,
        cron: str | None,
        tz: str,
        every_ms: int | None,
        catch_up: CatchUp | str,
        key: str | None,
        **changes: Unpack[JobChanges],
    ) -> Schedule:
        """Check and encode a repeated job. BadSchedule, NotSerializable, PayloadTooLarge."""
        options = with_options(self.defaults, **changes)
        placing = options.placing or Placing()
        if placing != Placing(priority=placing.priority):
            raise BadSchedule(
                f"schedule {name}: only retries, time-outs, back-off and a priority can be said about a repeated job",
                hint="Delays, deduplication and expiry are for single jobs.",
            )
        return check_schedule(
            Schedule(
                name=name,
                cron=cron,
                tz=tz,
                every_ms=every_ms,
                catch_up=CatchUp(catch_up),
                payload=self._encode(payload).decode(),
                key=key,
                retries=options.retries,
                max_stalls=options.max_stalls,
                opts=stored_options(options),
                priority=placing.priority,
            )
        )

    def _options_with(self, changes: JobChanges) -> JobOptions:
        if changes != self._last[0]:
            self._last = (changes, with_options(self.defaults, **changes))
        return self._last[1]


def calls_for(
    store: QueueStore, jobs: Sequence[NewJob], *, keyed: bool, actor: str
) -> Iterator[tuple[Sequence[NewJob], Ask[int]]]:
    """The calls that add these jobs in their order: as few as options, number and size allow."""
    start = 0
    while start < len(jobs):
        first, end = jobs[start], start + 1
        # With a deduplication key each has to be told by itself whether it was added.
        is_alone = first.options.placing is not None and first.options.placing.dedup is not None
        while not is_alone and end < len(jobs) and _are_alike(jobs[end], first):
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

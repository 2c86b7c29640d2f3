"""The client for code without an event loop: Django, Flask, scripts. The same verbs as `client.py`, blocking.

    with SyncQueueClient("redis://localhost") as client:
        client.queue(emails).add(Email(to="a@example.org"))

One connection per queue, guarded by a lock: threads may share a client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.panqueue import dead_letters, family, scheduling, service
from queueyard.panqueue.adding import Intake, NewJob, calls_for, ids_of
from queueyard.panqueue.address import default_url, parse_address
from queueyard.panqueue.blocking import Line, Messages
from queueyard.panqueue.errors import Closed, Duplicate, ServerUnreachable, TimedOut
from queueyard.panqueue.flows import FlowJob, planned
from queueyard.panqueue.queues import JobChanges, Queue, with_options
from queueyard.panqueue.records import Counts, JobRecord, JobState, Keep, Mode
from queueyard.panqueue.schedules import CatchUp
from queueyard.panqueue.store import QueueStore
from queueyard.panqueue.tracing import trace_of_add

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from queueyard.kernel.events import Event
    from queueyard.panqueue.pacing import QueueRules, Rate
    from queueyard.panqueue.schedules import Standing

P = TypeVar("P")
R = TypeVar("R")

_LOOK_AGAIN_S = 1.0
#: waiting for a result goes on over so many failed looks in a row: a server may be restarted meanwhile
PATIENCE = 40


class SyncAddedJob(Generic[R]):
    """A job that the server has accepted."""

    __slots__ = ("_handle", "id", "is_new")

    def __init__(self, job_id: str, handle: SyncQueueHandle[Any, R], *, is_new: bool = True) -> None:
        self.id = job_id
        #: False: nothing was added, because this job holds the deduplication key
        self.is_new = is_new
        self._handle = handle

    def result(self, *, timeout_s: float | None = None) -> R | None:
        """What its handler returned, as soon as it is over. JobFailed, ResultGone, TimedOut."""
        return self._handle.result(self.id, timeout_s=timeout_s)

    def cancel(self, *, why: str = "canceled") -> None:
        """Cancel it, whatever it is doing. UnknownJob, JobOver."""
        self._handle.cancel(self.id, why=why)

    def record(self) -> JobRecord:
        """Everything that is known about it now. UnknownJob."""
        return self._handle.job(self.id)

    def __repr__(self) -> str:
        return f"<job {self.id} of {self._handle.queue.id}>"


class SyncQueueHandle(Generic[P, R]):
    """One queue, with defaults for what is added through it. Made by `SyncQueueClient.queue`."""

    def __init__(self, client: SyncQueueClient, queue: Queue[P, R], intake: Intake[P], line: Line) -> None:
        self.queue = queue
        self._client = client
        self._intake = intake
        self._line = line
        self._store = QueueStore(queue.id)
        self._mode: Mode | None = Mode.GLOBAL if queue.mode is Mode.GLOBAL else None

    def add(
        self, payload: P, *, key: str | None = None, job_id: str | None = None, **options: Unpack[JobChanges]
    ) -> SyncAddedJob[R]:
        """Add one job. What can be said about it is in `JobChanges`.

        NotSerializable, PayloadTooLarge, KeyRequired, ModeMismatch, JobExists, ServerFull, ServerUnreachable.
        """
        keyed = self._learn_mode() is not Mode.GLOBAL
        if self._client.trace and "trace" not in options:
            options["trace"] = trace_of_add(self.queue.id)
        [added] = self._send([self._intake.prepare(payload, keyed=keyed, key=key, job_id=job_id, **options)], keyed)
        return added

    def add_many(
        self, payloads: Iterable[P], *, key: Callable[[P], str] | None = None, **options: Unpack[JobChanges]
    ) -> list[SyncAddedJob[R]]:
        """Add jobs in their order, a thousand per call. The same errors as `add`."""
        keyed = self._learn_mode() is not Mode.GLOBAL
        prepare = self._intake.prepare
        new = [
            prepare(payload, keyed=keyed, key=None if key is None else key(payload), job_id=None, **options)
            for payload in payloads
        ]
        return self._send(new, keyed)

    def result(self, job_id: str, *, timeout_s: float | None = None) -> R | None:
        """What the handler of a job returned, as soon as it is over. JobFailed, ResultGone, TimedOut."""
        deadline = float("inf") if timeout_s is None else SYSTEM_CLOCK.monotonic() + timeout_s
        failures = 0
        while True:
            try:
                end = self._wait_for(job_id, deadline)
            except ServerUnreachable:
                failures += 1
                if failures > PATIENCE or SYSTEM_CLOCK.monotonic() > deadline:
                    raise
                SYSTEM_CLOCK.sleep(_LOOK_AGAIN_S / 4)
                continue
            if end is None:
                raise TimedOut(f"job {job_id} was not over within {timeout_s:g} s", hint="Wait longer.")
            return service.value_of(end, self.queue.results, job_id)

    def _wait_for(self, job_id: str, deadline: float) -> service.Ended | None:
        messages = Messages(self._client.address, self._store.keys.tag, [self._store.keys["finished"]])
        try:
            while True:
                end = self._line.hold(service.ended(self._store, job_id))
                left = min(_LOOK_AGAIN_S, deadline - SYSTEM_CLOCK.monotonic())
                if end is not None or left <= 0:
                    return end
                messages.wait(left)
        finally:
            messages.close()

    def counts(self) -> Counts:
        """How many jobs are in each state, and how the queue is set."""
        return self._line.hold(service.counts(self._store))

    def job(self, job_id: str) -> JobRecord:
        """Everything that is known about one job. UnknownJob."""
        return self._line.hold(service.job(self._store, job_id))

    def jobs(self, state: JobState | str, *, skip: int = 0, most: int = 20) -> list[JobRecord]:
        """Jobs in one state: those that run next, or ended last, come first."""
        return self._line.hold(service.jobs(self._store, JobState(state), skip=skip, most=most))

    def retry(self, *job_ids: str) -> int:
        """Put failed jobs back in line. UnknownJob."""
        return self._line.hold(service.retry(self._store, job_ids, actor=self._client.name))

    def retry_all(self) -> int:
        """Put every failed job back in line; gives how many."""
        return self._line.hold(service.retry_all(self._store, actor=self._client.name))

    def remove(self, *job_ids: str) -> int:
        """Remove jobs that are not running. UnknownJob, JobActive."""
        return self._line.hold(service.remove(self._store, job_ids, actor=self._client.name))

    def drain(self, *, delayed: bool = False) -> int:
        """Remove every waiting job; gives how many."""
        return self._line.hold(service.drain(self._store, delayed=delayed, actor=self._client.name))

    def clean(self, state: JobState | str, keep: Keep) -> int:
        """Remove completed or failed jobs beyond a number or age; gives how many."""
        return self._line.hold(service.clean(self._store, JobState(state), keep))

    def pause(self) -> bool:
        """Let no worker claim from this queue; what runs goes on. Whether that changed anything."""
        return self._line.hold(service.pause(self._store, paused=True, actor=self._client.name))

    def resume(self) -> bool:
        return self._line.hold(service.pause(self._store, paused=False, actor=self._client.name))

    def obliterate(self, *, confirm: str, force: bool = False) -> int:
        """Remove the queue with everything in it; `confirm` must be its id. JobActive unless `force`."""
        service.check_confirmation(self.queue.id, confirm)
        return self._line.hold(service.obliterate(self._store, force=force))

    def set_key_limit(self, key: str, limit: int | None) -> None:
        """Give one key of a dynamic queue its own limit; 0 stops it, None gives it the queue's. ModeMismatch."""
        self._line.hold(service.set_key_limit(self._store, key, limit))

    def switch_events(self, kept: int | None = service.DEFAULT_EVENTS_KEPT) -> bool:
        """Record every transition in a stream of about `kept` entries, or stop that with None."""
        return self._line.hold(service.switch_events(self._store, kept))

    def events(self, *, after: str = "-") -> Iterator[tuple[str, Event]]:
        """(entry id, event) of everything that the stream holds behind `after`, oldest first."""
        source = str(self._client.address)
        while page := self._line.hold(service.read_events(self._store, source=source, after=after)):
            yield from page
            after = page[-1][0]

    def cancel(self, *job_ids: str, why: str = "canceled") -> int:
        """Cancel jobs, whatever they are doing; a running handler is cancelled. UnknownJob, JobOver."""
        talk = service.cancel(self._store, job_ids, why=why, keep=self.queue.keep_failed, actor=self._client.name)
        return self._line.hold(talk)

    def logs(self, job_id: str) -> list[service.LogLine]:
        """What the handlers of a job have logged, oldest first."""
        return self._line.hold(service.logs(self._store, job_id))

    def redrive(self, *job_ids: str) -> int:
        """Send dead letters of this queue back to where they failed: those named, or all. UnknownJob."""
        return self._line.hold(dead_letters.redrive(self._store, job_ids, actor=self._client.name))

    def rules(self) -> QueueRules:
        """The priorities and rate limits of this queue."""
        return self._line.hold(service.rules(self._store))

    def set_rate(self, rate: Rate | None, *, per_key: bool = False) -> None:
        """Limit how many jobs may start in which time, of the queue or of each key; None lifts the limit."""
        self._line.hold(service.set_rate(self._store, rate, per_key=per_key))

    # --- schedules ---------------------------------------------------------------------------------------------------

    def schedule(
        self,
        name: str,
        payload: P,
        *,
        cron: str | None = None,
        tz: str = "UTC",
        every_ms: int | None = None,
        catch_up: CatchUp | str = CatchUp.ONCE,
        key: str | None = None,
        **options: Unpack[JobChanges],
    ) -> bool:
        """Repeat a job by a cron line or an interval; a schedule of that name is changed. Whether anything changed.

        BadSchedule; NotSerializable, PayloadTooLarge, KeyRequired.
        """
        made = self._intake.schedule(
            name, payload, cron=cron, tz=tz, every_ms=every_ms, catch_up=catch_up, key=key, **options
        )
        return self._line.hold(scheduling.put_schedule(self._store, made))

    def schedules(self) -> list[Standing]:
        """All schedules of this queue, by the time of their next slot."""
        return self._line.hold(scheduling.list_schedules(self._store))

    def pause_schedule(self, name: str) -> bool:
        """Let a schedule rest; whether that changed anything. UnknownSchedule."""
        return self._line.hold(scheduling.pause_schedule(self._store, name, paused=True))

    def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on with its first slot from now. UnknownSchedule."""
        return self._line.hold(scheduling.pause_schedule(self._store, name, paused=False))

    def remove_schedule(self, name: str) -> None:
        """Take a schedule away; jobs that it has added stay. UnknownSchedule."""
        self._line.hold(scheduling.remove_schedule(self._store, name))

    def _learn_mode(self) -> Mode:
        """The queue's mode: as configured, else as stored, else global. Asked once per handle."""
        if self._mode is None:
            configured = self.queue.mode
            if configured is None:
                self._mode = self._line.hold(service.stored_mode(self._store))
            else:
                self._line.ask(self._store.declare_mode(configured, self.queue.key_concurrency))
                self._mode = configured
        return self._mode

    def _send(self, new: list[NewJob], keyed: bool) -> list[SyncAddedJob[R]]:
        added: list[SyncAddedJob[R]] = []
        for part, ask in calls_for(self._store, new, keyed=keyed, actor=self._client.name):
            try:
                added += [SyncAddedJob(job_id, self) for job_id in ids_of(part, self._line.ask(ask))]
            except Duplicate as fault:
                added += [SyncAddedJob(fault.job_id, self, is_new=False) for _ in part]
        return added


class SyncQueueClient:
    """A way to one server, sentinels or cluster. Connects when first used."""

    def __init__(
        self, url: str | None = None, *, name: str = "client", timeout_s: float = 10.0, trace: bool = False
    ) -> None:
        """Without `url`: REDIS_URL, else this machine. `name` stands in events as who added a job. BadAddress.

        With `trace` every `add` is an OpenTelemetry span, and the job carries it to its worker.
        """
        self.trace = trace
        self.address = parse_address(url or default_url())
        self.name = name
        self._timeout_s = timeout_s
        self._lines: dict[str, Line] = {}
        self._closed = False

    @overload
    def queue(self, queue: str, **defaults: Unpack[JobChanges]) -> SyncQueueHandle[Any, Any]: ...
    @overload
    def queue(self, queue: Queue[P, R], **defaults: Unpack[JobChanges]) -> SyncQueueHandle[P, R]: ...

    def queue(self, queue: Any, **defaults: Unpack[JobChanges]) -> SyncQueueHandle[Any, Any]:
        """A queue with defaults for its jobs: retries, max_stalls, backoff, timeout_ms. BadQueue."""
        if self._closed:
            raise Closed("this client was closed", hint="Open a new one: SyncQueueClient(url)")
        declared: Queue[Any, Any] = Queue(queue) if isinstance(queue, str) else queue
        line = self._lines.get(declared.id)
        if line is None:
            line = self._lines[declared.id] = Line(
                self.address, QueueStore(declared.id).keys.tag, timeout_s=self._timeout_s
            )
        return SyncQueueHandle(self, declared, Intake(declared, with_options(declared.options, **defaults)), line)

    def add_flow(self, flow: FlowJob) -> SyncAddedJob[Any]:
        """Add jobs that wait for each other; gives the one that runs last. BadFlow; else as `QueueHandle.add`."""
        handle = self.queue(flow.queue)
        # A connection of its own: in a cluster it goes from node to node.
        line = Line(self.address, QueueStore(flow.queue.id).keys.tag, timeout_s=self._timeout_s)
        try:
            root = line.hold(family.add_flow(planned(flow), actor=self.name))
        finally:
            line.close()
        return SyncAddedJob(root, handle)

    def connect(self) -> None:
        """See whether the server answers. ServerUnreachable within a few seconds, AccessDenied."""
        line = Line(self.address, timeout_s=self._timeout_s)
        try:
            line.call("PING")
        finally:
            line.close()

    def close(self) -> None:
        self._closed = True
        for line in self._lines.values():
            line.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

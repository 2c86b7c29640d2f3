"""What a handler says while it runs: progress, log lines, finished steps, and what it asks about its flow.

Progress and log lines are collected and written a few times a second, the last progress of a job in any case before its
end is recorded. Steps are written at once. Everything is fenced by the job's token. Methods may be called from any
thread of the worker's process.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, TypeVar

from queueyard.panqueue import scripts
from queueyard.panqueue.errors import LeaseLost, PanqueueError
from queueyard.panqueue.flows import ChildResult, read_children
from queueyard.panqueue.payloads import Codec
from queueyard.panqueue.records import Finish
from queueyard.panqueue.store import Ask

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from queueyard.panqueue.jobs import Held
    from queueyard.panqueue.link import Asker
    from queueyard.panqueue.store import QueueStore
    from queueyard.panqueue.wire import Word

_T = TypeVar("_T")

REPORT_EVERY_S = 0.25
LOG_LINES_KEPT = 1_000
LOG_KEPT_MS = 7 * 86_400_000
_LONGEST_LINE = 10_000
_ANYTHING: Codec[Any] = Codec(name="progress", max_bytes=10_000)


class Desk:
    """One worker's way to write down what its handlers say."""

    def __init__(
        self,
        store: QueueStore,
        asker: Asker,
        *,
        worker: str,
        loop: asyncio.AbstractEventLoop,
        report: Callable[[str, BaseException], None],
    ) -> None:
        self._store = store
        self._asker = asker
        self._worker = worker
        self._loop = loop
        self._report = report
        #: progress of each job that is not written yet; the last one counts
        self._progress: dict[Held[Any], bytes] = {}
        self._lines: list[tuple[Held[Any], str]] = []
        self._writing: asyncio.Task[None] | None = None
        #: whether anything is not written yet; asked for every job that ends, so it is a plain field
        self.is_busy = False
        #: jobs whose words are being written just now: their end must wait for that
        self._on_its_way: set[Held[Any]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._thread = threading.get_ident()

    # --- from any thread ---------------------------------------------------------------------------------------------

    def progress(self, job: Held[Any], value: Any) -> None:
        """NotSerializable, PayloadTooLarge."""
        self._in_loop(self._note_progress, job, _ANYTHING.encode(value))

    def log(self, job: Held[Any], text: str) -> None:
        self._in_loop(self._note_line, job, text[:_LONGEST_LINE])

    def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Let the event loop do something and wait for it; only from another thread than the loop's."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _in_loop(self, note: Callable[..., None], *what: Any) -> None:
        if threading.get_ident() == self._thread:
            # At once: the handler may end with its next step.
            note(*what)
        else:
            self._loop.call_soon_threadsafe(note, *what)

    # --- in the event loop -------------------------------------------------------------------------------------------

    def owes(self, job: Held[Any]) -> bool:
        """Whether something that the job said is not written yet."""
        return job in self._progress or job in self._on_its_way or any(one is job for one, _ in self._lines)

    async def flush(self) -> None:
        """Write everything now; what cannot be written is given up and reported."""
        async with self._one_at_a_time:
            progress, self._progress = self._progress, {}
            lines, self._lines = self._lines, []
            self._on_its_way = {*progress, *(job for job, _ in lines)}
            await self._send(progress, lines)
            self._on_its_way = set()
            self.is_busy = bool(self._progress or self._lines)

    async def _send(self, progress: dict[Held[Any], bytes], lines: list[tuple[Held[Any], str]]) -> None:
        words: list[Word] = [self._store.keys["jobs"], self._worker, LOG_LINES_KEPT, LOG_KEPT_MS]
        for job, line in lines:
            words += (job.id, job.token, "log", line)
        for job, text in progress.items():
            words += (job.id, job.token, "progress", text)
        if not lines and not progress:
            return
        try:
            await self._asker.ask(Ask(scripts.REPORT, self._store.keys.of(scripts.REPORT), words, int))
        except PanqueueError as fault:
            self._report("report", fault)

    async def step(self, job: Held[Any], name: str, result: bytes | None = None) -> bytes | None:
        """The stored result of a step; with `result` it is stored if it was not. LeaseLost."""
        words: list[Word] = [self._store.keys["jobs"], job.id, job.token, name]
        if result is not None:
            words.append(result)
        ask: Ask[Any] = Ask(scripts.STEP, self._store.keys.of(scripts.STEP), words, lambda reply: reply)
        code, stored = await self._asker.ask(ask)
        if Finish(code) is not Finish.DONE:
            raise LeaseLost(f"the lease of job {job.id} is gone: another worker may have it")
        return bytes(stored) if stored is not None else None

    async def children(self, job: Held[Any]) -> dict[str, ChildResult]:
        """How the jobs that this one waited for ended, by their names."""
        key = self._store.keys.job(job.id)
        flat = await self._asker.ask(Ask(None, [], ["HGETALL", key], lambda reply: reply))
        return read_children(flat)

    def _note_progress(self, job: Held[Any], text: bytes) -> None:
        if not job.has_ended:
            self._progress[job] = text
            self.is_busy = True
            self._write_soon()

    def _note_line(self, job: Held[Any], text: str) -> None:
        if not job.has_ended:
            self._lines.append((job, text))
            self.is_busy = True
            self._write_soon()

    def _write_soon(self) -> None:
        if self._writing is None or self._writing.done():
            self._writing = self._loop.create_task(self._write())

    async def _write(self) -> None:
        # The first word is written at once; then nothing for a while, whatever is said meanwhile.
        while self.is_busy:
            await self.flush()
            await asyncio.sleep(REPORT_EVERY_S)

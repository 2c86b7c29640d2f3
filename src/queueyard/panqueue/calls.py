"""What every command of `panqueue` shares: the common options, the server, and how things are shown.

Imports of anything but click happen when a command runs, so that help stays fast.
"""

from __future__ import annotations

from functools import cached_property, update_wrapper
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from queueyard.kernel.output import Output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import msgspec

    from queueyard.panqueue.address import Address
    from queueyard.panqueue.blocking import Line
    from queueyard.panqueue.records import Counts, JobRecord
    from queueyard.panqueue.store import QueueStore, Talk

_T = TypeVar("_T")

_COMMON = (
    click.option("--url", metavar="URL", help="The server (else REDIS_URL, else the embedded one)."),
    click.option("--dir", "folder", metavar="DIR", help="Folder of the embedded server (else PANQUEUE_DIR)."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text."),
)


class Call:
    """One call of one command: which server, and how to print."""

    def __init__(self, *, url: str | None, folder: str | None, as_json: bool) -> None:
        self._url = url
        self._folder = folder
        self.as_json = as_json
        self.out = Output(as_json=as_json)
        self._lines: list[Line] = []
        self._left_out: set[str] = set()

    # --- the server --------------------------------------------------------------------------------------------------

    @cached_property
    def folder(self) -> Path:
        """Where the embedded server lives."""
        from queueyard.panqueue.embedded import default_folder  # noqa: PLC0415
        from queueyard.panqueue.settings import load  # noqa: PLC0415

        settled = load(os.environ, url=self._url, folder=self._folder).values
        return Path(settled.dir).absolute() if settled.dir else default_folder(os.environ)

    @cached_property
    def url(self) -> str:
        """The server's URL; the embedded one is started if it has to be, and is told about on stderr."""
        from queueyard.panqueue.embedded import ensure_running  # noqa: PLC0415
        from queueyard.panqueue.settings import load  # noqa: PLC0415

        settled = load(os.environ, url=self._url, folder=self._folder).values
        if settled.url:
            return settled.url
        running, is_new = ensure_running(self.folder)
        if is_new:
            self.out.note(f"Started an embedded Valkey in {self.folder}; end it with: panqueue serve --stop")
        return running.url

    @cached_property
    def address(self) -> Address:
        from queueyard.panqueue.address import parse_address  # noqa: PLC0415

        return parse_address(self.url)

    @property
    def where(self) -> str:
        """Which server, and who said so; never with its password."""
        from queueyard.panqueue.settings import load  # noqa: PLC0415

        settled = load(os.environ, url=self._url, folder=self._folder)
        origin = {"flag": "--url", "environment": "REDIS_URL"}.get(settled.origin["url"], "embedded")
        return f"{self.address} ({origin})"

    def line(self, tag: str = "") -> Line:
        """A connection to the server that holds the keys of `tag`; closed when the command ends."""
        from queueyard.panqueue.blocking import Line  # noqa: PLC0415

        line = Line(self.address, tag)
        self._lines.append(line)
        return line

    def hold(self, queue_id: str, verb: Callable[..., Talk[_T]], *args: Any, **kwargs: Any) -> _T:
        """Carry one verb about one queue to its end."""
        store = self.store(queue_id)
        return self.line(store.keys.tag).hold(verb(store, *args, **kwargs))

    def store(self, queue_id: str) -> QueueStore:
        from queueyard.panqueue.store import QueueStore  # noqa: PLC0415

        return QueueStore(queue_id)

    def queues(self) -> list[str]:
        """The ids of all queues, on every master of a cluster."""
        from queueyard.panqueue import service  # noqa: PLC0415
        from queueyard.panqueue.blocking import lines_to_all  # noqa: PLC0415

        lines = lines_to_all(self.address)
        self._lines += lines
        return sorted({queue for line in lines for queue in line.hold(service.queues())})

    def counts(self, queue_ids: Sequence[str]) -> list[Counts]:
        """The queues that were named, else all; one of all that holds foreign data is left out, and told about once."""
        from queueyard.panqueue import service  # noqa: PLC0415
        from queueyard.panqueue.errors import ForeignData  # noqa: PLC0415

        if queue_ids:
            return [self.hold(queue_id, service.counts) for queue_id in queue_ids]
        found: list[Counts] = []
        for queue_id in self.queues():
            try:
                found.append(self.hold(queue_id, service.counts))
            except ForeignData:
                if queue_id not in self._left_out:
                    self._left_out.add(queue_id)
                    self.out.note(f"left out: {queue_id} holds somebody else's data; see: panqueue doctor {queue_id}")
        return found

    def finish(self) -> None:
        for line in self._lines:
            line.close()

    # --- showing -----------------------------------------------------------------------------------------------------

    def show_count(self, count: int, done: str, queue_id: str) -> None:
        """How many jobs something was done to."""
        if self.as_json:
            self.out.data({"queue": queue_id, done: count})
        else:
            self.out.text(f"{count} {'job' if count == 1 else 'jobs'} {done}")

    def show_many(
        self, values: Sequence[msgspec.Struct], columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str
    ) -> None:
        """A list: an array as JSON (an empty one too), or a table, or one sentence if there is nothing."""
        if self.as_json:
            self.out.data(values)
        elif values:
            self.out.table(columns, rows)
        else:
            self.out.note(empty)

    def show_jobs(self, jobs: Sequence[JobRecord], empty: str) -> None:
        rows = [
            (one.id, one.status, one.runs, ago(one.finished_at or one.created_at), one.concurrency_key, told(one))
            for one in jobs
        ]
        self.show_many(jobs, ("ID", "STATUS", "RUNS", "AGE", "KEY", "PAYLOAD OR REASON"), rows, empty)


def told(job: JobRecord) -> str:
    """What is worth seeing of a job in one line: why it failed, how far it is, what it is about."""
    if job.failed_reason and job.status == "failed":
        return job.failed_reason
    return f"[{job.progress}] {job.payload}" if job.progress and job.status == "active" else job.payload


def ago(milliseconds: int | None) -> str:
    """The distance to now, for people; by this machine's clock, so that seconds may be off."""
    from datetime import UTC, datetime, timedelta  # noqa: PLC0415

    from queueyard.kernel.clock import SYSTEM_CLOCK, format_duration  # noqa: PLC0415

    if milliseconds is None:
        return "-"
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    return format_duration(max(timedelta(0), SYSTEM_CLOCK.now() - moment))


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the common options, and a `Call` as its first argument; a flag before the command counts too."""

    @click.pass_context
    def run(
        ctx: click.Context, /, *args: Any, url: str | None, folder: str | None, as_json: bool, **options: Any
    ) -> None:
        above: dict[str, Any] = ctx.obj or {}
        call = Call(
            url=url or above.get("url"),
            folder=folder or above.get("folder"),
            as_json=as_json or bool(above.get("as_json")),
        )
        try:
            function(call, *args, **options)
        finally:
            call.finish()

    wrapped: Callable[..., Any] = update_wrapper(run, function)
    for option in reversed(_COMMON):
        wrapped = option(wrapped)
    return wrapped


def common_before(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same options on the script itself: `panqueue --url URL status`."""
    for option in reversed(_COMMON):
        function = option(function)
    return function

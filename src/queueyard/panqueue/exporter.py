"""The state of queues over HTTP for Prometheus: counts as they are now, and times from the events since it was started.

One small server, on the loopback unless it is told otherwise, that answers GET /metrics and nothing else.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import threading
from typing import TYPE_CHECKING, Any

from queueyard.panqueue import service
from queueyard.panqueue.errors import PanqueueError
from queueyard.panqueue.histograms import QueueTimes, histogram_lines
from queueyard.panqueue.metrics import exposition
from queueyard.panqueue.store import QueueStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from queueyard.panqueue.blocking import Line
    from queueyard.panqueue.records import Counts


class Exporter:
    """Collects what one scrape tells; one scrape at a time."""

    def __init__(self, counts: Callable[[], Sequence[Counts]], line_to: Callable[[str], Line]) -> None:
        """`counts`: the queues that are to be told. `line_to`: a connection for a queue's tag."""
        self._counts = counts
        self._line_to = line_to
        self._times: dict[str, QueueTimes] = {}
        self._after: dict[str, str] = {}
        self._lines: dict[str, Line] = {}
        self._guard = threading.Lock()

    def text(self) -> str:
        """Everything as Prometheus text. PanqueueError if the server cannot be asked."""
        with self._guard:
            counts = self._counts()
            for one in counts:
                if one.events_kept:
                    self._catch_up(one.queue)
            told = [self._times[one.queue] for one in counts if one.queue in self._times]
            return exposition(counts) + "".join(f"{line}\n" for line in histogram_lines(told))

    def _catch_up(self, queue: str) -> None:
        store = QueueStore(queue)
        if queue not in self._lines:
            self._lines[queue] = self._line_to(store.keys.tag)
        times = self._times.setdefault(queue, QueueTimes(queue))
        while page := self._lines[queue].hold(service.read_events(store, source="", after=self._after.get(queue, "-"))):
            for entry, event in page:
                self._after[queue] = entry
                times.feed(event)


def serve(exporter: Exporter, host: str, port: int) -> ThreadingHTTPServer:
    """A server that answers scrapes in threads of its own until it is shut down."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != "/metrics":
                self.send_error(404, "try /metrics")
                return
            try:
                body, code = exporter.text().encode(), 200
            except PanqueueError as fault:
                body, code = f"{fault}\n".encode(), 503
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the library's name
            """Scrapes are not worth a line each."""

    server = ThreadingHTTPServer((host, port), Handler)
    threading.Thread(target=server.serve_forever, name="panqueue-metrics", daemon=True).start()
    return server

"""The change feed and the audit stream of a server's spaces, or what a client and an export left in a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from queueyard.ops.events import change_events, refusal_events
from queueyard.ops.records import DEFAULT_SPACE, AuditPage, Change, FeedPage, Refusal
from queueyard.ops.retries import refused
from queueyard.ops.transport import HttpTransport, origin_of
from queueyard.yard.tails.files import GrowingFile, JournalTail, understood

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.kernel.events import Event

_TIMEOUT_S = 10.0
_FEED = "/v1/sync/feed"
_AUDIT = "/v1/sync/audit"
_PAGES: dict[str, type[FeedPage | AuditPage]] = {_FEED: FeedPage, _AUDIT: AuditPage}
_CHANGE, _REFUSAL = msgspec.json.Decoder(Change), msgspec.json.Decoder(Refusal)


class OpsServerTail:
    """The spaces stand behind a `#` in the URL, separated by commas."""

    def __init__(self, url: str) -> None:
        self._server = origin_of(url)
        spaces = [name.strip() for name in urlsplit(url).fragment.split(",") if name.strip()] or [DEFAULT_SPACE]
        token = os.environ.get("JOLLI_TOKEN")
        self._lines = {
            space: HttpTransport(self._server, space=space, token=token, timeout_s=_TIMEOUT_S) for space in spaces
        }
        #: (space, path) -> the number of the entry that was read last
        self._read_to: dict[tuple[str, str], int] = {}

    def read(self) -> Iterator[Event]:
        """After TransportFailed or Refused the next call goes on where this one was."""
        for space in self._lines:
            for path in _PAGES:
                yield from self._read_feed(space, path)

    def _read_feed(self, space: str, path: str) -> Iterator[Event]:
        while True:
            after = self._read_to.get((space, path), 0)
            reply = self._lines[space].exchange("GET", f"{path}?after={after}&limit=1000")
            if reply.status != 200:
                raise refused(reply)
            page = msgspec.json.decode(reply.body, type=_PAGES[path])
            if page.head < after:
                # Another database stands behind the address: its feed is read from its start.
                self._read_to[space, path] = 0
                continue
            yield from (
                change_events(page.entries, source=self._server)
                if isinstance(page, FeedPage)
                else refusal_events(page.entries, source=self._server)
            )
            self._read_to[space, path] = page.last
            if page.last >= page.head:
                return


class OpsFolderTail:
    """Journals of a client's home, and segments that a server exported."""

    def __init__(self, at: str) -> None:
        self._root = Path(at)
        self._journals = JournalTail(lambda: sorted(self._root.glob("**/events.jsonl")))
        self._segments: dict[Path, GrowingFile] = {}

    def read(self) -> Iterator[Event]:
        yield from self._journals.read()
        yield from self._read_segments()

    def _read_segments(self) -> Iterator[Event]:
        for path in sorted([*self._root.glob("**/changes-*.jsonl"), *self._root.glob("**/audit-*.jsonl")]):
            lines = self._segments.setdefault(path, GrowingFile(path)).new_lines()
            if path.name.startswith("changes-"):
                changes = (understood(line, _CHANGE.decode) for line in lines)
                yield from change_events(filter(None, changes), source=str(self._root))
            else:
                refusals = (understood(line, _REFUSAL.decode) for line in lines)
                yield from refusal_events(filter(None, refusals), source=str(self._root))

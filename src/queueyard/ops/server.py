"""The HTTP side of the server: routes, who may use them, how answers and refusals look. No rule of the spec is here.

Each request goes the same way: who is it, may it, is there room; then the body is read, understood, and handed to the
writer. Whatever may take long happens in a pool of threads, and reading answers come from there too. Nothing blocks the
event loop for more than a few milliseconds, so a slow client waits for itself only.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
import logging
import re
import threading
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock, to_rfc3339
from queueyard.ops import openapi, views
from queueyard.ops.access import SOMEBODY_HERE, Caller, RateLimit, caller_of
from queueyard.ops.bodies import ENCODINGS, Budget, decompressed, encoding_of, read_body
from queueyard.ops.errors import LedgerFailed
from queueyard.ops.ledger import Ledger, Push, SpaceName
from queueyard.ops.metrics import CONTENT_TYPE, Metrics
from queueyard.ops.preparing import PreparedBatch, decode, prepare
from queueyard.ops.problems import Problem
from queueyard.ops.records import (
    CLIENT_HEADER,
    LARGEST_NUMBER,
    PROBLEM_TYPE,
    REPLAY_HEADER,
    REQUEST_ID_PATTERN,
    SPACE_HEADER,
    Limits,
    PullRequest,
)
from queueyard.ops.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from queueyard.ops.database import Database
    from queueyard.ops.settings import ServeSettings

_log = logging.getLogger("queueyard.ops.server")
_READERS = 4
_SLUG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CLIENT = re.compile(r"[ -~]{1,128}")
_REQUEST_ID = re.compile(REQUEST_ID_PATTERN)
_PULL = msgspec.json.Decoder(PullRequest)
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HOUSEKEEPING_EVERY_S = 3_600.0
_UNDERSTOOD_AT_ONCE_BYTES = 1 << 20


class Server:
    """Everything that serves one database. `start`, serve `app`, `stop`."""

    def __init__(
        self, database: Database, settings: ServeSettings, *, needs_token: bool, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self.metrics = Metrics()
        self.ready = False
        self._database = database
        self._settings = settings
        self._needs_token = needs_token
        self._clock = clock
        self._rate = RateLimit(settings.rate_per_s, clock)
        self._budget = Budget(settings.max_waiting_bytes)
        self._writer = Writer(
            self._open_ledger, max_waiting=settings.max_waiting, max_waiting_bytes=settings.max_waiting_bytes
        )
        self._pool = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        # One thread of Python works at a time. Understanding a batch while the writer works on another only keeps the
        # writer waiting; in turns, the one is done while the other waits for the disk.
        self._turn: AbstractContextManager[object] = threading.Lock() if database.writers == 1 else nullcontext()
        self._of_thread = threading.local()
        self._ledgers: list[Ledger] = []
        #: spaces are never taken away, so that each is looked up once
        self._known_spaces: set[SpaceName] = set()
        self._cleaned_at = float("-inf")
        self.limits = Limits(
            max_ops=settings.max_ops,
            max_body_bytes=settings.max_body_bytes,
            max_decompressed_bytes=settings.max_decompressed_bytes,
            max_content_bytes=settings.max_content_bytes,
            max_path_bytes=settings.max_path_bytes,
            answers_kept_days=settings.keep_answers_s / 86_400,
            encodings=list(ENCODINGS),
        )
        self._openapi = msgspec.json.encode(openapi.document())
        self.app = Starlette(
            routes=[
                self._route("/v1/sync/push", self._push, "POST"),
                self._route("/v1/sync/pull", self._pull, "POST"),
                self._route("/v1/sync/requests/{request_id}", self._request_status, "GET"),
                self._route("/v1/sync/limits", self._limits, "GET"),
                self._route("/v1/sync/feed", self._feed, "GET"),
                self._route("/v1/sync/audit", self._audit, "GET"),
                self._route("/metrics", self._metrics, "GET"),
                Route("/healthz", self._health),
                Route("/readyz", self._readiness),
                Route("/openapi.json", self._document),
            ],
            exception_handlers={HTTPException: _no_route},
        )
        # A redirect would be an answer that is in no document.
        self.app.router.redirect_slashes = False

    def start(self) -> None:
        """Open the books. LedgerFailed if that cannot be."""
        ledger = self._open_ledger()
        ledger.create()
        ledger.close()
        self._writer.start()
        self._clean_up()
        self.ready = True

    def stop(self) -> None:
        """Apply what was accepted, then let go of everything."""
        self.ready = False
        self._writer.stop()
        self._pool.shutdown()
        for ledger in self._ledgers:
            ledger.close()

    # --- routes ------------------------------------------------------------------------------------------------------

    async def _push(self, request: Request) -> Response:
        caller, space = await self._admitted(request, "push")
        client = request.headers.get(CLIENT_HEADER)
        if client is not None and not _CLIENT.fullmatch(client):
            raise Problem("malformed_header", f"{CLIENT_HEADER} is at most 128 printable characters")
        batch = await self._batch(request)
        push = Push(space=space, batch=batch, client_id=client, user_id=caller.user_id)
        answer = await asyncio.wrap_future(self._writer.submit(push))
        self.metrics.count("jolli_ops_batches_total", outcome="replayed" if answer.replayed else "applied")
        for status, count in answer.counts.items():
            self.metrics.count("jolli_ops_ops_total", count, status=status)
        self._clean_up_sometimes()
        headers = {REPLAY_HEADER: "true"} if answer.replayed else None
        return Response(answer.body, media_type="application/json", headers=headers)

    async def _pull(self, request: Request) -> Response:
        _, space = await self._admitted(request, "read")
        body = await self._body(request)
        encoding = encoding_of(request.headers)

        def answer() -> bytes:
            asked = decode(decompressed(body, encoding, self._settings.max_decompressed_bytes), _PULL)
            return msgspec.json.encode(views.pull(self._ledger(), space, asked))

        return _json(await self._in_pool(answer))

    async def _request_status(self, request: Request) -> Response:
        _, space = await self._admitted(request, "read")
        request_id = request.path_params["request_id"]
        if not _REQUEST_ID.match(request_id):
            raise Problem("unknown_request", "that is no requestId")
        status = await self._in_pool(lambda: views.request_status(self._ledger(), space, request_id))
        return _json(msgspec.json.encode(status))

    async def _limits(self, request: Request) -> Response:
        await self._caller(request)
        return _json(msgspec.json.encode(self.limits))

    async def _feed(self, request: Request) -> Response:
        _, space = await self._admitted(request, "read")
        after, limit = _number(request, "after", 0, least=0), _number(request, "limit", 1_000, least=1)
        content = _flag(request, "content")
        page = await self._in_pool(
            lambda: msgspec.json.encode(views.feed(self._ledger(), space, after=after, limit=limit, content=content))
        )
        return _json(page)

    async def _audit(self, request: Request) -> Response:
        _, space = await self._admitted(request, "read")
        after, limit = _number(request, "after", 0, least=0), _number(request, "limit", 1_000, least=1)
        page = await self._in_pool(
            lambda: msgspec.json.encode(views.audit(self._ledger(), space, after=after, limit=limit))
        )
        return _json(page)

    async def _metrics(self, request: Request) -> Response:
        caller = await self._caller(request)
        if not caller.scopes & {"read", "admin"}:
            raise Problem("scope_missing", "the token has no scope 'read'")
        gauges = {
            "jolli_ops_waiting_batches": self._writer.waiting,
            "jolli_ops_waiting_bytes": self._writer.waiting_bytes,
            "jolli_ops_ready": int(self.ready),
        }
        return Response(self.metrics.text(gauges), headers={"Content-Type": CONTENT_TYPE})

    async def _health(self, _: Request) -> Response:
        return _json(b'{"status":"alive"}')

    async def _readiness(self, _: Request) -> Response:
        if not self.ready:
            return _refused(Problem("shutting_down", retry_after_s=5))
        try:
            await self._in_pool(lambda: views.spaces(self._ledger()))
        except LedgerFailed:
            return _refused(Problem("storage_failed", retry_after_s=5))
        return _json(b'{"status":"ready"}')

    async def _document(self, _: Request) -> Response:
        return _json(self._openapi)

    # --- the way of a request ----------------------------------------------------------------------------------------

    def _route(self, path: str, handle: Callable[[Request], Awaitable[Response]], method: str) -> Route:
        async def measured(request: Request) -> Response:
            started = self._clock.monotonic()
            response = await self._answered(handle, request)
            seconds = self._clock.monotonic() - started
            self.metrics.count("jolli_ops_requests_total", route=path, status=str(response.status_code))
            self.metrics.took(path, seconds)
            _log.debug("%s %s %d %.1f ms", method, path, response.status_code, seconds * 1000)
            return response

        return Route(path, measured, methods=[method])

    async def _answered(self, handle: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        try:
            return await handle(request)
        except Problem as problem:
            return _refused(problem)
        except LedgerFailed as fault:
            _log.error("%s", fault)
            return _refused(Problem("storage_failed", retry_after_s=5))
        except ClientDisconnect:
            # Nobody hears it, but the count should have a status.
            return _refused(Problem("body_timeout", "the client hung up"))
        except Exception:  # noqa: BLE001  a bug too is answered as everything else
            _log.exception("a request failed")
            return _refused(Problem("internal"))

    async def _admitted(self, request: Request, scope: str) -> tuple[Caller, SpaceName]:
        """Who it is and which space is meant, before a byte of the body is read."""
        caller = await self._caller(request)
        slug = request.headers.get(SPACE_HEADER)
        if slug is not None and not _SLUG.fullmatch(slug):
            raise Problem("unknown_space", "that is no name of a space")
        space = caller.space(slug, scope)
        if space not in self._known_spaces:
            await self._in_pool(lambda: views.check_space(self._ledger(), space))
            self._known_spaces.add(space)
        return caller, space

    async def _caller(self, request: Request) -> Caller:
        presented = request.headers.get("authorization")
        if presented is None:
            if self._needs_token:
                raise Problem("token_required", "Authorization: Bearer ...")
            _refuse_foreign_names(request)
            return SOMEBODY_HERE
        kind, _, token = presented.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise Problem("token_invalid", "Authorization: Bearer ...")
        caller: Caller = await self._in_pool(lambda: caller_of(self._ledger(), token.strip(), clock=self._clock))
        self._rate.count(caller)
        return caller

    async def _batch(self, request: Request) -> PreparedBatch:
        """The batch of a push. Problem if it is none.

        Our client withholds the newline at its end until it is its turn; what is before it is understood meanwhile.
        """
        encoding = encoding_of(request.headers)
        ahead: list[Future[PreparedBatch]] = []

        def understand(body: bytes) -> None:
            if encoding is None:
                ahead.append(self._pool.submit(self._understood_in_turn, body))

        body = await self._body(request, on_nearly_whole=understand)
        if ahead and body.endswith(b"\n"):
            return await asyncio.wrap_future(ahead[0])
        return await self._prepared(body, encoding)

    async def _body(self, request: Request, on_nearly_whole: Callable[[bytes], None] = lambda _: None) -> bytes:
        settings = self._settings
        body = await read_body(
            request.stream(),
            request.headers,
            most=settings.max_body_bytes,
            timeout_s=settings.body_timeout_s,
            budget=self._budget,
            on_nearly_whole=on_nearly_whole,
        )
        self.metrics.count("jolli_ops_received_bytes_total", len(body))
        return body

    async def _prepared(self, body: bytes, encoding: str | None) -> PreparedBatch:
        # A usual batch takes a millisecond or two, less than it costs to hand it to another thread and back on a busy
        # machine; what is large, or grows when it is unpacked, would keep everybody else waiting.
        if encoding is None and len(body) <= _UNDERSTOOD_AT_ONCE_BYTES:
            return self._understood(body, encoding)
        batch: PreparedBatch = await self._in_pool(self._understood, body, encoding)
        return batch

    def _understood(self, body: bytes, encoding: str | None) -> PreparedBatch:
        return prepare(decompressed(body, encoding, self._settings.max_decompressed_bytes), self.limits)

    def _understood_in_turn(self, body: bytes) -> PreparedBatch:
        with self._turn if len(body) <= _UNDERSTOOD_AT_ONCE_BYTES else nullcontext():
            return self._understood(body, None)

    async def _in_pool(self, act: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, act, *args)

    def _open_ledger(self) -> Ledger:
        return Ledger(self._database, clock=self._clock, turn=self._turn)

    def _ledger(self) -> Ledger:
        """The line of this reading thread."""
        ledger: Ledger | None = getattr(self._of_thread, "ledger", None)
        if ledger is None:
            ledger = self._of_thread.ledger = self._open_ledger()
            self._ledgers.append(ledger)
        return ledger

    def _clean_up_sometimes(self) -> None:
        if self._clock.monotonic() - self._cleaned_at > _HOUSEKEEPING_EVERY_S:
            self._clean_up()

    def _clean_up(self) -> None:
        self._cleaned_at = self._clock.monotonic()
        before = to_rfc3339(self._clock.now() - timedelta(seconds=self._settings.keep_answers_s))
        self._writer.run(lambda ledger: ledger.expire_answers(before))


def _refuse_foreign_names(request: Request) -> None:
    """Without a token the server is for this machine; a web page whose name was made to point here is not."""
    host = request.headers.get("host", "").lower()
    name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
    if name not in _LOOPBACK_NAMES:
        raise Problem("forbidden_host", "without a token this server is known as localhost only")


def _number(request: Request, name: str, default: int, *, least: int) -> int:
    texts = request.query_params.getlist(name)
    if not texts:
        return default
    text = texts[-1]
    if not text.isascii() or not text.isdigit() or not least <= int(text[:20]) <= LARGEST_NUMBER:
        raise Problem("malformed_query", f"{name} is a number from {least} on")
    return int(text)


def _flag(request: Request, name: str) -> bool:
    text = request.query_params.get(name, "false")
    if text not in {"true", "false"}:
        raise Problem("malformed_query", f"{name} is true or false")
    return text == "true"


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")


def _refused(problem: Problem) -> Response:
    headers = {"Retry-After": str(problem.retry_after_s)} if problem.retry_after_s is not None else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(problem.body(), status_code=problem.status, media_type=PROBLEM_TYPE, headers=headers)


async def _no_route(_: Request, fault: Exception) -> Response:
    status = fault.status_code if isinstance(fault, HTTPException) else 404
    response = _refused(Problem("method_not_allowed" if status == 405 else "unknown_route"))
    if isinstance(fault, HTTPException):
        response.headers.update(fault.headers or {})
    return response

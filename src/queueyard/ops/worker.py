"""The pusher: sends what is queued, batch by batch, in order, until nothing is left or the server does not go on.

Spec: Queue Flow; Retry & Resume Rules. Only the failed batch is tried again; an answered batch is never sent again,
not even after a kill -9, because its answer is noted before anything else happens. A batch that is refused as a whole
is split until the op that is to blame is found; that one goes to `dead/` and the rest goes on.

While the server works on a batch, the next one is read and sent, all but its last byte, and what is left to do for
those before is done aside: their events are told and their files cleared away. Between an answer and the end of the
next batch there is only the note of the answer.
"""

from __future__ import annotations

from contextlib import closing, suppress
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.events import Kind
from queueyard.ops.errors import CorruptBatch, PushStopped, ServerLostProgress, TransportFailed
from queueyard.ops.records import Answer, Manifest, NotedOp, PushRequest, PushResponse, RequestStatus, Status
from queueyard.ops.retries import Asking, refused
from queueyard.ops.rules import Next, after_reply, halves
from queueyard.ops.store import noted
from queueyard.ops.transport import Begun

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.ops.aside import Aside
    from queueyard.ops.service import Ops
    from queueyard.ops.transport import Reply

PUSH_PATH = "/v1/sync/push"
REQUEST_PATH = "/v1/sync/requests/"
#: answered batches whose files are cleared away together; more of them cost disk, fewer cost time
_CLEARED_TOGETHER = 16
_RESPONSE = msgspec.json.Decoder(PushResponse)


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """One batch that was answered just now."""

    request_id: str
    batch_index: int
    total_batches: int
    ops: int
    bytes: int
    #: 1: at once
    attempts: int


class _Batch(msgspec.Struct, frozen=True):
    """One batch as it is sent, and what has to be noted of its ops."""

    body: bytes
    ops: list[NotedOp]
    #: not None: all but the last byte is sent
    begun: Begun | None = None


class Outcome(msgspec.Struct, kw_only=True):
    """What a push did, all requests together."""

    requests: int = 0
    batches: int = 0
    applied: int = 0
    conflicts: int = 0
    rejected: int = 0
    #: ops whose fate is not known, because the answer was gone: the next pull tells
    unknown: int = 0
    bytes: int = 0
    retries: int = 0
    #: what had to be repaired or set aside, in words
    notes: list[str] = msgspec.field(default_factory=list)


def resume(
    ops: Ops,
    *,
    on_sent: Callable[[Sent], None] = lambda _: None,
    on_retry: Callable[[int, str], None] = lambda _attempt, _why: None,
) -> Outcome:
    """Send everything that is queued, from the first pending batch on. Nothing queued: nothing happens.

    PushStopped if the server cannot be reached or takes nothing now, Refused if it refuses the caller; in both cases
    what is left stays queued.
    """
    with ops.queue.locked() as repairs, ops.asking() as asking, closing(ops.aside()) as aside:
        pusher = _Pusher(ops, asking, aside, on_sent=on_sent, on_retry=on_retry)
        pusher.outcome.notes += repairs
        try:
            while manifests := ops.queue.requests():
                pusher.push(manifests[0])
        except TransportFailed as fault:
            left = ops.status()
            batches = "1 batch" if left.pending_batches == 1 else f"{left.pending_batches} batches"
            raise PushStopped(
                f"{fault}; {left.pending_ops} ops in {batches} stay queued",
                pending_batches=left.pending_batches,
                pending_ops=left.pending_ops,
                hint=fault.hint,
            ) from fault
        return pusher.outcome


class _Pusher:
    def __init__(
        self,
        ops: Ops,
        asking: Asking,
        aside: Aside,
        *,
        on_sent: Callable[[Sent], None],
        on_retry: Callable[[int, str], None],
    ) -> None:
        self.outcome = Outcome()
        self._ops = ops
        self._queue = ops.queue
        self._asking = asking
        self._aside = aside
        self._on_sent = on_sent
        self._on_retry = on_retry
        #: the batch whose turn is next, if it was begun
        self._ahead: _Batch | None = None

    def push(self, manifest: Manifest) -> None:
        """Send what is pending of one request; returns early when a batch of it was split: that part goes first."""
        answered: list[int] = []
        pending = self._queue.pending(manifest)
        self._ahead = None
        try:
            for index, following in zip_longest(pending, pending[1:]):
                if not self._push_batch(manifest, index, following):
                    return
                answered.append(index)
                if len(answered) == _CLEARED_TOGETHER:
                    self._aside.finish()
                    self._aside.do(partial(self._clear, manifest, answered))
                    answered = []
        finally:
            # A process that was killed here finds the noted answers, and clears them away by `finish`.
            self._ops.take_over(self._queue.answers(manifest))
            self._aside.do(partial(self._clear, manifest, answered))
            self._aside.finish()
        self._queue.finish(manifest, keep=self._ops.settings.keep_completed)
        self.outcome.requests += 1

    def _push_batch(self, manifest: Manifest, index: int, following: int | None) -> bool:
        """Whether the batch is answered; if not, its ops have gone elsewhere, and the queue looks different now."""
        batch = self._begun(manifest, index)
        reply, response, attempt = self._ask(
            manifest, index, batch, meanwhile=partial(self._look_ahead, manifest, following)
        )
        if response is not None:
            self._take(manifest, index, batch, response, attempt)
            return True
        match after_reply(reply.status, reply.code):
            case Next.GONE:
                return self._give_up_answer(manifest, index, "its answer is no longer kept")
            case Next.OUT_OF_ORDER:
                return self._reconcile(manifest, index, reply)
            case Next.BURY:
                return self._bury_all(manifest, index, reply, attempt)
            case Next.SPLIT:
                return self._split(manifest, index, reply, attempt)
            case _:
                raise refused(reply)

    # --- one exchange ------------------------------------------------------------------------------------------------

    def _load(self, manifest: Manifest, index: int) -> _Batch:
        body = self._queue.read(manifest, index)
        return _Batch(body, noted(body))

    def _begin(self, manifest: Manifest, index: int) -> _Batch:
        batch = self._load(manifest, index)
        return msgspec.structs.replace(batch, begun=self._asking.transport.begin("POST", PUSH_PATH, batch.body))

    def _look_ahead(self, manifest: Manifest, index: int | None) -> None:
        """Begin the next batch while the server works on one. What is wrong with it matters when it is its turn."""
        with suppress(QueueyardError):
            self._ahead = None if index is None else self._begin(manifest, index)

    def _begun(self, manifest: Manifest, index: int) -> _Batch:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            return ahead
        try:
            return self._begin(manifest, index)
        except CorruptBatch as fault:
            aside = self._queue.quarantine(manifest, index)
            self.outcome.notes.append(f"{fault}; set aside as {aside}")
            self._tell(Kind.FAILED, manifest, index, reason="corrupt")
            return self._load(manifest, index)

    def _ask(
        self, manifest: Manifest, index: int, batch: _Batch, *, meanwhile: Callable[[], None]
    ) -> tuple[Reply, PushResponse | None, int]:
        """The reply, what it says if it is an answer, and which attempt it was that got it."""
        responses: list[PushResponse] = []

        def understood(reply: Reply) -> bool:
            if reply.status != 200:
                return True
            try:
                response = _RESPONSE.decode(reply.body)
            except (msgspec.MsgspecError, UnicodeDecodeError):
                return False
            if not _answers(response, manifest, index):
                return False
            responses.append(response)
            return True

        def on_retry(attempt: int, why: str) -> None:
            self.outcome.retries += 1
            self._tell(Kind.RETRIED, manifest, index, attempt=attempt + 1, reason=why[:200])
            self._on_retry(attempt, why)

        def on_try(attempt: int) -> None:
            self._tell(Kind.STARTED, manifest, index, attempt=attempt)

        reply, attempt = self._asking.ask(
            "POST",
            PUSH_PATH,
            batch.body,
            begun=batch.begun,
            meanwhile=meanwhile,
            understood=understood,
            on_try=on_try,
            on_retry=on_retry,
        )
        return reply, responses[0] if responses else None, attempt

    def _take(self, manifest: Manifest, index: int, batch: _Batch, response: PushResponse, attempt: int) -> None:
        """Note an answer, then tell of it."""
        self._note(manifest, index, batch, response)
        self._tell(Kind.SUCCEEDED, manifest, index, attempt=attempt, **_counted(response))
        self.outcome.batches += 1
        self.outcome.bytes += len(batch.body)
        self._on_sent(
            Sent(
                request_id=manifest.request_id,
                batch_index=index,
                total_batches=manifest.total_batches,
                ops=len(response.results),
                bytes=len(batch.body),
                attempts=attempt,
            )
        )

    def _note(self, manifest: Manifest, index: int, batch: _Batch, response: PushResponse) -> None:
        """Everything that the answer says is safe before the answer is noted; a crash in between asks again."""
        counts = _counted(response)
        if counts[Status.REJECTED]:
            self._bury_rejected(manifest, index, batch.body, response)
        results = {result.op_id: result for result in response.results}
        ops = [msgspec.structs.replace(op, result=results.get(op.op_id)) for op in batch.ops]
        at = to_rfc3339(self._ops.clock.now())
        self._queue.note_answer(manifest, Answer(batch_index=index, ops=ops, at=at))
        self.outcome.applied += counts[Status.APPLIED]
        self.outcome.conflicts += counts[Status.CONFLICT]
        self.outcome.rejected += counts[Status.REJECTED]

    def _bury_rejected(self, manifest: Manifest, index: int, body: bytes, response: PushResponse) -> None:
        for op, result in zip(msgspec.json.decode(body, type=PushRequest).ops, response.results, strict=True):
            if result.status is Status.REJECTED:
                reason = result.detail or result.code or "rejected"
                self._ops.bury(op, code=result.code or "rejected", reason=reason, manifest=manifest, index=index)

    def _clear(self, manifest: Manifest, answered: list[int]) -> None:
        if answered:
            self._queue.clear(manifest, answered, keep=self._ops.settings.keep_completed)

    # --- refusals ----------------------------------------------------------------------------------------------------

    def _split(self, manifest: Manifest, index: int, reply: Reply, attempt: int) -> bool:
        if self._is_done_there(manifest, index):
            # The try before this one was applied, and the refusal is about something else: a limit that was lowered.
            return self._give_up_answer(manifest, index, "it was applied before it was refused")
        request = self._queue.read_request(manifest, index)
        code, reason = _why(reply)
        if not request.ops:
            raise refused(reply)
        if len(request.ops) == 1:
            op = request.ops[0]
            size = len((op.content or "").encode())
            told = f"{op.server_path} ({size} bytes): {reason}"
            self._ops.bury(op, code=code, reason=told, status=reply.status, manifest=manifest, index=index)
            self._queue.empty(manifest, index)
            self.outcome.rejected += 1
        else:
            self._ops.split(manifest, index, halves(request.ops))
        self._tell(Kind.FAILED, manifest, index, attempt=attempt, reason=code, ops=len(request.ops))
        return False

    def _bury_all(self, manifest: Manifest, index: int, reply: Reply, attempt: int) -> bool:
        """The server knows another batch under this key: no part of ours can be sent under it."""
        code, reason = _why(reply)
        ops = self._queue.read_request(manifest, index).ops
        for op in ops:
            self._ops.bury(op, code=code, reason=reason, status=reply.status, manifest=manifest, index=index)
        self._queue.note_answer(manifest, Answer(batch_index=index, ops=[], at=to_rfc3339(self._ops.clock.now())))
        self._tell(Kind.FAILED, manifest, index, attempt=attempt, reason=code, ops=len(ops))
        self.outcome.rejected += len(ops)
        return True

    def _give_up_answer(self, manifest: Manifest, index: int, why: str) -> bool:
        """The server is done with this batch, but nobody can tell how it went."""
        ops = noted(self._queue.read(manifest, index))
        self._queue.note_answer(manifest, Answer(batch_index=index, ops=ops, at=to_rfc3339(self._ops.clock.now())))
        self.outcome.unknown += len(ops)
        self.outcome.notes.append(f"batch {index} of {manifest.request_id}: {why}; the next pull tells how it went")
        return True

    def _reconcile(self, manifest: Manifest, index: int, reply: Reply) -> bool:
        expected = reply.problem().get("expectedIndex")
        if isinstance(expected, int) and expected > index:
            return self._give_up_answer(manifest, index, "the server is past it")
        raise ServerLostProgress(
            f"the server has forgotten batches of {manifest.request_id} that it once answered: it expects "
            f"{expected}, and {index} is the first that is left",
            hint=f"See what it has, then send anew: jolli-ops pending drop {manifest.request_id} && jolli-ops pull",
        )

    def _is_done_there(self, manifest: Manifest, index: int) -> bool:
        reply, _ = self._asking.ask("GET", REQUEST_PATH + manifest.request_id)
        if reply.status != 200:
            return False
        try:
            return msgspec.json.decode(reply.body, type=RequestStatus).done_batches >= index
        except msgspec.MsgspecError:
            return False

    # --- events ------------------------------------------------------------------------------------------------------

    def _tell(self, kind: Kind, manifest: Manifest, index: int, **fields: Any) -> None:
        """It happened now; that it is written down need not be waited for."""
        now = self._ops.clock.now()
        self._aside.do(lambda: self._ops.journal.append(self._ops.event(now, kind, manifest, index, **fields)))


def _answers(response: PushResponse, manifest: Manifest, index: int) -> bool:
    """Whether this is about that batch; an emptied one is answered without results."""
    same = (response.request_id, response.batch_index) == (manifest.request_id, index)
    return same and len(response.results) in {0, manifest.batches[index - 1].ops}


def _counted(response: PushResponse) -> dict[str, int]:
    counts = {status.value: 0 for status in Status}
    for result in response.results:
        counts[result.status] += 1
    return counts


def _why(reply: Reply) -> tuple[str, str]:
    problem = reply.problem()
    code = reply.code or f"http_{reply.status}"
    return code, str(problem.get("detail") or problem.get("title") or f"the server answers {reply.status}")

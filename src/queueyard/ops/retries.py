"""Ask a server until it answers for good or the time is up: full jitter, Retry-After honoured.

What may be asked again is decided by `rules.after_reply`; every request of ours can be repeated without harm.
"""

from __future__ import annotations

from collections.abc import Callable
import random
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.clock import Clock, format_duration
from queueyard.ops.errors import Refused, TransportFailed
from queueyard.ops.rules import Next, after_reply, wait_ms
from queueyard.ops.transport import Transport

if TYPE_CHECKING:
    from queueyard.ops.transport import Begun, Reply


class Asking(msgspec.Struct, frozen=True, kw_only=True):
    """How to ask: over what, how long to go on, and by whose clock and dice."""

    transport: Transport
    clock: Clock
    #: how long one question may be repeated; 0: ask once
    retry_for_s: float
    #: numbers in [0, 1)
    dice: Callable[[], float] = random.random

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        begun: Begun | None = None,
        meanwhile: Callable[[], None] = lambda: None,
        understood: Callable[[Reply], bool] = lambda _: True,
        on_try: Callable[[int], None] = lambda _attempt: None,
        on_retry: Callable[[int, str], None] = lambda _attempt, _why: None,
    ) -> tuple[Reply, int]:
        """The first reply that is none to retry, and how many attempts it took.

        `begun`: the first attempt, as far as it was sent already; `meanwhile` is done until its reply comes. A reply
        that is not `understood` (cut, or made up by something in between) counts as none. TransportFailed if there was
        none in time.
        """
        started = self.clock.monotonic()
        attempt = 0
        while True:
            attempt += 1
            retry_after_s = None
            on_try(attempt)
            try:
                first = begun if attempt == 1 else None
                reply = first.finish(meanwhile) if first else self.transport.exchange(method, path, body)
                if after_reply(reply.status, reply.code) is not Next.RETRY and understood(reply):
                    return reply, attempt
                why, retry_after_s = _told(reply), reply.retry_after_s
                fault: Exception | None = None
            except TransportFailed as failed:
                why, fault = str(failed), failed
            pause_s = wait_ms(attempt, retry_after_s, self.dice) / 1000
            if self.clock.monotonic() - started + pause_s > self.retry_for_s:
                raise self._too_late(why, retry_after_s) from fault
            on_retry(attempt, why)
            self.clock.sleep(pause_s)

    def _too_late(self, why: str, retry_after_s: float | None) -> TransportFailed:
        from datetime import timedelta  # noqa: PLC0415

        later = "" if retry_after_s is None else f" (it asks for {format_duration(timedelta(seconds=retry_after_s))})"
        return TransportFailed(why, hint=f"What is queued stays queued. Try again later{later}: jolli-ops resume")


def refused(reply: Reply) -> Refused:
    """The refusal of the caller as an error, with the next thing to type."""
    problem = reply.problem()
    code = reply.code or "refused"
    told = problem.get("detail") or problem.get("title") or f"the server answers {reply.status}"
    hints = {
        401: "Set the token: export JOLLI_TOKEN=...    or make one: jolli-ops token create",
        403: "Ask for a token with the right scope: jolli-ops token create --scope push --space NAME",
        404: "Name a space that is there: --space NAME    or make it: jolli-ops space create NAME",
    }
    return Refused(f"the server refuses: {told}", status=reply.status, code=code, hint=hints.get(reply.status))


def _told(reply: Reply) -> str:
    problem = reply.problem()
    detail = problem.get("detail") or problem.get("title") or ""
    return f"the server answers {reply.status}" + (f": {detail}" if detail else "")

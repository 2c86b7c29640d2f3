"""What an error reply of the server means: which of our errors it is, and what to type next."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from queueyard.panqueue.address import Node
from queueyard.panqueue.errors import (
    AccessDenied,
    ForeignData,
    PanqueueError,
    ServerFull,
    ServerRefused,
    ServerUnreachable,
)

if TYPE_CHECKING:
    from queueyard.panqueue.wire import Refusal

#: the server is there but cannot answer now, or another one can: ask again, perhaps elsewhere
TRANSIENT = frozenset(
    {"LOADING", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED", "ASK", "READONLY", "BUSY", "UNBLOCKED"}
)
_MOVED = re.compile(r"(?:MOVED|ASK) \d+ (.*):(\d+)")


def explained(refusal: Refusal, where: object) -> PanqueueError:
    """The error to raise for a reply that nobody expected."""
    code, text = refusal.code, str(refusal)
    if code in TRANSIENT:
        return ServerUnreachable(f"{where} cannot answer now: {text}", hint="Try again in a moment: panqueue doctor")
    if code in {"NOAUTH", "WRONGPASS"} or "invalid password" in text or "invalid username-password" in text:
        return AccessDenied(
            f"{where} refuses the password: {text}", hint="Put it into the URL: redis://user:password@host:6379/0"
        )
    if code == "NOPERM" or "permission" in text or "can't run this command" in text:
        return AccessDenied(f"{where} does not permit that: {text}", hint="See what is missing: panqueue doctor")
    if code == "OOM":
        return ServerFull(
            f"{where} is out of memory and takes no more jobs: {text}",
            hint="Free some: panqueue clean QUEUE --state completed    or raise maxmemory.",
        )
    if code == "WRONGTYPE":
        return ForeignData(
            f"somebody else's data stands in the place of the queue's, at {where}: {text}",
            hint="Use another queue id or another database; `panqueue doctor QUEUE` names the keys.",
        )
    return ServerRefused(f"{where} refuses: {text}", hint="See what is wrong: panqueue doctor")


def moved_to(refusal: Refusal, asked: Node) -> Node | None:
    """Which node of a cluster to ask instead; None for any other error. An empty host means the one we asked."""
    found = _MOVED.match(str(refusal))
    return Node(host=found[1] or asked.host, port=int(found[2])) if found else None


def unreachable(where: object, why: object) -> ServerUnreachable:
    return ServerUnreachable(
        f"no answer from {where}: {why}",
        hint="Check REDIS_URL, or start a server here: panqueue serve",
    )

"""The verbs of queen as MCP tools: one small function each.

The name, docstring and parameters of a function are what an agent sees, so every word of them is paid for in every
conversation. Nothing here knows the protocol.
"""

from __future__ import annotations

from collections.abc import Callable
import inspect
from typing import TYPE_CHECKING, Annotated, Literal, get_type_hints

import msgspec

from queueyard.queen.errors import TimedOut
from queueyard.queen.records import Raw
from queueyard.queen.service import Queen  # noqa: TC001  get_type_hints looks for it

if TYPE_CHECKING:
    from collections.abc import Mapping

    from queueyard.queen.records import Message

LONGEST_WAIT_S = 300
PREVIEW_CHARACTERS = 500

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
#: a call with more than zero of it may take that long, and gets a `Queen` of its own
WaitS = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)]
Texts = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Importance = Literal["low", "normal", "high", "urgent"]
Status = Literal["active", "completed", "released", "reassigned", "all"]


def send(
    queen: Queen,
    to: str,
    body: str,
    subject: str | None = None,
    issue: str | None = None,
    importance: Importance = "normal",
) -> object:
    """Send a message to an agent, to human, or to @all."""
    return [_receipt(one) for one in queen.send(to, body, subject=subject, issue=issue, importance=importance)]


def inbox(queen: Queen, unread: bool = False, mark: bool = False, limit: Limit = 20) -> object:
    """Your messages, newest first, long ones cut; with mark they come whole and count as read."""
    found = queen.inbox(unread=unread, mark=mark, limit=limit)
    return found if mark else _cut(found)


def wait(queen: Queen, wait_s: WaitS = 30, sender: str | None = None, limit: Limit = 20) -> object:
    """Your unread messages as soon as there are any, [] after wait_s; they come again until you read them."""
    try:
        return _cut(queen.wait(timeout_s=wait_s, sender=sender)[:limit])
    except TimedOut:
        return []


def read(queen: Queen, id: str, peek: bool = False) -> object:  # noqa: A002  what the agent types
    """One whole message; it then counts as read, unless peek."""
    return queen.read(id, peek=peek)


def reply(queen: Queen, id: str, body: str) -> object:  # noqa: A002  what the agent types
    """Answer a message in its thread."""
    return _receipt(queen.reply(id, body))


def thread(queen: Queen, key: str, limit: Limit = 20) -> object:
    """The latest messages of a conversation, oldest first, by message id or issue."""
    return queen.thread(key)[-limit:]


def search(queen: Queen, text: str, mine: bool = False, limit: Limit = 20) -> object:
    """Messages with this text in subject or body, newest first, long ones cut."""
    return _cut(queen.search(text, mine=mine, limit=limit))


def assign(queen: Queen, issue: str, agent: str, reason: str | None = None) -> object:
    """Give an issue to an agent, taking it from whoever holds it."""
    return queen.assign(issue, agent, reason=reason)


def claim(queen: Queen, issue: str, take: bool = False, reason: str | None = None) -> object:
    """Take an issue for yourself; with take even from another agent."""
    return queen.claim(issue, take=take, reason=reason)


def next_(queen: Queen) -> object:
    """Claim the best ready issue that nobody holds; null if none is ready."""
    return queen.next()


def release(queen: Queen, issue: str, reason: str | None = None) -> object:
    """Give your issue back, unfinished."""
    return queen.release(issue, reason=reason)


def complete(queen: Queen, issue: str, reason: str | None = None) -> object:
    """Say that your work on an issue is done."""
    return queen.complete(issue, reason=reason)


def assignments(
    queen: Queen, agent: str | None = None, issue: str | None = None, status: Status = "active", limit: Limit = 20
) -> object:
    """Who works on what, newest first."""
    return queen.assignments(agent=agent, issue=issue, status=None if status == "all" else status)[:limit]


def reserve(
    queen: Queen,
    patterns: Texts,
    ttl: str | None = None,
    shared: bool = False,
    issue: str | None = None,
    reason: str | None = None,
    wait_s: WaitS = 0,
) -> object:
    """Keep others out of files, all globs or none, for ttl (like 45m); with wait_s wait for them to become free."""
    return queen.reserve(patterns, ttl=ttl, shared=shared, issue=issue, reason=reason, wait_s=wait_s)


def renew(queen: Queen, patterns: tuple[str, ...] = (), ttl: str | None = None) -> object:
    """Hold your reservations (patterns or ids; none: all) for ttl from now."""
    return queen.renew(*patterns, ttl=ttl)


def unreserve(queen: Queen, patterns: tuple[str, ...] = ()) -> object:
    """Give your reservations back (patterns or ids; none: all)."""
    return queen.unreserve(*patterns)


def reserved(queen: Queen, agent: str | None = None, path: str | None = None, limit: Limit = 20) -> object:
    """What is reserved now, by an agent or over a path, soonest to end first."""
    return queen.reserved(agent=agent, path=path)[:limit]


def conflicts(queen: Queen, mine: bool = False, limit: Limit = 20) -> object:
    """Pairs of agents on the same files, with a suggestion."""
    return queen.conflicts(mine=mine)[:limit]


def check(queen: Queen, paths: Texts) -> object:
    """May you edit these paths now, and if not, who holds them?"""
    return queen.check(*paths)


def whoami(queen: Queen) -> object:
    """Your name, the root of the repository, and who else there is."""
    return {"agent": queen.agent, "root": str(queen.home.root), "droids": queen.droids()}


_FUNCTIONS: tuple[Callable[..., object], ...] = (
    *(send, inbox, wait, read, reply, thread, search),
    *(assign, claim, next_, release, complete, assignments),
    *(reserve, renew, unreserve, reserved, conflicts, check, whoami),
)


def _receipt(message: Message) -> Raw:
    """What the sender does not know yet."""
    return {"id": message.id, "to": message.to}


def _cut(messages: list[Message]) -> list[Message]:
    return [_preview(one) if len(one.body) > PREVIEW_CHARACTERS else one for one in messages]


def _preview(message: Message) -> Message:
    left = len(message.body) - PREVIEW_CHARACTERS
    start = message.body[:PREVIEW_CHARACTERS]
    return msgspec.structs.replace(message, body=f"{start}... ({left} more characters: read {message.id})")


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function, and how it is listed and called."""

    function: Callable[..., object]
    name: str
    description: str
    arguments: type[msgspec.Struct]
    #: JSON Schema of the arguments
    schema: Raw


def _tool(function: Callable[..., object]) -> Tool:
    name = function.__name__.rstrip("_")
    kinds = get_type_hints(function, include_extras=True)
    _, *parameters = inspect.signature(function).parameters.values()
    fields = [(one.name, kinds[one.name], *([] if one.default is one.empty else [one.default])) for one in parameters]
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    schema = msgspec.json.schema_components([arguments])[1][name]
    return Tool(
        function=function,
        name=name,
        description=inspect.getdoc(function) or "",
        arguments=arguments,
        schema={key: value for key, value in _brief(schema).items() if key != "title"},
    )


def _brief(schema: Raw) -> Raw:
    """Without "or null, which is the default": an agent leaves out what it does not want to say."""
    # Some agents refuse a choice that does not say that it is text.
    told: Raw = {"type": "string"} if "enum" in schema else {}
    for kind in schema.get("anyOf", ()):
        told |= kind if kind["type"] != "null" else {}
    rest = {key: value for key, value in schema.items() if key != "anyOf" and value is not None}
    if "properties" in rest:
        rest["properties"] = {name: _brief(value) for name, value in rest["properties"].items()}
    return told | rest


TOOLS: Mapping[str, Tool] = {tool.name: tool for tool in map(_tool, _FUNCTIONS)}

"""`queen mcp`: the verbs of queen as tools of an MCP server on stdin and stdout, for agents without a shell.

A tool is one function below. Its name, docstring and parameters are what an agent sees, so every word of them is paid
for in every conversation. An answer is compact JSON, a refusal an error result with its hint, and nothing that a call
does ends the server. Only `serve` needs the package `mcp`.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
import difflib
import inspect
import logging
import math
import signal
from threading import Lock
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

import msgspec

from queueyard import __version__
from queueyard.kernel.clock import SystemClock
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.log import start_logging
from queueyard.queen.errors import InvalidValue, TimedOut
from queueyard.queen.service import Queen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from queueyard.queen.records import Message, Raw

INSTRUCTIONS = (
    "Other agents work in this repository too. Claim an issue before you work on it, reserve or check files before "
    "you edit them, and look into your inbox. Hints name commands of the `queen` script; the tools are called alike."
)
LONGEST_WAIT_S = 300
PREVIEW_CHARACTERS = 500

_LOG = logging.getLogger(__name__)
_LOOKS_ONLY = frozenset({"wait", "thread", "search", "assignments", "reserved", "conflicts", "check", "whoami"})

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]
#: a call with more than zero of it may take that long, and gets a `Queen` of its own
WaitS = Annotated[float, msgspec.Meta(ge=0, le=LONGEST_WAIT_S)]
Texts = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Importance = Literal["low", "normal", "high", "urgent"]
Status = Literal["active", "completed", "released", "reassigned", "all"]

# --- the tools -------------------------------------------------------------------------------------------------------


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

# --- from a function to a tool, and from a call to an answer ---------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """What goes back to the agent."""

    texts: tuple[str, ...]
    is_error: bool = False


class Desk:
    """Answers calls from any thread. They take turns at one `Queen`; a call that may wait opens its own."""

    def __init__(self, open_queen: Callable[[], Queen]) -> None:
        self._open_queen = open_queen
        self._queen = open_queen()
        self._turn = Lock()

    def close(self) -> None:
        self._queen.close()

    def answer(self, name: str, arguments: Raw) -> Answer:
        """Never raises: whatever goes wrong becomes an error answer."""
        try:
            return self._call(name, arguments)
        except QueueyardError as fault:
            return Answer(texts=(f"{fault}\nHint: {fault.hint}" if fault.hint else str(fault),), is_error=True)
        except Exception:  # noqa: BLE001  a call must not end the server
            _LOG.exception("the tool %s failed", name)
            return Answer(texts=(f"{name} failed; the log of the server tells why",), is_error=True)

    def _call(self, name: str, arguments: Raw) -> Answer:
        tool = TOOLS.get(name)
        if tool is None:
            near = difflib.get_close_matches(name, TOOLS, n=1)
            raise InvalidValue(f"no tool {name!r}", hint=f"Did you mean {near[0]!r}?" if near else None)
        try:
            # Not strict: some agents write numbers and booleans as text.
            wanted = msgspec.structs.asdict(msgspec.convert(arguments, tool.arguments, strict=False))
        except msgspec.ValidationError as fault:
            raise InvalidValue(f"{name}: {fault}", hint=f"It takes: {', '.join(tool.schema['properties'])}") from fault
        if wanted.get("wait_s"):
            with self._open_queen() as own:
                return _told(tool.function(own, **wanted), wanted.get("limit"))
        with self._turn:
            return _told(tool.function(self._queen, **wanted), wanted.get("limit"))


def _told(found: object, limit: int | None) -> Answer:
    """Compact JSON, and a word behind a list that may go on."""
    text = msgspec.json.encode(_slim(msgspec.to_builtins(found))).decode()
    may_go_on = isinstance(found, list) and limit is not None and len(found) >= limit
    return Answer(texts=(text, "There may be more: raise limit.") if may_go_on else (text,))


def _slim(value: Any) -> Any:
    """Without what is empty, and without the second name that the format gives to an owner."""
    if isinstance(value, list):
        return [_slim(one) for one in value]
    if not isinstance(value, dict):
        return value
    owners = {name: value.get(name) or value.get(second) for name, second in _SECOND_NAMES.items()}
    told = {key: one for key, one in (value | owners).items() if key not in _UNTOLD and one not in (None, "", [])}
    return {key: _slim(one) for key, one in told.items()}


_SECOND_NAMES = {"agent": "droid", "previous_agent": "previous_droid"}
_UNTOLD = frozenset({*_SECOND_NAMES.values(), "deleted"})


def _receipt(message: Message) -> Raw:
    """What the sender does not know yet."""
    return {"id": message.id, "to": message.to}


def _cut(messages: list[Message]) -> list[Message]:
    return [_preview(one) if len(one.body) > PREVIEW_CHARACTERS else one for one in messages]


def _preview(message: Message) -> Message:
    left = len(message.body) - PREVIEW_CHARACTERS
    start = message.body[:PREVIEW_CHARACTERS]
    return msgspec.structs.replace(message, body=f"{start}... ({left} more characters: read {message.id})")


# --- the server ------------------------------------------------------------------------------------------------------


class _CallersClock(SystemClock):
    """Wakes whoever sleeps for a caller that has hung up or taken the call back."""

    def __init__(self, check_caller: Callable[[], None]) -> None:
        self._check_caller = check_caller

    def sleep(self, seconds: float) -> None:
        self._check_caller()
        super().sleep(seconds)


def serve(*, start: Path | None, agent: str | None, beads: Path | None) -> None:
    """Serve until stdin ends. QueueyardError if the package `mcp` or the repository is missing."""
    try:
        from anyio import CapacityLimiter, from_thread, run, to_thread  # noqa: PLC0415  comes with mcp
        from mcp.server.lowlevel import Server  # noqa: PLC0415  a second of imports
        from mcp.server.stdio import stdio_server  # noqa: PLC0415
        import mcp_types as types  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise QueueyardError(
            f"the MCP server needs a package that is not installed: {missing.name}",
            hint="pip install 'queueyard[mcp]'",
        ) from missing

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(
            tools=[
                types.Tool(
                    name=tool.name,
                    description=tool.description,
                    input_schema=tool.schema,
                    annotations=types.ToolAnnotations(
                        read_only_hint=tool.name in _LOOKS_ONLY, destructive_hint=False, open_world_hint=False
                    ),
                )
                for tool in TOOLS.values()
            ]
        )

    async def listen(desk: Desk) -> None:
        # Without a limit, because any number of calls may be waiting and others must still get through.
        threads = CapacityLimiter(math.inf)

        async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            answer = await to_thread.run_sync(desk.answer, params.name, params.arguments or {}, limiter=threads)
            content: list[types.ContentBlock] = [types.TextContent(text=text) for text in answer.texts]
            return types.CallToolResult(content=content, is_error=answer.is_error)

        server = Server(
            "queen",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=list_tools,
            on_call_tool=call_tool,
        )
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    start_logging()
    clock = _CallersClock(from_thread.check_cancelled)
    with closing(Desk(lambda: Queen.open(start, agent=agent, beads=beads, clock=clock))) as desk:
        # The thread that reads stdin cannot be woken, and would keep an interrupted server alive.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        run(listen, desk)

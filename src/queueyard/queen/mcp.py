"""`queen mcp`: the tools of mcp_tools.py served on stdin and stdout, for agents without a shell.

An answer is compact JSON, a refusal an error result with its hint, and nothing that a call does ends the server. Only
`serve` needs the package `mcp`.
"""

from __future__ import annotations

from contextlib import closing
import difflib
import logging
import math
import signal
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard import __version__
from queueyard.kernel.clock import SystemClock
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.log import start_logging
from queueyard.queen.errors import InvalidValue
from queueyard.queen.mcp_tools import TOOLS
from queueyard.queen.service import Queen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from queueyard.queen.records import Raw

INSTRUCTIONS = (
    "Other agents work in this repository too. Claim an issue before you work on it, reserve or check files before "
    "you edit them, and look into your inbox. Hints name commands of the `queen` script; the tools are called alike."
)

_LOG = logging.getLogger(__name__)
_LOOKS_ONLY = frozenset({"wait", "thread", "search", "assignments", "reserved", "conflicts", "check", "whoami"})


class Answer(msgspec.Struct, frozen=True, kw_only=True):
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

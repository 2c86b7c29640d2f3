"""The MCP server, driven by the real client of the package `mcp` over stdio: two agents in one repository.

Both servers live as long as the module, because starting one costs seconds; each test finds empty files.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import queueyard
from queueyard.kernel.errors import QueueyardError
from queueyard.queen.errors import NoBeads
from queueyard.queen.mcp import serve
from queueyard.queen.mcp_tools import LONGEST_WAIT_S, PREVIEW_CHARACTERS, TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal
    from mcp import Client
    from mcp_types import CallToolResult

# In CI a missing part is a failure: the imports in the fixtures then say which one.
if os.environ.get("CI") != "true":
    pytest.importorskip("mcp", reason="needs pip install 'queueyard[mcp]'")

SOURCES = str(Path(queueyard.__file__).parents[1])
BOUND_S = 60
VERBS = [
    *("send", "inbox", "wait", "read", "reply", "thread", "search"),
    *("assign", "claim", "next", "release", "complete", "assignments"),
    *("reserve", "renew", "unreserve", "reserved", "conflicts", "check", "whoami"),
]
ISSUES = [f"qb-{number}" for number in range(1, 25)]


class Agent:
    """One agent with its client; calls are synchronous, `start` leaves one under way."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self._portal = portal
        self._client = client

    def start(self, tool: str, **arguments: Any) -> Future[CallToolResult]:
        return self._portal.start_task_soon(self._client.call_tool, tool, arguments)

    def call(self, tool: str, **arguments: Any) -> Any:
        """What the tool answers, which must be compact JSON without empty fields."""
        return answer_of(self.start(tool, **arguments))

    def refused(self, tool: str, **arguments: Any) -> str:
        """What the tool says when it refuses."""
        result = self.start(tool, **arguments).result(BOUND_S)
        assert result.is_error
        return texts_of(result)[0]

    def texts(self, tool: str, **arguments: Any) -> list[str]:
        result = self.start(tool, **arguments).result(BOUND_S)
        assert not result.is_error
        return texts_of(result)

    def listing(self) -> list[Any]:
        return self._portal.call(self._client.list_tools).tools


def texts_of(result: CallToolResult) -> list[str]:
    assert result.structured_content is None
    assert {block.type for block in result.content} == {"text"}
    return [block.text for block in result.content if block.type == "text"]


def answer_of(future: Future[CallToolResult]) -> Any:
    result = future.result(BOUND_S)
    text = texts_of(result)[0]
    assert not result.is_error, text
    value = json.loads(text)
    assert text == msgspec.json.encode(value).decode()
    assert "null" not in text or value is None
    return value


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    (root / ".beads").mkdir()
    lines = [
        msgspec.json.encode(
            {"id": name, "title": f"Issue {name}", "status": "open", "created_at": "2026-01-01T00:00:00Z"}
        )
        for name in ISSUES
    ]
    (root / ".beads" / "issues.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (root / ".factory" / "droids").mkdir(parents=True)
    for droid in ("ui-engineer", "api-engineer"):
        (root / ".factory" / "droids" / f"{droid}.md").touch()
    return root


@pytest.fixture(scope="module")
def hire(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Agent]]:
    """Start a server for an agent, and its client; `before` is code that the server runs first."""
    from anyio.from_thread import start_blocking_portal
    from mcp import Client, StdioServerParameters, stdio_client

    with start_blocking_portal() as portal, ExitStack() as stack:

        def hire(name: str, *, log: Path | None = None, before: str = "", mode: str = "auto") -> Agent:
            errors = stack.enter_context((log or tmp_path_factory.mktemp("log") / name).open("w"))
            server = StdioServerParameters(
                command=sys.executable,
                args=["-c", server_code(name, before=before)],
                env={"PYTHONPATH": SOURCES},
                cwd=repository,
            )
            client = Client(stdio_client(server, errors), read_timeout_seconds=BOUND_S, mode=mode)
            return Agent(portal, stack.enter_context(portal.wrap_async_context_manager(client)))

        yield hire


def server_code(agent: str, *, before: str = "") -> str:
    return f"from queueyard.queen.cli import main\n{before}\nmain(['mcp', '--agent', {agent!r}])"


@pytest.fixture(scope="module")
def agents(hire: Callable[..., Agent]) -> tuple[Agent, Agent]:
    return hire("ui-engineer"), hire("api-engineer")


@pytest.fixture(autouse=True)
def empty_files(repository: Path) -> None:
    for path in (repository / ".beads").glob("queen_*.jsonl"):
        path.unlink()


@pytest.fixture
def ui(agents: tuple[Agent, Agent]) -> Agent:
    return agents[0]


@pytest.fixture
def api(agents: tuple[Agent, Agent]) -> Agent:
    return agents[1]


# --- the listing -----------------------------------------------------------------------------------------------------


def test_every_verb_is_a_tool(ui: Agent) -> None:
    assert [tool.name for tool in ui.listing()] == VERBS


def test_the_listing_is_cheap_to_read(ui: Agent) -> None:
    listing = ui.listing()

    shown = [{"name": t.name, "description": t.description, "input_schema": t.input_schema} for t in listing]
    assert len(msgspec.json.encode(shown)) < 6500
    for tool in listing:
        assert tool.description[-1] in ".?"
        assert tool.description.count(". ") == 0
        assert len(tool.input_schema["required"]) <= 2


def test_a_schema_names_types_defaults_and_bounds(ui: Agent) -> None:
    schemas = {tool.name: tool.input_schema for tool in ui.listing()}

    assert schemas["wait"] == {
        "type": "object",
        "properties": {
            "wait_s": {"type": "number", "minimum": 0, "maximum": LONGEST_WAIT_S, "default": 30},
            "sender": {"type": "string"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 20},
        },
        "required": [],
        "additionalProperties": False,
    }
    assert schemas["send"]["required"] == ["to", "body"]
    assert schemas["send"]["properties"]["importance"] == {
        "type": "string",
        "enum": ["high", "low", "normal", "urgent"],
        "default": "normal",
    }


def test_tools_that_only_look_say_so(ui: Agent) -> None:
    looks_only = {tool.name for tool in ui.listing() if tool.annotations.read_only_hint}

    assert looks_only == {"wait", "thread", "search", "assignments", "reserved", "conflicts", "check", "whoami"}


def test_whoami_names_the_agent_its_repository_and_the_droids(ui: Agent, repository: Path) -> None:
    assert ui.call("whoami") == {
        "agent": "ui-engineer",
        "root": str(repository),
        "droids": ["api-engineer", "ui-engineer"],
    }


# --- messages --------------------------------------------------------------------------------------------------------


def test_a_message_goes_from_one_agent_to_the_other_and_back(ui: Agent, api: Agent) -> None:
    [receipt] = ui.call("send", to="api-engineer", body="Which port?", subject="Port", issue="qb-1", importance="high")

    [listed] = api.call("inbox", unread=True)
    read = api.call("read", id=receipt["id"])
    answer = api.call("reply", id=receipt["id"], body="8080")
    told = ui.call("thread", key=receipt["id"])

    assert receipt == {"id": listed["id"], "to": "api-engineer"}
    assert listed == {
        "id": receipt["id"],
        "created_at": listed["created_at"],
        "from": "ui-engineer",
        "to": "api-engineer",
        "subject": "Port",
        "body": "Which port?",
        "issue_id": "qb-1",
        "importance": "high",
        "read": False,
    }
    assert read == listed | {"read": True, "read_at": read["read_at"]}
    assert api.call("inbox", unread=True) == []
    assert answer["to"] == "ui-engineer"
    assert [(message["from"], message["body"]) for message in told] == [
        ("ui-engineer", "Which port?"),
        ("api-engineer", "8080"),
    ]
    assert told[1]["reply_to"] == told[1]["thread_id"] == receipt["id"]


def test_peeking_leaves_a_message_unread_and_marking_does_not(ui: Agent, api: Agent) -> None:
    [receipt] = ui.call("send", to="api-engineer", body="hello")

    api.call("read", id=receipt["id"], peek=True)
    still_unread = api.call("inbox", unread=True)
    [marked] = api.call("inbox", unread=True, mark=True)

    assert [message["id"] for message in still_unread] == [receipt["id"]]
    assert marked["read"] is True
    assert api.call("inbox", unread=True) == []


def test_a_long_body_is_cut_in_lists_and_whole_when_read(ui: Agent, api: Agent) -> None:
    body = "x" * PREVIEW_CHARACTERS + "yz"
    [receipt] = ui.call("send", to="api-engineer", body=body)
    cut = f"{'x' * PREVIEW_CHARACTERS}... (2 more characters: read {receipt['id']})"

    lists = [api.call("inbox"), api.call("wait", wait_s=0), api.call("search", text="xy")]

    assert [[message["body"] for message in found] for found in lists] == [[cut], [cut], [cut]]
    assert api.call("thread", key=receipt["id"])[0]["body"] == body
    assert api.call("inbox", mark=True)[0]["body"] == body
    assert api.call("read", id=receipt["id"])["body"] == body


def test_a_message_to_all_reaches_everybody_else(ui: Agent, api: Agent) -> None:
    receipts = ui.call("send", to="@all", body="Freeze at noon")

    assert [receipt["to"] for receipt in receipts] == ["api-engineer"]
    assert [message["body"] for message in api.call("inbox")] == ["Freeze at noon"]
    assert ui.call("inbox") == []


def test_a_list_that_reaches_its_limit_says_that_there_may_be_more(ui: Agent, api: Agent) -> None:
    for number in range(22):
        ui.call("send", to="api-engineer", body=f"number {number}")

    by_default = api.texts("inbox")
    of_thirty = api.texts("inbox", limit=30)

    assert len(json.loads(by_default[0])) == 20
    assert by_default[1:] == ["There may be more: raise limit."]
    assert len(json.loads(of_thirty[0])) == 22
    assert of_thirty[1:] == []


def test_wait_returns_as_soon_as_the_other_agent_sends_and_blocks_no_other_tool(ui: Agent, api: Agent) -> None:
    waiting = [api.start("wait", wait_s=BOUND_S) for _ in range(45)]
    api.call("whoami")
    api.call("claim", issue="qb-1")
    assert not any(future.done() for future in waiting)

    [receipt] = ui.call("send", to="api-engineer", body="now")

    assert [[message["id"] for message in answer_of(future)] for future in waiting] == [[receipt["id"]]] * 45


def test_wait_passes_over_messages_from_others_than_the_wanted_sender(ui: Agent, api: Agent) -> None:
    api.call("send", to="api-engineer", body="a note to myself")
    waiting = api.start("wait", wait_s=BOUND_S, sender="ui-engineer")
    api.call("whoami")
    assert not waiting.done()

    ui.call("send", to="api-engineer", body="now")

    assert [message["body"] for message in answer_of(waiting)] == ["now"]


def test_wait_returns_an_empty_list_when_nothing_came(api: Agent) -> None:
    assert api.call("wait", wait_s=0) == []
    assert api.call("wait", wait_s=0.1) == []


# --- assignments -----------------------------------------------------------------------------------------------------


def test_a_claimed_issue_is_refused_to_others_until_it_is_taken(ui: Agent, api: Agent) -> None:
    claimed = ui.call("claim", issue="qb-1", reason="mine")

    refusal = api.refused("claim", issue="qb-1")
    taken = api.call("claim", issue="qb-1", take=True)

    assert (claimed["agent"], claimed["status"], claimed["reason"]) == ("ui-engineer", "active", "mine")
    assert refusal.startswith("qb-1 is held by ui-engineer since ")
    assert "\nHint: " in refusal
    assert (taken["agent"], taken["previous_agent"]) == ("api-engineer", "ui-engineer")
    assert "droid" not in taken


def test_an_issue_goes_through_assign_release_and_complete(ui: Agent, api: Agent) -> None:
    assigned = ui.call("assign", issue="qb-2", agent="api-engineer", reason="knows it")
    not_mine = ui.refused("complete", issue="qb-2")
    released = api.call("release", issue="qb-2", reason="stuck")
    ui.call("claim", issue="qb-2")
    completed = ui.call("complete", issue="qb-2")

    assert (assigned["agent"], assigned["assigned_by"]) == ("api-engineer", "ui-engineer")
    assert not_mine.startswith("qb-2 is held by api-engineer")
    assert (released["status"], released["reason"]) == ("released", "stuck")
    assert completed["status"] == "completed"
    assert ui.call("assignments") == []
    assert [one["status"] for one in ui.call("assignments", status="all", issue="qb-2")] == ["completed", "released"]
    assert [one["agent"] for one in ui.call("assignments", status="all", agent="api-engineer")] == ["api-engineer"]


def test_next_never_gives_one_issue_to_two_agents(ui: Agent, api: Agent) -> None:
    calls = [agent.start("next") for _ in range(len(ISSUES) // 2) for agent in (ui, api)]

    given = [answer_of(call) for call in calls]

    assert sorted(one["issue"]["id"] for one in given) == sorted(ISSUES)
    assert all(one["assignment"]["issue_id"] == one["issue"]["id"] for one in given)
    assert ui.call("next") is None


# --- reservations ----------------------------------------------------------------------------------------------------


def test_a_conflicting_reservation_is_refused_and_names_the_holder(ui: Agent, api: Agent) -> None:
    held = ui.call("reserve", patterns=["src/ui/**"], ttl="30m", issue="qb-1", reason="Button")

    refusal = api.refused("reserve", patterns=["docs/*", "src/*/button.ts"])

    assert [(one["pattern"], one["agent"], one["exclusive"]) for one in held["reserved"]] == [
        ("src/ui/**", "ui-engineer", True)
    ]
    assert "src/*/button.ts: ui-engineer holds src/ui/** exclusively until " in refusal
    assert "(Button)" in refusal
    assert "\nHint: " in refusal
    assert [one["pattern"] for one in api.call("reserved")] == ["src/ui/**"]


def test_check_tells_for_each_path_who_is_in_the_way(ui: Agent, api: Agent) -> None:
    ui.call("reserve", patterns=["src/ui/**"])

    free, taken = api.call("check", paths=["docs/a.md", "src/ui/a.ts"])

    assert free == {"path": "docs/a.md", "allowed": True}
    assert (taken["path"], taken["allowed"]) == ("src/ui/a.ts", False)
    assert [one["agent"] for one in taken["held_by"]] == ["ui-engineer"]
    assert [one["allowed"] for one in ui.call("check", paths=["src/ui/a.ts"])] == [True]


def test_a_reservation_is_renewed_listed_and_given_back(ui: Agent, api: Agent) -> None:
    [before] = ui.call("reserve", patterns=["src/a"], ttl="10m")["reserved"]
    [renewed] = ui.call("renew", ttl="5h")
    not_mine = api.refused("unreserve", patterns=["src/a"])
    by_path = [api.call("reserved", path=path) for path in ("src/a", "src/b")]
    by_agent = [api.call("reserved", agent=agent) for agent in ("ui-engineer", "api-engineer")]
    [given_back] = ui.call("unreserve", patterns=["src/a"])

    assert renewed["id"] == before["id"]
    assert renewed["expires_at"] > before["expires_at"]
    assert not_mine.startswith("src/a is held by ui-engineer")
    assert [len(found) for found in by_path] == [1, 0]
    assert [len(found) for found in by_agent] == [1, 0]
    assert given_back["status"] == "released"
    assert ui.call("reserved") == []


def test_reserve_waits_until_the_other_agent_gives_the_files_back(ui: Agent, api: Agent) -> None:
    ui.call("reserve", patterns=["src/**"])
    waiting = api.start("reserve", patterns=["src/a"], wait_s=BOUND_S)
    api.call("whoami")
    assert not waiting.done()

    ui.call("unreserve")

    assert [one["agent"] for one in answer_of(waiting)["reserved"]] == ["api-engineer"]


def test_a_record_of_a_tool_that_writes_only_droid_shows_its_owner(ui: Agent, repository: Path) -> None:
    foreign = {
        "id": "qr-1",
        "pattern": "src/**",
        "droid": "api-engineer",
        "agent": "",
        "expires_at": "2999-01-01T00:00:00Z",
    }
    (repository / ".beads" / "queen_reservations.jsonl").write_bytes(msgspec.json.encode(foreign) + b"\n")

    [listed] = ui.call("reserved")

    assert listed["agent"] == "api-engineer"
    assert "droid" not in listed


def test_an_overlap_of_shared_and_exclusive_use_is_told(ui: Agent, api: Agent) -> None:
    ui.call("reserve", patterns=["src/**"])
    answer = api.call("reserve", patterns=["src/a"], shared=True)

    [overlap] = api.call("conflicts", mine=True)

    assert answer["warnings"][0].startswith("src/a: ui-engineer holds src/**")
    assert (overlap["clash"], overlap["example"]) == ("warns", "src/a")
    assert overlap["reservation_a"]["agent"] == "ui-engineer"
    assert overlap["suggestion"]


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("send", {"to": "ui-enginer", "body": "x"}, "unknown droid: 'ui-enginer'; did you mean 'ui-engineer'?\nHint: "),
        ("send", {"to": "ui-engineer", "body": "x" * 70_000}, "the message is "),
        ("send", {"to": "ui-engineer"}, "send: Object missing required field `body`\nHint: It takes: to, body, "),
        ("send", {"to": "ui-engineer", "body": "x", "urgent": True}, "send: Object contains unknown field `urgent`"),
        ("send", {"to": "ui-engineer", "body": "x", "importance": "huge"}, "send: Invalid enum value 'huge'"),
        ("read", {"id": "qm-nothing"}, "no message 'qm-nothing'\nHint: "),
        ("claim", {"issue": "qb-100"}, "Beads has no issue 'qb-100'; did you mean 'qb-10'?\nHint: "),
        ("wait", {"wait_s": LONGEST_WAIT_S + 1}, "wait: Expected `float` <= 300.0 - at `$.wait_s`"),
        ("inbox", {"limit": 0}, "inbox: Expected `int` >= 1 - at `$.limit`"),
        ("reserve", {"patterns": []}, "reserve: Expected `array` of length >= 1 - at `$.patterns`"),
        ("reserve", {"patterns": ["a["]}, "bad pattern 'a[': "),
        ("reserve", {"patterns": ["a"], "ttl": "0s"}, "the time to live must be longer than zero"),
        ("check", {"paths": ["/elsewhere"]}, "/elsewhere is outside the repository "),
        ("calim", {"issue": "qb-1"}, "no tool 'calim'\nHint: Did you mean 'claim'?"),
    ],
)
def test_a_refusal_is_an_error_result_and_the_server_goes_on(
    ui: Agent, tool: str, arguments: dict[str, Any], said: str
) -> None:
    refusal = ui.refused(tool, **arguments)

    assert refusal.startswith(said)
    assert "Traceback" not in refusal
    assert ui.call("whoami")["agent"] == "ui-engineer"


def test_numbers_and_booleans_may_come_as_text(ui: Agent, api: Agent) -> None:
    ui.call("send", to="api-engineer", body="x")

    assert len(api.call("inbox", unread="true", limit="5")) == 1


def test_an_agent_that_is_no_droid_is_refused_at_each_call(hire: Callable[..., Agent]) -> None:
    stranger = hire("ui-enginer")

    assert stranger.refused("whoami").startswith("unknown droid: 'ui-enginer'; did you mean 'ui-engineer'?")
    assert stranger.refused("inbox").startswith("unknown droid: 'ui-enginer'")
    assert stranger.call("reserved") == []


def test_a_fault_of_the_program_goes_to_the_log_and_not_to_the_agent(
    hire: Callable[..., Agent], tmp_path: Path
) -> None:
    log = tmp_path / "log"
    breaking = "from queueyard.queen.service import Queen\nQueen.next = lambda queen: {}['the inner detail']"

    agent = hire("ui-engineer", log=log, before=breaking)
    refusal = agent.refused("next")

    assert refusal == "next failed; the log of the server tells why"
    assert "KeyError: 'the inner detail'" in log.read_text()
    assert agent.call("whoami")["agent"] == "ui-engineer"


# --- the life of the server ------------------------------------------------------------------------------------------


def test_clients_of_the_older_protocol_are_served_too(hire: Callable[..., Agent]) -> None:
    agent = hire("ui-engineer", mode="legacy")

    assert [tool.name for tool in agent.listing()] == list(TOOLS)
    assert agent.call("whoami")["agent"] == "ui-engineer"


@contextmanager
def server_that_waits(repository: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in the middle of the longest wait, and idle otherwise."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    requests: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "wait", "arguments": {"wait_s": LONGEST_WAIT_S}}},
        {"id": 3, "method": "tools/call", "params": {"name": "whoami", "arguments": {}}},
    ]
    with subprocess.Popen(
        [sys.executable, "-c", server_code("ui-engineer")],
        cwd=repository,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin
        assert server.stdout
        try:
            for request in requests:
                server.stdin.write(msgspec.json.encode({"jsonrpc": "2.0", **request}) + b"\n")
                server.stdin.flush()
            assert [json.loads(server.stdout.readline())["id"] for _ in range(2)] == [1, 3]
            yield server
        finally:
            server.kill()


def test_a_server_whose_client_hangs_up_during_a_wait_ends_cleanly(repository: Path) -> None:
    with server_that_waits(repository) as server:
        assert server.stdin
        server.stdin.close()

        assert server.wait(BOUND_S) == 0


def test_an_interrupt_ends_the_server_at_once(repository: Path) -> None:
    with server_that_waits(repository) as server:
        server.send_signal(signal.SIGINT)

        assert server.wait(BOUND_S) == -signal.SIGINT


def test_without_a_repository_the_server_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(NoBeads):
        serve(start=tmp_path, agent="ui-engineer", beads=None)


def test_without_the_package_the_hint_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch, repository: Path) -> None:
    monkeypatch.setitem(sys.modules, "mcp_types", None)

    with pytest.raises(QueueyardError, match="mcp_types") as fault:
        serve(start=repository, agent="ui-engineer", beads=None)

    assert fault.value.hint == "pip install 'queueyard[mcp]'"

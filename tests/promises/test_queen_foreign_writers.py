"""Tools that append without any lock work beside ours: no line of either is lost or broken, and everybody sees all.

The foreign tool here uses nothing of ours: it opens, writes one line, and closes, as the public tool of the format
does.
"""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.queen import Queen
from queueyard.queen.archive import archive
from queueyard.queen.store import ASSIGNMENTS, MESSAGES, RESERVATIONS

if TYPE_CHECKING:
    from pathlib import Path

LINES = 400

FOREIGN = """
import json, os, sys
beads, me, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
kinds = {
    "queen_messages.jsonl": lambda n: {"from": me, "to": "ui", "body": "x" * (n * 37 % 900), "importance": "normal"},
    "queen_assignments.jsonl": lambda n: {"issue_id": f"{me}-{n}", "droid": me, "status": "active"},
    "queen_reservations.jsonl": lambda n: {"pattern": f"{me}/{n}", "droid": me, "status": "active",
                                           "expires_at": "2099-01-01T00:00:00Z", "exclusive": True},
}
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    for name, record in kinds.items():
        if len(sys.argv) > 4 and sys.argv[4] != name:
            continue
        line = {"id": f"{me}-{number}", "created_at": "2026-01-01T00:00:00Z", "n": number, **record(number)}
        descriptor = os.open(os.path.join(beads, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(descriptor, (json.dumps(line) + "\\n").encode())
        os.close(descriptor)
"""

OURS = """
import pathlib, sys
from queueyard.queen import Queen
root, me, count = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
queen = Queen.open(root, agent=me, environment={"QUEEN_CHECK_ISSUES": "false", "QUEEN_LOCK_TIMEOUT_S": "60"})
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    queen.send("ui", "y" * (number * 53 % 900), subject=str(number))
    if number % 4 == 0:
        queen.reserve([f"{me}/{number}", f"{me}/also/{number}"])
        queen.claim(f"{me}-{number}")
"""

READER = """
import pathlib, sys
from queueyard.queen import Queen
queen = Queen.open(pathlib.Path(sys.argv[1]), agent="ui", environment={})
print("ready", flush=True)
sys.stdin.readline()
seen = (0, 0, 0)
for _ in range(50_000):
    if seen == tuple(map(int, sys.argv[2:])):
        break
    now = (len(queen.inbox(limit=0)), len(queen.reserved()), len(queen.assignments()))
    assert all(after >= before for before, after in zip(seen, now)), f"{now} after {seen}"
    seen = now
print(*seen, flush=True)
"""


class Crew:
    """Processes that are all ready before the first may go."""

    def __init__(self, stack: ExitStack, programs: list[list[str]]) -> None:
        self._members = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for words in programs
        ]
        for member in self._members:
            assert member.stdout is not None
            assert member.stdout.readline() == "ready\n"

    def go(self) -> None:
        for member in self._members:
            assert member.stdin is not None
            member.stdin.write("go\n")
            member.stdin.close()

    def running(self) -> bool:
        return any(member.poll() is None for member in self._members)

    def finish(self) -> list[str]:
        """What each one said last."""
        told = [member.stdout.read() for member in self._members if member.stdout is not None]
        assert [member.wait() for member in self._members] == [0] * len(self._members)
        return told


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".beads").mkdir()
    return tmp_path


def records_in(path: Path) -> list[dict[str, Any]]:
    """Every line, which must be one whole record."""
    content = path.read_bytes()
    assert content.endswith(b"\n")
    return [json.loads(line) for line in content.decode().split("\n")[:-1]]


def by(records: list[dict[str, Any]], who: str) -> list[dict[str, Any]]:
    return [one for one in records if who in {one.get("from"), one.get("droid")}]


def test_no_line_of_either_side_is_lost_or_broken_and_a_reader_sees_all(root: Path) -> None:
    beads = root / ".beads"
    messages, held, work = 4 * LINES, 2 * LINES + LINES, 2 * LINES + LINES // 2
    with ExitStack() as stack:
        crew = Crew(
            stack,
            [
                *([FOREIGN, str(beads), name, str(LINES)] for name in ("foreign-1", "foreign-2")),
                *([OURS, str(root), name, str(LINES)] for name in ("ours-1", "ours-2")),
                [READER, str(root), str(messages), str(held), str(work)],
            ],
        )
        crew.go()
        *_, seen = crew.finish()

    sent, assigned, reserved = (records_in(beads / name) for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS))
    assert seen.split() == [str(messages), str(held), str(work)]
    for name in ("foreign-1", "foreign-2"):
        for records in (sent, assigned, reserved):
            assert [one["n"] for one in by(records, name)] == list(range(LINES))
    for name in ("ours-1", "ours-2"):
        assert [one["subject"] for one in by(sent, name)] == [str(number) for number in range(LINES)]
        assert len(by(assigned, name)) == LINES // 4
        assert len(by(reserved, name)) == LINES // 2
    assert (len(sent), len(assigned), len(reserved)) == (messages, work, held)


def test_an_archiver_loses_nothing_of_a_tool_that_does_not_lock(root: Path) -> None:
    beads = root / ".beads"
    runs = 0
    with ExitStack() as stack, Queen.open(root, agent="ui", environment={}) as queen:
        crew = Crew(stack, [[FOREIGN, str(beads), name, str(LINES * 10), MESSAGES] for name in ("one", "two")])
        queen.send("ui", "so that there is a file")
        crew.go()
        while crew.running() or runs < 3:
            queen.inbox(limit=50, unread=True, mark=True)
            archive(queen.store, SYSTEM_CLOCK, before=datetime.max.replace(tzinfo=UTC))
            runs += 1
        crew.finish()

    archived = [one for path in (beads / "queen_archive").iterdir() for one in records_in(path)]
    everything = archived + records_in(beads / MESSAGES)
    for name in ("one", "two"):
        assert {one["n"] for one in by(everything, name)} == set(range(LINES * 10))
    assert len({one["id"] for one in archived}) >= 100


def test_a_line_that_a_foreign_tool_left_torn_costs_that_line_only(root: Path) -> None:
    beads = root / ".beads"
    with Queen.open(root, agent="ui", environment={"QUEEN_CHECK_ISSUES": "false"}) as queen:
        for name in (MESSAGES, ASSIGNMENTS, RESERVATIONS):
            (beads / name).write_bytes(b'{"id":"x-1","to":"ui","issue_id":"qb-1","pattern":"a","droid":"th')

        [sent] = queen.send("ui", "text")
        claimed = queen.claim("qb-1")
        [reserved] = queen.reserve(["a"]).reserved

        assert queen.inbox() == [sent]
        assert queen.assignments() == [claimed]
        assert queen.reserved() == [reserved]
        assert queen.check("a")[0].allowed
        assert len(queen.bad_lines()) == 3


def test_what_a_foreign_tool_appends_is_seen_by_the_next_look(root: Path) -> None:
    beads = root / ".beads"
    with Queen.open(root, agent="ui", environment={}) as queen, ExitStack() as stack:
        before = (queen.inbox(), queen.reserved(), queen.assignments())
        crew = Crew(stack, [[FOREIGN, str(beads), "foreign", "1"]])

        crew.go()
        crew.finish()

        assert before == ([], [], [])
        assert [one.id for one in queen.inbox()] == ["foreign-0"]
        assert [one.id for one in queen.reserved()] == ["foreign-0"]
        assert [one.id for one in queen.assignments()] == ["foreign-0"]
        assert not queen.check("foreign/0")[0].allowed

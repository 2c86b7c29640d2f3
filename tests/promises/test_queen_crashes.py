"""queen dies at every step of every kind of write, under every power cut; afterwards nothing that was acknowledged is
missing, what belongs together is all there or not at all, and the next command works.

The same enumeration is run over a store that is wrong on purpose: a test that cannot catch it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count, product
import os
import select
import shutil
import signal
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from chaos.test_queen_kills import broken_promises as broken_under_fire
from chaos.test_queen_kills import send_under_fire
from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.kernel.testing import Died, FakeClock, FaultyFiles, Loss
from queueyard.queen import Queen, assignments, messages, reservations
from queueyard.queen.archive import archive
from queueyard.queen.home import Home, make_private
from queueyard.queen.reservations import Book
from queueyard.queen.rules import owner_of
from queueyard.queen.store import ASSIGNMENTS, MESSAGES, RESERVATIONS, Store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# The children of the last two tests use nothing that another thread could hold.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")

NEVER = "2030-01-01T00:00:00Z"
TORN = b'{"id":"q'
LONGEST_WAIT_S = 60
THREE = ("src/**", "docs/**", "lib/*.py")


def message(identifier: str, **fields: Any) -> dict[str, Any]:
    common = {"created_at": "2025-01-01T00:00:00Z", "from": "ui", "to": "api", "subject": "s", "body": "b"}
    return {"id": identifier, **common, "read": False, **fields}


def assignment(identifier: str, agent: str) -> dict[str, Any]:
    return {"id": identifier, "issue_id": "qb-1", "agent": agent, "droid": agent, "status": "active"}


def reservation(identifier: str, pattern: str) -> dict[str, Any]:
    return {"id": identifier, "pattern": pattern, "agent": "ui", "expires_at": NEVER, "status": "active"}


# --- what is written, and what must hold afterwards ------------------------------------------------------------------

#: queen after the restart, and whether the write had been acknowledged -> what is wrong
Check = Callable[[Queen, bool], list[str]]


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command, what stands in the files before it, and what must be found after a crash."""

    name: str
    file: str
    before: tuple[dict[str, Any] | bytes, ...] = ()
    act: Callable[[Store, FakeClock], object]
    check: Check

    def __str__(self) -> str:
        return self.name


def check_sent(*, before: int, new: int) -> Check:
    def check(queen: Queen, acknowledged: bool) -> list[str]:
        found = messages.sent(queen.store, agent="ui", limit=0)
        bodies = sorted(one.body for one in found)
        allowed = [["b"] * before + ["new"] * there for there in range(new + 1)]
        faults = [] if bodies in allowed else [f"found {bodies}"]
        return faults + (["an acknowledged message is lost"] if acknowledged and bodies != allowed[-1] else [])

    return check


def check_read(queen: Queen, acknowledged: bool) -> list[str]:
    [found] = messages.inbox(queen.store, agent="api")
    faults = [] if (found.subject, found.body) == ("s", "b") else [f"damaged: {found}"]
    return faults + (["not read any more"] if acknowledged and not found.read else [])


def check_holder(*, old: str | None, new: str) -> Check:
    def check(queen: Queen, acknowledged: bool) -> list[str]:
        active = [owner_of(one) for one in queen.assignments(issue="qb-1", status="active")]
        allowed = [[new]] if acknowledged else [[new], [old] if old else []]
        return [] if active in allowed else [f"held by {active}"]

    return check


def check_all_or_none(*, before: set[str], after: set[str]) -> Check:
    def check(queen: Queen, acknowledged: bool) -> list[str]:
        held = {one.pattern for one in queen.reserved(agent="ui")}
        allowed = [after] if acknowledged else [before, after]
        return [] if held in allowed else [f"holds {held}"]

    return check


def check_renewed(queen: Queen, acknowledged: bool) -> list[str]:
    ends = {one.pattern: one.expires_at for one in queen.reserved(agent="ui")}
    renewed = [end != NEVER for end in ends.values()]
    faults = [] if len(ends) == 3 and len(set(renewed)) == 1 else [f"ends {ends}"]
    return faults + (["not renewed any more"] if acknowledged and not all(renewed) else [])


def reserve(*patterns: str, **options: Any) -> Callable[[Store, FakeClock], object]:
    return lambda store, clock: reservations.reserve(
        store, Book(store), clock, agent="ui", patterns=patterns, ttl_s=options.get("ttl_s", 3600)
    )


def give(agent: str, *, take: bool = True) -> Callable[[Store, FakeClock], object]:
    return lambda store, clock: assignments.assign(
        store, clock, issue="qb-1", agent=agent, by="queen", take=take, check_issues=False
    )


RESERVED = tuple(reservation(f"qr-{number}", pattern) for number, pattern in enumerate(THREE))
COMMANDS = [
    Command(
        name="send the first message",
        file=MESSAGES,
        act=lambda store, clock: messages.send(store, clock, sender="ui", to="api", body="new"),
        check=check_sent(before=0, new=1),
    ),
    Command(
        name="send one more message",
        file=MESSAGES,
        before=(message("qm-1"), message("qm-2")),
        act=lambda store, clock: messages.send(store, clock, sender="ui", to="api", body="new"),
        check=check_sent(before=2, new=1),
    ),
    Command(
        name="send behind a torn line",
        file=MESSAGES,
        before=(message("qm-1"), TORN),
        act=lambda store, clock: messages.send(store, clock, sender="ui", to="api", body="new"),
        check=check_sent(before=1, new=1),
    ),
    Command(
        name="send to all",
        file=MESSAGES,
        before=(message("qm-1"), message("qm-2", to="docs")),
        act=lambda store, clock: messages.send(store, clock, sender="ui", to="@all", body="new"),
        check=check_sent(before=2, new=2),
    ),
    Command(
        name="read",
        file=MESSAGES,
        before=(message("qm-1"),),
        act=lambda store, clock: messages.read(store, clock, identifier="qm-1", agent="api"),
        check=check_read,
    ),
    Command(name="claim", file=ASSIGNMENTS, act=give("api", take=False), check=check_holder(old=None, new="api")),
    Command(
        name="assign to somebody else",
        file=ASSIGNMENTS,
        before=(assignment("qa-1", "ui"),),
        act=give("api"),
        check=check_holder(old="ui", new="api"),
    ),
    Command(
        name="assign to somebody else behind a torn line",
        file=ASSIGNMENTS,
        before=(assignment("qa-1", "ui"), TORN),
        act=give("api"),
        check=check_holder(old="ui", new="api"),
    ),
    Command(
        name="reserve several patterns",
        file=RESERVATIONS,
        before=(reservation("qr-9", "old"),),
        act=reserve(*THREE),
        check=check_all_or_none(before={"old"}, after={"old", *THREE}),
    ),
    Command(
        name="reserve several patterns in a new file",
        file=RESERVATIONS,
        act=reserve(*THREE),
        check=check_all_or_none(before=set(), after=set(THREE)),
    ),
    Command(
        name="reserve one more pattern",
        file=RESERVATIONS,
        before=RESERVED,
        act=reserve("new"),
        check=check_all_or_none(before=set(THREE), after={"new", *THREE}),
    ),
    Command(
        name="renew several patterns",
        file=RESERVATIONS,
        before=RESERVED,
        act=reserve(*THREE, ttl_s=10 * 365 * 24 * 3600),
        check=check_renewed,
    ),
    Command(
        name="unreserve several patterns",
        file=RESERVATIONS,
        before=RESERVED,
        act=lambda store, clock: reservations.unreserve(store, Book(store), clock, agent="ui", wanted=()),
        check=check_all_or_none(before=set(THREE), after=set()),
    ),
]

# --- dying -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Crash:
    """One way to die, and what the power cut takes afterwards; `die_at=None` lives until the command has returned."""

    die_at: int | None
    after: bool
    bytes_lost: Loss
    names_lost: bool


def every_crash(steps: int) -> Iterator[Crash]:
    deaths = [(None, False), *product(range(steps), (False, True))]
    for (die_at, after), bytes_lost, names_lost in product(deaths, Loss, (False, True)):
        yield Crash(die_at=die_at, after=after, bytes_lost=bytes_lost, names_lost=names_lost)


def prepared(command: Command, root: Path) -> Home:
    home = Home(beads=root / ".beads", root=root)
    home.beads.mkdir(parents=True)
    make_private(home.private)
    (home.private / "lock").touch()
    lines = [one if isinstance(one, bytes) else msgspec.json.encode(one) + b"\n" for one in command.before]
    if lines:
        (home.beads / command.file).write_bytes(b"".join(lines))
    return home


def run(command: Command, home: Home, *, die_at: int | None, after: bool) -> FaultyFiles:
    files = FaultyFiles(home.beads, die_at=die_at, after=after)
    store = Store(home, clock=FakeClock(), files=files)
    try:
        command.act(store, FakeClock())
    except Died:
        assert die_at is not None
    finally:
        store.close()
    return files


def found_after(command: Command, home: Home, *, acknowledged: bool) -> list[str]:
    """What a new process finds wrong, and whether it can work."""
    with Queen.open(home.root, agent="ui", environment={}, clock=FakeClock()) as queen:
        faults = command.check(queen, acknowledged)
        torn = [one for one in command.before if isinstance(one, bytes)]
        faults += [f"{len(queen.bad_lines())} bad lines"] * (len(queen.bad_lines()) > len(torn) + 1)
    return faults + _cannot_work(home)


def _cannot_work(home: Home) -> list[str]:
    """The next command of each kind, by somebody else."""
    with Queen.open(home.root, agent="docs", environment={"QUEEN_CHECK_ISSUES": "false"}, clock=FakeClock()) as queen:
        [sent] = queen.send("human", "after the crash")
        queen.claim("qb-2")
        queen.reserve(["after/**"])
        faults = [] if queen.check("after/x")[0].allowed else ["check says no"]
        faults += [] if queen.sent() == [sent] else ["the next message is not there"]
    return faults + ["something is left of the note"] * (home.private / "unfinished.json").exists()


def broken_promises(command: Command, tmp_path: Path) -> list[str]:
    """What every crash of this command breaks, one line each; empty for one that keeps its promises."""
    steps = len(run(command, prepared(command, tmp_path / "steps"), die_at=None, after=False).steps)
    found: list[str] = []
    for number, crash in enumerate(every_crash(steps)):
        home = prepared(command, tmp_path / str(number))
        files = run(command, home, die_at=crash.die_at, after=crash.after)
        where = "returned" if crash.die_at is None else str(files.steps[crash.die_at])
        files.power_cut(bytes_lost=crash.bytes_lost, names_lost=crash.names_lost)
        faults = found_after(command, home, acknowledged=crash.die_at is None)
        found += [f"{crash} {where}: {fault}" for fault in faults]
        shutil.rmtree(home.root)
    return found


@pytest.mark.parametrize("command", COMMANDS, ids=str)
def test_every_crash_leaves_all_or_nothing_and_the_next_command_works(command: Command, tmp_path: Path) -> None:
    assert broken_promises(command, tmp_path) == []


@pytest.mark.parametrize(
    ("name", "caught"),
    [
        ("assign to somebody else", "held by []"),
        ("reserve several patterns", "holds {"),
        ("unreserve several patterns", "holds {"),
        ("renew several patterns", "ends {"),
    ],
)
def test_records_that_belong_together_but_are_only_appended_are_caught(
    name: str, caught: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [command] = [one for one in COMMANDS if one.name == name]
    monkeypatch.setattr(Store, "append_together", Store.append)

    assert any(caught in fault for fault in broken_promises(command, tmp_path))


def test_a_send_that_is_not_made_durable_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [command] = [one for one in COMMANDS if one.name == "send one more message"]
    monkeypatch.setattr(FaultyFiles, "fsync", lambda *_: None)

    assert any("acknowledged message is lost" in fault for fault in broken_promises(command, tmp_path))


def test_who_dies_while_completing_what_another_left_half_written_leaves_it_to_the_next(tmp_path: Path) -> None:
    [command] = [one for one in COMMANDS if one.name == "reserve several patterns"]
    numbers = count()

    def half_written() -> Home:
        home = prepared(command, tmp_path / str(next(numbers)))
        steps = run(command, home, die_at=None, after=False).steps
        write = next(step.number for step in steps if step.call == "write" and step.path.endswith(RESERVATIONS))
        shutil.rmtree(home.root)
        home = prepared(command, home.root)
        run(command, home, die_at=write, after=True).power_cut(bytes_lost=Loss.HALF, names_lost=False)
        return home

    def complete(home: Home, *, die_at: int | None, after: bool) -> FaultyFiles:
        files = FaultyFiles(home.beads, die_at=die_at, after=after)
        store = Store(home, files=files)
        try:
            with store.locked():
                pass
        except Died:
            assert die_at is not None
        return files

    steps = len(complete(half_written(), die_at=None, after=False).steps)
    assert steps > 3, "nothing was completed: this test shows nothing"
    for crash in every_crash(steps):
        home = half_written()
        files = complete(home, die_at=crash.die_at, after=crash.after)
        files.power_cut(bytes_lost=crash.bytes_lost, names_lost=crash.names_lost)

        with Queen.open(home.root, agent="ui", environment={}, clock=FakeClock()) as queen:
            held = {one.pattern for one in queen.reserved()}

        assert held == {"old", *THREE}, crash
        assert _cannot_work(home) == []


# --- real kills ------------------------------------------------------------------------------------------------------


def test_messages_that_were_acknowledged_survive_the_killing_of_their_senders(tmp_path: Path) -> None:
    """The small sister of the chaos test of the same kind."""
    fire = send_under_fire(tmp_path, sends=50, kills=12, seed=2)

    assert {name: len(ids) for name, ids in fire.acknowledged.items()} == dict.fromkeys(fire.acknowledged, 50)
    assert broken_under_fire(fire) == []


class UntilKilled(FakeClock):
    """Tells that it sleeps, and never wakes up."""

    def __init__(self, told: int) -> None:
        super().__init__()
        self._told = told

    def sleep(self, seconds: float) -> None:
        os.write(self._told, b"z")
        signal.pause()


def fork(work: Callable[[], None]) -> int:
    """A child that works until it is killed, or tells the first failure and exits by itself."""
    pid = os.fork()
    if pid:
        return pid
    try:
        while True:
            work()
    except BaseException as fault:  # noqa: BLE001  whatever it is, it must not run on into the test suite
        os.write(2, f"{type(fault).__name__}: {fault}\n".encode())
        os._exit(3)


def kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def sending(home: Home, log: Path) -> Callable[[], None]:
    """Sends, notes what was acknowledged, and settles it so that the archiver has something to do."""
    store = Store(home)

    def send() -> None:
        [sent] = messages.send(store, SYSTEM_CLOCK, sender="ui", to="api", body="text")
        with log.open("a") as stream:
            stream.write(f"{sent.id}\n")
        messages.read(store, SYSTEM_CLOCK, identifier=sent.id, agent="api")

    return send


def archiving(home: Home, tell: int) -> Callable[[], None]:
    store = Store(home)

    def archive_everything() -> None:
        archive(store, UntilKilled(tell), before=datetime.max.replace(tzinfo=UTC))

    return archive_everything


def test_messages_that_were_acknowledged_survive_the_killing_of_an_archiver(tmp_path: Path) -> None:
    """It is killed when it has just replaced the file that others send to."""
    home = Home(beads=tmp_path / ".beads", root=tmp_path)
    home.beads.mkdir()
    log = tmp_path / "acknowledged"
    told, tell = os.pipe()
    children = [fork(sending(home, log)) for _ in range(2)]

    try:
        for _ in range(10):
            children.append(fork(archiving(home, tell)))
            slept, _, _ = select.select([told], [], [], LONGEST_WAIT_S)
            assert slept, "the archiver had nothing to do"
            os.read(told, 1)
            assert kill(children.pop()) == -signal.SIGKILL
    finally:
        codes = [kill(pid) for pid in children]
        os.close(told)
        os.close(tell)

    store = Store(home)
    there = {*store.every_message(lambda _: None), *(raw["id"] for raw in store.archived(MESSAGES))}
    store.close()
    acknowledged = log.read_text().splitlines()
    assert codes == [-signal.SIGKILL] * 2
    assert len(acknowledged) >= 10
    assert [identifier for identifier in acknowledged if identifier not in there] == []

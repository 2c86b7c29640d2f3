"""The message index against a plain reading of the whole file, after everything that can happen to the two."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
import json
import math
import os
from pathlib import Path
import subprocess
import sys
import tempfile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
import zlib

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
import pytest

from queueyard.kernel import proc
from queueyard.kernel.atomic import append_lines
from queueyard.kernel.errors import StorageFailed
from queueyard.queen import index as index_module
from queueyard.queen import segments as segments_module
from queueyard.queen.home import Home
from queueyard.queen.index import MessageIndex
from queueyard.queen.store import MESSAGES, Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unit.queen.conftest import Writer

Raw = dict[str, Any]

AGENTS = ("a", "b", "c")
IDS = tuple(f"m{number}" for number in range(8))
THREADS = ("t1", "t2", "issue:q1")
ISSUES = ("q1", "q2")
START = datetime(2026, 1, 1, tzinfo=UTC)

# --- the plain reading -----------------------------------------------------------------------------------------------

TEXTS = ("id", "created_at", "from", "to", "subject", "body", "issue_id", "reply_to", "thread_id", "importance")


@dataclass
class Plain:
    """What the file says, read from its start with nothing but the standard library."""

    records: dict[str, Raw] = field(default_factory=dict)
    ever_to: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    ever_from: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    latest: dict[str, datetime] = field(default_factory=dict)
    bad: list[tuple[int, int]] = field(default_factory=list)

    def take(self, raw: Raw) -> None:
        identifier = raw["id"]
        record = self.records.setdefault(identifier, {})
        for key, value in raw.items():
            if key == "created_at" and "created_at" in record:
                continue
            if value is None:
                record.pop(key, None)
            else:
                record[key] = value
        if raw.get("to"):
            self.ever_to[raw["to"]].add(identifier)
        if raw.get("from"):
            self.ever_from[raw["from"]].add(identifier)
        when = moment(raw)
        if when is not None:
            self.latest[identifier] = max(when, self.latest.get(identifier, when))


def read_plainly(content: bytes) -> Plain:
    plain = Plain()
    offset = 0
    lines = content.split(b"\n")
    for number, line in enumerate(lines, 1):
        raw = understood(line) if line.strip() else {"_migration": "a blank line says nothing"}
        if raw is None:
            plain.bad.append((number, offset))
        elif "_migration" not in raw:
            plain.take(raw)
        offset += len(line) + 1
    return plain


def understood(line: bytes) -> Raw | None:
    try:
        raw = json.loads(line)
    except ValueError:
        return None
    if not isinstance(raw, dict):
        return None
    if "_migration" in raw:
        return raw
    texts = all(isinstance(raw.get(name), str | None) for name in TEXTS)
    flags = all(isinstance(raw.get(name), bool | None) for name in ("read", "deleted"))
    return raw if texts and flags and raw.get("id") else None


def moment(raw: Raw) -> datetime | None:
    try:
        found = datetime.fromisoformat(raw.get("created_at") or "")
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def place(raw: Raw) -> float:
    when = moment(raw)
    return -math.inf if when is None else when.timestamp()


def faults_of(store: Store, plain: Plain) -> list[str]:
    """Everything that the index answers otherwise than the file."""
    return [
        *(fault for agent in (*AGENTS, "nobody") for fault in _faults_of_lists(store, plain, agent)),
        *_faults_of_groups(store, plain),
        *_faults_of_single_answers(store, plain),
    ]


def _faults_of_lists(store: Store, plain: Plain, agent: str) -> Iterator[str]:
    received = store.messages(lambda index: list(index.received_by(agent)))
    unread = store.messages(lambda index: list(index.received_by(agent, unread=True)))
    sent = store.messages(lambda index: list(index.sent_by(agent)))
    for name, found in (("received", received), ("unread", unread), ("sent", sent)):
        if len({raw["id"] for raw in found}) < len(found):
            yield f"{name} by {agent}: one comes twice: {found}"
        if any(raw != plain.records.get(raw["id"]) for raw in found):
            yield f"{name} by {agent}: not as folded: {found}"
        if [place(raw) for raw in found] != sorted(map(place, found), reverse=True):
            yield f"{name} by {agent}: not newest first: {found}"
    if not {raw["id"] for raw in received} <= plain.ever_to[agent]:
        yield f"received by {agent}: some never named it: {received}"
    if not {raw["id"] for raw in sent} <= plain.ever_from[agent]:
        yield f"sent by {agent}: some never named it: {sent}"
    mine = {key: raw for key, raw in plain.records.items() if raw.get("to") == agent}
    if {raw["id"]: raw for raw in received if raw.get("to") == agent} != mine:
        yield f"received by {agent}: {received} instead of {mine}"
    waiting = {key: raw for key, raw in mine.items() if is_unread(raw)}
    if {raw["id"]: raw for raw in unread if raw.get("to") == agent and is_unread(raw)} != waiting:
        yield f"unread of {agent}: {unread} instead of {waiting}"
    theirs = {key: raw for key, raw in plain.records.items() if raw.get("from") == agent}
    if {raw["id"]: raw for raw in sent if raw.get("from") == agent} != theirs:
        yield f"sent by {agent}: {sent} instead of {theirs}"


def is_unread(raw: Raw) -> bool:
    return not raw.get("read") and not raw.get("deleted")


def _faults_of_groups(store: Store, plain: Plain) -> Iterator[str]:
    for name, key in [("thread_id", thread) for thread in THREADS] + [("issue_id", issue) for issue in ISSUES]:
        found = store.messages(lambda it, n=name, k=key: it.in_thread(k) if n == "thread_id" else it.about(k))  # type: ignore[misc]
        wanted = {one: raw for one, raw in plain.records.items() if raw.get(name) == key}
        if len({raw["id"] for raw in found}) < len(found):
            yield f"{name} {key}: one comes twice: {found}"
        if {raw["id"]: raw for raw in found if raw.get(name) == key} != wanted:
            yield f"{name} {key}: {found} instead of {wanted}"


def _faults_of_single_answers(store: Store, plain: Plain) -> Iterator[str]:
    for identifier in {*IDS, *plain.records, "nothing"}:
        found = store.messages(lambda index, key=identifier: index.get(key))  # type: ignore[misc]
        if found != plain.records.get(identifier):
            yield f"get {identifier}: {found} instead of {plain.records.get(identifier)}"
    agents = store.messages(lambda index: index.agents())
    if agents != {agent for ever in (plain.ever_to, plain.ever_from) for agent, named in ever.items() if named}:
        yield f"agents: {agents}"
    bad = store.messages(lambda index: index.bad_lines())
    if [(number, offset) for number, offset, _ in bad] != plain.bad:
        yield f"bad lines: {bad} instead of {plain.bad}"


# --- what may happen -------------------------------------------------------------------------------------------------


def written_time(minutes: int, form: int) -> str | None:
    """A time in one of the forms that tools write, or none at all, or one that nobody can read."""
    when = START + timedelta(minutes=minutes)
    plain = f"{when:%Y-%m-%dT%H:%M:%S}"
    east = f"{when + timedelta(hours=2):%Y-%m-%dT%H:%M:%S}+02:00"
    return (f"{plain}Z", f"{plain}.000000Z", plain, east, None, "yesterday")[form]


minutes = st.integers(0, 60)
forms = st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5])
fields = st.fixed_dictionaries(
    {},
    optional={
        "to": st.sampled_from([*AGENTS, "", None]),
        "from": st.sampled_from([*AGENTS, None]),
        "thread_id": st.sampled_from([*THREADS, None]),
        "issue_id": st.sampled_from([*ISSUES, None]),
        "read": st.sampled_from([True, False, None]),
        "deleted": st.sampled_from([True, False, None]),
        "subject": st.sampled_from(["s", "ü", None]),
        "strange": st.integers(0, 9),
    },
)
messages = st.fixed_dictionaries(
    {
        "from": st.sampled_from(AGENTS),
        "to": st.sampled_from(AGENTS),
        "subject": st.just("subject"),
        "body": st.sampled_from(["", "text", "x" * 90]),
        "read": st.just(value=False),
    },
    optional={"thread_id": st.sampled_from(THREADS), "issue_id": st.sampled_from(ISSUES)},
)
odd_lines = st.sampled_from(
    [
        b"\n",
        b"  \r\n",
        b"not json\n",
        b"[1]\n",
        b'{"to":"a"}\n',
        b'{"id":"","to":"a"}\n',
        b'{"id":"m1","to":7}\n',
        b'{"id":"m1","read":"yes"}\n',
        b'{"id":"m1","body":"\xff"}\n',
        b'{"id":"m2","to":"a","body":["x"]}\n',
        b'{"_migration":"v1_to_v2","at":"2026-01-01T00:00:00Z"}\n',
        b'{"_migration":"v1_to_v2","id":"m1","to":"a"}\n',
    ]
)


class RunHere:
    """Stands in for the child that builds a segment, so that hundreds of small builds need no processes."""

    def __init__(self, argv: list[str]) -> None:
        index_module.main(argv[3:])

    def wait(self) -> int:
        return 0


class AnythingHappens(RuleBasedStateMachine):
    """Every rule changes the file or the map; afterwards all readers must tell what the file says."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        beads = Path(self.folder.name) / ".beads"
        beads.mkdir()
        self.home = Home(beads=beads, root=beads.parent)
        self.path = beads / MESSAGES
        self.first, self.second = Store(self.home), Store(self.home)
        self.stamp = 0
        self.patch = pytest.MonkeyPatch()
        # Small enough that a handful of lines makes segments, merges and shared builds.
        self.patch.setattr(index_module, "_TAIL_BYTES", 150)
        self.patch.setattr(index_module, "_SHARED_BUILD_BYTES", 400)
        self.patch.setattr(index_module, "_MERGE_RATIO", 2)
        self.patch.setattr(index_module, "proc", SimpleNamespace(start=RunHere))
        self.patch.setattr(os, "cpu_count", lambda: 3)
        # Samples without gaps: what a gap may hide has a test of its own.
        self.patch.setattr(index_module, "_SAMPLES", 1000)

    def teardown(self) -> None:
        self.patch.undo()
        self.first.close()
        self.second.close()
        self.folder.cleanup()

    @initialize(collide=st.booleans())
    def choose_hash(self, collide: bool) -> None:
        if collide:
            self.patch.setattr(segments_module, "crc32", lambda data: zlib.crc32(data) & 1)

    # --- what tools append -------------------------------------------------------------------------------------------

    @rule(identifier=st.sampled_from(IDS), message=messages, later=minutes, form=forms)
    def send(self, identifier: str, message: Raw, later: int, form: int) -> None:
        self._append({"id": identifier, **self._created(identifier, later, form), **message})

    @rule(identifier=st.sampled_from(IDS), changes=fields, ours=st.booleans())
    def update(self, identifier: str, changes: Raw, ours: bool) -> None:
        self._append({"id": identifier, **changes}, ours=ours)

    @rule(identifier=st.sampled_from(IDS), changes=fields, later=minutes, form=forms, ours=st.booleans())
    def update_with_a_new_time(self, identifier: str, changes: Raw, later: int, form: int, ours: bool) -> None:
        self._append({"id": identifier, **self._created(identifier, later, form), **changes}, ours=ours)

    @rule(line=odd_lines)
    def append_an_odd_line(self, line: bytes) -> None:
        self._append_bytes(line)

    @rule(identifier=st.sampled_from(IDS), changes=fields, cut=st.integers(0, 200))
    def tear(self, identifier: str, changes: Raw, cut: int) -> None:
        line = json.dumps({"id": identifier, **changes}).encode()
        self._append_bytes(line[: cut or None])

    # --- what happens to the file ------------------------------------------------------------------------------------

    @precondition(lambda self: self.path.exists())
    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        os.truncate(self.path, int(self.path.stat().st_size * part))

    @rule(history=st.lists(st.tuples(st.sampled_from(IDS), messages), max_size=12), same_size=st.booleans())
    def replace(self, history: list[tuple[str, Raw]], same_size: bool) -> None:
        lines = [
            json.dumps({"id": identifier, "created_at": written_time(number, 0), **message}).encode() + b"\n"
            for number, (identifier, message) in enumerate(history)
        ]
        content = b"".join(lines)
        if same_size and self.path.exists():
            size = self.path.stat().st_size
            content = content[:size].ljust(size)
        other = self.path.with_name("other")
        other.write_bytes(content)
        other.rename(self.path)

    @precondition(lambda self: self.path.exists() and self.path.stat().st_size)
    @rule(part=st.floats(0, 1), agent=st.sampled_from(AGENTS))
    def change_a_name_in_place(self, part: float, agent: str) -> None:
        content = self.path.read_bytes()
        at = content.find(b'"to": "', int(len(content) * part))
        if at >= 0 and content[at + 8 : at + 9] == b'"':
            self._overwrite(at + 7, agent.encode())

    @precondition(lambda self: self.path.exists() and self.path.stat().st_size)
    @rule(part=st.floats(0, 1), byte=st.sampled_from([b"{", b"X", b"\n", b'"']))
    def damage_in_place(self, part: float, byte: bytes) -> None:
        self._overwrite(int((self.path.stat().st_size - 1) * part), byte)

    @rule()
    def delete(self) -> None:
        self.path.unlink(missing_ok=True)

    # --- what happens to the map -------------------------------------------------------------------------------------

    @rule(
        which=st.integers(0, 9),
        other=st.integers(0, 9),
        part=st.floats(0, 1),
        how=st.sampled_from(["gone", "empty", "noise", "cut", "foreign"]),
    )
    def damage_the_map(self, which: int, other: int, part: float, how: str) -> None:
        maps = self._maps()
        if not maps:
            return
        victim = maps[which % len(maps)]
        content, foreign = victim.read_bytes(), maps[other % len(maps)].read_bytes()
        damaged = {
            "empty": b"",
            "noise": content[:40] + bytes(range(200)),
            "cut": content[: int(len(content) * part)],
            "foreign": foreign,
        }
        # Never in place: whoever has it open keeps what was there.
        victim.unlink()
        if how in damaged:
            victim.write_bytes(damaged[how])

    # --- who looks ---------------------------------------------------------------------------------------------------

    @invariant()
    def the_reader_from_the_start_tells_what_the_file_says(self) -> None:
        self._check(self.first)

    @rule()
    def somebody_else_looks(self) -> None:
        self._check(self.second)

    @rule()
    def somebody_new_looks(self) -> None:
        newcomer = Store(self.home)
        try:
            self._check(newcomer)
        finally:
            newcomer.close()

    def _check(self, store: Store) -> None:
        content = self.path.read_bytes() if self.path.exists() else b""
        assert faults_of(store, read_plainly(content)) == []

    def _created(self, identifier: str, later: int, form: int) -> Raw:
        # Never older than what was said before: an update tells the time of the message or its own.
        content = self.path.read_bytes() if self.path.exists() else b""
        known = read_plainly(content).latest.get(identifier, START)
        return {"created_at": written_time((known - START) // timedelta(minutes=1) + later, form)}

    def _append(self, raw: Raw, *, ours: bool = True) -> None:
        line = json.dumps(raw, ensure_ascii=False).encode()
        if ours:
            append_lines(self.path, [line], durable=False)
        else:
            self._append_bytes(line + b"\n")

    def _append_bytes(self, data: bytes) -> None:
        with self.path.open("ab") as stream:
            stream.write(data)

    def _overwrite(self, offset: int, data: bytes) -> None:
        with self.path.open("r+b") as stream:
            stream.seek(offset)
            stream.write(data)
        # The clock of a file system ticks more slowly than this test.
        self.stamp = max(self.stamp, self.path.stat().st_mtime_ns) + 1_000_000
        os.utime(self.path, ns=(self.stamp, self.stamp))

    def _maps(self) -> list[Path]:
        return sorted(self.home.private.glob("*.seg"))


def test_whatever_happens_the_index_tells_what_the_file_says() -> None:
    run_state_machine_as_test(
        AnythingHappens, settings=settings(max_examples=45, stateful_step_count=30, deadline=None)
    )


# --- one thing at a time ---------------------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Everything behind the last segment becomes one at once."""
    monkeypatch.setattr(index_module, "_TAIL_BYTES", 1)
    return monkeypatch


def line(identifier: str, **fields: Any) -> Raw:
    return {"id": identifier, "created_at": written_time(int(identifier.strip("m") or 0), 0), "from": "a", **fields}


def received(store: Store, agent: str, *, unread: bool = False) -> list[str]:
    return store.messages(lambda index: [raw["id"] for raw in index.received_by(agent, unread=unread)])


def maps(home: Home) -> list[Path]:
    return sorted(home.private.glob("*.seg"))


def touch(path: Path) -> None:
    """Make sure that the time of the file moves on, however coarse it is."""
    moment_ns = path.stat().st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(moment_ns, moment_ns))


def test_a_file_that_is_not_there_holds_nothing(store: Store, home: Home) -> None:
    assert received(store, "a") == []
    assert store.messages(lambda index: index.get("m1")) is None
    assert store.messages(len) == 0
    assert not home.private.exists()


def test_a_few_messages_need_no_map(store: Store, home: Home, write: Writer) -> None:
    write(MESSAGES, line("m1", to="b"))

    assert received(store, "b") == ["m1"]
    assert maps(home) == []


def test_what_is_appended_later_makes_a_segment_of_its_own_until_it_weighs_enough_to_be_merged(
    small: pytest.MonkeyPatch, store: Store, home: Home, write: Writer
) -> None:
    small.setattr(index_module, "_MERGE_RATIO", 2)
    write(MESSAGES, *(line(f"m{number}", to="b") for number in range(10)))
    received(store, "b")
    [first] = maps(home)

    path = write(MESSAGES, line("m10", to="b"))
    received(store, "b")
    two = maps(home)
    write(MESSAGES, *(line(f"m{number}", to="b") for number in range(11, 20)))

    assert received(store, "b") == [f"m{number}" for number in range(19, -1, -1)]
    assert first in two
    assert len(two) == 2
    assert len(maps(home)) == 1
    assert store.messages(len) == path.stat().st_size


def test_a_segment_stays_as_it_is_when_something_is_appended_behind_it(
    small: pytest.MonkeyPatch, store: Store, home: Home, write: Writer
) -> None:
    write(MESSAGES, line("m1", to="b"))
    received(store, "b")
    [before] = [path.stat().st_ino for path in maps(home)]

    small.setattr(index_module, "_TAIL_BYTES", 10_000)
    write(MESSAGES, line("m2", to="b"))

    assert received(store, "b") == ["m2", "m1"]
    assert [path.stat().st_ino for path in maps(home)] == [before]


def test_a_large_file_is_mapped_by_several_processes(
    monkeypatch: pytest.MonkeyPatch, home: Home, write: Writer
) -> None:
    monkeypatch.setattr(index_module, "_TAIL_BYTES", 1000)
    monkeypatch.setattr(index_module, "_SHARED_BUILD_BYTES", 5000)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    started: list[list[str]] = []

    def start(argv: list[str]) -> proc.Child:
        started.append(argv)
        return proc.start(argv)

    monkeypatch.setattr(index_module, "proc", SimpleNamespace(start=start))
    path = write(
        MESSAGES,
        *(line(f"m{number}", to=AGENTS[number % 3], thread_id="t1", body="x" * (number % 90)) for number in range(150)),
        b"not json\n",
        *(line(f"m{number}", read=True) for number in range(0, 150, 7)),
    )
    store = Store(home)

    faults = faults_of(store, read_plainly(path.read_bytes()))

    store.close()
    assert faults == []
    assert len(started) == 2
    assert len(maps(home)) == 3


def test_what_a_child_fails_to_map_is_mapped_by_whoever_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, home: Home, write: Writer
) -> None:
    monkeypatch.setattr(index_module, "_TAIL_BYTES", 1000)
    monkeypatch.setattr(index_module, "_SHARED_BUILD_BYTES", 5000)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    failing = [sys.executable, "-c", "raise SystemExit(1)"]
    monkeypatch.setattr(index_module, "proc", SimpleNamespace(start=lambda _: proc.start(failing)))
    path = write(MESSAGES, *(line(f"m{number}", to="b") for number in range(150)))
    store = Store(home)

    faults = faults_of(store, read_plainly(path.read_bytes()))

    store.close()
    assert faults == []
    assert len(maps(home)) == 2


def test_where_no_map_can_be_drawn_the_file_is_read_each_time(
    small: pytest.MonkeyPatch, store: Store, home: Home, write: Writer
) -> None:
    home.private.write_text("in the way")
    path = write(MESSAGES, *(line(f"m{number}", to="b") for number in range(5)))

    assert faults_of(store, read_plainly(path.read_bytes())) == []


def test_a_full_disk_costs_no_answer(small: pytest.MonkeyPatch, small_disk: Path) -> None:
    beads = small_disk / ".beads"
    beads.mkdir()
    path = beads / MESSAGES
    with path.open("wb") as stream:
        stream.writelines(json.dumps(line(f"m{number}", to="b")).encode() + b"\n" for number in range(200))
    free = os.statvfs(small_disk)
    (small_disk / "ballast").write_bytes(b"x" * (free.f_bavail - 1) * free.f_frsize)
    store = Store(Home(beads=beads, root=small_disk))

    faults = faults_of(store, read_plainly(path.read_bytes()))

    store.close()
    assert faults == []


def test_a_file_that_cannot_be_read_is_told(store: Store, home: Home) -> None:
    (home.beads / MESSAGES).mkdir()

    with pytest.raises(StorageFailed, match=MESSAGES):
        received(store, "a")


def test_an_edit_in_place_is_noticed_even_between_the_samples(
    small: pytest.MonkeyPatch, store: Store, home: Home, write: Writer
) -> None:
    path = write(MESSAGES, *(line(f"m{number}", to="b", body="x" * 200) for number in range(100)))
    received(store, "b")
    content = path.read_bytes()
    at = content.index(b'"to":"b"', len(content) // 3) + 6

    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(b"c")
    touch(path)

    newcomer = Store(home)
    for reader in (store, newcomer):
        assert faults_of(reader, read_plainly(path.read_bytes())) == []
    newcomer.close()


@pytest.mark.parametrize(
    "other", [b"\0", b'{"_migration":"v2","x":"', b'{"id":"","x":"'], ids=["noise", "migration", "no id"]
)
def test_a_line_that_became_another_under_the_map_makes_it_be_drawn_anew(
    small: pytest.MonkeyPatch, store: Store, write: Writer, other: bytes
) -> None:
    """The edit hides between two samples, and behind a later append that explains why the file has changed."""
    path = write(MESSAGES, *(line(f"m{number}", to="b", body="x" * 200) for number in range(100)))
    received(store, "b")
    content = path.read_bytes()
    at = content.index(b'{"id":"m35"')
    length = content.index(b"\n", at) - at
    small.setattr(index_module, "_TAIL_BYTES", 1_000_000)

    with path.open("r+b") as stream:
        stream.seek(at)
        stream.write(other.ljust(length - 2, b"x") + b'"}')
    write(MESSAGES, line("m100", to="b"))

    assert "m35" not in received(store, "b")
    assert faults_of(store, read_plainly(path.read_bytes())) == []


def test_a_map_that_is_damaged_inside_is_drawn_anew(
    small: pytest.MonkeyPatch, store: Store, home: Home, write: Writer
) -> None:
    path = write(MESSAGES, *(line(f"m{number}", to="b") for number in range(20)))
    received(store, "b")
    [segment] = maps(home)
    content = segment.read_bytes()
    segment.unlink()
    segment.write_bytes(content[:-200] + b"\xff" * 200)

    newcomer = Store(home)

    assert faults_of(newcomer, read_plainly(path.read_bytes())) == []
    newcomer.close()


def test_a_line_that_only_looks_like_a_message_hides_nothing(store: Store, write: Writer) -> None:
    """A number out of all range stands in a field that the map does not read."""
    write(
        MESSAGES,
        line("m1", to="b", body="kept"),
        b'{"id":"m1","subject":"lost","strange":1e999}\n',
        b'{"id":"m2","to":"b","strange":1e999}\n',
        line("m3", to="b"),
    )

    found = store.messages(lambda index: [raw for raw in index.received_by("b") if raw.get("to") == "b"])

    assert [raw["id"] for raw in found] == ["m3", "m1"]
    assert "subject" not in found[1]


def test_names_with_the_same_hash_are_not_taken_for_each_other(
    small: pytest.MonkeyPatch, store: Store, write: Writer
) -> None:
    assert zlib.crc32(b"plumless") == zlib.crc32(b"buckeroo")
    created = {"created_at": "2026-01-01T00:00:00Z", "to": "b"}
    write(MESSAGES, {"id": "plumless", "subject": "one", **created}, {"id": "buckeroo", "subject": "two", **created})
    received(store, "b")
    write(MESSAGES, {"id": "buckeroo", "read": True})

    assert store.messages(lambda index: index.get("plumless")) == {"id": "plumless", "subject": "one", **created}
    assert store.messages(lambda index: index.get("buckeroo")) == {
        "id": "buckeroo",
        "subject": "two",
        "read": True,
        **created,
    }


@pytest.mark.parametrize("change", [{"read": False}, {"read": None}])
def test_a_message_that_becomes_unread_again_is_found_across_segments(
    small: pytest.MonkeyPatch, store: Store, write: Writer, change: Raw
) -> None:
    write(MESSAGES, line("m1", to="b", read=True), *(line(f"m{number}", to="c") for number in range(2, 30)))
    before = received(store, "b", unread=True)

    write(MESSAGES, {"id": "m1", **change})

    assert before == []
    assert received(store, "b", unread=True) == ["m1"]


def test_a_message_that_goes_to_somebody_else_later_stands_at_its_own_time(
    small: pytest.MonkeyPatch, store: Store, write: Writer
) -> None:
    write(MESSAGES, *(line(f"m{number}", to="c" if number == 5 else "b") for number in range(30)))
    received(store, "b")

    write(MESSAGES, {"id": "m5", "to": "b"})

    assert received(store, "b") == [f"m{number}" for number in range(29, -1, -1)]


def test_a_last_line_without_newline_becomes_no_part_of_the_map(
    small: pytest.MonkeyPatch, store: Store, write: Writer
) -> None:
    path = write(MESSAGES, *(line(f"m{number}", to="b") for number in range(30)), b'{"id":"m30","to":"b"}')
    before = received(store, "b")

    write(MESSAGES, b'{"id":"m31","to":"c"}\n')

    assert "m30" in before
    assert received(store, "c") == []
    assert "m30" not in received(store, "b")
    assert faults_of(store, read_plainly(path.read_bytes())) == []


def test_a_forgotten_map_is_drawn_anew(small: pytest.MonkeyPatch, store: Store, home: Home, write: Writer) -> None:
    path = write(MESSAGES, *(line(f"m{number}", to="b") for number in range(5)))
    received(store, "b")

    store.forget_index()
    forgotten = maps(home)

    assert forgotten == []
    assert faults_of(store, read_plainly(path.read_bytes())) == []
    assert len(maps(home)) == 1


def test_readers_that_draw_the_map_at_the_same_time_all_tell_what_the_file_says(home: Home, write: Writer) -> None:
    path = write(MESSAGES, *(line(f"m{number}", to="b", body="x" * 3000) for number in range(200)))
    program = (
        "import sys, pathlib\n"
        "from queueyard.queen.index import MessageIndex\n"
        "index = MessageIndex(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
        "sys.stdin.readline()\n"
        "index.refresh()\n"
        "print(sum(1 for _ in index.received_by('b')))\n"
    )
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path), str(home.private)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]

    answers = [process.communicate("go\n")[0] for process in crew]

    assert answers == ["200\n"] * 4
    index = MessageIndex(path, home.private)
    index.refresh()
    assert len(index) == path.stat().st_size
    index.close()

"""The client dies at every step of its files, before and after it, under every power cut: nothing is lost or doubled.

The same enumeration is run over a queue that is wrong on purpose: a test that cannot catch it proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
import json
import os
from pathlib import Path
import shutil
import tempfile
from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.atomic import FILES, Files
from queueyard.kernel.testing import Died, FakeClock, FaultyFiles, Loss
from queueyard.ops import views, worker
from queueyard.ops.aside import Aside, InTurn
from queueyard.ops.export import MANIFEST_NAME, Source, export
from queueyard.ops.records import AuditPage, Change, FeedOp, FeedPage, Op, OpType, Scope
from queueyard.ops.service import Ops
from queueyard.ops.settings import OpsSettings
from queueyard.ops.store import Queue
from queueyard.ops.worker import REQUEST_PATH, resume
from unit.ops.support.simulator import SPACE, SimulatedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.ops.transport import Reply

Act = Callable[["Site", Files], None]


class AsLateAsCanBe:
    """Does what is left aside when it is waited for and not before: the slowest thread that there can be."""

    def __init__(self) -> None:
        self._asked: list[Callable[[], None]] = []

    def do(self, act: Callable[[], None]) -> None:
        self._asked.append(act)

    def finish(self) -> None:
        while self._asked:
            self._asked.pop(0)()

    def close(self) -> None:
        """A client that has died does nothing more, and one that has not has waited."""


class Site:
    """A queue in a folder, and a server that outlives every crash of the client."""

    #: how the client does what need not be waited for
    aside: Callable[[], Aside] = InTurn

    def __init__(self, root: Path, *, keep_completed: bool = False) -> None:
        self.folder = root / "queue"
        self.folder.mkdir(parents=True)
        for name in ("completed", "dead", "quarantine"):
            (self.folder / name).mkdir()
        self._server_folder = root / "server"
        self._server_folder.mkdir()
        self._keep_completed = keep_completed
        self._clock = FakeClock()
        self._ids = iter(range(1, 1000))
        self.server = SimulatedServer(self._server_folder, self._clock)

    def ops(self, files: Files = FILES) -> Ops:
        queue = Queue(self.folder, clock=self._clock, files=files, writers=1)
        settings = OpsSettings(batch_ops=25, batch_bytes=1024, retry_for="0s", keep_completed=self._keep_completed)
        scope = Scope(server="http://sim", space="default", workspace="")
        return Ops(
            scope,
            queue,
            settings,
            connect=lambda: self,
            clock=self._clock,
            new_id=lambda: f"ID{next(self._ids):04d}",
            aside=type(self).aside,
        )

    def exchange(self, method: str, path: str, body: bytes | None = None) -> Reply:
        return self.server.status(path.removeprefix(REQUEST_PATH)) if method == "GET" else self.server.push(body or b"")

    def begin(self, _method: str, _path: str, _body: bytes) -> None:
        """Half of it would be nothing to this server."""

    def close(self) -> None:
        """The connection is no thing."""

    def close_server(self) -> None:
        self.server.ledger.close()


def op(number: int, text: str | None = None) -> Op:
    return Op(
        op_id=f"op{number}",
        type=OpType.UPSERT,
        file_id=f"F{number}",
        server_path=f"{number}.md",
        base_version=0,
        content=text or f"text {number} " * 30,
    )


@dataclass(frozen=True)
class Crash:
    """One way to die, and what the power cut takes afterwards."""

    die_at: int
    after: bool
    bytes_lost: Loss
    names_lost: bool


@dataclass(frozen=True, kw_only=True)
class Story:
    """What is prepared in peace, what the client dies in, and which ops must be at the server in the end."""

    name: str
    before: Act
    act: Act
    #: accepted before the crash: these must arrive
    promised: frozenset[str]
    #: all that may arrive
    possible: frozenset[str]
    dead: frozenset[str] = frozenset()
    keep_completed: bool = False
    #: what power cuts take of what is not synced: (bytes, names)
    cuts: Sequence[tuple[Loss, bool]] = tuple(product(Loss, (False, True)))

    def __str__(self) -> str:
        return self.name


def nothing(_site: Site, _files: Files) -> None:
    pass


def plan(*numbers: int) -> Act:
    return lambda site, files: drop(site.ops(files).plan_ops([op(number) for number in numbers]))


def send(site: Site, files: Files) -> None:
    resume(site.ops(files))


def plan_poison(site: Site, files: Files) -> None:
    wanted = [op(number, "poison" if number == 2 else "short") for number in (1, 2)]
    site.ops(files).plan_ops(wanted)


def drop_all(site: Site, files: Files) -> None:
    ops = site.ops(files)
    ops.drop(ops.queue.requests()[0].request_id)


def drop(_result: object) -> None:
    """A story tells nothing but that it went on."""


def ids(*numbers: int) -> frozenset[str]:
    return frozenset(f"op{number}" for number in numbers)


STORIES = [
    Story(name="planning", before=nothing, act=plan(1, 2, 3, 4, 5), promised=ids(), possible=ids(1, 2, 3, 4, 5)),
    Story(
        name="planning beside what is queued",
        before=plan(1, 2),
        act=plan(3, 4),
        promised=ids(1, 2),
        possible=ids(1, 2, 3, 4),
    ),
    Story(
        name="sending", before=plan(1, 2, 3, 4, 5), act=send, promised=ids(1, 2, 3, 4, 5), possible=ids(1, 2, 3, 4, 5)
    ),
    Story(
        name="sending, and keeping what was sent",
        before=plan(1, 2, 3),
        act=send,
        promised=ids(1, 2, 3),
        possible=ids(1, 2, 3),
        keep_completed=True,
    ),
    Story(
        name="splitting a batch with poison in it",
        before=plan_poison,
        act=send,
        promised=ids(1),
        possible=ids(1),
        dead=ids(2),
        # Many steps: the mildest cut, the worst, and one between.
        cuts=((Loss.NOTHING, False), (Loss.HALF, True), (Loss.ALL, True)),
    ),
    Story(name="dropping a request", before=plan(1, 2, 3), act=drop_all, promised=ids(), possible=ids(1, 2, 3)),
]


def told_as(name: str) -> Story:
    [story] = [one for one in STORIES if one.name == name]
    return story


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing: what they are worth is the business of FaultyFiles."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder)


def broken_promises(story: Story, folder: Path) -> list[str]:
    found: list[str] = []
    for number, crash in enumerate(every_crash(story, folder)):
        root = folder / str(number)
        site = Site(root, keep_completed=story.keep_completed)
        story.before(site, FILES)
        files = FaultyFiles(site.folder, die_at=crash.die_at, after=crash.after)
        with suppress(Died):
            story.act(site, files)
        files.power_cut(bytes_lost=crash.bytes_lost, names_lost=crash.names_lost)
        found += [f"{crash} {files.steps[-1]}: {fault}" for fault in faults_after(story, site)]
        site.close_server()
        shutil.rmtree(root)
    return found


def every_crash(story: Story, folder: Path) -> Iterator[Crash]:
    site = Site(folder / "steps", keep_completed=story.keep_completed)
    story.before(site, FILES)
    files = FaultyFiles(site.folder)
    story.act(site, files)
    site.close_server()
    for die_at, after, (bytes_lost, names_lost) in product(range(len(files.steps)), (False, True), story.cuts):
        yield Crash(die_at, after, bytes_lost, names_lost)


def faults_after(story: Story, site: Site) -> list[str]:
    """The next process finds what is left and goes on."""
    notes = [note for note in resume(site.ops()).notes if "never queued whole" not in note]
    arrived = [entry.op_id for entry in views.feed(site.server.ledger, SPACE, after=0, limit=1000).entries]
    dead = frozenset(letter.op.op_id for letter in site.ops().dead_letters())
    left = sorted(path.name for path in site.folder.glob("REQ-*"))
    faults = list(site.server.faults)
    faults += [f"doubled: {arrived}"] if len(set(arrived)) != len(arrived) else []
    faults += [f"lost: {sorted(story.promised - set(arrived))}"] if story.promised - set(arrived) else []
    faults += [f"made up: {arrived}"] if set(arrived) - story.possible else []
    faults += [f"dead: {sorted(dead)}"] if dead != story.dead else []
    faults += [f"left in the queue: {left}"] if left else []
    faults += [f"told: {notes}"] if notes else []
    return faults


@pytest.mark.parametrize("story", STORIES, ids=str)
def test_after_every_crash_the_next_run_sends_the_rest_and_nothing_twice(story: Story, memory: Path) -> None:
    assert broken_promises(story, memory) == []


@pytest.mark.parametrize("aside", [InTurn, AsLateAsCanBe])
@pytest.mark.parametrize("name", ["sending", "sending, and keeping what was sent"])
def test_it_does_not_matter_when_answered_batches_are_cleared_away(
    name: str, aside: Callable[[], Aside], memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_CLEARED_TOGETHER", 2)
    monkeypatch.setattr(Site, "aside", aside)

    assert broken_promises(told_as(name), memory) == []


def test_a_plan_that_returned_is_sent_whole_after_every_power_cut(memory: Path) -> None:
    for bytes_lost, names_lost in product(Loss, (False, True)):
        site = Site(memory / f"{bytes_lost}-{names_lost}")
        files = FaultyFiles(site.folder)

        site.ops(files).plan_ops([op(number) for number in range(1, 8)])
        files.power_cut(bytes_lost=bytes_lost, names_lost=names_lost)

        assert resume(site.ops()).applied == 7
        site.close_server()


# --- the test tested: queues that are wrong on purpose ---------------------------------------------------------------


def without_fsync(queue: Queue, path: Path, body: bytes) -> None:
    descriptor = queue._files.open(str(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    queue._files.write(descriptor, body)
    queue._files.close(descriptor)


def answers_before_manifest(queue: Queue, request_id: str) -> None:
    for path in (queue._answers_path(request_id), queue._manifest_path(request_id)):
        queue._files.unlink(str(path))
        queue._files.fsync_folder(str(queue.folder))


def nothing_lasts(_queue: Queue, _path: Path) -> None:
    pass


@pytest.mark.parametrize(
    ("method", "wrong", "story", "caught"),
    [
        ("_write_new", without_fsync, "planning", "is not what was queued"),
        ("_forget_request", answers_before_manifest, "sending", "is gone"),
        ("_make_last", nothing_lasts, "sending", "is gone"),
    ],
)
def test_a_wrong_queue_is_caught(
    method: str, wrong: object, story: str, caught: str, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, method, wrong)

    assert any(caught in fault for fault in broken_promises(told_as(story), memory))


# --- export ----------------------------------------------------------------------------------------------------------


def feed(count: int) -> Source:
    def changes(after: int) -> FeedPage:
        entries = [
            Change(
                seq=seq,
                space="s",
                op=FeedOp.CREATE,
                file_id="F",
                version=1,
                base_version=0,
                server_path="a",
                request_id="R",
                batch_index=1,
                op_id=str(seq),
                accepted_at="2026-01-01T00:00:00Z",
            )
            for seq in range(after + 1, min(after + 4, count + 1))
        ]
        return FeedPage(entries=entries, last=entries[-1].seq if entries else after, head=count)

    return Source(changes=changes, audit=lambda after: AuditPage(entries=[], last=after, head=0))


def test_an_export_that_died_anywhere_is_continued_without_a_gap_or_a_double(memory: Path) -> None:
    whole = FaultyFiles(make(memory / "whole"))
    export(feed(10), memory / "whole", space="s", rows_per_segment=4, files=whole)
    crashes = product(range(len(whole.steps)), (False, True), Loss, (False, True))

    for number, (die_at, after, bytes_lost, names_lost) in enumerate(crashes):
        folder = make(memory / str(number))
        files = FaultyFiles(folder, die_at=die_at, after=after)
        with suppress(Died):
            export(feed(10), folder, space="s", rows_per_segment=4, files=files)
        files.power_cut(bytes_lost=bytes_lost, names_lost=names_lost)

        export(feed(13), folder, space="s", rows_per_segment=4)

        manifest = json.loads((folder / MANIFEST_NAME).read_bytes())
        names = [segment["name"] for segment in manifest["changes"]]
        lines = [line for name in names for line in (folder / name).read_text().splitlines()]
        assert sorted(path.name for path in folder.glob("*.jsonl")) == names
        assert [json.loads(line)["seq"] for line in lines] == list(range(1, 14))


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder

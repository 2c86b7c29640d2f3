"""A whole world in one process, played from one seed: clients, their disks, the network, the server and its crashes.

Real: the queue and its files, the pusher, the rules, the ledger with SQLite. Simulated: time, dice, the wire between
client and server, and every death. A run with the same seed is the same run.

Faults: a request lost on its way, applied but not committed, committed but not answered, delivered twice, delivered
again much later, answered with half an answer, refused for the moment, refused for good; a client that dies at any
step of its files or of an exchange; a full disk; a torn batch file.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
import errno
import json
import os
import random
import shutil
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.atomic import Files
from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.testing import Died, FakeClock
from queueyard.ops import views
from queueyard.ops.aside import InTurn
from queueyard.ops.database import SqliteConnection, SqliteDatabase
from queueyard.ops.errors import TransportFailed
from queueyard.ops.ledger import Ledger, Push, SpaceName
from queueyard.ops.preparing import prepare
from queueyard.ops.problems import Problem
from queueyard.ops.pulling import PULL_PATH
from queueyard.ops.records import Limits, Op, OpType, PullRequest, Scope
from queueyard.ops.service import Ops
from queueyard.ops.settings import OpsSettings
from queueyard.ops.store import QUARANTINE, Queue
from queueyard.ops.transport import Reply
from queueyard.ops.worker import PUSH_PATH, REQUEST_PATH, resume
from unit.ops.support.model import Model, agrees

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SPACE = SpaceName("default", "default")
POISON = "poison"
LIMITS = Limits(
    max_ops=20,
    max_body_bytes=1 << 20,
    max_decompressed_bytes=1 << 20,
    max_content_bytes=1 << 16,
    max_path_bytes=200,
    answers_kept_days=30,
    encodings=[],
)
_MOST_RESTARTS = 200


class ServerDied(BaseException):
    """The simulated death of the server process."""


class DyingConnection(SqliteConnection):
    """Dies at the next commit if it is told to: everything was done, nothing is kept."""

    dies_at_commit = False

    def rows(self, sql: str, values: Any = ()) -> list[Any]:
        if sql == "COMMIT" and self.dies_at_commit:
            raise ServerDied
        return super().rows(sql, values)


class DyingDatabase(SqliteDatabase):
    def connect(self) -> DyingConnection:
        return DyingConnection(super().connect()._line)


class SimulatedServer:
    """The ledger, without HTTP around it; what it commits is compared with the model at once."""

    def __init__(self, folder: Path, clock: FakeClock) -> None:
        # A short world too should see texts before, while and after they are indexed.
        self._database = DyingDatabase(folder / "ledger.sqlite3", synchronous="OFF", indexed_together=5)
        self._clock = clock
        self.model = Model()
        self.faults: list[str] = []
        #: every batch that was committed, in order: (body, answer)
        self.committed: list[tuple[bytes, bytes]] = []
        self.ledger = Ledger(self._database, clock=clock)
        self.ledger.create()

    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self._database, clock=self._clock)

    def push(self, body: bytes, *, dies_at_commit: bool = False) -> Reply:
        if POISON.encode() in body:
            return _reply(Problem("invalid_request", "it is poison"))
        try:
            batch = prepare(body, LIMITS)
        except Problem as problem:
            return _reply(problem)
        line: Any = self.ledger.line
        line.dies_at_commit = dies_at_commit
        try:
            [answer] = self.ledger.apply([Push(space=SPACE, batch=batch)])
        finally:
            line.dies_at_commit = False
        if isinstance(answer, Problem):
            return _reply(answer)
        if answer.replayed:
            self._check_replay(body, answer.body)
        else:
            self.committed.append((body, answer.body))
            expected = self.model.apply(body)
            if not agrees(expected, json.loads(answer.body)["results"]):
                self.faults.append(f"the model says {expected}, the server {answer.body!r}")
        return Reply(status=200, headers={}, body=answer.body)

    def status(self, request_id: str) -> Reply:
        try:
            status = views.request_status(self.ledger, SPACE, request_id)
        except Problem as problem:
            return _reply(problem)
        return Reply(status=200, headers={}, body=msgspec.json.encode(status))

    def pull(self, body: bytes) -> Reply:
        asked = msgspec.structs.replace(msgspec.json.decode(body, type=PullRequest), limit=7)
        return Reply(status=200, headers={}, body=msgspec.json.encode(views.pull(self.ledger, SPACE, asked)))

    def _check_replay(self, body: bytes, answer: bytes) -> None:
        first = [before for sent, before in self.committed if sent == body]
        if first != [answer]:
            self.faults.append(f"a replay differs from its first answer: {first} {answer!r}")


class Wire:
    """The way from one client to the server and back."""

    def __init__(self, world: World, client: Client) -> None:
        self._world = world
        self._client = client

    def exchange(self, method: str, path: str, body: bytes | None = None) -> Reply:
        world = self._world
        fault = world.draw_wire_fault()
        if fault == "client dies before sending":
            self._client.die()
        if fault == "request lost":
            raise TransportFailed("lost on the way")
        if fault == "busy":
            return _reply(Problem("overloaded", retry_after_s=1))
        reply = self._deliver(method, path, body, fault)
        if fault == "client dies before hearing":
            self._client.die()
        if fault == "answer lost":
            raise TransportFailed("the answer was lost")
        if fault == "answer cut":
            return Reply(status=reply.status, headers={}, body=reply.body[: len(reply.body) // 2])
        return reply

    def begin(self, _method: str, _path: str, _body: bytes) -> None:
        """What is not whole has no effect on this wire."""

    def close(self) -> None:
        """Nothing is open."""

    def _deliver(self, method: str, path: str, body: bytes | None, fault: str | None) -> Reply:
        world = self._world
        if method == "GET":
            return world.server.status(path.removeprefix(REQUEST_PATH))
        assert body is not None
        if path == PULL_PATH:
            return world.server.pull(body)
        assert path == PUSH_PATH
        world.deliver_late_copies()
        try:
            reply = world.server.push(body, dies_at_commit=fault == "server dies before commit")
        except ServerDied:
            world.server.restart()
            raise TransportFailed("the server is gone") from None
        if fault == "server dies after commit":
            world.server.restart()
            raise TransportFailed("the server is gone")
        if fault == "delivered twice":
            reply = world.server.push(body)
        if fault == "copy stays on the way":
            world.late_copies.append(body)
        return reply


WIRE_FAULTS = (
    "request lost",
    "answer lost",
    "answer cut",
    "busy",
    "delivered twice",
    "copy stays on the way",
    "server dies before commit",
    "server dies after commit",
    "client dies before sending",
    "client dies before hearing",
)


class ClientFiles(Files):
    """A disk that may be full, and a process that may die, at any step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.dead = False

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._step()
        return super().open(path, flags, mode)

    def write(self, descriptor: int, data: bytes) -> int:
        if self._step() == "disk full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self._step()

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def fsync_folder(self, path: str) -> None:
        self._step()

    def _step(self) -> str | None:
        if self.dead:
            raise Died
        fault = self._world.draw_disk_fault()
        if fault == "client dies":
            self.dead = True
            raise Died
        return fault


class Client:
    """One queue, and the process that works on it, again and again."""

    def __init__(self, world: World, name: str, workspace: str = "") -> None:
        self._world = world
        self.name = name
        self.folder = world.root / name
        self.folder.mkdir(mode=0o700)
        #: op id -> op, for everything that a plan has accepted
        self.accepted: dict[str, Op] = {}
        self.torn: set[str] = set()
        self._scope = Scope(server="http://sim", space="default", workspace=workspace)
        self._files = ClientFiles(world)

    @property
    def ops(self) -> Ops:
        """A new process that finds the folder as the last one left it."""
        world = self._world
        self._files = ClientFiles(world)
        queue = Queue(self.folder, clock=world.clock, files=self._files, writers=1)
        return Ops(
            self._scope,
            queue,
            OpsSettings(batch_ops=25, batch_bytes=world.dice.choice([1024, 1024, 4096]), retry_for="20s"),
            connect=lambda: Wire(world, self),
            clock=world.clock,
            dice=world.dice.random,
            new_id=world.new_id,
            aside=InTurn,
        )

    def die(self) -> None:
        self._files.dead = True
        raise Died

    def plan(self) -> None:
        """Queue some random ops; they are accepted only if the call returns."""
        wanted = self._world.random_ops(self.name)
        with suppress(Died, QueueyardError):
            planned = self.ops.plan_ops(wanted)
            assert planned.request_id is not None
            last = {op.file_id: op for op in wanted}
            self.accepted |= {op.op_id: op for op in last.values()}

    def send(self) -> bool:
        """Whether the queue was emptied; not so if the process died or gave up."""
        try:
            resume(self.ops)
        except (Died, QueueyardError):
            return False
        return True

    def tear_a_batch(self) -> None:
        """A batch file that another program has cut, in the middle of everything."""
        found = sorted(self.folder.glob("REQ-*-0*.json"))
        if found:
            path = self._world.dice.choice(found)
            whole = path.read_bytes()
            with suppress(ValueError):
                self.torn |= {op["opId"] for op in json.loads(whole)["ops"]}
            path.write_bytes(whole[: len(whole) // 2])

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("REQ-*"))

    def dead_ops(self) -> set[str]:
        return {letter.op.op_id for letter in self.ops.dead_letters()}

    def quarantined(self) -> bool:
        return any((self.folder / QUARANTINE).glob("*"))


class World:
    """Everything of one run."""

    def __init__(self, seed: int, root: Path) -> None:
        self.root = root
        self.dice = random.Random(seed)
        self.clock = FakeClock()
        self.server = SimulatedServer(root, self.clock)
        self.late_copies: list[bytes] = []
        self.calm = False
        self._ids = 0
        self.wire_share = self.dice.choice([0.02, 0.1, 0.3])
        self.disk_share = self.dice.choice([0.0, 0.002, 0.01])
        self._tears = self.dice.random() < 0.4
        self.clients = self.make_clients()

    def make_clients(self) -> list[Client]:
        return [Client(self, f"client{number}") for number in range(self.dice.choice([1, 2, 3]))]

    def new_id(self) -> str:
        self._ids += 1
        return f"ID{self._ids:06d}"

    def draw_wire_fault(self) -> str | None:
        return self.dice.choice(WIRE_FAULTS) if not self.calm and self.dice.random() < self.wire_share else None

    def draw_disk_fault(self) -> str | None:
        if self.calm or self.dice.random() >= self.disk_share:
            return None
        return self.dice.choice(["client dies", "client dies", "disk full"])

    def deliver_late_copies(self) -> None:
        for body in self.late_copies:
            if self.dice.random() < 0.5:
                self.server.push(body)

    def random_ops(self, owner: str) -> list[Op]:
        """Ops on few files and few paths, so that clients get in each other's way."""
        return [self._random_op(f"{owner}-{self.new_id()}") for _ in range(self.dice.randint(1, 60))]

    def _random_op(self, op_id: str) -> Op:
        file_id = f"F{self.dice.randint(1, 40)}"
        known = self.server.model.files.get(file_id)
        version = known.version if known and self.dice.random() < 0.8 else self.dice.randint(0, 2)
        if self.dice.random() < 0.2:
            return Op(op_id=op_id, type=OpType.DELETE, file_id=file_id, server_path="gone.md", base_version=version)
        path = self.dice.choice(["a.md", "A.md", "b/c.md", "b", "d.md", "e/f/g.md", f"{file_id}.md", f"{file_id}/x"])
        path = "../up" if self.dice.random() < 0.02 else path
        text = POISON if self.dice.random() < 0.02 else f"{op_id} " * self.dice.randint(1, 30)
        return Op(
            op_id=op_id,
            type=OpType.UPSERT,
            file_id=file_id,
            server_path=path,
            base_version=version,
            content=self.dice.choice([text, "the same"]),
        )

    def play(self) -> None:
        """Clients plan, send, die and come back, in any order; in the end the storm is over and all finish."""
        for _ in range(self.dice.randint(3, 16)):
            client = self.dice.choice(self.clients)
            act = self.dice.random()
            if act < 0.45:
                client.plan()
            elif act < 0.85 or not self._tears:
                client.send()
            else:
                client.tear_a_batch()
        self.calm = True
        for client in self.clients:
            for _ in range(_MOST_RESTARTS):
                if client.send():
                    break
        for body in self.late_copies:
            self.server.push(body)

    def violations(self) -> list[str]:
        """Every broken promise; empty for a run as it should be."""
        found = self.server_violations()
        for client in self.clients:
            found += self._violations_of(client)
        return found

    def server_violations(self) -> list[str]:
        found = list(self.server.faults)
        feed = views.feed(self.server.ledger, SPACE, after=0, limit=5_000).entries
        if [entry.seq for entry in feed] != list(range(1, len(feed) + 1)):
            found.append("the feed has gaps")
        told = [(entry.request_id, entry.batch_index, entry.op_id) for entry in feed]
        if told != self.server.model.applied:
            found.append(f"the feed tells {told}, applied was {self.server.model.applied}")
        if self._final_state() != self.server.model.contents():
            found.append(f"the server has {self._final_state()}, the model {self.server.model.contents()}")
        for body, first in self.server.committed:
            again = self.server.push(body)
            if (again.status, again.body) != (200, first):
                found.append(f"a replay gives {again}, the first answer was {first!r}")
        return found

    def _violations_of(self, client: Client) -> list[str]:
        answered = [result["opId"] for _, answer in self.server.committed for result in json.loads(answer)["results"]]
        mine = [op_id for op_id in answered if op_id.startswith(client.name + "-")]
        found = [f"{client.name}: still queued: {client.leftovers()}"] if client.leftovers() else []
        twice = sorted({op_id for op_id in mine if mine.count(op_id) > 1})
        found += [f"{client.name}: answered twice: {twice}"] if twice else []
        lost = set(client.accepted) - set(mine) - client.dead_ops() - client.torn
        found += [f"{client.name}: lost: {sorted(lost)}"] if lost else []
        return found

    def _final_state(self) -> dict[str, tuple[str, int, str | None]]:
        rows = self.server.ledger.line.rows(
            "SELECT file_id, path, version, deleted, content FROM file LEFT JOIN blob ON blob.id = file.blob_id"
        )
        return {
            file_id: (path, version, None if deleted else bytes(content).decode())
            for file_id, path, version, deleted, content in rows
        }


@contextmanager
def simulated(seed: int, folder: Path, kind: type[World] = World) -> Iterator[World]:
    """One world, played to its end, and cleared away afterwards."""
    root = folder / f"seed{seed}"
    root.mkdir()
    world = kind(seed, root)
    try:
        world.play()
        yield world
    finally:
        world.server.ledger.close()
        shutil.rmtree(root)


def _reply(problem: Problem) -> Reply:
    headers = {} if problem.retry_after_s is None else {"retry-after": str(problem.retry_after_s)}
    return Reply(status=problem.status, headers=headers, body=problem.body())

"""Two hundred worlds, each played from its seed: whatever fails when, each op arrives once and nothing is lost.

In sixty more, clients keep folders in step. `make chaos` plays twelve thousand. Servers and clients that are wrong on
purpose are caught by the same checks.
"""

from __future__ import annotations

import json
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from queueyard.ops import rules
from queueyard.ops.ledger import Ledger
from queueyard.ops.service import Ops
from queueyard.ops.store import Queue
from unit.ops.support.folder_world import FolderWorld
from unit.ops.support.simulator import WIRE_FAULTS, World, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator

SEEDS = 200
FOLDER_SEEDS = 60
AT_ONCE = 20


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """A folder whose syncs cost nothing: here processes die, the power stays."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_every_op_arrives_once_whatever_fails(first: int, memory: Path) -> None:
    for seed in range(first, first + AT_ONCE):
        with simulated(seed, memory) as world:
            assert world.violations() == [], f"seed {seed}"


@pytest.mark.parametrize("first", range(0, FOLDER_SEEDS, AT_ONCE))
def test_folders_and_server_agree_in_the_end_whatever_fails(first: int, memory: Path) -> None:
    for seed in range(first, first + AT_ONCE):
        with simulated(seed, memory, FolderWorld) as world:
            assert world.violations() == [], f"seed {seed}"


def test_the_same_seed_is_the_same_world(memory: Path) -> None:
    def committed() -> list[tuple[bytes, bytes]]:
        with simulated(7, memory) as world:
            return world.server.committed

    assert committed() == committed()


def test_every_kind_of_fault_happens_in_those_worlds(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: set[str | None] = set()
    draw_wire, draw_disk = World.draw_wire_fault, World.draw_disk_fault

    def note(draw: Any) -> Any:
        def noting(world: World) -> str | None:
            fault: str | None = draw(world)
            drawn.add(fault)
            return fault

        return noting

    monkeypatch.setattr(World, "draw_wire_fault", note(draw_wire))
    monkeypatch.setattr(World, "draw_disk_fault", note(draw_disk))
    buried = torn = conflicts = 0

    for seed in range(40):
        with simulated(seed, memory) as world:
            buried += sum(len(client.dead_ops()) for client in world.clients)
            torn += sum(len(client.torn) for client in world.clients)
            conflicts += sum(
                result["status"] == "conflict"
                for _, answer in world.server.committed
                for result in json.loads(answer)["results"]
            )

    assert drawn >= {*WIRE_FAULTS, "client dies", "disk full"}
    assert min(buried, torn, conflicts) > 0


# --- the simulator tested: worlds that are wrong on purpose ----------------------------------------------------------


def caught(memory: Path, *, most: int = 60, kind: type[World] = World) -> list[str]:
    """What the first world with a fault complains about."""
    for seed in range(most):
        with simulated(seed, memory, kind) as world:
            if found := world.violations():
                return found
    return []


def test_a_server_that_makes_up_a_new_answer_is_caught(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Ledger._judge

    def fresh(ledger: Ledger, space: Any, batch: Any) -> bytes | None:
        answer = real(ledger, space, batch)
        return None if answer is None else answer.replace(b'"newCursor":', b'"newCursor":1')

    monkeypatch.setattr(Ledger, "_judge", fresh)

    assert any("replay" in fault for fault in caught(memory))


def test_a_server_that_takes_any_version_is_caught(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = rules.judge_upsert

    def lenient(op: Any, path: str, hashed: str, current: Any, holder: Any) -> Any:
        import msgspec

        version = current.version if current else 0
        return real(msgspec.structs.replace(op, base_version=version), path, hashed, current, holder)

    monkeypatch.setattr("queueyard.ops.ledger.judge_upsert", lenient)

    assert any("the model says" in fault for fault in caught(memory))


def test_a_server_that_lets_two_files_have_one_path_is_caught(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queueyard.ops.ledger._Applying._below", lambda *_: None)

    assert any("the model says" in fault for fault in caught(memory))


def test_a_client_that_discards_what_it_queued_is_caught(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recover = Queue._recover

    def careless(queue: Queue) -> list[str]:
        for manifest in queue.requests()[1:]:
            queue.drop(manifest)
        return recover(queue)

    monkeypatch.setattr(Queue, "_recover", careless)

    assert any("lost" in fault for fault in caught(memory))


def test_a_client_that_gives_each_try_a_new_key_is_caught(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Queue.read
    tries = iter(range(10**9))

    def renamed(queue: Queue, manifest: Any, index: int) -> bytes:
        body = real(queue, manifest, index)
        return body.replace(manifest.request_id.encode(), f"{manifest.request_id}-{next(tries)}".encode(), 1)

    monkeypatch.setattr(Queue, "read", renamed)
    monkeypatch.setattr("queueyard.ops.worker._Pusher._reconcile", lambda *_: True)

    assert caught(memory, most=2)


def test_a_client_that_forgets_what_it_heard_before_it_died_is_caught(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Ops, "up_to_date", lambda ops: ops.queue.locked())

    assert caught(memory, kind=FolderWorld, most=200)


def test_a_client_that_takes_its_own_change_for_news_is_caught(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("queueyard.ops.pulling.is_echo", lambda *_: False)

    assert caught(memory, kind=FolderWorld, most=200)


def test_a_client_that_does_not_say_what_it_is_about_to_write_is_caught(
    memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Queue, "note_coming", lambda *_: None)

    assert caught(memory, kind=FolderWorld, most=200)

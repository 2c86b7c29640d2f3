"""A world whose clients keep folders in step: they edit, move and delete files, plan, send, pull, and die meanwhile.

Each client edits files below a folder of its own, so nobody has a reason for a conflict. When the storm is over, all
folders and the server have the same files with the same texts, and nothing waits for a decision.
"""

from __future__ import annotations

from contextlib import suppress
import shutil
from typing import TYPE_CHECKING

from queueyard.kernel.errors import QueueyardError
from queueyard.kernel.testing import Died
from queueyard.ops.pulling import conflicts, pull
from unit.ops.support.simulator import Client, World

if TYPE_CHECKING:
    from pathlib import Path

_MOST_TRIES = 200


class FolderClient(Client):
    """A queue, its folder, and the user who works in it."""

    def __init__(self, world: FolderWorld, name: str) -> None:
        self.workspace = world.root / f"{name}-notes"
        self.workspace.mkdir()
        super().__init__(world, name, str(self.workspace))
        self._dice = world.dice
        self._own = self.workspace / name
        self._edits = 0

    def edit(self) -> None:
        """A few changes of the user: new texts, moves, deletes."""
        for _ in range(self._dice.randint(1, 12)):
            found = sorted(path for path in self._own.rglob("*") if path.is_file())
            act = self._dice.random()
            if act < 0.7 or not found:
                self._write(self._own / self._dice.choice(["", "sub", "sub/sub"]) / f"{self._dice.randint(1, 8)}.md")
            elif act < 0.85:
                self._dice.choice(found).unlink()
            else:
                target = self._own / "moved" / f"{self._dice.randint(1, 8)}.md"
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(self._dice.choice(found), target)

    def plan(self) -> None:
        with suppress(Died, QueueyardError):
            self.ops.plan(allow_deletes=True)

    def pull(self) -> bool:
        """Whether it came to its end."""
        try:
            pull(self.ops)
        except (Died, QueueyardError):
            return False
        return True

    def texts(self) -> dict[str, str]:
        found = (path for path in self.workspace.rglob("*") if path.is_file())
        return {path.relative_to(self.workspace).as_posix(): path.read_text() for path in found}

    def undecided(self) -> list[str]:
        return [one.server_path for one in conflicts(self.ops)] + sorted(self.dead_ops())

    def _write(self, path: Path) -> None:
        self._edits += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{self.name} {self._edits} " * self._dice.randint(1, 20))


class FolderWorld(World):
    """Everything of one run."""

    clients: list[FolderClient]  # type: ignore[assignment]

    def __init__(self, seed: int, root: Path) -> None:
        super().__init__(seed, root)
        # A folder takes few steps, so that each of them has to be more dangerous.
        self.wire_share = self.dice.choice([0.1, 0.3, 0.5])
        self.disk_share = self.dice.choice([0.0, 0.01, 0.04])

    def make_clients(self) -> list[Client]:
        return [FolderClient(self, f"client{number}") for number in range(self.dice.choice([1, 2]))]

    def play(self) -> None:
        for _ in range(self.dice.randint(3, 20)):
            client = self.dice.choice(self.clients)
            client.edit()
            self.dice.choice([client.plan, client.send, client.send, client.pull])()
        self.calm = True
        for client in self.clients:
            client.plan()
            self._until(client.send)
        for client in self.clients:
            self._until(client.pull)

    def violations(self) -> list[str]:
        found = self.server_violations()
        there = {path: text for path, _, text in self.server.model.contents().values() if text is not None}
        for client in self.clients:
            here = client.texts()
            differing = sorted({path for path, _ in here.items() ^ there.items()})
            found += [f"{client.name}: differs from the server: {differing}"] if differing else []
            found += [f"{client.name}: still queued: {client.leftovers()}"] if client.leftovers() else []
            found += [f"{client.name}: undecided: {client.undecided()}"] if client.undecided() else []
            planned = client.ops.plan(dry_run=True)
            found += [f"{client.name}: would send {planned.paths}"] if planned.ops else []
        return found

    def _until(self, done: object) -> None:
        for _ in range(_MOST_TRIES):
            if done():  # type: ignore[operator]
                return

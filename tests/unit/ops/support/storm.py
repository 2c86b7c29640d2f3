"""Real processes that are killed again and again while they push, and what must hold afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import random

    from unit.ops.support.running import RunningServer, ScriptClient

#: a server that kills itself at a commit: before it, or right after it
_SUICIDE = """
import os, signal, sys
from queueyard.ops import database
from queueyard.ops.cli import main
real, left, after = database.SqliteConnection.rows, [int(sys.argv.pop(1))], sys.argv.pop(1) == "after"
# The first commits are those of the tables and of the housekeeping, not of batches.
def rows(self, sql, values=()):
    mine = sql == "COMMIT" and getattr(self, "wrote_batch", False)
    if "INSERT INTO batch" in sql:
        self.wrote_batch = True
    if mine:
        left[0] -= 1
        self.wrote_batch = False
        if not left[0] and not after:
            os.kill(os.getpid(), signal.SIGKILL)
    found = real(self, sql, values)
    if mine and not left[0] and after:
        os.kill(os.getpid(), signal.SIGKILL)
    return found
database.SqliteConnection.rows = rows
main(prog_name="jolli-ops")
"""


def suicidal(nth: int, when: str) -> list[str]:
    """The command of a server that dies before or after its n-th batch is committed."""
    return [sys.executable, "-c", _SUICIDE, str(nth), when]


def write_files(client: ScriptClient, count: int) -> None:
    for number in range(count):
        client.write(f"{number:05d}.md", f"text {number}\n" * 20)


def violations(server: RunningServer, client: ScriptClient, count: int, *, space: str) -> list[str]:
    """What is broken after everything has been pushed: nothing lost, nothing doubled, nothing left."""
    feed: list[dict[str, Any]] = []
    while page := server.feed(space=space, after=len(feed)):
        feed += page
    found = []
    if [entry["seq"] for entry in feed] != list(range(1, len(feed) + 1)):
        found.append("the feed has gaps")
    paths = [entry["serverPath"] for entry in feed]
    if paths != sorted(paths) or len(set(paths)) != len(paths):
        found.append("the feed is out of order or has doubles")
    if len(paths) != count:
        found.append(f"{len(paths)} of {count} files arrived")
    if client.batch_files():
        found.append(f"still queued: {client.batch_files()}")
    return found


def kill_clients(client: ScriptClient, dice: random.Random, kills: int) -> int:
    """Start the pusher and kill it at a random moment, again and again; how often it was killed before it was done."""
    killed = 0
    for _ in range(kills):
        pushing = client.start("resume", "--retry-for", "1m")
        try:
            pushing.wait(dice.uniform(0.15, 0.9))
        except subprocess.TimeoutExpired:
            pushing.kill()
            killed += 1
        pushing.communicate()
    return killed


class ServerKiller:
    """Kills the server at random moments and starts it again, so many times, or until it is told to stop."""

    def __init__(self, server: RunningServer, dice: random.Random, *, longest_life_s: float, most: int) -> None:
        self._server = server
        self._dice = dice
        self._longest_life_s = longest_life_s
        self._most = most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.kills = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while self.kills < self._most and not self._stop.wait(self._dice.uniform(0.05, self._longest_life_s)):
            self._server.kill()
            self.kills += 1
            self._server.start()


def completed_bodies(client: ScriptClient) -> list[bytes]:
    """Every batch that was sent, as it was sent; for a client that keeps them."""
    return [path.read_bytes() for path in sorted((client.scope / "completed").iterdir())]


def answers_are_stable(server: RunningServer, bodies: list[bytes], *, space: str) -> bool:
    """Whether each batch, sent twice more, gets the same bytes, for itself."""
    for body in bodies:
        first, second = (server.push(body, space=space) for _ in range(2))
        if first.body != second.body or json.loads(body)["batchIndex"] != first.json["batchIndex"]:
            return False
    return True

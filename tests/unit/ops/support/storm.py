"""Real processes that are killed again and again while they push, and what must hold afterwards."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

from queueyard.ops import Ops, pull, resume
from unit.ops.support.running import SPACES, RunningServer, ScriptClient

if TYPE_CHECKING:
    from pathlib import Path
    import random

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


#: a client that kills itself at a step of its files or of an exchange, each of them counted before and after
_SUICIDE_OF_A_CLIENT = """
import os, signal, sys, threading
from queueyard.kernel.atomic import Files
from queueyard.ops.cli import main
from queueyard.ops.transport import HttpTransport
left, guard = [int(sys.argv.pop(1))], threading.Lock()
def step():
    with guard:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
def dying(real):
    def act(*args, **kwargs):
        step()
        done = real(*args, **kwargs)
        step()
        return done
    return act
for name in ("open", "write", "truncate", "fsync", "rename", "unlink", "fsync_folder", "close"):
    setattr(Files, name, dying(getattr(Files, name)))
# `_finish` is where the last byte of a batch that was begun is sent.
for name in ("exchange", "begin", "_finish"):
    setattr(HttpTransport, name, dying(getattr(HttpTransport, name)))
main(prog_name="jolli-ops")
"""


def dying_client(nth: int) -> list[str]:
    """The command of a client that is gone at its n-th step, by a signal that nobody can catch."""
    return [sys.executable, "-c", _SUICIDE_OF_A_CLIENT, str(nth)]


def violations_of_a_dying_client(server: RunningServer, home: Path, nth: int) -> list[str] | None:
    """What is broken after a push that died at its n-th step and a second one that did not; None if it did not die."""
    assert nth < SPACES, "there is no space for so many steps"
    space = f"space{nth}"
    client = ScriptClient(home, server.url, space)
    write_files(client, 60)
    died = client.start("push", "--batch-ops", "25", command=dying_client(nth))
    died.communicate()
    if died.returncode != -signal.SIGKILL:
        return None
    client.json("push", "--batch-ops", "25")
    return violations(server, client, 60, space=space)


def violations_of_a_dying_pull(server: RunningServer, folder: Path, nth: int) -> list[str] | None:
    """What is broken after a pull that died at its n-th step and one after others went on; None if it did not die."""
    assert nth < SPACES, "there is no space for so many steps"
    writer, reader = (ScriptClient(folder / name, server.url, f"space{nth}") for name in ("writer", "reader"))
    theirs = _library(writer)
    write_files(writer, 4)
    theirs.plan()
    resume(theirs)
    died = reader.start("pull", command=dying_client(nth))
    died.communicate()
    if died.returncode != -signal.SIGKILL:
        return None
    (writer.workspace / "00000.md").unlink()
    (writer.workspace / "00001.md").rename(writer.workspace / "moved.md")
    writer.write("00002.md", "changed")
    theirs.plan()
    resume(theirs)
    ours = _library(reader)
    pulled = pull(ours)
    found = [f"conflict: {one.server_path}" for one in pulled.conflicts]
    found += ["the folders differ"] if _texts(reader) != _texts(writer) else []
    found += [f"would be sent: {path}" for path in ours.plan(dry_run=True).paths]
    return found


def _library(client: ScriptClient) -> Ops:
    return Ops.open(client.workspace, environment=client.environment)


def _texts(client: ScriptClient) -> dict[str, str]:
    # A temporary file of the pull that was killed may lie there; nobody sends it.
    return {path.name: path.read_text() for path in client.workspace.iterdir() if not path.name.startswith(".")}


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
    patience = 1.0
    for _ in range(kills):
        queued = len(client.batch_files())
        pushing = client.start("resume", "--retry-for", "1m")
        try:
            pushing.wait(dice.uniform(0.15, 0.9) * patience)
        except subprocess.TimeoutExpired:
            pushing.kill()
            killed += 1
        pushing.communicate()
        if len(client.batch_files()) == queued:
            # On a slow machine it may not even have begun; a client that never sends anything shows nothing.
            patience = min(patience * 1.2, 10.0)
    return killed


class ServerKiller:
    """Kills the server after some batches, at a random moment, and starts it again, until it is told to stop."""

    def __init__(self, server: RunningServer, dice: random.Random, *, most_batches: int, most: int) -> None:
        """`most_batches`: so many are answered at most in one life, or a few more; `most`: so many kills."""
        self._server = server
        self._dice = dice
        self._most_batches = most_batches
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
        while self.kills < self._most and self._has_lived():
            self._server.kill()
            self.kills += 1
            self._server.start()

    def _has_lived(self) -> bool:
        """Wait until the server has answered its share; False if it is not needed any more."""
        share = self._dice.randint(1, self._most_batches)
        while not self._stop.wait(self._dice.uniform(0.0, 0.02)):
            if _answered(self._server) >= share:
                return True
        return False


def _answered(server: RunningServer) -> int:
    """Batches that the server has answered since it was started."""
    told = server.ask("GET", "/metrics").body.decode()
    return sum(map(int, re.findall(r"jolli_ops_batches_total\{.*\} (\d+)", told)))


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

"""Eight processes send while somebody kills them at random: what was acknowledged is there, whole, and found.

QUEUEYARD_SENDS sets how many each of them sends (2,000).
"""

from __future__ import annotations

from dataclasses import dataclass, field
import os
import random
import signal
import time
from typing import TYPE_CHECKING
import zlib

import pytest

from queueyard.queen import Queen
from queueyard.queen.doctor import examine
from queueyard.queen.home import Home
from queueyard.queen.records import Message, view
from queueyard.queen.store import MESSAGES, Store

if TYPE_CHECKING:
    from pathlib import Path

    from queueyard.kernel.atomic import BadLine

SENDS = int(os.environ.get("QUEUEYARD_SENDS", "2000"))
SENDERS = 8
LONGEST_PAUSE_S = 0.04
#: now and then a body that fills many pages, so that a kill can hit the middle of its write
LONG_BODY_EVERY = 40
LONG_BODY_BYTES = 60_000
LOOK_EVERY = 25
FAILED = 3

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(3600),
    # The children use nothing that another thread could hold.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


@dataclass
class UnderFire:
    """What is left when all senders have sent their share."""

    root: Path
    kills: int = 0
    torn: int = 0
    #: sender -> ids of the messages whose sending had returned
    acknowledged: dict[str, list[str]] = field(default_factory=dict)


def body_of(sender: str, number: int) -> str:
    """Recognisable, and with a checksum: a body that was put together from two would not pass."""
    length = LONG_BODY_BYTES if number % LONG_BODY_EVERY == 0 else number * 7 % 300
    text = f"{sender} {number} " + "x" * length
    return f"{zlib.crc32(text.encode()):08x} {text}"


def is_whole(body: str) -> bool:
    checksum, _, text = body.partition(" ")
    return f"{zlib.crc32(text.encode()):08x}" == checksum


def send_under_fire(root: Path, *, sends: int, kills: int | None, seed: int) -> UnderFire:
    """Let eight processes send, kill one at random again and again, and start another in its place.

    `kills` limits how often; None means as long as anybody is sending.
    """
    (root / ".beads").mkdir()
    chance = random.Random(seed)
    fire = UnderFire(root)
    names = [f"agent-{number}" for number in range(SENDERS)]
    alive = {name: _start(root, name, sends) for name in names}
    while alive and (kills is None or fire.kills < kills):
        time.sleep(chance.uniform(0, LONGEST_PAUSE_S))
        name = chance.choice(sorted(alive))
        if _kill(alive[name]):
            fire.kills += 1
            alive[name] = _start(root, name, sends)
        else:
            del alive[name]
    for pid in alive.values():
        assert _wait(pid) == 0, "a sender failed by itself"
    for name in names:
        fire.acknowledged[name] = (root / name).read_text().splitlines()
    return fire


def _start(root: Path, name: str, sends: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        _send(root, name, sends)
    except BaseException as fault:  # noqa: BLE001  whatever it is, it must not run on into the test suite
        os.write(2, f"{name}: {type(fault).__name__}: {fault}\n".encode())
        os._exit(FAILED)
    os._exit(0)


def _send(root: Path, name: str, sends: int) -> None:
    log = os.open(root / name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    done = os.pread(log, 1 << 24, 0).count(b"\n")
    to = f"agent-{(int(name[-1]) + 1) % SENDERS}"
    queen = Queen.open(root, agent=name, environment={})
    for number in range(done, sends):
        [message] = queen.send(to, body_of(name, number))
        os.write(log, f"{message.id}\n".encode())
        if number % LOOK_EVERY == 0:
            # So that the index is drawn, merged and killed as well.
            queen.inbox(limit=5)


def _kill(pid: int) -> bool:
    """Whether it had to be killed; False for one that had finished."""
    os.kill(pid, signal.SIGKILL)
    code = _wait(pid)
    assert code in {0, -signal.SIGKILL}, "a sender failed by itself"
    return code != 0


def _wait(pid: int) -> int:
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


def broken_promises(fire: UnderFire) -> list[str]:
    """What went wrong, one line each; empty if everything that was acknowledged is there, whole and found."""
    home = Home(beads=fire.root / ".beads", root=fire.root)
    store = Store(home)
    bad: list[BadLine] = []
    everything = store.every_message(bad.append)
    fire.torn = len(bad)
    views = {identifier: view(raw, Message) for identifier, raw in everything.items()}
    faults = [f"broken: {one}" for one in bad if not _is_torn(fire.root / ".beads" / MESSAGES, one)]
    faults += [f"{fire.torn} torn lines, but only {fire.kills} kills"] * (fire.torn > fire.kills)
    for name, acknowledged in fire.acknowledged.items():
        lost = [identifier for identifier in acknowledged if identifier not in views]
        faults += [f"{name}: lost {len(lost)}: {lost[:3]}"] * bool(lost)
        foreign = [one for one in acknowledged if one in views and views[one].sender != name]
        faults += [f"{name}: {len(foreign)} are not its own"] * bool(foreign)
    faults += [f"{one.id} is not whole" for one in views.values() if not is_whole(one.body)]
    for name in fire.acknowledged:
        found = store.messages(lambda index, to=name: [raw["id"] for raw in index.received_by(to)])  # type: ignore[misc]
        wanted = {one.id for one in views.values() if one.to == name}
        faults += [f"inbox of {name}: {len(found)} instead of {len(wanted)}"] * (
            set(found) != wanted or len(found) != len(wanted)
        )
    store.close()
    with Queen.open(fire.root, agent="human", environment={}) as queen:
        faults += [finding.problem for finding in examine(queen) if finding.check != "unreadable lines"]
    return faults


def _is_torn(path: Path, bad: BadLine) -> bool:
    """The beginning of one record and nothing else."""
    line = path.read_bytes()[bad.offset :].split(b"\n", 1)[0]
    return line.startswith(b'{"id":"qm-'[: len(line)]) and line.count(b'{"id":') <= 1 and not line.endswith(b"}")


def test_no_acknowledged_message_is_lost_and_no_line_is_broken(tmp_path: Path) -> None:
    fire = send_under_fire(tmp_path, sends=SENDS, kills=None, seed=1)

    assert {name: len(ids) for name, ids in fire.acknowledged.items()} == dict.fromkeys(fire.acknowledged, SENDS)
    assert broken_promises(fire) == []
    assert fire.kills > SENDERS, "hardly anybody was killed: this run has shown nothing"
    print(f"{SENDERS} x {SENDS} sends, {fire.kills} kills, {fire.torn} lines torn and mended")  # noqa: T201

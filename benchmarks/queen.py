"""queen with a million message records and ten thousand reservations.

Run: make bench, or python benchmarks/queen.py [RECORDS]. The file of a million records takes half a minute to make.
Peers in the same run: reading and folding the whole file, as a tool without an index does; a bare loop of append and
fsync; matching a pattern against every reservation one by one; an interpreter that imports what every command imports.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
import os
from pathlib import Path
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import msgspec

import measuring
from queueyard.kernel.clock import to_rfc3339
from queueyard.kernel.ids import UlidSource
from queueyard.queen import Queen
from queueyard.queen.globs import overlaps, parse
from queueyard.queen.records import Raw, encode

_RECORDS = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
_RESERVATIONS = 10_000
_AGENTS = [f"agent-{number:02}" for number in range(30)]
_SENDS = 2_000


class _Ticking:
    """A clock that gives each message a time of its own, long ago."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, tzinfo=UTC)

    def now(self) -> datetime:
        self._now += timedelta(milliseconds=900)
        return self._now

    def monotonic(self) -> float:
        return self._now.timestamp()

    def sleep(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)


def write_messages(path: Path, records: int) -> None:
    """Four fifths new messages, 40 % of them replies; one fifth updates that mark one of the last 2,000 read."""
    chance = random.Random(7)
    clock = _Ticking()
    ids = UlidSource(clock, chance.getrandbits)
    recent: list[Raw] = []
    with path.open("wb", buffering=1 << 20) as stream:
        for _ in range(records):
            if recent and chance.random() < 0.2:
                message = chance.choice(recent) | {"read": True, "read_at": to_rfc3339(clock.now())}
            else:
                message = _new_message(chance, clock, ids, recent)
                recent = [*recent[-1_999:], message] if len(recent) >= 4_000 else recent
                recent.append(message)
            stream.write(encode(message) + b"\n")


def _new_message(chance: random.Random, clock: _Ticking, ids: UlidSource, recent: list[Raw]) -> Raw:
    issue = f"qy-{chance.randrange(5_000)}"
    message: Raw = {
        "id": f"qm-{ids.new()}",
        "created_at": to_rfc3339(clock.now()),
        "from": chance.choice(_AGENTS),
        "to": chance.choice(_AGENTS),
        "subject": f"[{issue}] Where it stands",
        "body": "x" * chance.randrange(20, 200),
        "issue_id": issue,
        "importance": "normal",
        "read": False,
    }
    if recent and chance.random() < 0.4:
        parent = chance.choice(recent[-500:])
        message |= {"reply_to": parent["id"], "thread_id": parent.get("thread_id", parent["id"])}
    return message


def write_reservations(path: Path, count: int) -> None:
    """60 % folders, 25 % prefix and suffix, 15 % single files; all active, by agents of their own."""
    chance = random.Random(11)
    ids = UlidSource(_Ticking(), chance.getrandbits)
    with path.open("wb") as stream:
        for number in range(count):
            folder = f"src/area{number % 97}/part{number}"
            pattern = chance.choices(
                (f"{folder}/**", f"{folder}/**/*.test.ts", f"{folder}/index.ts"), weights=(60, 25, 15)
            )[0]
            owner = f"agent-{number}"
            record: Raw = {"id": f"qr-{ids.new()}", "created_at": "2026-01-01T00:00:00Z", "status": "active"}
            record |= {"expires_at": "2099-01-01T00:00:00Z", "pattern": pattern, "exclusive": True}
            stream.write(encode(record | {"agent": owner, "droid": owner}) + b"\n")


def fold_everything(path: Path, agent: str) -> list[Raw]:
    """What a tool without an index does for one inbox."""
    latest: dict[str, Raw] = {}
    decode = msgspec.json.Decoder(dict[str, object]).decode
    with path.open("rb") as stream:
        for line in stream:
            record = decode(line)
            identifier = str(record["id"])
            latest[identifier] = latest.get(identifier, {}) | record
    mine = [record for record in latest.values() if record["to"] == agent]
    return sorted(mine, key=lambda record: str(record["created_at"]), reverse=True)[:20]


def measure_messages(repository: Path) -> None:
    path = repository / ".beads" / "queen_messages.jsonl"
    print(f"{_RECORDS:,} message records, {path.stat().st_size / 1e6:,.0f} MB")
    cold = []
    for _ in range(3):
        shutil.rmtree(repository / ".beads" / ".queen", ignore_errors=True)
        with Queen.open(repository, agent="agent-05", environment={}) as queen:
            cold.append(measuring.seconds(queen.inbox))
    measuring.report("cold index build and first inbox", statistics.median(cold), "s", at_most=5.0)
    with Queen.open(repository, agent="agent-05", environment={}) as queen:
        newest = queen.inbox(limit=50)
        unread = iter(queen.inbox(unread=True, limit=200))
        root = next(message.thread_id or message.id for message in newest if message.thread_id)
        medians = measuring.interleaved(
            {
                "inbox": queen.inbox,
                "inbox --unread": lambda: queen.inbox(unread=True),
                "thread": lambda: queen.thread(root),
                "read (marks, with fsync)": lambda: queen.read(next(unread).id),
                "read --peek": lambda: queen.read(newest[7].id, peek=True),
            },
            rounds=50,
        )
    for name, median in medians.items():
        measuring.report(f"library: {name}", median * 1e3, "ms", at_most=10.0)
    folding = measuring.seconds(lambda: fold_everything(path, "agent-05"))
    measuring.report("library: inbox without an index (whole file folded)", folding * 1e3, "ms")
    measuring.report("ratio: folding the whole file / inbox", folding / medians["inbox"], "x")
    measure_processes(repository, newest[3].id, root)


def measure_processes(repository: Path, message: str, thread: str) -> None:
    script = [str(Path(sys.executable).parent / "queen"), "--agent", "agent-05", "msg"]
    bare = [sys.executable, "-c", "import click, msgspec"]
    commands = {"inbox": [*script, "inbox"], "thread": [*script, "thread", thread], "read": [*script, "read", message]}
    candidates = {name: partial(_run, command, repository) for name, command in {**commands, "bare": bare}.items()}
    medians = measuring.interleaved(candidates, rounds=15)
    for name in commands:
        measuring.report(f"process: queen msg {name}", medians[name] * 1e3, "ms", at_most=150.0)
    measuring.report("process: an interpreter that imports click and msgspec", medians["bare"] * 1e3, "ms")
    measuring.report("ratio: queen msg inbox / that interpreter", medians["inbox"] / medians["bare"], "x")


def _run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)


def measure_sends(folder: Path) -> None:
    (folder / ".beads").mkdir(parents=True)
    line = b"x" * 340 + b"\n"
    bare = folder / "bare.jsonl"

    def append_and_fsync() -> None:
        for _ in range(_SENDS):
            descriptor = os.open(bare, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            os.write(descriptor, line)
            os.fsync(descriptor)
            os.close(descriptor)

    with Queen.open(folder, agent="ana", environment={}) as queen:

        def send() -> None:
            for _ in range(_SENDS):
                queen.send("ben", "x" * 120, issue="qy-1")

        medians = measuring.interleaved({"send": send, "bare": append_and_fsync}, rounds=5)
    measuring.report("durable sends from one process", _SENDS / medians["send"], "/s", at_least=2_000)
    measuring.report("bare append + fsync (the limit)", _SENDS / medians["bare"], "/s")
    measuring.report("ratio: sends / limit", medians["bare"] / medians["send"], "x")


def measure_reservations(folder: Path) -> None:
    beads = folder / ".beads"
    beads.mkdir(parents=True)
    write_reservations(beads / "queen_reservations.jsonl", _RESERVATIONS)
    with Queen.open(folder, agent="ana", environment={}) as queen:
        first = measuring.seconds(lambda: queen.reserve(["docs/first/**"]))
        globs = [parse(one.pattern) for one in queen.reserved()]
        fresh = iter(range(1_000_000))
        medians = measuring.interleaved(
            {
                "reserve": lambda: queen.reserve([f"lib/part{next(fresh)}/*.py"]),
                "check": lambda: queen.check("src/area3/part100/x.ts"),
                "brute force": lambda: [glob for glob in globs if overlaps(parse("lib/*/x.py"), glob)],
            },
            rounds=50,
        )
    measuring.report(f"library: first reserve against {_RESERVATIONS:,} (reads the file)", first * 1e3, "ms")
    measuring.report(f"library: reserve against {_RESERVATIONS:,}", medians["reserve"] * 1e3, "ms", at_most=30.0)
    measuring.report(f"library: check against {_RESERVATIONS:,}", medians["check"] * 1e3, "ms")
    measuring.report("ratio: every pattern one by one / reserve", medians["brute force"] / medians["reserve"], "x")


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="queen-bench-", dir=os.environ.get("QUEUEYARD_BENCH_DIR")) as name:
        folder = Path(name)
        (folder / "many" / ".beads").mkdir(parents=True)
        write_messages(folder / "many" / ".beads" / "queen_messages.jsonl", _RECORDS)
        measure_messages(folder / "many")
        measure_sends(folder / "sends")
        measure_reservations(folder / "reservations")
    measuring.finish()


if __name__ == "__main__":
    main()

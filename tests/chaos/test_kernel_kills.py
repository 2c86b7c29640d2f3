"""Real kill -9, thousands of times, in the middle of writing and reading: no corrupt read, no stray that stays.

QUEUEYARD_KILLS sets how many (10,000), split over replacing, appending and reading.
"""

from __future__ import annotations

from contextlib import contextmanager
import hashlib
import mmap
import os
import random
import signal
import struct
import time
from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.atomic import BadLine, append_lines, read_lines, replace_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KILLS = int(os.environ.get("QUEUEYARD_KILLS", "10000"))
LONGEST_LIFE_S = 0.004
KILLS_PER_FILE = 50
LINES_PER_FILE = 200
FAILED = 3

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.timeout(1800),
    # The children use nothing that another thread could hold.
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
]


class Acknowledged:
    """The last number whose write returned, in memory that outlives the writer."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    def set(self, number: int) -> None:
        self._memory[:] = struct.pack("q", number)

    def get(self) -> int:
        return int(struct.unpack("q", self._memory[:])[0])


def fork_loop(work: Callable[[], None]) -> int:
    """A child that works until it is killed, or tells the first failure and exits by itself."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        while os.getppid() == parent:
            work()
    except BaseException as fault:  # noqa: BLE001  whatever it is, it must not run on into the test suite
        os.write(2, f"{type(fault).__name__}: {fault}\n".encode())
        os._exit(FAILED)
    os._exit(0)


def kill_soon(pid: int, chance: random.Random) -> int:
    """Kill after a moment that is left to chance; the exit code is -9 unless the child failed before."""
    time.sleep(chance.uniform(0, LONGEST_LIFE_S))
    return kill(pid)


def kill(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


@contextmanager
def running(work: Callable[[], None]) -> Iterator[None]:
    pid = fork_loop(work)
    try:
        yield
    finally:
        code = kill(pid)
    assert code == -signal.SIGKILL, "the other process failed by itself"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def document(number: int, size: int) -> bytes:
    body = struct.pack("q", number) + number.to_bytes(8, "little") * size
    return hashlib.sha256(body).digest() + body


def number_in(content: bytes) -> int:
    digest, body = content[:32], content[32:]
    if hashlib.sha256(body).digest() != digest:
        raise AssertionError(f"a corrupt read of {len(content)} bytes")
    return int(struct.unpack_from("q", body)[0])


def replacing(path: Path, acknowledged: Acknowledged) -> Callable[[], None]:
    def replace() -> None:
        number = acknowledged.get() + 1
        replace_file(path, document(number, size=number % 5000))
        acknowledged.set(number)

    return replace


def line(number: int) -> bytes:
    # Long enough to be cut in the middle by a kill, at times.
    return b'{"n":%d,"pad":"%s"}' % (number, b"x" * (number * 7919 % 60_000))


def appending(path: Path, acknowledged: Acknowledged) -> Callable[[], None]:
    def append() -> None:
        number = acknowledged.get() + 1
        append_lines(path, [line(number)], durable=number % 2 == 0)
        acknowledged.set(number)

    return append


def whole_lines(path: Path) -> tuple[list[int], list[BadLine]]:
    bad: list[BadLine] = []
    numbers = []
    for one in read_lines(path, msgspec.json.decode, on_bad=bad.append):
        if msgspec.json.decode(line(one.value["n"])) != one.value:
            raise AssertionError(f"a corrupt line at byte {one.offset}")
        numbers.append(one.value["n"])
    return numbers, bad


def test_a_killed_replacer_leaves_the_old_or_the_new_file_and_the_next_one_sweeps(tmp_path: Path) -> None:
    chance = random.Random(1)
    acknowledged = Acknowledged()
    path = tmp_path / "state"
    replace_file(path, document(0, size=0))
    strays = 0

    for _ in range(KILLS // 3):
        code = kill_soon(fork_loop(replacing(path, acknowledged)), chance)

        assert code == -signal.SIGKILL
        found = number_in(path.read_bytes())
        assert found in {acknowledged.get(), acknowledged.get() + 1}
        strays += len(names_in(tmp_path)) - 1
        acknowledged.set(found)

    replacing(path, acknowledged)()
    assert names_in(tmp_path) == ["state"]
    assert strays, "no kill ever hit the middle of a replacement: this run has shown nothing"
    print(f"{KILLS // 3} replacers killed, {acknowledged.get()} replacements, {strays} strays swept")  # noqa: T201


def test_a_killed_appender_leaves_every_acknowledged_line_and_at_most_a_torn_last_one(tmp_path: Path) -> None:
    chance = random.Random(2)
    acknowledged = Acknowledged()
    path = tmp_path / "log.jsonl"
    lost: list[int] = []
    torn = 0

    for kill_number in range(KILLS // 3):
        if kill_number % KILLS_PER_FILE == 0:
            path.unlink(missing_ok=True)
            acknowledged.set(0)
            lost.clear()

        code = kill_soon(fork_loop(appending(path, acknowledged)), chance)

        assert code == -signal.SIGKILL
        numbers, bad = whole_lines(path)
        last = acknowledged.get()
        # A line is written, torn, or not there; only one that was not acknowledged may be anything but written.
        assert numbers[: last - len(lost)] == [number for number in range(1, last + 1) if number not in lost]
        assert numbers[last - len(lost) :] in ([], [last + 1])
        assert len(bad) in {len(lost), len(lost) + 1}
        if len(bad) > len(lost):
            assert bad[-1].reason == "torn last line"
            lost.append(last + 1)
            torn += 1
        acknowledged.set(max([last, *numbers, *lost]))

    assert names_in(tmp_path) == ["log.jsonl"]
    print(f"{KILLS // 3} appenders killed, {torn} lines torn and mended")  # noqa: T201


def test_a_killed_reader_beside_writers_never_saw_anything_corrupt(tmp_path: Path) -> None:
    chance = random.Random(3)
    state, log = tmp_path / "state", tmp_path / "log.jsonl"
    replaced, appended, reads = Acknowledged(), Acknowledged(), Acknowledged()
    replace_file(state, document(0, size=0))

    def append_and_start_anew() -> None:
        if appended.get() % LINES_PER_FILE == 0:
            log.unlink(missing_ok=True)
        appending(log, appended)()

    def read() -> None:
        number_in(state.read_bytes())
        numbers, bad = whole_lines(log)
        # What is being written while we read may look torn; nothing before it may.
        assert len(bad) <= 1
        assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
        reads.set(reads.get() + 1)

    with running(replacing(state, replaced)), running(append_and_start_anew):
        for _ in range(KILLS - 2 * (KILLS // 3)):
            assert kill_soon(fork_loop(read), chance) == -signal.SIGKILL

    replacing(state, replaced)()
    assert names_in(tmp_path) in (["log.jsonl", "state"], ["state"])
    assert reads.get(), "no reader ever got through: this run has shown nothing"
    print(f"{replaced.get()} replacements and {appended.get()} appends beside {reads.get()} whole reads")  # noqa: T201

"""Many real processes on one file and one lock: nothing is lost, nothing is torn, never two holders."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from queueyard.kernel.atomic import Line, append_lines, read_lines, replace_file
from queueyard.kernel.locks import FileLock

if TYPE_CHECKING:
    from pathlib import Path

APPENDERS, APPENDS = 8, 2000
RACES = 500

APPEND = """
import pathlib, sys
from queueyard.kernel.atomic import append_lines
path, me, count, durable = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "durable"
print("ready", flush=True)
sys.stdin.readline()
for number in range(count):
    pad = me * (number * 7 % 300)
    append_lines(path, [f'{{"who":"{me}","n":{number},"pad":"{pad}"}}'.encode()], durable=durable)
"""

RACE = """
import os, pathlib, sys
from queueyard.kernel.errors import LockTimeout
from queueyard.kernel.locks import FileLock
folder, timeout_s = pathlib.Path(sys.argv[1]), float(sys.argv[2])
counter = folder / "counter"
print("ready", flush=True)
for _ in sys.stdin:
    try:
        with FileLock(folder / "x.lock", timeout_s=timeout_s):
            # Fails if the other one is inside too.
            os.close(os.open(folder / "inside", os.O_CREAT | os.O_EXCL))
            counter.write_text(str(int(counter.read_text()) + 1))
            os.unlink(folder / "inside")
        print("held", flush=True)
    except LockTimeout:
        print("refused", flush=True)
"""

REPLACE = """
import pathlib, sys
from queueyard.kernel.atomic import replace_file
path, me = pathlib.Path(sys.argv[1]), sys.argv[2]
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[3])):
    replace_file(path, me.encode() * (1000 + number * 37 % 5000))
"""


class Crew:
    """Processes that are all ready before the first may go."""

    def __init__(self, stack: ExitStack, program: str, arguments: list[list[str]]) -> None:
        self.members = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            for words in arguments
        ]
        for answer in self.answers():
            assert answer == "ready"

    def go(self) -> None:
        for member in self.members:
            assert member.stdin is not None
            member.stdin.write("go\n")
            member.stdin.flush()

    def answers(self) -> list[str]:
        answers = []
        for member in self.members:
            assert member.stdout is not None
            answers.append(member.stdout.readline().strip())
        return answers

    def finish(self) -> None:
        for member in self.members:
            assert member.stdin is not None
            member.stdin.close()
        assert [member.wait() for member in self.members] == [0] * len(self.members)


def appended_by(path: Path) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    line: Line[dict[str, object]]
    for line in read_lines(path, msgspec.json.decode, on_bad=lambda bad: pytest.fail(str(bad))):
        numbers.setdefault(str(line.value["who"]), []).append(int(str(line.value["n"])))
    return numbers


@pytest.mark.parametrize(("count", "how"), [(APPENDS, "quick"), (100, "durable")])
def test_every_line_of_eight_appenders_is_whole_and_none_is_lost(tmp_path: Path, count: int, how: str) -> None:
    path = tmp_path / "log.jsonl"
    names = "abcdefgh"[:APPENDERS]

    with ExitStack() as stack:
        crew = Crew(stack, APPEND, [[str(path), name, str(count), how] for name in names])
        crew.go()
        crew.finish()

    assert appended_by(path) == {name: list(range(count)) for name in names}


@pytest.mark.parametrize(("timeout_s", "outcomes"), [(60, {"held": 2 * RACES}), (0, None)])
def test_two_processes_that_race_for_a_lock_are_never_both_inside(
    tmp_path: Path, timeout_s: float, outcomes: dict[str, int] | None
) -> None:
    (tmp_path / "counter").write_text("0")
    seen: Counter[str] = Counter()

    with ExitStack() as stack:
        crew = Crew(stack, RACE, [[str(tmp_path), str(timeout_s)]] * 2)
        for _ in range(RACES):
            crew.go()
            answers = crew.answers()
            assert "held" in answers, "somebody must win every race"
            seen.update(answers)
        crew.finish()

    assert int((tmp_path / "counter").read_text()) == seen["held"]
    assert seen.total() == 2 * RACES
    assert outcomes in (None, seen)


def test_a_lock_held_by_a_thread_keeps_other_processes_out(tmp_path: Path) -> None:
    (tmp_path / "counter").write_text("0")

    with ExitStack() as stack:
        crew = Crew(stack, RACE, [[str(tmp_path), "0"]])
        with FileLock(tmp_path / "x.lock"):
            crew.go()
            during = crew.answers()
        crew.go()
        afterwards = crew.answers()
        crew.finish()

    assert (during, afterwards) == (["refused"], ["held"])


def test_readers_beside_four_replacers_always_see_one_of_their_files_whole(tmp_path: Path) -> None:
    path = tmp_path / "state"
    replace_file(path, b"start")

    with ExitStack() as stack:
        crew = Crew(stack, REPLACE, [[str(path), name, "100"] for name in "abcd"])
        crew.go()
        contents = [path.read_bytes()]
        while any(member.poll() is None for member in crew.members):
            contents.append(path.read_bytes())
        crew.finish()

    assert all(content == b"start" or (len(content) >= 1000 and len(set(content)) == 1) for content in contents)
    assert list(tmp_path.iterdir()) == [path]


def test_appenders_that_find_a_torn_tail_at_the_same_time_mend_it_once(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"who":"to')

    with ExitStack() as stack:
        crew = Crew(stack, APPEND, [[str(path), name, "5", "quick"] for name in "abcd"])
        crew.go()
        crew.finish()

    torn, *lines = path.read_bytes().split(b"\n")
    assert torn == b'{"who":"to'
    assert lines.pop() == b""
    assert len([msgspec.json.decode(line) for line in lines]) == 20


def test_the_range_that_an_append_tells_is_its_own_beside_other_appenders(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    told: list[tuple[int, tuple[int, int]]] = []

    with ExitStack() as stack:
        crew = Crew(stack, APPEND, [[str(path), name, "200", "quick"] for name in "ab"])
        crew.go()
        told += [(n, append_lines(path, [f'{{"who":"me","n":{n}}}'.encode()], durable=False)) for n in range(200)]
        crew.finish()

    content = path.read_bytes()
    assert [content[start:end] for _, (start, end) in told] == [f'{{"who":"me","n":{n}}}\n'.encode() for n, _ in told]

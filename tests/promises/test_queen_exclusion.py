"""Twelve real processes want the same thing at the same moment, two hundred times over: always exactly one gets it."""

from __future__ import annotations

from collections import Counter
import subprocess
import sys
from typing import TYPE_CHECKING, Self

import msgspec
import pytest

from queueyard.queen.globs import overlaps, parse
from queueyard.queen.records import Assignment, Raw, Reservation, decode, view
from queueyard.queen.rules import fold, owner_of
from queueyard.queen.store import ASSIGNMENTS, RESERVATIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from types import TracebackType

RIVALS = 12
ROUNDS = 200
ISSUES = 5

RIVAL = """
import pathlib, sys
from queueyard.queen import Queen
from queueyard.queen.errors import AlreadyHeld, ReservationConflict

queen = Queen.open(pathlib.Path(sys.argv[1]), agent=sys.argv[2], environment={"QUEEN_LOCK_TIMEOUT_S": "120"})

def act(verb, *words):
    try:
        if verb == "reserve":
            queen.reserve(words)
        elif verb == "unreserve":
            queen.unreserve()
        elif verb == "claim":
            queen.claim(*words)
        elif verb == "take":
            queen.claim(*words, take=True)
        elif verb == "release":
            queen.release(*words)
        elif verb == "next":
            got = queen.next()
            return got.issue.id if got else "nothing"
    except (ReservationConflict, AlreadyHeld):
        return "refused"
    return "done"

print("ready", flush=True)
for line in sys.stdin:
    print(act(*line.split()), flush=True)
"""


class Rivals:
    """Processes that are all ready before the first may go, and that act in rounds."""

    def __init__(self, root: Path, count: int = RIVALS) -> None:
        self.names = [f"agent-{number:02}" for number in range(count)]
        self._members = [
            subprocess.Popen(
                [sys.executable, "-c", RIVAL, str(root), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            for name in self.names
        ]

    def __enter__(self) -> Self:
        assert self._answers(range(len(self._members))) == ["ready"] * len(self._members)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        for member in self._members:
            if kind is not None:
                member.kill()
            with member:
                pass

    def all(self, *commands: str) -> list[str]:
        """Everybody does its command (the same one, if there is only one) at once; the answers in order."""
        for number in range(len(self._members)):
            self._tell(number, commands[number % len(commands)])
        return self._answers(range(len(self._members)))

    def one(self, number: int, command: str) -> str:
        self._tell(number, command)
        return self._answers([number])[0]

    def _tell(self, number: int, command: str) -> None:
        stdin = self._members[number].stdin
        assert stdin is not None
        stdin.write(f"{command}\n")

    def _answers(self, numbers: Sequence[int]) -> list[str]:
        answers = []
        for number in numbers:
            stdout = self._members[number].stdout
            assert stdout is not None
            answers.append(stdout.readline().strip())
        return answers


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / ".beads").mkdir()
    lines = [msgspec.json.encode({"id": f"qb-{number}", "priority": number % 5}) for number in range(ISSUES)]
    (tmp_path / ".beads" / "issues.jsonl").write_bytes(b"\n".join(lines))
    return tmp_path


def replayed(path: Path) -> Iterator[dict[str, Raw]]:
    """The folded records after each line of the file."""
    folded: dict[str, Raw] = {}
    for line in path.read_bytes().splitlines():
        raw = decode(line)
        folded[raw["id"]] = fold(folded.get(raw["id"]), raw)
        yield folded


def times_held_by_two(path: Path) -> list[str]:
    """Every line after which two agents held overlapping files exclusively."""
    found = []
    for number, folded in enumerate(replayed(path), 1):
        records = (view(raw, Reservation) for raw in folded.values() if raw["status"] == "active")
        held = [(owner_of(one), parse(one.pattern)) for one in records if one.exclusive]
        found += [f"line {number}: {a} and {b}" for a, x in held for b, y in held if a < b and overlaps(x, y)]
    return found


def times_worked_on_by_two(path: Path) -> list[str]:
    """Every line after which an issue had two active assignments."""
    found = []
    for number, folded in enumerate(replayed(path), 1):
        active = [view(raw, Assignment) for raw in folded.values() if raw["status"] == "active"]
        twice = [issue for issue, times in Counter(one.issue_id for one in active).items() if times > 1]
        found += [f"line {number}: {issue}" for issue in twice]
    return found


def test_of_twelve_that_reserve_the_same_files_one_gets_them(root: Path) -> None:
    wins: Counter[int] = Counter()

    with Rivals(root) as rivals:
        for round_number in range(ROUNDS):
            # In every other round they write the same files in different ways.
            asked = ["src/**"] if round_number % 2 else ["src/*/x.ts", "src/a/*.ts", "**/x.ts"]
            answers = rivals.all(*(f"reserve {pattern}" for pattern in asked))
            assert Counter(answers) == {"done": 1, "refused": RIVALS - 1}, round_number
            winner = answers.index("done")
            wins[winner] += 1
            assert rivals.one(winner, "unreserve") == "done"

    path = root / ".beads" / RESERVATIONS
    assert times_held_by_two(path) == []
    assert len(path.read_bytes().splitlines()) == 2 * ROUNDS
    assert len(wins) > 1, "always the same winner: they never really raced"


def test_of_twelve_that_claim_the_same_issue_one_gets_it(root: Path) -> None:
    wins: Counter[int] = Counter()

    with Rivals(root) as rivals:
        for round_number in range(ROUNDS):
            answers = rivals.all("claim qb-1")
            assert Counter(answers) == {"done": 1, "refused": RIVALS - 1}, round_number
            winner = answers.index("done")
            wins[winner] += 1
            assert rivals.one(winner, "release qb-1") == "done"

    path = root / ".beads" / ASSIGNMENTS
    assert times_worked_on_by_two(path) == []
    assert len(path.read_bytes().splitlines()) == 2 * ROUNDS
    assert len(wins) > 1, "always the same winner: they never really raced"


def test_twelve_that_ask_for_the_next_issue_never_get_the_same(root: Path) -> None:
    rounds = ROUNDS // 4

    with Rivals(root) as rivals:
        for round_number in range(rounds):
            answers = rivals.all("next")
            assert Counter(answers) == {
                **{f"qb-{number}": 1 for number in range(ISSUES)},
                "nothing": RIVALS - ISSUES,
            }, round_number
            back = [f"release {issue}" if issue != "nothing" else "unreserve" for issue in answers]
            assert set(rivals.all(*back)) == {"done"}

    path = root / ".beads" / ASSIGNMENTS
    assert times_worked_on_by_two(path) == []
    assert len(path.read_bytes().splitlines()) == 2 * rounds * ISSUES


def test_an_issue_that_all_take_from_each_other_is_never_in_two_hands(root: Path) -> None:
    rounds = ROUNDS // 20

    with Rivals(root) as rivals:
        for _ in range(rounds):
            assert set(rivals.all("take qb-1")) == {"done"}

    path = root / ".beads" / ASSIGNMENTS
    assert times_worked_on_by_two(path) == []
    *_, last = replayed(path)
    assert len([raw for raw in last.values() if raw["status"] == "active"]) == 1


def test_of_twelve_that_reserve_several_patterns_in_any_order_one_gets_all_of_them(root: Path) -> None:
    rounds = ROUNDS // 10

    with Rivals(root) as rivals:
        for round_number in range(rounds):
            answers = rivals.all("reserve a/** b/** c", "reserve c b/x a/y", "reserve b/* c a/*")
            assert Counter(answers) == {"done": 1, "refused": RIVALS - 1}, round_number
            assert rivals.one(answers.index("done"), "unreserve") == "done"

    path = root / ".beads" / RESERVATIONS
    assert times_held_by_two(path) == []
    assert len(path.read_bytes().splitlines()) == 3 * 2 * rounds

"""Growing JSONL files as real ones are: with lines that come late, come twice, are damaged, or are torn at the end.

A `Stream` is handed sound lines in the order in which they happened. What it does to them is decided by chance, is
counted, and never loses a sound line that was written.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

_BUFFER_BYTES = 1 << 18


class StreamCount(msgspec.Struct, frozen=True, kw_only=True):
    """What was written of one format."""

    #: as the pipeline calls it, for example `queen.messages`
    stream: str
    #: whole lines: sound + corrupt
    lines: int
    #: lines that their system can read, repeated ones too
    sound: int
    #: lines that it cannot
    corrupt: int
    #: sound lines that had stood in the file before
    duplicates: int
    #: last lines without an end; not among `lines`
    torn: int


class Budget:
    """How many lines may still be written."""

    def __init__(self, lines: int) -> None:
        self.left = lines

    def take(self) -> bool:
        """Whether one more may be; then it is counted."""
        self.left -= 1
        return self.left >= 0


class Flaws(msgspec.Struct, frozen=True, kw_only=True):
    """What may happen to the lines of a file, in shares of a line that is picked for it; they add up to 1."""

    late: float
    duplicated: float
    corrupt: float


#: events of a journal stand for themselves: any order will do
OF_A_JOURNAL = Flaws(late=0.6, duplicated=0.28, corrupt=0.12)
#: lines that are folded keep their order
OF_RECORDS = Flaws(late=0.0, duplicated=0.7, corrupt=0.3)

_LINES_BETWEEN_FLAWS = 80
_FURTHEST = 300


class Stream:
    """One file, written from its start."""

    def __init__(self, name: str, path: Path, *, random: Random, budget: Budget, flaws: Flaws) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb", buffering=_BUFFER_BYTES)
        self._name = name
        self._random = random
        self._budget = budget
        self._flaws = flaws
        self._lines = self._corrupt = self._duplicates = self._torn = self._holds = 0
        #: (line number at which it is due, order, line, whether it is there already)
        self._held: list[tuple[int, int, bytes, bool]] = []
        self._last = b""
        # Also the shortest file shows each flaw once.
        self._first_flaws = [self._damage, self._repeat, self._delay] if flaws.late else [self._damage, self._repeat]
        self._sound_until_flaw = 5

    def write(self, line: bytes) -> bool:
        """Add a sound line, without its newline: now or a little later. False once the budget is spent."""
        self._sound_until_flaw -= 1
        if self._sound_until_flaw > 0:
            is_written = self._put(line)
        else:
            self._sound_until_flaw = self._lines_to_next_flaw()
            is_written = self._pick_flaw()(line)
        while self._held and self._held[0][0] <= self._lines:
            self._put_held()
        return is_written

    def close(self, *, torn: bool = True) -> StreamCount:
        """End the file, if wanted with half a line, as a writer leaves it that was killed."""
        while self._held:
            self._put_held()
        if torn and self._last:
            self._file.write(self._last[: self._random.randint(1, len(self._last) - 1)])
            self._torn = 1
        self._file.close()
        return StreamCount(
            stream=self._name,
            lines=self._lines,
            sound=self._lines - self._corrupt,
            corrupt=self._corrupt,
            duplicates=self._duplicates,
            torn=self._torn,
        )

    def _lines_to_next_flaw(self) -> int:
        return 5 if self._first_flaws else 1 + int(self._random.expovariate(1 / _LINES_BETWEEN_FLAWS))

    def _pick_flaw(self) -> Callable[[bytes], bool]:
        if self._first_flaws:
            return self._first_flaws.pop(0)
        dice = self._random.random()
        if dice < self._flaws.late:
            return self._delay
        return self._repeat if dice < self._flaws.late + self._flaws.duplicated else self._damage

    def _delay(self, line: bytes) -> bool:
        return self._hold(line, is_there=False)

    def _repeat(self, line: bytes) -> bool:
        is_written = self._put(line)
        self._hold(line, is_there=True)
        return is_written

    def _damage(self, line: bytes) -> bool:
        """A damaged line before the sound one: what was damaged was written again."""
        if self._put(damaged(line, self._random)):
            self._corrupt += 1
        return self._put(line)

    def _put(self, line: bytes) -> bool:
        if not self._budget.take():
            return False
        self._append(line)
        return True

    def _hold(self, line: bytes, *, is_there: bool) -> bool:
        # Paid for now, so that it is certain to be written.
        if not self._budget.take():
            return False
        due = self._lines + 1 + int(self._random.random() ** 3 * _FURTHEST)
        self._holds += 1
        heappush(self._held, (due, self._holds, line, is_there))
        return True

    def _put_held(self) -> None:
        _, _, line, is_there = heappop(self._held)
        self._append(line)
        self._duplicates += is_there

    def _append(self, line: bytes) -> None:
        self._file.write(line + b"\n")
        self._lines += 1
        self._last = line


def damaged(line: bytes, random: Random) -> bytes:
    """A line that no system of ours can read."""
    forms = [line[: len(line) // 2], b"\xff\xfe\x00 not a line", b"[1,2,3]", b'{"note":"no id"}', b'{"id":7}', b"null"]
    if b'"kind":"' in line:
        forms.append(line.replace(b'"kind":"', b'"kind":"un', 1))
    return random.choice(forms)

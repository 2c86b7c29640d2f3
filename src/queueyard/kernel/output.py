"""What every command prints: data to stdout, talk to stderr, JSON for machines, tables for people.

Colour and progress appear only on a terminal, NO_COLOR is honoured, and no meaning hangs on colour alone.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import accumulate, takewhile
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO
import unicodedata

from queueyard.kernel.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_REDRAW_EVERY_S = 0.1


class Output:
    """Where one command talks. `as_json` decides between tables and JSON; talk goes to stderr either way."""

    def __init__(
        self,
        *,
        as_json: bool = False,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.as_json = as_json
        self._stdout = stdout or sys.stdout
        self._stderr = stderr or sys.stderr
        self._environment = os.environ if environment is None else environment

    def data(self, value: Any) -> None:
        """One JSON document on stdout, followed by a newline."""
        import msgspec  # noqa: PLC0415  commands that print text need not wait for it

        self._stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")

    def text(self, line: str = "") -> None:
        """A line of data for people, on stdout."""
        self._stdout.write(line + "\n")

    def note(self, line: str) -> None:
        """Talk: what happens, what to do next; on stderr, so that it never mixes with data."""
        self._stderr.write(line + "\n")

    def warn(self, line: str) -> None:
        """Something is wrong, but not so that the command fails; under JSON an object of its own on stderr."""
        if self.as_json:
            import msgspec  # noqa: PLC0415  hardly any command warns

            self.note(msgspec.json.encode({"warning": line}).decode())
        else:
            self.note(f"{self.style('warning:', 'yellow', stream=self._stderr)} {line}")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Aligned columns on stdout; on a terminal the last column is cut where the line ends."""
        texts = [[_one_line(cell) for cell in row] for row in rows]
        widths = [max(map(_width, column)) for column in zip(columns, *texts, strict=True)]
        room = _terminal_columns() if self._stdout.isatty() else None
        for number, row in enumerate([list(columns), *texts]):
            line = "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True))
            line = _cut(line.rstrip(), room)
            self.text(self.style(line, "bold") if number == 0 else line)

    def style(self, text: str, *names: str, stream: TextIO | None = None) -> str:
        """The text in colour where the stream is a terminal that wants it, else as it is."""
        target = stream or self._stdout
        if not target.isatty() or self._environment.get("NO_COLOR") or self._environment.get("TERM") == "dumb":
            return text
        return f"\x1b[{';'.join(_STYLES[name] for name in names)}m{text}\x1b[0m"

    @contextmanager
    def progress(self, label: str, total: int, clock: Clock = SYSTEM_CLOCK) -> Iterator[Progress]:
        """A bar on stderr while the block runs; silent where stderr is no terminal."""
        bar = Progress(label, total, self._stderr if self._stderr.isatty() else None, clock)
        try:
            yield bar
        finally:
            bar.finish()


class Progress:
    """How far something is, redrawn at most ten times a second."""

    def __init__(self, label: str, total: int, stream: TextIO | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._label = label
        self._total = total
        self._stream = stream
        self._clock = clock
        self._done = 0
        self._started = clock.monotonic()
        self._drawn_at = float("-inf")

    def advance(self, count: int = 1, note: str = "") -> None:
        """`count` more are done; `note` stands behind the bar (a rate, a file name)."""
        self._done += count
        now = self._clock.monotonic()
        if self._stream is not None and (now - self._drawn_at >= _REDRAW_EVERY_S or self._done == self._total):
            self._drawn_at = now
            self._stream.write("\r\x1b[2K" + self._line(now, note))
            self._stream.flush()

    def expect(self, count: int) -> None:
        """So many more are to be done than was known."""
        self._total += count

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """One of them, which is done if the block ends well; its name stands behind the bar."""
        self.advance(0, name)
        yield
        self.advance(1, name)

    def finish(self) -> None:
        if self._stream is not None and self._done:
            self._stream.write("\n")

    def _line(self, now: float, note: str) -> str:
        share = self._done / self._total if self._total else 1.0
        bar = ("█" * round(20 * share)).ljust(20, "·")
        elapsed = max(now - self._started, 1e-9)
        rate = self._done / elapsed
        left = f"{(self._total - self._done) / rate:.0f} s left" if 0 < self._done < self._total else ""
        speed = f"{rate:.0f}/s" if rate >= 1 else ""
        parts = [self._label, bar, f"{self._done}/{self._total}", speed, left, note]
        return _cut("  ".join(part for part in parts if part), _terminal_columns())


#: for whoever need not be shown how far something is
UNSEEN = Progress("", 0, None)


def _terminal_columns() -> int:
    import shutil  # noqa: PLC0415  only a terminal has columns

    return shutil.get_terminal_size().columns


def printable(text: str) -> str:
    """Somebody's text, for a terminal: lines and tabs stay, escape sequences and what no stream takes do not."""
    return "".join(" " if _is_control(character) and character not in "\n\t" else character for character in text)


def _is_control(character: str) -> bool:
    return unicodedata.category(character) in {"Cc", "Cs"}


def _one_line(cell: object) -> str:
    if cell is None:
        return "-"
    return "".join(" " if _is_control(character) else character for character in str(cell))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return len(text) + wide - sum(unicodedata.combining(character) > 0 for character in text)


def _cut(line: str, room: int | None) -> str:
    if room is None or _width(line) <= room:
        return line
    kept = sum(1 for _ in takewhile(lambda width: width < room, accumulate(map(_width, line))))
    return line[:kept] + "…"

"""queen's three files, which are their own journal: archives first, then what is added."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.queen.events import assignment_fold, message_fold, reservation_fold
from queueyard.queen.home import find_home
from queueyard.queen.records import decode
from queueyard.queen.store import ARCHIVE, ASSIGNMENTS, MESSAGES, RESERVATIONS
from queueyard.yard.tails.files import GrowingFile, understood

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.kernel.events import Event
    from queueyard.queen.events import EventFold


class QueenTail:
    def __init__(self, at: str) -> None:
        root = Path(at)
        beads = find_home(root, {}, beads=root if root.name == ".beads" else root / ".beads").beads
        folds = {MESSAGES: message_fold(at), ASSIGNMENTS: assignment_fold(at), RESERVATIONS: reservation_fold(at)}
        self._files: list[tuple[GrowingFile, EventFold]] = []
        for name, fold in folds.items():
            archived = sorted((beads / ARCHIVE).glob(f"{Path(name).stem}-*.jsonl"))
            self._files += [(GrowingFile(path), fold) for path in (*archived, beads / name)]

    def read(self) -> Iterator[Event]:
        for file, fold in self._files:
            for line in file.new_lines():
                raw = understood(line, decode)
                if raw is not None:
                    yield from fold.take(raw)

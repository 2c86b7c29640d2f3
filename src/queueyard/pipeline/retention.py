"""What nobody needs any more: deleted once it is old enough. Needs no Spark."""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.pipeline.delta import DeltaLog
from queueyard.pipeline.lock import holding, lock_of
from queueyard.pipeline.settings import folder_of

if TYPE_CHECKING:
    from collections.abc import Sequence


def vacuum(home: str, names: Sequence[str], *, hours: int) -> dict[str, int]:
    """Delete what no version of the last `hours` needs; gives how many files each table lost.

    LockTimeout, naming the holder, while somebody changes the tables: what they write is in no log yet.
    """
    with holding(lock_of(home)):
        gone = {name: len(DeltaLog(f"{home}/{name}").vacuum(hours=hours)) for name in names}
        if (folder := folder_of(home)) is not None:
            for name in names:
                _remove_empty_folders(folder / name)
    return gone


def _remove_empty_folders(table: Path) -> None:
    for write in table.glob("write=*"):
        for folder, _, _ in os.walk(write, topdown=False):
            # Those that still hold something stay.
            with suppress(OSError):
                Path(folder).rmdir()

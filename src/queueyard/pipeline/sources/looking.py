"""Growing files as they stand now. Needs no Spark, so that asking how far one is starts none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.spans import HEAD_BYTES, Origin, Seen

if TYPE_CHECKING:
    from collections.abc import Iterable

_FROM_BEHIND_BYTES = 64 << 10


def look(origins: Iterable[Origin]) -> list[Seen]:
    """The files as they stand. One that is not there (yet) is left out; SourceFailed for one that cannot be read."""
    return [seen for origin in origins if (seen := _look_at(origin)) is not None]


def cannot_read(path: str, fault: OSError) -> SourceFailed:
    return SourceFailed(f"cannot read {path}: {fault.strerror or fault}", hint=f"Look at it: ls -l {Path(path).parent}")


def _look_at(origin: Origin) -> Seen | None:
    try:
        descriptor = os.open(origin.path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise cannot_read(origin.path, fault) from fault
    try:
        status = os.fstat(descriptor)
        return Seen(
            origin=origin,
            inode=status.st_ino,
            end=_behind_last_newline(descriptor, status.st_size),
            head=os.pread(descriptor, HEAD_BYTES, 0),
        )
    except OSError as fault:
        raise cannot_read(origin.path, fault) from fault
    finally:
        os.close(descriptor)


def _behind_last_newline(descriptor: int, size: int) -> int:
    end = size
    while end > 0:
        start = max(0, end - _FROM_BEHIND_BYTES)
        found = os.pread(descriptor, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0

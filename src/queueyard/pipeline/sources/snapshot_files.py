"""Rewritten files as they stand now. Needs no Spark."""

from __future__ import annotations

from hashlib import sha256
import os
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.clock import SYSTEM_CLOCK
from queueyard.pipeline.sources.digests import Look, Origin, Seen
from queueyard.pipeline.sources.looking import cannot_read

if TYPE_CHECKING:
    from collections.abc import Iterable


def look(origins: Iterable[Origin]) -> list[Look]:
    """The files from outside. One that is not there is left out; SourceFailed for one that may not be seen."""
    now_ns = int(SYSTEM_CLOCK.now().timestamp() * 1_000_000_000)
    return [found for origin in origins if (found := _look_at(origin, now_ns)) is not None]


def opened(looks: Iterable[Look]) -> list[Seen]:
    """The files with what they hold; those that are gone by now are left out."""
    return [
        Seen(look=found, digest=sha256(content).hexdigest()[:16])
        for found in looks
        if (content := content_of(found.origin.path)) is not None
    ]


def _look_at(origin: Origin, now_ns: int) -> Look | None:
    try:
        status = os.stat(origin.path)  # noqa: PTH116  once per run of a workspace
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise cannot_read(origin.path, fault) from fault
    return Look(
        origin=origin,
        inode=status.st_ino,
        size=status.st_size,
        changed_ns=status.st_mtime_ns,
        looked_ns=now_ns,
    )


def content_of(path: str) -> bytes | None:
    """None for a file that is gone."""
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise cannot_read(path, fault) from fault

"""The histories of all systems, written side by side."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
import multiprocessing
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.errors import explaining
from queueyard.kernel.events import System
from queueyard.pipeline.errors import PipelineError
from queueyard.pipeline.generator import jjq, ops, panqueue, queen, runforge
from queueyard.pipeline.generator.writing import StreamCount

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

_WRITERS: dict[System, Callable[[Path, int, Random], list[StreamCount]]] = {
    System.QUEEN: queen.write,
    System.RUNFORGE: runforge.write,
    System.PANQUEUE: panqueue.write,
    System.JJQ: jjq.write,
    System.OPS: ops.write,
}
#: how many of a hundred lines
_SHARES = {System.QUEEN: 30, System.RUNFORGE: 10, System.PANQUEUE: 30, System.JJQ: 10, System.OPS: 20}

_FOLDERS = (
    (System.QUEEN, "queen"),
    (System.RUNFORGE, "runforge"),
    (System.JJQ, "jjq"),
    (System.OPS, "ops"),
    (System.OPS, "ops-client"),
)


class FolderInUse(PipelineError):
    """There is something in the folder; two histories would be mixed."""


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """What was written."""

    folder: Path
    seed: int
    #: by stream
    streams: tuple[StreamCount, ...]

    @property
    def places(self) -> list[tuple[System, str]]:
        """Where each history stands below the folder; panqueue's entries are for a server, and stand in none."""
        return [(system, name) for system, name in _FOLDERS if (self.folder / name).is_dir()]

    @property
    def lines(self) -> int:
        return sum(one.lines for one in self.streams)

    def of(self, stream: str) -> StreamCount:
        """The counts of one stream. KeyError if there is none of that name."""
        return {one.stream: one for one in self.streams}[stream]


def generate(
    folder: Path, *, events: int, seed: int, systems: Collection[System] = tuple(System), workers: int = 1
) -> Generated:
    """Write `events` lines in all, shared among the systems; each has its own folder below `folder`.

    `workers` processes at once, each of which writes one system; the bytes are the same. FolderInUse if the folder is
    not empty, StorageFailed if it cannot be written.
    """
    with explaining("write", folder):
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise FolderInUse(f"{folder} is not empty", hint="Name a new folder, or empty it first.")
        # The longest first, so that the last process does not start when the others are done.
        tasks = sorted(_shared(events, systems).items(), key=lambda task: -task[1])
        names = [(folder, system, lines, seed) for system, lines in tasks]
        if workers > 1:
            # Not forked: the caller may have a JVM and its threads.
            with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
                written = list(pool.map(_write_one, *zip(*names, strict=True)))
        else:
            written = [_write_one(*task) for task in names]
    counts = sorted((count for counts in written for count in counts), key=lambda count: count.stream)
    return Generated(folder=folder, seed=seed, streams=tuple(counts))


def _write_one(folder: Path, system: System, lines: int, seed: int) -> list[StreamCount]:
    return _WRITERS[system](folder, lines, Random(f"{seed}:{system}"))  # noqa: S311  a history, not a secret


def _shared(events: int, systems: Collection[System]) -> dict[System, int]:
    wanted = [system for system in System if system in systems]
    whole = sum(_SHARES[system] for system in wanted)
    lines = {system: events * _SHARES[system] // whole for system in wanted}
    lines[wanted[0]] += events - sum(lines.values())
    return lines

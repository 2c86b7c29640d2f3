"""Growing files as they stand now. Needs no Spark, so that asking how far one is starts none."""

from __future__ import annotations

from contextlib import suppress
import os
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources.spans import HEAD_BYTES, Mark, Origin, Seen, is_same_grown

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

_FROM_BEHIND_BYTES = 64 << 10


def look(origins: Iterable[Origin]) -> list[Seen]:
    """The files as they stand. One that is not there (yet) is left out; SourceFailed for one that cannot be read."""
    return [seen for origin in origins if (seen := _look_at(origin)) is not None]


def with_renamed(seen: Sequence[Seen], origins: Iterable[Origin], marks: Mapping[str, Mark]) -> list[Seen]:
    """What was seen, behind the files that were read under these names and have others in their folder now."""
    by_path = {origin.path: origin for origin in origins}
    there = {(Path(file.origin.path).parent, file.inode) for file in seen}
    missing: dict[Path, dict[int, tuple[str, Mark]]] = {}
    for path, mark in sorted(marks.items(), key=lambda known: known[1].generation):
        name, folder = mark.renamed_from or path, Path(path).parent
        if name in by_path and (folder, mark.inode) not in there:
            missing.setdefault(folder, {})[mark.inode] = (name, mark)
    renamed = [file for folder, wanted in missing.items() for file in _renamed(folder, wanted, by_path)]
    return [*renamed, *seen]


def paths_in(folder: Path, inodes: Container[int]) -> Iterator[tuple[int, str]]:
    """(inode, path) of the files of a folder that have these inodes, whatever they are called."""
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from ((entry.inode(), entry.path) for entry in entries if entry.inode() in inodes and entry.is_file())


def cannot_read(path: str, fault: OSError) -> SourceFailed:
    return SourceFailed(f"cannot read {path}: {fault.strerror or fault}", hint=f"Look at it: ls -l {Path(path).parent}")


def _renamed(folder: Path, wanted: Mapping[int, tuple[str, Mark]], by_path: Mapping[str, Origin]) -> Iterator[Seen]:
    # A file may have several names; one is enough.
    for inode, path in dict(paths_in(folder, wanted)).items():
        name, mark = wanted[inode]
        file = _look_at(by_path.get(path) or replace(by_path[name], path=path, renamed_from=name))
        # The number of a file that is gone is soon that of another one.
        if file is not None and is_same_grown(file, mark):
            yield file


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

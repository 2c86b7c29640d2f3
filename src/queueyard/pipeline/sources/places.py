"""Which files, streams and feeds a place of the yard has. The only file that knows where a system keeps its history."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.events import System
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources import digests
from queueyard.pipeline.sources.feed_client import feeds_of
from queueyard.pipeline.sources.redis_client import place_of
from queueyard.pipeline.sources.spans import Origin

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from queueyard.pipeline.sources.feed_client import Feed
    from queueyard.yard.places import Place

_QUEEN_FILES = {
    "queen.messages": "queen_messages",
    "queen.assignments": "queen_assignments",
    "queen.reservations": "queen_reservations",
}
_RUNFORGE_FOLDERS = {
    "runforge.group": (".runforge/groups", "group.json"),
    "runforge.result": (".ml/runs", "result.json"),
}


def snapshots_at(places: Iterable[Place]) -> list[digests.Origin]:
    """Every file that is rewritten as a whole and is there."""
    return [
        origin
        for place in places
        if place.is_folder and place.system is System.RUNFORGE
        for origin in _snapshots_of_runforge(place.at)
    ]


def secrets_of(places: Iterable[Place]) -> dict[str, str]:
    """Every Redis: its name in the tables, and its URL with the login. SourceFailed for an address that is none."""
    urls = [place.at for place in places if not place.is_folder and place.system is System.PANQUEUE]
    return {place_of(url): url for url in urls}


def feeds_at(places: Iterable[Place]) -> list[Feed]:
    """Every feed of every server. SourceFailed for an address that is none."""
    urls = [place.at for place in places if not place.is_folder and place.system is System.OPS]
    return [feed for url in urls for feed in feeds_of(url)]


def origins_of(places: Iterable[Place]) -> list[Origin]:
    """Every growing file. SourceFailed for a place that is not there at all."""
    return [origin for place in places if place.is_folder for origin in _origins(place)]


def _origins(place: Place) -> Iterator[Origin]:
    root = Path(place.at)
    if not root.is_dir():
        raise SourceFailed(
            f"there is no {place.system} at {place.at}", hint=f"Type: queueyard remove {place.system} {place.at}"
        )
    match place.system:
        case System.QUEEN:
            yield from _of_queen(root)
        case System.RUNFORGE:
            yield Origin(
                stream="runforge.events", place=place.at, path=str(root / ".runforge" / "queue" / "events.jsonl")
            )
        case System.JJQ:
            yield Origin(stream="jjq.events", place=place.at, path=str(root / ".jj" / "repo" / "jjq" / "journal.jsonl"))
        case System.OPS:
            yield from _of_ops(root)


def _of_queen(root: Path) -> Iterator[Origin]:
    beads = root if root.name == ".beads" else root / ".beads"
    for stream, stem in _QUEEN_FILES.items():
        file = str(beads / f"{stem}.jsonl")
        # What was archived is older than what stands in the file, and the names of archives are their dates.
        for path in sorted((beads / "queen_archive").glob(f"{stem}-*.jsonl")):
            yield Origin(stream=stream, place=str(root), path=str(path), archive_of=file)
        yield Origin(stream=stream, place=str(root), path=file)


def _of_ops(root: Path) -> Iterator[Origin]:
    """Exported segments of a server, or the journals of a client, whichever the folder holds."""
    for kind, stream in (("changes", "ops.changes"), ("audit", "ops.audit")):
        for path in sorted(root.glob(f"**/{kind}-*.jsonl")):
            yield Origin(stream=stream, place=str(root), path=str(path))
    for path in sorted(root.glob("**/events.jsonl")):
        yield Origin(stream="ops.events", place=str(root), path=str(path))


def _snapshots_of_runforge(root: str) -> Iterator[digests.Origin]:
    yield digests.Origin(stream="runforge.queue", place=root, path=f"{root}/.runforge/queue/queue.json")
    for stream, (folder, name) in _RUNFORGE_FOLDERS.items():
        try:
            found = sorted(os.listdir(f"{root}/{folder}"))  # noqa: PTH208  a workspace may have many thousand runs
        except FileNotFoundError:
            continue
        for one in found:
            yield digests.Origin(stream=stream, place=root, path=f"{root}/{folder}/{one}/{name}")

"""What ties things together without being an event: names of groups and payloads of jobs. Writes nothing.

Only what is still there can be asked: a job that was removed links nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import NOT_UNDERSTOOD
from queueyard.kernel.events import System
from queueyard.yard.links import Link, texts_in, words_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from queueyard.yard.places import Place

#: of each state of a queue; a trace is no archive
_MOST_JOBS = 10_000
_PAGE_JOBS = 1_000


def labels_of(place: Place) -> Iterator[Link]:
    """The labels of a place. QueueyardError if it cannot be read."""
    match place.system:
        case System.RUNFORGE:
            yield from _of_runforge(Path(place.at))
        case System.PANQUEUE:
            yield from _of_panqueue(place.at)
        case System.QUEEN | System.JJQ | System.OPS:
            # Their events say it all. What agents tell each other links nothing: they speak of many issues at once.
            return


def _of_runforge(root: Path) -> Iterator[Link]:
    for path in sorted((root / ".runforge" / "groups").glob("*/group.json")):
        try:
            group = msgspec.json.decode(path.read_bytes())
            yield Link(ids=frozenset([group["group_id"]]), words=words_of(group.get("name"), group.get("notes")))
        except (OSError, KeyError, TypeError, AttributeError, *NOT_UNDERSTOOD):
            continue  # a group that is written just now, or not by us


def _of_panqueue(url: str) -> Iterator[Link]:
    from queueyard.panqueue import service  # noqa: PLC0415
    from queueyard.panqueue.address import parse_address  # noqa: PLC0415
    from queueyard.panqueue.blocking import Line, lines_to_all  # noqa: PLC0415
    from queueyard.panqueue.records import JobState  # noqa: PLC0415
    from queueyard.panqueue.store import QueueStore  # noqa: PLC0415

    address = parse_address(url)
    lines = lines_to_all(address)
    try:
        queues = sorted({queue for line in lines for queue in line.hold(service.queues())})
    finally:
        for line in lines:
            line.close()
    for queue in queues:
        store = QueueStore(queue)
        line = Line(address, store.keys.tag)
        try:
            for state in JobState:
                for skip in range(0, _MOST_JOBS, _PAGE_JOBS):
                    page = line.hold(service.jobs(store, state, skip=skip, most=_PAGE_JOBS))
                    yield from (_of_job(queue, job.id, job.payload) for job in page)
                    if len(page) < _PAGE_JOBS:
                        break
        finally:
            line.close()


def _of_job(queue: str, job_id: str, payload: str) -> Link:
    try:
        texts = list(texts_in(msgspec.json.decode(payload)))
    except NOT_UNDERSTOOD:
        texts = [payload]
    return Link(ids=frozenset([f"{queue}:{job_id}"]), words=words_of(*texts), nicknames=frozenset([job_id]))

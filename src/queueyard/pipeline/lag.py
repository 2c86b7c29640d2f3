"""What is new at servers: all of them asked at once, and not for long. Needs no Spark.

A server that refuses, or has not answered in time, is told as such: how far the others are is still worth knowing.
"""

from __future__ import annotations

from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, Any

import msgspec

from queueyard.kernel.events import System
from queueyard.pipeline.errors import SourceFailed
from queueyard.pipeline.sources import entries, feed_client, redis_client, sequences
from queueyard.pipeline.sources.places import feeds_at, secrets_of
from queueyard.yard.places import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from queueyard.yard.places import Place

#: how long all servers together may take
ANSWER_S = 5.0
_EVERYTHING = 1 << 62


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """One stream of a Redis, one feed of an ops server, or a server that cannot be asked."""

    #: None for a server that cannot be asked
    stream: str | None
    #: the address, without a login
    place: str
    #: the queue or the space; None for a server that cannot be asked
    name: str | None
    #: id or number of the last entry that a batch has; None before the first
    read: str | None
    #: about how many entries no batch has yet; None if nobody knows
    behind_entries: int | None
    #: how many entries were trimmed before a batch could have them, as far as is known; None if it cannot be asked
    lost_entries: int | None
    #: why it cannot be asked
    fault: str | None


def servers(
    places: Sequence[Place], note: Mapping[str, Any], *, environment: Mapping[str, str], within_s: float = ANSWER_S
) -> list[ServerState]:
    """Every server of the yard against the note of the last batch."""
    token = environment.get(feed_client.TOKEN_VARIABLE, "").strip()
    streams = msgspec.convert(note.get("streams", {}), entries.Marks)
    feeds = msgspec.convert(note.get("feeds", {}), sequences.Marks)

    def ask(place: Place) -> list[ServerState]:
        return _of_redis(place, streams) if place.system is System.PANQUEUE else _of_ops(place, feeds, token)

    asked = {place: _asked(ask, place) for place in places if not place.is_folder}
    wait(asked.values(), timeout=within_s)
    return [state for place, answer in asked.items() for state in _states(place, answer, within_s)]


def _asked(ask: Callable[[Place], list[ServerState]], place: Place) -> Future[list[ServerState]]:
    answer: Future[list[ServerState]] = Future()

    def run() -> None:
        try:
            answer.set_result(ask(place))
        except Exception as fault:  # noqa: BLE001  raised again by whoever takes the answer
            answer.set_exception(fault)

    # A pool would wait for its threads at the end of the process, however long a server keeps one.
    Thread(target=run, name=f"ask {place.system}", daemon=True).start()
    return answer


def _states(place: Place, answer: Future[list[ServerState]], within_s: float) -> list[ServerState]:
    if not answer.done():
        return [_unknown(place, f"no answer from {shown(place)} within {within_s:g} s")]
    try:
        return answer.result()
    except SourceFailed as fault:
        return [_unknown(place, str(fault))]
    except Exception as fault:  # noqa: BLE001  whatever a server says; its words may quote a secret
        return [_unknown(place, f"cannot ask {shown(place)}: {type(fault).__name__}")]


def _unknown(place: Place, fault: str) -> ServerState:
    return ServerState(
        stream=None, place=shown(place), name=None, read=None, behind_entries=None, lost_entries=None, fault=fault
    )


def _of_redis(place: Place, marks: entries.Marks) -> list[ServerState]:
    seen = redis_client.look(secrets_of([place]))
    planned = entries.plan(marks, seen, most_entries=_EVERYTHING)
    behind = {one.key: one.entries for one in planned.ranges}
    known = {stream.key: marks.get(stream.place, {}).get(stream.key) for stream in seen}
    # Of the marks behind the next batch: what it will find lost is lost already.
    reached = {stream.key: planned.marks.get(stream.place, {}).get(stream.key) for stream in seen}
    return [
        ServerState(
            stream="panqueue.events",
            place=stream.place,
            name=entries.queue_of(stream.key),
            read=mark.last if (mark := known[stream.key]) is not None else None,
            behind_entries=behind.get(stream.key, 0),
            lost_entries=mark.lost if (mark := reached[stream.key]) is not None else 0,
            fault=None,
        )
        for stream in seen
    ]


def _of_ops(place: Place, marks: sequences.Marks, token: str) -> list[ServerState]:
    seen = feed_client.look(feeds_at([place]), token)
    ranges, _ = sequences.plan(marks, seen, most_entries=_EVERYTHING)
    behind = {(one.space, one.kind): one.upto - one.after for one in ranges}
    return [
        ServerState(
            stream=f"ops.{feed.kind}",
            place=feed.place,
            name=feed.space,
            read=str(mark.seq) if (mark := marks.get(feed.place, {}).get(feed.name)) is not None else None,
            behind_entries=behind.get((feed.space, feed.kind), 0),
            # A feed forgets nothing.
            lost_entries=0,
            fault=None,
        )
        for feed in seen
    ]

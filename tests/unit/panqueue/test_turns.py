"""The coordinator by itself, with a server that answers when the test says so."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from queueyard.panqueue.errors import ServerUnreachable
from queueyard.panqueue.jobs import Callbacks, Held
from queueyard.panqueue.store import Ask, QueueStore
from queueyard.panqueue.turns import Turns
from servers import in_loop


class Answering:
    """A connection whose calls wait until the test answers them."""

    def __init__(self) -> None:
        self.calls: asyncio.Queue[tuple[Ask[Any], asyncio.Future[Any]]] = asyncio.Queue()

    async def ask(self, ask: Ask[Any]) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.calls.put_nowait((ask, future))
        return ask.parse(await future)

    def close(self) -> None: ...

    async def answer(self, reply: Any) -> list[str]:
        """Answer the next call; gives its arguments."""
        ask, future = await self.calls.get()
        if isinstance(reply, Exception):
            future.set_exception(reply)
        else:
            future.set_result(reply)
        await settled()
        return [str(word) for word in ask.arguments]


class Hands:
    """A runner that only notes what it should run and stop."""

    def __init__(self) -> None:
        self.started: list[Held[Any]] = []
        self.stopped: list[tuple[str, str]] = []

    def start(self, job: Held[Any]) -> None:
        self.started.append(job)

    def stop(self, job: Held[Any], why: str) -> None:
        self.stopped.append((job.token, why))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def claimed(*ids: str) -> list[Any]:
    reply: list[Any] = []
    for one in ids:
        reply += [one.encode(), [b"{}", b"0", b"0", None]]
    return [[], reply, -1]


def turns_of(concurrency: int, callbacks: Callbacks | None = None) -> tuple[Turns, Hands, Answering]:
    store = QueueStore("q")
    made = Turns(
        store,
        store.turn_builder(lease_ms=30_000, worker="w", keep=None),
        concurrency=concurrency,
        lanes=1,
        lease_ms=30_000,
        poll_ms=60_000,
        name="w",
        token_seed="t",
        callbacks=callbacks or Callbacks(),
        keep_failed=None,
        delay_of=lambda _job, _error: 0,
        random=random.Random(1).random,
        loop=asyncio.get_running_loop(),
    )
    hands = Hands()
    made.runner = hands
    return made, hands, Answering()


def finish(turns: Turns, job: Held[Any]) -> None:
    job.has_ended = True
    turns.succeeded(job)


@in_loop
async def test_a_notification_during_a_call_is_remembered() -> None:
    turns, _, server = turns_of(2)
    lane = asyncio.ensure_future(turns.lane(server))
    await settled()
    turns.notice()
    await server.answer(claimed())

    again = await server.answer(claimed())
    assert again[1] == "2"
    assert server.calls.empty()
    lane.cancel()


@in_loop
async def test_what_ends_in_one_round_goes_into_one_call_that_also_claims() -> None:
    turns, hands, server = turns_of(3)
    lane = asyncio.ensure_future(turns.lane(server))
    await server.answer(claimed("a", "b", "c"))
    for job in hands.started:
        finish(turns, job)
    words = await server.answer(claimed())

    assert words[1] == "3"
    assert words[8:] == ["a", "t-1", "b", "t-1", "c", "t-1"]
    assert turns.held == {}
    lane.cancel()


@in_loop
async def test_a_finish_whose_reply_is_lost_is_told_again_and_marked() -> None:
    lost: list[Any] = []
    turns, hands, server = turns_of(1, Callbacks(on_lost=lost.append))
    lane = asyncio.ensure_future(turns.lane(server))
    await server.answer(claimed("a"))
    finish(turns, hands.started[0])
    await server.answer(ServerUnreachable("cut"))
    assert "a" in turns.held

    words = await server.answer([[1, 0], [], -1])
    assert words[8:] == ["a", "t-1"]
    assert [(one.job.id, one.phase, one.unsure) for one in lost] == [("a", "finish", True)]
    assert turns.held == {}
    lane.cancel()


@in_loop
async def test_a_job_that_comes_back_to_us_stops_its_first_handler() -> None:
    turns, hands, server = turns_of(2)
    lane = asyncio.ensure_future(turns.lane(server))
    await server.answer(claimed("a"))
    turns.notice()
    await server.answer(claimed("a"))

    assert hands.stopped == [("t-1", "lost")]
    assert [job.token for job in turns.held.values()] == ["t-2"]
    assert [job.token for job in turns.ghosts] == ["t-1"]
    lane.cancel()


@in_loop
async def test_a_ghost_keeps_its_slot_until_its_handler_has_ended() -> None:
    turns, hands, server = turns_of(1)
    lane = asyncio.ensure_future(turns.lane(server))
    await server.answer(claimed("a"))
    ghost = hands.started[0]
    turns.drop(ghost)
    turns.notice()
    await settled()
    assert server.calls.empty()

    ghost.has_ended = True
    turns.lost(ghost)
    words = await server.answer(claimed())
    assert words[1] == "1"
    lane.cancel()


@in_loop
async def test_a_claim_that_arrives_after_the_end_is_not_begun_but_kept_to_be_handed_back() -> None:
    turns, hands, server = turns_of(2)
    lane = asyncio.ensure_future(turns.lane(server))
    await settled()
    turns.end()
    await server.answer(claimed("a"))
    await lane

    assert hands.started == []
    assert [job.id for job in turns.abandoned] == ["a"]
    assert list(turns.held) == ["a"]

"""One look for everybody: the latest, the history, the signal, and the end."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from queueyard.dashboard.live import Live
from queueyard.dashboard.sharing import Shared
from queueyard.kernel.errors import BadSettings
from queueyard.kernel.events import System
from queueyard.kernel.testing import FakeClock
from queueyard.yard.records import Glance
from servers import in_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def glance(waiting: int) -> Glance:
    return Glance(system=System.OPS, at="here", waiting=waiting, health="server up", is_well=True)


async def next_tick(events: AsyncIterator[bytes]) -> bytes:
    async for event in events:
        if event.startswith(b"event: tick"):
            return event
    return b""


@in_loop
async def test_many_watchers_share_one_look() -> None:
    looks = 0

    def look() -> list[Glance]:
        nonlocal looks
        looks += 1
        return [glance(looks)]

    live = Live(look, every_s=3600)
    running = asyncio.create_task(live.run())
    await live.snapshot()
    watchers = [live.events() for _ in range(20)]

    ticks = await asyncio.gather(*map(next_tick, watchers))

    assert len(set(ticks)) == 1
    assert looks == 2
    assert (await live.snapshot()).glances == [glance(2)]
    assert live.history(glance(0)) == [(1, 0, 0), (2, 0, 0)]
    running.cancel()


@in_loop
async def test_a_yard_that_makes_no_sense_is_told_and_looked_at_again() -> None:
    answers = iter([BadSettings("torn", hint="mend it"), None])

    def look() -> list[Glance]:
        if fault := next(answers):
            raise fault
        return [glance(1)]

    live = Live(look, every_s=3600)
    running = asyncio.create_task(live.run())

    first = await live.snapshot()
    await next_tick(live.events())

    assert (first.problem, first.glances) == ("torn mend it", [])
    assert (await live.snapshot()).problem is None
    running.cancel()


@in_loop
async def test_whoever_listens_is_let_go() -> None:
    live = Live(list, every_s=3600)

    async def listen() -> list[bytes]:
        return [event async for event in live.events()]

    listening = [asyncio.create_task(listen()) for _ in range(3)]
    running = asyncio.create_task(live.run())
    await live.snapshot()
    await live.close()

    assert all(events[0].startswith(b"retry") for events in await asyncio.gather(*listening))
    running.cancel()


@in_loop
async def test_what_many_ask_at_once_is_fetched_once_and_anew_after_a_change() -> None:
    fetched = 0

    def fetch() -> int:
        nonlocal fetched
        fetched += 1
        return fetched

    shared = Shared(3600)

    assert await asyncio.gather(*(shared.get("a", fetch) for _ in range(10))) == [1] * 10
    assert await shared.get("b", fetch) == 2
    shared.forget()
    assert await shared.get("a", fetch) == 3


@in_loop
async def test_an_answer_that_is_too_old_is_fetched_again() -> None:
    clock = FakeClock()
    shared = Shared(2.0, clock=clock)
    answers = iter(range(9))

    assert await shared.get("a", lambda: next(answers)) == 0
    clock.sleep(1.9)
    assert await shared.get("a", lambda: next(answers)) == 0
    clock.sleep(0.2)
    assert await shared.get("a", lambda: next(answers)) == 1


@in_loop
async def test_who_goes_away_takes_nothing_from_the_others() -> None:
    shared = Shared(3600)
    gate = threading.Event()

    def fetch() -> bool:
        return gate.wait(60)

    first = asyncio.create_task(shared.get("a", fetch))
    second = asyncio.create_task(shared.get("a", fetch))
    await asyncio.sleep(0)
    first.cancel()
    gate.set()

    assert await second is True


@in_loop
async def test_a_bug_in_a_look_is_told_and_looked_at_again() -> None:
    answers = iter([RuntimeError("a bug"), None])

    def look() -> list[Glance]:
        if fault := next(answers):
            raise fault
        return [glance(1)]

    live = Live(look, every_s=3600)
    running = asyncio.create_task(live.run())

    first = await live.snapshot()
    await next_tick(live.events())

    assert first.problem is not None
    assert (await live.snapshot()).glances == [glance(1)]
    running.cancel()

"""A pool keeps its children warm, and lets none grow too old, too large or too lazy."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from executor_crews import QUEUE, crew_of, held
import executor_handlers as handlers
from queueyard.kernel.backoff import Backoff
from queueyard.kernel.errors import BadSettings
from queueyard.panqueue.errors import Closed
from queueyard.panqueue.executors import PoolSettings, Subprocess
from queueyard.panqueue.executors.errors import ChildDied
from servers import eventually, in_loop

if TYPE_CHECKING:
    from queueyard.panqueue.executors.crew import Crew


@in_loop
async def test_one_child_serves_one_job_after_the_other() -> None:
    async with crew_of(Subprocess(), handlers.pid) as crew:
        pids = {await crew.run(held()) for _ in range(50)}

    assert len(pids) == 1


@in_loop
async def test_jobs_at_the_same_time_have_children_of_their_own() -> None:
    async with crew_of(Subprocess(), handlers.pid) as crew:
        pids = await asyncio.gather(*(crew.run(held()) for _ in range(3)))

    assert len(set(pids)) == 3


@in_loop
async def test_a_child_is_replaced_after_its_number_of_jobs() -> None:
    async with crew_of(Subprocess(PoolSettings(max_jobs=2)), handlers.pid) as crew:
        pids = [await crew.run(held()) for _ in range(6)]

    assert pids[0::2] == pids[1::2]
    assert len(set(pids)) == 3


@in_loop
async def test_a_child_that_leaks_is_replaced() -> None:
    async with crew_of(Subprocess(PoolSettings(max_memory_mb=100)), handlers.grow) as crew:

        async def changed(first: int) -> bool:
            return bool(await crew.run(held(40)) != first)

        first = await crew.run(held(1))
        await eventually(lambda: changed(first))


@in_loop
async def test_idle_children_go_home() -> None:
    async with crew_of(Subprocess(PoolSettings(idle_s=0.05)), handlers.pid) as crew:
        await asyncio.gather(*(crew.run(held()) for _ in range(3)))

        await eventually(lambda: not crew.pool.pids)
        assert await crew.run(held())


@in_loop
async def test_warm_children_are_there_before_the_first_job_and_stay() -> None:
    async with crew_of(Subprocess(PoolSettings(warm=1, idle_s=0.01)), handlers.pid) as crew:
        await eventually(lambda: len(crew.pool.pids) == 1)
        (warm,) = crew.pool.pids

        assert await crew.run(held()) == warm
        await eventually(lambda: len(crew.pool.pids) == 1)


@in_loop
async def test_after_a_crash_the_next_start_waits_and_after_a_success_no_more() -> None:
    loop = asyncio.get_running_loop()
    settings = PoolSettings(backoff=Backoff(base_ms=300, cap_ms=300, jitter=0))
    async with crew_of(Subprocess(settings), handlers.leave) as crew:
        await _crash(crew)
        crashed_at = loop.time()
        await crew.run(held("stay"))
        assert loop.time() - crashed_at >= 0.3

        await asyncio.gather(*(crew.run(held("stay")) for _ in range(2)))
        assert crew.pool._crashes == 0


@in_loop
async def test_after_a_crash_children_start_one_by_one() -> None:
    settings = PoolSettings(backoff=Backoff(base_ms=100, cap_ms=100, jitter=0))
    async with crew_of(Subprocess(settings), handlers.leave) as crew:
        await _crash(crew)
        waiting = [asyncio.ensure_future(crew.run(held("stay"))) for _ in range(4)]
        most = 0
        while not all(one.done() for one in waiting):
            most = max(most, crew.pool._starting)
            await asyncio.sleep(0.001)

        assert [one.result() for one in waiting] == ["alive"] * 4
        assert most == 1


@in_loop
async def test_a_closed_pool_takes_no_job() -> None:
    crew = Subprocess().crew(QUEUE, handlers.pid)
    await crew.close()

    with pytest.raises(Closed):
        await crew.run(held())

    await crew.close()
    assert crew.pool.pids == []


def test_settings_that_make_no_sense_are_refused_all_at_once() -> None:
    with pytest.raises(BadSettings, match=r"max_jobs.*\n.*idle_s"):
        PoolSettings(max_jobs=0, idle_s=-1)


async def _crash(crew: Crew) -> None:
    with pytest.raises(ChildDied):
        await crew.run(held("leave"))

"""Handlers in plain children: they work as they do inline, and however a child fails, its job alone fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
import os
import random
from typing import TYPE_CHECKING, Any

import pytest

from executor_crews import QUEUE, crew_of, held, until_there
import executor_handlers as handlers
from queueyard.kernel.proc import identity_of, wait_for_exit
from queueyard.panqueue.errors import Unrecoverable
from queueyard.panqueue.executors import PoolSettings, Subprocess
from queueyard.panqueue.executors.channel import Channel
from queueyard.panqueue.executors.errors import BadHandler, ChildBabbled, ChildDied, HandlerFailed, StartFailed
from servers import eventually, in_loop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize("handler", [handlers.add, handlers.add_async])
@in_loop
async def test_a_child_gets_the_payload_as_its_type_and_gives_the_result(handler: Callable[..., Any]) -> None:
    async with crew_of(Subprocess(), handler) as crew:
        assert await crew.run(held({"a": 2, "b": 3})) == {"value": 5}


@in_loop
async def test_a_task_runs_in_a_child() -> None:
    async with crew_of(Subprocess(), handlers.multiply.handler) as crew:
        assert await crew.run(held({"a": 21})) == 42


@in_loop
async def test_a_payload_of_another_type_fails_the_job_for_good() -> None:
    async with crew_of(Subprocess(), handlers.add) as crew:
        with pytest.raises(Unrecoverable, match=r"cannot be understood.*\$\.a"):
            await crew.run(held({"a": "two", "b": 3}))


@in_loop
async def test_what_a_handler_raises_is_the_reason() -> None:
    async with crew_of(Subprocess(), handlers.fail) as crew:
        with pytest.raises(HandlerFailed, match=r"^not today$"):
            await crew.run(held())
        with pytest.raises(Unrecoverable, match=r"^never again$"):
            await crew.run(held("final"))

        assert crew.pool.started == 1


@in_loop
async def test_a_result_that_json_cannot_hold_fails_the_job() -> None:
    async with crew_of(Subprocess(), handlers.return_an_object) as crew:
        with pytest.raises(HandlerFailed, match="result"):
            await crew.run(held())


@pytest.mark.parametrize(
    ("handler", "bad", "fault", "reason"),
    [
        (handlers.die, "die", ChildDied, r"killed by SIGSEGV.*goodbye"),
        (handlers.leave, "leave", ChildDied, "exit code 3"),
        (handlers.babble, "garbage", ChildBabbled, "cannot be understood"),
        (handlers.babble, "unknown", ChildBabbled, "cannot be understood"),
        (handlers.babble, "huge", ChildBabbled, "4,294,967,295 bytes"),
        (handlers.flood, "flood", ChildBabbled, "bytes long"),
    ],
)
@in_loop
async def test_a_child_that_fails_fails_its_job_only(
    handler: Callable[..., Any], bad: str, fault: type[Exception], reason: str
) -> None:
    async with crew_of(Subprocess(), handler) as crew:
        with pytest.raises(fault, match=reason):
            await crew.run(held(bad))

        assert await crew.run(held("good")) in {"alive", "fine"}
        assert crew.pool.started == 2


@in_loop
async def test_a_child_that_answers_twice_is_not_used_again() -> None:
    async with crew_of(Subprocess(), handlers.babble) as crew:
        assert await crew.run(held("twice")) is None

        assert await crew.run(held("good")) == "fine"
        assert crew.pool.started == 2


@in_loop
async def test_what_a_child_prints_is_logged_up_to_a_limit_for_each_job(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "queueyard.panqueue.child")
    async with crew_of(Subprocess(), handlers.print_much) as crew:
        for _ in range(2):
            assert await crew.run(held()) == "fine"
            await eventually(lambda: "prints too much" in caplog.text)
            lines = [one for one in caplog.records if one.message == "x" * 200]
            assert 100 <= len(lines) < 2_000
            caplog.clear()


@in_loop
async def test_what_a_child_prints_cannot_move_the_cursor(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "queueyard.panqueue.child")
    async with crew_of(Subprocess(), handlers.say) as crew:
        await crew.run(held("red \x1b[31m"))
        await eventually(lambda: "red" in caplog.text)

    assert "red  [31m" in caplog.text


@in_loop
async def test_a_handler_that_looks_at_its_job_ends_when_it_is_cancelled(tmp_path: Path) -> None:
    place = tmp_path / "here"
    async with crew_of(Subprocess(), handlers.stay) as crew:
        running = asyncio.ensure_future(crew.run(held(str(place))))
        await until_there(place)

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        place.unlink()
        again = asyncio.ensure_future(crew.run(held(str(place))))
        await until_there(place)
        assert crew.pool.started == 1, "it ended in time, so its child is still good"
        again.cancel()


@in_loop
async def test_a_coroutine_is_cancelled_in_its_child(tmp_path: Path) -> None:
    async with crew_of(Subprocess(), handlers.stay_async) as crew:
        running = asyncio.ensure_future(crew.run(held(str(tmp_path / "here"))))
        await until_there(tmp_path / "here")

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert len(crew.pool.pids) == 1


@in_loop
async def test_a_handler_that_ignores_cancellation_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    settings = PoolSettings(cancel_grace_s=0.1, term_grace_s=0.1)
    place = tmp_path / "here"
    async with crew_of(Subprocess(settings), handlers.ignore_everything) as crew:
        running = asyncio.ensure_future(crew.run(held(str(place))))
        pids = [await until_there(place), await until_there(place.with_name("here.child"))]
        there = [found for pid in pids if (found := identity_of(pid)) is not None]
        assert len(there) == 2

        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

        assert all(wait_for_exit(one, 20) for one in there)


@in_loop
async def test_cancelled_in_the_moment_of_the_answer_a_child_is_still_good(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PoolSettings(cancel_grace_s=600)
    async with crew_of(Subprocess(settings), handlers.pid) as crew:
        first = await crew.run(held())
        take = Channel._take

        def take_and_cancel(channel: Channel, text: bytes) -> None:
            take(channel, text)
            running.cancel()

        with monkeypatch.context() as patch:
            patch.setattr(Channel, "_take", take_and_cancel)
            running = asyncio.ensure_future(crew.run(held()))
            with pytest.raises(asyncio.CancelledError):
                await running

        assert await crew.run(held()) == first


@pytest.mark.parametrize("handler", [handlers.add, handlers.add_async, handlers.speak_and_add])
@in_loop
async def test_cancelled_at_any_moment_a_child_stays_good_and_the_next_job_gets_its_own_answer(
    handler: Callable[..., Any],
) -> None:
    chance = random.Random(handler.__name__)
    async with crew_of(Subprocess(PoolSettings(cancel_grace_s=600)), handler) as crew:
        for number in range(200):
            running = asyncio.ensure_future(crew.run(spoken_for({"a": number, "b": 1})))
            for _ in range(chance.randrange(8)):
                await asyncio.sleep(0)
            running.cancel()
            with suppress(asyncio.CancelledError):
                assert await running == {"value": number + 1}

            assert await crew.run(spoken_for({"a": number, "b": 2})) == {"value": number + 2}

        assert crew.pool.started == 1


def spoken_for(payload: Any) -> Any:
    """A job whose desk takes a moment for everything."""
    job = held(payload)
    job.desk = SlowDesk()
    return job


class SlowDesk:
    def log(self, _job: Any, _text: str) -> None: ...

    async def step(self, _job: Any, _name: str, result: bytes | None) -> bytes | None:
        await asyncio.sleep(0)
        return result


@in_loop
async def test_asked_twice_a_handler_gets_no_more_time(tmp_path: Path) -> None:
    settings = PoolSettings(cancel_grace_s=600)
    async with crew_of(Subprocess(settings), handlers.ignore_cancellation) as crew:
        running = asyncio.ensure_future(crew.run(held(str(tmp_path / "here"))))
        found = identity_of(await until_there(tmp_path / "here"))
        assert found is not None

        running.cancel()
        await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running])

        assert wait_for_exit(found, 20)


@in_loop
async def test_closing_ends_every_child() -> None:
    crew = Subprocess(PoolSettings(warm=2)).crew(QUEUE, handlers.pid)
    await crew.run(held())
    there = [found for pid in crew.pool.pids if (found := identity_of(pid)) is not None]
    assert there

    await crew.close()

    assert all(wait_for_exit(one, 0) for one in there)


@in_loop
async def test_closing_fails_what_still_runs(tmp_path: Path) -> None:
    crew = Subprocess(PoolSettings(term_grace_s=0.1)).crew(QUEUE, handlers.ignore_cancellation)
    running = asyncio.ensure_future(crew.run(held(str(tmp_path / "here"))))
    await until_there(tmp_path / "here")

    await crew.close()

    with pytest.raises(ChildDied):
        await running


@in_loop
async def test_a_handler_that_nobody_finds_by_name_is_refused() -> None:
    def inner(_: Any) -> None: ...

    for handler in (inner, lambda _: None):
        with pytest.raises(BadHandler, match="cannot find the handler"):
            Subprocess().crew(QUEUE, handler)


@in_loop
async def test_a_module_that_cannot_be_loaded_is_told_and_starts_are_spaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "loads_here_only.py"
    module.write_text("import os\nif not os.environ.get('LOADS'): 1 / 0\ndef handle(job): return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LOADS", "yes")
    import loads_here_only  # type: ignore[import-not-found]

    monkeypatch.delenv("LOADS")
    async with crew_of(Subprocess(), loads_here_only.handle) as crew:
        answers = await asyncio.gather(*(crew.run(held()) for _ in range(3)), return_exceptions=True)

        assert [type(one) for one in answers] == [StartFailed] * 3
        assert all("ZeroDivisionError: division by zero" in str(one) for one in answers)
        assert crew.pool.started == 0
        assert crew.pool.pids == []


@in_loop
async def test_a_child_sees_no_secret_and_not_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    import sandbox_probes

    for name in ("REDIS_URL", "BROKER"):
        monkeypatch.setenv(name, "redis://:MARK@localhost")
    async with crew_of(Subprocess(), sandbox_probes.handle) as crew:
        for probe in (
            "see_the_servers_address",
            "see_open_sockets",
            "read_the_parents_environment",
            "read_the_parents_memory",
        ):
            with pytest.raises(HandlerFailed, match=r"nothing in the environment|no descriptor|Permission denied"):
                await crew.run(held({"probe": probe, "world": {"parent": os.getpid()}}))

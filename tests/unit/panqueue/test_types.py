"""What a type checker says about code that uses panqueue: this file is checked with the rest, ignores included.

An ignore that is not needed is an error there, so that every line marked so is one that must be refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pytest

from queueyard.panqueue import AddedJob, Job, Queue, QueueClient, Tasks, Worker
from queueyard.panqueue.errors import JobFailed
from servers import Server, fresh_id, in_loop, valkey

__all__ = ["valkey"]


class Email(msgspec.Struct):
    to: str


@dataclass
class Picture:
    width: int


class Row(TypedDict):
    name: str


emails = Queue("emails", Email, str)
pictures = Queue("pictures", Picture)
rows = Queue("rows", Row)
anything = Queue("anything")


async def send(job: Job[Email]) -> str:
    return job.payload.to


async def shrink(job: Job[Picture]) -> int:
    return job.payload.width


def store(job: Job[Row]) -> str:
    return job.payload["name"]


async def read(job: Job[dict[str, Any]]) -> object:
    return job.payload


async def look(job: Job[object]) -> None: ...


def test_a_worker_takes_handlers_of_its_payload_and_no_others() -> None:
    honest = [
        Worker(emails, send),
        Worker(pictures, shrink),
        Worker(rows, store),
        Worker(anything, read),
        Worker("anything", read),
        Worker(Queue("anything"), look),
        Worker(emails, look),
    ]
    mistaken = Worker(emails, shrink)  # type: ignore[arg-type]

    assert {worker.state for worker in (*honest, mistaken)} == {"idle"}


@in_loop
async def test_a_client_adds_payloads_of_its_queue_and_gives_its_results(valkey: Server) -> None:
    queue = Queue(fresh_id(), Email, str)
    async with QueueClient(valkey.url) as client, Worker(queue, send, url=valkey.url):
        job = await client.queue(queue).add(Email("ada"))
        result = await job.result(timeout_s=30)
        wrong = await client.queue(queue).add(Picture(7))  # type: ignore[arg-type]

        with pytest.raises(JobFailed):
            await wrong.result(timeout_s=30)

    assert_type(job, AddedJob[str])
    assert_type(result, str | None)
    assert result == "ada"


def test_a_task_keeps_the_arguments_of_its_function() -> None:
    tasks = Tasks()

    @tasks.task()
    def double(number: int) -> int:
        return 2 * number

    with pytest.raises(TypeError):
        double.add_sync(wrong=3)  # type: ignore[call-arg]
    assert double(4) == 8

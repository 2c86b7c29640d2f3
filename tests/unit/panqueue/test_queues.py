"""Declarations of queues, ids and options."""

from __future__ import annotations

from collections import Counter
import os
import uuid

import pytest

from queueyard.panqueue.adding import Intake, calls_for
from queueyard.panqueue.errors import BadQueue
from queueyard.panqueue.queues import Queue, new_job_id, with_options
from queueyard.panqueue.records import KEEP_FAILED, KEEP_RESULTS, JobOptions, Keep
from queueyard.panqueue.store import QueueStore, read_options, stored_options


def test_an_id_is_a_random_uuid_of_version_4() -> None:
    ids = [uuid.UUID(new_job_id()) for _ in range(2_000)]

    assert len(set(ids)) == 2_000
    assert {(one.version, one.variant) for one in ids} == {(4, uuid.RFC_4122)}
    # Every random digit takes every value.
    assert all(len(Counter(str(one)[place] for one in ids)) == 16 for place in (0, 9, 15, 35))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_makes_ids_of_its_own() -> None:
    reading, writing = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(writing, new_job_id().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    childs = os.read(reading, 64).decode()
    os.close(reading)
    os.close(writing)

    assert childs != new_job_id()


def test_what_is_kept_depends_on_whether_results_are_wanted() -> None:
    assert (Queue("q").keep_completed, Queue("q").keep_failed) == (None, KEEP_FAILED)
    assert Queue("q", int, int).keep_completed == KEEP_RESULTS
    assert Queue("q", int, int, keep_completed=Keep(count=1)).keep_completed == Keep(count=1)


def test_options_are_replaced_only_where_something_is_said() -> None:
    base = JobOptions(retries=2)

    assert with_options(base, retries=None, backoff=None) is base
    assert with_options(base, retries=0) == JobOptions(retries=0)
    with pytest.raises(BadQueue, match="retries must be 0 or more"):
        with_options(base, retries=-1)


def test_usual_options_cost_nothing_and_others_come_back() -> None:
    assert stored_options(JobOptions(retries=3)) == ""
    stored = stored_options(JobOptions(timeout_ms=7))

    assert read_options(stored.encode()).timeout_ms == 7
    assert read_options(b"{not ours").timeout_ms is None
    assert read_options(None).backoff is None


def test_jobs_with_the_same_options_share_a_call_and_order_is_kept() -> None:
    queue = Queue("q")
    intake = Intake(queue, queue.options)
    new = [
        intake.prepare(n, keyed=False, key=None, job_id=None, retries=1 if 3 <= n < 5 else None) for n in range(2_050)
    ]

    parts = [part for part, _ in calls_for(QueueStore("q"), new, keyed=False, actor="a")]

    assert [len(part) for part in parts] == [3, 2, 1_000, 1_000, 45]
    assert [job for part in parts for job in part] == new

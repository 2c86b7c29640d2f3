"""panqueue: an async job-queue library on Redis and Valkey.

    from queueyard.panqueue import Queue, QueueClient, Worker

Names are imported when first asked for, so that `panqueue --help` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from queueyard.panqueue.client import AddedJob, QueueClient, QueueHandle
    from queueyard.panqueue.errors import LeaseLost, PanqueueError, TryAgain, Unrecoverable
    from queueyard.panqueue.flows import ChildResult, FlowJob, OnFailure, chain, group
    from queueyard.panqueue.jobs import Callbacks, Job
    from queueyard.panqueue.pacing import Rate
    from queueyard.panqueue.placing import Dedup
    from queueyard.panqueue.pool import WorkerPool
    from queueyard.panqueue.queues import Queue
    from queueyard.panqueue.records import BackoffRule, Counts, JobRecord, JobState, Keep, Mode
    from queueyard.panqueue.schedules import CatchUp, Schedule
    from queueyard.panqueue.settings import WorkerSettings
    from queueyard.panqueue.sync import SyncQueueClient
    from queueyard.panqueue.tasks import Tasks
    from queueyard.panqueue.worker import Limit, Stopped, Worker

__all__ = [
    "AddedJob",
    "BackoffRule",
    "Callbacks",
    "CatchUp",
    "ChildResult",
    "Counts",
    "Dedup",
    "FlowJob",
    "Job",
    "JobRecord",
    "JobState",
    "Keep",
    "LeaseLost",
    "Limit",
    "Mode",
    "OnFailure",
    "PanqueueError",
    "Queue",
    "QueueClient",
    "QueueHandle",
    "Rate",
    "Schedule",
    "Stopped",
    "SyncQueueClient",
    "Tasks",
    "TryAgain",
    "Unrecoverable",
    "Worker",
    "WorkerPool",
    "WorkerSettings",
    "chain",
    "group",
]

_HOMES = {
    "client": ("AddedJob", "QueueClient", "QueueHandle"),
    "errors": ("LeaseLost", "PanqueueError", "TryAgain", "Unrecoverable"),
    "flows": ("ChildResult", "FlowJob", "OnFailure", "chain", "group"),
    "jobs": ("Callbacks", "Job"),
    "pacing": ("Rate",),
    "placing": ("Dedup",),
    "pool": ("WorkerPool",),
    "queues": ("Queue",),
    "records": ("BackoffRule", "Counts", "JobRecord", "JobState", "Keep", "Mode"),
    "schedules": ("CatchUp", "Schedule"),
    "settings": ("WorkerSettings",),
    "sync": ("SyncQueueClient",),
    "tasks": ("Tasks",),
    "worker": ("Limit", "Stopped", "Worker"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _HOME_OF:
        from importlib import import_module  # noqa: PLC0415

        return getattr(import_module(f"queueyard.panqueue.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

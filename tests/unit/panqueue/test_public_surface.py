"""What the library offers, name by name, so that a change of it is deliberate; and that asking for it is cheap."""

from __future__ import annotations

import subprocess
import sys

import pytest

from queueyard import panqueue
from queueyard.panqueue import errors

SURFACE = {
    *("AddedJob", "BackoffRule", "Callbacks", "Counts", "Job", "JobRecord", "JobState", "Keep", "LeaseLost", "Limit"),
    *("Mode", "PanqueueError", "Queue", "QueueClient", "QueueHandle", "Stopped", "SyncQueueClient", "Tasks"),
    *("CatchUp", "ChildResult", "Dedup", "FlowJob", "OnFailure", "Rate", "Schedule", "TryAgain", "chain", "group"),
    *("Unrecoverable", "Worker", "WorkerPool", "WorkerSettings"),
}


def test_the_library_offers_exactly_what_is_written_here() -> None:
    assert set(panqueue.__all__) == SURFACE
    assert {name for name in SURFACE if getattr(panqueue, name).__name__ == name} == SURFACE


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        panqueue.Nothing  # noqa: B018


def test_the_package_imports_nothing_heavy_by_itself() -> None:
    program = "import sys, queueyard.panqueue; print(*{'asyncio', 'msgspec', 'ssl', 'socket'} & set(sys.modules))"

    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert answer.stdout.split() == []


def test_every_error_stands_in_the_tree_of_the_docstring() -> None:
    kinds = [
        name for name, kind in vars(errors).items() if isinstance(kind, type) and kind.__module__ == errors.__name__
    ]

    assert errors.__doc__ is not None
    assert [name for name in kinds if f"── {name}" not in errors.__doc__] == []
    assert all(issubclass(getattr(errors, name), errors.PanqueueError) for name in kinds)

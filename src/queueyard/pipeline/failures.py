"""Failures that come out of Spark or of the Delta log and are nobody's bug, told as the rest of the house tells them.

Spark wraps whatever a worker or a disk said into pages of its own. What is foreseen is taken out of them here; anything
else keeps its traceback.
"""

from __future__ import annotations

from contextlib import contextmanager
import re
from typing import TYPE_CHECKING

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from queueyard.kernel.errors import QueueyardError, StorageFailed
from queueyard.pipeline.errors import SourceFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

_AGAIN = "then run it again: what was committed is whole, and the rest is read anew."
_SOURCE_FAILED = re.compile(rf"{SourceFailed.__name__}: ([^\n]+)")
_DISK_FULL = "No space left on device"


@contextmanager
def explained() -> Iterator[None]:
    """StorageFailed or SourceFailed instead of what Spark or the log raises."""
    try:
        yield
    except (Py4JError, PySparkException, DeltaError, OSError) as fault:
        told = _told(str(fault))
        if told is None:
            raise
        raise told from fault


def _told(text: str) -> QueueyardError | None:
    if found := _SOURCE_FAILED.search(text):
        return SourceFailed(found[1], hint=f"Look at that place, {_AGAIN}")
    if _DISK_FULL in text:
        return StorageFailed(f"cannot write the tables: {_DISK_FULL}", hint=f"Make room, {_AGAIN}")
    return None

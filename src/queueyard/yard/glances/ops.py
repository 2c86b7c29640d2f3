"""A server by its own gauges and counters; a client's home by the batches that wait there and the dead letters."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
import os
from pathlib import Path
import re

from queueyard.kernel.events import System
from queueyard.ops.home import known_scopes
from queueyard.ops.retries import refused
from queueyard.ops.store import Queue
from queueyard.ops.transport import HttpTransport
from queueyard.yard.records import Glance

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIMEOUT_S = 2.0
_WAITING = re.compile(r"^jolli_ops_waiting_batches (\S+)$", re.MULTILINE)
_REFUSED = re.compile(r'^jolli_ops_ops_total\{status="(?:rejected|conflict)"\} (\S+)$', re.MULTILINE)


def glance(at: str, now: datetime) -> Glance:
    return _of_server(at) if "://" in at else _of_home(at, now)


def _of_server(at: str) -> Glance:
    """What is refused is counted since the server was started."""
    line = HttpTransport(at, token=os.environ.get("JOLLI_TOKEN"), timeout_s=_TIMEOUT_S)
    try:
        is_ready = line.exchange("GET", "/readyz").status == 200
        told = line.exchange("GET", "/metrics")
    finally:
        line.close()
    if told.status != 200:
        raise refused(told)
    numbers = told.body.decode()
    return Glance(
        system=System.OPS,
        at=at,
        waiting=sum(int(float(found)) for found in _WAITING.findall(numbers)),
        failed=sum(int(float(found)) for found in _REFUSED.findall(numbers)),
        health="server up" if is_ready else "not ready",
        is_well=is_ready,
    )


def _of_home(at: str, now: datetime) -> Glance:
    queues = [Queue(folder) for folder, _ in known_scopes(Path(at))]
    requests = [(queue, manifest) for queue in queues for manifest in queue.requests()]
    pending = [(manifest, len(queue.pending(manifest))) for queue, manifest in requests]
    ages = [now - _EPOCH - timedelta(milliseconds=manifest.created_at) for manifest, left in pending if left]
    dead = sum(len(queue.dead_letters()) for queue in queues)
    return Glance(
        system=System.OPS,
        at=at,
        waiting=sum(left for _, left in pending),
        failed=dead,
        oldest_wait_s=max((age.total_seconds() for age in ages), default=None),
        health="1 folder" if len(queues) == 1 else f"{len(queues)} folders",
        is_well=not dead,
    )

"""Fifty clients on ten spaces for a minute: nothing lost, nothing doubled; the times are printed.

OPS_CROWD_S sets how long (60).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from unit.ops.support.crowd import push_for, violations
from unit.ops.support.running import running_server

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900)]

SECONDS = float(os.environ.get("OPS_CROWD_S", "60"))


def test_fifty_clients_on_ten_spaces_for_a_minute(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running_server(tmp_path) as server:
        crowd = push_for(server, tmp_path, clients=50, spaces=10, seconds=SECONDS)
        found = violations(server, crowd)

    ops = sum(map(len, crowd.applied.values()))
    with capsys.disabled():
        print(  # noqa: T201  the figure is what it is for
            f"\n50 clients, 10 spaces, {SECONDS:g} s, load {os.getloadavg()[0]:.1f}: {len(crowd.seconds)} batches, "
            f"{ops} ops, {ops / SECONDS:,.0f} ops/s, p50 {crowd.percentile(0.5) * 1000:.0f} ms, "
            f"p99 {crowd.percentile(0.99) * 1000:.0f} ms, {crowd.retries} retries"
        )
    assert found == []

"""Fifty clients on ten spaces for some seconds: nothing lost, nothing doubled. `make chaos` does it for a minute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unit.ops.support.crowd import push_for, violations
from unit.ops.support.running import running_server

if TYPE_CHECKING:
    from pathlib import Path


def test_fifty_clients_on_ten_spaces_lose_and_double_nothing(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        crowd = push_for(server, tmp_path, clients=50, spaces=10, seconds=3)

        assert violations(server, crowd) == []
        assert len(crowd.applied) == 10
        assert sum(map(len, crowd.applied.values())) >= 50 * 25


def test_a_crowd_before_a_narrow_door_is_sent_away_and_comes_back(tmp_path: Path) -> None:
    with running_server(tmp_path, "--max-waiting", "3") as server:
        crowd = push_for(server, tmp_path, clients=20, spaces=4, seconds=1)

        assert violations(server, crowd) == []

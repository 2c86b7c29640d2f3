"""Minutes of real kill -9: clients, servers, and both at once.

OPS_KILLS sets how often a client is killed (60); a server gets as many as the push takes.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from unit.ops.support.running import ScriptClient, running_server
from unit.ops.support.storm import (
    ServerKiller,
    answers_are_stable,
    completed_bodies,
    kill_clients,
    violations,
    write_files,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("OPS_KILLS", "60"))
FILES = 10_000


@pytest.mark.parametrize("seed", range(3))
def test_clients_and_servers_die_at_random_and_every_file_arrives_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with running_server(tmp_path) as server:
        client = ScriptClient(tmp_path / "client", server.url, "space1", JOLLI_KEEP_COMPLETED="true")
        write_files(client, FILES)
        client.json("plan", "--batch-ops", "25")

        with ServerKiller(server, random.Random(seed + 100), longest_life_s=1.5, most=10_000) as killer:
            killed = kill_clients(client, dice, KILLS)
        client.json("resume")

        assert min(killed, killer.kills) > 5
        assert violations(server, client, FILES, space="space1") == []
        assert answers_are_stable(server, completed_bodies(client), space="space1")
        assert len(completed_bodies(client)) == FILES // 25

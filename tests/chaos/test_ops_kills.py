"""Minutes of real kill -9: clients, servers, and both at once.

OPS_KILLS sets how often a client is killed (60); a server gets as many as the push takes.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

import pytest

from unit.ops.support.running import SPACES, ScriptClient, running_server
from unit.ops.support.storm import (
    ServerKiller,
    answers_are_stable,
    completed_bodies,
    kill_clients,
    violations,
    violations_of_a_dying_client,
    violations_of_a_dying_pull,
    write_files,
)

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1800)]

KILLS = int(os.environ.get("OPS_KILLS", "60"))
FILES = 10_000


def test_a_client_dies_at_every_step_of_a_push_and_every_file_arrives_once(tmp_path: Path) -> None:
    died = 0

    with running_server(tmp_path) as server:
        for nth in range(1, SPACES):
            found = violations_of_a_dying_client(server, tmp_path / f"client{nth}", nth)
            if found is None:
                break
            assert found == [], f"step {nth}"
            died += 1

    assert died > 100


def test_a_pull_dies_at_every_step_and_the_next_one_makes_the_folders_equal(tmp_path: Path) -> None:
    died = 0

    with running_server(tmp_path) as server:
        for nth in range(1, SPACES):
            found = violations_of_a_dying_pull(server, tmp_path / f"pull{nth}", nth)
            if found is None:
                break
            assert found == [], f"step {nth}"
            died += 1

    assert died > 50


@pytest.mark.parametrize("seed", range(3))
def test_clients_and_servers_die_at_random_and_every_file_arrives_once(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    with running_server(tmp_path) as server:
        client = ScriptClient(tmp_path / "client", server.url, "space1", JOLLI_KEEP_COMPLETED="true")
        write_files(client, FILES)
        client.json("plan", "--batch-ops", "25")

        with ServerKiller(server, random.Random(seed + 100), most_batches=10, most=10_000) as killer:
            killed = kill_clients(client, dice, KILLS)
        client.json("resume")

        assert min(killed, killer.kills) > 0
        assert violations(server, client, FILES, space="space1") == []
        assert answers_are_stable(server, completed_bodies(client), space="space1")
        assert len(completed_bodies(client)) == FILES // 25

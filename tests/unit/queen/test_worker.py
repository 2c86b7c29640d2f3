from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from queueyard.kernel.testing import FakeClock
from queueyard.queen import Queen
from queueyard.queen.store import ASSIGNMENTS
from queueyard.queen.worker import snapshot, snapshots

if TYPE_CHECKING:
    from collections.abc import Callable

    from queueyard.queen.home import Home
    from unit.queen.conftest import Writer


def test_an_empty_repository_shows_nothing(queen_of: Callable[[str], Queen]) -> None:
    shown = snapshot(queen_of("ui"))

    assert shown.at == "2026-01-01T00:00:00Z"
    assert (shown.unread, shown.messages, shown.assignments, shown.reservations, shown.conflicts) == ({}, [], [], [], 0)


def test_a_snapshot_shows_what_is_in_force(queen_of: Callable[[str], Queen], clock: FakeClock, write: Writer) -> None:
    ui, api = queen_of("ui"), queen_of("api")
    write("issues.jsonl", {"id": "qb-1"}, {"id": "qb-2"})
    for number in range(10):
        clock.advance(1)
        ui.send("api", str(number))
    api.send("ui", "last")
    api.inbox(limit=3, mark=True)
    ui.claim("qb-1")
    api.claim("qb-2")
    api.release("qb-2")
    ui.reserve(["src/**"])
    api.reserve(["src/a"], force=True, ttl="1m")

    shown = snapshot(ui)

    assert shown.unread == {"api": 7, "ui": 1}
    assert {message.body for message in shown.messages[:2]} == {"9", "last"}
    assert [message.body for message in shown.messages[2:]] == ["8", "7", "6", "5", "4", "3"]
    assert [one.issue_id for one in shown.assignments] == ["qb-1"]
    assert [one.pattern for one in shown.reservations] == ["src/a", "src/**"]
    assert shown.conflicts == 1


def test_a_new_snapshot_comes_when_a_file_changes_and_else_after_the_interval(home: Home) -> None:
    class Meanwhile(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            if 2.0 <= self.monotonic() < 2.04:
                (home.beads / ASSIGNMENTS).write_text('{"id":"qa-1","issue_id":"qb-1","agent":"ui"}\n')

    clock = Meanwhile()
    with Queen.open(home.root, agent="ui", environment={}, clock=clock) as queen:
        shown = snapshots(queen, interval_s=10.0)

        first, second, third = next(shown), next(shown), next(shown)

    assert (len(first.assignments), len(second.assignments)) == (0, 1)
    assert second.at.startswith("2026-01-01T00:00:02")
    assert third.at.startswith("2026-01-01T00:00:12")


@pytest.mark.parametrize("name", ["queen_messages.jsonl", "queen_assignments.jsonl", "queen_reservations.jsonl"])
def test_every_one_of_the_three_files_is_watched(home: Home, name: str) -> None:
    class Meanwhile(FakeClock):
        def sleep(self, seconds: float) -> None:
            super().sleep(seconds)
            (home.beads / name).touch()

    clock = Meanwhile()
    with Queen.open(home.root, agent="ui", environment={}, clock=clock) as queen:
        shown = snapshots(queen, interval_s=100.0)
        next(shown)

        next(shown)

    assert clock.monotonic() < 1.0

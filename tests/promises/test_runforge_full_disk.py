"""A disk that is full: commands say so and change nothing, and the daemon keeps what it knows until there is room."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from runforge_scenarios import Yard, until

if TYPE_CHECKING:
    from pathlib import Path


def fill(folder: Path) -> Path:
    """Take every byte that is left."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as stream, suppress(OSError):
        while True:
            stream.write(b"x" * 512)
    return filler


def test_a_command_on_a_full_disk_says_so_and_nothing_is_lost(small_disk: Path, tmp_path: Path) -> None:
    yard = Yard(small_disk / "ws")
    for run in ("first", "second"):
        yard.make_run(run)
    yard.ok("enqueue-run", "--run-id", "first")
    before = yard.queue()
    filler = fill(small_disk)

    answer = yard.cli("enqueue-run", "--run-id", "second", "--workspace", str(yard.root), cwd=tmp_path)

    # The last page of the journal may have had room for one more line; then the run is accepted, and only not shown.
    assert "No space left on device" in answer.stderr
    assert yard.queue() == before
    filler.unlink()
    if answer.code:
        yard.ok("enqueue-run", "--run-id", "second")
    yard.ok("prune")
    assert yard.states() == {"first": "queued", "second": "queued"}


def test_a_sweep_that_does_not_fit_leaves_nothing_behind(small_disk: Path) -> None:
    yard = Yard(small_disk / "ws")
    plan = yard.write_plan(yard.plan("true", "x" * 2000, values=list(range(200))))

    answer = yard.cli("enqueue-sweep", "--plan", str(plan))

    assert answer.code == 1
    assert "No space left on device" in answer.stderr
    assert list(yard.runs.iterdir()) == []
    assert list((yard.root / ".runforge" / "groups").iterdir()) == []


def test_the_daemon_waits_for_room_and_then_tells_what_happened(small_disk: Path, tmp_path: Path) -> None:
    yard = Yard(small_disk / "ws")
    go = tmp_path / "go"
    yard.make_run("running", "sh", "-c", f"while [ ! -e {go} ]; do sleep 0.02; done")
    yard.make_run("next", "true")
    for run in ("running", "next"):
        yard.ok("enqueue-run", "--run-id", run)

    with yard.daemon("--max-parallel", "1") as daemon:
        daemon.wait_for("JOB_STARTED")
        until(lambda: yard.states()["running"] == "running")
        filler = fill(small_disk)
        go.touch()
        daemon.wait_for("No space left on device")
        assert daemon.process.poll() is None
        filler.unlink()
        until(lambda: set(yard.states().values()) == {"succeeded"})
        assert daemon.stop() == 0

    assert yard.states() == {"running": "succeeded", "next": "succeeded"}

"""A sweep of twelve runs in two groups: some fail, and only those are tried again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queueyard.yard.scenes.stage import Stage

_TRAIN = '[ "$DEPTH" -lt 3 ] || [ -e more-memory ] || { echo "out of memory at depth $DEPTH" >&2; exit 1; }'


def show_runforge(stage: Stage) -> None:
    lab = stage.folder / "lab"
    lab.mkdir()
    for name, rates in (("qy-1 slow", [1, 2]), ("qy-2 fast", [7, 8])):
        parameters = [{"path": "env.DEPTH", "values": [1, 2, 3]}, {"path": "env.RATE", "values": rates}]
        plan = {
            "version": 1,
            "kind": "sweep_plan",
            "workspace": ".",
            "group": {"name": name},
            "base_request": {"version": 1, "command": ["sh", "-c", _TRAIN]},
            "strategy": {"type": "grid", "parameters": parameters},
        }
        (lab / f"{name.split()[1]}.json").write_text(json.dumps(plan), encoding="utf-8")
    stage.say(
        "Two sweeps of six runs each wait in one queue; a daemon runs two at a time, in turns between the groups."
    )
    stage.type("runforge-cli enqueue-sweep --plan slow.json", where="lab", contains="Enqueued 6/6 runs")
    stage.type("runforge-cli enqueue-sweep --plan fast.json", where="lab", contains="Enqueued 6/6 runs")
    daemon = stage.start("runforge-cli daemon --max-parallel 2", where="lab", log="daemon.log")
    groups = sorted(path.name for path in (lab / ".runforge" / "groups").iterdir())
    stage.say("Where depth is 3 there is not enough memory; the queue says so.")
    for group in groups:
        stage.type(f"runforge-cli wait {group} --timeout 60s", where="lab", expect=1, contains="4 succeeded, 2 failed")
    stage.type("runforge-cli queue-status", where="lab", contains="out of memory at depth 3")
    stage.say("With more memory, only what failed is tried again.")
    (lab / "more-memory").touch()
    for group in groups:
        stage.type(f"runforge-cli retry-failed --group-id {group}", where="lab", contains="Re-enqueued 2 failed runs")
        stage.type(f"runforge-cli wait {group} --timeout 60s", where="lab", contains="6 succeeded")
    daemon.stop(grace_s=20.0)
    stage.type("queueyard add runforge lab", contains="added")
    stage.type("runforge-cli doctor", where="lab", contains="Everything is well")

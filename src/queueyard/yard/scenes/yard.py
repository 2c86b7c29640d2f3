"""All places in one table, and one issue followed through every system."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queueyard.yard.scenes.stage import Stage


def show_yard(stage: Stage) -> None:
    stage.say("Every scene has added its place to queueyard.toml: all of them in one table.")
    listed = stage.type("queueyard list")
    stage.type("queueyard status", contains="HEALTH")
    if Path(stage.folder, ".beads").is_dir():
        stage.say("One issue, in every system that carries its id.")
        told = stage.type("queueyard trace qy-1", contains="assignment started")
        for system in ("runforge", "jjq", "ops"):
            stage.expect(f" {system} " in told or system not in listed, f"the trace of qy-1 does not know {system}")
    stage.say("The last of what happened, whoever told it; with --follow, as it happens.")
    stage.type("queueyard events --limit 5")

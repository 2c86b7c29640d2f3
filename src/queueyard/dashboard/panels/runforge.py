"""What the page of runforge shows."""

from __future__ import annotations

from queueyard.dashboard.panels.shapes import Action, Column, Panel, has_failed, is_open, is_paused
from queueyard.yard.actions import Noun, Verb

_RUN = (
    Column("run_id", "Run", "code"),
    Column("group", "Group"),
    Column("attempt", "Attempt", "number"),
)
PANELS = (
    Panel(
        name="groups",
        title="Groups",
        empty="No runs yet.",
        columns=(
            Column("group", "Group"),
            Column("state", "State", "state"),
            Column("queued", "Queued", "number"),
            Column("running", "Running", "number"),
            Column("succeeded", "Succeeded", "number"),
            Column("failed", "Failed", "number"),
            Column("canceled", "Canceled", "number"),
            Column("share", "Share of starts", "share"),
            Column("eta_s", "To go", "seconds"),
        ),
        actions=(
            Action(Verb.RETRY, Noun.GROUP, ("group",), "Retry failed", has_failed),
            Action(Verb.PAUSE, Noun.GROUP, ("group",), "Pause", lambda row: is_open(row) and row.queued > 0),
            Action(Verb.RESUME, Noun.GROUP, ("group",), "Resume", is_paused),
            Action(Verb.CANCEL, Noun.GROUP, ("group",), "Cancel", lambda row: bool(row.queued)),
        ),
    ),
    Panel(
        name="running",
        title="Running",
        empty="Nothing runs.",
        columns=(*_RUN, Column("started_at", "Started", "time")),
        log="run_id",
    ),
    Panel(
        name="failed",
        title="Failed",
        empty="Nothing failed.",
        columns=(*_RUN, Column("reason", "Reason"), Column("finished_at", "Ended", "time")),
        log="run_id",
    ),
    Panel(
        name="queued",
        title="Queue",
        empty="Nothing waits.",
        columns=(
            *_RUN,
            Column("priority", "Priority", "number"),
            Column("reason", "Waits because"),
            Column("queued_at", "Queued", "time"),
        ),
    ),
    Panel(
        name="ended",
        title="Done",
        empty="Nothing has ended yet.",
        columns=(*_RUN, Column("state", "State", "state"), Column("finished_at", "Ended", "time")),
        log="run_id",
    ),
)

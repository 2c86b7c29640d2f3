"""What the page of panqueue shows."""

from __future__ import annotations

from queueyard.dashboard.panels.shapes import Action, Column, Panel, has_failed, is_open, is_paused
from queueyard.yard.actions import Noun, Verb

_JOB = (
    Column("queue", "Queue"),
    Column("id", "Job", "code"),
    Column("key", "Key"),
    Column("runs", "Runs", "number"),
)
PANELS = (
    Panel(
        name="queues",
        title="Queues",
        empty="No queues on this server.",
        columns=(
            Column("queue", "Queue"),
            Column("mode", "Mode"),
            Column("state", "State", "state"),
            Column("waiting", "Waiting", "number"),
            Column("active", "Active", "number"),
            Column("delayed", "Delayed", "number"),
            Column("failed", "Failed", "number"),
            Column("completed", "Kept", "number"),
            Column("oldest_s", "Oldest wait", "seconds"),
            Column("overdue", "Overdue", "number"),
        ),
        actions=(
            Action(Verb.RETRY, Noun.QUEUE, ("queue",), "Retry failed", has_failed),
            Action(Verb.PAUSE, Noun.QUEUE, ("queue",), "Pause", is_open),
            Action(Verb.RESUME, Noun.QUEUE, ("queue",), "Resume", is_paused),
        ),
    ),
    Panel(
        name="keys",
        title="Keys that run or come up next",
        empty="No queue has keys.",
        columns=(
            Column("queue", "Queue"),
            Column("key", "Key"),
            Column("running", "Running", "number"),
            Column("waiting", "Waiting", "number"),
            Column("share", "Share of running", "share"),
        ),
    ),
    Panel(
        name="active",
        title="Running",
        empty="Nothing runs.",
        columns=(*_JOB, Column("payload", "Payload", "code"), Column("started_at", "Started", "time")),
    ),
    Panel(
        name="failed",
        title="Failed",
        empty="Nothing failed.",
        columns=(*_JOB, Column("reason", "Reason"), Column("finished_at", "Ended", "time")),
        actions=(
            Action(Verb.RETRY, Noun.JOB, ("queue", "id"), "Retry"),
            Action(Verb.CANCEL, Noun.JOB, ("queue", "id"), "Remove"),
        ),
    ),
    Panel(
        name="delayed",
        title="Waiting for their next attempt",
        empty="Nothing waits to be tried again.",
        columns=(*_JOB, Column("reason", "Reason"), Column("queued_at", "Queued", "time")),
        actions=(Action(Verb.CANCEL, Noun.JOB, ("queue", "id"), "Remove"),),
    ),
    Panel(
        name="waiting",
        title="Queue",
        empty="Nothing waits.",
        columns=(*_JOB, Column("payload", "Payload", "code"), Column("queued_at", "Queued", "time")),
        actions=(Action(Verb.CANCEL, Noun.JOB, ("queue", "id"), "Remove"),),
    ),
)

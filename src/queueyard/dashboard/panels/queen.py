"""What the page of queen shows."""

from __future__ import annotations

from queueyard.dashboard.panels.shapes import Action, Column, Panel
from queueyard.yard.actions import Noun, Verb

PANELS = (
    Panel(
        name="agents",
        title="Agents",
        empty="No agent has said or done anything yet.",
        columns=(
            Column("agent", "Agent"),
            Column("unread", "Unread", "number"),
            Column("received", "Received", "number"),
            Column("sent", "Sent", "number"),
            Column("assigned", "Works on", "number"),
            Column("reserved", "Holds", "number"),
        ),
    ),
    Panel(
        name="messages",
        title="Messages",
        empty="No messages.",
        columns=(
            Column("state", "State", "state"),
            Column("importance", "Importance", "state"),
            Column("sender", "From"),
            Column("to", "To"),
            Column("subject", "Subject"),
            Column("body", "Text"),
            Column("issue", "Issue", "code"),
            Column("at", "Sent", "time"),
        ),
    ),
    Panel(
        name="assignments",
        title="Assignments",
        empty="Nobody works on anything.",
        columns=(
            Column("state", "State", "state"),
            Column("issue", "Issue", "code"),
            Column("agent", "Agent"),
            Column("assigned_by", "By"),
            Column("reason", "Reason"),
            Column("at", "Since", "time"),
        ),
        actions=(Action(Verb.CANCEL, Noun.ASSIGNMENT, ("issue",), "Release", lambda row: bool(row.state == "active")),),
    ),
    Panel(
        name="reservations",
        title="Reservations",
        empty="No files are reserved.",
        columns=(
            Column("kind", "Kind", "state"),
            Column("pattern", "Files", "code"),
            Column("agent", "Agent"),
            Column("issue", "Issue", "code"),
            Column("reason", "Reason"),
            Column("at", "Since", "time"),
            Column("expires_at", "Ends", "time"),
        ),
        actions=(Action(Verb.CANCEL, Noun.RESERVATION, ("id",), "Release"),),
    ),
    Panel(
        name="overlaps",
        title="Overlaps",
        empty="No two agents hold the same files.",
        columns=(
            Column("clash", "Clash", "state"),
            Column("holder", "First"),
            Column("holder_pattern", "Files", "code"),
            Column("other", "Second"),
            Column("other_pattern", "Files", "code"),
            Column("example", "For example", "code"),
        ),
    ),
)

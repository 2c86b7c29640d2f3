"""What the page of jjq shows."""

from __future__ import annotations

from queueyard.dashboard.panels.shapes import Action, Column, Panel
from queueyard.yard.actions import Noun, Verb

_ITEM = (
    Column("id", "Item", "number"),
    Column("state", "State", "state"),
    Column("subject", "Change"),
    Column("change", "Id", "code"),
)
PANELS = (
    Panel(
        name="queue",
        title="Queue",
        empty="Nothing waits to land.",
        columns=(*_ITEM, Column("reason", "Note"), Column("at", "Since", "time")),
        actions=(Action(Verb.CANCEL, Noun.ITEM, ("id",), "Delete"),),
        log="id",
    ),
    Panel(
        name="failed",
        title="Failed",
        empty="Nothing failed.",
        columns=(*_ITEM, Column("reason", "Reason"), Column("at", "Failed", "time")),
        actions=(
            Action(Verb.RETRY, Noun.ITEM, ("id",), "Retry"),
            Action(Verb.CANCEL, Noun.ITEM, ("id",), "Delete"),
        ),
        log="id",
    ),
    Panel(
        name="landed",
        title="Landed",
        empty="Nothing has landed yet.",
        columns=(*_ITEM, Column("at", "Landed", "time")),
        log="id",
    ),
)

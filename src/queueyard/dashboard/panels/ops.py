"""What the page of ops shows."""

from __future__ import annotations

from queueyard.dashboard.panels.shapes import Action, Column, Panel
from queueyard.yard.actions import Noun, Verb

PANELS = (
    Panel(
        name="requests",
        title="Requests on their way",
        empty="Nothing is on its way.",
        columns=(
            Column("request", "Request", "code"),
            Column("folder", "Folder", "code"),
            Column("space", "Space"),
            Column("left", "Batches left", "number"),
            Column("batches", "of", "number"),
            Column("ops_left", "Ops left", "number"),
            Column("bytes_left", "Size", "bytes"),
            Column("message", "Message"),
            Column("at", "Queued", "time"),
        ),
        actions=(Action(Verb.CANCEL, Noun.REQUEST, ("request",), "Drop"),),
    ),
    Panel(
        name="dead",
        title="Dead letters",
        empty="No dead letters.",
        columns=(
            Column("path", "Path", "code"),
            Column("kind", "Op"),
            Column("code", "Code", "state"),
            Column("reason", "Reason"),
            Column("at", "Since", "time"),
        ),
        actions=(
            Action(Verb.RETRY, Noun.LETTER, ("id",), "Retry"),
            Action(Verb.CANCEL, Noun.LETTER, ("id",), "Drop"),
        ),
    ),
    Panel(
        name="conflicts",
        title="Conflicts",
        empty="No conflicts.",
        columns=(
            Column("path", "Path", "code"),
            Column("folder", "Folder", "code"),
            Column("code", "Code", "state"),
            Column("reason", "Reason"),
            Column("at", "Since", "time"),
        ),
    ),
    Panel(
        name="refusals",
        title="Refused by the server",
        empty="Nothing was refused.",
        columns=(
            Column("space", "Space"),
            Column("number", "Number", "number"),
            Column("state", "State", "state"),
            Column("code", "Code"),
            Column("path", "Path", "code"),
            Column("reason", "Reason"),
            Column("client", "Client"),
            Column("at", "At", "time"),
        ),
    ),
    Panel(
        name="changes",
        title="Latest changes on the server",
        empty="Nothing has changed yet.",
        columns=(
            Column("space", "Space"),
            Column("number", "Number", "number"),
            Column("kind", "Change", "state"),
            Column("path", "Path", "code"),
            Column("version", "Version", "number"),
            Column("bytes", "Size", "bytes"),
            Column("client", "Client"),
            Column("at", "At", "time"),
        ),
    ),
)

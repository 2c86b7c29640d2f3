"""Unread messages wait, active assignments run. Nothing fails in queen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from queueyard.kernel.events import System
from queueyard.queen.home import find_home
from queueyard.queen.records import AssignmentStatus, Message, view_or_none
from queueyard.queen.rules import moment_of, owner_of
from queueyard.queen.store import Store
from queueyard.yard.records import Glance

if TYPE_CHECKING:
    from datetime import datetime

    from queueyard.kernel.atomic import BadLine


def glance(at: str, now: datetime) -> Glance:
    root = Path(at)
    beads = root if root.name == ".beads" else root / ".beads"
    store = Store(find_home(root, {}, beads=beads))
    try:
        bad: list[BadLine] = []
        messages = [view_or_none(raw, Message) for raw in store.every_message(bad.append).values()]
        unread = [one for one in messages if one is not None and not one.read and not one.deleted]
        store.assignments.refresh()
        active = [one for one in store.assignments.all() if one.status is AssignmentStatus.ACTIVE]
        bad += store.assignments.bad
    finally:
        store.close()
    return Glance(
        system=System.QUEEN,
        at=at,
        waiting=len(unread),
        running=len(active),
        oldest_wait_s=max(((now - moment_of(one.created_at)).total_seconds() for one in unread), default=None),
        health=f"{len(bad)} bad lines" if bad else _told({owner_of(one) for one in active}),
        is_well=not bad,
    )


def _told(agents: set[str]) -> str:
    return "nobody works" if not agents else "1 agent" if len(agents) == 1 else f"{len(agents)} agents"

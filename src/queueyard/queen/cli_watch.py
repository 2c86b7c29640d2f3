"""How `queen watch` looks on a terminal, and what it prints where there is none."""

from __future__ import annotations

from io import StringIO
import shutil
import sys
from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.output import Output
from queueyard.queen.records import to_raw
from queueyard.queen.rules import owner_of
from queueyard.queen.worker import Snapshot, snapshots

if TYPE_CHECKING:
    from queueyard.queen.calls import Call

_ENTER, _LEAVE, _HOME = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l", "\x1b[H\x1b[2J"


def show_live(call: Call, *, interval_s: float, once: bool) -> None:
    """Print one view after the other until Ctrl-C, or one only."""
    in_place = sys.stdout.isatty() and not once and not call.as_json
    if in_place:
        sys.stdout.write(_ENTER)
    try:
        for view in snapshots(call.queen, interval_s=interval_s):
            if call.as_json:
                sys.stdout.write(msgspec.json.encode(to_raw(view)).decode() + "\n")
            else:
                sys.stdout.write((_HOME if in_place else "") + _drawn(call, view, in_place=in_place))
            sys.stdout.flush()
            if once:
                return
    except KeyboardInterrupt:
        return
    finally:
        if in_place:
            sys.stdout.write(_LEAVE)


def _drawn(call: Call, view: Snapshot, *, in_place: bool) -> str:
    page = StringIO()
    out = Output(stdout=page)
    unread = ", ".join(f"{agent} {count}" for agent, count in view.unread.items()) or "none"
    out.text(f"queen  {view.at}  unread: {unread}  conflicts: {view.conflicts}\n")
    out.table(
        ("WORKS ON", "AGENT", "SINCE", "REASON"),
        [(one.issue_id, owner_of(one), call.ago(one.created_at), one.reason) for one in view.assignments],
    )
    out.text()
    out.table(
        ("RESERVED", "AGENT", "MODE", "ENDS IN"),
        [
            (one.pattern, owner_of(one), "exclusive" if one.exclusive else "shared", call.ago(one.expires_at))
            for one in view.reservations
        ],
    )
    out.text()
    out.table(
        ("FROM", "TO", "AGE", "SUBJECT"),
        [
            (one.sender, one.to, call.ago(one.created_at), ("" if one.read else "* ") + one.subject)
            for one in view.messages
        ],
    )
    if not in_place:
        return page.getvalue()
    size = shutil.get_terminal_size()
    return "\n".join(line[: size.columns] for line in page.getvalue().splitlines()[: size.lines - 1])

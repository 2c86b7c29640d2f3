"""The Lua scripts: their text with its parts put in, their SHA-1, and the keys that each one is called with.

One file per transition in `lua/`, headed by its keys, arguments and answers. A line `-- include parts/x.lua` is
replaced by that file. This module reads files of its own package and nothing else.
"""

from __future__ import annotations

from functools import cached_property
import hashlib
from importlib.resources import files
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_INCLUDE = re.compile(r"^-- include (\S+)$", re.MULTILINE)

#: suffix behind `{q:<queue>}` of every key and channel, by the name that scripts know it under
SUFFIXES = {
    "waiting": ":waiting",
    "active": ":active",
    "completed": ":completed",
    "failed": ":failed",
    "delayed": ":delayed",
    "concurrency": ":concurrency",
    "meta": ":meta",
    "events": ":events",
    "notify": ":notify",
    "finished": ":finished",
    "expiry": ":expiry",
    "held": ":held",
    "unplanted": ":unplanted",
    "children": ":children",
    "ranked": ":ranked",
    "rate": ":rate",
    "schedules": ":schedules",
    "schedule": ":schedule:",
    "dedups": ":dedup:",
    "logs": ":logs:",
    "k_lists": ":k:wait:",
    "k_active": ":k:active",
    "k_ready": ":k:ready",
    "k_limits": ":k:limits",
    "k_rates": ":k:rate:",
    "k_limited": ":k:limited",
    "jobs": ":job:",
}


class Script:
    """One transition."""

    def __init__(self, name: str, keys: str) -> None:
        #: file name without .lua
        self.name = name
        #: names of the keys, in the order of the script's KEYS
        self.keys: Sequence[str] = keys.split()

    @cached_property
    def text(self) -> str:
        folder = files("queueyard.panqueue") / "lua"
        source = (folder / f"{self.name}.lua").read_text(encoding="utf-8")
        return _INCLUDE.sub(lambda found: (folder / found[1]).read_text(encoding="utf-8").rstrip("\n"), source)

    @cached_property
    def sha(self) -> str:
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def __repr__(self) -> str:
        return f"<script {self.name}>"


ADD = Script("add", "waiting meta notify events")
ADD_KEYED = Script("add_keyed", "k_lists k_active k_ready k_limits meta notify events")
ADD_PLACED = Script(
    "add_placed",
    "waiting delayed expiry held unplanted children dedups meta k_lists k_active k_ready k_limits notify finished"
    " events",
)
TURN = Script("turn", "waiting active completed delayed concurrency meta notify finished events")
TURN_KEYED = Script(
    "turn_keyed",
    "k_lists k_active k_ready k_limits active completed delayed concurrency meta notify finished events",
)
TURN_RULED = Script(
    "turn_ruled",
    "waiting active completed delayed concurrency meta notify finished events ranked rate",
)
TURN_KEYED_RULED = Script(
    "turn_keyed_ruled",
    "k_lists k_active k_ready k_limits active completed delayed concurrency meta notify finished events rate k_rates"
    " k_limited",
)
POSTPONE = Script(
    "postpone",
    "waiting active delayed meta k_lists k_active k_ready k_limits notify events rate",
)
FAIL = Script(
    "fail",
    "waiting active failed delayed meta k_lists k_active k_ready k_limits notify finished events",
)
RECOVER = Script("recover", "waiting active failed meta k_lists k_active k_ready k_limits notify finished events")
EXTEND = Script("extend", "active")
HAND_BACK = Script("hand_back", "waiting active meta k_lists k_active k_ready k_limits notify events")
_WITHDRAWING = (
    "waiting active failed delayed held unplanted ranked expiry meta k_lists k_active k_ready k_limits notify finished"
    " events"
)
CANCEL = Script("cancel", _WITHDRAWING)
EXPIRE = Script("expire", _WITHDRAWING)
REPORT = Script("report", "meta logs events")
STEP = Script("step", "meta")
FORWARDED = Script("forwarded", "meta")
CHILD_ENDED = Script("child_ended", "children")
ENDED_CHILDREN = Script("ended_children", "children")
TELL_PARENT = Script(
    "tell_parent",
    "waiting failed held unplanted meta k_lists k_active k_ready k_limits notify finished events",
)
SCHEDULE_PUT = Script("schedule_put", "schedules schedule notify")
SCHEDULE_DUE = Script("schedule_due", "schedules schedule")
SCHEDULE_FIRE = Script(
    "schedule_fire",
    "schedules schedule waiting meta k_lists k_active k_ready k_limits notify events",
)
DECLARE_LIMIT = Script("declare_limit", "concurrency")
DECLARE_MODE = Script("declare_mode", "meta waiting active delayed")
KEY_LIMIT = Script("key_limit", "k_lists k_active k_ready k_limits meta notify")
PAUSE = Script("pause", "meta notify events")
SWITCH_EVENTS = Script("switch_events", "meta")
COUNTS = Script(
    "counts",
    "waiting active completed failed delayed concurrency meta k_lists k_active k_ready k_limits events held ranked"
    " k_limited",
)
PAGE = Script("page", "waiting index meta k_ready k_active k_limits k_lists ranked k_limited")
RETRY = Script("retry", "waiting failed meta k_lists k_active k_ready k_limits notify events")
REMOVE = Script(
    "remove",
    "waiting active completed failed delayed meta k_lists k_active k_ready k_limits finished events ranked held"
    " unplanted expiry",
)
DRAIN = Script("drain", "waiting delayed meta k_lists k_active k_ready k_limits finished events ranked k_limited")
TRIM = Script("trim", "index")
OBLITERATE = Script(
    "obliterate",
    "waiting active completed failed delayed concurrency meta k_lists k_active k_ready k_limits events ranked held"
    " expiry unplanted children rate k_limited schedules schedule",
)
MEND = Script(
    "mend",
    "waiting active completed failed delayed meta k_lists k_active k_ready k_limits ranked held unplanted",
)

ALL = (
    *(
        ADD,
        ADD_KEYED,
        ADD_PLACED,
        TURN,
        TURN_KEYED,
        FAIL,
        RECOVER,
        EXTEND,
        HAND_BACK,
        DECLARE_LIMIT,
        DECLARE_MODE,
        KEY_LIMIT,
    ),
    *(SCHEDULE_PUT, SCHEDULE_DUE, SCHEDULE_FIRE, CANCEL, EXPIRE, REPORT, STEP, FORWARDED),
    *(TURN_RULED, TURN_KEYED_RULED, POSTPONE, CHILD_ENDED, ENDED_CHILDREN, TELL_PARENT),
    *(PAUSE, SWITCH_EVENTS, COUNTS, PAGE, RETRY, REMOVE, DRAIN, TRIM, OBLITERATE, MEND),
)

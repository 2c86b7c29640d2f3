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
    "k_lists": ":k:wait:",
    "k_active": ":k:active",
    "k_ready": ":k:ready",
    "k_limits": ":k:limits",
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
TURN = Script("turn", "waiting active completed delayed concurrency meta notify finished events")
TURN_KEYED = Script(
    "turn_keyed",
    "k_lists k_active k_ready k_limits active completed delayed concurrency meta notify finished events",
)
FAIL = Script(
    "fail",
    "waiting active failed delayed meta k_lists k_active k_ready k_limits notify finished events",
)
RECOVER = Script("recover", "waiting active failed meta k_lists k_active k_ready k_limits notify finished events")
EXTEND = Script("extend", "active")
HAND_BACK = Script("hand_back", "waiting active meta k_lists k_active k_ready k_limits notify events")
DECLARE_LIMIT = Script("declare_limit", "concurrency")
DECLARE_MODE = Script("declare_mode", "meta waiting active delayed")
KEY_LIMIT = Script("key_limit", "k_lists k_active k_ready k_limits meta notify")
PAUSE = Script("pause", "meta notify events")
SWITCH_EVENTS = Script("switch_events", "meta")
COUNTS = Script(
    "counts",
    "waiting active completed failed delayed concurrency meta k_lists k_active k_ready k_limits events",
)
PAGE = Script("page", "waiting index meta k_ready k_active k_limits k_lists")
RETRY = Script("retry", "waiting failed meta k_lists k_active k_ready k_limits notify events")
REMOVE = Script(
    "remove",
    "waiting active completed failed delayed meta k_lists k_active k_ready k_limits finished events",
)
DRAIN = Script("drain", "waiting delayed meta k_lists k_active k_ready k_limits finished events")
TRIM = Script("trim", "index")
OBLITERATE = Script(
    "obliterate",
    "waiting active completed failed delayed concurrency meta k_lists k_active k_ready k_limits events",
)
MEND = Script("mend", "waiting active completed failed delayed meta k_lists k_active k_ready k_limits")

ALL = (
    *(ADD, ADD_KEYED, TURN, TURN_KEYED, FAIL, RECOVER, EXTEND, HAND_BACK, DECLARE_LIMIT, DECLARE_MODE, KEY_LIMIT),
    *(PAUSE, SWITCH_EVENTS, COUNTS, PAGE, RETRY, REMOVE, DRAIN, TRIM, OBLITERATE, MEND),
)

"""What a panel is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from queueyard.yard.actions import Noun, Verb


class Column(msgspec.Struct, frozen=True):
    #: field of the row
    name: str
    label: str
    #: text, code, number, time, seconds, bytes, share or state
    kind: str = "text"


class Action(msgspec.Struct, frozen=True):
    verb: Verb
    noun: Noun
    #: fields of the row that say what is meant
    target: tuple[str, ...]
    label: str
    #: which rows it makes sense for
    when: Callable[[Any], bool] = lambda _: True


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One table of one page."""

    #: field of the details
    name: str
    title: str
    columns: tuple[Column, ...]
    #: what it says where there are no rows
    empty: str
    actions: tuple[Action, ...] = ()
    #: field of the row that names its log
    log: str | None = None


def is_open(row: Any) -> bool:
    return bool(row.state == "open")


def is_paused(row: Any) -> bool:
    return bool(row.state == "paused")


def has_failed(row: Any) -> bool:
    return bool(row.failed)

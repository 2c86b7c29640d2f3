"""`queen_messages.idx.json`: the index of the schema, for other tools. We write it on demand and never read it.

Line numbers count from 1 and name the last line of a message, which is what a reader that takes the latest wants.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from queueyard.kernel.atomic import read_document, read_lines, replace_file
from queueyard.queen.records import Message, Raw, decode_record, is_migration
from queueyard.queen.rules import fold
from queueyard.queen.store import MESSAGES, Store

if TYPE_CHECKING:
    from pathlib import Path

IDX_NAME = "queen_messages.idx.json"


class IdxJson(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of the schema (spec: Indexes)."""

    by_id: dict[str, int]
    by_to: dict[str, list[str]]
    by_issue: dict[str, list[str]]
    by_thread: dict[str, list[str]]


def export(store: Store) -> Path:
    """Write the index as the message file is now; gives its path."""
    path = store.home.beads / IDX_NAME
    replace_file(path, msgspec.json.encode(_built(store)) + b"\n")
    return path


def is_current(store: Store) -> bool:
    """Whether an index that was exported before still fits the message file."""
    path = store.home.beads / IDX_NAME
    decoder = msgspec.json.Decoder(IdxJson)
    return read_document(path, decoder.decode, repair="Write it anew: queen index --export") == _built(store)


def _built(store: Store) -> IdxJson:
    folded: dict[str, Raw] = {}
    numbers: dict[str, int] = {}
    for line in read_lines(store.home.beads / MESSAGES, lambda raw: decode_record(raw, Message), on_bad=lambda _: None):
        if not is_migration(line.value):
            identifier = line.value["id"]
            folded[identifier] = fold(folded.get(identifier), line.value)
            numbers[identifier] = line.number
    return IdxJson(
        by_id=numbers,
        by_to=_grouped(folded, "to"),
        by_issue=_grouped(folded, "issue_id"),
        by_thread=_grouped(folded, "thread_id"),
    )


def _grouped(folded: dict[str, Raw], field: str) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for identifier, raw in folded.items():
        if isinstance(raw.get(field), str):
            groups.setdefault(raw[field], []).append(identifier)
    return groups

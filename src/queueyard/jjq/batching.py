"""One check for several items, and the culprit by bisection. Pure.

The items of a batch are merged one onto the other. Only what was checked becomes trunk: a prefix of the batch. The
first check is of the whole batch. If it fails, halves are checked until a prefix that passed and the next longer one,
which failed, stand side by side: the item between them is the culprit. At most 1 + ceil(log2(n)) checks.
"""

from __future__ import annotations

import msgspec


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about the prefixes of a batch."""

    #: the items, in the order in which they are merged
    ids: tuple[int, ...]
    #: length of the longest prefix that passed; the empty one is trunk itself
    good: int = 0
    #: length of the shortest prefix that failed, if one did
    bad: int | None = None


def probe(batch: Batch) -> int | None:
    """Length of the prefix to check next; None once everything is known."""
    if batch.bad is None:
        return len(batch.ids) if batch.good < len(batch.ids) else None
    return (batch.good + batch.bad) // 2 if batch.bad - batch.good > 1 else None


def passed(batch: Batch, length: int) -> Batch:
    return msgspec.structs.replace(batch, good=length)


def failed(batch: Batch, length: int) -> Batch:
    return msgspec.structs.replace(batch, bad=length)


def culprit(batch: Batch) -> int | None:
    """The item that breaks the batch, once it is known; None if it is not, or if there is none."""
    return batch.ids[batch.bad - 1] if batch.bad is not None and batch.bad - batch.good == 1 else None

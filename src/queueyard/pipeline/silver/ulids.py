"""Ids of events inside Spark: the same ULID that the kernel derives from the same words (kernel.ids.derived_ulid)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

    from queueyard.kernel.events import System

#: digits of base 32 as `conv` writes them, and as a ULID does
_CONV_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUV"
_ULID_DIGITS = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def event_id(at: Column, *, system: System, queue: Column, item: Column, kind: Column, change: Column) -> Column:
    """As kernel.events.event_id; `at` is a timestamp."""
    return derived_ulid(at, F.lit(str(system)), queue, item, kind, change)


def derived_ulid(at: Column, *parts: Column) -> Column:
    """As kernel.ids.derived_ulid."""
    told = F.concat(*[F.concat(F.length(part).cast("string"), F.lit(":"), part) for part in parts])
    digest = F.sha2(told, 256)
    milliseconds = F.greatest(F.lit(0), F.unix_millis(at)).cast("string")
    # Ten hexadecimal digits are eight of base 32: forty bits at a time, because `conv` knows no more than 64.
    digits = F.concat(
        F.lpad(F.conv(milliseconds, 10, 32), 10, "0"),
        F.lpad(F.conv(F.substring(digest, 1, 10), 16, 32), 8, "0"),
        F.lpad(F.conv(F.substring(digest, 11, 10), 16, 32), 8, "0"),
    )
    ulid: Column = F.translate(digits, _CONV_DIGITS, _ULID_DIGITS)
    return ulid
